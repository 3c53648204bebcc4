"""`--max-cost`: a call reserves the most it can cost before it is sent.

So what was spent and what is in flight never exceed the cap together, however many calls run beside
one another. Amounts are kept in whole nano-dollars: rounding must not let one call too many through.
"""

from __future__ import annotations

import asyncio
from collections import deque
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from judgeq.errors import BudgetError, StoppedError

NANO = 1_000_000_000


class Budget:
    """Dollars that may be spent in all (`cap`; None: no cap), and what was spent before (`spent`)."""

    def __init__(self, cap: float | None, spent: float = 0.0) -> None:
        self._cap = None if cap is None else _nano(cap, ROUND_FLOOR)
        self._spent = _up(spent)
        self._reserved = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._aborted = False

    @property
    def cap(self) -> float | None:
        """Dollars that may be spent in all."""
        return None if self._cap is None else self._cap / NANO

    @property
    def spent(self) -> float:
        """Dollars spent, with what may have been paid without an answer."""
        return self._spent / NANO

    @property
    def reserved(self) -> float:
        """Dollars that the calls in flight may cost."""
        return self._reserved / NANO

    async def reserve(self, bound: float | None) -> None:
        """Return when a call that costs at most `bound` dollars may be sent; it is then reserved.

        Waits while calls in flight may turn out cheaper than reserved, the first to come first.
        Raises BudgetError when none is in flight and it still doesn't fit, StoppedError after a
        stop.
        """
        if self._cap is None:
            return
        if bound is None:
            raise ValueError("a cap can't be held without knowing what a call may cost")
        if self._aborted:
            raise StoppedError("the run was stopped")
        amount = _up(bound)
        if not self._waiting and self._fits(amount):
            self._reserved += amount
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((amount, future))
        self._serve()
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._reserved -= amount  # granted and cancelled in the same turn
            self._serve()
            raise

    def settle(self, bound: float | None, cost: float | None) -> None:
        """A reserved call is over: it cost `cost` dollars, or (None) possibly all of its bound."""
        if self._cap is None:
            self._spent += _up(bound if cost is None else cost)
            return
        amount = _up(bound)
        self._reserved -= amount
        self._spent += amount if cost is None else _up(cost)
        self._serve()

    def abort(self) -> None:
        """A stop was asked for: whoever waits, or comes, gets StoppedError."""
        self._aborted = True
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_exception(StoppedError("the run was stopped"))

    def _fits(self, amount: int) -> bool:
        return self._cap is not None and self._spent + self._reserved + amount <= self._cap

    def _serve(self) -> None:
        """Let through who fits, in order; who can't ever is told."""
        while self._waiting:
            amount, future = self._waiting[0]
            if future.done():  # cancelled
                self._waiting.popleft()
                continue
            if self._fits(amount):
                self._reserved += amount
                future.set_result(None)
            elif self._reserved:
                return  # what is in flight may turn out cheaper
            else:
                future.set_exception(self._used_up(amount))
            self._waiting.popleft()

    def _used_up(self, amount: int) -> BudgetError:
        return BudgetError(
            f"the budget of ${self.cap:,.6g} is used up: ${self.spent:,.6g} is spent or possibly "
            f"paid, and the next call may cost up to ${amount / NANO:,.3g}, as which it is reserved "
            "(--max-output-tokens bounds it)."
        )


def _up(dollars: float | None) -> int:
    """Nano-dollars, rounded up."""
    return _nano(dollars, ROUND_CEILING) if dollars else 0


def _nano(dollars: float, rounding: str) -> int:
    """Nano-dollars of the decimal that `dollars` is printed as, which is what was meant by it."""
    return int((Decimal(repr(dollars)) * NANO).to_integral_value(rounding))
