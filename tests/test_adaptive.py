"""Adaptive rounds: what is asked, what it costs, what is held out, and that a kill changes nothing."""

from __future__ import annotations

import asyncio
import json
import signal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from judgeq import config, seeds
from judgeq.datasets import synthetic
from judgeq.engine import results, session
from judgeq.errors import RunError, UsageError
from judgeq.judge import error_model
from judgeq.rating import ESTIMATORS, Parameters, certainty, comparisons, correlation
from judgeq.runs import FolderRuns
from judgeq.settings import Simulation
from judgeq.strategies import History, parse
from judgeq.strategies.adaptive import Adaptive
from judgeq.strategies.goal import Goal
from judgeq.types import Floats, Matches, Verdicts
from tests.cli import has_answered, judgeq, only_run, query, scores, start, wait_until

JOB = ("run", "-d", "synthetic:normal", "--n", "120", "--seed", "4", "--quiet")


def answered(matches: Matches, truth: Floats, seed: int = 0, **judge: Any) -> Verdicts:
    model = Simulation(**judge)
    return error_model.answers(matches, truth, model, seeds.rng(seed, "answers", len(matches)))


def played(
    strategy: str, n: int, seed: int = 0, shape: str = "normal", **judge: Any
) -> tuple[History, Floats]:
    """A whole run in process, and the truth."""
    truth = synthetic.draw(shape, n, seeds.rng(seed, "latent"))
    history = History.begin(n, parse(strategy), seed)
    for round in history.to_come():
        matches = history.next_round()
        rng = seeds.rng(seed, "answers", round)
        verdicts = error_model.answers(matches, truth, Simulation(**judge), rng)
        history.add(verdicts, len(matches))
    return history, truth


def rho(history: History, truth: Floats, estimator: str = "pl") -> float:
    theta = history.rate(ESTIMATORS[estimator], Parameters())
    value = correlation.point(correlation.spearman(theta, truth), len(truth))
    assert value is not None
    return value


# What is asked


@settings(max_examples=12)
@given(
    k=st.integers(2, 6),
    n=st.integers(6, 40),
    rounds=st.integers(1, 6),
    holdout=st.sampled_from([0.0, 0.1, 0.5]),
    seed=st.integers(0, 99),
)
def test_rounds_are_sound_and_cost_what_they_are_said_to(
    k: int, n: int, rounds: int, holdout: float, seed: int
) -> None:
    strategy = Adaptive(k, rounds, holdout)
    history = History.begin(n, strategy, seed)
    asked: list[Matches] = []
    for round in history.to_come():
        matches = history.next_round()
        assert len(matches) == strategy.calls_of(round, n)
        assert matches.items.dtype.name == "int32"
        assert all(len(set(items.tolist())) == len(items) >= 2 for items in matches)
        assert int(matches.sizes.max()) <= k
        again = strategy.next_round(history, seeds.rng(seed, "round", round))
        assert_array_equal(again.items, matches.items)
        history.add(answered(matches, np.arange(0, 10.0 * n, 10), seed), len(matches))
        asked.append(matches)
    assert len(asked) == rounds
    assert strategy.calls(n) == sum(map(len, asked))
    assert strategy.cost(n) == sum(matches.cost for matches in asked)
    whole = asked[0].items
    assert len(np.unique(whole)) == len(whole) == (n // 2 * 2 if k == 2 else n)


@pytest.mark.parametrize(
    ("name", "like"),
    [("adaptive10", "listwise10"), ("adaptive20", "listwise20"), ("adaptive2", "pairwise")],
)
def test_by_default_it_costs_what_the_others_do(name: str, like: str) -> None:
    for n in (400, 1000, 3674):
        assert parse(name).cost(n) == pytest.approx(parse(like).cost(n), rel=0.01)


def test_the_least_certain_meet_those_rated_alike() -> None:
    history, _ = played("adaptive5x1", 100)
    drawn = history.drawn()
    assert drawn is not None
    ranks = np.argsort(np.argsort(drawn.mean[:, None] + drawn.deviations, axis=0), axis=0)
    uncertain = np.argsort(-ranks.var(axis=1), kind="stable")[:25]
    matches = history.next_round()
    assert set(matches.items.tolist()) == set(uncertain.tolist())
    lists = sorted(sorted(drawn.mean[items].tolist()) for items in matches)
    assert np.concatenate(lists).tolist() == sorted(drawn.mean[matches.items].tolist())
    assert [len(items) for items in matches] == [5] * 5
    assert any(items.tolist() != items[np.argsort(drawn.mean[items])].tolist() for items in matches)


@pytest.mark.parametrize("strategy", ["adaptive4x4", "adaptive2x6"])
def test_rounds_without_any_answer_are_drawn_at_random(strategy: str) -> None:
    history = History.begin(12, parse(strategy), 0)
    for _ in history.to_come():
        matches = history.next_round()
        none = np.zeros(len(matches), dtype=np.bool_)
        history.add(answered(matches, np.arange(12.0)).where(none), len(matches))
        assert len(matches) == parse(strategy).calls_of(len(history.verdicts), 12)
    assert history.drawn() is None


def test_all_items_alike_is_no_trouble() -> None:
    history = History.begin(20, parse("adaptive4x5"), 0)
    for _ in history.to_come():
        matches = history.next_round()
        verdicts = answered(matches, np.zeros(20))
        inside = np.ones(len(verdicts.items), dtype=np.bool_)
        inside[verdicts.offsets[:-1]] = False
        history.add(
            Verdicts(
                verdicts.matches, verdicts.items, verdicts.offsets, inside, verdicts.presented
            ),
            len(matches),
        )
    assert np.abs(history.rate(ESTIMATORS["pl"], Parameters())).max() < 1e-6


def test_with_a_goal_the_first_are_told_from_the_others() -> None:
    everywhere, _ = played("adaptive5x6", 200, seed=3)
    everywhere.goal = Goal(top=10)
    drawn = everywhere.drawn()
    assert drawn is not None
    rank = np.argsort(np.argsort(-drawn.mean))
    focused = rank[everywhere.next_round().items].mean()
    everywhere.goal = Goal()
    assert focused < rank[everywhere.next_round().items].mean() - 20


# Held out


def test_what_is_held_out_is_random_and_decides_nothing() -> None:
    strategy = "adaptive5:rounds=9,holdout=0.25"
    history, truth = played(strategy, 80)
    held = history.held_out()
    assert held is not None
    # 4 lists of 5 a round, and 1 held out.
    assert [len(verdicts) for verdicts in history.verdicts] == [16] + [5] * 8
    assert len(held) == 8
    assert len(comparisons.joined(history.verdicts)) == 16 + 40  # rated like the others
    # Other answers to them change no later question.
    other = History.begin(80, parse(strategy), 0)
    for round, verdicts in enumerate(history.verdicts, start=1):
        matches = other.next_round()
        assert_array_equal(matches.items, verdicts.presented)
        items = verdicts.items.copy()
        if round > 1:
            items[-5:] = items[-5:][::-1]
        turned = Verdicts(
            verdicts.matches, items, verdicts.offsets, verdicts.tied, verdicts.presented
        )
        other.add(turned, len(matches))
    assert rho(other, truth) != rho(history, truth)


def test_nothing_is_held_out_by_default() -> None:
    assert played("adaptive5x4", 40)[0].held_out() is None
    assert played("listwise5x2", 40)[0].held_out() is None


def test_what_is_held_out_is_known_again_from_the_ledger(tmp_path: Path) -> None:
    """By match numbers, also where judges and orders multiply them and some gave no answer."""
    job = (*JOB[:-1], "-s", "adaptive2x6", "--holdout", "0.1", "--both-orders")
    judgeq(tmp_path, *job, "--sim-unreadable", "0.6", "--max-invalid", "1", "--quiet")
    folder = FolderRuns(tmp_path / "runs").find("last")
    result = asyncio.run(results.read(folder, folder.info().settings))
    held = result.history.held_out()
    assert held is not None
    spans = query(only_run(tmp_path), "SELECT first, last FROM rounds WHERE round > 3")
    last = {number for _, last in spans for number in range(last - 5, last + 1)}
    assert set(held.matches.tolist()) < last
    assert len(held) < 9


# Names, settings, facts


def test_names_and_errors() -> None:
    assert parse("adaptive") == parse("adaptive10") == Adaptive(10)
    assert parse("adaptive10x12").rounds == 12
    assert parse("adaptive10", rounds=12, holdout=0.1) == Adaptive(10, 12, 0.1)
    assert parse("adaptive:k=8,rounds=4,holdout=0.2") == Adaptive(8, 4, 0.2)
    assert (parse("adaptive2x50").name, parse("adaptive7").name) == ("adaptive2x50", "adaptive7")
    assert (parse("adaptive10").rounds, parse("adaptive2").rounds) == (9, 45)
    for text, flags, message in (
        ("adaptive1", {}, "at least 2 items"),
        ("adaptive10x0", {}, "at least 1 round"),
        ("adaptive10x20000", {}, "at most 10,000 rounds"),
        ("adaptive10", {"holdout": 0.6}, "from 0 to 0.5"),
        ("adaptive10:holdout=many", {}, "is no share"),
        ("listwise10", {"holdout": 0.1}, "--holdout doesn't go with"),
        ("adaptive10", {"overlap": 2}, "--overlap doesn't go with"),
    ):
        with pytest.raises(UsageError, match=message):
            parse(text, **flags)
    for strategy, n, message in (
        (Adaptive(10), 9, "give adaptive9 or smaller"),
        (Adaptive(2), 1, "make no pair"),
        (Adaptive(10, 1, 0.1), 50, "is a share of the adaptive rounds"),
        (Adaptive(20_000), 10**6, "could not be rated"),
    ):
        with pytest.raises(UsageError, match=message):
            strategy.check(n)


def test_what_an_adaptive_strategy_reads_decides_the_run(tmp_path: Path) -> None:
    given = {"dataset": "synthetic:normal", "n": 60}

    def fingerprint(**more: object) -> str:
        made = session.prepare(config.settle({**given, **more}), tmp_path)
        return config.fingerprint(made.facts)

    plain = fingerprint(strategy="adaptive10")
    assert (
        len(
            {
                plain,
                fingerprint(strategy="adaptive10x12"),
                fingerprint(strategy="adaptive10", holdout=0.1),
            }
        )
        == 3
    )
    for same in ({"rating": "bt"}, {"sigma": 3.0}, {"rating": "bt-mm"}):
        assert fingerprint(strategy="adaptive10", **same) == plain
    facts = parse("adaptive10").facts()
    assert facts["algorithm"]["version"] == 2
    assert facts["algorithm"]["estimator"] == "pl"
    # Those of the other strategies are as they were.
    assert parse("listwise10").facts() == {
        "kind": "listwise", "k": 10, "rounds": 3, "overlap": 0, "matchmaking": "similar"
    }  # fmt: skip


def test_a_run_that_chose_by_other_rules_is_not_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"dataset": "synthetic:normal", "n": 20, "strategy": "adaptive4x2"}
    monkeypatch.setattr("judgeq.strategies.adaptive.VERSION", 1)
    session.execute(session.prepare(config.settle(given), tmp_path), lambda _: None)
    monkeypatch.undo()
    with pytest.raises(RunError, match="its strategy changed since it was begun"):
        session.resume(FolderRuns(tmp_path).find("last"), {})


def test_a_run_whose_strategy_is_not_written_down_says_so(tmp_path: Path) -> None:
    judgeq(tmp_path, "run", "-d", "synthetic:normal", "--n", "20", "-s", "listwise5x1", "-q")
    file = only_run(tmp_path) / "config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    del config["facts"]["strategy"]
    file.write_text(json.dumps(config), encoding="utf-8")
    done = judgeq(tmp_path, "resume", expect=7)
    assert "its strategy changed since it was begun" in done.stderr


def test_lists_are_not_asked_in_both_orders(tmp_path: Path) -> None:
    done = judgeq(tmp_path, *JOB, "-s", "adaptive10", "--both-orders", expect=2)
    assert "--both-orders goes with pairs" in done.stderr


# Kills


@pytest.mark.parametrize("strategy", ["adaptive5x7", "adaptive2x7"])
def test_killed_in_adaptive_rounds_the_scores_are_the_same(tmp_path: Path, strategy: str) -> None:
    job = (*JOB, "-s", strategy, "--holdout", "0.2")
    whole = tmp_path / "whole"
    whole.mkdir()
    judgeq(whole, *job, "--concurrency", "7")
    first = 24 if strategy.startswith("adaptive5") else 180
    for enough in (first + 8, first + 20):  # jobs done: after the random rounds
        process = start(tmp_path, *job, "--sim-latency", "0.05", "--concurrency", "10")
        wait_until(partial(has_answered, tmp_path, enough), process)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    # What the results are rated by decides nothing.
    judgeq(tmp_path, *job, "--rating", "bt", "--sigma", "5")
    judgeq(tmp_path, "rate", "--rating", "pl")
    assert scores(only_run(tmp_path)) == scores(only_run(whole))
    asked = "SELECT id, items FROM jobs ORDER BY id"
    assert query(only_run(tmp_path), asked) == query(only_run(whole), asked)


def test_each_round_replayed_from_the_ledger_is_planned_as_it_was(tmp_path: Path) -> None:
    """A session that begins at any round plans it as one that had gone through all before."""
    judgeq(tmp_path, *JOB, "-s", "adaptive5x6")
    folder = FolderRuns(tmp_path / "runs").find("last")
    info = folder.info()

    async def replayed() -> None:
        store = folder.store(read_only=True)
        try:
            for round in range(1, 7):
                history = await results.replayed(info, store, round - 1)
                planned = await store.matches(round)
                assert_array_equal(history.next_round().items, planned.items)
        finally:
            await store.close()

    asyncio.run(replayed())


def test_an_estimate_counts_its_calls(tmp_path: Path) -> None:
    done = judgeq(
        tmp_path, "estimate", *JOB[1:-1], "-s", "adaptive10", "--holdout", "0.5", "--json"
    )
    told = json.loads(done.stdout)
    assert (told["calls"], told["rounds"]) == (12 + 8 * 3 + 12, 9)
    done = judgeq(tmp_path, "estimate", *JOB[1:-1], "-s", "adaptive10", "--until", "0.9", "--json")
    told = json.loads(done.stdout)
    assert (told["calls"], told["rounds"]) == (12 + 35 * 3, 36)


# Is it worth it?


@pytest.mark.parametrize(
    ("judge", "other"),
    [("rrt", "bt-mm"), ("vg", "pl")],
    ids=["independent pairs", "pairs that hang together"],
)
def test_it_beats_lists_of_similar_rating_at_the_same_cost(judge: str, other: str) -> None:
    """By a paired test over ten seeds: in the paper's simulation and as it rates lists, and with a judge
    more like real ones and the same estimator."""
    better = []
    for seed in range(10):
        adaptive, truth = played("adaptive10", 400, seed, sim_model=judge)
        plain, _ = played("listwise10", 400, seed, sim_model=judge)
        assert sum(v.cost for v in adaptive.verdicts) == sum(v.cost for v in plain.verdicts)
        better.append(rho(adaptive, truth) - rho(plain, truth, other))
    t = np.mean(better) / (np.std(better, ddof=1) / 10**0.5)
    assert t > 1.833, better  # 5 %, one-sided, of 9 degrees of freedom


def test_an_item_that_is_ranked_against_itself_counts_as_less_certain() -> None:
    """Of two items rated alike and asked as often, the one that was first of one list and last of
    another is the less certain."""
    rows = np.arange(30, dtype=np.int32)
    ranked = [rows[at : at + 10] for at in (0, 10, 20)] * 3
    steady, torn = 15, 14
    ranked[4] = np.array([14, 10, 11, 12, 13, 15, 16, 17, 18, 19], np.int32)
    ranked[7] = np.array([10, 11, 12, 13, 15, 16, 17, 18, 19, 14], np.int32)
    items = np.concatenate(ranked)
    verdicts = Verdicts(
        np.arange(9), items, np.arange(10) * 10, np.zeros(90, dtype=np.bool_), items
    )
    drawn = certainty.drawn_for_choice(verdicts, 30, 2.0, 0, "draws")
    variance = drawn.deviations.var(axis=1)
    assert variance[torn] > 1.3 * variance[steady]
