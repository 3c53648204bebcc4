"""How sure the ratings are: the normal distribution nearest to the posterior of θ (variational.py).

With A its curvature, V = A⁻¹ and φ the dispersion of the judge (dispersion.py), the standard error
of an item is √(φ·(V_ii − σ²/n_c)), n_c being the items of its component. What is taken off is the
prior's doubt about the mean of all θ of the component, which is 0 by definition.

V is exact in components of up to `covariance.EXACT` items. In larger ones it comes from draws x of
A x = b, where b has the covariance A: var x_i = 1/A_ii + E[(x_i − b_i/A_ii)²], whose second part
alone is estimated (Rao and Blackwell's trick).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np

from judgeq.rating import LIMITS, Fit, covariance, newton
from judgeq.rating.curvature import TOGETHER
from judgeq.rating.dispersion import Scatter
from judgeq.rating.rankings import Rankings, Values
from judgeq.rating.variational import Gaussian, nearest
from judgeq.types import Bools, Floats, Offsets

DRAWS = 96
"""Draws by which the errors of larger components are estimated: 1 % off."""
FOR_DISPERSION = 48
"""Those by which the dispersion is, and the errors where there are more items than VAST."""
VAST = 200_000
SMALL = 1000
"""So many parameters are the most of which the dispersion is worked out exactly."""
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
    """The posterior of n ratings. `theta` are those at its maximum, shape (n,), and `mean` its mean;
    `component` numbers the groups that comparisons connect (0: never judged). `loadings`, shape (n, p),
    are what an item's rating has of each covariate (None: nothing); they add up to 0 in each component,
    so that the ratings do. Draws are made by `seed`.
    """

    def __init__(
        self,
        rankings: Rankings,
        parameters: Floats,
        prior: Prior,
        component: Offsets,
        loadings: Floats | None = None,
        seed: int = 0,
    ) -> None:
        self.rankings = rankings
        self.prior = prior
        self._precision = prior.precision(rankings)
        self._loadings = loadings
        self._seed = seed
        self._batches: list[Values] = []
        self._rest = np.zeros(rankings.n)
        self.parameters = parameters
        self.sigma = prior.sigma
        self.component = component
        self.theta = self._reported(parameters[:, None])[:, 0]

    def _reported(self, vectors: Values) -> Values:
        """The items' ratings, shape (n, samples), of vectors of parameters."""
        items = vectors[: self.rankings.n]
        if self._loadings is None:
            return items
        whole: Values = items + self._loadings.astype(vectors.dtype) @ vectors[self.rankings.n :]
        return whole

    @cached_property
    def _gaussian(self) -> Gaussian:
        with self.rankings.threads():
            return nearest(self.rankings, self.parameters, self._precision, self._seed)

    @cached_property
    def mean(self) -> Floats:
        """The mean of each rating, shape (n,)."""
        mean: Floats = self._reported(self._gaussian.mean[:, None])[:, 0]
        return mean

    # Errors

    @property
    def errors(self) -> Floats:
        """The standard error of each rating, shape (n,); σ of an item that was never judged."""
        return self._errors(self._variance)

    def _errors(self, variance: Floats) -> Floats:
        """The standard errors by V's diagonal of the ratings, shape (n,)."""
        errors = np.sqrt(self.dispersion * np.maximum(variance - self._of_mean(), 0))
        return np.where(self.component > 0, errors, self.sigma)

    @property
    def effects(self) -> tuple[Floats, Floats]:
        """The mean and the standard error of each covariate's parameter, shape (p,)."""
        n = self.rankings.n
        errors = np.sqrt(self.dispersion * np.diagonal(self._of_covariates[n:]))
        return self._gaussian.mean[n:], errors

    @cached_property
    def _of_covariates(self) -> Floats:
        """The covariance of each parameter with those of the covariates, shape (n + p, p)."""
        n, p = self.rankings.n, self.rankings.p
        unit = np.concatenate([np.zeros((n, p)), np.eye(p)])
        with self.rankings.threads():
            return self._gaussian.curvature.solve(unit, 1e-6)

    @cached_property
    def dispersion(self) -> float:
        """φ; 1 until items are in two rankings on average, which say nothing of it before."""
        if not self.rankings.repeated:
            return 1.0
        scatter = Scatter()
        gaussian = self._gaussian
        with self.rankings.threads():
            if len(self._precision) <= SMALL:
                for part in self._parts(self.component > 0):
                    scatter.add(gaussian.curvature, gaussian.slopes, part)
            else:
                for draws in self._drawn(FOR_DISPERSION):
                    scatter.add_draws(gaussian.curvature, gaussian.slopes, draws)
        return scatter.dispersion

    @cached_property
    def _variance(self) -> Floats:
        """V's diagonal of the ratings, shape (n,)."""
        n = self.rankings.n
        variance = 1 / self._precision
        chosen = covariance.exact(self.component, self.rankings)
        with self.rankings.threads():
            for part in self._parts(chosen):
                variance[part.rows] = np.diagonal(part.covariance, axis1=1, axis2=2)
                if self._loadings is not None:
                    variance[:n] = self._loaded(part.covariance[0], self._loadings)
            variance = variance[:n]
            others = ~chosen & (self.component > 0)
            if others.any():
                variance[others] = self._variance_of_draws()[others]
        return variance

    def _parts(self, chosen: Bools) -> Iterator[covariance.Part]:
        return covariance.parts(self._gaussian.curvature, self.component, chosen)

    def _of_mean(self) -> Floats:
        """The variance of the mean of each item's component, shape (n,)."""
        count = np.bincount(self.component)
        return np.where(self.component > 0, self.sigma**2 / count[self.component], 0)

    def _loaded(self, matrix: Floats, load: Floats) -> Floats:
        """The variances of ratings by their loadings, of V in all parameters."""
        n = self.rankings.n
        variances: Floats = np.diagonal(matrix)[:n] + 2 * (matrix[:n, n:] * load).sum(axis=1)
        variances += ((load @ matrix[n:, n:]) * load).sum(axis=1)
        return variances

    def _variance_of_draws(self) -> Floats:
        """V's diagonal of the ratings by draws, shape (n,)."""
        self._drawn(self._draws)
        n = self.rankings.n
        return 1 / self._gaussian.curvature.diagonal[:n] + self._rest / self._draws

    # Draws

    @property
    def _draws(self) -> int:
        """How many draws errors are estimated by."""
        return DRAWS if self.rankings.n <= VAST else FOR_DISPERSION

    def _drawn(self, count: int) -> list[Values]:
        """Draws of parameters − their mean under the plain model (φ = 1), in parts of shape
        (n + p, TOGETHER), `count` of them or some more: which they are depends on the seed and their
        number alone. Of those for errors what Rao and Blackwell's trick needs is summed up."""
        curvature = self._gaussian.curvature
        inverse = (1 / curvature.diagonal[: self.rankings.n]).astype(np.float32)[:, None]
        while len(self._batches) * TOGETHER < count:
            b = curvature.noise(self._seed, "posterior", len(self._batches))
            x = curvature.solve(b)
            if len(self._batches) * TOGETHER < self._draws:
                rest = self._reported(x) - inverse * b[: self.rankings.n]
                self._rest += np.einsum("ij,ij->i", rest, rest)
            self._batches.append(x)
        return self._batches[: -(-count // TOGETHER)]

    def draws(self, count: int) -> Iterator[Values]:
        """Draws of the ratings from the posterior, spread by √φ, `count` of them or some more, as
        parts of shape (n, TOGETHER). Each component is centred, as its ratings are."""
        scale = np.float32(self.dispersion**0.5)
        with self.rankings.threads():
            parts = self._drawn(count)
        for part in parts:
            yield self.mean[:, None] + scale * self._centred(self._reported(part))

    def deviations(self, count: int) -> Values:
        """What draws are off the mean under the plain model (φ = 1), shape (n, count). They aren't
        centred: of components that nothing connects it isn't known how far they lie apart."""
        with self.rankings.threads():
            parts = self._drawn(count)
        return np.concatenate([self._reported(part) for part in parts], axis=1)[:, :count]

    def samples(self, count: int) -> Floats:
        """The same as one array, shape (count, n)."""
        return np.concatenate(list(self.draws(count)), axis=1).T[:count].astype(np.float64)

    def _centred(self, values: Values) -> Values:
        """Values of shape (n, samples) with mean 0 in each component of judged items."""
        centred: Values
        if (self.component == 1).all():
            centred = values - values.mean(axis=0, dtype=np.float64)
            return centred
        count = np.maximum(np.bincount(self.component), 1)
        sums = [np.bincount(self.component, column) for column in values.T.astype(np.float64)]
        shift = np.stack(sums, axis=1) / count[:, None]
        shift[0] = 0  # what was never judged is alone
        centred = values - shift[self.component]
        return centred

    # Two items, tiers

    def _covariances(self, rows: Offsets) -> Floats:
        """The covariance of each rating with that of the row of `rows` in its component, of which there
        is one at most, under the plain model (φ = 1); shape (n,)."""
        n, p = self.rankings.n, self.rankings.p
        load = np.zeros((n + p, 1))
        load[rows] = 1
        if self._loadings is not None:
            load[n:, 0] = self._loadings[rows].sum(axis=0)
        with self.rankings.threads():
            column = self._gaussian.curvature.solve(load, 1e-5)
        covariances: Floats = self._reported(column)[:, 0]
        if p and len(rows) > 1:
            # What covariates share between components is taken off: given these, they are independent.
            shared = self._reported(self._of_covariates)
            own = np.zeros((int(self.component.max()) + 1, p))
            own[self.component[rows]] = shared[rows]
            others = shared[rows].sum(axis=0) - own[self.component]
            covariances -= (shared @ np.linalg.inv(self._of_covariates[n:]) * others).sum(axis=1)
        return covariances

    def errors_from(self, rows: Offsets) -> Floats:
        """The standard error of each rating's distance from that of the item of `rows` in its component,
        of which there is one at most; shape (n,)."""
        covariances = self._covariances(rows)
        own = np.zeros(int(self.component.max(initial=0)) + 1)
        own[self.component[rows]] = covariances[rows]
        variance = self._variance
        between = variance + own[self.component] - 2 * covariances
        errors: Floats = np.sqrt(self.dispersion * np.maximum(between, 0))
        return errors

    def error_between(self, i: int, j: int) -> float:
        """The standard error of θi − θj of two items, given by their rows."""
        of_i, of_j = self._covariances(np.array([i])), self._covariances(np.array([j]))
        return float(np.sqrt(self.dispersion * max(of_i[i] + of_j[j] - 2 * of_i[j], 0.0)))

    def probability_above(self, i: int, j: int) -> float:
        """P(θi > θj) of two items, given by their rows."""
        if i == j:
            return 0.5
        error = self.error_between(i, j)
        return NormalDist().cdf(float(self.mean[i] - self.mean[j]) / error)
