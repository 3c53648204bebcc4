"""A worker process joined to a store: its user's settings, the runs that it works on, its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from judgeq import config
from judgeq.config import Settings
from judgeq.datasets import Dataset
from judgeq.engine import admission, assembly, working
from judgeq.engine.admission import Own
from judgeq.engine.assembly import Emit, Run
from judgeq.engine.queue import Stop
from judgeq.engine.session import Beside, with_beside, within_open_files
from judgeq.engine.stopping import Interrupts, stoppable
from judgeq.engine.working import How, Opened, Prospect, Tally, Worker
from judgeq.errors import RunError, StoppedError, UsageError
from judgeq.events import Notice
from judgeq.judge.budget import NANO, Allowance
from judgeq.runs import RunPlace
from judgeq.runs.stored import StoredRuns
from judgeq.types import Totals


@dataclass(frozen=True, slots=True)
class Given:
    """What a worker's user gave: settings by name, files that may hold texts, and for which runs and
    how long it is to work. All of it plain data, which may be sent to another machine."""

    settings: Mapping[str, Any]
    datasets: Sequence[str] = ()
    runs: Sequence[str] = ()
    exit_when: working.ExitWhen | None = None
    max_hours: float | None = None

    def checked(self) -> tuple[Settings, Own]:
        """The settings, and the worker's own among them. Raises UsageError for what can't be."""
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
        return settings, Own(settings, [Path(name) for name in self.datasets])


class Joined:
    """The runs of a store, as a worker takes them; see `working.Runs`."""

    def __init__(self, own: Own, named: Sequence[str], emit: Emit) -> None:
        self._own = own
        self._emit = emit
        self._there = StoredRuns.at(own.settings.store or "", Path("runs"))
        self.named = [self._there.find(name).id for name in named]
        self._lookout = self._there.lookout()
        self._allowance = Allowance(own.settings.max_cost)
        self._rounds: dict[tuple[str, str], int] = {}

    @property
    def exhausted(self) -> bool:
        """See Runs."""
        return self._allowance.exhausted

    async def prospects(self) -> Sequence[Prospect]:
        """See Runs."""
        listed = []
        for row in await self._lookout.look():
            over = False
            if not row.pending and not row.running and row.planned:
                over = row.ended or row.planned >= await self._total(
                    row.name, row.fingerprint, row.planned
                )
            listed.append(Prospect(row.name, row.fingerprint, row.pending, over))
        return listed

    async def _total(self, name: str, fingerprint: str, planned: int) -> int:
        """How many rounds a run has, of which so many are planned; 0 of one that can't be read, which
        is as if it was over."""
        key = name, fingerprint
        if key not in self._rounds:
            try:
                info = await asyncio.to_thread(lambda: self._place(name).info())
            except RunError:
                return 0
            if info.settings.goal:  # which decides anew after each round, and in each session
                return planned if info.ended_after(planned) else info.rounds
            self._rounds[key] = info.rounds
        return self._rounds[key]

    def _place(self, name: str) -> RunPlace:
        for place in self._there.all():
            if place.id == name:
                return place
        raise RunError(f"there is no run {name!r} in {self._there.shown} that can be worked on.")

    async def admit(self, name: str) -> Run:
        """See Runs."""
        run = await asyncio.to_thread(self._admitted, name)
        asked, begun = run.settings, run.folder.info().settings
        here = [asked.address_of(name) for name in asked.models]
        if here != [begun.address_of(name) for name in begun.models]:
            self._emit(
                Notice(
                    f"run {name} is worked on at {' and '.join(dict.fromkeys(here))}, in place of "
                    "the server that it was begun with."
                )
            )
        return run

    def _admitted(self, name: str) -> Run:
        place = self._place(name)
        info = place.info()

        def shared() -> Dataset | None:
            dataset = place.dataset()
            if dataset is None or info.facts.get("labels") is None:
                return dataset
            return replace(dataset, gold=asyncio.run(_gold(place)))

        return admission.admitted(place, info, self._own, named=name in self.named, shared=shared)

    @asynccontextmanager
    async def open(self, run: Run, stop: Stop, emit: Emit) -> AsyncIterator[Opened]:
        """See Runs. What this worker spends counts for its own cap, whatever the run."""
        await self._lookout.close()
        store = run.folder.store()
        store.report_to(emit)
        stop.calls(store.hurry)
        try:
            async with assembly.sharing(store.keeper, emit) as shared:
                if shared is not None and shared.cap is not None:
                    assembly.check_prices(run.pricing, shared.cap / NANO)
                with within_open_files(run, emit) as run:
                    async with assembly.panel(
                        run,
                        Totals(),
                        stop,
                        emit,
                        shared=shared,
                        allowance=self._allowance,
                        processes=lambda: store.processes,
                    ) as judge:
                        yield Opened(run, store, judge)
        finally:
            await store.close()

    async def close(self) -> None:
        """Let go of the store."""
        await self._lookout.close()


async def _gold(place: RunPlace) -> Any:
    store = place.store(read_only=True)
    try:
        return (await store.items()).gold
    finally:
        await store.close()


async def join(
    given: Given,
    emit: Emit,
    tally: Tally,
    *,
    beside: Beside | None = None,
    interrupts: Interrupts | None = None,
) -> None:
    """Work on a store's runs until there is no more to do; `tally` counts what is done meanwhile.

    Ctrl-C, SIGTERM, SIGHUP and `interrupts` ask for a stop, a second one cancels at once; `beside` is a
    coroutine function that runs beside the work. Raises StoppedError then, and when --max-hours are
    over; UsageError, JudgeError, RunError and BudgetError as they come. All that was answered is kept,
    and jobs that weren't are given back.
    """
    settings, own = given.checked()
    assembly.check_access(settings)
    joined, stop = Joined(own, given.runs, emit), Stop()
    worker = Worker(joined, How(joined.named, given.exit_when), stop, emit, tally=tally)

    async def work() -> None:
        with stoppable(stop, emit, interrupts or Interrupts()):
            await _until_over(worker, given.max_hours, stop)

    try:
        await with_beside(beside, work())
    finally:
        await joined.close()


async def _until_over(worker: Worker, hours: float | None, stop: Stop) -> None:
    """Let a worker go on; for no longer than so many hours."""
    if hours is None:
        await worker.go_on()
        return
    in_time = asyncio.Event()

    def leave() -> None:
        if not stop.asked:
            in_time.set()
        stop.ask()

    work = asyncio.ensure_future(worker.go_on())
    timer = asyncio.ensure_future(
        working.leaving(worker.tally, hours, leave, time.monotonic, asyncio.sleep)
    )
    both: set[asyncio.Future[None]] = {work, timer}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise StoppedError("--max-hours are over; calls in flight were given up")
        work.result()
    except StoppedError as error:
        if in_time.is_set() and work.done():
            raise StoppedError("--max-hours are nearly over, and it left in time") from error
        raise
    finally:
        for task in both:
            task.cancel()
        await asyncio.gather(*both, return_exceptions=True)
