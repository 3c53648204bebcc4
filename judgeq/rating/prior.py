"""How wide the prior is, chosen without labels: σ of the highest evidence.

log p(data | σ) ≈ E[ℓ] − E‖θ‖²/2σ² − n log σ − ½ log|H + σ⁻²|, near the maximum under σ (MacKay
1992), of lists chosen from the top: that is a probability of all that a judge may say, which the
mean of both directions isn't (it found 0.9 for 0.5). Laplace's evidence has ℓ and θ at the maximum
itself, which is too low where an item has few comparisons, the more the wider the prior is. Here
they are means over draws of independent normal distributions, about as far out and as wide as the
posterior (posterior.py): the same for every σ, so that they compare.

Until items are in two rankings on average these say next to nothing of σ: it isn't looked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from judgeq import seeds
from judgeq.rating import LIMITS, UNKNOWN, curvature
from judgeq.rating.curvature import Curvature, Rankings, dot
from judgeq.types import Floats

DRAWS, ENOUGH = 4, 40_000
"""Draws and their opposites; fewer where all of them have over ENOUGH items."""
SPREAD = 0.7
"""What is expected of σ before any judgment, as the sd of log σ about log UNKNOWN: where similar
texts were matched from the first answers on, judgments alone leave it open by a factor of ten."""
_STEP = math.sqrt(2)
SIGMAS = (1e-3, 100.0)
"""The least and the largest σ: below, all θ are equal but for the digits that are shown."""


@dataclass(frozen=True, slots=True)
class Prior:
    """θ ~ N(0, σ²) of the items; `loose` is the σ of covariates, which is as good as flat. Raises
    ValueError for a σ outside SIGMAS."""

    sigma: float
    loose: float = 100.0

    def __post_init__(self) -> None:
        if not SIGMAS[0] <= self.sigma <= SIGMAS[1]:
            limits = f"{SIGMAS[0]:g} to {SIGMAS[1]:g}"
            raise ValueError(f"σ must be from {limits}, not {self.sigma:g}")

    def precision(self, rankings: Rankings) -> Floats:
        """1/σ² by parameter, shape (n + p,)."""
        items = np.full(rankings.n, self.sigma**-2)
        return np.concatenate([items, np.full(rankings.p, self.loose**-2)])


def further(v: Floats, size: float) -> Floats:
    """By what the mean of a rating is farther out than the maximum, by its variance there, in
    rankings of `size` items."""
    factor: Floats = 1 + (0.14 + 0.2 / max(size, 2.0)) * v / (1 + 0.4 * v)
    return factor


def wider(v: Floats, sigma: float) -> Floats:
    """By what its standard error is larger than the curvature at the maximum says."""
    factor: Floats = 1 + 0.17 * v * np.maximum(1 - v / sigma**2, 0) * np.exp(-v / 2)
    return factor


def choose_sigma(rankings: Rankings) -> tuple[float, Floats]:
    """σ within LIMITS, and the parameters under a σ near it, from which a fit may start, shape (n + p,).

    Climbed to from UNKNOWN by steps of √2; between them it is where the parabola of log σ through the
    best one and its neighbours is highest. Raises NotConvergedError.
    """
    start: Floats = np.zeros(rankings.n + rankings.p)
    found: dict[int, float] = {}
    lowest, highest = (round(math.log(limit / UNKNOWN, _STEP)) for limit in LIMITS)

    def at(step: int) -> float:
        nonlocal start
        if not lowest <= step <= highest:
            return -math.inf
        if step not in found:
            prior = Prior(UNKNOWN * _STEP**step)
            start = curvature.maximum(rankings, prior.precision(rankings), 1e-2, start)
            expected = -((step * math.log(_STEP) / SPREAD) ** 2) / 2
            found[step] = evidence(rankings, start, prior) + expected
        return found[step]

    best = 0
    for way in (1, -1):
        while at(best + way) > at(best):
            best += way
    if best in (lowest, highest):
        return LIMITS[best == highest], start
    below, above = (at(best) - at(best + way) for way in (-1, 1))
    return UNKNOWN * _STEP ** (best + (below - above) / (2 * (below + above) or 1)), start


def evidence(rankings: Rankings, parameters: Floats, prior: Prior) -> float:
    """The evidence of σ, up to a constant; `parameters` are at the maximum under it, and their curvature
    is kept by `rankings`."""
    precision = prior.precision(rankings)
    bent = Curvature(rankings, precision)
    v, far, wide = 1 / bent.diagonal, *np.ones((2, len(parameters)))
    items = slice(0, rankings.n)
    far[items] = further(v[items], rankings.size)
    wide[items] = wider(v[items], prior.sigma)
    draws = max(1, min(DRAWS, ENOUGH // (2 * len(parameters))))
    off = seeds.rng(0, "evidence").standard_normal((draws, len(parameters))) * wide * np.sqrt(v)
    losses = [
        rankings.loss(x) + dot(x, precision * x) / 2
        for x in (far * parameters + way * one for one in off for way in (1, -1))
    ]
    spread = float(np.log(precision).sum()) - bent.log_determinant()
    return spread / 2 + float(np.log(wide).sum()) - math.fsum(losses) / len(losses)
