"""Which of a store's runs have work now: what a worker without work asks again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from judgeq.store.postgres.address import Address, connect_async, in_schema, problem

if TYPE_CHECKING:
    import psycopg

# Each EXISTS reads one entry of a partial index, however many jobs there are.
_PROSPECTS = """
SELECT r.name, r.fingerprint,
    EXISTS (SELECT FROM @.jobs j WHERE j.run = r.run AND j.state = 'pending'),
    EXISTS (SELECT FROM @.jobs j WHERE j.run = r.run AND j.state = 'running'),
    coalesce(d.round, 0), coalesce(d.last < d.first, false)
FROM @.runs r LEFT JOIN LATERAL (
    SELECT round, first, last FROM @.rounds WHERE run = r.run ORDER BY round DESC LIMIT 1) d ON true
ORDER BY r.run
"""


class Row(NamedTuple):
    """A run: whether jobs of it wait, or are held; how many rounds are planned, and whether the last
    of them says that no more come."""

    name: str
    fingerprint: str
    pending: bool
    running: bool
    planned: int
    ended: bool


class Lookout:
    """Asks a store, on a connection that is there as long as somebody waits for work."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._connection: psycopg.AsyncConnection[Any] | None = None

    async def look(self) -> list[Row]:
        """All runs, the first that was begun first; none where the schema isn't there yet. Raises
        RunError while the database can't be used."""
        if self._connection is None:
            self._connection = await connect_async(self._address)
        import psycopg

        try:
            there = await self._connection.execute(
                "SELECT to_regclass(%s) IS NOT NULL", (f'"{self._address.schema}".rounds',)
            )
            if not (await there.fetchone() or (False,))[0]:
                return []
            statement: Any = in_schema(_PROSPECTS, self._address.schema)
            rows = await self._connection.execute(statement)
            return [Row(*row) for row in await rows.fetchall()]
        except psycopg.Error as error:
            await self.close()
            raise problem(self._address, error) from error

    async def close(self) -> None:
        """Let go of the connection; the next look makes another."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()
