"""Replies that were paid for, kept for all runs: a diskcache of JSON bytes.

Keyed by everything that decides a reply. Lookups and writes are grouped and done in one helper
thread: one at a time they would cost as much as the call itself, and on the event loop they would
hold it up. A run never fails because of its cache: what is wrong with it is told, once.

The folder may be anybody's. diskcache would unpickle what it finds (CVE-2025-69872): here only JSON
in the row itself is read, under keys that are text; all else is refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import diskcache
import numpy as np
import orjson
from numpy.typing import NDArray

from judgeq.errors import DataError
from judgeq.judge.backend import Cached
from judgeq.judge.cache_folder import (
    FORMAT,
    NOTES_TAG,
    PATIENCE,
    TOTALS,
    fields_of,
    totals_of,
    vet,
)
from judgeq.types import Usage

NOTE = "note "
FORGET_NOTES = 7 * 86_400.0
GROUP = 256
AT_ONCE = 500  # variables of a statement: SQLite may allow as few as 999
LINGER = 0.05  # seconds that a reply may wait for others to be written with
MOST_QUEUED = 50_000
MOST_INDEXED = 2_000_000


class JSONBytes(diskcache.Disk):  # type: ignore[misc]
    """Text keys and JSON bytes, in the row: no pickle, no file."""

    def put(self, key: Any) -> tuple[str, bool]:
        """Refuse keys that would be pickled."""
        if not isinstance(key, str):
            raise TypeError("a key of the cache is text")
        return key, True

    def get(self, key: Any, raw: Any) -> str:
        """Refuse keys that would be unpickled."""
        if not raw or not isinstance(key, str):
            raise ValueError("a key in the cache is not text")
        return key

    def store(self, value: Any, read: Any, key: Any = None) -> tuple[int, int, None, Any]:
        """Refuse values that would be pickled or put into a file."""
        if read or not isinstance(value, bytes):
            raise TypeError("a value of the cache is JSON bytes")
        return 0, diskcache.core.MODE_RAW, None, sqlite3.Binary(value)

    def fetch(self, mode: Any, filename: Any, value: Any, read: Any) -> bytes:
        """Refuse values that would be unpickled or read from a file."""
        if mode != diskcache.core.MODE_RAW or filename is not None or read:
            raise ValueError("a value in the cache is not JSON bytes")
        if not isinstance(value, bytes):
            raise ValueError("a value in the cache is not JSON bytes")
        return value


def key(*parts: bytes) -> str:
    """A key from parts, each hashed with its length, so that no two can run together."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


@dataclass(slots=True)
class _Work:
    """What one trip of the helper thread does."""

    lookups: list[str] = field(default_factory=list)
    writes: list[tuple[str, str, bytes]] = field(default_factory=list)


class _Index:
    """Which keys there are, by 64 bits of each, so that what isn't there need not be looked up.

    What another process adds meanwhile is not seen: at worst it is bought by both.
    """

    def __init__(self, there: NDArray[np.uint64]) -> None:
        self._there = there  # sorted
        self._added: set[int] = set()

    @classmethod
    def of(cls, cache: diskcache.Cache) -> _Index | None:
        """The index of a cache; None for one so large that reading its keys would take seconds."""
        if len(cache) > MOST_INDEXED:
            return None
        rows = cache._sql("SELECT key FROM Cache WHERE raw = 1")
        found = np.fromiter((_short(key) for (key,) in rows), dtype=np.uint64)
        return cls(np.sort(found))

    def may_have(self, key: str) -> bool:
        """Whether the key may be there; False is certain, but for other processes."""
        number = _short(key)
        if number in self._added:
            return True
        at = int(self._there.searchsorted(np.uint64(number)))
        return at < len(self._there) and int(self._there[at]) == number

    def add(self, key: str) -> None:
        """The key is there from now on."""
        self._added.add(_short(key))


def _short(key: object) -> int:
    """64 bits of a key. Python's own hash of text differs from process to process, and does."""
    return hash(key) & 0xFFFF_FFFF_FFFF_FFFF


class ReplyCache:
    """The cache as a run uses it, on one event loop. `tell` gets a warning when something is wrong."""

    def __init__(
        self,
        folder: Path,
        *,
        tell: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = folder
        self.hits = 0
        self.misses = 0
        self._tell = tell
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="judgeq-cache")
        self._cache: diskcache.Cache | None = None  # the helper thread's own
        self._broken = False
        self._told = False
        self._index: _Index | None = None
        self._waiting: list[tuple[str, asyncio.Future[bytes | None]]] = []
        self._queued: list[tuple[str, str, bytes]] = []
        self._trip: asyncio.Task[None] | None = None
        self._linger: asyncio.TimerHandle | None = None

    async def get(self, key: str) -> Cached | None:
        """What is kept under `key`; None for nothing, or nothing usable."""
        value = await self._look_up(key)
        found = None if value is None else _read(value)
        if found is None:
            self.misses += 1
        else:
            self.hits += 1
        return found

    def put(self, key: str, model: str, reply: Cached) -> None:
        """Keep a valid reply. It is written soon, together with others."""
        fields = {"format": FORMAT, **reply._asdict(), "usage": list(reply.usage)}
        self._write(key, model, fields)

    async def recall(self, name: str) -> dict[str, Any] | None:
        """What was noted about a server in the last days."""
        value = await self._look_up(NOTE + name)
        fields = None if value is None else fields_of(value)
        if fields is None or not isinstance(fields.get("note"), dict):
            return None
        at = fields.get("at")
        if not isinstance(at, float | int) or self._clock() - at > FORGET_NOTES:
            return None
        note: dict[str, Any] = fields["note"]
        return note

    def remember(self, name: str, note: Mapping[str, Any]) -> None:
        """Note something about a server."""
        fields = {"format": FORMAT, "note": dict(note), "at": self._clock()}
        self._write(NOTE + name, NOTES_TAG, fields)

    async def close(self) -> None:
        """Write what is queued, add this sitting's hits and misses to the totals, let go."""
        if self._linger is not None:
            self._linger.cancel()
        while self._trip is not None or self._queued:
            self._start()
            if self._trip is not None:
                await asyncio.shield(self._trip)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._end)
        self._thread.shutdown()

    async def _look_up(self, key: str) -> bytes | None:
        if self._broken or (self._index is not None and not self._index.may_have(key)):
            return None
        future: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((key, future))
        self._start()
        return await future

    def _write(self, key: str, tag: str, fields: Mapping[str, Any]) -> None:
        if self._broken:
            return
        if len(self._queued) >= MOST_QUEUED:
            self._complain("it can't be written as fast as replies come: some are not kept")
            return
        self._queued.append((key, tag, orjson.dumps(fields)))
        if self._index is not None:
            self._index.add(key)
        if len(self._queued) >= GROUP:
            self._start()
        elif self._linger is None:
            self._linger = asyncio.get_running_loop().call_later(LINGER, self._start)

    def _start(self) -> None:
        """Send the helper thread off with all there is, unless it is out already."""
        if self._trip is None and (self._waiting or self._queued):
            self._trip = asyncio.get_running_loop().create_task(self._travel())

    async def _travel(self) -> None:
        loop = asyncio.get_running_loop()
        # One turn of the loop, so that all who ask in it go together.
        await asyncio.sleep(0)
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        waiting, self._waiting = self._waiting, []
        queued, self._queued = self._queued, []
        work = _Work([key for key, _ in waiting], queued)
        found: list[bytes | None] = [None] * len(waiting)
        try:
            found = await loop.run_in_executor(self._thread, self._do, work)
        except (sqlite3.Error, diskcache.Timeout, OSError, ValueError, DataError) as error:
            self._broken = True
            self._complain(str(error) or type(error).__name__)
        finally:
            for (_, future), value in zip(waiting, found, strict=True):
                if not future.done():
                    future.set_result(value)
            self._trip = None
            if self._waiting or len(self._queued) >= GROUP:
                self._start()
            elif self._queued and self._linger is None:
                self._linger = loop.call_later(LINGER, self._start)

    def _complain(self, what: str) -> None:
        if not self._told:
            self._told = True
            self._tell(
                f"The reply cache in {self.folder} can't be used: {what}. The run goes on without "
                "it; --cache-dir names another folder, --no-cache none."
            )

    # In the helper thread

    def _do(self, work: _Work) -> list[bytes | None]:
        if self._cache is None:
            self._cache = _open(self.folder)
            self._index = _Index.of(self._cache)
        cache = self._cache
        found = _values(cache, work.lookups)
        if work.writes:
            with cache.transact():
                _put(cache, work.writes, self._clock())
        return found

    def _end(self) -> None:
        if self._cache is None:
            return
        try:
            if self.hits or self.misses:
                with self._cache.transact():
                    hits, misses = totals_of(*_values(self._cache, [TOTALS]))
                    totals = {"hits": hits + self.hits, "misses": misses + self.misses}
                    self._cache.set(
                        TOTALS, orjson.dumps({"format": FORMAT, **totals}), tag=NOTES_TAG
                    )
        except (sqlite3.Error, diskcache.Timeout, OSError):
            pass  # only the statistics are lost
        finally:
            self._cache.close()


def _open(folder: Path) -> diskcache.Cache:
    vet(folder)
    return diskcache.Cache(
        str(folder),
        timeout=PATIENCE,
        disk=JSONBytes,
        eviction_policy="none",
        cull_limit=0,
        size_limit=2**62,
        statistics=0,
        tag_index=1,
        disk_min_file_size=2**62,
    )


def _values(cache: diskcache.Cache, keys: Sequence[str]) -> list[bytes | None]:
    """The bytes under some keys; None where there are none, or what is there is refused.

    One statement for many keys: diskcache's own `get` takes four times as long for each.
    """
    found: dict[str, bytes] = {}
    for start in range(0, len(keys), AT_ONCE):
        some = keys[start : start + AT_ONCE]
        marks = ",".join("?" * len(some))
        rows = cache._sql(
            f"SELECT key, mode, filename, value FROM Cache WHERE raw = 1 AND key IN ({marks})",  # noqa: S608
            some,
        )
        for key, mode, filename, value in rows:
            with suppress(ValueError):
                found[key] = cache.disk.fetch(mode, filename, value, read=False)
    return [found.get(key) for key in keys]


def _put(cache: diskcache.Cache, writes: Sequence[tuple[str, str, bytes]], now: float) -> None:
    """Keep (key, tag, value) each, as diskcache's own `set` would.

    One statement for many: the event loop's thread is held up at each statement of this one, and
    diskcache's `set` takes several.
    """
    for start in range(0, len(writes), GROUP):
        some = writes[start : start + GROUP]
        rows = ",".join(["(?, ?, ?)"] * len(some))
        cache._sql(
            f"WITH new (key, tag, value) AS (VALUES {rows}) "  # noqa: S608
            "INSERT INTO Cache (key, raw, store_time, expire_time, access_time, access_count, tag, "
            "size, mode, filename, value) "
            "SELECT key, 1, ?, NULL, ?, 0, tag, 0, ?, NULL, value FROM new WHERE true "
            "ON CONFLICT (key, raw) DO UPDATE SET store_time = excluded.store_time, "
            "expire_time = NULL, access_time = excluded.access_time, access_count = 0, "
            "tag = excluded.tag, size = 0, mode = excluded.mode, filename = NULL, "
            "value = excluded.value",
            [*chain.from_iterable(some), now, now, diskcache.core.MODE_RAW],
        )


def _read(value: bytes) -> Cached | None:
    """The reply in a row; None unless it is one that we could have written."""
    fields = fields_of(value) or {}
    text, usage, cost, at = (fields.get(name) for name in Cached._fields)
    if not isinstance(text, str) or not isinstance(at, int | float):
        return None
    if not isinstance(usage, list) or len(usage) != len(Usage._fields):
        return None
    if not all(type(count) is int and 0 <= count < 2**53 for count in usage):
        return None
    if cost is not None and (type(cost) not in (int, float) or not 0 <= cost < 1e9):
        return None
    return Cached(text, Usage(*usage), cost, float(at))
