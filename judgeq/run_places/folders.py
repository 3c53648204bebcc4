"""Run folders: made, put in their place, found, locked, listed, removed.

`runs/<run id>/` holds run.db (the record), config.json (what the run is), scores.csv and a lock. Of a
run whose record is in a PostgreSQL store (stored.py) the folder holds the results alone.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from filelock import FileLock, Timeout

from judgeq.errors import DataError, RunError
from judgeq.escaping import shell_command
from judgeq.files import make_folder, read_start, refuse_links, replacing, write_new
from judgeq.run_places.info import RunInfo
from judgeq.store import Items, Store
from judgeq.store.sqlite import DATABASE, SqliteStore, connect, reported
from judgeq.types import Matches, Notify, Verdict

if TYPE_CHECKING:
    from judgeq.store.link import Address

LOCK_WAIT = 1.0
"""Seconds to wait for the lock: longer than `is_running` holds it, shorter than a user's patience."""
_REMOTE = (
    *("nfs", "cifs", "smb", "9p", "afs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs"),
    *("fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.juicefs", "fuse.rclone"),
)


def whoami() -> str:
    """This process, for another's error message."""
    return f"process {os.getpid()} on {socket.gethostname()}"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run's folder, and its record. Reading what can't be read raises RunError."""

    path: Path
    address: Address | None = field(default=None, kw_only=True)
    """Of the store that keeps the record; None where the folder does."""

    @property
    def id(self) -> str:
        """The run id."""
        return self.path.name

    @property
    def scores(self) -> Path:
        """The scores, once the run is finished or `judgeq show --write` was called."""
        return self.path / "scores.csv"

    @property
    def database(self) -> Path:
        """The file of the record."""
        return self.path / DATABASE

    @property
    def config(self) -> Path:
        """The file that says what the run is."""
        return self.path / "config.json"

    @property
    def label(self) -> str:
        """The place, for messages; never with a password."""
        return str(self.path) if self.address is None else f"{self.address.label}#{self.id}"

    @property
    def words(self) -> tuple[str, ...]:
        """How a command is given the run from anywhere, word by word; without a password, which may come
        from $PGPASSWORD or ~/.pgpass."""
        at = self.store_address
        return (self.label,) if at is None else (self.id, "--store", at)

    def command(self, name: str, *options: str, positionals: Sequence[str] = ()) -> str:
        """Return the command `judgeq NAME` for the run in the usual place, safe to paste into a shell.

        `options` and further `positionals` are words as they are, not yet quoted.
        """
        at = () if self.address is None else ("--store", self.address.label)
        return shell_command(name, (self.id, *positionals), (*at, *options))

    @property
    def identity(self) -> str:
        """What no other place has: by it a user's own settings for the run are remembered. Any part of
        an address may lead to another database."""
        if self.address is not None:
            return self.label
        return os.fsencode(self.path.resolve()).decode("utf-8", "backslashreplace")

    @property
    def owner(self) -> int | None:
        """The user (uid) whom the place belongs to; None where that isn't known, or it is shared."""
        known = self.address is None and self.path.exists()
        return self.path.stat().st_uid if known else None

    @property
    def store_address(self) -> str | None:
        """The address of its store, without a password; None of a folder."""
        return None if self.address is None else self.address.label

    def runs(self) -> FolderRuns:
        """Where the run is, with others."""
        return FolderRuns(self.path.parent)

    @property
    def exists(self) -> bool:
        """Whether it is written down there what the run is."""
        return os.path.lexists(self.config)

    def info(self) -> RunInfo:
        """What the run is. Raises RunError where that isn't there or can't be read."""
        try:
            if self.config.exists() and not self.config.is_file():
                raise OSError(0, "no ordinary file")  # a pipe would be waited for without end
            text = self.config.read_bytes()
        except OSError as error:
            raise RunError(
                f"{self.path} is no run: {self.config} can't be read ({error.strerror})."
            ) from error
        return RunInfo.read(text, str(self.config))

    def fingerprint(self, new: bool) -> str | None:
        """The fingerprint of the run that is there; "" of none yet, or where a `new` one doesn't mind
        what can't be read; None: nothing is there. Raises RunError for what can't be read."""
        if not self.exists:
            return "" if os.path.lexists(self.path) else None
        try:
            return self.info().fingerprint
        except RunError as error:
            if new:
                return ""
            raise RunError(
                f"{error} Move the folder away, or begin beside it with --new."
            ) from error

    def write_info(self, info: RunInfo) -> None:
        """Write down what the run is, whole or not at all.

        The record is made first: where config.json is and the record isn't, the record was lost.
        """
        if not self.exists:
            with reported(self.database):
                connect(self.database, read_only=False).close()
        with replacing(self.config) as file:
            file.write(info.model_dump_json(indent=2) + "\n")

    def touched(self) -> float:
        """When the record was last written, in seconds since the epoch; 0 if never."""
        times = [0.0]
        for path in (self.database, self.database.with_name(f"{DATABASE}-wal")):
            with suppress(OSError):  # the log goes when its writer ends
                stat = path.stat()
                times.append(stat.st_mtime if stat.st_size else 0.0)  # a reader leaves an empty log
        return max(times)

    def is_running(self) -> bool:
        """Whether a process works on the run now."""
        lock = self.path / "lock"
        if not os.path.lexists(lock):
            return False
        try:
            refuse_links(lock)  # a stranger's may lead to a file, which is then emptied
            with FileLock(lock).acquire(timeout=0):
                return False
        except Timeout:
            return True
        except (OSError, RunError):  # or a folder we may not write to: whoever may isn't to be seen
            return False

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run, and make its folder. Raises RunError while another process holds it."""
        make_folder(self.path)
        refuse_links(self.path / "lock")
        lock, holder = FileLock(self.path / "lock"), self.path / "holder"
        try:
            lock.acquire(timeout=LOCK_WAIT)
        except Timeout as error:
            by = ""
            with suppress(OSError):
                by = f" by {read_start(holder, 200).strip()}"
            raise RunError(
                f"run {self.id} is in use{by}. `{self.command('status')}` shows how far it is; to run "
                "the same from the start beside it, add --new."
            ) from error
        except (OSError, NotImplementedError) as error:
            raise RunError(f"run {self.id} can't be locked: {error}.") from error
        try:
            with suppress(OSError):  # only says which process this is
                write_new(holder, f"{whoami()}\n")
            yield
        finally:
            with suppress(OSError):
                holder.unlink(missing_ok=True)
            lock.release()

    def remove(self) -> None:
        """Delete the run. Raises RunError while a process holds it, and where it can't be deleted."""
        with self.locked():
            try:
                shutil.rmtree(self.path)
            except OSError as error:
                raise RunError(f"{self.path} can't be removed: {error}.") from error

    def caution(self) -> str | None:
        """Why the place is unsafe for a run; None if it isn't."""
        kind = None if self.address else network_file_system(self.path)
        return kind and (
            f"{self.path} is on a network file system ({kind}), where file locks aren't reliable: "
            "never run one run from two machines, or set --runs-dir to a local disk."
        )

    def store(self, *, read_only: bool = False) -> Store:
        """The record, which is made for a run that begins. Raises RunError if it can't be opened, was
        lost, or doesn't add up."""
        return SqliteStore(self.database, read_only=read_only, make=not self.exists)

    async def record(
        self,
        info: RunInfo,
        items: Items,
        rounds: Iterable[tuple[Matches, Sequence[Verdict]]],
    ) -> bool:
        """Make a run here whose `rounds` were judged elsewhere; as `put`."""
        with staging(self.path) as made:
            made.write_info(info)
            store, everybody = made.store(), np.ones(len(items.ids), np.bool_)
            try:
                epoch = await store.lead(whoami(), store.lease)
                await store.set_items(items)
                for round, (matches, verdicts) in enumerate(rounds, start=1):
                    await store.plan_round(round, epoch, everybody, matches, verdicts)
            finally:
                await store.close()
            return self.put(made)

    def put(self, made: RunFolder) -> bool:
        """Put a run here that was made in a folder, whole or not at all; False where there is one, which
        another process has just put here. Raises as the store does."""
        try:
            self.take(made)
        except (OSError, RunError):
            if not self.exists and not self.path.exists():
                raise
            return False
        return True

    def take(self, made: RunFolder) -> None:
        """Become the run that was made in a folder, which the caller holds. Raises OSError, and RunError
        where one is here, or for what is no run's record."""
        made.path.rename(self.path)


@contextmanager
def staging(path: Path) -> Iterator[RunFolder]:
    """A folder for a run that is being made, beside this one and of its name, which is not listed; gone
    afterwards, unless it was put in its place. Raises DataError where it can't be made."""
    root = path.parent
    try:
        root.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".importing-", dir=root))
        # A level below: what a killed process leaves behind is not listed as a run.
        made = RunFolder(temporary / path.name)
        made.path.mkdir()
    except OSError as error:
        raise DataError(f"{root} can't be written: {error.strerror}.") from error
    try:
        yield made
    finally:
        shutil.rmtree(temporary)


@dataclass(frozen=True, slots=True)
class FolderRuns:
    """Where runs are kept, with their results under `root`."""

    root: Path
    address: Address | None = None
    """Of the store that keeps their records; None where folders do."""

    @property
    def label(self) -> str:
        """The place, for messages; never with a password."""
        return str(self.root) if self.address is None else self.address.label

    def called(self, name: str) -> RunFolder:
        """The place of the run of this id, whether or not it is there."""
        return RunFolder(self.root / name)

    def all(self) -> Sequence[RunFolder]:
        """All runs, the latest first; also those that can't be read, whose `info` says why."""
        if not self.root.is_dir():
            return []
        try:
            listed = [RunFolder(path) for path in self.root.iterdir() if _is_run(path)]
        except OSError as error:
            raise RunError(f"{self.root} can't be read: {error.strerror}.") from error
        return sorted(listed, key=lambda run: (run.touched(), run.id), reverse=True)

    def patient(self, warn: Notify) -> Self:
        """The same, for who works on a run: where it can't be reached a minute is waited, now and later,
        and `warn` gets a sentence. Raises RunError where that takes longer."""
        return self

    def place(self, name: str, fingerprint: str, new: bool) -> RunFolder:
        """The place of the run with this fingerprint: the latest there is, or one to be made.

        `name` begins the run id. Raises RunError when the id's place holds another run, or one that
        can't be read; beside the latter a `new` one may begin.
        """
        base, latest = id_of(name, fingerprint), None
        for number in count(2):
            there = self.called(f"{base}-{number - 1}" if latest else base)
            held = there.fingerprint(new)
            if held is None:
                break
            if held not in ("", fingerprint):
                raise RunError(
                    f"{there.label} holds another run (its fingerprint differs); move it away."
                )
            latest = there
        return there if new or latest is None else latest

    def find(self, name: str) -> RunFolder:
        """The run a user means: its id, its name, a unique beginning of its id, or "last", or the path
        of its folder, wherever that is.

        Raises RunError when there is none, or several.
        """
        folder = Path(name)
        with suppress(OSError):  # no name of a folder at all
            if name and self.address is None and (folder / "config.json").is_file():
                return RunFolder(folder.resolve())
        runs = self.all()
        if not runs:
            raise RunError(f"No runs yet in {self.label}. Start with: judgeq run demo")
        meant = (
            (name == "last" and runs[:1])
            or [run for run in runs if run.id == name]
            or [run for run in runs if name_of(run) == name]
            or [run for run in runs if run.id.startswith(name)]
        )
        if not meant:
            at = () if self.address is None else ("--store", self.label)
            listing = shell_command("runs", options=at)
            raise RunError(f"there is no run {name!r} in {self.label}; `{listing}` lists them.")
        if len(meant) > 1:
            listed = ", ".join(run.id for run in meant[:5]) + (" …" if len(meant) > 5 else "")
            raise RunError(f"{name!r} means {len(meant)} runs: {listed}. Give more of the id.")
        return self.called(meant[0].id)


def id_of(name: str, fingerprint: str) -> str:
    """The run id of the first run with this fingerprint, which begins with `name`."""
    name = re.sub(r"[^A-Za-z0-9_.]+", "-", name)[:200]  # file systems allow 255 bytes
    return f"{name.strip('-.') or 'run'}-{fingerprint[:10]}"


def name_of(run: RunFolder) -> str | None:
    """The name that the user gave a run; None if there is none, or it can't be read."""
    try:
        return run.info().settings.name
    except RunError:
        return None


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
    kinds = {}
    for line in mounts.splitlines():
        _, where, kind, *_ = line.split(" ")
        kinds[Path(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), where))] = kind
    kind = next((kinds[at] for at in (folder, *folder.parents) if at in kinds), "")
    return kind if kind.startswith(_REMOTE) else None
