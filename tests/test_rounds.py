"""How well the order is known, runs that end once enough is known, and runs that get further rounds; a
whole run of each strategy."""

import asyncio
import json
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from judgeq import config, seeds
from judgeq.engine import results, rounds, session
from judgeq.engine.scores import SURE
from judgeq.errors import UsageError
from judgeq.events import Certainty
from judgeq.rating import ESTIMATORS, Parameters, correlation
from judgeq.run_places import FolderRuns
from judgeq.strategies import History, parse
from judgeq.strategies.strategy import Goal
from judgeq.types import Floats, Matches, Totals, Verdicts
from judgeq.ui import progress
from tests.cli import exact_columns, json_of, judgeq, only_run, query, score_columns, scores
from tests.fakes import faults
from tests.mock import mock

JOB = ("run", "-d", "synthetic:normal", "--n", "100", "--quiet")


def gumbel(matches: Matches, truth: Floats, rng: np.random.Generator) -> Verdicts:
    """Answers of a judge that Plackett-Luce describes."""
    noisy = truth[matches.items] + rng.gumbel(size=len(matches.items))
    number = np.repeat(np.arange(len(matches)), matches.sizes)
    ranked = matches.items[np.lexsort((-noisy, number))]
    tied = np.zeros(len(ranked), dtype=np.bool_)
    return Verdicts(np.arange(len(matches)), ranked, matches.offsets, tied, matches.items)


def test_the_estimate_is_near_the_correlation_with_the_truth() -> None:
    """Of one run; benchmarks/ has many."""
    truth = seeds.rng(0, "truth").normal(0, 2.2, 120)
    history = History.begin(120, parse("listwise10x3"), 0)
    for round in history.to_come():
        matches = history.next_round()
        history.add(gumbel(matches, truth, seeds.rng(0, "answers", round)), len(matches))
    found = rounds.how_well(history, config.settle({"dataset": "demo"}), Totals())
    assert found is not None
    theta = history.fit(ESTIMATORS["pl"], Parameters()).theta
    rho = correlation.point(correlation.spearman(theta, truth), len(truth))
    assert found.rho == pytest.approx(rho, abs=0.03)


def test_goals() -> None:
    assert not Goal.read(None)
    assert Goal.read("0.95") == Goal(rho=0.95)
    assert [Goal.read(name).name for name in ("top20", "0.95")] == ["top20", "0.95"]
    assert Goal(rho=0.9).reached(0.9, None)
    assert not Goal(top=5).reached(0.99, 0.94)
    assert Goal(top=5).reached(0.1, 0.95)


@pytest.mark.parametrize("text", ["0", "1", "-0.5", "top0", "often", "nan"])
def test_what_cannot_be_reached_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--until"):
        config.settle({"dataset": "demo", "until": text})


def test_goals_that_a_strategy_cannot_have(tmp_path: Path) -> None:
    for more, message in (
        ({"strategy": "direct", "until": "0.9"}, "strategies that compare"),
        ({"until": "top240"}, "there are only 240 items"),
    ):
        with pytest.raises(UsageError, match=message):
            session.prepare(config.settle({"dataset": "demo", **more}), tmp_path)


def test_a_run_ends_once_enough_is_known_and_goes_on_when_asked_for_more(tmp_path: Path) -> None:
    job = (*JOB, "-s", "listwise10x9", "--matchmaking", "random")
    early = json_of(tmp_path, *job, "--until", "0.5")
    assert not early["partial"]
    assert early["ended"]["goal"] == "0.5"
    assert early["ended"]["rho"] == early["certainty"]["rho"] >= 0.5
    rounds = early["rounds"]
    assert 1 < rounds == early["rounds_planned"] < 9
    run = only_run(tmp_path)
    status = judgeq(tmp_path, "status").stdout
    assert f"with reliability {early['ended']['rho']:.3f} (--until 0.5)" in status
    assert "One more round" in status
    asked = "SELECT id, items FROM jobs ORDER BY id"
    before = query(run, asked)
    again = json_of(tmp_path, "resume")  # the goal is kept
    assert (again["rounds"], again["certainty"]) == (rounds, early["certainty"])
    more = json_of(tmp_path, "resume", "--until", "0.87")
    assert more["rounds"] > rounds
    assert query(run, asked)[: len(before)] == before
    assert json_of(tmp_path, "status")["ended"]["goal"] == "0.87"
    (straight := tmp_path / "straight").mkdir()
    judgeq(straight, *job, "--until", "0.87")
    assert scores(only_run(straight)) == scores(run)
    # Without a goal it goes on to its own end, if it isn't there.
    whole = json_of(tmp_path, *job)
    assert whole["rounds"] == max(9, more["rounds"])
    assert whole["ended"] is None


def test_what_one_more_round_would_cost_and_bring(tmp_path: Path) -> None:
    history = History.begin(60, parse("listwise10"), 0)
    truth = np.linspace(-4, 4, 60)
    for round in (1, 2):
        matches = history.next_round()
        history.add(gumbel(matches, truth, seeds.rng(0, round)), len(matches))
    settings = config.settle({"dataset": "demo", "judge": ("some-model",), "price": (1.0, 1.0)})
    now = rounds.how_well(history, settings, Totals(calls=10, cost=0.5, hits=2))
    unknown = rounds.how_well(history, settings, Totals(calls=10, unpriced=1))
    assert now
    assert unknown
    assert (now.round, now.next_calls) == (2, 6)
    assert now.next_cost == pytest.approx(0.3)
    assert unknown.next_cost is None
    assert now.rho is not None
    assert now.rho < (now.next_rho or 0)
    assert rounds.after_each_round(history, settings)
    assert not rounds.after_each_round(history, config.settle({"dataset": "demo"}))


ONE_ANSWER = "one round of comparisons can't show reliability: nothing is repeated"


def test_one_answer_a_text_does_not_tell_how_reliable_the_answers_are(tmp_path: Path) -> None:
    """Coin tosses had "Reliability 0.77"."""
    job = ("run", "-d", "demo", "-s", "listwise10x1", "--sim-accuracy", "0.51")
    done = json_of(tmp_path, *job)
    known = done["certainty"]
    assert known["rho"] is None
    assert known["next_rho"] is None
    assert known["top_share"] is None
    assert known["next_calls"] == 24
    assert done["fit"]["sigma_averaged"]

    words = " ".join(judgeq(tmp_path, *job).stdout.split())
    assert f"Reliability Unknown: {ONE_ANSWER}. One more round (24 calls) would show it." in words
    assert f"Unknown: {ONE_ANSWER}" in " ".join(judgeq(tmp_path, "status").stdout.split())

    evaluated = judgeq(tmp_path, "evaluate", "--resamples", "0").stdout
    assert f"Reliability  unknown: {ONE_ANSWER}" in evaluated
    assert "can be told apart" not in evaluated
    reliability = json_of(tmp_path, "evaluate", "--resamples", "0")["reliability"]
    assert reliability["separation"]["ssr"] is None
    assert reliability["separation_cj"]["ssr"] is None

    run = only_run(tmp_path)
    assert set(exact_columns(run)["tier"]) == {""}
    assert json_of(tmp_path, "explain", exact_columns(run)["id"][0])["items"][0]["tier"] is None

    # A second round tells.
    more = json_of(tmp_path, "resume", "--rounds", "2")
    assert more["certainty"]["rho"] is not None
    assert not more["fit"]["sigma_averaged"]
    assert "1" in exact_columns(run)["tier"]


def test_direct_scores_and_one_round_of_lists_do_not_tell_either(tmp_path: Path) -> None:
    job = ("run", "-d", "demo", "--sample", "60")
    once = json_of(tmp_path, *job, "-s", "hybrid10x2")
    assert once["certainty"]["rho"] is None
    assert once["fit"]["sigma_averaged"]
    assert json_of(tmp_path, *job, "-s", "hybrid10x3")["certainty"]["rho"] is not None


@pytest.mark.parametrize("goal", ["0.01", "top20"])
def test_no_goal_ends_a_run_after_one_answer_a_text(tmp_path: Path, goal: str) -> None:
    done = json_of(tmp_path, *JOB, "-s", "listwise10x3", "--until", goal)
    assert done["rounds"] >= 2


def test_a_goal_that_is_not_known_is_not_reached() -> None:
    assert not Goal(rho=0.1).reached(None, None)
    assert not Goal(top=5).reached(None, None)


def test_reliability_in_words() -> None:
    paid = progress.reliability(Certainty(3, 0.9312, 0.9401, 37, 0.0123))
    more = "one more round (37 calls, about $0.01) would make it about 0.94"
    assert paid == ["reliability 0.93", more]
    asked = progress.reliability(Certainty(3, 0.9312, 0.9341, 1), people=True)
    more = "one more round (1 answer) would make it about 0.934"
    assert asked == ["reliability 0.931", more]
    (top,) = progress.reliability(Certainty(3, 0.93, None, 0, top=20, top_share=0.912))
    assert top == "reliability 0.93, 91% of the first 20 settled"
    once = progress.reliability(Certainty(1, None, None, 37, 0.0123, top=20))
    more = "one more round (37 calls, about $0.01) would show it"
    assert once == [f"reliability unknown: {ONE_ANSWER}", more]


SHORT = ("run", "-d", "demo", "--sample", "40", "-s", "listwise5x2", "-q")


def test_more_rounds_end_as_if_the_run_had_been_begun_with_them(tmp_path: Path) -> None:
    judgeq(tmp_path, *SHORT)
    run = only_run(tmp_path)
    asked = query(run, "SELECT count(*) FROM calls")
    judgeq(tmp_path, "resume", "--rounds", "3", "-q")
    ((before,), (after,)) = (*asked, *query(run, "SELECT count(*) FROM calls"))
    assert (before, after) == (16, 24)
    (straight := tmp_path / "straight").mkdir()
    judgeq(straight, "run", "-d", "demo", "--sample", "40", "-s", "listwise5x3", "-q")
    assert scores(run) == scores(only_run(straight))


@pytest.mark.parametrize(
    ("job", "rounds", "why"),
    [
        (SHORT, "1", "has 2 rounds already. Give 3 or more"),
        ((*SHORT[:5], "-s", "direct", "-q"), "2", "--strategy direct has no further rounds"),
        ((*SHORT, "--until", "0.1"), "3", "ended after round 2 by --until 0.1. Give a higher --u"),
    ],
)
def test_rounds_that_a_run_can_not_get_are_refused(
    tmp_path: Path, job: tuple[str, ...], rounds: str, why: str
) -> None:
    judgeq(tmp_path, *job)
    assert why in judgeq(tmp_path, "resume", "--rounds", rounds, expect=2).stderr


def test_a_goal_buys_no_rounds_for_a_run_that_is_not_finished(tmp_path: Path) -> None:
    job = ("run", "-d", "demo", "--sample", "40", "-s", "listwise5x2", "--judge", "m", "-q")
    cap, until = ("--max-cost", "9"), ("resume", "--until")
    with mock(tmp_path) as url:
        low = ("--price", "1,1", "--max-cost", "0.0635", "--max-output-tokens", "60000")
        judgeq(tmp_path, *job, "--base-url", url, *low, expect=6)
        for expected in (2, 8):
            result = json_of(tmp_path, *until, "0.999", *cap)
            assert result["rounds"] == result["rounds_planned"] == expected
        # Rounds beyond those that enough is known after are nobody's wish later.
        goal = f"{round(1 - (1 - result['certainty']['rho']) * 0.9, 3):g}"
        for again in ((*until, goal, *cap), ("resume",)):
            ended = json_of(tmp_path, *again)
            assert 8 < ended["rounds"] < 14
            assert ended["ended"]["goal"] == goal


SMALL = ("run", "-d", "synthetic:normal", "--n", "60", "--seed", "4", "--quiet")


def digest(columns: dict[str, list[str]]) -> str:
    """Of all ratings to 1e-6 (another processor's last bits are no matter), wins and leavings; how sure
    the ratings are is tested where it is worked out."""
    told = [
        [f"{float(cell):.6f}" if cell else "" for cell in column]
        for name, column in sorted(columns.items())
        if name not in ("id", "gold", "rank", "text", "settled", "group", *SURE)
    ]
    return sha256(json.dumps(told).encode()).hexdigest()[:16]


GOLDEN = {
    "listwise10:matchmaking=similar": "c72a55fc7ffb28cd",
    "listwise:k=7,rounds=2,overlap=2,matchmaking=similar": "87c0af2816df0ca7",
    "pairwise:rounds=9": "811f24eb615c63cb",
    "streak:r=3,d=2": "17a052a266bf5f63",
    "tail:w=3,p=20,rounds=9": "024b9cefdc9a2e4b",
    "complete": "96fd79bea21d2357",
    "direct": "2c4d79ffdeab04b4",
}


@pytest.mark.parametrize("strategy", GOLDEN)
def test_a_golden_run(tmp_path: Path, strategy: str) -> None:
    rated = ("--rating", "bt", "--no-unbias-position")
    judgeq(tmp_path, *SMALL, "-s", strategy, *rated)
    assert digest(exact_columns(only_run(tmp_path), *rated)) == GOLDEN[strategy]


def test_answers_that_come_late_leave_the_past_as_it_was(tmp_path: Path) -> None:
    """`--retry-failed` changes ratings, but neither which items were asked about nor which left."""
    job = (*SMALL, "-s", "streak:r=2,d=2")
    with faults(unreadable=0.5):
        judgeq(tmp_path, *job, "--max-invalid", "1")
    run = only_run(tmp_path)
    before = score_columns(run)
    asked = query(run, "SELECT id, items FROM jobs ORDER BY id")
    assert query(run, "SELECT count(*) > 20 FROM jobs WHERE state = 'invalid'") == [(1,)]
    judgeq(tmp_path, *job, "--retry-failed")
    after = score_columns(run)
    assert query(run, "SELECT id, items FROM jobs ORDER BY id") == asked
    assert query(run, "SELECT count(*) FROM jobs WHERE state <> 'done'") == [(0,)]
    assert after["elo"] != before["elo"]
    (last,) = query(run, "SELECT max(round) FROM rounds WHERE last >= first")[0]
    # After the last round nobody is asked any more; who leaves then follows from the ratings.
    settled = [was if int(was or 0) < last else "" for was in before["left_after"]]
    assert settled == [now if int(now or 0) < last else "" for now in after["left_after"]]
    assert sum(map(bool, settled)) > 20
    for row, left in enumerate(after["left_after"]):
        rounds = "SELECT max(round) FROM jobs WHERE "
        (latest,) = query(run, rounds + _about(row))[0]
        # An item that stayed sits out one round at most, where their number is odd.
        assert latest == int(left) if left else latest >= last - 1
    judgeq(tmp_path, "show", "--write")
    assert score_columns(run) == after


def _about(row: int) -> str:
    """That a pair's job is about an item."""
    number = f"x'{row.to_bytes(4, 'little').hex()}'"
    return f"substr(items, 1, 4) = {number} OR substr(items, 5, 4) = {number}"


def test_a_strategy_that_runs_out_of_items_ends_early_and_stays_ended(tmp_path: Path) -> None:
    job = ("run", "-d", "synthetic:linear", "--n", "12", "-s", "streak:r=1")
    done = json_of(tmp_path, *job)
    assert done["rounds"] == done["rounds_planned"] < 24
    assert (done["partial"], done["left_early"]) == (False, 12)
    assert json_of(tmp_path, "status")["state"] == "finished"
    calls = query(only_run(tmp_path), "SELECT count(*) FROM calls")
    assert json_of(tmp_path, *job) == done
    assert query(only_run(tmp_path), "SELECT count(*) FROM calls") == calls
    assert "finished" in judgeq(tmp_path, "runs").stdout


@pytest.mark.parametrize("strategy", ["tail:w=2,p=20", "hybrid5x3"])
def test_each_round_replayed_from_the_ledger_is_planned_as_it_was(
    tmp_path: Path, strategy: str
) -> None:
    """A session that begins at any round plans it as one that had gone through all before."""
    judgeq(tmp_path, *SMALL, "-s", strategy)
    folder = FolderRuns(tmp_path / "runs").find("last")

    async def story() -> None:
        info = folder.info()
        store = folder.store(read_only=True)
        try:
            for round in range(1, info.rounds + 1):
                history = await results.replayed(info, store, round - 1)
                planned = await store.matches(round)
                assert_array_equal(history.next_round().items, planned.items)
        finally:
            await store.close()

    asyncio.run(story())


def test_a_goal_that_was_missed_is_said(tmp_path: Path) -> None:
    for goal, what in (("0.999", "reliability is 0."), ("top20", "of the first 20 are settled")):
        job = ("run", "demo", "-s", "listwise10x3", "--until", goal)
        shown = " ".join(judgeq(tmp_path, *job).stdout.split())
        said = f"The goal was missed (--until {goal}): "
        assert said in shown
        assert what in shown
        assert any(one.startswith(said) for one in json_of(tmp_path, *job)["cautions"])
    reached = json_of(tmp_path, "run", "demo", "-s", "listwise10x3", "--until", "0.5")
    assert not any("missed" in one for one in reached["cautions"])
