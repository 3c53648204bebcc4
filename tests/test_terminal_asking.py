"""The user of a terminal judges there: real keys on a pseudo-terminal, in place of the page."""

from __future__ import annotations

import asyncio
import io
import os
import re
import select
import subprocess
import sys
import termios
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import spearmanr

from judgeq.engine import session
from judgeq.engine.people import People
from judgeq.engine.results import Result
from judgeq.engine.stopping import Interrupts
from judgeq.errors import RunError, StoppedError, UnknownPersonError, UsageError
from judgeq.ui.keys import Keys
from judgeq.ui.terminal_asking import in_terminal
from judgeq.untrusted import multiline
from tests import judging as them
from tests.cli import LONGEST, REPO, STARTED, environment, only_run, query

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
ANSWER, ORDER = "Your answer:", "Your order:( _)+"
END = "All questions have their answers|Nothing for you just now"


class Terminal:
    """A pseudo-terminal: what is shown on it, and keys."""

    def __init__(self) -> None:
        self.master, self.slave = os.openpty()
        self._shown = ""

    def until(self, pattern: str) -> str:
        """As `raw`, without what acts on the terminal."""
        return multiline(self.raw(pattern))

    def raw(self, pattern: str) -> str:
        """What is shown, since the last such call, until something like this is."""
        while not (match := re.search(pattern, self._shown)):
            ready, _, _ = select.select([self.master], [], [], 20)
            assert ready, f"no {pattern!r} in {self._shown!r}"
            self._shown += os.read(self.master, 65536).decode(errors="replace")
        text, self._shown = self._shown[: match.end()], self._shown[match.end() :]
        return text

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def numbers(self, pattern: str = ANSWER) -> list[int]:
        """The numbers of the texts that are shown, in their order."""
        return [
            int(number)
            for number in re.findall(r"number (\d+) of", self.until(f"number [^$]*?{pattern}"))
        ]

    def close(self) -> None:
        for end in (self.master, self.slave):
            os.close(end)


Story = Callable[[Terminal], None]


def judged(
    folder: Path, monkeypatch: pytest.MonkeyPatch, story: Story, width: int = 100, **more: Any
) -> Result:
    """The result of a run that the user of a terminal judges as a story in another thread has it."""
    terminal, interrupts, failed = Terminal(), Interrupts(), list[BaseException]()
    prepared = session.prepare(them.settings(folder, **more), folder / "runs")

    def told() -> None:
        try:
            story(terminal)
        except BaseException as error:  # noqa: BLE001  (it goes on, in the main thread)
            failed.append(error)
            interrupts.interrupt()
            interrupts.interrupt()

    thread = threading.Thread(target=told)
    before = termios.tcgetattr(terminal.slave)
    try:
        with (
            open(terminal.slave, closefd=False) as stdin,
            open(terminal.slave, "w", closefd=False) as out,
        ):
            monkeypatch.setattr(sys, "stdin", stdin)
            console = Console(file=out, force_terminal=True, width=width, highlight=False)

            @asynccontextmanager
            async def page(people: People) -> AsyncIterator[None]:
                async with in_terminal(people, prepared.folder, console, interrupts.interrupt):
                    yield

            thread.start()
            return session.execute(prepared, lambda _: None, page=page, interrupts=interrupts)
    finally:
        thread.join(LONGEST)
        assert termios.tcgetattr(terminal.slave) == before
        terminal.close()
        assert not failed, failed


def test_pairs_by_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def story(terminal: Terminal) -> None:
        for _ in range(12 * 2):
            one, other = terminal.numbers()
            terminal.press("1" if one > other else "2")
        terminal.until("All questions have their answers")

    result = judged(tmp_path, monkeypatch, story)
    assert result.counts.done == 24
    theta = result.scores.ratings[result.main.column]
    assert spearmanr(theta, np.arange(them.N)).statistic > 0.6


def test_lists_by_digits_on_a_narrow_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def story(terminal: Terminal) -> None:
        for _ in range(3):
            numbers = terminal.numbers(ORDER)
            order = sorted(range(len(numbers)), key=lambda at: -numbers[at])
            keys = "".join(str((at + 1) % 10) for at in order)
            wrong = keys[-1] + keys[0] * 2 + "9x=\x1b[A\r"
            terminal.press(wrong[:3])
            terminal.until(f"Your order: {keys[-1]} {keys[0]} _")
            terminal.press(wrong[3:] + "\x7f\x7f\x7f" + keys[:-1])
            terminal.until(f"Your order: {' '.join(keys)} · Enter: answer")
            terminal.press("\r")
        terminal.until(END)

    result = judged(tmp_path, monkeypatch, story, 50, strategy="listwise8x1")
    (verdicts,) = result.history.asked
    for a, b in zip(verdicts.offsets[:-1], verdicts.offsets[1:], strict=True):
        assert (np.diff(verdicts.items[a:b]) < 0).all()


def test_single_texts_by_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def story(terminal: Terminal) -> None:
        for _ in range(them.N):
            (number,) = terminal.numbers()
            terminal.press(str(number * 9 // (them.N - 1)))
        terminal.until(END)

    result = judged(tmp_path, monkeypatch, story, strategy="direct")
    scores = result.history.asked[0].scores
    assert scores is not None
    assert np.unique(scores * 9).tolist() == pytest.approx(list(range(10)))


def test_skips_notes_undo_help_and_pauses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def story(terminal: Terminal) -> None:
        first = terminal.numbers()
        terminal.press("u")
        terminal.until("no answer that could be taken back")
        terminal.press("s\x1b")
        terminal.until("Why\\? 1: I can't decide; 2: A text is broken")
        terminal.press("sn2")  # n is no reason
        second = terminal.numbers()
        assert second != first
        terminal.press("nquöte\x7f\x7fd\x1b[D it\r")
        terminal.until(r"quöd it[\s\S]*\(with a note\) Your answer:")
        terminal.press("1")
        third = terminal.numbers()
        terminal.press("u")
        assert terminal.numbers() == second
        terminal.press("2")
        terminal.numbers()
        terminal.press("h")
        assert "1 or 2: the text; s: skip" in terminal.until("answer: $|q: quit")
        terminal.press("p")
        terminal.until("Any key goes on")
        terminal.press("x")
        terminal.numbers()
        terminal.press("q")
        terminal.until("What you answered is kept")
        assert third

    with pytest.raises(StoppedError):
        judged(tmp_path, monkeypatch, story)
    replies = [str(reply) for (reply,) in query(only_run(tmp_path), "SELECT reply FROM calls")]
    assert '"skipped":"broken"' in replies[0]
    assert '"note":"quöd it"' in replies[1]
    assert len(replies) == 3


def test_the_user_is_known_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def story(terminal: Terminal) -> None:
        assert "ann ·" in terminal.until(ANSWER)
        terminal.press("1")
        terminal.until("2[\\s\\S]*" + ANSWER)
        terminal.press("q")

    for _ in range(2):
        with pytest.raises(StoppedError):
            judged(tmp_path, monkeypatch, story)
    (kept,) = (tmp_path / "state" / "judgeq" / "people").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    kept.write_text('"another"')

    def anew(terminal: Terminal) -> None:
        assert "ann (2) ·" in terminal.until(ANSWER)
        terminal.press("q")

    with pytest.raises(StoppedError):
        judged(tmp_path, monkeypatch, anew)


# Where it can't be


@pytest.mark.parametrize("is_terminal", [True, False])
def test_it_needs_a_terminal_for_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    prepared = session.prepare(them.settings(tmp_path), tmp_path / "runs")
    console = Console(file=io.StringIO(), force_terminal=is_terminal)
    terminal = Terminal()
    with open(os.devnull if is_terminal else terminal.slave) as stdin:  # noqa: PTH123  (a descriptor)
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(UsageError, match="this is none"):
            session.execute(
                prepared,
                lambda _: None,
                page=lambda people: in_terminal(people, prepared.folder, console),
            )
    os.close(terminal.master)


def test_lists_that_are_too_long_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="lists of 10 texts at most, and not about 12"):
        judged(tmp_path, monkeypatch, lambda _: None, strategy="listwise12x1")


def test_who_is_forgotten_meanwhile_is_asked_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forgotten(*_: Any) -> None:
        raise UnknownPersonError("not known")

    def story(terminal: Terminal) -> None:
        terminal.until(ANSWER)
        terminal.press("1")

    monkeypatch.setattr(People, "answer", forgotten)
    with pytest.raises(RunError, match="was forgotten, or has another link"):
        judged(tmp_path, monkeypatch, story)


def test_hostile_texts_do_nothing_to_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = "number {} of \x1b[2J\x1b]0;title\x07\u202e[red]them[/red] \x9b31m"

    def dataset(folder: Path, n: int = 2) -> Path:
        path = folder / "texts.csv"
        lines = [f'{row},"{hostile.format(row)}",{row}\n' for row in range(n)]
        path.write_text("id,text,gold\n" + "".join(lines), encoding="utf-8")
        return path

    shown = list[str]()

    def story(terminal: Terminal) -> None:
        shown.append(terminal.raw(ANSWER))
        terminal.press("q")

    monkeypatch.setattr(them, "dataset", dataset)
    with pytest.raises(StoppedError):
        judged(tmp_path, monkeypatch, story, texts=2, strategy="pairwise1")
    assert "[red]them[/red]" in shown[0]
    for evil in ("\x1b[2J", "\x1b]", "\u202e", "\x9b"):
        assert evil not in shown[0]


# Keys, signals, the terminal's end


def test_what_a_terminal_sends_as_keys() -> None:
    async def story() -> list[str]:
        keys = Keys()
        keys.read(b"a\x1b[A\x1b[1;5C\x1bOPb\x1bx\x01\r\n\x7f\x08\x1b")
        keys.read("ö€".encode()[:3])
        keys.read("ö€".encode()[3:])
        keys.read(b"")
        return [await keys.next(0.01) for _ in range(12)]

    assert asyncio.run(story()) == [
        *("a", "b", "enter", "enter", "backspace", "backspace", "escape", "ö", "€", "end", "", ""),
    ]


def test_keys_of_before_are_dropped_but_not_the_end() -> None:
    async def story() -> list[str]:
        keys = Keys()
        keys.read(b"ab")
        keys.read(b"")
        keys.drop()
        return [await keys.next(0.01) for _ in range(2)]

    assert asyncio.run(story()) == ["end", ""]


ASKED = """
import fcntl, os, sys, termios
from pathlib import Path
from rich.console import Console
from judgeq.engine import session
from judgeq.errors import StoppedError
from judgeq.ui.terminal_asking import in_terminal
from tests import judging as them

os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
prepared = session.prepare(them.settings(Path()), Path("runs"))
page = lambda people: in_terminal(people, prepared.folder, Console(stderr=True))
try:
    session.execute(prepared, lambda _: None, page=page)
except StoppedError as error:
    sys.exit(5)
"""


@pytest.mark.parametrize("how", ["\x03", "\x03\x03", "hang up"])
def test_ctrl_c_and_the_end_of_the_terminal_stop_the_run(tmp_path: Path, how: str) -> None:
    terminal = Terminal()
    before = termios.tcgetattr(terminal.slave)
    process = subprocess.Popen(
        [sys.executable, "-c", ASKED],
        cwd=tmp_path,
        env=environment(tmp_path) | {"TERM": "xterm", "PYTHONPATH": str(REPO)},
        stdin=terminal.slave,
        stdout=terminal.slave,
        stderr=terminal.slave,
        text=True,
    )
    STARTED.append(process)
    terminal.until(ANSWER)
    assert termios.tcgetattr(terminal.slave) != before
    if how == "hang up":
        os.close(terminal.slave)
        os.close(terminal.master)
        assert process.wait(LONGEST) == 5
        return
    terminal.press(how)
    assert process.wait(LONGEST) == 5
    assert termios.tcgetattr(terminal.slave) == before
    terminal.close()
