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
from functools import partial
from typing import Any, TypeVar

from judgeq.engine.queue import Stop
from judgeq.errors import StoppedError
from judgeq.events import Emit, Stopping
from judgeq.rating import GoOn

T = TypeVar("T")
Beside = Callable[[], Coroutine[Any, Any, None]]
SELDOM = (100_000, 50, 100)
GIVING_BACK = 0.05  # seconds
LOOK = 0.25
"""Seconds after which a loop that waits for a thread looks for signals, at least."""


class Interrupts:
    """Lets another thread interrupt the work of an event loop: `interrupt` may be called from any
    thread, or by a signal's handler; what comes before the loop listens isn't lost."""

    def __init__(self) -> None:
        self._asked = deque[None]()
        self._wake: Callable[[], object] | None = None

    def interrupt(self) -> None:
        """Ask for a stop; again: at once. Nothing happens after the work's end."""
        self._asked.append(None)
        if (wake := self._wake) is not None:
            with suppress(RuntimeError):  # the loop is closed
                wake()

    @contextmanager
    def listening(self, react: Callable[[], object]) -> Iterator[None]:
        """While inside, have the running loop call `react` at each interrupt."""

        def each() -> None:
            while self._asked:
                self._asked.pop()
                react()

        self._wake = partial(asyncio.get_running_loop().call_soon_threadsafe, each)
        each()
        try:
            yield
        finally:
            self._wake = None


@contextmanager
def signals(react: Callable[[], object], hung_up: Callable[[], object]) -> Iterator[None]:
    """While inside, call `react` at each SIGINT and SIGTERM, and `hung_up` at each SIGHUP (the terminal
    was closed), unless that is ignored, as nohup wants it.

    Does nothing beside the main thread: there, whoever called us handles signals.
    """
    reactions = {signal.SIGINT: react, signal.SIGTERM: react}
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        reactions[signal.SIGHUP] = hung_up
    if threading.current_thread() is not threading.main_thread():
        reactions.clear()
    before = {number: signal.getsignal(number) for number in reactions}
    for number in reactions:
        signal.signal(number, lambda number, _: reactions[signal.Signals(number)]())
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

    task = asyncio.ensure_future(asyncio.to_thread(work, go_on))
    try:
        # A signal that comes just before the loop sleeps doesn't wake it, and waits until it does.
        while not task.done():
            await asyncio.wait((task,), timeout=LOOK)
        result = task.result()
        made = True
        return result
    finally:
        over = True
        task.cancel()


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
    """What `work` returns, on an event loop on which `beside` runs meanwhile. The first signal or
    interrupt asks for a stop, the second cancels it, which raises StoppedError."""
    interrupts, stop = interrupts or Interrupts(), Stop()

    async def stoppable() -> T:
        loop = asyncio.get_running_loop()
        task = loop.create_task(work(stop))

        def ask() -> None:
            if not stop.asked:
                stop.ask()
                # Jobs whose call had not left yet are given back meanwhile.
                loop.call_later(GIVING_BACK, emit, Stopping())

        def insist() -> None:
            if stop.asked:
                task.cancel()
            ask()

        hung_up = partial(loop.call_soon_threadsafe, ask)
        async with background(beside() if beside is not None else asyncio.sleep(0)):
            with interrupts.listening(insist), signals(interrupts.interrupt, hung_up):
                try:
                    return await task
                except asyncio.CancelledError as error:
                    text = "stopped at once; calls in flight were given up"
                    raise StoppedError(text) from error

    return run_loop(stoppable(), interrupts)


def run_loop(work: Coroutine[Any, Any, T], interrupts: Interrupts | None = None) -> T:
    """Run `work` on an event loop: uvloop's where there is one (not on Windows), which makes a call
    about a third cheaper. Meanwhile Python looks for garbage in cycles seldom: by default that took a
    fifth of a call's time, and replies that came then waited uncommitted."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop

    def on_loop() -> T:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(work)

    before = gc.get_threshold()
    gc.set_threshold(*SELDOM)
    try:
        return _outside_a_loop(on_loop, interrupts or Interrupts())
    finally:
        if before != SELDOM:  # else another loop of this process, which began earlier, does it
            gc.set_threshold(*before)


def awaited(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What `work` returns; an interrupt cancels it."""
    interrupts = Interrupts()

    async def interruptible() -> T:
        task = asyncio.ensure_future(work())
        with interrupts.listening(task.cancel):
            return await task

    return _outside_a_loop(lambda: asyncio.run(interruptible()), interrupts)


def _outside_a_loop(work: Callable[[], T], interrupts: Interrupts) -> T:
    """What `work` returns, which starts an event loop; where one is running (a notebook) in a thread,
    which Ctrl-C (a notebook's Stop) then interrupts."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    try:
        with ThreadPoolExecutor(1) as pool, signals(interrupts.interrupt, interrupts.interrupt):
            return pool.submit(work).result()
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
