"""When to try again, and how long to wait: tenacity's policies, in one place.

Only CallErrors are tried again, but for a SteppedDownError, which asks for another question. While the
server isn't known to answer nobody waits here: the limiter lets them try one by one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar, cast

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    retry_if_not_exception_type,
    wait_random_exponential,
)

from judgeq.errors import CallError, SteppedDownError
from judgeq.judge.limiter import Outage
from judgeq.types import Clock, Sleep

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

    def wait(self, state: RetryCallState) -> float:
        """Seconds until the next attempt: what the server asked for, up to the longest; else they grow
        exponentially. With jitter, so that many workers don't come back together."""
        jittered = wait_random_exponential(self.first_wait, self.longest_wait)(state)
        asked = _error_of(state).retry_after
        return jittered if asked is None else min(asked, self.longest_wait) + min(jittered, 1.0)


def _error_of(state: RetryCallState) -> CallError:
    """The error of the last attempt."""
    return cast(CallError, state.outcome and state.outcome.exception())


async def retried(
    attempt: Callable[[], Awaitable[T]],
    policy: Policy,
    sleep: Sleep,
    clock: Clock,
    outage: Callable[[], Outage],
) -> T:
    """What `attempt` returns, tried again after CallErrors; `outage` gives its limiter's.

    Raises the last CallError when the policy is exhausted, and any other error at once.
    """
    # tenacity costs more than a whole simulated call, so it is asked only once something failed;
    # its first attempt then hands it that failure.
    began = clock()
    try:
        return await attempt()
    except CallError as error:
        first = [error]
    failures, since = 0, 0.0

    async def next_attempt() -> T:
        if first:
            raise first.pop()
        return await attempt()

    def is_over(state: RetryCallState) -> bool:
        """After so many attempts, or so much time. That in which the server answered nobody isn't ours,
        but when it lasts too long, the job is over."""
        nonlocal failures, since
        failures += not _error_of(state).unavailable
        passed, now = clock() - began, outage()
        if now.trying:
            since = passed
        late = policy.ends(now) if now.trying else passed - since >= policy.in_all
        return late or failures >= policy.attempts

    retrying = AsyncRetrying(
        retry=retry_if_exception_type(CallError) & retry_if_not_exception_type(SteppedDownError),
        stop=is_over,
        wait=lambda state: 0.0 if outage().trying else policy.wait(state),
        sleep=sleep,
        reraise=True,
    )
    return await retrying(next_attempt)
