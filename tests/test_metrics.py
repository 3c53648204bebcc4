from __future__ import annotations

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from judgeq.evaluation import metrics
from judgeq.evaluation.metrics import COUNTS, interval, resamples
from judgeq.rating.correlation import CORRELATION, Measure, point
from judgeq.types import Bools, Floats

NAN = np.nan
# Few values make ties, any others make extremes; those between are far enough apart for squares.
FEW = st.sampled_from([-1.0, -0.0, 0.0, 0.5, 3.0])
TAME = FEW | st.integers(-(10**6), 10**6).map(lambda value: value / 1000)


def column(values: st.SearchStrategy[float], n: int) -> st.SearchStrategy[Floats]:
    return st.lists(values, min_size=n, max_size=n).map(
        lambda some: np.array(some, dtype=np.float64)
    )


def mask(n: int) -> st.SearchStrategy[Bools]:
    return st.lists(st.booleans(), min_size=n, max_size=n).map(
        lambda some: np.array(some, dtype=bool)
    )


@st.composite
def columns(
    draw: st.DrawFn, values: st.SearchStrategy[float], least: int = 0, most: int = 12
) -> tuple[Floats, Floats]:
    """Two columns, the second often of few values, as gold is."""
    n = draw(st.integers(least, most))
    return draw(column(values, n)), draw(column(values, n) | column(FEW, n))


@st.composite
def rated(
    draw: st.DrawFn, values: st.SearchStrategy[float], least: int = 0, most: int = 12
) -> tuple[Floats, Bools]:
    """Scores, and which items are positive."""
    n = draw(st.integers(least, most))
    return draw(column(values, n)), draw(mask(n))


def random_columns(seed: int) -> tuple[Floats, Floats]:
    """Two columns that hang together: with many, few or no ties, gold of many, few or two values."""
    random = np.random.default_rng(seed)
    n = int(random.integers(2, 300))
    x = random.normal(size=n)
    y = x + random.normal(size=n)
    return np.round(x, int(random.choice([0, 1, 9]))), [y, np.round(y), np.sign(y)][seed % 3]


def correlation(x: Floats, y: Floats) -> dict[str, Measure]:
    return {name: make(x, y) for name, make in CORRELATION.items()}


def detection(scores: Floats, positive: Bools, labelled: Bools) -> dict[str, Measure]:
    every = metrics.measures(metrics.Sample(scores, scores, positive, labelled))
    return {name: made for name, made in every.items() if name not in {*CORRELATION, *COUNTS}}


def all_measures(x: Floats, y: Floats, positive: Bools, threshold: float) -> dict[str, Measure]:
    every = metrics.measures(metrics.Sample(x, y, positive, x > threshold))
    return {name: made for name, made in every.items() if name not in COUNTS}


def points(measures: dict[str, Measure], n: int) -> dict[str, float | None]:
    return {name: point(measure, n) for name, measure in measures.items()}


def or_nan(value: float | None) -> float:
    return NAN if value is None else value


# With all weights 1


@pytest.mark.parametrize("seed", range(30))
def test_correlations_are_scipys(seed: int) -> None:
    x, y = random_columns(seed)
    if len(np.unique(x)) < 2 or len(np.unique(y)) < 2:
        return
    found = points(dict(correlation(x, y)), len(x))
    assert found["pearson"] == pytest.approx(scipy.stats.pearsonr(x, y).statistic, abs=1e-12)
    assert found["spearman"] == pytest.approx(scipy.stats.spearmanr(x, y).statistic, abs=1e-12)
    assert found["kendall"] == pytest.approx(scipy.stats.kendalltau(x, y).statistic, abs=1e-12)


@settings(max_examples=150)
@given(items=rated(TAME), threshold=TAME)
def test_detection_is_scikit_learns(items: tuple[Floats, Bools], threshold: float) -> None:
    from sklearn import metrics as sklearn  # type: ignore[import-untyped]

    scores, positive = items
    said = scores > threshold
    found = points(dict(detection(scores, positive, said)), len(scores))
    if len(np.unique(positive)) < 2:
        assert set(found.values()) == {None}
        return
    precision = sklearn.precision_score(positive, said, zero_division=NAN)
    assert or_nan(found.pop("precision")) == pytest.approx(precision, abs=1e-12, nan_ok=True)
    expected = {
        "recall": sklearn.recall_score(positive, said),
        "accuracy": sklearn.accuracy_score(positive, said),
        "f1": sklearn.f1_score(positive, said),
        # Of two classes both occur in gold, even where only one is said.
        "macro_f1": sklearn.f1_score(positive, said, labels=[False, True], average="macro"),
        "auc": sklearn.roc_auc_score(positive, scores),
    }
    assert found == pytest.approx(expected, abs=1e-12)


# Weighted


@pytest.mark.parametrize("seed", range(6))
def test_a_resample_is_its_items(seed: int) -> None:
    """As above for more items than hypothesis draws, against SciPy and scikit-learn."""
    from sklearn import metrics as sklearn

    x, y = random_columns(seed)
    positive = y > 0
    measures = all_measures(x, y, positive, 0)
    (weights,) = resamples(len(x), 5, np.random.default_rng(seed))
    for weight in weights:
        each = np.repeat(np.arange(len(x)), weight.astype(int))
        a, b, true = x[each], y[each], positive[each]
        expected = {
            "pearson": scipy.stats.pearsonr(a, b).statistic,
            "spearman": scipy.stats.spearmanr(a, b).statistic,
            "kendall": scipy.stats.kendalltau(a, b).statistic,
            "recall": sklearn.recall_score(true, a > 0),
            "accuracy": sklearn.accuracy_score(true, a > 0),
            "precision": sklearn.precision_score(true, a > 0),
            "f1": sklearn.f1_score(true, a > 0),
            "macro_f1": sklearn.f1_score(true, a > 0, average="macro"),
            "auc": sklearn.roc_auc_score(true, a),
        }
        found = {name: measure(weight[None])[0] for name, measure in measures.items()}
        assert found == pytest.approx(expected, abs=1e-12)


# What can't be told


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ([], []),
        ([1], [2]),
        ([0.1, 0.1, 0.1], [1, 2, 3]),
        ([1, 2, 3], [0.7, 0.7, 0.7]),
        ([0, 0, 0], [0, 0, 0]),
        ([1e300, 1e300], [1, 2]),
    ],
)
def test_what_cannot_be_told_is_nan(x: list[float], y: list[float]) -> None:
    a, b = np.array(x, dtype=np.float64), np.array(y, dtype=np.float64)
    weights = np.vstack([np.ones(len(a)), np.full(len(a), 3.0), np.zeros(len(a))])
    for measure in correlation(a, b).values():
        assert np.isnan(measure(weights)).all()
        assert point(measure, len(a)) is None


# Large and small numbers


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
    assert_allclose(
        correlation(x, y)["pearson"](weights),
        correlation(x - offset, y)["pearson"](weights),
        atol=1e-9,
    )


# Resampling


@pytest.mark.parametrize(("n", "times"), [(1, 3), (2, 1), (10, 25), (300, 100), (5, 0), (0, 3)])
def test_a_resample_draws_as_many_as_there_are(n: int, times: int) -> None:
    found = list(resamples(n, times, np.random.default_rng(0)))
    weights = np.concatenate([np.empty((0, n)), *found])
    assert weights.shape == (times, n)
    assert weights.dtype == np.float64
    assert_array_equal(weights.sum(axis=1), n)
    assert_array_equal(weights, np.floor(weights))


def test_an_interval_by_hand() -> None:
    assert_allclose(np.array(interval(np.arange(1001.0)), dtype=float), [25, 975])
    assert interval(np.array([2.0])) == (2, 2)
    mostly = np.append(np.arange(901.0), np.full(99, NAN))
    assert_allclose(np.array(interval(mostly), dtype=float), [22.5, 877.5])


@pytest.mark.parametrize(
    "values", [[], [NAN], [NAN] * 9 + [1.0], [1.0] * 8 + [NAN] * 2], ids=["0", "1", "10", "80%"]
)
def test_an_interval_of_too_few_is_none(values: list[float]) -> None:
    assert interval(np.array(values)) == (None, None)
