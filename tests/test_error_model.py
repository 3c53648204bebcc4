"""The simulated judge's errors, a whole round at once: counted, and held against the formulas."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations, permutations, product
from typing import TypeAlias

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from judgeq.judge.simulated import (
    HIGH,
    LOW,
    answers,
    probability_correct,
    seen_scores,
    verdict_on,
)
from judgeq.settings.run import Simulation
from judgeq.types import Match, Matches

VG, RRT = Simulation(), Simulation(sim_model="rrt")
BOTH = pytest.mark.parametrize("judge", [VG, RRT], ids=["vg", "rrt"])
# Errs in nothing: as good as no noise, and no lapses.
CERTAIN = {"sim_accuracy": 0.999, "sim_pmax": 1.0, "sim_distance": 0.001}
# Errs by lapses alone, in a fifth of all pairs.
LAPSING = Simulation(sim_accuracy=0.799, sim_pmax=0.8, sim_distance=0.001)
LISTS = 20_000
SEEDS = st.integers(0, 2**32 - 1)

Order: TypeAlias = tuple[int, ...]
"""The items of a list, best first."""


def close(found: int, draws: int, expected: float) -> bool:
    """Within four standard deviations."""
    return abs(found - draws * expected) <= 4 * math.sqrt(draws * expected * (1 - expected))


def ragged(lists: Sequence[Sequence[int]]) -> Matches:
    return Matches(
        items=np.array([item for items in lists for item in items], dtype=np.int32),
        offsets=np.cumsum([0, *map(len, lists)]),
    )


def rankings(scores: Sequence[float], judge: Simulation, seed: int = 1) -> list[Order]:
    """Many answers to one list, which presents its items in order."""
    k = len(scores)
    matches = Matches(
        items=np.tile(np.arange(k, dtype=np.int32), LISTS),
        offsets=np.arange(LISTS + 1, dtype=np.int64) * k,
    )
    verdicts = answers(matches, np.array(scores), judge, np.random.default_rng(seed))
    return [tuple(order) for order in verdicts.items.reshape(-1, k).tolist()]


def one_by_one(scores: Sequence[float], judge: Simulation, seed: int = 1) -> list[Order]:
    match, rng = Match(0, 1, tuple(range(len(scores)))), np.random.default_rng(seed)
    return [verdict_on(match, list(scores), judge, rng).items for _ in range(LISTS)]


def wins(orders: Sequence[Order], a: int, b: int) -> int:
    return sum(order.index(a) < order.index(b) for order in orders)


def as_expected(orders: Sequence[Order], expected: dict[Order, float]) -> float:
    """p of the chi-square test that the orders come with these probabilities."""
    assert math.isclose(sum(expected.values()), 1)
    found = Counter(orders)
    assert set(found) <= set(expected)
    assert min(expected.values()) * len(orders) >= 5, "a cell too rare for the test"
    result = scipy.stats.chisquare(
        [found[order] for order in expected],
        [share * len(orders) for share in expected.values()],
    )
    return float(result.pvalue)


def alike(some: Sequence[Order], others: Sequence[Order]) -> float:
    """p of the chi-square test that both come from one distribution."""
    first, second = Counter(some), Counter(others)
    table = np.array([[first[order], second[order]] for order in first | second])
    assert table.sum(axis=1).min() >= 10, "a cell too rare for the test"
    return float(scipy.stats.chi2_contingency(table).pvalue)


# The curve


@BOTH
@pytest.mark.parametrize("gap", [0.0, 30.0, 90.0, 300.0, 900.0])
def test_pairs_follow_the_curve(judge: Simulation, gap: float) -> None:
    expected = 0.5 + (0.99 - 0.5) * (1 - math.exp(-gap / judge.tau))
    for scores in ((gap, 0.0), (0.0, gap)):  # whichever is presented first
        better = int(scores[1] > scores[0])
        assert close(wins(rankings(scores, judge), better, 1 - better), LISTS, expected)


def test_every_pair_of_a_list_follows_the_curve() -> None:
    scores = [500.0, 530.0, 620.0, 100.0, 900.0, 500.0, 590.0]
    orders = rankings(scores, VG)
    for a, b in combinations(range(len(scores)), 2):
        better, worse = (a, b) if scores[a] > scores[b] else (b, a)
        gap = scores[better] - scores[worse]
        expected = 0.5 + 0.49 * (1 - math.exp(-gap / VG.tau))
        assert close(wins(orders, better, worse), LISTS, expected), (better, worse)


# Lists: every order by its probability


def rrt_by_hand(scores: Sequence[float], judge: Simulation) -> dict[Order, float]:
    """Each order's probability, over all outcomes of the list's pairs."""
    pairs = list(combinations(range(len(scores)), 2))
    gaps = np.array([scores[a] - scores[b] for a, b in pairs])
    right = probability_correct(np.abs(gaps), judge)
    first_wins = np.where(gaps > 0, right, 1 - right).tolist()
    expected = dict.fromkeys(permutations(range(len(scores))), 0.0)
    for outcome in product((True, False), repeat=len(pairs)):
        won = [0] * len(scores)
        chance = 1.0
        for (a, b), first, p in zip(pairs, outcome, first_wins, strict=True):
            won[a if first else b] += 1
            chance *= p if first else 1 - p
        keys = [(-wins, -score) for wins, score in zip(won, scores, strict=True)]
        orders = [order for order in expected if [keys[i] for i in order] == sorted(keys)]
        for order in orders:  # several where items of equal scores won as often
            expected[order] += chance / len(orders)
    return expected


def lapses_by_hand(k: int, lapse: float) -> dict[Order, float]:
    """Each order's probability where items 0, 1 … k − 1 are far apart and only lapses err."""
    expected = dict.fromkeys(permutations(range(k)), 0.0)
    chances = {"top": lapse / 2, "place": 1 - lapse, "bottom": lapse / 2}
    for ends in product(chances, repeat=k):
        at = {end: [item for item in range(k) if ends[item] == end] for end in chances}
        tops, bottoms = list(permutations(at["top"])), list(permutations(at["bottom"]))
        chance = math.prod(chances[end] for end in ends) / len(tops) / len(bottoms)
        for top, bottom in product(tops, bottoms):
            expected[top + tuple(at["place"]) + bottom] += chance
    return expected


@pytest.mark.parametrize(
    "scores", [(500.0, 530.0, 560.0, 620.0), (300.0, 260.0, 340.0, 330.0), (7.0, 7.0, 8.0, 8.0)]
)
def test_lists_of_rrt_rank_by_wins_and_then_by_score(scores: tuple[float, ...]) -> None:
    assert as_expected(rankings(scores, RRT), rrt_by_hand(scores, RRT)) > 0.001


@pytest.mark.parametrize("model", ["vg", "rrt"])
@settings(max_examples=60)
@given(
    lists=st.lists(
        st.lists(st.integers(0, 29), min_size=2, max_size=10, unique=True), min_size=1, max_size=12
    ),
    seed=SEEDS,
)
def test_who_is_certain_gives_the_order_of_the_scores(
    model: str, lists: list[list[int]], seed: int
) -> None:
    judge = Simulation.model_validate({"sim_model": model, **CERTAIN})
    scores = np.random.default_rng(seed).permutation(np.linspace(LOW, HIGH, 30))
    verdicts = answers(ragged(lists), scores, judge, np.random.default_rng(seed))
    found = np.split(verdicts.items, verdicts.offsets[1:-1])
    for items, ranked in zip(lists, found, strict=True):
        assert ranked.tolist() == sorted(items, key=lambda item: -scores[item])


# A whole round and one question at a time


@BOTH
def test_a_round_at_once_answers_as_one_question_at_a_time(judge: Simulation) -> None:
    scores = (500.0, 560.0, 530.0, 620.0)
    assert alike(rankings(scores, judge), one_by_one(scores, judge, seed=2)) > 0.001


# Rounds


def round_of(seed: int) -> Matches:
    """Lists of 9 and 10 and pairs, mixed, over 60 items."""
    rng = np.random.default_rng(seed)
    sizes = rng.choice([2, 9, 10], size=30).tolist()
    return ragged([rng.choice(60, size=size, replace=False).tolist() for size in sizes])


# What the annotator sees


@settings(max_examples=100)
@given(
    n=st.integers(1, 120),
    asked_for=st.integers(0, 150),
    bias=st.integers(1, 500),
    seed=SEEDS,
)
def test_so_many_items_are_off_by_the_bias_and_no_others(
    n: int, asked_for: int, bias: int, seed: int
) -> None:
    latent = np.random.default_rng(seed).uniform(LOW, HIGH, n)
    before = latent.copy()
    judge = Simulation(sim_biased_items=asked_for, sim_bias=bias)
    seen = seen_scores(latent, judge, seed)
    assert_array_equal(latent, before)
    off = seen != latent
    assert off.sum() == min(asked_for, n)
    assert ((seen == latent + bias) | (seen == latent - bias))[off].all()
    assert_array_equal(seen, seen_scores(latent, judge, seed))


# Scores of texts alone


# Equal latent scores


# Position bias


@pytest.mark.parametrize("model", ["vg", "rrt"])
@pytest.mark.parametrize("bias", [-120.0, 120.0])
def test_a_slot_counts_as_much_as_its_share_of_the_bias(model: str, bias: float) -> None:
    judge = Simulation(sim_model=model, sim_position_bias=bias)
    pairs = rankings([500.0, 500.0], judge)
    last = probability_correct(np.array([120.0]), judge).item()
    assert close(wins(pairs, 1, 0), LISTS, last if bias > 0 else 1 - last)
    assert close(
        wins(one_by_one([500.0, 500.0], judge), 1, 0), LISTS, last if bias > 0 else 1 - last
    )
    # In a list of three neighbours are half of it apart.
    lists = rankings([500.0, 500.0, 500.0], judge.model_copy(update={"sim_model": "vg"}))
    half = probability_correct(np.array([60.0]), judge).item()
    for first in (0, 1):
        assert close(wins(lists, first + 1, first), LISTS, half if bias > 0 else 1 - half)
