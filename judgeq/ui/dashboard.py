"""What a run shows while it goes: a dashboard, plain lines where there is no terminal, or quiet.

A face is called with every event and only folds it (progress.py); what costs, the drawing,
is done by `draw_forever`, a task beside the workers that takes little of the time. A terminal that
goes away takes the face with it, never the run.

Ids, texts, judge names and notices come from outside: all of them pass through `plain`, and none is
ever read as rich markup.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from typing import Self, TypeAlias

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from judgeq.escaping import plain
from judgeq.events import (
    BatchesOpen,
    CallEnded,
    Event,
    JobEnded,
    JobStarted,
    Notice,
    RoundRated,
    RunStarted,
    Stopping,
)
from judgeq.text import count, duration, percent, rate, several
from judgeq.ui.progress import Progress
from judgeq.ui.text import (
    batches_out,
    certainty,
    failing,
    moved,
    people,
    progress_line,
    rating,
    round_line,
    spent,
    start_line,
    stopping_line,
)

Clock: TypeAlias = Callable[[], float]
Part: TypeAlias = tuple[str, str]  # words and their style

SHARE = 0.02  # of the time may go into drawing
LONGEST_PAUSE = 5.0  # seconds: one slow frame must not freeze the picture
SELDOM = 1800.0  # seconds: a log of a day that is waited for batches stays short
NOTICE_WIDTH = 1000

_FREQUENT = frozenset({JobStarted, CallEnded, JobEnded})
_OF_CALLS = ("jobs", "calls", "failing", "cost", "tokens")  # nothing where only people answer


class Face:
    """What shows a run: enter it, call it with every event, run `draw_forever` beside the work. This
    one folds the events and shows nothing."""

    every = 0.25
    """Seconds between two drawings."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self.progress = Progress()
        self._clock = clock

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


def choose(console: Console, *, quiet: bool) -> Face:
    """The face for this console: `Quiet` if asked, a `Dashboard` on a terminal, else `PlainLines`.

    FORCE_COLOR makes rich take a file for a terminal, therefore the file is asked as well.
    """
    if quiet:
        return Quiet(console)
    live = console.is_interactive and not console.is_dumb_terminal and console.file.isatty()
    return Dashboard(console) if live else PlainLines(console)


class Dashboard(Face):
    """A picture at the foot of the terminal, drawn anew every `interval` seconds (0.1 at least)."""

    def __init__(
        self,
        console: Console,
        *,
        clock: Clock = time.monotonic,
        cpu_clock: Clock = time.process_time,
        interval: float = 0.25,
    ) -> None:
        super().__init__(clock)
        self._console = console
        self._cpu_clock = cpu_clock
        self._interval = max(0.1, interval)
        self._cost = 0.0
        # stdout stays untouched: what the command prints there may go into a pipe.
        self._live = Live(
            console=console, auto_refresh=False, redirect_stdout=False, vertical_overflow="crop"
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.draw()
        try:
            self._live.stop()
        except OSError:
            self._console.quiet = True

    def picture(self) -> RenderableType:
        """The picture of this moment, made to fit the console as it is now."""
        width, height = self._console.size
        return picture(self.progress, self._clock(), width, height)

    def draw(self) -> None:
        """Print the notices that came, then draw the picture below them."""
        try:
            with self._console:  # one write for all of it
                notices = self.progress.take_notices()
                if notices:
                    self._console.print(*map(_notice, notices), sep="\n")
                self._live.update(self.picture(), refresh=True)
        except OSError:  # the terminal is gone; the run goes on without
            self._console.quiet = True

    async def draw_forever(self) -> None:
        """Draw every `interval` seconds, seldomer where drawing would take over 2 % of the time,
        or, as long as once a second is not too seldom, of what the run takes of the processor."""
        busy = 1.0
        while True:
            began, used = self._clock(), self._cpu_clock()
            self.draw()
            # Half the old cost stays in: a single hiccup shouldn't stretch the pause that much.
            self._cost = (self._cost + self._clock() - began) / 2
            pause = max(
                self._interval,
                min(self._cost / SHARE, LONGEST_PAUSE),
                min(self._cost / SHARE / max(busy, 0.01), 1.0),
            )
            await asyncio.sleep(pause)
            passed = self._clock() - began
            busy = (self._cpu_clock() - used) / passed if passed > 0 else 1.0


class PlainLines(Face):
    """A log of plain lines for where there is no terminal: no colour, no control codes. It is written
    also while nothing moves: a silent log looks like a dead run."""

    def __init__(
        self, console: Console, *, clock: Clock = time.monotonic, every: float = 5.0
    ) -> None:
        super().__init__(clock)
        self.every = min(every, 0.5)
        self._console = console
        self._between = every
        self._written = -math.inf  # when the last line about progress was
        self._batches: object = ()  # as they stood then

    def __call__(self, event: Event) -> None:
        """Fold the event; write a line for those that come once in a while."""
        now, progress = self._clock(), self.progress
        was_stopping = progress.stopping
        progress.fold(event, now)
        if type(event) in _FREQUENT:
            return
        match event:
            case RunStarted():
                self._write(start_line(progress), now)
            case RoundRated():
                self._write(round_line(progress), now)
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
        write_notices(self._console, self.progress)
        if self.progress.rated < self.progress.round:  # cut short: say how far it came
            self._write(progress_line(self.progress, self._clock()), self._clock())

    def draw(self) -> None:
        """Write the notices that came, and how far the run is if no line lately said so."""
        write_notices(self._console, self.progress)
        now = self._clock()
        moving = self.progress.round and not self.progress.batches
        if moving and now - self._written >= self._between:
            self._write(progress_line(self.progress, now), now)

    def _write(self, line: str, now: float) -> None:
        write_notices(self._console, self.progress)
        self._written = now
        write(self._console, line)


class Quiet(Face):
    """Only warnings and what is needed to go on, as they come."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def __call__(self, event: Event) -> None:
        """Write the event if it is such a notice."""
        if isinstance(event, Notice) and (event.warning or event.needed):
            write(self._console, _notice(event).plain)


# The picture


def picture(progress: Progress, now: float, width: int, height: int) -> RenderableType:
    """The dashboard's picture for a terminal of this size: what matters least gives way first.

    Two columns stay free, so that the ^C a terminal echoes doesn't wrap and shift the picture.
    """
    width = max(16, width - 2)
    room = max(4, height - 1)
    if progress.started is None:
        return _line().append("judgeq", "bold").append(" · starting", "dim")
    title = _line().append("judgeq", "bold")
    title.append(" · ", "dim").append(plain(progress.run, max(8, width // 2)))
    title.append(" · ", "dim").append(plain(progress.judge, width), "cyan")
    foot = []
    if progress.stopping and not progress.finished:
        text = stopping_line(progress)
        if progress.in_flight:
            text += " (Ctrl-C again to stop now)"
        foot.append(_line().append(text, "yellow"))
    label = len(progress.place(progress.round)) + 2
    bars = _bars(progress, label)
    room -= 1 + len(foot) + bars.row_count
    rows = [
        line
        for name, parts in figures(progress, now).items()
        for line in _rows(name.ljust(label), parts, width)
    ][:room]
    room -= len(rows)
    gap: list[RenderableType] = [""] if room > 0 else []
    ends = _ends(progress, label, width)
    below: list[RenderableType] = ["", *ends] if ends and room - 1 > len(ends) else []
    return Constrain(Group(title, bars, *gap, *rows, *below, *foot), width)


def _bars(progress: Progress, label: int) -> Table:
    """What is under way: the round, and the run, of whose jobs "~" so many are only expected."""
    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(no_wrap=True, width=label - 1)
    grid.add_column(ratio=1, no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True, width=5)
    of_run, expected = progress.of_run, progress.expected
    rows = [("run", of_run.done, expected, "~" if expected > of_run.total else "")]
    if progress.round:
        rows.insert(0, (progress.place(progress.round), progress.done, progress.total, ""))
    for name, done, total, about in rows:
        bar = ProgressBar(max(total, 1), done, complete_style="cyan", finished_style="green")
        share = Text(f"{percent(done, total)} %", "bold")
        grid.add_row(Text(name), bar, Text(f"{count(done)}/{about}{count(total)}"), share)
    return grid


def figures(progress: Progress, now: float) -> dict[str, list[Part]]:
    """The numbers of this moment, by name."""
    of_run = progress.of_run
    took = duration(now - (progress.started or now))
    clock = [(f"{took} so far", "")]
    left = progress.time_left(now)
    if left and not progress.stopping:
        clock.append((f"about {duration(left)} left", ""))
    rows: dict[str, list[Part]] = {
        "answers": [_amount(of_run.done, "given"), *((part, "") for part in people(progress))],
        "jobs": [
            _amount(of_run.done, "done"),
            _amount(of_run.failed, "failed", style="bold red"),
            _amount(of_run.invalid, "invalid", style="bold yellow"),
        ],
        "calls": [
            (count(progress.calls), ""),
            (f"{rate(progress.call_rate(now))} calls/s", ""),
            _amount(progress.in_flight, "in flight"),
            _amount(progress.retries, "retry", "retries"),
            _amount(progress.cache_hits, "cache hit", "cache hits"),
            *([(f"{count(progress.unusable)} unusable", "yellow")] if progress.unusable else []),
        ],
        "batches": [(batches_out(progress, now), "")] if progress.batches else [],
        "failing": [(failing(progress), "bold red")] if progress.unanswered else [],
        "cost": [(text, "yellow" if progress.unpriced else "") for text in spent(progress)],
        "time": clock,
        "tokens": _tokens(progress),
    }
    if progress.moved is not None:
        rows["ranking"] = [(moved(progress, progress.moved), "")]
    if progress.known is not None:
        rows["known"] = [(part, "") for part in certainty(progress.known, people=progress.people)]
    left_out = _OF_CALLS if progress.people else ("answers",)
    return {name: parts for name, parts in rows.items() if parts and name not in left_out}


def _tokens(progress: Progress) -> list[Part]:
    """What was read and written, as far as the replies said so."""
    output = _amount(progress.output, "out")
    if progress.reasoning:
        output = (f"{output[0]} ({count(progress.reasoning)} reasoning)", "")
    parts = [_amount(progress.input, "in"), _amount(progress.cached, "cached"), output]
    if not progress.uncounted:
        return parts
    replies = several(progress.uncounted, "reply", "replies")
    unknown = (f"unknown for {replies} without usage", "yellow")
    known = progress.input or progress.cached or progress.output
    return [*parts, unknown] if known else [unknown]


def _amount(n: int, one: str, more: str = "", style: str = "") -> Part:
    return several(n, one, more or one), style if n else "dim"


def _rows(label: str, parts: Sequence[Part], width: int) -> list[Text]:
    """Parts after a label, joined by dots; where the line ends, the next one begins with a part."""
    lines = [_line().append(label, "dim")]
    used = len(label)
    for index, (words, style) in enumerate(parts):
        if index and used + 3 + len(words) > width:
            lines.append(_line().append(" " * len(label)))
            used = len(label)
        elif index:
            lines[-1].append(" · ", "dim")
            used += 3
        lines[-1].append(words, style)
        used += len(words)
    return lines


def _line() -> Text:
    return Text(no_wrap=True, overflow="ellipsis")


def _ends(progress: Progress, label: int, width: int) -> list[Text]:
    """The items at both ends of the ranking; as lines, for a table would cost half the frame."""
    ends = (("top", progress.top), ("bottom", progress.bottom))
    ids = [plain(item.id, max(8, min(24, width // 4))) for _, placed in ends for item in placed]
    column = max(map(cell_len, ids), default=0)
    lines: list[Text] = []
    for name, placed in ends:
        for index, item in enumerate(placed):
            line = _line().append(("" if index else name).ljust(label), "dim")
            line.append(f"{rating(item):>4} ")
            line.append(set_cell_size(ids[len(lines)], column), "cyan")
            room = max(1, width - line.cell_len - 1)
            lines.append(line.append(f" {plain(item.text or '', room)}", "dim"))
    return lines


def _notice(notice: Notice) -> Text:
    text = plain(notice.text, NOTICE_WIDTH)
    return Text(f"warning: {text}", "yellow") if notice.warning else Text(text)


def write_notices(console: Console, progress: Progress) -> None:
    """Write the notices that came."""
    for notice in progress.take_notices():
        write(console, _notice(notice).plain)


def write(console: Console, line: str, end: str = "\n") -> None:
    """Write a line as it is; rich would wrap it, and end the process at a closed pipe. A stream that
    can't be written to any longer is left alone."""
    if console.quiet:
        return
    try:
        console.file.write(f"{line}{end}")
        console.file.flush()
    except (OSError, ValueError):
        console.quiet = True
