"""The people who judge a run in a PostgreSQL store: who they are, what they have, what they said."""

from __future__ import annotations

from judgeq.errors import RunError, StoreAwayError
from judgeq.person import Check, Handed, Person
from judgeq.store import people, rows
from judgeq.store.postgres import statements
from judgeq.store.postgres.reading import PostgresReader
from judgeq.types import Call, Match


class PostgresPeople(PostgresReader):
    """See `Store`."""

    async def people(self) -> list[Person]:
        """See Store."""
        kept = await self._rows(statements.PEOPLE, self._run)
        with self._reading():
            return people.everybody(kept)

    async def put_person(self, person: Person) -> None:
        """See Store."""
        from psycopg.errors import UniqueViolation

        try:
            row = people.person_row(person)
            if not await self._link.query(statements.PUT_PERSON, self._run, *row):
                raise people.taken(person)
        except StoreAwayError:
            raise
        except RunError as error:
            if isinstance(error.__cause__, UniqueViolation):
                raise RunError(
                    f"{self._shown} has a person named {person.name!r} already."
                ) from error
            raise

    async def handed(self) -> list[Handed]:
        """See Store."""
        kept = await self._rows(statements.HANDED_OUT, self._run)
        with self._reading():
            return [people.handed(row) for row in kept]

    async def hand_out(self, handed: Handed) -> bool:
        """See Store."""
        given = {"run": self._run, **handed._asdict()}
        return bool(await self._link.query_named(statements.HAND_OUT, given))

    async def take_back(self, lease: str) -> bool:
        """See Store."""
        return bool(await self._link.query(statements.TAKE_BACK, self._run, lease))

    async def retract(self, job: int, judge: int) -> bool:
        """See Store."""
        given = {"run": self._run, "job": job, "judge": judge}
        return bool(await self._link.query_named(statements.RETRACT, given))

    async def said(self) -> list[tuple[Match, Call]]:
        """See Store."""
        kept = await self._rows(statements.SAID, self._run)
        rounds, n = await self._rounds_of([row[0] for row in kept]), await self._n()
        with self._reading():
            return [
                (rows.job(row[:7], round, n).match, rows.call(row[7:]))
                for row, round in zip(kept, rounds, strict=True)
            ]

    async def checks(self) -> list[Check]:
        """See Store."""
        kept = await self._rows(statements.CHECKS, self._run)
        n = await self._n()
        with self._reading():
            return [people.check(row, n) for row in kept]

    async def put_check(self, check: Check) -> None:
        """See Store."""
        await self._link.query(statements.PUT_CHECK, self._run, *people.check_row(check))
