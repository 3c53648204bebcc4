from collections import Counter
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from judgeq.errors import UsageError
from judgeq.rating import elo
from judgeq.strategies import History, Strategy, parse
from judgeq.strategies.listwise import Direct, Listwise, cut
from judgeq.strategies.matchmaking import Matchmaking, Repeats, similar_couples, window
from judgeq.strategies.pairwise import Complete, Pairwise, Streak, Tail
from judgeq.strategies.strategy import Standings
from judgeq.types import Bools, Floats, Matches
from tests.build import verdicts

BOTH: tuple[Matchmaking, ...] = ("similar", "random")
SEEDS = st.integers(0, 2**32 - 1)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def everyone(ratings: Floats) -> Standings:
    return Standings(ratings, np.ones(len(ratings), dtype=np.bool_))


@st.composite
def all_standings(draw: st.DrawFn, least: int = 2, most: int = 300) -> Standings:
    """Any number of items, some out of the game, with ratings of every sort."""
    n = draw(st.integers(least, most))
    random = generator(draw(SEEDS))
    few = ([1500.0], [1400.0, 1500.0, 1600.0], [-1e300, -0.0, 0.0, 5e-324, 1500.0, 1e300])
    kinds = [random.normal(1500, 100, n), *(random.choice(values, n) for values in few)]
    ratings: Floats = draw(st.sampled_from(kinds))
    active: Bools = random.random(n) >= draw(st.sampled_from([0.0, 0.0, 0.2, 0.8]))
    assume(active.sum() >= least)
    return Standings(ratings, active)


STRATEGIES = st.builds(
    lambda k, overlap, **more: Listwise(k, overlap=min(overlap, k - 1), **more),
    k=st.integers(2, 15),
    overlap=st.sampled_from([0, 0, 1, 2, 5]),
    rounds=st.integers(1, 4),
    matchmaking=st.sampled_from(BOTH),
) | st.builds(Pairwise, rounds=st.integers(1, 4), matchmaking=st.sampled_from(BOTH))


@settings(max_examples=30)
@given(strategy=STRATEGIES, standings=all_standings(), seed=SEEDS)
def test_a_round_is_sound(strategy: Strategy, standings: Standings, seed: int) -> None:
    active = np.flatnonzero(standings.active)
    matches = strategy.next_round(History(standings), generator(seed))
    assert (matches.items.dtype.name, matches.offsets.dtype.name) == ("int32", "int64")
    assert (matches.offsets[0], matches.offsets[-1]) == (0, len(matches.items))
    assert matches.sizes.min() >= 2
    for items in matches:
        assert len(set(items.tolist())) == len(items)
    missing = set(active.tolist()) - set(matches.items.tolist())
    assert len(missing) == (len(active) % 2 if isinstance(strategy, Pairwise) else 0)
    assert set(matches.items.tolist()) <= set(active.tolist())
    again = strategy.next_round(History(standings), generator(seed))
    assert_array_equal(again.items, matches.items)
    assert_array_equal(again.offsets, matches.offsets)


def test_all_sizes_are_as_promised() -> None:
    for k in range(2, 13):
        for overlap in range(k):
            for n in range(k, 8 * k):
                sizes = cut(np.arange(n, dtype=np.int32), k, overlap, generator()).sizes
                assert sizes.max() - sizes.min() <= 1
                assert sizes.min() >= 2
                if k == 2 and overlap == 0 and n % 2:
                    assert sizes.tolist() == [3] + [2] * (n // 2 - 1)
                else:
                    assert sizes.max() <= k
                    # No fewer lists would do.
                    assert overlap + (len(sizes) - 1) * (k - overlap) < n
                assert sizes.sum() == n + overlap * (len(sizes) - 1)


@pytest.mark.parametrize("strategy", [Pairwise, Listwise])
def test_similar_items_meet(strategy: type[Pairwise] | type[Listwise]) -> None:
    n = 1000
    ranks = everyone(np.arange(float(n)))  # the row number is the rank
    rounds = [strategy(matchmaking=how).next_round(History(ranks), generator()) for how in BOTH]
    # How far apart the highest and the lowest item of a match are.
    similar, random = (np.mean([np.ptp(items) for items in matches]) / n for matches in rounds)
    assert similar < 0.15
    assert random > 0.3


@settings(max_examples=20)
@given(n=st.integers(0, 300), seed=SEEDS)
def test_couples_are_within_the_window_unless_none_was_free(n: int, seed: int) -> None:
    couples = similar_couples(n, generator(seed)).tolist()
    assert len(couples) == n // 2
    free = set(range(n))
    for position, partner in couples:  # in the order in which they were made
        free -= {position, partner}
        if abs(position - partner) > window(n):
            assert all(abs(position - other) > window(n) for other in free)
    assert len(free) == n % 2


@pytest.mark.parametrize("strategy", [Listwise(10), Pairwise()])
def test_ties_are_ordered_at_random(strategy: Strategy) -> None:
    """Else the first round would compare neighbours in the file, often of one source."""
    tied = everyone(np.full(20, 1500.0))
    rounds = [strategy.next_round(History(tied), generator(seed)) for seed in range(400)]
    met = Counter(item for one in rounds for items in one if 0 in items for item in items.tolist())
    counts = [met[item] for item in range(1, 20)]
    assert 0.5 * np.mean(counts) < min(counts) <= max(counts) < 1.6 * np.mean(counts)


@pytest.mark.parametrize("how", BOTH)
@pytest.mark.parametrize("size", [2, 3])
def test_every_order_of_presentation_is_as_likely(how: Matchmaking, size: int) -> None:
    """A judge may prefer what it reads first."""
    n = 6000
    strategy = Pairwise(matchmaking=how) if size == 2 else Listwise(size, matchmaking=how)
    matches = strategy.next_round(History(everyone(np.arange(float(n)))), generator(1))
    orders = Counter(tuple(np.argsort(items).tolist()) for items in matches)
    assert set(orders) == set(permutations(range(size)))
    expected = len(matches) / len(orders)
    chi_square = sum((count - expected) ** 2 / expected for count in orders.values())
    assert chi_square < 20  # p < 0.002 with 5 degrees of freedom


@pytest.mark.parametrize(
    ("text", "flags", "expected"),
    [
        ("listwise", {}, Listwise(10, 3, 0, "random")),
        (" ListWise5 ", {}, Listwise(5)),
        ("pairwise", {}, Pairwise(24, "similar")),
        ("listwise:k=5,overlap=4", {"rounds": 2}, Listwise(5, 2, 4)),
        ("listwise5:k=5,overlap=0", {"matchmaking": "similar"}, Listwise(5, 3, 0, "similar")),
        ("pairwise", {"rounds": 7, "matchmaking": "random"}, Pairwise(7, "random")),
        ("Streak: r=5, d=2", {"rounds": 9}, Streak(9, r=5, d=2)),
        ("tail:w=8,p=20", {"rounds": 12}, Tail(12, w=8, p=20)),
        ("tail:w=4,p=10,matchmaking=random", {}, Tail(24, "random", 4, 10)),
        ("complete:m=2", {}, Complete(2)),
        ("direct", {}, Direct()),
    ],
)
def test_parse(text: str, flags: dict[str, Any], expected: Strategy) -> None:
    assert parse(text, **flags) == expected


@pytest.mark.parametrize(
    ("text", "flags", "message"),
    [
        ("", {}, "--strategy '': no such strategy.*listwise<k>.*pairwise.*judgeq list strategies"),
        ("listwise" + "9" * 5000, {}, "--strategy 'listwise9+': no such strategy"),
        ("listwise10:k=5", {}, "listwise10:k=5 says k = 5, and before it 10: give it once"),
        ("listwise10x3", {"rounds": 2}, "--rounds 2 says rounds = 2, and before it 3"),
        ("pairwise:k=5", {}, "k is no setting of pairwise; it takes rounds=…, matchmaking=…"),
        ("listwise1", {}, "--strategy listwise1: a list needs at least 2 items, not 1"),
        ("listwise10x0", {}, "--strategy listwise10x0: there are 1 to 10,000 rounds, not 0"),
        ("listwise5:overlap=5", {}, "overlap=5: consecutive lists of 5 can share 0 to 4"),
        ("listwise5:overlap=-1", {}, "overlap = -1: must be 0 or more"),
        ("pairwise", {"matchmaking": "nearest"}, "--matchmaking nearest: .* similar or random"),
        ("streak:r=0", {}, "--strategy streak:r=0: a streak is at least 1 match long, not 0"),
        ("streak:d=0", {}, "streak:d=0: a streak is against at least 1 opponent"),
        ("tail:w=x", {}, "--strategy tail:w=x: w = 'x' is no whole number"),
        ("tail:p=50", {}, "--strategy tail:p=50: 1 to 49 % leave from each end, not 50"),
        ("complete", {"rounds": 2}, "--rounds 2: rounds is no setting of complete; it takes m=…"),
    ],
)
def test_what_cannot_be_parsed(text: str, flags: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(text, **flags)


def test_defaults_are_not_in_the_name() -> None:
    for strategy, name in (
        *((Listwise(), "listwise10"), (Listwise(5, 2), "listwise5x2")),
        *((Pairwise(), "pairwise"), (Pairwise(3), "pairwise3")),
        *((Streak(), "streak:r=4,d=3"), (Streak(9), "streak:r=4,d=3,rounds=9")),
        *((Tail(w=4), "tail:w=4,p=20"), (Direct(), "direct")),
        *((Complete(), "complete"), (Complete(2), "complete:m=2")),
    ):
        assert strategy.name == name
        assert parse(name) == strategy


@pytest.mark.parametrize(
    ("text", "n", "message"),
    [
        ("streak:r=2,d=100000000", 60, "no item meets 100,000,000 distinct opponents among 60 it"),
        ("streak:r=24", 60, "leave after round 24, and there are no more than 24.*pairwise24"),
        ("tail:w=24", 60, "first items leave after round 24"),
        ("tail", 3, "of 3 items none leaves from each end"),
        ("listwise100000x1", 100_000, "1 lists of 100,000 implies 4,999,950,000 comparisons"),
        ("listwise1000:overlap=999", 1_000_000, "implies .* Give shorter lists, or less overlap"),
        ("complete", 100_000, "calls, more than 1,000,000"),
    ],
)
def test_what_cannot_be_meant_over_so_many_items(text: str, n: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(text).check(n)


Question = tuple[int, tuple[int, ...]]
QUESTIONS = st.tuples(
    st.integers(0, 1), st.permutations(range(4)).map(lambda items: tuple(items[:3]))
) | st.tuples(st.integers(0, 1), st.tuples(st.integers(0, 3)))


def matches(questions: list[Question]) -> Matches:
    items = [item for _, presented in questions for item in presented]
    sizes = [len(presented) for _, presented in questions]
    judges = np.array([judge for judge, _ in questions], dtype=np.int32)
    return Matches(np.array(items, dtype=np.int32), np.cumsum([0, *sizes]), judges)


@given(st.lists(st.lists(QUESTIONS, max_size=30), max_size=4))
def test_each_question_is_numbered_by_those_before_it(rounds: list[list[Question]]) -> None:
    seen: Counter[Question] = Counter()
    repeats = Repeats()
    for questions in rounds:
        expected = []
        for question in questions:
            expected.append(seen[question])
            seen[question] += 1
        assert repeats.add(matches(questions)).tolist() == expected
    assert repeats.rounds == len(rounds)


def test_a_tie_breaks_a_streak_and_sitting_out_does_not() -> None:
    strategy = Streak(r=3, d=1)
    won: list[list[Any]] = [[[0, 1], [2, 3]], [[0, 2], [1, 3]], [[0, 3], [1, 2]]]
    tied = [won[0], [[[0, 2]], [1, 3]], won[2]]
    sat = [won[0], [[1, 3]], won[1], won[2]]
    for rounds, stays in (
        (won, [False, True, True, False]),
        (won[:2], [True, True, True, True]),
        (tied, [True, True, True, False]),
        (sat, [False, False, True, False]),  # 1 won its last three
    ):
        history = History(everyone(elo.start(4)), [verdicts(some) for some in rounds])
        assert strategy.stay(history, generator()).tolist() == stays


def test_a_streak_takes_distinct_opponents() -> None:
    same = [verdicts([[0, 1], [2, 3]])] * 5
    other = [*same, verdicts([[0, 2], [1, 3]])]
    chance = np.random.default_rng()
    assert Streak(r=3, d=2).stay(History(everyone(elo.start(4)), same), chance).all()
    # The fifth opponent of a streak counts, however early the others came.
    stay = Streak(r=3, d=2).stay(History(everyone(elo.start(4)), other), chance)
    assert stay.tolist() == [False, True, True, False]


@pytest.mark.parametrize("n", [2, 3, 7, 20])
@pytest.mark.parametrize("m", [1, 2])
def test_complete_asks_each_pair_once_a_round(n: int, m: int) -> None:
    strategy, chance = Complete(m=m), np.random.default_rng(n)
    rounds = [
        strategy.next_round(History(everyone(elo.start(n))), chance) for _ in range(strategy.rounds)
    ]
    for matches in rounds:
        pairs = matches.items.reshape(-1, 2).tolist()
        assert sorted(tuple(sorted(pair)) for pair in pairs) == list(combinations(range(n), 2))
    assert strategy.calls(n) == strategy.cost(n) == sum(map(len, rounds))
