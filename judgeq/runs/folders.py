"""Run folders: made, found, locked, listed.

`runs/<run id>/` holds run.db (the ledger), config.json (what the run is), scores.csv and a lock.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from filelock import FileLock, Timeout

from judgeq.datasets import Dataset
from judgeq.errors import RunError, UsageError
from judgeq.files import (
    read_start,
    refuse_linked_folder,
    refuse_links,
    replacing,
    unwritable,
    write_new,
)
from judgeq.runs.info import RunInfo
from judgeq.runs.places import choose, id_of, whoami
from judgeq.store import DATABASE, Store, make_store, open_store

LOCK_WAIT = 1.0
"""Seconds to wait for the lock: longer than `is_running` holds it, shorter than a user's patience."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run's folder; see `RunPlace`."""

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
    def scores(self) -> Path:
        """The scores, once the run is finished or `judgeq rate` was called."""
        return self.path / "scores.csv"

    @property
    def shown(self) -> str:
        """See RunPlace."""
        return str(self.path)

    @property
    def ledger(self) -> str:
        """See RunPlace."""
        return str(self.database)

    @property
    def config(self) -> str:
        """See RunPlace."""
        return str(self.path / "config.json")

    @property
    def argument(self) -> str:
        """See RunPlace."""
        return self.id

    @property
    def words(self) -> tuple[str, ...]:
        """See RunPlace."""
        return (str(self.path),)

    @property
    def kind(self) -> str:
        """See RunPlace."""
        return "folder"

    @property
    def here(self) -> str:
        """See RunPlace."""
        return "in this folder"

    @property
    def identity(self) -> str:
        """See RunPlace: the path without links."""
        return os.fsencode(self.path.resolve()).decode("utf-8", "backslashreplace")

    @property
    def owner(self) -> int | None:
        """See RunPlace."""
        try:
            return self.path.stat().st_uid
        except OSError:  # not there
            return None

    @property
    def exists(self) -> bool:
        """See RunPlace."""
        return os.path.lexists(self.path / "config.json")

    @property
    def taken(self) -> bool:
        """See RunPlace."""
        return self.path.exists()

    def anew(self) -> RunFolder:
        """See RunPlace."""
        return self

    @property
    def store_address(self) -> None:
        """See RunPlace."""

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
        """See RunPlace."""
        return None

    def share(self, dataset: Dataset) -> None:
        """See RunPlace. Raises UsageError: a folder has one user."""
        raise UsageError("--share-texts goes with --store: a run folder never holds texts.")

    def dataset(self) -> Dataset | None:
        """See RunPlace."""
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
        refuse_linked_folder(self.path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(self.path, error) from error
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

    def caution(self) -> str | None:
        """See RunPlace."""
        kind = network_file_system(self.path)
        if kind is None:
            return None
        return (
            f"{self.path} is on a network file system ({kind}), where file locks aren't reliable: "
            "never run one run from two machines, or set --runs-dir to a local disk."
        )

    def store(self, *, read_only: bool = False) -> Store:
        """See RunPlace. Raises RunError if it can't be opened."""
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
class FolderRuns:
    """The runs in folders under `root`; see `Runs`."""

    root: Path

    @property
    def shown(self) -> str:
        """See Runs."""
        return str(self.root)

    def place(self, name: str, fingerprint: str, new: bool) -> RunFolder:
        """See Runs."""
        base = id_of(name, fingerprint)
        number, folder = 1, RunFolder(self.root / base)
        while os.path.lexists(folder.path):
            _check_same(folder, fingerprint, new)
            number += 1
            latest, folder = folder, RunFolder(self.root / f"{base}-{number}")
        return folder if new or number == 1 else latest

    def all(self) -> list[RunFolder]:
        """See Runs. Raises RunError when `root` can't be looked into."""
        if not self.root.is_dir():
            return []
        try:
            listed = [RunFolder(path) for path in self.root.iterdir() if _is_run(path)]
        except OSError as error:
            raise RunError(f"{self.root} can't be read: {error.strerror}.") from error
        return sorted(listed, key=lambda folder: (folder.touched(), folder.id), reverse=True)

    def find(self, name: str, accept_damage: bool = False) -> RunFolder:
        """See Runs; also by the path of a run's folder."""
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
