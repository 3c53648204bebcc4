"""How sure the ratings are: a normal distribution by the curvature A of the posterior at its maximum.

With V = A⁻¹ and φ the dispersion of the judge (dispersion.py), the standard error of an item is
√(φ·(V_ii − σ²/n_c)), n_c being the items of its component. What is taken off is the prior's doubt about
the mean of all θ of the component, which is 0 by definition.

V is exact in components of up to `covariance.EXACT` items; in larger ones its diagonal is a closed
form (`Curvature.variance`). At its maximum a posterior of logistic terms is skew: items at the ends
have longer tails outwards, and the curvature there says too little of how wide it is. The nearest
normal distribution (Opper and Archambeau 2009) is about as much farther out and wider as `mean` and
`_wider` make it by V: functions fitted to it over pairs and lists of 5 and 10, of 2 to 15 rounds, θ of
sd 0.7 to 4 and σ from 1 to 6. Means are within 0.1 of an error of it, and errors 2 % wider on average.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np

from judgeq.rating import Fit, covariance, newton
from judgeq.rating.curvature import Curvature
from judgeq.rating.dispersion import Scatter
from judgeq.rating.rankings import Rankings, Values
from judgeq.types import Bools, Floats, Offsets

SIGMAS = (1e-3, 100.0)
"""The least and the largest σ: below, all θ are equal but for the digits that are shown."""
LEVEL = 0.95
FREER = 2.0
"""By what the prior of intervals is wider than σ: without it they would cover the most extreme
tenth of the items in 77 % of cases."""
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
    position: bool = False,
) -> Fit:
    """The ratings at the maximum under a prior, with their posterior; arguments as of `newton.maximum`,
    `Posterior` and `Fit`. Raises NotConvergedError."""
    with rankings.threads():
        what = f"{what} (MAP, σ = {prior.sigma:g})"
        parameters = newton.maximum(rankings, prior.precision(rankings), start=start, what=what)
    posterior = Posterior(rankings, parameters, prior, component)
    return Fit(posterior.theta, posterior, chosen, position)


class Posterior:
    """The posterior of n ratings. `theta` are those at its maximum, shape (n,); `component` numbers
    the groups that comparisons connect (0: never judged). `loadings`, shape (n, p), are what an item's
    rating has of each covariate (None: nothing); they add up to 0 in each component, so that the
    ratings do. With `share` the rating is what the covariates lead to expect and that share of what the
    items have beyond it (hybrid.py); the rest of it, of spread σ, is doubt."""

    def __init__(
        self,
        rankings: Rankings,
        parameters: Floats,
        prior: Prior,
        component: Offsets,
        loadings: Floats | None = None,
        share: float | None = None,
    ) -> None:
        self.rankings = rankings
        self.prior = prior
        self.parameters = parameters
        self.sigma = prior.sigma
        self.component = component
        self._loadings = np.zeros((rankings.n, rankings.p)) if loadings is None else loadings
        self.share, self._scale = share, 1.0 if share is None else share
        of_items = self._scale * parameters[: rankings.n]
        self.theta: Floats = of_items + self._loadings @ parameters[rankings.n :]

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
        v, size = self._own_variance, max(self.rankings.size, 2.0)
        mean: Floats = self.theta * (1 + (0.14 + 0.2 / size) * v / (1 + 0.4 * v))
        return mean

    @property
    def errors(self) -> Floats:
        """The standard error of each rating, shape (n,); σ of an item that was never judged."""
        return self._errors(self._own_variance * (1 - 1 / self._size))

    @property
    def interval(self) -> tuple[Floats, Floats]:
        """The 95 % interval of each rating, each of shape (n,), with most of the prior's pull to the
        middle taken out: as if σ were twice as wide. So it covers items far out nearly as often as
        others; it reaches as far as the rating itself."""
        pull = np.minimum(self._wider**2 * self._own_variance / self.sigma**2, 1)
        if (
            self.share is not None
        ):  # what direct scores lead to expect is no pull, but known of the item
            pull = np.zeros_like(pull)
        pull[self.component == 0] = 0
        freed = 1 / (1 - pull * (1 - 1 / FREER**2))
        middle, reach = self.mean * freed, Z * self.errors * np.sqrt(freed)
        return np.minimum(middle - reach, self.theta), np.maximum(middle + reach, self.theta)

    @property
    def errors_apart(self) -> Floats:
        """Standard errors by which ratings of a component differ as far as they do, on average, where
        all are taken for independent, shape (n,)."""
        return self._errors(self._own_variance)

    @property
    def errors_across(self) -> Floats:
        """As `errors_apart`, with the doubt about how far apart components lie that nothing connects."""
        judged = max(int((self.component > 0).sum()), 1)
        across = self.dispersion * self.sigma**2 * (1 / self._size - 1 / judged)
        return np.sqrt(self.errors_apart**2 + np.maximum(across, 0))

    @property
    def _size(self) -> Offsets:
        """The items of each item's component, 2 at least, shape (n,)."""
        return np.maximum(np.bincount(self.component), 2)[self.component]

    @property
    def _own_variance(self) -> Floats:
        """s/(s − 1)·(V_ii − σ²/s) in a component of s, shape (n,): σ² where nothing is known."""
        size = self._size
        mean_of_all = (self._scale * self.sigma) ** 2 / size
        variance: Floats = np.maximum(self._variance - mean_of_all, 0)
        return variance * size / (size - 1)

    def _errors(self, variance: Floats) -> Floats:
        apart = self._scale * (1 - self._scale) * self.sigma**2
        errors = np.sqrt(self._wider**2 * self.dispersion * variance + apart)
        return np.where(self.component > 0, errors, self.sigma)

    @property
    def _wider(self) -> Floats:
        """By what the posterior is wider than its curvature says, shape (n,)."""
        v = self._own_variance
        wider: Floats = 1 + 0.17 * v * np.maximum(1 - v / self.sigma**2, 0) * np.exp(-v / 2)
        return wider

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
        n, p, load = self.rankings.n, self.rankings.p, self._loadings
        curvature, _ = self._curved
        with self.rankings.threads():
            variance = curvature.variance()
            for part in self._parts(self._exact):
                rows, v = part.rows, part.covariance
                if p:
                    turn = np.concatenate([self._scale * np.eye(n), load], axis=1)
                    rows, v = np.arange(n)[None], (turn @ v[0] @ turn.T)[None]
                variance[rows] = np.diagonal(v, axis1=1, axis2=2)
            if p and not self._exact.any():  # the closed form is that given the covariates
                shared = curvature.solve(np.concatenate([np.zeros((n, p)), np.eye(p)]), 1e-6)
                through = self._scale * (shared[:n] @ np.linalg.inv(shared[n:])) + load
                variance = self._scale**2 * variance + ((through @ shared[n:]) * through).sum(
                    axis=1
                )
        return variance

    def _parts(self, chosen: Bools) -> Iterator[covariance.Part]:
        return covariance.parts(self._curved[0], self.component, chosen)

    def error_between(self, i: int, j: int) -> float:
        """The standard error of θi − θj of two items, given by their rows."""
        n = self.rankings.n
        load: Values = np.zeros((n + self.rankings.p, 1))
        load[i], load[j] = self._scale, -self._scale
        load[n:, 0] = self._loadings[i] - self._loadings[j]
        with self.rankings.threads():
            variance = float((load * self._curved[0].solve(load, 1e-5)).sum())
        wider = float(self._wider[[i, j]].mean())
        apart = 2 * self._scale * (1 - self._scale) * self.sigma**2
        return float(np.sqrt(wider**2 * self.dispersion * variance + apart))

    def probability_above(self, i: int, j: int) -> float:
        """P(θi > θj) of two items, given by their rows."""
        if i == j:
            return 0.5
        return NormalDist().cdf(float(self.mean[i] - self.mean[j]) / self.error_between(i, j))
