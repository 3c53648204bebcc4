"""The reading side of a run's SQLite file: items, rounds, verdicts, batches, people, and what the ledger
adds up to."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from judgeq.errors import RunError
from judgeq.person import Check, Handed, Person
from judgeq.store import answers, batches, damage, files, people, rows
from judgeq.store.protocol import Items, Spent
from judgeq.types import (
    Batch,
    Bools,
    Call,
    Counts,
    Failure,
    Floats,
    JobState,
    Line,
    Match,
    Matches,
    Totals,
    Usage,
    Verdicts,
)

_EVERY = (0, 2**62)
_AT_ONCE = 500
"""So many numbers stand in one statement: SQLite may allow no more than 999."""


class SqliteReader:
    """See Store. The connection is its maker's to close."""

    def __init__(
        self, path: Path, *, read_only: bool, make: bool, accept_damage: bool = False
    ) -> None:
        self.path = path
        with self._reported():
            self._db = files.connect(
                path, read_only=read_only, make=make, accept_damage=accept_damage
            )
            self.damage: Sequence[str] = damage.of(self._db) if accept_damage else ()

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Turn SQLite's errors, and the disk's, into ours, which name the file."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise files.problem(self.path, error) from error

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """As `_reported`; and say so where a row holds what we never wrote. A file may be anybody's."""
        with self._reported():
            try:
                yield
            except (TypeError, ValueError, struct.error) as error:
                raise RunError(f"{self.path} is damaged: {error}.") from error

    async def items(self) -> Items:
        """See Store."""
        with self._reading():
            items = self._db.execute("SELECT id, gold FROM items ORDER BY row").fetchall()
            members = self._db.execute("SELECT name, row FROM subsets ORDER BY name").fetchall()
            if self._n() != len(items):
                raise ValueError("an item is missing, or has a row that can't be")
            gold = np.array([np.nan if g is None else g for _, g in items], dtype=np.float64)
            subsets: dict[str, Bools] = {}
            for name, row in members:
                mask = subsets.setdefault(str(name), np.zeros(len(items), dtype=np.bool_))
                if not 0 <= row < len(items):
                    raise ValueError(f"subset {name!r} names no item")
                mask[row] = True
        return Items([i for i, _ in items], None if np.isnan(gold).all() else gold, subsets)

    def _span(self, round: int) -> tuple[int, int] | None:
        with self._reading():
            span = self._db.execute(
                "SELECT first, last FROM rounds WHERE round = ?", (round,)
            ).fetchone()
            return None if span is None else (int(span[0]), int(span[1]))

    async def round_state(self, round: int) -> Counts | None:
        """See Store."""
        span = self._span(round)
        return None if span is None else self._count(*span)

    async def left(self, round: int) -> list[Match]:
        """See Store."""
        with self._reading():
            jobs = self._db.execute(
                "SELECT id, items, judge, repeat, attempts, unusable, error FROM jobs "
                "WHERE state IN ('pending', 'running') AND id BETWEEN ? AND ? ORDER BY id",
                self._span(round) or (0, -1),
            )
            return [rows.job(row, round, self._n()).match for row in jobs]

    async def matches(self, round: int) -> Matches:
        """See Store."""
        with self._reading():
            jobs = self._db.execute(
                "SELECT items, judge FROM jobs WHERE id BETWEEN ? AND ? ORDER BY id",
                self._span(round) or (0, -1),
            )
            return rows.matches(jobs.fetchall())

    async def counts(self) -> Counts:
        """See Store."""
        return self._count(*_EVERY)

    def _count(self, first: int, last: int) -> Counts:
        with self._reading():
            states = self._db.execute(
                "SELECT state, count(*) FROM jobs WHERE id BETWEEN ? AND ? GROUP BY state",
                (first, last),
            ).fetchall()
            return Counts(**{str(JobState(state)): count for state, count in states})

    async def ratings(self, round: int) -> Floats | None:
        """See Store."""
        with self._reading():
            kept = self._db.execute(
                "SELECT ratings FROM rounds WHERE round = ?", (round,)
            ).fetchone()
            return None if kept is None else rows.ratings(kept[0], self._n())

    async def active(self, round: int) -> Bools | None:
        """See Store."""
        with self._reading():
            kept = self._db.execute(
                "SELECT active FROM rounds WHERE round = ?", (round,)
            ).fetchone()
            return None if kept is None else rows.active(kept[0], self._n())

    async def verdicts(self, round: int | None = None) -> Verdicts:
        """See Store."""
        span = _EVERY if round is None else self._span(round) or (0, -1)
        with self._reading():
            kept = self._db.execute(
                "SELECT job, ranking, ties, score, items, coalesce(answered_by, judge), ordered "
                "FROM verdicts JOIN jobs ON jobs.id = job "
                "WHERE job BETWEEN ? AND ? ORDER BY job",
                span,
            ).fetchall()
            return answers.verdicts(kept, self._n())

    def _n(self) -> int:
        """How many items there are: their rows are numbered from 0."""
        n: int = self._db.execute("SELECT coalesce(max(row), -1) + 1 FROM items").fetchone()[0]
        return n

    async def totals(self) -> Totals:
        """See Store."""
        with self._reading():
            calls = self._db.execute(rows.CALLS).fetchone()
            return rows.totals(calls, self._db.execute(rows.ATTEMPTS).fetchone())

    async def spent(self, n: int) -> list[Spent]:
        """See Store."""
        with self._reading():
            calls = self._db.execute(rows.SPENT, (n,)).fetchall()
            rounds, items = self._rounds_of([row[0] for row in calls]), self._n()
            return [
                Spent(
                    rows.job(row[:7], round, items).match,
                    Usage(*map(int, row[7:11])),
                    None if row[12] else row[11],
                    row[13],
                )
                for row, round in zip(calls, rounds, strict=True)
            ]

    async def calls(self, jobs: Sequence[int]) -> Mapping[int, Sequence[Call]]:
        """See Store. Replies may be long: only those asked for are read."""
        with self._reading():
            if isinstance(jobs, range) and jobs.step == 1:  # many: none is picked out in Python
                between = (jobs.start, jobs.stop - 1)
                return rows.calls_by_job(self._db.execute(rows.CALLS_BETWEEN, between).fetchall())
            wanted, listed = set(jobs), self._db.execute(rows.JOBS_OF_CALLS)
            numbers = [number for number, job in listed if job in wanted]
            kept = []
            for begin in range(0, len(numbers), _AT_ONCE):
                part = numbers[begin : begin + _AT_ONCE]
                statement = rows.CALLS_OF.format(", ".join("?" * len(part)))
                kept += self._db.execute(statement, part).fetchall()
            return rows.calls_by_job(kept)

    async def last_failure(self) -> Failure | None:
        """See Store."""
        with self._reading():
            last = self._db.execute(rows.FAILED_CALL).fetchone()
            if last is None:
                return None
            number, error, at = last
            in_a_row = self._db.execute(rows.FAILED_SINCE).fetchone()[0]
            return rows.failure(number, error, at, in_a_row)

    async def crew(self) -> None:
        """See Store."""

    def _rounds_of(self, jobs: Sequence[int]) -> list[int]:
        if not jobs:
            return []
        spans = self._db.execute("SELECT last FROM rounds ORDER BY round").fetchall()
        rounds: list[int] = (np.searchsorted([last for (last,) in spans], jobs) + 1).tolist()
        return rounds

    async def batches(self) -> list[Batch]:
        """See Store."""
        with self._reading():
            kept = self._db.execute(batches.LISTED).fetchall()
            return batches.listed(kept, self._db.execute(batches.HELD).fetchall() if kept else ())

    async def people(self) -> list[Person]:
        """See Store."""
        with self._reading():
            return people.everybody(self._db.execute(people.PEOPLE))

    async def handed(self) -> list[Handed]:
        """See Store."""
        with self._reading():
            return [people.handed(row) for row in self._db.execute(people.HANDED)]

    async def said(self) -> list[tuple[Match, Call]]:
        """See Store."""
        with self._reading():
            kept = self._db.execute(people.SAID).fetchall()
            rounds, n = self._rounds_of([row[0] for row in kept]), self._n()
            return [
                (rows.job(row[:7], round, n).match, rows.call(row[7:]))
                for row, round in zip(kept, rounds, strict=True)
            ]

    async def checks(self) -> list[Check]:
        """See Store."""
        with self._reading():
            n = self._n()
            return [people.check(row, n) for row in self._db.execute(people.CHECKS)]

    async def lines(self, batch: str) -> list[Line]:
        """See Store."""
        with self._reading():
            kept = self._db.execute("SELECT sent FROM batches WHERE name = ?", (batch,)).fetchone()
            if kept is None:
                return []
            (sent,) = kept
            held = self._db.execute(batches.OF_BATCH, (*batches.span(sent), batch)).fetchall()
            rounds, n = self._rounds_of([row[0] for row in held]), self._n()
            jobs = [rows.job(row, round, n) for row, round in zip(held, rounds, strict=True)]
            return batches.lines(sent, jobs)
