"""What a run shows while it goes: a picture at the foot of the terminal, or the lines of lines.py.

Ids, texts, judge names and notices come from outside: all of them pass through `plain`, and none is
ever read as rich markup.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Self, TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.live import Live
from rich.progress_bar import ProgressBar as Bar
from rich.table import Table
from rich.text import Text

from judgeq.escaping import plain
from judgeq.events import Notice
from judgeq.text import LINE, count, percent, wrapped
from judgeq.ui.lines import (
    Clock,
    Face,
    Part,
    PlainLines,
    ProgressBar,
    Quiet,
    figures,
    notice_text,
    stopping_line,
)
from judgeq.ui.progress import Progress

SHARE = 0.02  # of the time may go into drawing
LONGEST_PAUSE = 5.0  # seconds: one slow frame must not freeze the picture
WIDTH = 100
"""Cells of the picture, at most: a wider one is harder to read."""


def choose(console: Console, *, quiet: bool) -> Face:
    """The face for this console: `Quiet` if asked, a `Dashboard` on a terminal, else `PlainLines`.

    FORCE_COLOR makes rich take a file for a terminal, therefore the file is asked as well.
    """
    if quiet:
        return Quiet(console)
    live = console.is_interactive and not console.is_dumb_terminal and console.file.isatty()
    return Dashboard(console) if live else PlainLines(console)


def choose_bar(stream: TextIO | None, wanted: bool | None) -> Face:
    """The face for a script or a notebook: a bar on a terminal and in a notebook. Elsewhere plain lines
    if `wanted`, and nothing if that is None."""
    drawn = stream is not None and (
        stream.isatty() or type(stream).__module__.startswith("ipykernel")
    )
    if stream is None or wanted is False or (wanted is None and not drawn):
        return Quiet(Console(quiet=True))
    console = Console(file=stream, width=LINE)
    return ProgressBar(console) if drawn else PlainLines(console)


class Dashboard(Face):
    """A picture at the foot of the terminal, drawn anew every `interval` seconds (0.1 at least)."""

    def __init__(
        self,
        console: Console,
        *,
        clock: Clock = time.monotonic,
        interval: float = 0.25,
    ) -> None:
        super().__init__(console, clock=clock)
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
        self._live.transient = self.progress.started is None  # nothing began
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
        """Draw every `interval` seconds, seldomer where drawing would take over 2 % of the time."""
        while True:
            began = self._clock()
            self.draw()
            # Half the old cost stays in: a single hiccup shouldn't stretch the pause that much.
            self._cost = (self._cost + self._clock() - began) / 2
            await asyncio.sleep(max(self._interval, min(self._cost / SHARE, LONGEST_PAUSE)))


def picture(progress: Progress, now: float, width: int, height: int) -> RenderableType:
    """The dashboard's picture for a terminal of this size: what matters least gives way first.

    Two columns stay free, so that the ^C a terminal echoes doesn't wrap and shift the picture.
    """
    width = max(16, min(width - 2, WIDTH))
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
    ends = _ends(progress, label, width, (room - 3) // 2)
    return Constrain(Group(title, bars, *gap, *rows, *ends, *foot), width)


def _bars(progress: Progress, label: int) -> Table:
    """What is under way: the round, and the run; "~" marks a total that is only expected."""
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
        bar = Bar(max(total, 1), done, complete_style="cyan", finished_style="green")
        share = Text(f"{percent(done, total)} %", "bold")
        grid.add_row(Text(name), bar, Text(f"{count(done)}/{about}{count(total)}"), share)
    return grid


def _rows(label: str, parts: Sequence[Part], width: int) -> list[Text]:
    """Parts after a label, joined by dots; where the line ends, the next one begins with a part."""
    lines = [_line().append(label, "dim")]
    for index, (words, style) in enumerate(parts):
        for place, piece in enumerate(wrapped(words, max(8, width - len(label)))):
            if place or (index and lines[-1].cell_len + 3 + cell_len(piece) > width):
                lines.append(_line().append(" " * len(label)))
            elif index:
                lines[-1].append(" · ", "dim")
            lines[-1].append(piece, style)
    return lines


def _line() -> Text:
    return Text(no_wrap=True, overflow="ellipsis")


def _ends(progress: Progress, label: int, width: int, most: int) -> list[Text]:
    """The highest and the lowest items, `most` of each at most, and by which rating."""
    if most < 1 or not progress.top:
        return []
    ends = {"highest": progress.top[:most], "lowest": progress.bottom[-most:]}
    ids = [plain(item.id, max(8, min(24, width // 4))) for part in ends.values() for item in part]
    column = max(map(cell_len, ids), default=0)
    elo = progress.rating == "elo"
    by = "by Elo for now; the final scores are fitted at the end" if elo else "by the scores so far"
    lines: list[Text] = []
    for name, placed in ends.items():
        for index, item in enumerate(placed):
            line = _line().append(("" if index else name).ljust(label), "dim")
            line.append(f"{item.rating:.{0 if elo else 2}f}".rjust(4)).append(" ")
            line.append(set_cell_size(ids[len(lines)], column), "cyan")
            room = max(1, width - line.cell_len - 1)
            lines.append(line.append(f" {plain(item.text or '', room)}", "dim"))
    return [Text(), _line().append(by, "dim"), *lines]


def _notice(notice: Notice) -> Text:
    return Text(notice_text(notice), "yellow" if notice.warning else "")
