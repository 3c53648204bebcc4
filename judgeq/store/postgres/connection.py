"""One run's tables in PostgreSQL: a connection that is made again when it broke."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception
from typing_extensions import override

from judgeq.errors import RunError, StoreAwayError
from judgeq.events import Event, Notice
from judgeq.store.postgres import dialect
from judgeq.store.postgres.address import Address
from judgeq.store.postgres.link import connect_async, mapped, sent
from judgeq.store.protocol import Database
from judgeq.store.statements import Bulk
from judgeq.types import Matches, Verdicts

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")
LONGEST_WAIT = 10.0
"""Seconds between two tries, at most."""
HURRIED = 5.0
"""Seconds for which a database that is away is waited for once a stop was asked for."""
QUIET, PATIENT = 1.0, 6
"""Seconds that it may be away, and tries of what it doesn't do, before the user is notified."""


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
        self.hurried = False
        self._clock = clock
        self._sleep = sleep
        self._lock = asyncio.Lock()
        self._owner: asyncio.Task[Any] | None = None
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._begin = dialect.BEGIN.format(patience=int(address.lease * 1000))
        self._known = False  # whether there was a connection before
        self._away: float | None = None  # since when
        self._hurried_since: float | None = None
        self._reported = False

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
            self._away = self._hurried_since = None
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
            wait=self._wait,
            sleep=self._sleep,
            before_sleep=self._note,
            reraise=True,
        )
        return await retrying(once)

    def _is_over(self, _: RetryCallState) -> bool:
        if not self.hurried:
            return False
        self._hurried_since = self._hurried_since or time.monotonic()
        return time.monotonic() - self._hurried_since > HURRIED

    def _wait(self, state: RetryCallState) -> float:
        longest: float = 0.1 * 2.0 ** min(state.attempt_number - 1, 10)
        longest = min(longest, 1.0 if self.hurried else LONGEST_WAIT)
        # Jitter: many workers shouldn't come back in the same moment.
        return longest * random.uniform(0.5, 1.0)  # noqa: S311

    def _note(self, state: RetryCallState) -> None:
        """Note that the database is away; the user is notified if that lasts."""
        self._away = self._away or time.monotonic()
        lasts = time.monotonic() - self._away > QUIET or state.attempt_number == PATIENT
        if lasts and not self._reported and state.outcome:
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
        statement, columns = dialect.over_arrays(bulk)
        updates = statement.startswith("UPDATE")
        changed = [not updates] * len(rows)
        for places in dialect.waves([row[0] for row in rows]) if updates else [range(len(rows))]:
            part = zip(*(rows[place] for place in places), strict=True)
            values = {
                name: dialect.array(column, kind)
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
    async def claim(self, worker: int, n: int, judges: Sequence[int] | None) -> list[Any]:
        wanted = None if judges is None else list(judges)
        return sorted(await self.read(dialect.CLAIM, worker=worker, n=n, judges=wanted))

    @override
    async def counts(self, first: int, last: int) -> list[Any]:
        return await self.read(dialect.COUNTS, first=first, last=last)

    @override
    async def verdicts(self, first: int, last: int, n: int) -> Verdicts:
        return dialect.verdicts(await self._blocks(dialect.VERDICTS, first, last), n)

    @override
    async def matches(self, first: int, last: int) -> Matches:
        return dialect.matches(await self._blocks(dialect.MATCHES, first, last))

    async def _blocks(self, statement: str, first: int, last: int) -> list[Any]:
        """The packed rows of a span of jobs, block by block, as of one moment."""

        async def read() -> list[Any]:
            blocks, start = [], first
            async with self._alone(dialect.BEGIN_READING):
                while True:
                    values = {"first": start, "last": last, "block": dialect.BLOCK}
                    ((n, highest, *columns),) = await self._rows(statement, values)
                    blocks.append(columns)
                    if n < dialect.BLOCK:
                        return blocks
                    start = highest + 1

        return await self.again(read)

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
