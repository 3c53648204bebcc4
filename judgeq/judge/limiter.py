"""What every call to a model passes: requests a minute, tokens a minute, calls in flight, together.

Calls are paced evenly, a little below the limits, so that a server that enforces exactly those
refuses next to none. How many may be in flight follows what TCP does (Jacobson 1988): it begins with
one, so that a wrong key costs one call, opens quickly, is halved by a refusal (429), and grows slowly
from there. A refusal slows all workers at once, not only the one that met it.

As long as the server isn't known to answer, all but one wait here: see outage.py.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from judgeq.errors import CallError, RateLimitedError, ServerFullError, StoppedError
from judgeq.judge.outage import Outage

FIRST_WINDOW = 16
LONGEST_PAUSE = 60.0
SHORT_PAUSE = 1.0
CUT, LEAST, RECOVERY = 0.8, 0.05, 0.01
"""A refusal takes the pace to 80 %, never below 5 %; each second gives 1 % of the full pace back."""
MARGIN = 0.985
"""Of a limit that is used: the network delivers evenly spaced calls a little less evenly."""
SLACK = 0.2
"""Seconds that a wake-up may be late without the pace being lost."""


class RateHeaders(NamedTuple):
    """What a server's x-ratelimit headers say: limits a minute, what remains, seconds to the reset;
    and how many calls may be in flight together."""

    requests_limit: float | None = None
    requests_remaining: float | None = None
    requests_reset: float | None = None
    tokens_limit: float | None = None
    tokens_remaining: float | None = None
    tokens_reset: float | None = None
    calls_limit: float | None = None


class Permit(NamedTuple):
    """Leave to send one call. `tokens` are reserved for it; `cuts` had been made when it was given.
    `tries`: it is the one that is tried while the server isn't known to answer."""

    tokens: float
    cuts: int
    tries: bool = False


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
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        notify: Callable[[str], None] = lambda _: None,
        processes: Callable[[], int] = lambda: 1,
    ) -> None:
        self._concurrency = concurrency
        self._given = (rpm, tpm)
        self._clock = clock
        self._sleep = sleep
        self._notify = notify
        self._processes = processes
        self._pace_at = clock()
        self._requests, self._tokens = _Bucket(self._pace_at), _Bucket(self._pace_at)
        self._requests.set_limit(rpm)
        self._tokens.set_limit(tpm)
        self._believed: tuple[float | None, float | None] = (None, None)
        self._at_once = math.inf  # calls that the server allows in flight, those of all processes
        self._window = float(concurrency)
        self._slow_above = float(concurrency)
        self.outage = Outage(clock)
        self._tries_in_flight = 0
        self._cuts = 0
        self._pace = 1.0
        self._paused_until = -math.inf
        self._waiting: deque[tuple[float, asyncio.Future[Permit]]] = deque()
        self._timer: asyncio.Task[None] | None = None
        self._due = math.inf
        self._aborted = False
        self.in_flight = 0

    @property
    def window(self) -> int:
        """Calls that may be in flight now."""
        if self.outage.trying:
            return 1
        return int(min(self._window, max(1.0, self._at_once / self._processes())))

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
        if self._aborted:
            raise StoppedError("the run was stopped")
        if not self._waiting and self._take(tokens) <= 0:
            return self._grant(tokens)
        future: asyncio.Future[Permit] = asyncio.get_running_loop().create_future()
        self._waiting.append((tokens, future))
        self._serve()
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self.release(future.result(), 0.0)  # granted and cancelled in the same turn
            else:
                self._serve()
            raise

    def release(self, permit: Permit, used: float | None) -> None:
        """The call is over, and took `used` tokens (None: unknown, the estimate stands)."""
        self.in_flight -= 1
        if permit.tries:
            self._tries_in_flight -= 1
        if used is not None:
            self._tokens.take(used - permit.tokens)
        if self._waiting:
            self._serve()

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
        elif self._window >= self._concurrency:
            return
        elif self._window < self._slow_above:
            self._window += 1
        else:
            self._window += 1 / self._window
        self._window = min(self._window, float(self._concurrency))

    def failed(self, permit: Permit, error: CallError) -> None:
        """The call brought no answer, for a reason that may pass."""
        if isinstance(error, ServerFullError):
            self.overfull(permit)
        elif error.too_many:
            if isinstance(error, RateLimitedError) and error.at_once is not None:
                self.at_most(error.at_once)
            self.slow_down(permit, error.retry_after)
        self.outage.failed(error, tried=permit.tries)

    def slow_down(self, permit: Permit, retry_after: float | None) -> None:
        """The server refused, or was too slow: everybody slows down.

        Once for all calls that were sent before the last time: they say nothing new.
        """
        if retry_after is not None and retry_after > 0:
            pause = min(retry_after, LONGEST_PAUSE)
            self._paused_until = max(self._paused_until, self._clock() + pause)
        if permit.cuts < self._cuts:
            return
        self._cuts += 1
        if not self.outage.trying:
            self._window = max(1.0, self._window / 2)
            self._slow_above = self._window
        now = self._clock()
        self._pace = max(LEAST, self._paced(now) * CUT)
        self._pace_at = now

    def at_most(self, calls: float) -> None:
        """The server allows so many calls in flight together: never have more, from now on.

        A refusal of what was sent before says nothing new then.
        """
        most = max(1, int(calls))
        self._at_once = min(self._at_once, most)
        if most >= self._concurrency:
            return
        self._concurrency = most
        self._slow_above = min(self._slow_above, float(most))
        if self._window > most:
            self._window = float(most)
            self._cuts += 1
        self._notify(f"The server allows {most:,} calls at once; the run keeps to that.")

    def overfull(self, permit: Permit) -> None:
        """The calls in flight are together more than the server can hold: half as many, and never
        again as many as now."""
        if permit.cuts >= self._cuts:
            self._concurrency = min(self._concurrency, max(1, self.in_flight - 1))
        self.slow_down(permit, None)
        self._window = min(self._window, float(self._concurrency))

    def believe(self, headers: RateHeaders) -> None:
        """Keep to what a server says of its limits, where that is less than the user's."""
        if headers.calls_limit:
            self.at_most(headers.calls_limit)
        limits = (headers.requests_limit, headers.tokens_limit)
        if limits != self._believed:
            self._adopt(limits)
        remaining = headers.requests_remaining, headers.tokens_remaining
        if any(left is not None and left <= 0 for left in remaining):
            self._pause(headers)

    def abort(self) -> None:
        """A stop was asked for: whoever waits, or comes, gets StoppedError."""
        self._aborted = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_exception(StoppedError("the run was stopped"))

    def _pause(self, headers: RateHeaders) -> None:
        """Nothing remains: wait a moment. A bucket fills again bit by bit, whatever its reset says."""
        resets = [
            reset
            for remaining, reset in (
                (headers.requests_remaining, headers.requests_reset),
                (headers.tokens_remaining, headers.tokens_reset),
            )
            if remaining is not None and remaining <= 0 and reset is not None
        ]
        pause = min(SHORT_PAUSE, max(resets, default=SHORT_PAUSE))
        self._paused_until = max(self._paused_until, self._clock() + pause)

    def _adopt(self, limits: tuple[float | None, float | None]) -> None:
        first = self._believed == (None, None)
        self._believed = limits
        rpm, tpm = (_lower(*pair) for pair in zip(self._given, limits, strict=True))
        self._requests.set_limit(rpm)
        self._tokens.set_limit(tpm)
        if first and (rpm, tpm) != self._given:
            said = [
                f"{limit:,.0f} {what}"
                for limit, what in ((rpm, "requests"), (tpm, "tokens"))
                if limit is not None
            ]
            self._notify(f"The server allows {' and '.join(said)} a minute; the run keeps to that.")

    def _paced(self, now: float) -> float:
        """The share of the full pace now."""
        return min(1.0, self._pace + max(0.0, now - self._pace_at) * RECOVERY)

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

    def _take(self, tokens: float) -> float:
        """Take what a call needs from the limits: 0, or the seconds until it may go."""
        delay = self._delay()
        if delay > 0:
            return delay
        if self._requests.limit is self._tokens.limit is None:
            return 0.0
        now = self._clock()
        pace = self._paced(now) / self._processes()
        wait = max(self._requests.gather(now, 1.0, pace), self._tokens.gather(now, tokens, pace))
        if wait <= 0:
            self._requests.take(1.0)
            self._tokens.take(tokens)
        return wait

    def _grant(self, tokens: float) -> Permit:
        self.in_flight += 1
        trying = self.outage.trying
        self._tries_in_flight += trying
        return Permit(tokens, self._cuts, trying)

    def _serve(self) -> None:
        """Grant what may go now, and see to it that the next is granted in time."""
        while self._waiting and not self._aborted:
            tokens, future = self._waiting[0]
            if future.done():  # cancelled
                self._waiting.popleft()
                continue
            delay = self._take(tokens)
            if delay > 0:
                self._wake_in(delay)
                return
            self._waiting.popleft()
            future.set_result(self._grant(tokens))

    def _wake_in(self, delay: float) -> None:
        if delay == math.inf:
            return  # whoever ends first serves
        due = self._clock() + delay
        if self._timer is not None:
            if due >= self._due - 0.001:
                return  # it looks again then
            self._timer.cancel()
        self._due = due
        self._timer = asyncio.get_running_loop().create_task(self._wake(delay))

    async def _wake(self, delay: float) -> None:
        await self._sleep(delay)
        self._timer = None
        self._serve()


class _Bucket:
    """So much a minute, evenly (None: any number). `level` is what may go now; it is negative while a
    debt is paid off."""

    __slots__ = ("_at", "_largest", "_level", "limit")

    def __init__(self, now: float) -> None:
        self.limit: float | None = None
        self._largest = 0.0
        self._level = 0.0
        self._at = now

    def set_limit(self, limit: float | None) -> None:
        """What has gathered under the limit before is kept; None is as before."""
        self.limit = self.limit if limit is None else limit

    def gather(self, now: float, amount: float, pace: float) -> float:
        """Let gather what came until now; seconds until `amount` may go, 0 if it may go now."""
        if self.limit is None:
            return 0.0
        # What is larger than a quarter of a minute goes out when that much has gathered, as a debt.
        needed = min(amount, self.limit / 4)
        if needed > self._largest:
            self._level += needed - self._largest if not self._largest else 0.0
            self._largest = needed
        full = self.limit / 60 * MARGIN
        rate = full * pace
        gathered = self._level + max(0.0, now - self._at) * rate
        self._level = min(gathered, self._largest + full * SLACK)
        self._at = now
        short = needed - self._level
        return short / rate if short > 1e-9 else 0.0

    def take(self, amount: float) -> None:
        self._level -= amount


def _lower(given: float | None, said: float | None) -> float | None:
    """The lower of two limits; one that isn't above 0 is none."""
    limits = [limit for limit in (given, said) if limit is not None and limit > 0]
    return min(limits, default=None)
