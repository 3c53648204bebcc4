"""What a worker process shows: notices as they come, a line now and then, and what it did."""

from __future__ import annotations

import time

from rich.console import Console

from judgeq.engine.working import Tally
from judgeq.escaping import plain
from judgeq.events import Event, Notice, RunStarted
from judgeq.text import count, dotted, money, rate, several
from judgeq.ui.dashboard import Clock, Face, write, write_notices

_WIDTH = 1000


class WorkerLines(Face):
    """Plain lines on a console; `quiet` shows warnings alone."""

    every = 30.0

    def __init__(
        self, console: Console, tally: Tally, *, quiet: bool, clock: Clock = time.monotonic
    ) -> None:
        super().__init__(clock)
        self._console, self._tally, self._quiet = console, tally, quiet
        self._shown = (clock(), 0, 0)

    def __call__(self, event: Event) -> None:
        """Show what the user should know at once."""
        if isinstance(event, Notice) and (event.warning or not self._quiet):
            self.progress.fold(event, 0)
            write_notices(self._console, self.progress)
        elif isinstance(event, RunStarted) and not self._quiet:
            write(self._console, plain(f"working on {event.run} · {event.judge}", _WIDTH))

    def draw(self) -> None:
        """Show what was done since the last line, if anything was."""
        now, ended, calls = self._clock(), self._tally.ended, self._tally.calls + self._tally.cached
        before, *known = self._shown
        if not self._quiet and [ended, calls] != known:
            speed = rate((calls - known[1]) / max(now - before, 1e-9))
            self._shown = now, ended, calls
            write(self._console, f"{summary(self._tally)} · {speed} calls/s")


def summary(tally: Tally) -> str:
    """What a worker did, on one line."""
    cost, unpriced = money(tally.cost), several(tally.unpriced, "call")
    if tally.unpriced:
        known = tally.unpriced < tally.calls
        cost = f"{cost} and {unpriced} of unknown cost" if known else "cost unknown"
    return dotted(
        (1, f"{several(tally.done, 'job')} done"),
        (tally.failed, f"{count(tally.failed)} failed"),
        (tally.invalid, f"{count(tally.invalid)} invalid"),
        (1, several(tally.calls, "call")),
        (tally.cached, several(tally.cached, "cache hit")),
        (1, cost),
    )
