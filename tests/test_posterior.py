from __future__ import annotations

import math
from itertools import pairwise
from statistics import NormalDist

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from judgeq.errors import NotConvergedError
from judgeq.rating import Fit, Parameters, bradley_terry, covariance, curvature, plackett_luce
from judgeq.rating import posterior as posteriors
from judgeq.rating.comparisons import components
from judgeq.rating.curvature import Curvature
from judgeq.rating.intervals import intervals, ranks
from judgeq.rating.posterior import Posterior, Prior, fitted
from judgeq.types import Floats, Verdicts
from tests.build import Ranking, verdicts

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


def of_lists(*about: int, sigma: float = SIGMA) -> Posterior:
    """Of `lists` of these arguments, by `pl`."""
    judged = lists(*about)
    return posterior_of(plackett_luce.fit(judged, about[0], Parameters(sigma=sigma)))


# The normal distribution itself


def test_two_items_by_quadrature() -> None:
    """Of d = θ0 − θ1 after a win of 0, under N(0, 2σ²): the nearest normal distribution has nearly the
    mean and the spread of the posterior itself."""
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
    assert posterior.probability_above(0, 1) == pytest.approx(above, abs=0.01)
    assert posterior.probability_above(1, 0) == pytest.approx(1 - above, abs=0.01)
    assert posterior.probability_above(1, 1) == 0.5


def test_mean_gradient_and_curvature() -> None:
    """E[gradient] = 0 and A = E[Hessian] over N(m, A⁻¹), by draws of the test's own."""
    judged = lists(30, 6, 3, 0)
    rankings = plackett_luce.rankings_of(judged, 30)
    precision = Prior(SIGMA).precision(rankings)
    posterior = posterior_of(plackett_luce.fit(judged, 30, Parameters(sigma=SIGMA)))
    gaussian = posterior._gaussian
    a = covariance.information(gaussian.curvature)
    random = np.random.default_rng(1)
    gradient, hessian = np.zeros(30), np.zeros((30, 30))
    times = 2000
    for draw in random.multivariate_normal(gaussian.mean, np.linalg.inv(a), times):
        gradient += rankings.gradient(draw) + precision * draw
        hessian += covariance.information(Curvature.kept(rankings, precision))
    off = np.linalg.solve(a, gradient / times)
    assert np.abs(off / posterior.errors).max() < 0.15
    assert_allclose(np.diag(hessian) / times, np.diag(a), rtol=0.15)


# Errors


def test_errors_are_those_of_the_matrix() -> None:
    posterior = of_lists(60, 5, 3, 0)
    a = covariance.information(posterior._gaussian.curvature)
    centred = np.diag(np.linalg.inv(a)) - SIGMA**2 / 60
    assert_allclose(posterior.errors, np.sqrt(posterior.dispersion * centred), rtol=1e-5)


def test_components_are_inverted_one_by_one() -> None:
    """Disjoint lists, of several sizes, and items that were never judged: as the whole matrix."""
    judged = verdicts([(0, 1, 2), (2, 1, 0), (3, 4), (4, 3), (5, 6), (6, 5), (8, 9, 10, 11)])
    posterior = posterior_of(plackett_luce.fit(judged, 13, Parameters(sigma=SIGMA)))
    a = covariance.information(posterior._gaussian.curvature)
    component = components(judged, 13)
    sizes = np.bincount(component)[component]
    variance = np.diag(np.linalg.inv(a)) - np.where(component > 0, SIGMA**2 / sizes, 0)
    expected = np.sqrt(np.where(component > 0, posterior.dispersion, 1) * variance)
    assert_allclose(posterior.errors, expected, rtol=1e-5)
    assert posterior.errors[7] == posterior.errors[12] == SIGMA


def test_the_inverse_by_halves() -> None:
    random = np.random.default_rng(0)
    root = random.normal(size=(400, 500))
    matrix = root @ root.T / 500
    assert_allclose(covariance.inverse(matrix) @ matrix, np.eye(400), atol=1e-8)


def test_errors_by_draws_are_near_the_exact_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """The issue's bound is 2 % at most, and half a percent on average, by 100 draws."""
    exact = of_lists(1200, 10, 3, 0)
    errors, dispersion = exact.errors, exact.dispersion
    monkeypatch.setattr(covariance, "EXACT", 100)
    drawn = of_lists(1200, 10, 3, 0)
    off = drawn.errors / errors - 1
    assert math.sqrt((off**2).mean()) < 0.01
    assert np.abs(off).max() < 0.05
    assert drawn.dispersion == dispersion  # by draws for both


def test_the_dispersion_by_draws_is_near_the_exact_one(monkeypatch: pytest.MonkeyPatch) -> None:
    posteriors_of = [of_lists(500, 10, 3, seed) for seed in (0, 1)]
    exact = [posterior.dispersion for posterior in posteriors_of]
    monkeypatch.setattr(posteriors, "SMALL", 10)
    drawn = [of_lists(500, 10, 3, seed).dispersion for seed in (0, 1)]
    assert_allclose(drawn, exact, rtol=0.05)


def test_components_too_large_to_invert_and_small_ones_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    more = lists(100, 10, 3, 0)
    places = pairwise(more.offsets.tolist())
    many: list[Ranking] = [more.items[begin:end].tolist() for begin, end in places]
    both = verdicts([*many, (100, 101), (101, 100)])
    exact = posterior_of(plackett_luce.fit(both, 103, Parameters(sigma=SIGMA))).errors
    monkeypatch.setattr(covariance, "EXACT", 50)
    mixed = posterior_of(plackett_luce.fit(both, 103, Parameters(sigma=SIGMA))).errors
    assert_allclose(mixed[:100], exact[:100], rtol=0.06)
    assert_array_equal(mixed[100:], exact[100:])


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
    gaussian = of_lists(60, 5, 3, 0)._gaussian
    with pytest.raises(NotConvergedError, match="standard errors did not converge"):
        gaussian.curvature.solve(gaussian.curvature.noise(0, "b"), 1e-6, most=2)


# Draws


def test_draws_have_the_covariance() -> None:
    posterior = of_lists(40, 5, 4, 0)
    draws = posterior.samples(4_000)
    assert draws.shape == (4_000, 40)
    assert_allclose(draws.mean(axis=0), posterior.mean, atol=0.05)
    assert_allclose(draws.std(axis=0), posterior.errors, rtol=0.05)
    assert_allclose(draws.sum(axis=1), posterior.mean.sum(), atol=1e-3)
    i, j = np.argsort(posterior.theta)[[5, 30]].tolist()
    assert (draws[:, i] - draws[:, j]).std() == pytest.approx(
        posterior.error_between(i, j), rel=0.05
    )
    share = float((draws[:, j] > draws[:, i]).mean())
    assert posterior.probability_above(j, i) == pytest.approx(share, abs=0.02)


def test_more_draws_begin_with_the_same() -> None:
    first, again = of_lists(40, 5, 4, 0), of_lists(40, 5, 4, 0)
    few = first.samples(10)
    assert_array_equal(again.samples(40)[:10], few)
    assert_array_equal(first.samples(40)[:10], few)


# Covariates


def with_covariate(seed: int = 0) -> tuple[Verdicts, Floats]:
    judged = lists(30, 6, 4, seed)
    return judged, np.random.default_rng(seed).normal(size=(len(judged.items), 1))


def test_covariates_against_the_dense_matrix() -> None:
    judged, numbers = with_covariate()
    rankings = plackett_luce.rankings_of(judged, 30, numbers)
    whole = fitted(rankings, Prior(SIGMA), components(judged, 30), "pl")
    posterior = posterior_of(whole)
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
    kept = Curvature.kept(rankings, precision)
    assert_allclose(covariance.information(kept), hessian + np.diag(precision), atol=1e-4)
    assert_allclose(kept.times(every), hessian + np.diag(precision), atol=1e-4)
    assert_allclose(kept.diagonal, np.diag(hessian) + precision, atol=1e-5)
    noise = np.concatenate([kept.noise(0, number) for number in range(1500)], axis=1)
    a = hessian + np.diag(precision)
    assert_allclose(np.cov(noise), a, atol=0.05 * np.abs(a).max())


def test_loadings_make_ratings_of_items_and_covariates(monkeypatch: pytest.MonkeyPatch) -> None:
    judged, numbers = with_covariate()
    load = np.random.default_rng(5).normal(size=(30, 1))
    load -= load.mean()
    component = components(judged, 30)

    def posterior() -> Posterior:
        rankings = plackett_luce.rankings_of(judged, 30, numbers)
        return posterior_of(fitted(rankings, Prior(SIGMA), component, "pl", loadings=load))

    exact = posterior()
    assert_allclose(exact.theta, exact.parameters[:30] + load[:, 0] * exact.parameters[30])
    v = np.linalg.inv(covariance.information(exact._gaussian.curvature))
    turn = np.concatenate([np.eye(30), load], axis=1)
    whole = np.sqrt(exact.dispersion * (np.diag(turn @ v @ turn.T) - SIGMA**2 / 30))
    assert_allclose(exact.errors, whole, rtol=1e-4)
    assert_allclose(exact.effects[1], np.sqrt(exact.dispersion * v[30, 30]), rtol=1e-4)
    monkeypatch.setattr(covariance, "EXACT", 10)
    monkeypatch.setattr(posteriors, "DRAWS", 4000)
    assert_allclose(posterior().errors, whole, rtol=0.05)


# Intervals, ranks, tiers


def test_intervals_lie_around_the_mean() -> None:
    posterior = of_lists(60, 6, 4, 0)
    sure = intervals(posterior)
    assert_allclose((sure.low + sure.high) / 2, posterior.mean)
    assert_allclose(sure.high - sure.low, 2 * NormalDist().inv_cdf(0.975) * sure.se)
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
    monkeypatch.setattr(curvature, "AT_ONCE", 40)
    many = of_lists(60, 5, 3, 0)
    with_threads = many.samples(16), many.errors
    monkeypatch.setattr(rankings, "ThreadPoolExecutor", _OneThread)
    one = of_lists(60, 5, 3, 0)
    assert_array_equal(one.samples(16), with_threads[0])
    assert_array_equal(one.errors, with_threads[1])


class _OneThread:
    map = staticmethod(map)

    def __enter__(self) -> _OneThread:
        return self

    def __exit__(self, *error: object) -> None:
        pass
