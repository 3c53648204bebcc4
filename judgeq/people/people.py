"""The people who judge a run: each is asked one question at a time, by a page or a test.

What a person has, and what they answered, is in the store before it is acknowledged. A question has a
lease of its own, which its answer names: two windows, a second click or a lost connection can neither
answer twice nor answer what another person has.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import orjson

from judgeq.errors import (
    BadAnswerError,
    PersonError,
    StaleError,
    UnknownPersonError,
    UnusableReplyError,
    UsageError,
)
from judgeq.events import CallEnded, Event, Notice
from judgeq.judge.backend import Reply
from judgeq.judge.questions import Questions
from judgeq.people import registry
from judgeq.people.assignment import NEVER, STALE, Assignment, PersonProgress
from judgeq.person import Handed, PersonState
from judgeq.prompts import PromptSet
from judgeq.replies import answer_of, labels
from judgeq.run_places import RunFolder, RunPlace
from judgeq.text import listed, several
from judgeq.types import Usage, Verdict

LONGEST = 2_000
"""Characters of a note."""
FAREWELL, AGAIN = 5.0, 0.2
"""Seconds, at most, in which those who are present learn that the run is over; between two readings."""

Why = Literal["", "wait", "quota", "removed", "over"]


class Question(NamedTuple):
    """A question as a person is shown it."""

    id: str
    """The lease under which they have it."""
    kind: Literal["pair", "list", "direct"]
    texts: tuple[str, ...]
    """In the order presented."""


class Turn(NamedTuple):
    """What a person is to do now."""

    name: str
    question: Question | None
    why: Why
    """Why there is no question: none is theirs now (wait), their quota is reached, they are removed, or
    the run is over."""
    done: int
    """Their answers."""
    expected: int
    """About how many answers they will have given in the end."""
    left: int
    """Questions of the run that nobody has answered yet."""
    quota: int | None
    seconds: float
    """The time that their answers took."""
    undo: bool
    """Whether their last answer can be taken back."""


class Answer(NamedTuple):
    """An answer to a question."""

    ranking: tuple[int, ...] = ()
    """Places in Question.texts, from 0, most of the feature first."""
    tied: bool = False
    """Whether the two texts of a pair are equal."""
    score: float | None = None
    """Of a single text, 0 to 1."""
    seconds: float = 0.0
    """The time spent on it."""
    note: str = ""


class People:
    """The people of one run. `run` is suggested in commands."""

    def __init__(
        self,
        questions: Questions,
        assignment: Assignment,
        *,
        run: RunPlace = RunFolder(Path("last")),  # noqa: B008  (frozen)
        emit: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self._questions = questions
        self._assignment = assignment
        self._run = run
        self._emit = emit
        self._changed = asyncio.Condition()
        self._over = False
        self._reported = ""

    @property
    def open_to_all(self) -> bool:
        """Whether anybody may join."""
        return self._assignment.open_to_all

    @property
    def present(self) -> int:
        """How many people have their page open, and may be asked."""
        return sum(map(self._assignment.is_present, self._assignment.active()))

    @property
    def about(self) -> dict[str, Any]:
        """What is asked, as `about_of`. Raises UsageError without a prompt set."""
        if self._questions.prompt is None:
            raise UsageError("People need to know what to judge: give --prompt or --feature.")
        return about_of(self._questions.prompt) | {"open_to_all": self.open_to_all}

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[Assignment]:
        """While inside nothing else is done; after an error what the store has is read again."""
        async with self._changed:
            await self._assignment.ready()
            try:
                yield self._assignment
            except (PersonError, UsageError):  # which come before anything is changed
                raise
            except BaseException:
                self._assignment.forget()
                raise
            finally:
                self._changed.notify_all()

    @asynccontextmanager
    async def _person(self, token: str) -> AsyncIterator[PersonProgress]:
        """The person of a token, who is seen now; inside as `_alone`. Raises UnknownPersonError."""
        async with self._alone() as assignment:
            person = await assignment.find(token)
            if person is None:
                raise UnknownPersonError("This link isn't known here. Ask whoever gave it to you.")
            person.last_seen = assignment.clock()
            if person.person.state is not PersonState.ACTIVE:  # whoever removed them, and how
                await assignment.give_back(person)
            yield person

    # For the runner

    async def close(self) -> bool:
        """Whether the store has an answer to all questions: from then on nothing is taken back."""
        self._assignment.forget()
        async with self._alone() as assignment:
            self._over = not assignment.matches
        return self._over

    async def finish(self) -> None:
        """Wait until all who are present know that the run is over, or for FAREWELL seconds."""
        people = self._assignment.people
        present = [one for one in people.values() if self._assignment.is_present(one)]
        await self._until(lambda: all(one.notified_end for one in present), FAREWELL)

    async def all_done(self, seconds: float) -> None:
        """Wait until no question is left, or for this many seconds. Where none is left in memory, but
        the store has jobs, these are others', or a commit failed: the store is read again."""
        if not self._assignment.matches:
            await asyncio.sleep(min(AGAIN, seconds))
            self._assignment.forget()
            async with self._changed:
                await self._assignment.ready()
        await self._until(lambda: not self._assignment.matches, seconds)

    async def _until(self, done: Callable[[], bool], seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(done)

    # For those who run the study

    async def change(
        self, change: registry.Change, make_link: Callable[[str], str] = str
    ) -> tuple[registry.Changed, ...]:
        """As `registry.apply`, with effect at once: the question of a person who is removed is for
        others."""
        async with self._alone() as assignment:
            now, panel = assignment.now(), assignment.panel
            changed = await registry.apply(assignment.store, change, now, panel, make_link)
            await assignment.learn()
            for person in assignment.people.values():
                if person.person.state is not PersonState.ACTIVE:
                    await assignment.give_back(person)
        return changed

    # For the people: all raise UnknownPersonError

    async def knows(self, token: str) -> bool:
        """Whether it is a person's token."""
        return await self._assignment.find(token) is not None

    async def join(self, name: str) -> str:
        """The token of a new person, if the run is open to all. Raises UsageError for a name that isn't
        possible, or is taken."""
        if not self.open_to_all:
            raise UsageError("To take part you need a link of your own.")
        (joined,) = await self.change(registry.Change("join", (name,)))
        return joined.link or ""

    async def turn(self, token: str) -> Turn:
        """The question that a person has, or the next."""
        async with self._person(token) as person:
            return await self._next_turn(person)

    async def answer(self, token: str, question: str, answer: Answer) -> Turn:
        """Keep an answer; their next turn. The same answer again, as after a lost connection, changes
        nothing. Raises StaleError for a question that is no longer theirs, and BadAnswerError."""
        async with self._person(token) as person:
            handed, last = person.handed, person.last
            if handed is not None and handed.lease == question:
                match = self._assignment.match(handed)
                reply = reply_of(answer, len(match.items), question)
                try:
                    verdict = self._questions.read(Reply(reply, Usage(), 0.0), match)
                except UnusableReplyError as error:
                    raise BadAnswerError(f"This is not an answer: {error}") from error
                await self._keep(person, handed, reply, verdict, answer.seconds)
            elif last is None or last.lease != question:
                raise StaleError(STALE)
            elif last.reply not in ("", reply_of(answer, len(last.match.items), question)):
                raise StaleError("You answered this in another window. That answer counts.")
            return await self._next_turn(person)

    async def skip(self, token: str, question: str, reason: str, note: str = "") -> Turn:
        """Leave a question to others; their next turn. Raises StaleError."""
        async with self._person(token) as person:
            reply = _kept({"skipped": reason[:LONGEST]}, question, note)
            await self._keep(person, _theirs(person, question), reply, None)
            return await self._next_turn(person)

    async def undo(self, token: str) -> Turn:
        """Take a person's last answer back: its question is theirs again. Raises StaleError if there is
        none, the run is over, they were removed, or they took MAX_UNDONE answers back."""
        async with self._person(token) as person:
            if person.person.state is not PersonState.ACTIVE:
                raise StaleError("You no longer take part; your answers stay.")
            if person.last is None or self._over or not person.may_take_back:
                raise StaleError("Your last answer can't be taken back any more.")
            now = await self._assignment.take_back(person, person.last)
            return await self._next_turn(now)

    async def renew(self, token: str, question: str) -> None:
        """Note that a person's page is still open. Raises StaleError if the question is no longer
        theirs."""
        async with self._person(token) as person:
            _theirs(person, question)

    async def leave(self, token: str, question: str) -> None:
        """Give a question back: a person pauses."""
        async with self._person(token) as person:
            person.last_seen = NEVER
            if person.handed is not None and person.handed.lease == question:
                await self._assignment.give_back(person)

    # Inside

    async def _next_turn(self, person: PersonProgress) -> Turn:
        """What a person is to do now; a question is handed out if there is one for them."""
        assignment = self._assignment
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
            self._report()
        return Turn(
            name=person.person.name,
            question=None if person.handed is None else self._question(person.handed),
            why=why,
            done=person.done,
            expected=assignment.expected(person),
            left=len(assignment.matches),
            quota=person.person.quota,
            seconds=person.seconds,
            undo=person.may_take_back and not self._over,
        )

    def _question(self, handed: Handed) -> Question:
        match, texts = self._assignment.match(handed), self._questions.texts or ()
        return Question(handed.lease, match.kind, tuple(texts[item] for item in match.items))

    async def _keep(
        self,
        person: PersonProgress,
        handed: Handed,
        reply: str,
        verdict: Verdict | None,
        seconds: float = float("inf"),
    ) -> None:
        """Commit an answer, or a skip. `seconds`: how long it took, as the page says; at most the time
        since the question was handed out."""
        seconds = min(max(0.0, seconds), max(0.0, self._assignment.now() - handed.at))
        call = await self._assignment.settle(person, handed, reply, seconds, verdict)
        if call is not None:
            self._emit(CallEnded(call.outcome, call.usage, call.cost, seconds))

    def _report(self) -> None:
        """Report questions that nobody who is present may answer, if that is new."""
        absent = self._assignment.awaited()
        left = several(len(self._assignment.matches), "question")
        add = self._run.command("annotate add", positionals=["NAME"])
        show = self._run.command("show", "--write")
        text = (
            f"Nobody who is here may answer what is left ({left}). Waiting for "
            f"{listed(absent or ['a new judge'])}. To go on without: `{add}`, or Ctrl-C and `{show}`."
        )
        if absent is not None and text != self._reported:
            self._emit(Notice(text, warning=not absent))
            self._reported = text


def _theirs(person: PersonProgress, question: str) -> Handed:
    """The question that a person has. Raises StaleError if it isn't this one."""
    if person.handed is None or person.handed.lease != question:
        raise StaleError(STALE)
    return person.handed


# Answers as their calls keep them


def about_of(prompt: PromptSet) -> dict[str, Any]:
    """What a prompt set asks of people, for their page: a title, the feature, the question by kind
    ($count stands for the number of texts), guidelines in paragraphs, and whether texts may tie."""
    own = dict(prompt.people)
    words = {"pair": prompt.pair, "list": prompt.list, "direct": prompt.direct}
    return {
        "title": own.get("title", prompt.title) or prompt.name,
        "feature": prompt.feature,
        "questions": {kind: " ".join(own.get(kind, text).split()) for kind, text in words.items()},
        "guidelines": own.get("guidelines", prompt.system).strip(),
        "ties": prompt.ties,
    }


def reply_of(answer: Answer, k: int, lease: str) -> str:
    """An answer about k texts as a model would write it, and as its call keeps it. Raises
    BadAnswerError."""
    if k > 1 and sorted(answer.ranking) != list(range(k)):
        raise BadAnswerError(f"This is not an answer: rank {k} texts, each once.")
    if k == 1 and answer.score is None:
        raise BadAnswerError("This is not an answer: it has no score.")
    tied = (False, True) if k == 2 and answer.tied else ()
    verdict = Verdict(answer.ranking, tied, answer.score if k == 1 else None)
    return _kept(answer_of(verdict, labels(k).__getitem__), lease, answer.note)


def _kept(content: dict[str, Any], lease: str, note: str) -> str:
    noted = {"note": note.strip()[:LONGEST]} if note.strip() else {}
    return orjson.dumps(content | {"question": lease} | noted).decode()
