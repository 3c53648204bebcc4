"""How reliable a scale is, from arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from judgeq.errors import NotConvergedError
from judgeq.rating.scale_quality import Separation, SplitHalf, separation, split_half
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


# Split halves


def test_consistent_judges_agree_in_both_halves() -> None:
    pairs = list(combinations(range(6), 2))
    found = split_half(
        by_judges(pairs * 12, np.repeat(range(12), len(pairs)).tolist()), fit_map, 0, 10
    )
    assert found.r == pytest.approx(1)
    assert found.whole == pytest.approx(1)
    assert (found.by, found.splits, found.items) == ("judges", 10, 6)


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
