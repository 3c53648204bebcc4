"""How two ratings correlate, for any weighting of the items; so that it can be bootstrapped.

Every measure is computed for many weightings at once, from sums along orders that are worked out once: a
resample costs O(n), Kendall's τ O(n log n), and none of them sorts. Weights are how often an item was
drawn; with all 1 the measures are the plain ones. What is undefined (of a constant) is nan here,
and None where it is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from judgeq.types import Floats, Offsets

_DOUBTFUL = 1e-8
"""Below such a variance of values within ±1, rounding may show in a correlation."""


Measure = Callable[[Floats], Floats]
"""Weights of shape (b, n) → values of shape (b,)."""


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


def pearson(x: Floats, y: Floats) -> Measure:
    """Pearson's r between two ratings of shape (n,), without nan."""
    scaled_x, scaled_y = _scaled(x), _scaled(y)

    def measure(weights: Floats) -> Floats:
        r = _pearson(scaled_x, scaled_y, weights)
        # Those drawn may be equal, or so close to each other that they need a scale of their own.
        for row in np.flatnonzero(np.isnan(r)):
            drawn = np.flatnonzero(weights[row])
            own_x, own_y = x[drawn], y[drawn]
            if (own_x != own_x[:1]).any() and (own_y != own_y[:1]).any():
                own_weights = weights[row, drawn][None]
                (r[row],) = _pearson(_scaled(own_x), _scaled(own_y), own_weights)
        return r

    return measure


def spearman(x: Floats, y: Floats) -> Measure:
    """Spearman's ρ between two ratings of shape (n,), without nan; ties by mean rank."""
    by_x, by_y = Order(x), Order(y)
    return lambda weights: _pearson(by_x.ranks(weights), by_y.ranks(weights), weights)


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
    r = np.full(len(total), np.nan)
    defined = (x_variance > _DOUBTFUL) & (y_variance > _DOUBTFUL)
    np.divide(covariance, np.sqrt(x_variance * y_variance), out=r, where=defined)
    clipped: Floats = np.clip(r, -1, 1)  # rounding
    return clipped


def within(x: Floats, y: Floats, component: Offsets) -> tuple[float | None, float | None, int]:
    """Pearson's r and Spearman's ρ within components, pooled, and over how many items: those of
    deviations from a component's mean, and of its ranks as shares of its items. (The mean of the
    components' own r would count a pair of items as ±1.) All of shape (n,), without nan."""
    part = np.unique(component, return_inverse=True)[1].reshape(-1)
    several = np.bincount(part)[part] > 1
    x, y, part = x[several], y[several], part[several]
    n = len(part)

    def ranks(values: Floats) -> Floats:
        by_part = Order((part * n + Order(values).group).astype(np.float64))
        of_all: Floats = by_part.ranks(np.ones((1, n)))[0]
        return of_all / np.bincount(part)[part]

    both = (
        (centred(one, part), centred(other, part)) for one, other in ((x, y), (ranks(x), ranks(y)))
    )
    of_values, of_ranks = (point(pearson(*pair), n) for pair in both)
    return of_values, of_ranks, n


def centred(values: Floats, part: Offsets) -> Floats:
    """Values less the mean of their part; what rounding leaves of a constant is 0."""
    off = values - (np.bincount(part, values) / np.maximum(np.bincount(part), 1))[part]
    off[np.abs(off) < 1e-12 * np.abs(values).max(initial=0)] = 0
    return off


class Kendall:
    """Kendall's τ-b: (concordant − discordant pairs) / √((pairs not tied in x)(… in y)).

    Discordant pairs are counted as the inversions that sorting by merging meets (Knight 1966), by
    prefix sums of the weights in the orders within the blocks of each level, which are worked out once.
    """

    def __init__(self, x: Floats, y: Floats) -> None:
        self._x, self._y = Order(x), Order(y)
        # Pairs tied in both: the groups of equal (x, y).
        self._both = Order((self._x.group * len(y) + self._y.group).astype(np.float64))
        self._first: Offsets = np.lexsort((y, x))
        self._levels: list[tuple[Offsets, Offsets, Offsets]] = []
        place, values = np.arange(len(y)), self._y.group[self._first]
        for half in (1 << level for level in range(max(len(y) - 1, 0).bit_length())):
            # Places by y within blocks of two halves, those of left halves before equal ones of right.
            order = np.lexsort((place // half % 2, values, place // (2 * half)))
            rights = np.flatnonzero(order // half % 2)
            ends = np.minimum((order[rights] // (2 * half) + 1) * 2 * half, len(y)) - 1
            self._levels.append((order, rights, ends))

    def __call__(self, weights: Floats) -> Floats:
        """τ-b of shape (b,) for weights of shape (b, n)."""
        discordant = np.zeros(len(weights))
        for order, rights, ends in self._levels:
            level = weights[:, self._first[order]]
            of_right = level[:, rights]
            level[:, rights] = 0
            lefts = np.cumsum(level, axis=1)
            discordant += (of_right * (lefts[:, ends] - lefts[:, rights])).sum(axis=1)
        total = weights.sum(axis=1) ** 2
        tied_x, tied_y, tied_both = (
            (order.sums(weights) ** 2).sum(axis=1) for order in (self._x, self._y, self._both)
        )
        # Twice the pairs of each sort; an item with itself is tied in both.
        pairs = total - tied_x - tied_y + tied_both
        product = (total - tied_x) * (total - tied_y)
        tau = np.full(len(weights), np.nan)
        np.divide(pairs - 4 * discordant, np.sqrt(product), out=tau, where=product > 0)
        return tau


CORRELATION: Mapping[str, Callable[[Floats, Floats], Measure]] = {
    "pearson": pearson,
    "spearman": spearman,
    "kendall": Kendall,
}


def point(measure: Measure, n: int) -> float | None:
    """The measure of the items as they are; None where it is undefined."""
    if not n:
        return None
    (value,) = measure(np.ones((1, n)))
    return None if np.isnan(value) else float(value)
