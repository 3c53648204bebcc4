"""Does the judge favour a place in the order presented? And what asking in both orders does about it.

The order within a match is random, so that each slot should win half of its comparisons. A judge with
a favourite slot is seen by the win rates of the slots.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from judgeq.rating.comparisons import tie_groups
from judgeq.types import Floats, Matches, Offsets, Verdicts

LEVEL = 0.95
ENOUGH = 30
"""Matches below which no favourite is claimed: the intervals are those of large numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """Win rates by slot, arrays of shape (slots,): slot 0 was presented first.

    `rate` is the mean over matches of the share of its match's other items that the item in the slot
    beat (a tie counts ½); `low` and `high` its 95 % interval; `matches` how many had the slot.
    `favoured` and `slighted` are slots whose rate differs from ½ by more than chance explains, at the
    level of 95 % for all slots together (Šidák 1967), or None.
    """

    rate: Floats
    low: Floats
    high: Floats
    matches: Offsets
    favoured: int | None
    slighted: int | None


@dataclass(frozen=True, slots=True)
class Flips:
    """Of `couples` asked in both orders, `flipped` got two answers that differ (counted as ties), and
    `incomplete` only one (left out)."""

    couples: int
    flipped: int
    incomplete: int


def slots(verdicts: Verdicts) -> Slots | None:
    """The win rates of the slots; None without a verdict, and where items were judged alone.

    Of pairs the intervals are Wilson's (1927). Of lists they are mean ± 1.96 standard errors over
    lists, cut to 0..1: lists are independent of one another, the comparisons within one are not.
    """
    compared = np.diff(verdicts.offsets) > 1
    if not compared.any():
        return None
    if not compared.all():
        verdicts = verdicts.where(compared)
    share = _shares(verdicts)
    slot = np.arange(len(share)) - np.repeat(verdicts.offsets[:-1], np.diff(verdicts.offsets))
    matches = np.bincount(slot)
    rate = np.bincount(slot, share) / matches
    deviation = share - rate[slot]
    error = np.sqrt(np.bincount(slot, deviation * deviation) / np.maximum(matches - 1, 1) / matches)
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    if len(rate) == 2:
        low, high = _wilson(rate, matches, z)
    else:
        low, high = np.clip(rate - z * error, 0, 1), np.clip(rate + z * error, 0, 1)
    strict = NormalDist().inv_cdf((1 + LEVEL ** (1 / max(1, len(rate) - 1))) / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.where(matches >= ENOUGH, (rate - 0.5) / error, 0.0)
    distance = np.nan_to_num(distance)
    best, worst = int(np.argmax(distance)), int(np.argmin(distance))
    return Slots(
        rate=rate,
        low=low,
        high=high,
        matches=matches,
        favoured=best if distance[best] > strict else None,
        slighted=worst if distance[worst] < -strict else None,
    )


def _wilson(rate: Floats, matches: Offsets, z: float) -> tuple[Floats, Floats]:
    """Wilson's interval of a share. Source: Wilson (1927), JASA 22."""
    centre = rate + z * z / (2 * matches)
    spread = z * np.sqrt(rate * (1 - rate) / matches + z * z / (4.0 * matches * matches))
    scale = 1 + z * z / matches
    return (centre - spread) / scale, (centre + spread) / scale


def _shares(verdicts: Verdicts) -> Floats:
    """For each item as presented, the share of its match's others that it beat; shape (slots,)."""
    lengths = np.diff(verdicts.offsets)
    ends = np.repeat(verdicts.offsets[1:], lengths)
    won: Floats = (ends - 1 - np.arange(len(ends))).astype(np.float64)
    if verdicts.tied.any():
        group = tie_groups(verdicts) - 1
        won = (np.bincount(group, won) / np.bincount(group))[group]
    share: Floats = won / np.repeat(lengths - 1, lengths)
    which = np.repeat(np.arange(len(lengths), dtype=np.int64) << 32, lengths)
    presented = np.empty_like(share)
    # Sorted by match and item, both list the same items.
    presented[np.argsort(which + verdicts.presented)] = share[np.argsort(which + verdicts.items)]
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
    couple = verdicts.matches // 2
    first = np.flatnonzero(couple[:-1] == couple[1:]) if len(couple) > 1 else np.empty(0, np.int64)
    second = first + 1
    items, tied = verdicts.items.reshape(-1, 2), verdicts.tied.reshape(-1, 2)[:, 1]
    both_tied = tied[first] & tied[second]
    one_tied = tied[first] ^ tied[second]
    same = both_tied | (~one_tied & (items[first, 0] == items[second, 0]))
    tie = np.zeros((len(first), 2), dtype=np.bool_)
    tie[:, 1] = both_tied | ~same
    flips = Flips(len(np.unique(couple)), int((~same).sum()), len(np.unique(couple)) - len(first))
    return (
        Verdicts(
            matches=verdicts.matches[first],
            items=np.ascontiguousarray(items[first]).reshape(-1),
            offsets=np.arange(len(first) + 1, dtype=np.int64) * 2,
            tied=tie.reshape(-1),
            presented=np.ascontiguousarray(
                verdicts.presented.reshape(-1, 2)[first], dtype=np.int32
            ).reshape(-1),
            judges=None if verdicts.judges is None else verdicts.judges[first],
        ),
        flips,
    )


def plus(a: Flips, b: Flips) -> Flips:
    """The sum of two rounds."""
    return Flips(a.couples + b.couples, a.flipped + b.flipped, a.incomplete + b.incomplete)


def sentence(found: Slots) -> str:
    """What the rates say, in one sentence."""
    told = [
        f"slot {slot + 1} is {how}: it wins {found.rate[slot]:.3f} of its comparisons"
        for slot, how in ((found.favoured, "favoured"), (found.slighted, "slighted"))
        if slot is not None
    ]
    if told:
        return "; ".join(told) + "."
    if int(found.matches.max()) < ENOUGH or not math.isfinite(float(found.rate.max())):
        return "too few matches to tell whether a slot is favoured."
    return "no slot is favoured."
