"""A run copied between its SQLite file and a PostgreSQL store, in one transaction, losing nothing.

What only says who works on it now stays behind: leases, what people have, and what of the cap workers
hold; a job that was running is pending again, as it is for the next that leads, unless a batch has it.
In a store calls and workers are numbered anew, in their order.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from judgeq.errors import RunError
from judgeq.store import vetting
from judgeq.store.postgres import runs
from judgeq.store.postgres.address import Address
from judgeq.store.postgres.link import Link, sent
from judgeq.store.postgres.runs import connected, damage_in
from judgeq.store.schema import OF_A_RUN
from judgeq.store.sqlite import connect, reported, text

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
            reported(file),
            closing(connect(file, read_only=True)) as ledger,
            connected(address, write=True) as link,
            link.transaction(),
        ):
            if not runs.insert(link, name, fingerprint, info, prompt):
                raise RunError(f"{address.label}#{name} is there already. Nothing was changed.")
            (run,) = link.row("SELECT run FROM @.runs WHERE name = :name", name=name)
            _fill(ledger, link, run)
    except ValueError as error:  # a text that PostgreSQL can't keep
        raise RunError(f"{file} can't be kept in PostgreSQL: {error}.") from error


def _fill(ledger: sqlite3.Connection, link: Link, run: int) -> None:
    """Copy a ledger's rows into a store."""
    workers: dict[int | None, int] = {}
    for number, *cells in ledger.execute(text(_select("workers"))):
        names = _columns("workers")[1:]
        values: dict[str, Any] = dict(zip(names, cells, strict=True))
        insert = (
            f"INSERT INTO @.workers (run, {', '.join(names)}) "  # noqa: S608
            f"VALUES (@run, {', '.join(f':{name}' for name in names)}) RETURNING worker"
        )
        (workers[number],) = link.row(insert, run, **values | {"over": bool(values["over"])})
    for table in _TABLES:
        if table == "workers":
            continue
        columns = _columns(table)
        numbered = table == "calls"  # by the store
        place = columns.index("worker") if "worker" in columns else None
        with link.copy(table, ["run", *columns[numbered:]]) as copying:
            for row in map(list, ledger.execute(text(_select(table)))):
                if place is not None:
                    row[place] = workers.get(row[place])
                copying.write_row((run, *row[numbered:]))


def to_file(address: Address, name: str, file: Path) -> None:
    """Make the ledger of a run, of which nobody is at work, in `file`, which isn't there yet.

    Raises RunError while a process leads the run or works on it.
    """
    with (
        reported(file),
        closing(connect(file, read_only=False)) as ledger,
        connected(address) as link,
        link.transaction(),
    ):
        link.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        row = runs.row_of(link, name)
        if row is None:
            raise RunError(f"there is no run {name!r} in {address.label}.")
        if row.leader or row.workers:
            by = row.leader or "workers"
            raise RunError(
                f"run {name} is being worked on by {by}: copy it when it is finished or stopped."
            )
        vetting.refuse(f"{address.label}#{name}", damage_in(link, row.run))
        ledger.execute("BEGIN IMMEDIATE")
        for table in _TABLES:
            columns = _columns(table)
            marks = ", ".join("?" * len(columns))
            insert = f"INSERT INTO {table} (run, {', '.join(columns)}) VALUES (1, {marks})"  # noqa: S608
            query: Any = sent(_select(table), address, row.run)
            with link.connection.cursor(name="judgeq_copy") as rows:
                rows.itersize = _BLOCK
                ledger.executemany(insert, rows.execute(query))
        ledger.execute("COMMIT")
        ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
