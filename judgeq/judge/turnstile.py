"""Whoever waits for leave to send: the first to come first."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Generic, NamedTuple, TypeVar

from judgeq.errors import JudgeqError, StoppedError

T = TypeVar("T")


class Wait(NamedTuple):
    """Not now: look again in so many seconds; infinite: when something is given back."""

    seconds: float


class Turnstile(Generic[T]):
    """`take` gives what is asked for by an amount, or says Wait, or raises JudgeqError where that will
    never be had; `give_back` gets what was given to one who no longer wants it. One event loop."""

    def __init__(
        self,
        take: Callable[[Any], T | Wait],
        give_back: Callable[[Any, T], None],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.waiting: deque[tuple[float, asyncio.Future[T]]] = deque()
        self._take = take
        self._give_back = give_back
        self._clock = clock
        self._sleep = sleep
        self._aborted = False
        self._timer: asyncio.Task[None] | None = None
        self._due = math.inf

    async def enter(self, amount: float) -> T:
        """What is given, once it is. Raises StoppedError after `abort`."""
        if self._aborted:
            raise StoppedError("the run was stopped")
        if not self.waiting:
            given = self._take(amount)
            if not isinstance(given, Wait):
                return given
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.waiting.append((amount, future))
        self.serve()
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._give_back(amount, future.result())  # given and cancelled in the same turn
            self.serve()
            raise

    def serve(self) -> None:
        """Let through whoever may go now, and see to it that the next goes in time."""
        while self.waiting and not self._aborted:
            amount, future = self.waiting[0]
            if not future.done():  # else it was cancelled
                try:
                    given = self._take(amount)
                except JudgeqError as error:
                    future.set_exception(error)
                else:
                    if isinstance(given, Wait):
                        self._wake_in(given.seconds)
                        return
                    future.set_result(given)
            self.waiting.popleft()

    def abort(self) -> None:
        """A stop was asked for: whoever waits, or comes, gets StoppedError."""
        self._aborted = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self.waiting:
            _, future = self.waiting.popleft()
            if not future.done():
                future.set_exception(StoppedError("the run was stopped"))

    def _wake_in(self, seconds: float) -> None:
        due = self._clock() + seconds
        if seconds == math.inf or (self._timer is not None and due >= self._due - 0.001):
            return  # somebody serves before
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        self._timer = asyncio.get_running_loop().create_task(self._wake(seconds))

    async def _wake(self, seconds: float) -> None:
        await self._sleep(seconds)
        self._timer = None
        self.serve()
