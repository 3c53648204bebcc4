"""Verdicts → comparison columns, and how often each item was asked about and won."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from judgeq.types import Comparisons, Floats, Offsets, Verdicts


def joined(rounds: Sequence[Verdicts]) -> Verdicts:
    """The verdicts of several rounds as one, in their order."""
    shifts = np.cumsum([0, *(len(some.items) for some in rounds)])
    return Verdicts(
        matches=np.concatenate([np.empty(0, np.int64), *(some.matches for some in rounds)]),
        items=np.concatenate([np.empty(0, np.int32), *(some.items for some in rounds)]),
        offsets=np.concatenate(
            [[0], *(some.offsets[1:] + at for some, at in zip(rounds, shifts, strict=False))]
        ),
        tied=np.concatenate([np.empty(0, np.bool_), *(some.tied for some in rounds)]),
        presented=np.concatenate([np.empty(0, np.int32), *(some.presented for some in rounds)]),
        scores=_filled([(some.scores, len(some)) for some in rounds], np.nan),
        judges=_filled([(some.judges, len(some)) for some in rounds], np.int32(0)),
    )


def _filled(columns: Sequence[tuple[Any, int]], missing: Any) -> Any:
    """Columns as one, with `missing` for those that are None; None if all are."""
    if all(column is None for column, _ in columns):
        return None
    return np.concatenate(
        [np.full(n, missing) if column is None else column for column, n in columns]
    )


def slots_by_size(verdicts: Verdicts) -> Iterator[Offsets]:
    """The slots of the verdicts of each size k, smallest first, as arrays of shape (k, verdicts).

    Column v holds one verdict's slots in order of place; columns are in match order.
    """
    sizes = np.diff(verdicts.offsets)
    for size in np.unique(sizes).tolist():
        yield verdicts.offsets[:-1][sizes == size] + np.arange(size)[:, None]


def tie_groups(verdicts: Verdicts) -> Offsets:
    """A number a slot: slots of one verdict are tied when theirs is the same. Shape (slots,)."""
    return np.cumsum(~verdicts.tied)


def imply(verdicts: Verdicts) -> Comparisons:
    """All comparisons that the verdicts imply: k(k−1)/2 for a ranking of k.

    A tie gives one comparison each way, of weight ½. Sorted by ranking size, then by place pair,
    then in match order: the same verdicts give the same arrays.
    """
    group = tie_groups(verdicts)
    any_tie = bool(verdicts.tied.any())
    winners, losers, weights = [], [], []
    for slots in slots_by_size(verdicts):
        upper, lower = np.triu_indices(len(slots), 1)
        first, second = slots[upper].reshape(-1), slots[lower].reshape(-1)
        winners.append(verdicts.items[first])
        losers.append(verdicts.items[second])
        if any_tie:
            tie = group[first] == group[second]
            weights += [np.where(tie, 0.5, 1.0), np.full(int(tie.sum()), 0.5)]
            winners.append(verdicts.items[second[tie]])
            losers.append(verdicts.items[first[tie]])
        else:
            weights.append(np.ones(len(first)))
    return Comparisons(
        np.concatenate([np.empty(0, np.int32), *winners]),
        np.concatenate([np.empty(0, np.int32), *losers]),
        np.concatenate([np.empty(0, np.float64), *weights]),
    )


def matches_of(verdicts: Verdicts, n: int) -> Offsets:
    """In how many judged matches each of n items was presented, shape (n,)."""
    return np.bincount(verdicts.items, minlength=n)


def scores_of(rounds: Iterable[Verdicts], n: int) -> Floats:
    """The mean of what each of n items was given, judged alone; nan for none. Shape (n,)."""
    total, count = np.zeros(n), np.zeros(n)
    for some in rounds:
        if some.scores is not None:
            total += np.bincount(some.items, some.scores, n)
            count += np.bincount(some.items, minlength=n)
    means: Floats = np.divide(total, count, out=np.full(n, np.nan), where=count > 0)
    return means


def wins_of(verdicts: Verdicts, n: int) -> Floats:
    """How many implied comparisons each of n items won (a tie counts ½), shape (n,).

    By places rather than by comparisons: in a ranking of k, place p wins against the k − 1 − p
    after it; tied items share the mean of their places' wins.
    """
    slots = np.arange(len(verdicts.items))
    ends = np.repeat(verdicts.offsets[1:], np.diff(verdicts.offsets))
    won: Floats = (ends - 1 - slots).astype(np.float64)
    if verdicts.tied.any():
        group = tie_groups(verdicts) - 1
        won = (np.bincount(group, won) / np.bincount(group))[group]
    return np.bincount(verdicts.items, won, minlength=n).astype(np.float64, copy=False)
