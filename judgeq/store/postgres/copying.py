"""A run copied between its SQLite file and a PostgreSQL store, in one transaction, losing nothing.

What only says who works on it now stays behind: leases, what people have, and what of the cap workers
hold; a job that was running is pending again, as it is for the next that leads, unless a batch has it.
In a store calls and workers are numbered anew, in their order.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from judgeq.errors import RunError
from judgeq.store import vetting
from judgeq.store.damage import refuse
from judgeq.store.postgres import runs
from judgeq.store.postgres.address import Address
from judgeq.store.postgres.link import Link, sent
from judgeq.store.postgres.runs import RunRow, connected, damage_in
from judgeq.store.schema import OF_A_RUN
from judgeq.store.sqlite import connect, problem, text

_BLOCK = 10_000
_TABLES = ["lead", "workers", *(table for table in OF_A_RUN if table not in ("handed", "workers"))]
# What is copied of a column in place of what it holds.
_INSTEAD = {
    "jobs.state": "CASE WHEN state = 'running' AND coalesce(worker, 0) NOT IN "
    "(SELECT worker FROM @.batches WHERE run = @run) THEN 'pending' ELSE state END",
    "lead.until": "CAST(0 AS float8)",
    "workers.over": "over OR worker NOT IN (SELECT worker FROM @.batches WHERE run = @run)",
    "workers.free": "0",
    "workers.reserved": "0",
}
_AT_WORK = """
SELECT name FROM @.workers WHERE run = @run AND NOT over AND until > @now AND until < 'infinity' LIMIT 1
"""


@cache
def _columns(table: str) -> list[str]:
    """The columns of a table, the one first that orders its rows; without that of the run."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        vetting.make(connection)
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    return [name for name in names if name != "run"]


def _select(table: str) -> str:
    columns = _columns(table)
    read = ", ".join(_INSTEAD.get(f"{table}.{name}", name) for name in columns)
    return f"SELECT {read} FROM @.{table} WHERE run = @run ORDER BY {columns[0]}"  # noqa: S608


def to_store(
    file: Path, address: Address, name: str, fingerprint: str, info: str, prompt: str | None
) -> None:
    """Make the run of this name, which isn't there yet, out of the ledger in `file`, which the caller
    holds. Raises RunError where it is there, or for a file that is no run's."""
    try:
        with (
            closing(connect(file, read_only=True)) as ledger,
            connected(address, write=True) as link,
            link.transaction(),
        ):
            if not runs.insert(link, name, fingerprint, info, prompt):
                raise RunError(f"{address.label}#{name} is there already. Nothing was changed.")
            (run,) = link.row("SELECT run FROM @.runs WHERE name = :name", name=name)
            _fill(ledger, link, run)
    except (sqlite3.Error, OSError) as error:
        raise problem(file, error) from error
    except ValueError as error:  # a text that PostgreSQL can't keep
        raise RunError(f"{file} can't be kept in PostgreSQL: {error}.") from error


def _fill(ledger: sqlite3.Connection, link: Link, run: int) -> None:
    """Copy a ledger's rows into a store."""
    workers: dict[int | None, int] = {}
    for table in _TABLES:
        columns, rows = _columns(table), ledger.execute(text(_select(table)))
        if table == "workers":
            names = columns[1:]
            marks = ", ".join(f":{name}" for name in names)
            insert = f"INSERT INTO @.workers (run, {', '.join(names)}) VALUES (@run, {marks}) RETURNING worker"  # noqa: S608, E501
            for number, *cells in rows:
                named: dict[str, Any] = dict(zip(names, cells, strict=True))
                named["over"] = bool(named["over"])
                (workers[number],) = link.row(insert, run, **named)
            continue
        place = columns.index("worker") if "worker" in columns else None
        numbered = table == "calls"
        names = ["run", *columns[numbered:]]
        copy: Any = sent(f"COPY @.{table} ({', '.join(names)}) FROM STDIN", link.address, run)
        with link.connection.cursor().copy(copy) as copying:
            for row in map(list, rows):
                if place is not None:
                    row[place] = workers.get(row[place])
                copying.write_row((run, *row[numbered:]))


def to_file(address: Address, row: RunRow, file: Path) -> None:
    """Make the ledger of a run, of which nobody is at work, in `file`, which isn't there yet.

    Raises RunError while a process leads the run or works on it.
    """
    try:
        with closing(connect(file, read_only=False)) as ledger:
            with connected(address) as link, link.transaction():
                link.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                at_work = link.row(_AT_WORK, row.run)
                if row.leader is not None or at_work is not None:
                    raise RunError(
                        f"run {row.name} is being worked on by {row.leader or at_work[0]}: copy it "
                        "when it is finished or stopped."
                    )
                refuse(f"{address.label}#{row.name}", damage_in(link, row.run))
                ledger.execute("BEGIN IMMEDIATE")
                for table in _TABLES:
                    names = ", ".join(("run", *_columns(table)))
                    marks = ", ".join(["1", *["?"] * len(_columns(table))])
                    insert = f"INSERT INTO {table} ({names}) VALUES ({marks})"  # noqa: S608
                    ledger.executemany(insert, _rows(link, table, row.run))
                ledger.execute("COMMIT")
            ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except (sqlite3.Error, OSError, OverflowError) as error:
        raise problem(file, error) from error


def _rows(link: Link, table: str, run: int) -> Iterator[Any]:
    query: Any = sent(_select(table), link.address, run)
    with link.connection.cursor(name="judgeq_copy") as cursor:
        cursor.itersize = _BLOCK
        cursor.execute(query)
        yield from cursor
