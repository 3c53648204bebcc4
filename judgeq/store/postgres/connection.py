"""One run's tables in PostgreSQL: a connection that is made again when it broke, and its errors."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception
from typing_extensions import override

from judgeq.errors import RunError, StoreAwayError
from judgeq.events import Event, Notice
from judgeq.store.postgres import dialect
from judgeq.store.postgres.address import Address
from judgeq.store.postgres.heartbeat import Reach
from judgeq.store.postgres.link import connect_async, problem, sent
from judgeq.store.protocol import Columns, Database
from judgeq.store.statements import Bulk
from judgeq.types import Matches

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")
LONGEST_WAIT = 10.0
"""Seconds between two tries, at most."""
HURRIED = 5.0
"""Seconds for which a database that is away is waited for once a stop was asked for."""
PATIENT = 6
"""Tries of what the database answers but doesn't do before the user is notified."""
QUIET = 1.0
"""Seconds that it may be away before the user is notified."""
_TOOK_TOO_LONG = "57014"


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
        self.reach = Reach(address.lease)
        self._clock = clock
        self._sleep = sleep
        self._lock = asyncio.Lock()
        self._owner: asyncio.Task[Any] | None = None
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._begin = dialect.BEGIN.format(patience=int(address.lease * 1000))
        self._known = False  # whether there was a connection before
        self._away: float | None = None
        self._reported = False

    @property
    @override
    def inside(self) -> bool:
        return self._owner is not None and self._owner is asyncio.current_task()

    @override
    def transaction(self) -> Any:
        return self._transaction(self._begin)

    @asynccontextmanager
    async def _transaction(self, begin: str) -> AsyncIterator[None]:
        if self.inside:
            yield
            return
        async with self._lock:
            with self._mapped():
                connection = await self._connected()
                self._owner = asyncio.current_task()
                try:
                    await connection.execute(begin)
                    yield
                    await connection.execute("COMMIT")
                except BaseException:
                    await self._roll_back(connection)
                    raise
                finally:
                    self._owner = None
            self._is_back()

    @override
    async def again(self, work: Callable[[], Awaitable[T]], *, patient: bool = True) -> T:
        """What always takes too long is given up unless one is `patient`."""
        since: list[float] = []

        async def once() -> T:
            return await work()

        def mends(error: BaseException) -> bool:
            # A wrong address: waiting doesn't help.
            return isinstance(error, StoreAwayError) and self._known and not self.inside

        def over(state: RetryCallState) -> bool:
            error = state.outcome.exception() if state.outcome else None
            late = getattr(error and error.__cause__, "sqlstate", None) == _TOOK_TOO_LONG
            if late and not patient and state.attempt_number > PATIENT:
                return True
            if self.hurried:
                since.append(time.monotonic())
            return self.hurried and since[-1] - since[0] > HURRIED

        def wait(state: RetryCallState) -> float:
            longest: float = min(0.1 * 2 ** (state.attempt_number - 1), LONGEST_WAIT)
            # Jitter: many workers shouldn't come back in the same moment.
            return min(longest, 1.0 if self.hurried else longest) * random.uniform(0.5, 1.0)  # noqa: S311

        retrying = AsyncRetrying(
            retry=retry_if_exception(mends),
            stop=over,
            wait=wait,
            sleep=self._sleep,
            before_sleep=self._lost,
            reraise=True,
        )
        return await retrying(once)

    def _lost(self, state: RetryCallState) -> None:
        """Note that the database is away; the user is notified if that lasts."""
        now = time.monotonic()
        self._away = now if self._away is None else self._away
        lasts = now - self._away > QUIET or state.attempt_number == PATIENT
        if lasts and not self._reported and state.outcome is not None:
            self._reported = True
            again = "It is tried again until it works; answers that come are kept."
            self.emit(Notice(f"{state.outcome.exception()} {again}", warning=True))

    def _is_back(self) -> None:
        if self._away is None:
            return
        away = time.monotonic() - self._away
        if self._reported and away > QUIET:
            self.emit(Notice(f"{self.address.label} works again, after {away:.0f} s."))
        self._away, self._reported = None, False

    @override
    async def read(self, statement: str, **values: object) -> list[Any]:
        if self.inside:
            return await self._rows(statement, values)
        return await self.again(lambda: self._alone(statement, values), patient=False)

    async def _alone(self, statement: str, values: Mapping[str, object]) -> list[Any]:
        async with self._lock:
            with self._mapped():
                await self._connected()
                rows = await self._rows(statement, values)
            self._is_back()
            return rows

    @override
    async def change(self, statement: str, **values: object) -> int:
        async with self._cursor() as cursor:
            await cursor.execute(self._sql(statement), values or None)
            return cursor.rowcount

    @override
    async def each(self, bulk: Bulk, rows: Sequence[tuple[Any, ...]]) -> list[bool]:
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
    async def end_dead(self) -> int:
        """Where it was away, live workers are given time to renew their leases."""
        return await self.change(dialect.END_DEAD, **self.reach.values())

    @override
    async def put_back_unbegun(self, ours: Sequence[int]) -> int:
        return await self.change(dialect.PUT_BACK_UNBEGUN, ours=list(ours))

    @override
    async def counts(self, first: int, last: int) -> list[Any]:
        return await self.read(dialect.COUNTS, first=first, last=last)

    @override
    async def verdicts(self, first: int, last: int) -> Columns:
        return dialect.columns(await self._blocks(dialect.VERDICTS, first, last))

    @override
    async def matches(self, first: int, last: int) -> Matches:
        return dialect.questions(await self._blocks(dialect.MATCHES, first, last))

    async def _blocks(self, statement: str, first: int, last: int) -> list[Any]:
        """The packed rows of a span of jobs, block by block, as of one moment."""

        async def read() -> list[Any]:
            blocks, start = [], first
            async with self._transaction(dialect.BEGIN_READING):
                while True:
                    values = {"first": start, "last": last, "block": dialect.BLOCK}
                    (block,) = await self._rows(statement, values)
                    if block[0]:
                        blocks.append(block)
                    if block[0] < dialect.BLOCK:
                        return blocks
                    start = block[1] + 1

        return await self.again(read, patient=False)

    @override
    async def close(self) -> None:
        if self._connection is not None:
            await self._drop(self._connection)

    async def script(self, statements: str, values: Mapping[str, object]) -> list[list[Any]]:
        """The rows of each statement. They are sent together, and are one transaction of their own."""
        from psycopg import AsyncClientCursor

        async with self._lock:
            with self._mapped():
                connection = await self._connected()
                try:
                    cursor = AsyncClientCursor(connection)
                    await cursor.execute(self._sql(statements), values)
                    rows = [await cursor.fetchall() if cursor.description else []]
                    while cursor.nextset():
                        rows.append(await cursor.fetchall() if cursor.description else [])
                    return rows
                except BaseException:
                    # Cancelled in the middle, too: what comes next is the answer to another question.
                    await self._drop(connection)
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
            self._connection = None
            try:
                self._connection = await connect_async(self.address)
            except StoreAwayError:
                raise
            except RunError as error:
                if not self._known:
                    raise
                raise StoreAwayError(str(error)) from error
            self._known = True
        return self._connection

    async def _roll_back(self, connection: psycopg.AsyncConnection[Any]) -> None:
        import psycopg

        try:
            if not connection.closed:
                await connection.execute("ROLLBACK")
        except psycopg.Error:
            await self._drop(connection)

    async def _drop(self, connection: psycopg.AsyncConnection[Any]) -> None:
        import psycopg

        self._connection = None
        with suppress(psycopg.Error, OSError):
            await connection.close()

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        """Turn psycopg's errors into ours."""
        from psycopg import Error, errors

        try:
            yield
        except errors.ForeignKeyViolation as error:
            raise RunError(f"{self.label} isn't there any more: it was deleted.") from error
        except Error as error:
            raise problem(self.address, error) from error
