"""A round as batches: sent, waited for, collected, and sent again as far as answers are missing.

Nothing is bought twice: before a batch is created the ledger says so, with the jobs in it and the most
that it may cost. From then on they are the batch's, in this session or another, until each is settled
by a line of its results. A batch whose creation nobody knows the end of is looked for at its provider
by its random name; its jobs go out again only once it is certain that it isn't there, which is
reported, and counts as possibly paid.

So a batch is intended (in the ledger), then sent (its provider's id is known), then over: collected,
refused or lost. What leads on is `_look`, batch by batch.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, cast

from judgeq.engine import assembly, rounds
from judgeq.engine.assembly import Run, Session, out_of
from judgeq.engine.batch_jobs import (
    Requests,
    asked,
    backend_of,
    budget_of,
    collect,
    give_back,
    named,
    results_of,
    tidy,
)
from judgeq.engine.interrupts import Stop
from judgeq.errors import (
    BatchGoneError,
    BrokenResultsError,
    CallError,
    JudgeError,
    JudgeqError,
    RateLimitedError,
    StoppedError,
    StoreAwayError,
)
from judgeq.events import BatchesOpen, Emit, JobEnded, Notice
from judgeq.files import make_folder
from judgeq.judge.backend import Remote
from judgeq.run_places import whoami
from judgeq.text import several
from judgeq.types import Batch, BatchState, Counts, JobState, Outcome

if TYPE_CHECKING:
    from judgeq.judge.http.batch_api import BatchAPI

FIRST_WAIT, LONGEST_WAIT = 10.0, 300.0
"""Seconds between two looks at a batch: the first wait, which grows by half up to the longest."""
AGAIN = 1.0
"""Seconds until a batch is sent after one that its provider surely did not take; doubled each time."""
TRIES = 8
"""How often batches are offered, one after the other, while none of ours is out."""
BROKEN = 3
"""How often results are downloaded that are broken, or hold less than was answered."""
SETTLING = 120.0
"""Seconds after which a provider lists a batch that it was asked to create, if it ever will."""
FULL_WAIT = 300.0
"""Seconds until a batch is sent after one was refused because too much waits at its provider."""


async def needed(session: Session, counts: Counts) -> bool:
    """Whether it is batches that are to be sent, or waited for, now: also before single calls under a
    cap, for which what batches hold of it may not be left."""
    settings = session.run.settings
    if counts.pending and (settings.batch or settings.max_cost is None):
        return settings.batch
    return bool(await out_of(session.store))


async def ask(session: Session) -> None:
    """Have all that is pending answered by batches; or, where the run asks live, wait for those that are
    out from before.

    Raises StoppedError while batches are out, on a stop or where we don't wait; JudgeError or RunError
    where none of what follows would fare better, when all that has ended is settled; BudgetError where
    the next question can't be paid.
    """
    await session.judge.open()
    make_folder(results_of(session.run))
    try:
        await Batches(session).go_through()
    finally:
        tidy(session.run)


@dataclass(slots=True, eq=False)
class Open:
    """A batch that is out, or may be: since when, by the monotonic clock, if it is."""

    batch: Batch
    since: float
    broken: int = 0  # downloads
    reported: bool = False


@dataclass(slots=True, eq=False)
class Outlet:
    """The way to one judge: it is sent batches of so many lines at most, and none before `closed_until`.
    `tries` failed, one after the other."""

    api: BatchAPI
    most: int
    closed_until: float = 0.0
    tries: int = 0


class Batches:
    """The batches of a run, while a session works on them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._error: JudgeqError | None = None  # the first of those that are to end the session
        self._open: list[Open] = []
        self._wait = FIRST_WAIT
        self._more = True  # may be pending
        self._outlets: dict[int, Outlet] = {}  # by judge
        self._asked: dict[str, set[str]] = {}  # keys of this session's questions, by open batch
        for number, judge in enumerate(session.judge.judges):
            if judge is not None and judge.batches is not None:
                api = judge.batches.batch_api
                most = min(api.most_lines, session.run.settings.batch_size or api.most_lines)
                self._outlets[number] = Outlet(api, most)

    async def go_through(self) -> None:
        """Send what is pending, if we are to, and wait until all batches have ended and nothing is to be
        sent, if we are to; as `ask`."""
        session, settings, stop = self._session, self._session.run.settings, self._session.stop
        for batch in await out_of(session.store):
            age = max(0.0, time.time() - batch.made)
            self._open.append(Open(batch, time.monotonic() - age))
        while True:
            pauses = [await self._look(one) for one in [*self._open]]
            if settings.batch and self._error is None:
                await self._send()
            if self._error is not None:
                raise self._error
            waits = [max([self._wait, *pauses])] if self._open else []
            if settings.batch:
                closed = [one.closed_until - time.monotonic() for one in self._outlets.values()]
                waits += [seconds for seconds in closed if seconds > 0]
            if not waits:
                return
            if stop.asked or not settings.wait:
                raise StoppedError(self._still())
            session.emit(BatchesOpen(tuple(one.batch for one in self._open), min(waits)))
            with suppress(StoppedError):  # which is seen above, when what has ended is collected
                await stop.sleep(min(waits))
            self._wait = min(self._wait * 1.5, LONGEST_WAIT)

    def _still(self) -> str:
        """What is still out, for a session that ends."""
        if not self._open:
            return "stopped while batches wait to be sent"
        questions = several(sum(one.batch.left for one in self._open), "question")
        batches = several(len(self._open), "batch", "batches")
        return f"{batches} still out, with {questions}, which go on at their provider"

    def _notify(self, text: str, *, warning: bool = False) -> None:
        self._session.emit(Notice(text, warning=warning))

    def _fail(self, error: JudgeqError) -> None:
        self._error = self._error or error

    # From one state to the next

    async def _look(self, one: Open) -> float:
        """Lead a batch on; seconds until it is looked at again, at least. What fails now is tried again
        later; what always will ends the session, once the others are collected."""
        try:
            ledger = {batch.name: batch for batch in await self._session.store.batches()}
            one.batch = ledger[one.batch.name]  # what is known here may not have been committed
            asked(self._session.judge, one.batch)
            outlet = self._outlets[one.batch.judge]
            if one.batch.remote is None:
                await self._find(one, outlet, ledger.values())
            else:
                await self._step(one, outlet, await outlet.api.get(one.batch.remote))
                one.reported = False
        except BatchGoneError as error:
            await self._lose(one, str(error))
        except (CallError, StoreAwayError) as error:
            one.broken += isinstance(error, BrokenResultsError)
            if not one.reported:
                one.reported = True
                self._notify(f"{named(one.batch)} can't be asked about just now: {error}")
            return (error.retry_after if isinstance(error, CallError) else None) or 0.0
        except JudgeqError as error:
            self._fail(error)
        return 0.0

    async def _step(self, one: Open, outlet: Outlet, remote: Remote) -> None:
        """Lead a batch on that is there, by what its provider says of it. Where it took none of it that
        is an error, unless too much waits there already."""
        one.batch = one.batch._replace(
            remote=remote.id,
            state=BatchState.SENT,
            status=remote.status,
            total=remote.total,
            done=remote.done,
            failed=remote.failed,
            expires=remote.expires,
            seen=time.time(),
            error=None,
        )
        await self._session.store.note_batch(one.batch)
        if remote.stands == "ended":
            last = one.broken >= BROKEN
            how = (self._session, outlet.api, one.batch, remote, self._fail)
            self._end(one, await collect(*how, last=last))
        elif remote.stands == "refused":
            why = "; ".join(remote.problems) or f"its state is {remote.status!r}"
            why = f"{one.batch.api} refused {named(one.batch)}: {why}"
            error = JudgeError(f"{why}. None of it was paid for.")
            if remote.full:
                outlet.most = max(1, one.batch.jobs // 2)
                error = CallError(f"{why}.", retry_after=FULL_WAIT)
            await self._not_taken(one, outlet, error)

    async def _find(self, one: Open, outlet: Outlet, ledger: Iterable[Batch]) -> None:
        """Look for a batch that may have been created. Where its provider doesn't list it when it would,
        it is lost; or it was refused, if that was the answer."""
        batch, since = one.batch, min(one.batch.made, time.time())
        known = {other.remote for other in ledger if other.remote is not None}
        found = await outlet.api.identify(batch.name, batch.jobs, since, known)
        if found is not None:
            self._notify(f"{named(batch)} was created all the same, and is taken up.")
            await self._step(one, outlet, found)
        elif time.monotonic() >= one.since + SETTLING:
            if batch.error is None:
                await self._lose(one, "its provider doesn't list it")
            else:
                await self._not_taken(one, outlet, CallError(batch.error))

    async def _create(self, one: Open, outlet: Outlet, file: BinaryIO) -> None:
        """Create a batch, of which the ledger knows."""
        try:
            remote = await outlet.api.create(one.batch.name, file)
        except JudgeError as error:
            if error.cost is not None:
                await self._not_taken(one, outlet, error)
                return
            # It may be there all the same: it is looked for.
            one.since = time.monotonic()
            if isinstance(error, RateLimitedError) or not isinstance(error, CallError):  # refused
                await self._session.store.note_batch(one.batch._replace(error=str(error)))
            else:
                self._notify(f"{named(one.batch)} may not have been created: {error}")
        else:
            outlet.tries = 0
            await self._step(one, outlet, remote._replace(stands="working"))

    async def _not_taken(self, one: Open, outlet: Outlet, error: JudgeError) -> None:
        """A batch was surely not taken: its jobs go back, and cost nothing. They are sent again after a
        pause. Where that won't help the session ends."""
        await self._over(one, BatchState.REFUSED, f"its batch was not taken: {error}")
        if not isinstance(error, CallError) or (outlet.tries >= TRIES and not self._open):
            self._fail(error)
            return
        pause = min(AGAIN * 2**outlet.tries, LONGEST_WAIT)
        outlet.closed_until = time.monotonic() + max(pause, error.retry_after or 0.0)
        outlet.tries += 1
        self._notify(f"{named(one.batch)} was not taken: {error} Its questions are sent again.")

    async def _lose(self, one: Open, why: str) -> None:
        """Nobody can say what became of a batch: all goes back, as possibly paid."""
        risk = one.batch.at_risk
        at_risk = "at a price that isn't known" if risk is None else f"for up to ${risk:,.6g}"
        self._notify(
            f"{named(one.batch)} is lost: {why}. It may have been paid for, {at_risk}, which counts for "
            "--max-cost. Its questions are asked again.",
            warning=True,
        )
        await self._over(one, BatchState.LOST, f"its batch is lost: {why}")

    async def _over(self, one: Open, state: BatchState, error: str) -> None:
        """All jobs that a batch has go back."""
        self._end(one, await give_back(self._session, one.batch, state, error))

    def _end(self, one: Open, batch: Batch) -> None:
        """A batch is over: there may be room for another."""
        one.batch = batch
        self._open.remove(one)
        self._asked.pop(batch.name, None)
        self._more = True

    # Sending

    async def _send(self) -> None:
        """Send what is pending, as far as that may go now. Raises BudgetError where nothing is out, and
        the next question can't be paid; JudgeError where a provider takes no batch."""
        if not self._more:
            return
        self._more = False
        for number, outlet in self._outlets.items():
            more = True
            while more and not (self._session.stop.asked or self._error):
                if outlet.closed_until > time.monotonic():
                    self._more = True
                    break
                more = await self._send_one(number, outlet)

    async def _send_one(self, number: int, outlet: Outlet) -> bool:
        """Send a judge one batch of what is pending, but for what the cache knows; whether there may be
        more to send."""
        session = self._session
        store, stop = session.store, session.stop
        store.judges = [number]
        jobs = await store.claim(whoami(), outlet.most, store.lease)
        left, out = {job.match.id for job in jobs}, set[str]().union(*self._asked.values())
        try:
            # The file holds texts: it has no name on the disk, so that a kill leaves none.
            with tempfile.TemporaryFile(dir=results_of(session.run)) as file:
                requests = Requests(session, number, outlet.api, out, cast("BinaryIO", file))
                unpaid = await requests.fill(jobs)
                await store.settle(whoami(), requests.cached)
                for outcome in requests.cached:
                    session.emit(JobEnded(outcome.job, outcome.state))
                    left.remove(outcome.job)
                if stop.asked:
                    for line in requests.lines:
                        budget_of(session).release(line.bound)
                elif requests.lines:
                    left.difference_update(line.job.match.id for line in requests.lines)
                    await self._submit(outlet, requests)
        finally:
            await store.settle(whoami(), [Outcome(job, JobState.PENDING) for job in left])
        if unpaid is not None and not (self._open or stop.asked):
            raise unpaid
        return unpaid is None and bool(requests.lines or requests.cached)

    async def _submit(self, outlet: Outlet, requests: Requests) -> None:
        """Write down that a batch is about to be created, and create it."""
        batch, session = requests.batch(), self._session
        lost = await session.store.hand_over(whoami(), batch, requests.lines)
        for line in requests.lines:
            if line.job.match.id in lost:
                budget_of(session).release(line.bound)
        if len(lost) == batch.jobs:  # nothing was written down
            return
        one = Open(batch, time.monotonic())
        self._open.append(one)
        self._wait = FIRST_WAIT
        self._asked[batch.name] = requests.keys
        if lost:
            why = f"{len(lost):,} of its questions are another process's by now"
            await self._over(one, BatchState.REFUSED, f"its batch was not sent: {why}")
        else:
            await self._create(one, outlet, requests.file)


async def cancel(run: Run, emit: Emit) -> Sequence[tuple[Batch, Remote]]:
    """Ask the providers to stop working on the open batches of a run. Nothing is written: whoever goes
    on with the run collects what they had answered. Raises JudgeError where one can't be asked."""
    cancelled = list[tuple[Batch, Remote]]()
    async with rounds.reading(run.folder) as store:
        if not (batches := await out_of(store)):
            return []
        async with assembly.panel(run, Stop(), emit, store, look_only=True) as judges:
            await judges.open()
            for one in batches:
                if one.remote is None:
                    raise JudgeError(
                        f"Nobody knows yet whether {named(one)} was created: "
                        f"`judgeq resume {run.folder.argument}` looks for it."
                    )
                api = backend_of(asked(judges, one)).batch_api
                cancelled.append((one, await api.cancel(one.remote)))
    return cancelled
