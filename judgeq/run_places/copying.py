"""Runs put in a place whole: made in a folder beside, or copied between folders and stores.

A copy is one transaction, and loses nothing. What only says who works on the run now stays behind:
leases, what people have, and what of the cap workers hold; a job that was running is pending again, as
it is for the next that leads, unless a batch has it. In a store calls and workers are numbered anew, in
their order.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from judgeq.errors import DataError, RunError, UsageError
from judgeq.files import refuse_linked_folder
from judgeq.run_places.folders import FolderRuns, RunFolder, whoami
from judgeq.run_places.info import RunInfo
from judgeq.run_places.stored import StoredRun, idle, insert
from judgeq.store import Items, schema
from judgeq.store.link import Link, opened, prepare, sent
from judgeq.store.schema import ADDED_UP, OF_A_RUN
from judgeq.store.sqlite import connect, reported, text
from judgeq.types import Matches, Verdict

_BLOCK = 10_000
_TABLES = ["lead", "workers", *(table for table in OF_A_RUN if table not in ("handed", "workers"))]
_NUMBERS = """
SELECT nextval(pg_get_serial_sequence('@.workers', 'worker')) FROM generate_series(1, :n)
"""
# What is copied of a column in place of what it holds.
_INSTEAD = {
    "jobs.state": "CASE WHEN state = 'running' AND coalesce(worker, 0) NOT IN "
    "(SELECT worker FROM @.batches WHERE run = @run) THEN 'pending' ELSE state END",
    "lead.until": "CAST(0 AS float8)",
    "workers.over": "over OR worker NOT IN (SELECT worker FROM @.batches WHERE run = @run)",
    "workers.free": "0",
    "workers.reserved": "0",
}


@contextmanager
def staging(root: Path, name: str) -> Iterator[RunFolder]:
    """A folder for a run that is being made under `root`, which is not listed as one; gone afterwards,
    unless it was put in its place. Raises DataError where it can't be made."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".importing-", dir=root))
        # A level below: what a killed process leaves behind is not listed as a run.
        made = RunFolder(temporary / name)
        made.path.mkdir()
    except OSError as error:
        raise DataError(f"{root} can't be written: {error.strerror}.") from error
    try:
        yield made
    finally:
        shutil.rmtree(temporary)


async def record(
    root: Path,
    place: RunFolder,
    info: RunInfo,
    items: Items,
    rounds: Iterable[tuple[Matches, Sequence[Verdict]]],
) -> bool:
    """Put a run in its place whose `rounds` were judged elsewhere, made in a folder under `root`; as
    `put`."""
    with staging(root, place.id) as made:
        made.write_info(info)
        store, everybody = made.store(), np.ones(len(items.ids), np.bool_)
        try:
            epoch = await store.lead(whoami(), store.lease)
            await store.set_items(items)
            for round, (matches, verdicts) in enumerate(rounds, start=1):
                await store.plan_round(round, epoch, everybody, matches, verdicts)
        finally:
            await store.close()
        return put(made, place)


def put(made: RunFolder, place: RunFolder) -> bool:
    """Put a run that was made in a folder in its place, whole or not at all; False where there is one,
    which another process has just put there. Raises as the store does."""
    try:
        if isinstance(place, StoredRun):
            _to_store(made, place)
        else:
            made.path.rename(place.path)
    except (OSError, RunError):
        if not place.exists and not place.path.exists():
            raise
        return False
    return True


def copy(run: RunFolder, to: FolderRuns) -> RunFolder:
    """Copy a run between a folder and a store. The copy's place.

    Raises RunError while a process leads or works on the run, and where one of its name is there
    already; UsageError for a copy within folders, or from one store to another.
    """
    place = to.called(run.id)
    if isinstance(run, StoredRun) is isinstance(place, StoredRun):
        raise UsageError(
            "a run is copied between a folder and a store: --to takes a store's address for a run in a "
            "folder, and a folder for a run in a store (--store)."
        )
    if isinstance(place, StoredRun):
        with run.locked():
            _to_store(run, place)
    elif isinstance(run, StoredRun):
        _to_folder(run, place, to.root)
    return place


def _to_store(run: RunFolder, place: StoredRun) -> None:
    """Make a stored run, which isn't there yet, out of a folder's record, which the caller holds. Raises
    RunError where it is there, or for a file that is no run's."""
    info = run.info()
    try:
        with (
            reported(run.database),
            closing(connect(run.database, read_only=True)) as ledger,
            opened(place.address) as link,
        ):
            prepare(link)
            with link.connection.transaction():
                if not insert(link, place.id, info):
                    raise RunError(f"{place.label} is there already. Nothing was changed.")
                (number,) = link.row("SELECT run FROM @.runs WHERE name = :name", name=place.id)
                _fill(ledger, link, number)
    except ValueError as error:  # a text that PostgreSQL can't keep
        raise RunError(f"{run.database} can't be kept in PostgreSQL: {error}.") from error


def _fill(ledger: sqlite3.Connection, link: Link, run: int) -> None:
    """Copy a ledger's rows into a store."""
    old = [number for (number,) in ledger.execute("SELECT worker FROM workers ORDER BY worker")]
    workers = dict(zip(old, link.execute(_NUMBERS, n=len(old)).fetchall(), strict=True))
    for table in _TABLES:
        columns = _columns(table)
        numbered = table == "calls"  # by the store
        place = columns.index("worker") if "worker" in columns else None
        fill: Any = f"COPY @.{table} (run, {', '.join(columns[numbered:])}) FROM STDIN"
        with link.connection.cursor().copy(sent(fill, link.address, run)) as copying:
            for row in map(list, ledger.execute(text(_select(table)))):
                if place is not None:
                    (row[place],) = workers.get(row[place], (None,))
                copying.write_row((run, *row[numbered:]))


def _to_folder(run: StoredRun, folder: RunFolder, root: Path) -> None:
    refuse_linked_folder(folder.path)
    there = RunError(f"{folder.path} is there already. Nothing was changed.")
    if folder.exists:
        raise there
    with staging(root, run.id) as made:
        made.write_info(run.info())
        _to_file(run, made.database)
        if folder.path.is_dir():  # of its results
            for path in (made.database, made.config):
                path.rename(folder.path / path.name)
        elif not put(made, folder):
            raise there


def _to_file(run: StoredRun, file: Path) -> None:
    """Make the ledger of a run, of which nobody is at work, in `file`, which isn't there yet.

    Raises RunError while a process leads the run or works on it.
    """
    with (
        reported(file),
        closing(connect(file, read_only=False)) as ledger,
        opened(run.address) as link,
        link.connection.transaction(),
    ):
        link.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        row = idle(link, run.id)
        schema.refuse(run.label, link.row(ADDED_UP, row.run))
        ledger.execute("BEGIN IMMEDIATE")
        for table in _TABLES:
            columns = _columns(table)
            marks = ", ".join("?" * len(columns))
            insert = f"INSERT INTO {table} (run, {', '.join(columns)}) VALUES (1, {marks})"  # noqa: S608
            query: Any = sent(_select(table), run.address, row.run)
            with link.connection.cursor(name="judgeq_copy") as rows:
                rows.itersize = _BLOCK
                ledger.executemany(insert, rows.execute(query))
        ledger.execute("COMMIT")
        ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@cache
def _columns(table: str) -> list[str]:
    """The columns of a table, the one first that orders its rows; without that of the run."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        schema.make(connection)
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    return [name for name in names if name != "run"]


def _select(table: str) -> str:
    columns = _columns(table)
    read = ", ".join(_INSTEAD.get(f"{table}.{name}", name) for name in columns)
    return f"SELECT {read} FROM @.{table} WHERE run = @run ORDER BY {columns[0]}"  # noqa: S608
