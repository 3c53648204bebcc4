"""What a process holds of limits that several share: requests and tokens, each with the time at which
it may go.

A bucket is what a provider counts together. Who keeps it for all (`Keeper`, a store) strings what is
allowed a minute along a line of time and leases pieces of it, of about a second. A piece that isn't
used lapses soon after its time; so no window of a minute ever holds more than the limit, whoever
dies with what they held.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

HORIZON = 1.0
"""Seconds ahead of their time at which requests and tokens are leased."""
LATE = 0.5
"""Seconds after its time at which something leased lapses: no idle process gathers a burst."""
INTERVAL = 0.5
"""Seconds between two questions about a bucket that is busy."""
QUIET = 1.0
"""Seconds between two questions about a bucket without limits: whether others were refused."""
HEARTBEAT = 5.0
"""Seconds between two questions about a bucket while nothing but calls in flight is to be said."""
POLL = 0.02
"""Seconds until a call asks again for what is being leased."""
FIRST = 8
"""Requests to begin with."""
MORE = 1.25
"""So many times what was used is leased, so that more can be used."""


class Limits(NamedTuple):
    """Requests and tokens a minute, calls in flight; None: any number."""

    requests: float | None = None
    tokens: float | None = None
    calls: int | None = None

    def lowest(self, other: Limits) -> Limits:
        """The lower of each two."""
        return Limits(
            _lower(self.requests, other.requests),
            _lower(self.tokens, other.tokens),
            None if (calls := _lower(self.calls, other.calls)) is None else int(calls),
        )


class Ask(NamedTuple):
    """What a process says of a bucket, and wants of it: so many requests with so many tokens, at
    `least` those of the call that waits; `calls` in flight, where it has `in_flight`. A server
    `refused` a call, or told it to `pause` so many seconds. Of what it was leased last, at `last`, it
    doesn't need `unused`, which is its end."""

    said: Limits
    requests: int = 0
    tokens: float = 0.0
    least: float = 0.0
    in_flight: int = 0
    calls: int = 0
    refused: bool = False
    pause: float = 0.0
    last: str | None = None
    unused: tuple[float, float] = (0.0, 0.0)


class Piece(NamedTuple):
    """An amount, the first of which may go in `start` seconds, and the next at so many a second."""

    amount: float
    start: float
    rate: float


class Lease(NamedTuple):
    """The answer: pieces of both lines (None: there is no limit); else the seconds to `wait` until
    there can be some. All calls are `paused` for so many seconds. The limits of all holders; of the
    `calls` in flight so many are the asker's own. The run's `cap` in nano-dollars. `at` is when."""

    requests: Piece | None
    tokens: Piece | None
    wait: float
    paused: float
    limits: Limits
    calls: int | None
    cap: int | None
    at: str


class Slice(NamedTuple):
    """Of the run's cap, `granted` nano-dollars more are this worker's. It `held` (with what it spent)
    so many in all then; None: it is over, or not yet there. What all workers `spent`, of which `at_risk`
    isn't certain. `pending`: others hold some that may come back."""

    granted: int
    held: int | None
    cap: int | None
    spent: int
    at_risk: int
    pending: bool


class Keeper(Protocol):
    """A store that keeps for several processes what they may spend together. Raises RunError where it
    can't be reached; what was asked may then have been done or not."""

    @property
    def worker(self) -> int | None:
        """The worker whose money this process spends; None before it has one."""

    async def set_cap(self, cap: int | None) -> None:
        """The run may cost so many nano-dollars from now on (None: any number)."""

    def on_settled(self, settled: Callable[[int, int], None]) -> None:
        """Have `settled` called when outcomes were committed, with the nano-dollars that had been
        reserved for their calls, and those of them that are the worker's to spend again."""

    async def reserve(self, held: int | None, least: int, wanted: int, reserved: int) -> Slice:
        """Give the worker, which has `held` so many nano-dollars in all by now, `wanted` more of the
        cap, or as many as are left, but nothing where that is under `least`. It has `reserved` so many
        for calls that aren't settled."""

    async def lease(self, bucket: str, ask: Ask) -> Lease:
        """See Ask and Lease."""

    async def leave(self, bucket: str, ask: Ask) -> None:
        """This process sends no more calls."""

    async def close(self) -> None:
        """Let go."""


class Line:
    """What is held of one limit. `credit` is what calls took less than was taken for them."""

    __slots__ = ("_credit", "_largest", "_pieces", "_rate")

    def __init__(self) -> None:
        self._pieces: deque[list[float]] = deque()  # [time, rate, amount]
        self._credit = 0.0
        self._largest = 0.0
        self._rate = 0.0

    def add(self, piece: Piece, now: float) -> None:
        """A piece was leased."""
        self._rate = piece.rate
        if piece.amount > 0:
            self._pieces.append([now + piece.start, piece.rate, piece.amount])

    def left(self, now: float) -> float:
        """What may still be taken, now or later."""
        due, pieces = now - LATE, self._pieces
        while pieces and pieces[0][0] < due:
            time, rate, amount = pieces[0]
            lapsed = (due - time) * rate
            if lapsed < amount:
                pieces[0][0], pieces[0][2] = due, amount - lapsed
                break
            pieces.popleft()
        return self._credit + sum([piece[2] for piece in pieces])

    def lead(self, now: float) -> float:
        """Seconds until the last of it is due."""
        if not self._pieces:
            return 0.0
        time, rate, amount = self._pieces[-1]
        return max(0.0, time + amount / rate - now)

    def wait(self, now: float, amount: float) -> float | None:
        """Seconds until so much may be taken; None where it isn't there."""
        self._largest = max(self._largest, amount)
        if self.left(now) < amount - 1e-6:
            return None
        if self._credit >= amount or not self._pieces:
            return 0.0
        return max(0.0, self._pieces[0][0] - now)

    def take(self, amount: float) -> None:
        """Take what `wait` says may be taken."""
        amount -= self._credit
        self._credit = max(0.0, -amount)
        while amount > 1e-6 and self._pieces:
            piece = self._pieces[0]
            taken = min(amount, piece[2])
            amount -= taken
            piece[2] -= taken
            piece[0] += taken / piece[1]
            if piece[2] <= 1e-6:
                self._pieces.popleft()

    def settle(self, more: float) -> None:
        """So much more was taken (less, where negative). A debt is paid from what is leased next."""
        self._credit = min(self._credit - more, self._largest + self._rate * LATE)

    def lacks(self, amount: float) -> float:
        """What must be leased so that `amount` can be taken, though all that is held lapses."""
        return max(0.0, amount - min(0.0, self._credit))

    def give_back(self, now: float) -> float:
        """Hold nothing any more: what of it isn't due yet, which is given back."""
        self.left(now)
        unused = sum(
            [
                min(amount, max(0.0, (time - now) * rate + amount))
                for time, rate, amount in self._pieces
            ]
        )
        self._pieces.clear()
        return unused


class Bucket:
    """What this process holds of a bucket, and when to ask for what. Times are this process's own."""

    def __init__(self, wake: Callable[[], object] = lambda: None) -> None:
        self.said = Limits()
        self.limits = Limits()
        self.in_flight = 0
        self._wake = wake  # when `due` may have come nearer
        self._allowed: int | None = None
        self._peak = 0  # calls in flight since the last question
        self._known = self._asking = False
        self._lines = (Line(), Line())
        self._paused_until = -math.inf
        self._asked_at = -math.inf
        self._next = -math.inf  # the first time at which more can be leased
        self._away_until = -math.inf  # the keeper can't be reached
        self._last: str | None = None
        self._hungry = False  # a call waits for what isn't leased
        self._crowded = False  # a call waits for one in flight to end
        self._needs = 0.0  # tokens of the call that waits
        self._used = 0
        self._mean = 0.0  # tokens of a call
        self._wanted = FIRST
        self._refused = False
        self._pause = 0.0

    def say(self, limits: Limits) -> None:
        """This process knows of these limits."""
        if limits != self.said:
            self.said = limits
            self.limits = self.limits.lowest(limits)
            self._next = -math.inf
            self._wake()

    def refuse(self) -> None:
        """The server refused a call."""
        self._refused = True
        self._wake()

    def pause(self, now: float, seconds: float) -> None:
        """No calls for so many seconds."""
        self._paused_until = max(self._paused_until, now + seconds)
        self._pause = max(self._pause, seconds)
        self._wake()

    def take(self, now: float, tokens: float) -> float:
        """Take a request of so many tokens: 0.0, or the seconds until to ask again."""
        if now < self._paused_until:
            return self._paused_until - now
        if self._allowed is not None and self.in_flight >= self._allowed:
            if not (self._crowded or self._asking):
                self._crowded = True
                self._wake()
            return POLL
        if not self._known:
            return self._wants(now, tokens)
        of_requests, of_tokens = self._lines
        wait: float | None
        if self.limits.requests is not None:
            if (wait := of_requests.wait(now, 1.0)) is None:
                return self._wants(now, tokens)
            if wait > 0:
                return wait
        if self.limits.tokens is not None:
            if (wait := of_tokens.wait(now, tokens)) is None:
                return self._wants(now, tokens)
            if wait > 0:
                return wait
            of_tokens.take(tokens)
        if self.limits.requests is not None:
            of_requests.take(1.0)
        self.in_flight += 1
        self._peak = max(self._peak, self.in_flight)
        self._used += 1
        if self._used == 1:
            self._wake()
        self._mean += (tokens - self._mean) * 0.05 if self._mean else tokens
        return 0.0

    def _wants(self, now: float, tokens: float) -> float:
        self._needs = tokens
        if not self._hungry:
            self._hungry = True
            self._wake()
        return max(POLL, min(self._next - now, 1.0))

    def ended(self) -> None:
        """A call is over."""
        self.in_flight -= 1

    def settle_tokens(self, more: float) -> None:
        """A call took so many tokens more (fewer, where negative)."""
        if self.limits.tokens is not None:
            self._lines[1].settle(more)

    def due(self, now: float) -> float:
        """When to ask next; infinite: not until something happens."""
        return max(self._away_until, self._due(now))

    def _due(self, now: float) -> float:
        if self._refused or self._pause:
            return now
        if self._hungry:
            return max(self._next, self._asked_at + INTERVAL * 0.8) if self._known else self._next
        if not self._known:
            return math.inf
        if self._used:
            leads = [
                line.lead(now)
                for line, limit in zip(self._lines, self.limits[:2], strict=True)
                if limit is not None
            ]
            if not leads:
                return max(self._next, self._asked_at + QUIET)
            soon = now + min(leads) - HORIZON / 2
            return max(self._next, self._asked_at + INTERVAL, soon)
        if self._crowded:
            return max(self._next, self._asked_at + INTERVAL)
        if self._allowed is not None and self._allowed > self.in_flight:  # others may need it
            return max(self._next, self._asked_at + QUIET)
        if self.in_flight:
            return max(self._next, self._asked_at + HEARTBEAT)
        return math.inf

    def ask(self, now: float) -> Ask:
        """What to ask now."""
        of_requests, of_tokens = self._lines
        since = min(max(now - self._asked_at, 0.1), 60.0)
        wanted = math.ceil(self._used / since * HORIZON * MORE)
        if self._hungry:
            wanted = max(wanted + 1, 2 * self._wanted, FIRST)
        self._wanted = min(wanted, 100_000)
        left = of_requests.left(now) if self.limits.requests is not None else 0.0
        requests = max(int(self._hungry), math.ceil(self._wanted - left))
        least = of_tokens.lacks(self._needs or self._mean) if requests else 0.0
        tokens = self._wanted * self._mean
        if self.limits.tokens is not None:
            tokens -= of_tokens.left(now)
        ask = Ask(
            self.said,
            requests,
            max(least, tokens) if requests else 0.0,
            least,
            self.in_flight,
            self._calls_wanted(),
            self._refused,
            self._pause,
        )
        self._asked_at = now
        self._used, self._peak = 0, self.in_flight
        self._refused, self._pause = False, 0.0
        self._asking = True
        if self._allowed is not None:
            self._allowed = min(self._allowed, self.in_flight)  # until it is known what is ours now
        return ask

    def _calls_wanted(self) -> int:
        if self._crowded:
            return max(2 * self._peak, FIRST)
        return self._peak + 1 if self._used or self._hungry else self.in_flight

    def answered(self, now: float, lease: Lease) -> None:
        """The keeper answered."""
        self._known = True
        self._asking = self._hungry = self._crowded = False
        self._needs = 0.0
        self._last = lease.at
        self.limits = lease.limits.lowest(self.said)
        for line, piece in zip(self._lines, (lease.requests, lease.tokens), strict=True):
            if piece is not None:
                line.add(piece, now)
        self._allowed = lease.calls
        if lease.paused:
            self._paused_until = max(self._paused_until, now + lease.paused)
        elif not self._pause:
            self._paused_until = -math.inf
        self._next = now + lease.wait

    def unanswered(self, now: float, ask: Ask, again: float) -> None:
        """The keeper can't be reached: ask again in so many seconds."""
        self._refused = self._refused or ask.refused
        self._pause = max(self._pause, ask.pause)
        self._hungry = True
        self._asking = False
        self._away_until = now + again

    def farewell(self, now: float) -> Ask:
        """What to say at the end, or when nothing more is wanted."""
        requests, tokens = (line.give_back(now) for line in self._lines)
        return Ask(self.said, last=self._last, unused=(requests, tokens))


def _lower(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
