"""Elo, online: E = 1/(1+10^((R2−R1)/400)), R1 += K(S−E), R2 −= K(S−E)  (Elo 1978).

A ranked list of k is folded as its pairs (1st,2nd), (1st,3rd) … (k−1th,kth), each updating the
ratings that the next one reads; lists in match order. Tied items are folded in the order in which
they were presented, whatever the reply's; items of which a partial ranking knows no order change
nothing of each other. Pairs likewise: where each item is in one
pair, as in Haak and Schaer's rounds, each reads the round's starting ratings.

Scalar on purpose: Python's power is the C library's, so that the published ratings come out equal
to the last bit; NumPy's vectorised power differs in the last place from machine to machine.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from judgeq.rating import ESTIMATORS, Fit, GoOn, Parameters, always, direct
from judgeq.rating.comparisons import settled, tie_groups
from judgeq.types import Floats, Verdicts

START = ESTIMATORS["elo"].threshold
K = 32.0
SPREAD = 150.0
"""What a standard deviation of direct scores is worth, where Elo starts from these."""


def start(n: int) -> Floats:
    """The ratings before anything was judged, shape (n,)."""
    return np.full(n, START)


def start_from(scores: Floats) -> Floats:
    """The ratings where items were first judged alone, shape (n,); START without a score (nan)."""
    return START + SPREAD * direct.standardised(scores)


def fit(verdicts: Verdicts, n: int, parameters: Parameters, go_on: GoOn = always) -> Fit:
    """Elo of all verdicts, folded in match order: the same as round by round, where scores of items
    alone came before comparisons."""
    if verdicts.scores is None:
        return Fit(fold(start(n), verdicts))
    return Fit(fold(start_from(direct.fit(verdicts, n, parameters).theta), verdicts))


def fold(ratings: Floats, verdicts: Verdicts, k: float = K) -> Floats:
    """The ratings after one round's verdicts; a new array of the same shape. Their sum is kept."""
    if not len(verdicts):
        return ratings.copy()
    verdicts = settled(verdicts)
    if bool((np.diff(verdicts.offsets) == 2).all()):
        return _fold_pairs(ratings, verdicts, k)
    return _fold_lists(ratings, verdicts, k)


def _fold_pairs(ratings: Floats, verdicts: Verdicts, k: float) -> Floats:
    folded: list[float] = ratings.tolist()
    items: list[int] = verdicts.items.tolist()
    for first, second, tied in zip(
        items[0::2], items[1::2], verdicts.tied[1::2].tolist(), strict=True
    ):
        score = 0.5 if tied else 1.0
        change = k * (score - 1.0 / (1.0 + 10.0 ** ((folded[second] - folded[first]) / 400.0)))
        folded[first] += change
        folded[second] -= change
    return np.array(folded)


def _fold_lists(ratings: Floats, verdicts: Verdicts, k: float) -> Floats:
    folded: list[float] = ratings.tolist()
    items: list[int] = verdicts.items.tolist()
    group: list[int] = tie_groups(verdicts).tolist()
    partial = [False] * len(verdicts) if verdicts.partial is None else verdicts.partial.tolist()
    for (begin, end), unknown in zip(pairwise(verdicts.offsets.tolist()), partial, strict=True):
        rows, groups = items[begin:end], group[begin:end]
        current = [folded[row] for row in rows]
        if groups[-1] - groups[0] == end - begin - 1:
            _fold_ranking(current, k)
        else:
            _fold_tied_ranking(current, groups, k, None if unknown else 0.5)
        for row, rating in zip(rows, current, strict=True):
            folded[row] = rating
    return np.array(folded)


def _fold_ranking(current: list[float], k: float) -> None:
    """Fold one ranking into its items' ratings, in order of place; in place."""
    for a, mine in enumerate(current):
        for b in range(a + 1, len(current)):
            other = current[b]
            change = k * (1.0 - 1.0 / (1.0 + 10.0 ** ((other - mine) / 400.0)))
            mine += change
            current[b] = other - change
        current[a] = mine


def _fold_tied_ranking(
    current: list[float], groups: list[int], k: float, tie: float | None
) -> None:
    """As `_fold_ranking`, where items of the same group score `tie` against each other (None: they
    aren't compared)."""
    for a, mine in enumerate(current):
        for b in range(a + 1, len(current)):
            other = current[b]
            score = tie if groups[a] == groups[b] else 1.0
            if score is None:
                continue
            change = k * (score - 1.0 / (1.0 + 10.0 ** ((other - mine) / 400.0)))
            mine += change
            current[b] = other - change
        current[a] = mine
