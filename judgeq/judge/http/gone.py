"""Are calls waited for whose server is gone?

A server that was told to stop may keep its connections open and say nothing on them (vLLM behind
uvicorn does). A slow server looks the same, so that silence alone is no reason to give a call up.
What tells them apart: the server refused a new connection since the call was sent, or many calls
that were sent long after it have been answered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from judgeq.judge.http.deadlines import Deadlines, InFlight

PATIENCE, TIMES = 10.0, 3.0
"""After a refused connection: seconds of silence, and times the longest that a reply took."""
LONG_PATIENCE, MANY_TIMES = 60.0, 10.0
"""The same where others were answered that were sent so much later: OVERTAKEN of them."""
OVERTAKEN = 10
REMEMBERED = 100
"""Replies that patience is learned from."""
UNHEARD = 5.0
"""Seconds without any reply, and between two looks whether the server takes connections."""


class Gone:
    """Gives up calls whose server is gone, as `deadlines` ticks. One event loop.

    `connects` makes a connection and closes it: True, False where it is refused, None where it can't
    be said.
    """

    def __init__(
        self, deadlines: Deadlines, connects: Callable[[], Awaitable[bool | None]]
    ) -> None:
        self._deadlines = deadlines
        self._connects = connects
        self._replies: deque[tuple[float, float]] = deque(maxlen=REMEMBERED)  # sent at, took
        self._heard = self._looked = 0.0
        self._refused: tuple[float, float] | None = None  # the first time in a row, and the last
        self._looking: asyncio.Task[None] | None = None
        deadlines.on_tick = self.tick

    def answered(self, call: InFlight) -> None:
        """An answer to the call begins."""
        now, sent = self._deadlines.now, self._deadlines.at(call.started)
        self._replies.append((sent, now - sent))
        self._heard = now

    def refused(self) -> None:
        """A new connection was refused."""
        now = self._deadlines.now
        first = now if self._refused is None or self._heard > self._refused[1] else self._refused[0]
        self._refused = first, now

    def tick(self) -> None:
        """Give up whom nobody will answer; look whether the server is there when nothing comes."""
        silent = [call for call in self._deadlines.calls if call.body is None]
        now = self._deadlines.now
        if not silent:
            return
        oldest = min(self._deadlines.at(call.started) for call in silent)
        if now - oldest > PATIENCE and (self._refused is not None or now - oldest > LONG_PATIENCE):
            self._give_up(silent, now)
        if now - max(self._heard, oldest, self._looked) > UNHEARD:
            self._looked = now
            if self._looking is None:
                self._looking = asyncio.get_running_loop().create_task(self._look())

    def close(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()

    def _give_up(self, silent: list[InFlight], now: float) -> None:
        longest = max((took for _, took in self._replies), default=0.0)
        patience = max(PATIENCE, TIMES * longest)
        long_patience = max(LONG_PATIENCE, MANY_TIMES * longest)
        sent = sorted((at for at, _ in self._replies), reverse=True)
        overtakers = sent[OVERTAKEN - 1] if len(sent) >= OVERTAKEN else 0.0
        for call in silent:
            at = self._deadlines.at(call.started)
            if self._refused is not None and at < self._refused[1]:
                if now - max(at, self._refused[0]) > patience:
                    self._deadlines.give_up(call, "the server has refused connections since")
            elif now - at > long_patience and overtakers - at > long_patience:
                self._deadlines.give_up(call, "calls sent long after it were answered")

    async def _look(self) -> None:
        try:
            if await self._connects() is False:
                self.refused()
        finally:
            self._looking = None
