"""What a worker process shows: notices as they come, a line now and then, and what it did."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from rich.console import Console
from rich.text import Text

from judgeq.engine.working import Tally
from judgeq.events import Event, Notice, RunStarted
from judgeq.ui.text import count, money, rate, several
from judgeq.untrusted import plain

EVERY = 30.0
"""Seconds between two lines."""
_WIDTH = 1000


class WorkerLines:
    """Plain lines on a console; `quiet` shows warnings alone."""

    def __init__(
        self,
        console: Console,
        tally: Tally,
        *,
        quiet: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._tally = tally
        self._quiet = quiet
        self._clock = clock
        self._shown = (clock(), 0, 0)

    def __call__(self, event: Event) -> None:
        """Show what the user should know at once."""
        if isinstance(event, Notice) and (event.warning or not self._quiet):
            self._say(event.text, "yellow" if event.warning else "")
        elif isinstance(event, RunStarted) and not self._quiet:
            self._say(f"working on {event.run} · {event.judge}")

    async def draw_forever(self) -> None:
        """Show a line about what was done, now and then, until cancelled."""
        while not self._quiet:
            await asyncio.sleep(EVERY)
            self.line()

    def line(self) -> None:
        """Show what was done since the last line, if anything was."""
        now, calls = self._clock(), self._tally.calls + self._tally.cached
        before, jobs, calls_before = self._shown
        if (self._tally.ended, calls) == (jobs, calls_before):
            return
        self._shown = now, self._tally.ended, calls
        speed = rate((calls - calls_before) / max(now - before, 1e-9))
        self._say(f"{summary(self._tally)} · {speed} calls/s")

    def _say(self, text: str, style: str = "") -> None:
        try:
            self._console.print(Text(plain(text, _WIDTH), style), soft_wrap=True)
        except OSError:  # the terminal is gone; the work goes on without
            self._console.quiet = True


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
