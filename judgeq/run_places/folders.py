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
from dataclasses import dataclass
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
from judgeq.run_places.place import Place, Places
from judgeq.store import DATABASE, Store, make_store, open_store

LOCK_WAIT = 1.0
"""Seconds to wait for the lock: longer than `is_running` holds it, shorter than a user's patience."""


def whoami() -> str:
    """This process, for another's error message."""
    return f"process {os.getpid()} on {socket.gethostname()}"


@dataclass(frozen=True, slots=True)
class RunFolder(Place):
    """One run's folder, and all that is in it."""

    @property
    def database(self) -> Path:
        """The file of the ledger."""
        return self.path / DATABASE

    @property
    def config(self) -> Path:
        """The file that says what the run is."""
        return self.path / "config.json"

    @property
    def label(self) -> str:
        """The folder."""
        return str(self.path)

    @property
    def ledger(self) -> str:
        """The path of the ledger."""
        return str(self.database)

    @property
    def words(self) -> tuple[str, ...]:
        """The path."""
        return (self.label,)

    @property
    def argument(self) -> str:
        """The id, of runs in the usual place."""
        return self.id

    @property
    def identity(self) -> str:
        """The whole path."""
        return os.fsencode(self.path.resolve()).decode("utf-8", "backslashreplace")

    @property
    def owner(self) -> int | None:
        """The folder's user; None where it isn't there."""
        try:
            return self.path.stat().st_uid
        except OSError:
            return None

    @property
    def exists(self) -> bool:
        """Whether config.json is there."""
        return os.path.lexists(self.config)

    def info(self) -> RunInfo:
        """What config.json says."""
        if self.config.exists() and not self.config.is_file():
            # A pipe would be waited for without end.
            raise RunError(f"{self.path} is no run: {self.config} is no ordinary file.")
        try:
            text = self.config.read_bytes()
        except OSError as error:
            raise RunError(
                f"{self.path} is no run: {self.config} can't be read ({error.strerror})."
            ) from error
        return RunInfo.read(text, str(self.config))

    def write_info(self, info: RunInfo, prompt: str | None = None) -> None:
        """Write config.json. A prompt set stays where it is.

        The ledger is made first: where config.json is and the ledger isn't, the ledger was lost.
        """
        if not self.exists:
            make_store(self.path)
        with replacing(self.config) as file:
            file.write(info.model_dump_json(indent=2) + "\n")

    def share(self, dataset: Dataset) -> None:
        """Raise UsageError: texts stay in the user's own files."""
        raise UsageError("--share-texts goes with --store: a run folder never holds texts.")

    def touched(self) -> float:
        """When the ledger's files changed."""
        times = [0.0]
        for path in (self.database, self.database.with_name(f"{DATABASE}-wal")):
            with suppress(OSError):  # the log goes when its writer ends
                stat = path.stat()
                if stat.st_size:  # a reader leaves an empty log behind
                    times.append(stat.st_mtime)
        return max(times)

    def is_running(self) -> bool:
        """Whether a process holds the lock."""
        if not os.path.lexists(self.path / "lock"):
            return False
        lock = FileLock(self.path / "lock")
        try:
            refuse_links(
                self.path / "lock"
            )  # a stranger's may lead to a file, which is then emptied
            lock.acquire(timeout=0)
        except Timeout:
            return True
        except (OSError, RunError):  # or a folder we may not write to: whoever may isn't to be seen
            return False
        lock.release()
        return False

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock."""
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
        """Delete the folder with all that is in it."""
        with self.locked():
            try:
                shutil.rmtree(self.path)
            except OSError as error:
                raise RunError(f"{self.path} can't be removed: {error}.") from error

    def caution(self) -> str | None:
        """Whether the folder is on a network file system."""
        kind = network_file_system(self.path)
        if kind is None:
            return None
        return (
            f"{self.path} is on a network file system ({kind}), where file locks aren't reliable: "
            "never run one run from two machines, or set --runs-dir to a local disk."
        )

    def store(self, *, read_only: bool = False) -> Store:
        """The ledger, which is made for a run that begins."""
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

    @property
    def label(self) -> str:
        """The folder."""
        return str(self.root)

    def called(self, name: str) -> RunFolder:
        """The folder of this name."""
        return RunFolder(self.root / name)

    def holds(self, place: RunFolder, fingerprint: str, new: bool) -> bool:
        """Whether the folder is there, of a run with this fingerprint or of none yet."""
        if not place.exists:
            return os.path.lexists(place.path)
        try:
            there = place.info().fingerprint
        except RunError as error:
            if new:
                return True
            raise RunError(
                f"{error} Move the folder away, or begin beside it with --new."
            ) from error
        if there != fingerprint:
            raise RunError(
                f"{place.path} holds another run (its fingerprint differs); move it away."
            )
        return True

    def all(self) -> list[RunFolder]:
        """All folders that have a config.json."""
        if not self.root.is_dir():
            return []
        try:
            listed = [RunFolder(path) for path in self.root.iterdir() if _is_run(path)]
        except OSError as error:
            raise RunError(f"{self.root} can't be read: {error.strerror}.") from error
        return sorted(listed, key=lambda folder: (folder.touched(), folder.id), reverse=True)

    def find(self, name: str, accept_damage: bool = False) -> RunFolder:
        """Also by the path of a folder, wherever that is."""
        with suppress(OSError):  # no name of a folder at all
            if name and (Path(name) / "config.json").is_file():
                return RunFolder(Path(name).resolve(), accept_damage=accept_damage)
        return Places.find(self, name, accept_damage)


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
