"""What shows a run while it goes: a picture at the foot of a terminal, or lines for logs, scripts,
notebooks and workers.

A face is called with every event and only folds it (progress.py); what costs, the drawing, is done by
`draw_forever`, a task next to the workers. A terminal that goes away takes the face with it, never the
run. Ids, texts, judge names and notices come from outside: all of them pass through `plain`, and none
is ever read as rich markup.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self, TextIO, TypeAlias

from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.live import Live
from rich.progress_bar import ProgressBar as Bar
from rich.table import Table
from rich.text import Text

from judgeq.escaping import plain
from judgeq.events import BatchesOpen, Event, Notice, RoundRated, RunStarted, Stopping
from judgeq.text import LINE, count, log_lines, percent
from judgeq.ui.progress import (
    Progress,
    figures,
    notice_text,
    order,
    progress_line,
    stopping_line,
)
from judgeq.ui.sections import line

if TYPE_CHECKING:
    from judgeq.engine.remote_worker import Tally

Clock: TypeAlias = Callable[[], float]

WIDTH = 100
"""Cells of the picture, at most: a wider one is harder to read."""
ENDS = 5
"""Items that are shown from each end of the ranking, at most."""
SELDOM = 1800.0  # seconds: a log of a day that is waited for batches stays short


def choose(console: Console, *, quiet: bool) -> Face:
    """The face for this console: `Quiet` if asked, a `Dashboard` on a terminal, else `PlainLines`.

    FORCE_COLOR makes rich take a file for a terminal, therefore the file is asked as well.
    """
    if quiet:
        return Quiet(console)
    live = console.is_interactive and not console.is_dumb_terminal and console.file.isatty()
    return Dashboard(console) if live else PlainLines(console)


def choose_in_python(stream: TextIO | None, wanted: bool | None) -> Face:
    """The face for a script or a notebook; None `wanted`: nothing where that goes into a file."""
    watched = stream is not None and (
        stream.isatty() or type(stream).__module__.startswith("ipykernel")
    )
    if stream is None or wanted is False or (wanted is None and not watched):
        return Quiet(Console(quiet=True))
    return choose(Console(file=stream), quiet=False)


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

    def write(self, line: str) -> None:
        """Write a line, broken between words where it is longer than LINE, without rich, which would end
        the process at a closed pipe. A stream that can't be written to any longer is left alone."""
        console = self._console
        if console.quiet:
            return
        try:
            console.file.write(f"{log_lines(line)}\n")
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


class Dashboard(Face):
    """A picture at the foot of the terminal."""

    def __init__(self, console: Console, *, clock: Clock = time.monotonic) -> None:
        super().__init__(console, clock=clock)
        # stdout stays untouched: what the command prints there may go into a pipe.
        self._live = Live(
            console=console, auto_refresh=False, redirect_stdout=False, vertical_overflow="crop"
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.draw()
        self._live.transient = self.progress.begun is None
        try:
            self._live.stop()
        except OSError:
            self._console.quiet = True

    def draw(self) -> None:
        """Print the notices that came, then draw the picture below them."""
        try:
            with self._console:  # one write for all of it
                for one in self.progress.take_notices():
                    text = log_lines(notice_text(one), self._console.width)
                    style = "yellow" if one.warning else ""
                    self._console.print(Text(text, style), soft_wrap=True)
                self._live.update(self.picture(), refresh=True)
        except OSError:  # the terminal is gone; the run goes on without
            self._console.quiet = True

    def picture(self) -> RenderableType:
        """The picture of this moment: what matters least is at its foot, which a low terminal crops.

        Two columns stay free, so that the ^C a terminal echoes doesn't wrap and shift the picture.
        """
        progress = self.progress
        title = Text.assemble(("judgeq", "bold"), no_wrap=True, overflow="ellipsis")
        if progress.begun is None:
            return title.append(" · starting", "dim")
        title.append(f" · {plain(progress.begun.run, 60)} · ")
        title.append(plain(progress.begun.judge, 100), "cyan")
        parts: list[RenderableType] = [title, _bars(progress)]
        if progress.stopping and not progress.finished:
            text = stopping_line(progress)
            text += " (Ctrl-C again to stop now)" if progress.in_flight else ""
            parts.append(Text(text, "yellow", no_wrap=True, overflow="ellipsis"))
        rows = _grid()
        for name, figure in figures(progress, self._clock()).items():
            words = (Text(text, "" if style == "none" else style) for text, style in figure)
            rows.add_row(name, Text(" · ").join(words))
        parts += ["", rows, *_ends(progress)]
        return Constrain(Group(*parts), max(16, min(self._console.width - 2, WIDTH)))


def _grid(*, expand: bool = False) -> Table:
    """Rows whose first column names them."""
    grid = Table.grid(padding=(0, 2, 0, 0), expand=expand)
    grid.add_column(style="dim", no_wrap=True, min_width=9)
    return grid


def _bars(progress: Progress) -> Table:
    """What is under way: the round, and the run; "~" marks a total that is only expected."""
    grid = _grid(expand=True)
    grid.add_column(ratio=1, no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True, style="bold")
    of_run, expected = progress.of_run, progress.expected
    rows = [("run", of_run.done, expected, "~" if expected > of_run.total else "")]
    if progress.round:
        rows.insert(0, (progress.place(progress.round), progress.done, progress.total, ""))
    for name, done, total, about in rows:
        bar = Bar(max(total, 1), done, complete_style="cyan", finished_style="green")
        share = f"{percent(done, total)} %"
        grid.add_row(name, bar, f"{count(done)}/{about}{count(total)}", share)
    return grid


def _ends(progress: Progress) -> list[RenderableType]:
    """The highest and the lowest items, and by which rating."""
    if progress.rated is None or not progress.rated.top:
        return []
    elo = progress.rated.rating == "elo"
    rows = _grid(expand=True)
    rows.add_column(justify="right", no_wrap=True)
    rows.add_column(style="cyan", no_wrap=True)
    rows.add_column(style="dim", no_wrap=True, ratio=1)
    for name, placed in (
        ("highest", progress.rated.top[:ENDS]),
        ("lowest", progress.rated.bottom[-ENDS:]),
    ):
        for at, item in enumerate(placed):
            words = Text(plain(item.id, 20)), Text(plain(item.text or "", WIDTH))
            score = f"{item.rating:.{0 if elo else 2}f}"
            rows.add_row("" if at else name, score, *words)
    by = "by Elo for now; the final scores are fitted at the end" if elo else "by the scores so far"
    return ["", Text(by, "dim", no_wrap=True, overflow="ellipsis"), rows]


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
        self._outage_written = False  # that calls bring no answer

    def __call__(self, event: Event) -> None:
        """Fold the event; write a line for those that come once in a while."""
        progress, was_stopping = self.progress, self.progress.stopping
        super().__call__(event)
        match event:
            case RunStarted():
                self._write(line("start", p=progress, run=event))
            case RoundRated():
                after = order(progress, event.round)
                self._write(line("round", p=progress, rated=event, order=after))
            case BatchesOpen():
                state = [(one.name, one.status, one.done, one.doubt) for one in event.batches]
                if state != self._batches or self._clock() - self._written >= SELDOM:
                    self._batches = state
                    self._write(progress_line(progress, self._clock()))
            case Stopping() if not was_stopping:
                self.write(stopping_line(progress))
            case _:
                pass

    def __exit__(self, *exc: object) -> None:
        self.write_notices()
        rated = self.progress.rated
        if self.progress.round > (rated.round if rated else 0):  # cut short: how far it came
            self.write(progress_line(self.progress, self._clock()))

    def draw(self) -> None:
        """Write the notices that came, and how far the run is, unless a line was written lately."""
        self.write_notices()
        now = self._clock()
        moving = self.progress.round and not self.progress.batches
        unanswered = self.progress.unanswered
        pause = SELDOM if unanswered and self._outage_written else self._between
        if moving and now - self._written >= pause:
            self._outage_written = unanswered
            self._write(progress_line(self.progress, now))

    def _write(self, line: str) -> None:
        self.write_notices()
        self._written = self._clock()
        self.write(line)


class WorkerLines(Face):
    """The lines of a worker: notices as they come, and what it did now and then."""

    every = 30.0

    def __init__(self, console: Console, tally: Tally) -> None:
        super().__init__(console)
        self._tally, self._shown = tally, line("worker", tally=tally)

    def __call__(self, event: Event) -> None:
        """Show what the user should know at once."""
        if isinstance(event, Notice):
            self.write(notice_text(event))
        elif isinstance(event, RunStarted):
            self.write(plain(f"working on {event.run} · {event.judge}", LINE))

    def draw(self) -> None:
        """Show what was done since the last line, if anything was."""
        done = line("worker", tally=self._tally)
        if done != self._shown:
            self._shown = done
            self.write(done)
