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


def sync_file(path: Path) -> None:
    """Push a file's bytes to the disk; nothing to do when it is not there."""
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return
    try:
        if sys.platform == "darwin":
            import fcntl

            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)  # fsync alone stops at the drive's cache there
        else:
            os.fsync(handle)
    finally:
        os.close(handle)


class Flusher(threading.Thread):
    """Syncs `<database>-wal` until `stop`. An error is kept in `error`, and ends the thread.

    Only the log is opened by hand: closing a second handle on the database itself would drop
    SQLite's own locks on it (POSIX locks belong to the process, not the handle).
    """

    def __init__(self, database: Path, interval: float = INTERVAL) -> None:
        super().__init__(name="judgeq-flusher", daemon=True)
        self._database = database
        self._wal = database.with_name(database.name + "-wal")
        self._interval = interval
        self._stop_asked = threading.Event()
        self.error: OSError | sqlite3.Error | None = None

    def run(self) -> None:
        """Sync, and now and then checkpoint, until asked to stop."""
        try:
            connection = sqlite3.connect(self._database, isolation_level=None, timeout=5)
            try:
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
            try:
                stat = self._wal.stat()
            except FileNotFoundError:
                continue
            written = (stat.st_size, stat.st_mtime_ns)
            if written != synced:
                sync_file(self._wal)
                synced = written
                if turn % CHECKPOINT_EVERY == 0:
                    # PASSIVE never makes the writer wait, but lets the log grow while it is busy;
                    # once it is large, RESTART waits for a gap and begins the log anew.
                    mode = "RESTART" if stat.st_size > RESTART_BYTES else "PASSIVE"
                    connection.execute(f"PRAGMA wal_checkpoint({mode})")

    def stop(self) -> None:
        """End the thread; the caller syncs what came after its last turn."""
        self._stop_asked.set()
        self.join()
