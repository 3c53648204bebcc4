"""What a run may spend: dollars up to a cap, requests and tokens a minute. Nothing here waits.

Budget and Limiter take from a `Spending`, and know who waits. `OwnSpending` is that of a run which one
process has to itself; where several share a run, their store can implement it, with slices of the
whole that each process holds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import NamedTuple, Protocol

NANO = 1_000_000_000
MARGIN = 0.985
"""Of a limit that is used: the network delivers evenly spaced calls a little less evenly."""
SLACK = 0.2
"""Seconds that a wake-up may be late without the pace being lost."""


class Grant(NamedTuple):
    """Whether it was granted; else the seconds until to ask again: infinite until a call of ours is
    settled, None for never."""

    granted: bool
    wait: float | None = 0.0


GRANTED, ONCE_SETTLED, NEVER = Grant(True), Grant(False, math.inf), Grant(False, None)


class Spending(Protocol):
    """Amounts are whole nano-dollars: rounding must not let one call too many through. Of the money
    that all processes spent, `at_risk` was possibly paid for calls that brought no answer."""

    @property
    def cap(self) -> int | None:
        """What may be spent in all; None: no cap."""

    @property
    def spent(self) -> int:
        """What was spent, possibly."""

    @property
    def at_risk(self) -> int:
        """What of that isn't certain."""

    @property
    def reserved(self) -> int:
        """What is set apart for calls in flight."""

    def reserve(self, amount: int) -> Grant:
        """Set so much of the cap apart for a call that is about to be sent."""

    def settle(self, amount: int, cost: int, at_risk: int) -> None:
        """A call for which `amount` was reserved cost `cost`, of which `at_risk` isn't certain."""

    def release(self, amount: int) -> None:
        """A call for which `amount` was reserved wasn't sent."""

    def set_limits(self, bucket: str, requests: float | None, tokens: float | None) -> None:
        """The requests and tokens a minute that may be taken from a bucket (None: any number)."""

    def set_calls(self, bucket: str, calls: int) -> None:
        """So many calls of a bucket may be in flight together, those of other processes included."""

    def limits(self, bucket: str) -> tuple[float | None, float | None]:
        """The limits in force."""

    def take(self, bucket: str, tokens: float, pace: float) -> float:
        """Take a request of so many tokens, at this share of the full pace: 0.0, or the seconds until
        to ask again."""

    def ended(self, bucket: str) -> None:
        """A request that was taken is over."""

    def slow_down(self, bucket: str) -> None:
        """A request was refused: other processes are to slow down as well."""

    def pause(self, bucket: str, seconds: float) -> None:
        """No process is to send requests for so many seconds."""

    def settle_tokens(self, bucket: str, tokens: float) -> None:
        """A request took so many tokens more than was taken for it (fewer, where negative)."""


class OwnSpending:
    """See `Spending`. Dollars that may be spent in all (`cap`; None: no cap); before, `spent` were, and
    `at_risk` were possibly paid. What batches hold that earlier sessions sent is `reserved`: it will be
    settled. `exhausted`: the last call that was asked for will never fit."""

    def __init__(
        self,
        cap: float | None = None,
        spent: float = 0.0,
        at_risk: float = 0.0,
        *,
        reserved: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cap = None if cap is None else rounded_down(cap)
        self.at_risk = rounded_up(at_risk)
        self.spent = rounded_up(spent) + self.at_risk
        self.reserved = rounded_up(reserved)
        self.exhausted = False
        self._clock = clock
        self._buckets: dict[str, tuple[_Bucket | None, _Bucket | None]] = {}

    def reserve(self, amount: int) -> Grant:
        """See Spending."""
        if self.cap is None or self.spent + self.reserved + amount <= self.cap:
            self.reserved += amount
            return GRANTED
        self.exhausted = not self.reserved
        return ONCE_SETTLED if self.reserved else NEVER  # what is in flight may turn out cheaper

    def settle(self, amount: int, cost: int, at_risk: int) -> None:
        """See Spending."""
        self.reserved -= amount
        self.spent += cost
        self.at_risk += at_risk

    def release(self, amount: int) -> None:
        """See Spending."""
        self.reserved -= amount

    def set_calls(self, bucket: str, calls: int) -> None:
        """See Spending. No other process has any: the limiter counts them."""

    def ended(self, bucket: str) -> None:
        """See Spending."""

    def slow_down(self, bucket: str) -> None:
        """See Spending. There is no other process."""

    def pause(self, bucket: str, seconds: float) -> None:
        """See Spending. There is no other process."""

    def set_limits(self, bucket: str, requests: float | None, tokens: float | None) -> None:
        """See Spending. What has gathered under the limits before is kept."""
        before = self._buckets.get(bucket, (None, None))
        self._buckets[bucket] = (
            self._limited(before[0], requests),
            self._limited(before[1], tokens),
        )

    def _limited(self, bucket: _Bucket | None, limit: float | None) -> _Bucket | None:
        if limit is None:
            return bucket
        if bucket is None:
            return _Bucket(limit, self._clock())
        bucket.set_limit(limit)
        return bucket

    def limits(self, bucket: str) -> tuple[float | None, float | None]:
        """See Spending."""
        requests, tokens = self._buckets.get(bucket, (None, None))
        return requests.limit if requests else None, tokens.limit if tokens else None

    def take(self, bucket: str, tokens: float, pace: float) -> float:
        """See Spending."""
        of_requests, of_tokens = self._buckets.get(bucket, (None, None))
        if of_requests is None and of_tokens is None:
            return 0.0
        now, wait = self._clock(), 0.0
        if of_requests is not None:
            wait = of_requests.gather(now, 1.0, pace)
        if of_tokens is not None:
            wait = max(wait, of_tokens.gather(now, tokens, pace))
        if wait <= 0:
            if of_requests is not None:
                of_requests.take(1.0)
            if of_tokens is not None:
                of_tokens.take(tokens)
        return wait

    def settle_tokens(self, bucket: str, tokens: float) -> None:
        """See Spending."""
        of_tokens = self._buckets.get(bucket, (None, None))[1]
        if of_tokens is not None:
            of_tokens.take(tokens)


class _Bucket:
    """So much a minute, evenly. `level` is what may go now; it is negative while a debt is paid off."""

    __slots__ = ("_at", "_largest", "_level", "limit", "rate")

    def __init__(self, limit: float, now: float) -> None:
        self.limit = limit
        self.rate = limit / 60 * MARGIN
        self._largest = 0.0
        self._level = 0.0
        self._at = now

    def set_limit(self, limit: float) -> None:
        self.limit = limit
        self.rate = limit / 60 * MARGIN

    def gather(self, now: float, amount: float, pace: float) -> float:
        """Let gather what came until now; seconds until `amount` may go, 0 if it may go now."""
        # What is larger than a quarter of a minute goes out when that much has gathered, as a debt.
        needed = min(amount, self.limit / 4)
        if needed > self._largest:
            self._level += needed - self._largest if not self._largest else 0.0
            self._largest = needed
        rate = self.rate * pace
        gathered = self._level + max(0.0, now - self._at) * rate
        self._level = min(gathered, self._largest + self.rate * SLACK)
        self._at = now
        short = needed - self._level
        return short / rate if short > 1e-9 else 0.0

    def take(self, amount: float) -> None:
        self._level -= amount


def rounded_up(dollars: float | None) -> int:
    """Nano-dollars, rounded up."""
    return _nano(dollars, ROUND_CEILING) if dollars else 0


def rounded_down(dollars: float) -> int:
    """Nano-dollars, rounded down."""
    return _nano(dollars, ROUND_FLOOR)


def _nano(dollars: float, rounding: str) -> int:
    """Nano-dollars of the decimal that `dollars` is printed as, which is what was meant by it."""
    return int((Decimal(repr(dollars)) * NANO).to_integral_value(rounding))
