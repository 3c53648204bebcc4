"""A run's record that judgeq didn't write, or that doesn't add up: refused by name, whatever is done
with the run."""

import asyncio
import hashlib
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from judgeq.errors import RunError
from judgeq.store import schema
from judgeq.store.sqlite import SqliteStore
from tests.cli import ended, execute, judgeq, only_run
from tests.mock import mock
from tests.postgres import new_store
from tests.test_stored_runs import execute as execute_in

pytestmark = pytest.mark.usefixtures("rated_by_elo")
SMALL = ("run", "--dataset", "synthetic:normal", "--n", "20", "-s", "listwise5x3", "--quiet")


def refused(path: Path, match: str) -> None:
    """Nobody opens it, and it stays as it was."""
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(RunError, match=match):
            SqliteStore(path, read_only=read_only)
    assert path.read_bytes() == before


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one run that was stopped, with a row in each table."""
    folder = tmp_path_factory.mktemp("vetting")
    judgeq(folder, *SMALL)
    run = only_run(folder)
    execute(
        run / "run.db",
        "UPDATE jobs SET state = 'pending', attempts = 1, open = 1, error = 'x' WHERE id = 3",
        "DELETE FROM verdicts WHERE job = 3",
        "INSERT INTO subsets VALUES (1, 's', zeroblob(20))",
        "INSERT INTO workers (worker, run, name, until) VALUES (2, 1, 'b', 9e999)",
        "INSERT INTO batches VALUES (1, 2, 0, 'openai', 'h', 'f', 1, 1, 1, 1, 'collected', 'r', 's', "
        "1, 1, 0, 1, 1, 1, 1, 'e', zeroblob(20))",
        "UPDATE calls SET answered_by = 1",
        "UPDATE jobs SET attempts = open",  # all is people's, but the one that is pending
        "UPDATE verdicts SET answered_by = 1",
        "INSERT INTO people VALUES (1, 0, 'Ann', zeroblob(32), 60, 'active', 1.0)",
        "INSERT INTO handed VALUES (1, 0, 'l', 1.0, 3, NULL), (1, 1, 'm', 1.0, NULL, 1)",
        "INSERT INTO checks SELECT 1, 0, items, 0, 1, items, 'l', items, zeroblob(length(items) / 4), "
        "NULL, 1.0, 1.0 FROM jobs WHERE id = 1",
    )
    asyncio.run(SqliteStore(run / "run.db", read_only=True).close())  # it adds up
    return folder


@pytest.fixture
def path(stopped: Path, tmp_path: Path) -> Path:
    """The database of a copy of that run."""
    shutil.copytree(stopped / "runs", tmp_path / "runs")
    return only_run(tmp_path) / "run.db"


def test_a_changed_schema_has_another_version() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        schema.make(connection)
        made = hashlib.sha256(repr(sorted(schema.objects(connection))).encode()).hexdigest()[:16]
    assert (schema.VERSION, made) == (15, "f00c7bc09d872dbf"), (
        "raise VERSION, and say here what it holds"
    )


TRIGGER = "CREATE TRIGGER t AFTER INSERT ON calls BEGIN DELETE FROM calls; END"


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        (TRIGGER, "trigger 't'"),
        ("CREATE VIEW v AS SELECT * FROM jobs", "view 'v'"),
        ("CREATE TABLE more (a)", "table 'more'"),
        (TRIGGER.replace(" t ", " '\x1b[2J' "), r"trigger '\\x1b\[2J'"),
        ("ALTER TABLE jobs ADD COLUMN g AS (abs(id))", "table 'jobs'"),
        ("DROP INDEX jobs_pending", "index 'jobs_pending'"),
    ],
)
def test_what_judgeq_did_not_make_is_refused_by_name(path: Path, statement: str, what: str) -> None:
    execute(path, statement)
    refused(path, rf"run\.db is damaged: its {what}")


@pytest.mark.parametrize(
    "change",
    [
        "sql = replace(sql, 'epoch bigint NOT NULL, holder', 'epoch bigint, holder')",
        "sql = replace(sql, 'gold float8', 'gold float8 DEFAULT 1')",
        "sql = replace(sql, 'state = ''pending''', 'state = ''pending ''')",
        "type = 'table', name = 'calls' WHERE type = 'trigger'",  # that says it is a table
    ],
)
def test_another_definition_is_refused(path: Path, change: str) -> None:
    if "trigger" in change:
        execute(path, TRIGGER)
    execute(path, "PRAGMA writable_schema = ON", f"UPDATE sqlite_master SET {change}")
    refused(path, r"run\.db")


INTEGER = ("'x'", "x'00'", "1.5")
WRONG = {"float8": ("'x'", "x'00'"), "text": ("x'00'",), "bytea": ("'x'", "1")}
"""What SQLite lets stand in a column of this type, and judgeq never writes."""


def columns() -> Iterator[tuple[str, str, Sequence[str]]]:
    """Table, name, and wrong values of each."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        schema.make(connection)
        for kind, table, _ in sorted(schema.objects(connection)):
            if kind == "table":
                for _, name, stored, *_ in connection.execute(f"PRAGMA table_info({table})"):
                    yield table, name, WRONG.get(stored.lower(), INTEGER)


COLUMNS = list(columns())


def damaged(path: Path, table: str, column: str, value: str) -> bool:
    """Put `value` into one row, or all where one isn't enough; False if SQLite refuses."""
    where = f"{column} = (SELECT max({column}) FROM {table}) OR {column} IS NULL"
    try:
        execute(path, f"UPDATE {table} SET {column} = {value} WHERE {where}")
    except sqlite3.IntegrityError:
        return False
    return True


def test_a_cell_of_another_type_is_refused(path: Path) -> None:
    original = path.read_bytes()
    for table, column, wrong in COLUMNS:
        told = rf"run\.db is damaged: the column '{column}' of table '{table}' holds"
        for value in wrong:
            path.write_bytes(original)
            if damaged(path, table, column, value):
                refused(path, told)


COMMANDS = ("resume", "status", "show --write", "evaluate --resamples 10", "export")


def test_every_command_names_the_file(tmp_path: Path, path: Path) -> None:
    assert damaged(path, "jobs", "attempts", "'x'")
    for command in (*COMMANDS, "runs"):
        done = judgeq(tmp_path, *command.split(), expect=0 if command == "runs" else 7)
        said = done.stdout + done.stderr
        assert "run.db is damaged: the column 'attempts' of table 'jobs'" in said


WHOLE = [
    (number, table, name)
    for number, (table, name, wrong) in enumerate(COLUMNS)
    if wrong is INTEGER and (name != "run" or table == "jobs")
]


@pytest.mark.parametrize(("number", "table", "column"), WHOLE)
def test_no_number_makes_a_traceback(path: Path, number: int, table: str, column: str) -> None:
    """Each column with a number, read by one of four commands in turn."""
    value = ("-1", "99", "9223372036854775807")[number % 3]
    if damaged(path, table, column, value):
        ended(path.parents[2], *COMMANDS[number // 3 % 4].split())


@pytest.mark.parametrize("cost", ["9e999", "1.7e308"])
def test_costs_that_add_up_to_no_number_are_refused(tmp_path: Path, path: Path, cost: str) -> None:
    execute(path, f"UPDATE calls SET cost = {cost}")
    assert "dollars: inf of " in judgeq(tmp_path, "status", expect=7).stderr


MODEL = ("--judge", "m", "--price", "1,10", "--no-cache")
RUN = ("run", "-d", "demo", "--sample", "20", "-s", "pairwise3", "--quiet", *MODEL)
DAMAGE = [
    ("DELETE FROM verdicts WHERE job = 7", "answered questions with a verdict: 29 of 30"),
    ("UPDATE jobs SET state = 'pending' WHERE id = 7", "verdicts: 30 of 29"),
    (
        "UPDATE verdicts SET ranking = CAST(CASE job WHEN 7 THEN ranking || x'00000000' "
        "ELSE substr(ranking, 5) END AS BLOB) WHERE job IN (7, 8)",
        "verdicts that can't be: 2 of 0",
    ),
    ("DELETE FROM jobs WHERE id = 7", "questions: 29 of 30; verdicts: 30 of 29"),
    ("DELETE FROM rounds WHERE round = 2", "questions: 30 of 20"),
    ("DELETE FROM calls WHERE id <= 10", "calls: 20 of 30; calls of attempts"),
    ("UPDATE calls SET cost = 0 WHERE id = 7", "dollars: 0.0"),
    ("UPDATE calls SET output = 0", "tokens: "),
    ("UPDATE jobs SET open = 1 WHERE id = 7", "calls of attempts that ended: 30 of 29"),
    ("DELETE FROM workers", "calls: 30 of 0; tokens: "),
    ("UPDATE jobs SET at_risk = 7 WHERE id = 7", "nano-dollars at risk: 7 of 0"),
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run."""
    folder = tmp_path_factory.mktemp("damage")
    with mock(folder) as url:
        judgeq(folder, *RUN, "--base-url", url)
    return folder


@pytest.fixture
def run(finished: Path) -> Iterator[Path]:
    """That run, which may be damaged."""
    run = only_run(finished)
    whole = shutil.copytree(run, finished / "whole")
    yield run
    shutil.rmtree(run)
    whole.rename(run)


@pytest.mark.parametrize(("statement", "what"), DAMAGE, ids=[each for each, _ in DAMAGE])
def test_a_run_that_does_not_add_up_is_refused(
    finished: Path, run: Path, statement: str, what: str
) -> None:
    execute(run / "run.db", statement)
    before = {name: (run / name).read_bytes() for name in ("run.db", "scores.csv")}
    for command in (("resume",), ("show", "--write")):
        told = judgeq(finished, *command, expect=7).stderr
        assert f"run.db is damaged, and doesn't add up: {what}" in told
        assert "Restore a backup; or begin beside it with --new" in told
    assert {name: (run / name).read_bytes() for name in before} == before


def test_a_store_that_does_not_add_up_is_refused_too(finished: Path, tmp_path: Path) -> None:
    store = new_store()
    judgeq(finished, "store", "copy", "last", "--to", store)
    where = ("last", "--store", store, "--runs-dir", tmp_path)
    judgeq(finished, "status", *where)
    execute_in(store, "DELETE FROM @.verdicts WHERE job = 7")
    for command in ("status", "resume"):
        told = judgeq(finished, command, *where, expect=7).stderr
        assert "answered questions with a verdict: 29 of 30" in told
