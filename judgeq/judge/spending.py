"""What a run may spend: dollars up to a cap. Nothing here waits.

Budget takes from a `Spending`, and knows who waits. `OwnSpending` is that of a run which one process has
to itself; where several share a run, `SharedSpending` holds slices of the whole.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import NamedTuple, Protocol

NANO = 1_000_000_000


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
    ) -> None:
        self.cap = None if cap is None else rounded_down(cap)
        self.at_risk = rounded_up(at_risk)
        self.spent = rounded_up(spent) + self.at_risk
        self.reserved = rounded_up(reserved)
        self.exhausted = False

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


def rounded_up(dollars: float | None) -> int:
    """Nano-dollars, rounded up."""
    return _nano(dollars, ROUND_CEILING) if dollars else 0


def rounded_down(dollars: float) -> int:
    """Nano-dollars, rounded down."""
    return _nano(dollars, ROUND_FLOOR)


def _nano(dollars: float, rounding: str) -> int:
    """Nano-dollars of the decimal that `dollars` is printed as, which is what was meant by it."""
    return int((Decimal(repr(dollars)) * NANO).to_integral_value(rounding))
