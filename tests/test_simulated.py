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
from judgeq.judge.error_model import latent_scores, probability_correct
from judgeq.judge.simulated import SimulatedJudge
from judgeq.replies import labels, read_reply, reason_in, write_reply
from judgeq.settings.run import Simulation
from judgeq.types import Match
from tests.fakes import Clock

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


@pytest.mark.parametrize(
    "gold", [[0.0, 1.0, 4.0, 2.0], [-10.0, -9.0, -6.0, -8.0], [0.1, 0.3, 0.9, 0.5]]
)
def test_more_values_are_scaled_linearly(gold: list[float]) -> None:
    scores = latent_scores(np.array(gold), VG, seed=1)
    assert scores == pytest.approx([1, 250.75, 1000, 500.5])


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


def test_latency_is_slept_and_varies() -> None:
    clock = Clock()
    judge = SimulatedJudge(SCORES, VG, latency=2, seed=2, sleep=clock.sleep)
    for match in LISTS:
        ask(judge, match)
    assert len(clock.slept) == len(LISTS)
    assert all(1 <= seconds <= 3 for seconds in clock.slept)
    assert np.mean(clock.slept) == pytest.approx(2, abs=4 * 0.58 / math.sqrt(len(LISTS)))
    assert len(set(clock.slept)) == len(LISTS)


def test_a_reason_is_made_from_what_was_seen_and_changes_no_verdict() -> None:
    plain = SimulatedJudge(SCORES, VG, seed=3)
    judge = SimulatedJudge(SCORES, VG, seed=3, reasons=True)
    for match in (*LISTS[:20], Match(60, 1, (4, 9)), Match(61, 1, (19,))):
        said = ask(judge, match)
        assert said == ask(judge, match)
        verdict, reason = read_reply(said, match), reason_in(said)
        assert verdict == read_reply(ask(plain, match), match)
        assert reason is not None
        assert reason.startswith("Simulated: ")
        if verdict.score is None:
            label = labels(len(match.items))[match.items.index(verdict.items[0])]
            seen = f"{SCORES[verdict.items[0]]:.0f}"
            assert f"{label} comes first, seen at {seen}" in reason
        else:
            assert "seen at 600 on a scale" in reason
