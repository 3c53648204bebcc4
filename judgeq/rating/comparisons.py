"""Verdicts → comparison columns, and how often each item was asked about and won."""

from __future__ import annotations

import numpy as np

from judgeq.types import Comparisons, Floats, Offsets, Verdicts


def imply(verdicts: Verdicts) -> Comparisons:
    """All comparisons that the verdicts imply: k(k−1)/2 for a ranking of k.

    A tie gives one comparison each way, of weight ½. Sorted by ranking size, then by place pair,
    then in match order: the same verdicts give the same arrays.
    """
    sizes = np.diff(verdicts.offsets)
    group = np.cumsum(~verdicts.tied)  # slots of one verdict are tied when their group is the same
    any_tie = bool(verdicts.tied.any())
    winners, losers, weights = [], [], []
    for size in np.unique(sizes):
        slots = verdicts.offsets[:-1][sizes == size][:, None] + np.arange(size)
        upper, lower = np.triu_indices(int(size), 1)
        first, second = slots[:, upper].T.reshape(-1), slots[:, lower].T.reshape(-1)
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


def wins_of(verdicts: Verdicts, n: int) -> Floats:
    """How many implied comparisons each of n items won (a tie counts ½), shape (n,).

    By places rather than by comparisons: in a ranking of k, place p wins against the k − 1 − p
    after it; tied items share the mean of their places' wins.
    """
    slots = np.arange(len(verdicts.items))
    ends = np.repeat(verdicts.offsets[1:], np.diff(verdicts.offsets))
    won: Floats = (ends - 1 - slots).astype(np.float64)
    if verdicts.tied.any():
        group = np.cumsum(~verdicts.tied) - 1
        won = (np.bincount(group, won) / np.bincount(group))[group]
    return np.bincount(verdicts.items, won, minlength=n)
