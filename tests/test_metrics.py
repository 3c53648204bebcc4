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
WILD = FEW | st.floats(allow_nan=False, allow_infinity=False)
WEIGHT = st.integers(0, 4)


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


@settings(max_examples=300)
@given(data=st.data(), n=st.integers(0, 12), values=st.sampled_from([FEW, TAME, WILD]))
def test_a_weight_is_how_often_an_item_stands_there(
    data: st.DataObject, n: int, values: st.SearchStrategy[float]
) -> None:
    x, y = data.draw(column(values, n)), data.draw(column(values, n) | column(FEW, n))
    positive, threshold = data.draw(mask(n)), data.draw(values)
    weights = np.array(
        data.draw(st.lists(st.lists(WEIGHT, min_size=n, max_size=n), min_size=1, max_size=3)),
        dtype=np.float64,
    )
    found = {
        name: measure(weights) for name, measure in all_measures(x, y, positive, threshold).items()
    }
    for row, weight in enumerate(weights):
        each = np.repeat(np.arange(n), weight.astype(int))
        repeated = all_measures(x[each], y[each], positive[each], threshold)
        expected = points(repeated, len(each))
        for name, values_found in found.items():
            assert values_found.shape == (len(weights),)
            assert values_found[row] == pytest.approx(
                or_nan(expected[name]), abs=1e-9, nan_ok=True
            ), name


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


@settings(max_examples=150)
@given(xy=columns(WILD), data=st.data())
def test_a_measure_is_in_its_range_or_nan(xy: tuple[Floats, Floats], data: st.DataObject) -> None:
    """Whatever the numbers, as large or small as floats go; and a warning is an error here."""
    x, y = xy
    weight = data.draw(column(WEIGHT.map(float), len(x)))
    drawn = weight > 0
    told = len(np.unique(x[drawn])) > 1 and len(np.unique(y[drawn])) > 1
    for name, measure in correlation(x, y).items():
        (value,) = measure(weight[None])
        assert np.isnan(value) != told, name
        assert np.isnan(value) or -1 <= value <= 1


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


@pytest.mark.parametrize("positive", [[], [True], [False], [True, True], [False, False]])
def test_detection_of_one_class_is_nan(positive: list[bool]) -> None:
    true = np.array(positive, dtype=bool)
    scores = np.arange(len(true), dtype=np.float64)
    for measure in detection(scores, true, scores > 0).values():
        assert np.isnan(measure(np.ones((2, len(true))))).all()
        assert point(measure, len(true)) is None


# Large and small numbers


@pytest.mark.parametrize("scale", [1e-310, 1e-300, 1e-160, 1e-5, 1e160, 1e300, 5e307])
def test_the_unit_does_not_matter(scale: float) -> None:
    x, y = np.array([1.0, 2.0, 0.5, -1.0, 3.0]), np.array([3.0, 1.0, 1.0, 0.0, -2.0])
    (weights,) = resamples(5, 50, np.random.default_rng(0))
    for name, plain in correlation(x, y).items():
        assert_allclose(correlation(x * scale, y)[name](weights), plain(weights), atol=1e-9)
        assert_allclose(correlation(y, x * scale)[name](weights), plain(weights), atol=1e-9)


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


@pytest.mark.parametrize("outlier", [1e4, 1e7, 1e12, 1e300])
def test_an_outlier_not_drawn_does_not_matter(outlier: float) -> None:
    random = np.random.default_rng(0)
    x, y = random.normal(size=30), random.normal(size=30)
    plain = point(correlation(x, y)["pearson"], 30)
    weights = np.ones((1, 31))
    weights[0, 30] = 0
    found = correlation(np.append(x, outlier), np.append(y, -outlier))["pearson"](weights)
    assert found[0] == pytest.approx(plain, abs=1e-9)


# Resampling


@pytest.mark.parametrize(("n", "times"), [(1, 3), (2, 1), (10, 25), (300, 100), (5, 0), (0, 3)])
def test_a_resample_draws_as_many_as_there_are(n: int, times: int) -> None:
    found = list(resamples(n, times, np.random.default_rng(0)))
    weights = np.concatenate([np.empty((0, n)), *found])
    assert weights.shape == (times, n)
    assert weights.dtype == np.float64
    assert_array_equal(weights.sum(axis=1), n)
    assert_array_equal(weights, np.floor(weights))


@pytest.mark.parametrize("at_once", [1, 30, 75, 250, 999])
def test_parts_are_the_whole(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (whole,) = resamples(10, 25, np.random.default_rng(3))
    (again,) = resamples(10, 25, np.random.default_rng(3))
    (other,) = resamples(10, 25, np.random.default_rng(4))
    assert_array_equal(whole, again)
    assert (whole != other).any()
    monkeypatch.setattr(metrics, "_AT_ONCE", at_once)
    parts = list(resamples(10, 25, np.random.default_rng(3)))
    assert {len(part) for part in parts[:-1]} <= {max(1, at_once // 10)}
    assert_array_equal(np.concatenate(parts), whole)


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


def test_the_interval_covers_the_true_value() -> None:
    random = np.random.default_rng(7)
    covered = 0
    for _ in range(200):
        x = random.normal(size=300)
        y = 0.6 * x + 0.8 * random.normal(size=300)
        pearson = correlation(x, y)["pearson"]
        values = np.concatenate([pearson(weights) for weights in resamples(300, 400, random)])
        low, high = interval(values)
        assert low is not None
        assert high is not None
        covered += low <= 0.6 <= high
    assert 0.90 <= covered / 200 <= 0.99
