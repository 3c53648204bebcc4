"""The jobs of batches: the requests that stand for them, and the results by which each is settled.

Results are told by their ids, never by their order or number: they may lack lines, hold them twice, hold
errors in their place, or hold what isn't ours. A line is read by the code that reads live replies. What
came of it is one of four things: a verdict; an unusable reply, asked again once; no answer, asked again;
an error that stops the run. What a kill cuts off is settled by the next session.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from judgeq.engine.assembly import Run, Session
from judgeq.errors import (
    BatchGoneError,
    BatchNotFoundError,
    BrokenResultsError,
    BudgetError,
    CallError,
    JudgeError,
    RunError,
    UnusableReplyError,
)
from judgeq.events import CallEnded, CallStarted, JobEnded, Notice
from judgeq.judge.backend import Prepared, Remote, Reply, Request, Result
from judgeq.judge.budget import Budget
from judgeq.judge.judge import ASKS, Judge, cut_reply, kept_reply
from judgeq.judge.panel import Panel
from judgeq.judge.prices import overpriced_bytes
from judgeq.types import Batch, BatchState, Call, Doubt, Job, JobState, Line, Outcome, Usage

if TYPE_CHECKING:
    from judgeq.judge.http.batch_api import BatchAPI
    from judgeq.judge.http.model_backend import ModelBackend

Fail = Callable[[JudgeError], None]
PATIENCE = 5.0
"""Seconds that a batch is kept open for money that other processes may give back."""
GROUP = 500
"""Results that are committed together."""
NO_ANSWER = {
    "cancelled": "its batch was cancelled before it was asked",
    "expired": "its batch expired before it was asked",
    "failed": "its provider says that it failed; the results that say why can't be read",
    "missing": "the results of its batch lack it: it may have been paid for",
}
"""Why a line has no answer, by what is said of it in the results."""


def backend_of(judge: Judge) -> ModelBackend:
    """The backend of a judge that is asked in batches. Raises JudgeError for one that never is."""
    if judge.batches is None:
        raise JudgeError(f"{judge.backend.name} can't be asked in batches.")
    return judge.batches


def budget_of(session: Session) -> Budget:
    """What a session may spend."""
    return session.judge.asked[0].budget


def prepared(judge: Judge, job: Job) -> tuple[Request, Prepared]:
    """The request that asks about a job now; after an unusable reply it says what was wrong."""
    problem = job.error if job.unusable else None
    request = judge.questions.request(job.match, job.attempts, job.unusable + 1, problem)
    return request, judge.prepared(request, backend_of(judge), problem)


def named(batch: Batch) -> str:
    """A batch, as messages name it."""
    return f"batch {batch.name} of {batch.jobs:,} questions"


def named_rest(batch: Batch) -> str:
    """Return what is left of a batch, as messages name it."""
    if batch.left == batch.jobs:
        return named(batch)
    return f"the rest of {named(batch)} ({batch.left:,} without an answer)"


def results_of(run: Run) -> Path:
    """The folder in which results of batches are kept until they are in the store."""
    return run.folder.scores.parent / "batches"


def tidy(run: Run) -> None:
    """Remove what a killed session left of results: they are downloaded again, for nothing."""
    shutil.rmtree(results_of(run), ignore_errors=True)  # which follows no link


def asked(panel: Panel, batch: Batch) -> Judge:
    """The judge whose batch it is.

    Raises JudgeError where it is at another server than its judge is asked at now: which server gets a
    key is not the ledger's to say.
    """
    judge = panel.judges[batch.judge] if 0 <= batch.judge < len(panel.judges) else None
    if judge is None:
        raise JudgeError(f"{named(batch)} is for judge {batch.judge}, and there is no such model.")
    address = backend_of(judge).address
    if batch.address != address:
        raise JudgeError(
            f"{named(batch)} is at {batch.address!r}, and its judge is asked at {address} now: give "
            "the address that it had (--base-url) until it is collected."
        )
    return judge


@dataclass(slots=True, eq=False)
class Requests:
    """The requests of a batch for one judge that is to be created, in a `file`. A question of which one
    of the `keys`, or of those that are `out`, is the same waits: the cache will answer it. `cached` are
    the outcomes of those that it answers now."""

    session: Session
    judge: int
    api: BatchAPI
    out: Set[str]
    file: BinaryIO
    name: str = field(default_factory=lambda: f"jq{secrets.token_hex(10)}")
    lines: list[Line] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    cached: list[Outcome] = field(default_factory=list)
    tokens: float = 0.0

    async def fill(self, jobs: Sequence[Job]) -> BudgetError | None:
        """Put jobs in, as far as there is room and money. The error where there was no money."""
        size = 0
        for job in jobs:
            judge = self.session.judge.of(job.match)
            request, how = prepared(judge, job)
            known = judge.recall(request, how)
            if known is not None:
                self.cached.append(known)
                continue
            if how.key is not None and (how.key in self.keys or how.key in self.out):
                continue
            line = self.api.line(f"{self.name}-{job.match.id}", how.body)
            size += len(line)
            if self.lines and size > self.api.most_bytes:
                break
            if not await self._pay(how.bound):
                error = budget_of(self.session).exceeded(how.bound)
                return judge.unaffordable(error, backend_of(judge), how, len(job.match.items))
            if how.key is not None:
                self.keys.add(how.key)
            self.lines.append(Line(job, how.bound, len(how.body)))
            self.tokens += how.tokens
            try:
                self.file.write(line)
            except OSError as error:
                raise RunError(
                    f"a batch can't be put together on the disk: {error.strerror}."
                ) from error
        return None

    async def _pay(self, bound: float | None) -> bool:
        """Reserve what a request may cost at most; False where that can't be had soon."""
        budget, stop = budget_of(self.session), self.session.stop
        until = time.monotonic() + PATIENCE
        while wait := budget.reserve_now(bound):
            if wait == math.inf or time.monotonic() > until or stop.asked:
                return False
            await asyncio.sleep(wait)
        return wait is not None

    def batch(self) -> Batch:
        """The batch as it is written down before it is created."""
        backend, jobs = backend_of(self.session.judge.of(self.lines[0].job.match)), len(self.lines)
        bounds = [line.bound for line in self.lines if line.bound is not None]
        reserved = math.fsum(bounds) if len(bounds) == jobs else None
        return Batch(
            name=self.name,
            judge=self.judge,
            api=backend.model.api_of(backend.name),
            address=backend.address,
            form=backend.form,
            made=time.time(),
            jobs=jobs,
            reserved=reserved,
            tokens=self.tokens,
            left=jobs,
            at_risk=reserved,
        )


async def collect(
    session: Session,
    api: BatchAPI,
    batch: Batch,
    remote: Remote,
    fail: Fail,
    *,
    believed: Doubt | None,
) -> tuple[Batch, JudgeError | None]:
    """Settle the jobs of a batch that ended, by those of its results that can be read.

    Return the batch as it is now, and why jobs are left without a result: a file of results isn't found
    (BatchNotFoundError), is gone (BatchGoneError), is broken or too short (BrokenResultsError), or can't
    be read now. None where no job is left: where all files were read, the jobs that they lack are given
    back.
    `believed` is the doubt about the results that has lasted long enough. `fail` is called with errors
    that are to stop the run.
    """
    folder = results_of(session.run) / batch.name
    is_short_believed = believed is Doubt.SHORT
    try:
        download = await api.download(remote, folder, as_it_is=is_short_believed)
        refusal = _first_refusal(download.refused)
        is_broken = any(isinstance(error, BrokenResultsError) for error in download.refused)
        is_final = isinstance(refusal, BatchNotFoundError) and believed is Doubt.RESULTS
        if is_final and is_broken:
            # Nothing more will come: the broken file is read as far as it goes.
            download = await api.download(remote, folder, as_it_is=True)
            refusal = _first_refusal(download.refused)
        there = await session.store.lines(batch.name)
        left = {f"{batch.name}-{line.job.match.id}": line for line in there}
        ids_answered: set[str] = set()
        answered_before = batch.answered

        def outcomes() -> Iterator[tuple[Line, Outcome]]:
            for result in (result for file in download.files for result in api.results(file)):
                line = left.pop(result.custom_id, None)
                if line is not None:  # else it is there twice, was settled before, or isn't ours
                    if result.status == 200:
                        ids_answered.add(result.custom_id)
                    yield line, _answered(session, batch, line, result, fail)

        batch = await settle(
            session, batch._replace(left=len(left)), outcomes(), BatchState.COLLECTED
        )
        if left and refusal is not None:
            return batch, refusal
        if left and not is_short_believed and sum(map(_lines, download.files)) < remote.done:
            return batch, BrokenResultsError("its results came shorter than they are said to be.")
        whole = answered_before + len(ids_answered) >= remote.done
        if not (remote.total > 0 or not remote.results):
            whole = False
        why = _fate(batch, len(left), whole=whole)
        if left and why == "missing":
            text = (
                f"the results of {named(batch)} lack {len(left):,} of its lines, which may have "
                "been paid for. These questions are asked again."
            )
            session.emit(Notice(text, warning=True))
        rest = ((line, _unanswered(session, line, why)) for line in left.values())
        batch = await settle(session, batch, rest, BatchState.COLLECTED)
        await session.store.note_batch(_closed(batch, BatchState.COLLECTED))
        return batch, None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _first_refusal(refused: Sequence[JudgeError]) -> JudgeError | None:
    """Return the refusal to act on: that of the file that is the likeliest to be read yet."""
    kinds = (BatchGoneError, BrokenResultsError, BatchNotFoundError)
    ranks = {kind: rank for rank, kind in enumerate(kinds)}
    return max(refused, key=lambda error: ranks.get(type(error), len(kinds)), default=None)


def _fate(batch: Batch, lines: int, *, whole: bool) -> str:
    """Return what became of so many lines of a batch that ended, of which nothing can be read.

    `whole`: all is read that the provider says it answered. Then the others were not paid for, if it
    says that they expired, were cancelled, or failed.
    """
    if whole and batch.status in ("expired", "cancelled"):
        return batch.status
    return "failed" if whole and batch.failed >= lines else "missing"


def rest_fate(batch: Batch) -> str:
    """Return what became of the jobs that a batch still has, by what the ledger says of it."""
    is_counted = batch.seen is not None and batch.total > 0
    return _fate(batch, batch.left, whole=is_counted and batch.answered >= batch.done)


async def give_back(session: Session, batch: Batch, state: BatchState, error: str) -> None:
    """Give all jobs back that a batch has, unanswered: of one that is lost as possibly paid for, unless
    its provider says that they failed."""
    lines = await session.store.lines(batch.name)
    batch = batch._replace(error=error, left=len(lines))
    why = "not_sent" if state is BatchState.REFUSED else rest_fate(batch)
    outcomes = [(line, _unanswered(session, line, why, error)) for line in lines]
    batch = await settle(session, batch, outcomes, state)
    await session.store.note_batch(_closed(batch, state))


def _closed(batch: Batch, state: BatchState) -> Batch:
    """Return a batch that is over."""
    return batch._replace(
        state=state,
        error=None if state is BatchState.COLLECTED else batch.error,
        doubt=None,
        doubted_since=None,
        doubted_looks=0,
    )


async def settle(
    session: Session, batch: Batch, outcomes: Iterable[tuple[Line, Outcome]], over: BatchState
) -> Batch:
    """Commit outcomes of jobs that a batch has, and what they make of it, and return it. It is `over`
    with its last job, whatever is killed; until then a doubt about the others goes on."""
    store, outcomes = session.store, iter(outcomes)
    while group := list(islice(outcomes, GROUP)):
        calls = [call for _, outcome in group for call in outcome.calls]
        left = batch.left - len(group)
        batch = batch._replace(
            cost=math.fsum([batch.cost, *(call.cost or 0.0 for call in calls)]),
            answered=batch.answered + sum(call.outcome in ("ok", "unusable") for call in calls),
            left=left,
        )
        if not left:
            batch = _closed(batch, over)
        async with store.together():
            await store.settle(batch.name, [outcome for _, outcome in group])
            await store.note_batch(batch)
        for line, outcome in group:
            cost = outcome.calls[-1].cost if outcome.calls else None
            budget_of(session).settle(line.bound, cost)
        await asyncio.sleep(0)
    return batch


def _answered(session: Session, batch: Batch, line: Line, result: Result, fail: Fail) -> Outcome:
    """What a result says of its job; a verdict's reply is kept for other runs."""
    if result.ended is not None or not result.status:
        return _unanswered(session, line, result.ended or "missing")
    judge, verdict, state = session.judge.of(line.job.match), None, JobState.PENDING
    backend = backend_of(judge)
    try:
        how, reply = "ok", backend.read_result(result, line.size, batch.form)
        verdict = judge.questions.read(reply, line.job.match)
        judge.unusable.usable()
        judge.reading.add_answer(line.job.match, verdict)
        reply = kept_reply(reply, verdict, line.job.match)
        state = JobState.DONE
    except UnusableReplyError as error:
        how, reply = "unusable", reply._replace(problem=str(error))
        state = JobState.PENDING if line.job.unusable + 1 < ASKS else JobState.INVALID
        try:
            judge.unusable.unusable(str(error), reply.text)
        except JudgeError as too_many:
            fail(too_many)
    except JudgeError as error:
        how, reply = error.outcome, Reply(str(error), Usage(), error.cost, str(error))
        if isinstance(error, CallError):
            state = _again(session, line)
        else:
            fail(error)
    judge.reading.add_usage(judge.questions.size(line.job.match), reply.usage)
    if (unread := judge.reading.error()) is not None:
        fail(unread)
    outcome = _ended(session, line, state, how, reply)._replace(verdict=verdict)
    # Under the request that it answers, which would be sent so now: what a run's file says must not
    # decide what replies are kept under.
    if verdict is not None and judge.cache is not None and batch.form == backend.form:
        _, now = prepared(judge, line.job)
        if now.key is not None and len(now.body) == line.size:
            judge.keep(now.key, reply, line.job.match)
    return outcome


def _unanswered(session: Session, line: Line, why: str, error: str | None = None) -> Outcome:
    """A line without an answer: the job goes back. What wasn't asked for sure cost nothing; else its
    attempt stays in the ledger as one that may have been paid for, and after too many the job has
    failed."""
    error = error or f"{NO_ANSWER[why]}."
    if why != "missing":
        state = _again(session, line) if why == "failed" else JobState.PENDING
        return _ended(session, line, state, why, Reply(error, Usage(), 0.0, error))
    job, state = line.job, _again(session, line)
    session.emit(JobEnded(job.match.id, state))
    return Outcome(job.match.id, state, None, (), None if job.unusable else error)


def _again(session: Session, line: Line) -> JobState:
    """The state of a job without an answer: failed once it was asked too often."""
    most = session.judge.of(line.job.match).policy.attempts
    return JobState.FAILED if line.job.attempts >= most else JobState.PENDING


def _ended(session: Session, line: Line, state: JobState, how: str, reply: Reply) -> Outcome:
    """The outcome of a line with an answer. How long that took isn't known: a batch ends as a whole.
    What was wrong with a job's last reply stays, since that is asked again."""
    (job, bound, _), (text, usage, cost, problem, answerer) = line, reply
    unusable = how == "unusable"
    session.emit(CallStarted())
    session.emit(CallEnded(how, usage, cost, 0.0, error=None if unusable else problem))
    session.emit(JobEnded(job.match.id, state))
    text = text if how == "ok" else cut_reply(text)
    judge = session.judge.of(job.match)
    call = Call(
        attempt=job.attempts,
        outcome=how,
        usage=usage,
        cost=cost,
        latency=0.0,
        reply=text,
        at=judge.wall_clock(),
        bound=bound,
        answerer=answerer,
        prompt_size=judge.questions.size(job.match),
        problem=problem if unusable else None,
        overpriced_bytes=overpriced_bytes(line.size, cost, bound),
    )
    error = None if job.unusable and not unusable else problem
    return Outcome(job.match.id, state, None, (call,), error)


def _lines(file: Path) -> int:
    with file.open("rb") as lines:
        return sum(1 for _ in lines)
