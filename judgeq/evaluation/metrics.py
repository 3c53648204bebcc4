"""What is measured of scores against gold, a measure a line; intervals by resampling.

Measures are as in `rating/correlation.py`: for any weighting of the items. What is undefined (one
class only) is nan here, and None where it is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from judgeq.rating.correlation import Kendall, Measure, Order, pearson, point, spearman
from judgeq.text import LEFT_OUT
from judgeq.types import Bools, Floats, Offsets

NOTHING = 1e-9
"""A difference up to this is what rounding leaves of none."""
RESAMPLES = 1000
LEVEL = 0.95
FEW = 10
"""Units below which there is no interval: resamples of a few that agree mean nothing."""
ENOUGH = 0.9
"""The share of resamples that must have a value for an interval."""
_AT_ONCE = 125_000
"""Weights handled together: 1 MB, which stays in a core's cache."""


class Sample(NamedTuple):
    """Scores and what they are held against, each of shape (n,), without nan: gold; which items are
    `positive` (None without two classes); which the scores label so (None without a threshold); and the
    part of each, within which alone items are compared (None: all are one)."""

    scores: Floats
    gold: Floats
    positive: Bools | None = None
    labelled: Bools | None = None
    part: Offsets | None = None


def _auc(sample: Sample) -> Measure:
    """The area under the ROC curve, by the ranks of the positive items (Mann and Whitney): how often one
    is above a negative one, ties ½."""
    by_score, mask = Order(sample.scores), np.asarray(sample.positive, dtype=np.float64)

    def measure(weights: Floats) -> Floats:
        own = weights * mask
        positive = own.sum(axis=1)
        won = (own * by_score.ranks(weights)).sum(axis=1) - positive * (positive + 1) / 2
        with np.errstate(invalid="ignore"):
            area: Floats = won / (positive * (weights.sum(axis=1) - positive))
        return area

    return measure


Make = Callable[[Sample], Measure]
COUNTS = ("tp", "fp", "fn", "tn")
DETECTION = ("recall", "precision", "f1", "accuracy", "macro_f1", *COUNTS)


def _detected(name: str, sample: Sample) -> Measure:
    """That of DETECTION, by true and false positives, false and true negatives; with one class only,
    nothing. F1 is of the positive class."""
    positive, labelled = np.asarray(sample.positive), np.asarray(sample.labelled)
    cells = np.eye(4)[2 * ~labelled + (positive ^ labelled)]

    def measure(weights: Floats) -> Floats:
        tp, fp, tn, fn = (weights @ cells).T
        with np.errstate(divide="ignore", invalid="ignore"):
            of_positive, of_negative = tp / (2 * tp + fp + fn), tn / (2 * tn + fp + fn)
            values = {
                "recall": tp / (tp + fn),
                "precision": tp / (tp + fp),
                "f1": 2 * of_positive,
                "accuracy": (tp + tn) / (tp + fp + fn + tn),
                "macro_f1": of_positive + of_negative,
                "tp": tp,
                "fp": fp,
                "fn": fn,
                "tn": tn,
            }[name]
        return np.where((tp + fn > 0) & (fp + tn > 0), values, np.nan)

    return measure


MEASURES: Mapping[str, tuple[Literal["gold", "positive", "labelled"], Make]] = {
    "pearson": ("gold", lambda it: pearson(it.scores, it.gold, it.part)),
    "spearman": ("gold", lambda it: spearman(it.scores, it.gold, it.part)),
    "kendall": ("gold", lambda it: Kendall(it.scores, it.gold, it.part)),
    **{name: ("labelled", partial(_detected, name)) for name in DETECTION},
    "auc": ("positive", _auc),
}
"""Each measure: what of the sample it takes beside the scores, and how it is made."""


def measures(sample: Sample, names: Iterable[str] = tuple(MEASURES)) -> dict[str, Measure]:
    """Those of the measures of these names that a sample has what it takes for."""
    wanted = ((name, *MEASURES[name]) for name in names)
    return {
        name: make(sample) for name, takes, make in wanted if getattr(sample, takes) is not None
    }


# Intervals


@dataclass(frozen=True, slots=True)
class Measured:
    """A measure's value, and its percentile interval; None where there is none, and `why`. `resampled`
    are its values in the resamples."""

    value: float | None
    low: float | None = None
    high: float | None = None
    why: str | None = None
    resampled: Floats = field(
        default_factory=lambda: np.empty(0), repr=False, compare=False, metadata=LEFT_OUT
    )

    @property
    def zero_outside(self) -> bool:
        """Whether the interval doesn't contain 0."""
        if self.low is None or self.high is None:
            return False
        return self.low > NOTHING or self.high < -NOTHING


def resamples(n: int, times: int, rng: np.random.Generator) -> Iterator[Floats]:
    """How often each of n items is drawn when n are, with replacement: `times` rows, in parts."""
    at_once = max(1, _AT_ONCE // max(n, 1))
    for start in range(0, times, at_once):
        rows = min(at_once, times - start)
        drawn = rng.integers(0, n, (rows, n)) + np.arange(rows)[:, None] * n
        counts = np.bincount(drawn.reshape(-1), minlength=rows * n).reshape(rows, n)
        yield counts.astype(np.float64)


def measured(value: float | None, resampled: Floats) -> Measured:
    """A value with the percentile interval of its resampled values, if there are any; without where too
    many of them are nan."""
    known = resampled[~np.isnan(resampled)]
    if value is None or not len(resampled):
        return Measured(value)
    if len(known) < ENOUGH * len(resampled):
        why = "too few of the resamples have a value"
        return Measured(value, why=why, resampled=resampled)
    low, high = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return Measured(value, low, high, resampled=resampled)


def bootstrap(
    measures: Mapping[str, Measure], n: int, times: int, rng: np.random.Generator
) -> dict[str, Measured]:
    """Measures over n units, with their intervals from `times` resamples of them, the same for all; of
    fewer than FEW without."""
    drawn = {name: [np.empty(0)] for name in measures}
    for weights in resamples(n, times if n >= FEW else 0, rng):
        for name, measure in measures.items():
            drawn[name].append(measure(weights))
    return {
        name: measured(point(measure, n), np.concatenate(drawn[name]))
        for name, measure in measures.items()
    }
