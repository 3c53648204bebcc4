"""Which judges, items and judgments don't fit, from arrays."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from judgeq.rating.scale_quality import fit_of_items, fit_of_judges, residuals
from judgeq.types import Verdicts
from tests.build import Ranking, fit_map, grouped, verdicts

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


def test_mean_squares_of_pairs_by_definition() -> None:
    pairs: list[Ranking] = [(0, 1), (3, 0), (2, 4), (4, 2), (5, 1), ((6, 0),), (0, 6), (1, 0)]
    judged = replace(verdicts(pairs), judges=np.arange(8, dtype=np.int32) % 2)
    sums: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for at, pair in enumerate(pairs):
        groups = grouped(pair)
        (a, b), y = (groups[0], 0.5) if len(groups) == 1 else (groups[0] + groups[1], 1.0)
        p = 1 / (1 + math.exp(THETA[b] - THETA[a]))
        for key in (("item", a), ("item", b), ("judge", at % 2)):
            sums[key].append(((y - p) ** 2, p * (1 - p)))
    for kind, fit in (
        ("item", fit_of_items(judged, THETA)),
        ("judge", fit_of_judges(judged, THETA, 2)),
    ):
        for unit, comparisons in enumerate(fit.comparisons.tolist()):
            parts = sums[kind, unit]
            assert comparisons == len(parts)
            assert fit.infit[unit] == pytest.approx(
                sum(r for r, _ in parts) / sum(w for _, w in parts)
            )
            assert fit.outfit[unit] == pytest.approx(sum(r / w for r, w in parts) / len(parts))


def test_mean_squares_of_lists_are_those_of_score_residuals() -> None:
    judged = verdicts([(0, 1, 2, 3), (5, 4, 0), (1, 0)])
    found = residuals(judged, THETA)
    fit = fit_of_items(judged, THETA)
    mine = judged.items == 0
    squares, h = found.residual[mine] ** 2, found.variance[mine]
    assert fit.infit[0] == pytest.approx((squares * h).sum() / h.sum())
    assert fit.outfit[0] == pytest.approx(squares.mean())
    assert fit.comparisons.tolist() == [6, 4, 3, 3, 2, 2, 0]
    assert np.isnan(fit.infit[6])


@pytest.mark.parametrize(("k", "rounds", "judges"), [(2, 24, 40), (10, 6, 20)])
def test_few_that_fit_are_taken_for_misfits(k: int, rounds: int, judges: int) -> None:
    """The range is one of 95 %: pairs, and lists, whose pairs hang together."""
    outside, known = Counter[str](), Counter[str]()
    for seed in range(4):
        judged, _ = plackett_luce(200, k, rounds, judges, 0, seed)
        theta = fit_map(judged, 200)
        for what, fit in (
            ("judges", fit_of_judges(judged, theta, judges)),
            ("items", fit_of_items(judged, theta)),
        ):
            outside[what] += int((fit.above | fit.below).sum())
            known[what] += int(fit.judged.sum())
    assert known["judges"] == 4 * judges
    for what in known:
        assert 0.0 < outside[what] / known[what] < 0.09


def test_judges_that_answer_at_random_misfit() -> None:
    k, rounds, judges = 2, 24, 80
    found, bad, alarms, fair = 0, 0, 0, 0
    for seed in range(4):
        judged, random = plackett_luce(200, k, rounds, judges, 0.05, seed)
        fit = fit_of_judges(judged, fit_map(judged, 200), judges)
        found += int(fit.above[random].sum())
        bad += int(random.sum())
        alarms += int(fit.above[~random].sum())
        fair += int((~random).sum())
    assert found >= 0.9 * bad > 0
    assert alarms <= 0.05 * fair


def test_nothing_is_said_of_few_comparisons() -> None:
    fit = fit_of_judges(verdicts([[0, 1, 2], [2, 1, 0]]), THETA, 2)
    assert fit.comparisons.tolist() == [6, 0]
    assert not fit.judged.any()
    assert not (fit.above | fit.below).any()
    empty = fit_of_judges(verdicts([]), THETA, 1)
    assert np.isnan(empty.infit).all()
    assert not fit_of_items(verdicts([]), THETA).judged.any()


def test_extreme_ratings_are_no_error() -> None:
    theta = np.array([-700.0, 0, 700])
    fit = fit_of_items(verdicts([[0, 1, 2], [2, 1, 0]] * 20), theta)
    assert np.isfinite(fit.infit).all()
    assert np.isfinite(residuals(verdicts([[0, 1, 2], [2, 1, 0]]), theta).residual).all()


# What a judgment says of one item


def test_residuals_have_about_mean_0_and_variance_1_under_the_model() -> None:
    rng = np.random.default_rng(1)
    value = THETA + rng.gumbel(size=(3000, len(THETA)))
    judged = verdicts(np.argsort(-value, axis=1).tolist())
    found = residuals(judged, THETA)
    won = np.tile(np.arange(7)[::-1], 3000)
    for item in range(len(THETA)):
        mine = found.residual[judged.items == item]
        assert abs(mine.mean()) < 0.25
        assert 0.7 < mine.std() < 1.2
        expected = found.expected[judged.items == item]
        assert expected[0] == pytest.approx(
            sum(1 / (1 + math.exp(other - THETA[item])) for other in THETA) - 0.5
        )
        assert won[judged.items == item].mean() == pytest.approx(expected[0], abs=0.15)


def test_residuals_of_pairs_ties_and_items_alone() -> None:
    judged = verdicts([(3, 0), (0, 3), [(0, 3)], (1,), (5, 2, 1)])
    residual, _, expected = residuals(judged, THETA)
    p = 1 / (1 + math.exp(3.5))  # that 3 is above 0
    assert_allclose(residual[:2], [math.sqrt((1 - p) / p), -math.sqrt((1 - p) / p)])
    assert_allclose(residual[2:4], [math.sqrt(p / (1 - p)), -math.sqrt(p / (1 - p))])
    assert_allclose(residual[4], -residual[5])
    assert residual[4] < 0
    assert_allclose(expected[4:6], [1 - p, p])
    assert np.isnan([residual[6], expected[6]]).all()
    # Whatever the reply's own order of tied items, each has its own residual.
    turned = residuals(verdicts([[(3, 0)]]), THETA)
    assert_allclose(turned.residual, residual[5:3:-1])
    assert_allclose(turned.expected, expected[5:3:-1])
    far = residuals(verdicts([(1, 0), (0, 1)]), np.array([2000.0, 0.0])).residual
    assert np.isfinite(far).all()
    assert np.isnan(residuals(verdicts([(1, 0)]), np.array([np.nan, 0.0])).residual).all()
