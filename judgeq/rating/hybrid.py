"""Direct scores and comparisons together: θ_i = β·z_i + ε_i.

z is the direct score, standardised over the items that have one, and 0 for the others. β has a flat
prior (posterior.Prior), ε ~ N(0, σ²), and the rankings are Plackett-Luce's, symmetrised
(plackett_luce.py): so the comparisons say what a direct score is worth, and correct it where they
know better. Direct scores put all items that have one on one scale, whatever the comparisons
connect.
"""

from __future__ import annotations

import numpy as np

from judgeq.rating import (
    Fit,
    GoOn,
    Parameters,
    always,
    direct,
    newton,
    plackett_luce,
    position_effect,
)
from judgeq.rating.comparisons import compares, scale_components, settled
from judgeq.rating.posterior import Prior, fitted
from judgeq.types import Bools, Floats, Verdicts

NAME = "Direct scores and comparisons"
SIGMAS = (1.0, 1.4, 2.0, 2.8, 4.0)
"""σ is one of these: that by which rounds of comparisons are foretold best by the others."""
UNKNOWN = 2.0
"""σ where there is one round of comparisons alone, which nothing foretells."""
FOLDS = 5
"""Of more rounds than these several are left out together."""
_NEAR = 1e-3


def fit(verdicts: Verdicts, n: int, parameters: Parameters, go_on: GoOn = always) -> Fit:
    """`hybrid`: θ by the MAP, with its posterior; nan without a comparison, since nothing then says
    what a direct score is worth. σ is chosen where it isn't given. Raises NotConvergedError."""
    if not compares(verdicts):
        return Fit(np.full(n, np.nan))
    z = direct.standardised(direct.fit(verdicts, n, parameters).theta)
    sigma, chosen = parameters.sigma, False
    if sigma is None:
        sigma, chosen = _chosen(verdicts.where(np.diff(verdicts.offsets) > 1), z, go_on)
    numbers = _numbers(verdicts, z)
    loadings = z[:, None]
    if parameters.position:
        places = position_effect.columns(verdicts).numbers
        numbers = np.concatenate([numbers, places], axis=1)
        loadings = np.concatenate([loadings, np.zeros((n, places.shape[1]))], axis=1)
    return fitted(
        plackett_luce.rankings_of(verdicts, n, numbers, go_on),
        Prior(sigma),
        scale_components(verdicts, n),
        NAME,
        chosen=chosen,
        limits=(SIGMAS[0], SIGMAS[-1]),
        position=parameters.position,
        loadings=loadings,
    )


def _numbers(verdicts: Verdicts, z: Floats) -> Floats:
    """The covariate: z of the item in each slot, shape (slots, 1)."""
    return z[settled(verdicts).items][:, None]


def _chosen(compared: Verdicts, z: Floats, go_on: GoOn) -> tuple[float, bool]:
    """The σ of SIGMAS by which each round's comparisons are likeliest under the maximum of the others,
    and whether there was a choice: it takes two rounds."""
    if compared.rounds is None:
        return UNKNOWN, False
    rounds = np.unique(compared.rounds, return_inverse=True)[1].reshape(-1)
    folds = min(FOLDS, int(rounds.max()) + 1)
    if folds < 2:
        return UNKNOWN, False
    losses = np.zeros(len(SIGMAS))
    for fold in range(folds):
        out: Bools = rounds % folds == fold
        losses += _losses(compared.where(~out), compared.where(out), z, go_on)
    return SIGMAS[int(np.argmin(losses))], True


def _losses(known: Verdicts, left_out: Verdicts, z: Floats, go_on: GoOn) -> Floats:
    """−log likelihood of the comparisons left out, under the maximum of the others, by σ."""
    n = len(z)
    rankings = plackett_luce.rankings_of(known, n, _numbers(known, z), go_on)
    others = plackett_luce.rankings_of(left_out, n, _numbers(left_out, z), go_on)
    losses, start = [], np.zeros(n + 1)
    with rankings.threads(), others.threads():
        for sigma in SIGMAS:
            precision = Prior(sigma).precision(rankings)
            start = newton.maximum(rankings, precision, _NEAR, start, what=NAME)
            losses.append(others.loss(start))
    return np.array(losses)
