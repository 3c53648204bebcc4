"""Runs in a PostgreSQL store. What is made from them (scores.csv) goes into local folders.

Anybody may have written to the database: a run's name becomes a folder's only if judgeq would make it
so, and texts must be those that the run was begun with.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_delay,
    wait_random,
)

from judgeq.datasets import Dataset
from judgeq.errors import RunError, StoreAwayError
from judgeq.run_places.info import RunInfo
from judgeq.run_places.place import Place, Places, choose
from judgeq.store import Store, open_stored
from judgeq.store.damage import refuse
from judgeq.store.postgres import runs as rows
from judgeq.store.postgres.address import Address, parse
from judgeq.store.postgres.link import reach
from judgeq.store.postgres.runs import RunRow
from judgeq.types import Notify

PATIENCE = 60.0
"""Seconds for which a store that can't be reached yet is waited for."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,230}")


@dataclass(frozen=True, slots=True)
class StoredRun(Place):
    """One run in a store; see `RunFolder`. `seen` is its row of a moment ago, where it was listed."""

    address: Address
    id: str
    root: Path
    seen: RunRow | None = field(default=None, compare=False, repr=False)
    accept_damage: bool = field(default=False, compare=False)

    @property
    def path(self) -> Path:
        """See RunFolder."""
        return self.root / self.id

    @property
    def shown(self) -> str:
        """See RunFolder."""
        return f"{self.address.shown}#{self.id}"

    @property
    def ledger(self) -> str:
        """See RunFolder."""
        return self.shown

    @property
    def config(self) -> str:
        """See RunFolder."""
        return self.shown

    @property
    def argument(self) -> str:
        """See RunFolder."""
        return shlex.join(self.words)

    @property
    def words(self) -> tuple[str, ...]:
        """See RunFolder: without the password, which may come from $PGPASSWORD or ~/.pgpass."""
        return (self.id, "--store", self.address.shown)

    @property
    def kind(self) -> str:
        """See RunFolder."""
        return "store"

    @property
    def here(self) -> str:
        """See RunFolder."""
        return "from this machine"

    @property
    def identity(self) -> str:
        """See RunFolder: by all of the address, since any of it may lead to another database."""
        return self.shown

    @property
    def owner(self) -> int | None:
        """See RunFolder: a store is there to be shared."""
        return None

    @property
    def exists(self) -> bool:
        """See RunFolder."""
        return self._row is not None

    @property
    def taken(self) -> bool:
        """See RunFolder."""
        return self.exists

    @property
    def _row(self) -> RunRow | None:
        return self.seen or rows.read(self.address, self.id)

    def row(self) -> RunRow:
        """The run as the store has it. Raises RunError where it isn't there."""
        row = self._row
        if row is None:
            raise RunError(f"there is no run {self.id!r} in {self.address.shown}.")
        return row

    def anew(self) -> StoredRun:
        """See RunFolder."""
        return replace(self, seen=None)

    @property
    def store_address(self) -> str:
        """The address of its store, without a password."""
        return self.address.shown

    def info(self) -> RunInfo:
        """See RunFolder."""
        row = self.row()
        info = RunInfo.read(row.info, self.shown)
        if info.fingerprint != row.fingerprint:
            raise RunError(f"{self.shown} is damaged: it has two fingerprints.")
        return info

    def write_info(self, info: RunInfo, prompt: str | None = None) -> None:
        """See RunFolder. The same run, just written by another process, stays as that wrote it."""
        text = info.model_dump_json(indent=2)
        row = rows.write(self.address, self.id, info.fingerprint, text, prompt)
        if row.info != text and replace(self, seen=row).info().created == info.created:
            rows.rewrite(self.address, row.run, text)

    def prompt(self) -> str | None:
        """See RunFolder."""
        return self.row().prompt

    def share(self, dataset: Dataset) -> None:
        """See RunFolder."""
        if dataset.texts is not None:
            rows.share(self.address, self.row().run, dataset.texts)

    def dataset(self) -> Dataset | None:
        """See RunFolder."""
        row, info = self.row(), self.info()
        try:
            kept = rows.shared(self.address, row.run) if row.texts else None
        except (TypeError, ValueError) as error:
            raise RunError(f"{self.shown} is damaged: {error}.") from error
        if kept is None:
            return None
        items, texts = kept
        dataset = Dataset(
            name=info.dataset,
            ids=items.ids,
            texts=texts,
            gold=items.gold,
            subsets=dict(items.subsets),
            source=f"the texts shared in {self.address.shown}",
            known_as=str(info.facts.get("dataset")),
            licence=info.licence,
        )
        if dataset.shared != info.shared:
            raise RunError(f"the texts in {self.shown} are not those that the run was begun with.")
        return dataset

    def touched(self) -> float:
        """See RunFolder."""
        return self.row().touched

    def is_running(self) -> bool:
        """See RunFolder. Workers go on where the process that led is gone."""
        row = self.row()
        return row.leader is not None or row.workers > 0

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder of results. Who leads the run is the store's to say, which knows when."""
        self.make_folder()
        yield

    def remove(self) -> None:
        """Delete the run from its store; the local folder of its results stays. See RunFolder."""
        rows.drop(self.address, self.row())

    def caution(self) -> str | None:
        """See RunFolder."""
        return None

    def store(self, *, read_only: bool = False) -> Store:
        """See RunFolder."""
        run = self.row().run
        damage = rows.damage(self.address, run)
        if not (read_only and self.accept_damage):
            refuse(self.shown, damage)
        return open_stored(self.address, run, self.id, damage=damage)


@dataclass(frozen=True, slots=True)
class StoredRuns(Places[StoredRun]):
    """The runs in a store, whose results go under `root`; see `FolderRuns`."""

    address: Address
    root: Path

    @classmethod
    def at(cls, address: str, root: Path) -> StoredRuns:
        """Those of an address as it was given. Raises UsageError for one that is none."""
        return cls(parse(address), root)

    @property
    def shown(self) -> str:
        """See FolderRuns."""
        return self.address.shown

    def called(self, name: str) -> StoredRun:
        """See Places."""
        return StoredRun(self.address, name, self.root)

    def holds(self, place: StoredRun, fingerprint: str, new: bool) -> bool:
        """See Places."""
        row = rows.read(self.address, place.id)
        if row is not None and row.fingerprint != fingerprint:
            raise RunError(f"{place.shown} is another run (its fingerprint differs).")
        return row is not None

    def all(self) -> list[StoredRun]:
        """See FolderRuns; without rows whose name judgeq doesn't give."""
        listed = [
            StoredRun(self.address, row.name, self.root, row)
            for row in rows.listed(self.address)
            if _NAME.fullmatch(row.name)
        ]
        return sorted(listed, key=_latest, reverse=True)

    def wait(self, warn: Notify) -> None:
        """See Places."""

        def tried(state: RetryCallState) -> None:
            if state.attempt_number == 1 and state.outcome is not None:
                warn(f"{state.outcome.exception()} It is tried again for {PATIENCE:.0f} s.")

        Retrying(
            retry=retry_if_exception_type(StoreAwayError),
            stop=stop_after_delay(PATIENCE),
            wait=wait_random(0.5, 2.0),
            before_sleep=tried,
            reraise=True,
        )(reach, self.address)

    def lookout(self) -> Store:
        """A store of no run, which says which runs have work now. Whoever waits for work may be stopped,
        and looks again: a database that is away isn't waited for."""
        store = open_stored(self.address, 0, "")
        store.hurry()
        return store

    def find(self, name: str, accept_damage: bool = False) -> StoredRun:
        """See FolderRuns."""
        listing = shlex.join(("judgeq", "runs", "--store", self.shown))
        found = choose(self.all(), name, self.shown, listing)
        return replace(found, seen=None, accept_damage=accept_damage)


def _latest(run: StoredRun) -> tuple[Any, ...]:
    return run.touched(), run.id
