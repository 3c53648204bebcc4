from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from pydantic import ValidationError

from judgeq.errors import CallTimeoutError, RateLimitedError
from judgeq.judge.backend import Prepared, Request
from judgeq.judge.simulated import SimulatedJudge, latent_scores, probability_correct
from judgeq.replies import write_reply
from judgeq.settings.run import Simulation
from judgeq.types import Match

VG, RRT = Simulation(), Simulation(sim_model="rrt")
DRAWS = 4000

GOLDEN_VG_2 = [(9, 8), (8, 9), (8, 9), (9, 8)]
GOLDEN_VG_5 = [(9, 6, 8, 5, 7), (9, 8, 6, 7, 5), (8, 6, 9, 5, 7), (8, 9, 5, 7, 6)]
GOLDEN_RRT_5 = [(8, 9, 7, 6, 5), (8, 9, 7, 6, 5), (9, 8, 6, 7, 5), (9, 5, 8, 7, 6)]


def p(gap: float, settings: Simulation = VG) -> float:
    return float(probability_correct(np.array([gap]), settings)[0])


def close(wins: int, draws: int, expected: float) -> bool:
    """Within four standard deviations."""
    return abs(wins - draws * expected) <= 4 * math.sqrt(draws * expected * (1 - expected))


# The curve


def test_the_curve_goes_through_its_points() -> None:
    assert pytest.approx(95, abs=0.01) == VG.tau
    assert p(0) == 0.5
    assert p(90) == pytest.approx(0.8)
    assert p(1e9) == pytest.approx(0.99)
    other = Simulation(sim_accuracy=0.7, sim_pmax=0.9, sim_distance=50)
    assert p(50, other) == pytest.approx(0.7)
    assert p(1e9, other) == pytest.approx(0.9)


@pytest.mark.parametrize(
    "wrong",
    [
        {"accuracy": 0.5},
        {"accuracy": 0.99},
        {"pmax": 1.1},
        {"distance": 0},
        {"bias": -1},
        {"model": "other"},
        {"noise": 1},
    ],
)
def test_a_curve_that_can_not_be(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Simulation.model_validate(wrong)


# What answers depend on


def ask(judge: SimulatedJudge, match: Match, attempt: int = 1, asking: int = 1) -> str:
    """The reply's text; the error's name for a failure."""

    def never() -> list[dict[str, str]]:
        raise AssertionError("it reads no text")

    try:
        return asyncio.run(judge.complete(Request(match, attempt, asking, never), Prepared())).text
    except (CallTimeoutError, RateLimitedError) as error:
        return error.outcome


LISTS = [Match(number, 1, tuple(range(number % 7, number % 7 + 6))) for number in range(60)]
SCORES = np.linspace(400, 600, 20)


@pytest.mark.parametrize("settings", [VG, RRT], ids=["vg", "rrt"])
def test_an_answer_depends_on_seed_and_match_alone(settings: Simulation) -> None:
    def answers(order: Iterable[int], seed: int = 3, attempt: int = 1) -> list[str]:
        judge = SimulatedJudge(SCORES, settings, 1e-9, seed)
        told = {n: ask(judge, LISTS[n], attempt, asking=attempt) for n in order}
        return [told[n] for n in range(len(LISTS))]

    forward = answers(range(60))
    assert answers(reversed(range(60))) == forward
    assert answers(range(60), attempt=5) == forward
    assert answers(range(60), seed=4) != forward
    again = SimulatedJudge(SCORES, settings, seed=3)
    assert [write_reply(again.judge(match), match) for match in LISTS] == forward
    # The same items asked about again, in another match, may be judged otherwise.
    assert len({again.judge(Match(n, 1, (4, 5, 6, 7))) for n in range(30)}) > 1


def test_answers_are_the_same_in_every_version() -> None:
    """A changed answer would change every run with this judge that is not finished yet."""

    def first(settings: Simulation, k: int) -> list[tuple[int, ...]]:
        judge = SimulatedJudge(np.linspace(400, 600, 10), settings, seed=0)
        return [judge.judge(Match(n, 1, tuple(range(10 - k, 10)))).items for n in range(4)]

    assert first(VG, 2) == GOLDEN_VG_2
    assert first(VG, 5) == GOLDEN_VG_5
    assert first(RRT, 5) == GOLDEN_RRT_5


# Scores


def test_two_labels_make_two_groups() -> None:
    gold = np.array([0.0, 1.0] * 2000)
    scores = latent_scores(gold, VG, seed=1)
    for label, centre in ((0, 250), (1, 750)):
        group = scores[gold == label]
        assert group.mean() == pytest.approx(centre, abs=4 * 100 / math.sqrt(2000))
        assert group.std() == pytest.approx(100, abs=7)
    assert scores.min() >= 1
    tight = latent_scores(gold * 5 - 2, Simulation(sim_spread=0), seed=1)
    assert_array_equal(tight, np.where(gold == 1, 750, 250))
    wide = latent_scores(gold, Simulation(sim_spread=5000), seed=1)
    assert (wide.min(), wide.max()) == (1, 1000)


def test_items_without_a_label_get_some_score_and_change_no_other() -> None:
    for values in ([0.0, 1.0], [0.0, 1.0, 2.0], [3.0]):
        gold = np.array(values * 500)
        full = latent_scores(gold, VG, seed=1)
        gold[::7] = np.nan
        some = latent_scores(gold, VG, seed=1)
        known = ~np.isnan(gold)
        assert_array_equal(some[known], full[known])
        rest = some[~known]
        assert len(np.unique(rest)) == len(rest)
        assert ((rest >= 1) & (rest <= 1000)).all()
        assert rest.mean() == pytest.approx(500, abs=4 * 289 / math.sqrt(len(rest)))


# Latency
