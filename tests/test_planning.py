"""What a budget buys: strategies simulated within it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from judgeq import strategies
from judgeq.errors import UsageError
from judgeq.settings import Simulation
from judgeq.strategies import REGISTRY
from judgeq.study import planning, processes
from judgeq.study.planning import Request, lines, plan
from tests.cli import judgeq

JUDGE = Simulation()
SMALL = Request(60, 120, JUDGE, seeds=2)


def test_the_registry_says_what_is_planned_with() -> None:
    every = list(lines())
    assert {"pairwise", "listwise5", "listwise10", "listwise20", "adaptive10"} <= set(every)
    kinds = {strategies.parse(text).kind for text in every}
    of_rounds = {kind for kind, entry in REGISTRY.items() if "rounds" in entry.settings.values()}
    left_out = {kind for kind in of_rounds if strategies.parse(kind).prunes} | {"hybrid"}
    assert kinds == of_rounds - left_out == {"pairwise", "listwise", "adaptive"}


def test_each_line_has_as_many_rounds_as_the_budget_pays() -> None:
    planned = plan(SMALL)
    for point in planned.last:
        strategy = strategies.parse(point.line, rounds=point.rounds)
        assert point.cost <= SMALL.calls
        assert point.cost == pytest.approx(strategy.cost(60))
        assert strategies.parse(point.line, rounds=point.rounds + 1).cost(60) > SMALL.calls
        assert strategies.parse(point.strategy) == strategy
    by_line = [point for point in planned.points if point.line == "listwise10"]
    assert [point.rounds for point in by_line] == [1, 2, 3, 4]
    assert by_line[0].rho < by_line[-1].rho
    assert by_line[-1].questions == 24
    assert planned.best.rho == max(point.rho for point in planned.points)
    assert planned.last[0].rho >= planned.last[-1].rho
    assert strategies.parse(planned.last[-1].line).pairs


def test_more_items_are_planned_by_fewer_with_as_many_calls_an_item(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = ("listwise10", "pairwise")
    few = plan(Request(60, 120, JUDGE, seeds=2, lines=lines))
    monkeypatch.setattr(planning, "MOST_ITEMS", 60)
    many = plan(Request(6000, 12_000, JUDGE, price=0.01, seeds=2, lines=lines))
    assert many.request.simulated == 60
    for one, other in zip(few.points, many.points, strict=True):
        assert one.rhos == other.rhos
        assert other.cost == pytest.approx(100 * one.cost)
        assert other.dollars == pytest.approx(other.cost * 0.01)
        assert one.dollars is None


def test_processes_and_their_number_change_nothing() -> None:
    request = Request(40, 60, JUDGE, seeds=2, lines=("listwise10", "pairwise"))
    assert plan(request, jobs=2) == plan(request)


def test_a_worse_judge_and_lost_replies_give_less() -> None:
    def rho(**what: float) -> float:
        unreadable = what.pop("unreadable", 0.0)
        judge = Simulation(**what)
        return plan(
            Request(60, 120, judge, unreadable=unreadable, seeds=3, lines=("listwise10",))
        ).best.rho

    assert rho(sim_accuracy=0.6) < rho() - 0.1
    assert rho(unreadable=0.8) < rho()
    assert rho(sim_position_bias=600.0) < rho()


def test_a_cheaper_strategy_that_is_nearly_as_good_is_named() -> None:
    sure = Simulation(sim_accuracy=0.999, sim_pmax=1.0, sim_distance=0.001)
    planned = plan(Request(40, 800, sure, seeds=2, lines=("listwise10",)))
    assert planned.cheaper is not None
    assert planned.cheaper.cost < planned.best.cost
    assert planned.cheaper.rho >= planned.best.rho - planning.CLOSE


@pytest.mark.parametrize(
    ("words", "request_"),
    [
        ("don't pay one round", Request(1000, 10, JUDGE)),
        ("larger than the dataset", Request(8, 100, JUDGE, lines=("listwise10",))),
        ("no such strategy", Request(8, 100, JUDGE, lines=("best",))),
        ("--shape square", Request(8, 100, JUDGE, shape="square")),
    ],
)
def test_what_cannot_be_planned(words: str, request_: Request) -> None:
    with pytest.raises(UsageError, match=words):
        plan(request_)


def test_a_line_that_doesnt_fit_is_left_out_with_the_reason() -> None:
    planned = plan(Request(8, 40, JUDGE, seeds=1))
    assert any("listwise10: " in text and "larger" in text for text in planned.left_out)
    assert {point.line for point in planned.points} >= {"listwise5", "pairwise"}


# The command

FAST = ("--seeds", "2", "--jobs", "1", "--strategies", "listwise5,pairwise")


def test_the_plan_is_shown_printed_and_drawn(tmp_path: Path) -> None:
    given = ("plan", "--n", "40", "--calls", "90", "--price-per-call", "0.02", *FAST)
    shown = judgeq(tmp_path, *given).stdout
    found = json.loads(judgeq(tmp_path, *given, "--json", "--plot", "a.svg").stdout)
    assert b"<svg" in (tmp_path / "a.svg").read_bytes()
    assert found["budget"] == pytest.approx(1.8)
    assert found["best"]["strategy"] in shown
    assert f"{found['best']['rho']:.3f}" in shown
    assert "$1.80" in shown
    by_dollars = (*given[:3], "--budget", "1.80", *given[5:])
    assert json.loads(judgeq(tmp_path, *by_dollars, "--json").stdout)["points"] == found["points"]


def test_a_plan_for_a_judge_like_a_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("judgeq.study.fitting.STAGES", (20, 20))
    made = ("-d", "synthetic:normal", "--n", "60", "-s", "listwise6x4", "--sim-accuracy", "0.7")
    judgeq(tmp_path, "run", *made, "--quiet")
    found = json.loads(judgeq(tmp_path, "plan", "--like", "last", *FAST, "--json").stdout)
    assert (found["n"], found["calls"], found["price"]) == (60, 90, None)
    assert found["judge"]["sim_accuracy"] == found["fit"]["judge"]["sim_accuracy"]
    no_price = judgeq(tmp_path, "plan", "--like", "last", "--budget", "5", *FAST, expect=2)
    assert "--budget needs a price" in no_price.stderr
    both = judgeq(tmp_path, "plan", "--like", "last", "--sim-pmax", "1", *FAST, expect=2)
    assert "leave the --sim flags out" in both.stderr


def test_a_datasets_items_are_counted(tmp_path: Path) -> None:
    found = json.loads(judgeq(tmp_path, "plan", "-d", "demo", *FAST, "--json").stdout)
    assert (found["n"], found["calls"]) == (240, 360)


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("how many items", ()),
        ("give one", ("--n", "9", "--calls", "20", "--budget", "2")),
        ("give --n or --dataset", ("--n", "9", "-d", "demo")),
        ("--budget needs a price", ("--n", "9", "--budget", "2")),
        ("a .png or an .svg", ("--n", "9", "--plot", "a.gif")),
        ("name it with --like", ("--n", "9", "--like-strategy", "pairwise")),
        ("never reaches", ("--n", "9", "--sim-accuracy", "0.9", "--sim-pmax", "0.8")),
        ("no such strategy", ("--n", "9", "--strategies", "bset")),
        ("has no settings", ("--n", "9", "--strategies", "direct")),
    ],
)
def test_what_is_asked_wrongly_is_said(tmp_path: Path, words: str, given: tuple[str, ...]) -> None:
    assert words in judgeq(tmp_path, "plan", *given, expect=2).stderr


def environment(_: int) -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in processes.THREADS}


def test_each_process_does_linear_algebra_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")  # as the user says
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    before = dict(os.environ)
    (outcome,) = [outcome for _, outcome in processes.spread(environment, [1], 2)]
    assert outcome == dict(zip(processes.THREADS, ("1", "3", "1"), strict=True))
    assert dict(os.environ) == before
