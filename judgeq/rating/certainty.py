"""How well the order of the items is known, by draws of the posterior; and which items it is least known
of.

ρ̂ is the mean over draws of Spearman's ρ between the ratings and the draw: what the ratings would
correlate with the scale of the same judge asked without end. It says nothing of whether that judge is
right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from judgeq import seeds
from judgeq.rating import GoOn, always, correlation, newton
from judgeq.rating.curvature import TOGETHER, Curvature
from judgeq.rating.plackett_luce import rankings_of
from judgeq.rating.posterior import Posterior, Prior
from judgeq.rating.rankings import Values
from judgeq.types import Bools, Floats, Offsets, Verdicts

DRAWS, FEW = 48, 16
"""Draws by which an order is judged: FEW where there are more than LARGE items, of which each draw says
as much."""
LARGE = 20_000
UNSETTLED = 0.05
"""A label is settled once the probability of the other one is below this."""

Focus = Callable[[Floats], Bools]
"""Whether each item is one of those that matter, by ratings of shape (n,)."""


@dataclass(frozen=True, slots=True)
class Known:
    """How well an order is known, and is expected to be after the next round. `rho` is ρ̂; `top` the
    share of the first items that are among the first in a draw, on average; None where it wasn't
    asked for."""

    rho: float
    next_rho: float | None = None
    top: float | None = None
    next_top: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """Draws by which it is chosen what to ask: their `mean`, shape (n,), and what the draws are off it,
    shape (n, draws); not centred, as `Posterior.deviations`."""

    mean: Floats
    deviations: Values


def drawn_for_choice(
    verdicts: Verdicts, n: int, sigma: float, seed: int, name: str, go_on: GoOn = always
) -> Drawn:
    """DRAWS draws about the maximum of `pl`, with σ given: by them it is chosen what to ask next. Less
    work than the posterior, whose intervals are nearer to the truth. Raises NotConvergedError.

    They are spread wider than the model says: by V(A + G)V, where V = A⁻¹ and G = Σ g gᵀ is by how
    much rankings were seen to pull at their items, g being a ranking's gradient (White 1982, "Maximum
    likelihood estimation of misspecified models", has G in the place of H). So items whose rankings
    contradict one another count as less certain than others that were asked as often, as they are with
    judges whose errors are now and then large, which the model doesn't know of.
    """
    rankings = rankings_of(verdicts, n, go_on=go_on)
    precision = Prior(sigma).precision(rankings)
    with rankings.threads():
        theta = newton.maximum(rankings, precision, what="Plackett-Luce")
        slopes = [slope.T.astype(np.float32) for slope in rankings.slopes(theta)]
        curvature = Curvature.kept(rankings, precision)
        parts = []
        for batch in range(-(-DRAWS // TOGETHER)):
            noise = curvature.noise(seed, name, batch)
            rng = seeds.rng(seed, name, batch, "seen")
            pulls = [
                slope[:, :, None] * rng.standard_normal((len(slope), 1, TOGETHER), dtype=np.float32)
                for slope in slopes
            ]
            parts.append(curvature.solve(noise + rankings.sums(pulls)))
    return Drawn(theta, np.concatenate(parts, axis=1)[:, :DRAWS])


def draws_for(n: int) -> int:
    """How many draws say how well the order of n items is known."""
    return DRAWS if n <= LARGE else FEW


def known(
    posterior: Posterior, judged: Bools, growth: float | None = None, top: int | None = None
) -> Known:
    """How well the order of the `judged` items, shape (n,), is known; ρ̂ of fewer than two is 1.

    `growth` is by what the next round multiplies the judgments, as 1.25. What it is expected to bring
    follows from a posterior whose variance is 1/growth of today's, about ratings that move by
    the rest: both together are spread as today's posterior (the law of total variance). An adaptive
    round, which asks where it helps, may bring more.
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


# Which items to ask about


def first(k: int) -> Focus:
    """The k highest."""

    def among_first(values: Floats) -> Bools:
        chosen = np.zeros(len(values), dtype=np.bool_)
        chosen[np.argsort(-values, kind="stable")[:k]] = True
        return chosen

    return among_first


def above(threshold: float) -> Focus:
    """Those above a threshold."""
    return lambda values: values > threshold


def least_known(drawn: Drawn, focus: Focus | None = None) -> Offsets:
    """All items, shape (n,), those first whose rank varies most over the draws; or, with a focus, where
    it varies most whether they matter, and of equals those whose rank does. Equals in order of their
    rows.

    The variances are whole numbers, so that no rounding decides.
    """
    n, count = drawn.deviations.shape
    total, squares, times = (np.zeros(n, dtype=np.int64) for _ in range(3))
    for values in _values(drawn):
        rank = np.empty(n, dtype=np.int64)
        rank[np.argsort(values, kind="stable")] = np.arange(n)
        total += rank
        squares += rank * rank
        if focus is not None:
            times += focus(values)
    variance = count * squares - total * total
    return np.lexsort((np.arange(n), -variance, -times * (count - times)))


def _values(drawn: Drawn) -> Iterator[Floats]:
    for deviation in drawn.deviations.T:
        yield drawn.mean + deviation


def settled(posterior: Posterior, threshold: float) -> Bools:
    """Of which items the label is settled, shape (n,): those above the threshold, or below it, with a
    probability of more than 1 − UNSETTLED."""
    z = NormalDist().inv_cdf(1 - UNSETTLED)
    clear: Bools = np.abs(posterior.mean - threshold) > z * posterior.errors_by_draws()
    return clear
