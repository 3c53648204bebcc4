"""The user of this terminal as a judge: questions and keys, in place of the page."""

from __future__ import annotations

import asyncio
import errno
import getpass
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import NoReturn

from rich.console import Console, RenderableType
from rich.control import Control
from rich.panel import Panel
from rich.segment import ControlType
from rich.table import Table
from rich.text import Text

from judgeq.engine.people import People
from judgeq.engine.people_said import LONGEST, Answer, Question, Turn, Why
from judgeq.engine.registering import checked
from judgeq.errors import (
    BadAnswerError,
    RunError,
    StaleError,
    StoreAwayError,
    UnknownPersonError,
    UsageError,
)
from judgeq.files import read_start, write_private
from judgeq.paths import remembered
from judgeq.runs import RunPlace
from judgeq.ui.keys import END, Keys, pressed
from judgeq.ui.text import duration
from judgeq.untrusted import multiline, plain

SIGN = 20.0
"""Seconds after which the engine hears that somebody is still there."""
LOOK = 0.5
"""Seconds after which who has no question asks for one again."""
AGAIN = 2.0
"""Seconds after which to try again, where the store is away."""
DIGITS = "1234567890"
MOST = len(DIGITS)
"""Texts of a list: as many as there are digits."""
NARROW = 80
"""Columns of a terminal on which two texts don't stand side by side."""
REASONS = {
    "1": ("undecided", "I can't decide"),
    "2": ("broken", "A text is broken or can't be read"),
    "3": ("known", "I know too much about it"),
    "4": ("other", "Another reason"),
}
KEYS = {
    "pair": "1 or 2: the text; =: a tie",
    "list": "digits: the texts in order, the first first; Backspace takes the last back; Enter answers",
    "direct": "0 to 9: from not at all to as much as can be",
}
COMMON = "s: skip; u: undo the last answer; n: note; h: help; p: pause; q: quit"
WHY: dict[Why, str] = {
    "wait": "Nothing for you just now: others have what is left, or new questions are being made.",
    "quota": "You have done your share.",
    "paused": "You are paused by whoever runs the study (`judgeq judges resume` ends that).",
    "removed": "You no longer take part (`judgeq judges resume` changes that).",
    "over": "All questions have their answers. Thank you.",
}


def interrupt() -> None:
    """As Ctrl-C."""
    signal.raise_signal(signal.SIGINT)


@asynccontextmanager
async def in_terminal(
    people: People,
    place: RunPlace,
    console: Console,
    stop: Callable[[], object] = interrupt,
) -> AsyncIterator[None]:
    """While inside, the user of this terminal judges, who is known again the next time; `stop` is what
    ends the run when they quit. Raises UsageError where there is no terminal."""
    if sys.stdin is None or not sys.stdin.isatty() or not console.is_terminal:
        raise UsageError(
            "--in-terminal asks you on a terminal, and this is none: input and output are a file or a "
            "pipe. Leave it out, and judge on the page."
        )
    with pressed(sys.stdin.fileno()) as keys:
        judge = _Judge(people, await _token(people, place), console, keys, stop)
        asking = asyncio.create_task(judge.go())
        try:
            yield
        finally:
            asking.cancel()
            with suppress(asyncio.CancelledError):
                await asking


async def _token(people: People, place: RunPlace) -> str:
    """That of this user, as kept from an earlier time, or of a new judge."""
    path = remembered("people", f"{place.identity}\0terminal")
    with suppress(OSError, ValueError, UnknownPersonError):
        kept = json.loads(read_start(path, 1000))
        if isinstance(kept, str):
            await people.turn(kept)
            return kept
    for name in _names():
        with suppress(UsageError):  # somebody else has it
            (token,) = await people.register([name])
            with suppress(RunError):
                write_private(path, json.dumps(token))
            return token
    raise UsageError("there is no name left under which you could judge.")


def _names() -> Iterator[str]:
    """The user's name, and others where it is taken."""
    name = "you"
    with suppress(OSError, KeyError, ImportError, UsageError):
        name = checked(getpass.getuser())
    yield name
    yield from (f"{name} ({number})" for number in range(2, 1000))


class _Judge:
    """Who judges here. What is shown stays above, but for the line on which they answer."""

    def __init__(
        self,
        people: People,
        token: str,
        console: Console,
        keys: Keys,
        stop: Callable[[], object],
    ) -> None:
        self._people = people
        self._token = token
        self._console = console
        self._keys = keys
        self._stop = stop
        self._about = people.about
        self._on_line = False

    async def go(self) -> None:
        """Ask until all is judged. Raises what ends the run."""
        try:
            self._help()
            turn: Turn | None = await self._turn()
            while turn is not None:
                turn = await self._next(turn)
        except UnknownPersonError as error:
            self._stop()
            raise RunError(
                "the judge of this terminal was forgotten, or has another link. Begin again to judge as "
                "a new one."
            ) from error
        except OSError as error:
            self._stop()
            if error.errno != errno.EIO:  # the terminal is gone
                raise
        except Exception:
            self._stop()
            raise

    async def _next(self, turn: Turn) -> Turn | None:
        try:
            if turn.question is not None:
                return await self._asked(turn, turn.question)
            return await self._without(turn)
        except (StaleError, BadAnswerError) as error:
            self._say(str(error))
        except StoreAwayError:
            self._say("The run can't be reached just now; it is tried again.")
            await asyncio.sleep(AGAIN)
        return await self._turn()

    async def _turn(self) -> Turn:
        while True:
            with suppress(StoreAwayError):
                return await self._people.turn(self._token)
            await asyncio.sleep(AGAIN)

    # With a question

    async def _asked(self, turn: Turn, question: Question) -> Turn:
        """The turn after a question was answered, skipped or left."""
        if len(question.texts) > MOST:
            raise UsageError(
                f"--in-terminal asks about lists of {MOST} texts at most, and not about "
                f"{len(question.texts)}. Leave it out, and judge on the page."
            )
        self._keys.drop()
        self._show(turn, question)
        order, note, since = list[int](), "", time.monotonic()
        while True:
            self._line(_so_far(question, order, note))
            key = await self._key(question)
            if key == "s":
                reason = await self._reason(question)
                if reason:
                    return await self._people.skip(self._token, question.id, reason, note)
            elif key == "u" and turn.undo:
                return await self._people.undo(self._token)
            elif key == "u":
                self._say("There is no answer that could be taken back.")
            elif key == "n":
                note = await self._written(question, note)
            elif key in ("h", "?"):
                self._help()
                self._show(turn, question)
            elif key == "p":
                await self._pause(question)
                return await self._turn()
            elif (answer := self._answer(question, key, order)) is not None:
                self._line(_so_far(question, order, note) + _shown(answer))
                seconds = time.monotonic() - since
                said = answer._replace(seconds=seconds, note=note)
                return await self._people.answer(self._token, question.id, said)

    def _answer(self, question: Question, key: str, order: list[int]) -> Answer | None:
        """The answer that a key completes; `order` are the texts of a list that have their place."""
        k = len(question.texts)
        if question.kind == "pair" and key == "=" and self._about.ties:
            return Answer((0, 1), tied=True)
        if question.kind == "list" and key == "backspace" and order:
            order.pop()
        if question.kind == "list" and key == "enter" and len(order) == k:
            return Answer(tuple(order))
        if key not in DIGITS:
            return None
        if question.kind == "direct":
            return Answer(score=int(key) / 9)
        place = DIGITS.index(key)
        if place >= k or place in order:
            return None
        if question.kind == "pair":
            return Answer((place, 1 - place))
        order.append(place)
        if len(order) == k - 1:
            order += set(range(k)) - set(order)
        return None

    async def _key(self, question: Question | None = None) -> str:
        """As `_pressed`; "q" quits."""
        key = await self._pressed(question)
        return key if key != "q" else await self._quit()

    async def _pressed(self, question: Question | None = None) -> str:
        """The next key, until which the question stays theirs; quits where the terminal is gone."""
        while not (key := await self._keys.next(SIGN)):
            if question is not None:
                with suppress(StoreAwayError):
                    await self._people.renew(self._token, question.id)
        return key if key != END else await self._quit()

    async def _reason(self, question: Question) -> str | None:
        """Why a question is skipped; None where it isn't after all."""
        self._say("Why? " + "; ".join(f"{key}: {words}" for key, (_, words) in REASONS.items()))
        self._line("Skip (Esc: don't) ")
        while (key := await self._key(question)) not in REASONS:
            if key == "escape":
                return None
        return REASONS[key][0]

    async def _written(self, question: Question, before: str) -> str:
        """A note, as it is typed; Esc leaves it as it was."""
        note = before
        while True:
            self._line(
                f"Note (Enter: done, Esc: as before): {_end(note, self._console.width - 40)}"
            )
            key = await self._pressed(question)
            if key == "enter":
                return note
            if key == "escape":
                return before
            if key == "backspace":
                note = note[:-1]
            elif len(key) == 1:
                note = (note + key)[:LONGEST]

    async def _pause(self, question: Question) -> None:
        await self._people.leave(self._token, question.id)
        self._say("Paused: your question may go to somebody else. Any key goes on; q quits.")
        await self._key()

    async def _quit(self) -> NoReturn:
        self._say("Stopping. What you answered is kept.")
        self._stop()
        await asyncio.Event().wait()
        raise asyncio.CancelledError

    # Without one

    async def _without(self, turn: Turn) -> Turn | None:
        """The next turn that says something else; None where there is none."""
        if turn.why == "over":
            self._say(WHY["over"])
            return None
        said = False
        while True:
            key = await self._key_or_change()
            if key in ("q", END):
                await self._quit()
            if key == "u" and turn.undo:
                return await self._people.undo(self._token)
            again = await self._turn()
            if again.question is not None or again.why != turn.why:
                return again
            turn = again
            if not said:
                more = "u: undo the last answer; q: quit" if turn.undo else "q: quit"
                self._say(f"{WHY[turn.why]} ({more})")
                said = True

    async def _key_or_change(self) -> str:
        """A key; "" where something changed, or nothing did for a while."""
        changed = asyncio.create_task(self._people.changed(LOOK))
        key = asyncio.create_task(self._keys.next())
        try:
            await asyncio.wait((key, changed), return_when=asyncio.FIRST_COMPLETED)
            return key.result() if key.done() else ""
        finally:
            key.cancel()
            changed.cancel()

    # What is shown

    def _help(self) -> None:
        about = self._about
        self._say("")
        self._print(Text(multiline(about.title), "bold"))
        if about.guidelines:
            self._print(Text(multiline(about.guidelines)))

    def _show(self, turn: Turn, question: Question) -> None:
        """The question and its texts."""
        count = f"{turn.done + 1:,}" + (f" of {turn.quota:,}" if turn.quota is not None else "")
        spent = f" · {duration(turn.seconds)}" if turn.seconds >= 1 else ""
        self._say("")
        self._print(Text())
        self._console.rule(Text(f"{plain(turn.name, 40)} · {count}{spent}"), align="left")
        wording = self._about.questions[question.kind]
        wording = wording.replace("$count", str(len(question.texts)))
        self._print(Text(multiline(wording), "bold"))
        self._print(*_texts(question.texts, self._console.width))
        answers = KEYS[question.kind]
        if question.kind == "pair" and not self._about.ties:
            answers = answers.partition(";")[0]
        self._print(Text(f"{answers}; {COMMON}", "dim"))

    def _print(self, *parts: RenderableType) -> None:
        for part in parts:
            self._console.print(part)

    def _say(self, words: str) -> None:
        """A line of its own, below what is there."""
        if self._on_line:
            self._console.print()
        self._on_line = False
        if words:
            self._console.print(Text(plain(words, 1000)))

    def _line(self, words: str) -> None:
        """The last line, written anew."""
        again = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))
        self._console.control(again)
        self._console.print(Text(plain(words, self._console.width - 2)), end=" ")
        self._on_line = True


def _texts(texts: Sequence[str], width: int) -> list[RenderableType]:
    """The texts in frames, two of them side by side where there is room."""
    frames = [
        Panel(
            Text(multiline(text)), title=DIGITS[at] if len(texts) > 1 else None, title_align="left"
        )
        for at, text in enumerate(texts)
    ]
    if len(frames) != 2 or width < NARROW:
        return list(frames)
    side_by_side = Table.grid(expand=True, padding=(0, 1))
    for _ in frames:
        side_by_side.add_column(ratio=1)
    side_by_side.add_row(*frames)
    return [side_by_side]


def _so_far(question: Question, order: Sequence[int], note: str) -> str:
    """What was answered so far."""
    kept = "(with a note) " if note else ""
    if question.kind != "list":
        return f"{kept}Your answer:"
    left = " _" * (len(question.texts) - len(order))
    chosen = "".join(f" {DIGITS[place]}" for place in order)
    return f"{kept}Your order:{chosen}{left}" + ("" if left else " · Enter: answer")


def _shown(answer: Answer) -> str:
    """An answer, as it stays on the screen; a list's order is there already."""
    if answer.tied:
        return " ="
    if answer.score is not None:
        return f" {answer.score * 9:.0f}"
    return f" {DIGITS[answer.ranking[0]]}" if len(answer.ranking) == 2 else ""


def _end(text: str, width: int) -> str:
    """The end of a text that is being written."""
    return text if len(text) <= width else "…" + text[-max(1, width - 1) :]
