"""Is a run's database what judgeq wrote? Its schema to the last object, and the type of every cell.

A run's file may be a stranger's. A trigger in it would run with our statements, and SQLite puts any
value into any column: text in `attempts`, a blob in `cost`.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from judgeq.datasets.tables import shown
from judgeq.errors import RunError
from judgeq.store import schema

Object = tuple[str, str, tuple[str, ...]]
"""One of the schema's objects: its type, its name, and the tokens of the SQL that made it (none of an
index that SQLite made by itself)."""

_TOKEN = re.compile(r"'[^']*'|\"[^\"]*\"|\w+|[^\s\w]")
_STORED = {"INTEGER": "integer", "REAL": "real", "TEXT": "text", "BLOB": "blob"}


def objects(connection: sqlite3.Connection) -> list[Object]:
    """All that a database's schema holds. White space is nothing."""
    rows = connection.execute("SELECT type, name, sql FROM sqlite_master")
    return [(str(kind), str(name), tuple(_TOKEN.findall(sql or ""))) for kind, name, sql in rows]


def expected() -> list[Object]:
    """What the schema holds, as judgeq makes it."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        schema.make(connection)
        return objects(connection)


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise RunError unless schema and cells are such as judgeq writes.

    Reads every table once, but not the long texts in it.
    """
    ours = expected()
    _check_schema(objects(connection), ours, path)
    for kind, name, _ in ours:
        if kind == "table":
            _check_cells(connection, name, path)


def _check_schema(there: list[Object], ours: list[Object], path: Path) -> None:
    missing = {(kind, name): sql for kind, name, sql in ours}
    for kind, name, sql in there:
        what = f"{kind[:20]} {shown(name)}"
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
        stored = f"typeof({column}) <> '{_STORED[kind]}'"
        yield column, stored if not_null else f"({column} IS NOT NULL AND {stored})"
