"""How sure the ratings are: a normal distribution by the curvature A of the posterior at its maximum.

With V = A⁻¹ and φ the dispersion of the judge (`Curvature`), the standard error of an item is
√(φ·(V_ii − σ²/n_c)), n_c being the items of its component. What is taken off is the prior's doubt
about the mean of all θ of the component, which is 0 by definition.

At its maximum a posterior of logistic terms is skew: items at the ends have longer tails outwards,
and the curvature there says too little of how wide it is. The nearest normal distribution (Opper
and Archambeau 2009) is about as much farther out and wider as `further` and `wider` say by V:
functions fitted to it over pairs and lists of 5 and 10, of 2 to 15 rounds, θ of sd 0.7 to 4 and σ
from 1 to 6. Means are within 0.1 of an error of it, and errors 2 % wider on average.
"""

from __future__ import annotations

import math
from functools import cached_property
from statistics import NormalDist

import numpy as np

from judgeq.rating.curvature import Curvature, Rankings, Scatter, dot
from judgeq.rating.prior import Prior, further, wider
from judgeq.types import Floats, Offsets

LEVEL = 0.95
Z = NormalDist().inv_cdf((1 + LEVEL) / 2)
FREER = 2.0
"""By what the prior of intervals is wider than σ: without it they would cover the most extreme
tenth of the items in 77 % of cases."""


class Posterior:
    """The posterior of n ratings. `theta` are those at its maximum, shape (n,); `component` numbers
    the groups that comparisons connect (0: never judged). `loadings`, shape (n, p), are what an item's
    rating has of each covariate (None: nothing); they add up to 0 in each component, so that the
    ratings do. With `share` the rating is what the covariates lead to expect and that share of what the
    items have beyond it (hybrid.py); the rest of it, of spread σ, is doubt. With `centred`
    the covariates are means of batches (placing.py), and the 0 of an item's scale is the mean of so many
    items, shape (n,) (inf: it is settled); `earlier` is how far rankings scattered that φ is pooled
    with."""

    def __init__(
        self,
        rankings: Rankings,
        parameters: Floats,
        prior: Prior,
        component: Offsets,
        loadings: Floats | None = None,
        share: float | None = None,
        *,
        centred: Floats | None = None,
        earlier: Scatter | None = None,
    ) -> None:
        self.rankings, self.parameters = rankings, parameters
        self.prior, self.sigma = prior, prior.sigma
        self.component, self.share = component, share
        self._scale = 1.0 if share is None else share
        self._apart = self._scale * (1 - self._scale) * self.sigma**2
        self._loadings = np.zeros((rankings.n, rankings.p)) if loadings is None else loadings
        of_items = self._scale * parameters[: rankings.n]
        expected = self._loadings @ parameters[rankings.n :]
        self.theta: Floats = of_items + expected
        self._earlier, self._centred = earlier or Scatter(), centred
        self._middle = 0.0 if centred is None else expected

    @cached_property
    def _curved(self) -> tuple[Curvature, list[Floats]]:
        """The curvature at the maximum, and the rankings' gradients there by block, (k, rankings)."""
        slopes = self.rankings.slopes(self.parameters)
        return Curvature(self.rankings, self.prior.precision(self.rankings)), slopes

    @cached_property
    def dispersion(self) -> float:
        """φ: how far all rankings scatter, against how far they should if the model held."""
        both = zip(self.scatter, self._earlier, strict=True)
        return Scatter(*(own + earlier for own, earlier in both)).dispersion

    @cached_property
    def scatter(self) -> Scatter:
        """How far these rankings scatter, which say nothing of it until items are in two on average."""
        curvature, slopes = self._curved
        return curvature.scatter(slopes) if self.rankings.repeated else Scatter()

    @property
    def mean(self) -> Floats:
        """The mean of what each rating may be, shape (n,): intervals lie around it."""
        own = self.theta - self._middle
        return self._middle + own * further(self._variance, self.rankings.size)

    @property
    def errors(self) -> Floats:
        """The standard error of each rating, shape (n,); σ of an item that was never judged."""
        return self._errors(self._variance * (1 - 1 / self._size))

    @property
    def errors_apart(self) -> Floats:
        """Standard errors by which ratings of a component differ as far as they do, on average, where
        all are taken for independent, shape (n,)."""
        return self._errors(self._variance)

    @property
    def errors_across(self) -> Floats:
        """As `errors_apart`, with the doubt about how far apart components lie that nothing connects."""
        judged = max(int((self.component > 0).sum()), 1)
        across = self.dispersion * self.sigma**2 * (1 / self._size - 1 / judged)
        return np.sqrt(self.errors_apart**2 + np.maximum(across, 0))

    @property
    def interval(self) -> tuple[Floats, Floats]:
        """The 95 % interval of each rating, each of shape (n,), with most of the prior's pull to the
        middle taken out: as if σ were twice as wide. So it covers items far out nearly as often as
        others; it reaches as far as the rating itself. What direct scores lead to expect is no pull."""
        pull = np.minimum(self._wider**2 * self._variance / self.sigma**2, 1)
        pull[(self.component == 0) | (self.share is not None)] = 0
        freed = 1 / (1 - pull * (1 - 1 / FREER**2))
        middle = self._middle + (self.mean - self._middle) * freed
        reach = Z * self.errors * np.sqrt(freed)
        return np.minimum(middle - reach, self.theta), np.maximum(middle + reach, self.theta)

    def probability_above(self, i: int, j: int) -> float:
        """P(θi > θj) of two items, given by their rows."""
        apart = float(np.hypot(*self.errors_apart[[i, j]]))
        return 0.5 if i == j else NormalDist().cdf(float(self.mean[i] - self.mean[j]) / apart)

    def covariance(self, rows: Offsets) -> Floats:
        """V between some ratings, shape (a, a), without φ; what the prior leaves open about the mean of
        all that were judged is taken off, unless the scale is settled."""
        curvature = self._curved[0]
        v = curvature.covariance(rows)
        if self._centred is None:
            v -= self.sigma**2 / max(int((self.component > 0).sum()), 1)
        if self.rankings.p:
            shared, spread = curvature.shared
            through = self._loadings[rows] - shared[rows]
            v = v + through @ spread @ through.T
        whole: Floats = v
        return whole

    def error_of_mean(self, rows: Offsets) -> float:
        """The standard error of the mean of some ratings."""
        load = np.zeros(len(self.parameters))
        load[rows] = 1 / len(rows)
        load[self.rankings.n :] = self._loadings[rows].mean(axis=0)
        variance = dot(load, self._curved[0].solve(load, 1e-5))
        variance -= self.sigma**2 * float((1 / self._size[rows]).mean())
        return math.sqrt(self.dispersion * max(variance, 0.0))

    @property
    def _size(self) -> Floats:
        """The items of each item's component, 2 at least, shape (n,)."""
        if self._centred is not None:
            return self._centred
        return np.maximum(np.bincount(self.component), 2.0)[self.component]

    @cached_property
    def _variance(self) -> Floats:
        """s/(s − 1)·(V_ii − σ²/s) of the ratings in a component of s, shape (n,): σ² where nothing is
        known."""
        curvature, size = self._curved[0], self._size
        variance = self._scale**2 * (curvature.variance - self.sigma**2 / size)
        if self.rankings.p:
            shared, spread = curvature.shared
            through = self._loadings - self._scale * shared
            variance += ((through @ spread) * through).sum(axis=1)
        whole: Floats = np.maximum(variance, 0) / (1 - 1 / size)
        return whole

    def _errors(self, variance: Floats) -> Floats:
        errors = np.sqrt(self._wider**2 * self.dispersion * variance + self._apart)
        return np.where(self.component > 0, errors, self.sigma)

    @property
    def _wider(self) -> Floats:
        """By what the posterior is wider than its curvature says, shape (n,)."""
        return wider(self._variance, self.sigma)
