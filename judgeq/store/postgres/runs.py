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
from judgeq.store import rows, statements, vetting
from judgeq.store.postgres import schema
from judgeq.store.postgres.address import Address
from judgeq.store.postgres.connection import PostgresDatabase
from judgeq.store.postgres.link import Link, opened, retried
from judgeq.store.protocol import Items, Prospect
from judgeq.store.schema import OF_A_RUN
from judgeq.text import LEFT_OUT, several

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
        return [RunRow(*row) for row in link.execute(f"{_ROWS} true")] if schema.made(link) else []


@retried
def read(address: Address, name: str) -> RunRow | None:
    """The run of this name, if there is one."""
    with opened(address) as link:
        return row_of(link, name) if schema.made(link) else None


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
    items = rows.items([(row, name, gold) for row, name, _, gold in kept], subsets)
    return items, [text for _, _, text, _ in kept]


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
