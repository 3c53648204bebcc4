"""The order of n items that are known to within their standard errors: θ_i ~ N(m_i, s_i²), independent.

How many items are expected above a value x is Σ Φ((m_i − x)/s_i), and the variance of that number
Σ Φ(1 − Φ). Both are worked out for all x of a grid at once: items are put into CLASSES of s, the m of
each class into a histogram, and that is convolved with its normal kernel by FFT: O(n), without draws.

ρ̂ is the expected Spearman correlation of the ratings with such θ: what they would correlate with the
scale of the same judge asked without end. It says nothing of whether that judge is right.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from judgeq.rating.posterior import Z
from judgeq.types import Floats

CLASSES = 24
_PARTS = 8
CERTAIN = 0.005
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(7)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
"""By which the mean over a normal distribution is taken."""
_TABLE = np.linspace(-8, 8, 4001)
_CDF = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in _TABLE.tolist()])


def normal(x: Floats) -> Floats:
    """The normal distribution function, by a table: 1e−6 off at most."""
    probability: Floats = np.interp(x, _TABLE, _CDF)
    return probability


def _mean(of: Callable[[Floats], Floats], mean: Floats, se: Floats) -> Floats:
    """The mean of `of` over each of some normal distributions."""
    total = np.zeros(len(mean))
    for node, weight in zip(_NODES.tolist(), _WEIGHTS.tolist(), strict=True):
        total += weight * of(mean + node * se)
    return total


class Order:
    """The places of items by their `mean` and standard error `se`, each of shape (n,)."""

    def __init__(self, mean: Floats, se: Floats) -> None:
        self.mean, self.se = mean, np.maximum(se, 1e-9)
        low, high = float((mean - 5 * self.se).min()), float((mean + 5 * self.se).max())
        fine = 8 * (high - low) / float(np.quantile(self.se, 0.01))
        size = 2 ** math.ceil(math.log2(min(max(1024, fine), 2**15)))
        self.x: Floats = np.linspace(low, high, size)

    @cached_property
    def _curves(self) -> tuple[Floats, Floats]:
        """At each x of the grid, how many items are expected above it, and the variance of that."""
        size, step = len(self.x), float(self.x[1] - self.x[0])
        edges = np.geomspace(self.se.min() * 0.999, self.se.max() * 1.001, CLASSES + 1)
        of = np.clip(np.searchsorted(edges, self.se, side="right") - 1, 0, CLASSES - 1)
        count = np.bincount(of, minlength=CLASSES)
        se = np.sqrt(np.bincount(of, self.se**2, CLASSES) / np.maximum(count, 1))
        at = (self.mean - self.x[0]) / step
        cell = np.minimum(at.astype(np.int64), size - 2)
        flat = np.bincount(of * size + cell, 1 - (at - cell), CLASSES * size)
        flat += np.bincount(of * size + cell + 1, at - cell, CLASSES * size)
        histograms = flat.reshape(CLASSES, size)
        lag: Floats = np.fft.fftfreq(2 * size, 1 / (2 * size)).astype(np.float64) * step
        above, spread = np.zeros(size + 1, complex), np.zeros(size + 1, complex)
        for number in np.flatnonzero(count).tolist():
            p = normal(lag / max(float(se[number]), step / 4))
            of_class = np.fft.rfft(histograms[number], 2 * size)
            # Φ is a step, summed up exactly below, and an odd rest of short reach.
            rest = np.where(lag > 0, 1 - p, np.where(lag < 0, -p, 0.0))
            above += of_class * np.fft.rfft(rest)
            spread += of_class * np.fft.rfft(p * (1 - p))
        whole = histograms.sum(axis=0)
        steps = whole[::-1].cumsum()[::-1] - whole / 2
        expected = np.minimum.accumulate(steps + np.fft.irfft(above, 2 * size)[:size])
        return expected, np.maximum(np.fft.irfft(spread, 2 * size)[:size], 0)

    def above(self, x: Floats) -> Floats:
        """How many others are expected above each item, were it at x, shape (n,)."""
        expected: Floats = np.interp(x, self.x, self._curves[0])
        return expected - normal((self.mean - x) / self.se)

    def expected_ranks(self) -> Floats:
        """From 1, shape (n,)."""
        return 1 + _mean(self.above, self.mean, self.se)

    def rank_intervals(self) -> tuple[Floats, Floats]:
        """The 95 % interval of each rank: by its own error and, in quadrature, by the others'."""
        middle, reach = self.above(self.mean), Z * self.se
        others = Z * np.sqrt(np.maximum(np.interp(self.mean, self.x, self._curves[1]) - 0.25, 0))
        low = np.hypot(middle - self.above(self.mean + reach), others)
        high = np.hypot(self.above(self.mean - reach) - middle, others)
        return 1 + middle - low, 1 + middle + high

    def place(self, k: int) -> float:
        """The x above which k items are expected."""
        return float(np.interp(-k, -self._curves[0], self.x))


def rank_intervals_of_few(mean: Floats, se: Floats) -> tuple[Floats, Floats]:
    """As `Order.rank_intervals` of several orders of s items, (orders, s), pair by pair; and no further
    than the others that may be above, and those that may be below, with a chance of over CERTAIN."""
    se, each = np.maximum(se, 1e-9), np.arange(mean.shape[1])

    def chances(x: Floats, error: Floats) -> Floats:
        p = normal((mean[:, None] - x[:, :, None]) / error)
        p[:, each, each] = 0
        return p

    p = chances(mean, se[:, None])
    middle, others = p.sum(axis=2), Z * np.sqrt((p * (1 - p)).sum(axis=2))
    low = middle - chances(mean + Z * se, se[:, None]).sum(axis=2)
    high = chances(mean - Z * se, se[:, None]).sum(axis=2) - middle
    p = chances(mean, np.hypot(se[:, None], se[:, :, None]))
    surely, perhaps = (p > 1 - CERTAIN).sum(axis=2), (p > CERTAIN).sum(axis=2)
    return (
        1 + np.maximum(middle - np.hypot(low, others), surely),
        1 + np.minimum(middle + np.hypot(high, others), perhaps),
    )


@dataclass(frozen=True, slots=True)
class Known:
    """How well an order is known, and is expected to be after the next round. `rho` is ρ̂; `top` the
    share of the first items that are expected among the first; None where it wasn't asked for."""

    rho: float
    next_rho: float | None = None
    top: float | None = None
    next_top: float | None = None


def known(mean: Floats, se: Floats, growth: float | None = None, top: int | None = None) -> Known:
    """How well the order of items is known; ρ̂ of fewer than two is 1.

    `growth` is by what the next round shrinks the variance, as 1.25 (information.py). What it brings
    follows from a variance of 1/growth of today's, about ratings that move by the rest: both
    together are spread as today's (the law of total variance).
    """
    n = len(mean)
    if n < 2:
        return Known(1.0, None, None if top is None else 1.0)
    first = None if top is None else min(top, n)
    rank = np.empty(n)
    rank[np.argsort(-mean, kind="stable")] = np.arange(n)
    off = rank - (n - 1) / 2
    now = _correlation(off, Order(mean, se).expected_ranks() - (n + 1) / 2)
    share = first and _share_of_first(mean, se, first, 1.0)
    if growth is None:
        return Known(now, None, share)
    moved, left = Order(mean, math.sqrt(1 - 1 / growth) * se), math.sqrt(1 / growth) * se
    later = Order(mean, se)
    then = 0.0
    for node, weight in zip(_NODES.tolist(), _WEIGHTS.tolist(), strict=True):
        at = mean + node * moved.se
        above = _mean(later.above, at, left)
        then += weight * _correlation(moved.above(at) - (n - 1) / 2, above - (n - 1) / 2)
    return Known(now, then, share, first and _share_of_first(mean, se, first, growth))


def _correlation(one: Floats, other: Floats) -> float:
    """Spearman's of two ranks, given as what they are off the middle one."""
    return float((one * other).mean() * 12 / (len(one) ** 2 - 1))


def _share_of_first(mean: Floats, se: Floats, k: int, growth: float) -> float:
    """The share of the k highest of the ratings, moved by what a `growth` brings, that are
    expected among the first k."""
    moved = np.maximum(math.sqrt(1 - 1 / growth) * se, 1e-9)
    left = math.sqrt(1 / growth) * se
    chance = normal((mean - Order(mean, moved).place(k)) / moved)  # to be among those
    place = Order(mean, se).place(k)
    both = np.zeros(len(mean))
    for part in (np.arange(_PARTS) + 0.5) / _PARTS:
        at = mean + moved * np.interp(1 - chance * part, _CDF, _TABLE)
        both += chance * normal((at - place) / left) / _PARTS
    return float(both.sum()) / k
