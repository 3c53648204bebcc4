"""The runs that a store holds, in PostgreSQL: the tables, made and checked, which are those of schema.py
and some more; the rows of `runs`, their shared texts, which have work, a run taken out.

Each function opens a connection of its own, for one short transaction, and raises RunError where the
database can't be used. Where that connection breaks it is done again: each may be done twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from judgeq.errors import RunError
from judgeq.store import rows, statements, vetting
from judgeq.store.postgres.address import Address
from judgeq.store.postgres.connection import PostgresDatabase
from judgeq.store.postgres.link import Link, opened, retried
from judgeq.store.protocol import Items, Prospect
from judgeq.store.schema import OF_A_RUN, TABLES, VERSION
from judgeq.text import several

_IDENTITY = "bigint GENERATED ALWAYS AS IDENTITY"
_WORDS = {
    "{key}": f"{_IDENTITY} PRIMARY KEY",
    "{counter}": _IDENTITY,
    "{number}": "bigint NOT NULL",
    "{key_of_id}": ", PRIMARY KEY (run, id)",
    "{key_of_job}": ", PRIMARY KEY (run, job)",
    "{clustered}": "",
}
# Texts that a run's user shares with workers elsewhere, what is read of many runs at once, and room in
# the blocks of what changes often. No job is looked for among those of all runs.
_MORE = """
CREATE TABLE @.meta (one boolean PRIMARY KEY DEFAULT true CHECK (one), version int NOT NULL);
CREATE TABLE @.texts (run int NOT NULL, row int NOT NULL, text text NOT NULL, PRIMARY KEY (run, row));
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
SELECT r.run, r.name, r.fingerprint, r.info, r.prompt, greatest(0, least(253402300799, greatest(
    r.touched, (SELECT max(w.seen) FROM @.workers w WHERE w.run = r.run)))),
    (SELECT regexp_replace(l.holder, ' [(][^(]*[)]$', '') FROM @.lead l
     WHERE l.run = r.run AND l.until > @now), r.texts,
    (SELECT count(*) FROM @.workers w WHERE w.run = r.run AND NOT w.over AND w.until > @now
     AND w.until < 'infinity')
FROM @.runs r WHERE
"""
_INSERT = """
INSERT INTO @.runs (name, fingerprint, info, prompt, touched)
VALUES (:name, :fingerprint, :info, :prompt, @now) ON CONFLICT (name) DO NOTHING
"""
_SHARED = """
SELECT i.row, i.id, i.gold, i.part, t.text FROM @.items i JOIN @.texts t USING (run, row)
WHERE run = @run ORDER BY row
"""
# Each EXISTS reads one entry of a partial index, however many jobs there are.
_PROSPECTS = """
SELECT r.name, r.fingerprint,
    EXISTS (SELECT FROM @.jobs j WHERE j.run = r.run AND j.state = 'pending'),
    EXISTS (SELECT FROM @.jobs j WHERE j.run = r.run AND j.state = 'running'),
    coalesce(d.round, 0), coalesce(d.last < d.first, false)
FROM @.runs r LEFT JOIN LATERAL (
    SELECT round, first, last FROM @.rounds WHERE run = r.run ORDER BY round DESC LIMIT 1) d ON true
ORDER BY r.run
"""


class RunRow(NamedTuple):
    """A run as the store knows it: when it was last written to (seconds since the epoch), who leads it
    now, whether its texts are there, and how many workers are at it."""

    run: int
    name: str
    fingerprint: str
    info: str
    prompt: str | None
    touched: float
    leader: str | None
    texts: bool
    workers: int


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
def listed(address: Address) -> list[RunRow]:
    """All runs; none where the schema isn't there yet."""
    with opened(address) as link:
        return [RunRow(*row) for row in link.execute(f"{_ROWS} true")] if made(link) else []


@retried
def read(address: Address, name: str) -> RunRow | None:
    """The run of this name, if there is one."""
    with opened(address) as link:
        return row_of(link, name) if made(link) else None


def row_of(link: Link, name: str) -> RunRow | None:
    """As `read`, on a connection."""
    row = link.row(f"{_ROWS} r.name = :name", name=name)
    return None if row is None else RunRow(*row)


@retried
def write(address: Address, name: str, fingerprint: str, info: str, prompt: str | None) -> RunRow:
    """The run of this name, made unless it is there: of several that make it at once one does.

    Raises RunError where the name is that of a run with another fingerprint.
    """
    with connected(address, write=True) as link:
        insert(link, name, fingerprint, info, prompt)
        row = row_of(link, name)
    if row is None or row.fingerprint != fingerprint:
        raise RunError(f"{address.label}#{name} is another run (its fingerprint differs).")
    return row


def insert(link: Link, name: str, fingerprint: str, info: str, prompt: str | None) -> bool:
    """Put the row of a run in; False where its name is taken."""
    values: dict[str, Any] = {"name": name, "info": info, "prompt": prompt}
    return link.execute(_INSERT, fingerprint=fingerprint, **values).rowcount > 0


@retried
def damage(address: Address, run: int) -> list[str]:
    """What doesn't add up in the ledger of a run, in words."""
    with connected(address) as link:
        return damage_in(link, run)


def damage_in(link: Link, run: int) -> list[str]:
    """As `damage`, on a connection."""
    return vetting.damage(link.row(statements.ADDED_UP, run))


@retried
def rewrite(address: Address, run: int, info: str) -> None:
    """Put another text in place of what a run is."""
    update = "UPDATE @.runs SET info = :info, touched = @now WHERE run = @run"
    with connected(address, write=True) as link:
        link.execute(update, run, info=info)


@retried
def share(address: Address, run: int, texts: Sequence[str]) -> None:
    """Put the run's texts into the store, unless they are there. Raises RunError for a text that
    PostgreSQL can't keep."""
    mark = "UPDATE @.runs SET texts = true WHERE run = @run AND NOT texts"
    row = 0
    try:
        with connected(address, write=True) as link, link.transaction():
            if not link.execute(mark, run).rowcount:
                return
            with link.copy("texts", ["run", "row", "text"]) as copying:
                for row, text in enumerate(texts):
                    if "\0" in text:
                        raise ValueError("it holds a zero character")
                    copying.write_row((run, row, text))
    except ValueError as error:  # UnicodeEncodeError, too
        raise RunError(
            f"--share-texts: the text of row {row} can't be kept in PostgreSQL ({error})."
        ) from error


@retried
def shared(address: Address, run: int) -> tuple[Items, list[str]] | None:
    """The items of a run, and their texts, where all of these are there. Raises ValueError for a subset
    that can't be."""
    with connected(address) as link:
        kept = link.execute(_SHARED, run).fetchall()
        subsets = link.execute(statements.SUBSETS, run).fetchall()
    if not kept or [row for row, *_ in kept] != list(range(len(kept))):
        return None
    return rows.items([row[:-1] for row in kept], subsets), [row[-1] for row in kept]


def drop(address: Address, name: str) -> None:
    """Delete a run with all that belongs to it. Raises RunError while a process leads it or works on
    it, and where it isn't there."""
    with connected(address, write=True) as link, link.transaction():
        # Whoever begins to lead it, or to work on it, waits for this row.
        link.execute("SELECT FROM @.runs WHERE name = :name FOR UPDATE", name=name)
        row = row_of(link, name)
        if row is None:
            raise RunError(f"there is no run {name!r} in {address.label}.")
        if row.leader or row.workers:
            by = (
                f"led by {row.leader}"
                if row.leader
                else f"worked on by {several(row.workers, 'worker')}"
            )
            raise RunError(f"run {name} is {by} just now: stop that first. Nothing was deleted.")
        for table in (*OF_A_RUN, "texts", "lead", "runs"):
            link.execute(f"DELETE FROM @.{table} WHERE run = @run", row.run)  # noqa: S608


async def prospects(database: PostgresDatabase) -> list[Prospect]:
    """All runs of a store by the work that they have now, the first that was begun first; none where the
    schema isn't there yet. Raises RunError where the database can't be used."""
    there = "SELECT to_regclass(:table) IS NOT NULL"
    table = f'"{database.address.schema}".rounds'
    if not (await database.read(there, table=table))[0][0]:
        return []
    return [Prospect(*row) for row in await database.read(_PROSPECTS)]
