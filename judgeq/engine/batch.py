"""A round as batches: sent, waited for, collected, and sent again as far as answers are missing.

Nothing is bought twice: before a batch is created the ledger says so, with the jobs in it and the most
that it may cost. From then on they are the batch's, in this session or another, until each is settled
by a line of its results. A batch whose creation nobody knows the end of is looked for at its provider
by its random name; its jobs go out again only once it is certain that it isn't there, which is
reported, and counts as possibly paid.

A provider that doesn't find a batch, or its results, may be wrong for minutes. So it isn't believed
until it has said so for DOUBT_SECONDS, in DOUBT_LOOKS looks, and its list of batches doesn't have the
batch either. Since when that is so is in the ledger; nothing is sent again meanwhile.

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
    NO_ANSWER,
    Requests,
    asked,
    backend_of,
    budget_of,
    collect,
    give_back,
    named,
    named_rest,
    rest_fate,
    results_of,
    tidy,
)
from judgeq.engine.interrupts import Stop
from judgeq.errors import (
    BatchGoneError,
    BatchNotFoundError,
    BrokenResultsError,
    CallError,
    JudgeError,
    JudgeqError,
    RateLimitedError,
    RefusedRequestError,
    StoppedError,
    StoreAwayError,
)
from judgeq.events import BatchesOpen, Emit, JobEnded, Notice
from judgeq.files import make_folder
from judgeq.judge.backend import DOUBT_SECONDS, OVERDUE_SECONDS, Remote
from judgeq.run_places import whoami
from judgeq.text import local_time, several
from judgeq.types import Batch, BatchState, Clock, Counts, Doubt, JobState, Outcome

if TYPE_CHECKING:
    from judgeq.judge.http.batch_api import BatchAPI

FIRST_WAIT, LONGEST_WAIT = 10.0, 300.0
"""Seconds between two looks at a batch: the first wait, which grows by half up to the longest."""
AGAIN = 1.0
"""Seconds until a batch is sent after one that its provider surely did not take; doubled each time."""
TRIES = 8
"""How often batches are offered, one after the other, while none of ours is out."""
DOUBT_LOOKS = 5
"""How often a provider must say that it doesn't find a batch, or its results, to be believed."""
UNLISTED_DOUBT_SECONDS = 86_400.0
"""The seconds of such a doubt where the provider has no list of batches that could settle it."""
MAX_OVERDUE_SECONDS = 86_400.0
"""Seconds after its deadline until which a batch is waited for that its provider still works on."""
SETTLING = 120.0
"""Seconds after which a batch whose creation was refused is listed, if it was created all the same."""
UNANSWERED_SETTLING = 600.0
"""The same seconds for a creation that nobody answered: nothing says that it failed."""
MAX_COUNTED_LOOKS = 1_000_000
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
class Outlet:
    """The way to one judge: it is sent batches of so many lines at most, and none before `closed_until`.
    `tries` failed, one after the other."""

    api: BatchAPI
    most: int
    closed_until: float = 0.0
    tries: int = 0
    has_answered: bool = False
    """Whether its provider has ever answered this session."""


class Batches:
    """The batches of a run, while a session works on them. What of them is so is read from the ledger
    each time: what is known here may not have been committed."""

    def __init__(self, session: Session, clock: Clock = time.time) -> None:
        self._session = session
        self._clock = clock
        self._error: JudgeqError | None = None  # the first of those that are to end the session
        self._wait = FIRST_WAIT
        self._outlets: dict[int, Outlet] = {}  # by judge
        # By a batch's name: since when it is out, by the monotonic clock; those that can't be asked
        # about; the doubt that was reported; those that are reported as overdue; and keys of this
        # session's questions.
        self._since: dict[str, float] = {}
        self._reported: set[str] = set()
        self._doubts: dict[str, Doubt] = {}
        self._overdue: set[str] = set()
        self._asked: dict[str, set[str]] = {}
        for number, judge in enumerate(session.judge.judges):
            if judge is not None and judge.batches is not None:
                api = judge.batches.batch_api
                most = min(api.most_lines, session.run.settings.batch_size or api.most_lines)
                self._outlets[number] = Outlet(api, most)

    async def go_through(self) -> None:
        """Send what is pending, if we are to, and wait until all batches have ended and nothing is to be
        sent, if we are to; as `ask`."""
        session, settings, stop = self._session, self._session.run.settings, self._session.stop
        while True:
            pauses = [await self._look(batch.name) for batch in await self._out()]
            if settings.batch and self._error is None:
                await self._send()
            if self._error is not None:
                raise self._error
            out = await self._out()
            self._report_overdue(out)
            waits = [max([self._wait, *pauses])] if out else []
            if settings.batch:
                closed = [one.closed_until - time.monotonic() for one in self._outlets.values()]
                waits += [seconds for seconds in closed if seconds > 0]
            if not waits:
                return
            if stop.asked or not settings.wait:
                raise StoppedError(_still(out))
            if out and all(self._seconds_overdue(one) > MAX_OVERDUE_SECONDS for one in out):
                raise StoppedError(
                    f"{_still(out)}. They should have ended over a day ago, and are not waited for any "
                    "more: the next session looks at them"
                )
            session.emit(BatchesOpen(out, min(waits)))
            with suppress(StoppedError):  # which is seen above, when what has ended is collected
                await stop.sleep(min(waits))
            self._wait = min(self._wait * 1.5, LONGEST_WAIT)

    async def _out(self) -> list[Batch]:
        """The batches that are out, or may be; while the store is away that is waited for."""
        store = self._session.store
        return await store.again(lambda: out_of(store))

    def _notify(self, text: str, *, warning: bool = False) -> None:
        self._session.emit(Notice(text, warning=warning))

    def _fail(self, error: JudgeqError) -> None:
        self._error = self._error or error

    # From one state to the next

    async def _look(self, name: str) -> float:
        """Lead a batch on; seconds until it is looked at again, at least. What fails now is tried again
        later; what always will ends the session, once the others are collected."""
        try:
            ledger = {batch.name: batch for batch in await self._session.store.batches()}
            batch = ledger[name]
            asked(self._session.judge, batch)
            outlet = self._outlets[batch.judge]
            if batch.remote is None:
                await self._find(batch, outlet, ledger.values())
            else:
                await self._check(batch, outlet, batch.remote)
                self._reported.discard(name)
        except BatchGoneError as error:
            await self._lose(batch, str(error))
        except (CallError, StoreAwayError) as error:
            if name not in self._reported:
                self._reported.add(name)
                self._notify(f"batch {name} can't be asked about just now: {error}")
            return (error.retry_after if isinstance(error, CallError) else None) or 0.0
        except JudgeqError as error:
            self._fail(error)
        return 0.0

    async def _check(self, batch: Batch, outlet: Outlet, remote_id: str) -> None:
        """Ask how a batch stands, and lead it on. One that isn't found is looked for in the list."""
        try:
            remote: Remote | None = await outlet.api.get(remote_id)
            outlet.has_answered = True
        except BatchNotFoundError as error:
            outlet.has_answered = True
            seconds = DOUBT_SECONDS
            try:
                remote = await outlet.api.find_listed(remote_id, min(batch.made, self._clock()))
            except RefusedRequestError:  # the server has no list
                remote, seconds = None, UNLISTED_DOUBT_SECONDS
            if remote is None:
                await self._doubt(batch, Doubt.BATCH, error, seconds)
        if remote is not None:
            await self._step(batch, outlet, remote)

    async def _doubt(self, batch: Batch, doubt: Doubt, error: JudgeError, seconds: float) -> None:
        """Write down once more that a provider says what may be wrong about a batch.

        Raises BatchGoneError where it has said for so many `seconds` that the batch isn't there.
        """
        now = self._clock()
        since = batch.doubted_since
        looks = batch.doubted_looks
        if batch.doubt is not doubt or since is None or since > now:
            since = now
            looks = 0
        batch = batch._replace(
            doubt=doubt,
            doubted_since=since,
            doubted_looks=min(looks + 1, MAX_COUNTED_LOOKS),
            error=str(error),
        )
        await self._session.store.note_batch(batch)
        if doubt is Doubt.BATCH and self._is_believed(batch, seconds):
            raise _gone(batch, error)
        if self._doubts.get(batch.name) is not doubt:
            self._doubts[batch.name] = doubt
            self._notify(
                f"{named_rest(batch)} is in doubt since {local_time(since)}: {error} It is asked about "
                f"again until {local_time(since + seconds)}, and nothing of it is sent again before."
            )

    def _is_believed(self, batch: Batch, seconds: float) -> bool:
        """Return whether a provider has repeated long and often enough what was in doubt."""
        if batch.doubt is None or batch.doubted_since is None:
            return False
        lasted = self._clock() - batch.doubted_since
        return batch.doubted_looks >= DOUBT_LOOKS and lasted >= seconds

    def _seconds_overdue(self, batch: Batch) -> float:
        """Return the seconds since a batch should have ended; negative before, or if unknown."""
        return -1.0 if batch.deadline is None else self._clock() - batch.deadline

    def _report_overdue(self, out: Sequence[Batch]) -> None:
        """Warn, once a session, of batches that should have ended by now."""
        late = [
            batch
            for batch in out
            if self._seconds_overdue(batch) > OVERDUE_SECONDS and batch.name not in self._overdue
        ]
        if not late:
            return
        self._overdue.update(batch.name for batch in late)
        others = f", and {several(len(late) - 1, 'other')} too" if len(late) > 1 else ""
        cancel = self._session.run.folder.command("runs batches cancel")
        self._notify(
            f"{named(late[0])} should have ended by {local_time(late[0].deadline or 0.0)}, and its "
            f"provider still says {late[0].status!r}{others}. "
            f"`{cancel}` asks the provider to stop: what was answered is collected, and the rest is "
            "asked again.",
            warning=True,
        )

    async def _step(self, batch: Batch, outlet: Outlet, remote: Remote) -> None:
        """Lead a batch on that is there, by what its provider says of it. Where it took none of it that
        is an error, unless too much waits there already."""
        batch = batch._replace(
            remote=remote.id,
            state=BatchState.SENT,
            status=remote.status,
            total=remote.total,
            done=remote.done,
            failed=remote.failed,
            expires=remote.expires,
            seen=self._clock(),
        )
        if remote.stands != "ended" or batch.doubt is Doubt.BATCH:
            batch = batch._replace(error=None, doubt=None, doubted_since=None, doubted_looks=0)
            self._doubts.pop(batch.name, None)
        await self._session.store.note_batch(batch)
        if remote.stands == "ended":
            await self._collect(batch, outlet, remote)
        elif remote.stands == "refused":
            why = "; ".join(remote.problems) or f"its state is {remote.status!r}"
            why = f"{batch.api} refused {named(batch)}: {why}"
            error = JudgeError(f"{why}. None of it was paid for.")
            if remote.full:
                outlet.most = max(1, batch.jobs // 2)
                error = CallError(f"{why}.", retry_after=FULL_WAIT)
            await self._not_taken(batch, outlet, error)

    async def _collect(self, batch: Batch, outlet: Outlet, remote: Remote) -> None:
        """Settle what the results of a batch say, and doubt what they lack.

        Raises BatchGoneError where a file of results is gone, or isn't found for so long.
        """
        believed = batch.doubt if self._is_believed(batch, DOUBT_SECONDS) else None
        batch, refusal = await collect(
            self._session, outlet.api, batch, remote, self._fail, believed=believed
        )
        if isinstance(refusal, BatchNotFoundError):
            if believed is Doubt.RESULTS:
                raise _gone(batch, refusal)
            await self._doubt(batch, Doubt.RESULTS, refusal, DOUBT_SECONDS)
        elif isinstance(refusal, BrokenResultsError):
            await self._doubt(batch, Doubt.SHORT, refusal, DOUBT_SECONDS)
        elif refusal is not None:
            raise refusal

    async def _find(self, batch: Batch, outlet: Outlet, ledger: Iterable[Batch]) -> None:
        """Look for a batch that may have been created. Where its provider doesn't list it when it would,
        it is lost; or it was refused, if that was the answer."""
        now = self._clock()
        known = {other.remote for other in ledger if other.remote is not None}
        found = await outlet.api.identify(batch.name, batch.jobs, min(batch.made, now), known)
        since = self._since.setdefault(batch.name, time.monotonic() - max(0.0, now - batch.made))
        if found is not None:
            self._notify(f"{named(batch)} was created all the same, and is taken up.")
            await self._step(batch, outlet, found)
        elif time.monotonic() >= since + (UNANSWERED_SETTLING if batch.error is None else SETTLING):
            if batch.error is None:
                await self._lose(batch, "its provider doesn't list it")
            else:
                await self._not_taken(batch, outlet, CallError(batch.error))

    async def _create(self, batch: Batch, outlet: Outlet, file: BinaryIO) -> None:
        """Create a batch, of which the ledger knows."""
        try:
            remote = await outlet.api.create(batch.name, file)
        except JudgeError as error:
            if error.cost is not None:
                await self._not_taken(batch, outlet, error)
                return
            # It may be there all the same: it is looked for.
            self._since[batch.name] = time.monotonic()
            if isinstance(error, RateLimitedError) or not isinstance(error, CallError):  # refused
                await self._session.store.note_batch(batch._replace(error=str(error)))
            else:
                self._notify(f"{named(batch)} may not have been created: {error}")
        else:
            outlet.tries = 0
            outlet.has_answered = True
            await self._step(batch, outlet, remote._replace(stands="working"))

    async def _not_taken(self, batch: Batch, outlet: Outlet, error: JudgeError) -> None:
        """A batch was surely not taken: its jobs go back, and cost nothing. They are sent again after a
        pause. Where that won't help the session ends."""
        await give_back(
            self._session, batch, BatchState.REFUSED, f"its batch was not taken: {error}"
        )
        if not isinstance(error, CallError) or (error.misdirected and not outlet.has_answered):
            self._fail(error)
            return
        if outlet.tries >= TRIES and not await self._out():
            self._fail(error)
            return
        pause = min(AGAIN * 2**outlet.tries, LONGEST_WAIT)
        outlet.closed_until = time.monotonic() + max(pause, error.retry_after or 0.0)
        outlet.tries += 1
        self._notify(f"{named(batch)} was not taken: {error} Its questions are sent again.")

    async def _lose(self, batch: Batch, why: str) -> None:
        """Nobody can say what became of a batch: all that it still has goes back, as possibly paid."""
        # Its results may have settled a part of it since it was read.
        (batch,) = [row for row in await self._session.store.batches() if row.name == batch.name]
        fate = rest_fate(batch)
        if fate != "missing":
            self._notify(
                f"{named_rest(batch)} can't be read: {why}. As its provider counts, it has no answer, "
                "and cost nothing. Its questions are asked again.",
                warning=True,
            )
            await give_back(self._session, batch, BatchState.COLLECTED, f"{NO_ANSWER[fate]}: {why}")
            return
        risk = batch.at_risk
        at_risk = "at a price that isn't known" if risk is None else f"for up to ${risk:,.6g}"
        self._notify(
            f"{named_rest(batch)} is lost: {why}. It may have been paid for, {at_risk}, which counts "
            "for --max-cost. Its questions are asked again.",
            warning=True,
        )
        await give_back(self._session, batch, BatchState.LOST, f"its batch is lost: {why}")

    # Sending

    async def _send(self) -> None:
        """Send what is pending, as far as that may go now. Raises BudgetError where nothing is out, and
        the next question can't be paid; JudgeError where a provider takes no batch."""
        for number, outlet in self._outlets.items():
            judge = self._session.judge.judges[number]
            if judge is not None and (unread := judge.reading.error()) is not None:
                self._fail(unread)
            more = True
            while more and not (self._session.stop.asked or self._error):
                more = outlet.closed_until <= time.monotonic()
                more = more and await self._send_one(number, outlet)

    async def _send_one(self, number: int, outlet: Outlet) -> bool:
        """Send a judge one batch of what is pending, but for what the cache knows; whether there may be
        more to send."""
        session = self._session
        store, stop = session.store, session.stop
        store.judges = [number]
        jobs, out = await store.claim(whoami(), outlet.most, store.lease), await self._out()
        left = {job.match.id for job in jobs}
        keys = set[str]().union(*(self._asked.get(batch.name, ()) for batch in out))
        try:
            # The file holds texts: it has no name on the disk, so that a kill leaves none.
            with tempfile.TemporaryFile(dir=results_of(session.run)) as file:
                requests = Requests(session, number, outlet.api, keys, cast("BinaryIO", file))
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
        if unpaid is not None and not (stop.asked or await self._out()):
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
        self._wait, self._asked[batch.name] = FIRST_WAIT, requests.keys
        if lost:
            why = f"its batch was not sent: {len(lost):,} of its questions are another process's by now"
            await give_back(session, batch, BatchState.REFUSED, why)
        else:
            await self._create(batch, outlet, requests.file)


def _gone(batch: Batch, error: JudgeError) -> BatchGoneError:
    """Return the error of a batch, or of results, that the provider hasn't found for long enough."""
    since = local_time(batch.doubted_since or 0.0)
    return BatchGoneError(f"{error} It has said so since {since}, {batch.doubted_looks:,} times")


def _still(out: Sequence[Batch]) -> str:
    """What is still out, for a session that ends."""
    if not out:
        return "stopped while batches wait to be sent"
    questions = several(sum(batch.left for batch in out), "question")
    batches = several(len(out), "batch", "batches")
    doubted = [batch for batch in out if batch.doubt is not None]
    doubts = f"; of {len(doubted):,} it isn't sure yet that they are there" if doubted else ""
    return f"{batches} still out, with {questions}, which go on at their provider{doubts}"


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
                        f"`{run.folder.command('resume')}` looks for it."
                    )
                api = backend_of(asked(judges, one)).batch_api
                cancelled.append((one, await api.cancel(one.remote)))
    return cancelled
