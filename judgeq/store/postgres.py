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
from judgeq.events import Notice
from judgeq.store.link import Address, connect_async, mapped, sent
from judgeq.store.rows import assembled
from judgeq.store.schema import JOB, SPAN, Bulk
from judgeq.store.sql_store import Store
from judgeq.types import Clock, Sleep, Verdicts

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")
LONGEST_WAIT = 5.0
"""Seconds between two tries, at most; random, since many workers shouldn't come back at once."""
FIRST_CONNECTION_TRIES = 3
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
    SELECT id FROM @.jobs WHERE run = @run AND state = 'pending' AND {{}}
    ORDER BY id LIMIT :n FOR UPDATE SKIP LOCKED))
RETURNING {JOB}
"""
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
COUNTS = f"""
WITH lost AS (
    SELECT state, count(*) AS n FROM @.jobs
    WHERE run = @run AND state IN ('invalid', 'failed') AND id {SPAN} GROUP BY state
    UNION ALL SELECT 'pending', count(*) FROM @.jobs
    WHERE run = @run AND state = 'pending' AND id {SPAN}
    UNION ALL SELECT 'running', count(*) FROM @.jobs
    WHERE run = @run AND state = 'running' AND id {SPAN})
SELECT state, n FROM lost
UNION ALL SELECT 'done', (SELECT coalesce(sum(last - first + 1), 0)::bigint FROM @.rounds
    WHERE run = @run AND first {SPAN}) - (SELECT coalesce(sum(n), 0)::bigint FROM lost)
"""
_VERDICTS = f"""
SELECT string_agg(int8send(job), ''), string_agg(ranking, ''),
    string_agg(coalesce(ties, decode(repeat('00', length(ranking) / 4), 'hex')), ''),
    string_agg(items, ''), string_agg(int4send(length(ranking)), ''),
    string_agg(float8send(coalesce(score, 'nan')), ''), string_agg(int4send(judge), ''),
    string_agg(boolsend(ordered), '')
FROM (SELECT v.job, v.ranking, v.ties, v.score, j.items, j.ordered,
             coalesce(v.answered_by, j.judge) AS judge
      FROM @.verdicts v JOIN @.jobs j ON j.run = v.run AND j.id = v.job
      WHERE v.run = @run AND v.job {SPAN} ORDER BY v.job) AS block
"""


class PostgresTables(Store):
    """A run's tables in PostgreSQL. `name` is what the run of this number is known by to users; a
    `clock` (of tests) stands in for the database's. Nothing is opened before it is needed."""

    blocking = False
    COUNTS = COUNTS

    def __init__(
        self,
        address: Address,
        run: int,
        *,
        name: str = "",
        clock: Clock | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.lease = address.lease
        super().__init__()
        self.address = address
        self.run = run
        self.label = f"run {name or run} of {address.label}"
        self._hurried: float | None = None  # when it was, on the monotonic clock
        self._clock = clock
        self._sleep = sleep
        self._lock = asyncio.Lock()
        self._owner: asyncio.Task[Any] | None = None
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._known = False  # whether there was a connection before
        self._reported = False  # that it is away

    @property
    @override
    def _inside(self) -> bool:
        return self._owner is asyncio.current_task()

    @override
    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        if self._inside:
            yield
            return
        async with self._alone() as connection:
            await connection.execute(BEGIN.format(patience=int(self.lease * 1000)))
            yield
            await connection.execute("COMMIT")

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """The connection, which is this task's. After an error there is a new one the next time: no
        transaction is open in it, and no answer of an earlier statement comes."""
        async with self._lock:
            with mapped(self.address):
                connection = await self._connected()
                self._owner = asyncio.current_task()
                try:
                    yield connection
                except BaseException:
                    await connection.close()
                    raise
                finally:
                    self._owner = None
            self._reported = False

    @override
    async def again(self, work: Callable[[], Awaitable[T]]) -> T:
        async def once() -> T:
            return await work()

        def mends(error: BaseException) -> bool:
            return isinstance(error, StoreAwayError) and not self._inside

        retrying = AsyncRetrying(
            retry=retry_if_exception(mends),
            stop=self._is_over,
            wait=wait_random_exponential(multiplier=0.1, max=LONGEST_WAIT),
            sleep=self._sleep,
            before_sleep=self._note,
            reraise=True,
        )
        return await retrying(once)

    @override
    def hurry(self) -> None:
        self._hurried = time.monotonic()

    def _is_over(self, state: RetryCallState) -> bool:
        """Return whether tries are over: soon for a first connection, since its address may be wrong."""
        if not self._known:
            tries_are_over = state.attempt_number >= FIRST_CONNECTION_TRIES
            return tries_are_over and (state.seconds_since_start or 0.0) >= self.address.patience
        if self._hurried is None:
            return False
        return min(time.monotonic() - self._hurried, state.seconds_since_start or 0.0) > HURRIED

    def _note(self, state: RetryCallState) -> None:
        """Notify the user that the database is away, if that lasts."""
        if (state.seconds_since_start or 0.0) > QUIET and not self._reported and state.outcome:
            self._reported = True
            again = "It is tried again until it works; answers that come are kept."
            self.emit(Notice(f"{state.outcome.exception()} {again}", warning=True))

    @override
    async def _read(self, statement: str, **values: object) -> list[Any]:
        async def alone() -> list[Any]:
            async with self._alone():
                return await self._rows_of(statement, values)

        return await (self._rows_of(statement, values) if self._inside else self.again(alone))

    @override
    async def _change(self, statement: str, **values: object) -> int:
        async with self._transaction():
            return (await self._execute(statement, values)).rowcount

    @override
    async def _each(self, bulk: Bulk, rows: Sequence[tuple[Any, ...]]) -> list[bool]:
        if not rows:
            return []
        statement, columns = over_arrays(bulk)
        updates = statement.startswith("UPDATE")
        # Several of a row: in their order.
        if updates and len({row[0] for row in rows}) < len(rows):
            return [(await self._each(bulk, [row]))[0] for row in rows]
        values = {
            name: array(column, kind)
            for (name, kind), column in zip(columns, zip(*rows, strict=True), strict=True)
        }
        changed = {place for (place,) in await self._rows_of(statement, values)}
        return [not updates or place in changed for place in range(1, len(rows) + 1)]

    @override
    async def _claim(self, worker: int, n: int, which: str) -> list[Any]:
        return sorted(await self._read(CLAIM.format(which), worker=worker, n=n))

    @override
    async def _verdicts(self, round: int | None, n: int) -> Verdicts:
        kinds = (">i8", "u1", "u1", "u1", ">i4", ">f8", ">i4", "?")
        (row,) = await self._read(_VERDICTS, round=round)
        packed = zip(row, kinds, strict=True)
        return assembled(n, [np.frombuffer(column or b"", kind) for column, kind in packed])

    @override
    async def close(self) -> None:
        if self._connection is not None:
            with suppress(StoreAwayError, RunError), mapped(self.address):
                await self._connection.close()

    async def _script(self, statements: str, values: Mapping[str, object]) -> list[list[Any]]:
        """The rows of each statement. They are sent together, and are one transaction of their own."""
        from psycopg import AsyncClientCursor

        async with self._alone() as connection:
            cursor = AsyncClientCursor(connection)
            await cursor.execute(self._sql(statements), values)
            rows = []
            more: bool | None = True
            while more:
                rows.append(await cursor.fetchall() if cursor.description else [])
                more = cursor.nextset()
            return rows

    def _sql(self, statement: str) -> str:
        return sent(statement, self.address, self.run, self._clock and self._clock())

    async def _execute(
        self, statement: str, values: Mapping[str, object]
    ) -> psycopg.AsyncCursor[Any]:
        if self._connection is None:
            raise RuntimeError("a statement outside of a transaction")
        return await self._connection.execute(self._sql(statement), values or None, binary=True)

    async def _rows_of(self, statement: str, values: Mapping[str, object]) -> list[Any]:
        cursor = await self._execute(statement, values)
        return await cursor.fetchall() if cursor.description else []

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        if self._connection is None or self._connection.closed:
            try:
                self._connection = await connect_async(self.address)
            except RunError as error:
                if not self._known:  # StoreAwayError where another try may help
                    raise
                raise StoreAwayError(str(error)) from error
            self._known = True
        return self._connection


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
