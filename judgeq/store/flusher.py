"""A helper thread that makes commits durable against a power cut, off the event loop.

With `synchronous=NORMAL` a commit survives the death of the process at once, and a power cut when
the write-ahead log was synced. The thread syncs it about ten times a second, and moves it into the
database on a connection of its own, so that no commit ever waits for a disk.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from pathlib import Path

INTERVAL = 0.1
CHECKPOINT_EVERY = 20  # intervals
RESTART_BYTES = 64 * 1024 * 1024


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

    def is_deleted(self) -> bool:
        """Whether no folder holds it any longer."""
        return self._handle is None or not os.fstat(self._handle).st_nlink

    def close(self) -> None:
        """Let go of it."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


class Flusher(threading.Thread):
    """Syncs a database's log until `stop`. An error is kept in `error`, and ends the thread."""

    def __init__(self, database: Path, log: Log, interval: float = INTERVAL) -> None:
        super().__init__(name="judgeq-flusher", daemon=True)
        self._database = database
        self._log = log
        self._interval = interval
        self._stop_asked = threading.Event()
        self.error: OSError | sqlite3.Error | None = None

    def run(self) -> None:
        """Sync, and now and then checkpoint, until asked to stop."""
        try:
            connection = sqlite3.connect(self._database, isolation_level=None, timeout=5)
            try:
                # SQLite opens its files when it reads: now, and not when connections took them all.
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
                self._loop(connection)
            finally:
                connection.close()
        except (OSError, sqlite3.Error) as error:
            self.error = error

    def _loop(self, connection: sqlite3.Connection) -> None:
        synced: tuple[int, int] | None = None
        turn = 0
        while not self._stop_asked.wait(self._interval):
            turn += 1
            written = self._log.written()
            if written is not None and written != synced:
                self._log.sync()
                synced = written
                if turn % CHECKPOINT_EVERY == 0:
                    # PASSIVE never makes the writer wait, but lets the log grow while it is busy;
                    # once it is large, RESTART waits for a gap and begins the log anew.
                    mode = "RESTART" if written[0] > RESTART_BYTES else "PASSIVE"
                    connection.execute(f"PRAGMA wal_checkpoint({mode})")

    def stop(self) -> None:
        """End the thread, sync what came after its last turn, and let go of the log."""
        self._stop_asked.set()
        self.join()
        try:
            self._log.sync()
        finally:
            self._log.close()
