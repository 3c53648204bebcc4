from __future__ import annotations

import numpy as np
import pytest

from judgeq.evaluation.noise import FALSE, noise
from judgeq.rating import correlation
from judgeq.types import Floats

N = 2000


def seen(truth: Floats, error: float, seed: int) -> tuple[Floats, Floats]:
    """The mean and the error of what normal truths may be, seen with a normal error."""
    share = truth.var() / (truth.var() + error**2)
    noisy = truth + np.random.default_rng(seed).normal(0, error, len(truth))
    return share * noisy, np.full(len(truth), share**0.5 * error)


def test_the_same_truth_seen_twice() -> None:
    truth = np.random.default_rng(0).normal(0, 2, N)
    one, other = seen(truth, 1.5, 1), seen(truth, 2.0, 2)
    found = noise(*one, *other)
    plain = correlation.point(correlation.spearman(one[0], other[0]), N)
    assert plain is not None
    assert found.corrected is not None
    assert plain < 0.7
    assert found.corrected == pytest.approx(1, abs=0.04)
    assert not found.beyond.any()


def test_items_that_moved_are_named_and_few_others() -> None:
    truth = np.random.default_rng(0).normal(0, 2, N)
    moved = truth.copy()
    moved[:200] = -moved[:200] + 3 * np.sign(-moved[:200])
    found = noise(*seen(truth, 0.5, 1), *seen(moved, 0.5, 2))
    assert found.beyond[:200].mean() > 0.9
    assert found.beyond[200:].sum() <= 2 * FALSE * found.beyond.sum()


def test_another_scale_is_no_difference() -> None:
    truth = np.random.default_rng(0).normal(0, 2, N)
    one, other = seen(truth, 1.0, 1), seen(truth, 1.0, 2)
    wide = noise(*one, 10 * other[0] + 3, 10 * other[1])
    assert wide.corrected == pytest.approx(noise(*one, *other).corrected)
    assert not wide.beyond.any()


def test_scores_that_are_all_equal_have_no_correlation() -> None:
    same = np.zeros(5)
    assert noise(same, same + 1, same, same + 1).corrected is None
    assert noise(same[:1], same[:1] + 1, same[:1], same[:1] + 1).corrected is None
