"""How sure the ratings are: a normal distribution by the curvature A of the posterior at its maximum;
and how wide the prior is, chosen without labels.

With V = A⁻¹ and φ the dispersion of the judge (`Curvature`), the standard error of an item is
√(φ·(V_ii − σ²/n_c)), n_c being the items of its component. What is taken off is the prior's doubt
about the mean of all θ of the component, which is 0 by definition.

At its maximum a posterior of logistic terms is skew: items at the ends have longer tails outwards,
and the curvature there says too little of how wide it is. The nearest normal distribution (Opper
and Archambeau 2009) is about as much farther out and wider as `further` and `wider` say by V:
functions fitted to it over pairs and lists of 5 and 10, of 2 to 15 rounds, θ of sd 0.7 to 4 and σ
from 1 to 6. Means are within 0.1 of an error of it, and errors 2 % wider on average.

σ is that of the highest evidence: log p(data | σ) ≈ E[ℓ] − E‖θ‖²/2σ² − n log σ − ½ log|H + σ⁻²|, near
the maximum under σ (MacKay 1992), of lists chosen from the top: that is a probability of all that a
judge may say, which the mean of both directions isn't (it found 0.9 for 0.5). Laplace's evidence has ℓ
and θ at the maximum itself, which is too low where an item has few comparisons, the more the wider the
prior is. Here they are means over draws of independent normal distributions, about as far out and as
wide as the posterior: the same for every σ, so that they compare. Until items are in two rankings on
average these say next to nothing of σ: it isn't looked for, and the posterior is averaged over what σ is
expected to be (`AveragedPosterior`).

An item's score is the mean of its posterior, by which it is ranked. It stays right for items that were
selected for their high scores (Efron 2011, "Tweedie's formula and selection bias").
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property
from statistics import NormalDist

import numpy as np
from numpy.polynomial.hermite_e import hermegauss

from judgeq import seeds
from judgeq.rating import LIMITS, UNKNOWN, curvature
from judgeq.rating.curvature import Curvature, Rankings, dispersion, dot
from judgeq.types import Bools, Floats, Offsets

LEVEL = 0.95
Z = NormalDist().inv_cdf((1 + LEVEL) / 2)
FREER = 2.0
"""By what the prior of an interval's outer end is wider than σ: insurance against a prior that is too
narrow for items far out."""
DRAWS, ENOUGH = 4, 40_000
"""Draws and their opposites; fewer where all of them have over ENOUGH items."""
SPREAD = 0.7
"""What is expected of σ before any judgment, as the sd of log σ about log UNKNOWN: where similar
texts were matched from the first answers on, judgments alone leave it open by a factor of ten."""
NODES = 5
"""Values of σ that stand for all that it may be, where nothing tells it. By three of them intervals are
7 % wider, by seven the same within 1 %."""
QUANTILE_STEPS = 20
"""Halvings of the range in which a quantile lies: it is found to a millionth of it."""
_STEP = math.sqrt(2)
_TABLE = np.linspace(-8, 8, 4001)
_CDF = np.array([NormalDist().cdf(x) for x in _TABLE.tolist()])


def normal_cdf(z: Floats) -> Floats:
    """Return the standard normal distribution function of z, 1e−6 off at most."""
    values: Floats = np.interp(z, _TABLE, _CDF)
    return values


def further(v: Floats, size: float) -> Floats:
    """By what the mean of a rating is farther out than the maximum, by its variance there, in
    rankings of `size` items."""
    factor: Floats = 1 + (0.14 + 0.2 / max(size, 2.0)) * v / (1 + 0.4 * v)
    return factor


def wider(v: Floats, sigma: float) -> Floats:
    """By what its standard error is larger than the curvature at the maximum says."""
    factor: Floats = 1 + 0.17 * v * np.maximum(1 - v / sigma**2, 0) * np.exp(-v / 2)
    return factor


@dataclass(eq=False)
class Posterior:
    """The posterior of n ratings, by the `parameters` at its maximum under a prior of `sigma`."""

    rankings: Rankings
    parameters: Floats
    sigma: float
    component: Offsets  # numbers the groups that comparisons connect (0: never judged), shape (n,)
    # What an item's rating has of each covariate, shape (n, p); they add up to 0 in each component, so
    # that the ratings do.
    loadings: Floats
    # The rating is what the covariates lead to expect and this share of what the items have beyond it
    # (direct.py); the rest of it, of spread σ, is doubt. None: all of it counts.
    share: float | None = None
    # Where covariates are means of batches (placing.py), the 0 of an item's scale is the mean of so many
    # items, shape (n,) (inf: it is settled).
    centred: Floats | None = None
    earlier: Floats | None = None  # the scatter that φ is pooled with, shape (2,)

    @cached_property
    def theta(self) -> Floats:
        """Return θ at the maximum, shape (n,): where fits start, and no scores (`mean`)."""
        return self._scale * self.parameters[: self.rankings.n] + self._expected

    @cached_property
    def curvature(self) -> Curvature:
        """That at the maximum."""
        return Curvature(self.rankings, self.parameters, self.rankings.precision(self.sigma))

    @cached_property
    def dispersion(self) -> float:
        """φ: how far all rankings scatter, against how far they should if the model held."""
        return dispersion(self.scatter + (0 if self.earlier is None else self.earlier))

    @property
    def scatter(self) -> Floats:
        """How far these rankings scatter, which say nothing of it until items are in two on average."""
        return self._known[1]

    def dispersion_of(self, items: Bools) -> float:
        """φ of some items alone, a mask of shape (n,): they may scatter more than others."""
        if not self.rankings.repeated:
            return self.dispersion
        return dispersion(self.curvature.scatter(items))

    @property
    def is_repeated(self) -> bool:
        """Whether the answers repeat often enough to tell how reliable they are: these, or earlier ones
        that they are pooled with."""
        return self.rankings.repeated or (self.earlier is not None and bool(self.earlier.any()))

    @cached_property
    def mean(self) -> Floats:
        """Return the mean of what each rating may be, shape (n,): the scores.

        The 0 of a scale is the mean of a component, or of its first batch; items placed onto settled
        ones have the 0 of these.
        """
        own = self.theta - self._middle
        mean: Floats = self._middle + own * further(self._variance, self.rankings.size)
        is_base = self.component > 0
        if self.centred is not None:
            is_base &= np.isfinite(self.centred) & ~self.loadings.any(axis=1)
        count = np.bincount(self.component, is_base)
        off = np.bincount(self.component, np.where(is_base, mean, 0)) / np.maximum(count, 1)
        return mean - off[self.component]

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
        across = self.dispersion * self.sigma**2 * (1 / self._size - 1 / self._judged)
        return np.sqrt(self.errors_apart**2 + np.maximum(across, 0))

    @property
    def interval(self) -> tuple[Floats, Floats]:
        """Return the ends of the 95 % interval of each rating, each of shape (n,).

        The end towards the middle is the score less 1.96 standard errors. The outer end is that of a
        prior FREER times as wide, with most of its pull taken out: items far out are covered nearly as
        often as others. What direct scores lead to expect is no pull.
        """
        wide = wider(self._variance, self.sigma)
        pull = np.minimum(wide**2 * self._variance / self.sigma**2, 1)
        pull[(self.component == 0) | (self.share is not None)] = 0
        freed = 1 / (1 - pull * (1 - 1 / FREER**2))
        off = self.mean - self._middle
        outer = np.abs(off) * freed + Z * self.errors * np.sqrt(freed)
        inner = np.abs(off) - Z * self.errors
        is_above = off >= 0
        low = np.where(is_above, inner, -outer)
        high = np.where(is_above, outer, -inner)
        return self._middle + low, self._middle + high

    def probability_above(self, i: int, j: int) -> float:
        """P(θi > θj) of two items, given by their rows."""
        apart = float(np.hypot(*self.errors_apart[[i, j]]))
        return 0.5 if i == j else NormalDist().cdf(float(self.mean[i] - self.mean[j]) / apart)

    def covariance(self, rows: Offsets) -> Floats:
        """V between some ratings, shape (a, a), without φ; what the prior leaves open about the mean of
        all that were judged is taken off, unless the scale is settled."""
        curvature = self.curvature
        v = curvature.covariance(rows)
        if self.centred is None:
            # Of many items V has no rows that add up to σ², but its diagonal alone.
            of_judged = curvature.variance[self.component > 0]
            v -= (self.sigma**2 if curvature.exact else of_judged.mean()) / self._judged
        shared, spread = curvature.shared
        through = self.loadings[rows] - shared[rows]
        whole: Floats = v + through @ spread @ through.T
        return whole

    def squares(self, rows: Offsets) -> Floats:
        """Return the expected squares of some items' own parameters, beyond what covariates lead to
        expect, shape (a,), without φ."""
        own, shared, spread = self.parameters[rows], *self.curvature.shared
        variance = self.curvature.variance[rows]
        variance = variance + ((shared[rows] @ spread) * shared[rows]).sum(axis=1)
        farther = own * further(variance, self.rankings.size)
        squares: Floats = farther**2 + wider(variance, self.sigma) ** 2 * variance
        return squares

    def error_of_mean(self, rows: Offsets) -> float:
        """The standard error of the mean of some ratings."""
        load = np.zeros(len(self.parameters))
        load[rows] = 1 / len(rows)
        load[self.rankings.n :] = self.loadings[rows].mean(axis=0)
        variance = dot(load, self.curvature.solve(load, 1e-5))
        variance -= self.sigma**2 * float((1 / self._size[rows]).mean())
        return math.sqrt(self.dispersion * max(variance, 0.0))

    @property
    def _scale(self) -> float:
        return 1.0 if self.share is None else self.share

    @property
    def _expected(self) -> Floats:
        """What the covariates lead to expect."""
        return self.loadings @ self.parameters[self.rankings.n :]

    @property
    def _middle(self) -> Floats:
        """What the prior draws a rating to."""
        return np.zeros(self.rankings.n) if self.centred is None else self._expected

    @cached_property
    def _size(self) -> Floats:
        """The items of each item's component, 2 at least, shape (n,)."""
        if self.centred is not None:
            return self.centred
        return np.maximum(np.bincount(self.component), 2.0)[self.component]

    @property
    def _judged(self) -> int:
        return max(int(np.count_nonzero(self.component)), 1)

    @property
    def _variance(self) -> Floats:
        """s/(s − 1)·(V_ii − σ²/s) of the ratings in a component of s, shape (n,): σ² where nothing is
        known."""
        return self._known[0]

    @cached_property
    def _known(self) -> tuple[Floats, Floats]:
        """`_variance` and `scatter`, together: then the curvature of many items, which is large, is let
        go of."""
        curvature, size = self.curvature, self._size
        scatter = curvature.scatter() if self.rankings.repeated else np.zeros(2)
        shared, spread = curvature.shared
        through = self.loadings - self._scale * shared
        variance = self._scale**2 * (curvature.variance - self._doubt(curvature) / size)
        variance += ((through @ spread) * through).sum(axis=1)
        if not curvature.exact:
            del self.curvature
        return np.maximum(variance, 0) / (1 - 1 / size), scatter

    def _doubt(self, curvature: Curvature) -> Floats | float:
        """Return the part of V that is the prior's doubt about the mean of a component, times its size.

        Exact V holds all of it: σ². The closed form of many items holds of it only what leads from an
        item back to itself by two steps: about as much as an item's own variance.
        """
        if curvature.exact:
            return self.sigma**2
        part = self.component
        mean: Floats = np.bincount(part, curvature.variance) / np.maximum(np.bincount(part), 1)
        return np.minimum(mean[part], self.sigma**2)

    def _errors(self, variance: Floats) -> Floats:
        """Those of ratings of some variance by the curvature, which the posterior is `wider` than."""
        known = wider(self._variance, self.sigma) ** 2 * self.dispersion * variance
        known += self._scale * (1 - self._scale) * self.sigma**2
        return np.where(self.component > 0, np.sqrt(known), self.sigma)


@dataclass(frozen=True, slots=True, eq=False)
class WeightedErrors:
    """What a posterior under one σ says of n ratings; arrays of shape (n,), named as in `Posterior`."""

    weight: float  # of this σ; those of all add up to 1
    mean: Floats
    errors: Floats
    errors_apart: Floats
    errors_across: Floats


@dataclass(eq=False)
class AveragedPosterior(Posterior):
    """A posterior where nothing tells σ, averaged over what is expected of it before any judgment.

    That is a mean over NODES values of σ (Gauss-Hermite quadrature of log σ, of sd SPREAD about log
    `sigma`). What it says of covariates, of φ and of the maximum is by `sigma` alone.
    """

    @cached_property
    def by_sigma(self) -> Sequence[WeightedErrors]:
        """Return what the posterior says under each value of σ."""
        found = []
        for weight, posterior in self._posteriors():
            errors = posterior.errors, posterior.errors_apart, posterior.errors_across
            found.append(WeightedErrors(weight, posterior.mean, *errors))
        return found

    @cached_property
    def mean(self) -> Floats:
        """Return the mean of what each rating may be, whatever σ is, shape (n,)."""
        return self._averaged([of.mean for of in self.by_sigma])

    @cached_property
    def errors(self) -> Floats:
        """Return the standard deviation of what each rating may be, whatever σ is, shape (n,)."""
        return self._pooled([of.errors for of in self.by_sigma])

    @cached_property
    def errors_apart(self) -> Floats:
        """Return `Posterior.errors_apart`, whatever σ is, shape (n,)."""
        return self._pooled([of.errors_apart for of in self.by_sigma])

    @cached_property
    def errors_across(self) -> Floats:
        """Return `Posterior.errors_across`, whatever σ is, shape (n,)."""
        return self._pooled([of.errors_across for of in self.by_sigma])

    @property
    def interval(self) -> tuple[Floats, Floats]:
        """Return the ends of the interval that holds the middle 95 % of what each rating may be."""
        means = np.array([of.mean for of in self.by_sigma])
        errors = np.array([of.errors for of in self.by_sigma])
        tail = (1 - LEVEL) / 2
        low, high = (
            averaged_quantile(means, errors, errors, self._weights, level)
            for level in (tail, 1 - tail)
        )
        return low, high

    def probability_above(self, i: int, j: int) -> float:
        """Return P(θi > θj) of two items, given by their rows."""
        if i == j:
            return 0.5
        total = 0.0
        for of in self.by_sigma:
            apart = float(np.hypot(*of.errors_apart[[i, j]]))
            total += of.weight * NormalDist().cdf(float(of.mean[i] - of.mean[j]) / apart)
        return total

    def covariance(self, rows: Offsets) -> Floats:
        """Return V between some ratings, whatever σ is, shape (a, a): with how far their means differ by
        σ."""
        total = np.zeros((len(rows), len(rows)))
        for weight, posterior in self._posteriors():
            off = posterior.mean[rows] - self.mean[rows]
            total += weight * (posterior.covariance(rows) + np.outer(off, off))
        return total

    @property
    def _weights(self) -> Floats:
        return np.array([of.weight for of in self.by_sigma])

    def _averaged(self, values: Sequence[Floats]) -> Floats:
        """Return the weighted mean of arrays by σ."""
        mean: Floats = self._weights @ np.array(values)
        return mean

    def _pooled(self, errors: Sequence[Floats]) -> Floats:
        """Return the standard deviation of all that ratings may be, from the errors by σ."""
        squares = [
            error**2 + (of.mean - self.mean) ** 2
            for of, error in zip(self.by_sigma, errors, strict=True)
        ]
        return np.sqrt(self._averaged(squares))

    def _posteriors(self) -> Iterator[tuple[float, Posterior]]:
        """Yield the posterior under each value of σ, after its weight."""
        points, weights = hermegauss(NODES)
        values = {field.name: getattr(self, field.name) for field in fields(Posterior)}
        for point, weight in zip(points.tolist(), (weights / weights.sum()).tolist(), strict=True):
            sigma = self.sigma * math.exp(SPREAD * point)
            best = curvature.maximum(self.rankings, sigma, start=self.parameters)
            values |= {"parameters": best.parameters, "sigma": sigma}
            yield weight, Posterior(**values)


def averaged_quantile(
    centers: Floats, below: Floats, above: Floats, weights: Floats, level: float
) -> Floats:
    """Return a quantile of weighted mixtures of normal distributions, shape (n,).

    Each of the parts, arrays of shape (parts, n), has one standard deviation `below` its center and one
    `above` it.
    """
    z = NormalDist().inv_cdf(level)
    of_parts = centers + z * (below if z < 0 else above)
    low, high = of_parts.min(axis=0), of_parts.max(axis=0)
    for _ in range(QUANTILE_STEPS):
        middle = (low + high) / 2
        off = middle - centers
        reached = weights @ normal_cdf(off / np.where(off < 0, below, above)) >= level
        low = np.where(reached, low, middle)
        high = np.where(reached, middle, high)
    quantile: Floats = (low + high) / 2
    return quantile


# How wide the prior is


def choose_sigma(rankings: Rankings) -> tuple[float, Floats]:
    """σ within LIMITS, and the parameters under a σ near it, from which a fit may start, shape (n + p,).

    Climbed to from UNKNOWN by steps of √2; between them it is where the parabola of log σ through the
    best one and its neighbours is highest. Raises NotConvergedError.
    """
    start: Floats = np.zeros(rankings.n + rankings.p)
    lowest, highest = (round(math.log(limit / UNKNOWN, _STEP)) for limit in LIMITS)

    @cache
    def at(step: int) -> float:
        nonlocal start
        if not lowest <= step <= highest:
            return -math.inf
        sigma = UNKNOWN * _STEP**step
        best = curvature.maximum(rankings, sigma, 1e-4, start)
        start = best.parameters
        return evidence(best, sigma) - (step * math.log(_STEP) / SPREAD) ** 2 / 2

    best = 0
    for way in (1, -1):
        while at(best + way) > at(best):
            best += way
    if best in (lowest, highest):
        return LIMITS[best == highest], start
    below, above = (at(best) - at(best + way) for way in (-1, 1))
    return UNKNOWN * _STEP ** (best + (below - above) / (2 * (below + above) or 1)), start


def evidence(best: Curvature, sigma: float) -> float:
    """The evidence of σ, up to a constant, by the posterior's curvature at the maximum under it."""
    rankings, parameters, precision = best.rankings, best.parameters, best.precision
    v, of_items = 1 / best.diagonal, np.arange(len(parameters)) < rankings.n
    far = np.where(of_items, further(v, rankings.size), 1)
    wide = np.where(of_items, wider(v, sigma), 1)
    draws = max(1, min(DRAWS, ENOUGH // (2 * len(parameters))))
    off = seeds.rng(0, "evidence").standard_normal((draws, len(parameters))) * wide * np.sqrt(v)
    losses = [
        rankings.loss(x) + dot(x, precision * x) / 2
        for x in np.stack([far * parameters + off, far * parameters - off], axis=1).reshape(
            -1, len(v)
        )
    ]
    spread = np.log(precision).sum() - best.log_determinant()
    return float(spread / 2 + np.log(wide).sum()) - math.fsum(losses) / len(losses)
