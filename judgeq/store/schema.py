"""The tables of a store, the same in SQLite and in PostgreSQL; and whether a record is what judgeq
wrote: a file's version, its schema to the last object, the type of every cell, and whether what is in it
adds up.

A run's file holds one run, a PostgreSQL store many. Whoever changes TABLES raises VERSION: a file, or a
store, of another version is refused. A record may be a stranger's. A trigger in a file would run with
our statements, and SQLite puts any value into any column: text in `attempts`, a blob in `cost`. Rows
that were removed or changed would change scores, and what a cap leaves to spend, without a word.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from judgeq.datasets.tables import display
from judgeq.errors import RunError

VERSION = 17

# Row numbers are little-endian int32 in bytea, `ties` is one byte a slot: 1 for a tie with the one
# before it, 2 where the order of the two isn't known. `active` of a round says which items could be
# asked about in it, `members` which are in a subset: one byte an item. Times are seconds since the epoch
# on the store's clock, but for `calls.at`. Amounts of money are nano-dollars, but for `cost`.
#
# `part` is an item's group, within which alone it is compared.
#
# Of a job's attempts, `open` have no outcome yet. Those without a known cost, open or not, may have
# cost `at_risk` more, and `unbounded` of them an unknown amount. Of several judges `judge` is the one
# that is asked; `repeat` counts the jobs before it that ask it the same. `ordered` is false where the
# order presented isn't known (an import may say so). An attempt of a job has one call: what is settled
# again finds it. `answered_by` of a call or a verdict is the person who gave it, among all judges.
#
# A worker is one process's work on one run, for as long as its lease holds: `until`. It is `over` when
# it left or was found dead, and then never again: what it wants to begin or claim is refused. Its money:
# `spent` on calls whose cost is known, at most `at_risk` on those begun and without a known cost, `free`
# of the slice of the run's cap that it holds. A call that begins moves its bound from free to at_risk;
# its outcome moves that to spent, and the rest back to free. So the sum over all workers, without `free`
# of those that are over, never exceeds `cap`, and only giving a slice out or back changes it. `reserved`
# is 0 once the worker says that none of its slice may come back: nothing of it is in flight.
# What a worker spends on questions that are asked `again` is no part of what the cap holds.
# What a worker's calls came to (and its `hits` of the cache, which `saved` so much) is kept in the
# transactions that write them: a call that was removed or changed afterwards is missed (ADDED_UP).
# A batch is a worker that never dies, under its own name alone: its `until` is infinity, which is how it
# is known. A batch gets its jobs from a worker: their bounds move from that one's free to the batch's
# at_risk, and into its `handed`, so that its own account of what it holds (RESERVE) adds up. What the
# outcomes of a batch leave of its at_risk is nobody's: it is the cap's again, for nobody spends from a
# batch's `free`. `sent` are its lines, packed (rows.py).
# A person's question is handed out by `handed`, and its job stays pending until it is answered: people
# are no workers. A check is no job: nothing waits for it, and no score knows it; one without a person is
# a known answer to ask for.
TABLES = """
CREATE TABLE @.runs (
    run {key}, name text NOT NULL UNIQUE, fingerprint text NOT NULL, info text NOT NULL,
    touched float8 NOT NULL DEFAULT 0, cap bigint);
CREATE TABLE @.lead (
    run int PRIMARY KEY REFERENCES @.runs ON DELETE CASCADE, epoch bigint NOT NULL, holder text NOT NULL,
    until float8 NOT NULL);
CREATE TABLE @.workers (
    worker {key}, run int NOT NULL REFERENCES @.runs ON DELETE CASCADE, name text NOT NULL,
    host text NOT NULL DEFAULT '', pid int NOT NULL DEFAULT 0, since float8 NOT NULL DEFAULT 0,
    seen float8 NOT NULL DEFAULT 0, until float8 NOT NULL, over boolean NOT NULL DEFAULT false,
    done bigint NOT NULL DEFAULT 0, calls bigint NOT NULL DEFAULT 0, errors bigint NOT NULL DEFAULT 0,
    tokens bigint NOT NULL DEFAULT 0, hits bigint NOT NULL DEFAULT 0, saved bigint NOT NULL DEFAULT 0,
    spent bigint NOT NULL DEFAULT 0, at_risk bigint NOT NULL DEFAULT 0, free bigint NOT NULL DEFAULT 0,
    reserved bigint NOT NULL DEFAULT 0, handed bigint NOT NULL DEFAULT 0,
    again boolean NOT NULL DEFAULT false, UNIQUE (run, name));
CREATE TABLE @.items (
    run int NOT NULL, row int NOT NULL, id text NOT NULL, gold float8, part text,
    PRIMARY KEY (run, row)){clustered};
CREATE TABLE @.subsets (
    run int NOT NULL, name text NOT NULL, members bytea NOT NULL, PRIMARY KEY (run, name));
CREATE TABLE @.rounds (
    run int NOT NULL, round int NOT NULL, first bigint NOT NULL, last bigint NOT NULL,
    epoch bigint NOT NULL, active bytea NOT NULL, PRIMARY KEY (run, round));
CREATE TABLE @.jobs (
    run int NOT NULL, id {number}, round int NOT NULL, items bytea NOT NULL,
    judge int NOT NULL DEFAULT 0, ordered boolean NOT NULL DEFAULT true, repeat int NOT NULL DEFAULT 0,
    state text NOT NULL DEFAULT 'pending', attempts int NOT NULL DEFAULT 0,
    unusable int NOT NULL DEFAULT 0, open int NOT NULL DEFAULT 0, unbounded int NOT NULL DEFAULT 0,
    at_risk bigint NOT NULL DEFAULT 0, worker bigint, error text{key_of_id});
CREATE INDEX jobs_pending ON @.jobs (run, id) WHERE state = 'pending';
CREATE TABLE @.calls (
    id {counter}, run int NOT NULL, job bigint NOT NULL, attempt int NOT NULL, outcome text NOT NULL,
    input bigint NOT NULL, cached bigint NOT NULL, output bigint NOT NULL, reasoning bigint NOT NULL,
    cost float8, latency float8 NOT NULL, reply text, at float8 NOT NULL, answered_by int,
    model text, fingerprint text, prompt_size bigint NOT NULL DEFAULT 0, problem text,
    overpriced_bytes bigint, worker bigint NOT NULL);
CREATE UNIQUE INDEX calls_once ON @.calls (run, job, attempt)
    WHERE outcome <> 'cached' AND answered_by IS NULL;
CREATE TABLE @.verdicts (
    run int NOT NULL, job {number}, ranking bytea NOT NULL, ties bytea, score float8,
    answered_by int{key_of_job});
CREATE TABLE @.batches (
    run int NOT NULL, worker bigint NOT NULL, judge int NOT NULL, api text NOT NULL,
    address text NOT NULL, form text NOT NULL, made float8 NOT NULL, jobs int NOT NULL, reserved float8,
    tokens float8 NOT NULL, state text NOT NULL, remote text, status text NOT NULL, total int NOT NULL,
    done int NOT NULL, failed int NOT NULL, seen float8, expires float8, cost float8 NOT NULL,
    answered int NOT NULL, error text, doubt text, doubted_since float8,
    doubted_looks int NOT NULL DEFAULT 0, sent bytea NOT NULL, PRIMARY KEY (run, worker));
CREATE TABLE @.people (
    run int NOT NULL, number int NOT NULL, name text NOT NULL, token bytea NOT NULL, quota int,
    state text NOT NULL, since float8 NOT NULL, PRIMARY KEY (run, number), UNIQUE (run, name),
    UNIQUE (run, token));
CREATE TABLE @.handed (
    run int NOT NULL, person int NOT NULL, lease text NOT NULL, at float8 NOT NULL, job bigint,
    checking int, PRIMARY KEY (run, person), UNIQUE (run, job), UNIQUE (run, checking));
CREATE TABLE @.checks (
    run int NOT NULL, number int NOT NULL, items bytea NOT NULL, person int, repeats bigint,
    known bytea NOT NULL, lease text NOT NULL, ranking bytea, ties bytea, score float8,
    seconds float8 NOT NULL, at float8 NOT NULL, PRIMARY KEY (run, number));
"""
OF_A_RUN = (
    *("items", "subsets", "rounds", "jobs", "calls", "verdicts", "batches", "people", "handed"),
    *("checks", "workers"),
)
"""The tables whose rows belong to a run, but for `lead`."""
JOB = "id, round, items, judge, repeat, attempts, unusable, error"
"""A job, as rows.job reads it."""
CALL_TYPES = (
    "job bigint, attempt int, outcome text, input bigint, cached bigint, output bigint, "
    "reasoning bigint, cost float8, latency float8, reply text, at float8, answered_by int, "
    "model text, fingerprint text, prompt_size bigint, problem text, overpriced_bytes bigint"
)
CALL = ", ".join(column.split()[0] for column in CALL_TYPES.split(", "))
"""A call, as rows.calls makes it and rows.call reads it."""
_FIRST, _LAST = (
    f"CASE WHEN CAST(:round AS int) IS NULL THEN {all_of} ELSE "
    f"(SELECT {end} FROM @.rounds WHERE run = @run AND round = CAST(:round AS int)) END"
    for end, all_of in (("first", 0), ("last", 2**62))
)
SPAN = f"BETWEEN {_FIRST} AND {_LAST}"
"""The numbers of a `round`'s jobs, none before it is planned; or (NULL) those of all rounds."""


class Bulk(NamedTuple):
    """A statement for many rows, and the columns of a row, each with its type. An UPDATE finds its row
    by `id`, which is the first column."""

    columns: str
    text: str


def inserts(table: str, columns: str, conflict: str = "") -> Bulk:
    """What puts rows of these columns into a table."""
    names = [column.split()[0] for column in columns.split(", ")]
    values = (
        f"(run, {', '.join(names)}) SELECT @run, :{', :'.join(names)} @rows WHERE true {conflict}"
    )
    return Bulk(columns, f"INSERT INTO @.{table} {values}")


# Is a record what judgeq wrote?

_STORED = {"float8": "real", "text": "text", "bytea": "blob"}  # and all others are integers
APPLICATION_ID = 0x6A716462  # "jqdb"
LOST = (
    "the run was begun, and its answers were in this file. Put it back from a backup, or start again "
    "beside it: the same `judgeq run` with --new. Nothing was changed."
)
"""What to do about a ledger that is lost."""
_EXACT = 1e-9
"""Sums of the same floats, in whatever order, differ by less, relative to them; and each call's dollars
were rounded up to the nano-dollar."""
# What is there, and what should be, by name: numbers that are equal in all that judgeq writes. Sums are
# floats, which no number of a stranger's can overflow. Whatever reads a row relies on this.
ADDED_UP = """
SELECT 'calls', calls, made, 'questions', jobs, planned,
    'answered questions with a verdict', answered, done, 'verdicts', verdicts, answered,
    'calls of attempts that ended', sent, ended, 'tokens', tokens, made_tokens,
    'dollars', cost, made_cost, 'nano-dollars at risk', at_risk, made_at_risk,
    'texts', n, last_row, 'texts with a group', groups, CASE WHEN groups = 0 THEN 0 ELSE n END,
    'texts that can''t be', odd_items, 0, 'questions that can''t be', odd_jobs, 0,
    'verdicts that can''t be', odd_verdicts, 0, 'calls that can''t be', odd_calls, 0,
    'workers that can''t be', odd_workers, 0,
    'subsets that can''t be', (SELECT count(*) FROM @.subsets WHERE run = @run
        AND length(members) <> n), 0,
    'rounds that can''t be', (SELECT count(*) FROM @.rounds WHERE run = @run AND round > 0
        AND (length(active) <> n OR last < first - 1)), 0,
    'leaders that can''t be', (SELECT count(*) FROM @.lead WHERE run = @run
        AND NOT epoch BETWEEN 0 AND 4000000000000000000), 0,
    'batches that can''t be', (SELECT count(*) FROM @.batches b
        LEFT JOIN @.workers w ON w.run = b.run AND w.worker = b.worker WHERE b.run = @run
        AND (w.until IS NULL OR w.until < 1e300 OR NOT (
            judge BETWEEN 0 AND 2147483646 AND jobs BETWEEN 0 AND 2147483646
            AND total BETWEEN 0 AND 2147483647 AND b.done BETWEEN 0 AND 2147483647
            AND failed BETWEEN 0 AND 2147483647 AND answered BETWEEN 0 AND 2147483647
            AND made BETWEEN 0 AND 1e11 AND coalesce(b.seen, 0) BETWEEN 0 AND 1e11
            AND coalesce(expires, 0) BETWEEN 0 AND 1e11 AND cost BETWEEN 0 AND 1e300
            AND coalesce(doubted_since, 0) BETWEEN 0 AND 1e11
            AND doubted_looks BETWEEN 0 AND 2147483646
            AND coalesce(b.reserved, 0) BETWEEN 0 AND 1e300 AND b.tokens BETWEEN 0 AND 1e300))), 0,
    'people that can''t be', (SELECT count(*) FROM @.people WHERE run = @run
        AND NOT (number BETWEEN 0 AND 2147483646 AND coalesce(quota, 0) BETWEEN 0 AND 2147483646
            AND since BETWEEN 0 AND 1e11 AND length(token) = 32)), 0,
    'questions of people that can''t be', (SELECT count(*) FROM @.handed WHERE run = @run
        AND ((job IS NULL) = (checking IS NULL) OR NOT at BETWEEN -1e300 AND 1e300)), 0,
    'checks that can''t be', (SELECT count(*) FROM @.checks WHERE run = @run
        AND NOT (seconds BETWEEN 0 AND 1e300 AND at BETWEEN -1e300 AND 1e300)), 0
FROM (SELECT count(*) AS jobs, count(CASE WHEN j.state = 'done' THEN 1 END) AS done,
          count(CASE WHEN j.state = 'done' THEN v.job END) AS answered,
          coalesce(sum(CAST(j.attempts AS float8) - j.open), 0.0) AS ended,
          coalesce(sum(CAST(j.at_risk AS float8)), 0.0) AS at_risk,
          count(CASE WHEN length(j.items) = 0 OR length(j.items) % 4 <> 0
                OR NOT (j.judge BETWEEN 0 AND 2147483646 AND repeat BETWEEN 0 AND 2147483646
                    AND attempts BETWEEN 0 AND 2147483646 AND unusable BETWEEN 0 AND 2147483646)
                THEN 1 END) AS odd_jobs,
          count(CASE WHEN length(ranking) <> length(items) OR length(ties) * 4 <> length(items)
                OR (score IS NOT NULL AND NOT (score BETWEEN 0 AND 1 AND length(items) = 4))
                OR answered_by < 0 OR answered_by > 2147483646 THEN 1 END) AS odd_verdicts
      FROM @.jobs j LEFT JOIN @.verdicts v ON v.run = j.run AND v.job = j.id
      WHERE j.run = @run) AS j,
    (SELECT coalesce(sum(CAST(last AS float8) - first + 1), 0.0) AS planned
     FROM @.rounds WHERE run = @run) AS r,
    (SELECT count(*) AS verdicts FROM @.verdicts WHERE run = @run) AS v,
    (SELECT count(*) AS calls,
         count(CASE WHEN outcome <> 'cached' AND answered_by IS NULL THEN 1 END) AS sent,
         coalesce(sum(CAST(input AS float8) + cached + output + reasoning), 0.0) AS tokens,
         coalesce(sum(CASE WHEN cost > 0 THEN cost END), 0.0) AS cost,
         count(CASE WHEN NOT (latency BETWEEN -1e300 AND 1e300 AND at BETWEEN 0 AND 1e11
                    AND coalesce(cost, 0) BETWEEN -1e300 AND 1e300
                    AND coalesce(answered_by, 0) BETWEEN 0 AND 2147483646
                    AND prompt_size BETWEEN 0 AND 4000000000000000000
                    AND (overpriced_bytes IS NULL OR (cost BETWEEN 0 AND 1e9
                        AND overpriced_bytes BETWEEN 0 AND 4000000000000000000)))
               THEN 1 END) AS odd_calls
     FROM @.calls WHERE run = @run) AS c,
    (SELECT coalesce(sum(CAST(calls AS float8) + hits), 0.0) AS made,
         coalesce(sum(CAST(tokens AS float8)), 0.0) AS made_tokens,
         coalesce(sum(CAST(spent AS float8) + saved), 0.0) / 1e9 AS made_cost,
         coalesce(sum(CAST(at_risk AS float8)), 0.0) AS made_at_risk,
         count(CASE WHEN NOT (since BETWEEN 0 AND 1e11 AND seen BETWEEN 0 AND 1e11)
               THEN 1 END) AS odd_workers
     FROM @.workers WHERE run = @run) AS w,
    (SELECT count(*) AS n, coalesce(max(row), -1) + 1 AS last_row, count(part) AS groups,
         count(CASE WHEN row < 0 THEN 1 END) AS odd_items
     FROM @.items WHERE run = @run) AS i
"""


def refuse(shown: str, sums: Sequence[Any]) -> None:
    """Raise RunError where something doesn't add up in a ledger, by the one row of ADDED_UP."""
    rounding = _EXACT * sums[1]
    damage = [
        f"{name}: {there:,.10g} of {expected:,.10g}"
        for name, there, expected in zip(sums[::3], sums[1::3], sums[2::3], strict=True)
        if not math.isclose(there, expected, rel_tol=_EXACT, abs_tol=rounding)
    ]
    if damage:
        raise RunError(
            f"{shown} is damaged, and doesn't add up: {'; '.join(damage)}. Something other than judgeq "
            "changed it. Restore a backup; or begin beside it with --new: replies in the cache cost "
            "nothing. Any program that reads the database still reads what is left."
        )


def made_of(words: Mapping[str, str]) -> str:
    """TABLES as one database reads them."""
    tables = TABLES
    for word, ours in words.items():
        tables = tables.replace(word, ours)
    return tables


def make(connection: sqlite3.Connection) -> None:
    """Make the tables in an empty database, and the row of its one run, in one transaction."""
    # A file has one run: what is numbered in it is found by its number alone, which is its place.
    words = dict.fromkeys(("{key}", "{counter}", "{number}"), "INTEGER PRIMARY KEY")
    words |= {"@.": "", "{key_of_id}": "", "{key_of_job}": "", "{clustered}": " WITHOUT ROWID"}
    connection.executescript(
        f"BEGIN IMMEDIATE; {made_of(words)} "
        "INSERT INTO runs (name, fingerprint, info) VALUES ('', '', ''); "
        f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION}; COMMIT"
    )


def objects(connection: sqlite3.Connection) -> set[tuple[str, str, str]]:
    """All that a file's schema holds: type, name, and the SQL that made it ("" of an index that SQLite
    made by itself)."""
    query = "SELECT CAST(type AS text), CAST(name AS text), coalesce(sql, '') FROM sqlite_master"
    return set(connection.execute(query))


def is_empty(connection: sqlite3.Connection) -> bool:
    """Whether nothing was written into the file yet."""
    return not _pragma(connection, "user_version") and not objects(connection)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise RunError unless version, schema and cells of a file are such as judgeq writes.

    Reads every table once, but not the long texts in it.
    """
    if is_empty(connection):
        raise RunError(f"{path} is missing or empty: {LOST}")
    version = _pragma(connection, "user_version")
    if _pragma(connection, "application_id") != APPLICATION_ID or version < 1:
        raise RunError(f"{path} is no judgeq run: it is another program's SQLite file.")
    if version != VERSION:
        raise RunError(
            f"{path} has schema version {version}, and this judgeq writes version {VERSION}: "
            "continue it with the judgeq that made it, or begin anew with --new. Nothing was changed."
        )
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as memory:
        make(memory)
        expected = objects(memory)
    for kind, name, _ in sorted(objects(connection) ^ expected):
        raise RunError(
            f"{path} is damaged: its {kind[:20]} {display(name)} differs from what judgeq makes, and "
            "might change the run. Put back a copy of the file that nothing else wrote to; nothing was "
            "changed."
        )
    for kind, table, _ in expected:
        if kind == "table":
            _check_cells(connection, table, path)


def _check_cells(connection: sqlite3.Connection, table: str, path: Path) -> None:
    # All names are of the schema, which was checked.
    wrong = ""
    for _, column, kind, not_null, *_ in connection.execute(f"PRAGMA table_info({table})"):
        odd = f"typeof({column}) <> '{_STORED.get(kind.lower(), 'integer')}'"
        null = "" if not_null else f"{column} IS NOT NULL AND "
        wrong += f" WHEN {null}{odd} THEN '{column}'"
    query = f"SELECT odd FROM (SELECT CASE {wrong} END AS odd FROM {table}) WHERE odd <> '' LIMIT 1"
    for (column,) in connection.execute(query):
        raise RunError(
            f"{path} is damaged: the column {column!r} of table {table!r} holds a value of a type "
            "that judgeq never writes there. Put back a copy of the file, if there is one; nothing "
            "was changed."
        )
