"""The store of one run in one SQLite file: WAL, one writer, commits on the caller's own thread.

A commit costs tens of microseconds and happens where the results are, on the event loop: a writer
thread would wait for the interpreter lock of a busy loop. Who groups results into few commits is
`engine/queue.py`; what makes them survive a power cut is `store/flusher.py`. Whoever put a file there,
nothing but a run of ours is read, and nothing of it is run.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import override

from judgeq.errors import RunError
from judgeq.events import Event
from judgeq.files import refuse_links
from judgeq.store import answers, damage, rows, vetting
from judgeq.store import statements as sql
from judgeq.store.flusher import Flusher, Log
from judgeq.store.protocol import Columns, Database
from judgeq.store.sql_store import Store
from judgeq.store.statements import NEVER, Bulk
from judgeq.types import Matches

T = TypeVar("T")
_PENDING = f"""
SELECT {sql.JOB} FROM jobs INDEXED BY jobs_pending
WHERE run = 1 AND state = 'pending' AND {{}} ORDER BY id LIMIT :n
"""  # noqa: S608
_CLAIM = """
UPDATE jobs INDEXED BY jobs_pending SET state = 'running', worker = :worker
WHERE run = 1 AND state = 'pending' AND id <= :last AND {}
"""
_OVER = "UPDATE @.workers SET over = true WHERE run = @run AND NOT over AND until < :before"
_COUNTS = """
SELECT state, count(*) FROM jobs WHERE run = 1 AND id BETWEEN :first AND :last GROUP BY state
"""
_VERDICTS = """
SELECT job, ranking, ties, score, items, coalesce(answered_by, judge), ordered
FROM verdicts v JOIN jobs ON jobs.run = v.run AND id = job
WHERE v.run = 1 AND job BETWEEN :first AND :last ORDER BY job
"""
_MATCHES = """
SELECT items, judge FROM jobs WHERE run = 1 AND id BETWEEN :first AND :last ORDER BY id
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


class _Reported:
    """Turns SQLite's errors, and the disk's, into ours, which name the file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, sqlite3.Error | OSError):
            raise problem(self._path, error) from error


class _Transaction:
    """A transaction, or a part of the one that there is. A generator takes several times as long."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._db = database
        self._inner = database.inside

    async def __aenter__(self) -> None:
        if not self._inner:
            self._db.before()
            with self._db.reported:
                self._db.connection.execute("BEGIN IMMEDIATE")

    async def __aexit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if self._inner:
            return
        with self._db.reported:
            try:
                if error is None:
                    self._db.connection.execute("COMMIT")
            finally:
                if self._db.connection.in_transaction:
                    self._db.connection.execute("ROLLBACK")


class SqliteDatabase(Database):
    """A run's tables in a file. One process writes, and the loop waits for it: tasks are never in one
    another's way."""

    blocking = True

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool,
        make: bool,
        accept_damage: bool,
        clock: Callable[[], float],
    ) -> None:
        self.emit: Callable[[Event], None] = lambda event: None
        self.hurried = False
        self.label = str(path)
        self.before: Callable[[], None] = lambda: None
        """Called before each transaction; may raise."""
        self.reported = _Reported(path)
        self._clock = clock
        with self.reported:
            self.connection = connect(
                path, read_only=read_only, make=make, accept_damage=accept_damage
            )

    @property
    @override
    def inside(self) -> bool:
        return self.connection.in_transaction

    @override
    def transaction(self) -> _Transaction:
        return _Transaction(self)

    @override
    async def again(self, work: Callable[[], Awaitable[T]]) -> T:
        """A file is never away."""
        return await work()

    @override
    async def read(self, statement: str, **values: object) -> list[Any]:
        with self.reported:
            return self._execute(statement, values).fetchall()

    @override
    async def change(self, statement: str, **values: object) -> int:
        with self.reported:
            return self._execute(statement, values).rowcount

    def _execute(self, statement: str, values: dict[str, object]) -> sqlite3.Cursor:
        values["now"] = self._clock()
        return self.connection.execute(text(statement), values)

    @override
    async def each(self, bulk: Bulk, rows: Sequence[tuple[Any, ...]]) -> list[bool]:
        statement, execute = _numbered(bulk), self.connection.execute
        with self.reported:
            if len(rows) == 1:
                return [execute(statement, rows[0]).rowcount > 0]
            execute("SAVEPOINT each")
            if self.connection.executemany(statement, rows).rowcount == len(rows):
                return [True] * len(rows)
            execute("ROLLBACK TO each")  # now one by one: which don't?
            return [execute(statement, row).rowcount > 0 for row in rows]

    @override
    async def load(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        insert = f"INSERT INTO {table} (run, {names}) VALUES (1, {marks})"  # noqa: S608
        with self.reported:
            self.connection.executemany(insert, rows)

    @override
    async def claim(self, worker: int, n: int, judges: Sequence[int] | None) -> list[Any]:
        ours = "true" if judges is None else f"judge IN ({', '.join(map(str, judges))})"
        pending = await self.read(_PENDING.format(ours), n=n)
        # These were the lowest numbers, so up to the last of them nothing else is pending.
        if pending:
            await self.change(_CLAIM.format(ours), worker=worker, last=pending[-1][0])
        return pending

    @override
    async def end_dead(self) -> int:
        return await self.end(self._clock())

    async def end(self, before: float) -> int:
        """End the workers whose lease ends before that; how many jobs they had."""
        await self.change(_OVER, before=before)
        return await self.change(sql.GIVE_BACK)

    @override
    async def put_back_unbegun(self, ours: Sequence[int]) -> int:
        """There are no others."""
        return 0

    @override
    async def counts(self, first: int, last: int) -> list[Any]:
        return await self.read(_COUNTS, first=first, last=last)

    @override
    async def verdicts(self, first: int, last: int) -> Columns:
        return answers.columns(await self.read(_VERDICTS, first=first, last=last))

    @override
    async def matches(self, first: int, last: int) -> Matches:
        return rows.matches(await self.read(_MATCHES, first=first, last=last))

    @override
    async def close(self) -> None:
        self.connection.close()


class SqliteStore(Store):
    """The store of one run in a file. The writer's process must hold the run's lock while it is open."""

    _db: SqliteDatabase

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool = False,
        make: bool = True,
        accept_damage: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Open `path`; a writer may `make` it. A reader may `accept_damage`. Raises RunError if it can't
        be."""
        database = SqliteDatabase(
            path, read_only=read_only, make=make, accept_damage=accept_damage, clock=clock
        )
        super().__init__(database)
        if accept_damage:
            with database.reported:
                self.damage = damage_of(database.connection)
        self._flusher: Flusher | None = None
        if read_only:
            return
        self._place, self._log = path.resolve(), Log(path)
        self._log.open()  # now: its handle moves with the folder
        self._identity = self._seen()
        self._flusher = Flusher(path, self._log)
        self._flusher.start()
        database.before = self._check_flusher

    def _check_flusher(self) -> None:
        if self._flusher is not None and self._flusher.error is not None:
            raise RunError(f"{self._db.label} can't be written to the disk: {self._flusher.error}")

    async def _take_over(self) -> None:
        """Whoever has the file's lock leads, and all other workers are dead: what they held goes back
        into the queue at once. Batches aren't."""
        await self._db.change("UPDATE lead SET until = 0")
        await self._db.end(NEVER)

    def _seen(self) -> tuple[int, int] | None:
        try:
            stat = self._place.stat()
        except OSError:
            return None
        return stat.st_dev, stat.st_ino

    @override
    def check(self) -> None:
        """SQLite would go on writing to a file that was deleted or moved."""
        if self._seen() == self._identity:
            return
        folder = self._place.parent
        if self._log.is_deleted():
            raise RunError(
                f"{folder} was deleted during the run, or its run.db replaced. The run is stopped, and "
                "its record is lost. Unless --no-cache was given the cache has the replies: the same "
                "command starts again with them."
            )
        raise RunError(
            f"{folder} was moved during the run, which is stopped. All answers so far are saved. Move "
            "it back, or continue with `judgeq resume PATH`."
        )

    @override
    async def close(self) -> None:
        """The log is synced, moved into the database and removed."""
        try:
            if self._flusher is not None:
                with self._db.reported:
                    self._flusher.stop()
                    self._db.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            await self._db.close()


def damage_of(connection: sqlite3.Connection) -> list[str]:
    """What doesn't add up in a run's file."""
    return damage.found(damage.Counts(*connection.execute(text(sql.ADDED_UP)).fetchone()))


def connect(
    path: Path, *, read_only: bool, make: bool = True, accept_damage: bool = False
) -> sqlite3.Connection:
    """A connection to `path`, which a writer may `make`.

    Raises RunError for a file that is no run's, or was changed by another program, or, unless that is
    accepted, doesn't add up; and OSError or sqlite3.Error as they come.
    """
    files = [path.with_name(path.name + more) for more in ("", "-wal", "-shm")]
    refuse_links(*files)
    make = make and not read_only
    if not make:
        _refuse_lost(path)
    if not read_only:
        _refuse_journal(path)
    address = (path.parent.resolve() / path.name).as_uri() + (_read_only(path) if read_only else "")
    connection = sqlite3.connect(address, uri=True, isolation_level=None, timeout=10)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        # Before anything is written: the file may be another program's.
        empty = vetting.is_empty(connection)
        if not make or not empty:
            vetting.check(connection, path)
            if not accept_damage:
                damage.refuse(str(path), damage_of(connection))
        if not read_only:
            refuse_links(*files)  # nobody put one there meanwhile
            _make_writable(connection, empty)
    except BaseException:
        connection.close()
        raise
    return connection


def _refuse_lost(path: Path) -> None:
    """SQLite would take a file of no bytes for a new database, and delete the log beside it."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        log = path.with_name(path.name + "-wal")
        old = f" Move {log.name} away first: it belongs to the lost file." if log.exists() else ""
        raise RunError(f"{path} is missing: {vetting.LOST}{old}") from None
    if not size:
        raise RunError(f"{path} is empty: {vetting.LOST}")


def _make_writable(connection: sqlite3.Connection, empty: bool) -> None:
    if empty:  # a kill must leave no journal behind: see _refuse_journal
        connection.execute("PRAGMA journal_mode = MEMORY")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("PRAGMA temp_store = MEMORY")  # a file more might be one too many
    connection.execute("PRAGMA secure_delete = ON")  # a forgotten name isn't left in the file
    if empty:
        vetting.make(connection)


def _refuse_journal(path: Path) -> None:
    """SQLite plays a rollback journal back when the database is opened, and deletes any file that it
    names. We leave none behind."""
    journal = path.with_name(path.name + "-journal")
    if os.path.lexists(journal):
        raise RunError(
            f"{journal} is a journal that judgeq doesn't make: another program wrote to the run, or "
            "somebody put it there. Remove it if you don't know it; nothing was changed."
        )


def _read_only(path: Path) -> str:
    """How to open a file for reading: where nobody may write, it can't change either, and SQLite
    must not try to keep its log there."""
    log = path.with_name(path.name + "-wal")
    settled = not os.access(path.parent, os.W_OK) and not log.exists()
    return "?mode=ro&immutable=1" if settled else "?mode=ro"


def problem(path: Path, error: Exception) -> RunError:
    """Our error for one of SQLite's, or of the disk's, which names the file."""
    hint = ""
    if "full" in str(error):
        hint = " Free some space; nothing committed is lost, and the run can be resumed."
    elif "not a database" in str(error) or "malformed" in str(error):
        hint = " The file is damaged or not a judgeq run."
    return RunError(f"{path}: {error}.{hint}")
