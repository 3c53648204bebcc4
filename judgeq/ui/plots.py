"""`result.plot`: the figures of a run, drawn by the user, in the user's own style."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from judgeq.engine import session
from judgeq.engine.results import Result
from judgeq.errors import UsageError
from judgeq.evaluation import trail
from judgeq.evaluation.gold import Gold, Plan, gold_for
from judgeq.rating import THRESHOLDS
from judgeq.ui import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMES = (
    *("scale", "intervals", "settling", "gold", "roc", "thresholds", "slots", "length"),
    "judgments",
)


class Plots:
    """The figures of a run. Each is drawn into the Matplotlib axes `ax` (default: those of a new pyplot
    figure) and returns them. Raises UsageError if there is nothing to draw."""

    __slots__ = ("_result",)

    def __init__(self, result: Result) -> None:
        self._result = result

    def __repr__(self) -> str:
        return f"<Plots of {self._result.run.id}: {', '.join(NAMES)}>"

    def scale(self, ax: Axes | None = None) -> Axes:
        """How many items have which score; by gold label, if there are few."""
        return _drawn(ax, figures.distribution, self._result.scores)

    def intervals(self, ax: Axes | None = None) -> Axes:
        """Judged items by score, with their 95 % intervals; of many some, evenly."""
        if self._result.scores.intervals is None:
            name, compared = self._result.main.name, not self._result.history.alone
            hint = ' judgeq.open_run(…, rating="pl") has.' if compared else ""
            raise UsageError(f"plot.intervals: the rating {name} has no standard errors.{hint}")
        return _drawn(ax, figures.intervals, self._result.scores)

    def settling(self, ax: Axes | None = None) -> Axes:
        """How near the Elo after each round was to the final scores (Spearman's ρ)."""
        if self._result.rounds_planned < 2:
            raise UsageError("plot.settling: the run has one round: there is nothing to settle.")
        elo = trail.elo_by_round(self._result)[1:]
        return _drawn(ax, figures.settling, self._result.scores, elo)

    def gold(self, ax: Axes | None = None) -> Axes:
        """Each item's score by its gold label."""
        self._gold("gold")
        return _drawn(ax, figures.by_gold, self._result.scores)

    def roc(self, ax: Axes | None = None, *, positive_over: float | None = None) -> Axes:
        """The ROC curve of each rating; items with gold above `positive_over` are positive (None: the
        larger of two labels)."""
        gold = self._classes("roc", positive_over)
        return _drawn(ax, figures.roc, self._result.scores, gold)

    def thresholds(self, ax: Axes | None = None, *, positive_over: float | None = None) -> Axes:
        """Precision, recall and F1 by the score above which items are labelled positive, and the default
        threshold; `positive_over` as in `roc`."""
        gold, scores = self._classes("thresholds", positive_over), self._result.scores
        return _drawn(ax, figures.thresholds, scores, gold, THRESHOLDS[scores.main[0]])

    def slots(self, ax: Axes | None = None) -> Axes:
        """How often the text in each position wins, with its 95 % interval."""
        slots = self._result.slots
        if slots is None or not len(slots.rate):
            raise UsageError("plot.slots: no comparison was shown in a known order.")
        return _drawn(ax, figures.win_rates, slots)

    def length(self, ax: Axes | None = None) -> Axes:
        """Each item's score by the length of its text, in characters."""
        texts = self._result.scores.texts
        if texts is None and (dataset := session.dataset_of(self._result.run)) is not None:
            texts = dataset.texts
        if texts is None:
            raise UsageError("plot.length: the texts of this run aren't here.")
        return _drawn(ax, figures.by_length, self._result.scores, texts)

    def judgments(self, ax: Axes | None = None) -> Axes:
        """How many items were judged how often."""
        return _drawn(ax, figures.judgments, self._result.scores)

    def _gold(self, name: str, positive_over: float | None = None) -> Gold:
        gold = self._result.items.gold
        if gold is None or np.isnan(gold[self._result.scores.scored]).all():
            raise UsageError(f"plot.{name}: no judged item has a gold label.")
        return gold_for(self._result, Plan(positive_over=positive_over))

    def _classes(self, name: str, positive_over: float | None) -> Gold:
        gold = self._gold(name, positive_over)
        if gold.positive is None:
            raise UsageError(
                f"plot.{name}: the gold labels aren't of two classes: plot.{name}(positive_over=X) "
                "makes those above X positive."
            )
        return gold


def _drawn(ax: Axes | None, draw: Callable[..., None], *shown: object) -> Axes:
    """The axes, with what `draw` draws of `shown`."""
    if ax is None:
        from matplotlib import pyplot

        _, ax = pyplot.subplots(figsize=figures.SIZE, layout="constrained")
    draw(ax, *shown)
    return ax
