"""Intervals of ratings and of ranks, and tiers: what a posterior says of each item."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from judgeq.rating import GoOn, Uncertainty, always
from judgeq.rating.order import Order, rank_intervals_of_few
from judgeq.rating.posterior import Z
from judgeq.types import Floats, Offsets, Rows

FEW = 300
"""Items of a component whose ranks are worked out pair by pair."""
_AT_ONCE = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """How sure n ratings are; arrays of shape (n,).

    `se` are standard errors, `low` and `high` the ends of the 95 % interval of the rating, which holds
    wherever an item lies (`Posterior.interval`),
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


def intervals(posterior: Uncertainty, go_on: GoOn = always) -> Intervals:
    """What a posterior says of each item. Raises NotConvergedError."""
    se = posterior.errors
    go_on()
    own = ranks(posterior.theta, posterior.component)
    rank_low, rank_high = rank_intervals(posterior, own)
    go_on()
    low, high = posterior.interval
    return Intervals(
        se=se,
        low=low,
        high=high,
        rank_low=rank_low,
        rank_high=rank_high,
        tier=tiers(posterior),
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


def rank_intervals(posterior: Uncertainty, own: Rows) -> tuple[Offsets, Offsets]:
    """The 95 % interval of each item's rank within its component, (low, high), each of shape (n,): as
    whole numbers, widened to its `own`; 0 for an item that was never judged."""
    component, mean = posterior.component, posterior.mean
    se = posterior.errors_apart
    low, high = np.zeros((2, len(component)))
    rows = np.flatnonzero(component > 0)
    rows = rows[np.argsort(component[rows], kind="stable")]
    sizes = np.bincount(component)[component[rows]]
    for size in np.unique(sizes).tolist():
        groups = rows[sizes == size].reshape(-1, size)
        at_once = max(1, _AT_ONCE // size**2) if size <= FEW else 1
        for begin in range(0, len(groups), at_once):
            some = groups[begin : begin + at_once]
            if size <= FEW:
                low[some], high[some] = rank_intervals_of_few(mean[some], se[some])
            else:
                low[some[0]], high[some[0]] = Order(mean[some[0]], se[some[0]]).rank_intervals()
    most = np.bincount(component)[component]
    ends = (np.clip(np.rint(end), np.minimum(own, 1), most).astype(np.int64) for end in (low, high))
    least, largest = ends
    return np.minimum(least, own), np.where(component > 0, np.maximum(largest, own), 0)


def tiers(posterior: Uncertainty) -> Offsets:
    """The tier of each item within its component, from 1; 0 for an item that was never judged."""
    component = posterior.component
    tier = np.zeros(len(component), dtype=np.int64)
    order = np.lexsort((-posterior.theta, component))
    order = order[component[order] > 0]
    if not len(order):
        return tier
    mean, se = posterior.mean[order], posterior.errors_apart[order]
    place, part = np.arange(len(order)), component[order] - 1
    first = np.flatnonzero(np.diff(part, prepend=-1))  # of each component's last tier
    while True:
        begin = first[part]
        tier[order[place >= begin]] += 1
        begin = np.minimum(begin, place)
        clear = np.flatnonzero(mean[begin] - mean > Z * np.hypot(se[begin], se))
        if not len(clear):
            return tier
        there, at = np.unique(part[clear], return_index=True)
        first = np.full(len(first), len(order))
        first[there] = clear[at]
