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


def in_parts(values: Floats, part: Offsets | None) -> Order:
    """The order of values, one part after the other."""
    by_value = Order(values)
    if part is None:
        return by_value
    return Order((part * len(values) + by_value.group).astype(np.float64))


def pearson(x: Floats, y: Floats, part: Offsets | None = None) -> Measure:
    """Pearson's r between two ratings of shape (n,), without nan; with a `part` of each item, shape
    (n,), that within parts, pooled: of deviations from a part's mean."""
    if part is not None:
        within_x, within_y, by_part = (
            _scaled(centred(x, part)),
            _scaled(centred(y, part)),
            _parts(part),
        )
        return lambda weights: _pearson(within_x, within_y, weights, by_part)
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


def spearman(x: Floats, y: Floats, part: Offsets | None = None) -> Measure:
    """Spearman's ρ between two ratings of shape (n,), without nan; ties by mean rank. With a `part` of
    each item that within parts, pooled: of ranks as shares of a part's items, of which weights change
    none."""
    by_x, by_y = in_parts(x, part), in_parts(y, part)
    if part is None:
        return lambda weights: _pearson(by_x.ranks(weights), by_y.ranks(weights), weights)
    each, size = np.ones((1, len(x))), np.bincount(part)[part]
    return pearson(by_x.ranks(each)[0] / size, by_y.ranks(each)[0] / size, part)


def _parts(part: Offsets) -> Order:
    return Order(part.astype(np.float64))


def _scaled(values: Floats) -> Floats:
    """Without changing a correlation: around 0, the largest ±1; so that squares keep their digits."""
    if not len(values):
        return values
    _, exponent = np.frexp(np.abs(values).max())
    near: Floats = np.ldexp(values, -exponent)  # a power of 2, since to divide would round
    near = near - near.mean()
    return near / (float(np.abs(near).max()) or 1.0)


def _pearson(x: Floats, y: Floats, weights: Floats, part: Order | None = None) -> Floats:
    """The correlation of x with y, each of shape (n,) or (b, n), weighted, within each part; shape (b,).

    Nan where a variance is too small, for values within about ±1 or for ranks.
    """
    total = weights.sum(axis=1)
    total[total == 0] = 1
    if part is None:
        x = x - ((weights * x).sum(axis=1) / total)[:, None]
        y = y - ((weights * y).sum(axis=1) / total)[:, None]
    else:
        size = np.maximum(part.sums(weights), 1)
        x, y = (of - (part.sums(weights * of) / size)[:, part.group] for of in (x, y))
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
    """Pearson's r and Spearman's ρ within components, pooled, and over how many items. (The mean of the
    components' own r would count a pair of items as ±1.) All of shape (n,), without nan."""
    part = np.unique(component, return_inverse=True)[1].reshape(-1)
    several = np.bincount(part)[part] > 1
    x, y, part = x[several], y[several], part[several]
    of_values, of_ranks = (point(kind(x, y, part), len(part)) for kind in (pearson, spearman))
    return of_values, of_ranks, len(part)


def centred(values: Floats, part: Offsets) -> Floats:
    """Values less the mean of their part; what rounding leaves of a constant is 0."""
    off = values - (np.bincount(part, values) / np.maximum(np.bincount(part), 1))[part]
    off[np.abs(off) < 1e-12 * np.abs(values).max(initial=0)] = 0
    return off


class Kendall:
    """Kendall's τ-b: (concordant − discordant pairs) / √((pairs not tied in x)(… in y)).

    Discordant pairs are counted as the inversions that sorting by merging meets (Knight 1966), by
    prefix sums of the weights in the orders within the blocks of each level, which are worked out once.
    With a `part` of each item, only pairs within a part count: those of two parts are put in the same
    order by both, one part after the other, so that none of them is discordant.
    """

    def __init__(self, x: Floats, y: Floats, part: Offsets | None = None) -> None:
        self._x, self._y = in_parts(x, part), in_parts(y, part)
        self._parts = _parts(np.zeros(len(x), np.int64) if part is None else part)
        # Pairs tied in both: the groups of equal (x, y).
        self._both = Order((self._x.group * len(y) + self._y.group).astype(np.float64))
        self._first: Offsets = np.lexsort((self._y.group, self._x.group))
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
        total = (self._parts.sums(weights) ** 2).sum(axis=1)
        tied_x, tied_y, tied_both = (
            (order.sums(weights) ** 2).sum(axis=1) for order in (self._x, self._y, self._both)
        )
        # Twice the pairs of each sort; an item with itself is tied in both.
        pairs = total - tied_x - tied_y + tied_both
        product = (total - tied_x) * (total - tied_y)
        tau = np.full(len(weights), np.nan)
        np.divide(pairs - 4 * discordant, np.sqrt(product), out=tau, where=product > 0)
        return tau


CORRELATION: Mapping[str, Callable[..., Measure]] = {
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
