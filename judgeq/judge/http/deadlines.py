"""How long calls in flight may take: one timer for all of them, to which a pause of ours is nothing.

With a timer for each call, those go off before the sockets are read when the process was stopped for
a while (SIGSTOP, a laptop's lid, a jump of the clock): replies that have arrived would be thrown
away and bought again. Here time is counted in ticks, so that a pause is one tick, however long it
was; and a tick that comes late gives up no call, for what has arrived meanwhile is read after it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Protocol

SHORTEST, LONGEST = 0.01, 1.0
"""Seconds between ticks: a twentieth of the shorter limit, but within these."""
LATE = 0.05
"""Seconds by which a tick may be late and still counts as on time."""


class Body(Protocol):
    """An answer's stream (aiohttp's StreamReader)."""

    total_bytes: int


class InFlight:
    """A call whose answer is waited for. `started` and `heard` are ticks; `body` is the answer's
    stream once its headers are there, `received` the bytes of it that had come at the last tick.
    `why` says why it was given up before its time. `limited`: in all, and not only in its silence.
    """

    __slots__ = ("body", "heard", "limited", "received", "scope", "started", "why")

    def __init__(self, scope: asyncio.Timeout, tick: int) -> None:
        self.scope = scope
        self.started = self.heard = tick
        self.body: Body | None = None
        self.received = -1
        self.why: str | None = None
        self.limited = True


class Deadlines:
    """Ends calls that take longer than `total` seconds, or in which nothing comes for `silence`
    seconds: their `asyncio.timeout(None)` expires. One event loop."""

    def __init__(self, *, silence: float, total: float) -> None:
        self.interval = min(max(min(silence, total) / 20, SHORTEST), LONGEST)
        self.calls: set[InFlight] = set()
        self._silence = math.ceil(silence / self.interval)
        self._total = math.ceil(total / self.interval)
        self._tick = 0
        self._was_late = False
        self._timer: asyncio.TimerHandle | None = None
        self.on_tick: Callable[[], None] = _nothing

    @property
    def now(self) -> float:
        """Seconds in ticks since the beginning, pauses left out."""
        return self._tick * self.interval

    def at(self, tick: int) -> float:
        """When a tick was, on the scale of `now`."""
        return tick * self.interval

    def give_up(self, call: InFlight, why: str) -> None:
        """End a call before its time."""
        call.why = why
        self.calls.discard(call)
        call.scope.reschedule(0.0)

    def begin(self, scope: asyncio.Timeout) -> InFlight:
        """Watch the call inside `scope`, which has been entered, until `end`."""
        call = InFlight(scope, self._tick)
        self.calls.add(call)
        if self._timer is None:
            self._wind()
        return call

    def end(self, call: InFlight) -> None:
        """The call is over."""
        self.calls.discard(call)

    def seconds(self, ticks: int) -> float:
        """How long ago a tick was."""
        return (self._tick - ticks) * self.interval

    def _wind(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + self.interval
        self._timer = loop.call_at(due, self._pass, due)

    def _pass(self, due: float) -> None:
        """One tick. Late ones in a row are a busy loop, and no pause: only the first is let off."""
        self._tick += 1
        late = asyncio.get_running_loop().time() - due > LATE
        if not late or self._was_late:
            self._end_overdue()
            self.on_tick()
        self._was_late = late and not self._was_late
        self._timer = None
        if self.calls:
            self._wind()

    def _end_overdue(self) -> None:
        overdue = []
        for call in self.calls:
            if call.body is not None and call.body.total_bytes != call.received:
                call.received, call.heard = call.body.total_bytes, self._tick
            # The first tick was only a part of one.
            late = call.limited and self._tick - call.started > self._total
            if late or self._tick - call.heard > self._silence:
                overdue.append(call)
        for call in overdue:
            self.calls.discard(call)
            call.scope.reschedule(0.0)


def _nothing() -> None:
    pass
