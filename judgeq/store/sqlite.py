"""The store of one run in one SQLite file: WAL, one writer, commits on the caller's own thread.

A commit costs tens of microseconds and happens where the results are, on the event loop: a writer
thread would wait for the interpreter lock of a busy loop. Who groups results into few commits is
`engine/queue.py`; what makes them survive a power cut is `store/flusher.py`.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import numpy as np

from judgeq.errors import RunError
from judgeq.events import Event
from judgeq.person import Check, Handed, Person
from judgeq.store import batches, people, rows
from judgeq.store.flusher import Flusher, Log
from judgeq.store.protocol import Items
from judgeq.store.reading import SqliteReader
from judgeq.types import (
    Attempt,
    Batch,
    Job,
    JobState,
    Line,
    Matches,
    Outcome,
    Standings,
)


class SqliteStore(SqliteReader):
    """See `Store`. The writer's process must hold the run's lock (runs.py) while it is open."""

    blocking = True
    lease = 600.0
    keeper = None
    processes = 1

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool = False,
        make: bool = True,
        accept_damage: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Open `path`; a writer may `make` it. A reader may `accept_damage`. Raises
        RunError if it can't be."""
        super().__init__(path, read_only=read_only, make=make, accept_damage=accept_damage)
        self._clock = clock
        self._flusher: Flusher | None = None
        self._together = False
        self._judges: list[int] | None = None
        if read_only:
            return
        self._place, self._log = path.resolve(), Log(path)
        self._log.open()  # now: its handle moves with the folder
        self._identity = self._seen()
        self._flusher = Flusher(path, self._log)
        self._flusher.start()

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
        self.check()
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

    # The scheduler

    async def lead(self, holder: str, ttl: float) -> int:
        """See Store. Whoever has the file's lock leads, and all other workers are dead: what they
        held goes back into the queue at once. Batches aren't."""
        with self._reading(), self._transaction() as db:
            before = db.execute("SELECT coalesce(max(epoch), 0) FROM lead").fetchone()[0]
            if not 0 <= before < 2**62:
                raise ValueError(f"who led last has the epoch {before}")
            epoch = before + 1
            db.execute(
                "INSERT OR REPLACE INTO lead VALUES (1, ?, ?, ?)",
                (epoch, holder, self._clock() + ttl),
            )
            db.execute(batches.GIVE_BACK)
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

    async def reopen(self, *states: JobState) -> int:
        """See Store."""
        with self._transaction() as db:
            return sum(db.execute(rows.REOPEN_JOBS, (state,)).rowcount for state in states)

    # The workers

    def claim_for(self, judges: Sequence[int]) -> None:
        """See Store."""
        self._judges = list(judges)

    async def claim(self, worker: str, n: int, lease: float) -> list[Job]:
        """See Store."""
        ours, judges = "1", self._judges or []
        if self._judges is not None:
            ours = f"judge IN ({', '.join('?' * len(judges))})"
        with self._reading(), self._transaction() as db:
            pending = db.execute(rows.PENDING.format(ours), (*judges, n)).fetchall()
            # These were the lowest numbers, so up to the last of them nothing else is pending.
            last = pending[-1][0] if pending else -1
            taken = (worker, self._clock() + lease, last, *judges)
            db.execute(rows.CLAIM.format(ours), taken)
            rounds = self._rounds_of([row[0] for row in pending])
            n = self._n()
            return [rows.job(row, round, n) for row, round in zip(pending, rounds, strict=True)]

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
            calls = [row for o in outcomes for row in rows.calls(o)]
            db.executemany(rows.INSERT_CALL, calls)
            db.execute(rows.ADD_TO_TOTALS, rows.added_up(calls))
            db.executemany(rows.INSERT_VERDICT, rows.given(outcomes))

    async def hand_over(self, worker: str, batch: Batch, lines: Sequence[Line]) -> Collection[int]:
        """See Store."""
        given = [(*rows.nano(line.bound), batch.name, line.job.match.id, worker) for line in lines]
        with self._transaction() as db:
            if db.execute("SELECT 1 FROM batches WHERE name = ?", (batch.name,)).fetchone():
                raise RunError(f"{self.path}: there is a batch {batch.name!r} already.")
            gone: set[int] = set()
            db.execute("SAVEPOINT hand_over")
            if db.executemany(batches.HAND_OVER, given).rowcount < len(lines):
                # Some job is no longer this worker's: ask which, one by one.
                db.execute("ROLLBACK TO hand_over")
                gone = {job[-2] for job in given if not db.execute(batches.HAND_OVER, job).rowcount}
            if len(gone) < len(lines):
                taken = batches.row(batches.taken(batch, lines, gone))
                db.execute(batches.INSERT, (*taken, batches.packed(lines, gone)))
        return gone

    async def note_batch(self, batch: Batch) -> None:
        """See Store."""
        with self._transaction() as db:
            name, *known = batches.row(batch)
            if not db.execute(batches.NOTE, (*known, name)).rowcount:
                raise RunError(f"{self.path} has no batch {name!r}.")

    async def put_person(self, person: Person) -> None:
        """See Store."""
        with self._transaction() as db:
            try:
                put = db.execute(people.PUT_PERSON, people.person_row(person)).rowcount > 0
            except sqlite3.IntegrityError as error:
                raise RunError(
                    f"{self.path} has a person named {person.name!r} already."
                ) from error
            if not put:
                raise people.taken(person)

    async def hand_out(self, handed: Handed) -> bool:
        """See Store."""
        with self._transaction() as db:
            return db.execute(people.HAND_OUT, handed).rowcount > 0

    async def take_back(self, lease: str) -> bool:
        """See Store."""
        with self._transaction() as db:
            return db.execute(people.TAKE_BACK, (lease,)).rowcount > 0

    async def retract(self, job: int, judge: int) -> bool:
        """See Store."""
        verdict, call, open_again = people.RETRACT
        with self._transaction() as db:
            if not db.execute(verdict, (job, judge)).rowcount:
                return False
            db.execute(call, (job, judge))
            db.execute(open_again, (job,))
        return True

    async def put_check(self, check: Check) -> None:
        """See Store."""
        with self._transaction() as db:
            db.execute(people.PUT_CHECK, people.check_row(check))

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
            return db.execute(f"{batches.GIVE_BACK} AND lease < ?", (self._clock(),)).rowcount

    def _seen(self) -> tuple[int, int] | None:
        try:
            stat = self._place.stat()
        except OSError:
            return None
        return stat.st_dev, stat.st_ino

    def check(self) -> None:
        """See Store. SQLite would go on writing to a file that was deleted or moved."""
        if self._seen() == self._identity:
            return
        folder = self._place.parent
        if self._log.is_deleted():
            raise RunError(
                f"{folder} was deleted, or its run.db replaced, while the run was going on: it is "
                "stopped, and its ledger is lost, with the answers that were in flight. Replies are "
                "still in the cache, unless --no-cache was given: the same command begins anew with "
                "them."
            )
        raise RunError(
            f"{folder} was moved while the run was going on: it is stopped. Nothing is lost: all that "
            "was answered is in it, also what was in flight. Move it back, or go on with `judgeq resume "
            "PATH`."
        )

    async def close(self) -> None:
        """See Store. The log is synced, moved into the database and removed."""
        try:
            if self._flusher is not None:
                with self._reported():
                    self._flusher.stop()
                    self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            self._db.close()
