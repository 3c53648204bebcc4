"""The SQLite schema of a run.

`user_version` carries its version, `application_id` says whose file it is. Whoever changes SCHEMA raises
VERSION: a file of another version is refused.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from judgeq.errors import RunError

LOST = (
    "the run was begun, and its answers were in this file. Put it back from a backup, or start again "
    "beside it: the same `judgeq run` with --new. Nothing was changed."
)
"""What to do about a ledger that is lost."""
TOTAL = """
INSERT INTO totals SELECT 1, count(*), total(input + cached + output + reasoning), total(cost) FROM calls
"""
"""Adds up all calls that there are."""
APPLICATION_ID = 0x6A716462  # "jqdb"
VERSION = 8

# No STRICT, RETURNING and the like: clusters run Python 3.11 over SQLite 3.26.
# Row numbers and ratings are little-endian int32 and float64 in blobs; `ties` is one byte a slot:
# 1 for a tie with the one before it, 2 where the order of the two isn't known.
# Of a job's attempts, `open` have no outcome yet. Those without a known cost, open or not, may have
# cost `at_risk` nano-dollars more, and `unbounded` of them an unknown amount. Of several judges
# `judge` is the one that is asked; `repeat` counts the jobs before it that ask it the same. `ordered`
# is 0 where the order presented isn't known (an import may say so). `active` of a round says which
# items could be asked about in it, one bit an item, the first in the lowest bit.
# A batch is a worker that never dies: a running job whose `worker` is a batch's name has no lease, and
# is nobody else's before it is settled. `sent` are its lines, packed (batches.py).
# A person's question is handed out by `handed`, and its job stays pending until it is answered.
# `answered_by` of a call or a verdict is the person who gave it, among all judges. A check is no job:
# nothing waits for it, and no score knows it; one without a person is a known answer to ask for.
# `totals` is what all calls add up to, kept in the transactions that write them: a call that was removed
# or changed afterwards is missed (vetting.py).
SCHEMA = """
CREATE TABLE lead (id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL,
                   holder TEXT NOT NULL, until REAL NOT NULL);
CREATE TABLE items (row INTEGER PRIMARY KEY, id TEXT NOT NULL, gold REAL);
CREATE TABLE subsets (name TEXT NOT NULL, row INTEGER NOT NULL,
                      PRIMARY KEY (name, row)) WITHOUT ROWID;
CREATE TABLE rounds (round INTEGER PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL,
                     epoch INTEGER NOT NULL, ratings BLOB NOT NULL,
                     active BLOB NOT NULL);
CREATE TABLE jobs (id INTEGER PRIMARY KEY, items BLOB NOT NULL,
                   state TEXT NOT NULL DEFAULT 'pending',
                   attempts INTEGER NOT NULL DEFAULT 0, unusable INTEGER NOT NULL DEFAULT 0,
                   worker TEXT, lease REAL, error TEXT,
                   open INTEGER NOT NULL DEFAULT 0, at_risk INTEGER NOT NULL DEFAULT 0,
                   unbounded INTEGER NOT NULL DEFAULT 0, judge INTEGER NOT NULL DEFAULT 0,
                   ordered INTEGER NOT NULL DEFAULT 1, repeat INTEGER NOT NULL DEFAULT 0);
CREATE INDEX jobs_pending ON jobs (id) WHERE state = 'pending';
CREATE TABLE calls (id INTEGER PRIMARY KEY, job INTEGER NOT NULL, attempt INTEGER NOT NULL,
                    outcome TEXT NOT NULL, input INTEGER NOT NULL, cached INTEGER NOT NULL,
                    output INTEGER NOT NULL, reasoning INTEGER NOT NULL, cost REAL,
                    latency REAL NOT NULL, reply TEXT, at REAL NOT NULL, answered_by INTEGER);
CREATE TABLE verdicts (job INTEGER PRIMARY KEY, ranking BLOB NOT NULL, ties BLOB,
                       score REAL, answered_by INTEGER);
CREATE TABLE batches (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, judge INTEGER NOT NULL,
                      api TEXT NOT NULL, address TEXT NOT NULL, form TEXT NOT NULL,
                      made REAL NOT NULL,
                      jobs INTEGER NOT NULL, reserved REAL, tokens REAL NOT NULL,
                      state TEXT NOT NULL, remote TEXT, status TEXT NOT NULL,
                      total INTEGER NOT NULL, done INTEGER NOT NULL, failed INTEGER NOT NULL,
                      seen REAL, expires REAL, cost REAL NOT NULL, answered INTEGER NOT NULL,
                      error TEXT, sent BLOB NOT NULL);
CREATE TABLE people (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, token BLOB NOT NULL UNIQUE,
                     quota INTEGER, state TEXT NOT NULL, since REAL NOT NULL);
CREATE TABLE handed (person INTEGER PRIMARY KEY, lease TEXT NOT NULL, at REAL NOT NULL,
                     job INTEGER UNIQUE, checking INTEGER UNIQUE);
CREATE TABLE checks (number INTEGER PRIMARY KEY, items BLOB NOT NULL, person INTEGER, repeats INTEGER,
                     known BLOB NOT NULL, lease TEXT NOT NULL, ranking BLOB, ties BLOB, score REAL,
                     seconds REAL NOT NULL, at REAL NOT NULL);
CREATE TABLE totals (id INTEGER PRIMARY KEY CHECK (id = 1), calls INTEGER NOT NULL,
                     tokens REAL NOT NULL, cost REAL NOT NULL);
"""


def is_empty(connection: sqlite3.Connection) -> bool:
    """Whether nothing was written into the file yet."""
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return bool(_version(connection) == tables == 0)


def make(connection: sqlite3.Connection) -> None:
    """Make the schema in an empty database, in one transaction."""
    connection.executescript(
        f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA application_id = {APPLICATION_ID}; "
        f"PRAGMA user_version = {VERSION}; COMMIT"
    )


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise RunError unless the file is a run's, of this version."""
    if is_empty(connection):
        raise RunError(f"{path} is empty: {LOST}")
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = _version(connection)
    if application != APPLICATION_ID or version < 1:
        raise RunError(f"{path} is no judgeq run: it is another program's SQLite file.")
    if version != VERSION:
        raise RunError(
            f"{path} has schema version {version}, and this judgeq writes version {VERSION}: continue "
            "it with the judgeq that made it, or begin anew with --new. Nothing was changed."
        )
