"""How well the order is known, runs that end once enough is known, and runs that get further rounds."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from judgeq import config, seeds
from judgeq.engine import rounds, session
from judgeq.errors import UsageError
from judgeq.events import Certainty
from judgeq.rating import ESTIMATORS, Parameters, correlation
from judgeq.strategies import History, Strategy, parse
from judgeq.strategies.strategy import Goal
from judgeq.types import Counts, Floats, Matches, Totals, Verdicts
from judgeq.ui import progress
from tests.cli import judgeq, only_run, query, scores
from tests.mock import mock
from tests.postgres import new_store

JOB = ("run", "-d", "synthetic:normal", "--n", "100", "--quiet")


def gumbel(matches: Matches, truth: Floats, rng: np.random.Generator) -> Verdicts:
    """Answers of a judge that Plackett-Luce describes."""
    noisy = truth[matches.items] + rng.gumbel(size=len(matches.items))
    number = np.repeat(np.arange(len(matches)), matches.sizes)
    ranked = matches.items[np.lexsort((-noisy, number))]
    tied = np.zeros(len(ranked), dtype=np.bool_)
    return Verdicts(np.arange(len(matches)), ranked, matches.offsets, tied, matches.items)


def known(history: History) -> Certainty:
    found = rounds.how_well(history, config.settle({"dataset": "demo"}), Counts(), Totals())
    assert found is not None
    return found


def rho(history: History, truth: Floats) -> float:
    theta = history.rate(ESTIMATORS["pl"], Parameters())
    value = correlation.point(correlation.spearman(theta, truth), len(truth))
    assert value is not None
    return value


def played(strategy: Strategy, n: int, sd: float, seed: int) -> tuple[History, Floats]:
    """All rounds, answered as Plackett-Luce describes, of θ of this sd."""
    truth = seeds.rng(seed, "truth").normal(0, sd, n)
    history = History.begin(n, strategy, seed)
    for round in history.to_come():
        matches = history.next_round()
        history.add(gumbel(matches, truth, seeds.rng(seed, "answers", round)), len(matches))
    return history, truth


# ρ̂


def test_where_the_judge_fits_the_model_the_estimate_is_right_on_average() -> None:
    """Within 0.02 of the true ρ, and so is what the round before expected of the last one."""
    off, foreseen = [], []
    for seed in range(3):
        history, truth = played(parse("listwise10x3"), 120, (2.2, 3.0, 4.0)[seed % 3], seed)
        now = known(history)
        off.append(now.rho - rho(history, truth))
        foreseen.append(expected_of(history) - now.rho)
    assert abs(np.mean(off)) < 0.02, off
    assert abs(np.mean(foreseen)) < 0.02, foreseen


def expected_of(history: History) -> float:
    """What the round before expected of the last one."""
    before = History.begin(len(history.standings.elo), history.strategy, history.seed)
    for verdicts in history.verdicts[:-1]:
        before.add(verdicts, len(verdicts))
    found = known(before)
    assert found.next_rho is not None
    assert found.rho < found.next_rho < 1
    return found.next_rho


# What `--until` says


def test_goals() -> None:
    assert not Goal.read(None)
    assert Goal.read("0.95") == Goal(rho=0.95)
    assert Goal.read("top20").name == "top20"
    assert Goal.read("0.95").name == "0.95"
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


def test_until_does_not_decide_the_run(tmp_path: Path) -> None:
    def fingerprint(**more: object) -> str:
        given = {"dataset": "synthetic:normal", "n": 60, "strategy": "listwise10", **more}
        return config.fingerprint(session.prepare(config.settle(given), tmp_path).facts)

    assert len({fingerprint(), fingerprint(until="0.9"), fingerprint(until="top5")}) == 1


# Runs


def test_a_run_ends_once_enough_is_known_and_goes_on_when_asked_for_more(tmp_path: Path) -> None:
    job = (*JOB, "-s", "listwise10x9", "--matchmaking", "random")
    early = json.loads(judgeq(tmp_path, *job, "--until", "0.5", "--json").stdout)
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

    again = json.loads(judgeq(tmp_path, "resume", "--json").stdout)  # the goal is kept
    assert (again["rounds"], again["certainty"]) == (rounds, early["certainty"])

    more = json.loads(judgeq(tmp_path, "resume", "--until", "0.87", "--json").stdout)
    assert more["rounds"] > rounds
    assert query(run, asked)[: len(before)] == before
    assert json.loads(judgeq(tmp_path, "status", "--json").stdout)["ended"]["goal"] == "0.87"

    straight = tmp_path / "straight"
    straight.mkdir()
    judgeq(straight, *job, "--until", "0.87")
    assert scores(only_run(straight)) == scores(run)
    # Without a goal it goes on to its own end, if it isn't there.
    whole = json.loads(judgeq(tmp_path, *job, "--json").stdout)
    assert whole["rounds"] == max(9, more["rounds"])
    assert whole["ended"] is None


def test_an_estimate_counts_no_rounds_after_the_end(tmp_path: Path) -> None:
    job = ("-d", "synthetic:normal", "--n", "60", "-s", "listwise10", "--rounds", "9")
    ended = json.loads(judgeq(tmp_path, "run", *job, "--until", "0.5", "--json").stdout)
    assert ended["rounds"] < 9
    left, more = (
        json.loads(judgeq(tmp_path, "estimate", *job, *until, "--json").stdout)
        for until in (("--until", "0.5"), ())
    )
    assert (left["rounds_not_looked_into"], left["calls"]) == (0, 0)
    assert more["rounds_not_looked_into"] == 9 - ended["rounds"]


def test_in_a_store_it_is_the_same(tmp_path: Path) -> None:
    """Ended in a PostgreSQL store, taken up there, and equal to a folder's to the last bit."""
    job = ("run", "-d", "synthetic:normal", "--n", "40", "-s", "listwise5x9", "--quiet", "--json")
    at = ("--store", new_store())
    first = json.loads(judgeq(tmp_path, *job, *at, "--until", "0.6").stdout)
    assert first["ended"]["goal"] == "0.6"
    shown = json.loads(judgeq(tmp_path, "status", *at, "--json").stdout)
    assert (shown["state"], shown["ended"]) == ("finished", first["ended"])
    more = json.loads(judgeq(tmp_path, *job, *at, "--until", "0.9").stdout)
    assert more["rounds"] > first["rounds"]
    folder = tmp_path / "folder"
    folder.mkdir()
    judgeq(folder, *job, "--until", "0.9")
    assert scores(only_run(tmp_path), *at) == scores(only_run(folder))


def test_of_a_model_each_round_says_what_one_more_would_cost(tmp_path: Path) -> None:
    price = ("--price", "1,1", "--no-cache")
    with mock(tmp_path) as url:
        model = ("--judge", "mock", "--base-url", url, *price)
        done = judgeq(tmp_path, "run", "-d", "demo", "-s", "listwise10x3", *model, "--json")
    offer = r"reliability 0\.\d+[^;]*; one more round \(24 calls, about \$0\.0"
    assert len(re.findall(offer, " ".join(done.stderr.split()))) == 3
    result = json.loads(done.stdout)
    assert result["certainty"]["next_cost"] == pytest.approx(result["cost"] / 72 * 24)


# What is shown


def test_what_one_more_round_would_cost_and_bring(tmp_path: Path) -> None:
    history = History.begin(60, parse("listwise10"), 0)
    truth = np.linspace(-4, 4, 60)
    for round in (1, 2):
        matches = history.next_round()
        history.add(gumbel(matches, truth, seeds.rng(0, round)), len(matches))
    settings = config.settle({"dataset": "demo", "judge": ("some-model",), "price": (1.0, 1.0)})
    counts, totals = Counts(done=12), Totals(calls=10, cost=0.5, hits=2)
    now = rounds.how_well(history, settings, counts, totals)
    assert now is not None
    assert (now.round, now.next_calls) == (2, 6)
    assert now.next_cost == pytest.approx(0.3)
    assert now.next_rho is not None
    assert now.rho < now.next_rho
    assert rounds.after_each_round(history, settings)
    assert not rounds.after_each_round(history, config.settle({"dataset": "demo"}))
    unknown = rounds.how_well(history, settings, counts, Totals(calls=10, unpriced=1))
    assert unknown is not None
    assert unknown.next_cost is None


def test_reliability_in_words() -> None:
    assert progress.reliability(Certainty(3, 0.9312, 0.9401, 37, 0.0123)) == [
        "reliability 0.93",
        "one more round (37 calls, about $0.01) would make it about 0.94",
    ]
    assert progress.reliability(Certainty(3, 0.9312, 0.9341, 1), people=True) == [
        "reliability 0.931",
        "one more round (1 answer) would make it about 0.934",
    ]
    (top,) = progress.reliability(Certainty(3, 0.93, None, 0, top=20, top_share=0.912))
    assert top == "reliability 0.93, 91% of the first 20 settled"


# Further rounds

SHORT = ("run", "-d", "demo", "--sample", "40", "-s", "listwise5x2", "-q")


def test_more_rounds_end_as_if_the_run_had_been_begun_with_them(tmp_path: Path) -> None:
    judgeq(tmp_path, *SHORT)
    run = only_run(tmp_path)
    asked = query(run, "SELECT count(*) FROM calls")
    judgeq(tmp_path, "resume", "--rounds", "3", "-q")
    ((before,), (after,)) = (*asked, *query(run, "SELECT count(*) FROM calls"))
    assert (before, after) == (16, 24)
    straight = tmp_path / "straight"
    straight.mkdir()
    judgeq(straight, "run", "-d", "demo", "--sample", "40", "-s", "listwise5x3", "-q")
    assert scores(run) == scores(only_run(straight))


def test_the_same_command_keeps_the_rounds_that_were_added(tmp_path: Path) -> None:
    judgeq(tmp_path, *SHORT)
    judgeq(tmp_path, "resume", "--rounds", "3", "-q")
    run = only_run(tmp_path)
    for again in (SHORT, ("resume", "-q")):
        result = json.loads(judgeq(tmp_path, *again, "--json").stdout)
        assert (result["rounds"], result["partial"]) == (3, False)
    assert query(run, "SELECT count(*) FROM calls") == [(24,)]


@pytest.mark.parametrize(
    ("job", "rounds", "why"),
    [
        (SHORT, "1", "has 2 rounds already. Give 3 or more"),
        ((*SHORT[:5], "-s", "direct", "-q"), "2", "--strategy direct has no further rounds"),
        (
            (*SHORT, "--until", "0.1"),
            "3",
            r"ended after round 2 by --until 0.1. Give a higher --until",
        ),
    ],
)
def test_rounds_that_a_run_can_not_get_are_refused(
    tmp_path: Path, job: tuple[str, ...], rounds: str, why: str
) -> None:
    judgeq(tmp_path, *job)
    assert why in judgeq(tmp_path, "resume", "--rounds", rounds, expect=2).stderr


def test_a_finished_run_goes_on_until_enough_is_known_as_if_it_had_been_begun_so(
    tmp_path: Path,
) -> None:
    job = ("run", "-d", "synthetic:normal", "--n", "60", "-q", "-s", "listwise10")
    judgeq(tmp_path, *job, "--rounds", "2")
    run, straight = only_run(tmp_path), tmp_path / "straight"
    straight.mkdir()
    known = json.loads(judgeq(tmp_path, "status", "--json").stdout)["certainty"]["rho"]
    goal = f"{round(1 - (1 - known) / 2, 3):g}"
    judgeq(straight, *job, "--rounds", "8", "--until", goal)
    for again in (("resume", "-q"), ("resume", "--until", goal, "-q"), (*job, "--rounds", "2")):
        more = () if "--until" in again or "run" in again else ("--until", goal)
        result = json.loads(judgeq(tmp_path, *again, *more, "--json").stdout)
        assert 2 < result["rounds"] < 8, result["rounds"]
        assert (result["partial"], result["ended"]["goal"]) == (False, goal)
        assert scores(run) == scores(only_run(straight))
    # A goal that isn't reached: three times the rounds that it was begun with, and no more of them.
    result = json.loads(judgeq(tmp_path, "resume", "--until", "0.999", "-q", "--json").stdout)
    assert result["rounds"] == result["rounds_planned"] == json_rounds(run) + 6
    assert not result["ended"]


def json_rounds(run: Path) -> int:
    """The rounds of the run that ended by its goal."""
    ended: int = json.loads((run / "config.json").read_text())["ended"]["round"]
    return ended


def test_a_goal_buys_no_rounds_for_a_run_that_is_not_finished(tmp_path: Path) -> None:
    job = ("run", "-d", "demo", "--sample", "40", "-s", "listwise5x2", "--judge", "m", "-q")
    cap, until = ("--max-cost", "9"), ("resume", "--until")
    with mock(tmp_path) as url:
        low = ("--price", "1,1", "--max-cost", "0.0635", "--max-output-tokens", "60000")
        judgeq(tmp_path, *job, "--base-url", url, *low, expect=6)
        for expected in (2, 8):
            result = json.loads(judgeq(tmp_path, *until, "0.999", *cap, "--json").stdout)
            assert result["rounds"] == result["rounds_planned"] == expected
        # Rounds beyond those that enough is known after are nobody's wish later.
        goal = f"{round(1 - (1 - result['certainty']['rho']) * 0.9, 3):g}"
        for again in ((*until, goal, *cap), ("resume",)):
            ended = json.loads(judgeq(tmp_path, *again, "--json").stdout)
            assert 8 < ended["rounds"] < 14
            assert ended["ended"]["goal"] == goal
