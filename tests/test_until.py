"""Knowing when to stop: ρ̂, what one more round would bring, and runs that end once enough is known."""

from __future__ import annotations

import json
import re
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import psycopg
import pytest

from judgeq import config, seeds
from judgeq.engine import rounds, session
from judgeq.errors import UsageError
from judgeq.events import Certainty
from judgeq.judge import error_model
from judgeq.rating import ESTIMATORS, Parameters, correlation, order
from judgeq.rating.posterior import Posterior
from judgeq.settings.run import Simulation
from judgeq.store.postgres.address import parse as parse_address
from judgeq.store.postgres.link import connect, in_schema
from judgeq.strategies import History, Strategy, parse
from judgeq.strategies.goal import Goal
from judgeq.types import Counts, Floats, Matches, Totals, Verdicts
from judgeq.ui import progress
from tests.cli import judgeq, only_run, query, score_columns, scores, start, wait_until
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


def of_all(posterior: Posterior, growth: float | None = None) -> order.Known:
    return order.known(posterior.mean, posterior.errors_across, growth)


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


@pytest.mark.parametrize("strategy", ["listwise10x3", "listwise10x5"])
def test_where_the_judge_fits_the_model_the_estimate_is_right_on_average(strategy: str) -> None:
    """Within 0.02 of the true ρ, and so is what the round before expected of the last one."""
    off, foreseen = [], []
    for seed in range(3):
        history, truth = played(parse(strategy), 120, (2.2, 3.0, 4.0)[seed % 3], seed)
        now = known(history)
        off.append(now.rho - rho(history, truth))
        foreseen.append(expected_of(history) - now.rho)
    assert abs(np.mean(off)) < 0.02, off
    assert abs(np.mean(foreseen)) < 0.02, foreseen


@pytest.mark.parametrize(
    ("strategy", "sd"), [("listwise10x3", 1.0), ("pairwise6:matchmaking=random", 1.0)]
)
def test_what_a_round_brings_where_the_prior_still_says_much(strategy: str, sd: float) -> None:
    """By judgments alone it would be taken for 0.05 more than it is."""
    off = []
    for seed in range(6):
        history, _ = played(parse(strategy), 200, sd, seed)
        off.append(expected_of(history) - known(history).rho)
    assert abs(np.mean(off)) < 0.02, off


def expected_of(history: History) -> float:
    """What the round before expected of the last one."""
    before = History.begin(len(history.standings.elo), history.strategy, history.seed)
    for verdicts in history.verdicts[:-1]:
        before.add(verdicts, len(verdicts))
    found = known(before)
    assert found.next_rho is not None
    assert found.rho < found.next_rho < 1
    return found.next_rho


@pytest.mark.parametrize("strategy", ["listwise10x4", "pairwise24", "pairwise16"])
def test_of_a_judge_that_hardly_tells_the_items_apart_it_is_right_too(strategy: str) -> None:
    """θ of sd 1 or less: by a σ of 2 it would be 0.04 to 0.1 too high."""
    off, by_two = [], []
    for seed, sd in ((0, 1.0), (1, 0.7), (2, 0.7), (3, 0.5)):
        history, truth = played(parse(strategy), 200, sd, seed)
        posterior = history.posterior()
        assert posterior is not None
        assert sd / 1.7 < posterior.sigma < sd * 1.7
        off.append(known(history).rho - rho(history, truth))
        wide = history.fit(ESTIMATORS["pl"], Parameters(sigma=2.0)).posterior
        assert wide is not None
        by_two.append(of_all(wide).rho - rho(history, truth))
    assert np.mean(by_two) > 0.04
    assert abs(np.mean(off)) < 0.6 * np.mean(by_two), (off, by_two)


def test_of_a_judge_that_does_not_fit_the_model_it_is_near() -> None:
    truth = seeds.rng(3, "truth").normal(500, 150, 200)
    for strategy in ("listwise10x3", "pairwise24"):
        history = History.begin(200, parse(strategy), 3)
        for round in history.to_come():
            matches = history.next_round()
            rng = seeds.rng(3, "answers", round)
            history.add(error_model.answers(matches, truth, Simulation(), rng), len(matches))
        assert known(history).rho == pytest.approx(rho(history, truth), abs=0.04)


def test_of_fewer_than_two_items_everything_is_known() -> None:
    history = History.begin(3, parse("pairwise1"), 0)
    history.add(
        gumbel(Matches(np.array([0, 1], np.int32), np.array([0, 2])), np.zeros(3), seeds.rng(0)), 1
    )
    posterior = history.posterior()
    assert posterior is not None
    mean, se = posterior.mean, posterior.errors_across
    assert order.known(mean[:1], se[:1], 2.0, 1) == order.Known(1.0, None, 1.0)
    two = order.known(mean[:2], se[:2], 2.0, 1)
    assert 0 < two.rho < 1
    assert two.top is not None
    assert 0.5 <= two.top < 1


# What `--until` says


def test_goals() -> None:
    assert not Goal.read(None)
    assert Goal.read("0.95") == Goal(rho=0.95)
    assert Goal.read("top20").name == "top20"
    assert Goal.read("0.95").name == "0.95"
    assert Goal(rho=0.9).reached(0.9, None)
    assert not Goal(top=5).reached(0.99, 0.94)
    assert Goal(top=5).reached(0.1, 0.95)


@pytest.mark.parametrize(
    "text", ["0", "1", "1.5", "-0.5", "0.0", "top0", "top", "often", "nan", "labels"]
)
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


def test_any_comparing_strategy_may_end_so(tmp_path: Path) -> None:
    done = json.loads(judgeq(tmp_path, *JOB, "-s", "pairwise", "--until", "0.7", "--json").stdout)
    assert 2 <= done["rounds"] < 24
    assert done["certainty"]["next_calls"] == 50


def test_the_first_are_settled(tmp_path: Path) -> None:
    similar = ("-s", "listwise10x20", "--matchmaking", "similar")
    job = (*JOB, "--sim-accuracy", "0.95", *similar, "--until", "top5", "--json")
    done = json.loads(judgeq(tmp_path, *job).stdout)
    assert done["ended"]["top_share"] >= 0.95
    assert done["certainty"]["top"] == 5
    columns = score_columns(only_run(tmp_path))
    first = {row for row, rank in enumerate(columns["rank"]) if int(rank) <= 5}
    truth = np.argsort([-float(gold) for gold in columns["gold"]])[:5]
    assert len(first & set(truth.tolist())) >= 4


def test_a_result_says_where_sigma_is_at_an_end(tmp_path: Path) -> None:
    of_all = ("run", "-d", "synthetic:normal", "--n", "60")
    weak = ("-s", "listwise10x60", "--sim-accuracy", "0.501", "--sim-pmax", "0.51")
    result = json.loads(judgeq(tmp_path, *of_all, *weak, "--json").stdout)
    assert result["fit"]["sigma"] == 0.25
    assert result["certainty"]["rho"] < 0.7
    status = " ".join(judgeq(tmp_path, "status").stdout.split())
    assert "(the fitted prior is at its lower limit, 0.25; --sigma overrides it)" in status
    sure = ("-s", "listwise10x5", "--sim-pmax", "1", "--sim-distance", "20")
    judgeq(tmp_path, *of_all, *sure, "--sim-accuracy", "0.999", "-q")
    status = " ".join(judgeq(tmp_path, "status").stdout.split())
    assert "(the fitted prior is at its upper limit, 8; --sigma overrides it)" in status


def test_killed_on_its_way_to_the_first_in_a_store_it_asks_the_same(tmp_path: Path) -> None:
    """On PostgreSQL, and equal to a folder's run that nobody killed, to the last bit."""
    address = f"{new_store()}&lease=2"
    job = (*JOB, "-s", "listwise5x8", "--until", "top5")
    whole = tmp_path / "whole"
    whole.mkdir()
    judgeq(whole, *job)
    at = parse_address(address)

    def answered(enough: int) -> bool:
        with suppress(psycopg.Error), connect(at) as connection:
            done = in_schema("SELECT count(*) FROM @.jobs WHERE state = 'done'", at.schema)
            row = connection.execute(done).fetchone()
            return row is not None and row[0] >= enough
        return False  # its tables aren't made yet

    for enough in (25, 33):  # after the first round, of 20 lists
        slow = ("--store", address, "--sim-latency", "0.1", "--concurrency", "3")
        process = start(tmp_path, *job, *slow)
        wait_until(partial(answered, enough), process)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    judgeq(tmp_path, *job, "--store", address)
    assert scores(only_run(tmp_path), "--store", address) == scores(only_run(whole))


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
