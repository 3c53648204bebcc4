"""One job in a batch: the request that stands for it, and what becomes of its result.

A batch's line is read by the code that reads live replies. What came of it is one of four things: a
verdict; an unusable reply, asked again once; no answer, asked again; an error that stops the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from judgeq.errors import CallError, JudgeError, UnusableReplyError
from judgeq.events import CallEnded, JobEnded
from judgeq.judge.backend import Cached, Prepared, Reply, Request
from judgeq.judge.batches import Result
from judgeq.judge.judge import ASKS, Judge
from judgeq.judge.unusable import kept
from judgeq.types import Call, Job, JobState, Line, Outcome, Usage

if TYPE_CHECKING:
    from judgeq.judge.http.model_backend import ModelBackend

NO_ANSWER = {
    "cancelled": "its batch was cancelled before it was asked",
    "expired": "its batch expired before it was asked",
    "missing": "the results of its batch lack it: it may have been paid for",
    "not_sent": "its batch was not taken",
}
"""Why a line has no answer, by the outcome of its call in the ledger."""
FREE = ("cancelled", "expired", "not_sent")


class Settled(NamedTuple):
    """What became of a line, and the error that is to stop the run once all lines are settled."""

    outcome: Outcome
    error: JudgeError | None = None


def backend_of(judge: Judge) -> ModelBackend:
    """The backend of a judge that is asked in batches. Raises JudgeError for one that never is."""
    if judge.batches is None:
        raise JudgeError(f"{judge.backend.name} can't be asked in batches.")
    return judge.batches


def prepared(judge: Judge, job: Job) -> tuple[Request, Prepared]:
    """The request that asks about a job now; after an unusable reply it says what was wrong."""
    problem = job.error if job.unusable else None
    request = judge.questions.request(job.match, job.attempts, job.unusable + 1, problem)
    return request, judge.prepared(request, backend_of(judge), problem)


def recalled(judge: Judge, job: Job, prepared: Prepared) -> Outcome | None:
    """The outcome of a job by a reply that was paid for before; None where the cache knows none."""
    if judge.cache is None or prepared.key is None:
        return None
    cached = judge.cache.get(prepared.key)
    if cached is None:
        return None
    known = judge.read(Reply(cached.text, cached.usage, cached.cost), job.match)
    return None if known is None else judge.for_nothing(job.match, job.attempts, *known)


def settled(judge: Judge, line: Line, result: Result, form: str, *, keep: bool) -> Settled:
    """What a result says of its job, which was asked in that form; with `keep` a reply that gives a
    verdict is kept for other runs."""
    if result.ended is not None:
        return Settled(unanswered(judge, line, result.ended))
    if not result.status:
        return Settled(unanswered(judge, line, "missing"))
    try:
        reply = backend_of(judge).read_result(result, line.size, form)
    except JudgeError as error:
        call = _call(judge, line, error.outcome, Usage(), error.cost, str(error))
        judge.sender.emit(CallEnded(call.outcome, call.usage, call.cost, 0.0, error=str(error)))
        failed = isinstance(error, CallError) and _often(judge, line)
        state = JobState.FAILED if failed else JobState.PENDING
        stops = None if isinstance(error, CallError) else error
        return Settled(_ended(judge, line, state, call, _why(line, str(error))), stops)
    return _read(judge, line, reply, keep=keep and form == backend_of(judge).form)


def _read(judge: Judge, line: Line, reply: Reply, *, keep: bool) -> Settled:
    match, stops = line.job.match, None
    try:
        verdict = judge.questions.read(reply, match)
    except UnusableReplyError as error:
        call = _call(judge, line, "unusable", *_of(reply))
        judge.sender.emit(CallEnded("unusable", reply.usage, reply.cost, 0.0))
        try:
            judge.unusable.unusable(str(error), reply.text)
        except JudgeError as too_many:
            stops = too_many
        asked = line.job.unusable + 1
        state = JobState.INVALID if asked >= ASKS else JobState.PENDING
        return Settled(_ended(judge, line, state, call, str(error)), stops)
    judge.unusable.usable()
    call = _call(judge, line, "ok", *_of(reply))
    judge.sender.emit(CallEnded("ok", reply.usage, reply.cost, 0.0))
    if keep:
        _keep(judge, line, call, reply)
    judge.sender.emit(JobEnded(match.id, JobState.DONE))
    return Settled(Outcome(match.id, JobState.DONE, verdict, (call,)))


def unanswered(judge: Judge, line: Line, why: str, error: str | None = None) -> Outcome:
    """The outcome of a line without an answer: the job goes back. Unless it cost nothing for sure, its
    attempt stays in the ledger as one that may have been paid for; after too many the job has failed."""
    error = error or f"{NO_ANSWER[why]}."
    calls: tuple[Call, ...] = ()
    if why in FREE:
        calls = (_call(judge, line, why, Usage(), 0.0, error),)
        judge.sender.emit(CallEnded(why, Usage(), 0.0, 0.0))  # no server failed
    state = JobState.PENDING if why in FREE or not _often(judge, line) else JobState.FAILED
    judge.sender.emit(JobEnded(line.job.match.id, state))
    return Outcome(line.job.match.id, state, None, calls, _why(line, error))


def _often(judge: Judge, line: Line) -> bool:
    """Whether a job was asked so often that it isn't asked again."""
    return line.job.attempts >= judge.sender.policy.attempts


def _why(line: Line, error: str) -> str | None:
    """What the ledger is to say of a job without an answer; what was wrong with its last reply stays,
    since that is asked again."""
    return None if line.job.unusable else error


def _ended(judge: Judge, line: Line, state: JobState, call: Call, error: str | None) -> Outcome:
    judge.sender.emit(JobEnded(line.job.match.id, state))
    return Outcome(line.job.match.id, state, None, (call,), error)


def _of(reply: Reply) -> tuple[Usage, float | None, str]:
    return reply.usage, reply.cost, reply.text


def _call(
    judge: Judge, line: Line, outcome: str, usage: Usage, cost: float | None, text: str
) -> Call:
    """How long an answer took isn't known: a batch ends as a whole."""
    at, attempt = judge.sender.wall_clock(), line.job.attempts
    text = text if outcome == "ok" else kept(text)
    return Call(attempt, outcome, usage, cost, 0.0, text, at, line.bound)


def _keep(judge: Judge, line: Line, call: Call, reply: Reply) -> None:
    """Keep a reply for other runs, under the request that it answers, which would be sent so now: what a
    run's file says must not decide what replies are kept under."""
    if judge.cache is None:
        return
    # What was asked before this attempt: the ledger has counted it since.
    _, now = prepared(judge, line.job)
    if now.key is not None and len(now.body) == line.size:
        cached = Cached(reply.text, reply.usage, reply.cost, call.at)
        judge.cache.put(now.key, backend_of(judge).name, cached)
