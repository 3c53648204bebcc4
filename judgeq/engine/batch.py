"""A round as batches: sent, waited for, collected, and sent again as far as answers are missing.

Nothing is bought twice: before a batch is created the ledger says so, with the jobs in it and the most
that it may cost. From then on they are the batch's, in this session or another, until each is settled
by a line of its results. A batch whose creation nobody knows the end of is looked for at its provider
by its random name; its jobs go out again only once it is certain that it isn't there, which is
reported, and counts as possibly paid.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

from judgeq.engine import assembly, batch_sending
from judgeq.engine.assembly import Run
from judgeq.engine.batch_lines import Collecting, backend_of, named, remove
from judgeq.engine.batch_sending import Sending, looked_for, note
from judgeq.engine.queue import Stop
from judgeq.errors import (
    BatchGoneError,
    CallError,
    JudgeError,
    JudgeqError,
    RunError,
    StoppedError,
    StoreAwayError,
)
from judgeq.events import BatchesOpen, CallStarted, Emit, JobStarted, Notice
from judgeq.judge.backend import BatchAPI, Remote
from judgeq.judge.budget import NANO, rounded_up
from judgeq.judge.judge import Judge
from judgeq.judge.panel import Panel
from judgeq.run_places import RunPlace, Runs
from judgeq.store import Store
from judgeq.text import INLINE
from judgeq.types import Batch, BatchState

FIRST_WAIT, LONGEST_WAIT = 10.0, 300.0
"""Seconds between two looks at a batch: the first wait, which grows by half up to the longest."""


async def out_of(store: Store) -> list[Batch]:
    """The batches of a run that are out, in the order in which they were made."""
    return [batch for batch in await store.batches() if batch.open]


async def held(store: Store) -> float | None:
    """The most that the open batches of a run may cost, in dollars (0 where that is unknown); None where
    there are none."""
    out = await out_of(store)
    lines = [line for batch in out for line in await store.lines(batch.name)]
    return sum(rounded_up(line.bound) for line in lines) / NANO if out else None


def asked(panel: Panel, batch: Batch) -> Judge:
    """The judge whose batch it is.

    Raises JudgeError where it is at another server than its judge is asked at now: which server gets a
    key is not the ledger's to say.
    """
    if not 0 <= batch.judge < len(panel.judges):
        raise JudgeError(f"{named(batch)} is for judge {batch.judge}, which isn't there.")
    judge = panel.judges[batch.judge]
    if judge is None:
        raise RunError(f"the batch {batch.name} is of people, who are asked none.")
    address = backend_of(judge).address
    if batch.address != address:
        raise JudgeError(
            f"{named(batch)} is at {batch.address!r}, and its judge is asked at {address} now: give "
            "the address that it had (--base-url) until it is collected."
        )
    return judge


@dataclass(slots=True)
class Watch:
    """When to look at a batch next, by the monotonic clock, and how long to wait after that. It is there
    since `since`, if it is."""

    due: float
    since: float
    wait: float
    reported: bool = False


@dataclass(slots=True)
class Batches:
    """The batches of a run, while a session works on them."""

    store: Store
    panel: Panel
    stop: Stop
    emit: Emit
    sending: Sending
    collecting: Collecting
    open: dict[str, Batch] = field(default_factory=dict)
    _watches: dict[str, Watch] = field(default_factory=dict)
    _stopping: JudgeqError | None = None

    async def go_through(self, *, send: bool, wait: bool) -> None:
        """Send what is pending, if we are to, and wait until all batches have ended and nothing is to be
        sent, if we are to.

        Raises StoppedError while batches are out, on a stop or where we don't wait; JudgeError or
        RunError where none of what follows would fare better, when all that has ended is settled;
        BudgetError where the next question can't be paid.
        """
        await self._take_up()
        while True:
            await self._look()
            stopping = self._stopping or self.collecting.error
            if stopping is not None:
                raise stopping
            if send and not self.stop.asked:
                for batch in await self.sending.send(self.open):
                    self._watch(batch, FIRST_WAIT)
            later = self.sending.again_at if send else None
            if not self.open and later is None:
                return
            if self.stop.asked or not wait:
                raise StoppedError(self._still())
            await self._wait(math.inf if later is None else later)

    async def _take_up(self) -> None:
        """Go on with the batches that earlier sessions left."""
        for batch in await out_of(self.store):
            try:
                asked(self.panel, batch)
            except JudgeError as error:  # the others are collected before it is raised
                self._stopping = self._stopping or error
                continue
            self._watch(batch, 0.0, time.time() - batch.made)
            for _ in range(batch.left):
                self.emit(JobStarted(batch.judge))
                self.emit(CallStarted())
            if batch.remote is None:
                self._notify(
                    f"{named(batch)} was about to be created when the last session ended: it is looked "
                    "for at its provider."
                )

    def _api(self, batch: Batch) -> BatchAPI:
        return self.sending.outlet(asked(self.panel, batch)).api

    async def give_up(self) -> int:
        """Take all batches for lost that nobody has found at their provider; how many they were."""
        unknown = [one for one in await out_of(self.store) if one.remote is None]
        for batch in unknown:
            self._watch(batch, 0.0)
            await self._lost(batch, "it was given up")
        return len(unknown)

    def _watch(self, batch: Batch, wait: float, age: float = 0.0) -> None:
        self.open[batch.name] = batch
        now = time.monotonic()
        self._watches[batch.name] = Watch(now + wait, now - max(0.0, age), FIRST_WAIT)

    def _later(self, batch: Batch, at_least: float | None = None) -> None:
        """Look at a batch again, after a longer wait than before."""
        watch = self._watches[batch.name]
        watch.due = time.monotonic() + max(watch.wait, at_least or 0.0)
        watch.wait = min(watch.wait * 1.5, LONGEST_WAIT)

    async def _wait(self, until: float) -> None:
        """Sleep until a batch is to be looked at, or until that moment."""
        due = min([until, *(watch.due for watch in self._watches.values())])
        self.emit(BatchesOpen(tuple(self.open.values()), max(0.0, due - time.monotonic())))
        with suppress(StoppedError):  # which the caller sees, and says what goes on elsewhere
            await self.stop.sleep(max(0.0, due - time.monotonic()))

    def _still(self) -> str:
        """What is still out, for a session that ends."""
        if not self.open:
            return "stopped while batches wait to be sent"
        questions = sum(batch.left for batch in self.open.values())
        answered = sum(batch.done for batch in self.open.values())
        batches = "1 batch is" if len(self.open) == 1 else f"{len(self.open):,} batches are"
        return (
            f"{batches} still out, with {questions:,} questions, of which {answered:,} are said to be "
            "answered; they go on at their provider"
        )

    def _notify(self, text: str, *, warning: bool = False) -> None:
        self.emit(Notice(text, warning=warning))

    # Looking

    async def _look(self) -> None:
        """Ask about all batches that are due, and settle what has ended."""
        for name in list(self.open):
            batch, watch = self.open[name], self._watches[name]
            if watch.due > time.monotonic():
                continue
            try:
                ledger = {one.name: one for one in await self.store.batches()}
                batch = ledger.get(name, batch)  # what is known here may not have been committed
                if batch.remote is None:
                    await self._identify(batch)
                else:
                    await self._ask(batch, batch.remote)
                    watch.reported = False
            except BatchGoneError as error:
                await self._lost(batch, str(error))
            except (CallError, StoreAwayError) as error:
                self._later(batch, error.retry_after if isinstance(error, CallError) else None)
                if not watch.reported:
                    watch.reported = True
                    self._notify(f"{named(batch)} can't be asked about just now: {error}")
            except (JudgeError, RunError) as error:  # the others are collected before it is raised
                self._later(batch)
                self._stopping = self._stopping or error

    async def _identify(self, batch: Batch) -> None:
        """Look for a batch that may have been created."""
        found = await looked_for(self.store, batch, self._api(batch), time.time())
        if found.remote is not None:
            self._notify(f"{named(batch)} was created all the same, and is taken up.")
            await self._ask(batch._replace(error=None), found.remote.id)
        elif found.doubtful:
            watch = self._watches[batch.name]
            if not watch.reported:
                others = ", ".join(found.doubtful)
                self._notify(
                    f"{named(batch)} may be {others}, which its results will tell: until then its "
                    "questions are not sent again."
                )
            self._later(batch)
            watch.reported = True
        elif time.monotonic() - self._watches[batch.name].since < batch_sending.SETTLING:
            self._later(batch)
        elif batch.error is not None:  # its creation was refused, and the list agrees
            why = f"its batch was not sent: {batch.error}"
            await self._give_back(batch, BatchState.REFUSED, "not_sent", why)
        else:
            await self._lost(batch, "its provider doesn't list it")

    async def _ask(self, batch: Batch, remote_id: str) -> None:
        remote = await self._api(batch).get(remote_id)
        batch = await note(self.store, batch, remote, time.time())
        self.open[batch.name] = batch
        if remote.stands == "working":
            self._later(batch)
        elif remote.stands == "refused":
            await self._refused(batch, remote)
        else:
            batch = await self.collecting.collect(self._api(batch), batch, remote)
            await self._over(batch._replace(state=BatchState.COLLECTED))

    async def _refused(self, batch: Batch, remote: Remote) -> None:
        """The provider took none of it: all goes back, and goes out again if that may help."""
        why = "; ".join(remote.problems) or f"its state is {remote.status!r}"
        await self._give_back(
            batch, BatchState.REFUSED, "not_sent", f"its batch was refused: {why}"
        )
        if remote.full:
            wait = self.sending.too_much(asked(self.panel, batch), batch.jobs)
            self._notify(
                f"{named(batch)} was refused, because too much waits at its provider already. Batches "
                f"half as large are sent once one of ours has ended, or in {wait:.0f} s."
            )
            return
        self._stopping = self._stopping or JudgeError(
            f"{batch.api} refused {named(batch)}: {why}. None of it was paid for."
        )

    async def _lost(self, batch: Batch, why: str) -> None:
        """Nobody can say what became of it: all goes back, as possibly paid."""
        at_risk = "at a price that isn't known"
        if batch.at_risk is not None:
            at_risk = f"for up to ${batch.at_risk:,.6g}"
        self._notify(
            f"{named(batch)} is lost: {why}. It may have been paid for, {at_risk}, which counts for "
            "--max-cost. Its questions are asked again.",
            warning=True,
        )
        await self._give_back(batch, BatchState.LOST, "missing", f"its batch is lost: {why}")

    async def _give_back(self, batch: Batch, state: BatchState, why: str, error: str) -> None:
        """All jobs that a batch has go back; it is over."""
        lines = await self.store.lines(batch.name)
        batch = batch._replace(error=error)
        batch = await self.collecting.give_back(batch, lines, why, state, error)
        await self._over(batch._replace(state=state))

    async def _over(self, batch: Batch) -> None:
        await self.store.note_batch(batch)
        remove(self.collecting.folder / batch.name)
        del self.open[batch.name], self._watches[batch.name]
        self.sending.ended(batch.name)


# From outside a session


@dataclass(frozen=True, slots=True)
class Listed:
    """A batch of a run; whether a session works on the run now."""

    run: RunPlace
    batch: Batch = field(metadata=INLINE)
    running: bool
    JSON_KEYS: ClassVar = {"run": "run.id"}


async def listed(runs: Runs) -> tuple[list[Listed], list[str]]:
    """The batches of all runs, the latest run first; and what could not be read of which runs."""
    batches, errors = list[Listed](), list[str]()
    for place in runs.all():
        try:
            running, store = place.is_running(), place.store(read_only=True)
            try:
                batches += [Listed(place, batch, running) for batch in await store.batches()]
            finally:
                await store.close()
        except (RunError, OSError) as error:
            errors.append(f"{place.label}: {error}")
    return batches, errors


async def cancel(run: Run, emit: Emit) -> Sequence[tuple[Batch, Remote]]:
    """Ask the providers to stop working on the open batches of a run. Nothing is written: whoever goes
    on with the run collects what they had answered. Raises JudgeError where one can't be asked, when all
    were."""
    store = run.folder.store(read_only=True)
    try:
        totals, out = await store.totals(), await held(store)
        batches = await out_of(store)
    finally:
        await store.close()
    if not batches:
        return []
    from judgeq.judge import batches as providers  # brings aiohttp

    cancelled, failed = list[tuple[Batch, Remote]](), None
    async with assembly.panel(run, totals, Stop(), emit, out=out, look_only=True) as judges:
        await judges.open()
        for one in batches:
            try:
                api = providers.api_of(backend_of(asked(judges, one)))
                if one.remote is None:
                    raise JudgeError(
                        f"Nobody knows yet whether {named(one)} was created: "
                        f"`judgeq resume {run.folder.argument}` looks for it."
                    )
                cancelled.append((one, await api.cancel(one.remote)))
            except JudgeError as error:
                failed = failed or error
    if failed is not None:
        raise failed
    return cancelled
