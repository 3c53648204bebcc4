"""Which judges and items don't fit the scale.

All of it is by the score residuals of `pl`: the gradient g of a ranking's log likelihood in the rating
of an item, of mean 0 and variance h under the model, h being the curvature there. In a pair that is y −
p, with p(1 − p) for its variance: y is 1 for a win, ½ for a tie. Items of which a partial ranking knows
no order are not compared with one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from judgeq.rating.comparisons import compared_by_slot, judges_of, wins_by_slot
from judgeq.rating.plackett_luce import rankings_of
from judgeq.rating.posterior import Z
from judgeq.text import LEFT_OUT
from judgeq.types import Bools, Floats, Offsets, Rows, Verdicts

LEAST = 10
"""Comparisons below which nothing is said of a judge or an item."""
LISTED = 100
"""So many judges, or items, are in JSON."""
UNEXPECTED = 1.6
"""A residual that 1 of 20 exceed under the model, higher or lower."""
_TINY = 1e-300


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

    def furthest(self, units: Bools, most: int) -> list[int]:
        """The numbers of some units, the furthest from what is expected first."""
        numbers = np.flatnonzero(units)
        order = np.argsort(-np.abs(self.z[numbers]), kind="stable")[:most]
        chosen: list[int] = numbers[order].tolist()
        return chosen

    @property
    def listed(self) -> list[dict[str, Any]]:
        """The judges or items, the furthest from what is expected first; LISTED at most."""
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
            for unit in self.furthest(self.comparisons > 0, LISTED)
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
    residual, h, expected = np.full((3, len(verdicts.items)), np.nan)
    implied = rankings_of(verdicts, len(theta), ways=())
    for slots, slope in zip(implied.by_block(implied.slots), implied.slopes(theta), strict=True):
        expected[slots] = slope
    rankings = rankings_of(verdicts, len(theta))
    of_blocks = zip(rankings.by_block(rankings.slots), rankings.slopes(theta), strict=True)
    for (slots, slope), block in zip(of_blocks, rankings.blocks, strict=True):
        h[slots] = np.maximum(np.einsum("iim->im", block.matrices()), _TINY)
        residual[slots] = -slope / np.sqrt(h[slots])
    return Residuals(residual, h, expected + wins_by_slot(verdicts))


def fit_of_items(verdicts: Verdicts, theta: Floats) -> Fit:
    """The fit of each item; θ is of shape (items,)."""
    return _standardised(_sums(verdicts, theta), verdicts.items, len(theta))


def fit_of_judges(verdicts: Verdicts, theta: Floats, judges: int) -> Fit:
    """The fit of each of `judges`, whose numbers stand in the verdicts; θ is of shape (items,)."""
    judge = judges_of(verdicts)
    sums = _sums(verdicts, theta)
    if len(verdicts):
        # Each comparison of a verdict stands in two of its slots.
        sums = np.add.reduceat(sums, verdicts.offsets[:-1], axis=1) / 2
    return _standardised(sums, judge, judges)


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
    expected = float(squared.sum() / h.sum()) if h.sum() > 0 else np.nan
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
    some = h > 0
    y, x = square[some] / h[some], spread[some] / h[some]
    a, b = 0.0, float(y.sum()) / max(len(y), 1)
    if len(x) and np.ptp(x) > 1e-6:
        a, b = np.polyfit(x, y, 1).tolist()
    if a < 0:
        a, b = 0.0, float(y.mean())
    elif b < 0:
        a, b = float((x * y).sum() / (x * x).sum()), 0.0
    variance: Floats = a * spread + b * h
    return variance
