"""How reliable a scale is: its separation, and two halves of the judgments held against each other.

All of it is about the judgments alone, and needs no gold. It measures agreement of the judgments with
one another, which isn't agreement with the truth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from judgeq import seeds
from judgeq.errors import NotConvergedError
from judgeq.rating.comparisons import components, judges_of
from judgeq.rating.correlation import centred, within
from judgeq.types import Bools, Floats, Offsets, Verdicts

Rate: TypeAlias = Callable[[Verdicts, int], Floats]
"""From verdicts on n items, and n, to their ratings, shape (n,): each component's by itself."""
SPLITS, LEAST_SPLITS = 100, 3
_ENTRIES = 500_000
"""About so many entries of verdicts are rated in all splits together, some seconds' work."""
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
    part = np.zeros(len(theta), np.int64) if component is None else component
    part = np.unique(part[known], return_inverse=True)[1].reshape(-1)
    several = np.bincount(part)[part] > 1
    part = np.unique(part[several], return_inverse=True)[1].reshape(-1)
    values, errors = centred(theta[known][several], part), se[known][several]
    if not (n := len(values)):
        return Separation(None, None, n, "fewer than two items have a standard error")
    variance = float((values * values).sum()) / (n - int(part.max()) - 1)
    if variance == 0:
        return Separation(None, None, n, "all items are rated the same")
    error = float((errors * errors).mean())
    whole = variance if likeliest else variance + error
    return Separation(1 - error / whole, math.sqrt(whole / error) if error else None, n)


# Split halves


@dataclass(frozen=True, slots=True)
class SplitHalf:
    """How well the ratings by one half of the judgments correlate with those by the other: the median
    `r` of Pearson's r over `splits` random halvings, and its range from `low` to `high`.

    `by` is what was halved, "judges" or "judgments". `whole` is the reliability that the median
    predicts of all judgments together, 2r / (1 + r) (Spearman 1910, Brown 1910). `items` is the median
    number of items that both halves rate. None where it is undefined, and `why`.
    """

    r: float | None
    low: float | None
    high: float | None
    splits: int
    by: str
    whole: float | None = None
    items: int = 0
    why: str | None = None
    JSON_KEYS: ClassVar = {"median": "r"}


def split_half(verdicts: Verdicts, rate: Rate, seed: int, splits: int | None = None) -> SplitHalf:
    """Split-half reliability of the ratings that `rate` makes of verdicts; by default over SPLITS, fewer
    of large runs, whose items make a single split as precise as many.

    The judges are halved where there are many (as many as MANY_JUDGES that judge equally much: 1/Σp²
    with p a judge's share of the judgments), else the judgments. Items that a half doesn't connect have
    no common scale in it, so that r is taken within the groups that both halves connect.
    Items judged alone are on one scale. A rating that raises NotConvergedError gives no value.
    """
    judge = judges_of(verdicts)
    counts = np.bincount(judge)
    many = int(counts.sum()) ** 2 >= MANY_JUDGES * max(1, int((counts * counts).sum()))
    by, unit = ("judges", judge) if many else ("judgments", np.arange(len(verdicts)))
    if splits is None:
        splits = max(LEAST_SPLITS, min(SPLITS, _ENTRIES // max(len(verdicts.items), 1)))
    units, which = np.unique(unit, return_inverse=True)
    why, items = "no splits were asked for", 0
    found: list[tuple[float | None, int]] = []
    try:
        for at in range(splits):
            order = seeds.rng(seed, "split-half", at).permutation(len(units))
            found.append(_of_halves(verdicts, order[which] >= len(units) // 2, rate))
    except NotConvergedError as error:
        why, found = f"half of the {by} can't be rated: {error}", []
    if found:
        items = int(np.median([n for _, n in found]))
        why = "all items are rated the same" if items else "both halves connect no two items"
    known = [r for r, _ in found if r is not None]
    if len(known) * 2 < max(splits, 1):
        return SplitHalf(None, None, None, 0, by, None, items, why)
    r = float(np.median(known))
    whole = 2 * r / (1 + r) if r > -1 else None
    return SplitHalf(r, min(known), max(known), len(known), by, whole, items)


def _of_halves(verdicts: Verdicts, second: Bools, rate: Rate) -> tuple[float | None, int]:
    """r of the ratings by two halves, within the groups of items that both connect, and over how many
    items. `second` says which verdicts are of the second half."""
    halves, n = (verdicts.where(~second), verdicts.where(second)), int(verdicts.items.max()) + 1
    x, y = (rate(half, n) for half in halves)
    one, other = (components(half, n, scored=True) for half in halves)
    both = (one > 0) & (other > 0)
    part = one * (int(other.max(initial=0)) + 1) + other
    r, _, items = within(x[both], y[both], part[both])
    return r, items
