"""How far a run is: the ranking after its last complete round, of a finished run the final one."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from judgeq import api
from judgeq.cli import show
from judgeq.engine import results, status
from judgeq.engine.results import Result
from judgeq.rating import elo
from judgeq.run_places import RunFolder, RunPlace
from judgeq.ui.show import status as show_status
from tests.cli import judgeq
from tests.fakes import ADDING_UP


@pytest.fixture
def run(tmp_path: Path) -> Result:
    return api.run("demo", strategy="listwise10x3", runs_dir=tmp_path)


def state_of(run: RunPlace) -> status.State:
    return asyncio.run(status.state(run, ratings=True))


def forget(run: RunPlace, jobs: str) -> None:
    """As if these jobs had not been answered yet."""
    database = sqlite3.connect(run.database)
    with database:
        database.execute(f"DELETE FROM verdicts WHERE job IN (SELECT id FROM jobs WHERE {jobs})")
        database.execute(f"UPDATE jobs SET state = 'pending' WHERE {jobs}")
    database.close()


def test_a_finished_run_shows_its_final_ranking(run: Result) -> None:
    state = state_of(run.run)
    assert (state.word, state.complete, state.rating) == ("finished", 3, "pl")
    assert state.ratings is not None
    np.testing.assert_array_equal(state.ratings, run.scores.ratings["pl"])
    shown = judgeq(run.run.path.parent, "status", run.run.path).stdout
    best = run.scores.ids[int(run.scores.ratings["pl"].argmax())]
    line = next(line for line in shown.splitlines() if line.split()[:1] == ["1"])
    assert line.split()[2:4] == [best, f"{run.scores.ratings['pl'].max():.2f}"]
    assert "score        pl (Plackett-Luce); also Elo. Prior σ = " in shown


def test_an_unfinished_run_shows_the_ranking_after_its_last_complete_round(run: Result) -> None:
    whole = run.run
    forget(whole, "id = 60")  # of round 3: its ranking would be half of it
    state = state_of(whole)
    assert (state.word, state.complete, state.rating) == ("stopped", 2, "elo")
    assert state.ratings is not None
    database = sqlite3.connect(whole.database)
    expected = elo.start(len(run.scores.ids))
    for verdicts in run.history.verdicts[:2]:
        expected = elo.fold(expected, verdicts)
    np.testing.assert_array_equal(state.ratings, expected)

    with database:  # stopped between two rounds
        database.execute("DELETE FROM rounds WHERE round = 3")
        database.execute("DELETE FROM verdicts WHERE job >= 48")
        database.execute("DELETE FROM jobs WHERE id >= 48")
        database.execute("DELETE FROM calls WHERE job >= 48")
        for statement in ADDING_UP:
            database.execute(statement)
    database.close()
    again = state_of(whole)
    assert (again.word, again.complete, len(again.rounds)) == ("stopped", 2, 2)
    assert again.ratings is not None
    np.testing.assert_array_equal(again.ratings, state.ratings)
    shown = judgeq(whole.path.parent, "status", whole.path).stdout
    assert "after round 2, by Elo for now; the final scores are fitted at the end" in shown

    forget(whole, "id = 0")
    assert state_of(whole).ratings is None


def test_scores_of_single_items_are_shown_as_such(tmp_path: Path) -> None:
    direct = api.run("demo", strategy="direct", runs_dir=tmp_path)
    state = state_of(direct.run)
    assert state.rating == "direct"
    assert "score      direct (direct scores" in judgeq(tmp_path, "status", direct.run.path).stdout


def facts(state: status.State) -> list[tuple[str, str]]:
    section = next(iter(show_status.status(state)))
    return [(str(name), str(value)) for name, value in section.facts]


def test_a_run_is_watched_until_nobody_works_on_it(
    run: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ratings, which are made from all verdicts, are made again only when a round is complete."""
    forget(run.run, "id = 60")
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
