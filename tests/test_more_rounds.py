"""`judgeq resume --rounds`: a finished run gets further rounds, and nothing is asked twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import judgeq as package
from judgeq.errors import UsageError
from tests.cli import judgeq, only_run, query, scores
from tests.mock import mock

JOB = ("run", "-d", "demo", "--sample", "40", "-s", "listwise5x2", "-q")


def test_more_rounds_end_as_if_the_run_had_been_begun_with_them(tmp_path: Path) -> None:
    judgeq(tmp_path, *JOB)
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
    judgeq(tmp_path, *JOB)
    judgeq(tmp_path, "resume", "--rounds", "3", "-q")
    run = only_run(tmp_path)
    for again in (JOB, ("resume", "-q")):
        result = json.loads(judgeq(tmp_path, *again, "--json").stdout)
        assert (result["rounds"], result["partial"]) == (3, False)
    assert query(run, "SELECT count(*) FROM calls") == [(24,)]


@pytest.mark.parametrize(
    ("job", "rounds", "why"),
    [
        (JOB, "1", "has 2 rounds already. Give 3 or more"),
        ((*JOB[:5], "-s", "direct", "-q"), "2", "--strategy direct has no further rounds"),
        (
            (*JOB, "--until", "0.1"),
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


def test_in_python(tmp_path: Path) -> None:
    package.run("demo", sample=20, strategy="listwise5x1", runs_dir=tmp_path, progress=False)
    assert package.resume(rounds=2, runs_dir=tmp_path, progress=False).rounds == 2
    with pytest.raises(UsageError, match="has 2 rounds already"):
        package.resume(rounds=1, runs_dir=tmp_path, progress=False)


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
