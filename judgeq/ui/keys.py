"""The keys that are pressed on a terminal, one by one, as they come."""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from judgeq.errors import UsageError

END = "end"
"""In place of a key: the terminal is gone."""
_NAMED = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\b": "backspace", "\x1b": "escape"}
_KEYS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1bO.|\x1b[^\x1b]|.", re.DOTALL)
"""Arrows and the like are one key, as is one that is pressed with Alt."""


class Keys:
    """Keys in their order: characters, and "enter", "backspace", "escape", END; others are left out."""

    def __init__(self) -> None:
        self._pressed = asyncio.Queue[str]()
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")

    async def next(self, seconds: float | None = None) -> str:
        """The next key; "" where none was pressed for so many seconds."""
        with suppress(TimeoutError):
            return await asyncio.wait_for(self._pressed.get(), seconds)
        return ""

    def drop(self) -> None:
        """Forget what was pressed and not taken yet: it was meant for something else."""
        while not self._pressed.empty():
            if self._pressed.get_nowait() == END:
                self._pressed.put_nowait(END)
                return

    def read(self, data: bytes) -> None:
        """Take what the terminal sent; nothing is its end."""
        if not data:
            self._pressed.put_nowait(END)
        for sent in _KEYS.findall(self._decoder.decode(data)):
            key = _NAMED.get(sent, sent)
            if len(sent) == 1 and (key.isprintable() or sent in _NAMED):
                self._pressed.put_nowait(key)


@contextmanager
def pressed(terminal: int) -> Iterator[Keys]:
    """While inside, the running loop takes each key of the terminal of this descriptor as it is pressed,
    which isn't shown there; Ctrl-C is a signal as ever. Raises UsageError where that can't be."""
    try:
        import termios
        import tty
    except ImportError as error:  # Windows
        raise UsageError("single keys can't be read on this system's terminals.") from error
    loop, keys = asyncio.get_running_loop(), Keys()
    try:
        before = termios.tcgetattr(terminal)
    except termios.error as error:
        raise UsageError("single keys can't be read: this is no terminal.") from error

    def ready() -> None:
        try:
            data = os.read(terminal, 1024)
        except OSError:
            data = b""
        if not data:
            loop.remove_reader(terminal)
        keys.read(data)

    def single() -> None:
        tty.setcbreak(terminal)

    try:
        single()
        loop.add_reader(terminal, ready)
        with suppress(RuntimeError, ValueError):  # not the main thread
            loop.add_signal_handler(signal.SIGCONT, single)  # after Ctrl-Z
        yield keys
    finally:
        loop.remove_reader(terminal)
        with suppress(RuntimeError, ValueError):
            loop.remove_signal_handler(signal.SIGCONT)
        with suppress(termios.error):  # the terminal may be gone
            termios.tcsetattr(terminal, termios.TCSAFLUSH, before)
