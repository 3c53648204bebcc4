"""What answers look like, whoever gave them: statistics by which a simulated judge is held against a
run's, and that need to know no latent score."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from judgeq import seeds
from judgeq.rating import comparisons
from judgeq.rating.bradley_terry import fit_map
from judgeq.types import Floats, Offsets, Verdicts

FOLDS = 3
BINS = (0.25, 0.5, 0.75, 0.9, 0.97)
"""Held-out comparisons are parted at these shares by how far apart the scores are: the farthest show
lapses."""
LEAST = 200
"""A fit needs so many held-out comparisons."""


class Looks(NamedTuple):
    """What is looked at of answers: the share of held-out comparisons that agree with the scores, by
    how far these are apart; the spread of the scores (log); and by how much later slots win."""

    agreement: Floats
    spread: float
    bias: float | None

    @property
    def array(self) -> Floats:
        """As one vector."""
        bias = [] if self.bias is None else [self.bias]
        return np.array([*self.agreement, self.spread, *bias])

    @property
    def names(self) -> list[str]:
        """What each number is called."""
        edges = [0, *(round(100 * share) for share in BINS), 100]
        agreement = [
            f"agreement of pairs, {low} to {high} % by distance" for low, high in pairwise(edges)
        ]
        bias = [] if self.bias is None else ["wins over slots (slope)"]
        return [*agreement, "spread of the scores (log)", *bias]


def looks(verdicts: Verdicts, n: int, seed: int) -> Looks | None:
    """The statistics of verdicts; None where fewer than LEAST comparisons can be held out.

    Each question is left out once: the scores of the other two thirds say what its comparisons should
    be. Their distance is ranked, so that no scale matters.
    """
    if len(verdicts) < 2 * FOLDS:
        return None
    fold = _folds(len(verdicts), seed)
    gaps, rights, spreads = [], [], []
    for number in range(FOLDS):
        training = verdicts.where(fold != number)
        theta = scores(training, n)
        judged = comparisons.matches_of(training, n) > 0
        held = comparisons.imply(verdicts.where(fold == number))
        both = judged[held.winner] & judged[held.loser]
        gap = (theta[held.winner] - theta[held.loser])[both]
        gaps.append(np.abs(gap))
        rights.append(np.where(gap > 0, 1.0, 0.0) + np.where(gap == 0, 0.5, 0.0))
        spreads.append(float(theta[judged].std()))
    gap, right = np.concatenate(gaps), np.concatenate(rights)
    if len(gap) < LEAST or min(spreads) == 0:
        return None
    cuts = [int(share * len(gap)) for share in BINS]
    parts = np.split(right[np.argsort(gap, kind="stable")], cuts)
    agreement = np.array([part.mean() for part in parts])
    return Looks(agreement, math.log(float(np.mean(spreads))), _slope(verdicts))


def scores(verdicts: Verdicts, n: int) -> Floats:
    """θ, shape (n,), near enough: by Bradley-Terry of what the lists imply. Whatever rates runs will do,
    since what is compared is made by the same."""
    return fit_map(verdicts, n, tolerance=1e-3)


def _slope(verdicts: Verdicts) -> float | None:
    """The covariance of an item's slot with its place, both from −½ to ½, over that of slots with
    themselves: 0 where slots don't matter, 1 where the last always wins. None where no order is known.
    Items of which a partial ranking knows no order share the mean of their places.
    """
    if verdicts.ordered is not None:
        verdicts = verdicts.where(verdicts.ordered)
    if not len(verdicts):
        return None
    sizes = np.diff(verdicts.offsets)
    first = np.repeat(verdicts.offsets[:-1], sizes)
    within = (np.arange(len(verdicts.items)) - first) / np.repeat(sizes - 1, sizes) - 0.5
    slot = within[comparisons.presented_at(verdicts)]
    if verdicts.partial is not None:
        group = comparisons.tie_groups(verdicts) - 1
        mean = np.bincount(group, within) / np.bincount(group)
        within = np.where(np.repeat(verdicts.partial, sizes), mean[group], within)
    return float(-(slot * within).sum() / (slot * slot).sum())


def _folds(count: int, seed: int) -> Offsets:
    return seeds.rng(seed, "fit", "folds").permutation(np.arange(count) % FOLDS)


def reliability(verdicts: Verdicts, n: int, seed: int) -> float:
    """The correlation of scores with what they measure, by halves (Spearman and Brown): a beginning."""
    half = seeds.rng(seed, "fit", "halves").permutation(np.arange(len(verdicts)) % 2) > 0
    parts = (verdicts.where(half), verdicts.where(~half))
    both = np.logical_and(*(comparisons.matches_of(part, n) > 0 for part in parts))
    one, other = (scores(part, n)[both] for part in parts)
    r = float(np.corrcoef(one, other)[0, 1]) if both.sum() > 2 else 0.5
    r = min(max(r if math.isfinite(r) else 0.5, 0.05), 0.98)
    return math.sqrt(2 * r / (1 + r))
