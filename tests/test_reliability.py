"""How reliable a scale is, from arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgeq.errors import NotConvergedError
from judgeq.rating import reliability
from judgeq.rating.reliability import Separation, SplitHalf, separation, split_half
from judgeq.types import Floats, Verdicts
from tests.build import fit_map, verdicts


def by_judges(rankings: Sequence[Sequence[int]], judges: Sequence[int]) -> Verdicts:
    return replace(verdicts(rankings), judges=np.array(judges, dtype=np.int32))


# Separation


def test_separation_is_its_closed_form() -> None:
    theta, se = np.array([-1.0, 0, 1]), np.array([0.3, 0.5, math.sqrt(0.41)])
    # The variance is 1, the mean squared error (0.09 + 0.25 + 0.41)/3.
    found, likeliest = separation(theta, se), separation(theta, se, likeliest=True)
    assert found.ssr == pytest.approx(1 / 1.25)
    assert likeliest.ssr == pytest.approx(1 - 0.25)
    assert found.g == pytest.approx(1 / math.sqrt(1 - 0.8))
    assert likeliest.g == pytest.approx(1 / math.sqrt(1 - 0.75))
    assert (found.n, found.why) == (3, None)


def test_separation_is_within_components() -> None:
    """How far two components lie apart is no spread that judgments know of."""
    theta = np.array([-1.0, 1, 99, 101, 7])
    component = np.array([1, 1, 2, 2, 3])
    found = separation(theta, np.full(5, 0.5), component, likeliest=True)
    assert found.ssr == pytest.approx(1 - 0.25 / 2)  # Σ 4 · 1² over 4 items less 2 components
    assert found.n == 4  # one alone in its component says nothing


def test_undefined_separation_says_why() -> None:
    nan = np.full(3, np.nan)
    assert separation(np.arange(3.0), nan) == Separation(
        None, None, 0, "fewer than two items have a standard error"
    )
    assert separation(np.zeros(3), np.ones(3)).why == "all items are rated the same"
    worse = separation(np.array([-1.0, 1]), np.array([2.0, 2]), likeliest=True)
    assert worse.ssr == -1.0  # errors larger than the spread
    assert worse.g == pytest.approx(1 / math.sqrt(2))


@given(st.lists(st.floats(-5, 5), min_size=3, max_size=9), st.floats(0.1, 3), st.floats(0.1, 9))
def test_separation_knows_neither_zero_nor_unit(values: list[float], se: float, by: float) -> None:
    theta, errors = np.array(values), np.full(len(values), se)
    one, other = separation(theta, errors), separation(by * theta + 3, by * errors)
    if one.ssr is not None and np.ptp(theta) > 1e-3:
        assert other.ssr == pytest.approx(one.ssr, rel=1e-9, abs=1e-6)  # it is far below 0 at times
        assert one.g == pytest.approx(1 / math.sqrt(1 - one.ssr))


# Split halves


def test_consistent_judges_agree_in_both_halves() -> None:
    pairs = list(combinations(range(6), 2))
    found = split_half(
        by_judges(pairs * 12, np.repeat(range(12), len(pairs)).tolist()), fit_map, 0, 10
    )
    assert found.r == pytest.approx(1)
    assert found.whole == pytest.approx(1)
    assert (found.by, found.splits, found.items, found.components) == ("judges", 10, 6, 1)


def test_halves_of_coin_tosses_do_not_correlate() -> None:
    rng = np.random.default_rng(0)
    lists = [rng.permutation(200)[:10].tolist() for _ in range(120)]
    found = split_half(verdicts(lists), fit_map, 0, 20)
    assert found.by == "judgments"
    assert found.r is not None
    assert found.low is not None
    assert found.high is not None
    assert abs(found.r) < 0.1
    assert found.low < found.r < found.high


def test_r_is_that_within_components() -> None:
    """Ratings that differ between components, and not within, agree on nothing."""
    rng = np.random.default_rng(1)
    pairs = [tuple(rng.choice(10, 2, replace=False) + 10 * (at % 2)) for at in range(400)]
    judged = verdicts([(int(a), int(b)) for a, b in pairs])
    noise = np.random.default_rng(2)

    def rate(half: Verdicts, n: int) -> Floats:
        return 100.0 * (np.arange(n) % 20 >= 10) + noise.normal(size=n)

    found = split_half(judged, rate, 0, 30)
    assert found.components == 2
    assert found.r is not None
    assert abs(found.r) < 0.25


def test_halves_without_a_common_scale_say_so() -> None:
    disjoint = verdicts([[0, 1], [2, 3], [4, 5]])
    assert split_half(disjoint, fit_map, 0, 5).why == "both halves connect no two items"
    assert split_half(disjoint.where(np.arange(3) < 1), fit_map, 0).why is not None
    same = verdicts([[0, 1], [1, 0]] * 20)
    assert split_half(same, lambda half, n: np.zeros(n), 0, 5).why == "all items are rated the same"
    assert split_half(same, fit_map, 0, 0) == SplitHalf(
        None, None, None, 0, "judgments", why="no splits were asked for"
    )

    def fails(half: Verdicts, n: int) -> Floats:
        raise NotConvergedError("no end")

    assert split_half(same, fails, 0, 2).why == "half of the judgments can't be rated: no end"


def test_scores_of_items_alone_are_halved_too() -> None:
    one = verdicts([[item] for item in range(5)] * 4)
    scores = np.tile(np.linspace(0, 1, 5), 4)

    def rate(half: Verdicts, n: int) -> Floats:
        assert half.scores is not None
        with np.errstate(invalid="ignore"):
            return np.bincount(half.items, half.scores, n) / np.bincount(half.items, minlength=n)

    found = split_half(replace(one, scores=scores), rate, 0, 20)
    assert found.r == pytest.approx(1)


def test_the_same_seed_draws_the_same_halves_and_large_runs_fewer() -> None:
    rng = np.random.default_rng(0)
    judged = verdicts([rng.permutation(12).tolist() for _ in range(30)])
    assert split_half(judged, fit_map, 3, 9) == split_half(judged, fit_map, 3, 9)
    assert split_half(judged, fit_map, 4, 9) != split_half(judged, fit_map, 3, 9)
    assert reliability.splits_for(judged) == 100
    many = replace(judged, items=np.zeros(10**6, np.int32))
    assert reliability.splits_for(many) == 3


def test_halves_rated_together_are_as_each_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    judged = verdicts([rng.permutation(30)[:4].tolist() for _ in range(50)])
    together = split_half(judged, fit_map, 0, 7)
    monkeypatch.setattr(reliability, "_AT_ONCE", 1)
    alone = split_half(judged, fit_map, 0, 7)
    for name in ("r", "low", "high", "whole"):
        assert getattr(together, name) == pytest.approx(getattr(alone, name), abs=1e-6)
    assert (together.items, together.components) == (alone.items, alone.components)


def test_few_judges_that_judge_most_are_not_many() -> None:
    pairs = [(0, 1)] * 200
    even = by_judges(pairs, [at % 10 for at in range(200)])
    uneven = by_judges(pairs, [max(0, at - 188) for at in range(200)])
    assert split_half(even, fit_map, 0, 1).by == "judges"
    assert split_half(uneven, fit_map, 0, 1).by == "judgments"
