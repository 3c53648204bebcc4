"""Ranks, and how well the order of items is known: ρ̂, intervals of ratings and ranks, tiers, and what
more rounds bring.

A rating is known to within its standard error: θ_i ~ N(m_i, s_i²), taken as independent. Each item
stands as a few quantiles of that distribution, its nodes. How many of these lie in each cell of a grid
says how many items are expected above any value: O(n), without draws.

ρ̂ is the expected Spearman correlation of the ratings with such θ: what they would correlate with the
scale of the same judge asked without end. It says nothing of whether that judge is right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from judgeq.rating import GoOn, always
from judgeq.rating.correlation import Order, centred
from judgeq.rating.posterior import (
    LEVEL,
    AveragedPosterior,
    Posterior,
    WeightedErrors,
    Z,
    averaged_quantile,
    normal_cdf,
)
from judgeq.types import Floats, Offsets

FEWEST, MOST, NODES = 8, 64, 4_000_000
"""Nodes of an item, and about so many of all items."""
OF_ITEM, OF_PART, CELLS = 512, (8, 65_536), 4_000_000
"""So many cells of an item, at most, of a part, and about so many of all items."""
REACH = 3.0
"""Errors by which a part's cells go beyond its items, which is more than any node."""
BOTH_WAYS = 1.4
"""By what a ranking tells less of items that are alike than it could, as it is read from the top and
from the bottom. Fitted, over lists of 5, 10 and 20 and σ from 0.5 to 4."""


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """How sure n ratings are; arrays of shape (n,).

    `se` are standard errors, `low` and `high` the ends of the 95 % interval of the rating, which holds
    wherever an item lies (`Posterior.interval`), `rank_low` and `rank_high` those of the rank within the
    component (1: most of the feature; 0 for an item that was never judged). `tier` numbers, from the
    top, runs of items that can't be told from the first of them: of the first item of the next tier the
    difference is larger than chance allows (5 %). All tiers are 0 where answers don't repeat: nothing
    then tells what chance allows. `dispersion` is φ.
    """

    se: Floats
    low: Floats
    high: Floats
    rank_low: Offsets
    rank_high: Offsets
    tier: Offsets
    dispersion: float


def intervals(
    posterior: Posterior, go_on: GoOn = always, component: Offsets | None = None
) -> Intervals:
    """What a posterior says of each item; ranks and tiers within a `component`, shape (n,) (None: its
    own). Raises NotConvergedError."""
    se, component = posterior.errors, posterior.component if component is None else component
    go_on()
    rows = np.lexsort((-posterior.mean, component))
    rows = rows[np.searchsorted(component[rows], 1) :]  # the judged ones, by component and place
    mean, apart, part = posterior.mean[rows], posterior.errors_apart[rows], component[rows]
    own, most = ranks(posterior.mean, component)[rows], np.bincount(part)[part]
    if isinstance(posterior, AveragedPosterior):
        ends = _averaged_rank_intervals(posterior.by_sigma, rows, part, own)
    else:
        ends = _rank_intervals(mean, apart, part)
    first, last = (np.clip(np.rint(end), 1, most) for end in ends)
    go_on()
    rank_low, rank_high, tier = np.zeros((3, len(component)), dtype=np.int64)
    rank_low[rows], rank_high[rows] = np.minimum(first, own), np.maximum(last, own)
    if posterior.is_repeated:
        tier[rows] = _tiers(mean, apart, part)
    return Intervals(se, *posterior.interval, rank_low, rank_high, tier, posterior.dispersion)


def ranks(values: Floats, component: Offsets) -> Offsets:
    """The rank of each value within its component, from 1 for the highest, shape (n,); those tied have
    the lowest of their ranks (1, 2, 2, 4), and 0 what is nan or was never judged (component 0)."""
    rows = np.flatnonzero((component > 0) & ~np.isnan(values))
    part, rank = component[rows], np.zeros(len(values), dtype=np.int64)
    size, ordered = np.bincount(part), Order(-values[rows], part)
    rank[rows] = ordered.starts[ordered.group] - (np.cumsum(size) - size)[part] + 1
    return rank


def _rank_intervals(mean: Floats, se: Floats, part: Offsets) -> tuple[Floats, Floats]:
    """The 95 % interval of each rank within a part, each of shape (n,), of items in the order of parts:
    by its own error and, in quadrature, by the others'. How many others are above varies by Σ p(1 − p),
    p being the chance of each; Σ p² is how many are expected above with the lower of two draws."""
    line, ends = _Line(mean, se, part), np.searchsorted(part, part, side="right")

    def above(nodes: Floats, *ways: float) -> list[Floats]:
        """How many others, with so many of their errors added, are above an item, with so many of its
        own: by the share of the `nodes`."""
        below = line.below(nodes)
        return [ends - below(way) - (nodes > way).mean() for way in ways]

    middle, fewest, most = above(_draws(len(mean)), 0, Z, -Z)
    (twice,) = above(_draws(len(mean), 2), 0)
    others = Z * np.sqrt(np.maximum(middle - twice, 0))
    # No further than items whose intervals overlap.
    (surely,), (perhaps,) = above(np.array([-Z]), Z), above(np.array([Z]), -Z)
    return (
        1 + np.maximum(middle - np.hypot(middle - fewest, others), surely),
        1 + np.minimum(middle + np.hypot(most - middle, others), perhaps),
    )


def _averaged_rank_intervals(
    by_sigma: Sequence[WeightedErrors], rows: Offsets, part: Offsets, own: Offsets
) -> tuple[Floats, Floats]:
    """Return the ends of rank intervals, averaged over σ: those of a mixture of normal distributions
    about each item's `own` rank, each as wide to either side as the interval under its σ."""
    ends = np.array(
        [_rank_intervals(of.mean[rows], of.errors_apart[rows], part) for of in by_sigma]
    )
    weights = np.array([of.weight for of in by_sigma])
    centers = np.broadcast_to(own, ends[:, 0].shape).astype(np.float64)
    below = np.maximum(own - ends[:, 0], 1e-9) / Z
    above = np.maximum(ends[:, 1] - own, 1e-9) / Z
    tail = (1 - LEVEL) / 2
    low = averaged_quantile(centers, below, above, weights, tail)
    high = averaged_quantile(centers, below, above, weights, 1 - tail)
    return low, high


def _tiers(mean: Floats, se: Floats, part: Offsets) -> list[int]:
    """The tier of each item within its part, of items in the order of parts and then from the
    highest."""
    tiers: list[int] = []
    last, tier, first, its = -1, 0, 0.0, 0.0
    for value, error, own in zip(mean.tolist(), se.tolist(), part.tolist(), strict=True):
        if own != last or first - value > Z * math.hypot(its, error):
            tier = 1 if own != last else tier + 1
            last, first, its = own, value, error
        tiers.append(tier)
    return tiers


def reliability(mean: Floats, se: Floats, group: Offsets | None = None) -> float:
    """ρ̂ of the order of items; of fewer than two 1. With a `group` of each item, shape (n,), it is that
    of the orders within groups, pooled as in `correlation.within`."""
    part = np.zeros(len(mean), np.int64) if group is None else group
    nodes, rank = _draws(len(mean)), np.empty(len(mean))
    below = _Line(mean, se, part).below(nodes)
    expected = centred(sum(map(below, nodes.tolist()), np.zeros(len(mean))) / len(nodes), part)
    rank[np.lexsort((mean, part))] = np.arange(len(mean))
    rank = centred(rank, part)
    weighted = rank / np.bincount(part)[part] ** 2
    spread = float((weighted * rank).sum())
    return float((weighted * expected).sum()) / spread if spread else 1.0


def top_share(mean: Floats, se: Floats, k: int) -> float:
    """The share of the first k items that are expected among the first k."""
    first, se = np.argsort(-mean, kind="stable")[:k], np.maximum(se, 1e-9)
    low, high = float((mean - 9 * se).min()), float((mean + 9 * se).max())
    for _ in range(50):
        value = (low + high) / 2  # above which as many items are expected
        above = normal_cdf((mean - value) / se)
        low, high = (value, high) if above.sum() > len(first) else (low, value)
    return float(above[first].mean())


class _Line:
    """Items of one part after the other on a line of cells, of which a part has some for each item."""

    def __init__(self, mean: Floats, se: Floats, part: Offsets) -> None:
        size, se = np.bincount(part), np.maximum(se, 1e-9)
        low, high = np.full((2, len(size)), np.inf)
        np.minimum.at(low, part, mean - REACH * se)
        np.minimum.at(high, part, -mean - REACH * se)
        cells = np.clip(min(OF_ITEM, CELLS // max(len(mean), 1)) * size, *OF_PART)
        scale = (cells / (-high - low))[part]
        self.count = int(cells.sum())
        self.at: Floats = (np.cumsum(cells) - cells)[part] + (mean - low[part]) * scale
        self.se: Floats = se * scale

    def below(self, nodes: Floats) -> Callable[[float], Floats]:
        """How many items, each in equal shares at these nodes, lie below an item with so many of its own
        errors added: shape (n,)."""
        upto = np.zeros(self.count + 1)
        for node in nodes.tolist():
            cells = (self.at + node * self.se).astype(np.int64)
            upto[1:] += np.bincount(cells, minlength=self.count)
        upto = np.cumsum(upto) / len(nodes)

        def of(way: float) -> Floats:
            at = self.at + way * self.se
            cell = at.astype(np.int64)
            below: Floats = upto[cell] + (at - cell) * (upto[cell + 1] - upto[cell])
            return below

        return of


def _draws(n: int, least_of: int = 1) -> Floats:
    """The nodes of N(0, 1), or of the least of several draws from it, for each of n items: an even
    number of them, so that none is its mean."""
    count = min(max(NODES // max(n, 1), FEWEST), MOST) // 2 * 2
    levels = 1 - (1 - (np.arange(count) + 0.5) / count) ** (1 / least_of)
    nodes = np.array([NormalDist().inv_cdf(level) for level in levels.tolist()])
    return nodes / nodes.std() if least_of == 1 else nodes  # as many have less in their tails


# What rounds bring, in closed form


def variance(sigma: float, rankings: float, k: float) -> float:
    """Of ratings of θ ~ N(0, σ²), once each item was in so many rankings of k, by a judge that answers
    as the model says.

    A pair tells of θi − θj as much as p(1 − p) is on average, by the normal curve as high as it: I =
    ¼/√(1 + πσ²/4). In a ranking of k each item is in k − 1 pairs, which don't count in full, since they
    are not independent: of items that are alike it tells 1 − H_k/k, of items far apart as much as its
    pairs do. Between, their inverses add up: 1/(k − 1)I, and k/(k − H_k) − 4/(k − 1) times BOTH_WAYS.

    The others of a ranking are themselves known to within a variance v, without this ranking. In a
    random design that is the same for all: V is that of Gaussian beliefs along a tree of rankings.
    `benchmarks rounds` compares it with simulated judges.
    """
    size = max(2, round(k))
    alike = size / (size - sum(1 / place for place in range(1, size + 1)))
    of_pairs = 4 * math.sqrt(1 + math.pi * sigma**2 / 4) / (size - 1)
    unknown = of_pairs + BOTH_WAYS * (alike - 4 / (size - 1))
    # v solves 1/v = σ⁻² + (rankings − 1)/(unknown + v/(size − 1)).
    before, share = max(rankings - 1, 0), sigma**-2 / (size - 1)
    half = (unknown / sigma**2 + before - 1 / (size - 1)) / 2
    others = (math.sqrt(half**2 + share * unknown) - half) / share
    return 1 / (sigma**-2 + rankings / (unknown + others / (size - 1)))


def expected_rho(sigma: float, rankings: float, k: float) -> float:
    """ρ̂ once each item was in so many rankings of k."""
    return _rho(variance(sigma, rankings, k) / sigma**2)


def growth(sigma: float, rankings: float, more: float, k: float) -> float:
    """By what the variance shrinks if each item is in so many `more` rankings of k. How far lists
    scatter (φ) widens both alike."""
    now, then = (variance(sigma, m, k) for m in (rankings, rankings + more))
    return now / then


def grown(rho: float, growth: float) -> float:
    """ρ̂ once the variance shrank by a `growth`."""
    return _rho((1 - (2 * math.sin(math.pi * rho / 6)) ** 2) / growth)


def _rho(unknown: float) -> float:
    """Spearman's ρ of normal distributions, by the share of the variance that is unknown."""
    return 6 / math.pi * math.asin(math.sqrt(min(max(1 - unknown, 0.0), 1.0)) / 2)
