"""The evidence behind scores, from runs of all kinds."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import judgeq as package
from judgeq.engine.results import Result
from judgeq.evaluation.trail import Appearance, against, elo_by_round, explanation, trails
from tests.cli import judgeq

N = ("-d", "synthetic:normal", "--n", "30")
JOBS: Mapping[str, tuple[str, ...]] = {
    "lists": (*N, "-s", "listwise5x3"),
    "pairs": (*N, "-s", "pairwise4", "--both-orders"),
    "panel": (*N, "-s", "pairwise4", "--judge", "simulated", "--judge", "simulated"),
    "direct": (*N, "-s", "direct", *2 * ("--judge", "simulated"), "--ensemble", "each"),
    "hybrid": (*N, "-s", "hybrid5x2"),
    "paper": (*N, "-s", "pairwise4", "--rating", "bt-mm"),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trail")
    for name, job in JOBS.items():
        judgeq(path, "run", *job, "--quiet", "--runs-dir", name)
    return path


def opened(runs: Path, name: str) -> Result:
    return package.open_run(runs_dir=runs / name)


def all_trails(run: Result) -> list[list[Appearance]]:
    return trails(run, range(len(run.scores.ids)))


@pytest.mark.parametrize("name", JOBS)
def test_trails_hold_all_that_was_asked(runs: Path, name: str) -> None:
    run = opened(runs, name)
    every = all_trails(run)
    asked = sum(len(part.items) for part in run.history.asked)
    assert sum(len(one) for one in every) == asked
    for name, one in zip(run.scores.ids, every, strict=True):
        jobs = [appearance.judgment.job for appearance in one]
        assert jobs == sorted(set(jobs))
        for appearance in one:
            judgment = appearance.judgment
            assert judgment.presented[appearance.slot - 1] == name  # type: ignore[operator]
            assert sorted(judgment.presented) == sorted(chain(*judgment.groups))
            assert 1 <= judgment.round <= run.rounds
            met = appearance.comparisons
            assert met == len(judgment.presented) - 1
            others = [other for other in judgment.presented if other != name]
            assert appearance.wins == sum(judgment.above(name, other) or 0 for other in others)
            assert not met or 0 <= appearance.expected <= met
            assert (judgment.judge is None) == (len(run.judges) == 1)
        strength = [abs(appearance.residual) for appearance in against(one)]
        assert strength == sorted(strength, reverse=True)
    if run.history.basis == "comparisons" and not run.history.both_orders:
        wins = [sum(one.wins for one in item) for item in every]
        assert_allclose(wins, run.scores.wins)
        assert [len(item) for item in every] == run.scores.matches.tolist()


@pytest.mark.parametrize("name", JOBS)
def test_the_ledger_adds_how_the_rating_moved(runs: Path, name: str) -> None:
    run = opened(runs, name)
    found = asyncio.run(explanation(run, 3, replies=True))
    assert found.by_round.shape == (run.rounds + 1, 1)
    assert_allclose(found.by_round[0], 1500)
    assert_allclose(found.by_round, elo_by_round(run)[:, [3]])
    if "elo" in run.scores.ratings:
        assert_allclose(found.by_round[-1], run.scores.ratings["elo"][[3]])
    jobs = {one.judgment.job for one in found.judgments}
    assert found.calls.keys() == jobs
    assert {call.outcome for calls in found.calls.values() for call in calls} <= {"ok", "cached"}
    assert all(calls[-1].reply for calls in found.calls.values())
    assert not found.unanswered
    assert not asyncio.run(explanation(run, 3)).calls


def test_residuals_argue_for_a_higher_or_a_lower_place(runs: Path) -> None:
    run = opened(runs, "panel")
    theta = run.scores.main[1]
    ids = list(run.scores.ids)
    for row, one in enumerate(all_trails(run)[:10]):
        for appearance in one:
            (name,) = set(appearance.judgment.presented) - {ids[row]}
            other = ids.index(name)
            p = 1 / (1 + np.exp(theta[other] - theta[row]))
            wins = appearance.wins
            assert appearance.expected == pytest.approx(p)
            assert appearance.residual == pytest.approx((wins - p) / np.sqrt(p * (1 - p)))
            assert abs(appearance.residual) == pytest.approx(abs(appearance.judgment.surprise))


def test_of_both_orders_one_without_the_other_is_not_rated(runs: Path, tmp_path: Path) -> None:
    run = opened(runs, "pairs")
    assert all(one.judgment.rated for item in all_trails(run) for one in item)
    first = run.history.asked[0]
    run.history.asked[0] = first.where(first.matches != first.matches[0])
    pair = first.presented[:2].tolist()
    couples = run.history.verdicts[0]
    run.history.verdicts[0] = couples.where(couples.matches // 2 != first.matches[0] // 2)
    one = trails(run, pair)[0]
    left = [appearance for appearance in one if not appearance.judgment.rated]
    assert [appearance.judgment.job for appearance in left] == [int(first.matches[1])]
    assert left[0] not in against(one)


def test_what_is_known_of_two_items(tmp_path: Path) -> None:
    run = imported(tmp_path, ["ab", "ab", "ba", "acb", "ad", "db", "eb", "ea", "af", "bf", "gh"])

    def versus(row: int, other: int) -> Any:
        return asyncio.run(explanation(run, row, other))

    known = versus(0, 1)
    assert known.direct == {"met": 4, "above": 3, "below": 1, "tied": 0}
    assert [one.judgment.round for one in known.judgments] == [1, 1, 1, 1]
    back = versus(1, 0)
    assert (back.direct["above"], back.direct["below"]) == (1, 3)
    assert known.probability == run.probability_above("a", "b")
    assert back.probability == pytest.approx(1 - known.probability)
    apart = versus(0, 6)
    assert (apart.judgments, apart.probability) == ([], None)
    assert apart.why == "no judgments connect the two"
    never = versus(0, 8)
    assert never.why == apart.why


def imported(folder: Path, rankings: list[str]) -> Result:
    """The run of such rankings of the items a to i."""
    lines = [{"id": name, "text": f"text {name}"} for name in "abcdefghi"]
    (folder / "texts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    judged = [
        {"round": 1, "group": at, "presented": sorted(names), "ranking": [*names], "ordered": False}
        for at, names in enumerate(rankings)
    ]
    (folder / "judged.jsonl").write_text("\n".join(map(json.dumps, judged)))
    judgeq(folder, "import", "judged.jsonl", "-d", "texts.jsonl", "--id-column", "id", "-q")
    return package.open_run(runs_dir=folder / "runs")


def test_imported_judgments_have_no_slots_and_no_replies(tmp_path: Path) -> None:
    run = imported(tmp_path, ["ab", "bc", "a"])
    one, never = trails(run, [0, 8])
    assert [appearance.slot for appearance in one][:1] == [None]
    alone = one[-1]
    assert np.isnan([alone.residual, alone.judgment.surprise]).all()
    assert not alone.judgment.rated
    assert alone not in against(one)
    assert (never, against(never)) == ([], [])
    for row in (0, 8):
        found = asyncio.run(explanation(run, row, replies=True))
        assert (found.calls, found.unanswered) == ({}, [])


def test_questions_without_a_verdict_are_listed_with_their_calls(tmp_path: Path) -> None:
    judgeq(tmp_path, "run", *N, "-s", "listwise5x2", "--quiet")
    database = next((tmp_path / "runs").glob("*/run.db"))
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute("DELETE FROM verdicts WHERE job = 1")
        db.execute("UPDATE jobs SET state = 'invalid' WHERE id = 1")
        db.execute("UPDATE calls SET outcome = 'unusable', reply = 'no' WHERE job = 1")
    run = package.open_run(runs_dir=tmp_path / "runs")
    every = [asyncio.run(explanation(run, row, replies=True)) for row in range(30)]
    about = [found for found in every if found.unanswered]
    assert len(about) == 5
    for found in about:
        (question,) = found.unanswered
        assert question.job == 1
        assert [(call.outcome, call.reply) for call in found.calls[1]] == [("unusable", "no")]
