"""Measures against gold labels, and of the agreement of judges, against SciPy and their definitions."""

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
from numpy.testing import assert_allclose, assert_array_equal

from judgeq.evaluation import metrics
from judgeq.evaluation.agreement import alpha, codings, kendall_by_pair
from judgeq.evaluation.metrics import COUNTS, Measured, resamples
from judgeq.rating.correlation import CORRELATION, Measure, point
from judgeq.types import Bools, Floats, Verdicts
from tests.build import grouped, rankings, verdicts

NAN = np.nan
# Few values make ties, any others make extremes; those between are far enough apart for squares.
FEW = st.sampled_from([-1.0, -0.0, 0.0, 0.5, 3.0])
TAME = FEW | st.integers(-(10**6), 10**6).map(lambda value: value / 1000)


@st.composite
def rated(draw: st.DrawFn) -> tuple[Floats, Bools]:
    """Scores, and which items are positive."""
    rows = draw(st.lists(st.tuples(TAME, st.booleans()), max_size=12))
    return np.array([score for score, _ in rows]), np.array([true for _, true in rows], dtype=bool)


def random_columns(seed: int) -> tuple[Floats, Floats]:
    """Two columns that hang together: with many, few or no ties, gold of many, few or two values."""
    random = np.random.default_rng(seed)
    n = int(random.integers(2, 300))
    x = random.normal(size=n)
    y = x + random.normal(size=n)
    return np.round(x, int(random.choice([0, 1, 9]))), [y, np.round(y), np.sign(y)][seed % 3]


def correlation(x: Floats, y: Floats) -> dict[str, Measure]:
    return {name: make(x, y) for name, make in CORRELATION.items()}


def measures_of(x: Floats, y: Floats, positive: Bools, threshold: float) -> dict[str, Measure]:
    every = metrics.measures(metrics.Sample(x, y, positive, x > threshold))
    return {name: made for name, made in every.items() if name not in COUNTS}


def scikit_learns(true: Bools, said: Bools, scores: Floats) -> dict[str, float]:
    """The measures of detection by scikit-learn; precision is nan where nothing is said."""
    from sklearn import metrics as sklearn  # type: ignore[import-untyped]

    return {
        "recall": sklearn.recall_score(true, said),
        "accuracy": sklearn.accuracy_score(true, said),
        "precision": sklearn.precision_score(true, said, zero_division=NAN),
        "f1": sklearn.f1_score(true, said),
        # Of two classes both occur in gold, even where only one is said.
        "macro_f1": sklearn.f1_score(true, said, labels=[False, True], average="macro"),
        "auc": sklearn.roc_auc_score(true, scores),
    }


@settings(max_examples=150)
@given(items=rated(), threshold=TAME)
def test_detection_is_scikit_learns(items: tuple[Floats, Bools], threshold: float) -> None:
    scores, positive = items
    every = measures_of(scores, scores, positive, threshold)
    found = {name: point(every[name], len(scores)) for name in every.keys() - CORRELATION.keys()}
    if len(np.unique(positive)) < 2:
        assert set(found.values()) == {None}
        return
    expected = scikit_learns(positive, scores > threshold, scores)
    known = {name: NAN if value is None else value for name, value in found.items()}
    assert known == pytest.approx(expected, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("seed", range(6))
def test_a_resample_is_its_items(seed: int) -> None:
    """And all of them, once each: against SciPy and scikit-learn, with many, few or no ties."""
    x, y = random_columns(seed)
    positive = y > 0
    measures = measures_of(x, y, positive, 0)
    (weights,) = resamples(len(x), 5, np.random.default_rng(seed))
    stats = scipy.stats
    by: dict[str, Any] = {"pearson": stats.pearsonr, "spearman": stats.spearmanr}
    by["kendall"] = stats.kendalltau
    for weight in (np.ones(len(x)), *weights):
        each = np.repeat(np.arange(len(x)), weight.astype(int))
        a, b, true = x[each], y[each], positive[each]
        expected = {name: of_scipy(a, b).statistic for name, of_scipy in by.items()}
        expected |= scikit_learns(true, a > 0, a)
        found = {name: measure(weight[None])[0] for name, measure in measures.items()}
        assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        *(([], []), ([1], [2]), ([0.1] * 3, [1, 2, 3]), ([1, 2, 3], [0.7] * 3)),
        *(([0, 0, 0], [0, 0, 0]), ([1e300, 1e300], [1, 2])),
    ],
)
def test_what_cannot_be_told_is_nan(x: list[float], y: list[float]) -> None:
    a, b = np.array(x, dtype=np.float64), np.array(y, dtype=np.float64)
    weights = np.vstack([np.ones(len(a)), np.full(len(a), 3.0), np.zeros(len(a))])
    for measure in correlation(a, b).values():
        assert np.isnan(measure(weights)).all()
        assert point(measure, len(a)) is None


@pytest.mark.parametrize(
    ("offset", "spread"), [(1e9, 1.0), (1e9, 1e-3), (-1e9, 1e-4), (1e15, 10.0), (3e5, 1e-6)]
)
def test_an_offset_does_not_matter(offset: float, spread: float) -> None:
    """No digit of what an item's number holds is lost."""
    random = np.random.default_rng(0)
    x = offset + spread * random.normal(size=200)
    y = x - offset + spread * random.normal(size=200)
    # To subtract numbers so close to each other is exact.
    expected = scipy.stats.pearsonr(x - offset, y).statistic
    assert point(correlation(x, y)["pearson"], 200) == pytest.approx(expected, abs=1e-9)
    (weights,) = resamples(200, 20, random)
    moved, plain = (correlation(some, y)["pearson"](weights) for some in (x, x - offset))
    assert_allclose(moved, plain, atol=1e-9)


@pytest.mark.parametrize(("n", "times"), [(1, 3), (2, 1), (10, 25), (300, 100), (5, 0), (0, 3)])
def test_a_resample_draws_as_many_as_there_are(n: int, times: int) -> None:
    found = list(resamples(n, times, np.random.default_rng(0)))
    weights = np.concatenate([np.empty((0, n)), *found])
    assert weights.shape == (times, n)
    assert_array_equal(weights.sum(axis=1), n)
    assert_array_equal(weights, np.floor(weights))


def test_an_interval_by_hand() -> None:
    mostly = np.append(np.arange(901.0), np.full(99, NAN))
    expected = [(np.arange(1001.0), [25, 975]), (np.array([2.0]), [2, 2]), (mostly, [22.5, 877.5])]
    for values, ends in expected:
        found = metrics.measured(1.0, values)
        assert [found.low, found.high] == pytest.approx(ends)


@pytest.mark.parametrize(
    "values", [[], [NAN], [NAN] * 9 + [1.0], [1.0] * 8 + [NAN] * 2], ids=["0", "1", "10", "80%"]
)
def test_an_interval_of_too_few_is_none(values: list[float]) -> None:
    found = metrics.measured(1.0, np.array(values))
    assert (found.low, found.high) == (None, None)


N = 6
Answer = tuple[int, Any]
"""A judge, and a ranking as of `tests.build`."""
Coding = tuple[int, int, float]
"""A unit, a judge and a value."""
ANSWERS: st.SearchStrategy[list[Answer]] = st.lists(
    st.tuples(st.integers(0, 3), rankings(n=N)), min_size=1, max_size=12
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
    units, ends = unit.astype(np.int32), np.arange(len(given) + 1)
    tied, judges = np.zeros(len(given), np.bool_), judge.astype(np.int32)
    them = Verdicts(ends[1:], units, ends, tied, units, scores=value, judges=judges)
    return alpha(codings(them), 0, np.random.default_rng(0))[0].value


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


def test_the_published_example() -> None:
    given = [
        (unit, judge, float(value))
        for judge, values in enumerate(PUBLISHED)
        for unit, value in enumerate(values)
        if value
    ]
    assert len(given) == 41  # 40 of them can be paired
    assert of(given) == pytest.approx(0.849, abs=0.0005)


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


EIGHT = st.lists(st.sampled_from([np.nan, 0.0, 0.5, 1.0, 2.0]), min_size=8, max_size=8)


@settings(max_examples=60)
@given(ratings=st.lists(EIGHT, max_size=4))
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
