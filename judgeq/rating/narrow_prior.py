"""How wide the prior is of a judge that hardly tells the items apart, by which it is judged how well
their order is known.

The σ of ratings is LEAST or more (evidence.py), which spares their order; but of a judge that tells the
items apart still less, it makes that order look known far better than it is. Below LEAST two things
drew σ to 0: the mean of a list's two directions is no probability of what a judge says, and where like
is compared with like it takes what it can't explain for noise; and Laplace's evidence is too low where
an item has few comparisons. So here lists are chosen in one direction, that of the two which explains
all of them better, and the evidence is its lower bound by the normal distribution nearest to the
posterior (variational.py). In simulation σ then came out within a third, from ENOUGH comparisons an
item on; but of lists of some of the items, picked by earlier answers, it still went to 0 with judges
that don't fit the model.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from judgeq.rating import GoOn, always, evidence, newton
from judgeq.rating.plackett_luce import directed
from judgeq.rating.posterior import Prior
from judgeq.rating.rankings import Rankings
from judgeq.rating.variational import nearest
from judgeq.types import Floats, Verdicts

STEP = 2**-0.5
SIGMAS = tuple(evidence.LEAST * STEP**step for step in range(10))
"""From LEAST down to where nothing is known. The bound has one maximum, or two near each other."""
MOST = 20_000
"""Items: of more it takes too long."""
ENOUGH, LISTS = 8, 3
"""So many implied comparisons an item are needed, on average, and so many matches."""
DRAWS = 2
"""Batches of draws by which the mean loss is estimated, the same for every σ."""


def sigma(
    verdicts: Verdicts, n: int, go_on: GoOn = always, *, picked: bool = False
) -> float | None:
    """σ up to LEAST, of n items; None where it can't be told: of very many items, of few comparisons,
    beside scores of items alone, and of lists that may be `picked`, of some of the items by earlier
    answers. Raises NotConvergedError."""
    sizes, judged = np.diff(verdicts.offsets), len(np.unique(verdicts.items))
    lists = bool((sizes > 2).any())
    compared = (sizes * (sizes - 1)).sum() / max(judged, 1)
    matches = len(verdicts.items) / max(judged, 1)
    if (
        n > MOST
        or verdicts.scores is not None
        or (lists and picked)
        or compared < ENOUGH
        or matches < LISTS
    ):
        return None
    directions = (True, False) if lists else (True,)
    return max(_highest(directed(verdicts, n, up=up, go_on=go_on)) for up in directions)[1]


def _highest(rankings: Rankings) -> tuple[float, float]:
    """The highest bound of the evidence, and its σ."""
    start: Floats = np.zeros(rankings.n)
    bounds: list[float] = []
    with rankings.threads():
        for at in SIGMAS:
            start, value = bound(rankings, at, start)
            bounds.append(value)
            if len(bounds) > 2 and bounds[-1] < bounds[-2] < bounds[-3]:
                break
    best = int(np.argmax(bounds))
    return bounds[best], SIGMAS[best] * STEP ** _top(bounds[max(0, best - 1) : best + 2], best)


def _top(around: list[float], best: int) -> float:
    """Where the parabola through three values at −1, 0 and 1 has its top; 0 at an end."""
    if len(around) < 3 or not best:
        return 0.0
    before, after = (right - left for left, right in pairwise(around))
    return (before + after) / (2 * (before - after)) if before > after else 0.0


def bound(rankings: Rankings, at: float, start: Floats, seed: int = 0) -> tuple[Floats, float]:
    """The maximum under σ, from `start`, and the bound of σ's evidence, up to a constant."""
    precision = Prior(at).precision(rankings)
    maximum = newton.maximum(rankings, precision, 1e-3, start)
    gaussian = nearest(rankings, maximum, precision, seed)
    curvature = gaussian.curvature
    losses = []
    for batch in range(DRAWS):
        draws = curvature.solve(curvature.noise(seed, "bound", batch)).T.astype(np.float64)
        for x in (*(gaussian.mean + draws), *(gaussian.mean - draws)):
            losses += [rankings.loss(x) + newton.dot(x, precision * x) / 2]
    spread = float(np.log(precision).sum()) - evidence.log_determinant(curvature)
    return maximum, spread / 2 - math.fsum(losses) / len(losses)
