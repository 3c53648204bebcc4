"""How sure the ratings are: the normal approximation of θ's posterior at its maximum (Laplace's).

With A = H + I/σ², H the Hessian of −log likelihood, and V = A⁻¹:

- The standard error of an item is √(φ·(V_ii − σ²/n_c)), n_c being the items of its component. What
  is taken off is the prior's doubt about the mean of all θ of the component, which is 0 by
  definition.
- φ corrects for what the model gets wrong about the judge: how far the rankings' gradients g_l
  scatter against how far they should, φ = Σ g_lᵀ V_l g_l / Σ [tr(V_l H_l) − tr((V_l H_l)²)], of the
  blocks of the rankings l. The subtrahend is what fitting takes off the residuals of a ranking (as
  1 − leverage does in regression; a sandwich estimator with one number).

V is exact in components of up to `covariance.EXACT` items. In larger ones it comes from draws x of
A x = b, where b has the covariance A (the likelihood's noise and z/σ of the prior), solved by
conjugate gradients: var x_i = 1/A_ii + E[(x_i − b_i/A_ii)²], whose second part alone is estimated
(Rao and Blackwell's trick).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from judgeq import seeds
from judgeq.rating import Fit, covariance, newton
from judgeq.rating.rankings import TOGETHER, Rankings, Values
from judgeq.types import Floats, Offsets

DRAWS = 100
"""Draws by which the errors of larger components are estimated: 0.5 % off, 2 % at most."""
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
    loadings: Floats | None = None,
) -> Fit:
    """The ratings at the maximum under a prior, with their posterior; arguments as of `newton.maximum`
    and `Posterior`. Raises NotConvergedError."""
    with rankings.threads():
        what = f"{what} (MAP, σ = {prior.sigma:g})"
        parameters = newton.maximum(rankings, prior.precision(rankings), start=start, what=what)
    posterior = Posterior(rankings, parameters, prior, component, loadings)
    return Fit(posterior.theta, posterior, chosen)


class Posterior:
    """The posterior of n ratings. `theta` are they, shape (n,); `component` numbers the groups that
    comparisons connect (0: never judged); `rankings` keep the curvature at the maximum, and `slopes`
    are the gradients there by block. `loadings`, shape (n, p), are what an item's rating has of each
    covariate (None: nothing). Draws are made by `seed`.
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
        self._rankings = rankings
        self._prior = prior
        self._precision = prior.precision(rankings)
        self._slopes = rankings.slopes(parameters)
        self._loadings = loadings
        self._seed = seed
        self.parameters = parameters
        self.sigma = prior.sigma
        self.component = component
        self.theta = self._reported(parameters[:, None])[:, 0]

    def _reported(self, vectors: Values) -> Values:
        """The items' ratings, shape (n, samples), of vectors of parameters."""
        items = vectors[: self._rankings.n]
        if self._loadings is None:
            return items
        whole: Values = items + self._loadings.astype(vectors.dtype) @ vectors[self._rankings.n :]
        return whole

    # Errors

    @property
    def dispersion(self) -> float:
        """φ; 1 where there are no rankings to tell it by."""
        return self._spread.dispersion

    @property
    def errors(self) -> Floats:
        """The standard error of each rating, shape (n,); σ of an item that was never judged."""
        return self._spread.errors

    @property
    def effect_errors(self) -> Floats:
        """The standard error of each covariate's parameter, shape (p,)."""
        return self._spread.effects

    @cached_property
    def _spread(self) -> _Spread:
        rankings, n = self._rankings, self._rankings.n
        variance = 1 / self._precision
        chosen = covariance.exact(self.component, rankings)
        scatter = _Scatter()
        with rankings.threads():
            for part in covariance.parts(rankings, self._precision, self.component, chosen):
                variance[part.rows] = np.diagonal(part.covariance, axis1=1, axis2=2)
                if self._loadings is not None:
                    variance[:n] = self._loaded(part.covariance[0], self._loadings)
                self._scattered(part, scatter)
            if not (chosen | (self.component == 0)).all():
                scatter = _Scatter()
                drawn = self._drawn(scatter)
                others = np.append(~chosen & (self.component > 0), np.full(rankings.p, True))
                variance[others] = drawn[others]
        whole = variance[:n].copy()
        variance[:n] -= self._of_mean()
        phi = scatter.dispersion if self._repeated else 1.0
        errors = np.sqrt(phi * np.maximum(variance, 0))
        errors[:n][self.component == 0] = self.sigma
        return _Spread(errors[:n], errors[n:], whole, phi)

    @property
    def _repeated(self) -> bool:
        return repeated(np.bincount(self._rankings.items, minlength=self._rankings.n))

    def _of_mean(self) -> Floats:
        """The variance of the mean of each item's component, shape (n,)."""
        count = np.bincount(self.component)
        if self._loadings is not None:
            return np.zeros(len(self.theta))
        return np.where(self.component > 0, self.sigma**2 / count[self.component], 0)

    def _loaded(self, matrix: Floats, load: Floats) -> Floats:
        """The variances of ratings by their loadings, of V in all parameters."""
        n = self._rankings.n
        across = (matrix[:n, n:] * load).sum(axis=1)
        variances: Floats = np.diagonal(matrix)[:n] + 2 * across
        variances += ((load @ matrix[n:, n:]) * load).sum(axis=1)
        return variances

    def _scattered(self, part: covariance.Part, scatter: _Scatter) -> None:
        """Add what the rankings of some components scatter, and should."""
        for (block, items, numbers), slope in zip(
            self._rankings.places(), self._slopes, strict=True
        ):
            lists = np.flatnonzero(part.number[items[0]] >= 0)
            at = items[:, lists].T
            if numbers is not None:
                p = numbers.shape[2]
                ends = np.broadcast_to(
                    np.arange(len(self.theta), len(self.theta) + p), (len(at), p)
                )
                at = np.concatenate([at, ends], axis=1)
            number, place = part.number[at[:, 0]], part.place[at]
            v = part.covariance[number[:, None, None], place[:, :, None], place[:, None, :]]
            if numbers is not None:
                eye = np.broadcast_to(np.eye(len(items)), (len(at), len(items), len(items)))
                slots = np.concatenate([eye, numbers[:, lists].transpose(1, 0, 2)], axis=2)
                v = slots @ v @ slots.transpose(0, 2, 1)
            product = v @ block.matrices()[lists]
            g = slope[:, lists].T
            scatter.observed += float(((v @ g[:, :, None])[:, :, 0] * g).sum())
            scatter.expected += float(np.trace(product, axis1=1, axis2=2).sum())
            scatter.expected -= float((product * product.transpose(0, 2, 1)).sum())

    def _drawn(self, scatter: _Scatter) -> Floats:
        """The variances by draws, shape (n + p,); those of ratings with their covariates."""
        rankings, n = self._rankings, self._rankings.n
        inverse = 1 / (rankings.diagonal() + self._precision)
        total, draws = np.zeros(len(inverse)), 0

        def scattered(curved: Any, part: Values, slope: Floats) -> tuple[float, float]:
            pull = (slope.T.astype(np.float32)[:, :, None] * part).sum(axis=1)
            bent = curved @ part
            of_one = (part * bent).sum(dtype=np.float64)
            of_two = (np.roll(part, 1, axis=2) * bent).sum(axis=1)
            return float((pull**2).sum(dtype=np.float64)), float(
                of_one - (of_two**2).sum(dtype=np.float64)
            )

        for x, b in self.deviations(DRAWS):
            for observed, expected in rankings.each(scattered, x, self._slopes):
                scatter.observed += observed
                scatter.expected += expected
            if self._loadings is None:
                rest = x - inverse.astype(np.float32)[:, None] * b
            else:
                rest = np.concatenate([self._reported(x), x[n:]])
            total += np.einsum("ij,ij->i", rest, rest)
            draws += x.shape[1]
        return total / draws + (inverse if self._loadings is None else 0)

    @property
    def low(self) -> Floats:
        """The lower end of each rating's 95 % interval, shape (n,)."""
        return self.theta - Z * self.errors

    @property
    def high(self) -> Floats:
        """The upper end, shape (n,)."""
        return self.theta + Z * self.errors

    # Draws

    def deviations(self, count: int, name: str = "posterior") -> Iterator[tuple[Values, Values]]:
        """Draws of parameters − their maximum under the plain model (φ = 1), by conjugate gradients to
        1e−3, and the b that each solves; parts of shape (n + p, TOGETHER or fewer), of single precision.
        Which they are depends on the seed, `name` and their number alone.
        """
        rankings = self._rankings
        root = np.sqrt(self._precision).astype(np.float32)[:, None]
        for batch in range(0, count, TOGETHER):
            samples = min(TOGETHER, count - batch)
            generators = [
                seeds.rng(self._seed, name, batch, block) for block in range(len(rankings.blocks))
            ]
            b = rankings.noise(generators, samples)
            rng = seeds.rng(self._seed, name, batch, "prior")
            b += root * rng.standard_normal(b.shape, dtype=np.float32)
            yield newton.solve(rankings, self._precision, b), b

    def draws(self, count: int, name: str = "posterior") -> Iterator[Values]:
        """Draws of the ratings from the posterior, spread by √φ, as parts of shape (n, samples). Each
        component is centred, as its ratings are."""
        scale = self.dispersion**0.5
        with self._rankings.threads():
            for parts, _ in self.deviations(count, name):
                off = self._centred(self._reported(parts))
                yield self.theta[:, None] + scale * off

    def samples(self, count: int, name: str = "posterior") -> Floats:
        """The same as one array, shape (count, n)."""
        return np.concatenate(list(self.draws(count, name)), axis=1).T.astype(np.float64)

    def _centred(self, values: Values) -> Values:
        """Values of shape (n, samples) with mean 0 in each component of judged items."""
        centred: Values
        if self._loadings is not None or (self.component == 1).all():
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
        """The covariance of each rating with those of `rows` in its component, one of each, under the
        plain model (φ = 1); shape (n,)."""
        load = np.zeros((len(self._precision), 1))
        load[rows] = 1
        if self._loadings is not None:
            load[self._rankings.n :, 0] = self._loadings[rows].sum(axis=0)
        with self._rankings.threads():
            column = newton.solve(self._rankings, self._precision, load, 1e-6)
        covariances: Floats = self._reported(column)[:, 0]
        return covariances

    def errors_from(self, rows: Offsets) -> Floats:
        """The standard error of each rating's distance from that of the item of `rows` in its component,
        of which there is one at most; shape (n,)."""
        covariances = self._covariances(rows)
        own = np.zeros(int(self.component.max(initial=0)) + 1)
        own[self.component[rows]] = covariances[rows]
        variance = self._spread.variance
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
        return NormalDist().cdf(float(self.theta[i] - self.theta[j]) / error)


@dataclass(slots=True)
class _Scatter:
    """How far the rankings' gradients scatter, and should if the model held."""

    observed: float = 0.0
    expected: float = 0.0

    @property
    def dispersion(self) -> float:
        """φ."""
        return self.observed / self.expected if self.expected > 0 else 1.0


@dataclass(frozen=True, slots=True, eq=False)
class _Spread:
    """Standard errors of ratings and of covariates, φ included; V's diagonal of the ratings; and φ."""

    errors: Floats
    effects: Floats
    variance: Floats
    dispersion: float


def repeated(matches: Offsets) -> bool:
    """Whether judged items, of which each was in so many rankings, were in two on average: only then do
    the rankings say how far they scatter, and how wide the prior is."""
    judged = matches[matches > 0]
    return bool(len(judged)) and float(judged.mean()) >= 2
