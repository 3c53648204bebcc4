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


class Turnstile(Generic[T]):
    """Whoever waits for leave to send, the first to come first. `take` gives what is asked for by an
    amount; or says in how many seconds to look again (infinite: when something is given back); or raises
    what it raises where that will never be had. One event loop."""

    def __init__(self, take: Callable[[float], T | float], sleep: Sleep = asyncio.sleep) -> None:
        self.waiting = 0
        self._take = take
        self._sleep = sleep
        self._in_turn = asyncio.Lock()
        self._changed = asyncio.Event()
        self._aborted = False

    async def enter(self, amount: float) -> T:
        """What is given, once it is. Raises StoppedError after `abort`."""
        if not self.waiting and not self._aborted:
            given = self._take(amount)
            if not isinstance(given, float):
                return given
        self.waiting += 1
        try:
            async with self._in_turn:
                while not self._aborted:
                    given = self._take(amount)
                    if not isinstance(given, float):
                        return given
                    await self._wait(given)
                raise StoppedError("the run was stopped")
        finally:
            self.waiting -= 1

    def look(self) -> None:
        """Something changed: whoever is first in turn looks again."""
        self._changed.set()

    def abort(self) -> None:
        """A stop was asked for: whoever waits, or comes, gets StoppedError."""
        self._aborted = True
        self.look()

    async def _wait(self, seconds: float) -> None:
        self._changed.clear()
        if seconds == math.inf:
            await self._changed.wait()
            return
        alarm = asyncio.create_task(self._look_in(seconds))
        try:
            await self._changed.wait()
        finally:
            alarm.cancel()

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


class Outage:
    """What to do while a server isn't known to answer: try one call at a time.

    So it is at the start (`trying`), and again after IN_A_ROW failures. `failures` are the calls that
    failed since the last answer; `tries` those of them that were tried alone, and `unmended` those of
    these that time alone doesn't mend (not CallError.unavailable). No try before `next_try`.
    """

    def __init__(self, clock: Clock) -> None:
        self.trying = True
        self.failures = self.tries = self.unmended = 0
        self.next_try = -math.inf
        self._clock = clock
        self._since = 0.0
        self._wait = 0.0

    @property
    def lasts(self) -> float:
        """Seconds since the first of the `failures`; 0 without any."""
        return self._clock() - self._since if self.failures else 0.0

    def end(self) -> None:
        """An answer came."""
        self.trying = False
        self.failures = self.tries = self.unmended = 0
        self.next_try = -math.inf
        self._wait = 0.0

    def failed(self, error: CallError, *, tried: bool) -> None:
        """A call brought no answer; `tried`: it was the one that was tried."""
        now = self._clock()
        if not self.failures:
            self._since = now
        self.failures += 1
        if tried:
            self.tries += 1
            self.unmended += not error.unavailable
        elif self.trying:
            return  # it was sent before the others, and says nothing new
        self.trying = self.trying or self.failures >= IN_A_ROW
        if self.trying:
            self._wait = min(max(FIRST_WAIT, 2 * self._wait), LONGEST_WAIT)
            asked = min(error.retry_after or 0.0, LONGEST_PAUSE)
            self.next_try = now + max(asked, self._wait)


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
        self._requests, self._tokens = _Bucket(rpm, clock()), _Bucket(tpm, clock())
        self._believed: tuple[float | None, float | None] = (None, None)
        self._window = float(concurrency)
        self._slow_above = float(concurrency)
        self.outage = Outage(clock)
        self._tries_in_flight = 0
        self._cuts = 0
        self._paused_until = -math.inf
        self._turnstile = Turnstile(self._take, sleep)
        self.in_flight = 0

    @property
    def window(self) -> int:
        """Calls that may be in flight now."""
        if self.outage.trying:
            return 1
        return int(self._window)

    @property
    def rpm(self) -> float | None:
        """Requests a minute in force, for all processes."""
        return self._requests.limit

    @property
    def tpm(self) -> float | None:
        """Tokens a minute in force, for all processes."""
        return self._tokens.limit

    async def acquire(self, tokens: float) -> Permit:
        """Wait for leave to send a call of about so many tokens. Raises StoppedError after `abort`."""
        return await self._turnstile.enter(tokens)

    def release(self, permit: Permit, used: float | None) -> None:
        """The call is over, and took `used` tokens (None: unknown, the estimate stands)."""
        self.in_flight -= 1
        if permit.tries:
            self._tries_in_flight -= 1
        if used is not None:
            self._tokens.take(used - permit.tokens)
        self._turnstile.look()

    def succeeded(self, permit: Permit) -> None:
        """The call was answered: more may be in flight."""
        outage = self.outage
        if outage.failures or outage.trying:
            if outage.trying and permit.tries:
                # As at the start: the server may have begun anew. Else a call that had been sent
                # before is answered: it was no outage.
                first = self._concurrency if self.rpm is not None else FIRST_WINDOW
                self._slow_above = max(self._slow_above, self._window)
                self._window = min(self._window, float(first))
            outage.end()
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
        limits = (headers.requests_limit, headers.tokens_limit)
        if limits != self._believed:
            first, before = self._believed == (None, None), (self.rpm, self.tpm)
            self._believed = limits
            self._requests.believe(headers.requests_limit)
            self._tokens.believe(headers.tokens_limit)
            if first and (self.rpm, self.tpm) != before:
                both = ((self.rpm, "requests"), (self.tpm, "tokens"))
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

    def _delay(self) -> float:
        """Seconds until any call may go; infinite while too many are in flight."""
        if self.outage.trying:
            if self._tries_in_flight or self.in_flight >= self._concurrency:
                return math.inf
        elif self.in_flight >= self.window:
            return math.inf
        if self._paused_until == -math.inf == self.outage.next_try:
            return 0.0
        return max(self._paused_until, self.outage.next_try) - self._clock()

    def _take(self, tokens: float) -> Permit | float:
        """Take what a call needs from the limits; or say in how many seconds to look again."""
        wait = self._delay()
        if wait <= 0 and not (self._requests.limit is self._tokens.limit is None):
            now, ours = self._clock(), 1 / self._processes()
            requests = self._requests.gather(now, 1.0, ours)
            wait = max(requests, self._tokens.gather(now, tokens, ours))
            if wait <= 0:
                self._requests.take(1.0)
                self._tokens.take(tokens)
        if wait > 0:
            return wait
        self.in_flight += 1
        trying = self.outage.trying
        self._tries_in_flight += trying
        return Permit(tokens, self._cuts, trying)


class _Bucket:
    """So much a minute, evenly (None: any number). `level` is what may go now; it is negative while a
    debt is paid off."""

    __slots__ = ("_at", "_given", "_largest", "_level", "limit")

    def __init__(self, given: float | None, now: float) -> None:
        self.limit = self._given = given
        self._largest = 0.0
        self._level = 0.0
        self._at = now

    def believe(self, said: float | None) -> None:
        """The lower of two limits holds, the user's and the server's: one of 0 is none. What has
        gathered is kept."""
        self.limit = min([limit for limit in (self._given, said) if limit], default=self.limit)

    def gather(self, now: float, amount: float, share: float) -> float:
        """Let gather our share of what came until now; seconds until `amount` may go, 0 if it may go
        now."""
        if self.limit is None:
            return 0.0
        # What is larger than a quarter of a minute goes out when that much has gathered, as a debt.
        needed = min(amount, self.limit / 4)
        if needed > self._largest:
            self._level += needed - self._largest if not self._largest else 0.0
            self._largest = needed
        full = self.limit / 60 * MARGIN
        rate = full * share
        gathered = self._level + max(0.0, now - self._at) * rate
        self._level = min(gathered, self._largest + full * SLACK)
        self._at = now
        short = needed - self._level
        return short / rate if short > 1e-9 else 0.0

    def take(self, amount: float) -> None:
        self._level -= amount
