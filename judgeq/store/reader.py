"""The reading side of a store: items, rounds, verdicts, batches, people, and what the ledger adds up to.

A store may be anybody's: what can't have been written by us raises RunError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import numpy as np

from judgeq.errors import RunError
from judgeq.events import Event
from judgeq.people import Check, Handed, Person
from judgeq.store import answers, batches, people, rows
from judgeq.store import statements as sql
from judgeq.store.database import Database
from judgeq.store.protocol import Items, Spent
from judgeq.types import (
    Batch,
    Bools,
    Call,
    Counts,
    Failure,
    Floats,
    Job,
    JobState,
    Line,
    Match,
    Matches,
    Totals,
    Usage,
    Verdicts,
)

_EVERY = (0, 2**62)
_NONE = (0, -1)
_AT_ONCE = 10_000
"""So many numbers stand in one statement."""


class SqlReader:
    """See Store. What doesn't add up is its `damage`, where that was accepted."""

    def __init__(self, database: Database, damage: Sequence[str] = ()) -> None:
        self._db = database
        self.damage = damage
        self._items = 0  # how many there are, once that is known
        self._ends: list[int] = []  # the last job of each round that is known

    @property
    def blocking(self) -> bool:
        """See Store."""
        return self._db.blocking

    def report_to(self, emit: Callable[[Event], None]) -> None:
        """See Store."""
        self._db.emit = emit

    def hurry(self) -> None:
        """See Store."""
        self._db.hurried = True

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Say so where a row holds what we never wrote."""
        try:
            yield
        except (TypeError, ValueError, struct.error, OverflowError) as error:
            raise RunError(f"{self._db.shown} is damaged: {error}.") from error

    async def _one(self, statement: str, **values: object) -> Any:
        """The first row of a statement, or None."""
        found = await self._db.read(statement, **values)
        return found[0] if found else None

    async def _n(self) -> int:
        """How many items there are; it never changes once there are any."""
        if not self._items:
            self._items = (await self._one(sql.N))[0]
        return self._items

    async def _rounds_of(self, jobs: Sequence[int]) -> list[int]:
        """The rounds that jobs belong to; those that are planned don't change."""
        if jobs and (not self._ends or max(jobs) > self._ends[-1]):
            self._ends = [last for (last,) in await self._db.read(sql.ENDS)]
        rounds: list[int] = (np.searchsorted(self._ends, jobs) + 1).tolist()
        return rounds

    async def _jobs(self, kept: Sequence[Sequence[Any]]) -> list[Job]:
        """The jobs of rows that begin with statements.JOB."""
        with self._reading():
            rounds, n = await self._rounds_of([row[0] for row in kept]), await self._n()
            return [rows.job(row[:7], round, n) for row, round in zip(kept, rounds, strict=True)]

    async def _span(self, round: int) -> tuple[int, int] | None:
        """The first and the last job of a round; None before it is planned."""
        found = await self._one(sql.SPAN, round=round)
        return None if found is None else (int(found[0]), int(found[1]))

    async def items(self) -> Items:
        """See Store."""
        kept, subsets = await self._db.read(sql.ITEMS), await self._db.read(sql.SUBSETS)
        with self._reading():
            return rows.items(kept, subsets)

    async def round_state(self, round: int) -> Counts | None:
        """See Store."""
        span = await self._span(round)
        return None if span is None else await self._count(span)

    async def counts(self) -> Counts:
        """See Store."""
        return await self._count(_EVERY)

    async def _count(self, span: tuple[int, int]) -> Counts:
        counted = await self._db.counts(*span)
        with self._reading():
            numbers = dict.fromkeys((field.name for field in fields(Counts)), 0)
            for state, count in counted:
                numbers[JobState(state)] += count
            if min(numbers.values()) < 0:
                raise ValueError("its rounds have fewer jobs than there are")
            return Counts(**numbers)

    async def left(self, round: int) -> list[Match]:
        """See Store."""
        first, last = await self._span(round) or _NONE
        kept = await self._db.read(sql.LEFT, first=first, last=last)
        return [job.match for job in await self._jobs(kept)]

    async def matches(self, round: int) -> Matches:
        """See Store."""
        span = await self._span(round) or _NONE
        with self._reading():
            return await self._db.matches(*span)

    async def verdicts(self, round: int | None = None) -> Verdicts:
        """See Store."""
        span = _EVERY if round is None else await self._span(round) or _NONE
        n = await self._n()
        with self._reading():
            return answers.assembled(await self._db.verdicts(*span), n)

    async def ratings(self, round: int) -> Floats | None:
        """See Store."""
        kept, n = await self._one(sql.RATINGS, round=round), await self._n()
        with self._reading():
            return None if kept is None else rows.ratings(kept[0], n)

    async def active(self, round: int) -> Bools | None:
        """See Store."""
        kept, n = await self._one(sql.ACTIVE, round=round), await self._n()
        with self._reading():
            return None if kept is None else rows.active(kept[0], n)

    async def totals(self) -> Totals:
        """See Store."""
        calls, attempts = await self._one(sql.CALLS), await self._one(sql.ATTEMPTS)
        with self._reading():
            return rows.totals(calls, attempts)

    async def spent(self, n: int) -> list[Spent]:
        """See Store."""
        kept = await self._db.read(sql.SPENT, n=n)
        return [
            Spent(job.match, Usage(*row[7:11]), None if row[12] else row[11], row[13])
            for job, row in zip(await self._jobs(kept), kept, strict=True)
        ]

    async def calls(self, jobs: Sequence[int]) -> Mapping[int, Sequence[Call]]:
        """See Store. Replies may be long: only those asked for are read."""
        if isinstance(jobs, range) and jobs.step == 1:
            spans = [f"job BETWEEN {jobs.start} AND {jobs.stop - 1}"]
        else:
            numbers = list(map(int, jobs))
            parts = [numbers[at : at + _AT_ONCE] for at in range(0, len(numbers), _AT_ONCE)]
            spans = [f"job IN ({', '.join(map(str, part))})" for part in parts]
        kept = [row for span in spans for row in await self._db.read(sql.CALLS_OF.format(span))]
        with self._reading():
            return rows.calls_by_job(kept)

    async def last_failure(self) -> Failure | None:
        """See Store."""
        last = await self._one(sql.LAST_FAILURE)
        with self._reading():
            return None if last is None else rows.failure(*last)

    async def batches(self) -> list[Batch]:
        """See Store."""
        kept = await self._db.read(sql.BATCHES)
        with self._reading():
            return [batches.read(row) for row in kept]

    async def lines(self, batch: str) -> list[Line]:
        """See Store."""
        kept = await self._one(sql.SENT, name=batch)
        if kept is None:
            return []
        jobs = await self._jobs(await self._db.read(sql.OF_BATCH, worker=kept[0]))
        with self._reading():
            return batches.lines(kept[1], jobs)

    async def people(self) -> list[Person]:
        """See Store."""
        kept = await self._db.read(sql.PEOPLE)
        with self._reading():
            return people.everybody(kept)

    async def handed(self) -> list[Handed]:
        """See Store."""
        kept = await self._db.read(sql.HANDED)
        with self._reading():
            return [people.handed(row) for row in kept]

    async def said(self) -> list[tuple[Match, Call]]:
        """See Store."""
        kept = await self._db.read(sql.SAID)
        jobs = await self._jobs(kept)
        with self._reading():
            return [(job.match, rows.call(row[7:])) for job, row in zip(jobs, kept, strict=True)]

    async def checks(self) -> list[Check]:
        """See Store."""
        kept, n = await self._db.read(sql.CHECKS), await self._n()
        with self._reading():
            return [people.check(row, n) for row in kept]
