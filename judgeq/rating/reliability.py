"""How reliable a scale is: its separation, and two halves of the judgments held against each other.

All of it is about the judgments alone, and needs no gold. It measures agreement of the judgments with
one another, which isn't agreement with the truth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

import numpy as np

from judgeq import seeds
from judgeq.errors import NotConvergedError
from judgeq.rating.comparisons import joined, scale_components
from judgeq.types import Bools, Floats, Offsets, Verdicts

Rate: TypeAlias = Callable[[Verdicts, int], Floats]
"""From verdicts on n items, and n, to their ratings, shape (n,): each component's by itself."""
SPLITS = 100
_LEAST_SPLITS = 3
_ENTRIES = 500_000
"""About so many entries of verdicts are rated in all splits together, some seconds' work."""
_AT_ONCE = 100_000
"""Splits of so many entries are rated together."""
MANY_JUDGES = 10
"""From so many judges on, the judges are halved instead of their judgments."""


@dataclass(frozen=True, slots=True)
class Separation:
    """The scale separation reliability `ssr` and the separation `g` over `n` items; None where they
    are undefined, and `why`."""

    ssr: float | None
    g: float | None
    n: int
    why: str | None = None


def separation(
    theta: Floats, se: Floats, component: Offsets | None = None, *, likeliest: bool = False
) -> Separation:
    """SSR = var(θ) / (var(θ) + mean(se²)) of MAP estimates, which are drawn in by their prior, and
    G = 1/√(1 − SSR). `likeliest`: of maximum-likelihood estimates, which scatter by their errors, SSR
    is 1 − mean(se²) / var(θ), below 0 where the errors are larger than the spread.

    `theta` and `se` are of shape (n,), nan for items that are left out; the variance is that with
    n − 1. With `component`, shape (n,), it is the variance within the components, pooled (n less the
    number of components): where nothing compares two components, nothing is known of their distance.
    Source: Wright and Masters (1982), "Rating Scale Analysis", chapter 5, and Bock and Mislevy (1982)
    of MAP; `likeliest` as the R package sirt computes both (`btm`: mle.rel, sepG).
    """
    known = ~(np.isnan(theta) | np.isnan(se))
    part = np.zeros(int(known.sum()), np.int64) if component is None else component[known]
    values, errors, part = _of_several(theta[known], se[known], part)
    n = len(values)
    if n < 2:
        return Separation(None, None, n, "fewer than two items have a standard error")
    off, groups = _centred(values, part)
    variance = float((off * off).sum()) / (n - groups)
    if variance == 0:
        return Separation(None, None, n, "all items are rated the same")
    error = float((errors * errors).mean())
    whole = variance if likeliest else variance + error
    return Separation(1 - error / whole, math.sqrt(whole / error) if error else None, n)


def _of_several(x: Floats, y: Floats, part: Offsets) -> tuple[Floats, Floats, Offsets]:
    """Without the items that are alone in their part; parts are numbered anew, from 0."""
    part = np.unique(part, return_inverse=True)[1].reshape(-1)
    kept = (np.bincount(part) > 1)[part]
    part = np.unique(part[kept], return_inverse=True)[1].reshape(-1)
    return x[kept], y[kept], part


def _centred(values: Floats, part: Offsets) -> tuple[Floats, int]:
    """Values less the mean of their part, and how many parts there are."""
    count = np.bincount(part)
    return values - (np.bincount(part, values) / count)[part], len(count)


# Split halves


@dataclass(frozen=True, slots=True)
class SplitHalf:
    """How well the ratings by one half of the judgments correlate with those by the other: the median
    `r` of Pearson's r over `splits` random halvings, and its range from `low` to `high`.

    `by` is what was halved, "judges" or "judgments". `whole` is the reliability that the median
    predicts of all judgments together, 2r / (1 + r) (Spearman 1910, Brown 1910). `items` is the median
    number of items that both halves rate, and `components` that of the groups of them that both halves
    connect. None where it is undefined, and `why`.
    """

    r: float | None
    low: float | None
    high: float | None
    splits: int
    by: str
    whole: float | None = None
    items: int = 0
    components: int = 0
    why: str | None = None
    JSON_KEYS: ClassVar = {"median": "r"}


def splits_for(verdicts: Verdicts) -> int:
    """How many splits there are by default: SPLITS, fewer of large runs, whose items make a single
    split as precise as many."""
    entries = max(len(verdicts.items), 1)
    return max(_LEAST_SPLITS, min(SPLITS, _ENTRIES // entries))


def split_half(verdicts: Verdicts, rate: Rate, seed: int, splits: int | None = None) -> SplitHalf:
    """Split-half reliability of the ratings that `rate` makes of verdicts.

    The judges are halved where there are many (as many as MANY_JUDGES that judge equally much: 1/Σp²
    with p a judge's share of the judgments), else the judgments. Items that a half doesn't connect have
    no common scale in it, so that r is taken within the groups that both halves connect: of deviations
    from the groups' means, pooled. (The mean of the groups' own r would count a pair of items as ±1.)
    Items judged alone are on one scale. A rating that raises NotConvergedError gives no value.
    """
    judge = np.zeros(len(verdicts), np.int64) if verdicts.judges is None else verdicts.judges
    counts = np.bincount(judge)
    many = int(counts.sum()) ** 2 >= MANY_JUDGES * max(1, int((counts * counts).sum()))
    by, unit = ("judges", judge) if many else ("judgments", np.arange(len(verdicts)))
    splits = splits_for(verdicts) if splits is None else splits

    def unknown(why: str, items: int = 0, components: int = 0) -> SplitHalf:
        return SplitHalf(None, None, None, 0, by, None, items, components, why)

    if splits < 1:
        return unknown("no splits were asked for")
    if len(verdicts) < 2:
        return unknown("there are fewer than two judgments")
    which = np.unique(unit, return_inverse=True)[1].reshape(-1)
    units = int(which.max()) + 1
    seconds = [
        seeds.rng(seed, "split-half", at).permutation(units)[which] >= units // 2
        for at in range(splits)
    ]
    together = max(1, _AT_ONCE // len(verdicts.items))
    values: list[tuple[float, int, int]] = []
    try:
        for begin in range(0, splits, together):
            values += _rated_by_halves(verdicts, seconds[begin : begin + together], rate)
    except NotConvergedError as error:
        return unknown(f"half of the {by} can't be rated: {error}")
    r, items, groups = (np.array(column) for column in zip(*values, strict=True))
    known = r[~np.isnan(r)]
    common, connected = int(np.median(items)), int(np.median(groups))
    if len(known) * 2 < splits:
        why = "all items are rated the same" if common else "both halves connect no two items"
        return unknown(why, common, connected)
    median = float(np.median(known))
    whole = 2 * median / (1 + median) if median > -1 else None
    low, high = float(known.min()), float(known.max())
    return SplitHalf(median, low, high, len(known), by, whole, common, connected)


def _rated_by_halves(
    verdicts: Verdicts, seconds: list[Bools], rate: Rate
) -> list[tuple[float, int, int]]:
    """Of each split, given by which verdicts are of its second half: as of `_correlated`.

    All are rated in one go, as components of one large rating: each half has items of its own.
    """
    rows, item = np.unique(verdicts.items, return_inverse=True)
    presented, m = np.searchsorted(rows, verdicts.presented), len(rows)
    parts = []
    for number, second in enumerate(seconds):
        shift = m * np.repeat(2 * number + second, np.diff(verdicts.offsets))
        own, shown = ((of.reshape(-1) + shift).astype(np.int32) for of in (item, presented))
        parts.append(replace(verdicts, items=own, presented=shown))
    whole, n = joined(parts), 2 * len(seconds) * m
    ratings = rate(whole, n).reshape(-1, 2, m)
    components = scale_components(whole, n).reshape(-1, 2, m)
    return [_correlated(*both, *groups) for both, groups in zip(ratings, components, strict=True)]


def _correlated(x: Floats, y: Floats, one: Offsets, other: Offsets) -> tuple[float, int, int]:
    """Pearson's r of x with y within the groups of items that both halves connect, by their components
    (nan where it is undefined), how many items these are, and how many groups."""
    both = (one > 0) & (other > 0)
    part = (one * (int(other.max()) + 1) + other)[both]
    x, y, part = _of_several(x[both], y[both], part)
    if not len(x):
        return math.nan, 0, 0
    (x, groups), (y, _) = _centred(x, part), _centred(y, part)
    sizes = float((x * x).sum()), float((y * y).sum())
    if min(sizes) <= np.finfo(float).eps * len(x):  # what rounding leaves of a constant
        return math.nan, len(x), groups
    r = float((x * y).sum()) / math.sqrt(sizes[0] * sizes[1])
    return max(-1.0, min(1.0, r)), len(x), groups
