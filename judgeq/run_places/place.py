"""What the places of runs have in common, be they folders or rows of a database: found by name,
numbered, made."""

from __future__ import annotations

import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Generic, Self, TypeVar

from judgeq.datasets import Dataset
from judgeq.errors import RunError
from judgeq.files import refuse_linked_folder, unwritable
from judgeq.run_places.info import RunInfo
from judgeq.store import Store
from judgeq.types import Notify


@dataclass(frozen=True, slots=True)
class Place(ABC):
    """Where one run is: its record, and the folder of its results (`path`), which has its name. Reading
    one that can't be read raises RunError."""

    path: Path
    accept_damage: bool = field(default=False, compare=False, kw_only=True)

    @property
    def id(self) -> str:
        """The run id."""
        return self.path.name

    @property
    def scores(self) -> Path:
        """The scores, once the run is finished or `judgeq show --write` was called."""
        return self.path / "scores.csv"

    @property
    @abstractmethod
    def label(self) -> str:
        """The place, for messages; never with a password."""

    @property
    def ledger(self) -> str:
        """Where the calls and verdicts are, for messages."""
        return self.label

    @property
    @abstractmethod
    def words(self) -> tuple[str, ...]:
        """How a command is given the run from anywhere, word by word."""

    @property
    def argument(self) -> str:
        """How a command is given the run: `judgeq resume {argument}`."""
        return shlex.join(self.words)

    @property
    def identity(self) -> str:
        """What no other place has: by it a user's own settings for the run are remembered. Any part of
        an address may lead to another database."""
        return self.label

    @property
    def owner(self) -> int | None:
        """The user (uid) whom the place belongs to; None where that isn't known, or it is shared."""
        return None

    @property
    def store_address(self) -> str | None:
        """The address of its store, without a password; None of a folder."""
        return None

    @property
    @abstractmethod
    def exists(self) -> bool:
        """Whether it is written down there what the run is."""

    @abstractmethod
    def info(self) -> RunInfo:
        """What the run is. Raises RunError where that isn't there or can't be read."""

    @abstractmethod
    def write_info(self, info: RunInfo, prompt: str | None = None) -> None:
        """Write down what the run is, whole or not at all, and its prompt set if that is kept, too."""

    def prompt(self) -> str | None:
        """The prompt set as it was written down; None where it is to be had as the settings say."""
        return None

    @abstractmethod
    def share(self, dataset: Dataset) -> None:
        """Keep the dataset's texts beside the record, for workers on other machines."""

    def dataset(self) -> Dataset | None:
        """The items with their texts, where these are shared. Raises RunError for other texts than the
        run was begun with."""
        return None

    @abstractmethod
    def touched(self) -> float:
        """When the record was last written, in seconds since the epoch; 0 if never."""

    @abstractmethod
    def is_running(self) -> bool:
        """Whether a process works on the run now."""

    @abstractmethod
    def locked(self) -> AbstractContextManager[None]:
        """Hold the run, and make its folder. Raises RunError while another process holds it."""

    @abstractmethod
    def remove(self) -> None:
        """Delete the run. Raises RunError while a process holds it, and where it can't be deleted."""

    def caution(self) -> str | None:
        """Why the place is unsafe for a run; None if it isn't."""
        return None

    @abstractmethod
    def store(self, *, read_only: bool = False) -> Store:
        """The record. Raises RunError if it can't be opened, was lost, or doesn't add up (unless the
        place accepts that, for a reader)."""

    def make_folder(self) -> None:
        """Make the folder of its results. Raises DataError where it can't be made."""
        refuse_linked_folder(self.path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(self.path, error) from error


P = TypeVar("P", bound=Place)


@dataclass(frozen=True, slots=True)
class Places(ABC, Generic[P]):
    """Where runs are kept, with their results under `root`."""

    root: Path

    @property
    @abstractmethod
    def label(self) -> str:
        """The place, for messages; never with a password."""

    @property
    def words(self) -> tuple[str, ...]:
        """How a command is given the place, word by word."""
        return ()

    @abstractmethod
    def all(self) -> list[P]:
        """All runs, the latest first; also those that can't be read, whose `info` says why."""

    @abstractmethod
    def called(self, name: str) -> P:
        """The place of the run of this id, whether or not it is there."""

    @abstractmethod
    def holds(self, place: P, fingerprint: str, new: bool) -> bool:
        """Whether anything is there, and that is a run with this fingerprint. Raises RunError where
        another run is, or one that can't be read; beside the latter a `new` one may begin."""

    def patient(self, warn: Notify) -> Self:
        """The same, for who works on a run: where it can't be reached a minute is waited, now and later,
        and `warn` gets a sentence. Raises RunError where that takes longer."""
        return self

    def place(self, name: str, fingerprint: str, new: bool) -> P:
        """The place of the run with this fingerprint: the latest there is, or one to be made.

        `name` begins the run id. Raises RunError when the id's place holds another run.
        """
        base = id_of(name, fingerprint)
        latest: P | None = None
        for number in count(2):
            there = self.called(base) if latest is None else self.called(f"{base}-{number - 1}")
            if not self.holds(there, fingerprint, new):
                break
            latest = there
        return there if new or latest is None else latest

    def find(self, name: str, accept_damage: bool = False) -> P:
        """The run a user means: its id, its name, a unique beginning of its id, or "last"; read also
        where it doesn't add up, if that is accepted.

        Raises RunError when there is none, or several.
        """
        return replace(self.called(self._meant(name).id), accept_damage=accept_damage)

    def _meant(self, name: str) -> P:
        runs = self.all()
        if not runs:
            raise RunError(f"No runs yet in {self.label}. Start with: judgeq run demo")
        if name == "last":
            return _last(runs)
        exact = [run for run in runs if run.id == name]
        named = exact or [run for run in runs if name_of(run) == name]
        meant = named or [run for run in runs if run.id.startswith(name)]
        if len(meant) == 1:
            return meant[0]
        if not meant:
            listing = shlex.join(("judgeq", "runs", *self.words))
            raise RunError(f"there is no run {name!r} in {self.label}; `{listing}` lists them.")
        listed = ", ".join(run.id for run in meant[:5]) + (" …" if len(meant) > 5 else "")
        raise RunError(f"{name!r} means {len(meant)} runs: {listed}. Give more of the id.")


def id_of(name: str, fingerprint: str) -> str:
    """The run id of the first run with this fingerprint, which begins with `name`."""
    name = re.sub(r"[^A-Za-z0-9_.]+", "-", name)[:200]  # file systems allow 255 bytes
    return f"{name.strip('-.') or 'run'}-{fingerprint[:10]}"


def name_of(run: Place) -> str | None:
    """The name that the user gave a run; None if there is none, or it can't be read."""
    try:
        return run.info().settings.name
    except RunError:
        return None


def _last(runs: Sequence[P]) -> P:
    """The latest run. Raises RunError naming it when it can't be read: another isn't meant."""
    try:
        runs[0].info()
    except RunError as error:
        hint = f" The latest before it is {runs[1].id}." if len(runs) > 1 else ""
        raise RunError(
            f"the last run, {runs[0].id}, can't be read: {error} Name the run that you mean "
            f"(`judgeq runs` lists them), or move that folder away.{hint}"
        ) from error
    return runs[0]
