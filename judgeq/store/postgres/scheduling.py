"""The scheduler's side of a PostgreSQL store: the items, who leads, and the rounds.

All of it is tried again while the database is away.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from judgeq.errors import LedError, RunError
from judgeq.store import rows
from judgeq.store.postgres import columns, statements
from judgeq.store.postgres.heartbeat import Heartbeat
from judgeq.store.postgres.link import Link
from judgeq.store.postgres.reading import PostgresReader
from judgeq.store.protocol import Items
from judgeq.types import JobState, Matches, Standings


class PostgresScheduler(PostgresReader):
    """See Store. `token` tells this process from others of its name; the lease of who leads is renewed
    by `heartbeat`."""

    def __init__(
        self, link: Link, run: int, token: str, heartbeat: Heartbeat, name: str = ""
    ) -> None:
        super().__init__(link, run, name)
        self._token = token
        self._heartbeat = heartbeat
        self._leads = False

    async def set_items(self, items: Items) -> None:
        """See Store."""
        n = len(items.ids)
        gold: Sequence[float | None] = [None] * n
        if items.gold is not None:
            gold = [None if value != value else value for value in items.gold.tolist()]

        async def put() -> None:
            async with self._link.transaction():
                for start in range(0, n, columns.BLOCK):
                    part = slice(start, min(start + columns.BLOCK, n))
                    await self._link.query(
                        "INSERT INTO @.items (run, row, id, gold) SELECT %s, * FROM "
                        "unnest(%s::int[], %s::text[], %s::float8[]) "
                        "ON CONFLICT (run, row) DO UPDATE SET gold = excluded.gold",
                        self._run,
                        columns.array(range(part.start, part.stop)),
                        list(items.ids[part]),
                        columns.array(gold[part]),
                    )
                await self._link.query("DELETE FROM @.subsets WHERE run = %s", self._run)
                for name, mask in items.subsets.items():
                    members = np.flatnonzero(mask).astype("<i4").tobytes()
                    await self._link.query(
                        "INSERT INTO @.subsets VALUES (%s, %s, %s)", self._run, name, members
                    )
                await self._link.query(statements.TOUCH, self._run)

        await self._link.again(put)

    async def lead(self, holder: str, ttl: float) -> int:
        """See Store. Workers go on meanwhile: what they hold stays theirs."""
        name = f"{holder} ({self._token})"
        row = await self._row(statements.LEAD, self._run, name, ttl)
        if row is None:
            _, other, until, _ = await self._row(statements.LEADER, self._run)
            raise LedError(
                f"{self._shown} is led by {other.rpartition(' (')[0] or other}.",
                until=until,
            )
        self._leads = True
        self._heartbeat.lead(row[0])
        return int(row[0])

    async def renew_lead(self, epoch: int, ttl: float) -> None:
        """See Store."""
        if await self._row(statements.RENEW_LEAD, ttl, self._run, epoch) is None:
            await self._check_epoch(epoch)

    async def _check_epoch(self, epoch: int, *, lock: bool = False) -> None:
        """Raise RunError unless the epoch is in force; and, locked, until the transaction ends."""
        row = await self._row(statements.LEADER + (" FOR SHARE" if lock else ""), self._run)
        if row is None or row[0] != epoch:
            by = f"; it is led by {row[1].rpartition(' (')[0]}" if row else ""
            raise RunError(
                f"{self._shown}: another process has taken the run over (epoch "
                f"{row and row[0]}, ours was {epoch}){by}; nothing was changed."
            )

    async def plan_round(
        self, round: int, epoch: int, standings: Standings, matches: Matches
    ) -> None:
        """See Store."""
        tried = False

        async def plan() -> None:
            nonlocal tried
            async with self._link.transaction():
                await self._check_epoch(epoch)
                ((planned, first, by),) = await self._link.query(
                    statements.PLANNED, self._run, round, self._run
                )
                if tried and by == epoch:  # the first try was committed, and nobody said so
                    return
                tried = True
                if round != planned + 1:
                    raise RunError(f"{self._shown}: round {round} can't follow round {planned}.")
                last = first + len(matches) - 1
                row = (self._run, round, first, last, epoch, *rows.standings(standings))
                await self._link.query(statements.INSERT_ROUND, *row)
                jobs = ((self._run, *job) for job in rows.jobs(matches, first))
                await self._link.copy_in(statements.COPY_MATCHES, jobs)
                await self._link.query(statements.INSERT_JOBS, self._run, first, last)
                await self._link.query(statements.TOUCH, self._run)
                # Only now: meanwhile the lease must be renewed.
                await self._check_epoch(epoch, lock=True)

        await self._link.again(plan)

    async def reopen(self, *states: JobState) -> int:
        """See Store."""
        wanted = [state.value for state in states]
        return int((await self._row(statements.REOPEN, self._run, wanted))[0])

    async def _end_lead(self) -> None:
        """Let another process lead at once."""
        if self._leads:
            await self._link.query(statements.END_LEAD, self._run, f"({self._token})")
