"""Krippendorff's α and Kendall's τ of judges, against their definitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from judgeq.evaluation.agreement import alpha, coded, codings, kendall_by_pair
from judgeq.evaluation.metrics import Measured
from judgeq.types import Floats, Verdicts
from tests.build import grouped, rankings, verdicts

N = 6
Answer = tuple[int, Any]
"""A judge, and a ranking as of `tests.build`."""
Coding = tuple[int, int, float]
"""A unit, a judge and a value."""
ANSWERS: st.SearchStrategy[list[Answer]] = st.lists(
    st.tuples(st.integers(0, 3), rankings(n=N)), min_size=1, max_size=12
)
CODINGS: st.SearchStrategy[list[Coding]] = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 3), st.sampled_from([0.0, 0.5, 1.0])), max_size=30
)
# Krippendorff 2011, "Computing Krippendorff's alpha-reliability", example C; 0: no answer.
PUBLISHED = (
    (1, 2, 3, 3, 2, 1, 4, 1, 2, 0, 0, 0),
    (1, 2, 3, 3, 2, 2, 4, 1, 2, 5, 0, 3),
    (0, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, 0),
    (1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, 0),
)


def answered(answers: Iterable[Answer]) -> Verdicts:
    judges, ranked = zip(*answers, strict=True)
    return replace(verdicts(ranked), judges=np.array(judges, dtype=np.int32))


def measured(answers: Iterable[Answer], times: int = 0, seed: int = 0) -> Measured:
    return alpha(codings(answered(answers)), times, np.random.default_rng(seed))[0]


def of(given: Sequence[Coding]) -> float | None:
    """Of codings of units that are no pairs."""
    unit, judge, value = np.array(given).reshape(-1, 3).T
    units = unit.astype(np.int64)
    them = coded(units, units, judge.astype(np.int32), value, alone=True)
    return alpha(them, 0, np.random.default_rng(0))[0].value


def naive(given: Iterable[tuple[Any, int, float]]) -> float | None:
    """By the definition, coding by coding."""
    said: dict[Any, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for unit, judge, value in given:
        said[unit][judge].append(value)
    units = [[float(np.mean(some)) for some in by.values()] for by in said.values()]
    units = [means for means in units if len(means) > 1]
    values = [value for means in units for value in means]
    expected = sum((a - b) ** 2 for a, b in permutations(values, 2))
    if expected < 1e-9:
        return None
    observed = sum(
        sum((a - b) ** 2 for a, b in permutations(means, 2)) / (len(means) - 1) for means in units
    )
    n = len(values)
    return 1 - observed / n / (expected / (n * (n - 1)))


def both_ways(answers: Iterable[Answer]) -> list[tuple[Any, int, float]]:
    """All that answers imply, pair by pair of a set of items, each way round."""
    found = []
    for judge, ranking in answers:
        place = {item: at for at, group in enumerate(grouped(ranking)) for item in group}
        for a, b in permutations(sorted(place), 2):
            value = 0.5 + 0.5 * float(np.sign(place[b] - place[a]))
            found.append(((frozenset(place), a, b), judge, value))
    return found


def noisy(rng: np.random.Generator, lists: int) -> list[Answer]:
    """Of each list of four, two answers near the order of the items, with noise."""
    return [
        (judge, some[np.argsort(some + rng.normal(0, 30, 4))].tolist())
        for some in (rng.permutation(200)[:4] for _ in range(lists))
        for judge in (0, 1)
    ]


def test_the_published_example() -> None:
    given = [
        (unit, judge, float(value))
        for judge, values in enumerate(PUBLISHED)
        for unit, value in enumerate(values)
        if value
    ]
    assert len(given) == 41  # 40 of them can be paired
    assert of(given) == pytest.approx(0.849, abs=0.0005)


@settings(max_examples=150)
@given(some=CODINGS)
def test_krippendorff(some: list[Coding]) -> None:
    assert of(some) == pytest.approx(naive(some), abs=1e-9)


@pytest.mark.parametrize(
    "some",
    [
        [],
        [(0, 0, 1.0), (1, 1, 0.0)],
        [(0, 0, 1.0), (0, 0, 0.0)],
        [(0, 0, 1.0), (0, 1, 1.0), (1, 0, 0.0)],
        # Means of judges that differ by rounding only.
        [(0, 0, 0.1)] * 3 + [(0, 1, 0.1)],
    ],
)
def test_krippendorff_that_cannot_be_told(some: list[Coding]) -> None:
    assert of(some) is None


@settings(max_examples=150)
@given(answers=ANSWERS, rows=st.permutations(range(N)))
def test_alpha_of_rankings(answers: list[Answer], rows: list[int]) -> None:
    """By the definition; whatever the numbers of the items, the order of the answers and what other
    items a question has."""
    expected = naive(both_ways(answers))
    assert measured(answers).value == pytest.approx(expected, abs=1e-9)
    mixed = [
        (judge, [[rows[item] for item in group] for group in grouped(ranking)])
        for judge, ranking in reversed(answers)
    ]
    assert measured(mixed).value == pytest.approx(expected, abs=1e-9)


def test_how_many_pairs_several_judged() -> None:
    answers = [(0, (0, 1, 2)), (1, (2, 1, 0)), (1, (0, 1)), (1, (4, 3)), (2, (3, 4))]
    given = codings(answered(answers))
    assert len(np.unique(given.question)) == 3
    assert alpha(given, 0, np.random.default_rng(0))[1] == 4
    high = answered([(0, (2**31 - 2, 2**31 - 1)), (1, (2**31 - 1, 2**31 - 2))])
    assert codings(high).value.tolist() == [1, 0]
    best = replace(answered([(0, (0, [1, 2]))]), partial=np.array([True]))
    assert len(codings(best).value) == 2


def test_the_interval_is_the_same_for_any_order_of_the_answers() -> None:
    rng = np.random.default_rng(6)
    answers = noisy(rng, 30)
    found = measured(answers, 200)
    assert measured(answers[::-1], 200).low == pytest.approx(found.low)
    one_list = measured([(0, (0, 1, 2)), (1, (0, 2, 1))], 20)
    assert one_list.value is not None
    assert one_list.low is None


@settings(max_examples=60)
@given(
    ratings=st.lists(
        st.lists(st.sampled_from([np.nan, 0.0, 0.5, 1.0, 2.0]), min_size=8, max_size=8), max_size=4
    )
)
def test_kendall_by_pair(ratings: list[list[float]]) -> None:
    arrays: list[Floats] = [np.array(each) for each in ratings]
    found = kendall_by_pair(arrays)
    assert found.shape == (len(ratings), len(ratings))
    for (a, one), (b, other) in combinations(enumerate(arrays), 2):
        both = ~(np.isnan(one) | np.isnan(other))
        told = len(set(one[both])) > 1 and len(set(other[both])) > 1
        expected = scipy.stats.kendalltau(one[both], other[both]).statistic if told else np.nan
        assert found[a, b] == found[b, a] or not told
        assert found[a, b] == pytest.approx(expected, nan_ok=True)
    assert_array_equal(np.diag(found), 1)
