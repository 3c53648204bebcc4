"""The queue as workers see it: take a job, commit an attempt, hand in an outcome; and these workers.

The queue groups what many workers want into few transactions of the store. A pump runs at most once a
turn of the event loop: it settles all outcomes handed in, begins all attempts and claims for all workers
that wait, so that an answer is on disk within the turn that brought it. When answers pour in one by
one, turns closer than INTERVAL share a commit.
Nothing cuts a commit off: whoever leaves the queue or is cancelled lets one that has begun finish.
Where the store is away, what it was to commit is sent again, and nothing begins without it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from itertools import zip_longest
from typing import Any

from judgeq.engine.assembly import Session
from judgeq.engine.interrupts import Stop
from judgeq.errors import JobLostError, RunError, StoreAwayError
from judgeq.events import JobEnded, JobStarted
from judgeq.run_places import whoami
from judgeq.store import Store
from judgeq.types import Attempt, Clock, Job, JobState, Outcome, Sleep

INTERVAL = 0.005
AT_ONCE = 16
"""Outcomes that are committed before the next job is taken: so many paid answers a kill can cost."""
AT_ONCE_UNPAID = 64
AHEAD = 2.0
"""Seconds for which jobs are claimed ahead, at the pace of the last ones, where other processes work."""
FEW = 2
"""Jobs that are claimed ahead at any pace."""


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
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._store = store
        self._worker = worker
        self._stop = stop
        self._at_once = at_once
        self._to_claim = most
        self._clock = clock
        self._sleep = sleep
        self._outcomes: list[Outcome] = []
        self._beginning: list[tuple[Attempt, asyncio.Future[None]]] = []
        self._waiting: list[asyncio.Future[Job | None]] = []
        self._jobs: dict[int, bool] = {}  # claimed, without an outcome yet: whether they were begun
        self._begun_at: deque[float] = deque()  # the last AHEAD seconds
        self._closing = False
        self._wake = asyncio.Event()
        self._pump: asyncio.Task[None]
        self._error: BaseException | None = None

    async def __aenter__(self) -> Queue:
        self._pump = asyncio.create_task(self._run())
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
        (failure,) = await asyncio.gather(self._pump, return_exceptions=True)
        self._error = self._error or failure  # asked for here, or asyncio logs it with a traceback
        try:
            while self._error is None and self._outcomes:
                await self._commit()
        except RunError as error:
            self._error, alone = error, True
        if self._error is not None:
            with suppress(RunError):  # which was raised already; a folder that was moved takes it
                await self._store.settle(self._worker, self._outcomes)
            if alone:
                raise self._error

    async def get(self) -> Job | None:
        """The next job; None when there is none left, or on a stop.

        Raises what kept the store from committing, if anything did.
        """
        if len(self._outcomes) >= self._at_once and self._store.blocking:
            # When many answers come in one turn of the loop, the pump would come after all of them.
            await self._turn()
        future: asyncio.Future[Job | None] = self._asked()
        self._waiting.append(future)
        return await future

    async def begin(self, attempt: Attempt) -> None:
        """Return when the attempt is committed. Raises as `get` does, and JobLostError where the job
        is no longer ours: nothing may be sent for it."""
        future = self._asked()
        self._beginning.append((attempt, future))
        if self._jobs.get(attempt.job) is False:
            self._jobs[attempt.job] = True
            self._begun_at.append(self._clock())
        await future

    def _asked(self) -> asyncio.Future[Any]:
        """What a worker waits for. Raises as `get` does."""
        if self._error is not None:
            raise self._error
        self._wake.set()
        return asyncio.get_running_loop().create_future()

    def settle(self, outcome: Outcome) -> None:
        """Take an outcome; it is committed with the others of this turn, and no worker waits for it."""
        if outcome.state is not JobState.RUNNING:
            self._jobs.pop(outcome.job, None)
        self._outcomes.append(outcome)
        self._wake.set()

    def _room(self) -> float:
        """How many jobs may be claimed now: where others work, too, those that can soon be begun."""
        while self._begun_at and self._begun_at[0] <= self._clock() - AHEAD:
            self._begun_at.popleft()
        if self._store.keeper is None:
            return math.inf
        unbegun = len(self._jobs) - sum(self._jobs.values())
        return max(FEW, 2 * len(self._begun_at)) - unbegun

    async def _run(self) -> None:
        committed = -math.inf
        while True:
            await self._wake.wait()
            since = self._clock() - committed
            # All workers wait for us, or it is a while since the last commit: at once.
            if len(self._jobs) > len(self._beginning) and since < INTERVAL:
                await self._sleep(INTERVAL - since)
            if self._closing:  # also since we slept
                return
            self._wake.clear()
            await self._turn()
            committed = self._clock()

    async def _turn(self) -> None:
        """One grouped commit of everything that is wanted. An error, whatever it is, reaches all that
        wait for it, or come: workers must not wait for ever."""
        try:
            await self._commit()
        except BaseException as error:
            self._error = error
            begun: list[asyncio.Future[Any]] = [future for _, future in self._beginning]
            for future in (*self._waiting, *begun):
                if not future.done():
                    future.set_exception(error)
            raise

    async def _commit(self) -> None:
        outcomes, beginning, waiting = [*self._outcomes], [*self._beginning], [*self._waiting]
        attempts = [attempt for attempt, future in beginning if not future.done()]
        takers = [future for future in waiting if not future.done()]
        count = int(max(0, min(len(takers), self._to_claim, self._room())))
        try:
            lost, jobs = await self._store.again(lambda: self._together(outcomes, attempts, count))
        except StoreAwayError as error:
            del self._outcomes[: len(outcomes)]  # which may be there already
            raise StoreAwayError(
                f"{error} What it could not take any more is lost, as are calls in flight: it counts as "
                "possibly paid, and is asked again."
            ) from error
        del self._outcomes[: len(outcomes)], self._beginning[: len(beginning)]
        for attempt, future in beginning:
            if attempt.job in lost:
                self._jobs.pop(attempt.job, None)
            if future.done():
                continue
            if attempt.job in lost:
                future.set_exception(JobLostError(f"job {attempt.job} is another worker's by now."))
            else:
                future.set_result(None)
        self._to_claim -= len(jobs)
        none_left = len(jobs) < count or self._to_claim <= 0 or self._stop.asked
        # One that was another's for a while is still with the worker that had it.
        jobs = [job for job in jobs if job.match.id not in self._jobs]
        self._jobs.update((job.match.id, False) for job in jobs)
        served = len(takers) if none_left else len(jobs)
        self._waiting[: len(waiting)] = takers[served:]
        for taker, job in zip_longest(takers[:served], jobs):
            if not taker.done():
                taker.set_result(job)
            elif job is not None:  # its worker was cancelled meanwhile
                self.settle(Outcome(job.match.id, JobState.PENDING))

    async def _together(
        self, outcomes: list[Outcome], attempts: list[Attempt], count: int
    ) -> tuple[Collection[int], list[Job]]:
        """One transaction; the jobs of attempts that were lost, and those claimed, so many at most."""
        store, lost, jobs = self._store, list[int](), list[Job]()
        async with store.together():
            if outcomes:
                await store.settle(self._worker, outcomes)
            if attempts:
                lost = list(await store.begin(self._worker, attempts))
            if count and not self._stop.asked:
                jobs = await store.claim(self._worker, count, store.lease)
        return lost, jobs


async def work(queue: Queue, session: Session) -> None:
    """One worker. An error asks all others to stop, and is raised when its job is given back."""
    stop, emit = session.stop, session.emit
    while (job := await queue.get()) is not None:
        number, back = job.match.id, Outcome(job.match.id, JobState.PENDING)
        if stop.asked:  # between the claim and this turn: nothing has been sent
            queue.settle(back)
            return
        try:
            emit(JobStarted(number))
            outcome = await session.judge.ask(job, queue)
        except JobLostError:  # another worker has it by now, or will
            emit(JobEnded(number, back.state))
            continue
        except Exception:
            queue.settle(back)
            stop.ask()
            emit(JobEnded(number, back.state))
            raise
        queue.settle(outcome)
        emit(JobEnded(number, outcome.state))


async def drain(session: Session, most: float = math.inf) -> None:
    """Let as many workers as there may be calls empty the queue, of `most` jobs at most. Those in flight
    are let finish, whatever one raises. Of answers that nobody paid for a kill may cost more.

    Raises the first error of a worker. Cancelled, it cancels them all at once.
    """
    await session.judge.open()
    settings, stop = session.run.settings, session.stop
    at_once = AT_ONCE if settings.models else AT_ONCE_UNPAID
    async with Queue(session.store, whoami(), stop, at_once=at_once, most=most) as queue:
        count = int(min(settings.concurrency, most))
        workers = [asyncio.create_task(work(queue, session)) for _ in range(count)]
        # Cancelled, gather cancels what it waits for, and still waits for it.
        for result in await asyncio.gather(*workers, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
