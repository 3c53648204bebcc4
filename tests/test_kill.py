"""Real kills of real processes: what was committed is kept, and never asked again."""

from __future__ import annotations

import random
import signal
from functools import partial
from pathlib import Path

import pytest

from tests.cli import (
    has_answered,
    in_flight,
    judgeq,
    only_run,
    query,
    scores,
    start,
    wait_until,
)

JOB = ("run", "--dataset", "synthetic:normal", "--n", "1000", "--quiet", "--concurrency", "10")
JOBS = 300
KILLS = 5
BEGINNING = ("runs", "runs/*/run.db", "runs/*/config.json")
"""What is there at the first kills, before anything is answered."""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("uninterrupted")
    judgeq(folder, *JOB)
    return scores(only_run(folder))


def done_jobs(folder: Path) -> dict[int, int]:
    """The committed jobs, and their attempts; none before the ledger is there."""
    if not list(folder.glob("runs/*/run.db")):
        return {}
    try:
        rows = query(only_run(folder), "SELECT id, attempts FROM jobs WHERE state = 'done'")
    except Exception as error:  # noqa: BLE001  (killed before the schema was there)
        assert "no such table" in str(error)  # noqa: PT017
        return {}
    return {row[0]: row[1] for row in rows}


def is_there(folder: Path, pattern: str) -> bool:
    return bool(list(folder.glob(pattern)))


def test_killed_five_times_the_scores_are_the_same(tmp_path: Path, uninterrupted: str) -> None:
    moments = random.Random(20)
    committed: dict[int, int] = {}
    for kill in range(KILLS):
        process = start(tmp_path, *JOB, "--sim-latency", "0.1")
        if kill < len(BEGINNING):
            wait_until(partial(is_there, tmp_path, BEGINNING[kill]), process)
        else:
            enough = len(committed) + moments.randint(12, 30)
            wait_until(partial(has_answered, tmp_path, enough), process)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        now = done_jobs(tmp_path)
        assert committed.items() <= now.items()  # kept, and not attempted again
        committed = now
    assert 30 < len(committed) < JOBS, "the kills fell neither all before the work nor all after"

    judgeq(tmp_path, *JOB)
    run = only_run(tmp_path)
    assert scores(run) == uninterrupted
    assert committed.items() <= done_jobs(tmp_path).items()
    assert query(run, "SELECT count(*), count(DISTINCT job) FROM calls") == [(JOBS, JOBS)]
    assert query(run, "SELECT count(*) FROM verdicts") == [(JOBS,)]
    ((attempts,),) = query(run, "SELECT sum(attempts) FROM jobs")
    assert attempts - JOBS <= KILLS * 10, "at most what was in flight at the kills is asked twice"


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_a_signal_stops_cleanly_and_says_how_to_go_on(
    tmp_path: Path, uninterrupted: str, number: signal.Signals
) -> None:
    process = start(tmp_path, *JOB[:-3], "--concurrency", "10", "--sim-latency", "0.3")
    assert process.stderr is not None
    assert "new run" in process.stderr.readline()  # the handlers are there from before this line
    wait_until(partial(in_flight, tmp_path), process)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    run = only_run(tmp_path)
    assert process.returncode == 5, err
    assert f"judgeq resume {run.name}" in err
    assert query(run, "SELECT count(*) > 0 FROM calls") == [(1,)]
    assert query(run, "SELECT count(*) FROM jobs WHERE state = 'running'") == [(0,)]
    assert query(run, "SELECT sum(attempts) FROM jobs") == query(run, "SELECT count(*) FROM calls")
    done = judgeq(tmp_path, "resume", "last", "--sim-latency", "0")
    assert "resumed: " in done.stderr
    assert scores(run) == uninterrupted


def test_the_second_signal_stops_at_once(tmp_path: Path, uninterrupted: str) -> None:
    process = start(tmp_path, *JOB[:-3], "--concurrency", "10", "--sim-latency", "100")
    assert process.stderr is not None
    assert "new run" in process.stderr.readline()
    taken = "SELECT count(*) FROM jobs WHERE state = 'running'"
    wait_until(lambda: query(only_run(tmp_path), taken) == [(10,)], process)
    process.send_signal(signal.SIGINT)
    assert "letting 1 call finish" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 5, err
    judgeq(tmp_path, "resume", "last", "--sim-latency", "0", "--quiet")
    assert scores(only_run(tmp_path)) == uninterrupted
    status = judgeq(tmp_path, "status", "--json").stdout
    assert '"unknown_attempts": 1,' in status


def test_a_second_process_gets_a_clear_error(tmp_path: Path) -> None:
    process = start(tmp_path, *JOB[:-3], "--sim-latency", "100")
    try:
        assert process.stderr is not None
        assert "new run" in process.stderr.readline()
        done = judgeq(tmp_path, *JOB, expect=7)
        assert f"in use by process {process.pid}" in done.stderr
        assert '"state": "running"' in judgeq(tmp_path, "status", "--json").stdout
    finally:
        process.kill()
        process.communicate()
