"""Direct scores: the mean of what each item was given, judged alone."""

from __future__ import annotations

import numpy as np

from judgeq.rating import Fit, GoOn, Parameters, always
from judgeq.types import Verdicts


def fit(verdicts: Verdicts, n: int, parameters: Parameters, go_on: GoOn = always) -> Fit:
    """The mean of what each of n items was given (by one judge or several), nan for nothing."""
    if verdicts.scores is None:
        return Fit(np.full(n, np.nan))
    alone = verdicts.where(~np.isnan(verdicts.scores))
    total = np.bincount(alone.items, alone.scores, n)
    count = np.bincount(alone.items, minlength=n)
    return Fit(np.divide(total, count, out=np.full(n, np.nan), where=count > 0))
