"""Run folders: made, found, locked, listed.

`runs/<run id>/` holds run.db (the ledger), config.json (what the run is), scores.csv and a lock.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from filelock import FileLock, Timeout

from judgeq.datasets import Dataset
from judgeq.errors import RunError, UsageError
from judgeq.files import (
    read_start,
    refuse_links,
    replacing,
    write_new,
)
from judgeq.run_places.info import RunInfo
from judgeq.run_places.place import Place, Places, choose
from judgeq.store import DATABASE, Store, make_store, open_store

LOCK_WAIT = 1.0
"""Seconds to wait for the lock: longer than `is_running` holds it, shorter than a user's patience."""


def whoami() -> str:
    """This process, for another's error message."""
    return f"process {os.getpid()} on {socket.gethostname()}"


@dataclass(frozen=True, slots=True)
class RunFolder(Place):
    """One run's folder. Reading one that can't be read raises RunError."""

    path: Path
    accept_damage: bool = field(default=False, compare=False)

    @property
    def id(self) -> str:
        """The run id: the folder's name."""
        return self.path.name

    @property
    def database(self) -> Path:
        """The ledger."""
        return self.path / DATABASE

    @property
    def shown(self) -> str:
        """The place, for messages; never with a password."""
        return str(self.path)

    @property
    def ledger(self) -> str:
        """Where the calls and verdicts are, for messages."""
        return str(self.database)

    @property
    def config(self) -> str:
        """Where `info` is kept, for messages."""
        return str(self.path / "config.json")

    @property
    def argument(self) -> str:
        """How a command is given the run: `judgeq resume {argument}`."""
        return self.id

    @property
    def words(self) -> tuple[str, ...]:
        """The same from anywhere, word by word."""
        return (str(self.path),)

    @property
    def kind(self) -> str:
        """ "folder" or "store", for messages."""
        return "folder"

    @property
    def here(self) -> str:
        """Where a user may have begun the run, for messages."""
        return "in this folder"

    @property
    def identity(self) -> str:
        """What no other place has: by it a user's own settings for the run are remembered."""
        return os.fsencode(self.path.resolve()).decode("utf-8", "backslashreplace")

    @property
    def owner(self) -> int | None:
        """The user (uid) whom the place belongs to; None where that isn't known."""
        try:
            return self.path.stat().st_uid
        except OSError:  # not there
            return None

    @property
    def exists(self) -> bool:
        """Whether it is written down there what the run is."""
        return os.path.lexists(self.path / "config.json")

    @property
    def taken(self) -> bool:
        """Whether anything is there, so that no other run can be put there."""
        return self.path.exists()

    def anew(self) -> RunFolder:
        """The same place, of which nothing is known: a run that was listed may know what was there
        then."""
        return self

    @property
    def store_address(self) -> None:
        """Of a folder there is none."""

    def info(self) -> RunInfo:
        """What the run is. Raises RunError when config.json isn't there or can't be read."""
        path = self.path / "config.json"
        if path.exists() and not path.is_file():  # a pipe would be waited for without end
            raise RunError(f"{self.path} is no run: {path} is no ordinary file.")
        try:
            text = path.read_bytes()
        except OSError as error:
            raise RunError(
                f"{self.path} is no run: {path} can't be read ({error.strerror})."
            ) from error
        return RunInfo.read(text, str(path))

    def write_info(self, info: RunInfo, prompt: str | None = None) -> None:
        """Write config.json, whole or not at all. A prompt set stays where it is.

        The ledger is made first: where config.json is and the ledger isn't, the ledger was lost.
        """
        if not self.exists:
            make_store(self.path)
        with replacing(self.path / "config.json") as file:
            file.write(info.model_dump_json(indent=2) + "\n")

    def prompt(self) -> str | None:
        """The prompt set as it was written down; None where it is to be had as the settings say."""
        return None

    def share(self, dataset: Dataset) -> None:
        """Keep the dataset's texts beside the ledger, for workers on other machines."""
        raise UsageError("--share-texts goes with --store: a run folder never holds texts.")

    def dataset(self) -> Dataset | None:
        """The items with their texts, where these are shared. Raises RunError for other texts than the
        run was begun with."""
        return None

    def touched(self) -> float:
        """When the ledger was last written, in seconds since the epoch; 0 if never."""
        times = [0.0]
        for path in (self.database, self.database.with_name(f"{DATABASE}-wal")):
            with suppress(OSError):  # the log goes when its writer ends
                stat = path.stat()
                if stat.st_size:  # a reader leaves an empty log behind
                    times.append(stat.st_mtime)
        return max(times)

    def is_running(self) -> bool:
        """Whether a process holds the run now."""
        if not os.path.lexists(self.path / "lock"):
            return False
        lock = FileLock(self.path / "lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return True
        except OSError:  # a folder we may not write to: whoever may is not to be seen from here
            return False
        lock.release()
        return False

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run, and make its folder. Raises RunError while another process holds it."""
        self.make_folder()
        refuse_links(self.path / "lock")
        lock = FileLock(self.path / "lock")
        try:
            lock.acquire(timeout=LOCK_WAIT)
        except Timeout as error:
            raise RunError(
                f"run {self.id} is in use{self._holder()}. `judgeq status {self.id}` shows how far "
                "it is; to run the same from the start beside it, add --new."
            ) from error
        except (OSError, NotImplementedError) as error:
            raise RunError(f"run {self.id} can't be locked: {error}.") from error
        try:
            with suppress(OSError):  # only says which process this is
                write_new(self.path / "holder", f"{whoami()}\n")
            yield
        finally:
            with suppress(OSError):
                (self.path / "holder").unlink(missing_ok=True)
            lock.release()

    def remove(self) -> None:
        """Delete the folder with all that is in it. Raises RunError while a process holds the run, and
        where it can't be deleted."""
        with self.locked():
            try:
                shutil.rmtree(self.path)
            except OSError as error:
                raise RunError(f"{self.path} can't be removed: {error}.") from error

    def caution(self) -> str | None:
        """Why the place is unsafe for a run; None if it isn't."""
        kind = network_file_system(self.path)
        if kind is None:
            return None
        return (
            f"{self.path} is on a network file system ({kind}), where file locks aren't reliable: "
            "never run one run from two machines, or set --runs-dir to a local disk."
        )

    def store(self, *, read_only: bool = False) -> Store:
        """The ledger. Raises RunError if it can't
        be opened, was lost, or doesn't add up (unless the place accepts that, for a reader)."""
        accept = read_only and self.accept_damage
        new = not self.exists
        return open_store(self.path, read_only=read_only, make=new, accept_damage=accept)

    def _holder(self) -> str:
        try:
            text = read_start(self.path / "holder", 200).strip()
        except OSError:
            return ""
        return f" by {text}"


@dataclass(frozen=True, slots=True)
class FolderRuns(Places[RunFolder]):
    """The runs in folders under `root`."""

    root: Path

    @property
    def shown(self) -> str:
        """The place, for messages."""
        return str(self.root)

    def called(self, name: str) -> RunFolder:
        """See Places."""
        return RunFolder(self.root / name)

    def holds(self, place: RunFolder, fingerprint: str, new: bool) -> bool:
        """See Places."""
        if not os.path.lexists(place.path):
            return False
        _check_same(place, fingerprint, new)
        return True

    def all(self) -> list[RunFolder]:
        """All runs, the latest first; also those that can't be read, whose `info` says why."""
        if not self.root.is_dir():
            return []
        try:
            listed = [RunFolder(path) for path in self.root.iterdir() if _is_run(path)]
        except OSError as error:
            raise RunError(f"{self.root} can't be read: {error.strerror}.") from error
        return sorted(listed, key=lambda folder: (folder.touched(), folder.id), reverse=True)

    def find(self, name: str, accept_damage: bool = False) -> RunFolder:
        """The run a user means: its id, its name, a unique beginning of its id, or "last"; read also
        where it doesn't add up, if that is accepted.

        Raises RunError when there is none, or several.
        """
        with suppress(OSError):  # no name of a folder at all
            if name and (Path(name) / "config.json").is_file():
                return RunFolder(Path(name).resolve(), accept_damage)
        return replace(choose(self.all(), name, self.shown), accept_damage=accept_damage)


def _check_same(folder: RunFolder, fingerprint: str, new: bool) -> None:
    """Raise RunError when an existing folder holds another run, or one that can't be read; beside
    the latter a new one may begin."""
    if not folder.exists:
        return
    try:
        there = folder.info().fingerprint
    except RunError as error:
        if new:
            return
        raise RunError(f"{error} Move the folder away, or begin beside it with --new.") from error
    if there != fingerprint:
        raise RunError(f"{folder.path} holds another run (its fingerprint differs); move it away.")


def _is_run(folder: Path) -> bool:
    """Whether a folder is a run's; also one that can't be looked into, which may be."""
    try:
        return (folder / "config.json").is_file()
    except OSError:
        return True


def network_file_system(folder: Path) -> str | None:
    """The kind of network file system `folder` lies on, or None (Linux; elsewhere always None).

    SQLite's locks and shared memory are not safe on most of them.
    """
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return file_system(folder.resolve(), mounts)


def file_system(folder: Path, mounts: str) -> str | None:
    """The network file system that `folder` lies on by a table of /proc/self/mounts, or None."""
    best, kind = Path(), ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        mounted = Path(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), fields[1]))
        if folder.is_relative_to(mounted) and len(mounted.parts) >= len(best.parts):
            best, kind = mounted, fields[2]
    remote = (
        *("nfs", "cifs", "smb", "9p", "afs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs"),
        *(
            f"fuse.{name}"
            for name in ("sshfs", "glusterfs", "s3fs", "gcsfuse", "juicefs", "rclone")
        ),
    )
    return kind if kind.startswith(remote) else None
