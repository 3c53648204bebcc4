"""When to try again, and how long to wait: tenacity's policies, in one place.

Only CallErrors are tried again, but for a SteppedDownError, which asks for another question.
`Retry-After` is honoured up to a cap; otherwise the wait grows exponentially, with full jitter, so
that many workers don't come back together. While the server isn't known to answer nobody waits here:
the limiter lets them try one by one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    wait_random_exponential,
)

from judgeq.errors import CallError, SteppedDownError
from judgeq.judge.limiter import Outage

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Policy:
    """Attempts in all (the first included), and seconds: first wait, longest wait, in all.

    Attempts at which the server took no calls (CallError.unavailable) don't count. `in_all` is also
    how long a server may answer nobody, and `tries` how many calls in a row may fail that are tried
    alone, until the run stops.
    """

    attempts: int = 8
    first_wait: float = 0.5
    longest_wait: float = 60.0
    in_all: float = 600.0
    tries: int = 10

    def ends(self, outage: Outage) -> bool:
        """Whether an outage has lasted too long."""
        return outage.trying and (outage.lasts >= self.in_all or outage.unmended >= self.tries)


class _Stop:
    """After so many attempts, or so much time. That in which the server answered nobody isn't ours,
    but when it lasts too long, the job is over."""

    def __init__(self, policy: Policy, outage: Outage) -> None:
        self._policy = policy
        self._outage = outage
        self._failures = 0
        self._since = 0.0

    def __call__(self, state: RetryCallState) -> bool:
        policy, passed = self._policy, state.seconds_since_start or 0.0
        error = state.outcome.exception() if state.outcome else None
        self._failures += not (isinstance(error, CallError) and error.unavailable)
        if self._outage.trying:
            self._since = passed
            return self._failures >= policy.attempts or policy.ends(self._outage)
        return self._failures >= policy.attempts or passed - self._since >= policy.in_all


class _Wait:
    """What the server asked for, up to the cap; else exponential with full jitter."""

    def __init__(self, policy: Policy, outage: Outage) -> None:
        self._outage = outage
        self._longest = policy.longest_wait
        self._backoff = wait_random_exponential(policy.first_wait, policy.longest_wait)

    def __call__(self, state: RetryCallState) -> float:
        if self._outage.trying:
            return 0.0
        error = state.outcome.exception() if state.outcome else None
        jittered = self._backoff(state)
        if isinstance(error, CallError) and error.retry_after is not None:
            return min(error.retry_after, self._longest) + min(jittered, 1.0)
        return jittered


def _mendable(error: BaseException) -> bool:
    return isinstance(error, CallError) and not isinstance(error, SteppedDownError)


async def retried(
    attempt: Callable[[], Awaitable[T]],
    policy: Policy,
    sleep: Callable[[float], Awaitable[None]],
    outage: Outage,
) -> T:
    """What `attempt` returns, tried again after CallErrors; `outage` is its limiter's.

    Raises the last CallError when the policy is exhausted, and any other error at once.
    """
    # tenacity costs more than a whole simulated call, so it is asked only once something failed;
    # its first attempt then hands it that failure.
    try:
        return await attempt()
    except CallError as error:
        failure: CallError | None = error

    async def next_attempt() -> T:
        nonlocal failure
        if failure is not None:
            first, failure = failure, None
            raise first
        return await attempt()

    retrying = AsyncRetrying(
        retry=retry_if_exception(_mendable),
        stop=_Stop(policy, outage),
        wait=_Wait(policy, outage),
        sleep=sleep,
        reraise=True,
    )
    return await retrying(next_attempt)
