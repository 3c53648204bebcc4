"""The simulated judge fitted to a run: known settings are found again."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from judgeq import seeds, strategies
from judgeq.datasets import synthetic
from judgeq.errors import DataError, UsageError
from judgeq.judge import error_model
from judgeq.rating import comparisons
from judgeq.settings import Simulation
from judgeq.strategies import History
from judgeq.study import fitting, looks
from judgeq.study.simulation import Grid
from judgeq.types import Verdicts
from tests.build import verdicts
from tests.cli import judgeq

FEWER = (20, 20, 24)


def answered(strategy: str, n: int, judge: Simulation, seed: int = 0) -> Verdicts:
    """A run's answers over normal latent scores."""
    latent = synthetic.draw("normal", n, seeds.rng(seed, "latent"))
    history = History.begin(n, strategies.parse(strategy), seed)
    for round in history.to_come():
        matches = history.next_round()
        rng = seeds.rng(seed, "answers", round)
        history.add(error_model.answers(matches, latent, judge, rng), len(matches))
    return comparisons.joined(history.verdicts)


@pytest.mark.parametrize(
    ("text", "known", "judge"),
    [
        ("listwise10x6", True, Simulation(sim_accuracy=0.85, sim_position_bias=-60.0)),
        ("pairwise12", True, Simulation(sim_accuracy=0.75, sim_pmax=0.95, sim_position_bias=80.0)),
        ("listwise10x6:matchmaking=random", False, Simulation(sim_accuracy=0.85, sim_pmax=0.9)),
    ],
)
def test_known_settings_are_found_again(text: str, known: bool, judge: Simulation) -> None:
    strategy = strategies.parse(text)
    fitted = fitting.fit(
        answered(text, 120, judge),
        120,
        strategy=strategy if known else None,
        rounds=strategy.rounds,
        stages=FEWER,
    )
    assert fitted.alike
    assert fitted.simulations == sum(FEWER)
    for name, one in fitted.estimates.items():
        truth, margin = getattr(judge, name), (one.high - one.low) / 4
        assert one.low - margin <= truth <= one.high + margin, (name, truth, one)
        assert one.low <= one.value <= one.high
    accuracy = fitted.estimates["sim_accuracy"]
    assert accuracy.high - accuracy.low < 0.3
    bias = fitted.estimates["sim_position_bias"]
    if judge.sim_position_bias:
        assert np.sign(bias.value) == np.sign(judge.sim_position_bias)


def test_the_slope_over_slots_is_0_without_bias_and_1_where_the_last_always_wins() -> None:
    n = 40
    asked = answered("listwise10x4", n, Simulation())
    order = np.concatenate(
        [np.arange(a, b)[::-1] for a, b in zip(asked.offsets[:-1], asked.offsets[1:], strict=True)]
    )
    last = replace(asked, items=asked.presented[order])
    assert looks._slope(last) == pytest.approx(1)
    assert looks._slope(replace(asked, items=asked.presented)) == pytest.approx(-1)
    assert looks._slope(replace(asked, ordered=np.zeros(len(asked), np.bool_))) is None
    unbiased = answered("pairwise24", 200, Simulation())
    assert abs(looks._slope(unbiased) or 0) < 4 / np.sqrt(len(unbiased))


def test_where_no_order_is_known_there_is_no_position_bias() -> None:
    asked = answered("listwise10x5:matchmaking=random", 60, Simulation(sim_position_bias=300.0))
    asked = replace(asked, ordered=np.zeros(len(asked), np.bool_))
    fitted = fitting.fit(asked, 60, stages=(20, 20))
    assert not fitted.ordered
    assert fitted.judge.sim_position_bias == 0
    assert not any("slots" in look.name for look in fitted.looks)


def test_the_same_run_gives_the_same_fit_over_any_number_of_processes() -> None:
    asked = answered("pairwise12", 40, Simulation())
    one = fitting.fit(asked, 40, stages=(20, 20))
    assert one == fitting.fit(asked, 40, stages=(20, 20), jobs=2)


def test_what_cannot_be_fitted() -> None:
    with pytest.raises(DataError, match="too few to fit"):
        fitting.fit(verdicts([range(10), range(10, 20)]), 20)
    with pytest.raises(DataError, match="too few to fit"):
        fitting.fit(verdicts([]), 20)
    alone = replace(verdicts([[0], [1]]), scores=np.array([0.2, 0.4]))
    with pytest.raises(UsageError, match="judged alone"):
        fitting.fit(alone, 2)


def test_the_command_prints_settings_that_run_and_simulate_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "STAGES", (20, 20))
    given = ("-d", "synthetic:normal", "--n", "60", "-s", "listwise6x4", "--sim-unreadable", "0.1")
    judgeq(tmp_path, "run", *given, "--quiet")
    fit = ("simulate", "--fit", "last", "--jobs", "1")
    shown = judgeq(tmp_path, *fit).stdout
    found = json.loads(judgeq(tmp_path, *fit, "--json").stdout)
    assert 0.02 < found["sim_unreadable"] < 0.25
    assert all(flag in shown for flag in found["flags"])
    flags = [word for flag in found["flags"] for word in flag.split()]
    judgeq(tmp_path, "run", *given[:6], *flags, "--quiet", "--runs-dir", "again")
    judge = tomllib.loads(found["toml"])["judge"]
    assert Grid(strategies=("pairwise2",), judge=judge).judge.sim_accuracy == judge["sim_accuracy"]
    (tmp_path / "my.toml").write_text('n = 30\nstrategies = ["pairwise2"]\nbias = [0]\n')
    both = judgeq(tmp_path, *fit, "--grid", "my.toml", "--no-figures", "--json")
    study = json.loads(both.stdout)
    assert study["fit"]["judge"] == found["judge"]
    assert study["grid"]["judge"]["sim_pmax"] == judge["sim_pmax"]
    named = judgeq(tmp_path, *fit, "--strategy", "pairwise2", expect=2).stderr
    assert "has its own, listwise6x4" in named
    assert "there are linear" in judgeq(tmp_path, *fit, "--shape", "round", expect=2).stderr


def test_an_import_is_fitted_by_its_questions_or_by_a_strategy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ("-d", "synthetic:normal", "--n", "60")
    monkeypatch.setattr(fitting, "STAGES", (20, 20))
    judgeq(tmp_path, "run", *given, "-s", "listwise6x4", "--quiet")
    judgeq(tmp_path, "export", "last", "--out", "my.jsonl")
    judgeq(tmp_path, "import", *given, "my.jsonl", "--quiet")
    fit = ("simulate", "--fit", "synthetic-normal-imported", "--jobs", "1", "--json")
    own = json.loads(judgeq(tmp_path, *fit).stdout)
    assert (own["strategy"], own["sim_unreadable"]) == (None, None)
    named = json.loads(judgeq(tmp_path, *fit, "--strategy", "listwise6x4").stdout)
    assert named["strategy"] == "listwise6x4"
