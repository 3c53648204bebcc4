"""The runs that a store holds: the rows of `runs`, their shared texts, which have work, a run taken out.

Each function opens a connection of its own, for one short transaction, and raises RunError where the
database can't be used. Where that connection breaks it is done again: each may be done twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from judgeq.errors import RunError
from judgeq.store import rows, statements
from judgeq.store.crew import Prospect
from judgeq.store.damage import Counts, found
from judgeq.store.postgres import schema
from judgeq.store.postgres.address import Address
from judgeq.store.postgres.connection import PostgresDatabase
from judgeq.store.postgres.link import Link, opened, retried, sent
from judgeq.store.protocol import Items
from judgeq.store.schema import OF_A_RUN
from judgeq.text import LEFT_OUT

BLOCK = 50_000
"""Rows that are deleted in one transaction."""
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
# A block of a run's rows, whatever the table's key is.
_DELETE = """
DELETE FROM @.{table} WHERE ctid IN (SELECT ctid FROM @.{table} WHERE run = @run LIMIT :block)
"""
_TAKE = """
INSERT INTO @.lead (run, epoch, holder, until) VALUES (@run, 1, 'judgeq runs rm', @now + 86400)
ON CONFLICT (run) DO UPDATE SET epoch = lead.epoch + 1, holder = excluded.holder, until = excluded.until
WHERE lead.until <= @now OR lead.holder = excluded.holder
"""
_SHARED = """
SELECT i.row, i.id, t.text, i.gold FROM @.items i JOIN @.texts t USING (run, row)
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
def connected(address: Address, *, write: bool = False) -> Iterator[Link]:
    """A connection to a store whose schema is there; a writer makes it. Raises as link.opened, and
    RunError where there is no such schema."""
    with opened(address) as link:
        if write:
            schema.prepare(link)
        elif not schema.made(link):
            raise RunError(f"No runs yet in {address.label}: it has no schema {address.schema!r}.")
        yield link


@retried
def listed(address: Address) -> list[RunRow]:
    """All runs; none where the schema isn't there yet."""
    with opened(address) as link:
        rows = link.rows(f"{_ROWS} true") if schema.made(link) else []
        return [RunRow(*row) for row in rows]


@retried
def read(address: Address, name: str) -> RunRow | None:
    """The run of this name, if there is one."""
    with opened(address) as link:
        return _read(link, name) if schema.made(link) else None


def _read(link: Link, name: str) -> RunRow | None:
    row = link.row(f"{_ROWS} r.name = :name", name=name)
    return None if row is None else RunRow(*row)


@retried
def write(address: Address, name: str, fingerprint: str, info: str, prompt: str | None) -> RunRow:
    """The run of this name, made unless it is there: of several that make it at once one does.

    Raises RunError where the name is that of a run with another fingerprint.
    """
    with connected(address, write=True) as link:
        insert(link, name, fingerprint, info, prompt)
        row = _read(link, name)
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
    return found(Counts(*link.row(statements.ADDED_UP, run)))


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
    copy: Any = sent("COPY @.texts (run, row, text) FROM STDIN", address, run)
    row = 0
    try:
        with connected(address, write=True) as link, link.transaction():
            if not link.execute(mark, run).rowcount:
                return
            with link.connection.cursor().copy(copy) as copying:
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
        kept, subsets = link.rows(_SHARED, run), link.rows(statements.SUBSETS, run)
    if not kept or [row for row, *_ in kept] != list(range(len(kept))):
        return None
    items = rows.items([(row, name, gold) for row, name, _, gold in kept], subsets)
    return items, [text for _, _, text, _ in kept]


def drop(address: Address, row: RunRow) -> int:
    """Delete a run with all that belongs to it, in blocks, so that nobody is blocked for long; how many
    rows that were.

    An interrupted one goes on where it is called again. Raises RunError while a process leads it or
    works on it.
    """
    deleted = 0
    with connected(address, write=True) as link:
        _hold(link, row)
        for table in (*OF_A_RUN, "texts", "lead"):  # the lead last: nobody takes it meanwhile
            delete = _DELETE.format(table=table)
            while count := link.execute(delete, row.run, block=BLOCK).rowcount:
                deleted += count
        return deleted + link.execute("DELETE FROM @.runs WHERE run = @run", row.run).rowcount


def _hold(link: Link, row: RunRow) -> None:
    """Lead the run for a day, so that nobody else begins to. Raises RunError while a process leads it or
    works on it."""
    with link.transaction():
        by = f"led by {row.leader or 'another process'}"
        if not row.leader and row.workers:
            by = f"worked on by {row.workers:,} {'worker' if row.workers == 1 else 'workers'}"
        if row.workers or not link.execute(_TAKE, row.run).rowcount:
            raise RunError(
                f"run {row.name} is {by} just now: stop that first. Nothing was deleted."
            )
        link.execute("UPDATE @.workers SET over = true WHERE run = @run", row.run)


async def prospects(database: PostgresDatabase) -> list[Prospect]:
    """All runs of a store by the work that they have now, the first that was begun first; none where the
    schema isn't there yet. Raises RunError where the database can't be used."""
    there = "SELECT to_regclass(:table) IS NOT NULL"
    table = f'"{database.address.schema}".rounds'
    if not (await database.read(there, table=table))[0][0]:
        return []
    return [Prospect(*row) for row in await database.read(_PROSPECTS)]
