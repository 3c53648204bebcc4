"""Money: what may be spent, and who waits for leave to spend it.

A call reserves the most that it can cost before it is sent, so that what was spent and what is in flight
never exceed the cap together. Amounts are whole nano-dollars: rounding must not let one call too many
through.

Where several processes spend of one cap, each holds a slice of it. No call waits for the store: a slice
is about what a second takes, and one task of each process gets the next before it is used up. What a
process holds when it dies lapses, or counts as possibly paid.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import suppress
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import lru_cache
from typing import NamedTuple, Protocol

from judgeq.errors import BudgetError, RunError
from judgeq.judge.limiter import Turnstile
from judgeq.types import Clock, Notify

NANO = 1_000_000_000
POLL = 0.02
"""Seconds until a call asks again for what is being reserved."""
LOOK, SOON = 2.0, 0.1
"""Seconds between two questions: at most, since somebody may have changed the cap, and money that nobody
wanted since the last is given back; and at least, once half of a slice is used."""
AGAIN = 0.3
"""Seconds until money that wasn't left is asked for again."""
MORE = 1.25
"""So many times what a second takes is held."""
AWAY = 1.0
"""Seconds between two questions while the store can't be reached."""


def rounded_up(dollars: float | None) -> int:
    """Nano-dollars, rounded up."""
    return _nano(dollars, ROUND_CEILING) if dollars else 0


def rounded_down(dollars: float) -> int:
    """Nano-dollars, rounded down."""
    return _nano(dollars, ROUND_FLOOR)


@lru_cache(10_000)  # bounds and costs of calls are alike, and asked for by each who counts them
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
        """Set so much apart for a call: 0 if that is done, else the seconds until to ask again, infinite
        while calls in flight may turn out cheaper; None: it will never fit."""
        if self.cap is None or self.spent + self.reserved + amount <= self.cap:
            self.reserved += amount
            return 0.0
        self.exhausted = not self.reserved
        return math.inf if self.reserved else None

    def release(self, amount: int) -> None:
        """A call for which so much was reserved wasn't sent."""
        self.reserved -= amount


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

    settled: Callable[[int, int], None]
    """Called when outcomes were committed, with the nano-dollars that had been reserved for their calls,
    and those of them that are the worker's to spend again."""
    recount: Callable[[], None]
    """Called when what is held must be asked for anew: the cap was set, or attempts were refused that
    cost more than the worker holds."""

    @property
    def worker(self) -> int | None:
        """The worker whose money this process spends; None before it has one."""

    async def set_cap(self, cap: int | None) -> None:
        """The run may cost so many nano-dollars from now on (None: any number)."""

    async def reserve(self, held: int | None, least: int, wanted: int, reserved: int) -> Slice:
        """Give the worker, which has `held` so many nano-dollars in all by now, `wanted` more of the
        cap, or its share of what is left among those at work, `least` if that is less; nothing where
        not so much is left. It has `reserved` so many for calls that aren't settled."""


class Slices:
    """The money that this process holds, in nano-dollars, and the task that gets more of it. `notify`
    gets a sentence when the store can't be reached."""

    def __init__(
        self,
        keeper: Keeper,
        *,
        clock: Clock = time.monotonic,
        notify: Notify = lambda _: None,
    ) -> None:
        self.cap: int | None = None
        """What all processes may spend in all; None: any number."""
        self.spent = self.at_risk = 0  # by all of them, as far as known here
        self.free = self.reserved = 0  # for calls to come, and for those that aren't settled
        self._held: int | None = None  # both, and what is spent
        self._keeper = keeper
        self._clock = clock
        self._notify = notify
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._worker = keeper.worker
        # Since the last question, which was at `_asked_at`:
        self._taken = 0
        self._needed = 0  # by the call that waits
        self._soon = False  # the next can't wait
        self._asked_at = self._not_before = -math.inf
        self._largest = self._enough = 0  # of a call, and of a slice for a second
        self._never: int | None = None  # so much won't be had
        self._away = False  # the store
        keeper.settled, keeper.recount = self.settled, self.recount

    def reserve(self, amount: int) -> float | None:
        """As Allowance.reserve."""
        if self.cap is None:
            return 0.0
        self._check_worker()
        if self._held is not None and amount <= max(0, self.free):
            self.free -= amount
            self.reserved += amount
            self._taken += amount
            self._largest = max(self._largest, amount)
            if self.free < self._enough / 2:
                self._ask_soon()
            return 0.0
        if self._never is not None and amount >= self._never:
            self._never = None  # the next one asks for itself
            return None
        self._needed = amount
        self._ask_soon()
        return max(POLL, min(self._not_before - self._clock(), SOON))

    def release(self, amount: int) -> None:
        """As Allowance.release."""
        self.settled(amount, amount)

    def settled(self, reserved: int, freed: int) -> None:
        """Outcomes of calls were committed."""
        if self._held is not None:  # else it isn't ours any more
            self.reserved = max(0, self.reserved - reserved)
            self.free += freed

    def recount(self) -> None:
        """What is held is another now, and is asked for at once."""
        self._forget()
        self._ask_soon()

    async def open(self) -> None:
        """Learn the run's cap, and begin. Raises RunError where the store can't be reached."""
        self._answered(await self._keeper.reserve(None, 0, 0, 0), 0)
        self._task = asyncio.create_task(self._run(), name="judgeq-slices")

    async def close(self) -> None:
        """Give back what is left; where the store can't be reached, it lapses."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        with suppress(RunError):
            if self.cap is not None and self.free > 0:
                self._give_back()
                await self._keeper.reserve(self._held, 0, 0, self.reserved)

    async def ask(self) -> None:
        """Ask the store for the next slice: what is needed at least, and what a second takes at best.

        While nothing is in flight what is held is given back, and all that is needed asked for: so two
        that have too little each never wait for one another.
        """
        self._check_worker()
        now, needed = self._clock(), self._needed
        rate = self._taken / max(now - self._asked_at, SOON)
        self._enough = max(math.ceil(rate * MORE), 2 * self._largest)
        idle = not (self._taken or needed)
        if idle or not self.reserved or self.free > 4 * self._enough + needed:
            self._give_back()
        least = max(0, needed - self.free) if needed else 0
        wanted = 0 if idle else max(least, self._enough - self.free)
        self._asked_at, self._soon = now, False
        self._taken = self._needed = 0  # whoever still waits says so again
        try:
            given = await self._keeper.reserve(self._held, least, wanted, self.reserved)
        except RunError as error:
            if not self._away:
                self._notify(f"{error} Calls wait for it once what is allowed by now is used up.")
            self._away = self._soon = True
            self._not_before = self._clock() + AWAY
            return
        self._away = False
        self._answered(given, least)

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            due = max(self._not_before, self._asked_at + (SOON if self._soon else LOOK))
            if (delay := due - self._clock()) <= 0:
                await self.ask()
                continue
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), delay)

    def _ask_soon(self) -> None:
        if not self._soon:
            self._soon = True
            self._wake.set()

    def _answered(self, given: Slice, least: int) -> None:
        """The keeper gave so much to one who needed at least so much."""
        now, before, self.cap = self._clock(), self.cap, given.cap
        self.spent, self.at_risk = given.spent, given.at_risk
        self._never, self._not_before = None, now
        if before is None or given.cap is None:
            self._forget()
        if given.cap is None:
            return
        self._held = given.held
        if given.held is None:
            self.free, self._not_before = 0, now + AGAIN
            return
        self.free += given.granted
        if before not in (None, given.cap):
            self._give_back()  # it was held under another cap
            self._ask_soon()
        elif least and not given.granted:
            if self.reserved or given.pending:
                self._not_before = now + AGAIN
            else:
                self._never = least

    def _give_back(self) -> None:
        """Hold nothing for calls to come; the next question says so. A debt stays."""
        if self._held is not None:
            self._held -= max(0, self.free)
        self.free = min(0, self.free)

    def _check_worker(self) -> None:
        """What this process held as a worker that was found dead lapsed with it, and others may have it:
        it is forgotten once that begins anew under another number."""
        before, self._worker = self._worker, self._keeper.worker
        if before not in (None, self._worker):
            self._forget()

    def _forget(self) -> None:
        """What was held is no more: another worker's, or of no use."""
        self._held, self.free, self.reserved = None, 0, 0


class Budget:
    """Who waits for leave to spend, the first to come first: of what this process may spend, and of what
    several may together (`shared`)."""

    def __init__(self, allowance: Allowance | None = None, shared: Slices | None = None) -> None:
        self._own = allowance or Allowance()
        self._shared = shared
        self._refusing: Allowance | Slices = self._own
        self._turnstile = Turnstile(self._given)

    async def reserve(self, bound: float | None) -> None:
        """Return when a call that costs at most `bound` dollars may be sent; it is then reserved.

        Waits while calls in flight may turn out cheaper than reserved, the first to come first.
        Raises BudgetError when none is in flight and it still doesn't fit, StoppedError after a
        stop.
        """
        if self._is_capped:
            await self._turnstile.enter(_known(bound))

    def reserve_now(self, bound: float | None) -> float | None:
        """Reserve for a request that is to be sent later, in a batch, without waiting: as
        Allowance.reserve."""
        return self._take(rounded_up(_known(bound))) if self._is_capped else 0.0

    def exceeded(self, bound: float | None) -> BudgetError:
        """The error where a request that costs at most so much can't be paid."""
        by = self._refusing
        spent = f"${(by.spent - by.at_risk) / NANO:,.6g} is spent"
        if by.at_risk:
            spent += f", up to ${by.at_risk / NANO:,.6g} more perhaps (calls of unknown cost)"
        return BudgetError(
            f"the next call might exceed --max-cost {(by.cap or 0) / NANO:,.6g}: {spent}, and the call "
            f"may cost up to ${bound or 0:,.3g}.",
            cap=(by.cap or 0) / NANO,
            left=((by.cap or 0) - by.spent) / NANO,
        )

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
        if self._is_capped:
            self._own.release(rounded_up(bound))
            if self._shared is not None:
                self._shared.release(rounded_up(bound))
            self._turnstile.look()

    def abort(self) -> None:
        """A stop was asked for: whoever waits, or comes, gets StoppedError."""
        self._turnstile.abort()

    @property
    def _is_capped(self) -> bool:
        shared = self._shared
        return self._own.cap is not None or (shared is not None and shared.cap is not None)

    def _given(self, bound: float) -> float | None:
        """As Turnstile wants it."""
        wait = self._take(rounded_up(bound))
        if wait is None:
            raise self.exceeded(bound)
        return wait or None

    def _take(self, amount: int) -> float | None:
        """Reserve of both, or of neither."""
        self._refusing, wait = self._own, self._own.reserve(amount)
        if wait == 0 and self._shared is not None:
            self._refusing, wait = self._shared, self._shared.reserve(amount)
            if wait != 0:
                self._own.release(amount)
        return wait


def _known(bound: float | None) -> float:
    if bound is None:
        raise ValueError("a cap can't be held without knowing what a call may cost")
    return bound
