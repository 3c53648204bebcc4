"""Connections to a PostgreSQL store, and what is sent over them.

judgeq's tables lie in a schema of their own; statements name it as `@.`. Nothing is left in a session
between two transactions (no prepared statements, settings, or LISTEN), so that a pooler like PgBouncer
may stand between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tenacity import RetryCallState, retry, retry_if_exception_type, wait_random

from judgeq.errors import RunError, StoreAwayError, UsageError
from judgeq.store.postgres.address import Address, asked, unreachable

if TYPE_CHECKING:
    import psycopg

# What time mends: a broken or refused connection, the end of the server, a lack of resources, a
# transaction that lost against another or took too long, a server that became a standby.
_PASSING = ("08", "53", "57", "58", "40", "55P03", "25006", "25P03")
TRIES = 3
"""Of what a connection broke in, at least."""
# A silent network counts as broken.
_USUAL = {
    "application_name": "judgeq",
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


def _over(state: RetryCallState) -> bool:
    address: Address = state.args[0]
    return state.attempt_number >= TRIES and (state.seconds_since_start or 0.0) >= address.patience


retried = retry(
    retry=retry_if_exception_type(StoreAwayError),
    stop=_over,
    wait=wait_random(0.05, 0.5),
    reraise=True,
)
"""What opens a connection of its own to the address that is its first argument, and may be done twice,
is done again where that broke."""


def in_schema(statement: str, schema: str) -> str:
    """A statement with its tables in this schema, which address.parse has checked."""
    return statement.replace("@.", f'"{schema}".')


@cache
def _marked(statement: str) -> str:
    """A statement with its values as psycopg marks them."""
    return re.sub(r"(?<!:):(\w+)", r"%(\1)s", statement.replace("@lock", "FOR UPDATE"))


def sent(statement: str, address: Address, run: int, now: float | None = None) -> str:
    """A statement of statements.py as PostgreSQL reads it; by default on its own clock."""
    clock = "extract(epoch FROM now())" if now is None else repr(now)
    statement = _marked(statement).replace("@run", str(run)).replace("@now", f"{clock}::float8")
    return in_schema(statement, address.schema)


def connect(address: Address) -> psycopg.Connection[Any]:
    """A connection on which each statement is a transaction of its own unless one is begun.

    Raises UsageError without psycopg, StoreAwayError or RunError when the database can't be reached.
    """
    with mapped(address):
        client = _psycopg()
        connection: psycopg.Connection[Any] = client.connect(**_arguments(address))
        connection.isolation_level = client.IsolationLevel.READ_COMMITTED
    _check(address, connection)
    return connection


async def connect_async(address: Address) -> psycopg.AsyncConnection[Any]:
    """As `connect`, for an event loop."""
    with mapped(address):
        connect = _psycopg().AsyncConnection.connect
        connection: psycopg.AsyncConnection[Any] = await connect(**_arguments(address))
    _check(address, connection)
    return connection


def _check(address: Address, connection: psycopg.BaseConnection[Any]) -> None:
    """Raise RunError where backslashes are read as PostgreSQL 9.0 did: what psycopg sends of several
    bytea then arrives as other bytes."""
    if connection.info.parameter_status("standard_conforming_strings") == "off":
        connection.pgconn.finish()
        raise RunError(
            f"{address.label} can't be used: standard_conforming_strings is off. "
            "ALTER ROLE … SET standard_conforming_strings = on."
        )


def _arguments(address: Address) -> dict[str, Any]:
    """How a connection is made; what the address says itself goes before what is usual."""
    given = asked(urlsplit(address.conninfo).query)
    return {
        "conninfo": address.conninfo,
        "autocommit": True,
        "prepare_threshold": None,
        "client_encoding": "utf8",
        **{name: value for name, value in _USUAL.items() if name not in given},
    }


@contextmanager
def mapped(address: Address) -> Iterator[None]:
    """Turn psycopg's errors into ours: StoreAwayError where another try may mend it. Raises UsageError
    without psycopg."""
    psycopg = _psycopg()
    try:
        yield
    except psycopg.Error as error:
        ours, state = unreachable(address, error), error.sqlstate or ""
        broken = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        if state.startswith(_PASSING) or (broken and not state):
            raise StoreAwayError(str(ours)) from error
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            ours = RunError(
                f"{ours} judgeq needs a schema of its own, and the right CREATE on "
                f'it: CREATE SCHEMA "{address.schema}" AUTHORIZATION its user.'
            )
        elif isinstance(error, psycopg.errors.ForeignKeyViolation):
            ours = RunError(f"a run in {address.label} isn't there any more: it was deleted.")
        raise ours from error


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise UsageError("--store needs psycopg: pip install 'judgeq[postgres]'") from error
    return psycopg


class Link:
    """A connection to a store, for a short while. Errors are psycopg's."""

    def __init__(self, address: Address, connection: psycopg.Connection[Any]) -> None:
        self.address = address
        self.connection = connection
        self.transaction = connection.transaction

    def execute(self, statement: str, run: int = 0, **values: object) -> psycopg.Cursor[Any]:
        """Run a statement, of a run or of all."""
        query: Any = sent(statement, self.address, run)
        return self.connection.execute(query, values or None)

    @contextmanager
    def copy(self, table: str, columns: Sequence[str]) -> Iterator[psycopg.Copy]:
        """Where rows of these columns are written to a table."""
        query: Any = sent(f"COPY @.{table} ({', '.join(columns)}) FROM STDIN", self.address, 0)
        with self.connection.cursor().copy(query) as copying:
            yield copying

    def row(self, statement: str, run: int = 0, **values: object) -> Any:
        """The first row of a statement, or None."""
        return self.execute(statement, run, **values).fetchone()


@retried
def reach(address: Address) -> None:
    """Raise StoreAwayError, UsageError or RunError unless the database can be reached."""
    connect(address).close()


@contextmanager
def opened(address: Address) -> Iterator[Link]:
    """A connection to a database, whatever is in it. Raises UsageError without psycopg, and RunError
    where the database can't be used."""
    with mapped(address), connect(address) as connection:
        yield Link(address, connection)
