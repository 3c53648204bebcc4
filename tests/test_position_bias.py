"""Favourite places: win rates by slot, what a place is worth, and asking in both orders."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from judgeq import seeds
from judgeq.rating import ESTIMATORS, Parameters, plackett_luce, position_bias
from judgeq.rating.position_bias import Effect, Slots, effect
from judgeq.types import Matches, Verdicts
from tests.cli import json_of, judgeq, only_run, score_columns
from tests.test_ranks import posterior_of


def answered(presented: Any, ranked: Any, judges: Any = None) -> Verdicts:
    """Answers, a row each: what was presented, and the ranking of it."""
    shown, items = np.array(presented, np.int32), np.array(ranked, np.int32)
    return Verdicts(
        matches=np.arange(len(items)),
        items=items.reshape(-1),
        offsets=np.arange(len(items) + 1, dtype=np.int64) * items.shape[-1],
        tied=np.zeros(items.size, dtype=np.bool_),
        presented=shown.reshape(-1),
        judges=judges,
    )


def said(*answers: tuple[tuple[int, ...], tuple[int, ...]]) -> Verdicts:
    """Verdicts from (presented, ranked)."""
    return answered([each[0] for each in answers], [each[1] for each in answers])


def slots(judged: Verdicts, *, couples: bool = False) -> Slots:
    found = position_bias.slots(judged, couples=couples)
    assert found is not None
    return found


def test_win_rates_by_hand() -> None:
    found = slots(said(((5, 3), (5, 3)), ((1, 2), (2, 1)), ((7, 8), (7, 8))))
    assert found.rate.tolist() == pytest.approx([2 / 3, 1 / 3])
    assert found.matches.tolist() == [3, 3]
    error = ((1 / 9 + 1 / 9 + 4 / 9 + 0.5) * 3 / 2) ** 0.5 / 3
    assert found.low.tolist() == pytest.approx([max(0, 2 / 3 - 1.96 * error), 0], abs=1e-4)
    assert found.high.tolist() == pytest.approx([1, min(1, 1 / 3 + 1.96 * error)], abs=1e-4)
    lists = slots(said(((4, 9, 6), (6, 4, 9)), ((4, 9, 6), (6, 4, 9))))
    assert lists.rate.tolist() == [0.5, 0.0, 1.0]
    assert position_bias.slots(answered(np.zeros((0, 2)), np.zeros((0, 2)))) is None


def drawn(favour: float, n: int, k: int) -> Verdicts:
    """n lists ranked at random, but for `favour` given to the first slot."""
    strength = seeds.rng(3, "order").normal(size=(n, k))
    strength[:, 0] += favour
    presented = np.arange(n * k).reshape(n, k)
    ranked = np.take_along_axis(presented, np.argsort(-strength, axis=1), axis=1)
    return answered(presented, ranked)


@pytest.mark.parametrize("k", [2, 5, 10])
def test_a_favourite_slot_is_seen_and_none_is_made_up(k: int) -> None:
    biased = slots(drawn(0.8, 400, k))
    assert biased.biased
    assert biased.furthest == 1
    assert biased.low[0] > 0.5
    assert not slots(drawn(0.0, 400, k)).biased


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
    pairs = (some.reshape(-1, 2)[kept] for some in (verdicts.presented, verdicts.items))
    half = replace(answered(*pairs), matches=verdicts.matches[kept])
    found, flips = position_bias.merged(half)
    assert found.matches.tolist() == [0]
    assert flips == position_bias.Flips(couples=3, flipped=0, incomplete=2)


def both_orders(n: int, noise: float, favour: float, random: np.random.Generator) -> Verdicts:
    """Pairs of close and of far items, asked in both orders of a judge with `noise`, to whom the first
    slot looks better by `favour`."""
    gap = random.normal(size=n)
    first = gap + favour + noise * random.normal(size=n) > 0
    second = -gap + favour + noise * random.normal(size=n) > 0  # in the other order
    pairs = np.stack([np.arange(n) * 2, np.arange(n) * 2 + 1], axis=1).astype(np.int32)
    presented = np.stack([pairs, pairs[:, ::-1]], axis=1).reshape(-1, 2)
    won = np.stack([first, second], axis=1).reshape(-1)
    return answered(presented, np.where(won[:, None], presented, presented[:, ::-1]))


def test_the_answers_of_a_couple_are_no_independent_ones() -> None:
    """A judge who is nearly sure flips seldom, so that a small bias is seen, and none where none is."""
    random = seeds.rng(2, "couples")
    small = both_orders(1000, 0.05, 0.015, random)
    assert slots(small, couples=True).chance == pytest.approx(0.00338, abs=0.00001)
    assert slots(small).chance == pytest.approx(0.00285, abs=0.00001)  # known by its texts
    fair = [slots(both_orders(1000, 0.05, 0, random), couples=True) for _ in range(40)]
    assert sum(one.biased for one in fair) <= 3


def test_the_sentence_says_how_likely_chance_is() -> None:
    def sentence(first: int, second: int) -> str:
        pairs = [(2 * number, 2 * number + 1) for number in range(first + second)]
        answers = [(pair, pair if at < first else pair[::-1]) for at, pair in enumerate(pairs)]
        return position_bias.sentence(slots(said(*answers)))

    wins = "Position bias: position 1 wins more often than chance (0.800 of its comparisons)"
    assert sentence(40, 10) == f"{wins}, p < 0.001."
    no = "No position bias found (p = 0.54, largest deviation: position 1)."
    assert sentence(22, 18) == no
    few = position_bias.sentence(slots(said(*[((1, 2), (1, 2))] * 80)))
    assert few == "Too few different questions to test for position bias."


def panel(k: int, judges: int, seed: int, *, favour: float = 0.0, in_one_order: bool) -> Verdicts:
    """Answers of judges without any bias but `favour` for the last slot, who are all asked about the
    same random lists: in one order, or each in an order of its own."""
    rng = seeds.rng(seed, "panel", k, judges)
    theta, presented = rng.normal(0, 2, 120), []
    for _ in range(4):
        lists = rng.permutation(120).reshape(-1, k)
        copies = [lists if in_one_order else rng.permuted(lists, axis=1) for _ in range(judges - 1)]
        presented += [lists, *copies]
    shown = np.concatenate(presented)
    utility = theta[shown] + favour * np.arange(k) / (k - 1) + rng.gumbel(size=shown.shape)
    return answered(shown, np.take_along_axis(shown, np.argsort(-utility, axis=1), axis=1))


@pytest.mark.parametrize("in_one_order", [True, False])
@pytest.mark.parametrize("k", [2, 10])
def test_judges_who_are_asked_the_same_are_no_independent_ones(k: int, in_one_order: bool) -> None:
    """Four judges who agree on the texts agree on the slots in which these stand."""
    fair = [panel(k, 4, seed, in_one_order=in_one_order) for seed in range(150)]
    found = sum(slots(some).biased for some in fair)
    assert found <= 15, "5 % of 150, and two and a half standard errors"
    biased = [panel(k, 4, seed, favour=3.0, in_one_order=in_one_order) for seed in range(20)]
    assert sum(slots(some).biased for some in biased) >= 15


def test_many_votes_on_few_pairs_are_tested_by_their_pairs() -> None:
    """Of votes in orders of their own those on one pair cancel, whichever text is better."""

    def votes(favour: float, seed: int) -> Verdicts:
        rng = seeds.rng(seed, "votes")
        pairs = np.array([rng.permutation(4)[:2] for _ in range(6000)])
        utility = np.arange(4)[pairs] + favour * np.arange(2) + rng.gumbel(size=pairs.shape)
        return answered(pairs, np.take_along_axis(pairs, np.argsort(-utility, axis=1), axis=1))

    assert sum(slots(votes(0.0, seed)).biased for seed in range(40)) <= 5
    assert all(slots(votes(0.5, seed)).biased for seed in range(10))


def simulated(
    n: int, k: int, rounds: int, effect: float | list[float], seed: int, spread: float = 1.5
) -> Verdicts:
    """Random lists, ranked by a Plackett-Luce judge; of several effects each is another judge's."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(0, spread, n)
    presented = np.concatenate(
        [rng.permutation(n)[: n // k * k].reshape(-1, k) for _ in range(rounds)]
    )
    judges = np.arange(len(presented)) % np.size(effect)
    shift = np.atleast_1d(effect)[judges][:, None] * (np.arange(k) / (k - 1) - 0.5)
    utility = theta[presented] + shift + rng.gumbel(size=presented.shape)
    ranked = np.take_along_axis(presented, np.argsort(-utility, axis=1), axis=1)
    several = judges.astype(np.int32) if np.size(effect) > 1 else None
    return answered(presented, ranked, several)


def effect_of(some: Verdicts, n: int, **parameters: float | bool) -> Effect:
    given = Parameters(**parameters)  # type: ignore[arg-type]
    found = effect(
        posterior_of(plackett_luce.fit(some, n, given)), some, joint=bool(given.position)
    )
    assert found is not None
    return found


BEST_OF_PAIRS = [-0.43606, 0.88617, 0.2582, -2.17259, 1.28352, -0.05181, -0.73037, 0.96294, 0.62873]
BEST_OF_FOURS = [0.12115, 1.09168, 0.03611, -1.99218, 0.8755, 0.24483, -0.98933, 0.61225, 0.74908]


@pytest.mark.parametrize(
    ("k", "best", "error"), [(2, BEST_OF_PAIRS, 0.32775), (4, BEST_OF_FOURS, 0.33031)]
)
def test_the_joint_maximum_and_its_curvature(k: int, best: list[float], error: float) -> None:
    """As SciPy's BFGS has θ and γ of the posterior written out, and finite differences its curvature."""
    some, sigma = simulated(8, k, 20, 0.8, seed=1), 2.0
    posterior = posterior_of(plackett_luce.fit(some, 8, Parameters(sigma, position=True)))
    assert_allclose(posterior.parameters, best, atol=2e-5)
    joint = effect_of(some, 8, sigma=sigma, position=True)
    assert joint.value == pytest.approx(best[-1], abs=1e-4)
    assert joint.se == pytest.approx(error * np.sqrt(posterior.dispersion), rel=1e-3)
    assert joint.low < joint.value < joint.high
    # Beside a fit without it the same γ is found, with that fit's dispersion.
    beside = effect_of(some, 8, sigma=sigma)
    assert beside.value == pytest.approx(joint.value, abs=1e-3)
    assert beside.matches == len(some)


def test_it_is_taken_out_where_it_is_significant() -> None:
    """Of a judge without an effect in about one of twenty runs; unless asked otherwise."""
    estimator = ESTIMATORS["pl"]
    biased = simulated(40, 2, 12, 1.0, seed=2)
    fitted = estimator.fit(biased, 40, Parameters())
    assert fitted.position
    joint = estimator.fit(biased, 40, Parameters(position=True))
    assert_array_equal(fitted.theta, joint.theta)
    kept = estimator.fit(biased, 40, Parameters(position=False))
    assert not kept.position
    assert not np.allclose(kept.theta, joint.theta)
    fair = [simulated(40, 2, 12, 0.0, seed=seed) for seed in range(8)]
    assert sum(estimator.fit(some, 40, Parameters()).position for some in fair) <= 2
    unbiased = estimator.fit(fair[0], 40, Parameters())
    assert unbiased.effect is not None
    assert unbiased.effect.low < 0 < unbiased.effect.high


def test_as_a_user_sees_it(tmp_path: Path) -> None:
    biased = ("-d", "synthetic:normal", "--n", "40", "-s", "pairwise6")
    text = " ".join(judgeq(tmp_path, "run", *biased, "--sim-position-bias", "150").stdout.split())
    assert "without the effect of the position: last instead of first, +" in text
    assert "Position bias: position" not in text
    plain = only_run(tmp_path)

    def rated(command: str, *flags: str) -> Any:
        found = json_of(tmp_path, *command.split(), *flags)
        return {"effect": found["effect"], "taken_out": found["fit"]["position_taken_out"]}

    def scores() -> list[str]:
        return score_columns(plain)["pl"]

    without = scores()
    order = rated("show --write")
    assert order["taken_out"]
    found = order["effect"]
    assert 0.5 < found["low"] < found["value"] < found["high"] < 3
    assert scores() == without
    assert rated("evaluate", "--resamples", "0", "--splits", "0")["effect"] == found
    text = " ".join(judgeq(tmp_path, "show", "--write", "--no-unbias-position").stdout.split())
    assert "Position bias: position " in text
    assert "Being shown last instead of first changes a score by +" in text
    assert "--unbias-position corrects for it" in text
    assert scores() != without
    judgeq(tmp_path, "run", *biased, "--both-orders", "--sim-position-bias", "150")
    evaluated = judgeq(tmp_path, "evaluate", "--resamples", "0", "--splits", "0").stdout
    assert "asking in both orders cancels it" in " ".join(evaluated.split())
    error = judgeq(tmp_path, "show", "--write", "--unbias-position", expect=2).stderr
    assert "asks each pair in both orders" in error
