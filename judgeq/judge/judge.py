"""Ask about one job until there is a verdict, or honestly none.

cache → retry( limiter → budget → ledger → backend ) → parse. An attempt is committed before its
request leaves, and every request that left becomes a Call in the ledger, whatever became of it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from judgeq import prompts
from judgeq.errors import (
    CallError,
    CallTimeoutError,
    ContextTooLongError,
    JudgeError,
    RateLimitedError,
    SteppedDownError,
    StoppedError,
    UnusableReplyError,
)
from judgeq.judge.backend import Backend, Cached, Prepared, Reply, Request
from judgeq.judge.budget import Budget
from judgeq.judge.limiter import Limiter, Permit
from judgeq.judge.retry import Policy, retried
from judgeq.types import (
    Attempt,
    Call,
    CallEnded,
    CallStarted,
    Event,
    Job,
    JobState,
    Match,
    Outcome,
    Usage,
)

if TYPE_CHECKING:
    from judgeq.judge.cache import ReplyCache

logger = logging.getLogger(__name__)

ASKS = 2
"""An unusable reply is asked again once, naming what was wrong; then the job is invalid."""
IN_A_ROW = 10
"""So many jobs that fail one after another stop the run: the next would not fare better."""


class Ledger(Protocol):
    """Where the judge writes while it is still busy with a job (queue.py)."""

    async def begin(self, attempt: Attempt) -> None:
        """Return when the attempt is committed."""

    def settle(self, outcome: Outcome) -> None:
        """Take an outcome; it is committed at once, but nobody waits for it."""


def _unlimited() -> Limiter:
    return Limiter(concurrency=10_000)


@dataclass(slots=True)
class Judge:
    """A backend with all that stands between it and a job. `sleep` raises StoppedError on a stop."""

    backend: Backend
    prompt: prompts.PromptSet | None
    texts: Sequence[str] | None
    emit: Callable[[Event], None]
    sleep: Callable[[float], Awaitable[None]]
    ids: Sequence[str] = ()
    limiter: Limiter = field(default_factory=_unlimited)
    budget: Budget = field(default_factory=lambda: Budget(None))
    cache: ReplyCache | None = None
    policy: Policy = field(default_factory=Policy)
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    _answering: dict[str, asyncio.Future[Reply | None]] = field(default_factory=dict)
    _failed: int = 0  # jobs in a row

    async def ask(self, job: Job, ledger: Ledger) -> Outcome:
        """The outcome for a claimed job; calls that came before the last are settled on the way.

        Raises JudgeError for what another try can't mend, the call that told it being in the ledger;
        and BudgetError when the next call might cost more than is allowed.
        """
        return await _Asking(self, job, ledger).outcome()

    def messages(self, match: Match, problem: str | None) -> list[dict[str, str]]:
        """What is sent to a model that reads text."""
        if self.prompt is None or self.texts is None:
            raise JudgeError(f"{self.backend.name} reads texts, and there are none.")
        return prompts.messages(self.prompt, [self.texts[item] for item in match.items], problem)

    def gave_up(self, error: CallError) -> None:
        """A job failed for good. Raises JudgeError when too many did in a row."""
        self._failed += 1
        if self._failed >= IN_A_ROW:
            raise JudgeError(
                f"{self._failed} jobs failed one after another, each tried {self.policy.attempts} "
                f"times or for {self.policy.in_all / 60:.0f} minutes; the last with: {error} "
                "Mend that, and go on with --retry-failed."
            ) from error

    def answered(self) -> None:
        """An answer came."""
        self._failed = 0

    def about(self, match: Match) -> str:
        """Which item of a match is the longest, for an error."""
        if self.texts is None:
            return ""
        longest = max(match.items, key=lambda item: len(self.texts[item]))  # type: ignore[index]
        name = self.ids[longest] if self.ids else longest
        return (
            f" The question was about {len(match.items)} items, the longest being item {name!r} "
            f"with {len(self.texts[longest]):,} characters: leave it out or shorten it, take "
            "smaller lists (--k), or a model that reads more."
        )


class _Asking:
    """One job's way through attempts and askings."""

    __slots__ = ("_ask", "_attempt", "_job", "_judge", "_ledger", "_prepared", "_problem", "_ties")

    def __init__(self, judge: Judge, job: Job, ledger: Ledger) -> None:
        self._judge = judge
        self._job = job
        self._ledger = ledger
        self._attempt = job.attempts
        self._problem = job.error if job.unusable else None
        self._ask = job.unusable + 1
        # Who reads no text isn't bound by what the prompt's words allow.
        by_prompt = judge.prompt is not None and judge.prompt.ties
        self._ties = by_prompt or not judge.backend.reads_text
        self._prepared = Prepared()

    async def outcome(self) -> Outcome:
        """Until there is one: an unusable reply, or a step down, leads to another question."""
        backend, cache = self._judge.backend, self._judge.cache
        while True:
            self._prepared = backend.prepare(self._request())
            key = self._prepared.key
            if cache is None or key is None:
                outcome = await self._answer()
            else:
                outcome = await self._known(cache, key) or await self._lead(cache, key)
            if outcome is not None:
                return outcome

    async def _known(self, cache: ReplyCache, key: str) -> Outcome | None:
        """What the cache knows, or who is asking the same just now will know."""
        while True:
            cached = await cache.get(key)
            if cached is not None:
                reply: Reply | None = Reply(cached.text, cached.usage, cached.cost)
            else:
                same = self._judge._answering.get(key)
                if same is None:
                    return None
                reply = await asyncio.shield(same)
                if reply is None:
                    continue  # they had no luck
            if reply is not None:
                return self._for_nothing(reply)

    def _for_nothing(self, reply: Reply) -> Outcome | None:
        """The verdict of a reply that was paid for before; None if it is none under our eyes."""
        judge, match = self._judge, self._job.match
        try:
            verdict = prompts.parse(reply.text, match, self._ties)
        except UnusableReplyError:
            return None
        judge.emit(CallEnded("ok", reply.usage, reply.cost, 0.0, cached=True))
        at = judge.wall_clock()
        call = Call(self._attempt, "cached", reply.usage, reply.cost, 0.0, reply.text, at)
        return Outcome(match.id, JobState.DONE, verdict, (call,))

    async def _lead(self, cache: ReplyCache, key: str) -> Outcome | None:
        """Ask; who wants to ask the same meanwhile waits for us."""
        judge = self._judge
        answer: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
        judge._answering[key] = answer
        reply = None
        try:
            outcome = await self._answer()
            if outcome is not None and outcome.verdict is not None:
                call = outcome.calls[-1]
                reply = Reply(call.reply or "", call.usage, call.cost)
                kept = Cached(reply.text, reply.usage, reply.cost, call.at)
                cache.put(key, judge.backend.name, kept)
            return outcome
        finally:
            judge._answering.pop(key, None)
            answer.set_result(reply)

    async def _answer(self) -> Outcome | None:
        """Ask the backend until there is a reply, and read it; None to ask again."""
        job, judge = self._job, self._judge
        try:
            reply, started = await retried(self._send, judge.policy, judge.sleep)
        except SteppedDownError:
            return None
        except CallError as error:
            judge.gave_up(error)
            return Outcome(job.match.id, JobState.FAILED, error=str(error))
        except StoppedError:
            return Outcome(job.match.id, JobState.PENDING, error=self._problem)
        judge.answered()
        try:
            if reply.problem is not None:
                raise UnusableReplyError(reply.problem)
            verdict = prompts.parse(reply.text, job.match, self._ties)
        except UnusableReplyError as error:
            self._problem = str(error)
        else:
            call = self._call("ok", started, reply)
            return Outcome(job.match.id, JobState.DONE, verdict, (call,))
        call = self._call("unusable", started, reply)
        if self._ask >= ASKS:
            return Outcome(job.match.id, JobState.INVALID, None, (call,), self._problem)
        self._ask += 1
        self._note(call)
        return None

    def _request(self) -> Request:
        match, problem = self._job.match, self._problem
        return Request(
            match, self._attempt, self._ask, lambda: self._judge.messages(match, problem)
        )

    async def _send(self) -> tuple[Reply, float]:
        """One attempt, from waiting for a place to the reply."""
        judge = self._judge
        permit = await judge.limiter.acquire(self._prepared.tokens)
        used: float | None = 0.0
        try:
            if self._prepared.version != judge.backend.version:
                raise SteppedDownError("another call found that the server can't do this")
            await judge.budget.reserve(self._prepared.bound)
            cost: float | None = 0.0
            try:
                await self._ledger.begin(Attempt(self._job.match.id, self._prepared.bound))
                self._attempt += 1
                used = cost = None  # from here on nobody knows, until the answer tells
                reply, started = await self._complete(permit)
                cost, used = reply.cost, sum(reply.usage[:3]) or None
                return reply, started
            except JudgeError as error:
                cost = error.cost
                raise
            finally:
                judge.budget.settle(self._prepared.bound, cost)
        finally:
            judge.limiter.release(permit, used)

    async def _complete(self, permit: Permit) -> tuple[Reply, float]:
        """Send, and tell ledger and limiter how it went."""
        judge = self._judge
        started = judge.clock()
        judge.emit(CallStarted())
        try:
            reply = await judge.backend.complete(self._request(), self._prepared)
        except JudgeError as error:
            self._note(self._call(error.outcome, started, error=error), str(error))
            if isinstance(error, RateLimitedError | CallTimeoutError):
                judge.limiter.slow_down(permit, getattr(error, "retry_after", None))
            if isinstance(error, ContextTooLongError):
                raise ContextTooLongError(f"{error}{judge.about(self._job.match)}") from error
            raise
        judge.limiter.succeeded(permit)
        return reply, started

    def _note(self, call: Call, error: str | None = None) -> None:
        """Put a call into the ledger while the job goes on."""
        outcome = Outcome(
            self._job.match.id, JobState.RUNNING, None, (call,), self._problem or error
        )
        self._ledger.settle(outcome)

    def _call(
        self,
        outcome: str,
        started: float,
        reply: Reply | None = None,
        error: JudgeError | None = None,
    ) -> Call:
        judge = self._judge
        usage = reply.usage if reply else Usage()
        # What a call without an answer cost is unknown, unless the error tells.
        cost = reply.cost if reply else getattr(error, "cost", None)
        latency = judge.clock() - started
        judge.emit(CallEnded(outcome, usage, cost, latency))
        text = reply.text if reply else str(error)
        logger.debug(
            "job %d, attempt %d: %s in %.3f s, %s, $%s: %s",
            *(self._job.match.id, self._attempt, outcome, latency, usage, cost, text),
        )
        at, bound = judge.wall_clock(), self._prepared.bound
        return Call(self._attempt, outcome, usage, cost, latency, text, at, bound)
