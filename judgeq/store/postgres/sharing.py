"""What the workers of a run share, in PostgreSQL: its cap.

Each question is one round trip and one transaction of its own, on a connection of its own: a process
that stops in the middle of anything holds no lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from judgeq.judge.slices import Keeper, Slice
from judgeq.store.postgres.address import Address, connect_async, in_schema, problem

if TYPE_CHECKING:
    import psycopg

MOST = 2**62
"""Nano-dollars of a cap that are kept: what is more is none that anybody reaches."""

# Both locks come first, in statements of their own: what is read after them is what others left. Its own
# row may be locked by what the worker is just committing: nobody else waits for that.
LOCK_MONEY = """
SELECT FROM @.workers WHERE worker = %(worker)s FOR NO KEY UPDATE;
SELECT FROM @.runs WHERE run = %(run)s FOR NO KEY UPDATE;
"""
# The worker's own row is set to what it holds by its own account: an answer that was lost with its
# connection gave it nothing.
RESERVE = """
WITH us AS (
    SELECT spent + at_risk AS gone, coalesce(%(held)s - spent - at_risk - handed, 0) AS free
    FROM @.workers WHERE worker = %(worker)s AND NOT over),
others AS (
    SELECT coalesce(sum(spent + at_risk), 0) AS gone,
        coalesce(sum(greatest(free, 0)) FILTER (WHERE NOT over), 0) AS free,
        coalesce(bool_or(free > 0 OR reserved > 0) FILTER (WHERE NOT over), false) AS pending
    FROM @.workers WHERE run = %(run)s AND worker <> %(worker)s),
room AS (
    SELECT us.free, others.pending, cap,
        cap - others.gone - others.free - us.gone - greatest(us.free, 0) AS room
    FROM us, others, @.runs WHERE run = %(run)s),
given AS MATERIALIZED (
    SELECT *, CASE WHEN room >= greatest(%(least)s, 0) THEN least(%(wanted)s, room) ELSE 0 END::bigint
        AS granted FROM room)
UPDATE @.workers w SET free = given.free + granted, reserved = %(reserved)s + granted
FROM given WHERE w.worker = %(worker)s AND NOT w.over
RETURNING granted, w.spent + w.at_risk + w.handed + w.free, pending
"""
TOTALS = """
SELECT coalesce(sum(spent + at_risk), 0)::bigint, coalesce(sum(at_risk), 0)::bigint,
    (SELECT cap FROM @.runs WHERE run = %(run)s)
FROM @.workers WHERE run = %(run)s
"""
CAP = "UPDATE @.runs SET cap = %s WHERE run = %s"

# Whatever the default of the database or the role is: what is read after a lock is what others left.
COMMITTED = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;"

Work = Callable[[], Awaitable[Any]]
Again = Callable[[Work], Awaitable[Any]]
"""What tries something again, and returns what that returns at last; see Link.again."""


async def _once(work: Work) -> Any:
    return await work()


class Sharing(Keeper):
    """See Keeper: that of one process, for one run. `worker` gives the number of its row in workers;
    `again` tries what it is given again while the database is away."""

    def __init__(
        self,
        address: Address,
        run: int,
        worker: Callable[[], int | None],
        again: Again = _once,
    ) -> None:
        self._address = address
        self._run = run
        self._worker = worker
        self._again = again
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._busy = asyncio.Lock()
        self.settled: Callable[[int, int], None] = lambda reserved, freed: None
        """What the store calls as Keeper.on_settled says."""

    @property
    def worker(self) -> int | None:
        """See Keeper."""
        return self._worker()

    def on_settled(self, settled: Callable[[int, int], None]) -> None:
        """See Keeper."""
        self.settled = settled

    async def set_cap(self, cap: int | None) -> None:
        """See Keeper."""
        given = None if cap is None else min(cap, MOST), self._run
        await self._again(lambda: self._do(CAP, given))

    async def reserve(self, held: int | None, least: int, wanted: int, reserved: int) -> Slice:
        """See Keeper."""
        given = {
            "run": self._run,
            "worker": self.worker,
            "held": held,
            "least": least,
            "wanted": max(least, wanted),
            "reserved": reserved,
        }
        # A run can't begin without the first answer; for others its task asks again.
        again = self._again if held is None else _once
        rows = await again(lambda: self._do(f"{LOCK_MONEY}{RESERVE};{TOTALS}", given))
        (spent, at_risk, cap), answer = rows[-1][0], rows[-2]
        if not answer:
            return Slice(0, None, cap, spent, at_risk, pending=True)
        granted, holds, pending = answer[0]
        return Slice(granted, holds, cap, spent, at_risk, pending)

    async def close(self) -> None:
        """See Keeper."""
        await self._drop()

    async def _do(
        self, statements: str, given: Mapping[str, Any] | tuple[Any, ...]
    ) -> list[list[Any]]:
        """The rows of each statement. They are sent together, and are one transaction."""
        import psycopg

        async with self._busy:
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = await connect_async(self._address)
                cursor = psycopg.AsyncClientCursor(self._connection)
                await cursor.execute(in_schema(COMMITTED + statements, self._address.schema), given)
                rows = [await cursor.fetchall() if cursor.description else []]
                while cursor.nextset():
                    rows.append(await cursor.fetchall() if cursor.description else [])
                return rows
            except BaseException as error:
                # Cancelled in the middle, too: what comes next on it is the answer to another question.
                await self._drop()
                if isinstance(error, psycopg.Error):
                    raise problem(self._address, error) from error
                raise

    async def _drop(self) -> None:
        import psycopg

        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error, OSError):
                await connection.close()
