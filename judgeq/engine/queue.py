"""The queue as workers see it: take a job, commit an attempt, hand in an outcome.

It groups what many workers want into few transactions of the store. A pump runs at most once a turn
of the event loop: it settles all outcomes handed in, begins all attempts and claims for all workers
that wait, so that an answer is on disk within the turn that brought it. When answers pour in one by
one, turns closer than INTERVAL share a commit. It also renews the leases of the jobs that are held.
Nothing cuts a commit off: whoever leaves the queue or is cancelled lets one that has begun finish.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import zip_longest
from typing import Any

from judgeq.errors import RunError, StoppedError
from judgeq.store import Store
from judgeq.types import Attempt, Job, JobState, Outcome

INTERVAL = 0.002
AT_ONCE = 16
"""Outcomes that are committed before the next job is taken: so many paid answers a kill can cost."""
AT_ONCE_UNPAID = 64
LEASE = 600.0
"""Seconds for which jobs, and a run, are held; renewed when a third of them has passed."""


class Stop:
    """The wish to stop, seen by whoever waits. `sleep` raises StoppedError once it is asked for."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._callbacks: list[Callable[[], None]] = []

    @property
    def asked(self) -> bool:
        """Whether a stop was asked for."""
        return self._asked.is_set()

    def ask(self) -> None:
        """Ask for a stop: no new calls; those in flight are let finish."""
        self._asked.set()
        for callback in self._callbacks:
            callback()

    def calls(self, callback: Callable[[], None]) -> None:
        """Have `callback` called when a stop is asked for (each time; at once if it was already)."""
        self._callbacks.append(callback)
        if self.asked:
            callback()

    async def sleep(self, seconds: float) -> None:
        """Wait, or raise StoppedError as soon as a stop is asked for."""
        if not self.asked:
            try:
                await asyncio.wait_for(self._asked.wait(), seconds)
            except TimeoutError:
                return
        raise StoppedError("the run was stopped")


class Queue:
    """One process's side of the store's queue, which claims `most` jobs in all. Use as `async with`;
    leaving it commits the rest."""

    def __init__(
        self,
        store: Store,
        worker: str,
        stop: Stop,
        *,
        at_once: int = AT_ONCE,
        most: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        until_renewal: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._worker = worker
        self._stop = stop
        self._at_once = at_once
        self._to_claim = most
        self._clock = clock
        self._sleep = sleep
        self._until_renewal = until_renewal
        self._outcomes: list[Outcome] = []
        self._beginning: list[tuple[Attempt, asyncio.Future[None]]] = []
        self._waiting: list[asyncio.Future[Job | None]] = []
        self._in_flight = 0
        self._renewal_due = False
        self._closing = False
        self._wake = asyncio.Event()
        self._committed = float("-inf")
        self._pump: asyncio.Task[None] | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._error: BaseException | None = None

    async def __aenter__(self) -> Queue:
        self._pump = asyncio.create_task(self._run(), name="judgeq-queue")
        self._renewal = asyncio.create_task(self._renew(), name="judgeq-leases")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        closing = asyncio.create_task(self._close(alone=kind is None))
        cancelled: asyncio.CancelledError | None = None
        while not closing.done():
            try:
                await asyncio.wait((closing,))
            except asyncio.CancelledError as error:  # a commit that has begun is let finish
                cancelled = error
        if cancelled is not None:
            closing.exception()
            raise cancelled
        closing.result()

    async def _close(self, *, alone: bool) -> None:
        """End the tasks and commit the rest. With `alone` no worker raised what kept the store from
        committing, which is raised here."""
        self._closing = True
        self._wake.set()
        if self._renewal is not None and self._pump is not None:
            self._renewal.cancel()
            await asyncio.gather(self._renewal, self._pump, return_exceptions=True)
        if self._error is None:
            await self._settle()
            return
        with suppress(RunError):  # which was raised already; a folder that was moved takes it
            await self._settle()
        if alone:
            raise self._error

    async def get(self) -> Job | None:
        """The next job; None when there is none left, or on a stop.

        Raises what kept the store from committing, if anything did.
        """
        if self._error is not None:
            raise self._error
        future: asyncio.Future[Job | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        if len(self._outcomes) >= self._at_once and self._store.blocking:
            # When many answers come in one turn of the loop, the pump would come after all of them.
            try:
                await self._turn()
            except BaseException:
                if future.done() and not future.cancelled():
                    future.exception()  # it is raised here
                raise
        self._wake.set()
        return await future

    async def begin(self, attempt: Attempt) -> None:
        """Return when the attempt is committed. Raises as `get` does."""
        if self._error is not None:
            raise self._error
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._beginning.append((attempt, future))
        self._wake.set()
        await future

    def settle(self, outcome: Outcome) -> None:
        """Take an outcome; it is committed with the others of this turn, and no worker waits for it."""
        if outcome.state is not JobState.RUNNING:
            self._in_flight -= 1
        self._outcomes.append(outcome)
        self._wake.set()

    async def _run(self) -> None:
        while not self._closing:
            await self._wake.wait()
            if self._closing:
                return
            since = self._clock() - self._committed
            # All workers wait for us, or it is a while since the last commit: at once.
            if self._in_flight > len(self._beginning) and since < INTERVAL:
                await self._sleep(INTERVAL - since)
            self._wake.clear()
            await self._turn()
            self._committed = self._clock()

    async def _renew(self) -> None:
        while True:
            await self._until_renewal(LEASE / 3)
            self._renewal_due = True
            self._wake.set()

    async def _turn(self) -> None:
        """One grouped commit of everything that is wanted. An error reaches all that wait for it."""
        try:
            await self._commit()
        except BaseException as error:
            self._give_up(error)  # whatever it was: workers must not wait for ever
            raise

    async def _commit(self) -> None:
        jobs: list[Job] = []
        async with self._store.together():
            await self._settle()
            if self._renewal_due:
                self._renewal_due = False
                await self._store.renew(self._worker, LEASE)
            self._beginning = [wanted for wanted in self._beginning if not wanted[1].done()]
            begun = len(self._beginning)
            if begun:
                await self._store.begin(self._worker, [attempt for attempt, _ in self._beginning])
            self._waiting = [future for future in self._waiting if not future.done()]
            count = len(self._waiting)
            allowed = min(count, self._to_claim)
            if allowed and not self._stop.asked:
                jobs = await self._store.claim(self._worker, int(allowed), LEASE)
                self._to_claim -= len(jobs)
        beginning, self._beginning = self._beginning[:begun], self._beginning[begun:]
        for _, future in beginning:
            if not future.done():
                future.set_result(None)
        self._in_flight += len(jobs)
        waiting, self._waiting = self._waiting[:count], self._waiting[count:]
        for wanted, job in zip_longest(waiting, jobs):
            if not wanted.done():
                wanted.set_result(job)
            elif job is not None:  # its worker was cancelled meanwhile
                self.settle(Outcome(job.match.id, JobState.PENDING))

    async def _settle(self) -> None:
        if self._outcomes:
            outcomes, self._outcomes = self._outcomes, []
            await self._store.settle(self._worker, outcomes)

    def _give_up(self, error: BaseException) -> None:
        """The store can't commit: all that wait, or come, get the error."""
        self._error = error
        begun: list[asyncio.Future[Any]] = [future for _, future in self._beginning]
        for future in (*self._waiting, *begun):
            if not future.done():
                future.set_exception(error)
