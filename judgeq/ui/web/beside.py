"""Work beside the event loop, and what it made, kept for the next who asks: to read and rate a large run
takes a while, in which the server goes on answering.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, T]]
AGAIN = 2
"""What took t seconds to make is good for AGAIN · t at least: the ledger of a run that goes on changes
with each answer, and the run needs the processor itself."""
WAITING = 16
"""So many different things at most are made or waited for."""


class BusyError(Exception):
    """Too much is asked for at once."""


async def beside(work: Work[T]) -> T:
    """What a coroutine returns that runs on an event loop of its own, in a thread. Cancelled, it is
    cancelled there; a thread that can't be interrupted ends with the process."""
    here, there = asyncio.get_running_loop(), asyncio.new_event_loop()
    made: asyncio.Future[T] = here.create_future()
    task = there.create_task(work())

    def finish() -> None:
        if made.done():  # nobody waits any longer
            return
        if task.cancelled():
            made.cancel()
        elif (error := task.exception()) is not None:
            made.set_exception(error)
        else:
            made.set_result(task.result())

    def run() -> None:
        try:
            there.run_until_complete(asyncio.wait([task]))
            there.run_until_complete(there.shutdown_default_executor())
        finally:
            there.close()
        with suppress(RuntimeError):  # the server has ended
            here.call_soon_threadsafe(finish)

    threading.Thread(target=run, name="judgeq-serve", daemon=True).start()
    try:
        return await made
    finally:
        with suppress(RuntimeError):  # it is closed: the work is done
            there.call_soon_threadsafe(task.cancel)


@dataclass(frozen=True, slots=True)
class _Kept(Generic[T]):
    stamp: object
    made: T
    at: float
    took: float


class Shelf(Generic[T]):
    """What was made, by its key: the last `most`, of which `at_once` are made together. A thing is good
    as long as its stamp is the same, or it took so long (AGAIN). What several ask for is made once.
    """

    def __init__(
        self, most: int, at_once: int = 1, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = most
        self._room = asyncio.Semaphore(at_once)
        self._clock = clock
        self._kept: OrderedDict[str, _Kept[T]] = OrderedDict()
        self._making: dict[str, asyncio.Task[T]] = {}

    async def get(self, key: str, stamp: object, work: Work[T]) -> T:
        """What is kept under this key and stamp, or what `work` makes, beside the event loop. Raises
        BusyError, and what `work` does."""
        kept = self._kept.get(key)
        if kept is not None and (
            kept.stamp == stamp or self._clock() - kept.at < AGAIN * kept.took
        ):
            self._kept.move_to_end(key)
            return kept.made
        if key not in self._making:
            if len(self._making) >= WAITING:
                raise BusyError
            self._making[key] = asyncio.create_task(self._make(key, stamp, work))
        # Whoever waits may leave; the others wait on.
        return await asyncio.shield(self._making[key])

    async def _make(self, key: str, stamp: object, work: Work[T]) -> T:
        try:
            async with self._room:
                began = self._clock()
                made = await beside(work)
                now = self._clock()
            self._kept[key] = _Kept(stamp, made, now, now - began)
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
            return made
        finally:
            del self._making[key]

    async def close(self) -> None:
        """Give up what is being made."""
        making = list(self._making.values())
        for task in making:
            task.cancel()
        await asyncio.gather(*making, return_exceptions=True)
