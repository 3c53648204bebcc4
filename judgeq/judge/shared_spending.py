"""What a run may spend where several processes spend it: each holds a slice of the whole.

No call waits for the store: a slice is about what a second takes, and one task of each process gets
the next before it is used up. What a process holds when it dies lapses, or counts as possibly paid.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

from judgeq.errors import RunError
from judgeq.judge.spending import GRANTED, NEVER, Grant

POLL = 0.02
"""Seconds until a call asks again for what is being reserved."""
LOOK = 5.0
"""Seconds between two questions at most: somebody may have changed the cap."""
AGAIN = 0.3
"""Seconds until money that wasn't left is asked for again."""
LOW = 0.5
"""Seconds between two slices of money while they suffice."""
SOON = 0.1
"""Seconds between two slices of money while they are too small."""
IDLE = 2.0
"""Seconds after which money that nobody wants is given back."""
MORE = 1.25
"""So many times what a second takes is held."""
FIRST_WAIT, LONGEST_WAIT = 0.25, 5.0
"""Seconds between two questions while the store can't be reached: the first wait, doubled up to the
longest."""


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

    async def close(self) -> None:
        """Let go."""


class Purse:
    """The money that this process holds, in nano-dollars. `free` is what it may reserve for calls,
    `reserved` what it did for calls that aren't settled; the rest of what it `held` is spent."""

    def __init__(self, wake: Callable[[], object] = lambda: None) -> None:
        self._wake = wake  # when `due` may have come nearer
        self.cap: int | None = None
        self.spent = self.at_risk = 0
        self.free = self.reserved = 0
        self._held: int | None = None
        self._gross = 0  # reserved since the last question
        self._largest = 0
        self._target = 0
        self._needs = 0  # by the call that waits
        self._asked = 0  # at least
        self._never: int | None = None
        self._asked_at = self._used_at = -math.inf
        self._next = -math.inf
        self._said_none = True
        self._changed = False

    def reserve(self, now: float, amount: int) -> Grant:
        """See Spending."""
        if self.cap is None:
            return GRANTED
        if amount <= self.free:
            self.free -= amount
            self.reserved += amount
            if not self._gross:
                self._wake()
            self._gross += amount
            self._largest = max(self._largest, amount)
            self._used_at = now
            return GRANTED
        if self._never is not None and amount >= self._never:
            self._never = None  # the next one asks for itself
            return NEVER
        if not self._needs:
            self._wake()
        self._needs = amount
        return Grant(False, max(POLL, min(self._next - now, SOON)))

    def release(self, amount: int) -> None:
        """A call for which so much was reserved wasn't sent."""
        if self.cap is not None:
            self.reserved = max(0, self.reserved - amount)
            self.free += amount

    def settled(self, reserved: int, freed: int) -> None:
        """Outcomes of calls were committed."""
        if self.cap is not None:
            self.reserved = max(0, self.reserved - reserved)
            self.free += freed
            if not self.reserved:
                self._wake()

    def due(self, now: float) -> float:
        """When to ask next."""
        due = self._asked_at + LOOK
        if self.cap is None:
            pass
        elif self._changed:
            due = self._next
        elif self._needs:
            due = self._asked_at + SOON
        elif self._gross and self.free < self._target / 2:
            due = self._asked_at + LOW
        elif self.free > 0 or not (self.reserved or self._said_none):
            due = min(due, max(self._asked_at, self._used_at) + IDLE)
        return max(self._next, due)

    def ask(self, now: float) -> tuple[int | None, int, int, int]:
        """What the worker holds; at least, and best, more of the cap; and what it has reserved.

        While nothing is in flight it gives back what it has, and asks for all that it needs: so two
        that have too little each never wait for one another.
        """
        since = min(max(now - self._asked_at, SOON), 60.0)
        idle = not self._needs and now - self._used_at >= IDLE
        rate = self._gross / since
        target = max(math.ceil(rate * MORE), 2 * self._largest)
        self._target = max(target, 2 * self._target) if self._needs and self._gross else target
        least, wanted = 0, 0 if idle else max(self._target, self._needs)
        surplus = idle or self._changed or self.free > 4 * self._target + self._needs
        if not self.reserved or surplus:
            if self._held is not None:
                self._held -= max(0, self.free)
            self.free = min(0, self.free)
        if self._needs:
            least = self._needs - self.free
        wanted = max(least, wanted - self.free)
        self._asked_at, self._asked, self._gross = now, least, 0
        self._changed = False
        return self._held, least, 0 if idle else wanted, self.reserved

    def answered(self, now: float, given: Slice) -> None:
        """The keeper gave so much."""
        self._changed = None not in (self.cap, given.cap) and self.cap != given.cap
        if given.cap is None or self.cap is None:
            self.reset()
        self.cap, self.spent, self.at_risk = given.cap, given.spent, given.at_risk
        self._never, self._needs = None, 0  # whoever still waits says so again
        self._next = now
        if given.cap is None:
            return
        self._held = given.held
        if given.held is None:
            self.free = 0
            self._next = now + AGAIN
            return
        self.free += given.granted
        self._said_none = not (given.granted or self.reserved)
        if self._asked and not given.granted:
            if self.reserved or given.pending:
                self._next = now + AGAIN
            else:
                self._never = self._asked

    def unanswered(self, now: float, again: float) -> None:
        """The keeper can't be reached: ask again in so many seconds."""
        self._next = now + again

    def farewell(self) -> tuple[int | None, int, int, int]:
        """What to ask at the end: nothing, and hold nothing any more."""
        held = None if self._held is None else self._held - max(0, self.free)
        self.free = min(0, self.free)
        return held, 0, 0, self.reserved

    def reset(self) -> None:
        """What was held is no more: another worker's, or of no use."""
        self._held, self.free, self.reserved = None, 0, 0
        self._said_none = False


class SharedSpending:
    """See Spending. `notify` gets a sentence when the store can't be reached."""

    def __init__(
        self,
        keeper: Keeper,
        *,
        clock: Callable[[], float] = time.monotonic,
        notify: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._keeper = keeper
        self._clock = clock
        self._notify = notify
        self._wake = asyncio.Event()
        self._purse = Purse(self._wake.set)
        self._worker: int | None = None
        self._task: asyncio.Task[None] | None = None
        self._wait = 0.0
        self._reported = False
        keeper.on_settled(self._purse.settled)

    # What Budget uses

    @property
    def cap(self) -> int | None:
        """See Spending."""
        return self._purse.cap

    @property
    def spent(self) -> int:
        """See Spending."""
        return self._purse.spent

    @property
    def at_risk(self) -> int:
        """See Spending."""
        return self._purse.at_risk

    @property
    def reserved(self) -> int:
        """See Spending: for calls of this process."""
        return self._purse.reserved

    def reserve(self, amount: int) -> Grant:
        """See Spending."""
        return self._purse.reserve(self._clock(), amount)

    def settle(self, amount: int, cost: int, at_risk: int) -> None:
        """See Spending. It counts once the store has committed it: see Keeper.on_settled."""

    def release(self, amount: int) -> None:
        """See Spending."""
        self._purse.release(amount)

    # The task that gets the slices

    async def open(self) -> None:
        """Learn the run's cap, and begin. Raises RunError where the store can't be reached."""
        self._purse.answered(self._clock(), await self._keeper.reserve(None, 0, 0, 0))
        self._task = asyncio.create_task(self._run(), name="judgeq-slices")

    async def close(self) -> None:
        """Give back what is left; where the store can't be reached, it lapses."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        with suppress(RunError):
            if self.cap is not None and self._purse.free > 0:
                await self._keeper.reserve(*self._purse.farewell())
        await self._keeper.close()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            delay = self.due() - self._clock()
            if delay > 0:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), delay)
                continue
            await self.turn()

    def due(self) -> float:
        """When the store is to be asked next."""
        return self._purse.due(self._clock())

    async def turn(self) -> None:
        """Ask the store for what is due."""
        purse, now = self._purse, self._clock()
        if purse.due(now) > now:
            return
        if self._keeper.worker != self._worker:
            if self._worker is not None:
                purse.reset()
            self._worker = self._keeper.worker
        question = purse.ask(now)
        try:
            given = await self._keeper.reserve(*question)
        except RunError as error:
            self._wait = min(max(FIRST_WAIT, 2 * self._wait), LONGEST_WAIT)
            purse.unanswered(self._clock(), self._wait)
            if not self._reported:
                self._reported = True
                self._notify(f"{error} Calls wait for it once what is allowed by now is used up.")
            return
        self._wait, self._reported = 0.0, False
        purse.answered(self._clock(), given)
