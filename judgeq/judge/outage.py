"""What to do while a server isn't known to answer: try one call at a time, ever more seldom.

So it is at the start, and again after IN_A_ROW failures without an answer between them. All other
calls wait in the limiter meanwhile, and the first answer lets them go.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from judgeq.errors import CallError

IN_A_ROW = 3
FIRST_WAIT, LONGEST_WAIT = 0.5, 20.0
"""Seconds between two tries: the first wait, doubled up to the longest."""
LONGEST_ASKED = 60.0
"""Seconds that the server may ask for."""


class Outage:
    """`trying`: the server isn't known to answer. `failures` are the calls that failed since the last
    answer; `tries` those of them that were tried alone, and `unmended` those of these that time alone
    doesn't mend (not CallError.unavailable). No try before `next_try`. `excused`: a job was given up
    for it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.trying = True
        self.failures = self.tries = self.unmended = 0
        self.next_try = -math.inf
        self.excused = False
        self._clock = clock
        self._since = 0.0
        self._wait = 0.0

    @property
    def lasts(self) -> float:
        """Seconds since the first of the `failures`; 0 without any."""
        return self._clock() - self._since if self.failures else 0.0

    def end(self) -> None:
        """An answer came."""
        self.trying = self.excused = False
        self.failures = self.tries = self.unmended = 0
        self.next_try = -math.inf
        self._wait = 0.0

    def failed(self, error: CallError, *, tried: bool) -> None:
        """A call brought no answer; `tried`: it was the one that was tried."""
        now = self._clock()
        if not self.failures:
            self._since = now
        self.failures += 1
        if tried:
            self.tries += 1
            self.unmended += not error.unavailable
        elif self.trying:
            return  # it was sent before the others, and says nothing new
        self.trying = self.trying or self.failures >= IN_A_ROW
        if self.trying:
            self._wait = min(max(FIRST_WAIT, 2 * self._wait), LONGEST_WAIT)
            asked = min(error.retry_after or 0.0, LONGEST_ASKED)
            self.next_try = now + max(asked, self._wait)
