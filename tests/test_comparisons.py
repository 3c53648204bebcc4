from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from judgeq.rating.comparisons import (
    imply,
    joined,
    matches_of,
    slots_by_size,
    tie_groups,
    wins_of,
)
from judgeq.types import Comparisons, Verdict, Verdicts
from tests.build import Ranking, grouped, rankings, verdicts

N = 7
MANY = st.lists(rankings(N), max_size=8)


def implied(many: list[Ranking]) -> Counter[tuple[int, int, float]]:
    """(winner, loser, weight) by the definition."""
    found: Counter[tuple[int, int, float]] = Counter()
    for ranking in many:
        groups = grouped(ranking)
        for place, group in enumerate(groups):
            for item in group:
                found.update((item, other, 0.5) for other in group if other != item)
                found.update((item, other, 1.0) for after in groups[place + 1 :] for other in after)
    return found


def columns(comparisons: Comparisons) -> Counter[tuple[int, int, float]]:
    rows = zip(
        comparisons.winner.tolist(),
        comparisons.loser.tolist(),
        comparisons.weight.tolist(),
        strict=True,
    )
    return Counter(rows)


def assert_same(found: Verdicts, expected: Verdicts) -> None:
    for name in ("matches", "items", "offsets", "tied"):
        assert_array_equal(getattr(found, name), getattr(expected, name), strict=True)


@settings(max_examples=100)
@given(many=MANY)
def test_imply(many: list[Ranking]) -> None:
    some = verdicts(many)
    comparisons = imply(some)
    assert columns(comparisons) == implied(many)
    assert (comparisons.winner.dtype.name, comparisons.weight.dtype.name) == ("int32", "float64")
    sizes = np.diff(some.offsets)
    assert comparisons.weight.sum() == (sizes * (sizes - 1) / 2).sum()


def test_imply_by_hand() -> None:
    comparisons = imply(verdicts([(2, (0, 1)), (1, 2)]))
    # Pairs before lists of three; the other way of a tie after the rest of its size.
    assert comparisons.winner.tolist() == [1, 2, 2, 0, 1]
    assert comparisons.loser.tolist() == [2, 0, 1, 1, 0]
    assert comparisons.weight.tolist() == [1, 1, 1, 0.5, 0.5]


def test_of_nothing() -> None:
    nothing = verdicts([])
    assert len(imply(nothing)) == 0
    assert wins_of(nothing, 3).tolist() == [0, 0, 0]
    assert matches_of(nothing, 3).tolist() == [0, 0, 0]
    assert list(slots_by_size(nothing)) == []
    assert_same(joined([]), nothing)


@settings(max_examples=100)
@given(many=MANY)
def test_wins_and_matches_are_those_of_the_comparisons(many: list[Ranking]) -> None:
    some, n = verdicts(many), N + 2
    comparisons = imply(some)
    assert_array_equal(wins_of(some, n), np.bincount(comparisons.winner, comparisons.weight, n))
    presented = [item for ranking in many for group in grouped(ranking) for item in group]
    assert_array_equal(matches_of(some, n), [presented.count(item) for item in range(n)])


@settings(max_examples=60)
@given(rounds=st.lists(MANY, max_size=4))
def test_joined(rounds: list[list[Ranking]]) -> None:
    parts = [verdicts(many) for many in rounds]
    whole = verdicts(ranking for many in rounds for ranking in many)
    numbers = np.concatenate([np.empty(0, np.int64), *(part.matches for part in parts)])
    expected = Verdicts(numbers, whole.items, whole.offsets, whole.tied, whole.presented)
    assert_same(joined(parts), expected)


def test_slots_by_size() -> None:
    some = verdicts([(5, 6, 7), (1, 2), (7, (8, 9)), (3, 4)])
    pairs, lists = slots_by_size(some)
    assert some.items[pairs].T.tolist() == [[1, 2], [3, 4]]
    assert some.items[lists].T.tolist() == [[5, 6, 7], [7, 8, 9]]


def test_tie_groups_never_reach_over_a_verdict() -> None:
    assert tie_groups(verdicts([(0, (1, 2)), ((0, 1), 2)])).tolist() == [1, 2, 2, 3, 3, 4]


# Verdicts


@settings(max_examples=50)
@given(ranking=rankings())
def test_a_verdict_gives_back_its_groups(ranking: Ranking) -> None:
    groups = grouped(ranking)
    verdict = Verdict.of(groups)
    assert verdict.groups == tuple(map(tuple, groups))
    assert verdict.items == tuple(item for group in groups for item in group)


def test_a_verdict_without_ties_is_its_items_alone() -> None:
    """So that one made of groups and one made of items are equal."""
    assert Verdict.of([[3], [1]]) == Verdict((3, 1))
