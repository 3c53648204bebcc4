"""Replies that were paid for, kept for all runs in a folder of this user: diskcache's file.

The file may be anybody's: keys and values that are pickled (CVE-2025-69872) and values in files of
their own are no replies, and its settings are never applied. A run never fails because of its cache:
the user is warned, once.
"""

from __future__ import annotations

import asyncio
import glob
import hashlib
import math
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import diskcache
import orjson
from diskcache.core import MODE_RAW
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from judgeq.errors import DataError
from judgeq.escaping import shell_word
from judgeq.judge.backend import MOST_OF_A_NAME, Reply
from judgeq.types import Answerer, Notify, Usage

DATABASE = "cache.db"
_ODD = (TypeError, ValueError)  # what diskcache raises for a file that another program changed
BUSY, AGAIN, TRIES = 0.05, 0.5, 20
"""While another process writes: seconds that the event loop waits for it, seconds until replies are
written after all, and how often that is tried at the end."""
TOGETHER = 0.1
"""Seconds for which replies are gathered: the run's own ledger has them at once."""
FEW = 50_000
"""So many keys are held in memory: whether others were added is then asked every TOGETHER seconds."""
PATIENCE = 10.0  # the same seconds for `judgeq cache`

Count = Annotated[int, Field(ge=0, lt=2**53)]
Name = Annotated[str, Field(max_length=MOST_OF_A_NAME)] | None


def key_of(*parts: bytes) -> str:
    """A key for the cache from parts, each hashed with its length, so that no two can run together."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


class _Kept(BaseModel):
    """A reply that we could have written."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)
    text: str
    usage: tuple[Count, Count, Count, Count]
    cost: Annotated[float, Field(ge=0, lt=1e9)] | None
    answerer: tuple[Name, Name]


class PlainDisk(diskcache.Disk):  # type: ignore[misc] # diskcache has no types
    """Values are bytes in the row itself, under keys that are text."""

    def __init__(self, directory: str, **_: object) -> None:
        super().__init__(directory)

    def get(self, key: Any, raw: bool) -> str:
        """A key; "" for one that judgeq doesn't write."""
        return key if raw and isinstance(key, str) else ""

    def store(self, value: bytes, read: bool, key: object = None) -> tuple[int, int, None, bytes]:
        """The columns of a value."""
        return 0, MODE_RAW, None, value

    def fetch(self, mode: int, filename: object, value: object, read: bool) -> bytes | None:
        """A value; None for one that judgeq doesn't write."""
        return value if mode == MODE_RAW and filename is None and type(value) is bytes else None

    def remove(self, file_path: str) -> None:
        """No row of ours has a file: what one names is somebody else's."""


class ReplyCache:
    """The cache as a run uses it, on its event loop. `warn` gets a warning when something is wrong.
    With `read_only` nothing is kept, and no folder is made."""

    def __init__(
        self, folder: Path, *, warn: Notify = lambda _: None, read_only: bool = False
    ) -> None:
        self.folder = folder
        self._read_only = read_only
        self._warn = warn
        self._cache: diskcache.Cache | None = None
        self._unusable = False
        self._queued: dict[str, bytes] = {}
        self._keys: set[str] | None = None  # all, where they are FEW and nobody else writes
        self._count = 0
        self._looked = -math.inf

    def get(self, key: str) -> Reply | None:
        """What is kept under `key`; None for nothing, or nothing usable."""
        value = self._queued.get(key) or self._do(partial(self._find, key))
        try:
            row = _Kept.model_validate_json(value or b"")
        except ValidationError:
            return None
        return Reply(row.text, Usage(*row.usage), row.cost, None, Answerer(*row.answerer))

    def _find(self, key: str, cache: diskcache.Cache) -> bytes | None:
        """The value under a key. What a cache of FEW doesn't have isn't looked up one by one."""
        now = time.monotonic()
        if self._keys is not None and now > self._looked + TOGETHER:
            self._looked = now
            if len(cache) != self._count or self._count > FEW:
                self._keys = None
        if self._keys is not None and key not in self._keys:
            return None
        value: bytes | None = cache.get(key)
        return value

    def put(self, key: str, reply: Reply) -> None:
        """Keep a valid reply. It is written with others that come soon after."""
        if self._unusable or self._read_only:
            return
        if not self._queued:
            asyncio.get_running_loop().call_later(TOGETHER, self._flush)
        fields = {**reply._asdict(), "usage": [*reply.usage], "answerer": [*reply.answerer]}
        self._queued[key] = orjson.dumps(fields)

    async def close(self) -> None:
        """Write what is queued, and let go."""
        for _ in range(TRIES):
            self._flush()
            if not self._queued:
                break
            await asyncio.sleep(AGAIN)
        else:
            self._give_up("another process has been writing to it, so that replies were not kept")
        self._unusable = True
        if self._cache is not None:
            self._cache.close()

    def _flush(self) -> None:
        if self._queued:
            self._do(self._write_all)

    def _write_all(self, cache: diskcache.Cache) -> None:
        """All that is queued or nothing; while another process writes, a little later."""
        try:
            with cache.transact():
                for key, value in self._queued.items():
                    cache.set(key, value)
        except diskcache.Timeout:
            asyncio.get_running_loop().call_later(AGAIN, self._flush)
        else:
            if self._keys is not None:
                self._keys |= self._queued.keys()
            self._count += len(self._queued)
            self._queued.clear()

    def _do(self, action: Callable[[diskcache.Cache], Any]) -> Any:
        """What `action` makes of the cache, opened at first; None where it can't be used."""
        if self._unusable:
            return None
        try:
            if self._cache is None and not (self._read_only and not _is_there(self.folder)):
                self._cache = _opened(self.folder)
                self._count = len(self._cache)
                self._keys = set(self._cache) if self._count <= FEW else None
            return None if self._cache is None else action(self._cache)
        except (sqlite3.Error, diskcache.Timeout, OSError, DataError, *_ODD) as error:
            self._give_up(str(error).rstrip(".") or type(error).__name__)

    def _give_up(self, why: str) -> None:
        self._unusable = True
        self._queued.clear()
        self._warn(
            f"The reply cache in {self.folder} can't be used: {why}. The run goes on without it; "
            "--cache-dir names another folder, --no-cache none."
        )


def _is_there(folder: Path) -> bool:
    return (folder / DATABASE).is_file()


def _opened(folder: Path) -> diskcache.Cache:
    """The cache in a folder, made if it isn't there; as diskcache's own settings and ours say."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _file(folder, "rwc") as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
        if "Settings" in tables:
            db.execute("DELETE FROM Settings WHERE key NOT IN ('count', 'size', 'hits', 'misses')")
        if {"Settings", "Cache"} <= tables:  # diskcache makes them one after the other
            db.execute(
                "UPDATE Settings SET value = (SELECT count(*) FROM Cache) WHERE key = 'count'"
            )
    return diskcache.Cache(
        str(folder.absolute()), timeout=BUSY, disk=PlainDisk, eviction_policy="none", cull_limit=0
    )


@contextmanager
def _file(folder: Path, mode: str = "rw") -> Iterator[sqlite3.Connection]:
    """The cache's file. Raises DataError for what is no cache of this user's, or can't be read."""
    if hasattr(os, "geteuid"):
        _refuse_others(folder)
    address = f"{(folder / DATABASE).resolve().as_uri()}?mode={mode}"
    try:
        with closing(
            sqlite3.connect(address, uri=True, isolation_level=None, timeout=PATIENCE)
        ) as db:
            db.execute("PRAGMA trusted_schema = OFF")
            yield db
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # SQLite quotes bytes of the file
        raise DataError(f"{folder} can't be used as a reply cache: {error}.") from error


def _refuse_others(folder: Path, name: str = DATABASE) -> None:
    """Raise DataError where other users could put replies into the cache in a folder, or in the one that
    its file is a link to."""
    file = (folder / name).resolve()
    if file != folder.resolve() / name:
        _refuse_others(file.parent, file.name)
    own = folder.stat()
    files = [path for path in folder.glob(f"{glob.escape(name)}*") if path.is_file()]
    found = [(folder, own)]
    for path in files:
        with suppress(FileNotFoundError):  # the log of another process, which has ended
            found.append((path, path.stat()))
    for path, status in found:
        if status.st_uid != os.geteuid():
            raise DataError(
                f"{path} belongs to another user, who could put replies into it. --cache-dir names "
                "another folder."
            )
        writable = stat.S_IMODE(status.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
        if path is not folder:  # a file can be written by those who can reach it
            writable &= own.st_mode << 1
        if writable:
            raise DataError(
                f"other users may write to {path}, and could put replies into it. Run "
                f"`chmod go-w {shell_word(str(path))}`, or name another folder with --cache-dir."
            )


# `judgeq cache`


class Overview(NamedTuple):
    """How many replies a cache holds, and its bytes on disk."""

    folder: Path
    replies: int = 0
    bytes: int = 0


def overview(folder: Path) -> Overview:
    """What the cache holds. A folder that isn't there is an empty one.

    Raises DataError for what is no cache of ours, or can't be read.
    """
    if not _is_there(folder):
        return Overview(folder)
    with _file(folder) as db:
        (replies,) = db.execute("SELECT count(*) FROM Cache").fetchone()
    size = sum(path.stat().st_size for path in folder.glob(f"{DATABASE}*"))
    return Overview(folder, replies, size)


def clear(folder: Path) -> int:
    """Remove all replies; how many they were."""
    if not _is_there(folder):
        return 0
    with _file(folder) as db:
        removed = db.execute("DELETE FROM Cache").rowcount
        db.execute("VACUUM")
        return removed
