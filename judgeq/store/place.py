"""The ledger's log, held open; and whether the database is still where it was opened."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from judgeq.errors import RunError

LOOK_EVERY = 0.1
"""Seconds between two looks."""


class Log:
    """A database's write-ahead log, held open from when it is first there until `close`.

    Only the log is opened by hand: closing a second handle on the database itself would drop
    SQLite's own locks on it (POSIX locks belong to the process, not the handle).
    """

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + "-wal")
        self._handle: int | None = None

    def open(self) -> int | None:
        """Its file descriptor; None while it is not there."""
        if self._handle is None:
            try:
                self._handle = os.open(self._path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
            except FileNotFoundError:
                return None
        return self._handle

    def written(self) -> tuple[int, int] | None:
        """Its size, and when it was last written; None while it is not there."""
        handle = self.open()
        if handle is None:
            return None
        stat = os.fstat(handle)
        return stat.st_size, stat.st_mtime_ns

    def sync(self) -> None:
        """Push its bytes to the disk."""
        handle = self.open()
        if handle is None:
            return
        if sys.platform == "darwin":
            import fcntl

            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)  # fsync alone stops at the drive's cache there
        else:
            os.fsync(handle)

    def whereabouts(self) -> Path | None:
        """The folder that it is in now; None where that can't be seen."""
        try:
            return Path(f"/proc/self/fd/{self._handle}").readlink().parent
        except OSError:
            return None

    def is_deleted(self) -> bool:
        """Whether no folder holds it any longer."""
        return self._handle is None or not os.fstat(self._handle).st_nlink

    def close(self) -> None:
        """Let go of it."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


class Place:
    """Where a database was opened. SQLite would go on writing to a file that was deleted or moved."""

    def __init__(
        self, database: Path, log: Log, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database.resolve()
        self._log = log
        log.open()  # now: its handle moves with the folder
        self._clock = clock
        self._identity = self._seen()
        self._looked = clock()

    def check(self, *, now: bool = False) -> None:
        """Raise RunError when the database isn't where it was; looks once in a while, or `now`."""
        at = self._clock()
        if not now and at - self._looked < LOOK_EVERY:
            return
        self._looked = at
        if self._seen() != self._identity:
            raise self._gone()

    def _seen(self) -> tuple[int, int] | None:
        try:
            stat = self._database.stat()
        except OSError:
            return None
        return stat.st_dev, stat.st_ino

    def _gone(self) -> RunError:
        folder = self._database.parent
        if self._log.is_deleted():
            return RunError(
                f"{folder} was deleted, or its run.db replaced, while the run was going on: it is "
                "stopped, and its ledger is lost, with the answers that were in flight. Replies are "
                "still in the cache, unless --no-cache was given: the same command begins anew with "
                "them."
            )
        moved = self._log.whereabouts()
        where = f" to {moved}" if moved else ""
        return RunError(
            f"{folder} was moved{where} while the run was going on: it is stopped. Nothing is lost: "
            "all that was answered is in it, also what was in flight. Move it back, or go on with "
            f"`judgeq resume {moved or 'PATH'}`."
        )
