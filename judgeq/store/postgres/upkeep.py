"""The state of a store, for `judgeq store check`."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from judgeq.json_marks import LEFT_OUT
from judgeq.store.postgres import schema
from judgeq.store.postgres.address import Address, in_schema, retried
from judgeq.store.postgres.runs import opened
from judgeq.store.schema import VERSION

MOST_SKEW = 5.0
"""Seconds that a machine's clock may be off the database's before it is worth a warning."""
# reltuples is -1 of a table that was never analyzed.
_TABLES = """
SELECT c.relname, greatest(c.reltuples, 0)::bigint, pg_total_relation_size(c.oid),
    coalesce(pg_stat_get_dead_tuples(c.oid), 0)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relkind = 'r' ORDER BY c.relname
"""
_RIGHTS = """
SELECT has_database_privilege(current_database(), 'CREATE'),
    coalesce((SELECT has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = %s), false)
"""


class Table(NamedTuple):
    """A table: about how many rows, its bytes with its indexes, rows that are dead and not yet
    vacuumed."""

    name: str
    rows: int
    bytes: int
    dead: int


@dataclass(frozen=True, slots=True)
class Overview:
    """The state of a store: the server's version, the schema's (None: it isn't there), whether this user
    may make it and write to it, the seconds by which the database's clock is ahead of this machine's,
    and its tables."""

    address: Address = field(metadata=LEFT_OUT)
    server: str
    version: int | None
    may_create: bool
    may_write: bool
    ahead: float
    tables: list[Table]
    JSON_KEYS: ClassVar = {
        "store": "address.shown",
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
    """Look at a store. Raises as `connected`."""
    with opened(address) as connection:
        made = schema.made(connection, address)
        sent = time.time()
        ((now,),) = connection.execute("SELECT extract(epoch FROM now())::float8").fetchall()
        ahead = now - (sent + time.time()) / 2
        ((server,),) = connection.execute("SHOW server_version").fetchall()
        ((may_create, on_schema),) = connection.execute(_RIGHTS, (address.schema,)).fetchall()
        return Overview(
            address=address,
            server=f"PostgreSQL {server}",
            version=VERSION if made else None,
            may_create=on_schema if made else may_create,
            may_write=on_schema or (made and _may_write(connection, address)),
            ahead=ahead,
            tables=_tables(connection, address),
        )


def _may_write(connection: Any, address: Address) -> bool:
    query = in_schema("SELECT has_table_privilege('@.jobs', 'UPDATE')", address.schema)
    return bool(connection.execute(query).fetchone()[0])


def _tables(connection: Any, address: Address) -> list[Table]:
    return [Table(*row) for row in connection.execute(_TABLES, (address.schema,)).fetchall()]
