"""What the workers of a run share, in PostgreSQL: its cap.

Each question is one round trip and one transaction of its own: a process that stops in the middle of it
holds no lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from typing_extensions import override

from judgeq.judge.slices import Keeper, Slice
from judgeq.store.postgres.connection import PostgresDatabase

MOST = 2**62
"""Nano-dollars of a cap that are kept: what is more is none that anybody reaches."""

# Both locks come first, in statements of their own: what is read after them is what others left. Its own
# row may be locked by what the worker is just committing: nobody else waits for that.
LOCK_MONEY = """
SELECT FROM @.workers WHERE worker = :worker FOR NO KEY UPDATE;
SELECT FROM @.runs WHERE run = @run FOR NO KEY UPDATE;
"""
# The worker's own row is set to what it holds by its own account: an answer that was lost with its
# connection gave it nothing. Of what is left nobody gets more than a share, unless one call needs it: a
# worker's first second says little of what it needs, and what one holds too much others wait for.
RESERVE = """
WITH us AS (
    SELECT spent + at_risk AS gone, coalesce(:held - spent - at_risk - handed, 0) AS free
    FROM @.workers WHERE worker = :worker AND NOT over),
others AS (
    SELECT coalesce(sum(spent + at_risk), 0) AS gone,
        count(*) FILTER (WHERE NOT over AND until < 'infinity') AS alive,
        coalesce(sum(greatest(free, 0)) FILTER (WHERE NOT over), 0) AS free,
        coalesce(bool_or(free > 0 OR reserved > 0) FILTER (WHERE NOT over), false) AS pending
    FROM @.workers WHERE run = @run AND worker <> :worker),
room AS (
    SELECT us.free, others.pending, others.alive, cap,
        cap - others.gone - others.free - us.gone - greatest(us.free, 0) AS room
    FROM us, others, @.runs WHERE run = @run),
given AS MATERIALIZED (
    SELECT *, CASE WHEN room < greatest(:least, 0) THEN 0
        ELSE least(:wanted, greatest(:least, room / (alive + 1))) END::bigint AS granted FROM room)
UPDATE @.workers w SET free = given.free + granted, reserved = :reserved + granted
FROM given WHERE w.worker = :worker AND NOT w.over
RETURNING granted, w.spent + w.at_risk + w.handed + w.free, pending
"""
TOTALS = """
SELECT coalesce(sum(spent + at_risk), 0)::bigint, coalesce(sum(at_risk), 0)::bigint,
    (SELECT cap FROM @.runs WHERE run = @run)
FROM @.workers WHERE run = @run
"""
CAP = "UPDATE @.runs SET cap = :cap WHERE run = @run"

# Whatever the default of the database or the role is: what is read after a lock is what others left.
COMMITTED = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;"


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
        given = {
            "worker": self.worker,
            "held": held,
            "least": least,
            "wanted": max(least, wanted),
            "reserved": reserved,
        }

        async def ask() -> list[list[Any]]:
            return await self._db.script(f"{COMMITTED}{LOCK_MONEY}{RESERVE};{TOTALS}", given)

        # A run can't begin without the first answer; for others its task asks again.
        rows = await (self._db.again(ask) if held is None else ask())
        (spent, at_risk, cap), answer = rows[-1][0], rows[-2]
        if not answer:
            return Slice(0, None, cap, spent, at_risk, pending=True)
        granted, holds, pending = answer[0]
        return Slice(granted, holds, cap, spent, at_risk, pending)
