"""The address of a PostgreSQL store, never shown with a password; connections to it, and its tables.

judgeq's tables, those of schema.py and some more, lie in a schema of their own; statements name it as
`@.`. Nothing is left in a session between two transactions (no prepared statements, settings, or
LISTEN), so that a pooler like PgBouncer may stand between.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlencode

from tenacity import RetryCallState, retry, retry_if_exception_type, wait_random

from judgeq.errors import RunError, StoreAwayError, UsageError
from judgeq.store.schema import VERSION, made_of
from judgeq.store.workers import LEASE

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")
SCHEMA = "judgeq"
_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[^\[\]:@/?#,]*)(?::\d{1,5})?"
_ADDRESS = re.compile(
    rf"postgres(?:ql)?://(?:(?=([^@:/?#]*))([^@/?#]*@))?({_HOST}(?:,{_HOST})*)(/[^@?#]*)?(?:\?((?:[^#@=&]+=[^#&]*&?)*))?"
)
"""A user, their login up to its @, hosts, /database, and the parameters of an address."""
_SECRET = re.compile("password|secret")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_SECONDS = re.compile(r"[1-9]\d{0,4}(\.\d+)?")
# A silent network counts as broken.
_USUAL = {
    "application_name": "judgeq",
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


class Address(NamedTuple):
    """Where a store is: `conninfo` for psycopg, which may hold a password; the schema; the address
    without `secrets`, as it may be shown, written down and given again; the seconds of a lease; and
    those for which it is tried again where the database is away."""

    conninfo: str
    schema: str
    label: str
    secrets: tuple[str, ...]
    lease: float = LEASE
    patience: float = 0.0

    def __repr__(self) -> str:
        return self.label


def is_address(text: str) -> bool:
    """Whether this names a PostgreSQL store."""
    return text.startswith(("postgresql://", "postgres://"))


def parse(text: str) -> Address:
    """The address in a URL: postgresql://[user[:password]@][host[:port]]/database[?schema=…&lease=…].

    Raises UsageError for what is none; the message never holds the password.
    """
    read = _ADDRESS.fullmatch(text)
    if read is None or not text.isprintable():
        raise UsageError(
            "--store can't be read as the address of a PostgreSQL database, "
            "postgresql://user@host:5432/database?schema=judgeq. In a user's name or password @ is "
            "written %40, / %2F, ? %3F and # %23."
        )
    user, login, hosts, path, query = (part or "" for part in read.groups())
    # As libpq reads them: + is no space.
    given = dict(parse_qsl(query.replace("+", "%2B"), keep_blank_values=True))
    schema, lease = given.pop("schema", SCHEMA), given.pop("lease", str(LEASE))
    if not _NAME.fullmatch(schema) or not _SECONDS.fullmatch(lease):
        raise UsageError(
            f"--store …?schema={schema}&lease={lease}: a schema's name is made of letters, digits and "
            "_, and doesn't begin with a digit; a lease is a number of seconds, 1 to 99999."
        )
    shown = {name: value for name, value in sorted(given.items()) if not _SECRET.search(name)}
    password = login.removesuffix("@").partition(":")[2]
    secrets = (password, unquote(password), *(given[name] for name in given.keys() - shown.keys()))
    if schema != SCHEMA:
        shown["schema"] = schema
    return Address(
        conninfo=_url(login, hosts + path, _USUAL | given, ""),
        schema=schema,
        label=_url(user and f"{user}@", hosts + path, shown, "/"),
        secrets=secrets,
        lease=float(lease),
    )


def _url(login: str, place: str, query: Mapping[str, object], safe: str) -> str:
    parameters = query and f"?{urlencode(query, quote_via=quote, safe=safe)}"
    return f"postgresql://{login}{place}{parameters or ''}"


def unreachable(address: Address, error: Exception) -> RunError:
    """What says that the database can't be used, and why; without the password."""
    why = " ".join(str(error).split()) or type(error).__name__
    for secret in filter(None, address.secrets):
        why = why.replace(secret, "•••")
    return RunError(f"{address.label} can't be used: {why.rstrip('.')}.")


# Connections

# What time mends: a broken or refused connection, the end of the server, a lack of resources, a
# transaction that lost against another or took too long, a server that became a standby.
_PASSING = ("08", "53", "57", "58", "40", "55P03", "25006", "25P03")
TRIES = 3
"""Of what a connection broke in, at least."""


_HOW: Any = {"autocommit": True, "prepare_threshold": None, "client_encoding": "utf8"}


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


@lru_cache(maxsize=512)
def _marked(statement: str) -> str:
    """A statement with its values as psycopg marks them."""
    return re.sub(r"(?<!:):(\w+)", r"%(\1)s", statement.replace("@lock", "FOR UPDATE"))


def sent(statement: str, address: Address, run: int, now: float | None = None) -> str:
    """A statement as PostgreSQL reads it; by default on its own clock."""
    clock = "extract(epoch FROM now())" if now is None else repr(now)
    statement = _marked(statement).replace("@run", str(run)).replace("@now", f"{clock}::float8")
    return in_schema(statement, address.schema)


def connect(address: Address) -> psycopg.Connection[Any]:
    """A connection on which each statement is a transaction of its own unless one is begun.

    Raises UsageError without psycopg, StoreAwayError or RunError when the database can't be reached.
    """
    with mapped(address) as client:
        connection: psycopg.Connection[Any] = client.connect(address.conninfo, **_HOW)
        connection.isolation_level = client.IsolationLevel.READ_COMMITTED
    _check(address, connection)
    return connection


async def connect_async(address: Address) -> psycopg.AsyncConnection[Any]:
    """As `connect`, for an event loop."""
    with mapped(address) as client:
        connect = client.AsyncConnection.connect
        connection: psycopg.AsyncConnection[Any] = await connect(address.conninfo, **_HOW)
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


@contextmanager
def mapped(address: Address) -> Iterator[Any]:
    """psycopg, whose errors are turned into ours: StoreAwayError where another try may mend it. Raises
    UsageError without it."""
    try:
        import psycopg
    except ImportError as error:
        raise UsageError("--store needs psycopg: pip install 'judgeq[postgres]'") from error
    try:
        yield psycopg
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


class Link(NamedTuple):
    """A connection to a store, for a short while. Errors are psycopg's."""

    address: Address
    connection: psycopg.Connection[Any]

    def execute(self, statement: str, run: int = 0, **values: object) -> psycopg.Cursor[Any]:
        """Run a statement, of a run or of all."""
        query: Any = sent(statement, self.address, run)
        return self.connection.execute(query, values or None)

    def row(self, statement: str, run: int = 0, **values: object) -> Any:
        """The first row of a statement, or None."""
        return self.execute(statement, run, **values).fetchone()


@contextmanager
def opened(address: Address) -> Iterator[Link]:
    """A connection to a database, whatever is in it. Raises UsageError without psycopg, and RunError
    where the database can't be used."""
    with mapped(address), connect(address) as connection:
        yield Link(address, connection)


@retried
def in_store(address: Address, work: Callable[[Link], T]) -> T:
    """What `work` returns on a connection to a database."""
    with opened(address) as link:
        return work(link)


# Its tables

_IDENTITY = "bigint GENERATED ALWAYS AS IDENTITY"
_WORDS = {
    "{key}": f"{_IDENTITY} PRIMARY KEY",
    "{counter}": _IDENTITY,
    "{number}": "bigint NOT NULL",
    "{key_of_id}": ", PRIMARY KEY (run, id)",
    "{key_of_job}": ", PRIMARY KEY (run, job)",
    "{clustered}": "",
}
# What is read of many runs at once, and room in the blocks of what changes often. No job is looked for
# among those of all runs.
_MORE = """
CREATE TABLE @.meta (one boolean PRIMARY KEY DEFAULT true CHECK (one), version int NOT NULL);
ALTER TABLE @.calls ADD PRIMARY KEY (run, id);
ALTER TABLE @.workers SET (fillfactor = 50, autovacuum_vacuum_threshold = 200);
ALTER TABLE @.jobs SET (
    fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX jobs_running ON @.jobs (run, worker) WHERE state = 'running';
CREATE INDEX jobs_lost ON @.jobs (run, id) WHERE state IN ('invalid', 'failed');
CREATE INDEX jobs_open ON @.jobs (run, id) WHERE open > 0 OR at_risk > 0 OR unbounded > 0;
"""
_LOCK = 0x6A716462  # "jqdb": only one process makes a schema at a time


# Whether the schema is there, and how many tables are in it.
_THERE = """
SELECT to_regclass(:meta) IS NOT NULL, count(*) FROM pg_class c JOIN pg_namespace n
ON n.oid = c.relnamespace WHERE n.nspname = :schema
"""


def prepare(link: Link) -> None:
    """Make the schema where there is none; in one transaction. Raises RunError as `made`, and in a
    database that can't hold every text."""
    address = link.address
    encoding = link.connection.info.parameter_status("server_encoding")
    if encoding not in ("UTF8", "SQL_ASCII"):
        raise RunError(
            f"{address.label} can't hold every text: its encoding is {encoding}. Have one made by "
            "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0."
        )
    with link.connection.transaction():
        link.execute("SELECT pg_advisory_xact_lock(:lock)", lock=_LOCK)
        if made(link):
            return
        there = "SELECT FROM pg_namespace WHERE nspname = :schema"
        if link.row(there, schema=address.schema) is None:
            # IF NOT EXISTS would want the right to make it all the same.
            link.execute(f'CREATE SCHEMA "{address.schema}"')
        link.execute(f"{made_of(_WORDS)} {_MORE} INSERT INTO @.meta (version) VALUES ({VERSION})")


def made(link: Link) -> bool:
    """Whether the schema is there. Raises RunError for what isn't ours, or is of another version."""
    address = link.address
    there, tables = link.row(_THERE, meta=f'"{address.schema}".meta', schema=address.schema)
    if not there and tables:
        raise RunError(
            f"the schema {address.schema!r} of {address.label} is another program's: it holds "
            "tables, but none of judgeq's. --store …?schema=NAME names another."
        )
    if not there:
        return False
    (version,) = link.row("SELECT version FROM @.meta") or (0,)
    if version != VERSION:
        raise RunError(
            f"{address.label} has version {version} of judgeq's schema, and this judgeq writes version "
            f"{VERSION}: use the judgeq that made it, or another schema (--store …?schema=NAME). "
            "Nothing was changed."
        )
    return True
