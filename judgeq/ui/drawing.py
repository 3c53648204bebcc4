"""How figures are drawn: colours, style, and a figure's file.

Matplotlib is imported when something is drawn. Neither pyplot nor the user's matplotlibrc has a
part in it: the same data give the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, distinct to the colour-blind too; yellow last, as it is faint on white.
PALETTE = ["#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#000000", "#F0E442"]
FAINT = "#777777"
GRID = "#E4E4E4"
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "jq",
    "text.parse_math": False,  # a name with two dollars is no formula
}
_THEMED = {
    "#000000": "var(--ink)",
    FAINT: "var(--faint)",
    GRID: "var(--rule)",
    **{colour: f"var(--series-{at}, {colour})" for at, colour in enumerate(PALETTE[:6], start=1)},
}
"""What a page may show in other colours, in the dark say."""
_TEXT = {"svg.fonttype": "none"}  # as text, which is small, and can be selected and read aloud


@contextmanager
def style(**more: Any) -> Iterator[None]:
    """Matplotlib's defaults and ours, whatever the user's matplotlibrc says; put back after."""
    import matplotlib.style

    with matplotlib.style.context(["default", STYLE | more]):
        yield


def logarithmic(axes: Axes, at: Sequence[float]) -> None:
    """Across, with plain numbers `at` so many times each power of ten: Matplotlib's own are formulas."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=at))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.10g}"))


def content(figure: Figure, kind: str, *, clear: bool = False, **more: Any) -> bytes:
    """A figure's file, "png" or "svg", without the metadata that would differ from day to day; `clear`:
    on no ground of its own; `more` are settings of Matplotlib's."""
    metadata: dict[str, None] = {"Software": None} if kind == "png" else {"Date": None}
    file = BytesIO()
    with style(**more):
        figure.savefig(
            file, format=kind, dpi=150, metadata=metadata, bbox_inches="tight", transparent=clear
        )
    return file.getvalue()


def inline(figure: Figure, name: str) -> str:
    """A figure as an <svg> of a page that has others, in the page's colours. `name`, of letters and
    hyphens, keeps its ids apart from theirs."""
    svg = content(figure, "svg", clear=True, **_TEXT).decode()
    svg = svg[svg.index("<svg") :]
    # Matplotlib's style sheet would hold for the whole page, which has it for its figures.
    svg = re.sub(r"<(metadata|style)\b.*?</\1>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<svg ([^>]*)>", _opened, svg, count=1, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    for colour, variable in _THEMED.items():
        svg = re.sub(rf"\b((?:fill|stroke): ){colour}\b", rf"\g<1>{variable}", svg, flags=re.I)
    return svg


def _opened(match: re.Match[str]) -> str:
    """The tag of a page's <svg>: as wide as there is room for, and described beside it."""
    box = re.search(r'viewBox="[^"]*"', match[1])
    width = re.search(r'width="([\d.]+)pt"', match[1])
    size = "" if width is None else f' style="max-width: {float(width[1]) * 4 / 3:.0f}px"'
    return f'<svg {box[0] if box else ""} aria-hidden="true" focusable="false"{size}>'
