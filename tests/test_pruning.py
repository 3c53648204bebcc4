"""Who leaves early, and the strategies beside lists and plain pairs."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgeq.errors import UsageError
from judgeq.rating import elo
from judgeq.strategies import History, Strategy
from judgeq.strategies.direct import Direct
from judgeq.strategies.pairwise import Complete, Pairwise, Streak, Tail
from judgeq.types import Standings, Verdicts
from tests.build import verdicts

SEEDS = st.integers(0, 2**32 - 1)


def everyone(n: int) -> Standings:
    return Standings(elo.start(n), np.ones(n, dtype=np.bool_))


def play(
    strategy: Strategy, n: int, seed: int, ties: float = 0.1, silent: float = 0.1
) -> tuple[list[Standings], list[Verdicts], list[set[int]]]:
    """All rounds with a judge of chance: the standings before each round and after the last, the
    verdicts, and who was asked about in each round."""
    random = np.random.default_rng(seed)
    truth = random.normal(size=n)
    standings, rounds, asked = [everyone(n)], [], []
    for _ in range(strategy.rounds):
        matches = strategy.next_round(History(standings[-1]), random)
        if not len(matches):
            break
        rankings: list[Any] = []
        for pair in matches.items.reshape(-1, 2).tolist():
            if random.random() < silent:
                continue  # the judge gave no verdict
            best = sorted(pair, key=lambda item: -truth[item] + random.normal() * 0.7)
            rankings.append([best] if random.random() < ties else best)
        rounds.append(verdicts(rankings))
        asked.append(set(matches.items.tolist()))
        ratings = elo.fold(standings[-1].elo, rounds[-1])
        stay = strategy.stay(History(Standings(ratings, standings[-1].active), rounds), random)
        standings.append(Standings(ratings, stay))
    return standings, rounds, asked


def has_streak(item: int, rounds: list[Verdicts], r: int, d: int) -> bool:
    """The rule by hand: the item's last matches, from the last one back, all won or all lost."""
    way = ""
    opponents: list[int] = []
    for some in reversed(rounds):
        for a, b, tied in zip(
            some.items[0::2].tolist(), some.items[1::2].tolist(), some.tied[1::2], strict=True
        ):
            if item not in (a, b):
                continue
            result = "tie" if tied else "won" if item == a else "lost"
            if result == "tie" or way not in ("", result):
                return len(opponents) >= r and len(set(opponents)) >= d
            way = result
            opponents.append(b if item == a else a)
    return len(opponents) >= r and len(set(opponents)) >= d


@settings(max_examples=60)
@given(r=st.integers(1, 5), d=st.integers(1, 4), n=st.integers(2, 30), seed=SEEDS)
def test_an_item_leaves_once_it_has_its_streak_and_never_comes_back(
    r: int, d: int, n: int, seed: int
) -> None:
    standings, rounds, asked = play(Streak(rounds=12, r=r, d=d), n, seed)
    for played in range(len(rounds)):
        before, after = standings[played].active, standings[played + 1].active
        assert asked[played] <= set(np.flatnonzero(before).tolist())
        streak = [has_streak(item, rounds[: played + 1], r, d) for item in range(n)]
        assert (after == (before & ~np.array(streak))).all()
    assert len(rounds) <= 12


def test_a_tie_breaks_a_streak_and_sitting_out_does_not() -> None:
    strategy = Streak(r=3, d=1)
    won: list[list[Any]] = [[[0, 1], [2, 3]], [[0, 2], [1, 3]], [[0, 3], [1, 2]]]
    tied = [won[0], [[[0, 2]], [1, 3]], won[2]]
    sat = [won[0], [[1, 3]], won[1], won[2]]
    active = [
        strategy.stay(
            History(everyone(4), [verdicts(some) for some in rounds]), np.random.default_rng()
        )
        for rounds in (won, won[:2], tied, sat)
    ]
    assert [stays.tolist() for stays in active] == [
        [False, True, True, False],
        [True, True, True, True],
        [True, True, True, False],
        [False, False, True, False],  # 1 won its last three
    ]


def test_a_streak_takes_distinct_opponents() -> None:
    same = [verdicts([[0, 1], [2, 3]])] * 5
    other = [*same, verdicts([[0, 2], [1, 3]])]
    chance = np.random.default_rng()
    assert Streak(r=3, d=2).stay(History(everyone(4), same), chance).all()
    # The fifth opponent of a streak counts, however early the others came.
    stay = Streak(r=3, d=2).stay(History(everyone(4), other), chance)
    assert stay.tolist() == [False, True, True, False]


def test_of_several_judges_the_most_say_who_won() -> None:
    """Each pair is asked of all of them: one match, however many verdicts."""
    split = [verdicts([[0, 1], [1, 0], [2, 3], [2, 3]]), verdicts([[0, 3], [0, 3], [2, 1], [2, 1]])]
    stay = Streak(r=2, d=2).stay(History(everyone(4), split), np.random.default_rng())
    assert stay.tolist() == [True, True, False, False]
    once = split[:1] * 2
    assert Streak(r=4, d=1).stay(History(everyone(4), once), np.random.default_rng()).all()


@settings(max_examples=60)
@given(
    w=st.integers(1, 8), p=st.integers(1, 49), n=st.integers(2, 60), seed=SEEDS,
    rounds=st.integers(1, 14),
)  # fmt: skip
def test_tails_leave_from_round_w_on_and_the_middle_stays(
    w: int, p: int, n: int, seed: int, rounds: int
) -> None:
    strategy = Tail(rounds=rounds, w=w, p=p)
    standings, played, asked = play(strategy, n, seed)
    assert sum(len(some) // 2 for some in asked) == strategy.calls(n) == strategy.cost(n)
    for round in range(1, len(played) + 1):
        before, after = standings[round - 1].active, standings[round].active
        left = before & ~after
        if round < w:
            assert not left.any()
            continue
        a = int(before.sum())
        leave = min(max(1, a * p // 100), max(0, a - 2) // 2)
        assert (after <= before).all()
        assert left.sum() == 2 * leave
        assert after.sum() >= min(2, a)
        ratings = standings[round].elo
        if leave:
            assert (ratings[left] <= ratings[after].min()).sum() >= leave
            assert (ratings[left] >= ratings[after].max()).sum() >= leave


@pytest.mark.parametrize(("w", "p", "pairs"), [(8, 20, 4759), (12, 10, 7871)])
def test_the_published_costs_of_tail_pruning(w: int, p: int, pairs: int) -> None:
    assert Tail(w=w, p=p).calls(1000) == pairs


@pytest.mark.parametrize("n", [2, 3, 4, 7, 20, 33])
@pytest.mark.parametrize("m", [1, 2])
def test_complete_asks_each_pair_once_a_round(n: int, m: int) -> None:
    strategy, chance = Complete(m=m), np.random.default_rng(n)
    rounds = [strategy.next_round(History(everyone(n)), chance) for _ in range(strategy.rounds)]
    for matches in rounds:
        pairs = matches.items.reshape(-1, 2).tolist()
        assert sorted(tuple(sorted(pair)) for pair in pairs) == list(combinations(range(n), 2))
        # One after the other, each item is in one pair of every n // 2.
        for start in range(0, len(pairs), n // 2):
            some = [item for pair in pairs[start : start + n // 2] for item in pair]
            assert len(set(some)) == len(some)
    assert strategy.calls(n) == strategy.cost(n) == sum(map(len, rounds))


def test_complete_refuses_absurd_sizes_with_their_number() -> None:
    Complete().check(1400)
    with pytest.raises(UsageError, match=r"complete over 3,674 items is 6,747,301 calls"):
        Complete().check(3674)
    with pytest.raises(UsageError, match=r"complete:m=2 over 1,400 items is 1,958,600 calls"):
        Complete(m=2).check(1400)


def test_direct_asks_about_each_item_alone_once() -> None:
    matches = Direct().next_round(History(everyone(5)), np.random.default_rng())
    assert [items.tolist() for items in matches] == [[0], [1], [2], [3], [4]]
    assert (Direct().rounds, Direct().calls(5), Direct().cost(5), matches.cost) == (1, 5, 2.5, 2.5)


@pytest.mark.parametrize("strategy", [Pairwise(3), Complete(), Direct()])
def test_who_does_not_prune_lets_nobody_go(strategy: Strategy) -> None:
    standings = Standings(np.arange(6.0), np.arange(6) < 4)
    stay = strategy.stay(History(standings, [verdicts([[0, 1]])] * 30), np.random.default_rng())
    assert (stay == standings.active).all()
    assert not strategy.prunes
