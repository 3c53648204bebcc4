"""What a run shows as lines while it goes: the numbers of its progress in words, and the faces for logs,
scripts, notebooks and workers. The dashboard shows the same words in a picture.

A face is called with every event and only folds it (progress.py); what costs, the drawing, is done by
`draw_forever`, a task next to the workers that takes little of the time. A terminal that goes away takes
the face with it, never the run.

Ids, texts, judge names and notices come from outside: all of them pass through `plain`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Self, TypeAlias

from rich.cells import set_cell_size
from rich.console import Console

from judgeq.escaping import plain
from judgeq.events import (
    BatchesOpen,
    CallEnded,
    Certainty,
    Event,
    JobEnded,
    JobStarted,
    Notice,
    RoundRated,
    RunStarted,
    Stopping,
)
from judgeq.text import count, log_lines, rate, several
from judgeq.types import Batch
from judgeq.ui.progress import Progress
from judgeq.ui.sections import line, lines_of

if TYPE_CHECKING:
    from judgeq.engine.remote_worker import Tally

Clock: TypeAlias = Callable[[], float]
Part: TypeAlias = tuple[str, str]
"""Words and their style."""

BAR, BAR_LINE = 20, 110
SELDOM = 1800.0  # seconds: a log of a day that is waited for batches stays short
NOTICE = 1000  # cells of a notice, at most

_FREQUENT = frozenset({JobStarted, CallEnded, JobEnded})
_IN_PICTURE = frozenset({"dim", "none"})
"""Parts of these styles stand in the picture alone."""


# The numbers in words


def figures(progress: Progress, now: float) -> Mapping[str, list[Part]]:
    """The numbers of this moment, by name."""
    rows = defaultdict(list)
    states = sorted(set(map(batch_state, progress.batches)))
    known = {"states": states, "left": progress.time_left(now), "order": _order(progress)}
    for name, style, text in lines_of("progress", 3, p=progress, now=now, **known):
        rows[name].append((text, style))
    return rows


def progress_line(progress: Progress, now: float) -> str:
    """How far the current round is, and all numbers that aren't 0."""
    place, what = ("", "answers") if progress.people else (progress.place(progress.round), "jobs")
    parts = [place, f"{count(progress.done)}/{count(progress.total)} {what}"]
    for figure in figures(progress, now).values():
        parts += [words for words, style in figure if style not in _IN_PICTURE]
    return " · ".join(filter(None, parts))


def reliability(known: Certainty, *, people: bool = False) -> list[str]:
    """How well the order is known, and what one more round would bring and cost; `people`: they alone
    are asked."""
    return [text for (text,) in lines_of("reliability", k=known, people=people)]


def _order(progress: Progress, round: int | None = None) -> list[str]:
    """How well the order is known, after this round if one is given."""
    known = progress.known
    if known is None or round not in (None, known.round):
        return []
    return reliability(known, people=progress.people)


def batch_state(batch: Batch) -> str:
    """The state of a batch, in a few words."""
    if batch.open:
        return plain(batch.status, 40) or "being created"
    return str(batch.state)


def stopping_line(progress: Progress) -> str:
    """That no new calls are made, and how many are still let finish."""
    if not progress.in_flight:
        return "stopped"
    return f"stopping: letting {several(progress.in_flight, 'call')} finish"


# Faces


class Face:
    """What shows a run: enter it, call it with every event, run `draw_forever` beside the work. This
    one folds the events and shows nothing."""

    every = 0.25
    """Seconds between two drawings."""

    def __init__(self, console: Console, *, clock: Clock = time.monotonic) -> None:
        self.progress = Progress()
        self._console, self._clock = console, clock

    def __call__(self, event: Event) -> None:
        """Take an event in; cheap."""
        self.progress.fold(event, self._clock())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.draw()

    def draw(self) -> None:
        """Show what there is to show now."""

    async def draw_forever(self) -> None:
        """Draw again and again until cancelled."""
        while True:
            self.draw()
            await asyncio.sleep(self.every)

    def write(self, line: str, end: str = "\n") -> None:
        """Write a line, broken between words where it is longer than LINE, without rich, which would end
        the process at a closed pipe. A stream that can't be written to any longer is left alone."""
        console = self._console
        if console.quiet:
            return
        text = log_lines(line) if end == "\n" else line
        try:
            console.file.write(f"{text}{end}")
            console.file.flush()
        except (OSError, ValueError):
            console.quiet = True

    def write_notices(self) -> None:
        """Write the notices that came."""
        for notice in self.progress.take_notices():
            self.write(notice_text(notice))


class Quiet(Face):
    """Only warnings and what is needed to go on, as they come."""

    def __call__(self, event: Event) -> None:
        """Write the event if it is such a notice."""
        if isinstance(event, Notice) and (event.warning or event.needed):
            self.write(notice_text(event))


class PlainLines(Face):
    """A log of plain lines for where there is no terminal: no colour, no control codes. It is written
    also while nothing moves: a silent log looks like a dead run."""

    def __init__(
        self, console: Console, *, clock: Clock = time.monotonic, every: float = 5.0
    ) -> None:
        super().__init__(console, clock=clock)
        self.every = min(every, 0.5)
        self._between = every
        self._written = -math.inf  # when the last line about progress was
        self._batches: object = ()  # their state then

    def __call__(self, event: Event) -> None:
        """Fold the event; write a line for those that come once in a while."""
        now, progress = self._clock(), self.progress
        was_stopping = progress.stopping
        progress.fold(event, now)
        if type(event) in _FREQUENT:
            return
        match event:
            case RunStarted():
                self._write(line("start", p=progress), now)
            case RoundRated():
                order = _order(progress, progress.rated)
                self._write(line("round", p=progress, order=order), now)
            case BatchesOpen():
                state = tuple((one.name, one.status, one.done) for one in progress.batches)
                if state != self._batches or now - self._written >= SELDOM:
                    self._batches = state
                    self._write(progress_line(progress, now), now)
            case Stopping() if not was_stopping:
                self._write(stopping_line(progress), self._written)
            case _:
                pass

    def __exit__(self, *exc: object) -> None:
        self.write_notices()
        if self.progress.rated < self.progress.round:  # cut short: how far it came
            self._write(progress_line(self.progress, self._clock()), self._clock())

    def draw(self) -> None:
        """Write the notices that came, and how far the run is, unless a line was written lately."""
        self.write_notices()
        now = self._clock()
        moving = self.progress.round and not self.progress.batches
        if moving and now - self._written >= self._between:
            self._write(progress_line(self.progress, now), now)

    def _write(self, line: str, now: float) -> None:
        self.write_notices()
        self._written = now
        self.write(line)


class ProgressBar(Face):
    """A bar on one line, written over itself, for scripts and notebooks; notices stand above it."""

    def __exit__(self, *exc: object) -> None:
        self.draw()
        if self.progress.round:
            self.write("")

    def draw(self) -> None:
        """Write the notices that came, and the bar below them."""
        progress = self.progress
        if progress.notices and progress.round:
            self.write(f"\r{' ' * BAR_LINE}\r", end="")
        self.write_notices()
        if progress.round:
            ended = progress.done + progress.invalid + progress.failed
            bar = ("█" * (BAR * ended // max(1, progress.total))).ljust(BAR, "░")
            whole = f"{bar} {plain(progress_line(progress, self._clock()), BAR_LINE)}"
            self.write(f"\r{set_cell_size(whole, BAR_LINE)}", end="")


class WorkerLines(Face):
    """The lines of a worker: notices as they come, and what it did now and then."""

    every = 30.0

    def __init__(self, console: Console, tally: Tally, *, clock: Clock = time.monotonic) -> None:
        super().__init__(console, clock=clock)
        self._tally, self._shown = tally, (clock(), 0, 0)

    def __call__(self, event: Event) -> None:
        """Show what the user should know at once."""
        if isinstance(event, Notice):
            self.write(notice_text(event))
        elif isinstance(event, RunStarted):
            self.write(plain(f"working on {event.run} · {event.judge}", NOTICE))

    def draw(self) -> None:
        """Show what was done since the last line, if anything was."""
        now, ended, calls = self._clock(), self._tally.done, self._tally.calls + self._tally.cached
        before, *shown = self._shown
        if [ended, calls] != shown:
            speed = rate((calls - shown[1]) / max(now - before, 1e-9))
            self._shown = now, ended, calls
            self.write(f"{line('worker', tally=self._tally)} · {speed} calls/s")


def notice_text(notice: Notice) -> str:
    """A notice on one line."""
    text = plain(notice.text, NOTICE)
    return f"warning: {text}" if notice.warning else text
