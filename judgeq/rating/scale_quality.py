"""How reliable a scale is, its separation and two halves of the judgments held against each other; and
which judges and items don't fit it.

All of it is about the judgments alone, and needs no gold. It measures agreement of the judgments with
one another, which isn't agreement with the truth.

Misfit is by the score residuals of `pl`: the gradient g of a ranking's log likelihood in the rating
of an item, of mean 0 and variance h under the model, h being the curvature there. In a pair that is y −
p, with p(1 − p) for its variance: y is 1 for a win, ½ for a tie. Items of which a partial ranking knows
no order are not compared with one another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from judgeq import seeds
from judgeq.errors import NotConvergedError
from judgeq.rating.comparisons import compared_by_slot, components, wins_by_slot
from judgeq.rating.correlation import centred, within
from judgeq.rating.curvature import Block, Rankings
from judgeq.rating.plackett_luce import rankings_of
from judgeq.rating.posterior import Z
from judgeq.text import LEFT_OUT
from judgeq.types import Bools, Floats, Offsets, Rows, Verdicts

Rate: TypeAlias = Callable[[Verdicts, int], Floats]
"""From verdicts on n items, and n, to their ratings, shape (n,): each component's by itself."""
SPLITS, LEAST_SPLITS = 100, 3
_ENTRIES = 500_000
"""About so many entries of verdicts are rated in all splits together, some seconds' work."""
MANY_JUDGES = 10
"""From so many judges on, the judges are halved instead of their judgments."""
LEAST = 10
"""Comparisons below which nothing is said of a judge or an item."""
LISTED = 100
"""So many judges, or items, are in JSON."""
UNEXPECTED = 1.6
"""A residual that 1 of 20 exceed under the model, higher or lower."""
_TINY = 1e-300


@dataclass(frozen=True, slots=True)
class Separation:
    """The scale separation reliability `ssr` over `n` items; None where it is undefined, and `why`."""

    ssr: float | None = None
    n: int = 0
    why: str | None = None
    JSON_KEYS: ClassVar = {"g": "g"}

    @property
    def g(self) -> float | None:
        """The separation 1/√(1 − SSR); None where it is undefined."""
        return None if self.ssr is None or self.ssr == 1 else (1 - self.ssr) ** -0.5


def separation(
    theta: Floats, se: Floats, component: Offsets | None = None, *, likeliest: bool = False
) -> Separation:
    """SSR = var(θ) / (var(θ) + mean(se²)) of posterior means, which are drawn in by their prior, and
    G = 1/√(1 − SSR). `likeliest`: of maximum-likelihood estimates, which scatter by their errors, SSR
    is 1 − mean(se²) / var(θ), below 0 where the errors are larger than the spread.

    `theta` and `se` are of shape (n,), nan for items that are left out; the variance is that with
    n − 1. With `component`, shape (n,), it is the variance within the components, pooled (n less the
    number of components): where nothing compares two components, nothing is known of their distance.
    Source: Wright and Masters (1982), "Rating Scale Analysis", chapter 5, and Bock and Mislevy (1982)
    of posterior means; `likeliest` as the R package sirt computes both (`btm`: mle.rel, sepG).
    """
    known = ~np.isnan(theta + se)
    part = np.zeros(len(theta), np.int64) if component is None else component
    known &= np.bincount(part[known], minlength=int(part.max(initial=0)) + 1)[part] > 1
    values, n = centred(theta[known], part[known]), int(known.sum())
    if not n:
        return Separation(why="fewer than two items have a standard error")
    variance = float((values * values).sum()) / (n - len(np.unique(part[known])))
    if variance == 0:
        return Separation(n=n, why="all items are rated the same")
    error = float((se[known] ** 2).mean())
    return Separation(1 - error / (variance if likeliest else variance + error), n)


# Split halves


@dataclass(frozen=True, slots=True)
class SplitHalf:
    """How well the ratings by one half of the judgments correlate with those by the other: the median
    `r` of Pearson's r over `splits` random halvings, and its range from `low` to `high`; None where it
    is undefined, and `why`. `by` is what was halved, "judges" or "judgments". `items` is the median
    number of items that both halves rate."""

    by: str
    items: int = 0
    splits: int = 0
    r: float | None = None
    low: float | None = None
    high: float | None = None
    why: str | None = None
    JSON_KEYS: ClassVar = {"median": "r", "whole": "whole"}

    @property
    def whole(self) -> float | None:
        """The reliability that the median predicts of all judgments together, 2r / (1 + r) (Spearman
        1910, Brown 1910)."""
        return None if self.r is None or self.r <= -1 else 2 * self.r / (1 + self.r)


def split_half(verdicts: Verdicts, rate: Rate, seed: int, splits: int | None = None) -> SplitHalf:
    """Split-half reliability of the ratings that `rate` makes of verdicts; by default over SPLITS, fewer
    of large runs, whose items make a single split as precise as many.

    The judges are halved where there are many (as many as MANY_JUDGES that judge equally much: 1/Σp²
    with p a judge's share of the judgments), else the judgments. Items that a half doesn't connect have
    no common scale in it, so that r is taken within the groups that both halves connect.
    Items judged alone are on one scale. There is none where less than two thirds of the items are known
    to both halves, and none of a rating that raises NotConvergedError.
    """
    shares = np.bincount(verdicts.judges) / max(len(verdicts), 1)
    many = MANY_JUDGES * float((shares**2).sum()) <= 1
    by, unit = ("judges", verdicts.judges) if many else ("judgments", np.arange(len(verdicts)))
    if splits is None:
        splits = max(LEAST_SPLITS, min(SPLITS, _ENTRIES // max(len(verdicts.items), 1)))
    units, which = np.unique(unit, return_inverse=True)
    halves = []
    try:
        for at in range(splits):
            second = seeds.rng(seed, "split-half", at).permutation(len(units)) >= len(units) // 2
            halves.append(_of_halves(verdicts, second[which], rate))
    except NotConvergedError as error:
        return SplitHalf(by, why=f"half of the {by} can't be rated: {error}")
    known, judged = [r for r, _ in halves if r is not None], len(np.unique(verdicts.items))
    items = int(np.median([n for _, n in halves] or [0]))
    if not splits:
        why = "no splits were asked for"
    elif not items:
        is_judged_once = bool(verdicts.scored.all()) and len(verdicts.items) == judged
        why = "each text was judged once" if is_judged_once else "both halves connect no two items"
    elif 2 * len(known) < splits:
        why = "all items are rated the same"
    elif 3 * items < 2 * judged:
        why = f"both halves know only {items} of the {judged} items judged"
    else:
        return SplitHalf(by, items, splits, float(np.median(known)), min(known), max(known))
    return SplitHalf(by, items, why=why)


def _of_halves(verdicts: Verdicts, second: Bools, rate: Rate) -> tuple[float | None, int]:
    """r of the ratings by two halves, within the groups of items that both connect, and over how many
    items. `second` says which verdicts are of the second half."""
    halves, n = (verdicts.where(~second), verdicts.where(second)), int(verdicts.items.max()) + 1
    x, y = (rate(half, n) for half in halves)
    one, other = (components(half, n, scored=True) for half in halves)
    both = (one > 0) & (other > 0)
    part = np.unique(one[both] * (n + 1) + other[both], return_inverse=True)[1]
    r, _, items = within(x[both], y[both], part)
    return r, items


# Misfit


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """How well each of m judges, or items, fits: arrays of shape (m,), nan where it was never compared.

    `infit` is Σg² / Σh, `outfit` the mean of g² / h, over its places in judgments (Wright and Masters
    1982, chapter 5), of so many `comparisons`. `low` and `high` are the range in which infit is expected
    to be in 95 % of cases, and `z` is its standardised value; nan for those of fewer than LEAST
    comparisons. `expected` is the infit of all judgments together. `names` are those of the judges or
    items.
    """

    infit: Floats = field(metadata=LEFT_OUT)
    outfit: Floats = field(metadata=LEFT_OUT)
    comparisons: Offsets = field(metadata=LEFT_OUT)
    low: Floats = field(metadata=LEFT_OUT)
    high: Floats = field(metadata=LEFT_OUT)
    z: Floats = field(metadata=LEFT_OUT)
    expected: float
    names: Sequence[str] = field(default=(), metadata=LEFT_OUT)
    JSON_KEYS: ClassVar = {
        "known": "judged.sum",
        "above": "above.sum",
        "below": "below.sum",
        "furthest": "listed",
    }

    @property
    def judged(self) -> Bools:
        """Of which it can be said whether they fit."""
        return ~np.isnan(self.z)

    @property
    def above(self) -> Bools:
        """Which are less predictable than the range allows."""
        above: Bools = self.infit > self.high
        return above

    @property
    def below(self) -> Bools:
        """Which are more predictable than the range allows."""
        below: Bools = self.infit < self.low
        return below

    @property
    def listed(self) -> list[dict[str, Any]]:
        """The judges or items, the furthest from what is expected first; LISTED at most."""
        units = np.flatnonzero(self.comparisons)
        order = np.argsort(-np.abs(self.z[units]), kind="stable")[:LISTED]
        return [
            {
                "name": self.names[unit],
                "infit": {
                    "value": self.infit[unit],
                    "low": self.low[unit],
                    "high": self.high[unit],
                },
                "outfit": self.outfit[unit],
                "z": self.z[unit],
                "comparisons": self.comparisons[unit],
            }
            for unit in units[order].tolist()
        ]


class Residuals(NamedTuple):
    """How unexpected judgments are under ratings θ; arrays of shape (slots,), nan of items alone.

    `residual` is g/√h of the item in each slot, of about mean 0 and variance 1 under the model: above 0
    where the judgment argues for a higher place, below 0 for a lower one. Of a pair it is √((1 − p)/p)
    in size, p being the chance of what happened. `variance` is h, and `expected` how many of those that
    it is compared with the item is expected to beat.
    """

    residual: Floats
    variance: Floats
    expected: Floats


def residuals(verdicts: Verdicts, theta: Floats) -> Residuals:
    """Those of all verdicts; θ is of shape (items,)."""

    def by_slot(rankings: Rankings) -> Floats:
        """g and h of each slot, shape (2, slots)."""

        def of_block(block: Block, eta: Floats) -> Floats:
            _, slope, matrices = block.bent(eta)
            return np.stack([slope, np.einsum("iim->im", matrices)]).reshape(2, -1)

        values = np.full((2, len(verdicts.items)), np.nan)
        parts = rankings.map(of_block, rankings.blocks, rankings.spread(theta))
        values[:, rankings.slots] = np.concatenate([np.empty((2, 0)), *parts], axis=1)
        return values

    g, h = by_slot(rankings_of(verdicts, len(theta)))
    implied, _ = by_slot(rankings_of(verdicts, len(theta), ways=()))
    h = np.maximum(h, _TINY)
    return Residuals(-g / np.sqrt(h), h, wins_by_slot(verdicts) + implied)


def fit_of_items(verdicts: Verdicts, theta: Floats) -> Fit:
    """The fit of each item; θ is of shape (items,)."""
    return _standardised(_sums(verdicts, theta), verdicts.items, len(theta))


def fit_of_judges(verdicts: Verdicts, theta: Floats, judges: int) -> Fit:
    """The fit of each of `judges`, whose numbers stand in the verdicts; θ is of shape (items,)."""
    sums = _sums(verdicts, theta)
    if len(verdicts):
        # Each comparison of a verdict stands in two of its slots.
        sums = np.add.reduceat(sums, verdicts.offsets[:-1], axis=1) / 2
    return _standardised(sums, verdicts.judges, judges)


def _sums(verdicts: Verdicts, theta: Floats) -> Floats:
    """Of each slot g², h, h(1 − 4h), g²/h, whether it is compared with others, and with how many."""
    residual, h, _ = residuals(verdicts, theta)
    square, count = residual**2, compared_by_slot(verdicts)
    sums = np.stack([square * h, h, np.maximum(h * (1 - 4 * h), 0), square, count > 0, count])
    return np.where(count > 0, sums, 0)


def _standardised(sums: Floats, unit: Rows, units: int) -> Fit:
    """The fit of units from the `_sums` of each of their judgments.

    What is expected is the infit of all judgments together, not 1: θ was fitted to the same ones, which
    makes residuals smaller, and a judge may be more or less reliable than the model says. The variance
    of a g² is a·h(1 − 4h) + b·h, with a and b fitted to all: of pairs under the model a = 1 and b = 0.
    Range and z are by the cube root, whose distribution is nearer to the normal (Wilson and Hilferty
    1931; Wright and Masters, equation 5.3).
    """
    squared, h, spread, *_ = sums
    expected = float(squared.sum() / h.sum()) if h.any() else np.nan
    variance = _variance((squared - expected * h) ** 2, spread, h)
    total, weight, var, out, places, comparisons = (
        np.bincount(unit, part, units) for part in (squared, h, variance, *sums[3:])
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        infit, outfit = total / weight, out / places
        q = np.sqrt(var) / weight / expected
        q[(comparisons < LEAST) | (q <= 0)] = np.nan
        z = (np.cbrt(infit / expected) - 1) * 3 / q + q / 3
    low, high = (expected * np.maximum(1 + (t - q / 3) * q / 3, 0) ** 3 for t in (-Z, Z))
    return Fit(infit, outfit, comparisons.astype(np.int64), low, high, z, expected)


def _variance(square: Floats, spread: Floats, h: Floats) -> Floats:
    """The expected `square` of each judgment's deviation as a·spread + b·h, a and b ≥ 0, by least
    squares relative to h."""
    y, x = square[h > 0] / h[h > 0], spread[h > 0] / h[h > 0]
    a, b = np.polyfit(x, y, 1).tolist() if len(x) and np.ptp(x) > 1e-6 else (-1.0, 0.0)
    if a < 0:
        a, b = 0.0, float(y.sum()) / max(len(y), 1)
    elif b < 0:
        a, b = float((x * y).sum() / (x * x).sum()), 0.0
    variance: Floats = a * spread + b * h
    return variance
