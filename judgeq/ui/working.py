"""What a worker process shows: notices as they come, a line now and then, and what it did."""

from __future__ import annotations

import time

from rich.console import Console

from judgeq.engine.working import Tally
from judgeq.events import Event, Notice, RunStarted
from judgeq.ui.dashboard import Clock, Face, write, write_notices
from judgeq.ui.text import count, money, rate, several
from judgeq.untrusted import plain

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
    parts = [f"{several(tally.done, 'job')} done"]
    parts += [f"{count(tally.failed)} failed"] if tally.failed else []
    parts += [f"{count(tally.invalid)} invalid"] if tally.invalid else []
    parts.append(several(tally.calls, "call"))
    parts += [several(tally.cached, "cache hit")] if tally.cached else []
    if tally.unpriced == tally.calls and tally.calls:
        parts.append("cost unknown")
    else:
        more = f" and {several(tally.unpriced, 'call')} of unknown cost" if tally.unpriced else ""
        parts.append(money(tally.cost) + more)
    return " · ".join(parts)
