"""Bradley-Terry: P(i beats j) = σ(θi − θj)  (Bradley and Terry 1952).

`fit` is judgeq's `bt`, posterior means under a prior: unique, finite, fast. `fit_mm` is the paper's
estimator, `bt-mm`. Both
take the comparisons that rankings imply, a tie as half a win each way. Of partial rankings
of which only the first places are known these are as consistent as of whole ones (Azari Soufiani, Chen,
Parkes and Xia 2013, on top-k breakings).
"""

from __future__ import annotations

import numpy as np

from judgeq.errors import NotConvergedError
from judgeq.rating import Fit, GoOn, Parameters, always, plackett_luce
from judgeq.rating.comparisons import Comparisons, components, imply
from judgeq.types import Floats, Offsets, Verdicts

LAMBDA = 1e-6
"""What the paper adds to wins and rates, so that these have a logarithm."""


def fit(verdicts: Verdicts, n: int, parameters: Parameters, go_on: GoOn = always) -> Fit:
    """`bt`: the posterior of θ, whose means are the scores, 0 for items that were never compared."""
    return plackett_luce.fit(verdicts, n, parameters, go_on, implied=True)


def fit_paper(verdicts: Verdicts, n: int, parameters: Parameters, go_on: GoOn = always) -> Fit:
    """`bt-mm`: θ by the paper's estimator, with mean 0 in each component."""
    parts = components(verdicts, n)
    several = parts if parts.max(initial=0) > 1 else None
    return Fit(fit_mm(imply(verdicts), n, component=several, go_on=go_on))


def fit_mm(
    comparisons: Comparisons,
    n: int,
    tolerance: float = 1e-6,
    sweeps: int = 200_000,
    *,
    component: Offsets | None = None,
    go_on: GoOn = always,
) -> Floats:
    """The paper's estimator, θ of shape (n,) with mean 0.

    π ← (W+λ)/(Σ m/(πi+πj)+λ) with λ = LAMBDA, geometric mean 1, until the largest change in θ in a
    sweep is below `tolerance` (Hunter 2004, with Haak and Schaer's λ). Slow on sparse graphs: λ alone
    holds an item, or a group of items, that won or lost all its comparisons with the others, and the
    more of them follow one another, the farther apart they end (θ from −68 to 15 on the published
    recordings).

    Where `component`, shape (n,), numbers several groups that no comparison connects, each is centred
    by itself: nothing else says where they lie to each other. Raises NotConvergedError after `sweeps`.
    """
    wins = np.bincount(comparisons.winner, comparisons.weight, n)
    low, high = np.sort([comparisons.winner, comparisons.loser], axis=0).astype(np.int64)
    edge, which = np.unique(low * n + high, return_inverse=True)
    met, (a, b) = np.bincount(which, comparisons.weight), np.divmod(edge, n)
    part = np.zeros(n, np.int64) if component is None else component
    count = np.maximum(np.bincount(part), 1)
    theta: Floats = np.zeros(n)
    for _ in range(sweeps):
        go_on()
        strength = np.exp(theta)
        rate = met / (strength[a] + strength[b])
        rates = np.bincount(a, rate, n) + np.bincount(b, rate, n)
        new = np.log(wins + LAMBDA) - np.log(rates + LAMBDA)
        new -= (np.bincount(part, new) / count)[part]
        change, theta = float(np.abs(new - theta).max()), new
        if change < tolerance:
            return theta
    raise NotConvergedError(
        f"bt-mm did not converge in {sweeps:,} sweeps: items, or groups of them, won or lost every "
        "comparison with the others. `--rating bt` always converges; or judge more rounds."
    )
