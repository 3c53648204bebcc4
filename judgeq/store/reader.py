"""The reading side of a store: items, rounds, verdicts, batches, people, and what the ledger adds up to.

A store may be anybody's: what can't have been written by us raises RunError.
"""

from __future__ import annotations

import struct
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from judgeq.errors import RunError
from judgeq.events import Event
from judgeq.person import Check, Handed, Person
from judgeq.store import batches, rows, verdicts
from judgeq.store import statements as sql
from judgeq.store.protocol import Answered, Database, Items, Spent
from judgeq.types import (
    Batch,
    Bools,
    Call,
    Counts,
    Failure,
    Job,
    JobState,
    Line,
    Match,
    Matches,
    Totals,
    Usage,
    Verdicts,
)

T = TypeVar("T")
_EVERY = (0, 2**62)
_NONE = (0, -1)
_AT_ONCE = 10_000
"""So many numbers stand in one statement."""


class SqlReader:
    """What a store reads."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._items = 0  # how many there are, once that is known
        self._ends: list[int] = []  # the last job of each round that is known

    @property
    def blocking(self) -> bool:
        """Whether operations keep the event loop until they are done, so that nothing runs meanwhile."""
        return self._db.blocking

    def report_to(self, emit: Callable[[Event], None]) -> None:
        """Have the user notified of what they should know of the store, from now on."""
        self._db.emit = emit

    def hurry(self) -> None:
        """A stop was asked for: from now on don't wait for long where the store can't be reached."""
        self._db.hurried = time.monotonic()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Say so where a row holds what we never wrote."""
        try:
            yield
        except (TypeError, ValueError, struct.error, OverflowError) as error:
            raise RunError(f"{self._db.label} is damaged: {error}.") from error

    async def _one(self, statement: str, **values: object) -> Any:
        """The first row of a statement, or None."""
        found = await self._db.read(statement, **values)
        return found[0] if found else None

    async def _read(self, statement: str, codec: Callable[[Sequence[Any]], T]) -> list[T]:
        """What the rows of a statement stand for."""
        kept = await self._db.read(statement)
        with self._reading():
            return [codec(row) for row in kept]

    async def n_items(self) -> int:
        """How many items there are; it never changes once there are any."""
        if not self._items:
            (self._items,) = await self._one(sql.N)
        return self._items

    async def _jobs(self, kept: Sequence[Sequence[Any]]) -> list[Job]:
        """The jobs of rows that begin with statements.JOB."""
        numbers = [row[0] for row in kept]
        if numbers and (not self._ends or max(numbers) > self._ends[-1]):  # what is planned stays
            self._ends = [last for (last,) in await self._db.read(sql.ENDS)]
        rounds, n = np.searchsorted(self._ends, numbers) + 1, await self.n_items()
        with self._reading():
            return [
                rows.job(row[:7], round, n)
                for row, round in zip(kept, rounds.tolist(), strict=True)
            ]

    async def _span(self, round: int) -> tuple[int, int] | None:
        """The first and the last job of a round; None before it is planned."""
        found = await self._one(sql.SPAN, round=round)
        return None if found is None else (found[0], found[1])

    async def items(self) -> Items:
        """The items as they were put in; none (n = 0) before `set_items`."""
        kept, subsets = await self._db.read(sql.ITEMS), await self._db.read(sql.SUBSETS)
        with self._reading():
            return rows.items(kept, subsets)

    async def round_state(self, round: int) -> Counts | None:
        """The round's jobs by state (the barrier: `left` is 0); None before it is planned."""
        span = await self._span(round)
        return None if span is None else await self._count(span)

    async def counts(self) -> Counts:
        """The jobs of all planned rounds by state."""
        return await self._count(_EVERY)

    async def _count(self, span: tuple[int, int]) -> Counts:
        numbers = Counter[str]()
        for state, count in await self._db.counts(*span):
            numbers[state] += count
        with self._reading():
            rows.check_range("its jobs", *numbers.values(), below=2**62)
            return Counts(**{JobState(state): count for state, count in numbers.items()})

    async def left(self, round: int) -> list[Match]:
        """The matches of a planned round that have no outcome yet."""
        first, last = await self._span(round) or _NONE
        kept = await self._db.read(sql.LEFT, first=first, last=last)
        return [job.match for job in await self._jobs(kept)]

    async def matches(self, round: int) -> Matches:
        """A planned round's questions, with their judges; none before it is planned."""
        first, last = await self._span(round) or _NONE
        kept = await self._db.read(sql.MATCHES, first=first, last=last)
        with self._reading():
            return verdicts.matches(kept)

    async def verdicts(self, round: int | None = None) -> Verdicts:
        """The verdicts of one round, or of all, in match order.

        Raises RunError when they don't fit the matches they answer (a damaged file).
        """
        span = _EVERY if round is None else await self._span(round) or _NONE
        n = await self.n_items()
        with self._reading():
            return await self._db.verdicts(*span, n)

    async def active(self, round: int) -> Bools | None:
        """The items that could be asked about in a planned round, shape (n,); None before it is
        planned."""
        kept, n = await self._one(sql.ACTIVE, round=round), await self.n_items()
        with self._reading():
            return None if kept is None else rows.active(kept[0], n)

    async def totals(self, round: int | None = None) -> Totals:
        """What the ledger adds up to: that of the run, or of one round's questions."""
        span = await self._of(round)
        calls, attempts = await self._one(sql.CALLS, **span), await self._one(sql.ATTEMPTS, **span)
        with self._reading():
            return rows.totals(calls, attempts)

    async def _of(self, round: int | None) -> dict[str, int]:
        """The first and the last job of a round, or of all."""
        first, last = _EVERY if round is None else await self._span(round) or _NONE
        return {"first": first, "last": last}

    async def last_again(self) -> int:
        """The round of the questions that were asked again last, a negative number; 0 if none were."""
        (round, _) = await self._one(sql.LAST_AGAIN)
        return int(round)

    async def spent(self, n: int) -> list[Spent]:
        """What the replies to the questions with an outcome took, in match order; of about the first n
        calls."""
        kept = await self._db.read(sql.SPENT, n=n)
        return [
            Spent(job.match, Usage(*usage), None if unpriced else cost, latency)
            for job, (*usage, cost, unpriced, latency) in zip(
                await self._jobs(kept), (row[7:] for row in kept), strict=True
            )
        ]

    async def answered(self, round: int | None = None) -> list[Answered]:
        """Which models their providers say answered, in the order in which they did first: in the
        run, or in one round."""
        kept = await self._db.read(sql.ANSWERERS, **await self._of(round))
        return [Answered(*row) for row in kept]

    async def models(self) -> dict[int, str | None]:
        """The model that gave the verdict on each job, as its provider says; None where it doesn't."""
        return dict(await self._db.read(sql.MODELS))

    async def calls(self, jobs: Sequence[int]) -> Mapping[int, Sequence[Call]]:
        """The calls about these jobs, by job, in the order in which they ended, without what their
        attempts were begun with; nothing for a job that had none. `reply` is raw, and says of a call
        without an answer why: replies may be long, and only those asked for are read. Raises RunError
        for calls that can't be."""
        parts = [jobs[at : at + _AT_ONCE] for at in range(0, len(jobs), _AT_ONCE)]
        by_job = defaultdict[int, list[Call]](list)
        for part in parts:
            numbers = ", ".join(str(int(job)) for job in part)
            for _, *row in await self._db.read(sql.CALLS_OF.format(numbers)):
                with self._reading():
                    by_job[row[0]].append(rows.call(row))
        return by_job

    async def last_failure(self) -> Failure | None:
        """The last call that brought no answer; None if there was none."""
        found = await self._read(sql.LAST_FAILURE, lambda row: rows.failure(*row))
        return found[0] if found else None

    async def batches(self) -> list[Batch]:
        """All batches, in the order in which they were made. Raises RunError for one that can't be."""
        return await self._read(sql.BATCHES, batches.read)

    async def lines(self, batch: str) -> list[Line]:
        """The jobs that a batch still has, by number, with just what they were given with. They are
        settled in the batch's name, as its worker; a PENDING outcome gives one back."""
        kept = await self._one(sql.SENT, name=batch)
        if kept is None:
            return []
        jobs = await self._jobs(await self._db.read(sql.OF_BATCH, worker=kept[0]))
        with self._reading():
            return batches.lines(kept[1], jobs)

    async def people(self) -> list[Person]:
        """All of them, by number. Raises RunError for one that can't be."""
        return await self._read(sql.PEOPLE, rows.person)

    async def handed(self) -> list[Handed]:
        """What people have now."""
        return await self._read(sql.HANDED, rows.handed)

    async def people_calls(self) -> list[tuple[Match, Call]]:
        """All calls of people, in the order in which they came, each with what it is about."""
        kept = await self._db.read(sql.SAID)
        jobs = await self._jobs(kept)
        with self._reading():
            return [(job.match, rows.call(row[7:])) for job, row in zip(jobs, kept, strict=True)]

    async def checks(self) -> list[Check]:
        """All checks, by number."""
        n = await self.n_items()
        return await self._read(sql.CHECKS, lambda row: rows.check(row, n))
