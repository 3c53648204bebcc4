"""The SQLite schema of a run, and how an older one is brought up to date.

`user_version` carries the version and `application_id` says whose file it is. To change the schema,
add a function to MIGRATIONS and raise VERSION; never edit an old one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path

from judgeq.errors import RunError

APPLICATION_ID = 0x6A716462  # "jqdb"
VERSION = 3

# No STRICT, RETURNING and the like: clusters run Python 3.11 over SQLite 3.26.
# Row numbers and ratings are little-endian int32 and float64 in blobs; `ties` is one byte a slot.
# Of a job's attempts, `open` have no outcome yet. Those without a known cost, open or not, may have
# cost `at_risk` nano-dollars more, and `unbounded` of them an unknown amount. Of several judges
# `judge` is the one that is asked.
SCHEMA = """
CREATE TABLE lead (id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL,
                   holder TEXT NOT NULL, until REAL NOT NULL);
CREATE TABLE items (row INTEGER PRIMARY KEY, id TEXT NOT NULL, gold REAL);
CREATE TABLE subsets (name TEXT NOT NULL, row INTEGER NOT NULL,
                      PRIMARY KEY (name, row)) WITHOUT ROWID;
CREATE TABLE rounds (round INTEGER PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL,
                     epoch INTEGER NOT NULL, ratings BLOB NOT NULL);
CREATE TABLE jobs (id INTEGER PRIMARY KEY, items BLOB NOT NULL,
                   state TEXT NOT NULL DEFAULT 'pending',
                   attempts INTEGER NOT NULL DEFAULT 0, unusable INTEGER NOT NULL DEFAULT 0,
                   worker TEXT, lease REAL, error TEXT,
                   open INTEGER NOT NULL DEFAULT 0, at_risk INTEGER NOT NULL DEFAULT 0,
                   unbounded INTEGER NOT NULL DEFAULT 0, judge INTEGER NOT NULL DEFAULT 0);
CREATE INDEX jobs_pending ON jobs (id) WHERE state = 'pending';
CREATE TABLE calls (id INTEGER PRIMARY KEY, job INTEGER NOT NULL, attempt INTEGER NOT NULL,
                    outcome TEXT NOT NULL, input INTEGER NOT NULL, cached INTEGER NOT NULL,
                    output INTEGER NOT NULL, reasoning INTEGER NOT NULL, cost REAL,
                    latency REAL NOT NULL, reply TEXT, at REAL NOT NULL);
CREATE TABLE verdicts (job INTEGER PRIMARY KEY, ranking BLOB NOT NULL, ties BLOB,
                       score REAL);
CREATE TABLE buckets (name TEXT PRIMARY KEY, requests_a_minute REAL NOT NULL,
                      tokens_a_minute REAL NOT NULL, requests REAL NOT NULL, tokens REAL NOT NULL,
                      at REAL NOT NULL);
"""


def _count_open_attempts(connection: sqlite3.Connection) -> None:
    """1 → 2. Version 1 knew only the simulated judge, which costs nothing."""
    for column in ("open", "at_risk", "unbounded"):
        connection.execute(f"ALTER TABLE jobs ADD COLUMN {column} INTEGER NOT NULL DEFAULT 0")
    connection.execute("CREATE TEMP TABLE answered (job INTEGER PRIMARY KEY, calls INTEGER)")
    connection.execute("INSERT INTO answered SELECT job, count(*) FROM calls GROUP BY job")
    connection.execute(
        "UPDATE jobs SET open = max(0, attempts - coalesce("
        "(SELECT calls FROM answered WHERE answered.job = jobs.id), 0)) WHERE attempts > 0"
    )
    connection.execute("DROP TABLE answered")


def _add_scores_and_judges(connection: sqlite3.Connection) -> None:
    """2 → 3. There was one judge, and no text was judged alone."""
    connection.execute("ALTER TABLE jobs ADD COLUMN judge INTEGER NOT NULL DEFAULT 0")
    connection.execute("ALTER TABLE verdicts ADD COLUMN score REAL")


MIGRATIONS: Mapping[int, Callable[[sqlite3.Connection], None]] = {
    1: _count_open_attempts,
    2: _add_scores_and_judges,
}
"""From version v to v + 1."""


def is_empty(connection: sqlite3.Connection) -> bool:
    """Whether nothing was written into the file yet."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return bool(version == tables == 0)


def prepare(connection: sqlite3.Connection) -> None:
    """Make the schema in an empty file, or migrate an older one, in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if is_empty(connection):
            for statement in SCHEMA.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        else:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            for old in range(version, VERSION):
                MIGRATIONS[old](connection)
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def check(connection: sqlite3.Connection, path: Path, oldest: int) -> None:
    """Raise RunError unless the file is a run's, of a version from `oldest` to VERSION."""
    if is_empty(connection):
        raise RunError(f"{path} is empty: the run was never begun.")
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION_ID:
        raise RunError(f"{path} is no judgeq run: it is another program's SQLite file.")
    if version > VERSION:
        raise RunError(
            f"{path} has schema version {version}, and this judgeq knows only up to {VERSION}: it "
            "was made by a newer judgeq. Upgrade judgeq to go on with it; nothing was changed."
        )
    if version < oldest:
        raise RunError(
            f"{path} has schema version {version}, and this judgeq reads {VERSION}: "
            "`judgeq resume` brings it up to date; nothing was changed."
        )
