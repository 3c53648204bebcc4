"""Do intervals hold? Counted over a few simulated runs (`python -m benchmarks coverage` counts over
more)."""

from __future__ import annotations

import pytest

from benchmarks.coverage import Counted, counted
from judgeq.rating import bradley_terry

N, RUNS = 120, range(5)
LEAST, MOST = 0.9, 0.985
"""Of so few runs; over many of them it is 92 to 97 %."""


def holds(share: Counted) -> bool:
    return LEAST <= share.ratings <= MOST and LEAST <= share.ranks <= MOST


@pytest.mark.parametrize("judge", ["model, sd 0.7", "model, sd 4", "vg", "rrt", "20 % at random"])
@pytest.mark.parametrize("design", ["lists", "pairs", "pairs, similar"])
def test_intervals_cover(judge: str, design: str) -> None:
    share = counted(judge, design, N, RUNS)

    assert holds(share), share
    assert abs(share.known - share.rho) < 0.05, share


@pytest.mark.parametrize("judge", ["model, sd 1", "model, sd 4"])
def test_items_far_out_are_covered_too(judge: str) -> None:
    """By the prior as it is, they are in 60 to 90 % of cases."""
    share = counted(judge, "lists", N, range(10))

    assert share.ends > 0.85, share


def test_intervals_of_bradley_terry_cover_too() -> None:
    share = counted("model, sd 2", "lists", N, RUNS, fit=bradley_terry.fit)

    assert holds(share), share
