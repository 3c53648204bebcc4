"""Intervals of ratings and of ranks, and tiers: what a posterior says of each item."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from judgeq.rating import GoOn, Uncertainty, always
from judgeq.rating.posterior import FOR_DISPERSION, LEVEL, VAST, Z
from judgeq.types import Floats, Offsets, Rows

FEW, MANY = 96, 240
"""Draws of the posterior by which intervals of ranks are made: MANY up to _LARGE items."""
_LARGE = 20_000
_AT_ONCE = 50_000


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """How sure n ratings are; arrays of shape (n,).

    `se` are standard errors, `low` and `high` the ends of the 95 % interval of the rating,
    `rank_low` and `rank_high` those of the rank within the component (1: most of the feature; 0 for
    an item that was never judged). `tier` numbers, from the top, runs of items that can't be told
    from the first of them: of the first item of the next tier the difference is larger than chance
    allows (5 %). `dispersion` is φ.
    """

    se: Floats
    low: Floats
    high: Floats
    rank_low: Offsets
    rank_high: Offsets
    tier: Offsets
    dispersion: float


def intervals(
    posterior: Uncertainty, go_on: GoOn = always, order: Uncertainty | None = None
) -> Intervals:
    """What a posterior says of each item; of ranks what `order` says, another of the same items, where
    it is known better how certain these are. Raises NotConvergedError."""
    se = posterior.errors
    go_on()
    own = ranks(posterior.theta, posterior.component)
    rank_low, rank_high = rank_intervals(posterior if order is None else order, own, go_on)
    return Intervals(
        se=se,
        low=posterior.mean - Z * se,
        high=posterior.mean + Z * se,
        rank_low=rank_low,
        rank_high=rank_high,
        tier=tiers(posterior, go_on),
        dispersion=posterior.dispersion,
    )


def ranks(theta: Floats, component: Offsets) -> Rows:
    """The rank of each rating within its component, from 1 for the highest, shape (n,); ties in the
    order of the rows, 0 for what was never judged."""
    order = np.lexsort((-theta, component)) if component.max(initial=0) > 1 else np.argsort(-theta)
    of = component[order]
    begins = np.searchsorted(of, of)
    rank: Rows = np.empty(len(theta), dtype=np.int32)
    rank[order] = np.arange(len(theta)) - begins + 1
    rank[component == 0] = 0
    return rank


def rank_intervals(
    posterior: Uncertainty, own: Rows, go_on: GoOn = always
) -> tuple[Offsets, Offsets]:
    """The 95 % interval of each item's rank within its component, (low, high), each of shape (n,):
    that of the ranks in draws of the posterior, widened to its `own`."""
    component = posterior.component
    n = len(component)
    draws = MANY if n <= _LARGE else FEW if n <= VAST else FOR_DISPERSION
    drawn = np.empty((n, draws), dtype=np.int32)
    at = 0
    for values in posterior.draws(draws):
        for column in values.T:
            go_on()
            drawn[:, at] = ranks(column, component)
            at += 1
    # The fewest draws outside that an interval of this level leaves on each side.
    outside = int((draws + 1) * (1 - LEVEL) / 2) - 1
    low, high = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    for begin in range(0, n, _AT_ONCE):
        some = np.partition(drawn[begin : begin + _AT_ONCE], (outside, draws - 1 - outside), axis=1)
        low[begin : begin + _AT_ONCE] = some[:, outside]
        high[begin : begin + _AT_ONCE] = some[:, draws - 1 - outside]
    return np.minimum(low, own), np.maximum(high, own)


def tiers(posterior: Uncertainty, go_on: GoOn = always) -> Offsets:
    """The tier of each item within its component, from 1; 0 for an item that was never judged."""
    component, theta = posterior.component, posterior.theta
    tier = np.zeros(len(theta), dtype=np.int64)
    order = np.lexsort((-theta, component))
    order = order[component[order] > 0]
    for number, firsts in enumerate(_firsts(posterior, order), start=1):
        go_on()
        tier[order[firsts]] = number
    # Each is of the tier of the last first before it.
    of = tier[order]
    at = np.maximum.accumulate(np.where(of > 0, np.arange(len(order)), 0))
    tier[order] = of[at]
    return tier


def _firsts(posterior: Uncertainty, order: Offsets) -> Iterator[Offsets]:
    """The places in `order` of the first items of tiers, turn by turn: one of each component that has
    one more."""
    mean, component = posterior.mean[order], posterior.component[order]
    place = np.arange(len(order))
    firsts = (
        np.flatnonzero(np.append(True, component[1:] != component[:-1])) if len(order) else place
    )
    while len(firsts):
        yield firsts
        # Components are independent, so that one solution is that of all of them.
        first_of = np.full(int(component.max()) + 1, -1)
        first_of[component[firsts]] = firsts
        mine = first_of[component]
        error = posterior.errors_from(order[firsts])[order]
        clear = (mine >= 0) & (place > mine) & (mean[mine] - mean > Z * error)
        there = np.flatnonzero(clear)
        firsts = there[np.unique(component[there], return_index=True)[1]]
