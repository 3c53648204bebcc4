"""The people who judge a run: each is asked one question at a time, by a page or a test.

What a person has, and what they answered, is in the store before it is acknowledged. A question has a
lease of its own, which its answer names: two windows, a second click or a lost connection can neither
answer twice nor answer what another person has.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import orjson

from judgeq.errors import (
    BadAnswerError,
    BehindError,
    PersonError,
    StaleError,
    UnusableReplyError,
    UsageError,
)
from judgeq.events import CallEnded, Event, Notice
from judgeq.judge.backend import Reply
from judgeq.judge.questions import Questions
from judgeq.people import answers, registry
from judgeq.people.answers import LONGEST, About, Answer, Question, Turn, Why
from judgeq.people.assignment import AWAITED, STALE, Assignment
from judgeq.people.progress import NEVER, PersonProgress
from judgeq.person import Handed, Person, PersonState
from judgeq.text import listed, several
from judgeq.types import Usage, Verdict

T = TypeVar("T")
FAREWELL, AGAIN = 5.0, 0.2
"""Seconds, at most, in which those who are present learn that the run is over; between two looks."""
LOOK = 20.0
"""Seconds after which it is reported again who is waited for."""
NAMED = 3
"""Names in such a report."""


class People:
    """The people of one run. `run`: how commands name it."""

    def __init__(
        self,
        questions: Questions,
        assignment: Assignment,
        *,
        run: str = "last",
        emit: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self._lock = asyncio.Lock()
        self._questions = questions
        self._assignment = assignment
        self._run = run
        self._emit = emit
        self._changed = asyncio.Event()
        self._over = False
        self._reported = ""
        self._looked = NEVER

    @property
    def open_to_all(self) -> bool:
        """Whether anybody may join."""
        return self._assignment.open_to_all

    @property
    def present(self) -> int:
        """How many people have their page open, and may be asked."""
        return self._assignment.present

    @property
    def about(self) -> About:
        """What is asked. Raises UsageError without a prompt set."""
        if self._questions.prompt is None:
            raise UsageError("People need to know what to judge: give --prompt or --feature.")
        return answers.about(self._questions.prompt)

    # For the runner

    async def begin(self, rounds: int) -> None:
        """Ask the questions of all `rounds`."""
        await self._alone(self._assignment.begin, rounds)
        self._report()
        self._announce()

    async def close(self) -> bool:
        """Whether the store has an answer to all questions: from then on nothing is taken back."""
        self._assignment.forget()
        await self._alone(self._end)
        return self._over

    async def _end(self) -> None:
        self._over = not self._assignment.matches

    async def finish(self) -> None:
        """Wait until all who are present know that the run is over, or for FAREWELL seconds."""
        self._announce()
        await self._until(lambda: self._assignment.all_notified, FAREWELL)

    async def all_done(self, seconds: float) -> None:
        """Wait until no question is left, or for this many seconds."""
        await self._until(lambda: not self._assignment.matches, seconds)

    async def _until(self, done: Callable[[], bool], seconds: float) -> None:
        clock = self._assignment.clock
        until = clock() + seconds
        while not done() and (left := until - clock()) > 0:
            await self.changed(min(left, AGAIN))

    async def changed(self, seconds: float) -> None:
        """Wait until something was answered, or for this many seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)

    # For those who run the study

    async def change(self, change: registry.Change) -> list[tuple[Person, str]]:
        """As `registry.apply`, with effect at once: the question of a person who is removed is for
        others."""
        people = await self._alone(self._change, change)
        self._report()
        self._announce()
        return people

    async def _change(self, change: registry.Change) -> list[tuple[Person, str]]:
        assignment = self._assignment
        changed = await registry.apply(assignment.store, change, assignment.now(), assignment.panel)
        await assignment.learn()
        for person, _ in changed:
            if person.state is not PersonState.ACTIVE:
                await assignment.give_back(assignment.people[person.number])
        return changed

    # For the people: all raise UnknownPersonError

    async def knows(self, token: str) -> bool:
        """Whether it is a person's token."""
        return await self._assignment.knows(token)

    async def join(self, name: str) -> str:
        """The token of a new person, if the run is open to all. Raises UsageError for a name that isn't
        possible, or is taken."""
        if not self.open_to_all:
            raise UsageError("To take part you need a link of your own.")
        ((_, token),) = await self.change(registry.Change("join", (name,)))
        return token

    async def turn(self, token: str) -> Turn:
        """The question that a person has, or the next."""
        return await self._alone(self._next_turn, token)

    async def answer(self, token: str, question: str, answer: Answer) -> Turn:
        """Keep an answer; their next turn. The same answer again, as after a lost connection, changes
        nothing. Raises StaleError for a question that is no longer theirs, and BadAnswerError."""
        await self._alone(self._answer, token, question, answer)
        return await self.turn(token)

    async def skip(self, token: str, question: str, reason: str, note: str = "") -> Turn:
        """Leave a question to others; their next turn. Raises StaleError."""
        await self._alone(self._skip, token, question, reason, note)
        return await self.turn(token)

    async def undo(self, token: str) -> Turn:
        """Take a person's last answer back: its question is theirs again. Raises StaleError if there is
        none, or the run is over."""
        await self._alone(self._undo, token)
        return await self.turn(token)

    async def renew(self, token: str, question: str) -> None:
        """Note that a person's page is still open. Raises StaleError if the question is no longer
        theirs."""
        await self._alone(self._theirs, token, question)

    async def leave(self, token: str, question: str) -> None:
        """Give a question back: a person pauses."""
        await self._alone(self._leave, token, question)
        self._announce()

    # Inside

    async def _alone(self, does: Callable[..., Awaitable[T]], *values: object) -> T:
        """What `does` returns, with nothing else at the same time; once more if another process changed
        who has which question."""
        async with self._lock:
            with suppress(BehindError):
                return await self._once(does, *values)
            return await self._once(does, *values)

    async def _once(self, does: Callable[..., Awaitable[T]], *values: object) -> T:
        await self._assignment.ready()
        try:
            return await does(*values)
        except (PersonError, UsageError):  # which come before anything is changed
            raise
        except BaseException:
            self._assignment.forget()
            raise

    async def _answer(self, token: str, question: str, answer: Answer) -> None:
        person = await self._assignment.person(token)
        handed, last = person.handed, person.last
        if handed is not None and handed.lease == question:
            match = self._assignment.match(handed)
            reply = answers.reply(answer, len(match.items))
            try:
                verdict = self._questions.read(Reply(reply, Usage(), 0.0), match)
            except UnusableReplyError as error:
                raise BadAnswerError(f"This is not an answer: {error}") from error
            await self._keep(person, handed, reply, answer.note, verdict, answer.seconds)
        elif last is None or last.lease != question:
            raise StaleError(STALE)
        else:
            reply = answers.reply(answer, len(last.match.items))
            if last.reply not in ("", answers.with_note(reply, question, answer.note)):
                raise StaleError("You answered this in another window. That answer counts.")

    async def _skip(self, token: str, question: str, reason: str, note: str) -> None:
        person, handed = await self._theirs(token, question)
        reply = orjson.dumps({"skipped": reason[:LONGEST]}).decode()
        await self._keep(person, handed, reply, note, None)

    async def _undo(self, token: str) -> None:
        person = await self._assignment.person(token)
        if person.last is None or self._over:
            raise StaleError("Your last answer can't be taken back any more.")
        await self._assignment.take_back(person, person.last)

    async def _leave(self, token: str, question: str) -> None:
        person = await self._assignment.person(token)
        person.last_seen = NEVER
        if person.handed is not None and person.handed.lease == question:
            await self._assignment.give_back(person)

    async def _theirs(self, token: str, question: str) -> tuple[PersonProgress, Handed]:
        """A person and the question that they have. Raises StaleError if it isn't this one."""
        person = await self._assignment.person(token)
        if person.handed is None or person.handed.lease != question:
            raise StaleError(STALE)
        return person, person.handed

    async def _next_turn(self, token: str) -> Turn:
        """What a person is to do now; a question is handed out if there is one for them."""
        assignment = self._assignment
        person = await assignment.person(token)
        why: Why = ""
        if person.person.state is not PersonState.ACTIVE:
            why = "removed"
            await assignment.give_back(person)
        elif person.handed is None and self._over:
            why, person.notified_end = "over", True
        elif person.handed is None and not person.may_be_asked:
            why = "quota"
        elif person.handed is None and not await assignment.next(person):
            why = "wait"
        if why in ("quota", "wait"):
            self._report(waits=why == "wait")
        self._announce()
        return Turn(
            name=person.person.name,
            question=None if person.handed is None else self._question(person.handed),
            why=why,
            done=person.done,
            expected=assignment.expected(person),
            left=len(assignment.matches),
            quota=person.person.quota,
            seconds=person.seconds,
            undo=person.last is not None and not self._over,
        )

    def _question(self, handed: Handed) -> Question:
        match, texts = self._assignment.match(handed), self._questions.texts
        if texts is None:
            raise UsageError("People judge texts, and this dataset has none.")
        return Question(handed.lease, match.kind, tuple(texts[item] for item in match.items))

    async def _keep(
        self,
        person: PersonProgress,
        handed: Handed,
        reply: str,
        note: str,
        verdict: Verdict | None,
        seconds: float = float("inf"),
    ) -> None:
        """Commit an answer, or a skip. `seconds`: how long it took, as the page says; at most the time
        since the question was handed out."""
        elapsed = max(0.0, self._assignment.now() - handed.at)
        seconds = min(max(0.0, seconds), elapsed)
        reply = answers.with_note(reply, handed.lease, note)
        await self._assignment.settle(person, reply, seconds, verdict)
        if handed.check is None:
            outcome = "skipped" if verdict is None else "ok"
            self._emit(CallEnded(outcome, Usage(), 0.0, seconds))

    def _announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _report(self, waits: bool = False) -> None:
        """Report questions that nobody who is present may answer, if that is new. `waits`: somebody who
        is present has nothing to do, which is reported every LOOK seconds at most."""
        clock = self._assignment.clock()
        if waits and clock - self._looked < LOOK:
            return
        self._looked = clock if waits else self._looked
        waiting, text = self._assignment.waiting(), ""
        run, absent = self._run, sorted(waiting.absent)
        if waiting.for_nobody and not self.open_to_all:
            text = (
                f"{_left(waiting.for_nobody)} that no judge may answer: they had those texts, reached "
                f"their quota, or were away for a day. Add a judge: judgeq annotate add {run} NAME."
            )
        elif waits and waiting.for_absent:
            ways = (
                f"To go on without: `judgeq annotate add {run} NAME`, or Ctrl-C and `judgeq show {run} "
                "--write`."
            )
            if waiting.substitutes:
                names = " ".join(map(shlex.quote, absent[:NAMED]))
                ways = (
                    f"After {AWAITED / 3600:.0f} h, or with `judgeq annotate remove {run} {names}`, it "
                    f"goes to {_named(sorted(waiting.substitutes))}."
                )
            text = (
                f"{_left(waiting.for_absent)}, for someone who hasn't seen those texts. Waiting for "
                f"{_named(absent)}. {ways}"
            )
        if text and text != self._reported:
            self._emit(Notice(text, warning=bool(waiting.for_nobody)))
            self._reported = text


def _left(count: int) -> str:
    return f"{several(count, 'question')} {'is' if count == 1 else 'are'} left"


def _named(names: Sequence[str]) -> str:
    more = [f"{len(names) - NAMED:,} more"] if len(names) > NAMED else []
    return listed([*names[:NAMED], *more])
