"""The figures of a run: `result.plot` draws them in a user's own style, a report in ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from judgeq.engine.results import Result
from judgeq.errors import UsageError
from judgeq.evaluation import trail
from judgeq.evaluation.gold import gold_of
from judgeq.rating import THRESHOLDS, correlation
from judgeq.types import Bools, Floats, Offsets
from judgeq.ui.figures import FAINT, GRID, LEVELS, PALETTE, label, legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
        elo, n = trail.elo_by_round(self._result)[1:, self._rows], len(self._rows)
        near = [correlation.point(correlation.spearman(one, self._values), n) for one in elo]
        ax = self._on(ax, "After round", "ρ with the final order", whole="x", grid=True)
        ax.plot(np.arange(1, len(near) + 1), np.array(near, float), "o-", color=PALETTE[0], ms=4)
        return ax

    def gold(self, ax: Axes | None = None) -> Axes:
        """Each item's score by its gold label; if labels are few, with the median of each."""
        known = self._with_gold("gold")
        gold, values = self._golds[known], self._values[known]
        ax = self._on(ax, "Gold label", self._label)
        _scatter(ax, gold, values)
        if labels := _levels(gold, GROUPS):
            medians = [float(np.median(values[gold == one])) for one in labels]
            ends = np.array(labels) + 0.3 * np.diff(labels).min() * np.array([[-1], [1]])
            ax.hlines(medians, *ends, color=PALETTE[1], linewidth=1.5)
            ax.set_xticks(labels, [f"{one:g}" for one in labels])
        return ax

    def roc(self, ax: Axes | None = None, *, positive_over: float | None = None) -> Axes:
        """The ROC curve of each rating; items with gold above `positive_over` are positive (None: the
        larger of two labels)."""
        rows, positive = self._classes("roc", positive_over)
        ax = self._on(ax, "False positive rate", "True positive rate")
        ax.plot([0, 1], [0, 1], color=GRID)
        for (name, ratings), colour in zip(
            self._result.scores.ratings.items(), PALETTE * 9, strict=False
        ):
            if np.isnan(ratings[rows]).any():
                continue
            _, over, true = _by_threshold(ratings[rows], positive)
            recall = true / max(1, positive.sum())
            false = (over - true) / max(1, (~positive).sum())
            ax.plot([0, *false], [0, *recall], color=colour, label=name)
        ax.legend(frameon=False, loc="lower right")
        return ax

    def thresholds(
        self,
        ax: Axes | None = None,
        *,
        positive_over: float | None = None,
        used: float | None = None,
    ) -> Axes:
        """Precision, recall and F1 by the score above which items are labelled positive, and the
        threshold `used` (None: the rating's default); `positive_over` as in `roc`."""
        rows, positive = self._classes("thresholds", positive_over)
        cut, over, true = _by_threshold(self._result.scores.main[1][rows], positive)
        total = positive.sum()
        ax = self._on(ax, f"Threshold ({self._name})", "", grid=True)
        ax.set_ylim(0, 1.02)
        ax.plot(cut, true / over, color=PALETTE[0], label="precision")
        ax.plot(cut, true / max(1, total), color=PALETTE[1], label="recall")
        ax.plot(cut, 2 * true / (over + total), color=PALETTE[2], label="F1")
        used = THRESHOLDS[self._name] if used is None else used
        ax.axvline(used, color=FAINT, linestyle="--", linewidth=1)
        legend(ax)
        return ax

    def _on(self, ax: Axes | None, x: str, y: str, **how: Any) -> Axes:
        """The axes, named; the title of a rehearsal's says what it is."""
        ax = label(ax, x, y, **how)
        if mark := self._result.scores.mark:
            ax.set_title(f"{mark}made-up answers", loc="left")
        return ax

    def _with_gold(self, name: str) -> Bools:
        """Which of the scored items have gold."""
        known: Bools = ~np.isnan(self._golds)
        if not known.any():
            raise UsageError(f"plot.{name}: no judged item has a gold label.")
        return known

    def _classes(self, name: str, over: float | None) -> tuple[Offsets, Bools]:
        """The rows of scored items with gold, and which of them are positive."""
        rows = self._rows[self._with_gold(name)]
        positive = gold_of(self._result.scores.gold, name, over).positive
        if positive is None:
            raise UsageError(
                f"plot.{name}: the gold labels aren't of two classes: plot.{name}(positive_over=X) "
                "makes those above X positive."
            )
        return rows, positive[rows]


NAMES = tuple(name for name in vars(Plots) if not name.startswith("_"))


def _levels(gold: Floats, most: int) -> list[float]:
    """The different gold labels, ascending; none if they are more than `most`, or all the same."""
    labels = np.unique(gold[~np.isnan(gold)])
    return labels.tolist() if 2 <= len(labels) <= most else []


def _by_threshold(values: Floats, positive: Bools) -> tuple[Floats, Offsets, Offsets]:
    """Some of the values from high to low, and how many items, and how many positive ones, have at least
    that."""
    cut = np.unique(values)[::-1]
    cut = cut[_some(len(cut))]
    above = values >= cut[:, None]
    return cut, above.sum(axis=1), above[:, positive].sum(axis=1)


def _some(n: int) -> Offsets:
    """Of n places those that are drawn, evenly: EACH at most."""
    return np.unique(np.linspace(0, n - 1, EACH).round().astype(np.int64))


def _scatter(ax: Axes, x: Floats, y: Floats) -> None:
    many = len(x) > POINTS
    size, alpha = (3, 0.25) if many else (5, 0.5) if len(x) > EACH else (7, 0.6)
    ax.plot(x, y, ".", ms=size, alpha=alpha, mew=0, color=PALETTE[0], rasterized=many)
