"""The store of one run in a PostgreSQL database, which many processes share: leases, who works on it,
and its cap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from typing_extensions import override

from judgeq.errors import StoreAwayError
from judgeq.store import statements as sql
from judgeq.store.crew import Cap, Crew, Leader, Prospect, WorkerState
from judgeq.store.postgres.address import Address
from judgeq.store.postgres.connection import PostgresDatabase
from judgeq.store.postgres.heartbeat import PROCESSES, Heartbeat
from judgeq.store.postgres.runs import prospects
from judgeq.store.postgres.sharing import Sharing
from judgeq.store.sql_store import Store, holder_name

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
WHERE w.run = @run AND w.until < :never ORDER BY w.worker
"""
_MONEY = """
SELECT (SELECT cap FROM @.runs WHERE run = @run), coalesce(sum(spent), 0)::bigint,
    coalesce(sum(at_risk), 0)::bigint,
    coalesce(sum(greatest(free, 0)) FILTER (WHERE NOT over), 0)::bigint
FROM @.workers WHERE run = @run
"""


class PostgresStore(Store):
    """The store of one run. Nothing is opened before it is needed; `name` is the run's for users."""

    _db: PostgresDatabase
    keeper: Sharing

    def __init__(
        self, address: Address, run: int, *, damage: Sequence[str] = (), **options: Any
    ) -> None:
        """`options` are those of its database."""
        database = PostgresDatabase(address, run, **options)
        super().__init__(database, damage)
        self.lease = address.lease
        self._heartbeat = Heartbeat(address, run, database.reach)
        self._leads: str | None = None
        self.keeper = Sharing(database, lambda: self._row_now)

    @property
    @override
    def processes(self) -> int:  # type: ignore[override]
        return self._heartbeat.processes

    @override
    async def lead(self, holder: str, ttl: float) -> int:
        epoch = await super().lead(holder, ttl)
        self._leads = f"{holder} ({self._token})"
        self._heartbeat.lead(epoch)
        return epoch

    async def _registered(self, row: int, before: int | None) -> None:
        ((self._heartbeat.processes,),) = await self._db.read(PROCESSES)
        self._heartbeat.hold(row, before)

    async def workers(self) -> list[WorkerState]:
        """All workers that the run ever had, the earliest first; no batches."""
        listed = await self._db.read(_WORKERS, never=sql.NEVER)
        with self._reading():
            for row in listed:
                if not all(math.isfinite(cell) for cell in row if isinstance(cell, float)):
                    raise ValueError("a worker has a time or a number that can't be")
            return [WorkerState(*row) for row in listed]

    async def leader(self) -> Leader | None:
        """Who leads, or led last; None where nobody ever did."""
        row = await self._one(sql.LEADER)
        return None if row is None else Leader(holder_name(row[1]), row[0], row[3])

    @override
    async def prospects(self) -> list[Prospect]:
        return await prospects(self._db)

    @override
    async def crew(self) -> Crew:
        cap, *gone = await self._one(_MONEY)
        leader, workers = await self.leader(), await self.workers()
        spending = Cap(None if cap is None else cap / 1e9, *(part / 1e9 for part in gone))
        return Crew(leader, workers, spending)

    @override
    async def close(self) -> None:
        """The jobs that this process still has go back into the queue at once."""
        self._heartbeat.stop()
        workers = [worker for worker in self._workers.values() if not worker.batch]
        ours = [row for worker in workers for row in worker.rows]
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
