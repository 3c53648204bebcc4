"""The store of one run in one SQLite file: WAL, one writer, commits on the caller's own thread.

A commit costs tens of microseconds and happens where the results are, on the event loop: a writer
thread would wait for the interpreter lock of a busy loop. Who groups results into few commits is
`engine/queue.py`. Whoever put a file there, nothing but a run of ours is read, and nothing of it is run.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from typing_extensions import override

from judgeq.errors import RunError
from judgeq.escaping import plain
from judgeq.files import refuse_links
from judgeq.store import rows, schema
from judgeq.store.schema import JOB, SPAN, Bulk
from judgeq.store.sql_store import Store
from judgeq.types import Clock, Verdicts

T = TypeVar("T")
DATABASE = "run.db"
"""The file of a run's folder that holds its facts."""
INTERVAL = 0.1
RESTART_PAGES = 16_384
_PENDING = f"""
SELECT {JOB} FROM jobs INDEXED BY jobs_pending
WHERE run = 1 AND state = 'pending' AND {{}} ORDER BY id LIMIT :n
"""
_CLAIM = """
UPDATE jobs INDEXED BY jobs_pending SET state = 'running', worker = :worker
WHERE run = 1 AND state = 'pending' AND id <= :last AND {}
"""
_VERDICTS = f"""
SELECT job, ranking, coalesce(ties, zeroblob(length(ranking) / 4)), items, score,
    coalesce(answered_by, judge), ordered
FROM verdicts v JOIN jobs ON jobs.run = v.run AND id = job
WHERE v.run = 1 AND job {SPAN} ORDER BY job
"""


@lru_cache(maxsize=512)
def text(statement: str) -> str:
    """A statement as SQLite reads it: of the one run in the file."""
    for word, ours in (("@.", ""), ("@run", "1"), ("@now", ":now"), ("@lock", ""), ("@rows", "")):
        statement = statement.replace(word, ours)
    return statement


@lru_cache(maxsize=512)
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
    except UnicodeDecodeError as error:
        raise RunError(f"{path}: {undecodable(error)}") from error
    except (sqlite3.Error, OSError) as error:
        hint = ""
        if "full" in str(error):
            hint = " Free some space; nothing committed is lost, and the run can be resumed."
        elif "not a database" in str(error) or "malformed" in str(error):
            hint = " The file is damaged or not a judgeq run."
        raise RunError(f"{path}: {error}.{hint}") from error


def undecodable(error: UnicodeDecodeError) -> str:
    """Return what a message of SQLite's says, which quotes a file's bytes that aren't UTF-8."""
    quoted = error.object.decode("utf-8", "backslashreplace")
    return f"{plain(quoted, 200)}. The file is damaged or not a judgeq run."


class Flusher(threading.Thread):
    """A helper thread that makes commits durable against a power cut, off the event loop.

    With `synchronous=NORMAL` a commit survives the death of the process at once, and a power cut when
    the write-ahead log was synced. The thread syncs it about ten times a second, and moves it into the
    database on a connection of its own, so that no commit ever waits for a disk. An error is kept in
    `error`, and ends the thread.
    """

    def __init__(self, database: Path) -> None:
        super().__init__(name="judgeq-flusher", daemon=True)
        self._database = database
        self._stop_asked = threading.Event()
        self.error: OSError | sqlite3.Error | UnicodeDecodeError | None = None

    @override
    def run(self) -> None:
        # Only the log is opened by hand: closing a second handle on the database would drop SQLite's own
        # locks on it (POSIX locks belong to the process).
        log = self._database.with_name(f"{self._database.name}-wal")
        try:
            with (
                log.open("rb") as written,
                closing(
                    sqlite3.connect(self._database, isolation_level=None, timeout=5)
                ) as connection,
            ):
                connection.execute(
                    "PRAGMA checkpoint_fullfsync = ON"
                )  # else a Mac's drive caches it
                # SQLite opens its files when it reads: now, and not when connections took them all.
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
                while not self._stop_asked.wait(INTERVAL):
                    self._flush(written.fileno(), connection)
        except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
            self.error = error

    def _flush(self, log: int, connection: sqlite3.Connection) -> None:
        os.fsync(log)  # the next line alone would not, while somebody reads what was there before
        # PASSIVE never makes the writer wait, but lets the log grow while it is busy; once it is large,
        # RESTART waits for a gap and begins the log anew.
        _, pages, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if pages > RESTART_PAGES:
            connection.execute("PRAGMA wal_checkpoint(RESTART)")

    def stop(self) -> None:
        """End the thread."""
        self._stop_asked.set()
        self.join()


class SqliteStore(Store):
    """The store of one run in a file. One process writes, which must hold the run's lock while it is
    open, and the loop waits for it: tasks are never in one another's way."""

    blocking = True
    COUNTS = f"SELECT state, count(*) FROM jobs WHERE run = 1 AND id {SPAN} GROUP BY state"
    # Whoever has the file's lock leads, and all other workers are dead: what they held goes back into
    # the queue at once. Batches aren't.
    TAKE_OVER: ClassVar = (
        "UPDATE lead SET until = 0",
        "UPDATE workers SET over = true WHERE until < 9e999",
        "UPDATE jobs SET state = 'pending' WHERE state = 'running' AND worker IN ("
        "SELECT worker FROM workers WHERE over)",
    )

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool = False,
        make: bool = True,
        clock: Clock = time.time,
    ) -> None:
        """Open `path`, which a writer may make. Raises RunError if it can't be opened, was lost, or is
        damaged."""
        super().__init__()
        self.label = str(path)
        self.flusher: Flusher | None = None
        self._path = path
        self._clock = clock
        with reported(path):
            self.connection = connect(path, read_only=read_only, make=make)
            if not read_only:
                self.flusher = Flusher(path)
                self.flusher.start()
        self._place = path.resolve()
        self._identity = self._seen()

    @property
    @override
    def _inside(self) -> bool:
        return self.connection.in_transaction

    @override
    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        if self._inside:
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
                if self._inside:
                    self.connection.execute("ROLLBACK")

    @override
    async def again(self, work: Callable[[], Awaitable[T]]) -> T:
        """A file is never away."""
        return await work()

    @override
    def hurry(self) -> None:
        """A file is never waited for."""

    @override
    async def _read(self, statement: str, **values: object) -> list[Any]:
        with reported(self._path):
            return self._execute(statement, values).fetchall()

    @override
    async def _change(self, statement: str, **values: object) -> int:
        with reported(self._path):
            return self._execute(statement, values).rowcount

    def _execute(self, statement: str, values: dict[str, object]) -> sqlite3.Cursor:
        values["now"] = self._clock()
        return self.connection.execute(text(statement), values)

    @override
    async def _each(self, bulk: Bulk, rows: Sequence[tuple[Any, ...]]) -> list[bool]:
        statement, execute = _numbered(bulk), self.connection.execute
        if len(rows) > 1:
            execute("SAVEPOINT each")
            if self.connection.executemany(statement, rows).rowcount == len(rows):
                return [True] * len(rows)
            execute("ROLLBACK TO each")  # now one by one: which don't?
        return [execute(statement, row).rowcount > 0 for row in rows]

    @override
    async def _claim(self, worker: int, n: int, which: str) -> list[Any]:
        pending = await self._read(_PENDING.format(which), n=n)
        # These were the lowest numbers, so up to the last of them nothing else is pending.
        if pending:
            await self._change(_CLAIM.format(which), worker=worker, last=pending[-1][0])
        return pending

    @override
    async def _verdicts(self, round: int | None, n: int) -> Verdicts:
        return rows.verdicts(await self._read(_VERDICTS, round=round), n)

    @override
    async def close(self) -> None:
        """The log is synced, moved into the database and removed."""
        try:
            if self.flusher is not None:
                self.flusher.stop()
                with reported(self._path):
                    self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            self.connection.close()

    def _seen(self) -> tuple[float, ...] | None:
        try:
            return self._place.stat()[1:3]
        except OSError:
            return None

    @override
    def check(self) -> None:
        """SQLite would go on writing to a file that was deleted or moved."""
        if self.flusher is None or self._seen() == self._identity:
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
    # SQLite would take a file of no bytes for a new database, and delete the log beside it.
    if not make and (not path.exists() or not path.stat().st_size):
        old = f" Move {log.name} away first: it belongs to the lost file." if log.exists() else ""
        raise RunError(f"{path} is missing or empty: {schema.LOST}{old}")
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
        empty = schema.is_empty(connection)
        if not make or not empty:
            schema.check(connection, path)
            schema.refuse(str(path), connection.execute(text(schema.ADDED_UP)).fetchone())
        if not read_only:
            refuse_links(path, log, shared)  # nobody put one there meanwhile
            _make_writable(connection, empty)
    except BaseException:
        connection.close()
        raise
    return connection


def _make_writable(connection: sqlite3.Connection, empty: bool) -> None:
    for pragma in (
        *(["journal_mode = MEMORY"] if empty else []),  # a kill must leave no journal: see connect
        "journal_mode = WAL",
        "synchronous = NORMAL",
        "wal_autocheckpoint = 0",
        "temp_store = MEMORY",  # a file more might be one too many
        "secure_delete = ON",  # a forgotten name isn't left in the file
    ):
        connection.execute(f"PRAGMA {pragma}")
    if empty:
        schema.make(connection)
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # now its log is there
