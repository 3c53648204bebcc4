from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import stats

from judgeq.rating.metrics import detection, mean_ranks, pearson, spearman
from judgeq.types import Floats

NAN = np.nan
# Few values make ties; any others make extremes.
VALUES = st.sampled_from([NAN, -1.0, 0.0, -0.0, 0.5, 3.0]) | st.floats(allow_infinity=False)
COLUMNS = st.lists(st.tuples(VALUES, VALUES), max_size=12).map(
    lambda rows: (np.array([x for x, _ in rows]), np.array([y for _, y in rows]))
)


def random_columns(seed: int) -> tuple[Floats, Floats]:
    """Two columns that hang together, with ties and nans."""
    random = np.random.default_rng(seed)
    n = int(random.integers(5, 200))
    x = random.normal(size=n)
    y = np.round(x + random.normal(size=n), 1)
    x[random.random(n) < 0.1] = NAN
    y[random.random(n) < 0.1] = NAN
    return np.round(x, 2), y


@pytest.mark.parametrize("seed", range(20))
def test_correlations_are_scipys(seed: int) -> None:
    x, y = random_columns(seed)
    both = ~(np.isnan(x) | np.isnan(y))
    rho, r = spearman(x, y), pearson(x, y)
    assert rho == pytest.approx(stats.spearmanr(x[both], y[both]).statistic, abs=1e-12)
    assert r == pytest.approx(stats.pearsonr(x[both], y[both]).statistic, abs=1e-12)


@settings(max_examples=100, deadline=None)
@given(values=st.lists(VALUES.filter(lambda value: value == value), max_size=12))
def test_mean_ranks_are_scipys(values: list[float]) -> None:
    ranks = mean_ranks(np.array(values, dtype=np.float64))
    assert_array_equal(ranks, stats.rankdata(values))


@settings(max_examples=120, deadline=None)
@given(columns=COLUMNS)
def test_a_correlation_is_a_number_or_none(columns: tuple[Floats, Floats]) -> None:
    """Whatever the numbers, as large or small as floats go; and a warning is an error here."""
    x, y = columns
    both = ~(np.isnan(x) | np.isnan(y))
    known = both.any() and (x[both] != x[both][0]).any() and (y[both] != y[both][0]).any()
    for found in (spearman(x, y), pearson(x, y)):
        assert (found is not None) == known
        assert found is None or -1 <= found <= 1


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ([], []),
        ([1], [2]),
        ([1, 1, 1], [1, 2, 3]),
        ([1, 2, 3], [5, 5, 5]),
        ([1, 2, NAN], [5, NAN, 6]),
        ([1, 2, 3], [5, 5, NAN]),
        ([NAN, NAN], [1, 2]),
    ],
)
def test_what_cannot_be_told_is_none(x: list[float], y: list[float]) -> None:
    assert spearman(np.array(x), np.array(y)) is None
    assert pearson(np.array(x), np.array(y)) is None


def test_a_perfect_line_is_exactly_1() -> None:
    random = np.random.default_rng(0)
    for _ in range(200):
        x = random.normal(size=5)
        assert 1 - 1e-12 < (pearson(x, 3 * x + 1) or 0) <= 1
        assert -1 <= (pearson(x, -x) or 0) < -1 + 1e-12


@pytest.mark.parametrize("scale", [1e-310, 1e-200, 1e-5, 1e200, 8e307])
def test_the_unit_does_not_matter(scale: float) -> None:
    x, y = np.array([1.0, 2.0, 0.5, -1.0]), np.array([3.0, 1.0, 1.0, 0.0])
    assert pearson(x * scale, y) == pytest.approx(pearson(x, y))
    assert pearson(y, x * scale) == pytest.approx(pearson(x, y))


def test_detection_by_hand() -> None:
    scores = np.array([1501, 1502, 1499, 1500, 1600, 1400, 1700])
    gold = np.array([1, 1, 1, 0, 0, 0, NAN])
    found = detection(scores, gold, 1500)
    assert found is not None
    assert asdict(found) == {
        "n": 6,
        "recall": 2 / 3,
        "accuracy": 4 / 6,
        "precision": 2 / 3,
        "f1": pytest.approx(2 / 3),
        "macro_f1": pytest.approx(2 / 3),
        "true_positive": 2,
        "false_positive": 1,
        "false_negative": 1,
        "true_negative": 2,
    }


def test_macro_f1_is_the_mean_of_both_classes() -> None:
    found = detection(np.array([1, 1, 1, 1, -1]), np.array([1, 1, 1, 0, 0]), 0)
    assert found is not None
    assert found.f1 == pytest.approx(2 * 3 / (2 * 3 + 1))
    assert found.macro_f1 == pytest.approx((6 / 7 + 2 / 3) / 2)


def test_the_larger_of_any_two_numbers_is_positive() -> None:
    scores = np.array([1, -1, 1, -1])
    gold = np.array([1, 0, 0, 0])
    assert detection(scores, gold, 0) == detection(scores, np.array([2, -5, -5, -5]), 0)


def test_a_score_at_the_threshold_is_negative() -> None:
    found = detection(np.array([0.0, 0.0, 1e-9]), np.array([0, 1, 1]), 0)
    assert found is not None
    assert (found.true_positive, found.false_negative, found.true_negative) == (1, 1, 1)


@pytest.mark.parametrize("gold", [[], [NAN, NAN], [1, 1], [0, NAN], [0, 1, 2]])
def test_detection_takes_two_classes(gold: list[float]) -> None:
    assert detection(np.zeros(len(gold)), np.array(gold), 0) is None


def test_nothing_said_positive() -> None:
    found = detection(np.array([-1, -1, -1]), np.array([0, 1, 1]), 0)
    assert found is not None
    assert (found.precision, found.recall, found.f1) == (None, 0, 0)
    assert found.macro_f1 == pytest.approx(0.5 / 2)


def test_nothing_said_negative() -> None:
    found = detection(np.array([1, 1, 1]), np.array([0, 1, 1]), 0)
    assert found is not None
    assert (found.precision, found.recall) == (2 / 3, 1)
    assert found.macro_f1 == pytest.approx(0.8 / 2)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(st.floats(), st.sampled_from([0.0, 1.0, NAN])), max_size=8))
def test_detection_never_says_nan(rows: list[tuple[float, float]]) -> None:
    found = detection(np.array([row[0] for row in rows]), np.array([row[1] for row in rows]), 0)
    if found is not None:
        numbers = [value for value in asdict(found).values() if value is not None]
        assert all(np.isfinite(numbers))
        assert found.n == sum(numbers[-4:])
