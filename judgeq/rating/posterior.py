"""How sure the ratings are: a normal distribution by the curvature A of the posterior at its maximum.

With V = A⁻¹ and φ the dispersion of the judge (dispersion.py), the standard error of an item is
√(φ·(V_ii − σ²/n_c)), n_c being the items of its component. What is taken off is the prior's doubt about
the mean of all θ of the component, which is 0 by definition.

V is exact in components of up to `covariance.EXACT` items; in larger ones its diagonal is a closed
form (`Curvature.variance`). At its maximum a posterior of logistic terms is skew: items at the ends
have longer tails outwards, and the curvature there says too little of how wide it is. What the
nearest normal distribution (Opper and Archambeau 2009) adds to both is FARTHER and WIDER times V.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np

from judgeq.rating import LIMITS, Fit, covariance, newton
from judgeq.rating.curvature import Curvature
from judgeq.rating.dispersion import Scatter
from judgeq.rating.rankings import Rankings, Values
from judgeq.types import Bools, Floats, Offsets

FARTHER, WIDER = 0.07, 0.12
SIGMAS = (1e-3, 100.0)
"""The least and the largest σ: below, all θ are equal but for the digits that are shown."""
LEVEL = 0.95
Z = NormalDist().inv_cdf((1 + LEVEL) / 2)


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


def fitted(
    rankings: Rankings,
    prior: Prior,
    component: Offsets,
    what: str,
    start: Floats | None = None,
    *,
    chosen: bool = False,
    limits: tuple[float, float] = LIMITS,
    position: bool = False,
    loadings: Floats | None = None,
) -> Fit:
    """The ratings at the maximum under a prior, with their posterior; arguments as of `newton.maximum`,
    `Posterior` and `Fit`. Raises NotConvergedError."""
    with rankings.threads():
        what = f"{what} (MAP, σ = {prior.sigma:g})"
        parameters = newton.maximum(rankings, prior.precision(rankings), start=start, what=what)
    posterior = Posterior(rankings, parameters, prior, component, loadings)
    return Fit(posterior.theta, posterior, chosen, position, limits)


class Posterior:
    """The posterior of n ratings. `theta` are those at its maximum, shape (n,); `component` numbers
    the groups that comparisons connect (0: never judged). `loadings`, shape (n, p), are what an item's
    rating has of each covariate (None: nothing); they add up to 0 in each component, so that the
    ratings do."""

    def __init__(
        self,
        rankings: Rankings,
        parameters: Floats,
        prior: Prior,
        component: Offsets,
        loadings: Floats | None = None,
    ) -> None:
        self.rankings = rankings
        self.prior = prior
        self.parameters = parameters
        self.sigma = prior.sigma
        self.component = component
        self._loadings = np.zeros((rankings.n, rankings.p)) if loadings is None else loadings
        self.theta: Floats = parameters[: rankings.n] + self._loadings @ parameters[rankings.n :]

    @cached_property
    def _curved(self) -> tuple[Curvature, list[Floats]]:
        """The curvature at the maximum, and the rankings' gradients there by block, (rankings, k)."""
        with self.rankings.threads():
            slopes = [slope.T for slope in self.rankings.slopes(self.parameters)]
            precision = self.prior.precision(self.rankings)
            return Curvature.kept(self.rankings, precision), slopes

    @property
    def mean(self) -> Floats:
        """The mean of what each rating may be, shape (n,): intervals lie around it."""
        mean: Floats = self.theta * (1 + FARTHER * self._variance)
        return mean

    @property
    def errors(self) -> Floats:
        """The standard error of each rating, shape (n,); σ of an item that was never judged."""
        count = np.maximum(np.bincount(self.component), 1)
        return self._errors(self._variance - self.sigma**2 / count[self.component])

    @property
    def errors_apart(self) -> Floats:
        """As `errors`, with the doubt about how far apart components lie that nothing connects."""
        return self._errors(self._variance)

    def _errors(self, variance: Floats) -> Floats:
        wider = 1 + WIDER * self._variance
        errors = wider * np.sqrt(self.dispersion * np.maximum(variance, 0))
        return np.where(self.component > 0, errors, self.sigma)

    @cached_property
    def dispersion(self) -> float:
        """φ; 1 until items are in two rankings on average, which say nothing of it before."""
        if not self.rankings.repeated:
            return 1.0
        curvature, slopes = self._curved
        scatter, chosen = Scatter(), self._exact
        with self.rankings.threads():
            for part in self._parts(chosen):
                scatter.add(curvature, slopes, part)
            if (~chosen & (self.component > 0)).any():
                scatter.add_sample(curvature, slopes, self._variance)
        return scatter.dispersion

    @cached_property
    def _exact(self) -> Bools:
        return covariance.exact(self.component, self.rankings)

    @cached_property
    def _variance(self) -> Floats:
        """V's diagonal of the ratings, shape (n,)."""
        n, p = self.rankings.n, self.rankings.p
        curvature, _ = self._curved
        with self.rankings.threads():
            variance = curvature.variance()
            for part in self._parts(self._exact):
                inside = part.rows < n
                variance[part.rows[inside]] = np.diagonal(part.covariance, axis1=1, axis2=2)[inside]
            if p:
                shared = curvature.solve(np.concatenate([np.zeros((n, p)), np.eye(p)]), 1e-6)
                own = np.linalg.inv(shared[n:])
                through = shared[:n] @ own  # of an item, by covariate, given the others
                if not self._exact.any():  # then the closed form is that given the covariates
                    variance += ((through @ shared[n:]) * through).sum(axis=1)
                load = self._loadings
                variance += 2 * (shared[:n] * load).sum(axis=1) + ((load @ shared[n:]) * load).sum(
                    axis=1
                )
        return variance

    def _parts(self, chosen: Bools) -> Iterator[covariance.Part]:
        return covariance.parts(self._curved[0], self.component, chosen)

    def error_between(self, i: int, j: int) -> float:
        """The standard error of θi − θj of two items, given by their rows."""
        n = self.rankings.n
        load: Values = np.zeros((n + self.rankings.p, 1))
        load[i], load[j] = 1, -1
        load[n:, 0] = self._loadings[i] - self._loadings[j]
        with self.rankings.threads():
            variance = float((load * self._curved[0].solve(load, 1e-5)).sum())
        wider = 1 + WIDER * float(self._variance[[i, j]].mean())
        return wider * float(np.sqrt(self.dispersion * variance))

    def probability_above(self, i: int, j: int) -> float:
        """P(θi > θj) of two items, given by their rows."""
        if i == j:
            return 0.5
        return NormalDist().cdf(float(self.mean[i] - self.mean[j]) / self.error_between(i, j))
