"""Verdicts → comparison columns, how often each item was asked about and won, and which items are
connected: ratings of different components are not on one scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from judgeq.types import Bools, Floats, Matches, Offsets, Ragged, Rows, Verdicts

REPEATED_RANKINGS = 1.9
"""Rankings per item, on average, from which items count as judged twice: a round may leave some out."""


@dataclass(frozen=True, slots=True, eq=False)
class Comparisons:
    """What verdicts imply: `winner[c]` beat `loser[c]` with weight `weight[c]`.

    A ranking of k gives k(k−1)/2, fewer where it is partial; a tie gives one each way with weight ½.
    """

    winner: Rows
    loser: Rows
    weight: Floats

    def __len__(self) -> int:
        return len(self.winner)


def joined(rounds: Sequence[Verdicts]) -> Verdicts:
    """The verdicts of several rounds as one, in their order."""
    none, rows = Matches.none(), np.empty(0, np.int32)
    nothing = Verdicts(np.empty(0, np.int64), rows, none.offsets, np.empty(0, np.bool_), rows)
    columns: Any = {
        field.name: np.concatenate([getattr(part, field.name) for part in (nothing, *rounds)])
        for field in fields(Verdicts)
    }
    columns["offsets"] = np.cumsum(np.concatenate([[0], *(part.sizes for part in rounds)]))
    columns["rounds"] = np.repeat(np.arange(len(rounds), dtype=np.int32), [*map(len, rounds)])
    return Verdicts(**columns)


def compares(verdicts: Verdicts) -> bool:
    """Whether some compare items: else each is on one alone."""
    return len(verdicts.items) > len(verdicts)


# Slots


def slots_by_size(ragged: Ragged) -> Iterator[Offsets]:
    """The slots of verdicts, or questions, of each size k, smallest first, as arrays of shape (k, n).

    Column v holds one verdict's slots in order of place; columns are in match order.
    """
    sizes = ragged.sizes
    for size in np.unique(sizes).tolist():
        yield ragged.offsets[:-1][sizes == size] + np.arange(size)[:, None]


def slots_by_shape(verdicts: Verdicts) -> Iterator[tuple[Offsets, slice | None]]:
    """As `slots_by_size`; partial rankings by themselves, those together in which no order is known of
    the items at the same places, which are given with them (None: of rankings in full)."""
    partial = partial_by_slot(verdicts)
    for slots in slots_by_size(verdicts):
        tied, end = verdicts.tied[slots], len(slots) + 1
        first = tied.argmax(axis=0) - 1
        shape = (first * end + first + 1 + tied.sum(axis=0)) * partial[slots[0]]
        for one in np.unique(shape).tolist():
            yield slots[:, shape == one], slice(*divmod(one, end)) if one else None


def tie_groups(verdicts: Verdicts) -> Offsets:
    """A number a slot, from 1: slots of one verdict are tied, or in a partial ranking of no known order,
    when theirs is the same. Shape (slots,)."""
    return np.cumsum(~verdicts.tied)


def partial_by_slot(verdicts: Verdicts) -> Bools:
    """Whether the verdict of each slot is a partial ranking, shape (slots,)."""
    return verdicts.partial[verdicts.of_slot]


def settled(verdicts: Verdicts) -> Offsets:
    """The slots of `verdicts.items` with tied items in the order in which they were presented: the
    reply's own order of them says nothing."""
    if not verdicts.tied.any():
        return np.arange(len(verdicts.items))
    return np.lexsort((presented_at(verdicts), tie_groups(verdicts)))


def presented_at(verdicts: Verdicts) -> Offsets:
    """The slot of `verdicts.presented` that has the item of each slot of `verdicts.items`, shape
    (slots,)."""
    match = verdicts.of_slot << 32
    at: Offsets = np.empty_like(match)
    # Sorted by match and item, both list the same items. A stable sort is fast where most is sorted.
    by_item, by_slot = (
        np.argsort(match + rows, kind="stable") for rows in (verdicts.items, verdicts.presented)
    )
    at[by_item] = by_slot
    return at


# What was compared and won


def pairs_of(verdicts: Verdicts) -> tuple[Offsets, Offsets, Bools]:
    """Every pair that the verdicts imply, and none of which a partial ranking knows no order: the slots
    of the one placed first and of the other, and whether they are tied, each (pairs,). By size, then
    place pair, then match order."""
    pairs = [np.empty((2, 0), np.int64)]
    for slots in slots_by_size(verdicts):
        places = np.stack(np.triu_indices(len(slots), 1))
        pairs.append(slots[places].reshape(2, -1))
    first, second = np.concatenate(pairs, axis=1)
    group = tie_groups(verdicts)
    same = group[first] == group[second]
    known = ~(same & partial_by_slot(verdicts)[first])
    return first[known], second[known], same[known]


def imply(verdicts: Verdicts) -> Comparisons:
    """All comparisons that the verdicts imply: k(k−1)/2 for a ranking of k.

    A tie gives one comparison each way, of weight ½. In the order of `pairs_of`, the second ways of
    ties at the end: the same verdicts give the same arrays.
    """
    first, second, tie = pairs_of(verdicts)
    winner, loser = verdicts.items[first], verdicts.items[second]
    return Comparisons(
        np.concatenate([winner, loser[tie]]),
        np.concatenate([loser, winner[tie]]),
        np.concatenate([np.where(tie, 0.5, 1.0), np.full(int(tie.sum()), 0.5)]),
    )


def wins_by_slot(verdicts: Verdicts) -> Floats:
    """How many implied comparisons the item in each slot won (a tie counts ½, an order that isn't
    known nothing), shape (slots,).

    By places rather than by comparisons: in a ranking of k, place p wins against the k − 1 − p
    after it; tied items share the mean of their places' wins, and those of which no order is known have
    the least of them.
    """
    group = tie_groups(verdicts) - 1
    after = others_by_slot(verdicts) - verdicts.place
    won = (np.bincount(group, after) / np.bincount(group))[group]
    return won - _unknown_by_slot(verdicts) / 2


def others_by_slot(verdicts: Verdicts) -> Offsets:
    """How many others the verdict of each slot ranks, shape (slots,)."""
    return verdicts.sizes[verdicts.of_slot] - 1


def compared_by_slot(verdicts: Verdicts) -> Offsets:
    """With how many others of its verdict the item in each slot is compared, shape (slots,): with all,
    but for those that a partial ranking doesn't compare it with."""
    return others_by_slot(verdicts) - _unknown_by_slot(verdicts)


def _unknown_by_slot(verdicts: Verdicts) -> Offsets:
    """Of how many others of its verdict no order with the item in each slot is known, shape (slots,)."""
    group = tie_groups(verdicts) - 1
    return (np.bincount(group)[group] - 1) * partial_by_slot(verdicts)


def wins_of(verdicts: Verdicts, n: int) -> Floats:
    """How many implied comparisons each of n items won (a tie counts ½), shape (n,)."""
    return np.bincount(verdicts.items, wins_by_slot(verdicts), n).astype(np.float64, copy=False)


def matches_of(verdicts: Verdicts, n: int) -> Offsets:
    """In how many judged matches each of n items was presented, shape (n,)."""
    return np.bincount(verdicts.items, minlength=n)


def repeated(matches: Offsets) -> bool:
    """Whether judged items, of which each was in so many rankings, were in about two on average: only
    then do the rankings say how far they scatter, and how wide the prior is."""
    judged = matches[matches > 0]
    return bool(len(judged)) and is_repeated(float(judged.mean()))


def is_repeated(rankings_per_item: float) -> bool:
    """Whether items in so many rankings on average are in about two."""
    return rankings_per_item >= REPEATED_RANKINGS


# What is connected


def numbered(names: Sequence[str] | None) -> Offsets | None:
    """The number of each name, from 1 in the order in which they first stand, shape (n,); None of
    None."""
    if names is None:
        return None
    number = {name: place for place, name in enumerate(dict.fromkeys(names), start=1)}
    return np.array([number[name] for name in names], dtype=np.int64)


def components(verdicts: Verdicts, n: int, *, scored: bool = False) -> Offsets:
    """The connected component of each of n items, shape (n,): from 1, in the order of their first rows;
    0 for items that were never judged. `scored`: scores of items judged alone are on one scale, and so
    connect these.

    Labels spread within rankings, halving the paths in each turn (Shiloach and Vishkin 1982): a few
    passes over the verdicts, however long the chains are.
    """
    of = verdicts.of_slot
    if scored:
        of[verdicts.scored[of]] = -1  # as if one ranking were of them all
    label: Offsets = np.arange(n, dtype=np.int64)
    while True:
        own, least = label[verdicts.items], np.full(len(verdicts) + 1, n)
        np.minimum.at(least, of, own)
        if np.array_equal(own, least[of]):
            break
        np.minimum.at(label, own, least[of])
        while not np.array_equal(label, shorter := label[label]):
            label = shorter
    judged = matches_of(verdicts, n) > 0
    number = np.zeros(n, dtype=np.int64)
    number[judged] = np.unique(label[judged], return_inverse=True)[1] + 1
    return number


def component_sizes(component: Offsets) -> Offsets:
    """How many items each component has, the largest first; those of 0 are left out."""
    counted: Offsets = np.sort(np.bincount(component)[1:])[::-1]
    return counted
