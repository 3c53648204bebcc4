"""How good scores are, against gold labels.

Items without a gold label (nan) are left out. What can't be told (a constant score, one class
only) is None, never nan.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from judgeq.types import Bools, Floats


@dataclass(frozen=True, slots=True)
class Detection:
    """Positive against negative at a threshold; rates are None where nothing is to be divided by.

    `f1` is the F1 of the positive class, which the paper's tables call "Macro F1"; `macro_f1` is
    the mean of both classes' F1.
    """

    n: int
    recall: float | None
    accuracy: float
    precision: float | None
    f1: float
    macro_f1: float
    true_positive: int
    false_positive: int
    false_negative: int
    true_negative: int


def detection(scores: Floats, gold: Floats, threshold: float) -> Detection | None:
    """Label items positive when their score is over `threshold`, and compare with binary gold.

    Items without a score or a label (nan) are left out. The larger of gold's two values is
    positive. None when fewer than two values occur.
    """
    labelled = ~(np.isnan(gold) | np.isnan(scores))
    values = np.unique(gold[labelled])
    if len(values) != 2:
        return None
    true: Bools = gold[labelled] == values[1]
    said: Bools = scores[labelled] > threshold
    tp = int((true & said).sum())
    fp = int((~true & said).sum())
    fn = int((true & ~said).sum())
    tn = int((~true & ~said).sum())
    f1 = 2 * tp / (2 * tp + fp + fn) if tp else 0.0
    f1_negative = 2 * tn / (2 * tn + fp + fn) if tn else 0.0
    return Detection(
        n=len(true),
        recall=tp / (tp + fn),
        accuracy=(tp + tn) / len(true),
        precision=tp / (tp + fp) if tp + fp else None,
        f1=f1,
        macro_f1=(f1 + f1_negative) / 2,
        true_positive=tp,
        false_positive=fp,
        false_negative=fn,
        true_negative=tn,
    )


def spearman(x: Floats, y: Floats) -> float | None:
    """Spearman's ρ, ties by mean rank; items with a nan left out; None if it can't be told."""
    both = ~(np.isnan(x) | np.isnan(y))
    return pearson(mean_ranks(x[both]), mean_ranks(y[both]))


def mean_ranks(values: Floats) -> Floats:
    """Ranks from 1, tied values sharing the mean of theirs; same shape.

    As scipy.stats.rankdata, whose import alone takes longer than to judge all of BABE.
    """
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[which]


def pearson(x: Floats, y: Floats) -> float | None:
    """Pearson's r; items with a nan left out; None for fewer than 2 items or a constant.

    Scaled first, so that squares of very large and very small numbers stay within range.
    """
    both = ~(np.isnan(x) | np.isnan(y))
    x, y = x[both], y[both]
    if len(x) < 2 or bool((x == x[0]).all()) or bool((y == y[0]).all()):
        return None
    x, y = x / np.abs(x).max(), y / np.abs(y).max()
    x, y = x - x.mean(), y - y.mean()
    r = float((x * y).sum() / ((x * x).sum() * (y * y).sum()) ** 0.5)
    return max(-1.0, min(1.0, r))  # rounding
