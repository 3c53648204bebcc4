"""Replies that were paid for, kept for all runs in a folder of this user: one SQLite file.

The file may be anybody's: rows that judgeq could not have written are no replies, and nothing in it is
ever run. A run never fails because of its cache: the user is warned, once.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import orjson
from filelock import FileLock
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from judgeq.errors import DataError
from judgeq.judge.backend import MOST_OF_A_NAME, Reply
from judgeq.types import Answerer, Notify, Usage

DATABASE = "cache.db"
BUSY, AGAIN, TRIES = 0.05, 0.5, 20
"""While another process writes: seconds that the event loop waits for it, seconds until replies are
written after all, and how often that is tried at the end."""
TOGETHER = 0.1
"""Seconds for which replies are gathered: the run's own ledger has them at once."""
PATIENCE = 10.0  # the same seconds for `judgeq cache`

Count = Annotated[int, Field(ge=0, lt=2**53)]
Name = Annotated[str, Field(max_length=MOST_OF_A_NAME)] | None


class _Row(BaseModel):
    """A reply that we could have written."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)
    text: str
    usage: tuple[Count, Count, Count, Count]
    cost: Annotated[float, Field(ge=0, lt=1e9)] | None
    answerer: tuple[Name, Name]


class ReplyCache:
    """The cache as a run uses it, on its event loop. `warn` gets a warning when something is wrong.
    With `read_only` nothing is kept, and no folder is made."""

    def __init__(
        self, folder: Path, *, warn: Notify = lambda _: None, read_only: bool = False
    ) -> None:
        self.folder = folder
        self._read_only = read_only
        self._warn = warn
        self._file: sqlite3.Connection | None = None
        self._unusable = False
        self._queued: dict[str, bytes] = {}

    def get(self, key: str) -> Reply | None:
        """What is kept under `key`; None for nothing, or nothing usable."""
        select = "SELECT reply FROM replies WHERE key = ?"
        found = self._do(lambda file: file.execute(select, (key,)).fetchone())
        try:
            row = _Row.model_validate_json(self._queued.get(key) or (found or [b""])[0])
        except ValidationError:
            return None
        return Reply(row.text, Usage(*row.usage), row.cost, None, Answerer(*row.answerer))

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
        if self._file is not None:
            self._file.close()

    def _flush(self) -> None:
        if self._queued:
            self._do(self._write)

    def _write(self, file: sqlite3.Connection) -> None:
        """All that is queued or nothing; while another process writes, a little later."""
        try:
            file.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            asyncio.get_running_loop().call_later(AGAIN, self._flush)
            return
        file.executemany("INSERT OR REPLACE INTO replies VALUES (?, ?)", self._queued.items())
        file.execute("COMMIT")
        self._queued.clear()

    def _do(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        """What `work` makes of the file, opened at first; None where it can't be used."""
        none = self._read_only and self._file is None and not _is_there(self.folder)
        if self._unusable or none:
            return None
        try:
            if self._file is None:
                self._file = _opened(self.folder)
            return work(self._file)
        except (sqlite3.Error, OSError, DataError) as error:
            self._give_up(str(error).rstrip("."))

    def _give_up(self, why: str) -> None:
        self._unusable = True
        self._queued.clear()
        self._warn(
            f"The reply cache in {self.folder} can't be used: {why}. The run goes on without it; "
            "--cache-dir names another folder, --no-cache none."
        )


def _is_there(folder: Path) -> bool:
    return (folder / DATABASE).is_file()


def _opened(folder: Path) -> sqlite3.Connection:
    """The file of a run's cache, made if it isn't there."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = _connected(folder)
    with FileLock(folder / "lock"):  # two can't make a file write ahead at a time
        file.execute("PRAGMA journal_mode = wal")
        file.execute("CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply BLOB)")
    file.execute("PRAGMA synchronous = normal")
    file.execute(f"PRAGMA busy_timeout = {BUSY * 1000:.0f}")
    return file


def _connected(folder: Path) -> sqlite3.Connection:
    """The cache's file. Raises DataError for one in a folder that isn't this user's."""
    if hasattr(os, "geteuid") and folder.stat().st_uid != os.geteuid():
        raise DataError(
            f"{folder} belongs to another user, who could put replies into it. --cache-dir names "
            "another folder."
        )
    file = sqlite3.connect(folder / DATABASE, isolation_level=None, timeout=PATIENCE)
    file.execute("PRAGMA trusted_schema = OFF")
    return file


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
    replies = _asked(
        folder, lambda file: file.execute("SELECT count(*) FROM replies").fetchone()[0]
    )
    size = sum(path.stat().st_size for path in folder.glob(f"{DATABASE}*"))
    return Overview(folder, replies, size)


def clear(folder: Path) -> int:
    """Remove all replies; how many they were. Raises as `overview`."""

    def cleared(file: sqlite3.Connection) -> int:
        removed = file.execute("DELETE FROM replies").rowcount
        file.execute("VACUUM")
        return removed

    return _asked(folder, cleared)


def _asked(folder: Path, ask: Callable[[sqlite3.Connection], int]) -> int:
    """A number from the cache's file; 0 where there is none."""
    if not _is_there(folder):
        return 0
    try:
        with closing(_connected(folder)) as file:
            return ask(file)
    except (sqlite3.Error, OSError) as error:
        raise DataError(f"{folder} can't be used as a reply cache: {error}.") from error
