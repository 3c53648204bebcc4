"""Figures: their style, axes and files; and those of a run, which `result.plot` draws in a user's own
style, and a report in ours.

Matplotlib is imported when something is drawn. Neither pyplot nor the user's matplotlibrc has a
part in it: the same data give the same bytes.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from judgeq.engine.results import Result
from judgeq.errors import UsageError
from judgeq.evaluation import items
from judgeq.rating import correlation
from judgeq.types import Floats, Offsets

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, distinct to the colour-blind too; yellow last, as it is faint on white.
PALETTE = ["#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#000000", "#F0E442"]
LEVELS = ["#440154", "#443983", "#31688E", "#21918C", "#35B779", "#90D743"]
"""Colours of ordered levels (viridis), from the lowest; levels of gold labels are at most as many."""
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


def figure(draw: Callable[[Axes], object]) -> Figure:
    """A figure in our style, with axes into which it is drawn."""
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=SIZE, layout="constrained")
        draw(figure.subplots())
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


def legend(axes: Axes, title: str | None = None) -> None:
    """A legend next to the axes: to look for the best place within takes seconds if much is drawn."""
    axes.legend(title=title, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


# Of a run

EACH = 300
"""Items, or points of a curve, that are drawn one by one at most."""
POINTS = 2_000
"""Points that are drawn as shapes at most; more become pixels."""
GROUPS = 12
"""Gold labels whose medians are drawn, at most."""
BINS = 40


class Plots:
    """The figures of a run. Each is drawn into the Matplotlib axes `ax` (default: those of a new pyplot
    figure) and returns them. Raises UsageError if there is nothing to draw."""

    def __init__(self, result: Result) -> None:
        scores = result.scores
        name, values = scores.main
        self._result, self._name, self._label = result, name, f"Score ({name})"
        self._rows = np.flatnonzero(scores.scored)
        self._values, self._golds = values[self._rows], scores.gold[self._rows]

    def __repr__(self) -> str:
        return f"<Plots of {self._result.run.id}: {', '.join(NAMES)}>"

    def _repr_html_(self) -> str:
        """Return all figures that there are, as images in a page."""
        images = []
        for name in NAMES:
            try:
                image = content(figure(getattr(self, name)), "png")
            except UsageError:  # there is nothing to draw
                continue
            code = base64.b64encode(image).decode()
            images.append(f'<img alt="{name}" src="data:image/png;base64,{code}">')
        return "\n".join(images)

    def scale(self, ax: Axes | None = None) -> Axes:
        """How many items have which score; by gold label, if there are few."""
        ax, values = self._on(ax, self._label, "Items", whole="y"), self._values
        bins = min(BINS, max(8, round(len(values) ** 0.5)))
        edges = np.histogram_bin_edges(values, bins=bins).tolist()
        labels = _levels(self._golds, len(LEVELS))
        shades = np.linspace(0, len(LEVELS) - 1, len(labels)).round().astype(int)
        parts = [values[self._golds == one] for one in labels] or [values]
        colours = [LEVELS[shade] for shade in shades] or PALETTE[:1]
        ax.hist(parts, edges, stacked=True, color=colours, label=[f"{one:g}" for one in labels])
        if labels:
            legend(ax, "Gold label")
        return ax

    def intervals(self, ax: Axes | None = None) -> Axes:
        """Judged items by score, with their 95 % intervals; of many some, evenly."""
        sure, values = self._result.scores.intervals, self._values
        if sure is None:
            raise UsageError(
                f"plot.intervals: the rating {self._name} has no standard errors; "
                'judgeq.open_run(…, rating="pl") may have.'
            )
        if self._result.scores.groups is not None:
            raise UsageError("plot.intervals: each group has an order of its own.")
        at = _some(len(values))
        which = np.argsort(-values, kind="stable")[at]
        rows, place = self._rows[which], at + 1
        ax = self._on(ax, "Place in the order", self._label, whole="x")
        ax.axhline(0, color=GRID, linewidth=1)
        ax.vlines(place, sure.low[rows], sure.high[rows], color=PALETTE[4], linewidth=1.2)
        ax.plot(place, values[which], "o", ms=2.5, color=PALETTE[0])
        return ax

    def settling(self, ax: Axes | None = None) -> Axes:
        """How near the Elo after each round was to the final scores (Spearman's ρ)."""
        if self._result.rounds_planned < 2:
            raise UsageError("plot.settling: the run has one round: there is nothing to settle.")
        elo, n = items.elo_by_round(self._result)[1:, self._rows], len(self._rows)
        part = None if self._result.scores.group is None else self._result.scores.group[self._rows]
        near = [correlation.point(correlation.spearman(one, self._values, part), n) for one in elo]
        ax = self._on(ax, "After round", "ρ with the final order", whole="x", grid=True)
        ax.plot(np.arange(1, len(near) + 1), np.array(near, float), "o-", color=PALETTE[0], ms=4)
        return ax

    def link(self, ax: Axes | None = None) -> Axes:
        """The settled score of each text that new ones met, by what the new answers say of it."""
        link = self._result.fit.link
        if link is None:
            raise UsageError("plot.link: the run isn't placed onto another one (--onto).")
        ax = self._on(ax, "Settled score", "By the new answers")
        ends = [float(link.published.min()), float(link.published.max())]
        ax.plot(ends, ends, color=GRID, linewidth=1)
        reach = 1.96 * link.found_errors
        ax.vlines(link.published, link.found - reach, link.found + reach, color=PALETTE[4], lw=1)
        ax.plot(link.published, link.found, "o", ms=3, color=PALETTE[0])
        return ax

    def gold(self, ax: Axes | None = None) -> Axes:
        """Each item's score by its gold label; if labels are few, with the median of each."""
        known = ~np.isnan(self._golds)
        if not known.any():
            raise UsageError("plot.gold: no judged item has a gold label.")
        gold, values = self._golds[known], self._values[known]
        ax = self._on(ax, "Gold label", self._label)
        _scatter(ax, gold, values)
        if labels := _levels(gold, GROUPS):
            medians = [float(np.median(values[gold == one])) for one in labels]
            ends = np.array(labels) + 0.3 * np.diff(labels).min() * np.array([[-1], [1]])
            ax.hlines(medians, *ends, color=PALETTE[1], linewidth=1.5)
            ax.set_xticks(labels, [f"{one:g}" for one in labels])
        return ax

    def _on(self, ax: Axes | None, x: str, y: str, **how: Any) -> Axes:
        """The axes, named; the title of a rehearsal's says what it is."""
        ax = label(ax, x, y, **how)
        if mark := self._result.scores.mark:
            rehearsal = self._result.info.settings.rehearsal
            what = "made-up answers" if rehearsal else "answers from the gold labels"
            ax.set_title(f"{mark}{what}", loc="left")
        return ax


NAMES = tuple(name for name in vars(Plots) if not name.startswith("_"))


def _levels(gold: Floats, most: int) -> list[float]:
    """The different gold labels, ascending; none if they are more than `most`, or all the same."""
    labels = np.unique(gold[~np.isnan(gold)])
    return labels.tolist() if 2 <= len(labels) <= most else []


def _some(n: int) -> Offsets:
    """Of n places those that are drawn, evenly: EACH at most."""
    return np.unique(np.linspace(0, n - 1, EACH).round().astype(np.int64))


def _scatter(ax: Axes, x: Floats, y: Floats) -> None:
    many = len(x) > POINTS
    size, alpha = (3, 0.25) if many else (5, 0.5) if len(x) > EACH else (7, 0.6)
    ax.plot(x, y, ".", ms=size, alpha=alpha, mew=0, color=PALETTE[0], rasterized=many)
