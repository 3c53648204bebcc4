"""How well the order of the items is known, by draws of the posterior.

ρ̂ is the mean over draws of Spearman's ρ between the ratings and the draw: what the ratings would
correlate with the scale of the same judge asked without end. It says nothing of whether that judge is
right.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from judgeq.rating import correlation
from judgeq.rating.posterior import Posterior
from judgeq.types import Bools, Floats

DRAWS, FEW = 48, 16
"""Draws by which an order is judged: FEW where there are more than LARGE items, of which each draw says
as much."""
LARGE = 20_000


@dataclass(frozen=True, slots=True)
class Known:
    """How well an order is known, and is expected to be after the next round. `rho` is ρ̂; `top` the
    share of the first items that are among the first in a draw, on average; None where it wasn't
    asked for."""

    rho: float
    next_rho: float | None = None
    top: float | None = None
    next_top: float | None = None


def draws_for(n: int) -> int:
    """How many draws say how well the order of n items is known."""
    return DRAWS if n <= LARGE else FEW


def known(
    posterior: Posterior, judged: Bools, growth: float | None = None, top: int | None = None
) -> Known:
    """How well the order of the `judged` items, shape (n,), is known; ρ̂ of fewer than two is 1.

    `growth` is by what the next round multiplies the judgments, as 1.25. What it is expected to bring
    follows from a posterior whose variance is 1/growth of today's, about ratings that move by
    the rest: both together are spread as today's posterior (the law of total variance).
    """
    theta = posterior.mean[judged]
    off = (
        posterior.deviations(draws_for(len(judged)))[judged].astype(np.float64)
        * posterior.dispersion**0.5
    )
    if len(theta) < 2:
        return Known(1.0, None, None if top is None else 1.0)
    count = off.shape[1]
    now = np.array([_agreement(theta, theta + off[:, draw], top) for draw in range(count)])
    rho, share = now.mean(axis=0).tolist()
    next_rho = next_share = None
    if growth is not None:
        left = 1 / growth
        later = []
        for draw in range(count):
            moved = theta + (1 - left) ** 0.5 * off[:, draw]
            other = off[:, (draw + 1) % count]
            later.append(_agreement(moved, moved + left**0.5 * other, top))
        next_rho, next_share = np.mean(later, axis=0).tolist()
    if top is None:
        return Known(rho, next_rho)
    return Known(rho, next_rho, share, next_share)


def _agreement(theta: Floats, draw: Floats, top: int | None) -> tuple[float, float]:
    """Spearman's ρ between ratings and a draw, and which share of the first they have in common."""
    share = 1.0
    if top is not None:
        k = min(top, len(theta))
        both = np.zeros(len(theta), dtype=np.int64)
        for values in (theta, draw):
            both[np.argsort(-values, kind="stable")[:k]] += 1
        share = float((both == 2).sum()) / k
    # Where one is constant no order is known.
    return correlation.point(correlation.spearman(theta, draw), len(theta)) or 0.0, share
