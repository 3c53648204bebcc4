"""Run folders: made, found, locked, listed.

`runs/<run id>/` holds run.db (the ledger), config.json (what the run is), scores.csv and a lock.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from filelock import FileLock, Timeout
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from judgeq.config import Settings, fingerprint, settle
from judgeq.datasets import Dataset
from judgeq.errors import RunError
from judgeq.files import (
    read_start,
    refuse_linked_folder,
    refuse_links,
    replacing,
    unwritable,
    write_new,
)
from judgeq.store import DATABASE

LOCK_WAIT = 1.0
"""Seconds to wait for the lock: longer than `is_running` holds it, shorter than a user's patience."""

JUDGES_NAMED = 10
"""Of more judges than this only the first are named on screens."""

_EARLIEST, _LATEST = datetime(1971, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)


class RunInfo(BaseModel):
    """config.json: what the run is, and what it was made from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    judgeq: str
    created: Annotated[AwareDatetime, Field(gt=_EARLIEST, lt=_LATEST)]
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
    judges: tuple[str, ...] = ()  # where there are several, or an import names them

    @classmethod
    def begun(
        cls, settings: Settings, dataset: Dataset, facts: Mapping[str, Any], **more: Any
    ) -> RunInfo:
        """That of a run which begins now; `more` are the fields that these don't say."""
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
        """The judges, for screens: of many judges their number and the first names."""
        if self.imported and not self.judges:
            return "recorded"
        names = [name or "unnamed" for name in self.judges or self.settings.judges]
        if len(names) > JUDGES_NAMED:
            return f"{len(names):,} judges: {', '.join(names[:3])} …"
        return " + ".join(names)

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
        return self.path / DATABASE

    @property
    def begun(self) -> bool:
        """Whether there is a ledger, of whatever kind."""
        return os.path.lexists(self.database)

    @property
    def scores(self) -> Path:
        """The scores, once the run is finished or `judgeq rate` was called."""
        return self.path / "scores.csv"

    def info(self) -> RunInfo:
        """What the run is. Raises RunError when config.json isn't there or can't be read."""
        path = self.path / "config.json"
        if path.exists() and not path.is_file():  # a pipe would be waited for without end
            raise RunError(f"{self.path} is no run: {path} is no ordinary file.")
        try:
            return RunInfo.model_validate_json(path.read_bytes())
        except OSError as error:
            raise RunError(
                f"{self.path} is no run: {path} can't be read ({error.strerror})."
            ) from error
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) + ": " if first["loc"] else ""
            raise RunError(
                f"{path} can't be read: {where}{first['msg']}. It was written by another version "
                "of judgeq, or changed by hand."
            ) from error

    def write_info(self, info: RunInfo) -> None:
        """Write config.json, whole or not at all."""
        with replacing(self.path / "config.json") as file:
            file.write(info.model_dump_json(indent=2) + "\n")

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

    def _holder(self) -> str:
        try:
            text = read_start(self.path / "holder", 200).strip()
        except OSError:
            return ""
        return f" by {text}"


def whoami() -> str:
    """This process, for another's error message."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def place(root: Path, name: str, fingerprint: str, new: bool) -> RunFolder:
    """The folder of the run with this fingerprint: the latest there is, or one to be made.

    `name` begins the run id. Raises RunError when the id's folder holds another run.
    """
    name = re.sub(r"[^A-Za-z0-9_.]+", "-", name)[:200]  # file systems allow 255 bytes
    base = f"{name.strip('-.') or 'run'}-{fingerprint[:10]}"
    number, folder = 1, RunFolder(root / base)
    while os.path.lexists(folder.path):
        _check_same(folder, fingerprint, new)
        number += 1
        latest, folder = folder, RunFolder(root / f"{base}-{number}")
    return folder if new or number == 1 else latest


def _check_same(folder: RunFolder, fingerprint: str, new: bool) -> None:
    """Raise RunError when an existing folder holds another run, or one that can't be read; beside
    the latter a new one may begin."""
    if not os.path.lexists(folder.path / "config.json"):
        return
    try:
        there = folder.info().fingerprint
    except RunError as error:
        if new:
            return
        raise RunError(f"{error} Move the folder away, or begin beside it with --new.") from error
    if there != fingerprint:
        raise RunError(f"{folder.path} holds another run (its fingerprint differs); move it away.")


def all_runs(root: Path) -> list[RunFolder]:
    """All runs under `root`, the latest first; also those that can't be read, whose `info` says why.

    Raises RunError when `root` can't be looked into.
    """
    if not root.is_dir():
        return []
    try:
        listed = [RunFolder(path) for path in root.iterdir() if _is_run(path)]
    except OSError as error:
        raise RunError(f"{root} can't be read: {error.strerror}.") from error
    return sorted(listed, key=lambda folder: (folder.touched(), folder.id), reverse=True)


def _is_run(folder: Path) -> bool:
    """Whether a folder is a run's; also one that can't be looked into, which may be."""
    try:
        return (folder / "config.json").is_file()
    except OSError:
        return True


def _last(runs: list[RunFolder]) -> RunFolder:
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
        return _last(runs)
    exact = [run for run in runs if run.id == name]
    meant = exact or [run for run in runs if run.id.startswith(name)]
    if len(meant) == 1:
        return meant[0]
    if not meant:
        raise RunError(f"there is no run {name!r} in {root}; `judgeq runs` lists them.")
    listed = ", ".join(run.id for run in meant[:5]) + (" …" if len(meant) > 5 else "")
    raise RunError(f"{name!r} begins {len(meant)} runs: {listed}. Give more of the id.")


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
