"""Ask about one job until there is a verdict, or honestly none.

Make the request, look it up in the cache, send it (retry, limiter, budget, ledger, backend), read the
reply; an unusable one is asked again. All replies are read here: fresh ones, those of the cache, and
those bought by an estimate. An attempt is committed before its request leaves, and every request that
left becomes a Call in the ledger, whatever its outcome.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from judgeq import prompts
from judgeq.errors import (
    CallError,
    ContextTooLongError,
    JudgeError,
    SteppedDownError,
    StoppedError,
    UnusableReplyError,
)
from judgeq.escaping import plain
from judgeq.events import CallEnded, CallStarted
from judgeq.judge.backend import Backend, Cached, Prepared, Reply, Request
from judgeq.judge.limiter import Permit
from judgeq.judge.retry import retried
from judgeq.judge.sending import Ledger, Sender, cut_reply
from judgeq.replies import read_reply
from judgeq.types import Attempt, Call, Job, JobState, Match, Outcome, Usage, Verdict

if TYPE_CHECKING:
    from judgeq.judge.cache import ReplyCache
    from judgeq.judge.http.model_backend import ModelBackend

logger = logging.getLogger(__name__)

ASKS = 2
"""An unusable reply is asked again once, naming what was wrong; then the job is invalid."""
FIRST, LAST = 10, 100
"""A run is stopped when none of so many first replies is usable, or too few of so many last ones."""
SHOWN = 100  # cells of a reply in an error

_CUT_OFF = (
    "Give the replies more room (--max-output-tokens; a model that reasons may need thousands), or have "
    "it reason less (--reasoning-effort)"
)
_REFUSED = "Take another model, or other words (--prompt)"
_OTHERS = (
    "Take another model, or ask for the form otherwise (--structured schema, json or text; `judgeq "
    "list prompts NAME` prints what is sent)"
)
_ADVICE = {"cut off at the limit": _CUT_OFF, "refused": _REFUSED, "content filter": _REFUSED}


@dataclass(frozen=True, slots=True)
class Questions:
    """What a judge is asked: a prompt set, and the items' texts and ids by row; with `reasons`, for a
    reason as well. A judge that reads no text has none of it, and isn't bound by what a prompt set
    allows."""

    prompt: prompts.PromptSet | None = None
    texts: Sequence[str] | None = None
    ids: Sequence[str] = ()
    reasons: bool = False

    @property
    def ties(self) -> bool:
        """Whether a reply may leave items tied."""
        return self.prompt is None or self.prompt.ties

    def request(
        self, match: Match, attempt: int = 0, ask: int = 1, problem: str | None = None
    ) -> Request:
        """The question about a match; `problem` says what was wrong with the last reply to it."""
        return Request(match, attempt, ask, lambda: self._messages(match, problem))

    def read(self, reply: Reply, match: Match) -> Verdict:
        """The verdict that a reply gives. Raises UnusableReplyError, which names what is wrong."""
        if reply.problem is not None:
            raise UnusableReplyError(reply.problem)
        return read_reply(reply.text, match, self.ties)

    def longest(self, match: Match) -> str:
        """Which item of a match is the longest, and what can be done, for an error."""
        if self.texts is None:
            return ""
        longest = max(match.items, key=lambda item: len(self.texts[item]))  # type: ignore[index]
        name = self.ids[longest] if self.ids else longest
        return (
            f" The question was about {len(match.items)} items, the longest being item {name!r} "
            f"with {len(self.texts[longest]):,} characters: leave it out or shorten it, take "
            "smaller lists (--strategy listwise5, say), or a model that reads more."
        )

    def _messages(self, match: Match, problem: str | None) -> list[dict[str, str]]:
        if self.prompt is None or self.texts is None:
            raise JudgeError("the judge reads texts, and there are none.")
        texts = [self.texts[item] for item in match.items]
        return prompts.messages(self.prompt, texts, problem, reasons=self.reasons)


class Unusable:
    """Replies of one judge that were no verdicts: each was paid for, and is paid for once more. `most`
    is the share of the last ones that may be so; 1: all. `problems` holds all that was wrong with
    replies that this session read."""

    def __init__(self, most: float = 0.5) -> None:
        self.problems: set[str] = set()
        self._most = most
        self._none_usable = True
        self._last: deque[str | None] = deque(maxlen=LAST)  # what was wrong with each, if anything

    def usable(self) -> None:
        """A reply was a verdict."""
        self._none_usable = False
        self._last.append(None)

    def unusable(self, problem: str, reply: str) -> None:
        """A reply was none. Raises JudgeError when too many were."""
        self.problems.add(problem)
        self._last.append(problem)
        seen, problems = len(self._last), Counter(filter(None, self._last))
        none = self._none_usable and seen >= FIRST
        often = seen == LAST and problems.total() > self._most * LAST
        if self._most == 1 or not (none or often):
            return
        ((usual, times),) = problems.most_common(1)
        usable = LAST - problems.total()
        share = f"none of the first {seen}" if none else f"only {usable} of the last {LAST}"
        what = "what is wrong:" if times == problems.total() else f"mostly ({times}):"
        began = plain(reply, SHOWN)
        began = f'"{began}"' if began else "with nothing: it was empty"
        advice = next((text for words, text in _ADVICE.items() if words in usual), _OTHERS)
        raise JudgeError(
            f"{share} replies could be used; {what} {usual} The last one began {began}. "
            f"{advice}. --max-invalid (now {self._most:g}) sets the share that may be unusable; "
            "--retry-failed asks these again."
        )


@dataclass(slots=True)
class Judge:
    """Who is asked: what, by which sender, and what is known already."""

    questions: Questions
    sender: Sender
    cache: ReplyCache | None = None
    unusable: Unusable = field(default_factory=Unusable)
    batches: ModelBackend | None = None
    """The same model, at the price of batches; several personas have it in common. None where nothing
    is asked in batches."""
    answering: dict[str, asyncio.Future[Reply | None]] = field(default_factory=dict)
    """The requests under way, by their key in the cache."""

    @property
    def backend(self) -> Backend:
        """What answers."""
        return self.sender.backend

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
        return cached and self.read(request, Reply(cached.text, cached.usage, cached.cost))

    def keep(self, key: str, model: str, reply: Reply, at: float) -> None:
        """Keep a reply that gave a verdict for other runs; `at` is when it came."""
        if self.cache is not None:
            self.cache.put(key, model, Cached(reply.text, reply.usage, reply.cost, at))

    def read(self, request: Request, reply: Reply) -> tuple[Reply, Verdict] | None:
        """A reply that was paid for before, with its verdict; None if it gives none."""
        try:
            return reply, self.questions.read(reply, request.match)
        except UnusableReplyError:
            return None

    def for_nothing(self, request: Request, reply: Reply, verdict: Verdict) -> Outcome:
        """The outcome of a reply that was paid for before."""
        self.sender.emit(CallEnded("ok", reply.usage, reply.cost, 0.0, cached=True))
        at = self.sender.wall_clock()
        call = Call(request.attempt, "cached", reply.usage, reply.cost, 0.0, reply.text, at)
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
        self._sender = judge.sender
        self._job = job
        self._ledger = ledger
        self._ask = job.unusable + 1
        self._attempt = job.attempts
        self._problem = job.error if job.unusable else None
        self._risk: float | None = None  # of the last attempt, where its cost is unknown

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
                reply = Reply(call.reply or "", call.usage, call.cost)
                judge.keep(key, judge.backend.name, reply, call.at)
            return outcome
        finally:
            judge.answering.pop(key, None)
            answer.set_result(reply)

    async def _answer(self) -> Outcome | None:
        """Send the request, and read the reply; None to ask again."""
        match, judge, sender = self._job.match, self._judge, self._sender
        try:
            reply = await retried(self._send, sender.policy, sender.sleep, sender.limiter.outage)
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
        sender, prepared = self._sender, self._prepared
        permit = await sender.limiter.acquire(prepared.tokens)
        used: float | None = 0.0
        try:
            await sender.budget.reserve(prepared.bound)
            cost: float | None = 0.0
            begun = False
            try:
                if prepared.version != sender.backend.version:
                    raise SteppedDownError("another call learned something about the server")
                attempt = Attempt(self._job.match.id, prepared.bound, self._attempt + 1)
                await self._ledger.begin(attempt)
                self._attempt += 1
                begun = True
                used = cost = self._risk = None  # from here on nobody knows, until the answer tells
                reply = await self._complete(permit)
                cost, used = reply.cost, sum(reply.usage[:3]) or None
                return reply
            except JudgeError as error:
                cost = error.cost
                raise
            finally:
                if begun:
                    sender.budget.settle(prepared.bound, cost, self._risk)
                else:
                    sender.budget.release(prepared.bound)
        finally:
            sender.limiter.release(permit, used)

    async def _complete(self, permit: Permit) -> Reply:
        """Let the backend answer, and tell ledger and limiter how it went."""
        sender = self._sender
        self._started = sender.clock()
        sender.emit(CallStarted())
        request = self._request._replace(attempt=self._attempt)
        try:
            reply = await sender.backend.complete(request, self._prepared)
        except JudgeError as error:
            self._assess(error.cost)
            failed = Reply(str(error), Usage(), error.cost)
            self._note(self._call(error.outcome, failed, str(error)), str(error))
            if not isinstance(error, CallError):
                sender.limiter.abort()  # the next call would fare no better
            elif not isinstance(error, SteppedDownError):
                sender.failed(permit, error, self._job)
            raise
        sender.answered(permit)
        self._assess(reply.cost)
        if reply.cost is not None:
            sender.slowest = max(sender.slowest, sender.clock() - self._started)
        return reply

    def _assess(self, cost: float | None) -> None:
        """Note what a call may have cost whose cost is unknown."""
        if cost is None:
            latency = self._sender.clock() - self._started
            self._risk = self._sender.risk(self._prepared, latency)

    def _call(self, outcome: str, reply: Reply, error: str | None = None) -> Call:
        """The last attempt as the ledger keeps it."""
        sender, (text, usage, cost, _) = self._sender, reply
        latency = sender.clock() - self._started
        sender.emit(CallEnded(outcome, usage, cost, latency, error=error))
        text = text if outcome == "ok" else cut_reply(text)
        logger.debug(
            "job %d, attempt %d: %s in %.3f s, %s, $%s: %s",
            *(self._job.match.id, self._attempt, outcome, latency, usage, cost, text),
        )
        at, bound = sender.wall_clock(), self._prepared.bound
        return Call(self._attempt, outcome, usage, cost, latency, text, at, bound, self._risk)

    def _note(self, call: Call, error: str | None = None) -> None:
        """Put a call into the ledger while the job goes on."""
        problem = self._problem or error
        self._ledger.settle(Outcome(self._job.match.id, JobState.RUNNING, None, (call,), problem))
