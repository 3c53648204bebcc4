"""Outcomes on the local disk while the database is away: what was paid for survives this process, too.

A file for each process and run, in the user's own folder, of JSON lines: the worker, the number of the
transaction that is to commit the outcome, and the outcome. It never holds a key; it holds replies.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import IO, NamedTuple

from filelock import FileLock, Timeout

from judgeq.errors import RunError
from judgeq.files import refuse_linked_folder
from judgeq.store.postgres.address import Address
from judgeq.types import Call, JobState, Outcome, Usage, Verdict


class Line(NamedTuple):
    """An outcome of the worker with this number and name, to be committed by its transaction `turn`."""

    worker: int
    name: str
    turn: int
    outcome: Outcome


class Spool:
    """The files of one run, under `folder`. There are as many outcomes at most as calls were in flight
    when the database went away: nothing is begun without it."""

    def __init__(self, folder: Path, address: Address, run: int, token: str) -> None:
        what = f"{address.shown} {address.schema} {run} {socket.gethostname()}"
        self._folder = folder
        self._prefix = sha256(what.encode()).hexdigest()[:20]
        self.path = folder / f"{self._prefix}-{token}.jsonl"
        self._lock: FileLock | None = None
        self._file: IO[str] | None = None
        self.kept = 0

    def add(self, lines: Sequence[Line]) -> None:
        """Write these down. Raises RunError when the disk doesn't take them."""
        try:
            if self._file is None:
                self._file = self._opened()
            for line in lines:
                self._file.write(
                    json.dumps([line.worker, line.name, line.turn, *line.outcome]) + "\n"
                )
            self._file.flush()
            os.fsync(self._file.fileno())
            self.kept += len(lines)
        except OSError as error:
            raise RunError(f"answers can't be kept in {self.path}: {error.strerror}.") from error

    def _opened(self) -> IO[str]:
        refuse_linked_folder(self._folder)
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = FileLock(self.path.with_suffix(".lock"))
        self._lock.acquire(timeout=0)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        return os.fdopen(os.open(self.path, flags, 0o600), "a", encoding="utf-8")

    def clear(self) -> None:
        """All of it is committed."""
        if self._file is None:
            return
        self._file.close()
        self._file, self.kept = None, 0
        with suppress(OSError):
            self.path.unlink()
        self._unlock()

    def close(self) -> None:
        """Leave the file to a later process."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None
            with suppress(OSError):
                self.path.with_suffix(".lock").unlink()

    def left(self) -> list[Path]:
        """The files of this machine's processes, some of which may still live."""
        try:
            return sorted(self._folder.glob(f"{self._prefix}-*.jsonl"))
        except OSError:
            return []


@contextmanager
def taken(path: Path) -> Iterator[list[Line]]:
    """What a process left; none while it lives. The file is removed if all goes well."""
    lock = FileLock(path.with_suffix(".lock"))
    try:
        lock.acquire(timeout=0)
    except (Timeout, OSError):
        yield []
        return
    try:
        lines = _read(path)
        yield lines
        if lines:
            path.unlink(missing_ok=True)
    finally:
        lock.release()
        with suppress(OSError):
            path.with_suffix(".lock").unlink()


def _read(path: Path) -> list[Line]:
    """The lines of a file; the last may be cut off where the process was killed."""
    lines: list[Line] = []
    try:
        with path.open(encoding="utf-8") as file:
            for text in file:
                if not text.endswith("\n"):
                    break
                lines.append(_line(json.loads(text)))
    except FileNotFoundError:  # another process was quicker
        return []
    except (OSError, ValueError, TypeError) as error:
        raise RunError(
            f"{path} holds answers that wait for the database, and can't be read: {error}. Move it "
            "away to go on without them."
        ) from error
    return lines


def _line(parts: list[object]) -> Line:
    worker, name, turn, job, state, verdict, calls, error = parts
    said = None
    if verdict is not None:
        items, tied, *more = verdict  # type: ignore[misc]
        said = Verdict(tuple(items), tuple(tied), *more)  # type: ignore[has-type]
    made = tuple(
        Call(attempt, outcome, Usage(*usage), *more)
        for attempt, outcome, usage, *more in calls  # type: ignore[attr-defined]
    )
    outcome = Outcome(job, JobState(state), said, made, error)  # type: ignore[arg-type]
    return Line(worker, name, turn, outcome)  # type: ignore[arg-type]
