"""Money: what may be spent, and who waits for leave to spend it.

A call reserves the most that it can cost before it is sent, so that what was spent and what is in flight
never exceed the cap together. Amounts are whole nano-dollars: rounding must not let one call too many
through. What several processes spend of one cap is slices.py's.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from judgeq.errors import BudgetError
from judgeq.judge.limiter import Turnstile
from judgeq.judge.slices import Slices

NANO = 1_000_000_000


def rounded_up(dollars: float | None) -> int:
    """Nano-dollars, rounded up."""
    return _nano(dollars, ROUND_CEILING) if dollars else 0


def rounded_down(dollars: float) -> int:
    """Nano-dollars, rounded down."""
    return _nano(dollars, ROUND_FLOOR)


def _nano(dollars: float, rounding: str) -> int:
    """Nano-dollars of the decimal that `dollars` is printed as, which is what was meant by it."""
    return int((Decimal(repr(dollars)) * NANO).to_integral_value(rounding))


class Allowance:
    """Dollars that one process may spend in all (`cap`; None: any number); before, `spent` were, and
    `at_risk` were possibly paid. What batches hold that earlier sessions sent is `reserved`: it will be
    settled."""

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
        """The last call that was asked for will never fit."""

    def reserve(self, amount: int) -> float | None:
        """As Slices.reserve: infinite seconds while calls in flight may turn out cheaper."""
        if self.cap is None or self.spent + self.reserved + amount <= self.cap:
            self.reserved += amount
            return 0.0
        self.exhausted = not self.reserved
        return math.inf if self.reserved else None


class Budget:
    """Who waits for leave to spend, the first to come first: of what this process may spend, and of what
    several may together (`shared`)."""

    def __init__(self, allowance: Allowance | None = None, shared: Slices | None = None) -> None:
        self._own = allowance or Allowance()
        self._shared = shared
        self._turnstile = Turnstile(self._given)

    @property
    def _decisive(self) -> Allowance | Slices:
        """The one whose cap an error is about."""
        shared = self._shared
        return self._own if self._own.exhausted or shared is None or shared.cap is None else shared

    @property
    def cap(self) -> float | None:
        """Dollars that may be spent in all."""
        cap = self._decisive.cap
        return None if cap is None else cap / NANO

    async def reserve(self, bound: float | None) -> None:
        """Return when a call that costs at most `bound` dollars may be sent; it is then reserved.

        Waits while calls in flight may turn out cheaper than reserved, the first to come first.
        Raises BudgetError when none is in flight and it still doesn't fit, StoppedError after a
        stop.
        """
        if self._decisive.cap is None:
            return
        await self._turnstile.enter(_amount(bound))

    def reserve_now(self, bound: float | None) -> float | None:
        """Reserve for a request that is to be sent later, in a batch, without waiting: as
        Slices.reserve."""
        return 0.0 if self._decisive.cap is None else self._take(_amount(bound))

    def exceeded(self, bound: float | None) -> BudgetError:
        """The error where a request that costs at most so much can't be paid."""
        return self._exceeded(rounded_up(bound))

    def settle(self, bound: float | None, cost: float | None) -> None:
        """A reserved call is over: it cost `cost` dollars; or (None) possibly all of its bound. Of what
        several share it is taken once the store has committed it."""
        own = self._own
        if own.cap is not None:
            lost = rounded_up(bound) if cost is None else 0
            own.reserved -= rounded_up(bound)
            own.spent += lost or rounded_up(cost)
            own.at_risk += lost
        self._turnstile.look()

    def release(self, bound: float | None) -> None:
        """A reserved call wasn't sent."""
        if self._decisive.cap is not None:
            self._give_back(rounded_up(bound))
            self._turnstile.look()

    def abort(self) -> None:
        """A stop was asked for: whoever waits, or comes, gets StoppedError."""
        self._turnstile.abort()

    def _given(self, amount: float) -> float | None:
        """As Turnstile wants it."""
        wait = self._take(int(amount))
        if wait is None:
            raise self._exceeded(int(amount))
        return wait or None

    def _take(self, amount: int) -> float | None:
        """Reserve of both, or of neither."""
        wait = self._own.reserve(amount)
        if wait == 0 and self._shared is not None:
            wait = self._shared.reserve(amount)
            if wait != 0:
                self._own.reserved -= amount
        return wait

    def _give_back(self, amount: int) -> None:
        self._own.reserved -= amount
        if self._shared is not None:
            self._shared.release(amount)

    def _exceeded(self, amount: int) -> BudgetError:
        by = self._decisive
        spent = f"${(by.spent - by.at_risk) / NANO:,.6g} is spent"
        if by.at_risk:
            spent += f", up to ${by.at_risk / NANO:,.6g} more perhaps (calls of unknown cost)"
        return BudgetError(
            f"the next call might exceed --max-cost {self.cap:,.6g}: {spent}, and the call may cost up "
            f"to ${amount / NANO:,.3g}. A smaller --max-output-tokens lowers that."
        )


def _amount(bound: float | None) -> int:
    if bound is None:
        raise ValueError("a cap can't be held without knowing what a call may cost")
    return rounded_up(bound)
