"""The tables of a store in PostgreSQL, made and checked: those of schema.py, and some more; and the
state that they are in, for `judgeq store check`."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from judgeq.errors import RunError
from judgeq.store.postgres.address import Address
from judgeq.store.postgres.link import Link, opened, retried
from judgeq.store.schema import TABLES, VERSION
from judgeq.text import LEFT_OUT

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


# Whether the schema is there, and how many tables are in it.
_THERE = """
SELECT to_regclass(:meta) IS NOT NULL, count(*) FROM pg_class c JOIN pg_namespace n
ON n.oid = c.relnamespace WHERE n.nspname = :schema
"""
MOST_SKEW = 5.0
"""Seconds that a machine's clock may be off the database's before it is worth a warning."""
# reltuples is -1 of a table that was never analyzed.
_TABLES = """
SELECT c.relname, greatest(c.reltuples, 0)::bigint, pg_total_relation_size(c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = :schema AND c.relkind = 'r' ORDER BY c.relname
"""


def prepare(link: Link) -> None:
    """Make the schema where there is none; in one transaction. Raises RunError as `made`, and in a
    database that can't hold every text."""
    address = link.address
    encoding = link.connection.info.parameter_status("server_encoding")
    if encoding not in ("UTF8", "SQL_ASCII"):
        raise RunError(
            f"{address.label} can't hold every text: its encoding is {encoding}. Have one made by "
            "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0."
        )
    with link.transaction():
        link.execute("SELECT pg_advisory_xact_lock(:lock)", lock=_LOCK)
        if made(link):
            return
        there = "SELECT FROM pg_namespace WHERE nspname = :schema"
        if link.row(there, schema=address.schema) is None:
            # IF NOT EXISTS would want the right to make it all the same.
            link.execute(f'CREATE SCHEMA "{address.schema}"')
        tables = TABLES + _MORE
        for word, ours in _WORDS.items():
            tables = tables.replace(word, ours)
        link.execute(f"{tables} INSERT INTO @.meta (version) VALUES ({VERSION})")  # noqa: S608


def made(link: Link) -> bool:
    """Whether the schema is there. Raises RunError for what isn't ours, or is of another version."""
    address = link.address
    there, tables = link.row(_THERE, meta=f'"{address.schema}".meta', schema=address.schema)
    if not there and tables:
        raise RunError(
            f"the schema {address.schema!r} of {address.label} is another program's: it holds "
            "tables, but none of judgeq's. --store …?schema=NAME names another."
        )
    if not there:
        return False
    (version,) = link.row("SELECT version FROM @.meta") or (0,)
    if version != VERSION:
        raise RunError(
            f"{address.label} has version {version} of judgeq's schema, and this judgeq writes version "
            f"{VERSION}: use the judgeq that made it, or another schema (--store …?schema=NAME). "
            "Nothing was changed."
        )
    return True


class Table(NamedTuple):
    """A table: about how many rows, and its bytes with its indexes."""

    name: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Overview:
    """The state of a store: the server's version, the schema's (None: it isn't there), the seconds by
    which the database's clock is ahead of this machine's, and its tables."""

    address: Address = field(metadata=LEFT_OUT)
    server: str
    version: int | None
    ahead: float
    tables: list[Table]
    JSON_KEYS: ClassVar = {
        "store": "address.label",
        "schema": "address.schema",
        "clock_ahead": "ahead",
        "bytes": "bytes",
    }

    @property
    def bytes(self) -> int:
        """Of all tables."""
        return sum(table.bytes for table in self.tables)


@retried
def check(address: Address) -> Overview:
    """Look at a store. Raises as link.opened."""
    with opened(address) as link:
        version = VERSION if made(link) else None
        before = time.time()
        (now,) = link.row("SELECT @now")
        ahead = now - (before + time.time()) / 2
        (server,) = link.row("SHOW server_version")
        tables = link.execute(_TABLES, schema=address.schema).fetchall()
    return Overview(
        address, f"PostgreSQL {server}", version, ahead, [Table(*table) for table in tables]
    )
