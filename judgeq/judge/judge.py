"""Ask about one job until there is a verdict, or honestly none.

Make the request, look it up in the cache, send it (limiter, budget, ledger, backend; tried again after
failures), read the reply; an unusable one is asked again. All replies are read here: fresh ones, those
of the cache, and those bought by an estimate. An attempt is committed before its request leaves, and
every request that left becomes a Call in the ledger, whatever its outcome.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

from judgeq.errors import (
    BudgetError,
    CallError,
    ContextTooLongError,
    JudgeError,
    RateLimitedError,
    ServerFailedError,
    SteppedDownError,
    StoppedError,
    UnusableReplyError,
)
from judgeq.events import CallEnded, CallStarted, Emit, Notice
from judgeq.judge.backend import Backend, Prepared, Reply, Request
from judgeq.judge.budget import Budget
from judgeq.judge.limiter import Limiter, Permit
from judgeq.judge.prices import answer_tokens, overpriced_bytes
from judgeq.judge.questions import Questions, Unusable
from judgeq.judge.retry import Policy, retried
from judgeq.judge.unread import ReadingCheck, is_cut_off, tokens_read
from judgeq.replies import reason_in, write_reply
from judgeq.types import (
    Attempt,
    Call,
    Clock,
    Job,
    JobState,
    Match,
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
SPACIOUS_REPLY = 1_000
"""Output tokens that are many for an answer: where twice as many can be paid, half are enough."""
KEPT = 65_536
"""Bytes that are kept of a reply."""
UTF8_MAX_BYTES = 4
KEPT_REASON_CHARACTERS = 8_000
"""Characters that are kept of the reason in a valid reply that is longer."""


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


def _rounded(value: float, *, up: bool) -> float:
    """Return a positive number with two significant digits, rounded up or down."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return (math.ceil(value / unit) if up else math.floor(value / unit)) * unit


def kept_reply(reply: Reply, verdict: Verdict, match: Match) -> Reply:
    """Return a valid reply as it is kept: whole, or its verdict and cut reason where it is long."""
    if len(reply.text) <= KEPT // UTF8_MAX_BYTES:
        return reply
    size = len(reply.text.encode(errors="replace"))
    if size <= KEPT:
        return reply
    note = f"[cut here: the reply had {size:,} bytes]"
    reason = (reason_in(reply.text) or "")[:KEPT_REASON_CHARACTERS]
    return reply._replace(text=write_reply(verdict, match, f"{reason}\n{note}".strip()))


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
    reading: ReadingCheck = field(default_factory=ReadingCheck)
    batches: ModelBackend | None = None
    """The same model, at the price of batches; several personas have it in common. None where nothing
    is asked in batches."""
    awaits_server: bool = False
    """Whether a server that isn't there yet is waited for, as a worker does that starts beside it."""
    policy: Policy = field(default_factory=Policy)
    clock: Clock = time.monotonic
    wall_clock: Clock = time.time
    turns: MutableMapping[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    """One job asks at a time, of those with the same key in the cache."""

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

    def unaffordable(
        self, error: BudgetError, backend: Backend, prepared: Prepared, k: int
    ) -> BudgetError:
        """Return the error with the flags by which a request about k texts can be paid: a limit on
        output, unless no answer fits into what it leaves; else a cap for two more calls."""
        room = backend.output_within(prepared, error.left)
        if room >= 2 * SPACIOUS_REPLY:
            room //= 2  # so that a few calls fit at once
        if room >= 2 * answer_tokens(k, self.questions.reasons):
            limit = _rounded(room, up=False)
            remedy = f"--max-output-tokens {limit:.0f} makes the call fit."
            flags = f"--max-output-tokens {limit:.0f}"
        else:
            cap = _rounded(error.cap - error.left + 2 * (prepared.bound or 0.0), up=True)
            remedy = f"--max-cost {cap:.10g} is enough for the next calls."
            flags = f"--max-cost {cap:.10g}"
        return BudgetError(f"{error} {remedy}", left=error.left, cap=error.cap, flags=flags)

    def keep(self, key: str | None, reply: Reply, match: Match) -> None:
        """Put a reply that is a verdict into the cache; but not to a question that was cut off."""
        cut_off = is_cut_off(self.questions.size(match), tokens_read(reply.usage))
        if self.cache is not None and key is not None and not cut_off:
            self.cache.put(key, reply)

    def recall(self, request: Request, prepared: Prepared) -> Outcome | None:
        """The outcome that the cache knows, for nothing; None for what is no verdict under our eyes."""
        known = self.cache and prepared.key and self.cache.get(prepared.key)
        if not known:
            return None
        try:
            verdict = self.questions.read(known, request.match)
        except UnusableReplyError:
            return None
        text, usage, cost, _, answerer = kept_reply(known, verdict, request.match)
        self.emit(CallEnded("ok", usage, cost, 0.0, cached=True))
        at = self.wall_clock()
        call = Call(
            request.attempt,
            "cached",
            usage,
            cost,
            latency=0.0,
            reply=text,
            at=at,
            answerer=answerer,
            prompt_size=self.questions.size(request.match),
        )
        return Outcome(request.match.id, JobState.DONE, verdict, (call,))


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
            key = self._prepared.key
            if key is None or judge.cache is None:
                outcome = await self._answer()
            else:
                async with judge.turns.setdefault(key, asyncio.Lock()):
                    outcome = judge.recall(self._request, self._prepared) or await self._answer()
            if outcome is not None:
                return outcome

    async def _answer(self) -> Outcome | None:
        """Send the request, and read the reply; None to ask again."""
        match, judge = self._job.match, self._judge
        try:
            reply = await retried(
                self._send, judge.policy, judge.sleep, judge.clock, lambda: judge.limiter.outage
            )
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
            judge.reading.add_answer(match, verdict)
            reply = kept_reply(reply, verdict, match)
            judge.keep(self._prepared.key, reply, match)
            return Outcome(match.id, JobState.DONE, verdict, (self._call("ok", reply),))
        call = self._call("unusable", reply, problem=self._problem)
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
        and whatever the backend raises, which is in the ledger then."""
        judge, prepared, match = self._judge, self._prepared, self._job.match
        permit = await judge.limiter.acquire(prepared.tokens)
        used: float | None = 0.0
        try:
            if (unread := judge.reading.error()) is not None:
                judge.limiter.abort()
                raise unread
            try:
                self._check_version()
                await judge.budget.reserve(prepared.bound)
            except BudgetError as error:
                self._check_version()  # or it quotes a bound that was raised meanwhile
                raise judge.unaffordable(
                    error, judge.backend, prepared, len(match.items)
                ) from error
            try:
                self._check_version()
                attempt = Attempt(match.id, prepared.bound, self._attempt + 1)
                await self._ledger.begin(attempt)
            except BaseException:
                judge.budget.release(prepared.bound)
                raise
            self._attempt += 1
            self._started = judge.clock()
            judge.emit(CallStarted())
            used = cost = None  # from here on nobody knows, until the answer tells
            try:
                request = self._request._replace(attempt=self._attempt)
                reply = await judge.backend.complete(request, prepared)
                cost, used = reply.cost, sum(reply.usage[:3]) or None
                judge.reading.add_usage(judge.questions.size(match), reply.usage)
            except JudgeError as error:
                cost = error.cost
                failed = Reply(str(error), Usage(), cost)
                self._note(self._call(error.outcome, failed, str(error)), str(error))
                self._failed(permit, error)
                raise
            finally:
                judge.budget.settle(prepared.bound, cost)
            judge.limiter.succeeded(permit)
            return reply
        finally:
            judge.limiter.release(permit, used)

    def _check_version(self) -> None:
        """Raise SteppedDownError where the request would be sent, or bounded, otherwise by now."""
        if self._prepared.version != self._judge.backend.version:
            raise SteppedDownError("another call learned something about the server")

    def _failed(self, permit: Permit, error: JudgeError) -> None:
        """A call brought no answer. Raises JudgeError when the server answers nobody for too long; but
        not for a job which earlier sessions tried often enough: that may be its own fault."""
        judge, limiter, name = self._judge, self._judge.limiter, self._judge.backend.name
        if isinstance(error, SteppedDownError):
            return
        if not isinstance(error, CallError):
            limiter.abort()  # the next call would fare no better
            return
        awaited = judge.awaits_server or limiter.has_answered
        if error.misdirected and not awaited:
            limiter.abort()
            raise JudgeError(str(error), cost=error.cost) from error
        if isinstance(error, RateLimitedError | ServerFailedError) and not error.misdirected:
            limiter.has_answered = True
        limiter.failed(permit, error)
        outage = limiter.outage
        if permit.tries and outage.tries == REPORTED:
            judge.emit(
                Notice(
                    f"{name} doesn't answer; one call at a time is tried, for up to "
                    f"{judge.policy.in_all / 60:.0f} minutes, and all others wait. The last: {error}",
                    warning=True,
                )
            )
        if judge.policy.ends(outage) and self._job.attempts < judge.policy.attempts:
            limiter.abort()
            raise JudgeError(
                f"{name} doesn't answer: {outage.failures:,} calls in a row failed, within "
                f"{outage.lasts:.0f} s, the last {outage.tries:,} tried one by one. The last: {error}"
            ) from error

    def _call(
        self, outcome: str, reply: Reply, error: str | None = None, problem: str | None = None
    ) -> Call:
        """Return the last attempt as the ledger keeps it. `problem`: why its reply is unusable."""
        judge, (text, usage, cost, _, answerer) = self._judge, reply
        latency = judge.clock() - self._started
        judge.emit(CallEnded(outcome, usage, cost, latency, error=error))
        text = text if outcome == "ok" else cut_reply(text)
        logger.debug(
            "job %d, attempt %d: %s in %.3f s, %s, $%s: %s",
            *(self._job.match.id, self._attempt, outcome, latency, usage, cost, text),
        )
        return Call(
            attempt=self._attempt,
            outcome=outcome,
            usage=usage,
            cost=cost,
            latency=latency,
            reply=text,
            at=judge.wall_clock(),
            bound=self._prepared.bound,
            answerer=answerer,
            prompt_size=judge.questions.size(self._job.match),
            problem=problem,
            overpriced_bytes=overpriced_bytes(len(self._prepared.body), cost, self._prepared.bound),
        )

    def _note(self, call: Call, error: str | None = None) -> None:
        """Put a call into the ledger while the job goes on."""
        problem = self._problem or error
        self._ledger.settle(Outcome(self._job.match.id, JobState.RUNNING, None, (call,), problem))
