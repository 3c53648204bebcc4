"""Direct scores and comparisons together, two fallible measures of one trait t.

What comparisons measure is θ_i = β·z_i + ε_i: z is the direct score, standardised over the items
that have one, and 0 for the others; β has a flat prior (posterior.Prior), ε ~ N(0, σ²), and the
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

import numpy as np

from judgeq.rating import (
    Fit,
    GoOn,
    Parameters,
    always,
    direct,
    plackett_luce,
    position_bias,
)
from judgeq.rating.comparisons import compares, components
from judgeq.rating.posterior import Posterior
from judgeq.types import Floats, Verdicts

SHARE = 0.75


def fit(verdicts: Verdicts, n: int, parameters: Parameters, go_on: GoOn = always) -> Fit:
    """`hybrid`: t by the MAP, with its posterior; nan without a comparison, since nothing then says
    what a direct score is worth. Raises NotConvergedError."""
    if not compares(verdicts):
        return Fit(np.full(n, np.nan))
    z = direct.standardised(direct.fit(verdicts, n, parameters).theta)
    numbers, loadings = z[verdicts.items][:, None], z[:, None]
    if parameters.position:
        numbers = np.concatenate([numbers, position_bias.numbers(verdicts)], axis=1)
        loadings = np.concatenate([loadings, np.zeros((n, 1))], axis=1)
    found = plackett_luce.maximum(verdicts, n, parameters, numbers, go_on)
    reliability, share = direct.reliability(verdicts, n), SHARE
    if reliability is not None:
        share = share_of(z * found.parameters[n], found.prior.sigma, reliability)
    component = components(verdicts, n, scored=True)
    posterior = Posterior(found.rankings, found.parameters, found.prior, component, loadings, share)
    return Fit(posterior.theta, posterior, found.chosen, bool(parameters.position), reliability)


def share_of(f: Floats, sigma: float, reliability: float) -> float:
    """κ by the `reliability` of the direct scores; `f`, shape (n,), is the rating that they lead to
    expect."""
    square = float(f.var() / (f.var() + sigma**2))
    share = (math.sqrt(square / max(reliability, 1e-9)) - square) / (1 - square)
    return min(max(share, 0.0), 1.0)
