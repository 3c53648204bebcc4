"""The PostgreSQL schema of a store, which holds many runs.

Whoever changes SCHEMA raises VERSION: a store of another version is refused.
"""

from __future__ import annotations

from typing import Any

from judgeq.errors import RunError
from judgeq.store.postgres.address import Address, in_schema

VERSION = 4

# What is written once (matches, verdicts, calls) lies apart from what changes (jobs, workers). Row
# numbers and ratings are little-endian int32 and float64 in bytea, `ties` is one byte a slot, all as in
# run.db; times are on the database's clock, but for `calls.at`. Amounts of money are nano-dollars.
#
# A worker is one process's work on one run, for as long as its lease holds: `until`. It is `over` when
# it left or was found dead, and then never again: what it wants to begin or claim is refused. Its money:
# `spent` on calls whose cost is known, at most `at_risk` on those begun and without a known cost, `free`
# of the slice of the run's cap that it holds. A call that begins moves its bound from free to at_risk;
# its outcome moves that to spent, and the rest back to free. So the sum over all workers, without `free`
# of those that are over, never exceeds `cap`, and only giving a slice out or back changes it. `reserved`
# is 0 once the worker says that none of its slice may come back: nothing of it is in flight.
# A batch is a worker that never dies, under its own name alone: its `until` is infinity, which is how it
# is known. A batch gets its jobs from a worker: their bounds move from that one's free to the batch's
# at_risk, and into its `handed`, so that its own account of what it holds (RESERVE) adds up. What the
# outcomes of a batch leave of its at_risk is nobody's: it is the cap's again, for nobody spends from a
# batch's `free`. `sent` are its lines, packed (store/batches.py).
# People are as in run.db: their jobs stay pending, by `handed`; they are no workers.
# `turn` numbers a worker's transactions: after a connection broke in a COMMIT it says whether it held.
SCHEMA = """
CREATE TABLE @.meta (one boolean PRIMARY KEY DEFAULT true CHECK (one), version int NOT NULL);
CREATE TABLE @.runs (
    run int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE,
    fingerprint text NOT NULL, info text NOT NULL, prompt text,
    created timestamptz NOT NULL DEFAULT now(), touched timestamptz NOT NULL DEFAULT now(),
    cap bigint, texts boolean NOT NULL DEFAULT false);
CREATE TABLE @.lead (
    run int PRIMARY KEY REFERENCES @.runs ON DELETE CASCADE,
    epoch bigint NOT NULL, holder text NOT NULL, until timestamptz NOT NULL);
CREATE TABLE @.items (run int NOT NULL, row int NOT NULL, id text NOT NULL, gold float8,
                      PRIMARY KEY (run, row));
CREATE TABLE @.texts (run int NOT NULL, row int NOT NULL, text text NOT NULL, PRIMARY KEY (run, row));
CREATE TABLE @.subsets (run int NOT NULL, name text NOT NULL, members bytea NOT NULL,
                        PRIMARY KEY (run, name));
CREATE TABLE @.rounds (
    run int NOT NULL, round int NOT NULL, first bigint NOT NULL, last bigint NOT NULL,
    epoch bigint NOT NULL, ratings bytea NOT NULL, active bytea NOT NULL, PRIMARY KEY (run, round));
CREATE TABLE @.matches (
    run int NOT NULL, id bigint NOT NULL, items bytea NOT NULL, judge int NOT NULL,
    ordered boolean NOT NULL, repeat int NOT NULL, PRIMARY KEY (run, id));
CREATE TABLE @.jobs (
    run int NOT NULL, id bigint NOT NULL, state text NOT NULL DEFAULT 'pending',
    attempts int NOT NULL DEFAULT 0, unusable int NOT NULL DEFAULT 0, open int NOT NULL DEFAULT 0,
    unbounded int NOT NULL DEFAULT 0, at_risk bigint NOT NULL DEFAULT 0,
    judge int NOT NULL DEFAULT 0, worker bigint, error text, PRIMARY KEY (run, id))
    WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX jobs_pending ON @.jobs (run, id) WHERE state = 'pending';
CREATE INDEX jobs_running ON @.jobs (run, worker) WHERE state = 'running';
CREATE INDEX jobs_lost ON @.jobs (run, id) WHERE state IN ('invalid', 'failed');
CREATE INDEX jobs_open ON @.jobs (run, id) WHERE open > 0 OR at_risk > 0 OR unbounded > 0;
CREATE TABLE @.calls (
    run int NOT NULL, id bigint GENERATED ALWAYS AS IDENTITY, job bigint NOT NULL,
    attempt int NOT NULL, outcome text NOT NULL, input bigint NOT NULL, cached bigint NOT NULL,
    output bigint NOT NULL, reasoning bigint NOT NULL, cost float8, latency float8 NOT NULL,
    reply text, at float8 NOT NULL, worker bigint NOT NULL, answered_by int, PRIMARY KEY (run, id));
CREATE TABLE @.verdicts (
    run int NOT NULL, job bigint NOT NULL, ranking bytea NOT NULL, ties bytea, score float8,
    answered_by int, PRIMARY KEY (run, job));
CREATE TABLE @.workers (
    worker bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run int NOT NULL REFERENCES @.runs ON DELETE CASCADE, name text NOT NULL,
    host text NOT NULL DEFAULT '', pid int NOT NULL DEFAULT 0,
    since timestamptz NOT NULL DEFAULT now(), seen timestamptz NOT NULL DEFAULT now(),
    until timestamptz NOT NULL, over boolean NOT NULL DEFAULT false, turn bigint NOT NULL DEFAULT 0,
    done bigint NOT NULL DEFAULT 0, calls bigint NOT NULL DEFAULT 0, errors bigint NOT NULL DEFAULT 0,
    spent bigint NOT NULL DEFAULT 0, at_risk bigint NOT NULL DEFAULT 0, free bigint NOT NULL DEFAULT 0,
    reserved bigint NOT NULL DEFAULT 0, handed bigint NOT NULL DEFAULT 0, UNIQUE (run, name))
    WITH (fillfactor = 50, autovacuum_vacuum_threshold = 200);
CREATE TABLE @.batches (
    run int NOT NULL, worker bigint NOT NULL, judge int NOT NULL, api text NOT NULL,
    address text NOT NULL, form text NOT NULL, made float8 NOT NULL, jobs int NOT NULL, reserved float8,
    tokens float8 NOT NULL, state text NOT NULL, remote text, status text NOT NULL, total int NOT NULL,
    done int NOT NULL, failed int NOT NULL, seen float8, expires float8, cost float8 NOT NULL,
    answered int NOT NULL, error text, sent bytea NOT NULL, PRIMARY KEY (run, worker));
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
TABLES = (
    *("lead", "items", "texts", "subsets", "rounds", "matches", "jobs", "calls", "verdicts"),
    *("people", "handed", "checks", "batches", "workers"),
)
"""The tables whose rows belong to a run."""
_LOCK = 0x6A716462  # "jqdb": only one process makes a schema at a time


def prepare(connection: Any, address: Address) -> None:
    """Make the schema where there is none; in one transaction, on a psycopg connection. Raises RunError
    as `made`, and in a database that can't hold every text."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding not in ("UTF8", "SQL_ASCII"):
        raise RunError(
            f"{address.shown} can't hold every text: its encoding is {encoding}. Have one made by "
            "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0."
        )
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        if made(connection, address):
            return
        there = connection.execute(
            "SELECT count(*) FROM pg_namespace WHERE nspname = %s", (address.schema,)
        ).fetchone()
        if not there[0]:  # IF NOT EXISTS would want the right to make it all the same
            connection.execute(f'CREATE SCHEMA "{address.schema}"')
        connection.execute(in_schema(SCHEMA, address.schema))
        connection.execute(
            in_schema("INSERT INTO @.meta (version) VALUES (%s)", address.schema), (VERSION,)
        )


def check(connection: Any, address: Address) -> None:
    """Raise RunError unless the schema is there: of a reader, which changes nothing."""
    if not made(connection, address):
        raise RunError(
            f"there are no runs in {address.shown}: it has no schema {address.schema!r}."
        )


def made(connection: Any, address: Address) -> bool:
    """Whether the schema is there. Raises RunError for what isn't ours, or is of another version."""
    there = connection.execute(
        "SELECT to_regclass(%s) IS NOT NULL, count(*) FROM pg_class c JOIN pg_namespace n "
        "ON n.oid = c.relnamespace WHERE n.nspname = %s",
        (f'"{address.schema}".meta', address.schema),
    ).fetchone()
    if not there[0]:
        if there[1]:
            raise RunError(
                f"the schema {address.schema!r} of {address.shown} is another program's: it holds "
                "tables, but none of judgeq's. --store …?schema=NAME names another."
            )
        return False
    row = connection.execute(in_schema("SELECT version FROM @.meta", address.schema)).fetchone()
    version = row[0] if row else 0
    if version != VERSION:
        raise RunError(
            f"{address.shown} has version {version} of judgeq's schema, and this judgeq writes version "
            f"{VERSION}: use the judgeq that made it, or another schema (--store …?schema=NAME). "
            "Nothing was changed."
        )
    return True
