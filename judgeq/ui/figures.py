"""Figures: their style and files, and those of a run, each drawn into Axes: ours, or a user's own.

Matplotlib is imported when something is drawn. Neither pyplot nor the user's matplotlibrc has a
part in it: the same data give the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from judgeq.rating import correlation
from judgeq.types import Bools, Floats, Offsets

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from judgeq.engine.scores import Scores
    from judgeq.evaluation.gold import Gold
    from judgeq.rating.position_bias import Slots

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
EACH = 300
"""Items, or points of a curve, that are drawn one by one at most."""
POINTS = 2_000
"""Points that are drawn as shapes at most; more become pixels."""
GROUPS = 12
"""Gold labels whose medians are drawn, at most."""
WIDE = 300
"""Where lengths differ by more than this factor, only powers of ten stand at the axis."""
BINS = 40


@contextmanager
def style(**more: Any) -> Iterator[None]:
    """Matplotlib's defaults and ours, whatever the user's matplotlibrc says; restored afterwards."""
    import matplotlib.style

    with matplotlib.style.context(["default", STYLE | more]):
        yield


def figure(*panels: tuple[Callable[..., None], *tuple[Any, ...]]) -> Figure:
    """A figure in our style: side by side, what functions below draw of the values that follow each."""
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=SIZE, layout="constrained")
        grid = figure.subplots(1, len(panels), squeeze=False).ravel()
        for axes, (draw, *shown) in zip(grid, panels, strict=True):
            draw(axes, *shown)
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


def label(axes: Axes, x: str, y: str, *, whole: str = "", grid: bool = False) -> None:
    """Name the axes; those in `whole` ("x", "y", "xy") count in whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axes.set(xlabel=x, ylabel=y)
    for name in whole:
        getattr(axes, f"{name}axis").set_major_locator(MaxNLocator(integer=True))
    if grid:
        axes.grid(color=GRID, linewidth=0.6)


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


def distribution(axes: Axes, scores: Scores) -> None:
    """How many items have which score; by gold label, if there are few."""
    name, values = scores.main
    values, gold = values[scores.scored], scores.gold[scores.scored]
    label(axes, f"Score ({name})", "Items", whole="y")
    bins = min(BINS, max(8, round(len(values) ** 0.5)))
    edges = np.histogram_bin_edges(values, bins=bins).tolist()
    labels = levels(gold)
    if not len(labels):
        axes.hist(values, edges, color=PALETTE[0])
        return
    shades = np.linspace(0, len(LEVELS) - 1, len(labels)).round().astype(int)
    axes.hist(
        [values[gold == one] for one in labels],
        edges,
        stacked=True,
        color=[LEVELS[shade] for shade in shades],
        label=[f"{one:g}" for one in labels],
    )
    legend(axes, "Gold label")


def levels(gold: Floats, most: int = len(LEVELS)) -> Floats:
    """The different gold labels, ascending; none if they are more than `most`, or all the same."""
    labels = np.unique(gold[~np.isnan(gold)])
    return labels if 2 <= len(labels) <= most else labels[:0]


def intervals(axes: Axes, scores: Scores) -> None:
    """Judged items by score, with their 95 % intervals; of many some, evenly."""
    name, values = scores.main
    rows = np.flatnonzero(scores.scored)
    rows = rows[np.argsort(-values[rows], kind="stable")]
    at = _some(len(rows))
    rows, rank = rows[at], at + 1
    label(axes, "Place in the order", f"Score ({name})", whole="x")
    axes.axhline(0, color=GRID, linewidth=1)
    sure = scores.intervals
    if sure is not None:
        axes.vlines(rank, sure.low[rows], sure.high[rows], color=PALETTE[4], linewidth=1.2)
    axes.plot(rank, values[rows], "o", ms=2.5, color=PALETTE[0])


def settling(axes: Axes, scores: Scores, elo: Sequence[Floats]) -> None:
    """How near the ratings after each round, shape (n,), were to the final scores."""
    rows = np.flatnonzero(scores.scored)
    theta, n = scores.main[1][rows], len(rows)
    near = [correlation.point(correlation.spearman(one[rows], theta), n) for one in elo]
    label(axes, "After round", "ρ with the final order", whole="x", grid=True)
    axes.plot(np.arange(1, len(near) + 1), np.array(near, float), "o-", color=PALETTE[0], ms=4)


def roc(axes: Axes, scores: Scores, gold: Gold) -> None:
    """The ROC curve of each rating that all items with gold have."""
    both, positive = _labelled(scores, gold)
    label(axes, "False positive rate", "True positive rate")
    axes.plot([0, 1], [0, 1], color=GRID)
    for (name, ratings), colour in zip(scores.ratings.items(), PALETTE * 9, strict=False):
        values = ratings[both]
        if np.isnan(values).any():
            continue
        _, over, true = _by_threshold(values, positive)
        recall = true / max(1, positive.sum())
        false = (over - true) / max(1, (~positive).sum())
        axes.plot([0, *false], [0, *recall], color=colour, label=name)
    axes.legend(frameon=False, loc="lower right")


def thresholds(axes: Axes, scores: Scores, gold: Gold, chosen: float | None) -> None:
    """Precision, recall and F1 by the score above which an item is labelled positive."""
    both, positive = _labelled(scores, gold)
    name, ratings = scores.main
    cut, over, true = _by_threshold(ratings[both], positive)
    total = positive.sum()
    label(axes, f"Threshold ({name})", "", grid=True)
    axes.set_ylim(0, 1.02)
    measures = {"precision": true / over, "recall": true / max(1, total)}
    measures["F1"] = 2 * true / (over + total)
    for (measure, values), colour in zip(measures.items(), PALETTE, strict=False):
        axes.plot(cut, values, color=colour, label=measure)
    if chosen is not None:
        axes.axvline(chosen, color=FAINT, linestyle="--", linewidth=1)
    legend(axes)


def _by_threshold(values: Floats, positive: Bools) -> tuple[Floats, Offsets, Offsets]:
    """Some of the values from high to low, and how many items, and how many positive ones, have at least
    that."""
    order = np.argsort(-values, kind="stable")
    cut, true = values[order], np.cumsum(positive[order], dtype=np.int64)
    last = np.flatnonzero(np.append(cut[1:] != cut[:-1], True))
    keep = last[_some(len(last))].astype(np.int64)
    return cut[keep], keep + 1, true[keep]


def _some(n: int) -> Offsets:
    """Of n places those that are drawn, evenly: EACH at most."""
    return np.unique(np.linspace(0, n - 1, EACH).round().astype(np.int64))


def _labelled(scores: Scores, gold: Gold) -> tuple[Bools, Bools]:
    """Which items have a score and a gold label, shape (n,), and which of those are positive."""
    both: Bools = scores.scored & ~np.isnan(gold.values)
    positive = np.zeros(0, np.bool_) if gold.positive is None else gold.positive[both]
    return both, positive


def by_gold(axes: Axes, scores: Scores) -> None:
    """Each item's score by its gold label; if labels are few, with the median of each."""
    both = scores.scored & ~np.isnan(scores.gold)
    label(axes, "Gold label", f"Score ({scores.main[0]})")
    gold, values = scores.gold[both], scores.main[1][both]
    _scatter(axes, gold, values)
    labels = levels(gold, GROUPS)
    if len(labels):
        reach = 0.3 * np.diff(labels).min()
        medians = [float(np.median(values[gold == one])) for one in labels]
        axes.hlines(medians, labels - reach, labels + reach, color=PALETTE[1], linewidth=1.5)
        axes.set_xticks(labels, [f"{one:g}" for one in labels])


def by_length(axes: Axes, scores: Scores, texts: Sequence[str]) -> None:
    """Each item's score by the length of its text."""
    rows = scores.scored
    label(axes, "Characters", f"Score ({scores.main[0]})")
    long = np.maximum(np.array([*map(len, texts)], dtype=np.float64)[rows], 1)
    wide = len(long) > 0 and long.max() > WIDE * long.min()
    logarithmic(axes, (1,) if wide else (1, 2, 5))
    _scatter(axes, long, scores.main[1][rows])


def _scatter(axes: Axes, x: Floats, y: Floats) -> None:
    many = len(x) > POINTS
    size, alpha = (3, 0.25) if many else (5, 0.5) if len(x) > EACH else (7, 0.6)
    axes.plot(x, y, ".", ms=size, alpha=alpha, mew=0, color=PALETTE[0], rasterized=many)


def win_rates(axes: Axes, slots: Slots) -> None:
    """How often the text in each position wins, with its 95 % interval."""
    place = np.arange(1, len(slots.rate) + 1)
    label(axes, "Position, in the order presented", "Win rate", whole="x")
    axes.axhline(0.5, color=FAINT, linestyle="--", linewidth=1)
    errors = np.maximum([slots.rate - slots.low, slots.high - slots.rate], 0)
    axes.errorbar(place, slots.rate, errors, fmt="o", ms=4, color=PALETTE[0], capsize=2)


def judgments(axes: Axes, scores: Scores) -> None:
    """How many items were judged how often."""
    times, n = np.unique(scores.matches, return_counts=True)
    label(axes, "Judgments", "Items", whole="xy")
    axes.bar(times, n, color=PALETTE[0])
