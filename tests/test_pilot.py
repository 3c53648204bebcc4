"""`estimate --pilot`: a run's first questions are asked, and what they took narrows the estimate."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from random import Random
from typing import Any

import pytest

import judgeq
from judgeq.engine.estimate import Estimate
from judgeq.engine.usage import Range, plausible
from judgeq.errors import BudgetError, JudgeError, UsageError
from judgeq.judge.budget import REASON
from judgeq.ui.json import plain
from tests import cli
from tests.cli import in_flight, only_run, start, wait_until
from tests.mock import mock, stats

pytestmark = pytest.mark.usefixtures("rated_by_elo")

DEMO = ("-d", "demo", "--judge", "mock", "--price", "1,10")


def asked(folder: Path, url: str, pilot: int, *, new: Any = False, **settings: Any) -> Estimate:
    """An estimate after a pilot, from Python."""
    return judgeq.estimate(
        "demo",
        judge="mock",
        base_url=url,
        runs_dir=folder / "runs",
        pilot=pilot,
        new=new,
        settings={"cache_dir": folder / "replies", "price": (1.0, 10.0), **settings},
    )


def test_a_pilots_answers_count_and_narrow_the_estimate(tmp_path: Path) -> None:
    with mock(tmp_path) as url:
        flags = (*DEMO, "--base-url", url)
        shown = cli.judgeq(tmp_path, "estimate", *flags, "--pilot", "8").stdout
        assert "8 questions asked" in shown
        assert "8 of 24 done" in shown
        assert "from 8 calls of this run" in " ".join(shown.split())
        assert stats(url)["requests"] == 8

        # Once more: nothing is asked twice, and the run goes on from there.
        line = cli.judgeq(tmp_path, "estimate", *flags, "--pilot", "8", "--json").stdout
        assert stats(url)["requests"] == 8
        told = json.loads(line)
        assert (told["jobs_done"], told["calls"]) == (8, 64)
        assert (told["pilot"]["jobs"]["done"], told["pilot"]["calls"]) == (8, 0)
        result = json.loads(cli.judgeq(tmp_path, "run", *flags, "--json").stdout)
        assert result["run"] == told["run"]
        assert stats(url)["requests"] == 72

    still_to_pay = result["cost"] - told["cost_so_far"]
    low, high = told["cost"]["low"], told["cost"]["high"]
    assert low < still_to_pay < high < 2 * low
    assert told["cost"]["expected"] == pytest.approx(still_to_pay, rel=0.05)
    for end, kind in enumerate(("input", "output")):
        low, high, _ = told[f"{kind}_tokens"].values()
        assert low < result["tokens"][kind] * 64 / 72 < high, (end, kind)
    assert 0 < told["seconds"]["low"] < told["seconds"]["high"]
    assert 0 < told["latency"]["low"] <= told["latency"]["high"]


def test_an_estimate_knows_that_reasons_cost_more(tmp_path: Path) -> None:
    job = ("-d", "demo", "-j", "gpt-5-mini", "--max-output-tokens", "500", "--json")
    without, reasons = (
        json.loads(cli.judgeq(tmp_path, "estimate", *job, *more).stdout)
        for more in ((), ("--reasons",))
    )
    calls = without["calls"]
    assert reasons["calls"] == calls
    assert reasons["input_tokens"]["low"] > without["input_tokens"]["low"]
    # By the shortest; the longest is what the server is sent as its limit.
    assert reasons["output_tokens"]["low"] == without["output_tokens"]["low"] + REASON[0] * calls
    assert reasons["output_tokens"]["high"] == without["output_tokens"]["high"] == 500 * calls
    assert reasons["cost"]["low"] > without["cost"]["low"]
    assert "15 to 80 of them for a reason" in reasons["basis"]
    assert "for a reason" not in without["basis"]
    with mock(tmp_path) as url:
        model = ("-d", "demo", "-j", "m", "--base-url", url, "--price", "1,10")
        asked = cli.judgeq(tmp_path, "estimate", *model, "--reasons", "--pilot", "5", "--json")
    assert "reasons included" in json.loads(asked.stdout)["basis"]


def test_a_pilot_reports_what_it_took(tmp_path: Path) -> None:
    with mock(tmp_path) as url:
        told = plain(asked(tmp_path, url, 500, rounds=1))
        assert stats(url)["requests"] == 24  # all of the first round
        assert told["calls"] == 0
        assert told["cost"] == {"low": 0, "high": 0, "expected": 0}
        pilot = told["pilot"]
        assert (pilot["questions"], pilot["jobs"]["done"], pilot["calls"]) == (24, 24, 24)
        assert pilot["cost"] == pytest.approx(told["cost_so_far"])
        assert pilot["cost"] > pilot["possibly_paid_at_most"] == 0
        assert pilot["tokens"]["input"] > pilot["tokens"]["output"] > 0
        # Another strategy's run takes the same questions from the cache; a price isn't needed.
        other = asked(tmp_path, url, 5, rounds=2, price=None)
        assert other.pilot is not None
        assert (other.pilot.totals.calls, other.pilot.totals.hits) == (0, 5)
        assert other.seconds is None
        assert stats(url)["requests"] == 24


def test_a_pilot_that_ends_early_estimates_by_what_came(tmp_path: Path) -> None:
    with mock(tmp_path) as url:
        limit = {"max_output_tokens": 30, "concurrency": 1}
        plan = asked(tmp_path, url, 20, max_cost=0.012, **limit)
        assert plan.pilot is not None
        assert isinstance(plan.pilot.error, BudgetError)
        assert 1 <= plan.pilot.counts.done < 20
        assert plan.totals.cost <= 0.012
        assert plan.cost is not None
        assert plan.cost.expected is not None
        with pytest.raises(BudgetError):  # nothing came
            asked(tmp_path, url, 20, max_cost=0.001, seed=3, **limit)


def test_a_pilot_without_a_verdict_estimates_nothing(tmp_path: Path) -> None:
    none = pytest.raises(JudgeError, match=r"no question of the pilot .* \(3 invalid")
    with mock(tmp_path, "--unreadable", "1") as url, none:
        asked(tmp_path, url, 3)
    done = cli.judgeq(
        tmp_path, "estimate", *DEMO, "--base-url", "http://127.0.0.1:9/v1", "--pilot", "2",
        "--api-key-env", "NOT_THERE", expect=4,
    )  # fmt: skip
    assert "NOT_THERE" in done.stderr


def test_what_makes_no_pilot(tmp_path: Path) -> None:
    flags = ("-d", "demo", "--pilot", "3", "--json")
    done = cli.judgeq(tmp_path, "estimate", *flags)
    assert "nothing to pay" in done.stderr
    assert json.loads(done.stdout)["pilot"] is None
    assert not (tmp_path / "runs").exists()
    with pytest.raises(UsageError, match="1 or more"):
        asked(tmp_path, "http://127.0.0.1:9/v1", 0)
    with pytest.raises(UsageError, match="cache=False"):
        asked(tmp_path, "http://127.0.0.1:9/v1", 3, new=True, cache=False)


def test_a_pilot_that_is_stopped_keeps_what_was_answered(tmp_path: Path) -> None:
    with mock(tmp_path, "--latency", "1000", "--hung", "0.9", "--seed", "4") as url:
        flags = (*DEMO, "--base-url", url, "--pilot", "9")
        process = start(tmp_path, "estimate", *flags)
        wait_until(lambda: in_flight(tmp_path) > 0, process)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        wait_until(lambda: "letting" in process.stderr.readline(), process)  # type: ignore[union-attr]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 5, err
    run = only_run(tmp_path).name
    said = " ".join(err.split())
    assert f"is kept in run {run}" in said
    assert f"judgeq status {run}" in said
    assert not out


def test_how_far_a_mean_may_lie() -> None:
    few, many = plausible([10, 12, 8, 10], 100, 0.03), plausible([10, 12, 8, 10] * 25, 100, 0.03)
    assert few.expected == many.expected == 10
    assert few.low < many.low < 10 < many.high < few.high
    assert plausible([10] * 10_000, 10_000, 0.03).high == pytest.approx(10.3)  # later rounds differ
    assert plausible([10], 100, 0.03) == Range(2.5, 40, 10)  # one alone tells little
    assert plausible([0, 0], 5, 0.03) == Range(0, 0, 0)


def test_few_costs_of_which_some_are_high_tell_how_far_their_mean_may_lie() -> None:
    random = Random(4)
    within = 0
    for _ in range(300):
        answers = [random.expovariate(1) for _ in range(5)]
        to_come = sum(random.expovariate(1) for _ in range(50)) / 50
        span = plausible(answers, 50, 0.1)
        within += span.low <= to_come <= span.high
    assert within / 300 > 0.92


def test_a_pilot_of_texts_alone_tells_what_lists_take(tmp_path: Path) -> None:
    with mock(tmp_path) as url:
        flags = (*DEMO, "--base-url", url, "-s", "hybrid10", "--json")
        told = json.loads(cli.judgeq(tmp_path, "estimate", *flags, "--pilot", "30").stdout)
        result = json.loads(cli.judgeq(tmp_path, "run", *flags).stdout)
    still_to_pay = result["cost"] - told["cost_so_far"]
    assert told["cost"]["low"] < still_to_pay < told["cost"]["high"], told["cost"]
