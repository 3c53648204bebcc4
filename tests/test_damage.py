"""A run whose record doesn't add up: refused, or rated by what is left where that is accepted."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli import judgeq, only_run
from tests.mock import mock
from tests.postgres import new_store
from tests.test_stored_runs import execute as execute_in

pytestmark = pytest.mark.usefixtures("rated_by_elo")

RUN = (
    *("run", "-d", "demo", "--sample", "20", "-s", "pairwise3", "--quiet", "--no-cache"),
    *("--judge", "m", "--price", "1,10"),
)
DAMAGE = [
    ("DELETE FROM verdicts WHERE job = 7", "answered questions with a verdict: 29 of 30"),
    ("UPDATE jobs SET state = 'pending' WHERE id = 7", "verdicts: 30 of 29"),
    ("DELETE FROM jobs WHERE id = 7", "questions: 29 of 30; verdicts: 30 of 29"),
    ("DELETE FROM rounds WHERE round = 2", "questions: 30 of 20"),
    (
        "DELETE FROM calls WHERE id <= 10",
        "calls: 20 of 30; calls of attempts",
    ),
    ("UPDATE calls SET cost = 0", "dollars: 0 of 0.0"),
    ("UPDATE calls SET cost = 0 WHERE id = 7", "dollars: 0.0"),
    ("UPDATE calls SET output = 0", "tokens: "),
    ("UPDATE jobs SET open = 1 WHERE id = 7", "calls of attempts that ended: 30 of 29"),
    ("DELETE FROM workers", "calls: 30 of 0; tokens: "),
    ("UPDATE jobs SET at_risk = 7 WHERE id = 7", "nano-dollars at risk: 7 of 0"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("damage")
    with mock(folder) as url:
        judgeq(folder, *RUN, "--base-url", url, variables={"OPENAI_API_KEY": "k"})
        yield folder


@pytest.fixture
def run(folder: Path) -> Iterator[Path]:
    """A finished run, which may be damaged."""
    run = only_run(folder)
    before = {path: path.read_bytes() for path in (run / "run.db", run / "scores.csv")}
    yield run
    for path in run.glob("run.db-*"):
        path.unlink()
    for path, content in before.items():
        path.write_bytes(content)


def execute(run: Path, statement: str) -> None:
    with closing(sqlite3.connect(run / "run.db", isolation_level=None)) as connection:
        assert connection.execute(statement).rowcount


@pytest.mark.parametrize(("statement", "what"), DAMAGE, ids=[each for each, _ in DAMAGE])
def test_a_run_that_does_not_add_up_is_refused(
    folder: Path, run: Path, statement: str, what: str
) -> None:
    execute(run, statement)
    before = {name: (run / name).read_bytes() for name in ("run.db", "scores.csv")}
    for command in (("resume",), ("status",), ("show", "--write"), ("export",)):
        refused = judgeq(folder, *command, expect=7, variables={"OPENAI_API_KEY": "k"}).stderr
        assert f"run.db is damaged, and doesn't add up: {what}" in refused
        assert "--accept-damage" in refused
    assert {name: (run / name).read_bytes() for name in before} == before
    listed = json.loads(judgeq(folder, "runs", "--json").stdout)
    assert what in listed[0]["reason"]


@pytest.mark.usefixtures("undrawn")
def test_what_is_left_is_rated_where_that_is_accepted(folder: Path, run: Path) -> None:
    whole = json.loads(judgeq(folder, "show", "--write", "--json").stdout)
    assert whole["damage"] == []
    execute(run, "DELETE FROM verdicts WHERE job = 7")
    damage = "answered questions with a verdict: 29 of 30"
    caution = f"is damaged, and doesn't add up ({damage}): this is of what is left"
    rated = json.loads(judgeq(folder, "show", "--write", "--accept-damage", "--json").stdout)
    assert rated["damage"] == [damage]
    item = (run / "scores.csv").read_text("utf-8").splitlines()[1].split(",")[0]
    for command in (
        *(("show", "--write"), ("evaluate",), ("show",), ("explain", "last", item)),
        *(("compare", "last", "last"), ("report", "--format", "md")),
    ):
        done = judgeq(folder, *command, "--accept-damage")
        shown = done.stdout + done.stderr
        if command[0] == "report":
            shown = (run / "report.md").read_text("utf-8")
        assert caution in " ".join(shown.split()), command
    for table, lines in ((), 29), (("--table", "scores"), 21):
        done = judgeq(folder, "export", "--accept-damage", *table)
        assert len(done.stdout.splitlines()) == lines
        assert caution in " ".join(done.stderr.split())
    judgeq(folder, "resume", "--accept-damage", expect=2)  # never gone on with


def test_what_workers_did_are_all_calls(run: Path) -> None:
    made = "SELECT sum(calls), sum(tokens), sum(spent) / 1e9, sum(done) FROM workers"
    of_calls = (
        "SELECT count(*), sum(input + cached + output + reasoning), sum(cost), count(DISTINCT job) "
        "FROM calls"
    )
    with closing(sqlite3.connect(run / "run.db")) as connection:
        ((*counts, cost, done),) = connection.execute(made)
        ((*counted, spent, jobs),) = connection.execute(of_calls)
    assert (counts, done) == (counted, jobs)
    assert cost == pytest.approx(spent, abs=1e-9 * jobs)


def test_a_run_in_a_store_that_does_not_add_up_is_refused_as_well(
    folder: Path, tmp_path: Path
) -> None:
    store = new_store()
    judgeq(folder, "store", "copy", "last", "--to", store)
    where = ("last", "--store", store, "--runs-dir", tmp_path)
    judgeq(folder, "show", "--write", *where)
    damage = []
    for statement, what in (
        ("DELETE FROM @.verdicts WHERE job = 7", "answered questions with a verdict: 29 of 30"),
        ("UPDATE @.calls SET cost = 0 WHERE job = 8", "dollars: 0.0"),
        ("DELETE FROM @.calls WHERE job = 9", "calls: 29 of 30"),
    ):
        execute_in(store, statement)
        damage.append(what)
        for command in (("status",), ("show", "--write"), ("resume",)):
            refused = judgeq(folder, *command, *where, expect=7).stderr
            assert all(part in refused for part in damage)
    judgeq(folder, "store", "copy", *where[:3], "--to", tmp_path / "copied", expect=7)
    done = judgeq(folder, "show", "--write", "--accept-damage", *where)
    assert "this is of what is left" in " ".join((done.stdout + done.stderr).split())
