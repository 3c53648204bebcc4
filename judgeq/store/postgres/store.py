"""The store of one run in a PostgreSQL database, which many processes share: leases, who works on it,
and its cap."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from typing_extensions import override

from judgeq.errors import JudgeqError, StoreAwayError
from judgeq.judge.budget import Keeper, Slice
from judgeq.store import statements as sql
from judgeq.store.postgres.address import Address
from judgeq.store.postgres.connection import END_DEAD, PUT_BACK_UNBEGUN, PostgresDatabase
from judgeq.store.postgres.link import opened
from judgeq.store.protocol import Cap, Crew, Leader, Prospect, WorkerState, holder_name
from judgeq.store.sql_store import Store
from judgeq.store.workers import whole
from judgeq.types import Clock

PART = 4
"""Leases are renewed when this part of them has passed; after a failure PART times sooner."""
SOON = 1.0
"""Seconds until they are for the first time."""
PROCESSES = """
SELECT greatest(1, count(DISTINCT (host, pid)))::int FROM @.workers
WHERE NOT over AND until > @now AND until < 'infinity'
"""
# Calls are on the clocks of those that made them; the latest will do.
_WORKERS = """
WITH latest AS MATERIALIZED (
    SELECT worker, at, outcome FROM @.calls WHERE run = @run ORDER BY id DESC LIMIT 50000),
span AS (SELECT CASE WHEN count(*) < 50000 THEN 60 ELSE @now - min(at) END AS seconds FROM latest),
made AS (SELECT worker, count(*) AS n FROM latest WHERE outcome <> 'cached' AND at > @now - 60
         GROUP BY worker)
SELECT w.worker, w.name, w.host, w.pid, w.since, w.seen, w.over, w.until < @now, w.done, w.calls,
    w.errors,
    (SELECT count(*) FROM @.jobs j WHERE j.run = w.run AND j.state = 'running' AND j.worker = w.worker),
    @now, coalesce(m.n, 0) / greatest(1, least(60, seconds, @now - w.since)), w.spent
FROM @.workers w CROSS JOIN span LEFT JOIN made m USING (worker)
WHERE w.run = @run AND w.until < 'infinity' ORDER BY w.worker
"""
# Each EXISTS reads one entry of a partial index, however many jobs there are.
_PROSPECTS = """
SELECT r.name, r.fingerprint,
    EXISTS (SELECT FROM @.jobs j WHERE j.run = r.run AND j.state = 'pending' AND id >= 0),
    EXISTS (SELECT FROM @.jobs j WHERE j.run = r.run AND j.state = 'running'),
    coalesce(d.round, 0), coalesce(d.last < d.first, false)
FROM @.runs r LEFT JOIN LATERAL (
    SELECT round, first, last FROM @.rounds WHERE run = r.run ORDER BY round DESC LIMIT 1) d ON true
ORDER BY r.run
"""
_MONEY = """
SELECT (SELECT cap FROM @.runs WHERE run = @run), coalesce(sum(spent), 0)::bigint,
    coalesce(sum(at_risk), 0)::bigint,
    coalesce(sum(greatest(free, 0)) FILTER (WHERE NOT over), 0)::bigint
FROM @.workers WHERE run = @run AND NOT again
"""

MOST = 2**62
"""Nano-dollars of a cap that are kept: what is more is none that anybody reaches."""
# One round trip and one transaction: a process that stops in the middle of it holds no lock. Whatever
# the default of the database or the role is, what is read after both locks is what others left. Its own
# row may be locked by what the worker is just committing: nobody else waits for that.
# The worker's own row is set to what it holds by its own account: an answer that was lost with its
# connection gave it nothing. Of what is left nobody gets more than a share, unless one call needs it: a
# worker's first second says little of what it needs, and what one holds too much others wait for.
RESERVE = """
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT FROM @.workers WHERE worker = :worker FOR NO KEY UPDATE;
SELECT FROM @.runs WHERE run = @run FOR NO KEY UPDATE;
WITH us AS (
    SELECT spent + at_risk AS gone, coalesce(:held - spent - at_risk - handed, 0) AS free
    FROM @.workers WHERE worker = :worker AND NOT over),
others AS (
    SELECT coalesce(sum(spent + at_risk), 0) AS gone,
        count(*) FILTER (WHERE NOT over AND until < 'infinity') AS alive,
        coalesce(sum(greatest(free, 0)) FILTER (WHERE NOT over), 0) AS free,
        coalesce(bool_or(free > 0 OR reserved > 0) FILTER (WHERE NOT over), false) AS pending
    FROM @.workers WHERE run = @run AND worker <> :worker AND NOT again),
room AS (
    SELECT us.free, others.pending, others.alive, cap,
        cap - others.gone - others.free - us.gone - greatest(us.free, 0) AS room
    FROM us, others, @.runs WHERE run = @run),
given AS MATERIALIZED (
    SELECT *, CASE WHEN room < greatest(:least, 0) THEN 0
        ELSE least(:wanted, greatest(:least, room / (alive + 1))) END::bigint AS granted FROM room)
UPDATE @.workers w SET free = given.free + granted, reserved = :reserved + granted
FROM given WHERE w.worker = :worker AND NOT w.over
RETURNING granted, w.spent + w.at_risk + w.handed + w.free, pending;
SELECT (SELECT cap FROM @.runs WHERE run = @run), coalesce(sum(spent + at_risk), 0)::bigint,
    coalesce(sum(at_risk), 0)::bigint
FROM @.workers WHERE run = @run AND NOT again
"""
CAP = "UPDATE @.runs SET cap = :cap WHERE run = @run"


class Sharing(Keeper):
    """What one process may spend, for one run. `worker` gives the number of its row in workers."""

    def __init__(self, database: PostgresDatabase, worker: Callable[[], int | None]) -> None:
        self._db = database
        self._worker = worker
        self.settled = lambda reserved, freed: None
        self.recount = lambda: None

    @property
    @override
    def worker(self) -> int | None:
        return self._worker()

    @override
    async def set_cap(self, cap: int | None) -> None:
        given = {"cap": None if cap is None else min(cap, MOST)}
        await self._db.again(lambda: self._db.script(CAP, given))
        self.recount()

    @override
    async def reserve(self, held: int | None, least: int, wanted: int, reserved: int) -> Slice:
        given = {"worker": self.worker, "held": held, "least": least, "reserved": reserved}

        async def ask() -> list[list[Any]]:
            return await self._db.script(RESERVE, {**given, "wanted": max(least, wanted)})

        # A run can't begin without the first answer; for others its task asks again.
        *_, answer, ((cap, spent, at_risk),) = await (
            self._db.again(ask) if held is None else ask()
        )
        granted, holds, pending = answer[0] if answer else (0, None, True)
        return Slice(granted, holds, cap, spent, at_risk, pending)


class Heartbeat:
    """The thread that renews what a process holds in a store until `stop`: its workers' leases, and the
    scheduler's. A busy or paused event loop must not lose a lease. Each renewal opens a connection of
    its own, so that whoever only waits holds no second one. A database that is away is tried again the
    next time, sooner.

    It also counts the processes at work, which divide a server's limits, and looks for workers that gave
    no sign of life: the jobs and the money that they hold may be what everybody else waits for.
    """

    def __init__(self, address: Address, run: int, clock: Clock = time.monotonic) -> None:
        self._address = address
        self._run = run
        self._part = address.lease / PART
        self._clock = clock
        self._workers: set[int] = set()
        self._epoch: int | None = None
        self._renewed_at: float | None = None
        self._since = -math.inf  # when the stretch of renewals began that was never broken off
        self.processes = 1  # with a live worker in the store, when last counted
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def grace(self) -> float:
        """Seconds in which a live worker renews its lease, wherever it was cut off before."""
        return self._part

    @property
    def is_steady(self) -> bool:
        """Whether the database could be reached for long enough: what kept us from renewing our own
        leases may have kept others, who aren't dead."""
        return self._clock() - self._since >= self.grace

    def renewed(self) -> None:
        """Our own leases were renewed just now."""
        now, before = self._clock(), self._renewed_at
        if before is not None and now - before > 2 * self._part:  # cut off, or paused
            self._since = now
        self._renewed_at = now

    def hold(self, worker: int, before: int | None) -> None:
        """Renew the lease of this worker from now on, and no longer that of the row `before`."""
        self._workers = {*self._workers, worker} - {before}
        self._start()

    def lead(self, epoch: int) -> None:
        """Renew the scheduler's lease of this epoch."""
        self._epoch = epoch
        self._start()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._renew_again_and_again, name="judgeq-heartbeat", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """Let the thread end. Waits for a renewal under way, but not for a database that hangs."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(timeout=1.0)

    def _renew_again_and_again(self) -> None:
        wait = min(SOON, self._part)  # whoever began together with us is there then
        while not self._ended.wait(wait):
            wait = self._part
            try:
                self._renew()
            except JudgeqError:  # the database's own connection reports what is wrong
                wait /= PART

    def _renew(self) -> None:
        run, lease = self._run, self._address.lease
        with opened(self._address) as link:
            for worker in sorted(self._workers):
                link.execute(sql.RENEW, run, worker=worker, lease=lease)
            (self.processes,) = link.row(PROCESSES, run)
            if self._epoch is not None:
                link.execute(sql.RENEW_LEAD, run, ttl=lease, epoch=self._epoch)
            self.renewed()
            if self.is_steady:
                link.execute(END_DEAD, run, grace=self.grace)


class PostgresStore(Store):
    """The store of one run. Nothing is opened before it is needed; `name` is the run's for users."""

    _db: PostgresDatabase
    keeper: Sharing

    def __init__(self, address: Address, run: int, **options: Any) -> None:
        """`options` are those of its database."""
        self.lease = address.lease
        super().__init__(PostgresDatabase(address, run, **options))
        self._heartbeat = Heartbeat(address, run)
        self.keeper = Sharing(self._db, lambda: self._row_now)

    @property
    @override
    def processes(self) -> int:  # type: ignore[override]
        return self._heartbeat.processes

    @override
    async def lead(self, holder: str, ttl: float) -> int:
        epoch = await super().lead(holder, ttl)
        self._heartbeat.lead(epoch)
        return epoch

    async def _registered(self, row: int, before: int | None) -> None:
        ((self._heartbeat.processes,),) = await self._db.read(PROCESSES)
        self._heartbeat.hold(row, before)

    @override
    @whole
    async def reap(self) -> int:
        steady, grace = self._heartbeat.is_steady, self._heartbeat.grace
        return await self._db.change(END_DEAD, grace=grace) if steady else 0

    @override
    @whole
    async def take_unbegun(self) -> int:
        return await self._db.change(PUT_BACK_UNBEGUN, ours=list(self._rows.values()))

    @override
    async def prospects(self) -> list[Prospect]:
        """As Store.prospects; none where the schema isn't there yet."""
        table = f'"{self._db.address.schema}".rounds'
        there = await self._one("SELECT to_regclass(:table) IS NOT NULL", table=table)
        rows = await self._db.read(_PROSPECTS) if there[0] else []
        return [Prospect(*row) for row in rows]

    async def workers(self) -> list[WorkerState]:
        """All workers that the run ever had, the earliest first; no batches."""
        return await self._read(_WORKERS, _worker)

    @override
    async def crew(self) -> Crew:
        cap, *gone = await self._one(_MONEY)
        led = await self._one(sql.LEADER)
        leader = None if led is None else Leader(holder_name(led[1]), led[0], led[3])
        spending = Cap(None if cap is None else cap / 1e9, *(part / 1e9 for part in gone))
        return Crew(leader, await self.workers(), spending)

    @override
    async def close(self) -> None:
        """The jobs that this process still has go back into the queue at once."""
        self._heartbeat.stop()
        ours = set(self._rows.values()) - self._batches
        try:
            with suppress(StoreAwayError):
                if ours or self._leads:
                    async with self._db.transaction():
                        for row in ours:
                            await self._db.change(sql.LEAVE, worker=row)
                        await self._db.change(sql.GIVE_BACK)
                        await self._db.change(sql.END_LEAD, holder=self._leads)
        finally:
            await self._db.close()


def _worker(row: Sequence[Any]) -> WorkerState:
    """The worker of a row. Raises ValueError for one that can't be."""
    if not all(math.isfinite(cell) for cell in row if isinstance(cell, float)):
        raise ValueError("a worker has a time or a number that can't be")
    return WorkerState(*row)
