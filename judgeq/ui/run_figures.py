"""The figures of a run: its scale, its gold, its judge, its money.

Each is drawn into Axes, by what they show: those of a report's figure, or a user's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from judgeq.engine.scores import Scores
from judgeq.evaluation.gold import Gold
from judgeq.rating import correlation
from judgeq.rating.position_bias import Slots
from judgeq.types import Bools, Floats, Offsets
from judgeq.ui import drawing
from judgeq.ui.drawing import FAINT, GRID, PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

WIDTH = 6.8
"""Inches: a page's column."""
EACH = 300
"""So many items are the most that are drawn one by one; of more a band is."""
POINTS = 2_000
"""So many points are the most that are drawn as shapes; more become pixels."""
CLASSES = 6
"""Gold of more different labels than these is no class."""
GROUPS = 12
"""Gold of more different labels than these is no group whose median is drawn."""
WIDE = 300
"""Where lengths differ by more than this factor, only powers of ten stand at the axis."""
BINS = 40
TIMES = 60
"""So many bars are the most that say how often items were judged."""


def figure(draw: Callable[..., None], *shown: object) -> Figure:
    """A figure of its own, in our style, as one of the functions below draws it."""
    from matplotlib.figure import Figure

    with drawing.style():
        figure = Figure(figsize=size(draw), layout="constrained")
        draw(figure.subplots(), *shown)
        figure.draw_without_rendering()  # ticks take their style when first drawn
    return figure


def size(draw: Callable[..., None]) -> tuple[float, float]:
    """The width and height, in inches, of what one of the functions below draws."""
    return WIDTH, HEIGHTS[draw]


def _whole_numbers(axis: Axis) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))


def _legend(axes: Axes) -> None:
    """Beside the axes: to look for the best place within takes seconds where much is drawn."""
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


def distribution(axes: Axes, scores: Scores, gold: Floats | None) -> None:
    """How the scores are spread; by the classes of the gold labels, where they are few."""
    name, values = scores.main
    rows = scores.scored
    values = values[rows]
    axes.set(xlabel=f"Score ({name})", ylabel="Items")
    bins = min(BINS, max(8, round(len(values) ** 0.5)))
    edges = np.histogram_bin_edges(values, bins=bins).tolist()
    _whole_numbers(axes.yaxis)
    groups = classes(gold[rows]) if gold is not None else []
    if groups:
        labels = [f"gold {label:g}" for label, _ in groups]
        data = [values[rows] for _, rows in groups]
        axes.hist(data, edges, stacked=True, color=PALETTE[: len(data)], label=labels)
        _legend(axes)
    else:
        axes.hist(values, edges, color=PALETTE[0])


def classes(gold: Floats) -> list[tuple[float, Bools]]:
    """The gold labels and which items have each, where there are few of them."""
    labels = np.unique(gold[~np.isnan(gold)])
    if not 2 <= len(labels) <= CLASSES:
        return []
    return [(float(label), gold == label) for label in labels]


def caterpillar(axes: Axes, scores: Scores) -> None:
    """All judged items by score, with their 95 % intervals."""
    name, values = scores.main
    sure = scores.intervals
    rows = np.flatnonzero(scores.scored)
    rows = rows[np.argsort(values[rows], kind="stable")]
    place = np.arange(1, len(rows) + 1)
    axes.set(xlabel="Items, by score", ylabel=f"Score ({name})")
    axes.axhline(0, color=GRID, linewidth=1)
    if len(rows) <= EACH:
        if sure is not None:
            axes.vlines(place, sure.low[rows], sure.high[rows], color=PALETTE[4], linewidth=1.2)
        axes.plot(place, values[rows], "o", ms=2.5, color=PALETTE[0])
        return
    at = _some(len(rows))
    if sure is not None:
        band = _smooth(sure.low[rows], at), _smooth(sure.high[rows], at)
        axes.fill_between(place[at], *band, color=PALETTE[4], alpha=0.5, lw=0)
    axes.plot(place[at], values[rows][at], color=PALETTE[0], linewidth=1.2)


def _smooth(values: Floats, at: Offsets) -> Floats:
    """The mean of the values around each of these places."""
    ends = np.append(at, len(values))
    return np.array([values[a : max(b, a + 1)].mean() for a, b in pairwise(ends)])


def settling(axes: Axes, scores: Scores, elo: Sequence[Floats]) -> None:
    """How near the ratings after each round, shape (n,), were to the scores in the end."""
    rows = np.flatnonzero(scores.scored)
    theta = scores.main[1][rows]
    agreement = [
        correlation.point(correlation.spearman(rating[rows], theta), len(rows)) for rating in elo
    ]
    values = np.array([np.nan if value is None else value for value in agreement])
    axes.set(xlabel="After round", ylabel="Spearman’s ρ with the end")
    axes.grid(color=GRID, linewidth=0.6)
    axes.plot(np.arange(1, len(values) + 1), values, "o-", color=PALETTE[0], ms=4)
    _whole_numbers(axes.xaxis)


def roc(axes: Axes, scores: Scores, gold: Gold) -> None:
    """The ROC curve of each rating that all items with gold have."""
    both, positive = _labelled(scores, gold)
    axes.set(xlabel="False positive rate", ylabel="True positive rate", aspect="equal")
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
    """Precision, recall and F1 by the score over which an item is labelled positive."""
    both, positive = _labelled(scores, gold)
    name, ratings = scores.main
    cut, over, true = _by_threshold(ratings[both], positive)
    recall, precision = true / max(1, positive.sum()), true / over
    f1 = 2 * true / (over + positive.sum())
    axes.set(xlabel=f"Threshold ({name})", ylim=(0, 1.02))
    axes.grid(color=GRID, linewidth=0.6)
    for label, measure, colour in (
        ("precision", precision, PALETTE[0]),
        ("recall", recall, PALETTE[1]),
        ("F1", f1, PALETTE[2]),
    ):
        axes.plot(cut, measure, color=colour, label=label)
    if chosen is not None:
        axes.axvline(chosen, color=FAINT, linestyle="--", linewidth=1)
    _legend(axes)


def _by_threshold(values: Floats, positive: Bools) -> tuple[Floats, Offsets, Offsets]:
    """Some of the values from high to low, and how many items, and how many positive ones, have at least
    that."""
    order = np.argsort(-values, kind="stable")
    cut, true = values[order], np.cumsum(positive[order], dtype=np.int64)
    last = np.flatnonzero(np.append(cut[1:] != cut[:-1], True))
    keep = last[_some(len(last))].astype(np.int64)
    return cut[keep], keep + 1, true[keep]


def _some(n: int) -> Offsets:
    """Of n places so many, evenly, as are drawn one by one."""
    return np.unique(np.linspace(0, n - 1, EACH).round().astype(np.int64))


def _labelled(scores: Scores, gold: Gold) -> tuple[Bools, Bools]:
    """Which items have a score and a gold label, shape (n,), and which of those are positive."""
    both: Bools = scores.scored & ~np.isnan(gold.values)
    positive = np.zeros(0, np.bool_) if gold.positive is None else gold.positive[both]
    return both, positive


def by_gold(axes: Axes, scores: Scores, gold: Floats) -> None:
    """Each item's score by its gold label; of few labels with the median of those of each."""
    both = scores.scored & ~np.isnan(gold)
    axes.set(xlabel="Gold", ylabel=f"Score ({scores.main[0]})")
    gold, values = gold[both], scores.main[1][both]
    _scatter(axes, gold, values)
    labels = np.unique(gold)
    if few(labels):
        reach = 0.3 * np.diff(labels).min()
        medians = [float(np.median(values[gold == label])) for label in labels]
        axes.hlines(medians, labels - reach, labels + reach, color=PALETTE[1], linewidth=1.5)
        axes.set_xticks(labels, [f"{label:g}" for label in labels])


def few(labels: Floats) -> bool:
    """Whether gold labels are so few that each is a group."""
    return 2 <= len(labels) <= GROUPS


def by_length(axes: Axes, scores: Scores, texts: Sequence[str]) -> None:
    """Each item's score by the length of its text."""
    rows = scores.scored
    axes.set(xlabel="Characters", ylabel=f"Score ({scores.main[0]})")
    long = np.maximum(np.array([*map(len, texts)], dtype=np.float64)[rows], 1)
    wide = len(long) > 0 and long.max() > WIDE * long.min()
    drawing.logarithmic(axes, (1,) if wide else (1, 2, 5))
    _scatter(axes, long, scores.main[1][rows])


def _scatter(axes: Axes, x: Floats, y: Floats) -> None:
    """Points, all alike."""
    many = len(x) > POINTS
    size, alpha = (3, 0.25) if many else (5, 0.5) if len(x) > EACH else (7, 0.6)
    axes.plot(x, y, ".", ms=size, alpha=alpha, mew=0, color=PALETTE[0], rasterized=many)


def win_rates(axes: Axes, slots: Slots) -> None:
    """The win rate of each slot, with its 95 % interval."""
    place = np.arange(1, len(slots.rate) + 1)
    axes.set(xlabel="Slot, in the order presented", ylabel="Win rate")
    axes.axhline(0.5, color=FAINT, linestyle="--", linewidth=1)
    errors = np.stack([slots.rate - slots.low, slots.high - slots.rate])
    axes.errorbar(
        place, slots.rate, np.maximum(errors, 0), fmt="o", ms=4, color=PALETTE[0], capsize=2
    )
    _whole_numbers(axes.xaxis)


def judgments(axes: Axes, scores: Scores) -> None:
    """How many items were judged how often."""
    times = np.bincount(scores.matches)
    first = int(np.flatnonzero(times)[0])
    shown = times[first : first + TIMES]
    axes.set(xlabel="Judgments", ylabel="Items")
    axes.bar(np.arange(first, first + len(shown)), shown, color=PALETTE[0])
    _whole_numbers(axes.xaxis)
    _whole_numbers(axes.yaxis)


def time_line(
    axes: Axes, edges: Floats, parts: Sequence[tuple[str, Floats]], unit: str, what: str = "call"
) -> None:
    """Calls, or `what` there is, over time, by what became of them; `edges`, shape (bins + 1,), in the
    unit."""
    axes.set(xlabel=f"Time since the first {what} ({unit})", ylabel=f"{what.capitalize()}s")
    width, below = np.diff(edges), np.zeros(len(edges) - 1)
    for (name, counts), colour in zip(parts, PALETTE * 9, strict=False):
        look = {"color": colour, "label": name, "linewidth": 0}
        axes.bar(edges[:-1], counts, width, below, align="edge", **look)  # type: ignore[arg-type]
        below = below + counts
    _whole_numbers(axes.yaxis)
    _legend(axes)


HEIGHTS: Mapping[Callable[..., None], float] = {
    distribution: 2.6,
    caterpillar: 3.2,
    settling: 2.4,
    roc: 3.4,
    thresholds: 2.6,
    by_gold: 3.2,
    by_length: 3.2,
    win_rates: 2.4,
    judgments: 2.2,
    time_line: 2.4,
}
"""Inches."""
