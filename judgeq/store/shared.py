"""The store of one run in a PostgreSQL database, which many processes share: leases, who works on it,
and its cap."""

from __future__ import annotations

import math
import threading
import time
from contextlib import suppress
from functools import partial
from typing import Any

from typing_extensions import override

from judgeq.errors import JudgeqError, StoreAwayError
from judgeq.judge.budget import Keeper, Slice
from judgeq.store.link import Address, opened
from judgeq.store.postgres import END_DEAD, PUT_BACK_UNBEGUN, PostgresTables
from judgeq.store.protocol import Cap, Crew, Leader, Prospect, WorkerState, holder_name
from judgeq.store.sql_store import LEADER
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
# In dollars.
_MONEY = """
SELECT (SELECT cap / 1e9::float8 FROM @.runs WHERE run = @run), coalesce(sum(spent), 0) / 1e9::float8,
    coalesce(sum(at_risk), 0) / 1e9::float8,
    coalesce(sum(greatest(free, 0)) FILTER (WHERE NOT over), 0) / 1e9::float8
FROM @.workers WHERE run = @run AND NOT again
"""

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
    SELECT *, CASE WHEN room < greatest(:least, 0) THEN 0 ELSE
        least(greatest(:least, :wanted), greatest(:least, room / (alive + 1))) END::bigint AS granted
    FROM room)
UPDATE @.workers w SET free = given.free + granted, reserved = :reserved + granted
FROM given WHERE w.worker = :worker AND NOT w.over
RETURNING granted, w.spent + w.at_risk + w.handed + w.free, pending;
SELECT (SELECT cap FROM @.runs WHERE run = @run), coalesce(sum(spent + at_risk), 0)::bigint,
    coalesce(sum(at_risk), 0)::bigint
FROM @.workers WHERE run = @run AND NOT again
"""
RENEW = """
UPDATE @.workers SET seen = @now,
    until = CASE WHEN until > @now + :lease THEN until ELSE @now + :lease END
WHERE worker = :worker AND NOT over
"""
RENEW_LEAD = "UPDATE @.lead SET until = @now + :ttl WHERE run = @run AND epoch = :epoch"
LEAVE = "UPDATE @.workers SET over = true, until = @now WHERE worker = :worker"
END_LEAD = "UPDATE @.lead SET until = 0 WHERE run = @run AND holder = :holder"
# The jobs of workers that are over.
GIVE_BACK = """
UPDATE @.jobs SET state = 'pending' WHERE run = @run AND state = 'running' AND worker IN (
    SELECT worker FROM @.workers WHERE run = @run AND over)
"""
# More than this nobody reaches.
CAP = """
UPDATE @.runs SET cap = CASE WHEN CAST(:cap AS numeric) > 4000000000000000000 THEN 4000000000000000000
    ELSE CAST(:cap AS numeric) END
WHERE run = @run
"""


class Heartbeat(threading.Thread):
    """The thread that renews what a process holds in a store until `stop`: its workers' leases, and the
    scheduler's. A busy or paused event loop must not lose a lease. Each renewal opens a connection of
    its own, so that whoever only waits holds no second one. A database that is away is tried again the
    next time, sooner.

    It also counts the processes at work, which divide a server's limits, and looks for workers that gave
    no sign of life: the jobs and the money that they hold may be what everybody else waits for.
    """

    def __init__(self, store: PostgresStore, clock: Clock = time.monotonic) -> None:
        super().__init__(name="judgeq-heartbeat", daemon=True)
        self._store = store
        self.grace = store.lease / PART
        """Seconds in which a live worker renews its lease, wherever it was cut off before."""
        self._clock = clock
        self._renewed_at = self._since = -math.inf  # last; and when the stretch of renewals began
        self._ended = threading.Event()

    @property
    def is_steady(self) -> bool:
        """Whether the database could be reached for long enough: what kept us from renewing our own
        leases may have kept others, who aren't dead."""
        return self._clock() - self._since >= self.grace

    def renewed(self) -> None:
        """Our own leases were renewed just now."""
        now, before = self._clock(), self._renewed_at
        if now - before > 2 * self.grace and before > -math.inf:  # cut off, or paused
            self._since = now
        self._renewed_at = now

    def begin(self) -> None:
        """Renew what the store holds from now on."""
        if self.ident is None:
            self.start()

    def stop(self) -> None:
        """End. Waits for a renewal under way, but not for a database that hangs."""
        self._ended.set()
        if self.ident is not None:
            self.join(timeout=1.0)

    @override
    def run(self) -> None:
        wait = min(SOON, self.grace)  # whoever began together with us is there then
        while not self._ended.wait(wait):
            wait = self.grace
            try:
                self._renew()
            except JudgeqError:  # the database's own connection reports what is wrong
                wait /= PART

    def _renew(self) -> None:
        store, run = self._store, self._store.run
        with opened(store.address) as link:
            for worker in store.held:
                link.execute(RENEW, run, worker=worker, lease=store.lease)
            (store.processes,) = link.row(PROCESSES, run)
            if store.epoch is not None:
                link.execute(RENEW_LEAD, run, ttl=store.lease, epoch=store.epoch)
            self.renewed()
            if self.is_steady:
                link.execute(END_DEAD, run, grace=self.grace)


class PostgresStore(PostgresTables, Keeper):
    """The store of one run, and what its process may spend for it."""

    keeper: Keeper

    def __init__(self, address: Address, run: int, **options: Any) -> None:
        """`options` are those of its tables."""
        super().__init__(address, run, **options)
        self.settled = lambda reserved, freed: None
        self.recount = lambda: None
        self.keeper = self
        self._heartbeat = Heartbeat(self)

    @property
    def held(self) -> list[int]:
        """The rows of this process's workers."""
        return sorted(self._rows.values())

    @override
    async def lead(self, holder: str, ttl: float) -> int:
        epoch = await super().lead(holder, ttl)
        self._heartbeat.begin()
        return epoch

    @override
    async def _register(self, worker: str) -> int:
        row = await super()._register(worker)
        ((self.processes,),) = await self._read(PROCESSES)
        self._heartbeat.begin()
        return row

    @override
    @whole
    async def reap(self) -> int:
        steady, grace = self._heartbeat.is_steady, self._heartbeat.grace
        return await self._change(END_DEAD, grace=grace) if steady else 0

    @override
    @whole
    async def take_unbegun(self) -> int:
        return await self._change(PUT_BACK_UNBEGUN, ours=self.held)

    # What it may spend

    @override
    @whole
    async def set_cap(self, cap: int | None) -> None:
        await self._change(CAP, cap=cap)
        self.recount()

    @override
    async def reserve(self, held: int | None, least: int, wanted: int, reserved: int) -> Slice:
        given = {"held": held, "least": least, "wanted": wanted, "reserved": reserved}
        ask = partial(self._script, RESERVE, {"worker": self.worker, **given})
        # A run can't begin without the first answer; for others its task asks again.
        *_, answer, ((cap, spent, at_risk),) = await (self.again(ask) if held is None else ask())
        granted, holds, pending = answer[0] if answer else (0, None, True)
        return Slice(granted, holds, cap, spent, at_risk, pending)

    # Who else is there

    @override
    async def prospects(self) -> list[Prospect]:
        """As Store.prospects; none where the schema isn't there yet."""
        there = await self._read(
            "SELECT to_regclass(:table) WHERE to_regclass(:table) IS NOT NULL",
            table=f'"{self.address.schema}".rounds',
        )
        return [Prospect(*row) for row in await self._read(_PROSPECTS)] if there else []

    async def workers(self) -> list[WorkerState]:
        """All workers that the run ever had, the earliest first; no batches."""
        return [WorkerState(*row) for row in await self._read(_WORKERS)]

    @override
    async def crew(self) -> Crew:
        led, money = await self._one(LEADER), await self._one(_MONEY)
        leader = None if led is None else Leader(holder_name(led[1]), led[0], led[3])
        return Crew(leader, await self.workers(), Cap(*money))

    @override
    async def close(self) -> None:
        """The jobs that this process still has go back into the queue at once."""
        self._heartbeat.stop()
        try:
            with suppress(StoreAwayError):
                if self.held or self._leads:
                    async with self._transaction():
                        for row in self.held:
                            await self._change(LEAVE, worker=row)
                        await self._change(GIVE_BACK)
                        await self._change(END_LEAD, holder=self._leads)
        finally:
            await super().close()
