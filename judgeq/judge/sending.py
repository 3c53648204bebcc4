"""What stands between a judge and its server, and may be shared by several: limiter, budget, policy."""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass, field
from typing import Protocol

from judgeq.errors import CallError, JudgeError
from judgeq.events import Emit, Notice
from judgeq.judge.backend import Backend, Prepared
from judgeq.judge.budget import LONGEST, Budget
from judgeq.judge.limiter import Limiter, Permit
from judgeq.judge.retry import Policy
from judgeq.types import Attempt, Clock, Job, Outcome, Sleep

REPORTED = 2
"""So many calls that were tried alone and failed are an outage, of which the user is notified."""
KEPT = 65_536
"""Bytes that are kept of a reply."""


def cut_reply(reply: str) -> str:
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
