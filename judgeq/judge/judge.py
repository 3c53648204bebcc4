"""Ask about one job until there is a verdict, or honestly none: retry(backend → parse).

Every request that was sent becomes a Call in the ledger, whatever became of it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from judgeq import prompts
from judgeq.errors import CallError, JudgeError, StoppedError, UnusableReplyError
from judgeq.judge.backend import Backend, Reply, Request
from judgeq.judge.retry import Policy, retried
from judgeq.types import Call, CallEnded, Event, Job, JobState, Match, Outcome, Usage

ASKS = 2
"""An unusable reply is asked again once, naming what was wrong; then the job is invalid."""


class Ledger(Protocol):
    """Where the judge writes while it is still busy with a job (queue.py)."""

    async def begin(self, job: int) -> None:
        """Return when one more attempt is committed."""

    def settle(self, outcome: Outcome) -> None:
        """Take an outcome; it is committed at once, but nobody waits for it."""


@dataclass(slots=True)
class Judge:
    """A backend with its prompt, texts and retry policy. `sleep` raises StoppedError on a stop."""

    backend: Backend
    prompt: prompts.PromptSet | None
    texts: Sequence[str] | None
    emit: Callable[[Event], None]
    sleep: Callable[[float], Awaitable[None]]
    policy: Policy = field(default_factory=Policy)
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time

    async def ask(self, job: Job, ledger: Ledger) -> Outcome:
        """The outcome for a claimed job; calls that came before the last are settled on the way.

        Raises JudgeError for what another try can't mend; the call that told it is in the ledger.
        """
        return await _Asking(self, job, ledger).outcome()

    def messages(self, match: Match, problem: str | None) -> list[dict[str, str]]:
        """What is sent to a model that reads text."""
        if self.prompt is None or self.texts is None:
            raise JudgeError(f"{self.backend.name} reads texts, and there are none.")
        return prompts.messages(self.prompt, [self.texts[item] for item in match.items], problem)


class _Asking:
    """One job's way through attempts and askings."""

    __slots__ = ("_ask", "_attempt", "_job", "_judge", "_ledger", "_problem")

    def __init__(self, judge: Judge, job: Job, ledger: Ledger) -> None:
        self._judge = judge
        self._job = job
        self._ledger = ledger
        self._attempt = job.attempts
        self._problem = job.error if job.unusable else None
        self._ask = job.unusable + 1

    async def outcome(self) -> Outcome:
        job, judge = self._job, self._judge
        ties = judge.prompt is not None and judge.prompt.ties
        asked = False
        while True:
            try:
                if asked:
                    await judge.sleep(0)  # raises on a stop
                    await self._again()
                reply, started = await retried(self._send, self._again, judge.policy, judge.sleep)
            except CallError as error:
                return Outcome(job.match.id, JobState.FAILED, error=str(error))
            except StoppedError:
                return Outcome(job.match.id, JobState.PENDING, error=self._problem)
            try:
                verdict = prompts.parse(reply.text, job.match, ties)
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
            asked = True

    async def _send(self) -> tuple[Reply, float]:
        judge, match, problem = self._judge, self._job.match, self._problem
        request = Request(match, self._attempt, self._ask, lambda: judge.messages(match, problem))
        started = judge.clock()
        try:
            return await judge.backend.complete(request), started
        except CallError as error:
            self._note(self._call(error.outcome, started, error=error), str(error))
            raise
        except JudgeError as error:
            self._note(self._call("error", started, error=error), str(error))
            raise

    async def _again(self) -> None:
        """Commit the next attempt before its request leaves."""
        await self._ledger.begin(self._job.match.id)
        self._attempt += 1

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
        return Call(self._attempt, outcome, usage, cost, latency, text, judge.wall_clock())
