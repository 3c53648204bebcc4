"""How good a rating is, for any weighting of the items; so that it can be bootstrapped.

Every measure is computed for many weightings at once, from sums along orders that are found once: a
resample costs O(n), Kendall's τ O(n log n), and none of them sorts. Weights are how often an item was
drawn; with all 1 the measures are the plain ones. What can't be told (a constant, one class only) is
nan here, and None where it is shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from judgeq.types import Bools, Floats, Offsets

RESAMPLES = 1000
LEVEL = 0.95
ENOUGH = 0.9
"""An interval is told if so many of the resamples can tell the measure."""
_AT_ONCE = 125_000
"""Weights handled together: 1 MB, which stays in a core's cache."""
_DOUBTFUL = 1e-8
"""Below such a variance of values within ±1, rounding may tell in a correlation."""

Measure = Callable[[Floats], Floats]
"""Weights of shape (b, n) → values of shape (b,)."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A measure's value, and its percentile interval; None where it can't be told."""

    value: float | None
    low: float | None = None
    high: float | None = None


class Order:
    """Values of shape (n,) in ascending order: what weighted ranks need to know of them."""

    def __init__(self, values: Floats) -> None:
        self.order: Offsets = np.argsort(values, kind="stable")
        ordered = values[self.order]
        new = np.ones(len(values), dtype=np.bool_)
        new[1:] = ordered[1:] != ordered[:-1]
        self.starts: Offsets = np.flatnonzero(new)
        """Where the groups of tied values begin."""
        group = np.cumsum(new) - 1
        self.group: Offsets = np.empty(len(values), dtype=np.int64)
        """The group of each item, in the order of the items."""
        self.group[self.order] = group

    def sums(self, weights: Floats) -> Floats:
        """The weight of each group of tied values, shape (b, groups)."""
        return np.add.reduceat(weights[:, self.order], self.starts, axis=1)

    def ranks(self, weights: Floats) -> Floats:
        """Mean ranks from 1, as if each item stood there as often as it weighs; shape (b, n)."""
        sums = self.sums(weights)
        return (np.cumsum(sums, axis=1) - sums / 2 + 0.5)[:, self.group]


def correlation(x: Floats, y: Floats) -> Mapping[str, Measure]:
    """Pearson's r, Spearman's ρ and Kendall's τ-b between two ratings of shape (n,), without nan."""
    by_x, by_y = Order(x), Order(y)
    scaled_x, scaled_y = _scaled(x), _scaled(y)

    def pearson(weights: Floats) -> Floats:
        found = _pearson(scaled_x, scaled_y, weights)
        # Those drawn may be equal, or so close to each other that they need a scale of their own.
        for row in np.flatnonzero(np.isnan(found)):
            drawn = np.flatnonzero(weights[row])
            some_x, some_y = x[drawn], y[drawn]
            if (some_x != some_x[:1]).any() and (some_y != some_y[:1]).any():
                own = weights[row, drawn][None]
                (found[row],) = _pearson(_scaled(some_x), _scaled(some_y), own)
        return found

    def spearman(weights: Floats) -> Floats:
        return _pearson(by_x.ranks(weights), by_y.ranks(weights), weights)

    return {"pearson": pearson, "spearman": spearman, "kendall": Kendall(x, y)}


def _scaled(values: Floats) -> Floats:
    """Without changing a correlation: around 0, the largest ±1; so that squares keep their digits."""
    if not len(values):
        return values
    _, exponent = np.frexp(np.abs(values).max())
    near: Floats = np.ldexp(values, -exponent)  # a power of 2, since to divide would round
    near = near - near.mean()
    return near / (float(np.abs(near).max()) or 1.0)


def _pearson(x: Floats, y: Floats, weights: Floats) -> Floats:
    """The correlation of x with y, each of shape (n,) or (b, n), weighted; shape (b,).

    Nan where a variance is too small, for values within about ±1 or for ranks.
    """
    total = weights.sum(axis=1)
    total[total == 0] = 1
    x = x - ((weights * x).sum(axis=1) / total)[:, None]
    y = y - ((weights * y).sum(axis=1) / total)[:, None]
    wx = weights * x
    covariance = (wx * y).sum(axis=1) / total
    x_variance = (wx * x).sum(axis=1) / total
    y_variance = (weights * y * y).sum(axis=1) / total
    told = (x_variance > _DOUBTFUL) & (y_variance > _DOUBTFUL)
    found = np.full(len(total), np.nan)
    found[told] = covariance[told] / np.sqrt(x_variance[told] * y_variance[told])
    found[told] = np.clip(found[told], -1, 1)  # rounding
    return found


class Kendall:
    """Kendall's τ-b: (concordant − discordant pairs) / √((pairs not tied in x)(… in y)).

    Discordant pairs are counted as the inversions that sorting by merging meets (Knight 1966), by
    prefix sums of the weights in the orders within the blocks of each level, which are found once.
    """

    def __init__(self, x: Floats, y: Floats) -> None:
        self._x, self._y = Order(x), Order(y)
        # Pairs tied in both: the groups of equal (x, y).
        self._both = Order((self._x.group * len(y) + self._y.group).astype(np.float64))
        self._first: Offsets = np.lexsort((y, x))
        self._levels = list(self._merged(self._y.group[self._first]))

    @staticmethod
    def _merged(y: Offsets) -> Iterator[tuple[Offsets, Bools, Offsets, Offsets]]:
        """Of each level: places by y within blocks of 2s, whether each is of a block's left half, and
        of those of the right half the place and the end of the block."""
        n, half = len(y), 1
        place = np.arange(n)
        while half < n:
            block, right = place // (2 * half), place // half % 2
            order = np.lexsort((right, y, block))
            rights = np.flatnonzero(right[order])
            ends = np.minimum((block[order][rights] + 1) * 2 * half, n) - 1
            yield order, right[order] == 0, rights, ends
            half *= 2

    def __call__(self, weights: Floats) -> Floats:
        """τ-b of shape (b,) for weights of shape (b, n)."""
        sorted_weights = weights[:, self._first]
        discordant = np.zeros(len(weights))
        for order, left, rights, ends in self._levels:
            some = sorted_weights[:, order]
            before = np.cumsum(np.where(left, some, 0.0), axis=1)
            discordant += (some[:, rights] * (before[:, ends] - before[:, rights])).sum(axis=1)
        total = weights.sum(axis=1) ** 2
        tied_x, tied_y, tied_both = (
            (each.sums(weights) ** 2).sum(axis=1) for each in (self._x, self._y, self._both)
        )
        # Twice the pairs of each sort; an item with itself is tied in both.
        pairs = total - tied_x - tied_y + tied_both
        product = (total - tied_x) * (total - tied_y)
        found = np.full(len(weights), np.nan)
        told = product > 0
        found[told] = (pairs[told] - 4 * discordant[told]) / np.sqrt(product[told])
        return found


def detection(scores: Floats, positive: Bools, said: Bools) -> Mapping[str, Measure]:
    """Recall, accuracy, precision, F1 of the positive class, macro F1 and ROC AUC.

    `positive` is the truth, `said` what a threshold makes of the scores, all of shape (n,).
    """
    cells = np.stack(
        [positive & said, ~positive & said, positive & ~said, ~positive & ~said], axis=1
    ).astype(np.float64)

    def counted(rule: Callable[[Floats, Floats, Floats, Floats], Floats]) -> Measure:
        def measure(weights: Floats) -> Floats:
            tp, fp, fn, tn = (weights @ cells).T
            with np.errstate(divide="ignore", invalid="ignore"):
                found = rule(tp, fp, fn, tn)
            # With one class only none of them means anything.
            return np.where((tp + fn > 0) & (fp + tn > 0), found, np.nan)

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


def _auc(scores: Floats, positive: Bools) -> Measure:
    """The area under the ROC curve: how often a positive item is above a negative one, ties ½."""
    by_score = Order(scores)
    mask = positive.astype(np.float64)

    def measure(weights: Floats) -> Floats:
        above = by_score.sums(weights * mask)
        below = by_score.sums(weights * (1 - mask))
        pairs = above.sum(axis=1) * below.sum(axis=1)
        won = (above * (np.cumsum(below, axis=1) - below / 2)).sum(axis=1)
        found = np.full(len(weights), np.nan)
        found[pairs > 0] = won[pairs > 0] / pairs[pairs > 0]
        return found

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
    """The percentile interval of a measure's resampled values; None where too many can't be told."""
    told = values[~np.isnan(values)]
    if not len(values) or len(told) < ENOUGH * len(values):
        return None, None
    low, high = np.quantile(told, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def point(measure: Measure, n: int) -> float | None:
    """The measure of the items as they are; None where it can't be told."""
    if not n:
        return None
    (value,) = measure(np.ones((1, n)))
    return None if np.isnan(value) else float(value)


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
    for members in (np.flatnonzero(positive), np.flatnonzero(~positive)):
        fold[rng.permutation(members)] = np.arange(len(members)) % folds
    thresholds = np.array(
        [best_threshold(scores[fold != f], positive[fold != f]) for f in range(folds)]
    )
    said: Bools = scores > thresholds[fold]
    return said, thresholds
