"""Replies that were paid for, kept for all runs.

Keyed by everything that decides a reply. Lookups and writes are grouped and done in one helper
thread: one at a time they would cost as much as the call itself, and on the event loop they would
hold it up. A run never fails because of its cache: the user is warned, once.

Other processes may use the same folder meanwhile (sharing.py): a question that one of them is asking
is waited for.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from judgeq.errors import DataError, StoppedError
from judgeq.judge.backend import Cached
from judgeq.judge.cache.folder import (
    DATABASE,
    FORMAT,
    GROUP,
    MOST_INDEXED,
    NOTES_TAG,
    TOTALS,
    Entry,
    Index,
    Table,
    fields_of,
    totals_in,
)
from judgeq.judge.cache.sharing import TICK, Sharing
from judgeq.types import Usage

NOTE = "note "
FORGET_NOTES = 7 * 86_400.0
LINGER = 0.05  # seconds that a reply may wait for others to be written with
MOST_QUEUED = 50_000
POLL = 0.25  # seconds after which a question that another process asks is looked up again


class _Lookup(NamedTuple):
    """`claim`: the question will be asked if there is no answer."""

    key: str
    future: asyncio.Future[bytes | None]
    claim: bool

    def stop(self) -> None:
        if not self.future.done():
            self.future.set_exception(StoppedError("the run was stopped"))


class ReplyCache:
    """The cache as a run uses it, on one event loop. `warn` gets a warning when something is wrong.
    With `read_only` its folder stays as it is, or isn't made. What another process is asking is waited
    for, at most `patience` seconds."""

    def __init__(
        self,
        folder: Path,
        *,
        warn: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
        read_only: bool = False,
        patience: float = 600.0,
    ) -> None:
        self.folder = folder
        self.hits = 0
        self.misses = 0
        self._patience = patience
        self._read_only = read_only
        self._report = warn
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="judgeq-cache")
        self._table: Table | None = None  # the helper thread's own, as is what follows
        self._sharing: Sharing | None = None
        self._index: Index | None = None
        self._broken = self._warned = self._aborted = self._closing = False
        self._asking: set[str] = set()
        self._lookups: list[_Lookup] = []
        self._busy: list[_Lookup] = []  # of what another process asks
        self._poll_at = 0.0
        self._queued: list[Entry] = []
        self._releases: list[str] = []
        self._unwritten: dict[str, bytes] = {}  # what is queued, or on its way
        self._trip: asyncio.Task[None] | None = None
        self._timer: asyncio.Handle | None = None
        self._due = 0.0  # by the loop's clock, when there is a timer: uvloop's may know no time

    async def get(self, key: str) -> Cached | None:
        """What is kept under `key`; None for nothing, or nothing usable: then the caller is the one to
        ask, and ends that by `put` or `release`.

        Waits while another process asks just that. Raises StoppedError then, after `abort`.
        """
        reply = _reply_in(await self._look_up(key, claim=True))
        if reply is None:
            self.misses += 1
            self._asking.add(key)
        else:
            self.hits += 1
        return reply

    async def peek(self, key: str) -> Cached | None:
        """What is kept under `key`, whoever may be asking just that; None for nothing."""
        reply = _reply_in(await self._look_up(key))
        if reply is None:
            self.misses += 1
        else:
            self.hits += 1
        return reply

    def put(self, key: str, model: str, reply: Cached) -> None:
        """Keep a valid reply. It is written soon, together with others."""
        self._asking.discard(key)
        self._write(key, model, {**reply._asdict(), "usage": list(reply.usage)})

    def release(self, key: str) -> None:
        """Nothing came of asking this: others may."""
        self._asking.discard(key)
        if self._sharing is not None and not self._broken:
            self._releases.append(key)
            self._start()

    def abort(self) -> None:
        """A stop was asked for: whoever waits for another process gets StoppedError."""
        self._aborted = True
        for lookup in self._busy:
            lookup.stop()
        self._busy = []

    async def recall(self, name: str) -> dict[str, Any] | None:
        """What was noted about a server in the last days."""
        match fields_of(await self._look_up(NOTE + name)):
            case {"note": dict(note), "at": float(at) | int(at)}:
                return note if self._clock() - at <= FORGET_NOTES else None
        return None

    def remember(self, name: str, note: Mapping[str, Any]) -> None:
        """Note something about a server."""
        self._write(NOTE + name, NOTES_TAG, {"note": dict(note), "at": self._clock()})

    async def close(self) -> None:
        """Write what is queued, add this session's hits and misses to the totals, let go."""
        self.abort()
        self._closing = True
        while self._trip is not None or self._queued:
            self._start()
            if self._trip is not None:
                await asyncio.shield(self._trip)
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._end)
        self._thread.shutdown()

    async def _look_up(self, key: str, *, claim: bool = False) -> bytes | None:
        value = self._unwritten.get(key)
        if value is not None:
            return value
        alone = self._sharing is None or self._sharing.alone
        if self._broken or (alone and self._index is not None and not self._index.may_have(key)):
            return None
        future: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._lookups.append(_Lookup(key, future, claim))
        self._start()
        value = await future
        # It may have been put while we looked.
        return self._unwritten.get(key, value)

    def _write(self, key: str, tag: str, fields: Mapping[str, Any]) -> None:
        if self._broken or self._read_only:
            return
        if len(self._queued) >= MOST_QUEUED:
            self._warn("it can't be written as fast as replies come: some are not kept")
            return
        value = orjson.dumps({"format": FORMAT, **fields})
        self._queued.append((key, tag, value))
        self._unwritten[key] = value
        if self._index is not None:
            self._index.add(key)
        if len(self._queued) >= GROUP:
            self._start()
        else:
            self._start_in(LINGER)

    def _start(self) -> None:
        """Send the helper thread off with all there is, unless it is out already."""
        if self._trip is None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._trip = asyncio.get_running_loop().create_task(self._travel())

    def _start_in(self, seconds: float) -> None:
        """The same in so many seconds, unless that is earlier than it would be."""
        if self._trip is not None:
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        if self._timer is None or due < self._due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer, self._due = loop.call_later(seconds, self._start), due

    async def _travel(self) -> None:
        # One turn of the loop, so that all who ask in it go together.
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        lookups, queued, releases = self._lookups, self._queued, self._releases
        self._lookups, self._queued, self._releases = [], [], []
        if self._busy and loop.time() >= self._poll_at:
            lookups += [lookup for lookup in self._busy if not lookup.future.done()]
            self._busy, self._poll_at = [], loop.time() + POLL
        answers: list[tuple[bytes | None, bool]] = [(None, False)] * len(lookups)
        try:
            if not self._broken:
                asking = list(self._asking)
                answers = await loop.run_in_executor(
                    self._thread, self._do, lookups, queued, releases, asking
                )
        except (sqlite3.Error, OSError, ValueError, DataError) as error:
            self._broken = True
            self._warn(str(error).rstrip(".") or type(error).__name__)
        finally:
            self._return(lookups, answers)
            for key, _, value in queued:
                if self._unwritten.get(key) is value:
                    del self._unwritten[key]
            self._trip = None
            self._go_on()

    def _return(self, lookups: list[_Lookup], answers: list[tuple[bytes | None, bool]]) -> None:
        for lookup, (value, busy) in zip(lookups, answers, strict=True):
            if lookup.future.done():
                continue
            if not busy:
                lookup.future.set_result(value)
            elif self._aborted:
                lookup.stop()
            else:
                self._busy.append(lookup)

    def _go_on(self) -> None:
        """After a trip: the next one at once, or when it is time."""
        if self._lookups or self._releases or len(self._queued) >= GROUP:
            self._start()
        elif self._queued:
            self._start_in(LINGER)
        elif self._busy:
            self._start_in(POLL)
        elif self._sharing is not None and not (self._broken or self._closing):
            self._start_in(0.0 if self._sharing.ungreeted else TICK)

    def _warn(self, what: str) -> None:
        if not self._warned:
            self._warned = True
            self._report(
                f"The reply cache in {self.folder} can't be used: {what}. The run goes on without "
                "it; --cache-dir names another folder, --no-cache none."
            )

    # In the helper thread

    def _do(
        self,
        lookups: list[_Lookup],
        writes: list[Entry],
        releases: list[str],
        asking: list[str],
    ) -> list[tuple[bytes | None, bool]]:
        """For each lookup its value, and whether another process asks just that."""
        table, sharing = self._table or self._open(), self._sharing
        keys = [lookup.key for lookup in lookups]
        if table is None:
            return [(None, False)] * len(keys)
        if sharing is None or (sharing.alone and not (writes or releases or sharing.due())):
            return [(value, False) for value in table.get(keys)]
        with table.transaction():
            if sharing.due():
                sharing.look(asking)
                if self._index is not None:
                    self._index.add(*table.added())
            table.put(writes, self._clock())
            sharing.answered(key for key, _, _ in writes)
            sharing.release(releases)
            values = table.get(keys)
            busy = sharing.busy(keys, values, [lookup.claim for lookup in lookups])
            return list(zip(values, busy, strict=True))

    def _open(self) -> Table | None:
        """Open the folder, and let others know that we are there."""
        if self._read_only and not (self.folder / DATABASE).is_file():
            self._broken = True  # nothing is there, and nothing will be
            return None
        self._table = table = Table(self.folder, read_only=self._read_only)
        if not self._read_only:
            with table.transaction():
                self._sharing = Sharing(table, self._clock, self._patience)
        if len(table) <= MOST_INDEXED:  # to read more keys would take seconds
            self._index = Index(table)
        return table

    def _end(self) -> None:
        if self._table is None:
            return
        try:
            if self._sharing is not None:
                with self._table.transaction():
                    self._sharing.leave()
                    self._add_to_totals(self._table)
        except (sqlite3.Error, OSError):
            pass  # only the statistics are lost; a session that didn't leave is soon taken for dead
        finally:
            self._table.close()

    def _add_to_totals(self, table: Table) -> None:
        hits, misses = totals_in(table)
        totals = {"hits": hits + self.hits, "misses": misses + self.misses}
        table.put([(TOTALS, NOTES_TAG, orjson.dumps({"format": FORMAT, **totals}))], self._clock())


def _reply_in(value: bytes | None) -> Cached | None:
    """The reply in a row; None unless it is one that we could have written."""
    if value is None:
        return None
    text, usage, cost, at = map(fields_of(value).get, Cached._fields)
    if not isinstance(text, str) or not isinstance(at, int | float):
        return None
    if not isinstance(usage, list) or len(usage) != len(Usage._fields):
        return None
    if not all(type(count) is int and 0 <= count < 2**53 for count in usage):
        return None
    if cost is not None and (type(cost) not in (int, float) or not 0 <= cost < 1e9):
        return None
    return Cached(text, Usage(*usage), cost, float(at))
