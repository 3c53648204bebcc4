"""Figures: their style, axes and files.

Matplotlib is imported when something is drawn. Neither pyplot nor the user's matplotlibrc has a
part in it: the same data give the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, distinct to the colour-blind too; yellow last, as it is faint on white.
PALETTE = ["#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#000000", "#F0E442"]
LEVELS = ["#440154", "#443983", "#31688E", "#21918C", "#35B779", "#90D743"]
"""Colours of ordered levels (viridis), from the lowest; levels of gold labels are at most as many."""
FAINT = "#777777"
GRID = "#E4E4E4"
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "svg.hashsalt": "jq",
    "text.parse_math": False,  # a name with two dollars is no formula
}
_THEMED = {
    "#000000": "var(--ink)",
    FAINT: "var(--faint)",
    GRID: "var(--rule)",
    **{colour: f"var(--series-{at}, {colour})" for at, colour in enumerate(PALETTE[:6], start=1)},
    **{colour: f"var(--level-{at}, {colour})" for at, colour in enumerate(LEVELS, start=1)},
}
"""What a page may show in other colours, for example in the dark."""
AS_TEXT: dict[str, Any] = {"svg.fonttype": "none"}
"""A setting: words in an SVG are text, which is small, and can be selected and read aloud."""
SIZE = (8.0, 2.9)
"""Inches: as wide as a page's text."""


@contextmanager
def style(**more: Any) -> Iterator[None]:
    """Matplotlib's defaults and ours, whatever the user's matplotlibrc says; restored afterwards."""
    import matplotlib.style

    with matplotlib.style.context(["default", STYLE | more]):
        yield


def figure(*panels: Callable[[Axes], object]) -> Figure:
    """A figure in our style: side by side, what these draw."""
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=SIZE, layout="constrained")
        for axes, draw in zip(
            figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
        ):
            draw(axes)
        figure.draw_without_rendering()  # ticks take their style when first drawn
    return figure


def content(figure: Figure, kind: str, *, clear: bool = False, **more: Any) -> bytes:
    """A figure's file, "png" or "svg", without the metadata that would differ from day to day; `clear`:
    without a background; `more` are settings of Matplotlib's."""
    metadata: dict[str, None] = {"Software": None} if kind == "png" else {"Date": None}
    file = BytesIO()
    with style(**more):
        figure.savefig(file, format=kind, dpi=150, metadata=metadata, transparent=clear)
    return file.getvalue()


def inline(figure: Figure, name: str) -> str:
    """A figure as an <svg> of a page that has others, in the page's colours. `name`, of letters and
    hyphens, keeps its ids apart from theirs."""
    svg = content(figure, "svg", clear=True, **AS_TEXT).decode()
    svg = svg[svg.index("<svg") :]
    # Matplotlib's style sheet would hold for the whole page, which has its own.
    svg = re.sub(r"<(metadata|style)\b.*?</\1>", "", svg, flags=re.DOTALL)
    opened = r'<svg \1 aria-hidden="true" focusable="false">'  # described by its caption
    svg = re.sub(r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', opened, svg, count=1)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    for colour, variable in _THEMED.items():
        svg = re.sub(rf"\b((?:fill|stroke): ){colour}\b", rf"\g<1>{variable}", svg, flags=re.I)
    return svg


def label(ax: Axes | None, x: str, y: str, *, whole: str = "", grid: bool = False) -> Axes:
    """The axes (None: those of a new pyplot figure), named; those in `whole` ("x", "y", "xy") count in
    whole numbers."""
    from matplotlib.ticker import MaxNLocator

    if ax is None:
        from matplotlib import pyplot

        _, ax = pyplot.subplots(figsize=SIZE, layout="constrained")
    ax.set(xlabel=x, ylabel=y)
    for name in whole:
        getattr(ax, f"{name}axis").set_major_locator(MaxNLocator(integer=True))
    if grid:
        ax.grid(color=GRID, linewidth=0.6)
    return ax


def logarithmic(axes: Axes, at: Sequence[float]) -> None:
    """A logarithmic x axis with plain numbers, `at` these multiples of each power of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=at))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.10g}"))


def legend(axes: Axes, title: str | None = None) -> None:
    """A legend next to the axes: to look for the best place within takes seconds if much is drawn."""
    axes.legend(title=title, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
