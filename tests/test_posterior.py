from __future__ import annotations

import math
from itertools import pairwise
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from judgeq.errors import NotConvergedError
from judgeq.rating import (
    Fit,
    Parameters,
    bradley_terry,
    curvature,
    newton,
    plackett_luce,
)
from judgeq.rating.comparisons import components
from judgeq.rating.curvature import Curvature
from judgeq.rating.intervals import intervals, ranks
from judgeq.rating.posterior import Posterior, Prior
from judgeq.types import Floats, Verdicts
from tests.build import Ranking, dense, verdicts

SIGMA = 2.0


def lists(n: int, k: int, rounds: int, seed: int, spread: float = 2.0) -> Verdicts:
    """Random lists of k over n items, ranked with Gumbel's noise."""
    random = np.random.default_rng(seed)
    truth = random.normal(0, spread, n)
    many: list[Ranking] = []
    for _ in range(rounds):
        for items in np.array_split(random.permutation(n), n // k):
            noisy = truth[items] + random.gumbel(size=len(items))
            many.append(items[np.argsort(-noisy)].tolist())
    return verdicts(many)


def posterior_of(fit: Fit) -> Posterior:
    assert isinstance(fit.posterior, Posterior)
    return fit.posterior


def posterior_and_matrix(posterior: Posterior) -> tuple[Floats, Floats]:
    """V, the inverse of the whole curvature, and by what errors are wider than it says, item by item."""
    rankings, parameters = posterior.rankings, posterior.parameters
    rankings.gradient(parameters)
    kept = Curvature(rankings, posterior.prior.precision(rankings))
    v: Floats = np.linalg.inv(dense(kept)).astype(np.float64)
    sizes = np.maximum(np.bincount(posterior.component), 2)[posterior.component]
    sigma = posterior.sigma
    own = np.maximum(np.diag(v)[: rankings.n] - sigma**2 / sizes, 0) * sizes / (sizes - 1)
    wider: Floats = 1 + 0.17 * own * np.maximum(1 - own / sigma**2, 0) * np.exp(-own / 2)
    return v, wider


def of_lists(*about: Any, sigma: float = SIGMA) -> Posterior:
    """Of `lists` of these arguments, by `pl`."""
    judged = lists(*about)
    return posterior_of(plackett_luce.fit(judged, about[0], Parameters(sigma=sigma)))


# The normal distribution itself


def test_two_items_by_quadrature() -> None:
    """Of d = θ0 − θ1 after three wins of 0, under N(0, 2σ²): mean and spread are nearly those of the
    posterior itself, which is skew: a normal distribution of its mean and spread has 0.916 of 0.923."""
    posterior = posterior_of(bradley_terry.fit(verdicts([(0, 1)] * 3), 2, Parameters(sigma=1.0)))
    d = np.linspace(-15, 15, 200_001)
    density = np.exp(-3 * np.log1p(np.exp(-d)) - d**2 / 4)
    density /= density.sum()
    mean = float((d * density).sum())
    spread = math.sqrt(float(((d - mean) ** 2 * density).sum()))
    assert posterior.mean[0] - posterior.mean[1] == pytest.approx(mean, abs=0.05)
    assert posterior.error_between(0, 1) == pytest.approx(spread, rel=0.05)
    # Each is half of d, since their mean is 0.
    assert_allclose(posterior.errors, spread / 2, rtol=0.05)
    above = float(density[d > 0].sum())
    assert posterior.probability_above(0, 1) == pytest.approx(above, abs=0.015)
    assert posterior.probability_above(1, 0) == pytest.approx(1 - above, abs=0.015)
    assert posterior.probability_above(1, 1) == 0.5


@pytest.mark.parametrize(("k", "rounds", "sigma"), [(10, 3, 2.0), (5, 4, 4.0), (2, 10, 2.0)])
def test_means_and_errors_are_near_those_of_the_posterior(
    k: int, rounds: int, sigma: float
) -> None:
    """By a Markov chain of the test's own (Metropolis steps of one item each, all lists apart at once
    being rare): of items at the ends the means lie farther out than the maximum."""
    n = 40
    posterior = of_lists(n, k, rounds, 3, 2.5, sigma=sigma)
    means, spreads = by_chain(posterior, 6_000)
    # With φ = 1, which the chain knows nothing of.
    errors = posterior.errors / posterior.dispersion**0.5
    off = (posterior.mean - means) / spreads
    assert np.sqrt((off**2).mean()) < 0.15
    assert np.sqrt((((posterior.theta - means) / spreads) ** 2).mean()) > 0.15
    ratio = errors / spreads
    assert 0.97 < np.median(ratio) < 1.1
    assert ratio.min() > 0.85
    assert ratio.max() < 1.3


def by_chain(posterior: Posterior, steps: int) -> tuple[Floats, Floats]:
    """The mean and spread of each rating less their mean, by many chains of Langevin steps with the
    curvature at the maximum for their metric, accepted by Metropolis and Hastings."""
    rankings, precision = posterior.rankings, posterior.prior.precision(posterior.rankings)
    v, _ = posterior_and_matrix(posterior)
    root, random = np.linalg.cholesky(v), np.random.default_rng(0)
    scale = 0.9 / len(v) ** (1 / 6)

    def at(x: Floats) -> tuple[float, Floats]:
        value: float = rankings.loss(x) + float(precision @ (x * x)) / 2
        return value, x - scale**2 / 2 * (v @ (rankings.gradient(x) + precision * x))

    def back(x: Floats, middle: Floats) -> float:
        off = np.linalg.solve(root, x - middle)
        return float(off @ off) / (2 * float(scale) ** 2)

    x = posterior.parameters
    value, middle = at(x)
    kept = []
    for _ in range(steps):
        tried = middle + scale * root @ random.normal(size=len(x))
        new, new_middle = at(tried)
        if np.log(random.random()) < value + back(tried, middle) - new - back(x, new_middle):
            x, value, middle = tried, new, new_middle
        kept.append(x - x.mean())
    chain = np.array(kept[steps // 10 :])
    return chain.mean(axis=0), chain.std(axis=0)


def test_nothing_is_added_where_nothing_is_known() -> None:
    """However wide the prior: a linear correction would make the mean of an unbeaten item infinite."""
    for sigma in (20.0, 100.0):
        fit = plackett_luce.fit(verdicts([(0, 1, 2)]), 3, Parameters(sigma=sigma))
        posterior = posterior_of(fit)
        assert np.abs(posterior.mean).max() < 2 * np.abs(posterior.theta).max()
        assert posterior.errors.max() < sigma


# Errors


def test_errors_are_those_of_the_matrix() -> None:
    posterior = of_lists(60, 5, 3, 0)
    v, wider = posterior_and_matrix(posterior)
    centred = np.diag(v) - SIGMA**2 / 60
    assert_allclose(posterior.errors, wider * np.sqrt(posterior.dispersion * centred), rtol=1e-5)


def test_components_are_inverted_one_by_one() -> None:
    """Disjoint lists, of several sizes, and items that were never judged: as the whole matrix."""
    judged = verdicts([(0, 1, 2), (2, 1, 0), (3, 4), (4, 3), (5, 6), (6, 5), (8, 9, 10, 11)])
    posterior = posterior_of(plackett_luce.fit(judged, 13, Parameters(sigma=SIGMA)))
    v, wider = posterior_and_matrix(posterior)
    component = components(judged, 13)
    sizes = np.bincount(component)[component]
    scale = np.where(component > 0, posterior.dispersion, 1) * np.where(component > 0, wider**2, 1)
    expected = np.sqrt(scale * (np.diag(v) - np.where(component > 0, SIGMA**2 / sizes, 0)))
    assert_allclose(posterior.errors, expected, rtol=1e-5)
    assert posterior.errors[7] == posterior.errors[12] == SIGMA


def test_two_items_taken_for_independent_differ_as_far_as_they_do() -> None:
    judged = verdicts([(0, 1)] * 3 + [(2, 3)])
    posterior = posterior_of(plackett_luce.fit(judged, 4, Parameters(sigma=SIGMA)))
    assert np.hypot(*posterior.errors_apart[:2]) == pytest.approx(
        posterior.error_between(0, 1), rel=1e-4
    )
    # How far two pairs lie apart that nothing connects, the prior alone says.
    assert (posterior.errors_across > posterior.errors_apart).all()


@pytest.mark.parametrize(("k", "rounds", "spread"), [(10, 3, 2.0), (10, 6, 4.0), (2, 16, 2.0)])
def test_errors_in_closed_form_are_near_the_exact_ones(
    k: int, rounds: int, spread: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = of_lists(1200, k, rounds, 0, spread)
    errors, scatter = exact.errors, exact.dispersion
    monkeypatch.setattr(curvature, "DENSE", 100)
    closed = of_lists(1200, k, rounds, 0, spread)
    off = closed.errors / errors - 1
    assert math.sqrt((off**2).mean()) < 0.012
    assert np.abs(off).max() < 0.06
    assert closed.dispersion == pytest.approx(scatter, rel=0.02)


def test_the_dispersion_of_a_sample_of_the_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curvature, "DENSE", 100)
    whole = of_lists(4000, 10, 3, 0).dispersion
    monkeypatch.setattr(curvature, "SAMPLE", 400)
    assert of_lists(4000, 10, 3, 0).dispersion == pytest.approx(whole, rel=0.1)


def test_components_too_large_to_invert_and_small_ones_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    more = lists(100, 10, 3, 0)
    places = pairwise(more.offsets.tolist())
    many: list[Ranking] = [more.items[begin:end].tolist() for begin, end in places]
    both = verdicts([*many, (100, 101), (101, 100)])
    exact = posterior_of(plackett_luce.fit(both, 103, Parameters(sigma=SIGMA))).errors
    monkeypatch.setattr(curvature, "DENSE", 50)
    mixed = posterior_of(plackett_luce.fit(both, 103, Parameters(sigma=SIGMA))).errors
    assert_allclose(mixed[:100], exact[:100], rtol=0.06)
    assert_allclose(mixed[100:], exact[100:], rtol=0.02)  # φ is of all lists
    assert mixed[100] == pytest.approx(mixed[101])


def test_implied_pairs_scatter_more_than_they_should() -> None:
    """The 45 pairs of a list hang together: Bradley-Terry's errors are made wider by φ, and end near
    Plackett-Luce's, whose φ is near 1."""
    judged = lists(200, 10, 3, 0)
    by_list = posterior_of(plackett_luce.fit(judged, 200, Parameters(sigma=SIGMA)))
    by_pair = posterior_of(bradley_terry.fit(judged, 200, Parameters(sigma=SIGMA)))
    assert 1 <= by_list.dispersion < 1.4
    assert by_pair.dispersion > 2
    assert np.median(by_pair.errors / by_list.errors) == pytest.approx(1, abs=0.2)


def test_one_round_says_nothing_of_the_dispersion() -> None:
    assert of_lists(50, 5, 1, 0).dispersion == 1


def test_it_raises_unless_it_has_converged() -> None:
    posterior = of_lists(60, 5, 3, 0)
    kept = Curvature(posterior.rankings, posterior.prior.precision(posterior.rankings))
    with pytest.raises(NotConvergedError, match="standard errors did not converge"):
        kept.solve(np.random.default_rng(0).normal(size=60), 0.0)


def test_two_items_by_the_matrix() -> None:
    posterior = of_lists(40, 5, 4, 0)
    v, wider = posterior_and_matrix(posterior)
    i, j = np.argsort(posterior.theta)[[5, 30]].tolist()
    variance = posterior.dispersion * (v[i, i] + v[j, j] - 2 * v[i, j])
    error = posterior.error_between(i, j)
    assert error == pytest.approx(wider[[i, j]].mean() * variance**0.5, rel=1e-4)
    z = (posterior.mean[j] - posterior.mean[i]) / error
    assert posterior.probability_above(j, i) == pytest.approx(NormalDist().cdf(z))


# Covariates


def with_covariate(seed: int = 0) -> tuple[Verdicts, Floats]:
    judged = lists(30, 6, 4, seed)
    return judged, np.random.default_rng(seed).normal(size=(len(judged.items), 1))


def test_covariates_against_the_dense_matrix() -> None:
    judged, numbers = with_covariate()
    rankings = plackett_luce.rankings_of(judged, 30, numbers)
    best = newton.maximum(rankings, Prior(SIGMA).precision(rankings))
    posterior = Posterior(rankings, best, Prior(SIGMA), components(judged, 30))
    x, step = posterior.parameters, 1e-5
    assert x.shape == (31,)
    precision = Prior(SIGMA).precision(rankings)
    assert_allclose(rankings.gradient(x) + precision * x, 0, atol=1e-6)
    every = np.eye(31)
    hessian = np.stack(
        [
            (rankings.gradient(x + step * e) - rankings.gradient(x - step * e)) / (2 * step)
            for e in every
        ]
    )
    rankings.gradient(x)
    kept = Curvature(rankings, precision)
    assert_allclose(dense(kept), hessian + np.diag(precision), atol=1e-4)
    assert_allclose(kept.diagonal, np.diag(hessian) + precision, atol=1e-5)


@pytest.mark.parametrize(("n", "closed"), [(30, False), (400, True)])
def test_loadings_make_ratings_of_items_and_covariates(
    n: int, closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = lists(n, 10, 4, 0)
    random = np.random.default_rng(5)
    numbers, load = random.normal(size=(len(judged.items), 1)), random.normal(size=(n, 1))
    load -= load.mean()
    monkeypatch.setattr(curvature, "DENSE", 10 if closed else 4000)
    likelihood = plackett_luce.rankings_of(judged, n, numbers)
    best = newton.maximum(likelihood, Prior(SIGMA).precision(likelihood))
    posterior = Posterior(likelihood, best, Prior(SIGMA), components(judged, n), load)
    assert_allclose(
        posterior.theta, posterior.parameters[:n] + load[:, 0] * posterior.parameters[n]
    )
    v, _ = posterior_and_matrix(posterior)
    turn = np.concatenate([np.eye(n), load], axis=1)
    centred = np.diag(turn @ v @ turn.T) - SIGMA**2 / n
    own = centred * n / (n - 1)
    wider = 1 + 0.17 * own * np.maximum(1 - own / SIGMA**2, 0) * np.exp(-own / 2)
    whole = wider * np.sqrt(posterior.dispersion * centred)
    assert_allclose(posterior.errors, whole, rtol=0.05 if closed else 1e-4)


# Intervals, ranks, tiers


def test_an_interval_is_that_by_a_prior_twice_as_wide() -> None:
    """From normal distributions: the prior's precision taken off, and a quarter of it added."""
    posterior = of_lists(60, 6, 4, 0)
    sure = intervals(posterior)
    v = (posterior.errors_apart / posterior.dispersion**0.5) ** 2
    freed = 1 / (1 / v - 1 / SIGMA**2 + 1 / (2 * SIGMA) ** 2)
    middle = posterior.mean * freed / v
    reach = NormalDist().inv_cdf(0.975) * sure.se * np.sqrt(freed / v)
    assert_allclose(sure.low, np.minimum(middle - reach, posterior.theta))
    assert_allclose(sure.high, np.maximum(middle + reach, posterior.theta))
    assert (sure.low <= posterior.theta).all()
    assert (posterior.theta <= sure.high).all()
    own = ranks(posterior.theta, posterior.component)
    assert (sure.rank_low <= own).all()
    assert (own <= sure.rank_high).all()
    assert sure.rank_low.min() == 1
    assert sure.rank_high.max() == 60


def test_ranks_within_components() -> None:
    theta = np.array([0.0, 3.0, -1.0, 5.0, 1.0])
    assert ranks(theta, np.array([1, 1, 1, 0, 2])).tolist() == [2, 1, 3, 0, 1]
    assert ranks(theta, np.ones(5, dtype=np.int64)).tolist() == [4, 2, 5, 1, 3]


def test_tiers_part_what_can_be_told_apart() -> None:
    """Three bands, far apart, of items that are alike."""
    random = np.random.default_rng(0)
    many: list[Ranking] = []
    for _ in range(40):
        bands = [random.permutation(range(3 * band, 3 * band + 3)).tolist() for band in range(3)]
        many.append([item for band in bands for item in band])
    posterior = posterior_of(plackett_luce.fit(verdicts(many), 10, Parameters(sigma=6.0)))
    sure = intervals(posterior)
    assert sure.tier.tolist() == [1, 1, 1, 2, 2, 2, 3, 3, 3, 0]
    assert sure.rank_high[:3].max() <= 3 < sure.rank_low[3:6].min()
    assert sure.rank_low[9] == sure.rank_high[9] == 0


def test_tiers_within_components() -> None:
    many: list[Ranking] = [(0, 1), (2, 3, 4)] * 60
    posterior = posterior_of(plackett_luce.fit(verdicts(many), 5, Parameters(sigma=SIGMA)))
    assert intervals(posterior).tier.tolist() == [1, 2, 1, 2, 3]


def test_one_tier_where_nothing_is_known() -> None:
    posterior = posterior_of(plackett_luce.fit(verdicts([(0, 1, 2)]), 3, Parameters()))
    assert intervals(posterior).tier.tolist() == [1, 1, 1]


def test_several_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    from judgeq.rating import rankings

    monkeypatch.setattr(rankings, "AT_ONCE", 40)
    for exact in (curvature.DENSE, 10):
        monkeypatch.setattr(curvature, "DENSE", exact)
        with_threads = of_lists(60, 5, 3, 0).errors
        with monkeypatch.context() as patch:
            patch.setattr(rankings, "ThreadPoolExecutor", _OneThread)
            assert_array_equal(of_lists(60, 5, 3, 0).errors, with_threads)


class _OneThread:
    map = staticmethod(map)

    def __enter__(self) -> _OneThread:
        return self

    def __exit__(self, *error: object) -> None:
        pass
