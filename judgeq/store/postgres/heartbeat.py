"""The thread that renews what a process holds in a PostgreSQL store: its workers' leases, and the
scheduler's. It has a connection of its own: a busy or paused event loop must not lose a lease.

It also counts the processes at work, which divide a server's limits, and looks for workers that gave no
sign of life: the jobs and the money that they hold may be what everybody else waits for.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from judgeq.errors import JudgeqError
from judgeq.store import statements as sql
from judgeq.store.postgres.address import Address, connect
from judgeq.store.postgres.dialect import END_DEAD, sent
from judgeq.store.postgres.reach import PART, Reach

if TYPE_CHECKING:
    import psycopg

PROCESSES = """
SELECT greatest(1, count(DISTINCT (host, pid)))::int FROM @.workers
WHERE NOT over AND until > @now AND until < 'infinity'
"""
SOON = 1.0
"""Seconds until they are for the first time."""


class Heartbeat:
    """Renews from `start` to `stop`. A database that is away is tried again the next time, sooner."""

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

    def hold(self, worker: int) -> None:
        """Renew the lease of this worker from now on."""
        with self._lock:
            self._workers.add(worker)
        self._start()

    def let_go(self, worker: int) -> None:
        """Renew it no longer."""
        with self._lock:
            self._workers.discard(worker)

    def lead(self, epoch: int | None) -> None:
        """Renew the scheduler's lease of this epoch (None: no longer)."""
        with self._lock:
            self._epoch = epoch
        if epoch is not None:
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
        import psycopg

        connection: psycopg.Connection[Any] | None = None
        wait = min(SOON, self._address.lease / PART)  # whoever began together with us is there then
        while not self._ended.wait(wait):
            wait = self._address.lease / PART
            try:
                if connection is None or connection.closed:
                    connection = connect(self._address)
                self._renew(connection)
                self._reach.renewed()
                self._execute(connection, END_DEAD, **self._reach.values())
            except (psycopg.Error, JudgeqError):  # the link reports what is wrong
                self._reach.lost()
                wait /= PART
                if connection is not None:
                    with suppress(psycopg.Error):
                        connection.close()
                connection = None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def _renew(self, connection: psycopg.Connection[Any]) -> None:
        with self._lock:
            workers, epoch = sorted(self._workers), self._epoch
        lease = self._address.lease
        for worker in workers:
            self._execute(connection, sql.RENEW, worker=worker, lease=lease)
        if workers:
            ((self.processes,),) = self._execute(connection, PROCESSES)
        if epoch is not None:
            self._execute(connection, sql.RENEW_LEAD, ttl=lease, epoch=epoch)

    def _execute(
        self, connection: psycopg.Connection[Any], statement: str, **values: object
    ) -> psycopg.Cursor[Any]:
        query: Any = sent(statement, self._address, self._run)
        return connection.execute(query, values or None)
