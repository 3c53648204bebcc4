"""A worker process: takes jobs of a store's runs, one run at a time, until it is to leave.

It never plans a round nor crosses a barrier: that is the scheduler's (`judgeq run --store`). What it
does with a job is what `run` does with one: the same queue, the same judges.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

from judgeq.engine.assembly import Emit, Run
from judgeq.engine.queue import AT_ONCE, AT_ONCE_UNPAID, Queue, Stop
from judgeq.engine.worker import work
from judgeq.errors import JudgeqError, RunError, StoppedError, StoreAwayError
from judgeq.events import CallEnded, Event, JobEnded, Notice, RunStarted
from judgeq.json_marks import LEFT_OUT
from judgeq.judge.panel import Panel
from judgeq.judge.sending import Ledger
from judgeq.runs import whoami
from judgeq.store import Store
from judgeq.types import Job, JobState, Outcome

ExitWhen = Literal["idle", "done"]
Sleep = Callable[[float], Awaitable[None]]
SHORTEST, LONGEST = 1.0, 5.0
"""Seconds between two looks at a store without work: random, and longer the longer there was none."""
ASIDE = 600.0
"""Seconds for which a run is left alone that this worker may not, or can't, work on."""
PATIENCE = 60.0
"""Seconds for which a worker that is to leave when the runs are done looks for one that isn't, before
it has worked on any, as the run that it is meant for may have been started together with it; and for
which a store is waited for that could not be read yet."""
USUAL = 100
"""The last calls that say how long one usually takes."""
MARGIN = 60.0
"""Seconds before the end of --max-hours by which the last call should be over; a tenth of it at most."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a store says of a run: whether jobs of it can be taken now, and whether it is over: no job
    is left, and no round will come."""

    name: str
    fingerprint: str
    pending: bool
    over: bool


class Runs(Protocol):
    """The runs of a store, as a worker sees them."""

    async def prospects(self) -> Sequence[Prospect]:
        """All runs, the first that was begun first. Raises RunError while the store can't be read."""

    async def admit(self, name: str) -> Run:
        """The run as this worker may work on it; raises what says why it may not."""

    @property
    def exhausted(self) -> bool:
        """Whether this worker may spend no more."""

    def open(self, run: Run, stop: Stop, emit: Emit) -> AbstractAsyncContextManager[Opened]:
        """A run's store and its judges, open while inside."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A run's store, and its judges."""

    run: Run
    store: Store
    judge: Panel


@dataclass(slots=True)
class Tally:
    """What a worker did: jobs by what became of them, calls, dollars (`unpriced` calls have no known
    cost), answers of the cache; `runs` in the order worked on; and how long its last calls took."""

    done: int = 0
    invalid: int = 0
    failed: int = 0
    given_back: int = 0
    calls: int = 0
    cached: int = 0
    cost: float = 0.0
    unpriced: int = 0
    runs: list[str] = field(default_factory=list)
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=USUAL), metadata=LEFT_OUT)
    JSON_KEYS: ClassVar = {"cost": "known_cost", "unpriced_calls": "unpriced"}

    def fold(self, event: Event) -> None:
        """Count an event."""
        if type(event) is CallEnded:
            if event.cached:
                self.cached += 1
                return
            self.calls += 1
            self.latencies.append(event.latency)
            if event.cost is None:
                self.unpriced += 1
            else:
                self.cost += event.cost
        elif type(event) is JobEnded:
            if event.state is JobState.PENDING:
                self.given_back += 1
            else:
                setattr(self, event.state, getattr(self, event.state) + 1)

    @property
    def known_cost(self) -> float | None:
        """Dollars; None where no call has a known cost."""
        return None if self.unpriced and self.unpriced == self.calls else self.cost

    @property
    def ended(self) -> int:
        """Jobs that got an outcome."""
        return self.done + self.invalid + self.failed

    @property
    def usual(self) -> float:
        """Seconds that a call takes at most, but for one in twenty."""
        ordered = sorted(self.latencies)
        return ordered[int(len(ordered) * 0.95)] if ordered else 0.0


@dataclass(frozen=True, slots=True)
class How:
    """How long a worker goes on, and of which runs (none named: of all that it may work on)."""

    runs: Sequence[str] = ()
    exit_when: ExitWhen | None = None


class Worker:
    """One process's work on a store's runs. `go_on` returns when there is no more to do."""

    def __init__(
        self,
        runs: Runs,
        how: How,
        stop: Stop,
        emit: Emit,
        *,
        tally: Tally | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep | None = None,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.tally = tally or Tally()
        self._runs = runs
        self._how = how
        self._stop = stop
        self._show = emit
        self._clock = clock
        self._sleep = sleep or stop.sleep
        self._draw = draw
        self._admitted: dict[tuple[str, str], Run] = {}
        self._aside: dict[str, tuple[float, JudgeqError]] = {}
        self._longest_pause = SHORTEST
        self._patient_until: float | None = None
        self._reached = False  # whether the store ever was

    async def go_on(self) -> None:
        """Take jobs until there is no more to do.

        Raises StoppedError on a stop, when its time is over, and the error of a run that was named, or
        of all that there are, when nothing else is left.
        """
        while True:
            prospects = await self._look()
            run = await self._next(prospects)
            if run is not None:
                await self._visit(*run)
            elif self._ends(prospects):
                return
            else:
                await self._pause()

    def _emit(self, event: Event) -> None:
        self.tally.fold(event)
        self._show(event)

    async def _look(self) -> Sequence[Prospect]:
        """The runs that are meant. Waits for a store that can't be read just now; not for long for one
        that never could be, whose address or password may be wrong."""
        reported, since = False, self._clock()
        while True:
            if self._stop.asked:
                raise StoppedError("the worker was stopped")
            try:
                prospects = await self._runs.prospects()
            except RunError as error:
                if not self._reached and self._clock() >= since + PATIENCE:
                    raise
                if not reported:
                    self._emit(Notice(f"{error} It is tried again.", warning=True))
                reported = True
                await self._pause()
                continue
            self._reached = True
            return self._meant(prospects)

    def _meant(self, prospects: Sequence[Prospect]) -> Sequence[Prospect]:
        if not self._how.runs:
            return prospects
        by_name = {prospect.name: prospect for prospect in prospects}
        missing = [name for name in self._how.runs if name not in by_name]
        if missing:
            raise RunError(f"there is no run {missing[0]!r} in the store any more.")
        return [by_name[name] for name in self._how.runs]

    async def _next(self, prospects: Sequence[Prospect]) -> tuple[Run, str] | None:
        """The first run with work that this worker may do, and its fingerprint."""
        for prospect in prospects:
            if prospect.pending and not self._set_aside(prospect.name):
                run = await self._admit(prospect)
                if run is not None:
                    return run, prospect.fingerprint
        return None

    async def _admit(self, prospect: Prospect) -> Run | None:
        """The run, if it is this worker's to work on; if not, that is reported once in a while."""
        key = prospect.name, prospect.fingerprint
        if key not in self._admitted:
            try:
                self._admitted = {key: await self._runs.admit(prospect.name)}
            except StoreAwayError:
                return None  # the next look waits for it
            except JudgeqError as error:
                self._put_aside(prospect.name, error)
                return None
        return self._admitted[key]

    def _put_aside(self, name: str, error: JudgeqError) -> None:
        reported = self._aside.get(name)
        if reported is None or str(reported[1]) != str(error):
            self._emit(Notice(str(error), warning=True))
        self._aside[name] = self._clock() + ASIDE, error

    def _set_aside(self, name: str) -> bool:
        return name in self._aside and self._clock() < self._aside[name][0]

    def _ends(self, prospects: Sequence[Prospect]) -> bool:
        """Whether there is no more to do. Raises the error of a run that was named, or worked on, when
        nothing else is left; and of one that is refused, where this worker could do nothing at all."""
        left = [prospect for prospect in prospects if not prospect.over]
        ours = [prospect for prospect in left if not self._set_aside(prospect.name)]
        if left and not ours and (self._how.runs or self._how.exit_when):
            worked_on = [one.name for one in left if one.name in self.tally.runs]
            if worked_on or self._how.runs or not self.tally.runs:
                if self._one_may_begin():
                    return False
                raise self._aside[(worked_on or [left[0].name])[0]][1]
        if self._how.exit_when == "idle":
            return not any(prospect.pending for prospect in ours)
        return self._how.exit_when == "done" and not ours and not self._one_may_begin()

    def _one_may_begin(self) -> bool:
        """Whether the run that this worker is meant for may be about to begin; that is reported once."""
        if self._how.exit_when != "done" or self._how.runs or self.tally.runs:
            return False
        if self._patient_until is None:
            self._patient_until = self._clock() + PATIENCE
            self._emit(
                Notice(
                    "There is no unfinished run that this worker may work on: it looks for one for "
                    f"{PATIENCE:.0f} s."
                )
            )
        return self._clock() < self._patient_until

    async def _pause(self) -> None:
        """Wait a little; longer, the longer there was nothing to do."""
        self._longest_pause = min(LONGEST, self._longest_pause * 1.5)
        await self._sleep(self._draw(SHORTEST, self._longest_pause))

    # One run

    async def _visit(self, run: Run, fingerprint: str) -> None:
        """Work on a run, until it has nothing to do while others have, or it is over. What makes that
        impossible sets the run aside, and is raised where this worker may spend no more."""
        name = run.folder.id
        if name not in self.tally.runs:
            self.tally.runs.append(name)
        stop = Stop()  # an error stops the work on this run, not that on others
        self._stop.calls(stop.ask)
        try:
            async with self._runs.open(run, stop, self._emit) as opened:
                await opened.judge.open()
                rounds, items = run.strategy.rounds, len(run.dataset)
                self._emit(RunStarted(name, items, rounds, opened.judge.name))
                await self._take(opened, fingerprint, stop)
        except StoppedError:
            if self._stop.asked:
                raise
        except StoreAwayError as error:
            if self._stop.asked:
                raise
            self._emit(Notice(f"{error} It is tried again.", warning=True))
            await self._pause()
        except JudgeqError as error:
            if self._runs.exhausted:
                raise
            self._put_aside(name, error)

    async def _take(self, opened: Opened, fingerprint: str, stop: Stop) -> None:
        """Let as many tasks as calls may be in flight take jobs of a run, for as long as it has any."""
        run, settings = opened.run, opened.run.settings
        judge = Careful(opened.judge, len(run.dataset))
        at_once = AT_ONCE if settings.models else AT_ONCE_UNPAID
        async with Queue(opened.store, whoami(), stop, at_once=at_once) as queue:
            tasks: set[asyncio.Task[None]] = set()
            try:
                while not stop.asked:
                    while len(tasks) < settings.concurrency:
                        tasks.add(asyncio.create_task(work(queue, judge, stop, self._emit)))
                    tasks = await self._until_idle(tasks)
                    if not tasks and not await self._comes_more(opened, fingerprint):
                        return
                await _all(tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _until_idle(self, tasks: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
        """Those of the tasks that are still at work, a moment after the first had nothing to do; the
        error of one is raised when all have ended."""
        jobs = self.tally.ended
        done, busy = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if busy and not any(task.exception() for task in done):
            pause = asyncio.ensure_future(self._sleep(self._draw(SHORTEST, LONGEST)))
            rest = asyncio.gather(*busy, return_exceptions=True)
            waited: set[asyncio.Future[Any]] = {pause, rest}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            pause.cancel()
            await asyncio.gather(pause, return_exceptions=True)
        if self.tally.ended > jobs:
            self._longest_pause = SHORTEST
        if any(task.done() and task.exception() for task in tasks):
            await _all(tasks)
        return {task for task in tasks if not task.done()}

    async def _comes_more(self, opened: Opened, fingerprint: str) -> bool:
        """Wait until a run has work again; whether it has any, rather than others, or none ever.
        Meanwhile jobs that dead workers hold are put back in the queue: a scheduler may be dead, too."""
        name = opened.run.folder.id
        while True:
            await self._pause()
            await opened.store.reap()
            prospects = await self._look()
            here = next((prospect for prospect in prospects if prospect.name == name), None)
            if here is None or here.over or here.fingerprint != fingerprint:
                return False
            if here.pending:
                return True
            others = [other for other in prospects if not self._set_aside(other.name)]
            if any(other.pending for other in others) or self._ends(prospects):
                return False


class Careful:
    """A panel that is asked only about items that are there: the job may be anybody's."""

    def __init__(self, panel: Panel, n: int) -> None:
        self._panel = panel
        self._n = n

    async def ask(self, job: Job, ledger: Ledger) -> Outcome:
        """As Judge.ask. Raises RunError for items that aren't there."""
        items = job.match.items
        if not items or min(items) < 0 or max(items) >= self._n:
            raise RunError(f"job {job.match.id} is about an item that isn't there.")
        return await self._panel.ask(job, ledger)


async def _all(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Wait for all of the tasks; raise the first error of one."""
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


async def leaving(
    tally: Tally, hours: float, ask: Callable[[], None], clock: Callable[[], float], sleep: Sleep
) -> None:
    """Call `ask`, for a stop, as long before the hours are over as calls usually take; return when they
    are over."""
    end = clock() + hours * 3600
    margin = min(MARGIN, hours * 360)
    while (left := end - margin - tally.usual - clock()) > 0:
        await sleep(min(left, SHORTEST))  # how long calls take is only known by and by
    ask()
    await sleep(max(0.0, end - clock()))
