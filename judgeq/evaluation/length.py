"""Whether longer texts score higher: rewarding length is the commonest fault of judges."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from judgeq import seeds
from judgeq.engine.scores import Scores
from judgeq.evaluation import metrics
from judgeq.evaluation.evaluate import measured
from judgeq.evaluation.metrics import Measured
from judgeq.rating import correlation
from judgeq.types import Floats


def lengths(texts: Sequence[str]) -> Floats:
    """How many characters each text has, shape (n,)."""
    return np.fromiter(map(len, texts), np.float64, len(texts))


def with_length(scores: Scores, texts: Sequence[str], resamples: int, seed: int) -> Measured:
    """Spearman's ρ of the main rating with the length of the texts, over judged items, with its 95 %
    interval by a bootstrap."""
    rows = np.flatnonzero(scores.scored)
    n = len(rows)
    measure = correlation.spearman(scores.main[1][rows], lengths(texts)[rows])
    value = correlation.point(measure, n)
    if value is None:
        return Measured(None, why="all texts are of one length, or all scores equal")
    drawn = [
        measure(weights)
        for weights in metrics.resamples(n, resamples, seeds.rng(seed, "bootstrap", "length"))
    ]
    return measured(value, np.concatenate(drawn) if drawn else None)
