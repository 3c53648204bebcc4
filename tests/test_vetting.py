"""A run's database that judgeq didn't write: refused by name, whatever is done with the run."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from judgeq import run_places
from judgeq.errors import RunError
from judgeq.store import schema, vetting
from judgeq.store.sqlite import SqliteStore, damage_of
from tests.cli import ended, judgeq, only_run

SMALL = ("run", "--dataset", "synthetic:normal", "--n", "20", "-s", "listwise5x3", "--quiet")


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def refused(path: Path, match: str) -> None:
    """Nobody opens it, and it stays as it was."""
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(RunError, match=match):
            SqliteStore(path, read_only=read_only)
    assert path.read_bytes() == before


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one run that was stopped: some jobs are done, one is pending, one failed."""
    folder = tmp_path_factory.mktemp("vetting")
    judgeq(folder, *SMALL)
    run = only_run(folder)
    execute(
        run / "run.db",
        "UPDATE jobs SET state = 'pending', attempts = 1, open = 1, error = 'x' WHERE id = 3",
        "DELETE FROM verdicts WHERE job = 3",
        "INSERT INTO subsets VALUES (1, 's', x'0000000001000000')",
        "INSERT INTO workers (worker, run, name, until) VALUES (2, 1, 'b', 9e999)",
        "INSERT INTO batches VALUES (1, 2, 0, 'openai', 'h', 'f', 1, 1, 1, 1, 'collected', 'r', 's', "
        "1, 1, 0, 1, 1, 1, 1, 'e', zeroblob(20))",
        "UPDATE calls SET answered_by = 1",
        "UPDATE jobs SET attempts = open",  # all is people's, but the one that is pending
        "UPDATE verdicts SET answered_by = 1",
        "INSERT INTO people VALUES (1, 0, 'Ann', zeroblob(32), 60, 'active', 1.0)",
        "INSERT INTO handed VALUES (1, 0, 'l', 1.0, 3, 1)",
        "INSERT INTO checks SELECT 1, 0, items, 0, 1, items, 'l', items, zeroblob(length(items) / 4), "
        "NULL, 1.0, 1.0 FROM jobs WHERE id = 1",
    )
    with closing(sqlite3.connect(run / "run.db")) as connection:
        assert not damage_of(connection)
    return folder


@pytest.fixture
def path(folder: Path, tmp_path: Path) -> Path:
    """The database of a copy of that run."""
    (run,) = run_places.FolderRuns(folder / "runs").all()
    shutil.copytree(run.path, tmp_path / "runs" / run.id)
    return tmp_path / "runs" / run.id / "run.db"


# The schema


def test_a_changed_schema_has_another_version() -> None:
    made = hashlib.sha256(repr(sorted(vetting.expected())).encode()).hexdigest()[:16]
    assert (schema.VERSION, made) == (10, "afe9f7e6eb3899e2"), (
        "raise VERSION, and say here what it holds"
    )


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("CREATE TRIGGER t AFTER INSERT ON calls BEGIN DELETE FROM calls; END", "trigger 't'"),
        ("CREATE VIEW v AS SELECT * FROM jobs", "view 'v'"),
        ("CREATE TABLE more (a)", "table 'more'"),
        ("CREATE INDEX i ON calls (job)", "index 'i'"),
        ("CREATE VIRTUAL TABLE f USING fts5(a)", "table 'f"),
        ("CREATE TRIGGER '\x1b[2J' AFTER INSERT ON calls BEGIN SELECT 1; END", r"'\\x1b\[2J'"),
        ("ANALYZE", "table 'sqlite_stat1'"),
        ("ALTER TABLE jobs ADD COLUMN more INTEGER", "its table 'jobs' differs"),
        ("ALTER TABLE jobs ADD COLUMN g AS (abs(id))", "its table 'jobs' differs"),
        ("DROP INDEX jobs_pending", "index 'jobs_pending'"),
        ("DROP TABLE calls", "(index|table) 'calls"),
    ],
)
def test_what_judgeq_did_not_make_is_refused_by_name(path: Path, statement: str, what: str) -> None:
    execute(path, statement)
    refused(path, rf"run\.db is .*{what}")


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        ("epoch bigint NOT NULL, holder", "epoch bigint, holder", "table 'lead'"),
        ("gold float8", "gold float8 DEFAULT 1", "table 'items'"),
        ("gold float8", "gold float8 CHECK (gold > 0)", "table 'items'"),
        ("state = 'pending'", "state = 'pending '", "index 'jobs_pending'"),
    ],
)
def test_another_definition_is_refused(path: Path, before: str, after: str, what: str) -> None:
    quoted = [text.replace("'", "''") for text in (before, after)]
    execute(
        path,
        "PRAGMA writable_schema = ON",
        f"UPDATE sqlite_master SET sql = replace(sql, '{quoted[0]}', '{quoted[1]}')",
    )
    refused(path, rf"run\.db is damaged: its {what} differs")


def test_a_trigger_that_says_it_is_a_table_is_refused(path: Path) -> None:
    execute(
        path,
        "CREATE TRIGGER t AFTER INSERT ON calls BEGIN DELETE FROM calls; END",
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET type = 'table', name = 'calls' WHERE type = 'trigger'",
    )
    refused(path, r"run\.db")


# The cells


def columns() -> Iterator[tuple[str, str, str]]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        vetting.make(connection)
        for kind, table, _ in sorted(vetting.objects(connection)):
            if kind == "table":
                for _, name, stored, *_ in connection.execute(f"PRAGMA table_info({table})"):
                    yield table, name, KINDS.get(stored.lower(), "integer")


KINDS = {"float8": "real", "text": "text", "bytea": "blob"}
COLUMNS = list(columns())
WRONG = {
    "integer": ("'x'", "x'00'", "1.5", "1e300"),
    "real": ("'x'", "x'00'"),
    "text": ("x'00'",),
    "blob": ("'x'", "1", "1.5"),
}
"""What SQLite lets stand in a column of this type, and judgeq never writes."""


def damaged(path: Path, table: str, column: str, value: str) -> bool:
    """Put `value` into one row, or all where one isn't enough; False if SQLite refuses."""
    try:
        execute(
            path,
            f"UPDATE {table} SET {column} = {value} WHERE {column} = (SELECT max({column}) FROM {table})"
            f" OR {column} IS NULL",
        )
    except sqlite3.IntegrityError:
        return False
    return True


@pytest.mark.parametrize(("table", "column", "stored"), COLUMNS)
def test_a_cell_of_another_type_is_refused(
    path: Path, table: str, column: str, stored: str
) -> None:
    original = path.read_bytes()
    for value in WRONG[stored]:
        path.write_bytes(original)
        if damaged(path, table, column, value):
            refused(path, rf"run\.db is damaged: the column '{column}' of table '{table}' holds a")


COMMANDS: list[Callable[[str], list[str]]] = [
    lambda run: ["resume", run],
    lambda run: ["resume", run, "--retry-failed"],
    lambda run: ["status", run],
    lambda run: ["status", run, "--json"],
    lambda run: ["show", run, "--write"],
    lambda run: ["evaluate", run, "--resamples", "10"],
    lambda run: ["compare", run, run, "--resamples", "10"],
    lambda run: ["export", run],
    lambda run: ["runs"],
]


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("jobs", "attempts", "'x'"),
        ("jobs", "unusable", "'x'"),
        ("jobs", "open", "x'00'"),
        ("jobs", "at_risk", "'1'"),
        ("rounds", "first", "'x'"),
        ("rounds", "last", "1.5"),
        ("calls", "cost", "'x'"),
        ("items", "id", "x'00'"),
    ],
)
def test_every_command_names_the_file(
    tmp_path: Path, path: Path, table: str, column: str, value: str
) -> None:
    original = path.read_bytes()
    if value == "'1'":  # which the column's affinity would make a number
        value = "'1x'"
    assert damaged(path, table, column, value)
    for command in COMMANDS:
        arguments = command(path.parent.name)
        done = judgeq(tmp_path, *arguments, expect=0 if arguments[0] == "runs" else 7)
        said = done.stdout + done.stderr
        assert f"run.db is damaged: the column '{column}' of table '{table}'" in said
    path.write_bytes(original)


NUMBERS = ("-1", "99", "9223372036854775807")
WHOLE = [
    (number, table, name)
    for number, (table, name, stored) in enumerate(COLUMNS)
    if stored == "integer" and (name != "run" or table == "jobs")
]


@pytest.mark.parametrize(("number", "table", "column"), WHOLE)
def test_no_number_makes_a_traceback(
    tmp_path: Path, path: Path, number: int, table: str, column: str
) -> None:
    """Each column with each number, read by one of four commands in turn: by all of them takes a
    minute."""
    original = path.read_bytes()
    commands = COMMANDS[:1] + COMMANDS[2:3] + COMMANDS[4:6]
    for turn, value in enumerate(NUMBERS):
        path.write_bytes(original)
        if damaged(path, table, column, value):
            ended(tmp_path, *commands[(number + turn) % 4](path.parent.name))


@pytest.mark.parametrize("epoch", [-1, 2**62, 2**63 - 1])
def test_an_epoch_after_which_none_can_come_is_damage(
    tmp_path: Path, path: Path, epoch: int
) -> None:
    execute(path, f"UPDATE lead SET epoch = {epoch}")
    done = judgeq(tmp_path, "resume", path.parent.name, expect=7)
    assert "run.db is damaged: a number of who led last can't be." in done.stderr


@pytest.mark.parametrize("cost", ["9e999", "1.7e308"])
def test_costs_that_add_up_to_no_number_are_refused(tmp_path: Path, path: Path, cost: str) -> None:
    execute(path, f"UPDATE calls SET cost = {cost}")
    for command in COMMANDS[:4]:
        done = judgeq(tmp_path, *command(path.parent.name), expect=7)
        assert "dollars: inf of " in done.stderr
    accepted = judgeq(tmp_path, "show", "--write", path.parent.name, "--accept-damage", expect=7)
    assert "run.db is damaged: the costs of its calls add up to inf." in accepted.stderr
