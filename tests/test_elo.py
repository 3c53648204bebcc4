from __future__ import annotations

import csv
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from judgeq.rating.elo import fold, start
from judgeq.types import Floats
from tests.build import SHARED, Ranking, grouped, needs_recordings, rankings, recording, verdicts

N = 7
RATINGS = st.lists(st.floats(0, 3000), min_size=N, max_size=N).map(np.array)


def naive(ratings: Floats, many: list[Ranking]) -> Floats:
    """Elo over lists by its definition."""
    folded = ratings.tolist()
    for ranking in many:
        # Tied items in the order presented, which is by rows in tests/build.py.
        groups = map(sorted, grouped(ranking))
        flat = [(item, place) for place, group in enumerate(groups) for item in group]
        for at, (a, place) in enumerate(flat):
            for b, other in flat[at + 1 :]:
                expected = 1 / (1 + 10 ** ((folded[b] - folded[a]) / 400))
                change = 32 * ((0.5 if place == other else 1) - expected)
                folded[a] += change
                folded[b] -= change
    return np.array(folded)


@needs_recordings
@pytest.mark.parametrize(
    "name", ["babe_gpt-5-mini_listwise10x3", "us_vs_them_gpt-5-mini_listwise10x3"]
)
def test_the_published_elo_comes_out_to_the_last_bit(name: str) -> None:
    with (SHARED / "recordings" / f"{name}.scores.csv").open(newline="") as file:
        published = {int(line["row"]): float(line["elo"]) for line in csv.DictReader(file)}
    ratings = start(len(published))
    for some in recording(name):
        ratings = fold(ratings, some)
    assert dict(enumerate(ratings.tolist())) == published


def test_a_pair_by_hand() -> None:
    assert_array_equal(fold(start(3), verdicts([(2, 0)])), [1484, 1500, 1516])
    # 400 above: expected 10/11.
    ratings = np.array([1900.0, 1500.0])
    assert_allclose(fold(ratings, verdicts([(0, 1)])), [1900 + 32 / 11, 1500 - 32 / 11])
    assert_allclose(fold(ratings, verdicts([(1, 0)])), [1900 - 320 / 11, 1500 + 320 / 11])


def test_a_list_by_hand() -> None:
    """Each pair reads what the one before it has left: (0,1), (0,2), (1,2)."""
    first, second, third = 1500.0, 1500.0, 1500.0
    first, second = first + 16, second - 16
    change = 32 * (1 - 1 / (1 + 10 ** ((third - first) / 400)))
    first, third = first + change, third - change
    change = 32 * (1 - 1 / (1 + 10 ** ((third - second) / 400)))
    second, third = second + change, third - change
    assert_array_equal(fold(start(3), verdicts([(0, 1, 2)])), [first, second, third])


def test_ties_by_hand() -> None:
    assert_array_equal(fold(start(2), verdicts([((0, 1),)])), [1500, 1500])
    assert_array_equal(fold(start(3), verdicts([((0, 1, 2),)])), [1500, 1500, 1500])
    ratings = np.array([1900.0, 1500.0])
    moved = 32 * (10 / 11 - 0.5)
    assert_allclose(fold(ratings, verdicts([((0, 1),)])), [1900 - moved, 1500 + moved])


@settings(max_examples=100)
@given(ratings=RATINGS, many=st.lists(rankings(N), min_size=1, max_size=5))
def test_lists_are_folded_one_after_the_other(ratings: Floats, many: list[Ranking]) -> None:
    assert_array_equal(fold(ratings, verdicts(many)), naive(ratings, many))


@given(rankings(N), st.randoms(use_true_random=False))
def test_the_replys_order_of_tied_items_does_not_matter(ranking: Ranking, random: Random) -> None:
    shuffled = [random.sample(group, len(group)) for group in grouped(ranking)]
    ratings = np.linspace(1400.0, 1600.0, N)
    one, other = (fold(ratings, verdicts([reply])) for reply in (ranking, shuffled))
    assert_array_equal(one, other)
