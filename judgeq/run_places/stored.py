"""Runs in a PostgreSQL store, and copies between it and folders. What is made from them (scores.csv)
goes into local folders.

Anybody may have written to the database: a run's name becomes a folder's only if judgeq would make it
so. What is given a connection is a part of its caller's transaction; all else opens one of its own, for
a short while, and raises RunError where the database can't be used.

A copy is one transaction, and loses nothing. What only says who works on the run now stays behind:
leases, what people have, and what of the cap workers hold; a job that was running is pending again, as
it is for the next that leads, unless a batch has it. In a store calls and workers are numbered anew, in
their order.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self

from typing_extensions import override

from judgeq.errors import RunError, StoreAwayError, UsageError
from judgeq.files import make_folder, refuse_linked_folder
from judgeq.run_places.folders import FolderRuns, RunFolder, staging
from judgeq.run_places.info import RunInfo
from judgeq.store import Store, schema
from judgeq.store.link import Address, Link, in_store, made, opened, parse, prepare, sent
from judgeq.store.schema import ADDED_UP, OF_A_RUN
from judgeq.store.shared import PostgresStore
from judgeq.store.sqlite import connect, reported, text
from judgeq.types import Notify

PATIENCE = 60.0
"""Seconds for which a store that can't be reached yet is waited for."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,230}")
_ROWS = """
SELECT r.run, r.name, r.fingerprint, r.info, greatest(0, least(253402300799, greatest(
    r.touched, (SELECT max(w.seen) FROM @.workers w WHERE w.run = r.run)))),
    coalesce((SELECT 'led by ' || regexp_replace(l.holder, ' [(][^(]*[)]$', '') FROM @.lead l
              WHERE l.run = r.run AND l.until > @now),
        (SELECT 'worked on by ' || nullif(count(*), 0) || ' workers' FROM @.workers w
         WHERE w.run = r.run AND NOT w.over AND w.until > @now AND w.until < 'infinity'))
FROM @.runs r WHERE CAST(:name AS text) IS NULL OR r.name = :name
"""
_PUT = """
INSERT INTO @.runs (name, fingerprint, info, touched) VALUES (:name, :fingerprint, :info, @now)
ON CONFLICT (name) DO UPDATE SET info = excluded.info, touched = excluded.touched
WHERE :again AND runs.fingerprint = excluded.fingerprint RETURNING run
"""
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


class RunRow(NamedTuple):
    """A run as the store knows it: when it was last written to (seconds since the epoch), and in words
    who leads it now or works on it, if anybody does."""

    run: int
    name: str
    fingerprint: str
    info: str
    touched: float
    at_work: str | None


def rows(link: Link, name: str | None = None) -> list[RunRow]:
    """All runs, or that of this name."""
    return [RunRow(*row) for row in link.execute(_ROWS, name=name)]


def listed(address: Address, name: str | None = None) -> list[RunRow]:
    """As `rows`; none where the schema isn't there yet."""
    return in_store(address, lambda link: rows(link, name) if made(link) else [])


def idle(link: Link, name: str) -> RunRow:
    """The run of this name. Raises RunError where it isn't there, and while a process leads it or works
    on it."""
    found = rows(link, name)
    if not found:
        raise RunError(f"there is no run {name!r} in {link.address.label}.")
    if found[0].at_work:
        raise RunError(f"run {name} is {found[0].at_work} just now: stop that first.")
    return found[0]


def put_row(link: Link, name: str, info: RunInfo, *, again: bool) -> int | None:
    """The number of a run whose row is added, or written `again`; None where one of its name is there,
    which is another, or may not be written again."""
    text = info.model_dump_json(indent=2)
    row = link.row(_PUT, name=name, fingerprint=info.fingerprint, info=text, again=again)
    return None if row is None else int(row[0])


@dataclass(frozen=True, slots=True)
class StoredRun(RunFolder):
    """A run whose record is in a store. `seen` is its row of a moment ago, where it was listed."""

    address: Address = field(kw_only=True)
    seen: RunRow | None = field(default=None, compare=False, repr=False, kw_only=True)

    @override
    def runs(self) -> StoredRuns:
        return StoredRuns(self.path.parent, self.address)

    @property
    @override
    def exists(self) -> bool:
        """Whether the store has its row."""
        return bool(self._rows())

    def _rows(self) -> list[RunRow]:
        return listed(self.address, self.id) if self.seen is None else [self.seen]

    def row(self) -> RunRow:
        """The run as the store has it. Raises RunError where it isn't there."""
        for row in self._rows():
            return row
        raise RunError(f"there is no run {self.id!r} in {self.address.label}.")

    @override
    def info(self) -> RunInfo:
        row = self.row()
        info = RunInfo.read(row.info, self.label)
        if info.fingerprint != row.fingerprint:
            raise RunError(f"{self.label} is damaged: it has two fingerprints.")
        return info

    @override
    def fingerprint(self, new: bool) -> str | None:
        """As the row has it, whatever else that says."""
        return next((row.fingerprint for row in self._rows()), None)

    @override
    def write_info(self, info: RunInfo) -> None:
        """Write the row, unless there is another run's."""

        def write(link: Link) -> None:
            prepare(link)
            if put_row(link, self.id, info, again=True) is None:
                raise RunError(f"{self.label} is another run (its fingerprint differs).")

        in_store(self.address, write)

    @override
    def touched(self) -> float:
        return self.row().touched

    @override
    def is_running(self) -> bool:
        """Whether a process leads it, or workers go on where that is gone."""
        return self.row().at_work is not None

    @override
    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder of results. Who leads the run is the store's to say, which knows when."""
        make_folder(self.path)
        yield

    @override
    def remove(self) -> None:
        """Delete the run from its store; the local folder of its results stays."""
        with opened(self.address) as link, link.connection.transaction():
            # Whoever begins to lead it, or to work on it, waits for this row.
            link.execute("SELECT FROM @.runs WHERE name = :name FOR UPDATE", name=self.id)
            run = idle(link, self.id).run
            for table in (*OF_A_RUN, "lead", "runs"):
                link.execute(f"DELETE FROM @.{table} WHERE run = @run", run)  # noqa: S608

    @override
    def store(self, *, read_only: bool = False) -> Store:
        run = self.row().run
        schema.refuse(self.label, in_store(self.address, lambda link: link.row(ADDED_UP, run)))
        return PostgresStore(self.address, run, name=self.id)

    @override
    def take(self, made: RunFolder) -> None:
        info = made.info()
        try:
            with (
                reported(made.database),
                closing(connect(made.database, read_only=True)) as ledger,
                opened(self.address) as link,
            ):
                prepare(link)
                with link.connection.transaction():
                    run = put_row(link, self.id, info, again=False)
                    if run is None:
                        raise RunError(f"{self.label} is there already. Nothing was changed.")
                    _fill(ledger, link, run)
        except ValueError as error:  # a text that PostgreSQL can't keep
            raise RunError(f"{made.database} can't be kept in PostgreSQL: {error}.") from error


@dataclass(frozen=True, slots=True)
class StoredRuns(FolderRuns):
    """The runs in a store, whose results go under `root`."""

    address: Address

    @classmethod
    def at(cls, address: str, root: Path) -> StoredRuns:
        """Those of an address as it was given. Raises UsageError for one that is none."""
        return cls(root, parse(address))

    @override
    def called(self, name: str) -> StoredRun:
        return StoredRun(self.root / name, address=self.address)

    @override
    def all(self) -> Sequence[StoredRun]:
        """All rows whose name judgeq gives."""
        runs = [
            replace(self.called(row.name), seen=row)
            for row in listed(self.address)
            if _NAME.fullmatch(row.name)
        ]
        return sorted(runs, key=lambda run: (run.touched(), run.id), reverse=True)

    @override
    def patient(self, warn: Notify) -> Self:
        """Those in a database that may be starting, or start again meanwhile."""
        patient = replace(self, address=self.address._replace(patience=PATIENCE))
        try:
            in_store(self.address, made)
        except StoreAwayError as error:
            warn(f"{error} It is tried again for {PATIENCE:.0f} s.")
            in_store(patient.address, made)
        return patient

    def lookout(self) -> Store:
        """A store of no run, which says which runs have work now. Whoever waits for work may be stopped,
        and looks again: a database that is away isn't waited for."""
        store = PostgresStore(self.address, 0)
        store.hurry()
        return store


# Copies


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
            place.take(run)
    elif isinstance(run, StoredRun):
        _to_folder(run, place)
    return place


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


def _to_folder(run: StoredRun, folder: RunFolder) -> None:
    refuse_linked_folder(folder.path)
    there = RunError(f"{folder.path} is there already. Nothing was changed.")
    if folder.exists:
        raise there
    with staging(folder.path) as made:
        made.write_info(run.info())
        _to_file(run, made.database)
        if folder.path.is_dir():  # of its results
            for path in (made.database, made.config):
                path.rename(folder.path / path.name)
        elif not folder.put(made):
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
