"""The thread that renews what a process holds in a PostgreSQL store: its workers' leases, and the
scheduler's. A busy or paused event loop must not lose a lease. Each renewal opens a connection of its
own, so that whoever only waits holds no second one.

It also counts the processes at work, which divide a server's limits, and looks for workers that gave no
sign of life: the jobs and the money that they hold may be what everybody else waits for.
"""

from __future__ import annotations

import math
import threading
import time

from judgeq.errors import JudgeqError
from judgeq.store import statements as sql
from judgeq.store.postgres.address import Address
from judgeq.store.postgres.dialect import END_DEAD
from judgeq.store.postgres.link import opened
from judgeq.types import Clock

PROCESSES = """
SELECT greatest(1, count(DISTINCT (host, pid)))::int FROM @.workers
WHERE NOT over AND until > @now AND until < 'infinity'
"""
PART = 4
"""Leases are renewed when this part of them has passed; after a failure PART times sooner."""
SOON = 1.0
"""Seconds until they are for the first time."""


class Reach:
    """How the database was reached. A live worker whose lease ends within half of it from now renews it
    in any stretch of time as long as a part of it. So whoever didn't in the last such stretch is dead,
    however often the database restarted since; others are given the time. What kept us from renewing
    our own leases may have kept them.
    """

    def __init__(self, lease: float, clock: Clock = time.monotonic) -> None:
        self._lease = lease
        self._clock = clock
        self._since: float | None = None  # when the stretch began; None: we were cut off
        self._last = -math.inf  # when leases were last renewed
        self._known = -math.inf  # when a stretch last was long enough
        self._steady = True  # whether that was never broken off

    def renewed(self) -> None:
        """Our own leases were renewed."""
        now, part = self._clock(), self._lease / PART
        if self._last != -math.inf and now - self._last > 2 * part:
            self.lost()  # we were paused
        if self._since is None:
            self._since = now
        self._last = now
        if now - self._since >= part:
            self._known, self._steady = now, True

    def lost(self) -> None:
        """They couldn't be."""
        self._since, self._steady = None, False

    def values(self) -> dict[str, object]:
        """What dialect.END_DEAD takes."""
        known = self._clock() - self._known - self._lease / 2
        return {"known": known, "steady": self._steady, "grace": self._lease / PART}


class Heartbeat:
    """Renews until `stop` what is held. A database that is away is tried again the next time, sooner."""

    def __init__(self, address: Address, run: int, reach: Reach) -> None:
        self._address = address
        self._run = run
        self._reach = reach
        self._lock = threading.Lock()
        self._workers: set[int] = set()
        self._epoch: int | None = None
        self.processes = 1  # with a live worker in the store, when last counted
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def hold(self, worker: int, before: int | None) -> None:
        """Renew the lease of this worker from now on, and no longer that of the row `before`."""
        with self._lock:
            self._workers = {*self._workers, worker} - {before}
        self._start()

    def lead(self, epoch: int) -> None:
        """Renew the scheduler's lease of this epoch."""
        with self._lock:
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
        wait = min(SOON, self._address.lease / PART)  # whoever began together with us is there then
        while not self._ended.wait(wait):
            wait = self._address.lease / PART
            try:
                self._renew()
            except JudgeqError:  # the database's own connection reports what is wrong
                self._reach.lost()
                wait /= PART

    def _renew(self) -> None:
        with self._lock:
            workers, epoch = sorted(self._workers), self._epoch
        run, lease = self._run, self._address.lease
        with opened(self._address) as link:
            for worker in workers:
                link.execute(sql.RENEW, run, worker=worker, lease=lease)
            if workers:
                (self.processes,) = link.row(PROCESSES, run)
            if epoch is not None:
                link.execute(sql.RENEW_LEAD, run, ttl=lease, epoch=epoch)
            self._reach.renewed()
            link.execute(END_DEAD, run, **self._reach.values())
