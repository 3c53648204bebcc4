"""Direct scores: the mean of what each item was given, judged alone."""

from __future__ import annotations

import numpy as np

from judgeq.rating import Fit, GoOn, Parameters, always
from judgeq.rating.comparisons import judges_of
from judgeq.types import Floats, Verdicts

ENOUGH = 100
"""So many items scored several times say how reliable scores are."""


def fit(verdicts: Verdicts, n: int, parameters: Parameters, go_on: GoOn = always) -> Fit:
    """The mean of what each of n items was given (by one judge or several), nan for nothing."""
    if verdicts.scores is None:
        return Fit(np.full(n, np.nan))
    alone = verdicts.where(~np.isnan(verdicts.scores))
    total = np.bincount(alone.items, alone.scores, n)
    count = np.bincount(alone.items, minlength=n)
    return Fit(np.divide(total, count, out=np.full(n, np.nan), where=count > 0))


def reliability(verdicts: Verdicts, n: int) -> float | None:
    """That of the mean scores of items, from the items that were scored several times, by several judges
    or again, each judge's own level apart; None where these are fewer than ENOUGH. (Shrout and Fleiss
    1979, ICC(1, k).)"""
    if verdicts.scores is None:
        return None
    scored = ~np.isnan(verdicts.scores)
    alone, scores = verdicts.where(scored), verdicts.scores[scored]
    count = np.bincount(alone.items, minlength=n)
    if int((count > 1).sum()) < ENOUGH:
        return None
    judge = judges_of(alone)
    levels = np.bincount(judge, scores) / np.maximum(np.bincount(judge), 1)
    scores = scores - levels[judge]
    again = count[alone.items] > 1
    of, score = alone.items[again], scores[again]
    times = np.bincount(of, minlength=n)
    means = np.bincount(of, score, n) / np.maximum(times, 1)
    within = float(((score - means[of]) ** 2).sum()) / (len(of) - int((times > 0).sum()))
    total = float(scores.var())
    one = max(0.0, 1 - within / total) if total > 0 else 0.0
    mean = float(count[count > 0].mean())
    return mean * one / (1 + (mean - 1) * one)


def standardised(scores: Floats) -> Floats:
    """Scores of mean 0 and standard deviation 1 over the items that have one, shape (n,); 0 for the
    others (nan), and for all where the scores are equal."""
    known = ~np.isnan(scores)
    if not known.any():
        return np.zeros(len(scores))
    off = np.where(known, scores - scores[known].mean(), 0.0)
    spread = float(np.sqrt((off * off).sum() / known.sum()))
    return off / spread if spread > 1e-9 else np.zeros(len(scores))
