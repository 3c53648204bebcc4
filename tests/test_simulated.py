"""The simulated judge: what its answers depend on; and its errors, held against the formulas."""

import asyncio
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from pydantic import ValidationError

from judgeq.errors import CallTimeoutError, RateLimitedError
from judgeq.judge import simulated
from judgeq.judge.backend import Prepared, Request
from judgeq.replies import write_reply
from judgeq.settings.run import Simulation
from judgeq.types import Match, Matches

VG, RRT = Simulation(), Simulation(sim_model="rrt")


def p(gap: float, settings: Simulation = VG) -> float:
    return float(simulated.probability_correct(np.array([gap]), settings)[0])


def test_the_curve_goes_through_its_points() -> None:
    assert pytest.approx(95, abs=0.01) == VG.tau
    assert p(0) == 0.5
    assert p(90) == pytest.approx(0.8)
    assert p(1e9) == pytest.approx(0.99)
    other = Simulation(sim_accuracy=0.7, sim_pmax=0.9, sim_distance=50)
    assert p(50, other) == pytest.approx(0.7)
    assert p(1e9, other) == pytest.approx(0.9)


def test_a_curve_that_can_not_be() -> None:
    for name, values in (
        *(("accuracy", (0.5, 0.99)), ("pmax", (1.1,)), ("distance", (0,)), ("bias", (-1,))),
        ("model", ("other",)),
    ):
        for value in values:
            with pytest.raises(ValidationError, match=f"sim_{name}|sim-{name}"):
                Simulation.model_validate({f"sim_{name}": value})


def ask(judge: simulated.SimulatedJudge, match: Match, attempt: int = 1, asking: int = 1) -> str:
    """The reply's text; the error's name for a failure."""

    def never() -> list[dict[str, str]]:
        raise AssertionError("it reads no text")

    try:
        return asyncio.run(judge.complete(Request(match, attempt, asking, never), Prepared())).text
    except (CallTimeoutError, RateLimitedError) as error:
        return error.outcome


SIXES = [Match(number, 1, tuple(range(number % 7, number % 7 + 6))) for number in range(60)]
SCORES = np.linspace(400, 600, 20)


@pytest.mark.parametrize("settings", [VG, RRT], ids=["vg", "rrt"])
def test_an_answer_depends_on_seed_and_match_alone(settings: Simulation) -> None:
    def answers(order: Iterable[int], seed: int = 3, attempt: int = 1) -> list[str]:
        judge = simulated.SimulatedJudge(SCORES, settings, seed, latency=1e-9)
        told = {n: ask(judge, SIXES[n], attempt, asking=attempt) for n in order}
        return [told[n] for n in range(len(SIXES))]

    forward = answers(range(60))
    assert answers(reversed(range(60))) == forward
    assert answers(range(60), attempt=5) == forward
    assert answers(range(60), seed=4) != forward
    again = simulated.SimulatedJudge(SCORES, settings, seed=3)
    assert [write_reply(again.judge(match), match) for match in SIXES] == forward
    # The same items asked about again, in another match, may be judged otherwise.
    assert len({again.judge(Match(n, 1, (4, 5, 6, 7))) for n in range(30)}) > 1


def test_answers_are_the_same_in_every_version() -> None:
    """A changed answer would change every run with this judge that is not finished yet."""

    def first(settings: Simulation, k: int) -> list[tuple[int, ...]]:
        judge = simulated.SimulatedJudge(np.linspace(400, 600, 10), settings, seed=0)
        return [judge.judge(Match(n, 1, tuple(range(10 - k, 10)))).items for n in range(4)]

    of_vg = [(9, 6, 8, 5, 7), (9, 8, 6, 7, 5), (8, 6, 9, 5, 7), (8, 9, 5, 7, 6)]
    of_rrt = [(8, 9, 7, 6, 5), (8, 9, 7, 6, 5), (9, 8, 6, 7, 5), (9, 5, 8, 7, 6)]
    assert first(VG, 2) == [(9, 8), (8, 9), (8, 9), (9, 8)]
    assert (first(VG, 5), first(RRT, 5)) == (of_vg, of_rrt)


def test_two_labels_make_two_groups() -> None:
    gold = np.array([0.0, 1.0] * 2000)
    scores = simulated.latent_scores(gold, VG, seed=1)
    for label, centre in ((0, 250), (1, 750)):
        group = scores[gold == label]
        assert group.mean() == pytest.approx(centre, abs=4 * 100 / math.sqrt(2000))
        assert group.std() == pytest.approx(100, abs=7)
    assert scores.min() >= 1
    tight = simulated.latent_scores(gold * 5 - 2, Simulation(sim_spread=0), seed=1)
    assert_array_equal(tight, np.where(gold == 1, 750, 250))
    wide = simulated.latent_scores(gold, Simulation(sim_spread=5000), seed=1)
    assert (wide.min(), wide.max()) == (1, 1000)


BOTH = pytest.mark.parametrize("judge", [VG, RRT], ids=["vg", "rrt"])
# Errs in nothing: as good as no noise, and no lapses.
CERTAIN = {"sim_accuracy": 0.999, "sim_pmax": 1.0, "sim_distance": 0.001}
LISTS = 20_000
SEEDS = st.integers(0, 2**32 - 1)

Order: TypeAlias = tuple[int, ...]
"""The items of a list, best first."""


def close(found: int, draws: int, expected: float) -> bool:
    """Within four standard deviations."""
    return abs(found - draws * expected) <= 4 * math.sqrt(draws * expected * (1 - expected))


def rankings(scores: Sequence[float], judge: Simulation, seed: int = 1) -> list[Order]:
    """Many answers to one list, which presents its items in order."""
    k = len(scores)
    matches = Matches(
        items=np.tile(np.arange(k, dtype=np.int32), LISTS),
        offsets=np.arange(LISTS + 1, dtype=np.int64) * k,
    )
    verdicts = simulated.answers(matches, np.array(scores), judge, np.random.default_rng(seed))
    return [tuple(order) for order in verdicts.items.reshape(-1, k).tolist()]


def one_by_one(scores: Sequence[float], judge: Simulation, seed: int = 1) -> list[Order]:
    match, rng = Match(0, 1, tuple(range(len(scores)))), np.random.default_rng(seed)
    return [simulated.verdict_on(match, list(scores), judge, rng).items for _ in range(LISTS)]


def wins(orders: Sequence[Order], a: int, b: int) -> int:
    return sum(order.index(a) < order.index(b) for order in orders)


@BOTH
@pytest.mark.parametrize("gap", [0.0, 30.0, 90.0, 300.0, 900.0])
def test_pairs_follow_the_curve(judge: Simulation, gap: float) -> None:
    expected = 0.5 + (0.99 - 0.5) * (1 - math.exp(-gap / judge.tau))
    for scores in ((gap, 0.0), (0.0, gap)):  # whichever is presented first
        better = int(scores[1] > scores[0])
        assert close(wins(rankings(scores, judge), better, 1 - better), LISTS, expected)


def test_equal_scores_with_equal_wins_are_ordered_by_lot() -> None:
    assert close(wins(rankings([500.0] * 3, RRT), 0, 2), LISTS, 0.5)


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
    scores = np.random.default_rng(seed).permutation(np.linspace(simulated.LOW, simulated.HIGH, 30))
    items = np.array([item for some in lists for item in some], dtype=np.int32)
    matches = Matches(items, np.cumsum([0, *map(len, lists)]))
    verdicts = simulated.answers(matches, scores, judge, np.random.default_rng(seed))
    found = np.split(verdicts.items, verdicts.offsets[1:-1])
    for some, ranked in zip(lists, found, strict=True):
        assert ranked.tolist() == sorted(some, key=lambda item: -scores[item])


@BOTH
def test_a_round_at_once_answers_as_one_question_at_a_time(judge: Simulation) -> None:
    scores = (500.0, 560.0, 530.0, 620.0)
    first, second = Counter(rankings(scores, judge)), Counter(one_by_one(scores, judge, seed=2))
    table = np.array([[first[order], second[order]] for order in first | second])
    assert table.sum(axis=1).min() >= 10, "a cell too rare for the test"
    assert scipy.stats.chi2_contingency(table).pvalue > 0.001


@settings(max_examples=100)
@given(n=st.integers(1, 120), asked_for=st.integers(0, 150), bias=st.integers(1, 500), seed=SEEDS)
def test_so_many_items_are_off_by_the_bias_and_no_others(
    n: int, asked_for: int, bias: int, seed: int
) -> None:
    latent = np.random.default_rng(seed).uniform(simulated.LOW, simulated.HIGH, n)
    before = latent.copy()
    judge = Simulation(sim_biased_items=asked_for, sim_bias=bias)
    seen = simulated.seen_scores(latent, judge, seed)
    assert_array_equal(latent, before)
    off = seen != latent
    assert off.sum() == min(asked_for, n)
    assert ((seen == latent + bias) | (seen == latent - bias))[off].all()
    assert_array_equal(seen, simulated.seen_scores(latent, judge, seed))


@pytest.mark.parametrize("model", ["vg", "rrt"])
@pytest.mark.parametrize("bias", [-120.0, 120.0])
def test_a_slot_counts_as_much_as_its_share_of_the_bias(model: str, bias: float) -> None:
    judge = Simulation(sim_model=model, sim_position_bias=bias)
    pairs = rankings([500.0, 500.0], judge)
    last = simulated.probability_correct(np.array([120.0]), judge).item()
    assert close(wins(pairs, 1, 0), LISTS, last if bias > 0 else 1 - last)
    assert close(
        wins(one_by_one([500.0, 500.0], judge), 1, 0), LISTS, last if bias > 0 else 1 - last
    )
    # In a list of three neighbours are half of it apart.
    lists = rankings([500.0, 500.0, 500.0], judge.model_copy(update={"sim_model": "vg"}))
    half = simulated.probability_correct(np.array([60.0]), judge).item()
    for first in (0, 1):
        assert close(wins(lists, first + 1, first), LISTS, half if bias > 0 else 1 - half)
