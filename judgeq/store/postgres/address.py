"""The address of a PostgreSQL store, and connections to it.

judgeq's tables lie in a schema of their own; statements name it as `@.`. Nothing is left in a session
between two transactions (no prepared statements, settings, or LISTEN), so that a pooler like PgBouncer
may stand between.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from tenacity import (
    retry,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random,
)

from judgeq.errors import RunError, StoreAwayError, UsageError

if TYPE_CHECKING:
    import psycopg

SCHEMA = "judgeq"
LEASE = 60.0
"""Seconds for which a worker, or the scheduler, is believed to live without a sign of it."""
CONNECT_TIMEOUT = 10
"""Seconds that the server may take to answer."""
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:@]*)(:\d{1,5})?")
_SECRET = re.compile("password|secret")
# What time mends: a broken or refused connection, the end of the server, a lack of resources, a
# transaction that lost against another or took too long, a server that became a standby.
_PASSING = ("08", "53", "57", "58", "40", "55P03", "25006", "25P03")
_NO_ESCAPES = "SET standard_conforming_strings = on"  # which poolers keep track of
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


class Address(NamedTuple):
    """Where a store is: `conninfo` for psycopg, which may hold a password; the schema; the address
    without secrets, as it may be shown, written down and given again; and the seconds of a lease."""

    conninfo: str
    schema: str
    shown: str
    lease: float = LEASE

    def __repr__(self) -> str:
        return self.shown


def is_address(text: str) -> bool:
    """Whether this names a PostgreSQL store."""
    return text.startswith(("postgresql://", "postgres://"))


def parse(text: str) -> Address:
    """The address in a URL: postgresql://[user[:password]@][host[:port]]/database[?schema=…&lease=…].

    Raises UsageError for what is none; the message never holds the password.
    """
    if not is_address(text):
        raise UsageError(
            "--store takes the address of a PostgreSQL database, "
            "postgresql://user@host:5432/database?schema=judgeq"
        )
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise UsageError(f"--store can't be read as an address: {error}.") from None
    if not text.isprintable():
        raise UsageError("--store can't be read as an address: it holds what can't be printed.")
    login, _, hosts = parts.netloc.rpartition("@")
    if not all(map(_HOST.fullmatch, hosts.split(","))):
        raise UsageError("--store can't be read as an address: a host is HOST or HOST:PORT.")
    asked = _asked(parts.query)
    if "@" in login or "@" in parts.path or "#" in text or any("@" in name for name, _ in asked):
        raise UsageError(
            "--store can't be read as an address: in a user's name or password @ is written %40, "
            "/ %2F, ? %3F and # %23."
        )
    schema = dict(asked).get("schema", SCHEMA)
    if not _NAME.fullmatch(schema):
        raise UsageError(
            f"--store …?schema={schema}: a schema's name is made of letters, digits and _, and doesn't "
            "begin with a digit."
        )
    rest = _query([(name, value) for name, value in asked if name not in ("schema", "lease")])
    conninfo = parts._replace(scheme="postgresql", query=rest).geturl()
    said = sorted(
        (name, value)
        for name, value in asked
        if not _SECRET.search(name) and name != "lease" and (name, value) != ("schema", SCHEMA)
    )
    user = login.partition(":")[0]
    netloc = f"{user}@{hosts}" if user else hosts
    shown = parts._replace(
        scheme="postgresql", netloc=netloc, query=_query(said, safe="/")
    ).geturl()
    return Address(conninfo, schema, shown, _lease(dict(asked).get("lease")))


def _asked(query: str) -> list[tuple[str, str]]:
    """The parameters of an address, as libpq reads them: + is no space."""
    return parse_qsl(query.replace("+", "%2B"), keep_blank_values=True)


def _query(asked: list[tuple[str, str]], safe: str = "") -> str:
    return urlencode(asked, quote_via=quote, safe=safe)


def _lease(text: str | None) -> float:
    if text is None:
        return LEASE
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 86_400:
        raise UsageError(f"--store …?lease={text}: a lease is a number of seconds from 1 to 86400.")
    return seconds


def in_schema(statement: str, schema: str) -> str:
    """A statement with its tables in this schema, which `parse` has checked."""
    return statement.replace("@.", f'"{schema}".')


retried = retry(
    retry=retry_if_exception_type(StoreAwayError),
    stop=stop_after_attempt(3),
    wait=wait_random(0.05, 0.5),
    reraise=True,
)
"""What opens a connection of its own, and may be done twice, is done again where that broke."""


def connect(address: Address) -> psycopg.Connection[Any]:
    """A connection on which each statement is a transaction of its own unless one is begun.

    Raises UsageError without psycopg, StoreAwayError or RunError when the database can't be reached.
    """
    client = _psycopg()
    try:
        connection: psycopg.Connection[Any] = client.connect(**_arguments(address))
        if _escapes(connection):
            connection.execute(_NO_ESCAPES)
    except client.Error as error:
        raise problem(address, error) from error
    connection.isolation_level = client.IsolationLevel.READ_COMMITTED
    return connection


async def connect_async(address: Address) -> psycopg.AsyncConnection[Any]:
    """As `connect`, for an event loop."""
    client = _psycopg()
    try:
        connection: psycopg.AsyncConnection[Any] = await client.AsyncConnection.connect(
            **_arguments(address)
        )
        if _escapes(connection):
            await connection.execute(_NO_ESCAPES)
    except client.Error as error:
        raise problem(address, error) from error
    return connection


def _escapes(connection: psycopg.BaseConnection[Any]) -> bool:
    """Whether this role, or database, reads backslashes as PostgreSQL 9.0 did: what psycopg sends of
    several bytea then arrives as other bytes."""
    return connection.info.parameter_status("standard_conforming_strings") == "off"


def _arguments(address: Address) -> dict[str, Any]:
    """How a connection is made: also when a silent network counts as broken, unless the address says so
    itself."""
    given = dict(_asked(urlsplit(address.conninfo).query))
    usual = {
        "connect_timeout": CONNECT_TIMEOUT,
        "keepalives_idle": 15,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
    }
    return {
        "conninfo": address.conninfo,
        "autocommit": True,
        "prepare_threshold": None,
        "application_name": "judgeq",
        "client_encoding": "utf8",
        **{name: value for name, value in usual.items() if name not in given},
    }


def problem(address: Address, error: psycopg.Error) -> RunError:
    """Our error for one of psycopg's: StoreAwayError where another try may mend it."""
    psycopg = _psycopg()
    ours = unreachable(address, error)
    state = error.sqlstate or ""
    broken = not state and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    if broken or state.startswith(_PASSING):
        return StoreAwayError(str(ours))
    return ours


def unreachable(address: Address, error: Exception) -> RunError:
    """What says that the database can't be used, and why; without the password."""
    lines = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()]
    why = " ".join(line if line.endswith((".", "?", ":")) else f"{line}." for line in lines)
    for secret in _secrets(address):
        why = why.replace(secret, "•••")
    return RunError(f"{address.shown} can't be used: {why or f'{type(error).__name__}.'}")


def _secrets(address: Address) -> list[str]:
    parts = urlsplit(address.conninfo)
    given = [parts.password or "", unquote(parts.password or "")]
    given += [value for name, value in _asked(parts.query) if _SECRET.search(name)]
    return [secret for secret in given if secret]


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise UsageError("--store needs psycopg: pip install 'judgeq[postgres]'") from error
    return psycopg
