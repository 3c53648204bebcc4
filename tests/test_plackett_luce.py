from __future__ import annotations

from random import Random

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from judgeq.errors import NotConvergedError
from judgeq.rating import Parameters
from judgeq.rating.curvature import Curvature
from judgeq.rating.plackett_luce import fit, rankings_of
from judgeq.types import Floats
from tests.build import (
    Ranking,
    dense,
    fit_map,
    grouped,
    verdicts,
)
from tests.build import rankings as any_rankings

N = 6
MANY = st.lists(any_rankings(N), min_size=1, max_size=8)
THETA = st.lists(st.floats(-4, 4), min_size=N, max_size=N).map(np.array)


def orders(ranking: Ranking) -> list[list[int]]:
    """A ranking's two orders, each at half the weight: its ties as presented (by row), and reversed."""
    groups = [sorted(group) for group in grouped(ranking)]
    return [
        [item for group in groups for item in group],
        [item for group in groups for item in reversed(group)],
    ]


def chosen(order: list[int], theta: Floats) -> float:
    """ℓ(r; θ), by definition."""
    values = theta[order]
    return float(sum(values[a] - np.log(np.exp(values[a:]).sum()) for a in range(len(order))))


def minus_log_likelihood(theta: Floats, many: list[Ranking]) -> float:
    halves = [order for ranking in many for order in orders(ranking)]
    both = sum(chosen(order, theta) + chosen(order[::-1], -theta) for order in halves)
    return -both / 4


def theta_of(many: list[Ranking], n: int = N, sigma: float = 2.0) -> Floats:
    return fit(verdicts(many), n, Parameters(sigma=sigma)).theta


@settings(max_examples=12)
@given(many=MANY, sigma=st.sampled_from([0.3, 2.0, 5.0]))
def test_the_map_is_the_optimum(many: list[Ranking], sigma: float) -> None:
    def objective(theta: Floats) -> float:
        return minus_log_likelihood(theta, many) + float(theta @ theta) / (2 * sigma**2)

    best = scipy.optimize.minimize(objective, np.zeros(N), method="BFGS", options={"gtol": 1e-7})
    theta = theta_of(many, sigma=sigma)
    assert objective(theta) <= best.fun + 1e-12 * abs(best.fun)
    assert_allclose(theta, best.x, atol=1e-5 * max(1, sigma**2))
    assert theta.sum() == pytest.approx(0, abs=1e-7)


@settings(max_examples=12)
@given(many=MANY, theta=THETA, direction=THETA)
def test_loss_and_derivatives(many: list[Ranking], theta: Floats, direction: Floats) -> None:
    some = rankings_of(verdicts(many), N)
    assert some.loss(theta) == pytest.approx(minus_log_likelihood(theta, many))
    gradient = some.gradient(theta)  # also sets where the Hessian looks from
    curvature = Curvature(some, np.ones(N))
    exact = Curvature(some, np.zeros(N))
    step, every = 1e-5, np.eye(N)
    differences = [
        (some.loss(theta + step * way) - some.loss(theta - step * way)) / (2 * step)
        for way in every
    ]
    assert_allclose(gradient, differences, atol=1e-6)

    def along(way: Floats) -> Floats:
        return (some.gradient(theta + step * way) - some.gradient(theta - step * way)) / (2 * step)

    hessian = np.stack([along(way) for way in every])
    assert_allclose(exact.times(direction), hessian @ direction, atol=1e-5)
    assert_allclose(exact.diagonal, np.diag(hessian), atol=1e-6)
    assert_allclose(dense(curvature), hessian + np.eye(N), atol=1e-5)
    assert_allclose(curvature.diagonal, np.diag(hessian) + 1, atol=1e-5)


@settings(max_examples=12)
@given(pairs=st.lists(any_rankings(N, size=2), min_size=1, max_size=12))
def test_of_pairs_it_is_bradley_terry(pairs: list[Ranking]) -> None:
    assert_allclose(theta_of(pairs), fit_map(verdicts(pairs), N, 2.0), atol=2.1e-8)


@settings(max_examples=12)
@given(many=MANY, names=st.permutations(range(N)), order=st.randoms(use_true_random=False))
def test_neither_names_nor_order_matter(
    many: list[Ranking], names: list[int], order: Random
) -> None:
    untied: list[Ranking] = [[item for group in grouped(each) for item in group] for each in many]
    theta = theta_of(untied)
    renamed: list[Ranking] = [[names[item] for [item] in grouped(each)] for each in untied]
    order.shuffle(renamed)
    assert_allclose(theta_of(renamed)[names], theta, atol=2.1e-8)
    turned: list[Ranking] = [each[::-1] for each in untied]
    assert_allclose(theta_of(turned), -theta, atol=2.1e-8)


def test_ties_treat_their_items_alike() -> None:
    """A tie of all says nothing, and tied items end near one another."""
    assert_allclose(theta_of([[[0, 1, 2, 3]]] * 3, 4), np.zeros(4), atol=1e-9)
    theta = theta_of([[0, [1, 2], 3]] * 4, 4)
    assert_allclose(theta[1], theta[2], atol=1e-9)
    assert theta[0] > 1 > -1 > theta[3]


def test_undefeated_never_judged_and_apart() -> None:
    fitted = fit(verdicts([(0, 1, 2)] * 20 + [(4, 5)]), 7, Parameters(sigma=2.0))
    theta, posterior = fitted.theta, fitted.posterior
    assert posterior is not None
    assert np.isfinite(theta).all()
    assert theta[0] > theta[1] > theta[2]
    assert theta[3] == theta[6] == 0
    assert_allclose([theta[:3].sum(), theta[4] + theta[5]], 0, atol=1e-8)
    assert (posterior.errors > 0).all()
    assert posterior.errors[3] == posterior.errors[6] == 2.0
    assert posterior.component.tolist() == [1, 1, 1, 0, 2, 2, 0]


def test_it_raises_unless_it_has_converged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Curvature, "solve", lambda _, b, *__: np.zeros_like(b))
    with pytest.raises(NotConvergedError, match=r"Plackett-Luce \(MAP, σ = 3\) did not converge"):
        fit(verdicts([(0, 1)]), 2, Parameters(sigma=3.0))
