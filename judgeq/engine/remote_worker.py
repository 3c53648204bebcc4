"""A worker process: takes jobs of a store's runs, one run at a time, until it is to leave.

It never plans a round nor crosses a barrier: that is the scheduler's (`judgeq run --store`). What it
does with a job is what `run` does with one: the same queue, the same judges. Which runs it may work on
is said in admission.py.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from judgeq import config
from judgeq.config import Settings
from judgeq.engine import assembly
from judgeq.engine.admission import Prospect, StoreRuns
from judgeq.engine.assembly import Run
from judgeq.engine.interrupts import Beside, Interrupts, background, stoppable
from judgeq.engine.queue import Stop
from judgeq.engine.worker import drain, queue_of
from judgeq.errors import JudgeqError, RunError, StoppedError, StoreAwayError, UsageError
from judgeq.events import CallEnded, Emit, Event, JobEnded, Notice, RunStarted
from judgeq.judge.judge import Ledger
from judgeq.judge.panel import Panel
from judgeq.store import Store
from judgeq.text import LEFT_OUT
from judgeq.types import Clock, Job, JobState, Outcome, Sleep

ExitWhen = Literal["idle", "done"]
SHORTEST, LONGEST = 0.3, 5.0
"""Seconds between two looks at a store without work: random, and longer the longer there was none."""
ASIDE = 600.0
"""Seconds for which a run is left alone that this worker may not, or can't, work on."""
PATIENCE = 60.0
"""Seconds for which a worker that leaves when the runs are done looks for one that isn't, before it has
worked on any: the run that it is meant for may be starting just now. Also how long it waits for a store
that could never be read yet."""
LAST_CALLS = 100
"""Calls by which it is known how long one usually takes."""
MARGIN = 60.0
"""Seconds before the end of --max-hours by which the last call should be over; a tenth of it at most."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What a worker's user asked for. All of it is plain data, which may be sent to another machine."""

    settings: Mapping[str, Any]  # by name
    datasets: Sequence[str] = ()  # files that may hold texts of runs
    runs: Sequence[str] = ()  # to work on; none named: all that it may work on
    exit_when: ExitWhen | None = None
    max_hours: float | None = None

    def to_settings(self) -> Settings:
        """The settings. Raises UsageError for what can't be."""
        settings = config.settle({"dataset": "demo", **self.settings})
        if settings.store is None:
            raise UsageError(
                "--store is missing: the address of the PostgreSQL database that holds the runs, "
                "postgresql://user@host/database; or set JUDGEQ_STORE."
            )
        if "-" in self.datasets:
            raise UsageError("--dataset - can't be: a worker reads texts from files.")
        if settings.people is not None:
            raise UsageError(
                "--judge people: a worker asks none. `judgeq annotate` opens the page of a run's people."
            )
        return settings


@dataclass(slots=True)
class Tally:
    """What a worker did."""

    done: int = 0  # jobs, by their outcome
    invalid: int = 0
    failed: int = 0
    given_back: int = 0
    calls: int = 0
    cached: int = 0  # answers of the cache
    cost: float = 0.0  # dollars
    unpriced: int = 0  # calls without a known cost
    runs: list[str] = field(default_factory=list)  # in the order worked on
    latencies: deque[float] = field(
        default_factory=lambda: deque(maxlen=LAST_CALLS), metadata=LEFT_OUT
    )
    JSON_KEYS: ClassVar = {"cost": "known_cost", "unpriced_calls": "unpriced"}

    def fold(self, event: Event) -> None:
        """Count an event."""
        if type(event) is CallEnded:
            if event.cached:
                self.cached += 1
                return
            self.calls += 1
            self.latencies.append(event.latency)
            self.unpriced += event.cost is None
            self.cost += event.cost or 0.0
        elif type(event) is JobEnded:
            name = "given_back" if event.state is JobState.PENDING else event.state
            setattr(self, name, getattr(self, name) + 1)

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


class Worker:
    """One process's work on a store's runs: those named, or all that it may work on."""

    def __init__(
        self,
        runs: StoreRuns,
        stop: Stop,
        emit: Emit,
        *,
        named: Sequence[str] = (),
        exit_when: ExitWhen | None = None,
        tally: Tally | None = None,
        clock: Clock = time.monotonic,
        sleep: Sleep | None = None,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.tally = tally or Tally()
        self._runs = runs
        self._named = named
        self._exit_when = exit_when
        self._stop = stop
        self._show = emit
        self._clock = clock
        self._sleep = sleep or stop.sleep
        self._draw = draw
        self._admitted: dict[tuple[str, str], Run] = {}  # the latest one
        self._aside: dict[str, tuple[float, JudgeqError]] = {}  # until when, and why
        self._longest_pause = SHORTEST
        self._patient_until: float | None = None
        self._reached = False  # whether the store ever was

    async def go_on(self) -> None:
        """Take jobs until there is no more to do.

        Raises StoppedError on a stop, and the error of a run that was named, or of all that there are,
        when nothing else is left.
        """
        while True:
            prospects = await self._look()
            for prospect in prospects:
                if prospect.pending and (run := await self._admit(prospect)) is not None:
                    await self._visit(run, prospect.fingerprint)
                    break
            else:
                if self._ends(prospects):
                    return
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
                prospects = {prospect.name: prospect for prospect in await self._runs.prospects()}
                break
            except RunError as error:
                if not self._reached and self._clock() >= since + PATIENCE:
                    raise
                if not reported:
                    self._emit(Notice(f"{error} It is tried again.", warning=True))
                reported = True
                await self._pause()
        self._reached = True
        for name in self._named:
            if name not in prospects:
                raise RunError(f"there is no run {name!r} in the store any more.")
        return [prospects[name] for name in self._named or prospects]

    async def _admit(self, prospect: Prospect) -> Run | None:
        """The run, if it is this worker's to work on; if not, that is reported once in a while."""
        key = prospect.name, prospect.fingerprint
        if self._is_aside(prospect):
            return None
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
        _, before = self._aside.get(name, (0.0, None))
        if str(before) != str(error):
            self._emit(Notice(str(error), warning=True))
        self._aside[name] = self._clock() + ASIDE, error

    def _is_aside(self, prospect: Prospect) -> bool:
        until, _ = self._aside.get(prospect.name, (0.0, None))
        return self._clock() < until

    def _ends(self, prospects: Sequence[Prospect]) -> bool:
        """Whether there is no more to do. Raises the error of a run that was named, or worked on, when
        nothing else is left; and of one that is refused, where this worker could do nothing at all."""
        left = [prospect for prospect in prospects if not prospect.over]
        ours = [prospect for prospect in left if not self._is_aside(prospect)]
        if ours:
            return self._exit_when == "idle" and not any(prospect.pending for prospect in ours)
        begun, names = self.tally.runs, [prospect.name for prospect in left]
        if self._exit_when is None and not names and not begun:
            names = list(self._aside)  # others did them meanwhile
        waits = self._exit_when == "done" or (self._exit_when is None and bool(names))
        if waits and not self._named and not begun and self._one_may_begin():
            return False
        for name in names:
            if self._named or not begun or name in begun:
                raise self._aside[name][1]
        return self._exit_when is not None

    def _one_may_begin(self) -> bool:
        """Whether the run that this worker is meant for may be about to begin; that is reported once."""
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
            async with self._runs.open(run, stop, self._emit) as session:
                panel, items = session.judge, len(run.dataset)
                await panel.open()
                self._emit(RunStarted(name, items, run.strategy.rounds, panel.name))
                judge, workers = CheckedPanel(panel, items), session.run.settings.concurrency
                async with queue_of(session) as queue:
                    more = True
                    while more:
                        ended = self.tally.ended
                        await drain(queue, judge, stop, self._emit, workers)
                        if self.tally.ended > ended:
                            self._longest_pause = SHORTEST
                        more = await self._comes_more(session.store, name, fingerprint)
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

    async def _comes_more(self, store: Store, name: str, fingerprint: str) -> bool:
        """Wait until a run has work again; whether it has any, rather than others, or none ever.
        Meanwhile jobs that dead workers hold are put back in the queue: a scheduler may be dead, too."""
        while True:
            await self._pause()
            await store.reap()
            await store.take_unbegun()
            prospects = await self._look()
            here = next((prospect for prospect in prospects if prospect.name == name), None)
            if here is None or here.over or here.fingerprint != fingerprint:
                return False
            if here.pending:
                return True
            if any(other.pending and not self._is_aside(other) for other in prospects):
                return False
            if self._ends(prospects):
                return False


class CheckedPanel:
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


async def join(
    options: WorkerOptions,
    emit: Emit,
    tally: Tally,
    *,
    beside: Beside | None = None,
    interrupts: Interrupts | None = None,
) -> None:
    """Work on a store's runs until there is no more to do, or --max-hours are over; `tally` counts what
    is done meanwhile.

    Ctrl-C, SIGTERM, SIGHUP and `interrupts` ask for a stop, a second one cancels at once; `beside` is a
    coroutine function that runs beside the work. Raises StoppedError then; UsageError, JudgeError,
    RunError and BudgetError as they come. All that was answered is kept, and jobs that weren't are given
    back.
    """
    settings = options.to_settings()
    assembly.check_access(settings)
    runs = StoreRuns(settings, [Path(name) for name in options.datasets], options.runs)

    async def work(stop: Stop) -> None:
        worker = Worker(
            runs, stop, emit, named=runs.named, exit_when=options.exit_when, tally=tally
        )
        if options.max_hours is None:
            await worker.go_on()
        else:
            await within(options.max_hours, worker, stop, emit)

    try:
        await stoppable(work, emit, beside, interrupts)
    finally:
        await runs.close()


async def within(
    hours: float,
    worker: Worker,
    stop: Stop,
    emit: Emit,
    *,
    clock: Clock = time.monotonic,
    sleep: Sleep = asyncio.sleep,
) -> None:
    """Let a worker go on for so many hours at most. As long before as calls usually take it is asked to
    stop; what is still in flight at the end is given up."""
    in_time, end = False, clock() + hours * 3600

    async def leave() -> None:
        nonlocal in_time
        while (left := end - min(MARGIN, hours * 360) - worker.tally.usual - clock()) > 0:
            await sleep(min(left, 1.0))  # how long calls take is only known by and by
        in_time = not stop.asked
        stop.ask()

    try:
        async with background(leave()), asyncio.timeout(hours * 3600):
            await worker.go_on()
            return
    except TimeoutError:
        text = (
            f"--max-hours {hours:g} are over. Calls in flight were given up: others ask them again."
        )
    except StoppedError:
        if not in_time:
            raise
        text = f"--max-hours {hours:g} are nearly over: this worker left in time."
    emit(Notice(text, needed=True))
