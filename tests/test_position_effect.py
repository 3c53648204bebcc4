"""γ, what the place presented is worth: against a solver and in simulation, where it is known."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
from numpy.testing import assert_allclose, assert_array_equal

from judgeq.rating import ESTIMATORS, Parameters, bradley_terry, plackett_luce, position_effect
from judgeq.rating.comparisons import settled
from judgeq.rating.position_effect import Effect, columns, effects, significant
from judgeq.rating.posterior import Posterior
from judgeq.types import Floats, Verdicts
from tests.build import verdicts
from tests.cli import judgeq


def simulated(
    n: int, k: int, rounds: int, effect: float | list[float], seed: int, spread: float = 1.5
) -> Verdicts:
    """Random lists, ranked by a Plackett-Luce judge; of several effects each is another judge's."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(0, spread, n)
    presented = np.concatenate(
        [rng.permutation(n)[: n // k * k].reshape(-1, k) for _ in range(rounds)]
    )
    lists = len(presented)
    judges = np.arange(lists) % np.size(effect)
    shift = np.atleast_1d(effect)[judges][:, None] * (np.arange(k) / (k - 1) - 0.5)
    utility = theta[presented] + shift + rng.gumbel(size=presented.shape)
    ranked = np.take_along_axis(presented, np.argsort(-utility, axis=1), axis=1)
    return Verdicts(
        matches=np.arange(lists),
        items=ranked.astype(np.int32).reshape(-1),
        offsets=np.arange(lists + 1) * k,
        tied=np.zeros(lists * k, dtype=np.bool_),
        presented=presented.astype(np.int32).reshape(-1),
        judges=judges.astype(np.int32) if np.size(effect) > 1 else None,
    )


def posterior_of(some: Verdicts, n: int, parameters: Parameters = Parameters()) -> Posterior:  # noqa: B008
    posterior = plackett_luce.fit(some, n, parameters).posterior
    assert isinstance(posterior, Posterior)
    return posterior


def effect_of(some: Verdicts, n: int, **parameters: float | bool) -> list[Effect]:
    given = Parameters(**parameters)  # type: ignore[arg-type]
    return effects(posterior_of(some, n, given), some, joint=bool(given.position))


def test_numbers_by_slot() -> None:
    """In the order of the ranking, tied items in the order presented; 0 where no order is known."""
    some = verdicts([(2, 0, 1), (1, 0), (0,), (3, 1), (2, [3, 0], 1)])
    some = replace(some, ordered=np.array([True, True, True, False, True]))
    assert settled(some).items[-4:].tolist() == [2, 0, 3, 1]
    expected = [0.5, -0.5, 0, 0.5, -0.5, 0, 0, 0, 1 / 6, -0.5, 0.5, -1 / 6]
    assert_allclose(position_effect.numbers(some), expected)


def test_columns_by_judge() -> None:
    """Of its own for each judge with enough matches; the others share one; none without an order."""
    some = verdicts([(0, 1)] * 100)
    assert columns(some).judges == ((0,),)
    judges = np.repeat([3, 1, 0, 4], [50, 40, 5, 5]).astype(np.int32)
    taken = columns(replace(some, judges=judges))
    assert taken.judges == ((1,), (3,), (0, 4))
    assert taken.matches.tolist() == [40, 50, 10]
    assert_array_equal(np.flatnonzero(taken.numbers[:, 0]), np.arange(100, 180))
    assert_array_equal((taken.numbers != 0).sum(axis=1), 1)
    unordered = replace(some, ordered=judges == 3, judges=judges)
    assert columns(unordered).judges == ((3,),)
    assert columns(replace(some, ordered=np.zeros(100, np.bool_))).judges == ()
    assert effect_of(replace(some, ordered=np.zeros(100, np.bool_)), 2) == []
    many = replace(some, judges=np.repeat(np.arange(25), 4).astype(np.int32))
    assert columns(many).judges == (tuple(range(25)),)
    crowd = np.repeat(np.arange(12), [70, *[3] * 10, 0]).astype(np.int32)
    assert columns(replace(some, judges=crowd)).judges == ((0,), tuple(range(1, 11)))


@pytest.mark.parametrize("k", [2, 4])
def test_the_joint_maximum_and_its_curvature(k: int) -> None:
    """θ, γ and errors by a general solver and a dense Hessian, by finite differences."""
    n, sigma = 8, 2.0
    some = simulated(n, k, 20, 0.8, seed=1)
    numbers = columns(some).numbers
    rankings = plackett_luce.rankings_of(some, n, numbers)

    def objective(x: Floats) -> float:
        lists = settled(some).items.reshape(-1, k)
        utility = x[lists] + x[n] * numbers.reshape(-1, k)
        total = 0.0
        for rows in (utility, -utility[:, ::-1]):
            chosen = [rows[:, a] - np.log(np.exp(rows[:, a:]).sum(axis=1)) for a in range(k)]
            total += float(np.sum(chosen))
        return float(-total / 2 + (x[:n] @ x[:n]) / (2 * sigma**2) + x[n] ** 2 / (2 * 100.0**2))

    start = np.random.default_rng(0).normal(size=n + 1)
    assert rankings.loss(start) + (start[:n] @ start[:n]) / 8 + start[n] ** 2 / 2e4 == (
        pytest.approx(objective(start))
    )
    best = scipy.optimize.minimize(
        objective, np.zeros(n + 1), method="BFGS", options={"gtol": 1e-7}
    )
    posterior = posterior_of(some, n, Parameters(sigma, position=True))
    assert_allclose(posterior.parameters, best.x, atol=2e-5)
    (joint,) = effect_of(some, n, sigma=sigma, position=True)
    step = 1e-3
    every = np.eye(n + 1) * step
    hessian = [
        [
            (objective(best.x + a + b) - objective(best.x + a - b))
            - (objective(best.x - a + b) - objective(best.x - a - b))
            for a in every
        ]
        for b in every
    ]
    variance = np.linalg.inv(np.array(hessian) / (4 * step**2))[n, n]
    assert joint.value == pytest.approx(best.x[n], abs=1e-4)
    assert joint.se == pytest.approx(np.sqrt(variance * posterior.dispersion), rel=1e-3)
    assert joint.low < joint.value < joint.high
    # Beside a fit without it the same γ is found, with that fit's dispersion.
    (beside,) = effect_of(some, n, sigma=sigma)
    assert beside.value == pytest.approx(joint.value, abs=1e-3)
    assert beside.matches == len(some)


def test_of_few_matches_nothing_is_said() -> None:
    assert effect_of(simulated(20, 5, 7, 1.0, seed=0), 20) == []  # 28 lists


@pytest.mark.parametrize(("k", "rounds", "effect"), [(5, 6, 0.0), (2, 12, 0.7)])
def test_the_interval_covers(k: int, rounds: int, effect: float) -> None:
    several = [
        effect_of(simulated(30, k, rounds, effect, seed), 30, sigma=2.0)[0] for seed in range(60)
    ]
    covered = np.mean([one.low <= effect <= one.high for one in several])
    assert covered >= 0.9  # of 200 runs 0.965 of each kind
    values, errors = np.array([(one.value, one.se) for one in several]).T
    assert 0.8 <= errors.mean() / values.std() <= 1.3
    assert values.mean() == pytest.approx(effect, abs=0.12)


def test_two_judges_have_two_effects() -> None:
    some = simulated(100, 5, 8, [1.5, -0.5], seed=0)
    first, second = effect_of(some, 100)
    assert (first.judges, second.judges) == ((0,), (1,))
    assert first.low < 1.5 < first.high
    assert second.low < -0.5 < second.high
    assert first.low > second.high


@pytest.mark.parametrize("fit", [plackett_luce.fit, bradley_terry.fit])
def test_taken_out_of_theta(fit: object) -> None:
    """Where some items always stand last, θ without γ is nearer to the truth."""
    rng = np.random.default_rng(0)
    n, lists, k, effect = 30, 300, 5, 3.0
    theta = rng.normal(0, 1, n)
    presented = np.sort(np.stack([rng.permutation(n)[:k] for _ in range(lists)]), axis=1)
    utility = theta[presented] + effect * (np.arange(k) / (k - 1) - 0.5)
    utility = utility + rng.gumbel(size=utility.shape)
    ranked = np.take_along_axis(presented, np.argsort(-utility, axis=1), axis=1)
    some = verdicts(ranked.tolist())
    off = {
        position: np.corrcoef(
            fit(some, n, Parameters(2.0, position=position)).theta,  # type: ignore[operator]
            theta,
        )[0, 1]
        for position in (False, True)
    }
    assert off[True] > off[False] + 0.1
    assert off[True] > 0.9


@pytest.mark.parametrize("name", ["pl", "bt"])
def test_it_is_taken_out_where_it_is_significant(name: str) -> None:
    """Of a judge without an effect in about one of twenty runs; unless asked otherwise."""
    estimator = ESTIMATORS[name]
    biased = simulated(40, 2, 12, 1.0, seed=2)
    fitted = estimator.fit(biased, 40, Parameters())
    assert fitted.position
    joint = estimator.fit(biased, 40, Parameters(position=True))
    assert_array_equal(fitted.theta, joint.theta)
    kept = estimator.fit(biased, 40, Parameters(position=False))
    assert not kept.position
    assert not np.allclose(kept.theta, joint.theta)
    fair = [simulated(40, 2, 12, 0.0, seed=seed) for seed in range(20)]
    assert sum(estimator.fit(some, 40, Parameters()).position for some in fair) <= 4
    unbiased = estimator.fit(fair[0], 40, Parameters())
    assert unbiased.effects is not None
    assert unbiased.effects[0].low < 0 < unbiased.effects[0].high


def test_one_judge_of_several_is_significant_only_beyond_chance() -> None:
    one = Effect((0,), 2.1, 1.0, 0.1, 4.1, 100)
    none = [Effect((number,), 0.1, 1.0, -1.9, 2.1, 100) for number in range(1, 10)]
    assert significant([one])
    assert not significant([one, *none])
    assert significant([*none, one._replace(value=-3.0)])
    assert not significant([])


def test_errors_in_closed_form_are_near_the_exact_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    some = simulated(400, 6, 4, 1.0, seed=3)
    exact = posterior_of(some, 400, Parameters(2.0, position=True)).errors
    monkeypatch.setattr("judgeq.rating.curvature.DENSE", 0)
    closed = posterior_of(some, 400, Parameters(2.0, position=True)).errors
    assert_allclose(closed, exact, rtol=0.05)


def test_as_a_user_sees_it(tmp_path: Path) -> None:
    biased = ("-d", "synthetic:normal", "--n", "40", "-s", "pairwise6")
    text = " ".join(judgeq(tmp_path, "run", *biased, "--sim-position-bias", "150").stdout.split())
    assert "without the effect of the position: last instead of first, +" in text
    assert "Position bias: position" not in text
    (plain,) = list((tmp_path / "runs").iterdir())

    def rated(command: str, *flags: str) -> Any:
        found = json.loads(judgeq(tmp_path, *command.split(), *flags, "--json").stdout)
        return {"effects": found["effects"], "taken_out": found["fit"]["position_taken_out"]}

    def scores() -> list[str]:
        with (plain / "scores.csv").open(encoding="utf-8") as file:
            return [row["pl"] for row in csv.DictReader(file)]

    without = scores()
    order = rated("show --write")
    assert order["taken_out"]
    (effect,) = order["effects"]
    assert effect["judges"] == ["simulated"]
    assert 0.5 < effect["low"] < effect["value"] < effect["high"] < 3
    assert scores() == without
    assert rated("evaluate", "--resamples", "0", "--splits", "0")["effects"] == [effect]
    text = " ".join(judgeq(tmp_path, "show", "--write", "--no-unbias-position").stdout.split())
    assert "Position bias: position 2 wins more often" in text
    assert "Being shown last instead of first changes a score by +" in text
    assert "--unbias-position corrects for it" in text
    assert scores() != without
    # A run that was made so is rated with it again.
    another = (*biased, "--seed", "5", "--sim-position-bias", "150")
    judgeq(tmp_path, "run", *another, "--no-unbias-position", "-q")
    assert not rated("show --write")["taken_out"]
    assert rated("show", "--write", "--unbias-position")["taken_out"]
    fair = (*biased, "--seed", "6")
    judgeq(tmp_path, "run", *fair, "-q")
    assert not rated("show --write")["taken_out"]
    said = judgeq(tmp_path, "evaluate", "--resamples", "0", "--splits", "0").stdout
    assert "that may be chance, so nothing is corrected" in " ".join(said.split())
    error = judgeq(
        tmp_path, "show", "--write", "--unbias-position", "--rating", "bt-mm", expect=2
    ).stderr
    assert "--unbias-position goes with --rating pl or bt, not bt-mm" in error
    judgeq(tmp_path, "run", *biased, "--both-orders", "--sim-position-bias", "150")
    evaluated = judgeq(tmp_path, "evaluate", "--resamples", "0", "--splits", "0").stdout
    assert "asking in both orders cancels it" in " ".join(evaluated.split())
    error = judgeq(tmp_path, "show", "--write", "--unbias-position", expect=2).stderr
    assert "asks each pair in both orders" in error


def test_several_judges_as_a_user_sees_them(tmp_path: Path) -> None:
    flags = ("-d", "synthetic:normal", "--n", "40", "-s", "pairwise5", "-j", "simulated")
    judgeq(tmp_path, "run", *flags, "-j", "simulated", "--sim-position-bias", "-200", "-q")
    text = judgeq(tmp_path, "evaluate", "--resamples", "0", "--splits", "0").stdout
    changed = " ".join(text.split()).count(
        "Being shown last instead of first changes a score (pl) by"
    )
    assert changed == 2
    assert "(pl) by simulated 2 by -" in " ".join(text.split())
