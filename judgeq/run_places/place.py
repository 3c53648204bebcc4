"""What the places of runs have in common, be they folders or rows of a database: found by name,
numbered, made."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from judgeq.errors import RunError
from judgeq.files import refuse_linked_folder, unwritable
from judgeq.run_places.info import RunInfo
from judgeq.types import Notify


class Place(ABC):
    """Where one run is: its record, and the folder of its results. Reading one that can't be read raises
    RunError."""

    __slots__ = ()
    if TYPE_CHECKING:  # of a dataclass these would be the defaults of its fields

        @property
        def id(self) -> str:
            """The run id."""

        @property
        def path(self) -> Path:
            """The folder of its results."""

    @property
    def scores(self) -> Path:
        """The scores, once the run is finished or `judgeq show --write` was called."""
        return self.path / "scores.csv"

    @abstractmethod
    def info(self) -> RunInfo:
        """What the run is. Raises RunError where that isn't there or can't be read."""

    def make_folder(self) -> None:
        """Make the folder of its results. Raises DataError where it can't be made."""
        refuse_linked_folder(self.path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(self.path, error) from error


P = TypeVar("P", bound=Place)


class Places(ABC, Generic[P]):
    """Where runs are kept."""

    __slots__ = ()

    @property
    @abstractmethod
    def shown(self) -> str:
        """The place, for messages; never with a password."""

    @abstractmethod
    def all(self) -> list[P]:
        """All runs, the latest first; also those that can't be read, whose `info` says why."""

    def wait(self, warn: Notify) -> None:
        """Wait for a place that can't be reached just now, which `warn` gets a sentence about. Raises
        RunError where that takes too long."""

    @abstractmethod
    def called(self, name: str) -> P:
        """The place of the run of this id, whether or not it is there."""

    @abstractmethod
    def holds(self, place: P, fingerprint: str, new: bool) -> bool:
        """Whether a run with this fingerprint is there. Raises RunError where another run is."""

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


def id_of(name: str, fingerprint: str) -> str:
    """The run id of the first run with this fingerprint, which begins with `name`."""
    name = re.sub(r"[^A-Za-z0-9_.]+", "-", name)[:200]  # file systems allow 255 bytes
    return f"{name.strip('-.') or 'run'}-{fingerprint[:10]}"


def choose(runs: Sequence[P], name: str, where: str, listing: str = "judgeq runs") -> P:
    """The run meant by its id, its name, a unique beginning of its id, or "last", of those listed
    `where`. Raises RunError when there is none, or several; the command `listing` lists them."""
    if not runs:
        raise RunError(f"No runs yet in {where}. Start with: judgeq run demo")
    if name == "last":
        return _last(runs)
    exact = [run for run in runs if run.id == name]
    named = exact or [run for run in runs if name_of(run) == name]
    meant = named or [run for run in runs if run.id.startswith(name)]
    if len(meant) == 1:
        return meant[0]
    if not meant:
        raise RunError(f"there is no run {name!r} in {where}; `{listing}` lists them.")
    listed = ", ".join(run.id for run in meant[:5]) + (" …" if len(meant) > 5 else "")
    raise RunError(f"{name!r} means {len(meant)} runs: {listed}. Give more of the id.")


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
