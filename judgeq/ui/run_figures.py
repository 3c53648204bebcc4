"""The figures of a run: its scale, its gold, its judge, its money."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from judgeq.engine.scores import Scores
from judgeq.rating import correlation
from judgeq.rating.position_bias import Slots
from judgeq.types import Bools, Floats, Offsets
from judgeq.ui import drawing
from judgeq.ui.drawing import FAINT, GRID, PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 6.8
"""Inches: a page's column."""
EACH = 300
"""So many items are the most that are drawn one by one; of more a band is."""
POINTS = 2_000
"""So many points are the most that are drawn as shapes; more become pixels."""
CLASSES = 6
"""Gold of more different labels than these is no class."""
BINS = 40


def _axes(height: float, **labels: Any) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots()
    axes.set(**labels)
    return figure, axes


def _whole_numbers(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _logarithmic(axes: Axes) -> None:
    """Across, with plain numbers: Matplotlib's own are formulas."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.10g}"))


def _many(n: int) -> bool:
    return n > POINTS


def distribution(scores: Scores, gold: Floats | None) -> Figure:
    """How the scores are spread; by the classes of the gold labels, where they are few."""
    name, values = scores.main
    known = scores.judged & ~np.isnan(values)
    values = values[known]
    with drawing.style():
        figure, axes = _axes(2.6, xlabel=f"Score ({name})", ylabel="Items")
        bins = min(BINS, max(8, round(len(values) ** 0.5)))
        edges = np.histogram_bin_edges(values, bins=bins).tolist()
        groups = _classes(gold[known]) if gold is not None else []
        if groups:
            labels = [f"gold {label:g}" for label, _ in groups]
            data = [values[rows] for _, rows in groups]
            axes.hist(data, edges, stacked=True, color=PALETTE[: len(data)], label=labels)
            axes.legend(frameon=False)
        else:
            axes.hist(values, edges, color=PALETTE[0])
        figure.draw_without_rendering()  # ticks take their style when first drawn
    return figure


def _classes(gold: Floats) -> list[tuple[float, Bools]]:
    """The gold labels and which items have each, where there are few of them."""
    labels = np.unique(gold[~np.isnan(gold)])
    if not 2 <= len(labels) <= CLASSES:
        return []
    return [(float(label), gold == label) for label in labels]


def caterpillar(scores: Scores) -> Figure:
    """All judged items by score, with their 95 % intervals."""
    name, values = scores.main
    sure = scores.intervals
    rows = np.flatnonzero(scores.judged & ~np.isnan(values))
    rows = rows[np.argsort(values[rows], kind="stable")]
    place = np.arange(1, len(rows) + 1)
    with drawing.style():
        figure, axes = _axes(3.2, xlabel="Items, by score", ylabel=f"Score ({name})")
        axes.axhline(0, color=GRID, linewidth=1)
        if sure is not None:
            low, high = sure.low[rows], sure.high[rows]
            if len(rows) <= EACH:
                axes.vlines(place, low, high, color=PALETTE[4], linewidth=1.2)
            else:
                at = np.unique(np.linspace(0, len(rows) - 1, EACH).round().astype(int))
                axes.fill_between(
                    place[at],
                    _smooth(low, at),
                    _smooth(high, at),
                    color=PALETTE[4],
                    alpha=0.5,
                    lw=0,
                )
        if len(rows) <= EACH:
            axes.plot(place, values[rows], "o", ms=2.5, color=PALETTE[0])
        else:
            axes.plot(place, values[rows], color=PALETTE[0], linewidth=1.2, rasterized=False)
        figure.draw_without_rendering()
    return figure


def _smooth(values: Floats, at: Offsets) -> Floats:
    """The mean of the values around each of these places."""
    ends = np.append(at, len(values))
    return np.array([values[a : max(b, a + 1)].mean() for a, b in pairwise(ends)])


def settling(agreement: Sequence[float | None]) -> Figure:
    """How near the ratings after each round were to those in the end."""
    rounds = np.arange(1, len(agreement) + 1)
    values = np.array([np.nan if value is None else value for value in agreement])
    with drawing.style():
        figure, axes = _axes(2.4, xlabel="After round", ylabel="Spearman’s ρ with the end")
        axes.grid(color=GRID, linewidth=0.6)
        axes.plot(rounds, values, "o-", color=PALETTE[0], ms=4)
        _whole_numbers(axes)
        figure.draw_without_rendering()
    return figure


def roc(curves: Sequence[tuple[str, Floats, Bools]]) -> Figure:
    """The ROC curve of each rating: (name, scores, positive)."""
    with drawing.style():
        figure, axes = _axes(
            3.4, xlabel="False positive rate", ylabel="True positive rate", aspect="equal"
        )
        axes.plot([0, 1], [0, 1], color=GRID)
        for (name, scores, positive), colour in zip(curves, PALETTE * 9, strict=False):
            order = np.argsort(-scores, kind="stable")
            new = np.append(scores[order][1:] != scores[order][:-1], True)
            true = np.cumsum(positive[order])[new] / max(1, positive.sum())
            false = np.cumsum(~positive[order])[new] / max(1, (~positive).sum())
            keep = np.unique(np.linspace(0, len(true) - 1, EACH).round().astype(int))
            axes.plot([0, *false[keep]], [0, *true[keep]], color=colour, label=name)
        axes.legend(frameon=False, loc="lower right")
        figure.draw_without_rendering()
    return figure


def thresholds(name: str, scores: Floats, positive: Bools, chosen: float | None) -> Figure:
    """Precision, recall and F1 by the score over which an item is labelled positive."""
    order = np.argsort(-scores, kind="stable")
    cut = scores[order]
    true = np.cumsum(positive[order])
    labelled = np.arange(1, len(cut) + 1)
    last = np.append(cut[1:] != cut[:-1], True)
    keep = np.flatnonzero(last)
    keep = keep[np.unique(np.linspace(0, len(keep) - 1, EACH).round().astype(int))]
    recall, precision = true / max(1, positive.sum()), true / labelled
    f1 = 2 * true / (labelled + positive.sum())
    with drawing.style():
        figure, axes = _axes(2.6, xlabel=f"Threshold ({name})", ylim=(0, 1.02))
        axes.grid(color=GRID, linewidth=0.6)
        for label, values, colour in (
            ("precision", precision, PALETTE[0]),
            ("recall", recall, PALETTE[1]),
            ("F1", f1, PALETTE[2]),
        ):
            axes.plot(cut[keep], values[keep], color=colour, label=label)
        if chosen is not None:
            axes.axvline(chosen, color=FAINT, linestyle="--", linewidth=1)
        axes.legend(frameon=False)
        figure.draw_without_rendering()
    return figure


def scatter(x: Floats, y: Floats, xlabel: str, ylabel: str, *, log: bool = False) -> Figure:
    """Points, all alike."""
    with drawing.style():
        figure, axes = _axes(3.2, xlabel=xlabel, ylabel=ylabel)
        if log:
            _logarithmic(axes)
        many = _many(len(x))
        axes.plot(
            x,
            y,
            ".",
            ms=3 if many else 5,
            alpha=0.25 if many else 0.5,
            mew=0,
            color=PALETTE[0],
            rasterized=many,
        )
        figure.draw_without_rendering()
    return figure


def win_rates(slots: Slots) -> Figure:
    """The win rate of each slot, with its 95 % interval."""
    place = np.arange(1, len(slots.rate) + 1)
    with drawing.style():
        figure, axes = _axes(2.4, xlabel="Slot, in the order presented", ylabel="Win rate")
        axes.axhline(0.5, color=FAINT, linestyle="--", linewidth=1)
        errors = np.stack([slots.rate - slots.low, slots.high - slots.rate])
        axes.errorbar(
            place, slots.rate, np.maximum(errors, 0), fmt="o", ms=4, color=PALETTE[0], capsize=2
        )
        _whole_numbers(axes)
        figure.draw_without_rendering()
    return figure


def bars(values: Sequence[float], xlabel: str, ylabel: str, first: int = 1) -> Figure:
    """A bar for each whole number from `first` on."""
    with drawing.style():
        figure, axes = _axes(2.2, xlabel=xlabel, ylabel=ylabel)
        axes.bar(np.arange(first, first + len(values)), values, color=PALETTE[0])
        _whole_numbers(axes)
        figure.draw_without_rendering()
    return figure


def time_line(edges: Floats, parts: Sequence[tuple[str, Floats]], unit: str) -> Figure:
    """Calls over time, by what became of them; `edges`, shape (bins + 1,), in the unit."""
    with drawing.style():
        figure, axes = _axes(2.4, xlabel=f"Time since the first call ({unit})", ylabel="Calls")
        width, below = np.diff(edges), np.zeros(len(edges) - 1)
        for (name, counts), colour in zip(parts, PALETTE * 9, strict=False):
            axes.bar(
                edges[:-1],
                counts,
                width,
                below,
                align="edge",
                color=colour,
                label=name,
                linewidth=0,
            )
            below = below + counts
        axes.legend(frameon=False)
        figure.draw_without_rendering()
    return figure


def agreement_with_end(
    rounds: Sequence[Floats], theta: Floats, judged: Bools
) -> list[float | None]:
    """Spearman's ρ of the ratings after each round, shape (n,), with those in the end."""
    known = judged & ~np.isnan(theta)
    return [
        correlation.point(correlation.spearman(rating[known], theta[known]), int(known.sum()))
        for rating in rounds
    ]
