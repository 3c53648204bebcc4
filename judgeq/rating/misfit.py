"""Which judges and items don't fit the scale.

Residuals are those of the comparisons that verdicts imply: y − p with p = σ(θ_winner − θ_loser), a
tie ½. Under Plackett-Luce each pair of a list follows that p, as it does in Bradley-Terry. Items of
which a partial ranking knows no order are not compared with one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np

from judgeq.rating.comparisons import partial_by_slot, slots_by_size, tie_groups, wins
from judgeq.text import LEFT_OUT
from judgeq.types import Bools, Floats, Offsets, Verdicts

LEVEL = 0.95
LEAST = 10
"""Comparisons below which nothing is said of a judge or an item."""
LISTED = 100
"""So many judges, or items, are in JSON."""
UNEXPECTED = 1.6
"""A residual that 1 of 20 exceed under the model, higher or lower."""
_AT_ONCE = 1_000_000
_TINY = 1e-300

_SUMS = 5
"""Of some comparisons: (y − p)², w = p(1 − p), w(1 − 4w), (y − p)²/w, and how many they are."""


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """How well each of m judges, or items, fits: arrays of shape (m,), nan where it was never compared.

    `infit` is Σ(y − p)² / Σp(1 − p), `outfit` the mean of (y − p)² / p(1 − p), over its `comparisons`
    (Wright and Masters 1982, chapter 5). `low` and `high` are the range in which infit is expected to be
    in 95 % of cases, and `z` is its standardised value; nan for those of fewer than LEAST comparisons.
    `expected` is the infit of all comparisons together. `names` are those of the judges or items.
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
        "known": "known.sum",
        "above": "above.sum",
        "below": "below.sum",
        "furthest": "listed",
    }

    @property
    def known(self) -> Bools:
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


def fit_of_judges(verdicts: Verdicts, theta: Floats, judges: int) -> Fit:
    """The fit of each of `judges`, whose numbers stand in the verdicts; θ is of shape (items,)."""
    judge = np.zeros(len(verdicts), np.int64) if verdicts.judges is None else verdicts.judges
    sums = _sums_by_slot(verdicts, theta)
    if len(verdicts):
        # Each comparison of a verdict stands in two of its slots.
        sums = np.add.reduceat(sums, verdicts.offsets[:-1], axis=1) / 2
    return _standardised(sums, judge.astype(np.int64), judges)


def fit_of_items(verdicts: Verdicts, theta: Floats) -> Fit:
    """The fit of each item; θ is of shape (items,)."""
    return _standardised(
        _sums_by_slot(verdicts, theta), verdicts.items.astype(np.int64), len(theta)
    )


def _sums_by_slot(verdicts: Verdicts, theta: Floats) -> Floats:
    """Sums over the comparisons of each slot with the others of its verdict, shape (_SUMS, slots)."""
    sums = np.zeros((_SUMS, len(verdicts.items)))
    groups, partial = tie_groups(verdicts), partial_by_slot(verdicts)
    for alike in slots_by_size(verdicts):
        at_once = max(1, _AT_ONCE // len(alike) ** 2)
        for begin in range(0, alike.shape[1], at_once):
            slots = alike[:, begin : begin + at_once]
            values, y = theta[verdicts.items[slots]], wins(groups[slots], partial[slots[0]])
            known = y + y.transpose(1, 0, 2)
            gap = values[:, None] - values
            e = np.exp(-np.abs(gap))
            p = np.where(gap > 0, 1.0, e) / (1 + e)
            w = np.maximum(e / (1 + e) ** 2, _TINY)
            squared = (y - p) ** 2
            parts = (squared, w, w * (1 - 4 * w), squared / w, known)
            for total, part in zip(sums, parts, strict=True):
                total[slots] = (known * part).sum(axis=1)
    return sums


def _standardised(sums: Floats, unit: Offsets, units: int) -> Fit:
    """The fit of units from the sums over each of their verdicts, shape (_SUMS, verdicts).

    What is expected is the infit of all comparisons together, not 1: θ was fitted to the same
    judgments, which makes residuals smaller, and a judge may be more or less reliable than the model
    says. The variance of a verdict's Σ(y − p)² is a·Σw(1 − 4w) + b·Σw, with a and b fitted to all
    verdicts: under the model, of pairs, a = 1 and b = 0; ties and the pairs of a list, which hang
    together, change them. Range and z are by the cube root, whose distribution is nearer to the normal
    (Wilson and Hilferty 1931; Wright and Masters, equation 5.3).
    """
    squared, w, spread, standardised, count = sums
    expected = float(squared.sum() / w.sum()) if w.sum() > 0 else np.nan
    variance = _variance((squared - expected * w) ** 2, spread, w)
    total, weight, var, out, comparisons = (
        np.bincount(unit, part, units) for part in (squared, w, variance, standardised, count)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        infit, outfit = total / weight, out / comparisons
        q = np.sqrt(var) / weight / expected
        q[(comparisons < LEAST) | (q <= 0)] = np.nan
        z = (np.cbrt(infit / expected) - 1) * 3 / q + q / 3
    reach = NormalDist().inv_cdf((1 + LEVEL) / 2)
    low, high = (expected * np.maximum(1 + (t - q / 3) * q / 3, 0) ** 3 for t in (-reach, reach))
    return Fit(infit, outfit, comparisons.astype(np.int64), low, high, z, expected)


def _variance(square: Floats, spread: Floats, w: Floats) -> Floats:
    """The expected `square` of each verdict's deviation as a·spread + b·w, a and b ≥ 0, by least squares
    relative to w."""
    some = w > 0
    y, x = square[some] / w[some], spread[some] / w[some]
    if not len(y):
        return np.zeros_like(w)
    off = x - x.mean()
    size = float((off * off).sum())
    a = float((off * (y - y.mean())).sum()) / size if size > 1e-12 * len(y) else 0.0
    a = max(a, 0.0)
    b = float(y.mean() - a * x.mean())
    if b < 0:
        a, b = float((x * y).sum() / (x * x).sum()), 0.0
    variance: Floats = a * spread + b * w
    return variance


# Judgments


def residuals(verdicts: Verdicts, theta: Floats, at: Offsets) -> tuple[Floats, Floats]:
    """How much each verdict argues against the place of one of its items under θ: of the slots `at` of
    `verdicts.items`, the standardised residual and the wins expected, each shape (len(at),).

    The residual is (wins − expected) / sd of the wins over the others of the verdict (a tie ½), of a
    partial ranking over those that it compares the item with: above 0
    it argues for a higher place, below 0 for a lower one; of mean 0 and variance 1 under the model. Wins
    of a ranking are not independent. Under Plackett-Luce, with p and q of winning and losing against j
    and l, Cov(j, l) = t·q_j·q_l, where t is the probability to be above both; here the mean of that and
    of the same from the bottom, as the likelihood is symmetrised. Of a pair it is √((1 − p)/p) of what
    happened. nan for items alone, and where θ is.
    """
    residual, expected = np.full(len(at), np.nan), np.full(len(at), np.nan)
    of = np.searchsorted(verdicts.offsets, at, side="right") - 1
    sizes, groups, partial = (
        np.diff(verdicts.offsets),
        tie_groups(verdicts),
        partial_by_slot(verdicts),
    )
    for size in np.unique(sizes[of]).tolist():
        alike = np.flatnonzero((sizes[of] == size) & (size > 1))
        for begin in range(0, len(alike), max(1, _AT_ONCE // size)):
            chosen = alike[begin : begin + max(1, _AT_ONCE // size)]
            own, others = at[chosen], verdicts.offsets[of[chosen]] + np.arange(size)[:, None]
            same = groups[others] == groups[own]
            known = (others != own) & ~(same & partial[own])
            gap = theta[verdicts.items[others]] - theta[verdicts.items[own]]
            won = (known * np.where(same, 0.5, others > own)).sum(axis=0)
            mean, variance = _wins(np.clip(gap, -500, 500), known)
            expected[chosen] = mean
            residual[chosen] = (won - mean) / np.sqrt(variance)
    return residual, expected


def _wins(gap: Floats, known: Bools) -> tuple[Floats, Floats]:
    """The expectation and the variance of an item's wins against those others of which the order is
    `known`, whose θ are so much higher; `gap` of shape (others, items), the results (items,)."""
    above, below = np.exp(gap), np.exp(-gap)
    win, lose = known / (1 + above), known / (1 + below)
    variance = (win * lose).sum(axis=0)
    for j in range(len(gap) - 1):
        rest = slice(j + 1, None)
        top = lose[j] * lose[rest] / (1 + above[j] + above[rest])
        bottom = win[j] * win[rest] / (1 + below[j] + below[rest])
        variance += (top + bottom).sum(axis=0)  # twice the half of both
    return win.sum(axis=0), np.maximum(variance, _TINY)
