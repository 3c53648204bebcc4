"""The scheduler's lease: one process leads a run, and another takes over where it died."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from judgeq.engine.assembly import Session
from judgeq.engine.interrupts import background
from judgeq.engine.queue import RENEWAL
from judgeq.errors import LedError, StoppedError
from judgeq.events import Notice
from judgeq.judge.budget import rounded_down
from judgeq.run_places import whoami
from judgeq.types import Sleep

BARRIER_WAIT = 1.0
"""Seconds between two looks at jobs that other workers hold, or at who leads."""


@asynccontextmanager
async def leading(session: Session, sleep: Sleep = asyncio.sleep) -> AsyncIterator[int]:
    """Be the run's scheduler, under the epoch given, by a lease that is renewed until this is left.

    Where the lease is lost the run is asked to stop, and then RunError is raised.
    """
    epoch, lease = await lead(session), session.store.lease
    keeper, cap = session.store.keeper, session.run.settings.max_cost
    if keeper is not None:
        await keeper.set_cap(None if cap is None else rounded_down(cap))

    async def renew() -> None:
        try:
            while True:
                await sleep(lease * RENEWAL)
                await session.store.renew_lead(epoch, lease)
        except Exception:
            session.stop.ask()
            raise

    async with background(renew()) as renewal:
        try:
            yield epoch
        except StoppedError:
            if renewal.done():
                renewal.result()
            raise


async def lead(session: Session) -> int:
    """Become the scheduler; take over from one that doesn't renew its lease. Raises LedError where
    another does, and that isn't waited for."""
    store, first, standby = session.store, None, session.run.settings.standby
    while True:
        try:
            return await store.lead(whoami(), store.lease)
        except LedError as error:
            if first is None:
                first = error.until
                ends = "when it ends; if it is dead" if standby else "if that process is dead"
                session.emit(
                    Notice(
                        f"{error} This `judgeq run` takes over {ends}, within {store.lease:.0f} s.",
                        needed=standby,
                    )
                )
            elif error.until != first and not standby:
                worker = f"`judgeq worker {session.run.folder.argument}`"
                raise LedError(
                    f"{error} To help it, start {worker}; to wait until it ends, add --standby.",
                    until=error.until,
                ) from error
        await session.stop.sleep(BARRIER_WAIT)
