"""Do intervals hold? Counted over a few simulated runs (`tests.coverage` counts over more)."""

from __future__ import annotations

import pytest

from judgeq.rating import bradley_terry
from tests.coverage import JUDGES, Counted, Judge, careless, counted, gumbel

N, RUNS = 120, range(5)
LEAST, MOST = 0.9, 0.985
"""Of so few runs; over many of them it is 93 to 98 %."""


def holds(share: Counted) -> bool:
    return LEAST <= share.ratings <= MOST and LEAST <= share.ranks <= MOST


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("design", ["lists", "pairs"])
def test_intervals_cover(judge: Judge, design: str) -> None:
    share = counted(judge, design, N, RUNS)

    assert holds(share), share


def test_ranks_of_a_judge_that_hardly_tells_items_apart_are_covered() -> None:
    share = counted(careless, "listwise10", N, RUNS)

    assert LEAST <= share.ranks <= MOST, share


def test_intervals_of_bradley_terry_cover_too() -> None:
    share = counted(gumbel, "lists", N, RUNS, fit=bradley_terry.fit)

    assert holds(share), share
