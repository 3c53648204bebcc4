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

from judgeq.errors import RunError
from judgeq.judge.leases import POLL, Bucket, Keeper, Limits, Slice
from judgeq.judge.spending import GRANTED, NEVER, Grant

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
        """When to ask next; infinite: not until something happens."""
        if self.cap is None:
            return math.inf
        if self._changed:
            return self._next
        if self._needs:
            return max(self._next, self._asked_at + SOON)
        low = self._gross and self.free < self._target / 2
        if low:
            return max(self._next, self._asked_at + LOW)
        if self.free > 0 or not (self.reserved or self._said_none):
            return max(self._next, self._asked_at + IDLE, self._used_at + IDLE)
        return math.inf

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
        self.cap, self.spent, self.at_risk = given.cap, given.spent, given.at_risk
        self._held = given.held
        self._never, self._needs = None, 0  # whoever still waits says so again
        if given.held is None:
            self.free = 0
            self._next = now + AGAIN
            return
        self.free += given.granted
        self._said_none = not (given.granted or self.reserved)
        self._next = now
        if self._asked and not given.granted:
            if self.reserved or given.pending:
                self._next = now + AGAIN
            else:
                self._never = self._asked

    def unanswered(self, now: float, again: float) -> None:
        """The keeper can't be reached: ask again in so many seconds."""
        self._next = now + again

    def capped(self, cap: int | None) -> None:
        """The run's cap is this now."""
        if cap == self.cap:
            return
        if self.cap is None or cap is None:
            self.reset()
        self.cap = cap
        self._changed = True

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
        self._buckets: dict[str, Bucket] = {}
        self._worker: int | None = None
        self._task: asyncio.Task[None] | None = None
        self._wait = 0.0
        self._reported = False
        keeper.on_settled(self._purse.settled)

    # What Budget and Limiter use

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

    def set_limits(self, bucket: str, requests: float | None, tokens: float | None) -> None:
        """See Spending."""
        shared = self._buckets.setdefault(bucket, Bucket(self._wake.set))
        shared.say(shared.said._replace(requests=requests, tokens=tokens))

    def set_calls(self, bucket: str, calls: int) -> None:
        """See Spending."""
        shared = self._buckets[bucket]
        shared.say(shared.said.lowest(Limits(calls=calls)))

    def limits(self, bucket: str) -> tuple[float | None, float | None]:
        """See Spending: the lowest that any process knows of."""
        return self._buckets[bucket].limits[:2]

    def take(self, bucket: str, tokens: float, pace: float) -> float:
        """See Spending. The pace is that of all processes, and in what is leased."""
        return self._buckets[bucket].take(self._clock(), tokens)

    def ended(self, bucket: str) -> None:
        """See Spending."""
        self._buckets[bucket].ended()

    def settle_tokens(self, bucket: str, tokens: float) -> None:
        """See Spending."""
        self._buckets[bucket].settle_tokens(tokens)

    def slow_down(self, bucket: str) -> None:
        """See Spending."""
        self._buckets[bucket].refuse()

    def pause(self, bucket: str, seconds: float) -> None:
        """See Spending."""
        self._buckets[bucket].pause(self._clock(), seconds)

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
            now = self._clock()
            if self.cap is not None and self._purse.free > 0:
                await self._keeper.reserve(*self._purse.farewell())
            for name, bucket in self._buckets.items():
                await self._keeper.leave(name, bucket.farewell(now))
        await self._keeper.close()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            delay = self.due() - self._clock()
            if delay > 0:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), None if delay == math.inf else delay)
                continue
            await self.turn()

    def due(self) -> float:
        """When the store is to be asked next."""
        now = self._clock()
        return min([self._purse.due(now), *[bucket.due(now) for bucket in self._buckets.values()]])

    async def turn(self) -> None:
        """Ask for all that is due."""
        try:
            await self._money()
            for name, bucket in self._buckets.items():
                await self._lease(name, bucket)
            self._wait, self._reported = 0.0, False
        except RunError as error:
            if not self._reported:
                self._reported = True
                self._notify(f"{error} Calls wait for it once what is allowed by now is used up.")

    async def _money(self) -> None:
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
        except RunError:
            purse.unanswered(self._clock(), self._longer())
            raise
        purse.answered(self._clock(), given)

    async def _lease(self, name: str, bucket: Bucket) -> None:
        now = self._clock()
        if bucket.due(now) > now:
            return
        ask = bucket.ask(now)
        try:
            lease = await self._keeper.lease(name, ask)
        except RunError:
            bucket.unanswered(self._clock(), ask, self._longer())
            raise
        bucket.answered(self._clock(), lease)
        self._purse.capped(lease.cap)

    def _longer(self) -> float:
        self._wait = min(max(FIRST_WAIT, 2 * self._wait), LONGEST_WAIT)
        return self._wait
