"""Ask about one job until there is a verdict, or honestly none.

Make the request, look it up in the cache, send it (limiter, budget, ledger, backend; tried again after
failures), read the reply; an unusable one is asked again. All replies are read here: fresh ones, those
of the cache, and those bought by an estimate. An attempt is committed before its request leaves, and
every request that left becomes a Call in the ledger, whatever its outcome.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from judgeq.errors import (
    CallError,
    ContextTooLongError,
    JudgeError,
    SteppedDownError,
    StoppedError,
    UnusableReplyError,
)
from judgeq.events import CallEnded, CallStarted, Emit, Notice
from judgeq.judge.backend import Backend, Cached, Prepared, Reply, Request
from judgeq.judge.budget import Budget
from judgeq.judge.limiter import Limiter, Permit
from judgeq.judge.questions import Questions, Unusable
from judgeq.judge.retry import Policy, retried
from judgeq.types import (
    Attempt,
    Call,
    Clock,
    Job,
    JobState,
    Outcome,
    Sleep,
    Usage,
    Verdict,
)

if TYPE_CHECKING:
    from judgeq.judge.cache import ReplyCache
    from judgeq.judge.http.model_backend import ModelBackend

logger = logging.getLogger(__name__)

ASKS = 2
"""An unusable reply is asked again once, naming what was wrong; then the job is invalid."""
REPORTED = 2
"""So many calls that were tried alone and failed are an outage, of which the user is notified."""
KEPT = 65_536
"""Bytes that are kept of a reply that is no verdict."""


class Ledger(Protocol):
    """What is written about a job while it is still being asked (engine/queue.py)."""

    async def begin(self, attempt: Attempt) -> None:
        """Return when the attempt is committed."""

    def settle(self, outcome: Outcome) -> None:
        """Take an outcome; it is committed at once, but nobody waits for it."""


def cut_reply(reply: str) -> str:
    """A masked reply as the ledger keeps it: its beginning, with a note of its length where it was cut.
    It may have megabytes, and a run many like it."""
    data = reply.encode(errors="replace")
    if len(data) <= KEPT:
        return reply
    return f"{data[:KEPT].decode(errors='ignore')}\n[cut here: the reply had {len(data):,} bytes]"


def _unlimited() -> Limiter:
    return Limiter(concurrency=10_000)


@dataclass(slots=True, eq=False)
class Judge:
    """Who is asked: what, by which backend, and what stands between it and a request, which several
    judges may have in common. `sleep` raises StoppedError on a stop."""

    questions: Questions
    backend: Backend
    emit: Emit
    sleep: Sleep = asyncio.sleep
    limiter: Limiter = field(default_factory=_unlimited)
    budget: Budget = field(default_factory=Budget)
    cache: ReplyCache | None = None
    unusable: Unusable = field(default_factory=Unusable)
    batches: ModelBackend | None = None
    """The same model, at the price of batches; several personas have it in common. None where nothing
    is asked in batches."""
    policy: Policy = field(default_factory=Policy)
    clock: Clock = time.monotonic
    wall_clock: Clock = time.time
    answering: dict[str, asyncio.Future[Reply | None]] = field(default_factory=dict)
    """The requests under way, by their key in the cache."""

    async def ask(self, job: Job, ledger: Ledger) -> Outcome:
        """The outcome for a claimed job; calls that came before the last are settled on the way.

        Raises JudgeError for what another try can't mend, the failed call being in the ledger;
        and BudgetError when the next call might cost more than is allowed.
        """
        return await _Asking(self, job, ledger).outcome()

    def prepared(self, request: Request, backend: Backend, problem: str | None) -> Prepared:
        """The request as `backend` would send it; `problem` is what was wrong with the last reply.

        What is asked again has the key of the question itself, so that its verdict is found by whoever
        asks that. But not where the problem is only a run's file's word: it would decide what is kept.
        """
        prepared = backend.prepare(request)
        if prepared.key is None or problem not in self.unusable.problems:
            return prepared
        question = backend.prepare(self.questions.request(request.match))
        return prepared._replace(key=question.key)

    def recall(self, request: Request, prepared: Prepared) -> tuple[Reply, Verdict] | None:
        """What the cache knows of a request; None for nothing that is a verdict under our eyes."""
        if self.cache is None or prepared.key is None:
            return None
        cached = self.cache.get(prepared.key)
        if cached is None:
            return None
        text, usage, cost, _, answerer = cached
        return self.read(request, Reply(text, usage, cost, answerer=answerer))

    def keep(self, key: str, model: str, reply: Reply, at: float) -> None:
        """Keep a reply that gave a verdict for other runs; `at` is when it came."""
        if self.cache is not None:
            kept = Cached(reply.text, reply.usage, reply.cost, at, reply.answerer)
            self.cache.put(key, model, kept)

    def read(self, request: Request, reply: Reply) -> tuple[Reply, Verdict] | None:
        """A reply that was paid for before, with its verdict; None if it gives none."""
        try:
            return reply, self.questions.read(reply, request.match)
        except UnusableReplyError:
            return None

    def for_nothing(self, request: Request, reply: Reply, verdict: Verdict) -> Outcome:
        """The outcome of a reply that was paid for before."""
        self.emit(CallEnded("ok", reply.usage, reply.cost, 0.0, cached=True))
        at = self.wall_clock()
        text, usage, cost, _, answerer = reply
        call = Call(request.attempt, "cached", usage, cost, 0.0, text, at, answerer=answerer)
        return Outcome(request.match.id, JobState.DONE, verdict, (call,))

    def failed(self, permit: Permit, error: CallError, job: Job) -> None:
        """A call brought no answer. Raises JudgeError when the server answers nobody for too long; but
        not for a job which earlier sessions tried often enough: that may be its own fault."""
        self.limiter.failed(permit, error)
        outage, name = self.limiter.outage, self.backend.name
        if permit.tries and outage.tries == REPORTED:
            self.emit(
                Notice(
                    f"{name} doesn't answer; one call at a time is tried, for up to "
                    f"{self.policy.in_all / 60:.0f} minutes, and all others wait. The last: {error}",
                    warning=True,
                )
            )
        if self.policy.ends(outage) and job.attempts < self.policy.attempts:
            self.limiter.abort()
            raise JudgeError(
                f"{name} doesn't answer: {outage.failures:,} calls in a row failed, within "
                f"{outage.lasts:.0f} s, the last {outage.tries:,} tried one by one. The last: {error}"
            ) from error


class _Asking:
    """One job's way to an outcome: a step down, or an unusable reply, leads to another question.

    `_problem` is what was wrong with the job's last reply; it stays in the ledger, so that a later
    session can go on with it.
    """

    _request: Request
    _prepared: Prepared
    _started: float

    def __init__(self, judge: Judge, job: Job, ledger: Ledger) -> None:
        self._judge = judge
        self._job = job
        self._ledger = ledger
        self._ask = job.unusable + 1
        self._attempt = job.attempts
        self._problem = job.error if job.unusable else None

    async def outcome(self) -> Outcome:
        """Until there is one."""
        judge = self._judge
        while True:
            self._request = judge.questions.request(
                self._job.match, self._attempt, self._ask, self._problem
            )
            self._prepared = judge.prepared(self._request, judge.backend, self._problem)
            key = None if judge.cache is None else self._prepared.key
            if key is None:
                outcome = await self._answer()
            else:
                outcome = await self._from_cache(key) or await self._lead(key)
            if outcome is not None:
                return outcome
            for _ in range(2):  # whoever waited for the same reply comes first
                await asyncio.sleep(0)

    async def _from_cache(self, key: str) -> Outcome | None:
        """What the cache knows, or whoever asks the same just now will know; None if nobody does, or if
        it is no verdict under our eyes."""
        judge, request = self._judge, self._request
        known = judge.recall(request, self._prepared)
        while known is None and key in judge.answering:
            reply = await asyncio.shield(judge.answering[key])
            if reply is not None:
                known = judge.read(request, reply)
                break
            known = judge.recall(request, self._prepared)  # they had no luck
        return known and judge.for_nothing(request, *known)

    async def _lead(self, key: str) -> Outcome | None:
        """Ask; jobs with the same question wait for the answer meanwhile."""
        judge = self._judge
        answer: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
        judge.answering[key] = answer
        reply = None
        try:
            outcome = await self._answer()
            if outcome is not None and outcome.verdict is not None:
                call = outcome.calls[-1]
                reply = Reply(call.reply or "", call.usage, call.cost, None, call.answerer)
                judge.keep(key, judge.backend.name, reply, call.at)
            return outcome
        finally:
            judge.answering.pop(key, None)
            answer.set_result(reply)

    async def _answer(self) -> Outcome | None:
        """Send the request, and read the reply; None to ask again."""
        match, judge = self._job.match, self._judge
        try:
            reply = await retried(self._send, judge.policy, judge.sleep, judge.limiter.outage)
        except SteppedDownError:
            return None
        except CallError as error:
            return Outcome(match.id, JobState.FAILED, error=str(error))
        except StoppedError:
            return Outcome(match.id, JobState.PENDING, error=self._problem)
        except ContextTooLongError as error:
            raise ContextTooLongError(f"{error}{judge.questions.longest(match)}") from error
        try:
            verdict = judge.questions.read(reply, match)
        except UnusableReplyError as error:
            self._problem = str(error)
        else:
            judge.unusable.usable()
            return Outcome(match.id, JobState.DONE, verdict, (self._call("ok", reply),))
        call = self._call("unusable", reply)
        try:
            judge.unusable.unusable(self._problem, reply.text)
        except JudgeError:
            self._note(call)
            raise
        if self._ask >= ASKS:
            return Outcome(match.id, JobState.INVALID, None, (call,), self._problem)
        self._ask += 1
        self._note(call)
        return None

    async def _send(self) -> Reply:
        """One attempt, from waiting for a place to the reply. Raises SteppedDownError where the request
        must be made anew, StoppedError on a stop, BudgetError when it might cost more than is allowed,
        and whatever the backend raises."""
        judge, prepared = self._judge, self._prepared
        permit = await judge.limiter.acquire(prepared.tokens)
        used: float | None = 0.0
        try:
            await judge.budget.reserve(prepared.bound)
            cost: float | None = 0.0
            begun = False
            try:
                if prepared.version != judge.backend.version:
                    raise SteppedDownError("another call learned something about the server")
                attempt = Attempt(self._job.match.id, prepared.bound, self._attempt + 1)
                await self._ledger.begin(attempt)
                self._attempt += 1
                begun = True
                used = cost = None  # from here on nobody knows, until the answer tells
                reply = await self._complete(permit)
                cost, used = reply.cost, sum(reply.usage[:3]) or None
                return reply
            except JudgeError as error:
                cost = error.cost
                raise
            finally:
                if begun:
                    judge.budget.settle(prepared.bound, cost)
                else:
                    judge.budget.release(prepared.bound)
        finally:
            judge.limiter.release(permit, used)

    async def _complete(self, permit: Permit) -> Reply:
        """Let the backend answer, and tell ledger and limiter how it went."""
        judge = self._judge
        self._started = judge.clock()
        judge.emit(CallStarted())
        request = self._request._replace(attempt=self._attempt)
        try:
            reply = await judge.backend.complete(request, self._prepared)
        except JudgeError as error:
            failed = Reply(str(error), Usage(), error.cost)
            self._note(self._call(error.outcome, failed, str(error)), str(error))
            if not isinstance(error, CallError):
                judge.limiter.abort()  # the next call would fare no better
            elif not isinstance(error, SteppedDownError):
                judge.failed(permit, error, self._job)
            raise
        judge.limiter.succeeded(permit)
        return reply

    def _call(self, outcome: str, reply: Reply, error: str | None = None) -> Call:
        """The last attempt as the ledger keeps it."""
        judge, (text, usage, cost, _, answerer) = self._judge, reply
        latency = judge.clock() - self._started
        judge.emit(CallEnded(outcome, usage, cost, latency, error=error))
        text = text if outcome == "ok" else cut_reply(text)
        logger.debug(
            "job %d, attempt %d: %s in %.3f s, %s, $%s: %s",
            *(self._job.match.id, self._attempt, outcome, latency, usage, cost, text),
        )
        at, bound = judge.wall_clock(), self._prepared.bound
        return Call(self._attempt, outcome, usage, cost, latency, text, at, bound, None, answerer)

    def _note(self, call: Call, error: str | None = None) -> None:
        """Put a call into the ledger while the job goes on."""
        problem = self._problem or error
        self._ledger.settle(Outcome(self._job.match.id, JobState.RUNNING, None, (call,), problem))
