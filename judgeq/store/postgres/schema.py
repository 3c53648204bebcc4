"""The tables of a store in PostgreSQL, made and checked: those of schema.py, and some more."""

from __future__ import annotations

from typing import Any

from judgeq.errors import RunError
from judgeq.store.postgres.address import Address, in_schema
from judgeq.store.schema import TABLES, VERSION

_IDENTITY = "bigint GENERATED ALWAYS AS IDENTITY"
_WORDS = {
    "{key}": f"{_IDENTITY} PRIMARY KEY",
    "{counter}": _IDENTITY,
    "{number}": "bigint NOT NULL",
    "{key_of_id}": ", PRIMARY KEY (run, id)",
    "{key_of_job}": ", PRIMARY KEY (run, job)",
    "{clustered}": "",
}
# Texts that a run's user shares with workers elsewhere, what is read of many runs at once, and room in
# the blocks of what changes often. No job is looked for among those of all runs.
_MORE = """
CREATE TABLE @.meta (one boolean PRIMARY KEY DEFAULT true CHECK (one), version int NOT NULL);
CREATE TABLE @.texts (run int NOT NULL, row int NOT NULL, text text NOT NULL, PRIMARY KEY (run, row));
ALTER TABLE @.calls ADD PRIMARY KEY (run, id);
ALTER TABLE @.workers SET (fillfactor = 50, autovacuum_vacuum_threshold = 200);
ALTER TABLE @.jobs SET (
    fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX jobs_running ON @.jobs (run, worker) WHERE state = 'running';
CREATE INDEX jobs_lost ON @.jobs (run, id) WHERE state IN ('invalid', 'failed');
CREATE INDEX jobs_open ON @.jobs (run, id) WHERE open > 0 OR at_risk > 0 OR unbounded > 0;
"""
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
        tables = TABLES
        for word, ours in _WORDS.items():
            tables = tables.replace(word, ours)
        connection.execute(in_schema(tables + _MORE, address.schema))
        connection.execute(
            in_schema("INSERT INTO @.meta (version) VALUES (%s)", address.schema), (VERSION,)
        )


def check(connection: Any, address: Address) -> None:
    """Raise RunError unless the schema is there: of a reader, which changes nothing."""
    if not made(connection, address):
        raise RunError(f"No runs yet in {address.shown}: it has no schema {address.schema!r}.")


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
