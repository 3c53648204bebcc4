"""Ask about one job until there is a verdict, or honestly none.

Make the request (questions.py), look it up in the cache, send it (sending.py), read the reply
(questions.py); an unusable reply is asked again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from judgeq.errors import (
    CallError,
    ContextTooLongError,
    JudgeError,
    SteppedDownError,
    StoppedError,
    UnusableReplyError,
)
from judgeq.events import CallEnded
from judgeq.judge.backend import Backend, Cached, Prepared, Reply, Request
from judgeq.judge.questions import Questions
from judgeq.judge.sending import Ledger, Sender, Sending
from judgeq.judge.unusable import Unusable
from judgeq.types import Call, Job, JobState, Match, Outcome, Verdict

if TYPE_CHECKING:
    from judgeq.judge.cache import ReplyCache
    from judgeq.judge.http.model_backend import ModelBackend

ASKS = 2
"""An unusable reply is asked again once, naming what was wrong; then the job is invalid."""


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
        if cached is None:
            return None
        return self.read(Reply(cached.text, cached.usage, cached.cost), request.match)

    def for_nothing(self, match: Match, attempt: int, reply: Reply, verdict: Verdict) -> Outcome:
        """The outcome of a reply that was paid for before."""
        self.sender.emit(CallEnded("ok", reply.usage, reply.cost, 0.0, cached=True))
        at = self.sender.wall_clock()
        call = Call(attempt, "cached", reply.usage, reply.cost, 0.0, reply.text, at)
        return Outcome(match.id, JobState.DONE, verdict, (call,))

    def read(self, reply: Reply, match: Match) -> tuple[Reply, Verdict] | None:
        """A reply that was paid for before, with its verdict; None if it gives none."""
        try:
            return reply, self.questions.read(reply, match)
        except UnusableReplyError:
            return None


class _Asking:
    """One job's way through its askings."""

    __slots__ = ("_ask", "_job", "_judge", "_sending")

    def __init__(self, judge: Judge, job: Job, ledger: Ledger) -> None:
        self._judge = judge
        self._job = job
        self._ask = job.unusable + 1
        self._sending = Sending(judge.sender, job, ledger)

    async def outcome(self) -> Outcome:
        """Until there is one: an unusable reply, or a step down, leads to another question."""
        judge, sending, match = self._judge, self._sending, self._job.match
        while True:
            request = judge.questions.request(match, sending.attempt, self._ask, sending.problem)
            prepared = judge.prepared(request, judge.backend, sending.problem)
            if judge.cache is None or prepared.key is None:
                outcome = await self._answer(request, prepared)
            else:
                outcome = await self._known(request, prepared, prepared.key)
                outcome = outcome or await self._lead(judge.cache, request, prepared, prepared.key)
            if outcome is not None:
                return outcome
            for _ in range(2):  # whoever waited for the same reply comes first
                await asyncio.sleep(0)

    async def _known(self, request: Request, prepared: Prepared, key: str) -> Outcome | None:
        """What the cache knows, or whoever asks the same just now will know; None if nobody does, or if
        it is no verdict under our eyes."""
        judge = self._judge
        while True:
            known = judge.recall(request, prepared)
            if known is None:
                same = judge.answering.get(key)
                if same is None:
                    return None
                reply = await asyncio.shield(same)
                if reply is None:
                    continue  # they had no luck
                known = judge.read(reply, request.match)
            if known is None:
                return None
            return judge.for_nothing(request.match, self._sending.attempt, *known)

    async def _lead(
        self, cache: ReplyCache, request: Request, prepared: Prepared, key: str
    ) -> Outcome | None:
        """Ask; jobs with the same question wait for the answer meanwhile."""
        judge = self._judge
        answer: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
        judge.answering[key] = answer
        reply = None
        try:
            outcome = await self._answer(request, prepared)
            if outcome is not None and outcome.verdict is not None:
                call = outcome.calls[-1]
                reply = Reply(call.reply or "", call.usage, call.cost)
                kept = Cached(reply.text, reply.usage, reply.cost, call.at)
                cache.put(key, judge.backend.name, kept)
            return outcome
        finally:
            judge.answering.pop(key, None)
            answer.set_result(reply)

    async def _answer(self, request: Request, prepared: Prepared) -> Outcome | None:
        """Send the request, and read the reply; None to ask again."""
        match, judge, sending = self._job.match, self._judge, self._sending
        try:
            sent = await sending.send(request, prepared)
        except SteppedDownError:
            return None
        except CallError as error:
            return Outcome(match.id, JobState.FAILED, error=str(error))
        except StoppedError:
            return self._given_back()
        except ContextTooLongError as error:
            raise ContextTooLongError(f"{error}{judge.questions.longest(match)}") from error
        try:
            verdict = judge.questions.read(sent.reply, match)
        except UnusableReplyError as error:
            sending.problem = str(error)
        else:
            judge.unusable.usable()
            return Outcome(match.id, JobState.DONE, verdict, (sending.call("ok", *sent),))
        call = sending.call("unusable", *sent)
        try:
            judge.unusable.unusable(sending.problem, sent.reply.text)
        except JudgeError:
            sending.note(call)
            raise
        if self._ask >= ASKS:
            return Outcome(match.id, JobState.INVALID, None, (call,), sending.problem)
        self._ask += 1
        sending.note(call)
        return None

    def _given_back(self) -> Outcome:
        """The job isn't done, because of a stop."""
        return Outcome(self._job.match.id, JobState.PENDING, error=self._sending.problem)
