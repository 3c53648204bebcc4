"""A store's link to its database: one connection, made again when it broke, and what its errors mean.

What one task does in a transaction, no other task of this process sees or disturbs.
"""

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

from judgeq.errors import RunError, StoreAwayError
from judgeq.events import Event, Notice
from judgeq.store.postgres.address import Address, connect_async, in_schema, problem

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")
Values = tuple[object, ...] | Mapping[str, object]
LONGEST_WAIT = 10.0
"""Seconds between two tries, at most."""
HURRIED = 5.0
"""Seconds for which a database that is away is waited for once a stop was asked for."""
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
"""What is read after a lock is what others left, whatever a database's or role's own default is."""
PATIENT = 6
"""Tries of what the database answers but doesn't do before the user is notified."""
QUIET = 1.0
"""Seconds that it may be away before the user is notified."""
_TOOK_TOO_LONG = "57014"


class Link:
    """Use `transaction` or `query`; each waits until no other task is in a transaction. `@now` in a
    statement is the time: the database's, or that of a `clock` (of tests)."""

    def __init__(
        self,
        address: Address,
        *,
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.address = address
        self.emit: Callable[[Event], None] = lambda event: None
        self.hurried = False
        self.back: float | None = None
        """When a lost connection was made again, by time.monotonic."""
        self._clock = clock
        self._sleep = sleep
        self._lock = asyncio.Lock()
        self._owner: asyncio.Task[Any] | None = None
        self._connection: psycopg.AsyncConnection[Any] | None = None
        # Who is paused in a transaction, or cut off, must not block others for longer than its lease.
        patience = int(address.lease * 1000)
        self._patience = (
            f"SET LOCAL idle_in_transaction_session_timeout = {patience}; "
            f"SET LOCAL lock_timeout = {patience}"
        )
        self._known = False  # whether there was a connection before
        self._away: float | None = None
        self._reported = False

    def sql(self, statement: str) -> str:
        """A statement as the database reads it."""
        now = "now()" if self._clock is None else f"to_timestamp({self._clock()!r})"
        return in_schema(statement, self.address.schema).replace("@now", now)

    @property
    def inside(self) -> bool:
        """Whether this task is in a transaction."""
        return self._owner is not None and self._owner is asyncio.current_task()

    @asynccontextmanager
    async def transaction(self, begin: str = BEGIN) -> AsyncIterator[None]:
        """What this task does inside is one transaction; inside another it is a part of that.

        Raises StoreAwayError for what another try may mend, and RunError.
        """
        if self.inside:
            yield
            return
        async with self._lock:
            with self._mapped():
                connection = await self._connected()
                self._owner = asyncio.current_task()
                try:
                    await connection.execute(f"{begin}; {self._patience}")
                    yield
                    await connection.execute("COMMIT")
                except BaseException:
                    await self._roll_back(connection)
                    raise
                finally:
                    self._owner = None
            self._is_back()

    async def query(self, statement: str, *values: object) -> list[Any]:
        """The rows of a statement, if it gives any; in this task's transaction, or in its own."""
        return await self._query(statement, values)

    async def query_named(self, statement: str, values: Mapping[str, object]) -> list[Any]:
        """As `query`, for a statement with named values."""
        return await self._query(statement, values)

    async def _query(self, statement: str, values: Values) -> list[Any]:
        if self.inside and self._connection is not None:
            return await self._rows(self._connection, statement, values)
        async with self._lock:
            with self._mapped():
                rows = await self._rows(await self._connected(), statement, values)
            self._is_back()
            return rows

    async def _rows(
        self, connection: psycopg.AsyncConnection[Any], statement: str, values: Values
    ) -> list[Any]:
        async with connection.cursor(binary=True) as cursor:
            await cursor.execute(self.sql(statement), values or None)
            return await cursor.fetchall() if cursor.description else []

    async def copy_in(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        """COPY … FROM STDIN, in a transaction of this task."""
        if self._connection is None:
            raise RuntimeError("COPY outside of a transaction")
        async with (
            self._connection.cursor() as cursor,
            cursor.copy(self.sql(statement)) as copy,
        ):
            for row in rows:
                await copy.write_row(row)

    async def again(self, work: Callable[[], Awaitable[T]]) -> T:
        """What `work` returns, tried again while the database is away; in a transaction only once.

        For what may be done twice. Raises StoreAwayError when that takes too long after `hurried`.
        """
        wait, since, overdue = 0.05, None, 0
        while True:
            try:
                return await work()
            except StoreAwayError as error:
                if self.inside or not self._known:  # a wrong address: waiting doesn't help
                    raise
                self.lost(error)
                overdue += getattr(error.__cause__, "sqlstate", None) == _TOOK_TOO_LONG
                if overdue > PATIENT:  # it always will
                    raise
                if self.hurried:
                    since = since or time.monotonic()
                    if time.monotonic() - since > HURRIED:
                        raise
            # Jitter: many workers shouldn't come back in the same moment.
            await self._sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311
            wait = min(2 * wait, 1.0 if self.hurried else LONGEST_WAIT)

    async def hold_back(self, times: int, error: StoreAwayError) -> None:
        """Wait before what failed so many times in a row is tried again, of a database that answers but
        doesn't commit: a full disk, a statement that takes too long. Raises the error when it is no
        longer to be tried."""
        if self.hurried and times > PATIENT:
            raise error
        if times == PATIENT:
            text = f"{error} It is tried again until it works; answers that come are kept."
            self.emit(Notice(text, warning=True))
        if times > 1:
            await self._sleep(min(0.05 * 2**times, LONGEST_WAIT) * random.uniform(0.5, 1.0))  # noqa: S311

    def lost(self, error: StoreAwayError) -> None:
        """Note that the database is away; the user is notified if that lasts."""
        now = time.monotonic()
        self._away = now if self._away is None else self._away
        if not self._reported and now - self._away > QUIET:
            self._reported = True
            text = f"{error} It is tried again until it works; answers that come are kept."
            self.emit(Notice(text, warning=True))

    def _is_back(self) -> None:
        if self._away is None:
            return
        self.back = time.monotonic()
        if self._reported:
            away = self.back - self._away
            self.emit(Notice(f"{self.address.shown} works again, after {away:.0f} s."))
        self._away, self._reported = None, False

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
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            raise problem(self.address, error) from error

    async def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            await self._drop(self._connection)
