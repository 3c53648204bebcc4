"""A progress bar on one line, for scripts and notebooks."""

from __future__ import annotations

from typing import TextIO

from rich.cells import set_cell_size
from rich.console import Console

from judgeq.escaping import plain
from judgeq.ui.dashboard import Face, PlainLines, Quiet, write, write_notices
from judgeq.ui.text import progress_line

WIDTH = 20
LINE = 110


class ProgressBar(Face):
    """Writes how far the round is over its own line, again and again; notices above it."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._console = Console(file=stream)

    def __exit__(self, *exc: object) -> None:
        self.draw()
        if self.progress.round:
            write(self._console, "")

    def draw(self) -> None:
        """Write the notices that came, and the bar below them."""
        progress = self.progress
        if progress.notices and progress.round:
            write(self._console, f"\r{' ' * LINE}\r", end="")
        write_notices(self._console, progress)
        if progress.round:
            ended = progress.done + progress.invalid + progress.failed
            bar = ("█" * (WIDTH * ended // max(1, progress.total))).ljust(WIDTH, "░")
            line = f"{bar} {plain(progress_line(progress, self._clock()), LINE)}"
            write(self._console, f"\r{set_cell_size(line, LINE)}", end="")


def choose(stream: TextIO | None, wanted: bool | None) -> Face:
    """What shows a run on this stream: a bar on a terminal and in a notebook. Elsewhere plain lines
    where progress is `wanted`, and nothing where that isn't said."""
    drawn = stream is not None and (
        stream.isatty() or type(stream).__module__.startswith("ipykernel")
    )
    if stream is None or wanted is False or (wanted is None and not drawn):
        return Quiet(Console(quiet=True))
    return ProgressBar(stream) if drawn else PlainLines(Console(file=stream, width=160))
