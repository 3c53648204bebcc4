"""One run's tables in PostgreSQL, over a connection that is made again when it broke.

It runs a bulk statement over arrays, so that many rows are one statement and one round trip; claims pass
over the rows that others have locked; verdicts are packed by the database, since a row for each would
take 20 times as long to read.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential
from typing_extensions import override

from judgeq.errors import RunError, StoreAwayError
from judgeq.events import Event, Notice
from judgeq.store import statements as sql
from judgeq.store.postgres.address import Address
from judgeq.store.postgres.link import connect_async, mapped, sent
from judgeq.store.protocol import Database
from judgeq.store.statements import Bulk
from judgeq.store.verdicts import assembled
from judgeq.types import Verdicts

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")
LONGEST_WAIT = 5.0
"""Seconds between two tries, at most; random, since many workers shouldn't come back at once."""
HURRIED = 5.0
"""Seconds for which a database that is away is waited for once a stop was asked for."""
QUIET = 1.0
"""Seconds that it may be away before the user is notified."""

# What is read after a lock is what others left, whatever a database's or role's own default is. The
# statements of workers look up a few rows by an index, and join them by their hashes. While a round is
# worked on the tables' statistics are old, and the planner would choose otherwise: read all of a table.
# Who is paused in a transaction, or cut off, must not block others for longer than its lease.
BEGIN = """
BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off;
SET LOCAL enable_nestloop = off; SET LOCAL enable_mergejoin = off; SET LOCAL jit = off;
SET LOCAL idle_in_transaction_session_timeout = {patience}; SET LOCAL lock_timeout = {patience}
"""
CLAIM = f"""
UPDATE @.jobs SET state = 'running', worker = :worker
WHERE run = @run AND id = ANY(ARRAY(
    SELECT id FROM @.jobs WHERE run = @run AND state = 'pending' AND (id < 0) = :again
    AND (CAST(:judges AS int[]) IS NULL OR judge = ANY(CAST(:judges AS int[])))
    ORDER BY id LIMIT :n FOR UPDATE SKIP LOCKED))
RETURNING {sql.JOB}
"""  # noqa: S608
# Who could have been kept from renewing its lease since the database started is given the time. Who has
# its row locked is alive.
END_DEAD = """
WITH dead AS (
    UPDATE @.workers SET over = true WHERE worker IN (
        SELECT worker FROM @.workers WHERE run = @run AND NOT over AND until < @now
        AND extract(epoch FROM pg_postmaster_start_time()) + :grace < @now
        ORDER BY worker FOR UPDATE SKIP LOCKED)
    RETURNING worker)
UPDATE @.jobs SET state = 'pending'
WHERE run = @run AND state = 'running' AND worker IN (SELECT worker FROM dead)
"""
# Those that somebody is just beginning are locked. One that was asked before may be about to be again.
PUT_BACK_UNBEGUN = """
UPDATE @.jobs SET state = 'pending' WHERE run = @run AND state = 'running' AND id = ANY(ARRAY(
    SELECT id FROM @.jobs WHERE run = @run AND state = 'running' AND attempts = 0
    AND worker <> ALL(CAST(:ours AS bigint[])) FOR UPDATE SKIP LOCKED))
"""
# By the partial indexes: all that isn't pending, running or lost is done, and needn't be counted.
COUNTS = """
WITH lost AS (
    SELECT state, count(*) AS n FROM @.jobs
    WHERE run = @run AND state IN ('invalid', 'failed') AND id BETWEEN :first AND :last GROUP BY state
    UNION ALL SELECT 'pending', count(*) FROM @.jobs
    WHERE run = @run AND state = 'pending' AND id BETWEEN :first AND :last
    UNION ALL SELECT 'running', count(*) FROM @.jobs
    WHERE run = @run AND state = 'running' AND id BETWEEN :first AND :last)
SELECT state, n FROM lost
UNION ALL SELECT 'done', (SELECT coalesce(sum(last - first + 1), 0)::bigint FROM @.rounds
    WHERE run = @run AND first BETWEEN :first AND :last) - (SELECT coalesce(sum(n), 0)::bigint FROM lost)
"""
VERDICTS = """
SELECT string_agg(int8send(job), ''), string_agg(ranking, ''),
    string_agg(int4send(length(ranking)), ''), string_agg(items, ''),
    string_agg(int4send(length(items)), ''),
    string_agg(coalesce(ties, decode(repeat('00', length(ranking) / 4), 'hex')), ''),
    string_agg(float8send(coalesce(score, 'nan')), ''), string_agg(int4send(judge), ''),
    string_agg(boolsend(ordered), '')
FROM (SELECT v.job, v.ranking, v.ties, v.score, j.items, j.ordered,
             coalesce(v.answered_by, j.judge) AS judge
      FROM @.verdicts v JOIN @.jobs j ON j.run = v.run AND j.id = v.job
      WHERE v.run = @run AND v.job BETWEEN :first AND :last ORDER BY v.job) AS block
"""


class PostgresDatabase(Database):
    """A run's tables in PostgreSQL. `name` is what the run of this number is known by to users; a
    `clock` (of tests) stands in for the database's."""

    blocking = False

    def __init__(
        self,
        address: Address,
        run: int,
        *,
        name: str = "",
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.address = address
        self.run = run
        self.label = f"run {name or run} of {address.label}"
        self.emit: Callable[[Event], None] = lambda event: None
        self.hurried: float | None = None
        self._clock = clock
        self._sleep = sleep
        self._lock = asyncio.Lock()
        self._owner: asyncio.Task[Any] | None = None
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._begin = BEGIN.format(patience=int(address.lease * 1000))
        self._known = False  # whether there was a connection before
        self._reported = False  # that it is away

    @property
    @override
    def inside(self) -> bool:
        return self._owner is not None and self._owner is asyncio.current_task()

    @override
    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        if self.inside:
            yield
            return
        async with self._alone(self._begin):
            yield

    @asynccontextmanager
    async def _alone(self, begin: str | None = None) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """The connection is this task's: for a transaction, if it is to begin one."""
        async with self._lock:
            with mapped(self.address):
                connection = await self._connected()
                self._owner = asyncio.current_task()
                try:
                    if begin:
                        await connection.execute(begin)
                    yield connection
                    if begin:
                        await connection.execute("COMMIT")
                except BaseException:
                    await self._roll_back(connection)
                    raise
                finally:
                    self._owner = None
            self._reported = False

    @override
    async def again(self, work: Callable[[], Awaitable[T]]) -> T:
        async def once() -> T:
            return await work()

        def mends(error: BaseException) -> bool:
            # A wrong address: waiting doesn't help.
            return isinstance(error, StoreAwayError) and self._known and not self.inside

        retrying = AsyncRetrying(
            retry=retry_if_exception(mends),
            stop=self._is_over,
            wait=wait_random_exponential(multiplier=0.1, max=LONGEST_WAIT),
            sleep=self._sleep,
            before_sleep=self._note,
            reraise=True,
        )
        return await retrying(once)

    def _is_over(self, state: RetryCallState) -> bool:
        if self.hurried is None:
            return False
        return min(time.monotonic() - self.hurried, state.seconds_since_start or 0.0) > HURRIED

    def _note(self, state: RetryCallState) -> None:
        """Notify the user that the database is away, if that lasts."""
        if (state.seconds_since_start or 0.0) > QUIET and not self._reported and state.outcome:
            self._reported = True
            again = "It is tried again until it works; answers that come are kept."
            self.emit(Notice(f"{state.outcome.exception()} {again}", warning=True))

    @override
    async def read(self, statement: str, **values: object) -> list[Any]:
        async def alone() -> list[Any]:
            async with self._alone():
                return await self._rows(statement, values)

        return await (self._rows(statement, values) if self.inside else self.again(alone))

    @override
    async def change(self, statement: str, **values: object) -> int:
        async with self._cursor() as cursor:
            await cursor.execute(self._sql(statement), values or None)
            return cursor.rowcount

    @override
    async def each(self, bulk: Bulk, rows: Sequence[tuple[Any, ...]]) -> list[bool]:
        if not rows:
            return []
        statement, columns = over_arrays(bulk)
        updates = statement.startswith("UPDATE")
        changed = [not updates] * len(rows)
        parts: list[Sequence[int]] = [range(len(rows))]
        if updates and len({row[0] for row in rows}) < len(
            rows
        ):  # several of a row: in their order
            parts = [[place] for place in range(len(rows))]
        for places in parts:
            part = zip(*(rows[place] for place in places), strict=True)
            values = {
                name: array(column, kind)
                for (name, kind), column in zip(columns, part, strict=True)
            }
            for (place,) in await self._rows(statement, values):
                changed[places[place - 1]] = True
        return changed

    @override
    async def load(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        copy = f"COPY @.{table} (run, {', '.join(columns)}) FROM STDIN"
        async with self._cursor() as cursor, cursor.copy(self._sql(copy)) as copying:
            for row in rows:
                await copying.write_row((self.run, *row))

    @override
    async def claim(
        self, worker: int, n: int, judges: Sequence[int] | None, *, again: bool
    ) -> list[Any]:
        wanted = None if judges is None else list(judges)
        return sorted(await self.read(CLAIM, worker=worker, n=n, judges=wanted, again=again))

    @override
    async def counts(self, first: int, last: int) -> list[Any]:
        return await self.read(COUNTS, first=first, last=last)

    @override
    async def verdicts(self, first: int, last: int, n: int) -> Verdicts:
        kinds = (">i8", "<i4", ">i4", "<i4", ">i4", "u1", ">f8", ">i4", "?")
        (row,) = await self.read(VERDICTS, first=first, last=last)
        return assembled(n, *map(_column, row, kinds))

    @override
    async def close(self) -> None:
        if self._connection is not None:
            with suppress(StoreAwayError, RunError), mapped(self.address):
                await self._connection.close()

    async def script(self, statements: str, values: Mapping[str, object]) -> list[list[Any]]:
        """The rows of each statement. They are sent together, and are one transaction of their own."""
        from psycopg import AsyncClientCursor

        async with self._alone() as connection:
            try:
                cursor = AsyncClientCursor(connection)
                await cursor.execute(self._sql(statements), values)
                rows = [await cursor.fetchall() if cursor.description else []]
                while cursor.nextset():
                    rows.append(await cursor.fetchall() if cursor.description else [])
                return rows
            except BaseException:  # cancelled in the middle, too: what comes next answers another
                await connection.close()
                raise

    def _sql(self, statement: str) -> str:
        now = None if self._clock is None else self._clock()
        return sent(statement, self.address, self.run, now)

    async def _rows(self, statement: str, values: Mapping[str, object]) -> list[Any]:
        async with self._cursor() as cursor:
            await cursor.execute(self._sql(statement), values or None)
            return await cursor.fetchall() if cursor.description else []

    def _cursor(self) -> psycopg.AsyncCursor[Any]:
        if self._connection is None:
            raise RuntimeError("a statement outside of a transaction")
        return self._connection.cursor(binary=True)

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        if self._connection is None or self._connection.closed:
            try:
                self._connection = await connect_async(self.address)
            except RunError as error:
                if not self._known:
                    raise
                raise StoreAwayError(str(error)) from error
            self._known = True
        return self._connection

    async def _roll_back(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Whatever it was in is over; where that fails there is a new one the next time."""
        try:
            with mapped(self.address):
                await connection.execute("ROLLBACK")
        except RunError:
            await connection.close()
        except BaseException:
            await connection.close()
            raise


@cache
def over_arrays(bulk: Bulk) -> tuple[str, list[tuple[str, str]]]:
    """A bulk statement that takes an array for each column, and the columns with their types. Of an
    UPDATE it returns the places of the rows that changed anything."""
    columns = [(name, kind) for name, kind in map(str.split, bulk.columns.split(", "))]
    arrays = ", ".join(f":{name}::{kind}[]" for name, kind in columns)
    names = ", ".join(f"p_{name}" for name, _ in columns)
    text = re.sub(r"(?<!:):(\w+)", r"given.p_\1", bulk.text).replace(
        "@rows", f"FROM unnest({arrays}) WITH ORDINALITY AS given ({names}, place)"
    )
    if text.startswith("UPDATE"):
        text += " AND id = ANY(:id::bigint[]) RETURNING place"
    return text, columns


def array(values: Iterable[Any], kind: str) -> str | list[Any]:
    """Values as an array: numbers as its text, which is made in a third of psycopg's time."""
    if kind in ("text", "bytea"):
        return list(values)
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


def _column(packed: bytes | None, kind: str) -> Any:
    """A column that the database packed (None: of no rows), as an array of the kind given."""
    array = np.frombuffer(packed or b"", dtype=kind)
    return array.astype(array.dtype.newbyteorder("="))
