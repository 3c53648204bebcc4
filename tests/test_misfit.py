"""Which judges, items and judgments don't fit, from arrays."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from judgeq.rating import misfit
from judgeq.rating.misfit import fit_of_items, fit_of_judges
from judgeq.types import Verdicts
from tests.build import Ranking, fit_map, grouped, rankings, verdicts

THETA = np.array([1.5, 0.2, -0.3, -2.0, 0.9, 0.0, -1.0])


def plackett_luce(
    n: int, k: int, rounds: int, judges: int, random: float, seed: int
) -> tuple[Verdicts, np.ndarray]:
    """Lists of k by judges that follow Plackett-Luce, and which of them answer at random."""
    rng = np.random.default_rng(seed)
    theta, bad = rng.normal(0, 2, n), rng.random(judges) < random
    lists = np.concatenate([rng.permutation(n)[: n // k * k].reshape(-1, k) for _ in range(rounds)])
    judge = rng.integers(0, judges, len(lists)).astype(np.int32)
    value = np.where(bad[judge][:, None], 0, theta[lists]) + rng.gumbel(size=lists.shape)
    ranked = np.take_along_axis(lists, np.argsort(-value, axis=1), axis=1)
    return replace(verdicts(ranked.tolist()), judges=judge), bad


# Infit and outfit


@given(st.lists(rankings(n=7), min_size=1, max_size=6), st.randoms())
@settings(max_examples=50)
def test_mean_squares_are_those_of_the_implied_comparisons(
    every: list[Ranking], random: object
) -> None:
    judged = replace(
        verdicts(every), judges=np.array([at % 2 for at in range(len(every))], dtype=np.int32)
    )
    sums: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for at, ranking in enumerate(every):
        placed = [(item, place) for place, group in enumerate(grouped(ranking)) for item in group]
        for (a, place), (b, other) in combinations(placed, 2):
            p = 1 / (1 + math.exp(THETA[b] - THETA[a]))
            y = 0.5 if place == other else 1.0
            for key in (("item", a), ("item", b), ("judge", at % 2)):
                sums[key].append(((y - p) ** 2, p * (1 - p)))
    for kind, fit, units in (
        ("item", fit_of_items(judged, THETA), 7),
        ("judge", fit_of_judges(judged, THETA, 2), 2),
    ):
        for unit in range(units):
            parts = sums[kind, unit]
            assert fit.comparisons[unit] == len(parts)
            if parts:
                infit = sum(r for r, _ in parts) / sum(w for _, w in parts)
                assert fit.infit[unit] == pytest.approx(infit)
                outfit = sum(r / w for r, w in parts) / len(parts)
                assert fit.outfit[unit] == pytest.approx(outfit)
            else:
                assert np.isnan(fit.infit[unit])


@pytest.mark.parametrize(("k", "rounds", "judges"), [(2, 24, 40), (10, 6, 20)])
def test_few_that_fit_are_taken_for_misfits(k: int, rounds: int, judges: int) -> None:
    """The range is one of 95 %: pairs, and lists, whose pairs hang together."""
    outside, known = Counter[str](), Counter[str]()
    for seed in range(10):
        judged, _ = plackett_luce(200, k, rounds, judges, 0, seed)
        theta = fit_map(judged, 200)
        for what, fit in (
            ("judges", fit_of_judges(judged, theta, judges)),
            ("items", fit_of_items(judged, theta)),
        ):
            outside[what] += int((fit.above | fit.below).sum())
            known[what] += int(fit.known.sum())
    assert known["judges"] == 10 * judges
    for what in known:
        assert 0.01 < outside[what] / known[what] < 0.08


@pytest.mark.parametrize(("k", "rounds", "judges"), [(2, 24, 80), (10, 8, 20)])
def test_judges_that_answer_at_random_misfit(k: int, rounds: int, judges: int) -> None:
    found, bad, alarms, fair = 0, 0, 0, 0
    for seed in range(8):
        judged, random = plackett_luce(200, k, rounds, judges, 0.05, seed)
        fit = fit_of_judges(judged, fit_map(judged, 200), judges)
        found += int(fit.above[random].sum())
        bad += int(random.sum())
        alarms += int(fit.above[~random].sum())
        fair += int((~random).sum())
    assert found >= 0.9 * bad > 0
    assert alarms <= 0.04 * fair


def test_nothing_is_said_of_few_comparisons() -> None:
    fit = fit_of_judges(verdicts([[0, 1, 2], [2, 1, 0]]), THETA, 2)
    assert fit.comparisons.tolist() == [6, 0]
    assert not fit.known.any()
    assert not (fit.above | fit.below).any()
    empty = fit_of_judges(verdicts([]), THETA, 1)
    assert np.isnan(empty.infit).all()
    assert not fit_of_items(verdicts([]), THETA).known.any()


def test_extreme_ratings_are_no_error() -> None:
    theta = np.array([-700.0, 0, 700])
    fit = fit_of_items(verdicts([[0, 1, 2], [2, 1, 0]] * 20), theta)
    assert np.isfinite(fit.infit).all()


# What a judgment says of one item


def chances(theta: np.ndarray) -> dict[tuple[int, ...], float]:
    """The probability of every ranking, chosen from the top (Plackett-Luce)."""
    chance = {}
    for order in permutations(range(len(theta))):
        left, p = list(order), 1.0
        for item in order:
            p *= math.exp(theta[item]) / sum(math.exp(theta[one]) for one in left)
            left.remove(item)
        chance[order] = p
    return chance


@given(st.lists(st.floats(-4, 4), min_size=2, max_size=4))
@settings(max_examples=20)
def test_residuals_have_mean_0_and_variance_1_under_the_model(values: list[float]) -> None:
    theta, k = np.array(values), len(values)
    top = chances(theta)
    bottom = {order[::-1]: p for order, p in chances(-theta).items()}
    judged = verdicts(top)
    residual, expected = misfit.residuals(judged, theta, np.arange(len(judged.items)))
    for item in range(k):
        mine = judged.items == item
        weights = [np.array([by[order] for order in top]) for by in (top, bottom)]
        means = [float((p * residual[mine]).sum()) for p in weights]
        squares = [float((p * residual[mine] ** 2).sum()) for p in weights]
        assert_allclose(means, 0, atol=1e-9)
        assert_allclose(np.mean(squares), 1)
        won = sum(1 / (1 + math.exp(theta[other] - theta[item])) for other in range(k)) - 0.5
        assert_allclose(expected[mine], won)


def test_residuals_of_pairs_ties_and_items_alone() -> None:
    judged = verdicts([(3, 0), (0, 3), [(0, 3)], (1,), (5, 2, 1)])
    residual, expected = misfit.residuals(judged, THETA, np.arange(len(judged.items)))
    p = 1 / (1 + math.exp(3.5))  # that 3 is above 0
    assert_allclose(residual[:2], [math.sqrt((1 - p) / p), -math.sqrt((1 - p) / p)])
    assert_allclose(residual[2:4], [math.sqrt(p / (1 - p)), -math.sqrt(p / (1 - p))])
    assert_allclose(residual[4], -residual[5])
    assert residual[4] < 0
    assert_allclose(expected[4:6], [1 - p, p])
    assert np.isnan([residual[6], expected[6]]).all()
    some = misfit.residuals(judged, THETA, np.array([8, 0]))[0]
    assert_allclose(some, residual[[8, 0]])
    far = misfit.residuals(verdicts([(1, 0), (0, 1)]), np.array([2000.0, 0.0]), np.arange(4))[0]
    assert np.isfinite(far).all()
    unrated = misfit.residuals(verdicts([(1, 0)]), np.array([np.nan, 0.0]), np.arange(2))[0]
    assert np.isnan(unrated).all()
