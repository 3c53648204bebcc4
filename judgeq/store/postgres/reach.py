"""Whether live workers had the time to renew their leases: else an outage would make all seem dead."""

from __future__ import annotations

import math
import time

from judgeq.types import Clock

PART = 4
"""Leases are renewed when this part of them has passed; after a failure PART times sooner."""


class Reach:
    """How the database was reached. A live worker whose lease ends within half of it from now renews it
    in any stretch of time as long as a part of it. So whoever didn't in the last such stretch is dead,
    however often the database restarted since; others are given the time. What kept us from renewing
    our own leases may have kept them.
    """

    def __init__(self, lease: float, clock: Clock = time.monotonic) -> None:
        self._lease = lease
        self._clock = clock
        self._since: float | None = None  # when the stretch began; None: we were cut off
        self._last = -math.inf  # when leases were last renewed
        self._known = -math.inf  # when a stretch last was long enough
        self._steady = True  # whether that was never broken off

    def renewed(self) -> None:
        """Our own leases were renewed."""
        now, part = self._clock(), self._lease / PART
        if self._last != -math.inf and now - self._last > 2 * part:
            self.lost()  # we were paused
        if self._since is None:
            self._since = now
        self._last = now
        if now - self._since >= part:
            self._known, self._steady = now, True

    def lost(self) -> None:
        """They couldn't be."""
        self._since, self._steady = None, False

    def values(self) -> dict[str, object]:
        """What dialect.END_DEAD takes."""
        known = self._clock() - self._known - self._lease / 2
        return {"known": known, "steady": self._steady, "grace": self._lease / PART}
