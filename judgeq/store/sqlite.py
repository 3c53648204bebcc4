"""The store of one run in one SQLite file: WAL, one writer, commits on the caller's own thread.

A commit costs tens of microseconds and happens where the results are, on the event loop: a writer
thread would wait for the interpreter lock of a busy loop. Who groups results into few commits is
`engine/queue.py`. Whoever put a file there, nothing but a run of ours is read, and nothing of it is run.
"""

from __future__ import annotations

import os
import re
import sqlite3
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import override

from judgeq.errors import RunError
from judgeq.events import Event
from judgeq.files import refuse_links
from judgeq.store import statements as sql
from judgeq.store import verdicts, vetting
from judgeq.store.protocol import Database
from judgeq.store.sql_store import Store
from judgeq.store.statements import NEVER, Bulk
from judgeq.types import Verdicts

T = TypeVar("T")
DATABASE = "run.db"
"""The file of a run's folder that holds its facts."""
INTERVAL = 0.1
CHECKPOINT_EVERY = 20  # intervals
RESTART_BYTES = 64 * 1024 * 1024
_PENDING = f"""
SELECT {sql.JOB} FROM jobs INDEXED BY jobs_pending
WHERE run = 1 AND state = 'pending' AND {{}} ORDER BY id LIMIT :n
"""  # noqa: S608
_CLAIM = """
UPDATE jobs INDEXED BY jobs_pending SET state = 'running', worker = :worker
WHERE run = 1 AND state = 'pending' AND id <= :last AND {}
"""
_COUNTS = """
SELECT state, count(*) FROM jobs WHERE run = 1 AND id BETWEEN :first AND :last GROUP BY state
"""
_VERDICTS = """
SELECT job, ranking, ties, score, items, coalesce(answered_by, judge), ordered
FROM verdicts v JOIN jobs ON jobs.run = v.run AND id = job
WHERE v.run = 1 AND job BETWEEN :first AND :last ORDER BY job
"""


@cache
def text(statement: str) -> str:
    """A statement as SQLite reads it: of the one run in the file."""
    for word, ours in (("@.", ""), ("@run", "1"), ("@now", ":now"), ("@lock", ""), ("@rows", "")):
        statement = statement.replace(word, ours)
    return statement


@cache
def _numbered(bulk: Bulk) -> str:
    """A bulk statement, with its values numbered as they stand in a row; given as such, they are put in
    faster than if they are selected."""
    names = [column.split()[0] for column in bulk.columns.split(", ")]
    statement = re.sub(r"SELECT (.*?) +WHERE true", r"VALUES (\1)", text(bulk.text))
    return re.sub(r":(\w+)", lambda name: f"?{names.index(name[1]) + 1}", statement)


@contextmanager
def reported(path: Path) -> Iterator[None]:
    """Turn SQLite's errors, and the disk's, into ours, which name the file."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        hint = ""
        if "full" in str(error):
            hint = " Free some space; nothing committed is lost, and the run can be resumed."
        elif "not a database" in str(error) or "malformed" in str(error):
            hint = " The file is damaged or not a judgeq run."
        raise RunError(f"{path}: {error}.{hint}") from error


class Flusher(threading.Thread):
    """A helper thread that makes commits durable against a power cut, off the event loop.

    With `synchronous=NORMAL` a commit survives the death of the process at once, and a power cut when
    the write-ahead log was synced. The thread syncs it about ten times a second, and moves it into the
    database on a connection of its own, so that no commit ever waits for a disk. An error is kept in
    `error`, and ends the thread.
    """

    def __init__(self, database: Path, interval: float = INTERVAL) -> None:
        super().__init__(name="judgeq-flusher", daemon=True)
        self._database = database
        self._interval = interval
        self._stop_asked = threading.Event()
        self.error: OSError | sqlite3.Error | None = None
        # Now: the handle moves with the folder. Only the log is opened by hand: closing a second handle
        # on the database would drop SQLite's own locks on it (POSIX locks belong to the process).
        log = database.with_name(database.name + "-wal")
        self._log = os.open(log, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))

    def run(self) -> None:
        """Sync, and now and then checkpoint, until asked to stop."""
        try:
            with closing(
                sqlite3.connect(self._database, isolation_level=None, timeout=5)
            ) as connection:
                # SQLite opens its files when it reads: now, and not when connections took them all.
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
                self._loop(connection)
        except (OSError, sqlite3.Error) as error:
            self.error = error

    def _loop(self, connection: sqlite3.Connection) -> None:
        synced, turn = None, 0
        while not self._stop_asked.wait(self._interval):
            turn += 1
            stat = os.fstat(self._log)
            written = stat.st_size, stat.st_mtime_ns
            if written == synced:
                continue
            self._sync()
            synced = written
            if turn % CHECKPOINT_EVERY == 0:
                # PASSIVE never makes the writer wait, but lets the log grow while it is busy;
                # once it is large, RESTART waits for a gap and begins the log anew.
                mode = "RESTART" if stat.st_size > RESTART_BYTES else "PASSIVE"
                connection.execute(f"PRAGMA wal_checkpoint({mode})")

    def _sync(self) -> None:
        if sys.platform == "darwin":
            import fcntl

            fcntl.fcntl(
                self._log, fcntl.F_FULLFSYNC
            )  # fsync alone stops at the drive's cache there
        else:
            os.fsync(self._log)

    def stop(self) -> None:
        """End the thread, sync what came after its last turn, and let go of the log."""
        self._stop_asked.set()
        self.join()
        try:
            self._sync()
        finally:
            os.close(self._log)


class SqliteDatabase(Database):
    """A run's tables in a file. One process writes, and the loop waits for it: tasks are never in one
    another's way."""

    blocking = True

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool = False,
        make: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.emit: Callable[[Event], None] = lambda event: None
        self.hurried: float | None = None
        self.label = str(path)
        self.flusher: Flusher | None = None
        self._path = path
        self.clock = clock
        with reported(path):
            self.connection = connect(path, read_only=read_only, make=make)
            if not read_only:
                self.flusher = Flusher(path)
                self.flusher.start()

    @property
    @override
    def inside(self) -> bool:
        return self.connection.in_transaction

    @override
    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        if self.inside:
            yield
            return
        if self.flusher is not None and self.flusher.error is not None:
            raise RunError(f"{self.label} can't be written to the disk: {self.flusher.error}")
        with reported(self._path):
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.connection.execute("COMMIT")
            finally:
                if self.inside:
                    self.connection.execute("ROLLBACK")

    @override
    async def again(self, work: Callable[[], Awaitable[T]]) -> T:
        """A file is never away."""
        return await work()

    @override
    async def read(self, statement: str, **values: object) -> list[Any]:
        with reported(self._path):
            return self._execute(statement, values).fetchall()

    @override
    async def change(self, statement: str, **values: object) -> int:
        return self._execute(statement, values).rowcount

    def _execute(self, statement: str, values: dict[str, object]) -> sqlite3.Cursor:
        values["now"] = self.clock()
        return self.connection.execute(text(statement), values)

    @override
    async def each(self, bulk: Bulk, rows: Sequence[tuple[Any, ...]]) -> list[bool]:
        statement, execute = _numbered(bulk), self.connection.execute
        if len(rows) > 1:
            execute("SAVEPOINT each")
            if self.connection.executemany(statement, rows).rowcount == len(rows):
                return [True] * len(rows)
            execute("ROLLBACK TO each")  # now one by one: which don't?
        return [execute(statement, row).rowcount > 0 for row in rows]

    @override
    async def load(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        insert = f"INSERT INTO {table} (run, {names}) VALUES (1, {marks})"  # noqa: S608
        self.connection.executemany(insert, rows)

    @override
    async def claim(
        self, worker: int, n: int, judges: Sequence[int] | None, *, again: bool
    ) -> list[Any]:
        ours = "id < 0" if again else "id >= 0"
        if judges is not None:
            ours += f" AND judge IN ({', '.join(map(str, judges))})"
        pending = await self.read(_PENDING.format(ours), n=n)
        # These were the lowest numbers, so up to the last of them nothing else is pending.
        if pending:
            await self.change(_CLAIM.format(ours), worker=worker, last=pending[-1][0])
        return pending

    @override
    async def counts(self, first: int, last: int) -> list[Any]:
        return await self.read(_COUNTS, first=first, last=last)

    @override
    async def verdicts(self, first: int, last: int, n: int) -> Verdicts:
        return verdicts.of_rows(await self.read(_VERDICTS, first=first, last=last), n)

    @override
    async def close(self) -> None:
        """The log is synced, moved into the database and removed."""
        try:
            if self.flusher is not None:
                with reported(self._path):
                    self.flusher.stop()
                    self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            self.connection.close()


class SqliteStore(Store):
    """The store of one run in a file. The writer's process must hold the run's lock while it is open."""

    _db: SqliteDatabase

    def __init__(self, path: Path, **options: Any) -> None:
        """Open `path`, which a writer may make; `options` are those of its database. Raises RunError if
        it can't be opened, was lost, or is damaged."""
        super().__init__(SqliteDatabase(path, **options))
        self._place = path.resolve()
        self._identity = self._seen()

    async def _take_over(self) -> None:
        """Whoever has the file's lock leads, and all other workers are dead: what they held goes back
        into the queue at once. Batches aren't."""
        await self._db.change("UPDATE lead SET until = 0")
        await self._db.change("UPDATE workers SET over = true WHERE until < :never", never=NEVER)
        await self._db.change(sql.GIVE_BACK)

    def _seen(self) -> tuple[int, int] | None:
        try:
            stat = self._place.stat()
        except OSError:
            return None
        return stat.st_dev, stat.st_ino

    @override
    def check(self) -> None:
        """SQLite would go on writing to a file that was deleted or moved."""
        if self._db.flusher is None or self._seen() == self._identity:
            return
        raise RunError(
            f"{self._place.parent} was moved or deleted during the run, which is stopped. All answers "
            "so far are in it: move it back, or continue with `judgeq resume PATH`. If it is lost, the "
            "same command starts again with the replies in the cache, unless --no-cache was given."
        )


def connect(path: Path, *, read_only: bool, make: bool = True) -> sqlite3.Connection:
    """A connection to `path`, which a writer may `make`.

    Raises RunError for a file that is no run's, was changed by another program, or doesn't add up; and
    OSError or sqlite3.Error as they come.
    """
    log, journal, shared = (path.with_name(path.name + end) for end in ("-wal", "-journal", "-shm"))
    refuse_links(path, log, shared)
    make = make and not read_only
    if not make:
        _refuse_lost(path, log)
    if not read_only and os.path.lexists(journal):
        # SQLite plays it back when the database is opened, and deletes any file that it names.
        raise RunError(
            f"{journal} is a journal that judgeq doesn't make: another program wrote to the run, or "
            "somebody put it there. Remove it if you don't know it; nothing was changed."
        )
    # Where nobody may write, it can't change either, and SQLite must not try to keep its log there.
    settled = not os.access(path.parent, os.W_OK) and not log.exists()
    mode = ("?mode=ro&immutable=1" if settled else "?mode=ro") if read_only else ""
    address = (path.parent.resolve() / path.name).as_uri() + mode
    connection = sqlite3.connect(address, uri=True, isolation_level=None, timeout=10)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        # Before anything is written: the file may be another program's.
        empty = vetting.is_empty(connection)
        if not make or not empty:
            vetting.check(connection, path)
            vetting.refuse(str(path), connection.execute(text(sql.ADDED_UP)).fetchone())
        if not read_only:
            refuse_links(path, log, shared)  # nobody put one there meanwhile
            _make_writable(connection, empty)
    except BaseException:
        connection.close()
        raise
    return connection


def _refuse_lost(path: Path, log: Path) -> None:
    """SQLite would take a file of no bytes for a new database, and delete the log beside it."""
    if not path.exists() or not path.stat().st_size:
        old = f" Move {log.name} away first: it belongs to the lost file." if log.exists() else ""
        raise RunError(f"{path} is missing or empty: {vetting.LOST}{old}")


def _make_writable(connection: sqlite3.Connection, empty: bool) -> None:
    if empty:  # a kill must leave no journal behind: see connect
        connection.execute("PRAGMA journal_mode = MEMORY")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("PRAGMA temp_store = MEMORY")  # a file more might be one too many
    connection.execute("PRAGMA secure_delete = ON")  # a forgotten name isn't left in the file
    if empty:
        vetting.make(connection)
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # now its log is there
