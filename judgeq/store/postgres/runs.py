"""The runs that a store holds, in PostgreSQL: the tables, made and checked, which are those of schema.py
and some more; the rows of `runs`.

What is given an address opens a connection of its own, for one short transaction, and raises RunError
where the database can't be used. Where that connection breaks it is done again: it may be done twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from judgeq.errors import RunError
from judgeq.store.postgres.address import Address
from judgeq.store.postgres.link import Link, opened, retried
from judgeq.store.schema import OF_A_RUN, TABLES, VERSION

T = TypeVar("T")

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
_ROWS = """
SELECT r.run, r.name, r.fingerprint, r.info, greatest(0, least(253402300799, greatest(
    r.touched, (SELECT max(w.seen) FROM @.workers w WHERE w.run = r.run)))),
    coalesce((SELECT 'led by ' || regexp_replace(l.holder, ' [(][^(]*[)]$', '') FROM @.lead l
              WHERE l.run = r.run AND l.until > @now),
        (SELECT 'worked on by ' || nullif(count(*), 0) || ' workers' FROM @.workers w
         WHERE w.run = r.run AND NOT w.over AND w.until > @now AND w.until < 'infinity'))
FROM @.runs r WHERE CAST(:name AS text) IS NULL OR r.name = :name
"""
_INSERT = """
INSERT INTO @.runs (name, fingerprint, info, touched) VALUES (:name, :fingerprint, :info, @now)
ON CONFLICT (name) DO NOTHING
"""
REWRITE = """
UPDATE @.runs SET info = :info, touched = @now WHERE name = :name AND fingerprint = :fingerprint
"""


class RunRow(NamedTuple):
    """A run as the store knows it: when it was last written to (seconds since the epoch), and in words
    who leads it now or works on it, if anybody does."""

    run: int
    name: str
    fingerprint: str
    info: str
    touched: float
    at_work: str | None


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
    with link.transaction():
        link.execute("SELECT pg_advisory_xact_lock(:lock)", lock=_LOCK)
        if made(link):
            return
        there = "SELECT FROM pg_namespace WHERE nspname = :schema"
        if link.row(there, schema=address.schema) is None:
            # IF NOT EXISTS would want the right to make it all the same.
            link.execute(f'CREATE SCHEMA "{address.schema}"')
        tables = TABLES + _MORE
        for word, ours in _WORDS.items():
            tables = tables.replace(word, ours)
        link.execute(f"{tables} INSERT INTO @.meta (version) VALUES ({VERSION})")  # noqa: S608


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


@contextmanager
def connected(address: Address, *, write: bool = False) -> Iterator[Link]:
    """A connection to a store whose schema is there; a writer makes it. Raises as link.opened, and
    RunError where there is no such schema."""
    with opened(address) as link:
        if write:
            prepare(link)
        elif not made(link):
            raise RunError(f"No runs yet in {address.label}: it has no schema {address.schema!r}.")
        yield link


@retried
def in_store(address: Address, work: Callable[[Link], T], *, write: bool = False) -> T:
    """What `work` returns on a connection to a store whose schema is there; a writer makes it."""
    with connected(address, write=write) as link:
        return work(link)


@retried
def listed(address: Address, name: str | None = None) -> list[RunRow]:
    """All runs, or that of this name; none where the schema isn't there yet."""
    with opened(address) as link:
        return rows(link, name) if made(link) else []


def rows(link: Link, name: str | None = None) -> list[RunRow]:
    """As `listed`, on a connection."""
    return [RunRow(*row) for row in link.execute(_ROWS, name=name)]


def idle(link: Link, name: str) -> RunRow:
    """The run of this name. Raises RunError where it isn't there, and while a process leads it or works
    on it."""
    found = rows(link, name)
    if not found:
        raise RunError(f"there is no run {name!r} in {link.address.label}.")
    if found[0].at_work:
        raise RunError(f"run {name} is {found[0].at_work} just now: stop that first.")
    return found[0]


def insert(link: Link, name: str, fingerprint: str, info: str) -> bool:
    """Add the row of a run; False where one of its name is there."""
    return link.execute(_INSERT, name=name, fingerprint=fingerprint, info=info).rowcount > 0


def drop(link: Link, name: str) -> None:
    """Delete a run with all that belongs to it. Raises as `idle`."""
    with link.transaction():
        # Whoever begins to lead it, or to work on it, waits for this row.
        link.execute("SELECT FROM @.runs WHERE name = :name FOR UPDATE", name=name)
        run = idle(link, name).run
        for table in (*OF_A_RUN, "lead", "runs"):
            link.execute(f"DELETE FROM @.{table} WHERE run = @run", run)  # noqa: S608
