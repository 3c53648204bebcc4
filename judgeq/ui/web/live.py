"""The progress of runs that other processes work on, for pages that are open: each run is watched once,
by a thread of its own, as long as somebody looks on.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

from judgeq.engine.watching import Watch
from judgeq.errors import JudgeqError
from judgeq.events import Event, Looked, Notice
from judgeq.runs import RunPlace
from judgeq.ui import dashboard
from judgeq.ui.dashboard import Face
from judgeq.ui.text import count, percent, rating
from judgeq.ui.web.beside import BusyError, beside
from judgeq.untrusted import plain

RUNS, PAGES = 8, 64
"""So many runs are watched at most, for so many pages."""
NOTICES = 5
LONGEST = 400
STILL_HERE = 15.0
"""Seconds after which a page gets a word, so that one that is gone is noticed."""


class _Watched:
    """A run that is watched. `version` counts what was seen; `ended` says why no more comes."""

    def __init__(self, run: RunPlace, texts: Sequence[str] | None) -> None:
        self.pages = 0
        self.version = 0
        self.ended: str | None = None
        self._run, self._texts = run, texts
        self._face = Face(time.monotonic)
        self._notices: deque[str] = deque(maxlen=NOTICES)
        self._lock = threading.Lock()
        self._here = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self.task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        async def follow() -> None:
            await Watch(self._run.anew(), self._emit, self._texts).follow()

        try:
            await beside(follow)
        except JudgeqError as error:
            self.end(plain(str(error), LONGEST))
        else:
            self.end("The run is finished.")

    def end(self, why: str) -> None:
        """Say why no more comes."""
        self.ended = why
        self.task.cancel()
        self._announce()

    def _emit(self, event: Event) -> None:
        """Called by the thread that looks."""
        with self._lock:
            self._face(event)
            if isinstance(event, Notice):
                self._notices.append(plain(event.text, LONGEST))
            if not isinstance(event, Looked) and self._face.progress.started is not None:
                return  # what it says is shown with what is seen next
        with suppress(RuntimeError):  # the server has ended
            self._here.call_soon_threadsafe(self._announce)

    def _announce(self) -> None:
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def after(self, version: int) -> bool:
        """Wait until there is something newer, which is True, or for STILL_HERE seconds."""
        if self.version > version:
            return True
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), STILL_HERE)
        return self.version > version

    def frame(self) -> dict[str, Any]:
        """The numbers of this moment, as plain JSON; what others wrote is made safe for a line."""
        with self._lock:
            progress, now = self._face.progress, time.monotonic()
            state = "not running" if progress.idle else "running"
            return {
                "state": self.ended or state,
                "ended": self.ended is not None,
                "bars": [
                    {
                        "name": name,
                        "done": done,
                        "total": max(total, 1),
                        "text": f"{count(done)} of {'about ' if about else ''}{count(total)} jobs, "
                        f"{percent(done, total)} %",
                    }
                    for name, done, total, about in dashboard.bars(progress)
                ],
                "figures": [
                    [name, " · ".join(words for words, _ in parts)]
                    for name, parts in dashboard.figures(progress, now).items()
                ],
                "ends": [
                    [name, rating(placed), plain(placed.id, 80), plain(placed.text or "", 160)]
                    for name, end in (("top", progress.top), ("bottom", progress.bottom))
                    for placed in end
                ],
                "notices": list(self._notices),
            }


class Live:
    """The runs that are watched now, by their keys."""

    def __init__(self) -> None:
        self._watched: dict[str, _Watched] = {}
        self._pages = 0

    def has_room(self, key: str) -> bool:
        """Whether one more page can be shown a run."""
        return self._pages < PAGES and (key in self._watched or len(self._watched) < RUNS)

    async def frames(
        self, key: str, run: RunPlace, texts: Sequence[str] | None
    ) -> AsyncIterator[dict[str, Any] | None]:
        """What is seen of a run, until no more comes; None where nothing new came for a while. Raises
        BusyError where too many look on."""
        if not self.has_room(key):
            raise BusyError
        if key not in self._watched:
            self._watched[key] = _Watched(run, texts)
        watched = self._watched[key]
        watched.pages += 1
        self._pages += 1
        version = 0
        try:
            while True:
                newer = await watched.after(version)
                version = watched.version
                yield watched.frame() if newer else None
                if watched.ended is not None:
                    return
        finally:
            self._pages -= 1
            watched.pages -= 1
            if not watched.pages:
                watched.task.cancel()
                if self._watched.get(key) is watched:
                    del self._watched[key]

    async def close(self) -> None:
        """Watch nothing any longer; the pages are told so."""
        watched = list(self._watched.values())
        for one in watched:
            one.end("The server has ended.")
        await asyncio.gather(*(one.task for one in watched), return_exceptions=True)
