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
from judgeq.rating.comparisons import partial_by_slot, settled, tie_groups
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
    return Fit(fold(start_from(direct.fit(verdicts, n, parameters).theta), verdicts))


def fold(ratings: Floats, verdicts: Verdicts) -> Floats:
    """The ratings after one round's verdicts; a new array of the same shape. Their sum is kept."""
    folded: list[float] = ratings.tolist()
    items: list[int] = verdicts.items[settled(verdicts)].tolist()
    group: list[int] = tie_groups(verdicts).tolist()
    partial: list[bool] = partial_by_slot(verdicts).tolist()
    for begin, end in pairwise(verdicts.offsets.tolist()):
        for a in range(begin, end - 1):
            one, tied = items[a], group[a]
            mine = folded[one]
            for b in range(a + 1, end):
                score = 1.0
                if group[b] == tied:
                    if partial[b]:
                        continue
                    score = 0.5
                other = items[b]
                change = K * (score - 1.0 / (1.0 + 10.0 ** ((folded[other] - mine) / 400.0)))
                mine += change
                folded[other] -= change
            folded[one] = mine
    return np.array(folded)
