"""The reading side of a PostgreSQL store: items, rounds, verdicts, and what the ledger adds up to.

A database may be anybody's: what can't have been written by us raises RunError. Reading is tried again
while the database is away.
"""

from __future__ import annotations

import math
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from judgeq.errors import RunError
from judgeq.events import Event
from judgeq.store import answers, batches, rows
from judgeq.store.crew import Cap, Crew, Leader, WorkerState
from judgeq.store.postgres import columns, statements
from judgeq.store.postgres.link import Link
from judgeq.store.protocol import Items, Spent
from judgeq.types import (
    Batch,
    Bools,
    Call,
    Counts,
    Failure,
    Floats,
    Line,
    Match,
    Matches,
    Totals,
    Usage,
    Verdicts,
)

_EVERY = (0, 2**62)


class PostgresReader:
    """See Store. `name` is what the run of this number is known by to users."""

    def __init__(self, link: Link, run: int, name: str = "") -> None:
        self._link = link
        self._run = run
        self._shown = f"run {name or run} of {link.address.shown}"
        self._items = 0  # how many there are, once that is known
        self._ends: list[int] = []  # the last job of each round that is known

    def report_to(self, emit: Callable[[Event], None]) -> None:
        """See Store."""
        self._link.emit = emit

    def hurry(self) -> None:
        """See Store."""
        self._link.hurried = True

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (TypeError, ValueError, struct.error, OverflowError) as error:
            raise RunError(f"{self._shown} is damaged: {error}.") from error

    async def _rows(self, statement: str, *values: object) -> list[Any]:
        """The rows of a statement that may be run twice."""
        return await self._link.again(lambda: self._link.query(statement, *values))

    async def _row(self, statement: str, *values: object) -> Any:
        """Its first row, or None."""
        found = await self._rows(statement, *values)
        return found[0] if found else None

    async def _n(self) -> int:
        """How many items there are; it never changes once there are any."""
        if not self._items:
            statement = "SELECT coalesce(max(row), -1) + 1 FROM @.items WHERE run = %s"
            self._items = (await self._row(statement, self._run))[0]
        return self._items

    async def _rounds_of(self, jobs: Sequence[int]) -> list[int]:
        """The rounds that jobs belong to; those that are planned don't change."""
        if jobs and (not self._ends or max(jobs) > self._ends[-1]):
            statement = "SELECT last FROM @.rounds WHERE run = %s ORDER BY round"
            self._ends = [last for (last,) in await self._rows(statement, self._run)]
        rounds: list[int] = (np.searchsorted(self._ends, jobs) + 1).tolist()
        return rounds

    async def items(self) -> Items:
        """See Store."""
        kept = await self._rows(
            "SELECT id, gold, row FROM @.items WHERE run = %s ORDER BY row", self._run
        )
        members = await self._rows(
            "SELECT name, members FROM @.subsets WHERE run = %s ORDER BY name", self._run
        )
        with self._reading():
            if [row for _, _, row in kept] != list(range(len(kept))):
                raise ValueError("an item is missing, or has a row that can't be")
            gold = np.array([np.nan if g is None else g for _, g, _ in kept], dtype=np.float64)
            subsets: dict[str, Bools] = {}
            for name, packed in members:
                which = rows.unpacked(packed)
                if len(which) and not 0 <= which.min() <= which.max() < len(kept):
                    raise ValueError(f"subset {name!r} names no item")
                subsets[str(name)] = mask = np.zeros(len(kept), dtype=np.bool_)
                mask[which] = True
            return Items([i for i, _, _ in kept], None if np.isnan(gold).all() else gold, subsets)

    async def _span(self, round: int) -> tuple[int, int] | None:
        span = await self._row(statements.SPAN, self._run, round)
        return None if span is None else (int(span[0]), int(span[1]))

    async def round_state(self, round: int) -> Counts | None:
        """See Store."""
        span = await self._span(round)
        return None if span is None else await self._count(*span)

    async def counts(self) -> Counts:
        """See Store."""
        return await self._count(*_EVERY)

    async def _count(self, first: int, last: int) -> Counts:
        given = {"run": self._run, "first": first, "last": last}
        work = self._link.query_named
        ((total, *counted),) = await self._link.again(lambda: work(statements.COUNTS, given))
        with self._reading():
            pending, running, invalid, failed = counted
            done = total - sum(counted)
            if done < 0:
                raise ValueError("it has more jobs than its rounds")
            return Counts(pending, running, done, invalid, failed)

    async def left(self, round: int) -> list[Match]:
        """See Store."""
        first, last = await self._span(round) or (0, -1)
        given = {"run": self._run, "first": first, "last": last}
        query = self._link.query_named
        jobs = await self._link.again(lambda: query(statements.LEFT, given))
        n = await self._n()
        with self._reading():
            return [rows.job(row, round, n).match for row in jobs]

    async def matches(self, round: int) -> Matches:
        """See Store."""
        blocks = await self._blocks(statements.MATCHES, await self._span(round) or (0, -1))
        with self._reading():
            return columns.matches(blocks)

    async def verdicts(self, round: int | None = None) -> Verdicts:
        """See Store."""
        span = _EVERY if round is None else await self._span(round) or (0, -1)
        blocks = await self._blocks(statements.VERDICTS, span)
        n = await self._n()
        with self._reading():
            return answers.assembled(columns.verdicts(blocks), n)

    async def _blocks(self, statement: str, span: tuple[int, int]) -> list[Any]:
        """The packed rows of a span of jobs, block by block, as of one moment."""

        async def read() -> list[Any]:
            async with self._link.transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"):
                return [block async for block in self._packed(statement, span)]

        return await self._link.again(read)

    async def _packed(self, statement: str, span: tuple[int, int]) -> AsyncIterator[Any]:
        first, last = span
        while True:
            (block,) = await self._link.query(statement, self._run, first, last, columns.BLOCK)
            if block[0]:
                yield block
            if block[0] < columns.BLOCK:
                return
            first = block[1] + 1

    async def ratings(self, round: int) -> Floats | None:
        """See Store."""
        kept = await self._row(
            "SELECT ratings FROM @.rounds WHERE run = %s AND round = %s", self._run, round
        )
        n = await self._n()
        with self._reading():
            return None if kept is None else rows.ratings(kept[0], n)

    async def active(self, round: int) -> Bools | None:
        """See Store."""
        kept = await self._row(
            "SELECT active FROM @.rounds WHERE run = %s AND round = %s", self._run, round
        )
        n = await self._n()
        with self._reading():
            return None if kept is None else rows.active(kept[0], n)

    async def totals(self) -> Totals:
        """See Store."""
        calls = await self._row(statements.CALLS, self._run)
        attempts = await self._row(statements.ATTEMPTS, self._run)
        with self._reading():
            return rows.totals(calls, attempts)

    async def spent(self, n: int) -> list[Spent]:
        """See Store."""
        calls = await self._rows(statements.SPENT, self._run, n)
        rounds, items = await self._rounds_of([row[0] for row in calls]), await self._n()
        with self._reading():
            return [
                Spent(
                    rows.job(row[:7], round, items).match,
                    Usage(*row[7:11]),
                    None if row[12] else row[11],
                    row[13],
                )
                for row, round in zip(calls, rounds, strict=True)
            ]

    async def calls(self, jobs: Sequence[int]) -> Mapping[int, Sequence[Call]]:
        """See Store."""
        kept = await self._rows(statements.CALLS_OF, self._run, list(jobs))
        with self._reading():
            return rows.calls_by_job(kept)

    async def last_failure(self) -> Failure | None:
        """See Store."""
        query = self._link.query_named
        given = {"run": self._run}
        last = await self._link.again(lambda: query(statements.LAST_FAILURE, given))
        if not last:
            return None
        with self._reading():
            return rows.failure(*last[0])

    async def batches(self) -> list[Batch]:
        """See Store."""
        listed = await self._rows(statements.BATCHES, self._run)
        with self._reading():
            if not all(endless for *_, endless, _, _, _ in listed):
                raise ValueError("a batch has no worker, or one that may die")
            return [batches.read(row[:-4], batches.Held(*row[-3:])) for row in listed]

    async def lines(self, batch: str) -> list[Line]:
        """See Store."""
        kept = await self._row(statements.SENT, self._run, batch)
        if kept is None:
            return []
        number, sent = kept
        held = await self._rows(statements.OF_BATCH, self._run, number)
        rounds, n = await self._rounds_of([row[0] for row in held]), await self._n()
        with self._reading():
            jobs = [rows.job(row, round, n) for row, round in zip(held, rounds, strict=True)]
            return batches.lines(sent, jobs)

    async def workers(self) -> list[WorkerState]:
        """All workers that the run ever had, the earliest first; no batches."""
        query, given = self._link.query_named, {"run": self._run}
        listed = await self._link.again(lambda: query(statements.WORKERS, given))
        with self._reading():
            return [WorkerState(*_finite(row)) for row in listed]

    async def leader(self) -> Leader | None:
        """Who leads, or led last; None where nobody ever did."""
        row = await self._row(statements.LEADER, self._run)
        return None if row is None else Leader(row[1].rpartition(" (")[0] or row[1], row[0], row[3])

    async def crew(self) -> Crew:
        """See Store."""
        cap, *gone = await self._row(statements.MONEY, self._run, self._run)
        leader, workers = await self.leader(), await self.workers()
        spending = Cap(None if cap is None else cap / 1e9, *(part / 1e9 for part in gone))
        return Crew(leader, workers, spending)


def _finite(row: Sequence[Any]) -> Sequence[Any]:
    """The row. Raises ValueError for a number that can't be."""
    if not all(math.isfinite(cell) for cell in row if isinstance(cell, float)):
        raise ValueError("a worker has a time or a number that can't be")
    return row
