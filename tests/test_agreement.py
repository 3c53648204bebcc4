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

from judgeq.evaluation import agreement
from judgeq.evaluation.agreement import (
    _Alpha,
    _both_ways,
    kendall_by_pair,
)
from judgeq.rating.correlation import point
from judgeq.types import Floats, Verdicts
from tests.build import Ranking, grouped, rankings, verdicts

N = 6
Answer = tuple[int, Ranking]
"""A judge and its ranking."""
ANSWERS = st.lists(st.tuples(st.integers(0, 2), rankings(N)), max_size=12)
Coding = tuple[int, int, float]
"""Unit, judge, value."""
CODINGS = st.lists(
    st.tuples(st.integers(-3, 4), st.integers(0, 3), st.sampled_from([-1, 0, 0.5, 1, 7])),
    max_size=30,
)

# Krippendorff (2011), section C/D: four observers, twelve units; 0 where a value is missing.
PUBLISHED = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, 0, 0, 0],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, 0, 3],
    [0, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, 0],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, 0],
]


def alpha(verdicts: Verdicts) -> float | None:
    return agreement.alpha(verdicts, 0, np.random.default_rng(0)).value


def interval(
    verdicts: Verdicts, times: int, rng: np.random.Generator
) -> tuple[float | None, float | None]:
    measured = agreement.alpha(verdicts, times, rng)
    return measured.low, measured.high


def answered(answers: Iterable[Answer]) -> Verdicts:
    answers = list(answers)
    judges = np.array([judge for judge, _ in answers], dtype=np.int32)
    return replace(verdicts(ranking for _, ranking in answers), judges=judges)


def implied(some: Verdicts) -> tuple[Any, Any, Floats]:
    pairs, verdict, value = agreement.implied(some)
    return pairs, agreement.judges_of(some)[verdict], value


def krippendorff(*codings: Any) -> float | None:
    units, judges, values = codings
    measure = _Alpha(units, judges, values, np.zeros(len(units), dtype=np.int64))
    return point(measure, measure.groups)


def of(codings: Sequence[Coding]) -> float | None:
    return krippendorff(
        np.array([unit for unit, _, _ in codings], dtype=np.int64),
        np.array([judge for _, judge, _ in codings], dtype=np.int64),
        np.array([value for _, _, value in codings], dtype=np.float64),
    )


def naive(codings: Iterable[Coding]) -> float | None:
    """α by the definition."""
    said: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for unit, judge, value in codings:
        said[unit][judge].append(value)
    units = [[float(np.mean(some)) for some in by.values()] for by in said.values() if len(by) > 1]
    values = [value for unit in units for value in unit]
    n = len(values)
    expected = sum((a - b) ** 2 for a, b in permutations(values, 2))
    if expected < 1e-9:
        return None
    observed = sum(
        (a - b) ** 2 / (len(unit) - 1) for unit in units for a, b in permutations(unit, 2)
    )
    return 1 - (observed / n) / (expected / (n * (n - 1)))


def codings_of(answers: Iterable[Answer], n: int) -> list[Coding]:
    """What is implied of each pair, by the definition."""
    found = []
    for judge, ranking in answers:
        place = {item: at for at, group in enumerate(grouped(ranking)) for item in group}
        for low, high in combinations(sorted(place), 2):
            value = 0.5 if place[low] == place[high] else float(place[low] < place[high])
            found.append((low * n + high, judge, value))
    return found


def both_ways(codings: Iterable[Coding]) -> list[Coding]:
    codings = list(codings)
    return codings + [(-1 - unit, judge, 1 - value) for unit, judge, value in codings]


def noisy(rng: np.random.Generator, lists: int) -> list[tuple[int, list[int]]]:
    """Three judges who rank lists of four new items, whose order is that of their rows, with noise."""
    return [
        (judge, (4 * each + np.argsort(np.arange(4) + rng.normal(0, 0.7, 4))).tolist())
        for each in range(lists)
        for judge in range(3)
    ]


def test_the_published_example() -> None:
    codings = [
        (unit, judge, float(value))
        for judge, values in enumerate(PUBLISHED)
        for unit, value in enumerate(values)
        if value
    ]
    assert len(codings) == 41  # 40 of them can be paired
    assert of(codings) == pytest.approx(0.849, abs=0.0005)


@settings(max_examples=200)
@given(codings=CODINGS, shift=st.sampled_from([0, 1e6]), scale=st.sampled_from([1, 1e-200, -3]))
def test_krippendorff(codings: list[Coding], shift: float, scale: float) -> None:
    expected = naive(codings)
    assert of(codings) == pytest.approx(expected, abs=1e-9)
    if scale == 1 or not shift:
        moved = [(unit, judge, value * scale + shift) for unit, judge, value in codings]
        assert of(moved) == pytest.approx(expected, abs=1e-6)


def test_krippendorff_of_perfect_and_of_systematic_disagreement() -> None:
    assert of([(u, j, u / 3) for u in range(9) for j in range(4)]) == pytest.approx(1)
    # Two judges, each pair the other way round: Do = 1, De = 2·n²/4 / (n(n−1)).
    opposed = [(u, j, float((u + j) % 2)) for u in range(10) for j in range(2)]
    assert of(opposed) == pytest.approx(1 - 19 / 10)


def test_krippendorff_of_chance() -> None:
    rng = np.random.default_rng(1)
    unit, judge = np.divmod(np.arange(60_000), 3)
    found = krippendorff(unit, judge, rng.choice([0, 0.5, 1], 60_000))
    assert found == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize(
    "codings",
    [
        [],
        [(0, 0, 1.0)],
        [(0, 0, 1.0), (1, 1, 0.0)],
        [(0, 0, 1.0), (0, 0, 0.0)],
        [(0, 0, 1.0), (0, 1, 1.0), (1, 0, 0.0)],
        # Means of judges that differ by rounding only.
        [(0, 0, 0.1)] * 3 + [(0, 1, 0.1)],
        [(0, 0, 1.0), (0, 0, 0.0), (0, 1, 0.5)],
    ],
)
def test_krippendorff_that_cannot_be_told(codings: list[Coding]) -> None:
    assert of(codings) is None


def test_a_judges_repeated_answers_are_averaged_and_never_paired() -> None:
    once = [(0, 0, 1.0), (0, 1, 0.0), (1, 0, 0.5), (1, 1, 1.0), (2, 0, 0.0), (2, 1, 0.0)]
    assert of([*once, *once]) == pytest.approx(of(once))
    assert of([*once, (2, 0, 0.0), (2, 0, 0.0)]) == pytest.approx(of(once))
    # 1, 0, 0 and 1 are a half, as is a tie.
    wavering = [(1, 0, value) for value in (1.0, 0.0, 0.0, 1.0)]
    assert of([*once[:2], *wavering, *once[3:]]) == pytest.approx(of(once))


@settings(max_examples=100)
@given(answers=ANSWERS)
def test_implied(answers: list[Answer]) -> None:
    some = answered(answers)
    pairs, judge, value = implied(some)
    n = int(some.items.max(initial=-1)) + 1
    found = zip(pairs.tolist(), judge.tolist(), value.tolist(), strict=True)
    assert sorted(found) == sorted(codings_of(answers, n))
    assert [each.dtype.name for each in (pairs, judge, value)] == ["int64", "int32", "float64"]


def test_implied_by_hand() -> None:
    pairs, judge, value = implied(answered([(4, (2, (0, 1))), (7, (1, 2)), (5, (3,))]))
    # Pairs before lists of three; an item alone implies nothing. n is 4.
    assert pairs.tolist() == [1 * 4 + 2, 0 * 4 + 2, 1 * 4 + 2, 0 * 4 + 1]
    assert judge.tolist() == [7, 4, 4, 4]
    assert value.tolist() == [1, 0, 0, 0.5]


def test_pairs_of_high_rows_do_not_overflow() -> None:
    pairs, _, _ = implied(verdicts([(100_000, 99_999)]))
    assert pairs.tolist() == [99_999 * 100_001 + 100_000]


def test_one_judge_has_nobody_to_agree_with() -> None:
    some = verdicts([(0, 1, 2), (0, 2, 1)])
    assert implied(some)[1].tolist() == [0] * 6
    assert alpha(some) is None
    assert alpha(verdicts([])) is None
    for each in (some, verdicts([])):
        assert interval(each, 20, np.random.default_rng(0)) == (None, None)


@settings(max_examples=100)
@given(answers=ANSWERS, rows=st.permutations(range(N)))
def test_alpha(answers: list[Answer], rows: list[int]) -> None:
    expected = naive(both_ways(codings_of(answers, N)))
    assert alpha(answered(answers)) == pytest.approx(expected, abs=1e-9)
    # Neither the order of the verdicts nor the numbering of the items matters.
    mixed = [
        (judge, [[rows[item] for item in group] for group in grouped(ranking)])
        for judge, ranking in reversed(answers)
    ]
    assert alpha(answered(mixed)) == pytest.approx(expected, abs=1e-9)


def test_alpha_of_items_in_their_true_order() -> None:
    some = answered(noisy(np.random.default_rng(2), 400))
    found = alpha(some)
    assert found is not None
    assert 0.5 < found < 0.9
    # One way round, nearly all values are 1, and next to that chance little agreement is left.
    one_way = krippendorff(*implied(some))
    assert one_way is not None
    assert one_way < found - 0.2


def test_alpha_of_agreement_and_of_opposites() -> None:
    ranking = (3, 1, (0, 2))
    assert alpha(answered([(0, ranking), (1, ranking), (2, ranking)])) == pytest.approx(1)
    assert alpha(answered([(0, ((0, 1),)), (1, ((0, 1),))])) is None
    many = [
        (judge, pair[:: 1 - 2 * judge]) for pair in combinations(range(9), 2) for judge in (0, 1)
    ]
    found = alpha(answered(many))
    assert found is not None
    assert -1 <= found < -0.95


def weighted(
    answers: Iterable[Answer], weight: dict[frozenset[int], float], ways: int
) -> float | None:
    """α where judges' means are weighted, and a unit weighs the mean of its answers."""
    said: dict[int, dict[int, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for answer in answers:
        codings = codings_of([answer], N)
        for unit, judge, value in both_ways(codings) if ways == 2 else codings:
            said[unit][judge].append((value, weight[items_of(answer)]))
    values, observed = [], 0.0
    for by in said.values():
        if len(by) > 1:
            means = [sum(v * w for v, w in some) / sum(w for _, w in some) for some in by.values()]
            heavy = float(np.mean([w for some in by.values() for _, w in some]))
            values += [(heavy, mean) for mean in means]
            within = sum((a - b) ** 2 for a, b in permutations(means, 2))
            observed += heavy * within / (len(means) - 1)
    n = sum(heavy for heavy, _ in values)
    expected = sum(a * b * (x - y) ** 2 for a, x in values for b, y in values)
    return 1 - observed / n / (expected / (n * (n - 1))) if expected > 1e-6 else None


def items_of(answer: Answer) -> frozenset[int]:
    return frozenset(item for group in grouped(answer[1]) for item in group)


@settings(max_examples=100)
@given(answers=ANSWERS, data=st.data())
def test_the_weight_of_a_set_to_first_order(answers: list[Answer], data: st.DataObject) -> None:
    judges: dict[int, set[int]] = defaultdict(set)
    for unit, judge, _ in codings_of(answers, N):
        judges[unit].add(judge)
    telling = {
        items_of(each)
        for each in answers
        if any(len(judges[unit]) > 1 for unit, _, _ in codings_of([each], N))
    }
    groups = sorted(telling, key=lambda group: (len(group), sorted(group)))
    ways = data.draw(st.integers(1, 2))
    columns = _both_ways(answered(answers))
    measure = _Alpha(*(each[: len(each) * ways // 2] for each in columns))  # type: ignore[arg-type]
    assert measure.groups == len(groups)
    change = [data.draw(st.sampled_from([-1e-4, 0.0, 1e-4])) for _ in groups]
    if weighted(answers, defaultdict(lambda: 1.0), ways) is None:
        return
    found, expected = [], []
    for sign in (1, -1):
        weights = [1 + sign * each for each in change]
        found += measure(np.array([weights])).tolist()
        by_set = defaultdict(lambda: 1.0, zip(groups, weights, strict=True))
        expected.append(weighted(answers, by_set, ways) or 0.0)
    assert found == pytest.approx(expected, abs=1e-6)
    assert found[0] - found[1] == pytest.approx(expected[0] - expected[1], abs=1e-7)


def test_a_set_drawn_twice_is_as_two_sets() -> None:
    answers = noisy(np.random.default_rng(3), 3)
    again = [(judge, [item + 12 for item in ranking]) for judge, ranking in answers[3:6]]
    (found,) = _Alpha(*_both_ways(answered(answers)))(np.array([[1.0, 2.0, 1.0]]))
    assert found == pytest.approx(alpha(answered(answers + again)))


def test_interval_is_deterministic_and_independent_of_order() -> None:
    # Of lists of few items, such that pairs occur in several lists.
    rng = np.random.default_rng(4)
    answers = [
        (judge, rng.permuted(some).tolist())
        for some in combinations(range(N), 4)
        for judge in (0, 1)
    ]
    low, high = interval(answered(answers), 200, np.random.default_rng(5))
    assert low is not None
    assert high is not None
    again = interval(answered(answers), 200, np.random.default_rng(5))
    assert (low, high) == again
    other = interval(answered(answers[::-1]), 200, np.random.default_rng(5))
    assert other == pytest.approx((low, high))
    assert low < high


def test_interval_covers() -> None:
    rng = np.random.default_rng(6)
    true = alpha(answered(noisy(rng, 5000)))
    assert true is not None
    covered = 0
    for _ in range(60):
        low, high = interval(answered(noisy(rng, 60)), 200, rng)
        assert low is not None
        assert high is not None
        covered += low <= true <= high
    assert covered >= 52  # 57 are expected; 52 or fewer in 2 of 100 such tests


def test_interval_that_cannot_be_told() -> None:
    rng = np.random.default_rng(0)
    one_list = answered([(0, (0, 1, 2)), (1, (0, 2, 1))])
    assert alpha(one_list) is not None
    assert interval(one_list, 20, rng) == (None, None)
    assert interval(answered(noisy(rng, 5)), 0, rng) == (None, None)


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
    for a, one in enumerate(arrays):
        for b, other in enumerate(arrays):
            both = ~(np.isnan(one) | np.isnan(other))
            told = len(set(one[both])) > 1 and len(set(other[both])) > 1
            expected = scipy.stats.kendalltau(one[both], other[both]).statistic if told else np.nan
            assert found[a, b] == pytest.approx(1 if a == b else expected, nan_ok=True)


def test_kendall_by_pair_by_hand() -> None:
    up = np.arange(4.0)
    found = kendall_by_pair([up, -up, np.ones(4)])
    assert_array_equal(found, [[1, -1, np.nan], [-1, 1, np.nan], [np.nan, np.nan, 1]])
