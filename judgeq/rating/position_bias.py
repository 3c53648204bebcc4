"""Does the judge favour a place in the order presented, what is that worth, and what asking in both
orders does about it.

The order within a match is random, so that each slot should win half of its comparisons. A judge with
a favourite slot is seen by the win rates of the slots.

How much the place is worth is γ, in the units of θ: what stands in slot s of k (from 0, in
the order presented) is judged as if its rating were γ·(s/(k − 1) − ½) higher, the last one γ higher than
the first. γ is a covariate's parameter, estimated jointly with θ; what is left in θ is without the
effect.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from judgeq.rating import GoOn, always, curvature
from judgeq.rating.comparisons import (
    compared_by_slot,
    others_by_slot,
    presented_at,
    wins_by_slot,
)
from judgeq.rating.posterior import LEVEL, Posterior, Z
from judgeq.types import Bools, Floats, Matches, Offsets, Verdicts

ENOUGH = 30
"""Matches below which no favourite is claimed, and there is no γ: intervals are those of large
numbers."""
_NEAR = 1e-5
"""How near items are worked out for γ and its error: far less than an error."""


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """Win rates by slot, arrays of shape (slots,): slot 0 was presented first. `unordered`
    matches are left out, since their order isn't known: of all of them there may be no slots.

    `rate` is the mean over matches of the share of its match's other items that the item in the slot
    beat (a tie counts ½; with partial rankings, the mean of items beaten over the mean of those that it
    is known to be above or below); `low` and `high` its 95 % interval; `matches` how many had the slot.
    `chance` is the probability that the rate of some slot differs from ½ as much as that of the slot
    `furthest` (numbered from 1), if no slot is favoured: of k slots 1 − (1 − p)^k (Šidák 1967), with p
    by the normal distribution. It is None of fewer than ENOUGH matches.
    """

    rate: Floats
    low: Floats
    high: Floats
    matches: Offsets
    unordered: int = 0
    chance: float | None = None
    furthest: int = 1

    @property
    def biased(self) -> bool:
        """Whether some slot wins more or less often than chance explains."""
        return self.chance is not None and self.chance < 1 - LEVEL


@dataclass(frozen=True, slots=True)
class Flips:
    """Of `couples` asked in both orders, `flipped` got two answers that differ (counted as ties), and
    `incomplete` only one (left out)."""

    couples: int
    flipped: int
    incomplete: int


def slots(verdicts: Verdicts, *, couples: bool = False) -> Slots | None:
    """The win rates of the slots; None without a verdict, and where items were judged alone.

    Intervals are mean ± 1.96 standard errors over matches, cut to 0..1: these are independent of one
    another, comparisons within one are not. With `couples`, of pairs asked in both orders (`doubled`),
    they are over couples, whose two answers hang together. To the squares is added what a match more
    would have, or two couples that flipped, one each way: with few or none an error of almost 0 would
    claim too much.
    """
    compared, ordered = verdicts.sizes > 1, _with_order(verdicts)
    if not compared.any():
        return None
    verdicts = verdicts.where(ordered)
    share, known = np.empty((2, len(verdicts.items)))  # of its match's others, by slot presented
    at, others = presented_at(verdicts), others_by_slot(verdicts)
    share[at], known[at] = wins_by_slot(verdicts) / others, compared_by_slot(verdicts) / others
    slot = verdicts.place
    matches, of_all = np.bincount(slot), np.bincount(slot, known)
    rate, units = np.bincount(slot, share) / of_all, matches
    off = share - rate[slot] * known
    squares = np.bincount(slot, off * off) + 0.5
    if couples:
        couple = np.unique(verdicts.matches // 2, return_inverse=True)[1]
        both = np.bincount(np.repeat(couple * 2, 2) + slot, off).reshape(-1, 2)
        squares, units = (both * both).sum(axis=0) + 2, np.full(2, len(both))
    error = np.sqrt(squares * units / np.maximum(units - 1, 1)) / of_all
    tails = [2 * NormalDist().cdf(-abs(z)) for z in ((rate - 0.5) / error).tolist()]
    # Two slots say the same, so that they are one test.
    chance = 1 - (1 - np.array(tails)) ** (len(rate) if len(rate) > 2 else 1)
    chance[units < ENOUGH] = 1
    furthest = int(np.argmin([*chance, 2]))
    return Slots(
        rate=rate,
        low=np.clip(rate - Z * error, 0, 1),
        high=np.clip(rate + Z * error, 0, 1),
        matches=matches,
        unordered=int(compared.sum() - ordered.sum()),
        chance=float(chance[furthest]) if units.max(initial=0) >= ENOUGH else None,
        furthest=furthest + 1,
    )


def _with_order(verdicts: Verdicts) -> Bools:
    """Which verdicts compare items presented in an order that is known."""
    return verdicts.ordered & (verdicts.sizes > 1)


def sentence(slots: Slots) -> str:
    """Whether the judge favours a position, with the probability that chance alone does as much."""
    if slots.chance is None:
        return "Too few matches to test for position bias."
    p = "p < 0.001" if slots.chance < 0.001 else f"p = {slots.chance:.2g}"
    if not slots.biased:
        return f"No position bias found ({p}, largest deviation: position {slots.furthest})."
    rate = slots.rate[slots.furthest - 1]
    return (
        f"Position bias: position {slots.furthest} wins {'more' if rate > 0.5 else 'less'} often than "
        f"chance ({rate:.3f} of its comparisons), {p}."
    )


# What the place is worth


def numbers(verdicts: Verdicts) -> Floats:
    """s/(k − 1) − ½ of the item in each slot of `verdicts.items`, shape (slots, 1), where it was
    presented in s; 0 where the order presented isn't known, and for an item judged alone."""
    value: Floats = verdicts.place / np.maximum(others_by_slot(verdicts), 1) - 0.5
    value[~_with_order(verdicts)[verdicts.of_slot]] = 0
    return value[presented_at(verdicts), None]


def covariates(verdicts: Verdicts, loadings: Floats, *, position: bool) -> tuple[Floats, Floats]:
    """Of covariates, and of the place presented where its effect is taken out, numbers by slot and
    loadings by item, of which those of the place are 0."""
    by_slot = loadings[verdicts.items]
    if not position:
        return by_slot, loadings
    return np.hstack([by_slot, numbers(verdicts)]), np.pad(loadings, ((0, 0), (0, 1)))


@dataclass(frozen=True, slots=True)
class Effect:
    """γ: its `value`, standard error and 95 % interval, from n `matches`."""

    value: float
    se: float
    low: float
    high: float
    matches: int

    @property
    def significant(self) -> bool:
        """Whether it is further from 0 than that of one judge in twenty without any."""
        return self.low > 0 or self.high < 0


def effect(
    posterior: Posterior, verdicts: Verdicts, *, joint: bool, go_on: GoOn = always
) -> Effect | None:
    """γ of some verdicts, of which `posterior` is; None where too few of them are known to have been
    presented in an order.

    `joint`: the last of its covariates is `numbers(verdicts)`. Else it is taken into the same model
    here, with the same σ and dispersion: θ of the posterior is left as it is. Both give γ at the joint
    maximum, with the error of the curvature there; of many items the latter by one step of Newton's from
    γ = 0, where next to nothing is left. Raises NotConvergedError.
    """
    count = int(_with_order(verdicts).sum())
    if count < ENOUGH:
        return None
    go_on()
    dispersion = posterior.dispersion  # first, so that only one curvature is there at a time
    if joint:
        best = posterior.curvature
    else:
        rankings = posterior.rankings.with_covariates(numbers(verdicts))
        start, what = np.append(posterior.parameters, 0.0), "the effect of the position"
        if rankings.n > curvature.DENSE:
            best = curvature.Curvature(rankings, start, rankings.precision(posterior.sigma))
        else:
            best = curvature.maximum(rankings, posterior.sigma, _NEAR, start, what=what)
    # Newton's step; at a maximum it is none.
    variance = float(best.shared[1][-1, -1])
    value = float(best.parameters[-1] - variance * best.gradient[-1])
    se = float(np.sqrt(dispersion * variance))
    return Effect(value, se, value - Z * se, value + Z * se, count)


# Both orders


def doubled(matches: Matches) -> Matches:
    """Each pair, followed by the same in the other order. Raises ValueError for lists."""
    if (matches.sizes != 2).any():
        raise ValueError("only pairs can be asked in both orders")
    pairs = matches.items.reshape(-1, 2)
    both = np.stack([pairs, pairs[:, ::-1]], axis=1)
    return Matches(
        items=np.ascontiguousarray(both).reshape(-1),
        offsets=np.arange(2 * len(pairs) + 1, dtype=np.int64) * 2,
    )


def merged(verdicts: Verdicts) -> tuple[Verdicts, Flips]:
    """One verdict for each couple of matches 2m and 2m + 1 that `doubled` made: what both say, or a
    tie where they differ. Where only one was answered the couple is left out: half an answer is none.
    """
    couple, at, count = np.unique(verdicts.matches // 2, return_index=True, return_counts=True)
    first = at[count == 2]
    tied, highest = verdicts.tied[1::2], verdicts.items[verdicts.offsets[:-1]]
    answer = np.where(tied, -1, highest)
    same = answer[first] == answer[first + 1]
    both = verdicts.where(np.isin(np.arange(len(verdicts)), first))
    tie = np.zeros((len(first), 2), dtype=np.bool_)
    tie[:, 1] = tied[first] | ~same
    flips = Flips(len(couple), int((~same).sum()), len(couple) - len(first))
    return replace(both, tied=tie.reshape(-1)), flips
