"""The store of one run in one SQLite file: WAL, one writer, commits on the caller's own thread.

A commit costs tens of microseconds and happens where the results are, on the event loop: a writer
thread would wait for the interpreter lock of a busy loop. Who groups results into few commits is
`engine/queue.py`; what makes them survive a power cut is `store/flusher.py`.
"""

from __future__ import annotations

import sqlite3
import struct
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import numpy as np

from judgeq.errors import RunError
from judgeq.events import Event
from judgeq.store import files, rows
from judgeq.store.flusher import Flusher
from judgeq.store.place import Log, Place
from judgeq.store.protocol import Items, Spent
from judgeq.types import (
    Attempt,
    Bools,
    Call,
    Counts,
    Failure,
    Floats,
    Job,
    JobState,
    Match,
    Matches,
    Outcome,
    Standings,
    Totals,
    Usage,
    Verdicts,
)

_EVERY = (0, 2**62)
_AT_ONCE = 500
"""So many numbers stand in one statement: SQLite may allow no more than 999."""


class SqliteStore:
    """See `Store`. The writer's process must hold the run's lock (runs.py) while it is open."""

    blocking = True
    lease = 600.0
    keeper = None

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Open `path`; a writer makes or migrates it. Raises RunError if it can't be."""
        self.path = path
        self._clock = clock
        self._flusher: Flusher | None = None
        self._together = False
        with self._reported():
            self._db = files.connect(path, read_only=read_only)
        if read_only:
            return
        self.place = Place(path, log := Log(path))
        self._flusher = Flusher(path, log)
        self._flusher.start()

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

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        if self._flusher is not None and self._flusher.error is not None:
            raise RunError(f"{self.path} can't be written to the disk: {self._flusher.error}")
        if self._together:
            yield self._db
            return
        with self._reported():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def report_to(self, emit: Callable[[Event], None]) -> None:
        """See Store. There is nothing to report."""

    def hurry(self) -> None:
        """See Store. Nothing is ever waited for."""

    def turn(self) -> int:
        """See Store."""
        return 0

    @asynccontextmanager
    async def together(self, worker: str | None = None, turn: int = 0) -> AsyncIterator[None]:
        """See Store."""
        self.place.check()
        with self._transaction():
            self._together = True
            try:
                yield
            finally:
                self._together = False

    # The dataset's edge

    async def set_items(self, items: Items) -> None:
        """See Store."""
        n = len(items.ids)
        gold: Sequence[float | None] = [None] * n
        if items.gold is not None:
            gold = [None if value != value else value for value in items.gold.tolist()]
        with self._transaction() as db:
            db.executemany(
                "INSERT INTO items (row, id, gold) VALUES (?, ?, ?) "
                "ON CONFLICT (row) DO UPDATE SET gold = excluded.gold",
                zip(range(n), items.ids, gold, strict=True),
            )
            db.execute("DELETE FROM subsets")
            for name, mask in items.subsets.items():
                db.executemany(
                    "INSERT INTO subsets VALUES (?, ?)",
                    ((name, row) for row in np.flatnonzero(mask).tolist()),
                )

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

    # The scheduler

    async def lead(self, holder: str, ttl: float) -> int:
        """See Store. Whoever has the file's lock leads, and all other workers are dead: what they
        held goes back into the queue at once."""
        with self._transaction() as db:
            epoch = db.execute("SELECT coalesce(max(epoch), 0) + 1 FROM lead").fetchone()[0]
            db.execute(
                "INSERT OR REPLACE INTO lead VALUES (1, ?, ?, ?)",
                (epoch, holder, self._clock() + ttl),
            )
            db.execute("UPDATE jobs SET state = 'pending' WHERE state = 'running'")
        return int(epoch)

    async def renew_lead(self, epoch: int, ttl: float) -> None:
        """See Store."""
        with self._transaction() as db:
            self._check_epoch(epoch)
            db.execute("UPDATE lead SET until = ?", (self._clock() + ttl,))

    def _check_epoch(self, epoch: int) -> None:
        current = self._db.execute("SELECT max(epoch) FROM lead").fetchone()[0]
        if current != epoch:
            raise RunError(
                f"{self.path}: another process has taken the run over (epoch {current}, ours was "
                f"{epoch}); nothing was changed."
            )

    async def plan_round(
        self, round: int, epoch: int, standings: Standings, matches: Matches
    ) -> None:
        """See Store."""
        with self._transaction() as db:
            self._check_epoch(epoch)
            planned, first = db.execute(
                "SELECT coalesce(max(round), 0), coalesce(max(last), -1) + 1 FROM rounds"
            ).fetchone()
            if round != planned + 1:
                raise RunError(f"{self.path}: round {round} can't follow round {planned}.")
            db.execute(
                "INSERT INTO rounds (round, first, last, epoch, ratings, active) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (round, first, first + len(matches) - 1, epoch, *rows.standings(standings)),
            )
            db.executemany(rows.INSERT_JOB, rows.jobs(matches, first))

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
            if kept is None or kept[0] is None:
                return None
            n = self._db.execute("SELECT count(*) FROM items").fetchone()[0]
            return rows.active(kept[0], n)

    async def verdicts(self, round: int | None = None) -> Verdicts:
        """See Store."""
        span = _EVERY if round is None else self._span(round) or (0, -1)
        with self._reading():
            kept = self._db.execute(
                "SELECT job, ranking, ties, score, items, judge, ordered FROM verdicts "
                "JOIN jobs ON jobs.id = job "
                "WHERE job BETWEEN ? AND ? ORDER BY job",
                span,
            ).fetchall()
            return rows.verdicts(kept, self._n())

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

    async def reopen(self, *states: JobState) -> int:
        """See Store."""
        with self._transaction() as db:
            return sum(db.execute(rows.REOPEN_JOBS, (state,)).rowcount for state in states)

    # The workers

    async def claim(self, worker: str, n: int, lease: float) -> list[Job]:
        """See Store."""
        with self._reading(), self._transaction() as db:
            pending = db.execute(
                "SELECT id, items, judge, repeat, attempts, unusable, error FROM jobs "
                "WHERE state = 'pending' ORDER BY id LIMIT ?",
                (n,),
            ).fetchall()
            # These were the lowest numbers, so up to the last of them nothing else is pending.
            db.execute(
                "UPDATE jobs SET state = 'running', worker = ?, lease = ? "
                "WHERE state = 'pending' AND id <= ?",
                (worker, self._clock() + lease, pending[-1][0] if pending else -1),
            )
            rounds = self._rounds_of([row[0] for row in pending])
            n = self._n()
            return [rows.job(row, round, n) for row, round in zip(pending, rounds, strict=True)]

    def _rounds_of(self, jobs: Sequence[int]) -> list[int]:
        if not jobs:
            return []
        spans = self._db.execute("SELECT last FROM rounds ORDER BY round").fetchall()
        rounds: list[int] = (np.searchsorted([last for (last,) in spans], jobs) + 1).tolist()
        return rounds

    def keep(self, worker: str, turn: int, outcomes: Sequence[Outcome]) -> None:
        """See Store. The file is always there."""

    async def recover(self, worker: str, turn: int, jobs: Collection[int]) -> set[int] | None:
        """See Store. What raised was not committed."""
        return None

    async def begin(self, worker: str, attempts: Sequence[Attempt]) -> Collection[int]:
        """See Store. One process has the run: no job is ever lost."""
        with self._transaction() as db:
            db.executemany(
                rows.BEGIN, [(*rows.nano(attempt.bound), attempt.job) for attempt in attempts]
            )
        return ()

    async def settle(self, worker: str, outcomes: Sequence[Outcome]) -> None:
        """See Store."""
        with self._transaction() as db:
            db.execute("SAVEPOINT settle")
            updates = [rows.update(outcome, worker) for outcome in outcomes]
            if db.executemany(rows.UPDATE_JOB, updates).rowcount < len(outcomes):
                # Some job was settled meanwhile, by another worker: ask which, one by one.
                db.execute("ROLLBACK TO settle")
                kept = [db.execute(rows.UPDATE_JOB, update).rowcount > 0 for update in updates]
                gone = [o for o, ok in zip(outcomes, kept, strict=True) if not ok]
                db.executemany(rows.RELEASE, [(*rows.released(o), o.job) for o in gone])
                outcomes = [o if ok else rows.late(o) for o, ok in zip(outcomes, kept, strict=True)]
            db.executemany(rows.INSERT_CALL, [row for o in outcomes for row in rows.calls(o)])
            db.executemany(
                rows.INSERT_VERDICT,
                [rows.verdict(o.job, o.verdict) for o in outcomes if o.verdict],
            )

    async def renew(self, worker: str, lease: float) -> None:
        """See Store."""
        with self._transaction() as db:
            db.execute(
                "UPDATE jobs SET lease = ? WHERE state = 'running' AND worker = ?",
                (self._clock() + lease, worker),
            )

    async def reap(self) -> int:
        """See Store."""
        with self._transaction() as db:
            return db.execute(
                "UPDATE jobs SET state = 'pending' WHERE state = 'running' AND lease < ?",
                (self._clock(),),
            ).rowcount

    def check(self) -> None:
        """See Store."""
        self.place.check(now=True)

    async def close(self) -> None:
        """See Store. The log is synced, moved into the database and removed."""
        try:
            if self._flusher is not None:
                with self._reported():
                    self._flusher.stop()
                    self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            self._db.close()
