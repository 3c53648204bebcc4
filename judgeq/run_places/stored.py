"""Runs in a PostgreSQL store. What is made from them (scores.csv) goes into local folders.

Anybody may have written to the database: a run's name becomes a folder's only if judgeq would make it
so. What is given a connection is a part of its caller's transaction; all else opens one of its own, for
a short while, and raises RunError where the database can't be used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Self

from typing_extensions import override

from judgeq.errors import RunError, StoreAwayError
from judgeq.files import make_folder
from judgeq.run_places.folders import FolderRuns, RunFolder
from judgeq.run_places.info import RunInfo
from judgeq.store import Store
from judgeq.store.link import Address, Link, in_store, made, opened, parse, prepare
from judgeq.store.schema import ADDED_UP, OF_A_RUN, refuse
from judgeq.store.shared import PostgresStore
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
_INSERT = """
INSERT INTO @.runs (name, fingerprint, info, touched) VALUES (:name, :fingerprint, :info, @now)
ON CONFLICT (name)
"""
_REWRITE = """
DO UPDATE SET info = excluded.info, touched = excluded.touched
WHERE runs.fingerprint = excluded.fingerprint
"""


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


def insert(link: Link, name: str, info: RunInfo, conflict: str = "DO NOTHING") -> bool:
    """Add the row of a run; False where one of its name is there, and nothing else was to be done."""
    text = info.model_dump_json(indent=2)
    put = f"{_INSERT} {conflict}"
    row = link.execute(put, name=name, fingerprint=info.fingerprint, info=text)
    return row.rowcount > 0


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
            if not insert(link, self.id, info, _REWRITE):
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
        refuse(self.label, in_store(self.address, lambda link: link.row(ADDED_UP, run)))
        return PostgresStore(self.address, run, name=self.id)


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
