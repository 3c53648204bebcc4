"""The runs that a store holds: the rows of `runs`, their shared texts, and a run taken out.

Each function opens a connection of its own, for one short transaction, and raises RunError where the
database can't be used. Where that connection breaks it is done again: each may be done twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, NamedTuple, ParamSpec, TypeVar

from judgeq.errors import RunError, StoreAwayError
from judgeq.json_marks import LEFT_OUT
from judgeq.store.damage import Counts, found
from judgeq.store.postgres import schema, statements
from judgeq.store.postgres.address import Address, connect, in_schema, problem, unreachable

if TYPE_CHECKING:
    import psycopg

P = ParamSpec("P")
T = TypeVar("T")
BREAKS = 2
"""So often a connection may break in what is done on it."""
BLOCK = 50_000
"""Rows that are deleted in one transaction."""
_ROWS = """
SELECT r.run, r.name, r.fingerprint, r.info, r.prompt, extract(epoch FROM least('9999-01-01', greatest(
    '1970-01-01', r.touched, (SELECT max(w.seen) FROM @.workers w WHERE w.run = r.run))))::float8,
    (SELECT regexp_replace(l.holder, ' [(][^(]*[)]$', '') FROM @.lead l
     WHERE l.run = r.run AND l.until > now()), r.texts,
    (SELECT count(*) FROM @.workers w WHERE w.run = r.run AND NOT w.over AND w.until > now()
     AND w.until < 'infinity')
FROM @.runs r
"""
# A block of a run's rows, whatever the table's key is.
_DELETE = """
DELETE FROM @.{table} WHERE ctid IN (SELECT ctid FROM @.{table} WHERE run = %s LIMIT %s)
"""


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as the store knows it: when it was last written to (seconds since the epoch), who leads it
    now, whether its texts are there, and how many workers are at it."""

    run: int
    name: str
    fingerprint: str = field(metadata=LEFT_OUT)
    info: str = field(metadata=LEFT_OUT)
    prompt: str | None = field(metadata=LEFT_OUT)
    touched: float
    leader: str | None
    texts: bool
    workers: int
    JSON_KEYS: ClassVar = {
        "run": "name",
        "led_by": "leader",
        "texts_shared": "texts",
    }


@contextmanager
def connected(address: Address, *, write: bool = False) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a store whose schema is there; a writer makes it.

    Raises UsageError without psycopg, and RunError where the database can't be used, or has no such
    schema.
    """
    with opened(address) as connection:
        if write:
            schema.prepare(connection, address)
        else:
            schema.check(connection, address)
        yield connection


@contextmanager
def opened(address: Address) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a database, whatever is in it. Raises as `connected`."""
    connection = connect(address)
    from psycopg import Error, errors

    try:
        yield connection
    except errors.InsufficientPrivilege as error:
        raise RunError(
            f"{unreachable(address, error)} judgeq needs a schema of its own, and the right CREATE on "
            f'it: CREATE SCHEMA "{address.schema}" AUTHORIZATION its user.'
        ) from error
    except Error as error:
        raise problem(address, error) from error
    finally:
        connection.close()


def _again(
    work: Callable[Concatenate[Address, P], T],
) -> Callable[Concatenate[Address, P], T]:
    """`work`, done again where its connection broke and another can be had."""

    @wraps(work)
    def done(address: Address, /, *given: P.args, **more: P.kwargs) -> T:
        for _ in range(BREAKS):
            try:
                return work(address, *given, **more)
            except StoreAwayError:
                connect(address).close()  # raises where the database can't be reached: so do we
        return work(address, *given, **more)

    return done


@_again
def listed(address: Address) -> list[RunRow]:
    """All runs; none where the schema isn't there yet."""
    with opened(address) as connection:
        if not schema.made(connection, address):
            return []
        rows = connection.execute(in_schema(_ROWS, address.schema))
        return [RunRow(*row) for row in rows]


@_again
def read(address: Address, name: str) -> RunRow | None:
    """The run of this name, if there is one."""
    with opened(address) as connection:
        if not schema.made(connection, address):
            return None
        return _read(connection, address, name)


def _read(connection: psycopg.Connection[Any], address: Address, name: str) -> RunRow | None:
    statement: Any = in_schema(f"{_ROWS} WHERE r.name = %s", address.schema)
    row = connection.execute(statement, (name,)).fetchone()
    return None if row is None else RunRow(*row)


@_again
def write(address: Address, name: str, fingerprint: str, info: str, prompt: str | None) -> RunRow:
    """The run of this name, made unless it is there: of several that make it at once one does.

    Raises RunError where the name is that of a run with another fingerprint.
    """
    insert: Any = in_schema(
        "INSERT INTO @.runs (name, fingerprint, info, prompt) VALUES (%s, %s, %s, %s) "
        "ON CONFLICT (name) DO NOTHING",
        address.schema,
    )
    with connected(address, write=True) as connection:
        connection.execute(insert, (name, fingerprint, info, prompt))
        row = _read(connection, address, name)
    if row is None or row.fingerprint != fingerprint:
        raise RunError(f"{address.shown}#{name} is another run (its fingerprint differs).")
    return row


@_again
def damage(address: Address, run: int) -> list[str]:
    """What doesn't add up in the ledger of a run, in words."""
    with connected(address) as connection:
        return damage_in(connection, address, run)


def damage_in(connection: psycopg.Connection[Any], address: Address, run: int) -> list[str]:
    """As `damage`, on a connection."""
    query: Any = in_schema(statements.ADDED_UP, address.schema)
    (counts,) = connection.execute(query, {"run": run}).fetchall()
    return found(Counts(*counts))


@_again
def rewrite(address: Address, run: int, info: str) -> None:
    """Put another text in place of what a run is."""
    update: Any = in_schema(
        "UPDATE @.runs SET info = %s, touched = now() WHERE run = %s", address.schema
    )
    with connected(address, write=True) as connection:
        connection.execute(update, (info, run))


@_again
def share(address: Address, run: int, texts: Sequence[str]) -> None:
    """Put the run's texts into the store, unless they are there. Raises RunError for a text that
    PostgreSQL can't keep."""
    mark: Any = in_schema(
        "UPDATE @.runs SET texts = true WHERE run = %s AND NOT texts", address.schema
    )
    copy: Any = in_schema("COPY @.texts (run, row, text) FROM STDIN", address.schema)
    row = 0
    try:
        with connected(address, write=True) as connection, connection.transaction():
            if not connection.execute(mark, (run,)).rowcount:
                return
            with connection.cursor().copy(copy) as copying:
                for row, text in enumerate(texts):
                    copying.write_row((run, row, _kept(text)))
    except ValueError as error:  # UnicodeEncodeError, too
        raise RunError(
            f"--share-texts: the text of row {row} can't be kept in PostgreSQL ({error})."
        ) from error


def _kept(text: str) -> str:
    if "\0" in text:
        raise ValueError("it holds a zero character")
    return text


class Shared(NamedTuple):
    """A run's items: ids, texts, gold labels; and row numbers (int32) by subset."""

    ids: list[str]
    texts: list[str]
    gold: list[float | None]
    subsets: dict[str, bytes]


@_again
def shared(address: Address, run: int) -> Shared | None:
    """The items of a run with their texts, where all of these are there."""
    select: Any = in_schema(
        "SELECT i.row, i.id, t.text, i.gold FROM @.items i JOIN @.texts t USING (run, row) "
        "WHERE run = %s ORDER BY row",
        address.schema,
    )
    members: Any = in_schema("SELECT name, members FROM @.subsets WHERE run = %s", address.schema)
    with connected(address) as connection:
        rows = connection.execute(select, (run,)).fetchall()
        subsets = connection.execute(members, (run,)).fetchall()
    numbers, ids, texts, gold = map(list, zip(*rows, strict=True)) if rows else ([], [], [], [])
    if not rows or numbers != list(range(len(rows))):
        return None
    return Shared(ids, texts, gold, dict(subsets))


def drop(address: Address, row: RunRow, *, force: bool = False) -> int:
    """Delete a run with all that belongs to it, in blocks, so that nobody is blocked for long; how many
    rows that were.

    An interrupted one goes on where it is called again. Raises RunError while a process leads it or
    works on it, unless it is forced.
    """
    deleted = 0
    with connected(address, write=True) as connection:
        _hold(connection, address, row, force)
        for table in (*schema.TABLES[1:], "lead"):  # the lead last: nobody takes it meanwhile
            statement: Any = in_schema(_DELETE.format(table=table), address.schema)
            while count := connection.execute(statement, (row.run, BLOCK)).rowcount:
                deleted += count
        last: Any = in_schema("DELETE FROM @.runs WHERE run = %s", address.schema)
        deleted += connection.execute(last, (row.run,)).rowcount
    return deleted


def _hold(connection: psycopg.Connection[Any], address: Address, row: RunRow, force: bool) -> None:
    """Lead the run for a day, so that nobody else begins to. Raises RunError while a process leads it or
    works on it."""
    take: Any = in_schema(
        "INSERT INTO @.lead (run, epoch, holder, until) VALUES (%s, 1, 'judgeq store drop-run', "
        "now() + interval '1 day') ON CONFLICT (run) DO UPDATE SET epoch = lead.epoch + 1, "
        "holder = excluded.holder, until = excluded.until "
        "WHERE lead.until <= now() OR lead.holder = excluded.holder OR %s",
        address.schema,
    )
    over: Any = in_schema("UPDATE @.workers SET over = true WHERE run = %s", address.schema)
    with connection.transaction():
        by = f"led by {row.leader or 'another process'}"
        if not row.leader and row.workers:
            by = f"worked on by {row.workers:,} {'worker' if row.workers == 1 else 'workers'}"
        idle = force or not row.workers
        if not idle or not connection.execute(take, (row.run, force)).rowcount:
            raise RunError(
                f"run {row.name} is {by} just now: stop that first, or give --force. Nothing was "
                "deleted."
            )
        connection.execute(over, (row.run,))
