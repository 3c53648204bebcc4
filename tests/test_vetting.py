"""A run's record that judgeq didn't write, or that doesn't add up: refused by name, whatever is done
with the run."""

import asyncio
import hashlib
import json
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from judgeq.errors import RunError
from judgeq.store import rows, schema
from judgeq.store.sqlite import SqliteStore
from judgeq.types import Batch, Line
from tests.cli import ended, execute, judgeq, only_run
from tests.mock import mock
from tests.postgres import new_store, sql
from tests.test_store import LEASE, Place, answer, begun, claimed
from tests.test_store import place as place  # noqa: PLC0414  (a fixture)
from tests.test_store_sqlite import refused

pytestmark = pytest.mark.usefixtures("rated_by_elo")
SMALL = ("run", "--dataset", "synthetic:normal", "--n", "20", "-s", "listwise5x3", "--quiet")


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
        "1, 1, 0, 1, 1, 1, 1, 'e', NULL, NULL, 0, zeroblob(20))",
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
    assert (schema.VERSION, made) == (17, "e68cec68bc7455e6"), (
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


def line(job: int = 2, bound: object = 0.5, size: int = 1) -> str:
    """The line of a batch, as it is kept."""
    return f"x'{json.dumps([[job, bound, size]]).encode().hex()}'"


READS: dict[tuple[Any, ...], Sequence[str]] = {
    ("items",): (
        *("DELETE FROM @.items WHERE row > 1", "DELETE FROM @.items WHERE row = 0"),
        "UPDATE @.items SET row = row + 7 WHERE row > 2",
        "INSERT INTO @.subsets SELECT run, 'x', x'ffffff00' FROM @.runs",
    ),
    ("verdicts",): (
        *(f"UPDATE @.verdicts SET ranking = {ranking} WHERE job = 0" for ranking in (
            *("x''", "x'01000000'", "x'0000000000000000'", "x'0000000002000000'"),
            "substr(ranking, 1, 6)",
        )),
        # The last is of two, in no known order.
        *(f"UPDATE @.verdicts SET ties = x'{ties}'" for ties in (
            *("01", "0100", "000100", "0003", "0002"),
        )),
        *("UPDATE @.verdicts SET score = 7", "UPDATE @.rounds SET last = -1"),
        "UPDATE @.jobs SET items = x'' WHERE id = 0",
        *("UPDATE @.calls SET cost = 'nan'", "UPDATE @.calls SET cost = 'infinity'"),
    ),
    ("left", 1): (
        "UPDATE @.jobs SET judge = -1",
        *(f"UPDATE @.jobs SET items = x'{items}' WHERE id = 3" for items in (
            *("", "000000", "0000000000000000", "0000000006000000", "00000000ffffffff"),
        )),
    ),
    ("counts",): ("UPDATE @.jobs SET state = 'odd' WHERE id = 0",),
    ("active", 1): ("UPDATE @.rounds SET active = x'0000'",),
    ("batches",): (
        *(f"UPDATE @.workers SET {what} WHERE name = 'b'" for what in (
            *("name = '../b'", f"name = '{'x' * 65}'", "name = 'b\x1b[m'"),
            *("until = 1e9", "seen = 1e300"),
        )),
        *(f"UPDATE @.batches SET {what}" for what in (
            *("judge = -1", "jobs = -1", "total = -1", "answered = -1", "state = 'odd'"),
            *("made = 'nan'", "made = -1.0", "seen = 'infinity'", "expires = -1.0"),
            *("cost = -1.0", "tokens = -1.0", "reserved = 1e301", "worker = worker + 1"),
        )),
    ),
    ("lines", "b"): tuple(f"UPDATE @.batches SET sent = {sent}" for sent in (
        *("x''", "substr(sent, 1, 9)", line(job=1), line(size=-1)),
        *(line(bound=-2), line(bound=float("inf")), line(bound="x")),
    )),
}  # fmt: skip
"""What a store is asked, and changes that it is to notice."""


@pytest.mark.parametrize(
    ("change", "read"), [(change, read) for read, some in READS.items() for change in some]
)
async def test_a_row_that_can_not_be_is_refused(
    place: Place, change: str, read: tuple[Any, ...]
) -> None:
    async with place.open() as store:
        await begun(store, 4)
        await claimed(store, "a", 2)
        await store.settle("a", [answer(0, 1, 0), answer(1, 1, 2)])
        batch = Batch("b", 0, "openai", "h", "schema", 1.0, 1, 0.5, 1.0)
        (job,) = await store.claim("a", 1, LEASE)
        await store.hand_over("a", batch, [Line(job, 0.5, 1)])
    place.change(change)

    async def opened_and_read() -> None:
        async with place.open() as store:
            schema.refuse("the run", *await store._read(schema.ADDED_UP))
            await getattr(store, read[0])(*read[1:])

    with pytest.raises(RunError, match="damaged"):
        await opened_and_read()


@pytest.mark.parametrize("ties", ["00020002", "00020100", "00020001", "00010202", "00020202"])
def test_partial_rankings_that_can_not_be(ties: str) -> None:
    """Two groups of no known order, one beside a tie, or nothing else."""
    four = np.arange(4, dtype="<i4").tobytes()
    row = [0, four, bytes.fromhex(ties), four, None, 0, 1]
    with pytest.raises(ValueError, match="partial ranking"):
        rows.verdicts([row], 4)
    with pytest.raises(ValueError, match="an item that isn't there"):
        rows.verdicts([[*row[:2], bytes(4), *row[3:]]], 3)


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
    sql(store, "DELETE FROM @.verdicts WHERE job = 7")
    for command in ("status", "resume"):
        told = judgeq(finished, command, *where, expect=7).stderr
        assert "answered questions with a verdict: 29 of 30" in told


DAMAGED_NAME = b"CREATE TA\xffLE"
"""A word of a file's schema that SQLite quotes in its error message, which then isn't UTF-8."""


@pytest.mark.parametrize("command", ["status", "resume", "show", "evaluate"])
def test_a_damage_that_sqlite_quotes_as_bytes_is_refused(path: Path, command: str) -> None:
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE", DAMAGED_NAME))
    done = ended(path.parents[2], command)
    assert done.returncode == 7
    assert r"TA\xffLE" in done.stderr
    assert "The file is damaged or not a judgeq run" in " ".join(done.stderr.split())


JUDGED_BY_TWO = (
    *("-d", "demo", "--sample", "20", "-s", "listwise5x1", "--price", "1,2"),
    *("--judge", "m", "--judge", "n"),
)


def test_an_answer_of_a_judge_that_the_run_does_not_have_is_refused(tmp_path: Path) -> None:
    with mock(tmp_path) as url:
        words = (*JUDGED_BY_TWO, "--base-url", url)
        judgeq(tmp_path, "run", *words)
        ledger = only_run(tmp_path) / "run.db"
        execute(ledger, "UPDATE jobs SET judge = 9 WHERE id = 0")
        commands = (("resume",), ("resume", "--rounds", "2"), ("estimate", *words), ("status",))
        for command in commands:
            done = ended(tmp_path, *command)
            assert done.returncode == 7, command
            assert "damaged: it has an answer of judge 9" in " ".join(done.stderr.split()), command


@pytest.mark.parametrize("command", ["resume", "resume --rounds 4", "show", "evaluate", "report"])
def test_changed_ids_are_refused_also_in_a_finished_run(tmp_path: Path, command: str) -> None:
    judgeq(tmp_path, *SMALL)
    scores_before = (only_run(tmp_path) / "scores.csv").read_bytes()
    execute(only_run(tmp_path) / "run.db", "UPDATE items SET id = 'zz' WHERE row = 0")
    done = ended(tmp_path, *command.split())
    assert done.returncode == 7
    assert "holds other items than the dataset" in " ".join(done.stderr.split())
    assert (only_run(tmp_path) / "scores.csv").read_bytes() == scores_before
