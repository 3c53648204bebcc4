"""The posterior: errors, the evidence for σ; and how well an order is known: intervals of ratings and
ranks, tiers, ρ̂, and what rounds bring."""

import math
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from numpy.testing import assert_allclose, assert_array_equal

from benchmarks.coverage import counted
from benchmarks.judges import asked, model
from judgeq import strategies
from judgeq.rating import ESTIMATORS, Fit, Parameters, curvature, plackett_luce, ranks
from judgeq.rating.comparisons import components, joined
from judgeq.rating.curvature import Curvature
from judgeq.rating.posterior import Posterior, evidence
from judgeq.types import Floats, Verdicts
from tests.build import Ranking, dense, ranked, verdicts

SIGMA = 2.0


def lists(n: int, k: int, rounds: int, seed: int, spread: float = 2.0) -> Verdicts:
    """Random lists of k over n items, ranked with Gumbel's noise."""
    random = np.random.default_rng(seed)
    truth = random.normal(0, spread, n)
    rows = (np.array_split(random.permutation(n), n // k) for _ in range(rounds))
    return ranked((items.tolist() for one in rows for items in one), truth, random)


def posterior_of(fit: Fit) -> Posterior:
    assert isinstance(fit.posterior, Posterior)
    return fit.posterior


def widened(own: Floats, sigma: float) -> Floats:
    """By what errors are wider than variances say."""
    wider: Floats = 1 + 0.17 * own * np.maximum(1 - own / sigma**2, 0) * np.exp(-own / 2)
    return wider


def posterior_and_matrix(posterior: Posterior) -> tuple[Floats, Floats]:
    """V, the inverse of the whole curvature, and by what errors are wider than it says, item by item."""
    rankings, parameters = posterior.rankings, posterior.parameters
    kept = Curvature(rankings, parameters, rankings.precision(posterior.sigma))
    v: Floats = np.linalg.inv(dense(kept)).astype(np.float64)
    sizes = np.maximum(np.bincount(posterior.component), 2)[posterior.component]
    sigma = posterior.sigma
    own = np.maximum(np.diag(v)[: rankings.n] - sigma**2 / sizes, 0) * sizes / (sizes - 1)
    return v, widened(own, sigma)


def of_lists(*about: Any, sigma: float = SIGMA) -> Posterior:
    """Of `lists` of these arguments, by `pl`."""
    judged = lists(*about)
    return posterior_of(plackett_luce.fit(judged, about[0], Parameters(sigma=sigma)))


def test_components_are_as_in_the_whole_matrix() -> None:
    """Disjoint lists, of several sizes, more than are inverted together, and items never judged."""
    of_three: list[Ranking] = [(12 + at, 13 + at, 14 + at) for at in range(0, 60, 3)]
    judged = verdicts([(0, 1, 2), (2, 1, 0), (3, 4), (4, 3), (5, 6), (8, 9, 10, 11), *of_three])
    posterior = posterior_of(plackett_luce.fit(judged, 73, Parameters(sigma=SIGMA)))
    v, wider = posterior_and_matrix(posterior)
    component = components(judged, 73)
    sizes = np.bincount(component)[component]
    scale = np.where(component > 0, posterior.dispersion * wider**2, 1)
    expected = np.sqrt(scale * (np.diag(v) - np.where(component > 0, SIGMA**2 / sizes, 0)))
    assert_allclose(posterior.errors, expected, rtol=1e-5)
    assert posterior.errors[7] == posterior.errors[72] == SIGMA
    # How far two components lie apart that nothing connects, the prior alone says.
    assert (posterior.errors_across >= posterior.errors_apart).all()
    assert posterior.errors_across[0] > posterior.errors_apart[0]


@pytest.mark.parametrize(("k", "rounds"), [(10, 3), (2, 16)])
def test_errors_in_closed_form_are_near_the_exact_ones(
    k: int, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = of_lists(1200, k, rounds, 0, 2.0)
    errors, scatter = exact.errors, exact.dispersion
    monkeypatch.setattr(curvature, "DENSE", 100)
    closed = of_lists(1200, k, rounds, 0, 2.0)
    off = closed.errors / errors - 1
    assert math.sqrt((off**2).mean()) < 0.012
    assert np.abs(off).max() < 0.06
    assert closed.dispersion == pytest.approx(scatter, rel=0.02)


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
    best = curvature.maximum(likelihood, SIGMA).parameters
    posterior = Posterior(likelihood, best, SIGMA, components(judged, n), load)
    assert_allclose(
        posterior.theta, posterior.parameters[:n] + load[:, 0] * posterior.parameters[n]
    )
    v, _ = posterior_and_matrix(posterior)
    turn = np.concatenate([np.eye(n), load], axis=1)
    centred = np.diag(turn @ v @ turn.T) - SIGMA**2 / n
    whole = widened(centred * n / (n - 1), SIGMA) * np.sqrt(posterior.dispersion * centred)
    assert_allclose(posterior.errors, whole, rtol=0.05 if closed else 1e-4)


def test_several_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curvature, "AT_ONCE", 40)

    def one_thread(threads: int) -> Any:
        assert threads > 1
        return SimpleNamespace(map=map)

    for exact in (curvature.DENSE, 10):
        monkeypatch.setattr(curvature, "DENSE", exact)
        with_threads = of_lists(60, 5, 3, 0).errors
        with monkeypatch.context() as patch:
            patch.setattr(curvature, "ThreadPoolExecutor", one_thread)
            assert_array_equal(of_lists(60, 5, 3, 0).errors, with_threads)


@pytest.mark.parametrize("sigma", [2.0, 6.0])
def test_the_determinant_in_closed_form_is_near_the_exact_one(
    sigma: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = curvature.maximum(plackett_luce.rankings_of(lists(600, 10, 3, 0), 600), sigma)
    exact = np.linalg.slogdet(dense(found))[1]
    assert found.log_determinant() == pytest.approx(exact, abs=1e-2)
    monkeypatch.setattr(curvature, "DENSE", 0)
    found = curvature.maximum(plackett_luce.rankings_of(lists(600, 10, 3, 0), 600), sigma)
    assert found.log_determinant() == pytest.approx(exact, abs=0.015 * 600)


def test_the_evidence_by_definition() -> None:
    """Of two items and one win: the integral, up to Laplace's error."""
    rankings = plackett_luce.rankings_of(verdicts([(0, 1)] * 5 + [(1, 0)] * 4), 2)
    d = np.linspace(-60, 60, 400_001)

    def by_quadrature(sigma: float) -> float:
        loss = 5 * np.log1p(np.exp(-d)) + 4 * np.log1p(np.exp(d))
        density = np.exp(-loss - d**2 / (4 * sigma**2)) / (2 * sigma * math.sqrt(math.pi))
        return math.log(float(density.sum() * (d[1] - d[0])))

    def by_laplace(sigma: float) -> float:
        return evidence(curvature.maximum(rankings, sigma), sigma)

    differences = [of(4.0) - of(1.0) for of in (by_quadrature, by_laplace)]
    assert differences[0] == pytest.approx(differences[1], abs=0.05)


@pytest.mark.parametrize(("spread", "limit"), [(0.0, 0.25), (30.0, 8.0)])
def test_sigma_at_its_limits(spread: float, limit: float) -> None:
    fit = plackett_luce.fit(lists(400, 10, 12, 0, spread), 400, Parameters())
    assert fit.sigma == limit
    assert fit.chosen
    assert fit.at_limit


@pytest.mark.parametrize("sigma", [0.0, 1e-4, 101.0])
def test_a_sigma_out_of_bounds(sigma: float) -> None:
    many: list[Ranking] = [(0, 1)]
    with pytest.raises(ValueError, match=r"σ must be from 0\.001 to 100"):
        plackett_luce.fit(verdicts(many), 2, Parameters(sigma=sigma))


# How well an order is known


@pytest.mark.parametrize(
    ("judge", "design"),
    [("model, sd 4", "lists"), ("vg", "pairs, similar"), ("20 % at random", "pairs")],
)
def test_intervals_cover(judge: str, design: str) -> None:
    """Of so few runs; over many of them it is 92 to 97 % (`python -m benchmarks coverage`)."""
    share = counted(judge, design, 120, range(4))
    assert 0.9 <= share.ratings <= 0.99, share
    assert 0.9 <= share.ranks <= 0.985, share
    assert abs(share.known - share.rho) < 0.05, share
    if design == "lists":  # by the maximum and its interval it was 0.8
        assert share.ends_by_score > 0.9, share
    if design == "lists":  # by the prior as it is, items far out are in 60 to 90 % of cases
        assert share.ends_by_truth > 0.85, share


def test_scores_are_the_means_by_which_texts_are_ranked() -> None:
    fit = ESTIMATORS["pl"].fit(lists(60, 6, 4, 0), 60, Parameters())
    posterior = posterior_of(fit)
    assert_array_equal(fit.theta, posterior.mean)
    is_far = np.abs(fit.theta) > 0.5
    assert (np.abs(fit.theta) > np.abs(fit.maximum))[is_far].all()
    assert fit.theta.mean() == pytest.approx(0, abs=1e-9)
    sure = ranks.intervals(posterior)
    assert (sure.low < fit.theta).all()
    assert (fit.theta < sure.high).all()
    place = (fit.theta - sure.low) / (sure.high - sure.low)
    assert place.min() > 0.25  # nowhere at an edge
    assert place.max() < 0.75


def coverage_of_one_round(sd: float, design: str, runs: int) -> float:
    """The share of true values within the intervals of a run of one answer a text."""
    share = []
    for seed in range(runs):
        truth = np.random.default_rng(seed).normal(0, sd, 100)
        history = asked(model, strategies.parse(design), truth, seed)
        judged = joined(history.verdicts)
        part = components(judged, 100)
        truth = truth - (np.bincount(part, truth) / np.maximum(np.bincount(part), 1))[part]
        sure = ranks.intervals(posterior_of(ESTIMATORS["pl"].fit(judged, 100, Parameters())))
        share.append(((sure.low <= truth) & (truth <= sure.high)).mean())
    return float(np.mean(share))


@pytest.mark.parametrize("sd", [0.5, 1.0, 2.0, 4.0])
def test_intervals_of_one_answer_a_text_cover_however_wide_the_scale_is(sd: float) -> None:
    """With σ taken for 2 they covered 75, 83, 94 and 85 %."""
    assert 0.92 <= coverage_of_one_round(sd, "listwise10x1", 6) <= 0.99


def test_without_repetition_sigma_is_averaged_over_and_nothing_is_told_apart() -> None:
    once, twice = (ESTIMATORS["pl"].fit(lists(60, 6, n, 0), 60, Parameters()) for n in (1, 2))
    assert once.averaged
    assert not once.chosen
    assert not posterior_of(once).is_repeated
    assert (ranks.intervals(posterior_of(once)).tier == 0).all()
    assert posterior_of(twice).is_repeated
    assert not twice.averaged
    assert ranks.intervals(posterior_of(twice)).tier.min() == 1
    # A σ that is given is no unknown; still nothing tells how far lists scatter.
    given = ESTIMATORS["pl"].fit(lists(60, 6, 1, 0), 60, Parameters(sigma=1.0))
    assert not given.averaged
    assert not posterior_of(given).is_repeated


def test_an_average_over_sigma_is_that_of_posteriors_under_each() -> None:
    """By 11 values of σ in place of five, and by draws."""
    judged = lists(40, 8, 1, 3)
    posterior = posterior_of(ESTIMATORS["pl"].fit(judged, 40, Parameters(position=False)))
    random = np.random.default_rng(0)
    points, weights = hermegauss(11)
    draws, means = [], []
    for point, weight in zip(points.tolist(), (weights / weights.sum()).tolist(), strict=True):
        sigma = 2.0 * math.exp(0.7 * point)
        of = posterior_of(plackett_luce.fit(judged, 40, Parameters(sigma=sigma)))
        size = round(weight * 40_000)
        draws.append(of.mean + of.errors * random.standard_normal((size, 40)))
        means.append(weight * of.mean)
    every = np.concatenate(draws)
    assert_allclose(posterior.mean, np.sum(means, axis=0), rtol=0.02, atol=0.01)
    assert_allclose(posterior.errors, every.std(axis=0), rtol=0.1)
    ends = np.quantile(every, (0.025, 0.975), axis=0)
    assert_allclose(posterior.interval, ends, rtol=0.08, atol=0.1)
    i, j = np.argsort(posterior.mean)[[-1, 5]].tolist()
    above = float((every[:, i] > every[:, j]).mean())
    assert posterior.probability_above(i, j) == pytest.approx(above, abs=0.02)


def test_an_interval_ends_inwards_by_the_score_and_outwards_by_a_prior_twice_as_wide() -> None:
    """From normal distributions: the prior's precision taken off, and a quarter of it added."""
    posterior = of_lists(60, 6, 4, 0)
    sure = ranks.intervals(posterior)
    v = (posterior.errors_apart / posterior.dispersion**0.5) ** 2
    freed = 1 / (1 / v - 1 / SIGMA**2 + 1 / (2 * SIGMA) ** 2)
    z, off = NormalDist().inv_cdf(0.975), np.abs(posterior.mean)
    inner = off - z * sure.se
    outer = off * freed / v + z * sure.se * np.sqrt(freed / v)
    is_above = posterior.mean >= 0
    assert_allclose(sure.low, np.where(is_above, inner, -outer))
    assert_allclose(sure.high, np.where(is_above, outer, -inner))
    own = ranks.ranks(posterior.mean, posterior.component)
    assert (sure.rank_low <= own).all()
    assert (own <= sure.rank_high).all()
    assert sure.rank_low.min() == 1
    assert sure.rank_high.max() == 60


def test_ranks_within_components() -> None:
    theta = np.array([0.0, 3.0, -1.0, 5.0, 1.0])
    assert ranks.ranks(theta, np.array([1, 1, 1, 0, 2])).tolist() == [2, 1, 3, 0, 1]
    assert ranks.ranks(theta, np.ones(5, dtype=np.int64)).tolist() == [4, 2, 5, 1, 3]
    tied = np.array([1.0, 2.0, 2.0, np.nan, 0.0])
    assert ranks.ranks(tied, np.ones(5, dtype=np.int64)).tolist() == [3, 1, 1, 0, 4]


def test_tiers_part_what_can_be_told_apart() -> None:
    """Three bands, far apart, of items that are alike."""
    random = np.random.default_rng(0)
    many: list[Ranking] = []
    for _ in range(40):
        bands = [random.permutation(range(3 * band, 3 * band + 3)).tolist() for band in range(3)]
        many.append([item for band in bands for item in band])
    posterior = posterior_of(plackett_luce.fit(verdicts(many), 10, Parameters(sigma=6.0)))
    sure = ranks.intervals(posterior)
    assert sure.tier.tolist() == [1, 1, 1, 2, 2, 2, 3, 3, 3, 0]
    assert sure.rank_high[:3].max() <= 3 < sure.rank_low[3:6].min()
    assert sure.rank_low[9] == sure.rank_high[9] == 0


def test_tiers_within_components() -> None:
    many: list[Ranking] = [(0, 1), (2, 3, 4)] * 60
    posterior = posterior_of(plackett_luce.fit(verdicts(many), 5, Parameters(sigma=SIGMA)))
    assert ranks.intervals(posterior).tier.tolist() == [1, 2, 1, 2, 3]


@pytest.mark.parametrize(
    ("n", "first", "drawn"),
    [(30, 5, (0.929, 0.888, 0.943, 10.4, 20.9)), (400, 20, (0.9445, 0.7945, 0.957, 134.9, 265.7))],
)
def test_an_order_by_draws(n: int, first: int, drawn: tuple[float, ...]) -> None:
    """ρ̂, the share of the first, ρ̂ after another round, and the mean bounds of intervals of ranks, as
    4,000 draws had them."""
    random = np.random.default_rng(n)
    mean, se = random.normal(0, 2, n), random.uniform(0.3, 1.0, n)
    rho, share, later, *bounds = drawn
    found = ranks.reliability(mean, se)
    assert (found, ranks.top_share(mean, se, first)) == pytest.approx((rho, share), abs=0.01)
    assert ranks.grown(found, 1.3) == pytest.approx(later, abs=0.004)
    low, high = ranks._rank_intervals(mean, se, np.zeros(n, np.int64))
    assert [low.mean(), high.mean()] == pytest.approx(bounds, rel=0.02)


def test_of_many_items_few_nodes_say_the_same() -> None:
    random = np.random.default_rng(1)
    mean, se = random.normal(0, 1.5, 4000), random.uniform(0.3, 0.9, 4000)
    many = ranks.reliability(np.tile(mean, 125), np.tile(se, 125))
    assert many == pytest.approx(ranks.reliability(mean, se), abs=0.002)
    one = mean[:1], se[:1]
    assert (ranks.reliability(*one), ranks.top_share(*one, 5)) == pytest.approx((1, 1))


def test_nothing_is_known_without_rankings_and_all_after_endless_ones() -> None:
    assert ranks.expected_rho(2.0, 3, 10) == pytest.approx(0.9065, abs=0.00005)
    assert ranks.variance(1.5, 0, 10) == pytest.approx(1.5**2)
    assert ranks.expected_rho(1.5, 0, 10) == pytest.approx(0)
    assert ranks.expected_rho(1.5, 1e6, 10) == pytest.approx(1, abs=1e-4)
    # Once the prior says nothing, twice the rankings halve the variance.
    assert ranks.growth(1.0, 1e5, 1e5, 2) == pytest.approx(2, rel=1e-3)
    assert 1 < ranks.growth(0.5, 1, 1, 10) < 1.3
