"""The cache's folder: one SQLite file, whose rows are JSON bytes under keys that are text.

diskcache makes the file, and could read it; judgeq reads and writes the rows itself, many to a
statement. `Cache.set` in a transaction takes 54 µs of CPU a reply and a statement for 64 of them 20,
`Cache.get` 17 and a statement 5; and a busy event loop loses 180 µs to a `set` in the helper thread
beside it and 64 to the statement, of the 340 that a call takes in all (diskcache 5.6.3). What that
takes for granted of the file is DATABASE, DEFINITIONS, and that mode 1 is a value as it stands: a file
that defines anything else is refused, and tests/test_cache.py compares all of it with the diskcache
that is installed.

The folder may be anybody's. diskcache would unpickle what it finds (CVE-2025-69872) and apply the
settings in the file, so that it never opens one that is there. Of a row only JSON bytes in the row
itself are read, under a key that is text.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, NamedTuple

import numpy as np
import orjson

from judgeq.errors import DataError

FORMAT = 1
DATABASE = "cache.db"
TAG_INDEX = "CREATE INDEX Cache_tag_rowid ON Cache(tag, rowid)"
DEFINITIONS = frozenset(
    (
        "CREATE TABLE Settings ( key TEXT NOT NULL UNIQUE, value)",
        "CREATE TABLE Cache ( rowid INTEGER PRIMARY KEY, key BLOB, raw INTEGER, store_time REAL, "
        "expire_time REAL, access_time REAL, access_count INTEGER DEFAULT 0, tag BLOB, "
        "size INTEGER DEFAULT 0, mode INTEGER DEFAULT 0, filename TEXT, value BLOB)",
        "CREATE UNIQUE INDEX Cache_key_raw ON Cache(key, raw)",
        "CREATE INDEX Cache_expire_time ON Cache (expire_time)",
        TAG_INDEX,  # which may be missing
        *(
            f"CREATE TRIGGER Settings_{what}_{event.lower()} AFTER {event} ON Cache FOR EACH ROW BEGIN "  # noqa: S608
            f'UPDATE Settings SET value = value {change} WHERE key = "{what}"; END'
            for what, event, change in (
                ("count", "INSERT", "+ 1"),
                ("count", "DELETE", "- 1"),
                ("size", "INSERT", "+ NEW.size"),
                ("size", "UPDATE", "+ NEW.size - OLD.size"),
                ("size", "DELETE", "- OLD.size"),
            )
        ),
    )
)
"""All that is defined in the file: a trigger or a view of somebody else's would run in our name."""
TOTALS = "totals"
NOTES_TAG = ""
"""The tag of all rows that are no replies; a reply's is its model."""
GROUP = 256
AT_ONCE = 500  # variables of a statement: SQLite may allow as few as 999
MOST_INDEXED = 2_000_000
LAST_TIME = 250_000_000_000.0  # in the year 9892
MOST_PAID = 1e15
PATIENCE = 10.0  # seconds for another process to let go of the file

Entry = tuple[str, str, bytes]
"""A key, its tag, and the value."""


class Table:
    """The rows of a folder's file, for one thread. Raises DataError for what is no cache of ours, and
    sqlite3.Error or OSError as they come.

    One that is `read_only` writes nothing beside the file either; for a writer the file is made if it
    isn't there.
    """

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        path = folder / DATABASE
        if hasattr(os, "geteuid") and folder.exists() and folder.stat().st_uid != os.geteuid():
            raise DataError(
                f"{folder} belongs to another user, who could put replies into it. --cache-dir names "
                "another folder."
            )
        if not read_only and not path.exists():
            _make(folder)
        address = f"{path.resolve().as_uri()}?mode={'ro' if read_only else 'rw'}"
        if read_only and not (folder / f"{DATABASE}-wal").exists():
            address += "&immutable=1"  # nobody has it open, and SQLite must not begin a log
        self._last_row = 0
        self._db = sqlite3.connect(address, uri=True, isolation_level=None, timeout=PATIENCE)
        try:
            self._db.execute("PRAGMA trusted_schema = OFF")
            defined = self._db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
            if {sql for (sql,) in defined}.symmetric_difference(DEFINITIONS) - {TAG_INDEX}:
                raise DataError(
                    f"{folder} can't be used as a reply cache: it isn't defined as by diskcache 5.6. "
                    "--cache-dir names another folder; if this one is new, install diskcache 5.6."
                )
            if not read_only:
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is written inside, or nothing."""
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            yield

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        """The values under these keys; None where there is none, or none that judgeq writes."""
        values: dict[str, bytes] = {}
        for start in range(0, len(keys), AT_ONCE):
            part = keys[start : start + AT_ONCE]
            marks = ",".join("?" * len(part))
            values |= self._db.execute(
                "SELECT key, value FROM Cache WHERE raw = 1 AND mode = 1 AND filename IS NULL "  # noqa: S608
                f"AND typeof(value) = 'blob' AND key IN ({marks})",
                part,
            )
        return [values.get(key) for key in keys]

    def put(self, entries: Sequence[Entry], now: float) -> None:
        """Keep these entries in place of what is under their keys, as `Cache.set` would."""
        for start in range(0, len(entries), GROUP):
            part = entries[start : start + GROUP]
            rows = ",".join(["(?, ?, ?)"] * len(part))
            self._db.execute(
                f"WITH new (key, tag, value) AS (VALUES {rows}) "  # noqa: S608
                "INSERT INTO Cache (key, raw, store_time, access_time, tag, mode, value) "
                "SELECT key, 1, ?, ?, tag, 1, value FROM new WHERE true "
                "ON CONFLICT (key, raw) DO UPDATE SET store_time = excluded.store_time, "
                "expire_time = NULL, access_time = excluded.access_time, access_count = 0, "
                "tag = excluded.tag, size = 0, mode = 1, filename = NULL, value = excluded.value",
                [*chain.from_iterable(part), now, now],
            )

    def delete(self, key: str) -> None:
        """Remove a row that is no reply."""
        self._db.execute("DELETE FROM Cache WHERE key = ? AND raw = 1 AND tag = ''", (key,))

    def beginning_with(self, prefix: str) -> list[tuple[str, bytes]]:
        """The rows whose keys begin so."""
        statement = "SELECT key, value FROM Cache WHERE raw = 1 AND key >= ? AND key < ?"
        rows = self._db.execute(statement, (prefix, prefix + "\U0010ffff"))
        return [(str(key), value) for key, value in rows if isinstance(value, bytes)]

    def version(self) -> int:
        """Changes when another connection has written."""
        return int(self._one("PRAGMA data_version"))

    def added(self) -> Iterator[object]:
        """The keys that were added since the last time, at first all of them."""
        last = int(self._one("SELECT coalesce(max(rowid), 0) FROM Cache"))
        first = self._last_row if last >= self._last_row else 0  # it was cleared meanwhile
        self._last_row = last
        rows = self._db.execute("SELECT key FROM Cache WHERE rowid > ? AND raw = 1", (first,))
        return (key for (key,) in rows)

    def __len__(self) -> int:
        return int(self._one("SELECT count(*) FROM Cache"))

    def models(self) -> list[tuple[Any, ...]]:
        """Of each model: its name, replies, when the first and the last were kept, what they cost,
        and how many have no known cost."""
        cost = (
            "CASE WHEN json_valid(CAST(value AS TEXT)) "
            "THEN json_extract(CAST(value AS TEXT), '$.cost') END"
        )
        return self._db.execute(
            f"SELECT tag, count(*), min(store_time), max(store_time), sum({cost}), "  # noqa: S608
            f"count(*) - count({cost}) FROM Cache WHERE tag <> '' GROUP BY tag"
        ).fetchall()

    def remove(self, condition: str, values: Sequence[object] = ()) -> int:
        """Remove all rows that meet a condition, and give the room back; how many they were."""
        removed = self._db.execute(f"DELETE FROM Cache WHERE {condition}", values).rowcount  # noqa: S608
        self._db.execute("VACUUM")
        return removed

    def _one(self, statement: str) -> Any:
        return self._db.execute(statement).fetchone()[0]


def _make(folder: Path) -> None:
    """Have diskcache make the file. It is whole when others see it first."""
    import diskcache

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder, prefix=".new-") as new:
        diskcache.Cache(new, eviction_policy="none", tag_index=1).close()
        made, path = Path(new) / DATABASE, folder / DATABASE
        try:
            os.link(made, path)
        except FileExistsError:
            return  # another process was faster
        except OSError:  # no such links here
            if not path.exists():  # nobody has it open yet
                made.replace(path)


class Index:
    """Which keys there are, by 64 bits of each, so that what isn't there need not be looked up."""

    def __init__(self, table: Table) -> None:
        numbers = np.fromiter(map(_number, table.added()), dtype=np.uint64)
        self._sorted = np.sort(numbers)
        self._added: set[int] = set()

    def may_have(self, key: str) -> bool:
        """Whether the key may be there; False is certain, but for what other processes add."""
        number = _number(key)
        if number in self._added:
            return True
        at = int(self._sorted.searchsorted(np.uint64(number)))
        return at < len(self._sorted) and int(self._sorted[at]) == number

    def add(self, *keys: object) -> None:
        """These keys are there from now on."""
        self._added.update(map(_number, keys))


def _number(key: object) -> int:
    # Python's own hash of text differs from process to process, and does.
    return hash(key) & 0xFFFF_FFFF_FFFF_FFFF


def fields_of(value: bytes | None) -> dict[str, Any]:
    """The JSON object in a row; empty unless it is of our format."""
    with suppress(orjson.JSONDecodeError):
        fields = orjson.loads(value or b"")
        if isinstance(fields, dict) and fields.get("format") == FORMAT:
            return fields
    return {}


def totals_in(table: Table) -> tuple[int, int]:
    """Hits and misses of all runs."""
    fields = fields_of(table.get([TOTALS])[0])
    hits, misses = fields.get("hits"), fields.get("misses")
    if not all(type(count) is int and 0 <= count < 2**53 for count in (hits, misses)):
        return 0, 0
    return hits, misses  # type: ignore[return-value]


# `judgeq cache`


class Kept(NamedTuple):
    """How many replies of a model are kept, and the dollars they once cost (None: not known of all)."""

    replies: int
    cost: float | None


@dataclass(frozen=True, slots=True)
class Overview:
    """What a cache holds: replies, also by model, bytes on disk, times in seconds since the epoch, hits
    and misses of all runs."""

    folder: Path
    entries: int = 0
    bytes: int = 0
    by_model: Mapping[str, Kept] = field(default_factory=dict)
    oldest: float | None = None
    newest: float | None = None
    hits: int = 0
    misses: int = 0
    JSON_KEYS: ClassVar = {"replies": "entries", "models": "by_model"}


def overview(folder: Path) -> Overview:
    """What the cache holds. A folder that isn't there is an empty one.

    Raises DataError for what is no cache of ours, or can't be read.
    """
    if not (folder / DATABASE).is_file():
        return Overview(folder)
    with _opened(folder, read_only=True) as table:
        models = table.models()
        hits, misses = totals_in(table)
    times = [time for row in models for time in row[2:4] if _is_number(time, LAST_TIME)]
    return Overview(
        folder=folder,
        entries=sum(row[1] for row in models),
        bytes=sum(path.stat().st_size for path in folder.glob(f"{DATABASE}*")),
        by_model={
            str(name): Kept(
                replies,
                None if unpriced or not _is_number(cost, MOST_PAID) else float(cost),
            )
            for name, replies, _, _, cost, unpriced in models
        },
        oldest=min(times, default=None),
        newest=max(times, default=None),
        hits=hits,
        misses=misses,
    )


def _is_number(value: object, most: float) -> bool:
    """Whether it is a number that we could have written; a file may be anybody's."""
    return type(value) in (int, float) and 0 <= value <= most  # type: ignore[operator]


def prune(folder: Path, *, older_than: float | None, model: str | None, now: float) -> int:
    """Remove replies older than so many seconds, or a model's, or both; how many they were."""
    if not (folder / DATABASE).is_file():
        return 0
    with _opened(folder) as table:
        return table.remove(
            "tag <> '' AND store_time <= ? AND coalesce(tag = ?, 1)",
            (now - (older_than or 0.0), model),
        )


def clear(folder: Path) -> int:
    """Remove all replies and notes; how many replies they were."""
    replies = overview(folder).entries
    if (folder / DATABASE).is_file():
        with _opened(folder) as table:
            table.remove("true")
    return replies


@contextmanager
def _opened(folder: Path, *, read_only: bool = False) -> Iterator[Table]:
    try:
        with closing(Table(folder, read_only=read_only)) as table:
            yield table
    except (sqlite3.Error, OSError) as error:
        raise DataError(f"{folder} can't be used as a reply cache: {error}.") from error
