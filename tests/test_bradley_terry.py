from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from judgeq.config import settle
from judgeq.datasets import load
from judgeq.errors import NotConvergedError, UsageError
from judgeq.evaluation import metrics
from judgeq.rating import comparisons, correlation, elo, plackett_luce
from judgeq.rating.bradley_terry import fit_mm
from judgeq.rating.curvature import SIGMAS, Curvature
from judgeq.settings.run import DatasetSpec
from judgeq.types import Floats
from tests.build import SHARED, Ranking, fit_map, grouped, needs_recordings, recording, verdicts
from tests.build import rankings as any_rankings

N = 6
RATES = ("recall", "accuracy", "precision", "f1")
MANY = st.lists(any_rankings(N), min_size=1, max_size=8)
THETA = st.lists(st.floats(-4, 4), min_size=N, max_size=N).map(np.array)


def wins(many: list[Ranking], n: int) -> Floats:
    """How often the row's item beat the column's, a tie as half a win each way, by definition."""
    won = np.zeros((n, n))
    for ranking in many:
        groups = grouped(ranking)
        for place, group in enumerate(groups):
            for item in group:
                for other in group:
                    won[item, other] += 0.5 * (other != item)
                for after in groups[place + 1 :]:
                    won[item, after] += 1
    return won


def minus_log_likelihood(theta: Floats, won: Floats) -> float:
    return float((won * np.logaddexp(0, theta[None, :] - theta[:, None])).sum())


def slope(theta: Floats, won: Floats) -> Floats:
    upset = won / (1 + np.exp(theta[:, None] - theta[None, :]))
    return np.asarray(upset.sum(axis=0) - upset.sum(axis=1))


def random_rankings(n: int, count: int, seed: int) -> list[Ranking]:
    """Of mixed sizes, with ties, more or less in the order of the items' numbers."""
    random = np.random.default_rng(seed)
    many: list[Ranking] = []
    for _ in range(count):
        items = random.choice(n, int(random.integers(2, 6)), replace=False)
        noisy = items + random.normal(0, n / 4, len(items))
        groups: list[list[int]] = []
        for item in items[np.argsort(-noisy)].tolist():
            if groups and random.random() < 0.2:
                groups[-1].append(item)
            else:
                groups.append([item])
        many.append(groups)
    return many


# The MAP


@settings(max_examples=15)
@given(many=MANY, sigma=st.sampled_from([0.3, 1.0, 2.0, 5.0]))
def test_the_map_is_the_optimum(many: list[Ranking], sigma: float) -> None:
    won = wins(many, N)
    prior = 1 / sigma**2

    def objective(theta: Floats) -> float:
        return minus_log_likelihood(theta, won) + prior / 2 * float(theta @ theta)

    def gradient(theta: Floats) -> Floats:
        return slope(theta, won) + prior * theta

    best = scipy.optimize.minimize(
        objective, np.zeros(N), jac=gradient, method="BFGS", options={"gtol": 1e-8}
    )
    theta = fit_map(verdicts(many), N, sigma)
    assert_allclose(theta, best.x, atol=2e-7 * max(1, sigma**2))
    # The reference itself is only so good; the strongly convex objective bounds the rest.
    assert np.linalg.norm(gradient(theta)) * sigma**2 <= 1.01e-8


# Its parts


@settings(max_examples=15)
@given(many=MANY, theta=THETA, direction=THETA)
def test_loss_and_derivatives(many: list[Ranking], theta: Floats, direction: Floats) -> None:
    some = plackett_luce.rankings_of(verdicts(many), N, ways=())
    won = wins(many, N)
    loss = some.loss(theta)
    assert loss == pytest.approx(minus_log_likelihood(theta, won))
    gradient = some.gradient(theta)  # also sets where the Hessian looks from
    exact = Curvature(some, np.zeros(N))
    product, diagonal = exact.times(direction), exact.diagonal
    step = 1e-5

    def along(function: Callable[[Floats], Floats], way: Floats) -> Floats:
        return (function(theta + step * way) - function(theta - step * way)) / (2 * step)

    every = np.eye(N)
    differences = [
        (some.loss(theta + step * way) - some.loss(theta - step * way)) / (2 * step)
        for way in every
    ]
    assert_allclose(gradient, differences, atol=1e-6)
    assert_allclose(product, along(some.gradient, direction), atol=1e-6)
    assert_allclose(diagonal, [along(some.gradient, way) @ way for way in every], atol=1e-6)


# The paper's estimator


def mm_by_loops(many: list[Ranking], n: int, prior: float, tolerance: float) -> Floats:
    won = wins(many, n)
    strength = [1.0] * n
    while True:
        new = []
        for i in range(n):
            rate = sum((won[i, j] + won[j, i]) / (strength[i] + strength[j]) for j in range(n))
            new.append((won[i].sum() + prior) / (rate + prior))
        mean = math.prod(new) ** (1 / n)
        new = [each / mean for each in new]
        change = max(abs(math.log(a / b)) for a, b in zip(new, strength, strict=True))
        strength = new
        if change < tolerance:
            return np.log(strength)


@pytest.mark.parametrize("seed", range(2))
def test_mm_is_its_definition(seed: int) -> None:
    n = 8
    many = random_rankings(n, 40, seed)
    theta = fit_mm(comparisons.imply(verdicts(many)), n)
    assert_allclose(theta, mm_by_loops(many, n, 1e-6, 1e-6), atol=1e-9)
    assert theta.mean() == pytest.approx(0, abs=1e-12)


def test_mm_that_has_not_converged_raises() -> None:
    with pytest.raises(NotConvergedError, match=r"did not converge in 1 sweeps: .*--rating bt"):
        fit_mm(comparisons.imply(verdicts([(0, 1, 2), (1, 0)])), 3, sweeps=1)


def test_settings_know_the_bounds_of_sigma() -> None:
    for sigma in SIGMAS:
        assert settle({"dataset": "demo", "sigma": sigma}).sigma == sigma
        outside = sigma * (0.99 if sigma < 1 else 1.01)
        with pytest.raises(UsageError, match=r"--sigma .*: give .* or (more|less)"):
            settle({"dataset": "demo", "sigma": outside})


@needs_recordings
def test_the_published_detection_of_babe() -> None:
    """Haak and Schaer, GPT-5-mini, three rounds of lists of 10."""
    gold = load(DatasetSpec(dataset="babe", data_dir=SHARED / "data"), download=False).gold
    assert gold is not None
    n = len(gold)
    rounds = recording("babe_gpt-5-mini_listwise10x3")
    ratings = elo.start(n)
    for some in rounds:
        ratings = elo.fold(ratings, some)
    # On which side of 0 a θ lies is settled long before the last digits are.
    theta = fit_mm(comparisons.imply(comparisons.joined(rounds)), n, tolerance=1e-4)
    known = ~np.isnan(gold)
    assert known.sum() == 3673
    for scores, middle, published, within in (
        (ratings, elo.START, [0.783, 0.779, 0.772, 0.778], 0.0005),
        (theta, 0.0, [0.850, 0.802, 0.772, 0.809], 0.0015),
    ):
        x, y = scores[known], gold[known]
        measures = metrics.measures(metrics.Sample(x, y, y == 1, x > middle))
        values = [correlation.point(measures[name], 3673) for name in RATES]
        assert values == pytest.approx(published, abs=within)
