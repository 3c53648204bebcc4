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
from typing import TYPE_CHECKING, Any

from judgeq.errors import RunError
from judgeq.store import vetting
from judgeq.store.damage import refuse
from judgeq.store.postgres import runs
from judgeq.store.postgres.address import Address
from judgeq.store.postgres.dialect import sent
from judgeq.store.postgres.runs import RunRow, connected, damage_in, execute
from judgeq.store.schema import OF_A_RUN
from judgeq.store.sqlite import connect, problem, text

if TYPE_CHECKING:
    import psycopg

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
            connected(address, write=True) as connection,
            connection.transaction(),
        ):
            if not runs.insert(connection, address, name, fingerprint, info, prompt):
                raise RunError(f"{address.shown}#{name} is there already. Nothing was changed.")
            made = "SELECT run FROM @.runs WHERE name = :name"
            ((run,),) = execute(connection, address, made, name=name).fetchall()
            _fill(ledger, connection, address, run)
    except (sqlite3.Error, OSError) as error:
        raise problem(file, error) from error
    except ValueError as error:  # a text that PostgreSQL can't keep
        raise RunError(f"{file} can't be kept in PostgreSQL: {error}.") from error


def _fill(
    ledger: sqlite3.Connection, connection: psycopg.Connection[Any], address: Address, run: int
) -> None:
    """Copy a ledger's rows into a store."""
    workers: dict[int | None, int] = {}
    for table in _TABLES:
        columns, rows = _columns(table), ledger.execute(text(_select(table)))
        numbered = table in ("workers", "calls")
        names = ", ".join(("run", *columns[numbered:]))
        if table == "workers":
            marks = ", ".join(["%s"] * len(columns))
            for number, *row in rows:
                insert: Any = sent(
                    f"INSERT INTO @.workers ({names}) VALUES ({marks}) RETURNING worker",  # noqa: S608
                    address,
                    run,
                )
                row = [
                    bool(cell) if name == "over" else cell for name, cell in _named(columns, row)
                ]
                ((workers[number],),) = connection.execute(insert, (run, *row)).fetchall()
            continue
        place = columns.index("worker") if "worker" in columns else None
        copy: Any = sent(f"COPY @.{table} ({names}) FROM STDIN", address, run)
        with connection.cursor().copy(copy) as copying:
            for row in map(list, rows):
                if place is not None:
                    row[place] = workers.get(row[place])
                copying.write_row((run, *row[numbered:]))


def _named(columns: list[str], row: list[Any]) -> Iterator[tuple[str, Any]]:
    """The cells of a row, but for the first, with the names of their columns."""
    return zip(columns[1:], row, strict=True)


def to_file(address: Address, row: RunRow, file: Path) -> None:
    """Make the ledger of a run, of which nobody is at work, in `file`, which isn't there yet.

    Raises RunError while a process leads the run or works on it.
    """
    try:
        with closing(connect(file, read_only=False)) as ledger:
            with connected(address) as connection, connection.transaction():
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                _refuse_running(connection, address, row)
                refuse(f"{address.shown}#{row.name}", damage_in(connection, address, row.run))
                ledger.execute("BEGIN IMMEDIATE")
                for table in _TABLES:
                    names = ", ".join(("run", *_columns(table)))
                    marks = ", ".join(["1", *["?"] * len(_columns(table))])
                    insert = f"INSERT INTO {table} ({names}) VALUES ({marks})"  # noqa: S608
                    ledger.executemany(insert, _rows(connection, address, table, row.run))
                ledger.execute("COMMIT")
            ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except (sqlite3.Error, OSError, OverflowError) as error:
        raise problem(file, error) from error


def _rows(
    connection: psycopg.Connection[Any], address: Address, table: str, run: int
) -> Iterator[Any]:
    query: Any = sent(_select(table), address, run)
    with connection.cursor(name="judgeq_copy") as cursor:
        cursor.itersize = _BLOCK
        cursor.execute(query)
        yield from cursor


def _refuse_running(connection: psycopg.Connection[Any], address: Address, row: RunRow) -> None:
    worker = execute(connection, address, _AT_WORK, row.run).fetchone()
    if row.leader is not None or worker is not None:
        raise RunError(
            f"run {row.name} is being worked on by {row.leader or (worker and worker[0])}: copy it when "
            "it is finished or stopped."
        )
