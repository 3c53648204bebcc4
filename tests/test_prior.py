from __future__ import annotations

import math

import numpy as np
import pytest

from judgeq.rating import Parameters, curvature, newton, plackett_luce
from judgeq.rating.curvature import Curvature
from judgeq.rating.posterior import Prior
from judgeq.rating.prior import choose_sigma, evidence
from judgeq.rating.rankings import Rankings
from judgeq.types import Offsets, Verdicts
from tests.build import Ranking, dense, verdicts
from tests.test_posterior import lists


def ones(n: int) -> Offsets:
    """All are of one component."""
    return np.ones(n, dtype=np.int64)


def kept(rankings: Rankings, sigma: float) -> Curvature:
    precision = Prior(sigma).precision(rankings)
    newton.maximum(rankings, precision)
    return Curvature(rankings, precision, ones(rankings.n))


def from_the_top(judged: Verdicts, n: int) -> Rankings:
    return plackett_luce.rankings_of(judged, n, ways=(True,))


@pytest.mark.parametrize("sigma", [2.0, 6.0])
def test_the_determinant_in_closed_form_is_near_the_exact_one(
    sigma: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = kept(plackett_luce.rankings_of(lists(600, 10, 3, 0), 600), sigma)
    exact = np.linalg.slogdet(dense(found))[1]
    assert found.log_determinant() == pytest.approx(exact, abs=1e-2)
    monkeypatch.setattr(curvature, "DENSE", 0)
    found = kept(plackett_luce.rankings_of(lists(600, 10, 3, 0), 600), sigma)
    assert found.log_determinant() == pytest.approx(exact, abs=0.015 * 600)


@pytest.mark.parametrize(("k", "rounds", "spread"), [(10, 3, 2.0), (10, 6, 4.0), (2, 12, 3.0)])
def test_it_chooses_the_same_sigma(
    k: int, rounds: int, spread: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rankings = from_the_top(lists(600, k, rounds, 0, spread), 600)
    exact, _ = choose_sigma(rankings, ones(rankings.n))
    monkeypatch.setattr(curvature, "DENSE", 0)
    assert choose_sigma(rankings, ones(rankings.n))[0] == pytest.approx(exact, rel=0.03)


def test_the_evidence_by_definition() -> None:
    """Of two items and one win: the integral, up to Laplace's error."""
    rankings = plackett_luce.rankings_of(verdicts([(0, 1)] * 5 + [(1, 0)] * 4), 2)
    d = np.linspace(-60, 60, 400_001)

    def by_quadrature(sigma: float) -> float:
        loss = 5 * np.log1p(np.exp(-d)) + 4 * np.log1p(np.exp(d))
        density = np.exp(-loss - d**2 / (4 * sigma**2)) / (2 * sigma * math.sqrt(math.pi))
        return math.log(float(density.sum() * (d[1] - d[0])))

    def by_laplace(sigma: float) -> float:
        prior = Prior(sigma)
        parameters = newton.maximum(rankings, prior.precision(rankings))
        return evidence(rankings, ones(rankings.n), parameters, prior)

    differences = [of(4.0) - of(1.0) for of in (by_quadrature, by_laplace)]
    assert differences[0] == pytest.approx(differences[1], abs=0.05)


def test_it_is_nearer_to_the_integral_than_laplaces() -> None:
    """Of a judgment or two an item, where the density at the maximum is too low, the wider the prior."""
    rankings = plackett_luce.rankings_of(verdicts([(0, 1), (1, 0)] * 2), 2)
    d = np.linspace(-60, 60, 400_001)
    laplace, mean = [], []
    for sigma in (0.25, 3.0):
        prior = Prior(sigma)
        loss = 2 * np.log1p(np.exp(-d)) + 2 * np.log1p(np.exp(d))
        density = np.exp(-loss - d**2 / (4 * sigma**2)) / (2 * sigma * math.sqrt(math.pi))
        integral = math.log(float(density.sum() * (d[1] - d[0])))
        precision = prior.precision(rankings)
        at = newton.maximum(rankings, precision)
        v = Curvature(rankings, precision, ones(2))
        height = -rankings.loss(at) - float(precision @ (at * at)) / 2
        determinants = float(np.log(precision).sum()) - v.log_determinant()
        laplace.append(height + determinants / 2 - integral)
        mean.append(evidence(rankings, ones(rankings.n), at, prior) - integral)
    assert laplace[1] - laplace[0] < -0.05
    assert abs(mean[1] - mean[0]) < abs(laplace[1] - laplace[0])


def test_the_sigma_of_the_highest_evidence_and_what_is_expected() -> None:
    rankings = from_the_top(lists(150, 10, 3, 0, 3.5), 150)
    best, start = choose_sigma(rankings, ones(rankings.n))

    def at(sigma: float) -> float:
        prior = Prior(sigma)
        parameters = newton.maximum(rankings, prior.precision(rankings), 1e-3)
        expected = (math.log(sigma / 2) / 0.7) ** 2 / 2
        return evidence(rankings, ones(rankings.n), parameters, prior) - expected

    grid = [at(sigma) for sigma in np.geomspace(0.25, 8, 40)]
    assert at(best) >= max(grid) - 0.05
    assert 2.5 < best < 4.5
    assert start.shape == (150,)


@pytest.mark.parametrize("spread", [0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize(("k", "rounds"), [(10, 4), (2, 24)])
def test_sigma_is_near_the_sd_of_the_items(spread: float, k: int, rounds: int) -> None:
    judged = lists(400, k, rounds, 1, spread)
    truth = np.random.default_rng(1).normal(0, spread, 400)
    assert choose_sigma(from_the_top(judged, 400), ones(400))[0] == pytest.approx(
        truth.std(), rel=0.25
    )


@pytest.mark.parametrize(("spread", "limit"), [(0.0, 0.25), (30.0, 8.0)])
def test_sigma_at_its_limits(spread: float, limit: float) -> None:
    fit = plackett_luce.fit(lists(400, 10, 12, 0, spread), 400, Parameters())
    assert fit.sigma == limit
    assert fit.chosen
    assert fit.at_limit


def test_sigma_is_2_until_items_are_in_two_lists() -> None:
    once = plackett_luce.fit(lists(100, 10, 1, 0, 5.0), 100, Parameters())
    twice = plackett_luce.fit(lists(100, 10, 2, 0, 5.0), 100, Parameters())
    assert once.sigma == 2.0 < (twice.sigma or 0)
    assert (once.chosen, twice.chosen) == (False, True)


def test_a_sigma_that_is_given_is_taken() -> None:
    fit = plackett_luce.fit(lists(50, 5, 3, 0), 50, Parameters(sigma=0.7))
    assert fit.sigma == 0.7
    assert not fit.chosen
    assert not fit.at_limit


@pytest.mark.parametrize("sigma", [0.0, 1e-4, 101.0])
def test_a_sigma_out_of_bounds(sigma: float) -> None:
    many: list[Ranking] = [(0, 1)]
    with pytest.raises(ValueError, match=r"σ must be from 0\.001 to 100"):
        plackett_luce.fit(verdicts(many), 2, Parameters(sigma=sigma))
