"""The queue as workers see it: take a job, commit an attempt, hand in an outcome.

It groups what many workers want into few transactions of the store. A pump runs at most once a turn
of the event loop: it settles all outcomes handed in, begins all attempts and claims for all workers
that wait, so that an answer is on disk within the turn that brought it. When answers pour in one by
one, turns closer than INTERVAL share a commit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import zip_longest
from typing import Any

from judgeq.errors import StoppedError
from judgeq.store import Store
from judgeq.types import Attempt, Job, JobState, Outcome

INTERVAL = 0.002
AT_ONCE = 16
"""Outcomes that are committed before the next job is taken: so many paid answers a kill can cost."""
AT_ONCE_UNPAID = 64
LEASE = 600.0


class Stop:
    """The wish to stop, seen by whoever waits. `sleep` raises StoppedError once it is asked for."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._told: list[Callable[[], None]] = []

    @property
    def asked(self) -> bool:
        """Whether a stop was asked for."""
        return self._asked.is_set()

    def ask(self) -> None:
        """Ask for a stop: no new calls; those in flight are let finish."""
        self._asked.set()
        for tell in self._told:
            tell()

    def tells(self, tell: Callable[[], None]) -> None:
        """Have `tell` called when a stop is asked for (each time; at once if it was already)."""
        self._told.append(tell)
        if self.asked:
            tell()

    async def sleep(self, seconds: float) -> None:
        """Wait, or raise StoppedError as soon as a stop is asked for."""
        if not self.asked:
            try:
                await asyncio.wait_for(self._asked.wait(), seconds)
            except TimeoutError:
                return
        raise StoppedError("the run was stopped")


class Queue:
    """One process's side of the store's queue. Use as `async with`; leaving it commits the rest."""

    def __init__(
        self,
        store: Store,
        worker: str,
        stop: Stop,
        *,
        at_once: int = AT_ONCE,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._worker = worker
        self._stop = stop
        self._at_once = at_once
        self._clock = clock
        self._sleep = sleep
        self._outcomes: list[Outcome] = []
        self._beginning: list[tuple[Attempt, asyncio.Future[None]]] = []
        self._waiting: list[asyncio.Future[Job | None]] = []
        self._in_flight = 0
        self._turning = False
        self._wake = asyncio.Event()
        self._committed = float("-inf")
        self._pump: asyncio.Task[None] | None = None
        self._error: BaseException | None = None

    async def __aenter__(self) -> Queue:
        self._pump = asyncio.create_task(self._run(), name="judgeq-queue")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        if self._error is None:
            await self._settle()
        elif kind is None:  # the workers were done already: nobody else heard of it
            raise self._error

    async def get(self) -> Job | None:
        """The next job; None when there is none left, or on a stop.

        Raises what kept the store from committing, if anything did.
        """
        if self._error is not None:
            raise self._error
        future: asyncio.Future[Job | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        if len(self._outcomes) >= self._at_once and not self._turning:
            # When many answers come in one turn of the loop, the pump would come after all of them.
            try:
                await self._turn()
            except BaseException:
                if future.done() and not future.cancelled():
                    future.exception()  # it is told here
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
        """Take an outcome; it is committed with the others of this turn, and nobody waits for it."""
        if outcome.state is not JobState.RUNNING:
            self._in_flight -= 1
        self._outcomes.append(outcome)
        self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            since = self._clock() - self._committed
            # All workers wait for us, or it is a while since the last commit: at once.
            if self._in_flight > len(self._beginning) and since < INTERVAL:
                await self._sleep(INTERVAL - since)
            self._wake.clear()
            if not self._turning:
                await self._turn()
            self._committed = self._clock()

    async def _turn(self) -> None:
        """One grouped commit of everything that is wanted. Who gets an error tells all others."""
        self._turning = True
        try:
            await self._commit()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._give_up(error)  # whatever it was: who waits must not wait for ever
            raise
        finally:
            self._turning = False

    async def _commit(self) -> None:
        jobs: list[Job] = []
        async with self._store.together():
            await self._settle()
            begun = len(self._beginning)
            if begun:
                await self._store.begin(self._worker, [attempt for attempt, _ in self._beginning])
            self._waiting = [future for future in self._waiting if not future.done()]
            count = len(self._waiting)
            if count and not self._stop.asked:
                jobs = await self._store.claim(self._worker, count, LEASE)
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
        """The store can't commit: whoever waits, or comes, gets the error."""
        self._error = error
        begun: list[asyncio.Future[Any]] = [future for _, future in self._beginning]
        for future in (*self._waiting, *begun):
            if not future.done():
                future.set_exception(error)
