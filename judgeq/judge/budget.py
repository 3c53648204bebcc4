"""`--max-cost`: a call reserves the most it can cost before it is sent.

So what was spent and what is in flight never exceed the cap together, however many calls run beside
one another. Amounts are kept in whole nano-dollars: rounding must not let one call too many through.
"""

from __future__ import annotations

import asyncio
from collections import deque

from judgeq.errors import BudgetError, StoppedError
from judgeq.judge.spending import GRANTED, NANO, Grant, OwnSpending, Spending, rounded_up


class Budget:
    """Who waits for leave to spend, the first to come first: of what the run may spend, and of what this
    process may (`own`), whatever others make of the run's cap. Without either there is no cap."""

    def __init__(self, spending: Spending | None = None, own: OwnSpending | None = None) -> None:
        self._spending = spending or OwnSpending()
        self._own = own or OwnSpending()
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._aborted = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def _capped(self) -> list[Spending]:
        """Those that have a cap."""
        return [each for each in (self._own, self._spending) if each.cap is not None]

    @property
    def _decisive(self) -> Spending:
        """The one whose cap an error is about."""
        return self._own if self._own.exhausted or self._spending.cap is None else self._spending

    @property
    def cap(self) -> float | None:
        """Dollars that may be spent in all."""
        return None if self._decisive.cap is None else self._decisive.cap / NANO

    async def reserve(self, bound: float | None) -> None:
        """Return when a call that costs at most `bound` dollars may be sent; it is then reserved.

        Waits while calls in flight may turn out cheaper than reserved, the first to come first.
        Raises BudgetError when none is in flight and it still doesn't fit, StoppedError after a
        stop.
        """
        if not self._capped:
            return
        if bound is None:
            raise ValueError("a cap can't be held without knowing what a call may cost")
        if self._aborted:
            raise StoppedError("the run was stopped")
        amount = rounded_up(bound)
        if not self._waiting and self._reserve(amount).granted:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((amount, future))
        self._serve()
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._release(amount)  # granted and cancelled in the same turn
            self._serve()
            raise

    def reserve_now(self, bound: float | None) -> Grant:
        """Reserve for a request that is to be sent later, in a batch; or say when to ask again, without
        waiting."""
        if not self._capped:
            return GRANTED
        if bound is None:
            raise ValueError("a cap can't be held without knowing what a call may cost")
        return self._reserve(rounded_up(bound))

    def exceeded(self, bound: float | None) -> BudgetError:
        """The error where a request that costs at most so much can't be paid."""
        return self._exceeded(rounded_up(bound))

    def settle(self, bound: float | None, cost: float | None, risk: float | None = None) -> None:
        """A reserved call is over: it cost `cost` dollars; or (None) possibly `risk`, or (None) all of
        its bound."""
        lost = rounded_up(bound if risk is None else risk) if cost is None else 0
        for each in self._capped:
            each.settle(rounded_up(bound), lost or rounded_up(cost), lost)
        if self._waiting:
            self._serve()

    def release(self, bound: float | None) -> None:
        """A reserved call wasn't sent."""
        self._release(rounded_up(bound))
        if self._waiting:
            self._serve()

    def abort(self) -> None:
        """A stop was asked for: whoever waits, or comes, gets StoppedError."""
        self._aborted = True
        if self._timer is not None:
            self._timer.cancel()
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_exception(StoppedError("the run was stopped"))

    def _reserve(self, amount: int) -> Grant:
        """Of all that have a cap, or of none."""
        for number, each in enumerate(self._capped):
            grant = each.reserve(amount)
            if not grant.granted:
                for other in self._capped[:number]:
                    other.release(amount)
                return grant
        return GRANTED

    def _release(self, amount: int) -> None:
        for each in self._capped:
            each.release(amount)

    def _serve(self) -> None:
        """Let through whoever fits, in order; whoever never can gets the error."""
        while self._waiting:
            amount, future = self._waiting[0]
            if future.done():  # cancelled
                self._waiting.popleft()
                continue
            grant = self._reserve(amount)
            if grant.granted:
                future.set_result(None)
            elif grant.wait is None:
                future.set_exception(self._exceeded(amount))
            else:
                self._ask_again(grant)
                return
            self._waiting.popleft()

    def _ask_again(self, grant: Grant) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if grant.wait is not None and grant.wait < float("inf"):
            self._timer = asyncio.get_running_loop().call_later(grant.wait, self._serve)

    def _exceeded(self, amount: int) -> BudgetError:
        lost = self._decisive.at_risk
        spent = f"${(self._decisive.spent - lost) / NANO:,.6g} is spent"
        if lost:
            spent += (
                f", up to ${lost / NANO:,.6g} more may have been paid for calls of unknown cost"
            )
        return BudgetError(
            f"the next call might exceed --max-cost {self.cap:,.6g}: {spent}, and a call is reserved "
            f"with the most that it can cost, ${amount / NANO:,.3g} (a smaller --max-output-tokens "
            "lowers that)."
        )
