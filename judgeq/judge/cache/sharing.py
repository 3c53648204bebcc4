"""Several processes on one reply cache at a time: what one is asking, the others wait for.

Each session has a row in the cache, renewed while it lives. As long as it is alone nothing else is
written. When there are others, a question is claimed by a row under its own key, which the reply then
overwrites. A claim holds as long as its session lives, and no longer than a call may take: so a killed
process holds nobody up, and at worst a question is asked twice. All in the cache's helper thread.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import orjson

from judgeq.judge.cache.folder import FORMAT, NOTES_TAG, Table, fields_of

SESSION = "session "
TICK = 1.0
"""Seconds after which a session looks for others, if it has nothing else to do in the cache."""
BEAT, SILENT = 5.0, 30.0
"""Seconds after which a session's row is renewed, and after which it is taken for dead."""
GREETING = 5.0
"""Seconds that a new session waits for the others to see it; then they are busy, or stopped."""


class _Session(NamedTuple):
    """Another process's row: `at` is when it was last renewed."""

    host: str
    pid: int
    at: float


class Sharing:
    """One session's side; claims hold for `patience` seconds. All methods but `alone` in a
    transaction."""

    def __init__(self, table: Table, clock: Callable[[], float], patience: float) -> None:
        """Begin: from here on the others can see us."""
        self._table = table
        self._clock = clock
        self._patience = patience
        self._me = uuid.uuid4().hex
        self._host = socket.gethostname()
        self._claimed: set[str] = set()
        self._version: int | None = None
        self._joined = clock()
        self._others = self._living(forget_dead=True)
        self._before = dict(self._others)
        self.ungreeted = False
        self._renew()

    @property
    def alone(self) -> bool:
        """Whether nobody else is known to use the cache now."""
        return not self._others

    def due(self) -> bool:
        """Whether it is time to look: another has written, waits to be greeted, or our row is old."""
        old = self._clock() - self._renewed >= BEAT
        return old or self.ungreeted or self._table.version() != self._version

    def look(self, asking: Iterable[str]) -> None:
        """See who else is there.

        Once there are others, what we are `asking` is claimed. They are greeted by renewing our row,
        but only when they were seen before: since then no question is begun without a claim.
        """
        self._version = self._table.version()
        seen, self._others = self._others, self._living()
        new = not self._others.keys() <= seen.keys()
        if new or self.ungreeted:
            self._claim(key for key in asking if key not in self._claimed)
        if not new and (self.ungreeted or self._clock() - self._renewed >= BEAT):
            self._renew()
        self.ungreeted = new

    def busy(
        self, keys: Sequence[str], values: Sequence[bytes | None], claims: Sequence[bool]
    ) -> list[bool]:
        """Which of these keys others are asking, by the values under them. Those that nobody has an
        answer to, or asks, are claimed for us where `claims` says so."""
        if self.alone:
            return [False] * len(keys)
        unseen = self._clock() - self._joined <= GREETING and any(
            self._others.get(name) == session and self._lives(session)
            for name, session in self._before.items()
        )
        ours, waits = [], []
        for key, value, claim in zip(keys, values, claims, strict=True):
            asking = fields_of(value).get("asking")
            open_to_us = (
                claim and key not in self._claimed and (value is None or asking is not None)
            )
            waits.append(open_to_us and (unseen or self._holds(asking)))
            if open_to_us and not waits[-1]:
                ours.append(key)
        self._claim(ours)
        return waits

    def answered(self, keys: Iterable[str]) -> None:
        """Replies are written under these keys: that ended our claims."""
        self._claimed.difference_update(keys)

    def release(self, keys: Iterable[str]) -> None:
        """Nothing came of asking these: others may."""
        for key in self._claimed.intersection(keys):
            self._table.delete(key)
            self._claimed.discard(key)

    def leave(self) -> None:
        """End."""
        self.release(list(self._claimed))
        self._table.delete(SESSION + self._me)

    def _claim(self, keys: Iterable[str]) -> None:
        claim = {"by": self._me, "until": self._clock() + self._patience}
        value = orjson.dumps({"format": FORMAT, "asking": claim})
        entries = [(key, NOTES_TAG, value) for key in keys]
        self._table.put(entries, self._clock())
        self._claimed.update(key for key, _, _ in entries)

    def _holds(self, asking: Any) -> bool:
        """Whether another session's claim holds; a file may be anybody's."""
        match asking:
            case {"by": str(by), "until": float(until) | int(until)}:
                session, left = self._others.get(by), until - self._clock()
                claimed = 0 < left <= self._patience + SILENT
                return claimed and session is not None and self._lives(session)
        return False

    def _living(self, *, forget_dead: bool = False) -> dict[str, _Session]:
        """The other sessions that live, by their ids."""
        living = {}
        for key, value in self._table.beginning_with(SESSION):
            match fields_of(value).get("session"):
                case {"host": str(host), "pid": int(pid), "at": float(at)}:
                    session = _Session(host, pid, at)
                    if self._lives(session):
                        living[key.removeprefix(SESSION)] = session
                    elif forget_dead:
                        self._table.delete(key)
        living.pop(self._me, None)
        return living

    def _lives(self, session: _Session) -> bool:
        if abs(self._clock() - session.at) > SILENT:
            return False
        return session.host != self._host or session.pid == os.getpid() or _runs(session.pid)

    def _renew(self) -> None:
        self._renewed = self._clock()
        session = _Session(self._host, os.getpid(), float(self._renewed))
        value = orjson.dumps({"format": FORMAT, "session": session._asdict()})
        self._table.put([(SESSION + self._me, NOTES_TAG, value)], self._renewed)


def _runs(pid: int) -> bool:
    """Whether a process of this machine runs; where that can't be seen, it does."""
    if os.name != "posix" or pid <= 0:
        return pid > 0
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
