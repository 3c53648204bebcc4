"""Does the judge favour a place in the order presented? And what asking in both orders does about it.

The order within a match is random, so that each slot should win half of its comparisons. A judge with
a favourite slot is seen by the win rates of the slots.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from judgeq.rating import student
from judgeq.rating.comparisons import compared_by_slot, presented_at, wins_by_slot
from judgeq.types import Floats, Matches, Offsets, Verdicts

LEVEL = 0.95
ENOUGH = 30
"""Matches below which no favourite is claimed: the intervals are those of large numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """Win rates by slot, arrays of shape (slots,): slot 0 was presented first. `unordered`
    matches are left out, since their order isn't known: of all of them there may be no slots.

    `rate` is the mean over matches of the share of its match's other items that the item in the slot
    beat (a tie counts ½; with partial rankings, the mean of items beaten over the mean of those that it
    is known to be above or below); `low` and `high` its 95 % interval; `matches` how many had the slot.
    `chance` is the probability that the rate of some slot differs from ½ as much as that of the slot
    `furthest`, if no slot is favoured: of k slots 1 − (1 − p)^k (Šidák 1967), with p by Student's t. It
    is None of fewer than ENOUGH matches. `favoured` and `slighted` are the slots whose rate is above and
    below ½ with such a probability of less than 5 %, or None. These three are numbered from 1.
    """

    rate: Floats
    low: Floats
    high: Floats
    matches: Offsets
    favoured: int | None
    slighted: int | None
    unordered: int = 0
    chance: float | None = None
    furthest: int = 1


@dataclass(frozen=True, slots=True)
class Flips:
    """Of `couples` asked in both orders, `flipped` got two answers that differ (counted as ties), and
    `incomplete` only one (left out)."""

    couples: int
    flipped: int
    incomplete: int


def slots(verdicts: Verdicts, *, couples: bool = False) -> Slots | None:
    """The win rates of the slots; None without a verdict, and where items were judged alone.

    Of pairs the intervals are Wilson's (1927). Of lists they are mean ± t standard errors over lists,
    cut to 0..1, and of up to three lists all of it: lists are independent of one another, comparisons
    within one are not. With `couples`, of pairs asked in both orders (`doubled`), standard errors are
    those over couples, whose two answers hang together.
    """
    compared = np.diff(verdicts.offsets) > 1
    if not compared.any():
        return None
    ordered = np.ones_like(compared) if verdicts.ordered is None else verdicts.ordered
    unordered = int((compared & ~ordered).sum())
    verdicts = verdicts.where(compared & ordered)
    if not len(verdicts):
        none = np.empty(0)
        return Slots(none, none, none, np.empty(0, np.int64), None, None, unordered)
    share, known = _shares(verdicts)
    slot = np.arange(len(share)) - np.repeat(verdicts.offsets[:-1], np.diff(verdicts.offsets))
    matches, of_all = np.bincount(slot), np.bincount(slot, known)
    rate = np.bincount(slot, share) / of_all
    if couples:
        units, error = _over_couples(verdicts.matches // 2, slot, share, matches)
    else:
        units = matches
        squares = np.bincount(slot, (share - rate[slot] * known) ** 2)
        error = np.sqrt(squares / np.maximum(matches - 1, 1) * matches) / of_all
    each = list(zip((rate - 0.5).tolist(), error.tolist(), units.tolist(), strict=True))
    if len(rate) == 2 and not couples:
        low, high = wilson(rate, matches)
    else:
        reach = [student.quantile(LEVEL, n - 1) * one if n > 3 else 1.0 for _, one, n in each]
        low, high = np.clip(rate - reach, 0, 1), np.clip(rate + reach, 0, 1)
    # Two slots say the same, so that they are one test.
    tests = len(rate) if len(rate) > 2 else 1
    chance = 1 - (1 - np.array([_chance(*one) for one in each])) ** tests
    furthest = int(np.argmin(chance))
    likely = np.where(chance < 1 - LEVEL, rate - 0.5, 0.0)
    best, worst = int(np.argmax(likely)), int(np.argmin(likely))
    return Slots(
        rate=rate,
        low=low,
        high=high,
        matches=matches,
        favoured=best + 1 if likely[best] > 0 else None,
        slighted=worst + 1 if likely[worst] < 0 else None,
        unordered=unordered,
        chance=float(chance[furthest]) if int(units.max()) >= ENOUGH else None,
        furthest=furthest + 1,
    )


def _over_couples(
    couple: Offsets, slot: Offsets, share: Floats, matches: Offsets
) -> tuple[Offsets, Floats]:
    """How many couples there are, and the standard error of each slot's rate, over couples.

    A judge without a favourite slot flips as often to one as to the other, so that a couple's wins of
    a slot are expected to be half of its matches. Two flips, one each way, are added: with few or none
    an error of almost 0 would claim too much (as Agresti and Coull 1998 do for a share).
    """
    number = np.repeat(np.unique(couple, return_inverse=True)[1], 2)
    n = int(number.max()) + 1
    excess = np.bincount(number * 2 + slot, share - 0.5, 2 * n).reshape(n, 2)
    error = np.sqrt((excess * excess).sum(axis=0) + 2) / matches
    return np.array([n, n]), error


def _chance(away: float, error: float, units: int) -> float:
    """How likely chance alone makes a rate so far from ½; 1 of a slot with few units."""
    if units < ENOUGH:
        return 1.0
    t = away / error if error else math.inf if away else 0.0
    return student.two_sided(t, units - 1)


def wilson(rate: Floats, matches: Offsets) -> tuple[Floats, Floats]:
    """Wilson's 95 % interval of each `rate` of so many `matches`, (low, high): Wilson 1927, JASA 22."""
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    centre = rate + z * z / (2 * matches)
    spread = z * np.sqrt(rate * (1 - rate) / matches + z * z / (4.0 * matches * matches))
    scale = 1 + z * z / matches
    low, high = (centre - spread) / scale, (centre + spread) / scale
    return np.clip(low, 0, 1), np.clip(high, 0, 1)  # rounding


def _shares(verdicts: Verdicts) -> Floats:
    """For each item as presented, the share of its match's others that it beat, and the share that it
    was compared with; shape (2, slots)."""
    sizes = np.diff(verdicts.offsets)
    counts = np.stack([wins_by_slot(verdicts), compared_by_slot(verdicts)])
    presented: Floats = np.empty_like(counts)
    presented[:, presented_at(verdicts)] = counts / np.repeat(sizes - 1, sizes)
    return presented


def doubled(matches: Matches) -> Matches:
    """Each pair, followed by the same in the other order. Raises ValueError for lists."""
    if (np.diff(matches.offsets) != 2).any():
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
    couple, where, count = np.unique(verdicts.matches // 2, return_index=True, return_counts=True)
    first = where[count == 2]
    second = first + 1
    items, tied = verdicts.items.reshape(-1, 2)[:, 0], verdicts.tied[1::2]
    both_tied = tied[first] & tied[second]
    same = both_tied | ((tied[first] == tied[second]) & (items[first] == items[second]))
    answered = np.zeros(len(verdicts), dtype=np.bool_)
    answered[first] = True
    tie = np.zeros((len(first), 2), dtype=np.bool_)
    tie[:, 1] = both_tied | ~same
    flips = Flips(len(couple), int((~same).sum()), len(couple) - len(first))
    return replace(verdicts.where(answered), tied=tie.reshape(-1)), flips


def plus(a: Flips, b: Flips) -> Flips:
    """The sum of two rounds."""
    return Flips(a.couples + b.couples, a.flipped + b.flipped, a.incomplete + b.incomplete)


def sentence(slots: Slots) -> str:
    """Whether the judge favours a position, with the probability that chance alone does as much."""
    if slots.chance is None:
        return "Too few matches to test for position bias."
    p = "p < 0.001" if slots.chance < 0.001 else f"p = {slots.chance:.2g}"
    claims = [
        f"position {slot} wins {how} often than chance ({slots.rate[slot - 1]:.3f} of its comparisons)"
        for slot, how in ((slots.favoured, "more"), (slots.slighted, "less"))
        if slot is not None
    ]
    if claims:
        return f"Position bias: {' and '.join(claims)}, {p}."
    return f"No position bias found ({p}, largest deviation: position {slots.furthest})."
