"""How a run is asked to stop: by signals, by another thread; and long work that can be given up, also
where an event loop is running."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

from judgeq.errors import StoppedError
from judgeq.events import Emit, Stopping
from judgeq.rating import GoOn

T = TypeVar("T")
Beside = Callable[[], Coroutine[Any, Any, None]]
SELDOM = (100_000, 50, 100)
GIVING_BACK = 0.05  # seconds
LOOK = 0.1
"""Seconds after which a loop looks for interrupts, at most."""
Interrupts = deque[int]
"""Signals, by their numbers, and what other threads put in as if it was one (SIGINT): they interrupt an
event loop's work, also before it begins."""


class Stop:
    """The wish to stop, seen by whoever waits. `sleep` raises StoppedError once it is asked for."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._callbacks: list[Callable[[], None]] = []

    @property
    def asked(self) -> bool:
        """Whether a stop was asked for."""
        return self._asked.is_set()

    def ask(self) -> None:
        """Ask for a stop: no new calls; those in flight are let finish."""
        self._asked.set()
        for callback in self._callbacks:
            callback()

    def calls(self, callback: Callable[[], None]) -> None:
        """Have `callback` called when a stop is asked for (each time; at once if it was already)."""
        self._callbacks.append(callback)
        if self.asked:
            callback()

    async def sleep(self, seconds: float) -> None:
        """Wait, or raise StoppedError as soon as a stop is asked for."""
        if not self.asked:
            try:
                await asyncio.wait_for(self._asked.wait(), seconds)
            except TimeoutError:
                return
        raise StoppedError("the run was stopped")


@contextmanager
def signals(interrupts: Interrupts) -> Iterator[None]:
    """While inside, each SIGINT, SIGTERM and SIGHUP (the terminal was closed) is one of `interrupts`;
    SIGHUP unless it is ignored, as nohup wants it. Not beside the main thread: there, whoever called us
    handles signals."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    if threading.current_thread() is not threading.main_thread():
        numbers.clear()
    before = {
        number: signal.signal(number, lambda number, _: interrupts.append(number))
        for number in numbers
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


async def in_thread(
    work: Callable[[GoOn], T],
    stop: Stop | None = None,
    why: str = "stopped before the ratings were made; all jobs are judged",
) -> T:
    """What `work` returns, computed in a thread, so that the loop (signals, the dashboard) lives on.

    NumPy can't be interrupted from outside; so `work` is given a function, which raises
    StoppedError, saying `why`, once a stop is asked for, or this coroutine was cancelled. What
    `work` made may go on calling it: then it does nothing.
    """
    over = made = False

    def go_on() -> None:
        if not made and (over or (stop is not None and stop.asked)):
            raise StoppedError(why)

    async with background(asyncio.to_thread(work, go_on)) as task:
        try:
            result = await watched(task, lambda: None)
            made = True
            return result
        finally:
            over = True


async def watched(task: asyncio.Task[T], look: Callable[[], object]) -> T:
    """What a task returns; `look` is called every little while. A signal that comes just before the loop
    sleeps doesn't wake it, and waits until it does."""
    while not task.done():
        await asyncio.wait((task,), timeout=LOOK)
        look()
    return task.result()


@asynccontextmanager
async def background(work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """`work` as a task, which is cancelled when this is left."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def run_stoppable(
    work: Callable[[Stop], Coroutine[Any, Any, T]],
    emit: Emit,
    beside: Beside | None = None,
    interrupts: Interrupts | None = None,
) -> T:
    """What `work` returns, on an event loop on which `beside` runs meanwhile. The first interrupt asks
    for a stop, the second cancels it, which raises StoppedError; a terminal that is closed may say so
    twice, and only asks."""
    interrupts, stop = Interrupts() if interrupts is None else interrupts, Stop()

    async def stoppable() -> T:
        def look() -> None:
            while interrupts:
                number = interrupts.popleft()
                if not stop.asked:
                    stop.ask()
                    # Jobs whose call had not left yet are given back meanwhile.
                    asyncio.get_running_loop().call_later(GIVING_BACK, emit, Stopping())
                elif number in (signal.SIGINT, signal.SIGTERM):
                    task.cancel()

        drawing = background(beside() if beside is not None else asyncio.sleep(0))
        async with drawing, background(work(stop)) as task:
            with signals(interrupts):
                try:
                    return await watched(task, look)
                except asyncio.CancelledError as error:
                    text = "stopped at once; calls in flight were given up"
                    raise StoppedError(text) from error

    return run_loop(stoppable(), interrupts)


def run_loop(work: Coroutine[Any, Any, T], interrupts: Interrupts | None = None) -> T:
    """Run `work` on an event loop: uvloop's where there is one (not on Windows), which makes a call
    about a third cheaper; where one is running (a notebook) in a thread. Meanwhile Python looks for
    garbage in cycles seldom: by default that took a fifth of a call's time, and replies that came then
    waited uncommitted."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop

    def on_loop() -> T:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(work)

    interrupts = Interrupts() if interrupts is None else interrupts
    before = gc.get_threshold()
    gc.set_threshold(*SELDOM)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return on_loop()
    else:  # as in a notebook, whose Stop interrupts the main thread
        with ThreadPoolExecutor(1) as pool, signals(interrupts):
            return pool.submit(on_loop).result()
    finally:
        if before != SELDOM:  # else another loop of this process, which began earlier, does it
            gc.set_threshold(*before)


def awaited(work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns, on an event loop of its own; an interrupt cancels it."""
    interrupts = Interrupts()

    async def interruptible() -> T:
        async with background(work) as task:
            return await watched(task, lambda: interrupts and task.cancel())

    try:
        return run_loop(interruptible(), interrupts)
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
