"""How well a rating detects, intervals by resampling, and thresholds.

Measures are as in `rating/correlation.py`: for any weighting of the items. What is undefined (one
class only) is nan here, and None where it is shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from judgeq.rating.correlation import Measure, Order, point
from judgeq.types import Bools, Floats

RESAMPLES = 1000
LEVEL = 0.95
ENOUGH = 0.9
"""The share of resamples that must have a value for an interval."""
_AT_ONCE = 125_000
"""Weights handled together: 1 MB, which stays in a core's cache."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A measure's value, and its percentile interval; None where there is none, and `why`."""

    value: float | None
    low: float | None = None
    high: float | None = None
    why: str | None = None


def detection(scores: Floats, positive: Bools, labelled: Bools) -> Mapping[str, Measure]:
    """Recall, accuracy, precision, F1 of the positive class, macro F1 and ROC AUC.

    `positive` is the truth, `labelled` what a threshold makes of the scores, all of shape (n,).
    """
    cells = np.stack(
        [positive & labelled, ~positive & labelled, positive & ~labelled, ~positive & ~labelled],
        axis=1,
    ).astype(np.float64)

    def counted(rule: Callable[[Floats, Floats, Floats, Floats], Floats]) -> Measure:
        def measure(weights: Floats) -> Floats:
            tp, fp, fn, tn = (weights @ cells).T
            with np.errstate(divide="ignore", invalid="ignore"):
                values = rule(tp, fp, fn, tn)
            # With one class only none of them means anything.
            return np.where((tp + fn > 0) & (fp + tn > 0), values, np.nan)

        return measure

    def f1(tp: Floats, fp: Floats, fn: Floats) -> Floats:
        return 2 * tp / (2 * tp + fp + fn)

    return {
        "recall": counted(lambda tp, fp, fn, tn: tp / (tp + fn)),
        "accuracy": counted(lambda tp, fp, fn, tn: (tp + tn) / (tp + fp + fn + tn)),
        "precision": counted(lambda tp, fp, fn, tn: tp / (tp + fp)),
        "f1": counted(lambda tp, fp, fn, tn: f1(tp, fp, fn)),
        "macro_f1": counted(lambda tp, fp, fn, tn: (f1(tp, fp, fn) + f1(tn, fn, fp)) / 2),
        "auc": _auc(scores, positive),
    }


def confusion(positive: Bools, labelled: Bools) -> Mapping[str, Measure]:
    """How many items are true and false positive, false and true negative."""
    cells = {
        "tp": positive & labelled,
        "fp": ~positive & labelled,
        "fn": positive & ~labelled,
        "tn": ~positive & ~labelled,
    }
    return {name: _counted(cell.astype(np.float64)) for name, cell in cells.items()}


def _counted(cell: Floats) -> Measure:
    return lambda weights: weights @ cell


def _auc(scores: Floats, positive: Bools) -> Measure:
    """The area under the ROC curve: how often a positive item is above a negative one, ties ½."""
    by_score = Order(scores)
    mask = positive.astype(np.float64)

    def measure(weights: Floats) -> Floats:
        above = by_score.sums(weights * mask)
        below = by_score.sums(weights * (1 - mask))
        pairs = above.sum(axis=1) * below.sum(axis=1)
        won = (above * (np.cumsum(below, axis=1) - below / 2)).sum(axis=1)
        area: Floats = np.divide(won, pairs, out=np.full(len(weights), np.nan), where=pairs > 0)
        return area

    return measure


def resamples(n: int, times: int, rng: np.random.Generator) -> Iterator[Floats]:
    """How often each of n items is drawn when n are, with replacement: `times` rows, in parts."""
    at_once = max(1, _AT_ONCE // max(n, 1))
    for start in range(0, times, at_once):
        rows = min(at_once, times - start)
        drawn = rng.integers(0, n, (rows, n)) + np.arange(rows)[:, None] * n
        counts = np.bincount(drawn.reshape(-1), minlength=rows * n).reshape(rows, n)
        yield counts.astype(np.float64)


def interval(values: NDArray[np.float64]) -> tuple[float | None, float | None]:
    """The percentile interval of a measure's resampled values; None where too many are nan."""
    known = values[~np.isnan(values)]
    if not len(values) or len(known) < ENOUGH * len(values):
        return None, None
    low, high = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def measured(value: float | None, resampled: Floats | None) -> Measured:
    """A value with the interval of its resampled values, if there are any."""
    if value is None or resampled is None:
        return Measured(value)
    low, high = interval(resampled)
    why = "too few of the resamples have a value" if low is None else None
    return Measured(value, low, high, why)


def bootstrapped(measure: Measure, n: int, times: int, rng: np.random.Generator) -> Measured:
    """A measure over n units, with its interval from `times` resamples of them."""
    drawn = [measure(weights) for weights in resamples(n, times, rng)]
    return measured(point(measure, n), np.concatenate(drawn) if drawn else None)


def best_threshold(scores: Floats, positive: Bools) -> float:
    """The threshold whose labels (positive: above it) have the highest F1 of the positive class.

    Half-way between neighbouring scores, or just below the lowest (all are positive); of several the
    one in the middle. Needs both classes.
    """
    order = np.argsort(-scores, kind="stable")
    ordered, hits = scores[order], np.cumsum(positive[order])
    cuts = np.flatnonzero(np.append(ordered[:-1] != ordered[1:], True))
    f1 = 2 * hits[cuts] / (cuts + 1 + hits[-1])
    best = cuts[np.flatnonzero(f1 == f1.max())]
    cut = best[len(best) // 2]
    high = float(ordered[cut])
    if cut == len(ordered) - 1:
        return math.nextafter(high, -math.inf)
    low = float(ordered[cut + 1])
    middle = low / 2 + high / 2  # halved first, since large ones have no sum
    return middle if low <= middle < high else low  # neighbouring floats have nothing between


def cross_validated(
    scores: Floats, positive: Bools, rng: np.random.Generator, folds: int = 10
) -> tuple[Bools, Floats]:
    """Labels of shape (n,) by a threshold that was chosen without the item itself, and the thresholds
    of the folds. The folds are drawn within each class. Needs two items of each class at least."""
    n = len(scores)
    folds = max(2, min(folds, int(positive.sum()), int((~positive).sum())))
    fold = np.empty(n, dtype=np.int64)
    for rows in (np.flatnonzero(positive), np.flatnonzero(~positive)):
        fold[rng.permutation(rows)] = np.arange(len(rows)) % folds
    thresholds = np.array(
        [best_threshold(scores[fold != f], positive[fold != f]) for f in range(folds)]
    )
    labelled: Bools = scores > thresholds[fold]
    return labelled, thresholds
