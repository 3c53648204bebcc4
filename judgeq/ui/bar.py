"""A progress bar on one line, for scripts and notebooks."""

from __future__ import annotations

from typing import TextIO

from rich.cells import cell_len
from rich.console import Console

from judgeq.ui.dashboard import Face, PlainLines, Quiet
from judgeq.ui.text import progress_line
from judgeq.untrusted import plain

WIDTH = 20
LINE = 110


class ProgressBar(Face):
    """Writes how far the round is over its own line, again and again; notices above it. A `stream`
    that can't be written to any longer is left alone."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._width = 0
        self._closed = False

    def __exit__(self, *exc: object) -> None:
        self.draw()
        if self._width:
            self._write("\n")

    def line(self) -> str:
        """The bar of this moment, and what stands beside it."""
        progress = self.progress
        ended = progress.done + progress.invalid + progress.failed
        filled = WIDTH * ended // max(1, progress.total)
        bar = "█" * filled + "░" * (WIDTH - filled)
        return f"{bar} {plain(progress_line(progress, self._clock()), LINE - WIDTH - 1)}"

    def draw(self) -> None:
        """Write the notices that came, and the bar below them."""
        for notice in self.progress.take_notices():
            self._over(("warning: " if notice.warning else "") + plain(notice.text, 1000))
            self._write("\n")
            self._width = 0
        if self.progress.round:
            self._over(self.line())

    def _over(self, line: str) -> None:
        """Write over what stands in the line."""
        width = cell_len(line)
        self._write(f"\r{line}{' ' * (self._width - width)}")
        self._width = width

    def _write(self, text: str) -> None:
        if self._closed:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._closed = True


def choose(stream: TextIO | None, wanted: bool | None) -> Face:
    """What shows a run on this stream: a bar on a terminal and in a notebook. Elsewhere plain lines
    where progress is `wanted`, and nothing where that isn't said."""
    drawn = stream is not None and (
        stream.isatty() or type(stream).__module__.startswith("ipykernel")
    )
    if stream is None or wanted is False or (wanted is None and not drawn):
        return Quiet(Console(quiet=True))
    return ProgressBar(stream) if drawn else PlainLines(Console(file=stream, width=160))
