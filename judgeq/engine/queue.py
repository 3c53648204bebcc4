"""The queue as workers see it: take a job, commit an attempt, hand in an outcome.

It groups what many workers want into few transactions of the store. A pump runs at most once a turn
of the event loop: it settles all outcomes handed in, begins all attempts and claims for all workers
that wait, so that an answer is on disk within the turn that brought it. When answers pour in one by
one, turns closer than INTERVAL share a commit. It also renews the leases of the jobs that are held.
Nothing cuts a commit off: whoever leaves the queue or is cancelled lets one that has begun finish.
Where the store is away, what it was to commit is sent again, and nothing begins without it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from itertools import zip_longest
from typing import Any

from judgeq.errors import JobLostError, RunError, StoppedError, StoreAwayError
from judgeq.store import Store
from judgeq.types import Attempt, Clock, Job, JobState, Outcome, Sleep

INTERVAL = 0.002
AT_ONCE = 16
"""Outcomes that are committed before the next job is taken: so many paid answers a kill can cost."""
AT_ONCE_UNPAID = 64
AHEAD = 2.0
"""Seconds for which jobs are claimed ahead, at the pace of the last ones, where other processes work."""
FEW = 2
"""Jobs that are claimed ahead at any pace."""
RENEWAL = 1 / 3
"""Leases are renewed when this part of them has passed."""


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
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
        until_renewal: Sleep = asyncio.sleep,
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
        self._jobs: set[int] = set()  # that were claimed, and have no outcome yet
        self._unbegun: set[int] = set()  # of them: nothing was sent for them yet
        self._begun_at: deque[float] = deque()  # the last AHEAD seconds
        self._away = False  # the store, for too long
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
        try:
            while self._error is None and self._outcomes:
                await self._commit()
        except RunError as error:
            self._error, alone = error, True
        if self._error is None:
            return
        if not self._away:  # what is away may have it already
            with suppress(RunError):  # which was raised already; a folder that was moved takes it
                await self._settle()
        if alone:
            raise self._error

    async def _settle(self) -> None:
        outcomes, self._outcomes = self._outcomes, []
        if outcomes:
            await self._store.settle(self._worker, outcomes)

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
        """Return when the attempt is committed. Raises as `get` does, and JobLostError where the job
        is no longer ours: nothing may be sent for it."""
        if self._error is not None:
            raise self._error
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._beginning.append((attempt, future))
        if attempt.job in self._unbegun:
            self._unbegun.remove(attempt.job)
            self._begun_at.append(self._clock())
        self._wake.set()
        await future

    def settle(self, outcome: Outcome) -> None:
        """Take an outcome; it is committed with the others of this turn, and no worker waits for it."""
        if outcome.state is not JobState.RUNNING:
            self._drop(outcome.job)
        self._outcomes.append(outcome)
        self._wake.set()

    def _drop(self, job: int) -> None:
        """A claimed job is no longer worked on: it has its outcome, or another worker may have it."""
        self._jobs.discard(job)
        self._unbegun.discard(job)

    def _room(self) -> float:
        """How many jobs may be claimed now: where others work, too, those that can soon be begun."""
        while self._begun_at and self._begun_at[0] <= self._clock() - AHEAD:
            self._begun_at.popleft()
        if self._store.keeper is None:
            return math.inf
        return max(FEW, 2 * len(self._begun_at)) - len(self._unbegun)

    async def _run(self) -> None:
        while not self._closing:
            await self._wake.wait()
            if self._closing:
                return
            since = self._clock() - self._committed
            # All workers wait for us, or it is a while since the last commit: at once.
            if len(self._jobs) > len(self._beginning) and since < INTERVAL:
                await self._sleep(INTERVAL - since)
            self._wake.clear()
            await self._turn()
            self._committed = self._clock()

    async def _renew(self) -> None:
        while True:
            await self._until_renewal(self._store.lease * RENEWAL)
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
        outcomes, self._outcomes = self._outcomes, []
        self._beginning = [wanted for wanted in self._beginning if not wanted[1].done()]
        self._waiting = [future for future in self._waiting if not future.done()]
        begun, wanted = len(self._beginning), len(self._waiting)
        attempts = [attempt for attempt, _ in self._beginning]
        count = int(max(0, min(wanted, self._to_claim, self._room())))
        try:
            lost, jobs = await self._store.again(lambda: self._together(outcomes, attempts, count))
        except StoreAwayError as error:
            self._away = True
            answers = sum(len(outcome.calls) for outcome in (*outcomes, *self._outcomes))
            raise StoreAwayError(
                f"{error} What it could not take any more ({answers:,} calls that were answered or "
                "failed, and those still in flight) is lost: it counts as possibly paid, and is asked "
                "again."
            ) from error
        except RunError:
            self._outcomes[:0] = outcomes
            raise
        self._to_claim -= len(jobs)
        none_left = len(jobs) < count or self._to_claim <= 0 or self._stop.asked
        for job in lost:
            self._drop(job)
        # One that was another's for a while is still with the worker that had it.
        jobs = [job for job in jobs if job.match.id not in self._jobs]
        self._hand_out(begun, lost, wanted if none_left else len(jobs), jobs)

    def _hand_out(self, begun: int, lost: Collection[int], count: int, jobs: list[Job]) -> None:
        """The first so many that wait to begin may, unless their job is lost; the first so many that
        wait for a job get one, or none."""
        beginning, self._beginning = self._beginning[:begun], self._beginning[begun:]
        for attempt, future in beginning:
            if future.done():
                continue
            if attempt.job in lost:
                future.set_exception(JobLostError(f"job {attempt.job} is another worker's by now."))
            else:
                future.set_result(None)
        numbers = [job.match.id for job in jobs]
        self._jobs.update(numbers)
        self._unbegun.update(numbers)
        waiting, self._waiting = self._waiting[:count], self._waiting[count:]
        for wanted, job in zip_longest(waiting, jobs):
            if not wanted.done():
                wanted.set_result(job)
            elif job is not None:  # its worker was cancelled meanwhile
                self.settle(Outcome(job.match.id, JobState.PENDING))

    async def _together(
        self, outcomes: list[Outcome], attempts: list[Attempt], count: int
    ) -> tuple[Collection[int], list[Job]]:
        """One transaction; the jobs of attempts that were lost, and those claimed, so many at most."""
        store = self._store
        lost: Collection[int] = ()
        jobs: list[Job] = []
        async with store.together():
            if outcomes:
                await store.settle(self._worker, outcomes)
            if self._renewal_due:
                self._renewal_due = False
                await store.renew(self._worker, store.lease)
            if attempts:
                lost = await store.begin(self._worker, attempts)
            if count and not self._stop.asked:
                jobs = await store.claim(self._worker, count, store.lease)
        return lost, jobs

    def _give_up(self, error: BaseException) -> None:
        """The store can't commit: all that wait, or come, get the error."""
        self._error = error
        begun: list[asyncio.Future[Any]] = [future for _, future in self._beginning]
        for future in (*self._waiting, *begun):
            if not future.done():
                future.set_exception(error)
