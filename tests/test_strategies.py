from __future__ import annotations

from collections import Counter
from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from judgeq.errors import UsageError
from judgeq.strategies import REGISTRY, History, Strategy, matchmaking, parse
from judgeq.strategies.direct import Direct
from judgeq.strategies.listwise import Listwise
from judgeq.strategies.matchmaking import Matchmaking, list_sizes, similar_couples, window
from judgeq.strategies.pairwise import Complete, Pairwise, Streak, Tail
from judgeq.strategies.repeats import Repeats
from judgeq.types import Bools, Floats, Matches, Standings

BOTH: tuple[Matchmaking, ...] = ("similar", "random")
SEEDS = st.integers(0, 2**32 - 1)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def everyone(elo: Floats) -> Standings:
    return Standings(elo, np.ones(len(elo), dtype=np.bool_))


@st.composite
def all_standings(draw: st.DrawFn, least: int = 2, most: int = 300) -> Standings:
    """Any number of items, some out of the game, with ratings of every sort."""
    n = draw(st.integers(least, most))
    random = generator(draw(SEEDS))
    elo: Floats = {
        "equal": np.full(n, 1500.0),
        "tied": random.choice([1400.0, 1500.0, 1600.0], n),
        "spread": random.normal(1500, 100, n),
        "extreme": random.choice([-1e300, -0.0, 0.0, 5e-324, 1500.0, 1e300], n),
    }[draw(st.sampled_from(["equal", "tied", "spread", "extreme"]))]
    active: Bools = random.random(n) >= draw(st.sampled_from([0.0, 0.0, 0.2, 0.8]))
    assume(active.sum() >= least)
    return Standings(elo, active)


STRATEGIES = st.builds(
    Listwise,
    k=st.integers(2, 15),
    rounds=st.integers(1, 4),
    overlap=st.sampled_from([0, 0, 1, 2, 5]),
    matchmaking=st.sampled_from(BOTH),
).filter(lambda strategy: strategy.overlap < strategy.k) | st.builds(
    Pairwise, rounds=st.integers(1, 4), matchmaking=st.sampled_from(BOTH)
)


# What holds for every strategy


@settings(max_examples=100)
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


@settings(max_examples=60)
@given(strategy=STRATEGIES, n=st.integers(2, 300), seed=SEEDS)
def test_calls_and_cost_are_those_of_the_rounds(strategy: Strategy, n: int, seed: int) -> None:
    assume(n >= getattr(strategy, "k", 2))
    random = generator(seed)
    rounds = [
        strategy.next_round(History(everyone(random.normal(size=n))), random)
        for _ in range(strategy.rounds)
    ]
    assert strategy.calls(n) == sum(map(len, rounds))
    assert {len(matches) for matches in rounds} == {strategy.calls(n) // strategy.rounds}
    assert strategy.cost(n) == sum(matches.cost for matches in rounds)


@pytest.mark.parametrize("strategy", [Listwise(), Pairwise()])
def test_the_ratings_are_only_read(strategy: Strategy) -> None:
    standings = everyone(generator().normal(size=50))
    before = standings.elo.copy()
    strategy.next_round(History(standings), generator())
    assert_array_equal(standings.elo, before)
    assert standings.active.all()


# Lists


@settings(max_examples=100)
@given(standings=all_standings(), k=st.integers(2, 15), overlap=st.integers(0, 14), seed=SEEDS)
def test_consecutive_lists_share_the_overlap(
    standings: Standings, k: int, overlap: int, seed: int
) -> None:
    n = int(standings.active.sum())
    assume(overlap < k <= n)
    matches = Listwise(k, overlap=overlap).next_round(History(standings), generator(seed))
    lists = [set(items.tolist()) for items in matches]
    assert {len(one & other) for one, other in pairwise(lists)} <= {overlap}
    assert len(matches.items) == n + overlap * (len(lists) - 1)


def test_all_sizes_are_as_promised() -> None:
    for k in range(2, 13):
        for overlap in range(k):
            for n in range(k, 8 * k):
                sizes = list_sizes(n, k, overlap)
                assert sizes.max() - sizes.min() <= 1
                assert sizes.min() >= 2
                if k == 2 and overlap == 0 and n % 2:
                    assert sizes.tolist() == [3] + [2] * (n // 2 - 1)
                else:
                    assert sizes.max() <= k
                    # No fewer lists would do.
                    assert overlap + (len(sizes) - 1) * (k - overlap) < n
                assert sizes.sum() == n + overlap * (len(sizes) - 1)


@pytest.mark.parametrize(
    ("n", "k", "overlap", "lists"), [(1000, 10, 2, 125), (3674, 10, 0, 368), (2261, 10, 0, 227)]
)
def test_published_numbers_of_lists(n: int, k: int, overlap: int, lists: int) -> None:
    """Of the paper's simulation, and of its two recordings."""
    assert len(list_sizes(n, k, overlap)) == lists
    assert Listwise(k, 3, overlap).calls(n) == 3 * lists


@pytest.mark.parametrize(("n", "k", "overlap"), [(9, 10, 0), (10, 1, 0), (10, 3, 3), (10, 3, -1)])
def test_lists_that_cannot_be(n: int, k: int, overlap: int) -> None:
    with pytest.raises(ValueError, match=f"no lists of {k} with overlap {overlap} over {n}"):
        list_sizes(n, k, overlap)


def test_fewer_active_items_than_a_list_make_one_list() -> None:
    standings = Standings(np.arange(20.0), np.arange(20) < 4)
    matches = Listwise(k=10, overlap=9).next_round(History(standings), generator())
    assert sorted(matches.items.tolist()) == [0, 1, 2, 3]
    assert len(matches) == 1


# Who meets whom


def spread(matches: Matches, n: int) -> float:
    """The mean distance in rank, as a share of n, of the highest and lowest item of a match."""
    return float(np.mean([np.ptp(items) for items in matches])) / n


@pytest.mark.parametrize("strategy", [Pairwise, Listwise])
def test_similar_items_meet(strategy: type[Pairwise] | type[Listwise]) -> None:
    n = 1000
    ranks = everyone(np.arange(float(n)))  # the row number is the rank
    similar = strategy(matchmaking="similar").next_round(History(ranks), generator())
    random = strategy(matchmaking="random").next_round(History(ranks), generator())
    assert spread(similar, n) < 0.15
    assert spread(random, n) > 0.3


def test_pairs_are_of_similar_items_and_lists_of_any_unless_told() -> None:
    ranks = everyone(np.arange(500.0))
    assert spread(Pairwise().next_round(History(ranks), generator()), 500) < 0.2
    assert spread(Listwise().next_round(History(ranks), generator()), 500) > 0.3


@settings(max_examples=60)
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


def test_most_couples_are_within_the_window() -> None:
    gaps = np.ptp(similar_couples(1000, generator()), axis=1)
    assert (gaps <= 100).mean() > 0.98
    assert np.unique(gaps[gaps <= 100]).size > 70  # and anywhere in it


@pytest.mark.parametrize("tries", [matchmaking.TRIES, 0])
def test_every_partner_in_the_window_is_as_likely(
    tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it was found by chance, or among all that are left."""
    monkeypatch.setattr(matchmaking, "TRIES", tries)
    couples = [similar_couples(21, generator(seed))[0] for seed in range(2000)]
    gaps = Counter(int(b - a) for a, b in couples if 2 <= a <= 18)
    assert set(gaps) == {-2, -1, 1, 2}
    assert max(gaps.values()) < 1.3 * min(gaps.values())


@pytest.mark.parametrize(("n", "expected"), [(2, 1), (14, 1), (16, 2), (1000, 100)])
def test_the_window_is_a_tenth(n: int, expected: int) -> None:
    assert window(n) == expected


def test_couples_take_no_quadratic_time() -> None:
    """Were it quadratic, this alone would take hours."""
    couples = similar_couples(200_000, generator())
    assert np.unique(couples).size == 200_000


def test_similar_lists_are_neighbours_but_for_a_tenth_that_swapped() -> None:
    n, k = 1000, 10
    strategy = Listwise(k, matchmaking="similar")
    matches = strategy.next_round(History(everyone(np.arange(float(n)))), generator())
    home = matches.items // k
    strangers = home != np.repeat(np.arange(n // k), k)
    assert 0.1 < strangers.mean() < 0.2
    # A swap goes as far as the window; another one may take the item up again.
    assert np.abs(matches.items - (np.arange(n) // k * k + k / 2))[strangers].max() <= 210


def test_rounds_with_the_same_ratings_differ() -> None:
    for strategy in (Pairwise(), Pairwise(matchmaking="random"), Listwise()):
        ranks, random = everyone(np.arange(200.0)), generator()
        rounds = [
            {frozenset(items.tolist()) for items in strategy.next_round(History(ranks), random)}
            for _ in range(2)
        ]
        assert rounds[0] != rounds[1]


@pytest.mark.parametrize("strategy", [Listwise(10), Pairwise()])
def test_ties_are_ordered_at_random(strategy: Strategy) -> None:
    """Else the first round would compare neighbours in the file, often of one source."""
    tied = everyone(np.full(20, 1500.0))
    met = Counter(
        item
        for seed in range(400)
        for items in strategy.next_round(History(tied), generator(seed))
        if 0 in items
        for item in items.tolist()
    )
    counts = [met[item] for item in range(1, 20)]
    assert max(counts) < 1.6 * sum(counts) / 19
    assert min(counts) > 0.5 * sum(counts) / 19


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


def test_who_was_sought_is_not_told_by_the_order_of_presentation() -> None:
    """Of three items the middle one is in every couple, and more often sought than seeking."""
    history = History(everyone(np.arange(3.0)))
    rounds = [Pairwise().next_round(history, generator(i)) for i in range(1000)]
    assert sum(matches.items[0] == 1 for matches in rounds) == pytest.approx(500, abs=70)


def test_order_of_presentation_tells_nothing_of_a_long_list() -> None:
    matches = Listwise(10).next_round(History(everyone(np.arange(5000.0))), generator())
    places = np.argsort(matches.items.reshape(-1, 10), axis=1)
    assert np.abs(places.mean(axis=0) - 4.5).max() < 0.6


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("how", BOTH)
def test_too_few_for_a_pair_make_none(n: int, how: Matchmaking) -> None:
    rows = np.arange(n, dtype=np.int32)
    assert len(matchmaking.pairs(np.zeros(n), rows, how, generator())) == 0


# Reading a strategy


@pytest.mark.parametrize(
    ("text", "flags", "expected"),
    [
        ("listwise", {}, Listwise(10, 3, 0, "random")),
        ("listwise10", {}, Listwise(10)),
        ("listwise10x3", {}, Listwise(10, 3)),
        ("listwise7x12", {}, Listwise(7, 12)),
        ("listwisex5", {}, Listwise(10, 5)),
        (" ListWise5 ", {}, Listwise(5)),
        ("pairwise", {}, Pairwise(24, "similar")),
        ("pairwise12", {}, Pairwise(12)),
        ("listwise:k=5,overlap=4", {"rounds": 2}, Listwise(5, 2, 4)),
        ("listwise5:k=5,overlap=0", {"matchmaking": "similar"}, Listwise(5, 3, 0, "similar")),
        ("pairwise", {"rounds": 7, "matchmaking": "random"}, Pairwise(7, "random")),
        ("pairwise7", {"rounds": 7, "matchmaking": None}, Pairwise(7)),
        ("listwise:k=5,overlap=2", {"rounds": 2}, Listwise(5, 2, 2)),
        ("streak", {}, Streak(24, "similar", 4, 3)),
        ("streak:r=2", {}, Streak(r=2, d=2)),
        ("Streak: r=5, d=2", {"rounds": 9}, Streak(9, r=5, d=2)),
        ("streak:r=3,d=2", {}, Streak(r=3, d=2)),
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
        ("quicksort", {}, "--strategy 'quicksort'"),
        ("listwise10x", {}, "--strategy 'listwise10x'"),
        ("listwise-5", {}, "--strategy 'listwise-5'"),
        ("pairwise12x3", {}, "--strategy 'pairwise12x3'"),
        ("listwise10 x3", {}, "--strategy 'listwise10 x3'"),
        ("listwise" + "9" * 5000, {}, "--strategy 'listwise9+': no such strategy"),
        (
            "listwise10:k=5",
            {},
            "--strategy listwise10:k=5 says k = 10, but .* says 5: give it once",
        ),
        ("listwise10x3", {"rounds": 2}, "says rounds = 3, but --rounds 2 says 2"),
        ("pairwise12", {"rounds": 3}, "says rounds = 12, but --rounds 3 says 3"),
        ("pairwise:k=5", {}, "'k=5' is no setting of it; it takes rounds=…, matchmaking=…"),
        ("listwise1", {}, "--strategy listwise1: a list needs at least 2 items, not 1"),
        ("listwise:k=1", {}, "listwise:k=1: a list needs at least 2 items"),
        ("listwise10x0", {}, "--strategy listwise10x0: at least 1 round"),
        ("pairwise", {"rounds": 0}, "--rounds 0: at least 1 round"),
        ("listwise5:overlap=5", {}, "overlap=5: consecutive lists of 5 can share 0 to 4"),
        ("listwise:overlap=10", {}, "overlap=10: consecutive lists of 10 can share 0 to 9"),
        ("listwise5:overlap=-1", {}, "overlap = '-1' is no whole number"),
        ("pairwise", {"matchmaking": "nearest"}, "--matchmaking nearest: .* similar or random"),
        ("streak:r=0", {}, "--strategy streak:r=0: a streak is at least 1 match long, not 0"),
        ("streak:d=0", {}, "streak:d=0: a streak is against at least 1 opponent"),
        ("streak:r=3,r=4", {}, "streak:r=3,r=4 says r = 3, but .* says 4"),
        ("streak:q=3", {}, "'q=3' is no setting of it; it takes r=…, d=…"),
        ("streak:r", {}, "'r' is no setting of it"),
        ("tail:w=x", {}, "--strategy tail:w=x: w = 'x' is no whole number"),
        ("tail:p=50", {}, "--strategy tail:p=50: at most 49 %"),
        ("tail:p=0", {}, "tail:p=0: at least 1 % leave"),
        ("complete:m=0", {}, "--strategy complete:m=0"),
        ("complete", {"rounds": 2}, "--rounds doesn't go with --strategy complete"),
        ("direct", {"rounds": 2}, "--rounds doesn't go with --strategy direct"),
    ],
)
def test_what_cannot_be_parsed(text: str, flags: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(text, **flags)


@settings(max_examples=60)
@given(strategy=STRATEGIES)
def test_a_name_reads_as_the_strategy(strategy: Listwise | Pairwise) -> None:
    """With the flag for what a name doesn't say."""
    read = parse(strategy.name, matchmaking=strategy.matchmaking)
    assert read == strategy
    assert strategy.kind in REGISTRY


def test_defaults_are_not_in_the_name() -> None:
    assert [each.name for each in (Listwise(), Listwise(5, 2), Pairwise(), Pairwise(3))] == [
        "listwise10",
        "listwise5x2",
        "pairwise",
        "pairwise3",
    ]
    others = (Streak(), Streak(9), Tail(w=4), Complete(), Complete(2), Direct())
    assert [each.name for each in others] == [
        "streak:r=4,d=3",
        "streak:r=4,d=3,rounds=9",
        "tail:w=4,p=20",
        "complete",
        "complete:m=2",
        "direct",
    ]
    assert [parse(each.name) for each in others] == list(others)


def test_the_fewest_items() -> None:
    for strategy, least in ((Listwise(7), 7), (Pairwise(), 2)):
        strategy.check(least)
        with pytest.raises(UsageError, match=f"--strategy {strategy.name}"):
            strategy.check(least - 1)


@pytest.mark.parametrize(
    ("text", "n", "message"),
    [
        ("streak:r=2,d=100000000", 60, r"d=100000000: no item meets 100,000,000 .* among 60 items"),
        (
            "streak",
            3,
            r"no item meets 3 distinct opponents among 3 items\. Give d=2, or pairwise24",
        ),
        ("streak:r=24", 60, "24 in a row against 3 .* are 24 rounds: no item would leave before"),
        ("streak:r=2,d=50", 60, "take 50 rounds, and there are 24 rounds: .*more --rounds, or"),
        ("tail:w=24", 60, "first items leave after round 24, and there are 24 rounds"),
        ("tail:w=1,p=20,rounds=1", 60, "and there is 1 round: no item would leave"),
        ("tail", 3, "two items are left at least, so that of 3 none leaves"),
        ("listwise100000x1", 100_000, "1 lists of 100,000 implies 4,999,950,000 comparisons"),
        ("listwise1000:overlap=999", 1_000_000, "implies .* Give shorter lists, or less overlap"),
        ("complete", 100_000, "calls, more than 1,000,000"),
    ],
)
def test_what_cannot_be_meant_over_so_many_items(text: str, n: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(text).check(n)


@pytest.mark.parametrize(
    ("text", "n"),
    [("streak:r=23", 60), ("streak:r=2", 3), ("streak", 4), ("tail:w=23", 60), ("tail", 4),
     ("listwise10", 10_000_000), ("listwise100:overlap=10", 100_000)],
)  # fmt: skip
def test_what_can_be_meant(text: str, n: int) -> None:
    parse(text).check(n)


def test_rounds_have_an_end() -> None:
    parse("pairwise10000")
    with pytest.raises(UsageError, match="pairwise999999999: at most 10,000 rounds, not 999,999"):
        parse("pairwise999999999")


# Repeats


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


def test_other_items_another_order_or_another_judge_is_another_question() -> None:
    repeats = Repeats()
    alone = [
        (0, (0, 1)),
        (0, (1, 0)),
        (1, (0, 1)),
        (0, (0, 1, 2)),
        (0, (0,)),
        (0, (1,)),
        (0, (0, 2)),
    ]
    assert repeats.add(matches(alone)).tolist() == [0] * len(alone)
    one_judge = matches([(0, (0, 1))])
    without = Matches(one_judge.items, one_judge.offsets)
    assert repeats.add(without).tolist() == [1]


def test_many_questions_are_not_mistaken_for_one_another() -> None:
    pairs = np.stack(np.triu_indices(1500, 1), axis=1).astype(np.int32)
    repeats = Repeats()
    found = repeats.add(Matches(pairs.reshape(-1), np.arange(len(pairs) + 1) * 2))
    assert found.max() == 0
