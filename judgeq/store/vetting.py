"""Is a run's file what judgeq wrote? Its version, its schema to the last object, the type of every cell.

A run's file may be a stranger's. A trigger in it would run with our statements, and SQLite puts any
value into any column: text in `attempts`, a blob in `cost`.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from judgeq.datasets.tables import display
from judgeq.errors import RunError
from judgeq.store import schema

Object = tuple[str, str, tuple[str, ...]]
"""One of the schema's objects: its type, its name, and the tokens of the SQL that made it (none of an
index that SQLite made by itself)."""

_TOKEN = re.compile(r"'[^']*'|\"[^\"]*\"|\w+|[^\s\w]")
_STORED = {"float8": "real", "text": "text", "bytea": "blob"}  # and all others are integers
APPLICATION_ID = 0x6A716462  # "jqdb"
LOST = (
    "the run was begun, and its answers were in this file. Put it back from a backup, or start again "
    "beside it: the same `judgeq run` with --new. Nothing was changed."
)
"""What to do about a ledger that is lost."""


def make(connection: sqlite3.Connection) -> None:
    """Make the tables in an empty database, and the row of its one run, in one transaction."""
    # A file has one run: what is numbered in it is found by its number alone, which is its place.
    words = dict.fromkeys(("{key}", "{counter}", "{number}"), "INTEGER PRIMARY KEY")
    words |= {"{key_of_id}": "", "{key_of_job}": "", "{clustered}": " WITHOUT ROWID"}
    script = schema.TABLES.replace("@.", "")
    for word, ours in words.items():
        script = script.replace(word, ours)
    connection.executescript(
        f"BEGIN IMMEDIATE; {script} "  # noqa: S608
        "INSERT INTO runs (name, fingerprint, info) VALUES ('', '', ''); "
        f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {schema.VERSION}; COMMIT"
    )


def is_empty(connection: sqlite3.Connection) -> bool:
    """Whether nothing was written into the file yet."""
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return bool(_version(connection) == tables == 0)


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def objects(connection: sqlite3.Connection) -> list[Object]:
    """All that a database's schema holds. White space is nothing."""
    rows = connection.execute("SELECT type, name, sql FROM sqlite_master")
    return [(str(kind), str(name), tuple(_TOKEN.findall(sql or ""))) for kind, name, sql in rows]


def expected() -> list[Object]:
    """What the schema holds, as judgeq makes it."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        make(connection)
        return objects(connection)


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise RunError unless version, schema and cells are such as judgeq writes.

    Reads every table once, but not the long texts in it.
    """
    _check_version(connection, path)
    ours = expected()
    _check_schema(objects(connection), ours, path)
    for kind, name, _ in ours:
        if kind == "table":
            _check_cells(connection, name, path)


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    if is_empty(connection):
        raise RunError(f"{path} is empty: {LOST}")
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = _version(connection)
    if application != APPLICATION_ID or version < 1:
        raise RunError(f"{path} is no judgeq run: it is another program's SQLite file.")
    if version != schema.VERSION:
        raise RunError(
            f"{path} has schema version {version}, and this judgeq writes version {schema.VERSION}: "
            "continue it with the judgeq that made it, or begin anew with --new. Nothing was changed."
        )


def _check_schema(there: list[Object], ours: list[Object], path: Path) -> None:
    missing = {(kind, name): sql for kind, name, sql in ours}
    for kind, name, sql in there:
        what = f"{kind[:20]} {display(name)}"
        if (kind, name) not in missing:
            raise RunError(
                f"{path} is refused: it holds a {what}, which judgeq didn't make and which might "
                "change the run. If it is yours, remove it with SQLite's DROP; nothing was changed."
            )
        if sql != missing.pop((kind, name)):
            raise RunError(
                f"{path} is refused: its {what} isn't defined as judgeq defines it, and might change "
                "the run. Put back a copy of the file that nothing else wrote to; nothing was "
                "changed."
            )
    for kind, name in missing:
        raise RunError(f"{path} is damaged: it has no {kind} {name!r}. Nothing was changed.")


def _check_cells(connection: sqlite3.Connection, table: str, path: Path) -> None:
    # All names are of the schema, which was checked.
    wrong = dict(_wrong(connection, table))
    one = f"FROM {table} WHERE {' OR '.join(wrong.values())} LIMIT 1"
    if connection.execute(f"SELECT 1 {one}").fetchone() is None:
        return
    for column, condition in wrong.items():
        one = f"FROM {table} WHERE {condition} LIMIT 1"
        row = connection.execute(f"SELECT typeof({column}) {one}").fetchone()
        if row is not None:
            raise RunError(
                f"{path} is damaged: the column {column!r} of table {table!r} holds a value of type "
                f"{row[0]}, which judgeq never writes there. Put back a copy of the file, if there "
                "is one; nothing was changed."
            )


def _wrong(connection: sqlite3.Connection, table: str) -> Iterator[tuple[str, str]]:
    """Each column, and the condition under which it holds what it can't."""
    for _, column, kind, not_null, *_ in connection.execute(f"PRAGMA table_info({table})"):
        stored = f"typeof({column}) <> '{_STORED.get(kind.lower(), 'integer')}'"
        yield column, stored if not_null else f"({column} IS NOT NULL AND {stored})"
