"""Which judges, items and judgments don't fit the scale.

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

from judgeq.json_marks import LEFT_OUT
from judgeq.rating.comparisons import slots_by_shape, tie_groups, unknown_by_slot
from judgeq.types import Bools, Floats, Offsets, Verdicts

LEVEL = 0.95
LEAST = 10
"""Comparisons below which nothing is said of a judge or an item."""
LISTED = 100
"""So many judges, or items, are in JSON."""
UNEXPECTED = 1.6
"""A surprise that 1 of 20 judgments exceed under the model; and a residual, higher or lower."""
_AT_ONCE = 8192
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
    """Sums over the comparisons of each slot with the others of its verdict, shape (_SUMS, slots).

    By places rather than by comparisons: memory is linear in the entries of lists, however long.
    """
    sums = np.zeros((_SUMS, len(verdicts.items)))
    groups = tie_groups(verdicts)
    for alike, unknown in slots_by_shape(verdicts):
        for begin in range(0, alike.shape[1], _AT_ONCE):
            slots = alike[:, begin : begin + _AT_ONCE]
            values, group = theta[verdicts.items[slots]], groups[slots]
            for place in range(len(slots) - 1):
                after = place + 1
                if unknown is not None and unknown.start <= place < unknown.stop:
                    after = unknown.stop
                # p of what happened, so that y is 1, or ½ where the two are tied.
                gap = values[place] - values[after:]
                e = np.exp(-np.abs(gap))
                p = np.where(gap > 0, 1.0, e) / (1 + e)
                w = np.maximum(e / (1 + e) ** 2, _TINY)
                y = np.where(group[place] == group[after:], 0.5, 1.0)
                squared = (y - p) ** 2
                parts = (squared, w, w * (1 - 4 * w), squared / w, np.ones_like(w))
                for total, part in zip(sums, parts, strict=True):
                    total[slots[place]] += part.sum(axis=0)
                    total[slots[after:]] += part
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


def surprise(verdicts: Verdicts, theta: Floats) -> Floats:
    """How unexpected each verdict is under θ, shape (verdicts,): standardised, of about mean 0 and
    variance 1 under the model; large where a verdict contradicts the scale.

    A ranking is a row of choices, each of one among the items that are left (Plackett-Luce). A choice's
    log-likelihood less its expectation is θ_chosen − Σpθ, and its variance Σpθ² − (Σpθ)²: sums over the
    choices give a standardised value, which is also the score test of whether the judge follows the
    scale at all. It is the mean of those by choosing from the top and from the bottom (of a partial
    ranking, what is known: the top and then the bottom, or first the bottom, as in plackett_luce.py).
    For a pair whose less likely outcome, of probability p, happened, it is √((1 − p)/p). Tied items
    count as the mean of their group. 0 for verdicts on items rated the same. Linear in the entries.
    """
    values = np.zeros(len(verdicts))
    groups = tie_groups(verdicts)
    for alike, unknown in slots_by_shape(verdicts):
        k = len(alike)
        if k < 2:
            continue
        for begin in range(0, alike.shape[1], _AT_ONCE):
            slots = alike[:, begin : begin + _AT_ONCE]
            part, group = theta[verdicts.items[slots]], groups[slots]
            part = part - part.mean(axis=0)
            at = np.searchsorted(verdicts.offsets, slots[0])
            if unknown is None:
                top = _surprise(_choices(part, group, k - 1))
                bottom = _surprise(_choices(-part[::-1], group[::-1], k - 1))
            else:
                best, worst, left = unknown.start, k - unknown.stop, slice(0, unknown.stop)
                low, numbers = -part[::-1], group[::-1]
                rest = slice(0, k - best)
                first = _choices(part, group, best) + _choices(low[rest], numbers[rest], worst)
                last = _choices(low, numbers, worst) + _choices(part[left], group[left], best)
                top, bottom = _surprise(first), _surprise(last)
            values[at] = (top + bottom) / 2
    return values


def _choices(theta: Floats, group: Offsets, choices: int) -> Floats:
    """Of the first choices of rankings of shape (k, rankings), the first chosen first: what their
    log-likelihood is below its expectation, and its variance; shape (2, rankings)."""
    e = np.exp(theta - theta.max(axis=0))
    rows = [_group_means(part, group) for part in (e, e * theta, e * theta * theta, theta)]
    left, first, second = (np.cumsum(part[::-1], axis=0)[::-1][:choices] for part in rows[:3])
    left = np.maximum(left, _TINY)
    mean = first / left
    off = (mean - rows[3][:choices]).sum(axis=0)
    variance = np.maximum(second / left - mean * mean, 0).sum(axis=0)
    return np.stack([off, variance])


def _surprise(choices: Floats) -> Floats:
    """By ranking, of sums of `_choices`: standardised, 0 where nothing was uncertain."""
    off, variance = choices
    surprise: Floats = np.divide(
        off, np.sqrt(variance), out=np.zeros_like(off), where=variance > 1e-18
    )
    return surprise


def _group_means(values: Floats, group: Offsets) -> Floats:
    """Values of shape (k, rankings), each the mean of its group of tied items."""
    flat = np.unique(group, return_inverse=True)[1].reshape(-1)
    if int(flat.max()) + 1 == flat.size:
        return values
    means = np.bincount(flat, values.reshape(-1)) / np.bincount(flat)
    return means[flat].reshape(values.shape)


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
    groups = tie_groups(verdicts)
    # What an item isn't compared with: itself, and of a partial ranking its group.
    begins, without = at, 1 + unknown_by_slot(verdicts)[at]
    if verdicts.partial is not None:
        in_group = np.searchsorted(groups, groups[at])
        begins = np.where(without > 1, in_group, at)
    compared = np.diff(verdicts.offsets)[of] - without
    for count in np.unique(compared[compared > 0]).tolist():
        alike = np.flatnonzero(compared == count)
        for begin in range(0, len(alike), _AT_ONCE):
            chosen = alike[begin : begin + _AT_ONCE]
            own, first = at[chosen], verdicts.offsets[of[chosen]]
            others = first + np.arange(count)[:, None]
            others += np.where(others >= begins[chosen], without[chosen], 0)
            gap = theta[verdicts.items[others]] - theta[verdicts.items[own]]
            won = np.where(groups[others] == groups[own], 0.5, others > own).sum(axis=0)
            mean, variance = _wins(np.clip(gap, -500, 500))
            expected[chosen] = mean
            residual[chosen] = (won - mean) / np.sqrt(variance)
    return residual, expected


def _wins(gap: Floats) -> tuple[Floats, Floats]:
    """The expectation and the variance of an item's wins against others whose θ are so much higher;
    `gap` of shape (others, items), the results (items,)."""
    above, below = np.exp(gap), np.exp(-gap)
    win, lose = 1 / (1 + above), 1 / (1 + below)
    variance = (win * lose).sum(axis=0)
    for j in range(len(gap) - 1):
        rest = slice(j + 1, None)
        top = lose[j] * lose[rest] / (1 + above[j] + above[rest])
        bottom = win[j] * win[rest] / (1 + below[j] + below[rest])
        variance += (top + bottom).sum(axis=0)  # twice the half of both
    return win.sum(axis=0), np.maximum(variance, _TINY)
