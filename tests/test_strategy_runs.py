"""A whole run of each strategy, and pruning that is killed in the middle of it."""

from __future__ import annotations

import asyncio
import json
import signal
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest
from numpy.testing import assert_array_equal

from judgeq.engine import results
from judgeq.engine.scores import SURE
from judgeq.run_places import FolderRuns
from tests.cli import (
    exact_columns,
    has_answered,
    judgeq,
    only_run,
    query,
    score_columns,
    scores,
    start,
    wait_until,
)
from tests.fakes import faults

SMALL = ("run", "-d", "synthetic:normal", "--n", "60", "--seed", "4", "--quiet")


def digest(columns: dict[str, list[str]]) -> str:
    """Of all ratings to 1e-6 (another processor's last bits are no matter), wins and leavings; how sure
    the ratings are is tested where it is worked out."""
    told = [
        [f"{float(cell):.6f}" if cell else "" for cell in column]
        for name, column in sorted(columns.items())
        if name not in ("id", "gold", "rank", "text", *SURE)
    ]
    return sha256(json.dumps(told).encode()).hexdigest()[:16]


GOLDEN = {
    "listwise10:matchmaking=similar": "a65b33f33eab4ef5",
    "listwise:k=7,rounds=2,overlap=2,matchmaking=similar": "14cbcd434978087a",
    "pairwise:rounds=9": "a0cdcacb42a885ec",
    "streak:r=3,d=2": "c1b0bf9193289903",
    "tail:w=3,p=20,rounds=9": "c2eb14fa80caf712",
    "complete": "03edda38dc41431d",
    "direct": "2c4d79ffdeab04b4",
}


@pytest.mark.parametrize("strategy", GOLDEN)
def test_a_golden_run(tmp_path: Path, strategy: str) -> None:
    rated = ("--rating", "bt", "--no-unbias-position")
    judgeq(tmp_path, *SMALL, "-s", strategy, *rated)
    assert digest(exact_columns(only_run(tmp_path), *rated)) == GOLDEN[strategy]


@pytest.mark.parametrize(
    "strategy", [pytest.param("streak:r=2,d=2", marks=pytest.mark.long), "tail:w=2,p=10"]
)
def test_killed_in_the_middle_of_pruning_the_scores_are_the_same(
    tmp_path: Path, strategy: str
) -> None:
    job = (*SMALL, "-s", strategy)
    whole = tmp_path / "whole"
    whole.mkdir()
    judgeq(whole, *job)
    for enough in (60, 105):  # jobs done: after items have begun to leave
        process = start(tmp_path, *job, "--sim-latency", "0.05", "--concurrency", "3")
        wait_until(partial(has_answered, tmp_path, enough), process)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    judgeq(tmp_path, *job)
    run = only_run(tmp_path)
    assert scores(run) == scores(only_run(whole))
    left = score_columns(run)["left_after"]
    assert sum(map(bool, left)) > 20
    # Nobody is asked about after leaving.
    for row, after in enumerate(left):
        if after:
            last = "SELECT max(round) FROM rounds JOIN jobs ON id BETWEEN first AND last WHERE "
            assert query(run, last + _about(row)) == [(int(after),)]


@pytest.mark.parametrize("strategy", ["streak:r=2,d=2", "tail:w=2,p=10"])
def test_answers_that_come_late_leave_the_past_as_it_was(tmp_path: Path, strategy: str) -> None:
    """`--retry-failed` changes ratings, but neither which items were asked about nor which left."""
    job = (*SMALL, "-s", strategy)
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
        rounds = "SELECT max(round) FROM rounds JOIN jobs ON id BETWEEN first AND last WHERE "
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
    job = ("run", "-d", "synthetic:linear", "--n", "12", "-s", "streak:r=1", "--json")
    done = json.loads(judgeq(tmp_path, *job).stdout)
    assert done["rounds"] == done["rounds_planned"] < 24
    assert not done["partial"]
    assert done["left_early"] == 12
    state = json.loads(judgeq(tmp_path, "status", "--json").stdout)
    assert state["state"] == "finished"
    calls = query(only_run(tmp_path), "SELECT count(*) FROM calls")
    again = judgeq(tmp_path, *job)
    assert json.loads(again.stdout) == done
    assert query(only_run(tmp_path), "SELECT count(*) FROM calls") == calls
    assert "finished" in judgeq(tmp_path, "runs").stdout


@pytest.mark.parametrize("strategy", ["listwise5x6", "tail:w=2,p=20", "hybrid5x3"])
def test_each_round_replayed_from_the_ledger_is_planned_as_it_was(
    tmp_path: Path, strategy: str
) -> None:
    """A session that begins at any round plans it as one that had gone through all before."""
    judgeq(tmp_path, *SMALL, "-s", strategy)
    folder = FolderRuns(tmp_path / "runs").find("last")
    info = folder.info()

    async def replayed() -> None:
        store = folder.store(read_only=True)
        try:
            for round in range(1, info.rounds + 1):
                history = await results.replayed(info, store, round - 1)
                planned = await store.matches(round)
                assert_array_equal(history.next_round().items, planned.items)
        finally:
            await store.close()

    asyncio.run(replayed())
