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

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from judgeq import seeds
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
"""Answers below which no favourite is claimed, and there is no γ: intervals are those of large
numbers. Of pairs asked in both orders it is that many couples."""
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
    by the normal distribution; by Student's where questions were answered several times. It is None of
    fewer than ENOUGH answers, and where all of them are about one set of items.
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
    """Return the win rates of the slots; None without a verdict, and where items were judged alone.

    Intervals are mean ± 1.96 standard errors, cut to 0..1. Errors are over questions, which are sets of
    items: all answers about one set are one unit, whoever gave them and in whatever order. Several
    judges who are shown the same order agree on its items, and with these on the slots. Where each saw
    an order of its own, the units are right too: answers in opposite orders cancel. `couples`: all are
    pairs that were asked in both orders (`doubled`).

    To the squares is added what half a unit more would have; of couples two units that flipped, one each
    way. With few or none an error of almost 0 would claim too much.
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
    rate = np.bincount(slot, share) / of_all
    off = share - rate[slot] * known

    question, more = _questions(verdicts)
    several = len(more) < len(verdicts)  # answers about one set
    unit, slot_of_unit, of_question = np.arange(len(slot)), slot, question[verdicts.of_slot]
    if several:
        unit_of, unit = np.unique(slot * len(more) + of_question, return_inverse=True)
        slot_of_unit, of_question = np.divmod(unit_of, len(more))
    units = np.bincount(slot_of_unit, minlength=len(rate))
    added = 2.0 if couples else np.bincount(slot_of_unit, more[of_question]) / units / 2
    squares = np.bincount(slot_of_unit, np.bincount(unit, off) ** 2) + added
    error = np.sqrt(squares * units / np.maximum(units - 1, 1)) / of_all

    z = np.abs(rate - 0.5) / error
    if several and not couples:  # units are of several sizes, and may be few
        answers = np.bincount(unit)
        effective = matches**2 / np.bincount(slot_of_unit, answers**2)
        z = _as_normal(z, np.maximum(effective - 1, 1))
    tails = [2 * NormalDist().cdf(-one) for one in z.tolist()]
    # Two slots say the same, so that they are one test.
    chance = 1 - (1 - np.array(tails)) ** (len(rate) if len(rate) > 2 else 1)
    enough = (matches // (2 if couples else 1) >= ENOUGH) & (units > 1)
    chance[~enough] = 1
    furthest = int(np.argmin([*chance, 2]))
    return Slots(
        rate=rate,
        low=np.clip(rate - Z * error, 0, 1),
        high=np.clip(rate + Z * error, 0, 1),
        matches=matches,
        unordered=int(compared.sum() - ordered.sum()),
        chance=float(chance[furthest]) if enough.any() else None,
        furthest=furthest + 1,
    )


def _questions(verdicts: Verdicts) -> tuple[Offsets, Floats]:
    """Return the number of the set of items that each verdict is about, shape (verdicts,), and by set
    the expected square of what its answers add to a slot, in squares of one answer.

    That is the square of how many answers one order has more than the others: these have the items in
    the same slots. Sets and orders are known by 64 bits of a sum of random numbers.
    """
    if not len(verdicts):
        return np.empty(0, np.int64), np.empty(0)
    starts, items = verdicts.offsets[:-1], verdicts.presented
    code = seeds.rng(0, "sets").integers(2**64, size=int(items.max()) + 1, dtype=np.uint64)
    turned = code[items] * (2 * verdicts.place.astype(np.uint64) + 1)
    question = np.unique(np.add.reduceat(code[items], starts), return_inverse=True)[1].reshape(-1)
    answers = np.bincount(question)
    if len(answers) == len(verdicts):
        return question, np.ones(len(answers))
    _, first, in_order = np.unique(
        np.add.reduceat(turned, starts), return_index=True, return_counts=True
    )
    most = np.zeros(len(answers))
    np.maximum.at(most, question[first], in_order)
    size = np.zeros(len(answers), np.int64)
    size[question] = verdicts.sizes
    orders = np.array([math.factorial(min(k, 20)) for k in range(int(size.max()) + 1)])
    net = most - (answers - most) / (orders[size] - 1)
    return question, np.maximum(net**2, 1)


def _as_normal(t: Floats, df: Floats) -> Floats:
    """Return the normal deviates whose tails are those of Student's t (Wallace 1959)."""
    z: Floats = (8 * df + 1) / (8 * df + 3) * np.sqrt(df * np.log1p(t**2 / df))
    return z


def _with_order(verdicts: Verdicts) -> Bools:
    """Which verdicts compare items presented in an order that is known."""
    return verdicts.ordered & (verdicts.sizes > 1)


def sentence(slots: Slots) -> str:
    """Whether the judge favours a position, with the probability that chance alone does as much."""
    if slots.chance is None:
        return "Too few different questions to test for position bias."
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
