"""What is known before the first call: what a run takes, a pilot, texts that are too long."""

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import judgeq as package
from judgeq.cli import run as running
from judgeq.datasets.dataset import tokens_of
from judgeq.engine import estimate as estimates
from judgeq.engine.assembly import longest_of
from judgeq.engine.estimate import Estimate, Range, plausible
from judgeq.errors import BudgetError, JudgeError, KeyMissingError, UsageError
from judgeq.judge import prices
from judgeq.ui.dataclass_json import plain
from tests.cli import in_flight, json_of, judgeq, only_run, query, start, wait_until
from tests.mock import mock, stats

pytestmark = pytest.mark.usefixtures("rated_by_elo", "undrawn")

TEXTS = [f"This is text number {i}." for i in range(20)]
DEMO = ("-d", "demo", "--judge", "mock", "--price", "1,10")


def table(folder: Path, *texts: str) -> None:
    rows = (f"t{i},{text}\n" for i, text in enumerate(texts or TEXTS))
    (folder / "my.csv").write_text(f"id,text\n{''.join(rows)}")


def job(url: str, *more: str, price: str = "1,10") -> tuple[str, ...]:
    mine = ("run", "-d", "my.csv", "--feature", "length", "--judge", "m", "-s", "listwise5x2")
    return (*mine, "--base-url", url, "--price", price, "--max-output-tokens", "500", *more)


def dear(url: str, *more: str) -> tuple[str, ...]:
    """A run that may cost more than half a dollar."""
    return job(url, *more, price="100,100")


def in_python(folder: Path, url: str, **more: Any) -> dict[str, Any]:
    kept = {"price": (1, 10), "cache_dir": folder / "replies"} | more.pop("settings", {})
    how = {"judge": "m", "base_url": url, "strategy": "listwise5x2", "max_output_tokens": 500}
    return {**how, "runs_dir": folder / "runs", "settings": kept, **more}


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "is_terminal", lambda: True)


def test_what_is_left_is_shown_before_the_first_call_and_the_address(tmp_path: Path) -> None:
    table(tmp_path)
    with mock(tmp_path) as url:
        stopped = judgeq(tmp_path, *job(url, "--max-cost", "0.0068"), expect=6).stderr
        shown, address, *_ = stopped.splitlines()
        assert shown.startswith("To ask: 8 calls, ")
        assert shown.endswith("; capped at $0.0068.")
        assert address == f"m is asked at {url}."
        asked = stats(url)["requests"]
        assert 0 < asked < 8
        more = judgeq(tmp_path, *job(url, "--yes")).stderr
        assert more.startswith(f"Left: {8 - asked} calls, ")
        assert "; no cap (--max-cost sets one)." in more.splitlines()[0]
        # Nothing is left: nothing is said.
        again = judgeq(tmp_path, *job(url)).stderr
        assert "calls" not in again


@pytest.mark.usefixtures("terminal")
def test_on_a_terminal_a_dear_run_without_a_cap_is_begun_only_after_a_yes(tmp_path: Path) -> None:
    table(tmp_path)
    with mock(tmp_path) as url:
        for answer in ("n\n", "", "what?\n"):
            refused = judgeq(tmp_path, *dear(url), "--json", expect=5, stdin=answer)
            assert "no cap" in refused.stderr
            assert "Begin? [y/N]" in refused.stderr
            assert json.loads(refused.stdout)["error"]["type"] == "StoppedError"
        assert stats(url)["requests"] == 0
        assert not (tmp_path / "runs").exists()
        # Neither cheap runs, nor those with a cap, nor --yes are asked about.
        for flags in (job(url), dear(url, "--seed", "1", "--max-cost", "90")):
            told = judgeq(tmp_path, *flags).stderr.split("round 1")
            assert ("8 calls, " in told[0], "Begin?" in told[0]) == (True, False)
        assert "Begin?" not in judgeq(tmp_path, *dear(url), "--seed", "2", "--yes").stderr
        assert "Begin?" in judgeq(tmp_path, *dear(url), "--seed", "3", stdin="y\n").stderr
        assert stats(url)["requests"] == 32


@pytest.mark.usefixtures("terminal")
def test_a_missing_key_comes_before_the_question(tmp_path: Path) -> None:
    table(tmp_path)
    official = ("-d", "my.csv", "--feature", "length", "-j", "gpt-5-mini", "--price", "1000,1000")
    assert "Begin?" not in judgeq(tmp_path, "run", *official, expect=4).stderr
    with pytest.raises(KeyMissingError):
        package.run(["a", "b", "c"], "length", judge="gpt-5-mini", runs_dir=tmp_path / "runs")


def test_of_many_questions_some_are_looked_up_and_all_where_the_cache_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"Text {i}." + " More words." * (i % 7) ** 2 for i in range(200)]
    with mock(tmp_path) as url:
        how = in_python(tmp_path, url, strategy="listwise5x1")
        whole = package.estimate(texts, "length", **how)
        monkeypatch.setattr(estimates, "LOOKED_UP", 10)
        part = package.estimate(texts, "length", **how)
        assert (part.calls, part.hits) == (whole.calls, 0) == (40, 0)
        highest = [one.cost.high for one in (part, whole) if one.cost]
        assert highest[0] == pytest.approx(highest[1], rel=0.2)
        assert whole.output == part.output
        # As many are known as if all had been looked up: only those that the run asked.
        package.run(texts, "length", **how)
        again = package.estimate(texts, "length", **how, new=True)
        assert (again.calls, again.hits) == (0, 40)


def piloted(folder: Path, url: str, questions: int, **more: Any) -> Estimate:
    """An estimate of the shipped demo after a pilot, from Python."""
    how = in_python(folder, url, strategy=None, max_output_tokens=None) | more
    return package.estimate("demo", pilot=questions, **how)


def test_a_pilots_answers_count_and_narrow_the_estimate(tmp_path: Path) -> None:
    with mock(tmp_path) as url:
        flags = (*DEMO, "--base-url", url)
        shown = judgeq(tmp_path, "estimate", *flags, "--pilot", "8").stdout
        assert "8 questions asked" in shown
        assert "8 of 24 done" in shown
        assert "from 8 answered calls" in " ".join(shown.split())
        assert stats(url)["requests"] == 8
        # Once more: nothing is asked twice, and the run goes on from there.
        told = json_of(tmp_path, "estimate", *flags, "--pilot", "8")
        assert stats(url)["requests"] == 8
        assert (told["jobs_done"], told["calls"], told["pilot"]["jobs"]["done"]) == (8, 64, 8)
        result = json_of(tmp_path, "run", *flags)
        assert result["run"] == told["run"]
        assert stats(url)["requests"] == 72
    still_to_pay = result["cost"] - told["cost_so_far"]
    low, high = told["cost"]["low"], told["cost"]["high"]
    assert low < still_to_pay < high < 2 * low
    assert told["cost"]["expected"] == pytest.approx(still_to_pay, rel=0.05)
    for kind in ("input", "output"):
        low, high, _ = told[f"{kind}_tokens"].values()
        assert low < result["tokens"][kind] * 64 / 72 < high, kind


def test_a_pilot_of_a_whole_round_leaves_nothing_and_fills_the_cache(tmp_path: Path) -> None:
    with mock(tmp_path) as url:
        told = plain(piloted(tmp_path, url, 500, rounds=1))
        assert (stats(url)["requests"], told["calls"]) == (24, 0)
        assert told["cost"] == {"low": 0, "high": 0, "expected": 0}
        assert (told["pilot"]["questions"], told["pilot"]["jobs"]["done"]) == (24, 24)
        # Another strategy's run takes the same questions from the cache; a price isn't needed.
        other = piloted(tmp_path, url, 5, rounds=2, settings={"cache_dir": tmp_path / "replies"})
        assert (other.totals.calls, other.totals.hits) == (0, 5)
        assert stats(url)["requests"] == 24


def test_a_pilot_that_ends_early_estimates_by_what_came(tmp_path: Path) -> None:
    with mock(tmp_path) as url:
        limit = {"max_output_tokens": 30, "concurrency": 1}
        plan = piloted(tmp_path, url, 20, max_cost=0.012, **limit)
        assert plan.pilot
        assert isinstance(plan.pilot.error, BudgetError)
        assert 1 <= plan.pilot.counts.done < 20
        assert plan.totals.cost <= 0.012
        assert plan.cost
        assert plan.cost.expected
        with pytest.raises(BudgetError):  # nothing came
            piloted(tmp_path, url, 20, max_cost=0.001, seed=3, **limit)
        with pytest.raises(UsageError, match="1 or more"):
            piloted(tmp_path, url, 0)
    none = pytest.raises(JudgeError, match=r"no question of the pilot .* \(3 invalid")
    with mock(tmp_path, "--unreadable", "1") as url, none:
        piloted(tmp_path, url, 3, seed=4)


def test_of_one_answer_a_text_no_reliability_is_expected(tmp_path: Path) -> None:
    demo = ("estimate", "-d", "demo", "--judge", "gpt-5-mini")
    once = (*demo, "-s", "listwise10x1")
    assert json_of(tmp_path, *once)["reliability"] is None
    assert "one round of comparisons can't show reliability" in judgeq(tmp_path, *once).stdout
    # Two judges, or two rounds, are two answers.
    twice = (*demo, "-s", "listwise10x2")
    assert json_of(tmp_path, *twice)["reliability"]["expected"] > 0.8
    panel = ("--judge", "gpt-5-nano", "--ensemble", "each")
    assert json_of(tmp_path, *once, *panel)["reliability"]["expected"] > 0.8


def test_without_a_model_there_is_no_pilot(tmp_path: Path) -> None:
    done = judgeq(tmp_path, "estimate", "-d", "demo", "--pilot", "3", "--json")
    assert "nothing to pay" in done.stderr
    assert json.loads(done.stdout)["pilot"] is None
    assert not (tmp_path / "runs").exists()


def test_how_far_a_mean_may_lie() -> None:
    few, many = plausible([10, 12, 8, 10], 100, 0.03), plausible([10, 12, 8, 10] * 25, 100, 0.03)
    assert few.expected == many.expected == 10
    assert few.low < many.low < 10 < many.high < few.high
    assert plausible([10] * 10_000, 10_000, 0.03).high == pytest.approx(10.3)  # later rounds differ
    assert plausible([10], 100, 0.03) == Range(2.5, 40, 10)  # one alone tells little
    assert plausible([0, 0], 5, 0.03) == Range(0, 0, 0)
    five = plausible([0.2, 0.5, 0.9, 1.4, 2.1], 50, 0.1)  # over 92 % of such hold the mean of 50
    assert (five.low, five.high) == pytest.approx((0.374, 2.779), abs=0.001)


LISTS = ("-d", "my.csv", "--feature", "length", "-s", "listwise4x2")
FEW = (3000, 2000, *[50] * 10)
"""Of these 6,000, 4,000 and 100 tokens, the first two don't fit together into 8,192."""


def words(*counts: int) -> list[str]:
    return ["wordier " * n for n in counts]  # of two tokens each


def test_texts_that_are_too_long_are_named_before_anything_is_sent(tmp_path: Path) -> None:
    gpt4 = ("--judge", "gpt-4")

    def refused(*flags: str) -> str:
        told = judgeq(tmp_path, "estimate", *LISTS, *gpt4, *flags, expect=3).stderr
        return " ".join(told.split())

    table(tmp_path, *words(*FEW))
    told = refused()
    assert "1 text of 12 may be too long for gpt-4, which reads 8,192 tokens" in told
    assert "any 4 texts together. They are 't0' (about 6,000 tokens)." in told
    assert not (tmp_path / "runs").exists()
    # Smaller lists do, a model that reads more, none of which that is known, and a wish.
    table(tmp_path, *words(*[1100] * 4, *[50] * 8))
    assert "4 texts of 12" in refused()
    for instead in (
        (*gpt4, "-s", "listwise3"),
        ("--judge", "gpt-5-mini"),
        ("--judge", "m", "--base-url", "http://127.0.0.1:9/v1"),
        (*gpt4, "--no-skip-long"),
    ):
        judgeq(tmp_path, "estimate", *(LISTS[:4] if "-s" in instead else LISTS), *instead)
    # What the reply may take is not there for texts.
    assert "12 texts of 12" in refused("--max-output-tokens", "8000")


def test_the_others_are_judged_and_stay_the_same_when_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table(tmp_path, *words(*FEW))
    reads = [8192]
    monkeypatch.setattr(prices, "context_window", lambda model, base_url: reads[0])
    with mock(tmp_path) as url:
        model = ("--judge", "m", "--base-url", url, "--skip-long")
        first = judgeq(tmp_path, "run", *LISTS, *model, "--json")
        assert "1 of 12 texts are left out (--skip-long)" in first.stderr
        assert "tokens: 't0'." in " ".join(first.stderr.split())
        assert json.loads(first.stdout)["items"] == 11
        asked = stats(url)["requests"]
        again = json_of(tmp_path, "run", *LISTS, *model)
        assert (again["items"], stats(url)["requests"]) == (11, asked)
        # What the run was begun with holds, whatever is known of the model later.
        reads[0] = 1000
        more = json_of(tmp_path, "resume", "--rounds", "3")
        assert (more["items"], more["rounds"]) == (11, 3)
    assert query(only_run(tmp_path), "SELECT count(*) FROM items") == [(11,)]


@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=12),
    k=st.integers(1, 5),
    room=st.integers(0, 120),
)
@settings(max_examples=200, deadline=None)
def test_any_k_of_the_others_fit_and_no_longer_ones_do(sizes: list[int], k: int, room: int) -> None:
    longest = longest_of(np.array(sizes, dtype=float), k, room)

    def fits(most: float) -> bool:
        return sum(sorted((size for size in sizes if size <= most), reverse=True)[:k]) <= room

    assert fits(longest)
    assert longest in {-1, *sizes}
    assert not any(fits(size) for size in sizes if size > longest)


@pytest.mark.parametrize(("text", "tokens"), [("plain words.", 3), ("日本語", 3), ("für", 1.5)])
def test_about_how_many_tokens_a_text_has(text: str, tokens: float) -> None:
    assert tokens_of(text) == tokens


def test_a_pilot_that_is_stopped_keeps_what_was_answered(tmp_path: Path) -> None:
    with mock(tmp_path, "--latency", "1000", "--hung", "0.9", "--seed", "4") as url:
        process = start(tmp_path, "estimate", *DEMO, "--base-url", url, "--pilot", "9")
        wait_until(lambda: in_flight(tmp_path) > 0, process)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        wait_until(lambda: "letting" in process.stderr.readline(), process)  # type: ignore[union-attr]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 5, err
    assert f"`judgeq resume {only_run(tmp_path).name}`" in " ".join(err.split())
    assert not out


def test_dollars_in_json_have_no_tails_of_floats(tmp_path: Path) -> None:
    job = ("demo", "--judge", "gpt-5-mini", "--price", "0.1,0.7")
    found = json_of(tmp_path, "estimate", *job, "--max-cost", "0.3")
    assert found["cost"]["high"] > found["cost"]["low"] > 0
    for value in (*found["cost"].values(), found["cost_so_far"]):
        assert value is None or len(f"{value:.15g}") <= len(f"{value:.9f}"), value
    with mock(tmp_path) as url:
        judgeq(tmp_path, "run", *job, "--sample", "40", "--base-url", url, "-q")
    cost = json_of(tmp_path, "status")["cost"]
    assert cost == round(cost, 9) > 0


@pytest.mark.parametrize(
    "flags", [("--rounds", "-1"), ("--strategy", "listwise10:rounds=-1"), ("--rounds=-20",)]
)
def test_a_number_below_its_least_says_so(tmp_path: Path, flags: tuple[str, ...]) -> None:
    said = judgeq(tmp_path, "estimate", "demo", *flags, expect=2).stderr
    assert ": must be 1 or more." in said
    assert "--rounds -1: rounds" not in said
