"""Send a request until there is a reply: retry( limiter → budget → ledger → backend ).

An attempt is committed before its request leaves, and every request that left becomes a Call in the
ledger, whatever became of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from judgeq.errors import CallError, JudgeError, SteppedDownError
from judgeq.events import CallEnded, CallStarted, Emit, Notice
from judgeq.judge.backend import Backend, Prepared, Reply, Request
from judgeq.judge.budget import LONGEST, Budget
from judgeq.judge.limiter import Limiter, Permit
from judgeq.judge.retry import Policy, retried
from judgeq.types import Attempt, Call, Clock, Job, JobState, Outcome, Sleep, Usage

logger = logging.getLogger(__name__)

REPORTED = 2
"""So many calls that were tried alone and failed are an outage, of which the user is notified."""
KEPT = 65_536
"""Bytes that are kept of a reply."""


def kept(reply: str) -> str:
    """A masked reply as the ledger keeps it: its beginning, with a note of its length and checksum where
    it was cut. It may have megabytes, and a run many like it."""
    data = reply.encode(errors="replace")
    if len(data) <= KEPT:
        return reply
    begun, digest = data[:KEPT].decode(errors="ignore"), hashlib.sha256(data).hexdigest()
    return f"{begun}\n[cut here: the reply had {len(data):,} bytes, with the SHA-256 {digest}]"


class Ledger(Protocol):
    """What is written about a job while it is still being asked (engine/queue.py)."""

    async def begin(self, attempt: Attempt) -> None:
        """Return when the attempt is committed."""

    def settle(self, outcome: Outcome) -> None:
        """Take an outcome; it is committed at once, but nobody waits for it."""


class Sent(NamedTuple):
    """A reply, and when its request left, by the sender's clock."""

    reply: Reply
    started: float


def _unlimited() -> Limiter:
    return Limiter(concurrency=10_000)


@dataclass(slots=True)
class Sender:
    """A backend with all that stands between it and a request; several judges may have it in common.
    `sleep` raises StoppedError on a stop."""

    backend: Backend
    emit: Emit
    sleep: Sleep = asyncio.sleep
    limiter: Limiter = field(default_factory=_unlimited)
    budget: Budget = field(default_factory=Budget)
    policy: Policy = field(default_factory=Policy)
    clock: Clock = time.monotonic
    wall_clock: Clock = time.time
    slowest: float = 0.0
    """Seconds that the slowest reply took."""
    _reported_loss: bool = False

    def answered(self, permit: Permit) -> None:
        """A call was answered."""
        outage = self.limiter.outage
        if outage.tries >= REPORTED:
            self.emit(Notice(f"{self.backend.name} answers again, after {outage.lasts:.0f} s."))
        self.limiter.succeeded(permit)

    def failed(self, permit: Permit, error: CallError, job: Job) -> None:
        """A call brought no answer. Raises JudgeError when the server answers nobody for too long.

        A job which an earlier session tried often enough is excused from that, one in an outage: it
        may be the job's fault, and ends as failed.
        """
        self.limiter.failed(permit, error)
        outage, policy = self.limiter.outage, self.policy
        if permit.tries and outage.tries == REPORTED:
            self.emit(
                Notice(
                    f"{self.backend.name} doesn't answer; one call at a time is tried, for up to "
                    f"{policy.in_all / 60:.0f} minutes, and all others wait. The last: {error}",
                    warning=True,
                )
            )
        if not policy.ends(outage):
            return
        if job.attempts >= policy.attempts and not outage.excused:
            outage.excused = True
            return
        self.limiter.abort()
        raise JudgeError(
            f"{self.backend.name} doesn't answer: {outage.failures:,} calls in a row failed, within "
            f"{outage.lasts:.0f} s, the last {outage.tries:,} tried one by one. The last: {error}"
        ) from error

    def risk(self, prepared: Prepared, latency: float) -> float | None:
        """What a call of unknown cost is taken to have cost at most, in dollars (None: unknown).

        All of its bound; or what the replies that came suggest, unless it was longer under way than any
        of them: then it may have been longer, too.
        """
        bound = prepared.bound
        lost = None if latency > self.slowest else self.backend.lost(prepared)
        risk = bound if lost is None or bound is None else min(lost, bound)
        if self.budget.cap is not None and bound and not self._reported_loss:
            self._reported_loss = True
            how = "its bound" if risk == bound else f"{LONGEST} times the longest reply so far"
            self.emit(
                Notice(
                    "A call of unknown cost may have been paid: it counts for --max-cost as "
                    f"${risk:.3g}, {how}, as do others like it. A smaller --max-output-tokens lowers "
                    "that.",
                    warning=True,
                )
            )
        return risk


class Sending:
    """The requests of one job on their way: counts its attempts, and writes its calls down.

    `problem` is what was wrong with the job's last reply; it stays in the ledger, so that a later
    session can go on with it.
    """

    __slots__ = (
        *("_job", "_ledger", "_prepared", "_request", "_risk", "_sender"),
        *("attempt", "problem"),
    )

    def __init__(self, sender: Sender, job: Job, ledger: Ledger) -> None:
        self._sender = sender
        self._job = job
        self._ledger = ledger
        self.attempt = job.attempts
        self.problem = job.error if job.unusable else None
        self._risk: float | None = None  # of the last attempt, where its cost is unknown

    async def send(self, request: Request, prepared: Prepared) -> Sent:
        """The reply.

        Raises SteppedDownError where the request must be made anew, the last CallError where no
        further attempt is due, StoppedError on a stop, BudgetError when the next call might cost more
        than is allowed, and JudgeError for what another try can't mend.
        """
        self._request, self._prepared = request, prepared
        sender = self._sender
        return await retried(self._send_once, sender.policy, sender.sleep, sender.limiter.outage)

    def call(self, outcome: str, came: Reply | JudgeError, started: float) -> Call:
        """The last attempt as the ledger keeps it, by the reply that came, or the error."""
        sender, error = self._sender, None
        if isinstance(came, Reply):
            usage, cost, text = came.usage, came.cost, came.text
        else:
            usage, cost, text = Usage(), came.cost, str(came)
            error = text
        if outcome != "ok":
            text = kept(text)
        latency = sender.clock() - started
        sender.emit(CallEnded(outcome, usage, cost, latency, error=error))
        logger.debug(
            "job %d, attempt %d: %s in %.3f s, %s, $%s: %s",
            *(self._job.match.id, self.attempt, outcome, latency, usage, cost, text),
        )
        at, bound = sender.wall_clock(), self._prepared.bound
        return Call(self.attempt, outcome, usage, cost, latency, text, at, bound, self._risk)

    def note(self, call: Call, error: str | None = None) -> None:
        """Put a call into the ledger while the job goes on."""
        problem = self.problem or error
        self._ledger.settle(Outcome(self._job.match.id, JobState.RUNNING, None, (call,), problem))

    async def _send_once(self) -> Sent:
        """One attempt, from waiting for a place to the reply."""
        sender, prepared = self._sender, self._prepared
        permit = await sender.limiter.acquire(prepared.tokens)
        used: float | None = 0.0
        try:
            self._check_version()
            await sender.budget.reserve(prepared.bound)
            cost: float | None = 0.0
            begun = False
            try:
                self._check_version()
                attempt = Attempt(self._job.match.id, prepared.bound, self.attempt + 1)
                await self._ledger.begin(attempt)
                self.attempt += 1
                begun = True
                used = cost = self._risk = None  # from here on nobody knows, until the answer tells
                sent = await self._complete(permit)
                cost, used = sent.reply.cost, sum(sent.reply.usage[:3]) or None
                return sent
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

    def _check_version(self) -> None:
        """Raise SteppedDownError where the request would now be sent, or reserved, otherwise."""
        if self._prepared.version != self._sender.backend.version:
            raise SteppedDownError("another call learned something about the server")

    async def _complete(self, permit: Permit) -> Sent:
        """Let the backend answer, and tell ledger and limiter how it went."""
        sender = self._sender
        started = sender.clock()
        sender.emit(CallStarted())
        request = self._request._replace(attempt=self.attempt)
        try:
            reply = await sender.backend.complete(request, self._prepared)
        except JudgeError as error:
            if error.cost is None:
                self._risk = sender.risk(self._prepared, sender.clock() - started)
            self.note(self.call(error.outcome, error, started), str(error))
            if isinstance(error, CallError) and not isinstance(error, SteppedDownError):
                sender.failed(permit, error, self._job)
            elif not isinstance(error, CallError):
                sender.limiter.abort()  # the next call would fare no better
            raise
        sender.answered(permit)
        if reply.cost is None:
            self._risk = sender.risk(self._prepared, sender.clock() - started)
        else:
            sender.slowest = max(sender.slowest, sender.clock() - started)
        return Sent(reply, started)
