"""Where two groups of scores part: against scikit-learn, and on simulated judgments."""

from __future__ import annotations

import numpy as np
import pytest
import scipy

from judgeq.rating import mixture
from judgeq.types import Floats


def two(n: int, share: float, gap: float, seed: int = 0, wide: float = 1.0) -> Floats:
    rng = np.random.default_rng(seed)
    upper = rng.random(n) < share
    return np.where(upper, gap + wide * rng.standard_normal(n), rng.standard_normal(n))


@pytest.mark.parametrize(("share", "gap", "wide"), [(0.5, 4, 1), (0.1, 5, 0.7), (0.3, 3, 1.5)])
def test_the_fit_is_scikit_learns_and_the_crossing_scipys(
    share: float, gap: float, wide: float
) -> None:
    from sklearn.mixture import GaussianMixture  # type: ignore[import-untyped]

    scores = two(2000, share, gap, wide=wide)
    ours = mixture.fit(scores)
    theirs = GaussianMixture(2, tol=1e-9, max_iter=5000, n_init=5, random_state=0, reg_covar=0.0)
    theirs.fit(scores[:, None])
    order = np.argsort(theirs.means_.ravel())
    assert ours.likelihood >= theirs.score(scores[:, None]) - 1e-7
    assert ours.weights == pytest.approx(theirs.weights_[order], abs=1e-3)
    assert ours.means == pytest.approx(theirs.means_.ravel()[order], abs=5e-3)
    deviations = np.sqrt(theirs.covariances_.ravel())[order]
    assert ours.deviations == pytest.approx(deviations, abs=5e-3)
    assert ours.one == pytest.approx(
        scipy.stats.norm.logpdf(scores, scores.mean(), scores.std()).mean()
    )

    def ahead(x: float) -> float:
        parts = scipy.stats.norm.logpdf(x, ours.means, ours.deviations) + np.log(ours.weights)
        return float(parts[1] - parts[0])

    expected = scipy.optimize.brentq(ahead, *ours.means)
    assert mixture.threshold(scores).value == pytest.approx(expected, abs=1e-9)


def test_only_the_scores_count_not_their_order_place_or_scale() -> None:
    scores = two(500, 0.2, 4)
    value = mixture.threshold(scores).value
    assert value is not None
    rng = np.random.default_rng(1)
    assert mixture.threshold(rng.permutation(scores)).value == value
    assert mixture.threshold(np.append(scores, np.nan)).value == value
    assert mixture.threshold(1500 + 40 * scores).value == pytest.approx(1500 + 40 * value)
    assert mixture.threshold(-scores).value == pytest.approx(-value, abs=1e-3)


def test_many_scores_are_fitted_by_their_quantiles() -> None:
    scores = two(200_000, 0.2, 4)
    value = mixture.threshold(scores).value
    fewer = mixture.threshold(scores[: mixture.AT_MOST]).value
    assert value == pytest.approx(fewer, abs=0.1)
    # Where N(0, 1) and N(4, 1) with weights 0.8 and 0.2 cross.
    assert value == pytest.approx(2 + np.log(4) / 4, abs=0.02)


@pytest.mark.parametrize(
    ("scores", "why"),
    [
        (np.arange(29.0), "needs 30 scores, and there are 29"),
        (np.ones(50), "all scores are equal"),
        (np.random.default_rng(0).normal(size=1000), "hardly better than one"),
        (np.append(np.random.default_rng(0).normal(size=1000), [40.0, 41.0]), "fewer than 5 items"),
        (  # one component within the other
            np.random.default_rng(0).normal(size=2000) * np.repeat([1.0, 6.0], 1000),
            "don't cross between their means",
        ),
    ],
)
def test_where_nothing_parts_the_scores_it_says_why(scores: Floats, why: str) -> None:
    cut = mixture.threshold(scores)
    assert cut.value is None
    assert why in str(cut.why)
