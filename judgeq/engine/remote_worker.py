"""A worker process: takes jobs of a store's runs, one run at a time, until it is to leave.

It never plans a round nor crosses a barrier: that is the scheduler's (`judgeq run --store`). What it
does with a job is what `run` does with one: the same queue, the same judges.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from judgeq import config
from judgeq.config import Settings
from judgeq.engine import assembly
from judgeq.engine.admission import admit
from judgeq.engine.assembly import Run, Session
from judgeq.engine.interrupts import Beside, Interrupts, Stop, background, run_stoppable
from judgeq.engine.queue import drain
from judgeq.engine.session import opened
from judgeq.errors import (
    JudgeqError,
    RunError,
    StoppedError,
    StoreAwayError,
    UsageError,
)
from judgeq.events import CallEnded, Emit, Event, JobEnded, Notice, RunStarted
from judgeq.judge.budget import Allowance
from judgeq.run_places.stored import StoredRuns
from judgeq.store import Store
from judgeq.store.protocol import Prospect
from judgeq.text import LEFT_OUT
from judgeq.types import Clock, JobState, Sleep

ExitWhen = Literal["idle", "done"]
SHORTEST, LONGEST = 0.3, 5.0
"""Seconds between two looks at a store without work: random, and longer the longer there was none."""
ASIDE = 600.0
"""Seconds for which a run is left alone that this worker may not, or can't, work on."""
PATIENCE = 60.0
"""Seconds for which a worker that leaves when the runs are done looks for one that isn't, before it has
worked on any: the run that it is meant for may be starting just now. Also how long it waits for a store
that could never be read yet."""
MARGIN = 60.0
"""Seconds before the end of --max-hours by which the last call should be over; a tenth of it at most."""


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
    slowest: float = field(default=0.0, metadata=LEFT_OUT)  # seconds that a call took
    JSON_KEYS: ClassVar = {"cost": "known_cost", "unpriced_calls": "unpriced"}

    def fold(self, event: Event) -> None:
        """Count an event."""
        if type(event) is CallEnded:
            if event.cached:
                self.cached += 1
                return
            self.calls += 1
            self.slowest = max(self.slowest, event.latency)
            self.unpriced += event.cost is None
            self.cost += event.cost or 0.0
        elif type(event) is JobEnded:
            name = "given_back" if event.state is JobState.PENDING else event.state
            setattr(self, name, getattr(self, name) + 1)

    @property
    def known_cost(self) -> float | None:
        """Dollars; None where no call has a known cost."""
        return None if self.unpriced and self.unpriced == self.calls else self.cost


class StoreRuns:
    """The runs of a store, as a worker may work on them."""

    def __init__(self, settings: Settings, files: Sequence[Path], named: Sequence[str]) -> None:
        self._settings, self._files = settings, files
        self._store = StoredRuns.at(settings.store or "", Path("runs"))
        self.named = [self._store.find(name).id for name in named]
        self._lookout = self._store.lookout()
        self._open: Store | None = None  # of the run that is worked on: one connection is enough
        self._allowance = Allowance(settings.max_cost)
        self._over: set[Prospect] = set()  # runs of which no round will come

    @property
    def exhausted(self) -> bool:
        """Whether this worker may spend no more."""
        return self._allowance.exhausted

    async def prospects(self) -> Sequence[Prospect]:
        """The runs that are meant and not over, the first that was begun first. Raises RunError while
        the store can't be read, and for a run that was named and isn't there any more."""
        rows = {row.name: row for row in await (self._open or self._lookout).prospects()}
        for name in self.named:
            if name not in rows:
                raise UsageError(f"there is no run {name!r} in the store any more.")
        return [row for name in self.named or rows if not await self._is_over(row := rows[name])]

    async def _is_over(self, row: Prospect) -> bool:
        """Whether no job is left and no round will come; one that can't be read is as if it was over."""
        if row.pending or row.running or not row.planned:
            return False
        if row.ended or row in self._over:
            return True
        try:
            info = await asyncio.to_thread(lambda: self._store.find(row.name).info())
        except RunError:
            return True
        planned = row.planned - info.rounds_before
        if planned < info.rounds and not info.ended_after(planned):
            return False
        self._over.add(row)
        return True

    async def admit(self, name: str) -> Run:
        """The run as this worker may work on it; raises what says why it may not."""
        named = name in self.named
        return await asyncio.to_thread(
            lambda: admit(self._store.find(name), self._settings, self._files, named=named)
        )

    @asynccontextmanager
    async def open(self, run: Run, stop: Stop, emit: Emit) -> AsyncIterator[Session]:
        """A run with its store and its judges, open while inside. What this worker spends counts for its
        own cap, whatever the run."""
        await self._lookout.close()
        async with opened(run, stop, emit, self._allowance) as session:
            self._open = session.store
            try:
                yield session
            finally:
                self._open = None

    async def close(self) -> None:
        """Let go of the store."""
        await self._lookout.close()


class Worker:
    """One process's work on a store's runs: those named, or all that it may work on."""

    def __init__(
        self,
        runs: StoreRuns,
        stop: Stop,
        emit: Emit,
        *,
        exit_when: ExitWhen | None = None,
        tally: Tally | None = None,
        clock: Clock = time.monotonic,
        sleep: Sleep | None = None,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.tally = tally or Tally()
        self._runs, self._stop, self._show = runs, stop, emit
        self._exit_when, self._clock, self._draw = exit_when, clock, draw
        self._sleep = sleep or stop.sleep
        self._aside: dict[str, tuple[float, JudgeqError]] = {}  # runs: until when, and why
        self._longest_pause = SHORTEST
        # Until when it waits for a store that can't be read, and for a run that may begin.
        self._store_until = clock() + PATIENCE
        self._run_until: float | None = None

    async def go_on(self) -> None:
        """Take jobs until there is no more to do.

        Raises StoppedError on a stop, and the error of a run that was named, or of all that there are,
        when nothing else is left.
        """
        while True:
            prospects = await self._look()
            pending = [prospect for prospect in prospects if prospect.pending]
            if pending:
                await self._visit(pending[0])
            elif self._ends(prospects):
                return
            else:
                await self._pause()

    def _emit(self, event: Event) -> None:
        self.tally.fold(event)
        self._show(event)

    async def _look(self) -> Sequence[Prospect]:
        """The runs that are meant and not set aside. Waits for a store that can't be read just now; not
        for long for one that never could be, whose address or password may be wrong."""
        reported = False
        while not self._stop.asked:
            try:
                prospects = await self._runs.prospects()
            except RunError as error:
                if self._clock() >= self._store_until:
                    raise
                if not reported:
                    self._emit(Notice(f"{error} It is tried again.", warning=True))
                reported = True
                await self._pause()
            else:
                self._store_until, now = math.inf, self._clock()
                aside = {name for name, (until, _) in self._aside.items() if now < until}
                return [prospect for prospect in prospects if prospect.name not in aside]
        raise StoppedError("the worker was stopped")

    def _ends(self, prospects: Sequence[Prospect]) -> bool:
        """Whether there is no more to do. Raises the error of a run that was named, or worked on, when
        nothing else is left; and of one that is refused, where this worker could do nothing at all."""
        if prospects:
            return self._exit_when == "idle" and not any(one.pending for one in prospects)
        named, begun = self._runs.named, self.tally.runs
        refused = [
            error for name, (_, error) in self._aside.items() if named or not begun or name in begun
        ]
        waits = self._exit_when == "done" or (self._exit_when is None and refused)
        if waits and not named and not begun:  # its run may be about to begin
            if self._run_until is None:
                self._run_until = self._clock() + PATIENCE
                text = (
                    "There is no unfinished run that this worker may work on: it looks for one for "
                )
                self._emit(Notice(f"{text}{PATIENCE:.0f} s."))
            if self._clock() < self._run_until:
                return False
        for error in refused:
            raise error
        return self._exit_when is not None

    async def _pause(self) -> None:
        """Wait a little; longer, the longer there was nothing to do."""
        self._longest_pause = min(LONGEST, self._longest_pause * 1.5)
        await self._sleep(self._draw(SHORTEST, self._longest_pause))

    async def _visit(self, prospect: Prospect) -> None:
        """Work on a run, until it has nothing to do while others have, or it is over. What makes that
        impossible sets it aside, and is raised where this worker may spend no more."""
        name = prospect.name
        stop = Stop()  # an error stops the work on this run, not that on others
        self._stop.calls(stop.ask)
        try:
            run = await self._runs.admit(name)
            if name not in self.tally.runs:
                self.tally.runs.append(name)
            async with self._runs.open(run, stop, self._emit) as session:
                items = len(run.dataset)
                await session.judge.open()
                self._emit(RunStarted(name, items, run.strategy.rounds, session.judge.name))
                if await session.store.n_items() != items:
                    raise RunError(f"run {name} in the store has other texts than this worker.")
                more = True
                while more:
                    done = self.tally.done
                    await drain(session)
                    if self.tally.done > done:
                        self._longest_pause = SHORTEST
                    more = await self._comes_more(session.store, prospect)
        except (StoppedError, StoreAwayError) as error:
            if self._stop.asked:
                raise
            if isinstance(error, StoreAwayError):
                self._emit(Notice(f"{error} It is tried again.", warning=True))
                await self._pause()
        except JudgeqError as error:
            if self._runs.exhausted:
                raise
            # Reported once, however often it is tried.
            if str(self._aside.get(name, ("", ""))[1]) != str(error):
                self._emit(Notice(str(error), warning=True))
            self._aside[name] = self._clock() + ASIDE, error

    async def _comes_more(self, store: Store, visited: Prospect) -> bool:
        """Wait until a run has work again; whether it has any, rather than others, or none ever.
        Meanwhile jobs that dead workers hold are put back in the queue: a scheduler may be dead, too."""
        while True:
            await self._pause()
            await store.reap()
            await store.take_unbegun()
            prospects = await self._look()
            same = visited.name, visited.fingerprint
            here = [one for one in prospects if (one.name, one.fingerprint) == same]
            if not here or here[0].pending:
                return bool(here)
            if any(one.pending for one in prospects) or self._ends(prospects):
                return False


def settings_of(given: Mapping[str, Any]) -> Settings:
    """The settings of a worker. Raises UsageError for what can't be."""
    settings = config.settle({"dataset": "demo", **given})
    if settings.store is None:
        raise UsageError(
            "--store is missing: the address of the PostgreSQL database that holds the runs, "
            "postgresql://user@host/database; or set JUDGEQ_STORE."
        )
    if settings.people is not None:
        raise UsageError(
            "--judge people: a worker asks none. `judgeq annotate` opens the page of a run's people."
        )
    assembly.check_access(settings)
    return settings


def join(
    settings: Settings,
    emit: Emit,
    tally: Tally,
    *,
    datasets: Sequence[str] = (),
    runs: Sequence[str] = (),
    exit_when: ExitWhen | None = None,
    max_hours: float | None = None,
    beside: Beside | None = None,
    interrupts: Interrupts | None = None,
) -> None:
    """Work on a store's `runs` (none named: all that this worker may work on) until there is no more to
    do, or `max_hours` are over; `tally` counts what is done meanwhile. `datasets` are files that may
    hold their texts.

    Ctrl-C, SIGTERM, SIGHUP and `interrupts` ask for a stop, a second one cancels at once; `beside` is a
    coroutine function that runs beside the work. Raises StoppedError then; UsageError, JudgeError,
    RunError and BudgetError as they come. All that was answered is kept, and jobs that weren't are given
    back.
    """
    of_store = StoreRuns(settings, [Path(name) for name in datasets], runs)

    async def work(stop: Stop) -> None:
        worker = Worker(of_store, stop, emit, exit_when=exit_when, tally=tally)
        try:
            if max_hours is None:
                await worker.go_on()
            else:
                await within(max_hours, worker, stop, emit)
        finally:
            await of_store.close()

    run_stoppable(work, emit, beside, interrupts)


async def within(
    hours: float,
    worker: Worker,
    stop: Stop,
    emit: Emit,
    *,
    clock: Clock = time.monotonic,
    sleep: Sleep = asyncio.sleep,
) -> None:
    """Let a worker go on for so many hours at most. As long before as the slowest call took it is asked
    to stop; what is still in flight at the end is given up."""
    end = clock() + hours * 3600

    def left() -> float:
        return end - min(MARGIN, hours * 360) - worker.tally.slowest - clock()

    async def leave() -> None:
        while left() > 0:
            await sleep(min(left(), 1.0))  # how long calls take is only known by and by
        stop.ask()

    try:
        async with background(leave()), asyncio.timeout(hours * 3600):
            await worker.go_on()
            return
    except TimeoutError:
        text = "over. Calls in flight were given up: others ask them again."
    except StoppedError:
        if left() > 0:  # somebody else asked for it
            raise
        text = "nearly over: this worker left in time."
    emit(Notice(f"--max-hours {hours:g} are {text}", needed=True))
