"""How wide the prior is, chosen without labels: σ of the highest Laplace evidence.

log p(data | σ) ≈ ℓ(θ̂) − ‖θ̂‖²/2σ² − n log σ − ½ log|H + σ⁻²|  (MacKay 1992). Looked for within
LIMITS: without limits it collapsed where a design groups what is alike. Until
items are in two rankings on average these say next to nothing of it, and σ is the least.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from judgeq import seeds
from judgeq.rating import LIMITS, covariance, newton
from judgeq.rating.curvature import Curvature
from judgeq.rating.posterior import Prior
from judgeq.rating.rankings import Rankings
from judgeq.types import Floats

DENSE = 1000
"""So many parameters are the most whose determinant is worked out exactly."""
_NEAR = 0.02
"""How near, on the scale of log σ, the highest evidence is looked for."""


def sigma(
    rankings: Rankings, limits: tuple[float, float] = LIMITS, draws: int = 0
) -> tuple[float, Floats]:
    """σ within limits, and the ratings by it, from which a fit may start, shape (n + p,).

    By golden section on log σ; `draws` as of `evidence`. Raises NotConvergedError.
    """
    if not rankings.repeated:
        return limits[0], np.zeros(rankings.n + rankings.p)
    start: Floats = np.zeros(rankings.n + rankings.p)

    def evidence_at(log_sigma: float) -> float:
        nonlocal start
        prior = Prior(math.exp(log_sigma))
        start = newton.maximum(rankings, prior.precision(rankings), 1e-3, start)
        return evidence(rankings, start, prior, draws)

    best = _highest(evidence_at, *map(math.log, limits))
    for limit in limits:
        if abs(best - math.log(limit)) < 1e-9:
            return limit, start
    return math.exp(best), start


def _highest(of: Callable[[float], float], low: float, high: float) -> float:
    """Where `of` is highest between low and high, or the end that it is within _NEAR of."""
    golden = (math.sqrt(5) - 1) / 2
    ends = low, high
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = of(left), of(right)
    while high - low > _NEAR:
        if at_left >= at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = of(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = of(right)
    best = (low + high) / 2
    for end in ends:
        if abs(best - end) <= _NEAR:
            return end
    return best


def evidence(rankings: Rankings, parameters: Floats, prior: Prior, draws: int = 0) -> float:
    """The Laplace evidence of σ, up to a constant; `parameters` are at the maximum under it, and their
    curvature is kept by `rankings`.

    With `draws` it is by the mean posterior density over these and their opposites, the same for every
    σ, of independent normal distributions about the maximum. Laplace's, by the density there, is too low
    where an item has few comparisons, the more the wider the prior is.
    """
    precision = prior.precision(rankings)
    curvature = Curvature.kept(rankings, precision)
    off = seeds.rng(0, "evidence").standard_normal((draws, len(parameters)))
    off = np.concatenate([off, -off]) * curvature.diagonal**-0.5
    losses = [
        rankings.loss(x) + newton.dot(x, precision * x) / 2
        for x in (parameters + off if draws else [parameters])
    ]
    of_prior = float(np.log(precision).sum())
    return (of_prior - log_determinant(curvature)) / 2 - math.fsum(losses) / len(losses)


def log_determinant(curvature: Curvature) -> float:
    """log|A|, exactly of a small A, which decides between σ that are near."""
    if len(curvature.precision) <= DENSE:
        return float(np.linalg.slogdet(covariance.information(curvature))[1])
    return curvature.log_determinant()
