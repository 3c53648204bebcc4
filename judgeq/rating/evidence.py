"""How wide the prior is, chosen without labels: σ of the highest Laplace evidence.

log p(data | σ) ≈ ℓ(θ̂) − ‖θ̂‖²/2σ² − n log σ − ½ log|H + σ⁻²|  (MacKay 1992). Looked for within
LEAST to MOST: without limits it collapsed where a design groups what is alike. Until
items are in two rankings on average these say next to nothing of it, and σ is LEAST.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from judgeq import seeds
from judgeq.rating import LIMITS, covariance, newton
from judgeq.rating.curvature import Curvature, dots
from judgeq.rating.posterior import Prior
from judgeq.rating.rankings import Rankings
from judgeq.types import Floats

LEAST, MOST = LIMITS
DENSE = 1000
"""So many parameters are the most whose determinant is worked out exactly."""
_STEPS = 20
_WORK = 30_000
_NEAR = 0.02
"""How near, on the scale of log σ, the highest evidence is looked for."""


def sigma(rankings: Rankings, seed: int = 0) -> tuple[float, Floats]:
    """σ within LEAST to MOST, and the ratings by it, from which a fit may start, shape (n + p,).

    By golden section on log σ. Raises NotConvergedError.
    """
    if not rankings.repeated:
        return LEAST, np.zeros(rankings.n + rankings.p)
    start: Floats = np.zeros(rankings.n + rankings.p)

    def evidence_at(log_sigma: float) -> float:
        nonlocal start
        prior = Prior(math.exp(log_sigma))
        start = newton.maximum(rankings, prior.precision(rankings), 1e-3, start)
        return evidence(rankings, start, prior, seed)

    best = _highest(evidence_at, math.log(LEAST), math.log(MOST))
    for limit in LIMITS:
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


def evidence(rankings: Rankings, parameters: Floats, prior: Prior, seed: int = 0) -> float:
    """The Laplace evidence of σ, up to a constant; `parameters` are at the maximum under it, and their
    curvature is kept by `rankings`."""
    precision = prior.precision(rankings)
    fit = -rankings.loss(parameters) - newton.dot(parameters, precision * parameters) / 2
    of_prior = float(np.log(precision).sum())
    return fit + (of_prior - log_determinant(Curvature.kept(rankings, precision), seed)) / 2


def log_determinant(curvature: Curvature, seed: int = 0) -> float:
    """log|A|: exactly, or by Lanczos's quadrature."""
    if len(curvature.precision) <= DENSE:
        return by_factor(curvature)
    return by_lanczos(curvature, seed)


def by_factor(curvature: Curvature) -> float:
    """log|A| of the matrix itself."""
    return float(np.linalg.slogdet(covariance.information(curvature))[1])


def by_lanczos(curvature: Curvature, seed: int = 0, steps: int = _STEPS) -> float:
    """The same by stochastic Lanczos quadrature (Ubaru, Chen and Saad 2017) of the matrix scaled to a
    diagonal of 1, whose logarithm adds the scale's. The more parameters, the fewer probes: their
    errors average out. The probes are the same for every σ, so that σ are compared on equal terms.
    """
    n = len(curvature.precision)
    root = np.sqrt(curvature.diagonal).astype(np.float32)[:, None]
    probes = max(2, min(16, _WORK // n))
    rng = seeds.rng(seed, "evidence")
    vector = rng.choice(np.array([-1, 1], dtype=np.float32), (n, probes)) / np.float32(n**0.5)
    before, off = np.zeros_like(vector), np.zeros(probes)
    alphas, betas = [], []
    for _ in range(min(steps, n)):
        product = curvature.times(vector / root) / root
        alpha = dots(vector, product)
        product -= alpha.astype(np.float32) * vector + off.astype(np.float32) * before
        off = np.sqrt(dots(product, product))
        alphas.append(alpha)
        betas.append(off)
        before, vector = vector, product / np.maximum(off, 1e-30).astype(np.float32)
        if (off < 1e-6).all():
            break
    total = 0.0
    for probe in range(probes):
        tridiagonal = np.diag([alpha[probe] for alpha in alphas])
        sides = [beta[probe] for beta in betas[:-1]]
        tridiagonal += np.diag(sides, 1) + np.diag(sides, -1)
        values, vectors = np.linalg.eigh(tridiagonal)
        total += float((vectors[0] ** 2 * np.log(np.maximum(values, 1e-12))).sum())
    return float(np.log(curvature.diagonal).sum()) + n * total / probes
