"""Direct scores: the mean of what each item was given, judged alone; and `hybrid`, direct scores and
comparisons together, two fallible measures of one trait t.

What comparisons measure is θ_i = β·z_i + ε_i: z is the direct score, standardised over the items
that have one, and 0 for the others; β has a flat prior (curvature.LOOSE), ε ~ N(0, σ²), and the
rankings are Plackett-Luce's, symmetrised (plackett_luce.py). So the comparisons say what a direct
score is worth, and correct it where they know better. Direct scores put all items that have one on
one scale, whatever the comparisons connect.

Lists have something of their own, too, that is not the trait: of ε a share κ counts, t = βz + κε.
The data of two measures don't tell κ: a direct score that is noisy and lists that measure another
thing look the same. Where the reliability r of the direct scores is known, from items that were
scored several times, κ = (ρ/√r − ρ²)/(1 − ρ²), with ρ the correlation of βz with θ; else κ is
SHARE, an assumption. It was chosen with the gold labels of two published datasets in view.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import numpy as np

from judgeq.rating import Fit, GoOn, Parameters, always, plackett_luce
from judgeq.rating.comparisons import compares, components
from judgeq.rating.correlation import centred
from judgeq.rating.posterior import Posterior
from judgeq.types import Floats, Verdicts

ENOUGH = 100
"""So many items scored several times say how reliable scores are."""
SHARE = 0.75


def fit(verdicts: Verdicts, n: int, parameters: Parameters, go_on: GoOn = always) -> Fit:
    """`direct`: the mean of what each of n items was given (by one judge or several), nan for
    nothing."""
    alone = verdicts.where(verdicts.scored)
    total, count = np.bincount(alone.items, alone.scores, n), np.bincount(alone.items, minlength=n)
    return Fit(np.divide(total, count, out=np.full(n, np.nan), where=count > 0))


def fit_hybrid(verdicts: Verdicts, n: int, parameters: Parameters, go_on: GoOn = always) -> Fit:
    """`hybrid`: the posterior of t, whose means are the scores; nan without a comparison, since nothing
    then says what a direct score is worth. Raises NotConvergedError."""
    if not compares(verdicts):
        return Fit(np.full(n, np.nan))
    z = standardised(fit(verdicts, n, parameters).theta)
    connected = components(verdicts, n, scored=True)
    found = plackett_luce.fit(
        verdicts, n, parameters, go_on, loadings=z[:, None], component=connected
    )
    posterior: Posterior = cast("Posterior", found.posterior)
    known, share = reliability(verdicts, n), SHARE
    if known is not None:
        share = share_of(z * posterior.parameters[n], posterior.sigma, known)
    posterior = replace(posterior, share=share)
    return replace(found, posterior=posterior, reliability=known)


def reliability(verdicts: Verdicts, n: int) -> float | None:
    """That of the mean scores of items, from the items that were scored several times, by several judges
    or again, each judge's own level apart; None where these are fewer than ENOUGH. (Shrout and Fleiss
    1979, ICC(1, k).)"""
    alone = verdicts.where(verdicts.scored)
    count = np.bincount(alone.items, minlength=n)
    several = int((count > 1).sum())
    if several < ENOUGH:
        return None
    scores = centred(alone.scores, alone.judges)
    again = count[alone.items] > 1
    off = centred(scores[again], alone.items[again])
    within = float((off**2).sum()) / (len(off) - several)
    total, mean = float(scores.var()), float(count[count > 0].mean())
    one = max(0.0, 1 - within / total) if total > 0 else 0.0
    return mean * one / (1 + (mean - 1) * one)


def standardised(scores: Floats) -> Floats:
    """Scores of mean 0 and standard deviation 1 over the items that have one, shape (n,); 0 for the
    others (nan), and for all where the scores are equal."""
    known = ~np.isnan(scores)
    off = np.where(known, scores - (scores[known].mean() if known.any() else 0), 0.0)
    spread = math.sqrt((off * off).sum() / max(known.sum(), 1))
    return off / spread if spread > 1e-9 else np.zeros(len(scores))


def share_of(f: Floats, sigma: float, reliability: float) -> float:
    """κ by the `reliability` of the direct scores; `f`, shape (n,), is the rating that they lead to
    expect."""
    square = float(f.var() / (f.var() + sigma**2))
    share = (math.sqrt(square / max(reliability, 1e-9)) - square) / (1 - square)
    return min(max(share, 0.0), 1.0)
