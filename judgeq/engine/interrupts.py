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

    def interrupt(self, *_: object) -> None:
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
    """While inside, have the running loop call `react` at each SIGINT and SIGTERM, and `hung_up` at
    each SIGHUP (the terminal was closed), unless that is ignored, as nohup wants it.

    Does nothing on Windows or beside the main thread: there, whoever called us handles signals.
    """
    loop = asyncio.get_running_loop()
    reactions = {signal.SIGINT: react, signal.SIGTERM: react}
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        reactions[signal.SIGHUP] = hung_up
    before = {number: signal.getsignal(number) for number in reactions}
    try:
        for number, reaction in reactions.items():
            loop.add_signal_handler(number, reaction)
    except (NotImplementedError, RuntimeError, ValueError):
        reactions = {}
    try:
        yield
    finally:
        for number in reactions:
            loop.remove_signal_handler(number)
            if before[number] is not None:
                signal.signal(number, before[number])


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


async def stoppable(
    work: Callable[[Stop], Coroutine[Any, Any, T]],
    emit: Emit,
    beside: Beside | None = None,
    interrupts: Interrupts | None = None,
) -> T:
    """What `work` returns, while `beside` runs. The first signal or interrupt asks for a stop, the
    second cancels it, which raises StoppedError."""
    stop, loop = Stop(), asyncio.get_running_loop()
    task = loop.create_task(work(stop))

    def ask() -> None:
        if not stop.asked:
            stop.ask()
            # Jobs whose call had not left yet are given back meanwhile: only the others are waited for.
            loop.call_later(GIVING_BACK, emit, Stopping())

    def insist() -> None:
        if stop.asked:
            task.cancel()
        ask()

    async with background(beside() if beside is not None else asyncio.sleep(0)):
        with signals(insist, ask), (interrupts or Interrupts()).listening(insist):
            try:
                return await task
            except asyncio.CancelledError as error:
                raise StoppedError("stopped at once; calls in flight were given up") from error


def run_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on an event loop: uvloop's where there is one (not on Windows), which makes a call
    about a third cheaper. Meanwhile Python looks for garbage in cycles seldom: by default that took a
    fifth of a call's time, and replies that came then waited uncommitted."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    before = gc.get_threshold()
    gc.set_threshold(*SELDOM)
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(work)
    finally:
        if before != SELDOM:  # else another loop of this process, which began earlier, does it
            gc.set_threshold(*before)


def awaited(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What `work` returns; an interrupt cancels it."""

    async def interruptible(interrupts: Interrupts) -> T:
        task = asyncio.ensure_future(work())
        with interrupts.listening(task.cancel):
            return await task

    return outside_a_loop(lambda interrupts: asyncio.run(interruptible(interrupts)))


def outside_a_loop(work: Callable[[Interrupts], T]) -> T:
    """Run `work`, which starts an event loop, also where one is running (a notebook): in a thread.

    `work` is given what Ctrl-C (a notebook's Stop) interrupts meanwhile. Without a running loop that is
    nothing: signals then reach the loop of `work`, which is in this thread.
    """
    interrupts, in_a_loop = Interrupts(), False
    with suppress(RuntimeError):
        in_a_loop = asyncio.get_running_loop() is not None
    if not in_a_loop:
        return work(interrupts)
    # Only the main thread may say what a signal does.
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, interrupts.interrupt) if main else None
    try:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(work, interrupts).result()
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        if main:
            signal.signal(signal.SIGINT, signal.default_int_handler if before is None else before)
