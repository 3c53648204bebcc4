"""How two ratings correlate, for any weighting of the items; so that it can be bootstrapped.

Every measure is computed for many weightings at once, from sums along orders that are worked out once: a
resample costs O(n), Kendall's τ O(n log n), and none of them sorts. Weights are how often an item was
drawn; with all 1 the measures are the plain ones. What is undefined (of a constant) is nan here,
and None where it is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from judgeq.types import Floats, Offsets, Rows

_ROUNDING = 1e-24
"""The share of squares below which a variance is what rounding leaves of a constant."""

Measure = Callable[[Floats], Floats]
"""Weights of shape (b, n) → values of shape (b,)."""


class Order:
    """Values of shape (n,) in ascending order: what weighted ranks need to know of them. With a `part`
    of each item, shape (n,), one part after the other."""

    def __init__(self, values: Floats | Offsets, part: Offsets | None = None) -> None:
        parts = np.zeros(len(values)) if part is None else part
        self.order: Offsets = np.lexsort((values, parts))
        ordered = np.stack([values, parts])[:, self.order]
        new = np.ones(len(values), dtype=np.bool_)
        new[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
        self.starts: Offsets = np.flatnonzero(new)
        """Where the groups of tied values begin."""
        self.group: Offsets = np.empty(len(values), dtype=np.int64)
        """The group of each item, in the order of the items."""
        self.group[self.order] = np.cumsum(new) - 1

    def sums(self, weights: Floats) -> Floats:
        """The weight of each group of tied values, shape (b, groups)."""
        if len(self.starts) > 1:
            return np.add.reduceat(weights[:, self.order], self.starts, axis=1)
        whole: Floats = weights.sum(axis=1, keepdims=True)
        return whole

    def spread(self, by_group: Floats) -> Floats:
        """To each item what its group has, shape (b, n), or (b, 1) where all are one."""
        return by_group if len(self.starts) == 1 else by_group[:, self.group]

    def ranks(self, weights: Floats) -> Floats:
        """Mean ranks from 1, as if each item stood there as often as it weighs; shape (b, n)."""
        sums = self.sums(weights)
        return (np.cumsum(sums, axis=1) - sums / 2 + 0.5)[:, self.group]


def _of_parts(part: Offsets | None, n: int) -> Order:
    return Order(np.zeros(n, np.int64) if part is None else part)


def pearson(x: Floats, y: Floats, part: Offsets | None = None) -> Measure:
    """Pearson's r between two ratings of shape (n,), without nan; with a `part` of each item, shape
    (n,), that within parts, pooled: of deviations from a part's mean."""
    by_part, near_x, near_y = _of_parts(part, len(x)), _scaled(x), _scaled(y)
    return lambda weights: _pearson(near_x, near_y, weights, by_part)


def spearman(x: Floats, y: Floats, part: Offsets | None = None) -> Measure:
    """Spearman's ρ between two ratings of shape (n,), without nan; ties by mean rank. With a `part` of
    each item that within parts, pooled: of ranks as shares of a part's items, of which weights change
    none."""
    by_x, by_y, by_part = Order(x, part), Order(y, part), _of_parts(part, len(x))
    if part is None:
        return lambda weights: _pearson(by_x.ranks(weights), by_y.ranks(weights), weights, by_part)
    each, size = np.ones((1, len(x))), np.bincount(part)[part]
    return pearson(by_x.ranks(each)[0] / size, by_y.ranks(each)[0] / size, part)


def _scaled(values: Floats) -> Floats:
    """Without changing a correlation: around 0, the largest ±1; so that squares keep their digits."""
    near: Floats = values - (np.median(values) if len(values) else 0)
    return near / (float(np.abs(near).max(initial=0)) or 1)


def _pearson(x: Floats, y: Floats, weights: Floats, part: Order) -> Floats:
    """The correlation of x with y, each of shape (n,) or (b, n), weighted, within each part; shape (b,),
    nan of a constant."""
    size = np.maximum(part.sums(weights), 1)

    def deviations(values: Floats) -> tuple[Floats, Floats]:
        """Those from the mean of each part, and the sum of their squares."""
        off = values - part.spread(part.sums(weights * values) / size)
        squares = (weights * off * off).sum(axis=1)
        squares[squares <= _ROUNDING * (weights * values * values).sum(axis=1)] = np.nan
        return off, squares

    (off_x, squares_x), (off_y, squares_y) = deviations(x), deviations(y)
    r = (weights * off_x * off_y).sum(axis=1) / np.sqrt(squares_x * squares_y)
    clipped: Floats = np.clip(r, -1, 1)  # rounding
    return clipped


def within(x: Floats, y: Floats, component: Offsets) -> tuple[float | None, float | None, int]:
    """Pearson's r and Spearman's ρ within components, pooled, and over how many items. (The mean of the
    components' own r would count a pair of items as ±1.) All of shape (n,), without nan."""
    several = np.bincount(component)[component] > 1
    x, y, part = x[several], y[several], component[several]
    of_values, of_ranks = (point(kind(x, y, part), len(part)) for kind in (pearson, spearman))
    return of_values, of_ranks, len(part)


def centred(values: Floats, part: Offsets | Rows) -> Floats:
    """Values less the mean of their part; what rounding leaves of a constant is 0."""
    off = values - (np.bincount(part, values) / np.maximum(np.bincount(part), 1))[part]
    off[np.abs(off) < 1e-12 * np.abs(values).max(initial=0)] = 0
    return off


class Kendall:
    """Kendall's τ-b: (concordant − discordant pairs) / √((pairs not tied in x)(… in y)).

    Discordant pairs are counted as inversions of the numbers of y in the order of x: two numbers
    first differ in one of their bits, and each bit is a level, of the items in the order of all higher
    bits and then of x, which is worked out once. In it the later ones are added up by prefix sums of the
    weights. With a `part` of each item, only pairs within a part count: those of two parts are put in
    the same order by both, one part after the other, so that none of them is discordant.
    """

    def __init__(self, x: Floats, y: Floats, part: Offsets | None = None) -> None:
        self._x, self._y = Order(x, part), Order(y, part)
        self._both = Order(self._y.group, self._x.group)  # pairs tied in both
        self._parts = _of_parts(part, len(x))
        self._levels: list[tuple[Offsets, Offsets, Offsets]] = []
        values = self._y.group[self._both.order]
        for bit in range(int(values.max(initial=0)).bit_length()):
            order = np.argsort(values >> bit + 1, kind="stable")
            higher, ones = values[order] >> bit + 1, np.flatnonzero(values[order] >> bit & 1)
            ends = np.searchsorted(higher, higher[ones], side="right") - 1
            self._levels.append((self._both.order[order], ones, ends))

    def __call__(self, weights: Floats) -> Floats:
        """τ-b of shape (b,) for weights of shape (b, n), which are whole numbers."""
        drawn = np.ascontiguousarray(weights.T, dtype=np.int32)  # whole rows of b are moved at once
        discordant = np.zeros(len(weights), dtype=np.int64)
        for items, ones, ends in self._levels:
            level = drawn[items]
            of_ones = level[ones]
            level[ones] = 0
            zeros = np.cumsum(level, axis=0, dtype=np.int32)
            discordant += (of_ones * (zeros[ends] - zeros[ones])).sum(axis=0, dtype=np.int64)
        # Twice the pairs of each sort; an item with itself is tied in both.
        total, tied_x, tied_y, tied_both = (
            (order.sums(weights) ** 2).sum(axis=1)
            for order in (self._parts, self._x, self._y, self._both)
        )
        product = (total - tied_x) * (total - tied_y)
        product[product == 0] = np.nan
        tau: Floats = (total - tied_x - tied_y + tied_both - 4 * discordant) / np.sqrt(product)
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
