"""What a run's place is, a folder or a row of a database, and how runs are named and chosen."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeVar

from judgeq.datasets import Dataset
from judgeq.errors import RunError
from judgeq.runs.info import RunInfo
from judgeq.store import Store


class RunPlace(Protocol):
    """Where one run is kept. Reading a place that can't be read raises RunError."""

    @property
    def id(self) -> str:
        """The run id."""

    @property
    def path(self) -> Path:
        """The local folder of what is made from the ledger: scores.csv."""

    @property
    def scores(self) -> Path:
        """The scores, once the run is finished or `judgeq rate` was called."""

    @property
    def shown(self) -> str:
        """The place, for messages; never with a password."""

    @property
    def ledger(self) -> str:
        """Where the calls and verdicts are, for messages."""

    @property
    def config(self) -> str:
        """Where `info` is kept, for messages."""

    @property
    def argument(self) -> str:
        """How a command is given the run: `judgeq resume {argument}`."""

    @property
    def words(self) -> tuple[str, ...]:
        """The same from anywhere, word by word."""

    @property
    def kind(self) -> str:
        """ "folder" or "store", for messages."""

    @property
    def here(self) -> str:
        """Where a user may have begun the run, for messages."""

    @property
    def identity(self) -> str:
        """What no other place has: by it a user's own settings for the run are remembered."""

    @property
    def owner(self) -> int | None:
        """The user (uid) whom the place belongs to; None where that isn't known."""

    @property
    def exists(self) -> bool:
        """Whether it is written down there what the run is."""

    @property
    def taken(self) -> bool:
        """Whether anything is there, so that no other run can be put there."""

    def anew(self) -> RunPlace:
        """The same place, of which nothing is known: a run that was listed may know what was there
        then."""

    @property
    def store_address(self) -> str | None:
        """The address of the store that has the run, never with a password; None of a folder."""

    def info(self) -> RunInfo:
        """What the run is."""

    def write_info(self, info: RunInfo, prompt: str | None = None) -> None:
        """Write down what the run is, whole or not at all; where others join in also the prompt set,
        as JSON."""

    def prompt(self) -> str | None:
        """The prompt set as it was written down; None where it is to be had as the settings say."""

    def share(self, dataset: Dataset) -> None:
        """Keep the dataset's texts beside the ledger, for workers on other machines."""

    def dataset(self) -> Dataset | None:
        """The items with their texts, where these are shared. Raises RunError for other texts than the
        run was begun with."""

    def touched(self) -> float:
        """When the ledger was last written, in seconds since the epoch; 0 if never."""

    def is_running(self) -> bool:
        """Whether a process is at the run now."""

    def locked(self) -> AbstractContextManager[None]:
        """Hold the run as far as its place can; a folder is made. Raises RunError while another
        process holds it."""

    def caution(self) -> str | None:
        """Why the place is unsafe for a run; None if it isn't."""

    def store(self, *, read_only: bool = False) -> Store:
        """The ledger; for a writer, which must hold the run, it is migrated. Raises RunError if it can't
        be opened, was lost, or doesn't add up (unless the place accepts that, for a reader)."""


class Runs(Protocol):
    """Where runs are kept, as far as commands see it."""

    @property
    def shown(self) -> str:
        """The place, for messages."""

    def place(self, name: str, fingerprint: str, new: bool) -> RunPlace:
        """The place of the run with this fingerprint: the latest there is, or one to be made.

        `name` begins the run id. Raises RunError when the id's place holds another run.
        """

    def all(self) -> Sequence[RunPlace]:
        """All runs, the latest first; also those that can't be read, whose `info` says why."""

    def find(self, name: str, accept_damage: bool = False) -> RunPlace:
        """The run a user means: its id, a unique beginning of it, or "last"; read also where it doesn't
        add up, if that is accepted.

        Raises RunError when there is none, or several.
        """


P = TypeVar("P", bound=RunPlace)


def id_of(name: str, fingerprint: str) -> str:
    """The run id of the first run with this fingerprint, which begins with `name`."""
    name = re.sub(r"[^A-Za-z0-9_.]+", "-", name)[:200]  # file systems allow 255 bytes
    return f"{name.strip('-.') or 'run'}-{fingerprint[:10]}"


def choose(runs: Sequence[P], name: str, where: str, listing: str = "judgeq runs") -> P:
    """The run meant by its id, a unique beginning of it, or "last", of those listed `where`. Raises
    RunError when there is none, or several; the command `listing` lists them."""
    if not runs:
        raise RunError(f"there are no runs in {where}; `judgeq run --dataset demo` makes one.")
    if name == "last":
        return _last(runs)
    exact = [run for run in runs if run.id == name]
    meant = exact or [run for run in runs if run.id.startswith(name)]
    if len(meant) == 1:
        return meant[0]
    if not meant:
        raise RunError(f"there is no run {name!r} in {where}; `{listing}` lists them.")
    listed = ", ".join(run.id for run in meant[:5]) + (" …" if len(meant) > 5 else "")
    raise RunError(f"{name!r} begins {len(meant)} runs: {listed}. Give more of the id.")


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


def whoami() -> str:
    """This process, for another's error message."""
    return f"process {os.getpid()} on {socket.gethostname()}"
