"""`judgeq resume --rounds`: a finished run gets further rounds, and nothing is asked twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import judgeq as package
from judgeq.errors import UsageError
from tests.cli import judgeq, only_run, query, scores

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
