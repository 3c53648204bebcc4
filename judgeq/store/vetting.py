"""Is a run's record what judgeq wrote? A file's version, its schema to the last object, the type of
every cell; and whether what is in it adds up.

A record may be a stranger's. A trigger in a file would run with our statements, and SQLite puts any
value into any column: text in `attempts`, a blob in `cost`. Rows that were removed or changed would
change scores, and what a cap leaves to spend, without a word.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from judgeq.datasets.tables import display
from judgeq.errors import RunError
from judgeq.store import schema

Object = tuple[str, str, str]
"""One of the schema's objects: its type, its name, and the SQL that made it ("" of an index that SQLite
made by itself)."""
_STORED = {"float8": "real", "text": "text", "bytea": "blob"}  # and all others are integers
APPLICATION_ID = 0x6A716462  # "jqdb"
LOST = (
    "the run was begun, and its answers were in this file. Put it back from a backup, or start again "
    "beside it: the same `judgeq run` with --new. Nothing was changed."
)
"""What to do about a ledger that is lost."""
ADDED_UP = (
    *("calls", "questions", "answered questions with a verdict", "verdicts"),
    *("calls of attempts that ended", "tokens", "dollars", "nano-dollars at risk"),
)
"""What statements.ADDED_UP counts: what is there, and what should be."""
_EXACT = 1e-9
"""Sums of the same floats, in whatever order, differ by less, relative to them; and each call's dollars
were rounded up to the nano-dollar."""


def refuse(shown: str, counts: Sequence[float]) -> None:
    """Raise RunError where something doesn't add up in the ledger `shown`, by the one row of
    statements.ADDED_UP."""
    rounding = _EXACT * counts[0]
    damage = [
        f"{name}: {there:,.10g} of {expected:,.10g}"
        for name, there, expected in zip(ADDED_UP, counts[::2], counts[1::2], strict=True)
        if not math.isclose(there, expected, rel_tol=_EXACT, abs_tol=rounding)
    ]
    if damage:
        raise RunError(
            f"{shown} is damaged, and doesn't add up: {'; '.join(damage)}. Something other than judgeq "
            "changed it. Restore a backup; or begin beside it with --new: replies in the cache cost "
            "nothing. Any program that reads the database still reads what is left."
        )


def make(connection: sqlite3.Connection) -> None:
    """Make the tables in an empty database, and the row of its one run, in one transaction."""
    # A file has one run: what is numbered in it is found by its number alone, which is its place.
    words = dict.fromkeys(("{key}", "{counter}", "{number}"), "INTEGER PRIMARY KEY")
    words |= {"@.": "", "{key_of_id}": "", "{key_of_job}": "", "{clustered}": " WITHOUT ROWID"}
    script = schema.TABLES
    for word, ours in words.items():
        script = script.replace(word, ours)
    connection.executescript(
        f"BEGIN IMMEDIATE; {script} "  # noqa: S608
        "INSERT INTO runs (name, fingerprint, info) VALUES ('', '', ''); "
        f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {schema.VERSION}; COMMIT"
    )


def is_empty(connection: sqlite3.Connection) -> bool:
    """Whether nothing was written into the file yet."""
    return not _pragma(connection, "user_version") and not objects(connection)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def objects(connection: sqlite3.Connection) -> set[Object]:
    """All that a database's schema holds."""
    query = "SELECT CAST(type AS text), CAST(name AS text), coalesce(sql, '') FROM sqlite_master"
    return set(connection.execute(query))


def expected() -> set[Object]:
    """What the schema holds, as judgeq makes it."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        make(connection)
        return objects(connection)


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise RunError unless version, schema and cells are such as judgeq writes.

    Reads every table once, but not the long texts in it.
    """
    if is_empty(connection):
        raise RunError(f"{path} is missing or empty: {LOST}")
    version = _pragma(connection, "user_version")
    if _pragma(connection, "application_id") != APPLICATION_ID or version < 1:
        raise RunError(f"{path} is no judgeq run: it is another program's SQLite file.")
    if version != schema.VERSION:
        raise RunError(
            f"{path} has schema version {version}, and this judgeq writes version {schema.VERSION}: "
            "continue it with the judgeq that made it, or begin anew with --new. Nothing was changed."
        )
    ours = expected()
    for kind, name, _ in sorted(objects(connection) ^ ours):
        raise RunError(
            f"{path} is damaged: its {kind[:20]} {display(name)} differs from what judgeq makes, and "
            "might change the run. Put back a copy of the file that nothing else wrote to; nothing was "
            "changed."
        )
    for kind, table, _ in ours:
        if kind == "table":
            _check_cells(connection, table, path)


def _check_cells(connection: sqlite3.Connection, table: str, path: Path) -> None:
    # All names are of the schema, which was checked.
    wrong = {}
    for _, column, kind, not_null, *_ in connection.execute(f"PRAGMA table_info({table})"):
        stored = f"typeof({column}) <> '{_STORED.get(kind.lower(), 'integer')}'"
        wrong[column] = stored if not_null else f"({column} IS NOT NULL AND {stored})"
    conditions = wrong.values()
    query = f"SELECT {', '.join(conditions)} FROM {table} WHERE {' OR '.join(conditions)} LIMIT 1"  # noqa: S608
    for column, is_wrong in zip(wrong, connection.execute(query).fetchone() or (), strict=False):
        if is_wrong:
            raise RunError(
                f"{path} is damaged: the column {column!r} of table {table!r} holds a value of a type "
                "that judgeq never writes there. Put back a copy of the file, if there is one; nothing "
                "was changed."
            )
