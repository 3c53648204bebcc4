"""`python -m benchmarks.pictures`: draw the README's pictures anew, from a run of the demo corpus.

The same versions give the same bytes: the run is the simulated judge's, and the dashboard's clock ours.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

from matplotlib.figure import Figure
from rich.console import Console
from rich.terminal_theme import TerminalTheme

import judgeq
from judgeq.events import CallEnded, CallStarted, Event, RoundStarted
from judgeq.files import replacing
from judgeq.ui import figures
from judgeq.ui.dashboard import Dashboard

FOLDER = Path(__file__).parent.parent / "docs"
DASHBOARD, SCALE = FOLDER / "dashboard.svg", FOLDER / "scale.svg"
BETWEEN = 0.7
"""Seconds from one answer to the next, by the dashboard's clock."""
WIDTH = 100
THEME = TerminalTheme(
    (24, 26, 31),
    (226, 226, 222),
    [
        *((24, 26, 31), (240, 110, 110), (80, 200, 140), (233, 176, 74)),
        *((110, 170, 240), (214, 140, 200), (80, 190, 210), (226, 226, 222)),
    ],
    [
        *((130, 134, 145), (255, 140, 140), (110, 225, 165), (255, 205, 110)),
        *((140, 195, 255), (235, 170, 225), (120, 215, 235), (255, 255, 255)),
    ],
)
"""On a dark ground of its own, so that it can be read on a light page and on a dark one."""
TERMINAL = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>The dashboard of judgeq run</title>
<style>text {{ font: {char_height}px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }}
{styles}</style>
<defs>{lines}</defs>
<rect fill="#181a1f" width="{width}" height="{height}" rx="8"/>
<text fill="#828691" x="{terminal_x}" y="26">$ judgeq run -d demo</text>
<g transform="translate({terminal_x}, {terminal_y})">{backgrounds}<g>{matrix}</g></g>
</svg>
"""
"""As rich's own, which asks another server for a font."""


def main() -> None:
    events: list[Event] = []
    with tempfile.TemporaryDirectory() as folder:
        result = judgeq.run(
            "demo", runs_dir=folder, concurrency=1, progress=False, on_event=events.append
        )
        _write(DASHBOARD, dashboard(events))
        _write(SCALE, scale(result))


def dashboard(events: list[Event]) -> str:
    """The dashboard in the midst of the last round, as it stands on a terminal."""
    now, left = 1.0, len(events)
    console = Console(
        record=True, width=WIDTH, height=30, file=io.StringIO(), force_terminal=True, _environ={}
    )
    face = Dashboard(console, clock=lambda: now)
    for event in events:
        face(event)
        if isinstance(event, RoundStarted) and event.round == face.progress.rounds:
            left = event.counts.total * 2 // 5
        if isinstance(event, CallEnded):
            now += BETWEEN
            left -= 1
        if left <= 0 and isinstance(event, CallStarted):
            break
    console.print(face.picture())
    return console.export_svg(theme=THEME, code_format=TERMINAL, unique_id="judgeq")


def scale(result: judgeq.Result) -> str:
    """The scale: how the scores are spread, and their intervals; on white, as the report's figures."""
    with figures.style():
        figure = Figure(figsize=(9.5, 3.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        result.plot.scale(left)
        result.plot.intervals(right)
        figure.draw_without_rendering()
    return figures.content(figure, "svg", **figures.AS_TEXT).decode()


def _write(path: Path, svg: str) -> None:
    with replacing(path) as file:
        file.write(svg)
    print(f"drawn: {path} ({path.stat().st_size / 1000:.0f} kB)")


if __name__ == "__main__":
    main()
