"""What every call to a model passes: requests a minute, tokens a minute, calls in flight, together.

Calls are paced evenly, a little below the limits, so that a server that enforces exactly those
refuses next to none. How many may be in flight follows what TCP does (Jacobson 1988): it begins with
one, so that a wrong key costs one call, opens quickly, is halved by a refusal (429), and grows slowly
from there. A refusal slows all workers at once, not only the one that met it.

As long as the server isn't known to answer, all but one wait here, which is tried ever more seldom. A
server's words change this in two ways: a refusal slows down, and what its headers say of limits is
believed.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from judgeq.errors import CallError, StoppedError
from judgeq.types import Clock, Notify, Sleep

T = TypeVar("T")

FIRST_WINDOW = 16
LONGEST_PAUSE = 60.0
SHORT_PAUSE = 1.0
MARGIN = 0.985
"""Of a limit that is used: the network delivers evenly spaced calls a little less evenly."""
SLACK = 0.2
"""Seconds that a wake-up may be late without the pace being lost."""
IN_A_ROW = 3
"""So many failures without an answer between them are an outage."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 20.0
"""Seconds between two tries in an outage: the first wait, doubled up to the longest."""
HOUR = 3600.0


class Turnstile(Generic[T]):
    """Whoever waits for leave to send, the first to come first. `take` gives what is asked for by an
    amount; or says in how many seconds to look again (infinite: when something is given back); or raises
    what it raises where that will never be had. One event loop."""

    def __init__(self, take: Callable[[float], T | float], sleep: Sleep = asyncio.sleep) -> None:
        self._take = take
        self._sleep = sleep
        self._in_turn = asyncio.Lock()
        self._changed = asyncio.Event()
        self._aborted = False

    async def enter(self, amount: float) -> T:
        """What is given, once it is. Raises StoppedError after `abort`."""
        async with self._in_turn:
            while not self._aborted:
                given = self._take(amount)
                if not isinstance(given, float):
                    return given
                self._changed.clear()
                alarm = asyncio.create_task(self._look_in(min(given, HOUR)))
                try:
                    await self._changed.wait()
                finally:
                    alarm.cancel()
        raise StoppedError("the run was stopped")

    def look(self) -> None:
        """Something changed: whoever is first in turn looks again."""
        self._changed.set()

    def abort(self) -> None:
        """A stop was asked for: whoever waits, or comes, gets StoppedError."""
        self._aborted = True
        self.look()

    async def _look_in(self, seconds: float) -> None:
        await self._sleep(seconds)
        self.look()


class RateHeaders(NamedTuple):
    """What a server's headers say: limits a minute, and what remains of them."""

    requests_limit: float | None = None
    requests_remaining: float | None = None
    tokens_limit: float | None = None
    tokens_remaining: float | None = None


class Permit(NamedTuple):
    """Leave to send one call. `tokens` are reserved for it; `cuts` had been made when it was given.
    `tries`: it is the one that is tried while the server isn't known to answer."""

    tokens: float
    cuts: int
    tries: bool = False


@dataclass(slots=True)
class Outage:
    """What to do while a server isn't known to answer: try one call at a time.

    So it is at the start (`trying`), and again after IN_A_ROW failures. `failures` are the calls that
    failed since the last answer, the first of them at `since`; `tries` those of them that were tried
    alone, and `unmended` those of these that time alone doesn't mend (not CallError.unavailable). No try
    before `next_try`, which comes after an ever longer `wait`.
    """

    clock: Clock
    trying: bool = True
    failures: int = 0
    tries: int = 0
    unmended: int = 0
    since: float = 0.0
    wait: float = 0.0
    next_try: float = -math.inf

    @property
    def lasts(self) -> float:
        """Seconds since the first of the `failures`; 0 without any."""
        return self.clock() - self.since if self.failures else 0.0

    def failed(self, error: CallError, *, tried: bool) -> None:
        """A call brought no answer; `tried`: it was the one that was tried."""
        now = self.clock()
        if not self.failures:
            self.since = now
        self.failures += 1
        if tried:
            self.tries += 1
            self.unmended += not error.unavailable
        elif self.trying:
            return  # it was sent before the others, and says nothing new
        self.trying = self.trying or self.failures >= IN_A_ROW
        if self.trying:
            self.wait = min(max(FIRST_WAIT, 2 * self.wait), LONGEST_WAIT)
            asked = min(error.retry_after or 0.0, LONGEST_PAUSE)
            self.next_try = now + max(asked, self.wait)


class _Pace:
    """So much a minute, evenly (None: any number). Nothing goes before `next`."""

    def __init__(self, given: float | None) -> None:
        self.limit = self._given = given
        self.next = -math.inf

    def believe(self, said: float | None) -> None:
        """The lower of two limits holds, the user's and the server's: one of 0 is none."""
        self.limit = min(filter(None, (self._given, said)), default=self.limit)

    def take(self, amount: float, now: float, share: float) -> None:
        """So much goes now, or (less than 0) didn't after all; ours is a share of the limit."""
        if self.limit is not None:
            seconds = amount * 60 / (self.limit * MARGIN * share)
            self.next = max(self.next, now - SLACK) + seconds


class Limiter:
    """Hands out permits, in the order asked for. One event loop.

    `rpm` and `tpm` are the user's limits; the server's own (`believe`) hold as well. This process takes
    its part of them, of as many `processes` as there are. `notify` gets sentences for the user.
    """

    def __init__(
        self,
        *,
        concurrency: int,
        rpm: float | None = None,
        tpm: float | None = None,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
        notify: Notify = lambda _: None,
        processes: Callable[[], int] = lambda: 1,
    ) -> None:
        self._concurrency = concurrency
        self._clock = clock
        self._notify = notify
        self._processes = processes
        self._requests, self._tokens = _Pace(rpm), _Pace(tpm)
        self._notified = False
        self._window = self._slow_above = float(concurrency)
        self.outage = Outage(clock)
        self.has_answered = False
        """Whether the server has ever answered a call, be it with a refusal."""
        self._tries_in_flight = 0
        self._cuts = 0
        self._paused_until = -math.inf
        self._turnstile = Turnstile(self._take, sleep)
        self.in_flight = 0

    @property
    def window(self) -> int:
        """Calls that may be in flight now."""
        return 1 if self.outage.trying else int(self._window)

    @property
    def limits(self) -> tuple[float | None, float | None]:
        """Requests and tokens a minute in force, for all processes."""
        return self._requests.limit, self._tokens.limit

    async def acquire(self, tokens: float) -> Permit:
        """Wait for leave to send a call of about so many tokens. Raises StoppedError after `abort`."""
        return await self._turnstile.enter(tokens)

    def release(self, permit: Permit, used: float | None) -> None:
        """The call is over, and took `used` tokens (None: unknown, the estimate stands)."""
        self.in_flight -= 1
        self._tries_in_flight -= permit.tries
        if used is not None:
            self._tokens.take(used - permit.tokens, self._clock(), 1 / self._processes())
        self._turnstile.look()

    def succeeded(self, permit: Permit) -> None:
        """The call was answered: more may be in flight."""
        self.has_answered = True
        outage = self.outage
        if outage.failures or outage.trying:
            if outage.trying and permit.tries:
                # As at the start: the server may have begun anew. Else a call that had been sent
                # before is answered: it was no outage.
                first = FIRST_WINDOW if self._requests.limit is None else self._concurrency
                self._slow_above = max(self._slow_above, self._window)
                self._window = min(self._window, float(first))
            self.outage = Outage(self._clock, trying=False)
        elif self._window < self._concurrency:
            self._window += 1 if self._window < self._slow_above else 1 / self._window
            self._window = min(self._window, float(self._concurrency))

    def failed(self, permit: Permit, error: CallError) -> None:
        """The call brought no answer, for a reason that may pass."""
        if error.too_many:
            self.slow_down(permit, error.retry_after)
        self.outage.failed(error, tried=permit.tries)

    def slow_down(self, permit: Permit, retry_after: float | None) -> None:
        """The server refused, or was too slow: everybody slows down.

        Once for all calls that were sent before the last time: they say nothing new.
        """
        if retry_after is not None:
            self._pause(min(retry_after, LONGEST_PAUSE))
        if permit.cuts < self._cuts:
            return
        self._cuts += 1
        if not self.outage.trying:
            self._window = self._slow_above = max(1.0, self._window / 2)

    def believe(self, headers: RateHeaders) -> None:
        """Keep to what a server says of its limits, where that is less than the user's."""
        before = self.limits
        self._requests.believe(headers.requests_limit)
        self._tokens.believe(headers.tokens_limit)
        if self.limits != before and not self._notified:
            self._notified = True
            both = zip(self.limits, ("requests", "tokens"), strict=True)
            allowed = [f"{limit:,.0f} {what}" for limit, what in both if limit is not None]
            self._notify(
                f"The server allows {' and '.join(allowed)} a minute; the run keeps to that."
            )
        if 0 in (headers.requests_remaining, headers.tokens_remaining):
            self._pause(SHORT_PAUSE)  # a bucket fills again bit by bit

    def abort(self) -> None:
        """A stop was asked for: whoever waits, or comes, gets StoppedError."""
        self._turnstile.abort()

    def _pause(self, seconds: float) -> None:
        self._paused_until = max(self._paused_until, self._clock() + seconds)

    def _take(self, tokens: float) -> Permit | float:
        """Take what a call needs from the limits; or say in how many seconds to look again."""
        trying = self.outage.trying
        if trying:
            full = self._tries_in_flight or self.in_flight >= self._concurrency
        else:
            full = self.in_flight >= int(self._window)
        if full:
            return math.inf
        now = self._clock()
        paced = max(self._requests.next, self._tokens.next)
        wait = max(self._paused_until, self.outage.next_try, paced) - now
        if wait > 1e-6:
            return wait
        share = 1 / self._processes()
        self._requests.take(1.0, now, share)
        self._tokens.take(tokens, now, share)
        self.in_flight += 1
        self._tries_in_flight += trying
        return Permit(tokens, self._cuts, trying)
