"""How far runs are, with what there is to show by the last complete round; and what runs are called."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import judgeq as package
from judgeq.cli import show
from judgeq.engine import results, status
from judgeq.engine.results import Result
from judgeq.run_places import FolderRuns, RunFolder, RunPlace
from tests.cli import judgeq, only_run


@pytest.fixture
def run(tmp_path: Path) -> Result:
    return package.run("demo", sample=60, strategy="listwise6x3", runs_dir=tmp_path, progress=False)


def state_of(run: RunPlace) -> status.State:
    return asyncio.run(status.state(run, rated=True))


def forget(run: RunPlace, jobs: str) -> None:
    """As if these jobs had not been answered yet."""
    database = sqlite3.connect(run.database)
    with database:
        database.execute(f"DELETE FROM verdicts WHERE job IN (SELECT id FROM jobs WHERE {jobs})")
        database.execute(f"UPDATE jobs SET state = 'pending' WHERE {jobs}")
    database.close()


def test_a_finished_run_shows_its_final_ranking(run: Result) -> None:
    state = state_of(run.run)
    assert (state.word, state.complete) == ("finished", 3)
    assert state.result is not None
    np.testing.assert_array_equal(state.result.scores.main[1], run.scores.main[1])
    shown = judgeq(run.run.path.parent, "status", run.run.path).stdout
    best = run.scores.ids[int(run.scores.ratings["pl"].argmax())]
    line = next(line for line in shown.splitlines() if line.split()[:1] == ["1"])
    assert best in line
    assert f"{run.scores.ratings['pl'].max():.2f}" in line
    assert "score        pl (Plackett-Luce); also Elo. Prior σ = " in shown


def test_an_unfinished_run_shows_the_ranking_so_far(run: Result) -> None:
    forget(run.run, "id = 25")  # of round 3
    state = state_of(run.run)
    assert (state.word, state.complete, len(state.rounds)) == ("stopped", 2, 3)
    assert state.result is not None
    assert state.result.partial
    shown = judgeq(run.run.path.parent, "status", run.run.path).stdout
    assert "round 3 of 3" in shown
    assert state.result.scores.ids[int(state.result.scores.main[1].argmax())] in shown
    forget(run.run, "id = 0")
    assert state_of(run.run).result is None  # no round is complete


def test_a_run_is_watched_until_nobody_works_on_it(
    run: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ratings, which are made from all verdicts, are made again only when a round is complete."""
    forget(run.run, "id = 25")
    looks, replayed = [2, 1, 0], list[int]()
    at, replay = time.sleep, results.replayed

    def pass_time(seconds: float) -> None:
        assert seconds == show.EVERY
        looks.pop(0)

    async def counted(*given: Any) -> Any:
        replayed.append(len(looks))
        return await replay(*given)

    monkeypatch.setattr(time, "sleep", pass_time)
    monkeypatch.setattr(results, "replayed", counted)
    monkeypatch.setattr(RunFolder, "is_running", lambda _: len(looks) > 1)
    folder = run.run.path.parent
    done = judgeq(folder, "status", run.run.path, "--watch")
    monkeypatch.setattr(time, "sleep", at)
    assert (looks, replayed) == ([0], [3])
    assert done.stdout == judgeq(folder, "status", run.run.path).stdout
    assert done.stdout.count("stopped") == 1


JOB = ("run", "-d", "demo", "--sample", "60", "-s", "listwise6x2", "-q")


# Names


def test_a_name_tells_runs_apart_and_is_taken_for_the_id(tmp_path: Path) -> None:
    judgeq(tmp_path, *JOB, "--name", "first try")
    before = only_run(tmp_path)
    judgeq(tmp_path, *JOB, "--seed", "1")
    listed = json.loads(judgeq(tmp_path, "runs", "--json").stdout)
    assert [(one["name"], one["feature"]) for one in listed] == [
        (None, "biased wording"),
        ("first try", "biased wording"),
    ]
    shown = judgeq(tmp_path, "runs").stdout
    assert f"{before.name}  first try  finished" in shown
    assert "Scores" in judgeq(tmp_path, "show", "--write", "first try").stdout
    assert FolderRuns(tmp_path / "runs").find("first try").path == before
    assert (
        "judgeq report 'first try' --open"
        in judgeq(tmp_path, "show", "--write", "first try").stdout
    )
    # It decides nothing, and goes with the same run; the same command gives it another.
    judgeq(tmp_path, *JOB)
    judgeq(tmp_path, *JOB, "--name", "second")
    assert len([*before.parent.iterdir()]) == 2
    assert before.name in judgeq(tmp_path, "status", "second").stdout


@pytest.mark.parametrize("name", ["last", "a/b", "", "x" * 61, "\x1b[2J", " a"])
def test_a_name_that_can_not_be_is_refused(tmp_path: Path, name: str) -> None:
    assert "--name" in judgeq(tmp_path, *JOB, "--name", name, expect=2).stderr
    assert not (tmp_path / "runs").exists()


def test_a_name_is_given_once(tmp_path: Path) -> None:
    judgeq(tmp_path, *JOB, "--name", "mine")
    run = only_run(tmp_path)
    for name in ("mine", run.name):
        done = judgeq(tmp_path, *JOB, "--seed", "1", "--name", name, expect=2)
        assert f"run {run.name} has that name. Choose another." in done.stderr
    assert only_run(tmp_path) == run


def test_a_strangers_names_neither_style_the_terminal_nor_widen_the_list(tmp_path: Path) -> None:
    judgeq(tmp_path, *JOB, "--name", "mine")
    run = only_run(tmp_path)
    info = json.loads((run / "config.json").read_text())
    info["facts"]["prompt"]["feature"] = "\x1b[31m[red]evil " * 50
    (run / "config.json").write_text(json.dumps(info))
    run = run.rename(run.with_name("\x1b[2J[bold]evil"))
    shown = judgeq(tmp_path, "runs").stdout
    assert "\x1b" not in shown
    assert "[bold]evil" in shown
    assert max(map(len, shown.splitlines())) <= 120
    info["settings"]["name"] = "\x1b[2Jmine"
    (run / "config.json").write_text(json.dumps(info))
    done = judgeq(tmp_path, "runs")
    assert "unreadable" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
