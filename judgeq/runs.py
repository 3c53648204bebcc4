"""Run folders: made, found, locked, listed.

`runs/<run id>/` holds run.db (the ledger), config.json (what the run is), scores.csv and a lock.
"""

from __future__ import annotations

import os
import re
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, ValidationError

from judgeq.config import Settings, fingerprint, settle
from judgeq.datasets import Dataset
from judgeq.errors import RunError

LOCK_WAIT = 1.0
"""Seconds to wait for the lock: longer than `is_running` holds it, shorter than a user's patience."""


class RunInfo(BaseModel):
    """config.json: what the run is, and what it was made from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    judgeq: str
    created: datetime
    fingerprint: str
    facts: dict[str, Any]
    settings: Settings
    dataset: str
    source: str
    items: int
    labels: str
    licence: str
    gold_kind: str | None
    gold_meaning: str
    strategy: str
    rounds: int
    imported: bool = False
    judges: tuple[str, ...] = ()  # told where there are several, or an import names them

    @classmethod
    def begun(
        cls, settings: Settings, dataset: Dataset, facts: Mapping[str, Any], **more: Any
    ) -> RunInfo:
        """That of a run which begins now; `more` are the fields that these don't tell."""
        return cls(
            judgeq=version("judgeq"),
            created=datetime.now(UTC),
            fingerprint=fingerprint(facts),
            facts=dict(facts),
            settings=settings.kept(),
            dataset=dataset.name,
            source=dataset.source,
            items=len(dataset),
            labels=dataset.labels,
            licence=dataset.licence,
            gold_kind=dataset.gold_kind,
            gold_meaning=dataset.gold_meaning,
            **more,
        )

    @property
    def judge(self) -> str:
        """Who answers, for screens."""
        if self.imported and not self.judges:
            return "recorded"
        return " + ".join(name or "unnamed" for name in self.judges or self.settings.judges)

    def settings_with(self, changes: Mapping[str, Any]) -> Settings:
        """The run's settings with these changed (None: as before). Raises as `config.settle`."""
        given = {name: value for name, value in changes.items() if value is not None}
        return settle(self.settings.model_dump() | given)


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run's folder."""

    path: Path

    @property
    def id(self) -> str:
        """The run id: the folder's name."""
        return self.path.name

    @property
    def database(self) -> Path:
        """The ledger."""
        return self.path / "run.db"

    @property
    def scores(self) -> Path:
        """The scores, once the run is finished or `judgeq rate` was called."""
        return self.path / "scores.csv"

    def info(self) -> RunInfo:
        """What the run is. Raises RunError when config.json isn't there or can't be read."""
        path = self.path / "config.json"
        try:
            return RunInfo.model_validate_json(path.read_bytes())
        except OSError as error:
            raise RunError(
                f"{self.path} is no run: {path} can't be read ({error.strerror})."
            ) from error
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise RunError(
                f"{path} can't be read: {where}: {first['msg']}. It was written by another version "
                "of judgeq, or changed by hand."
            ) from error

    def write_info(self, info: RunInfo) -> None:
        """Write config.json, whole or not at all."""
        with replacing(self.path / "config.json") as temporary:
            temporary.write_text(info.model_dump_json(indent=2) + "\n", encoding="utf-8")

    def touched(self) -> float:
        """When the ledger was last written, in seconds since the epoch; 0 if never."""
        times = [0.0]
        for path in (self.database, self.database.with_name("run.db-wal")):
            with suppress(FileNotFoundError):  # the log goes when its writer ends
                stat = path.stat()
                if stat.st_size:  # a reader leaves an empty log behind
                    times.append(stat.st_mtime)
        return max(times)

    def is_running(self) -> bool:
        """Whether a process holds the run now."""
        if not (self.path / "lock").exists():
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
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(self.path, error) from error
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
            with suppress(OSError):  # only tells others who we are
                (self.path / "holder").write_text(f"{whoami()}\n", encoding="utf-8")
            yield
        finally:
            (self.path / "holder").unlink(missing_ok=True)
            lock.release()

    def _holder(self) -> str:
        try:
            text = (self.path / "holder").read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""
        return f" by {text}"


def whoami() -> str:
    """This process, for another's error message."""
    return f"process {os.getpid()} on {socket.gethostname()}"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when all went well.

    Raises RunError when the folder can't be written to.
    """
    try:
        with _replacing(path) as temporary:
            yield temporary
    except OSError as error:
        raise _unwritable(path, error) from error


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        os.close(handle)
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _unwritable(path: Path, error: OSError) -> RunError:
    return RunError(
        f"{path} can't be written: {error.strerror}. Make room, or set --runs-dir to a folder that "
        "can be written to; nothing that was answered is lost."
    )


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def place(root: Path, name: str, fingerprint: str, new: bool) -> RunFolder:
    """The folder of the run with this fingerprint: the latest there is, or one to be made.

    `name` begins the run id. Raises RunError when the id's folder holds another run.
    """
    name = re.sub(r"[^A-Za-z0-9_.]+", "-", name)[:200]  # file systems allow 255 bytes
    base = f"{name.strip('-.') or 'run'}-{fingerprint[:10]}"
    number, folder = 1, RunFolder(root / base)
    while folder.path.exists():
        if (folder.path / "config.json").exists() and folder.info().fingerprint != fingerprint:
            raise RunError(
                f"{folder.path} holds another run (its fingerprint differs); move it away."
            )
        number += 1
        latest, folder = folder, RunFolder(root / f"{base}-{number}")
    return folder if new or number == 1 else latest


def all_runs(root: Path) -> list[RunFolder]:
    """All runs under `root`, the latest first."""
    if not root.is_dir():
        return []
    found = [RunFolder(path) for path in root.iterdir() if (path / "config.json").is_file()]
    return sorted(found, key=lambda folder: (folder.touched(), folder.id), reverse=True)


def find(root: Path, name: str) -> RunFolder:
    """The run a user means: its id, a unique beginning of it, its folder's path, or "last".

    Raises RunError when there is none, or several.
    """
    with suppress(OSError):  # no name of a folder at all
        if name and (Path(name) / "config.json").is_file():
            return RunFolder(Path(name).resolve())
    runs = all_runs(root)
    if not runs:
        raise RunError(f"there are no runs in {root}; `judgeq run --dataset demo` makes one.")
    if name == "last":
        return runs[0]
    exact = [run for run in runs if run.id == name]
    found = exact or [run for run in runs if run.id.startswith(name)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise RunError(f"there is no run {name!r} in {root}; `judgeq runs` lists them.")
    listed = ", ".join(run.id for run in found[:5]) + (" …" if len(found) > 5 else "")
    raise RunError(f"{name!r} begins {len(found)} runs: {listed}. Give more of the id.")


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
