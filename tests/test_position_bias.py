from __future__ import annotations

import math

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from judgeq import seeds
from judgeq.rating import position_bias, student
from judgeq.strategies import History
from judgeq.strategies.listwise import Listwise
from judgeq.strategies.pairwise import Pairwise
from judgeq.types import Matches, Standings, Verdicts

Said = tuple[tuple[int, ...], tuple[int, ...]]


def said(*answers: tuple[tuple[int, ...], tuple[int, ...]], tied: object = None) -> Verdicts:
    """Verdicts from (presented, ranked)."""
    presented = [list(each[0]) for each in answers]
    ranked = [list(each[1]) for each in answers]
    sizes = [len(each) for each in ranked]
    flat = [item for each in ranked for item in each]
    return Verdicts(
        matches=np.arange(len(answers)),
        items=np.array(flat, dtype=np.int32),
        offsets=np.cumsum([0, *sizes]),
        tied=np.zeros(len(flat), dtype=np.bool_) if tied is None else np.array(tied, np.bool_),
        presented=np.array([item for each in presented for item in each], dtype=np.int32),
    )


# Win rates by slot


def test_win_rates_by_hand() -> None:
    found = position_bias.slots(said(((5, 3), (5, 3)), ((1, 2), (2, 1)), ((7, 8), (7, 8))))
    assert found is not None
    assert found.rate.tolist() == pytest.approx([2 / 3, 1 / 3])
    assert found.matches.tolist() == [3, 3]
    # Wilson's interval of 2 in 3, as published tables give it.
    assert (found.low[0], found.high[0]) == pytest.approx((0.2077, 0.9385), abs=1e-4)
    assert (found.low[1], found.high[1]) == pytest.approx((1 - 0.9385, 1 - 0.2077), abs=1e-4)


def test_of_a_list_each_place_beats_those_after_it() -> None:
    found = position_bias.slots(said(((4, 9, 6), (6, 4, 9)), ((4, 9, 6), (6, 4, 9))))
    assert found is not None
    assert found.rate.tolist() == [0.5, 0.0, 1.0]


def test_ties_count_half() -> None:
    found = position_bias.slots(said(((1, 2), (1, 2)), tied=[False, True]))
    assert found is not None
    assert found.rate.tolist() == [0.5, 0.5]


def test_no_verdict_tells_nothing() -> None:
    assert position_bias.slots(said()) is None


@given(st.data(), st.integers(2, 7))
def test_the_mean_over_slots_is_a_half(data: st.DataObject, k: int) -> None:
    orders = st.permutations(range(k)).map(tuple)
    answers = data.draw(st.lists(st.tuples(orders, orders), min_size=1, max_size=8))
    found = position_bias.slots(said(*answers))
    assert found is not None
    assert found.rate.mean() == pytest.approx(0.5)
    assert (found.low <= found.rate + 1e-12).all()
    assert (found.rate <= found.high + 1e-12).all()


def drawn(favour: float, n: int, k: int) -> Verdicts:
    """n lists ranked at random, but for `favour` given to the first slot."""
    rng = seeds.rng(3, "order")
    answers = []
    for _ in range(n):
        strength = rng.normal(size=k)
        strength[0] += favour
        answers.append((tuple(range(k)), tuple(np.argsort(-strength).tolist())))
    return said(*answers)


@pytest.mark.parametrize("k", [2, 5, 10])
def test_a_favourite_slot_is_seen_and_none_is_made_up(k: int) -> None:
    biased = position_bias.slots(drawn(0.8, 400, k))
    assert biased is not None
    assert biased.favoured == 1
    assert biased.low[0] > 0.5
    assert "position 1 wins more often than chance (0." in position_bias.sentence(biased)
    fair = position_bias.slots(drawn(0.0, 400, k))
    assert fair is not None
    assert (fair.favoured, fair.slighted) == (None, None)
    assert position_bias.sentence(fair).startswith("No position bias found (p = ")


def test_of_few_matches_nothing_is_claimed() -> None:
    few = position_bias.slots(said(*[((1, 2), (1, 2))] * 29))
    assert few is not None
    assert few.favoured is None
    assert "Too few" in position_bias.sentence(few)
    enough = position_bias.slots(said(*[((1, 2), (1, 2))] * 30, ((1, 2), (2, 1))))
    assert enough is not None
    assert enough.favoured == 1


def test_the_intervals_hold_what_they_promise() -> None:
    """Of 95 % intervals about 95 % hold ½ when no slot is favoured, also of lists."""
    rng = seeds.rng(1, "coverage")
    held = []
    for _ in range(150):
        orders = [tuple(rng.permutation(6).tolist()) for _ in range(60)]
        found = position_bias.slots(said(*((tuple(range(6)), order) for order in orders)))
        assert found is not None
        held += ((found.low <= 0.5) & (found.high >= 0.5)).tolist()
    assert 0.92 < np.mean(held) < 0.975


@pytest.mark.parametrize("strategy", [Listwise(), Listwise(7, overlap=2), Pairwise()])
@pytest.mark.parametrize("how", ["similar", "random"])
def test_strategies_present_in_random_order(strategy: Listwise | Pairwise, how: str) -> None:
    """However the items are rated, the mean rating is the same in every slot."""
    n = 4000
    elo = np.linspace(-1, 1, n)
    made = type(strategy)(matchmaking=how)  # type: ignore[arg-type]
    standings = Standings(elo, np.ones(n, dtype=np.bool_))
    within: list[np.ndarray] = []
    for turn in range(5):
        matches = made.next_round(History(standings), seeds.rng(turn, "slots"))
        k = int(np.diff(matches.offsets).max())
        whole = np.diff(matches.offsets) == k
        starts = matches.offsets[:-1][whole]
        rated = elo[matches.items[starts[:, None] + np.arange(k)]]
        within.append(rated.argsort(axis=1).argsort(axis=1) / (k - 1))
    places = np.concatenate(within)
    error = places.std() / np.sqrt(len(places))
    assert np.abs(places.mean(axis=0) - 0.5).max() < 4 * error


# Both orders


def test_each_pair_is_followed_by_its_reverse() -> None:
    matches = Matches(np.array([1, 2, 3, 4], dtype=np.int32), np.array([0, 2, 4]))
    both = position_bias.doubled(matches)
    assert both.items.tolist() == [1, 2, 2, 1, 3, 4, 4, 3]
    assert both.offsets.tolist() == [0, 2, 4, 6, 8]
    with pytest.raises(ValueError, match="only pairs"):
        position_bias.doubled(Matches(np.arange(3, dtype=np.int32), np.array([0, 3])))


def test_a_flip_is_a_tie_and_half_an_answer_none() -> None:
    a, b = (1, 2), (2, 1)
    verdicts = said((a, a), (b, a), (a, a), (b, b), (a, b), (b, b))
    found, flips = position_bias.merged(verdicts)
    assert found.matches.tolist() == [0, 2, 4]
    assert found.items.reshape(-1, 2)[[0, 2]].tolist() == [[1, 2], [2, 1]]
    assert found.tied.tolist() == [False, False, False, True, False, False]
    assert found.presented.tolist() == [1, 2, 1, 2, 1, 2]
    assert flips == position_bias.Flips(couples=3, flipped=1, incomplete=0)

    kept = np.array([0, 1, 3, 4])  # 2 and 5 were never answered
    half = Verdicts(
        verdicts.matches[kept],
        verdicts.items.reshape(-1, 2)[kept].reshape(-1),
        np.arange(5) * 2,
        np.zeros(8, dtype=np.bool_),
        verdicts.presented.reshape(-1, 2)[kept].reshape(-1),
    )
    found, flips = position_bias.merged(half)
    assert found.matches.tolist() == [0]
    assert flips == position_bias.Flips(couples=3, flipped=0, incomplete=2)
    assert position_bias.plus(flips, flips) == position_bias.Flips(6, 0, 4)


def test_two_ties_are_one_and_a_tie_against_a_winner_is_a_flip() -> None:
    a = (1, 2)
    verdicts = said((a, a), ((2, 1), a), (a, a), ((2, 1), a), tied=[0, 1, 0, 1, 0, 1, 0, 0])
    found, flips = position_bias.merged(verdicts)
    assert found.tied.tolist() == [False, True, False, True]
    assert flips.flipped == 1


def test_nothing_merged_is_nothing() -> None:
    found, flips = position_bias.merged(said())
    assert (len(found), flips.couples) == (0, 0)


# How likely chance is


@pytest.mark.parametrize("df", [1, 2, 3, 5, 29, 30, 101, 9999, 10_000, 10_001, 10**6])
def test_students_t_is_scipys_or_more_careful(df: int) -> None:
    for t in (0.0, 0.1, 1.0, 2.0, 3.3, 10.0, 300.0):
        exact, ours = 2 * scipy.stats.t.sf(t, df), student.two_sided(-t, df)
        assert ours >= exact - 1e-12
        assert df < 29 or ours == pytest.approx(exact, abs=3e-4)
    assert student.two_sided(math.inf, df) == 0
    for level in (0.5, 0.9, 0.95, 0.999):
        expected, ours = scipy.stats.t.ppf((1 + level) / 2, df), student.quantile(level, df)
        assert ours >= expected * (1 - 1e-9)
        assert df < 29 or level > 0.99 or ours == pytest.approx(expected, rel=2e-3)
    few = student.quantile(0.95, 3)
    assert few == pytest.approx(4.38, abs=0.01), "3.18 is exact; below infinite"


def test_up_to_three_lists_say_nothing_of_a_slot() -> None:
    lists = said(*[((0, 1, 2), (0, 1, 2))] * 3)
    found = position_bias.slots(lists)
    assert found is not None
    assert (found.low.tolist(), found.high.tolist()) == ([0.0] * 3, [1.0] * 3)


def false_alarms(n: int, k: int, runs: int) -> float:
    """How often a slot is claimed to be favoured or slighted where the order is drawn at random."""
    random = seeds.rng(n, "alarms", k)
    alarms = 0
    presented = np.tile(np.arange(k, dtype=np.int32), n)
    for _ in range(runs):
        ranked = np.argsort(random.random((n, k)), axis=1).astype(np.int32).reshape(-1)
        ties = np.zeros(n * k, dtype=np.bool_)
        offsets = np.arange(n + 1, dtype=np.int64) * k
        slots = position_bias.slots(Verdicts(np.arange(n), ranked, offsets, ties, presented))
        assert slots is not None
        alarms += slots.favoured is not None or slots.slighted is not None
    return alarms / runs


@pytest.mark.parametrize("k", [2, 5, 10])
@pytest.mark.parametrize("n", [30, 400])
def test_false_alarms_are_as_rare_as_promised(n: int, k: int) -> None:
    """5 %; of 1,000 runs 6.4 % is two standard errors above it."""
    assert 0.02 < false_alarms(n, k, 1000) < 0.064


def both_orders(n: int, noise: float, favour: float, random: np.random.Generator) -> Verdicts:
    """Pairs of close and of far items, asked in both orders of a judge with `noise`, to whom the first
    slot looks better by `favour`."""
    gap = random.normal(size=n)
    first = gap + favour + noise * random.normal(size=n) > 0
    second = -gap + favour + noise * random.normal(size=n) > 0  # in the other order
    pairs = np.stack([np.arange(n) * 2, np.arange(n) * 2 + 1], axis=1).astype(np.int32)
    presented = np.stack([pairs, pairs[:, ::-1]], axis=1).reshape(-1, 2)
    won = np.stack([first, second], axis=1).reshape(-1)
    items = np.where(won[:, None], presented, presented[:, ::-1])
    return Verdicts(
        matches=np.arange(2 * n),
        items=items.reshape(-1),
        offsets=np.arange(2 * n + 1, dtype=np.int64) * 2,
        tied=np.zeros(4 * n, dtype=np.bool_),
        presented=presented.reshape(-1),
    )


def test_the_answers_of_a_couple_are_no_independent_ones() -> None:
    """A judge who is nearly sure flips seldom, so that a small bias is seen; without one there is no
    alarm more often than promised, and intervals hold what they promise."""
    random = seeds.rng(5, "couples")
    seen = alarms = held = 0
    for _ in range(400):
        biased = position_bias.slots(both_orders(1000, 0.05, 0.015, random), couples=True)
        fair = position_bias.slots(both_orders(1000, 0.05, 0, random), couples=True)
        assert biased is not None
        assert fair is not None
        assert 0.49 < biased.rate[0] < 0.52  # 0.506
        seen += biased.favoured == 1
        alarms += fair.favoured is not None or fair.slighted is not None
        held += fair.low[0] <= 0.5 <= fair.high[0]
    assert seen > 200
    assert alarms < 0.064 * 400
    assert held > 0.93 * 400
    alone = position_bias.slots(both_orders(1000, 0.05, 0.015, random))
    assert alone is not None
    assert alone.favoured is None  # as if 2,000 independent answers


def test_couples_that_never_flip_leave_some_doubt() -> None:
    never = position_bias.slots(both_orders(40, 0, 0, seeds.rng(1, "couples")), couples=True)
    assert never is not None
    assert never.rate.tolist() == [0.5, 0.5]
    assert never.low[0] < 0.48
    assert never.high[0] > 0.52
    assert never.chance == pytest.approx(1)


def test_the_sentence_says_how_likely_chance_is() -> None:
    one_sided = position_bias.slots(said(*[((1, 2), (1, 2))] * 40, *[((1, 2), (2, 1))] * 10))
    assert one_sided is not None
    text = position_bias.sentence(one_sided)
    assert text.startswith("Position bias: position 1 wins more often than chance (0.800 of its ")
    assert "position 2 wins less often than chance" in text
    assert text.endswith("p < 0.001.")
    even = position_bias.slots(said(*[((1, 2), (1, 2))] * 22, *[((1, 2), (2, 1))] * 18))
    assert even is not None
    assert even.chance == pytest.approx(0.53, abs=0.01)
    sentence = position_bias.sentence(even)
    assert sentence == "No position bias found (p = 0.53, largest deviation: position 1)."


def test_no_bound_is_below_0() -> None:
    never = position_bias.slots(said(*[((1, 2), (1, 2))] * 7))
    assert never is not None
    assert f"{never.low[1]:.3f}" == "0.000"
    assert np.copysign(1, never.low).tolist() == [1, 1]
