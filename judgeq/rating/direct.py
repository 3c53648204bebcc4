"""Direct scores: the mean of what each item was given, judged alone."""

from __future__ import annotations

import numpy as np

from judgeq.rating import Fit, GoOn, Parameters, always
from judgeq.types import Floats, Verdicts


def fit(verdicts: Verdicts, n: int, parameters: Parameters, go_on: GoOn = always) -> Fit:
    """The mean of what each of n items was given (by one judge or several), nan for nothing."""
    if verdicts.scores is None:
        return Fit(np.full(n, np.nan))
    alone = verdicts.where(~np.isnan(verdicts.scores))
    total = np.bincount(alone.items, alone.scores, n)
    count = np.bincount(alone.items, minlength=n)
    return Fit(np.divide(total, count, out=np.full(n, np.nan), where=count > 0))


def standardised(scores: Floats) -> Floats:
    """Scores of mean 0 and standard deviation 1 over the items that have one, shape (n,); 0 for the
    others (nan), and for all where the scores are equal."""
    known = ~np.isnan(scores)
    if not known.any():
        return np.zeros(len(scores))
    off = np.where(known, scores - scores[known].mean(), 0.0)
    spread = float(np.sqrt((off * off).sum() / known.sum()))
    return off / spread if spread > 1e-9 else np.zeros(len(scores))
