"""The store of one run in one SQLite file: WAL, one writer, commits on the caller's own thread.

A commit costs tens of microseconds and happens where the results are, on the event loop: a writer
thread would wait for the interpreter lock of a busy loop. Who groups results into few commits is
`queue.py`; what makes them survive a power cut is `store/flusher.py`.
"""

from __future__ import annotations

import os
import sqlite3
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import numpy as np

from judgeq.errors import RunError
from judgeq.store import Grant, Items, rows, schema, statements
from judgeq.store.flusher import Flusher, sync_file
from judgeq.types import (
    Attempt,
    Bools,
    Counts,
    Floats,
    Job,
    JobState,
    Match,
    Matches,
    Outcome,
    Totals,
    Usage,
    Verdicts,
)

_EVERY = (0, 2**62)


def _read_only(path: Path) -> str:
    """How to open a file for reading: where nobody may write, it can't change either, and SQLite
    must not try to keep its log there."""
    log = path.with_name(path.name + "-wal")
    settled = not os.access(path.parent, os.W_OK) and not log.exists()
    return "?mode=ro&immutable=1" if settled else "?mode=ro"


class SqliteStore:
    """See `Store`. The writer's process must hold the run's lock (runs.py) while it is open."""

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
        if read_only and not path.is_file():
            raise RunError(
                f"{path} is not there: the run was never begun, or its folder is damaged."
            )
        with self._told():
            mode = _read_only(path) if read_only else ""
            self._db = sqlite3.connect(
                f"{path.resolve().as_uri()}{mode}", uri=True, isolation_level=None, timeout=10
            )
        try:
            with self._told():
                self._db.execute("PRAGMA trusted_schema = OFF")
                self._db.execute("PRAGMA cell_size_check = ON")
                # Before anything is written: the file may be another program's.
                if read_only or not schema.is_empty(self._db):
                    schema.check(self._db, path, oldest=schema.VERSION if read_only else 1)
                if read_only:
                    return
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = NORMAL")
                self._db.execute("PRAGMA wal_autocheckpoint = 0")
                schema.prepare(self._db)
        except BaseException:
            self._db.close()
            raise
        self._flusher = Flusher(path)
        self._flusher.start()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn SQLite's errors, and the disk's, into ours, which name the file."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            hint = ""
            if "full" in str(error):
                hint = " Free some space; nothing committed is lost, and the run can be resumed."
            elif "not a database" in str(error) or "malformed" in str(error):
                hint = " The file is damaged or not a judgeq run."
            raise RunError(f"{self.path}: {error}.{hint}") from error

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """As `_told`; and say so where a row holds what we never wrote. A file may be anybody's."""
        with self._told():
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
        with self._told():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @asynccontextmanager
    async def together(self) -> AsyncIterator[None]:
        """See Store."""
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
            found = self._db.execute("SELECT id, gold FROM items ORDER BY row").fetchall()
            members = self._db.execute("SELECT name, row FROM subsets ORDER BY name").fetchall()
            gold = np.array([np.nan if g is None else g for _, g in found], dtype=np.float64)
            subsets: dict[str, Bools] = {}
            for name, row in members:
                mask = subsets.setdefault(str(name), np.zeros(len(found), dtype=np.bool_))
                if not 0 <= row < len(found):
                    raise ValueError(f"subset {name!r} names no item")
                mask[row] = True
        return Items([i for i, _ in found], None if np.isnan(gold).all() else gold, subsets)

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

    async def plan_round(self, round: int, epoch: int, ratings: Floats, matches: Matches) -> None:
        """See Store."""
        with self._transaction() as db:
            current = db.execute("SELECT max(epoch) FROM lead").fetchone()[0]
            if current != epoch:
                raise RunError(
                    f"{self.path}: another process has taken the run over (epoch {current}, ours "
                    f"was {epoch}); nothing was changed."
                )
            planned, first = db.execute(
                "SELECT coalesce(max(round), 0), coalesce(max(last), -1) + 1 FROM rounds"
            ).fetchone()
            if round != planned + 1:
                raise RunError(f"{self.path}: round {round} can't follow round {planned}.")
            db.execute(
                "INSERT INTO rounds VALUES (?, ?, ?, ?, ?)",
                (round, first, first + len(matches) - 1, epoch, ratings.astype("<f8").tobytes()),
            )
            data = matches.items.astype("<i4", copy=False).tobytes()
            bounds = (matches.offsets * 4).tolist()
            judges = [0] * len(matches) if matches.judges is None else matches.judges.tolist()
            db.executemany(
                "INSERT INTO jobs (id, items, judge) VALUES (?, ?, ?)",
                (
                    (first + m, data[bounds[m] : bounds[m + 1]], judge)
                    for m, judge in enumerate(judges)
                ),
            )

    def _span(self, round: int) -> tuple[int, int] | None:
        with self._told():
            found = self._db.execute(
                "SELECT first, last FROM rounds WHERE round = ?", (round,)
            ).fetchone()
        return None if found is None else (int(found[0]), int(found[1]))

    async def round_state(self, round: int) -> Counts | None:
        """See Store."""
        span = self._span(round)
        return None if span is None else self._count(*span)

    async def left(self, round: int) -> list[Match]:
        """See Store."""
        with self._reading():
            found = self._db.execute(
                "SELECT id, items, judge, attempts, unusable, error FROM jobs "
                "WHERE state IN ('pending', 'running') AND id BETWEEN ? AND ? ORDER BY id",
                self._span(round) or (0, -1),
            )
            return [rows.job(row, round).match for row in found]

    async def counts(self) -> Counts:
        """See Store."""
        return self._count(*_EVERY)

    def _count(self, first: int, last: int) -> Counts:
        with self._reading():
            found = self._db.execute(
                "SELECT state, count(*) FROM jobs WHERE id BETWEEN ? AND ? GROUP BY state",
                (first, last),
            ).fetchall()
            return Counts(**{str(JobState(state)): count for state, count in found})

    async def ratings(self, round: int) -> Floats | None:
        """See Store."""
        with self._reading():
            found = self._db.execute(
                "SELECT ratings FROM rounds WHERE round = ?", (round,)
            ).fetchone()
            if found is None:
                return None
            return np.frombuffer(found[0], dtype="<f8").astype(np.float64)

    async def verdicts(self, round: int | None = None) -> Verdicts:
        """See Store."""
        span = _EVERY if round is None else self._span(round) or (0, -1)
        with self._reading():
            found = self._db.execute(
                "SELECT job, ranking, ties, score, items, judge FROM verdicts "
                "JOIN jobs ON jobs.id = job "
                "WHERE job BETWEEN ? AND ? ORDER BY job",
                span,
            ).fetchall()
            n = self._db.execute("SELECT count(*) FROM items").fetchone()[0]
            return rows.verdicts(found, n)

    async def totals(self) -> Totals:
        """See Store."""
        with self._told():
            calls, failed, *usage, cost, unpriced, hits, saved = self._db.execute(
                statements.CALLS
            ).fetchone()
            in_flight, unknown, at_risk, unbounded = self._db.execute(
                statements.ATTEMPTS
            ).fetchone()
        return Totals(
            calls=calls,
            retries=failed,
            usage=Usage(*usage),
            cost=cost,
            unpriced=unpriced,
            in_flight=in_flight,
            unknown=unknown,
            at_risk=None if unbounded else at_risk / 1e9,
            hits=hits,
            saved=saved,
        )

    async def reopen(self, *states: JobState) -> int:
        """See Store."""
        with self._transaction() as db:
            return sum(db.execute(statements.REOPEN_JOBS, (state,)).rowcount for state in states)

    # The workers

    async def claim(self, worker: str, n: int, lease: float) -> list[Job]:
        """See Store."""
        with self._reading(), self._transaction() as db:
            found = db.execute(
                "SELECT id, items, judge, attempts, unusable, error FROM jobs "
                "WHERE state = 'pending' ORDER BY id LIMIT ?",
                (n,),
            ).fetchall()
            # These were the lowest numbers, so up to the last of them nothing else is pending.
            db.execute(
                "UPDATE jobs SET state = 'running', worker = ?, lease = ? "
                "WHERE state = 'pending' AND id <= ?",
                (worker, self._clock() + lease, found[-1][0] if found else -1),
            )
            rounds = self._rounds_of([row[0] for row in found])
            return [rows.job(row, round) for row, round in zip(found, rounds, strict=True)]

    def _rounds_of(self, jobs: Sequence[int]) -> list[int]:
        if not jobs:
            return []
        spans = self._db.execute("SELECT last FROM rounds ORDER BY round").fetchall()
        rounds: list[int] = (np.searchsorted([last for (last,) in spans], jobs) + 1).tolist()
        return rounds

    async def begin(self, worker: str, attempts: Sequence[Attempt]) -> None:
        """See Store."""
        with self._transaction() as db:
            db.executemany(
                statements.BEGIN, [(*rows.nano(each.bound), each.job) for each in attempts]
            )

    async def settle(self, worker: str, outcomes: Sequence[Outcome]) -> None:
        """See Store."""
        with self._transaction() as db:
            db.execute("SAVEPOINT settle")
            updates = [rows.update(outcome, worker) for outcome in outcomes]
            if db.executemany(statements.UPDATE_JOB, updates).rowcount < len(outcomes):
                # Some job was settled meanwhile, by another worker: ask which, one by one.
                db.execute("ROLLBACK TO settle")
                kept = [
                    db.execute(statements.UPDATE_JOB, update).rowcount > 0 for update in updates
                ]
                gone = [o for o, ok in zip(outcomes, kept, strict=True) if not ok]
                db.executemany(statements.RELEASE, [(*rows.released(o), o.job) for o in gone])
                outcomes = [o if ok else rows.late(o) for o, ok in zip(outcomes, kept, strict=True)]
            db.executemany(statements.INSERT_CALL, [row for o in outcomes for row in rows.calls(o)])
            db.executemany(
                statements.INSERT_VERDICT,
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

    # Limits shared by all workers

    async def limit(self, bucket: str, requests: float, tokens: float) -> None:
        """See Store."""
        with self._transaction() as db:
            db.execute(
                "INSERT OR REPLACE INTO buckets VALUES (?, ?, ?, ?, ?, ?)",
                (bucket, requests, tokens, requests, tokens, self._clock()),
            )

    async def take(self, bucket: str, requests: float, tokens: float) -> Grant:
        """See Store."""
        now = self._clock()
        with self._transaction() as db:
            found = db.execute("SELECT * FROM buckets WHERE name = ?", (bucket,)).fetchone()
            if found is None:
                raise RunError(f"{self.path}: no limits were set for {bucket!r}.")
            _, rpm, tpm, has_requests, has_tokens, at = found
            passed = max(0.0, now - at)  # clocks are set back, too
            has_requests = min(rpm, has_requests + passed * rpm / 60)
            has_tokens = min(tpm, has_tokens + passed * tpm / 60)
            # A question larger than the bucket goes out when the bucket is full.
            short_requests = min(requests, rpm) - has_requests
            short_tokens = min(tokens, tpm) - has_tokens
            if max(short_requests, short_tokens) > 1e-9:
                return Grant(False, max(short_requests * 60 / rpm, short_tokens * 60 / tpm))
            db.execute(
                "UPDATE buckets SET requests = ?, tokens = ?, at = ? WHERE name = ?",
                (has_requests - requests, has_tokens - tokens, now, bucket),
            )
        return Grant(True)

    async def close(self) -> None:
        """See Store. The log is synced, moved into the database and removed."""
        try:
            if self._flusher is not None:
                self._flusher.stop()
                with self._told():
                    sync_file(self.path.with_name(self.path.name + "-wal"))
                    self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            self._db.close()
