"""People as judges, as a page and its server see them: questions in memory, handed out in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, cast

from judgeq.errors import BadAnswerError, StaleError, UnknownPersonError, UsageError
from judgeq.people.answers import (
    About,
    Answer,
    Question,
    Turn,
    Why,
)
from judgeq.people.people import People

Kind = Literal["pair", "list", "direct"]
ABOUT = About(
    title="Bias in the wording of news",
    feature="biased wording",
    questions={
        "pair": "Below are two texts. Which of them is worded with more bias?",
        "list": "Below are $count texts. Rank them by how biased their wording is.",
        "direct": "How biased is the wording of this text?",
    },
    guidelines="",
    ties=True,
)


class Taken(NamedTuple):
    """An answer, or a skip, as it was taken: whose, the number of the question, and what."""

    token: str
    question: int
    answer: Answer | str


@dataclass
class Person:
    """Somebody who judges; `held` is the question in their hands, by its number and lease."""

    name: str
    quota: int | None = None
    state: Why = ""
    held: str | None = None
    mine: list[int] = field(default_factory=list)
    undone: list[int] = field(default_factory=list)
    skipped: set[int] = field(default_factory=set)


@dataclass
class FakePeople:
    """Questions of these kinds and texts, each asked once. `before` is called with each call's name."""

    questions: list[tuple[Kind, tuple[str, ...]]]
    people: dict[str, Person] = field(default_factory=lambda: {"anna": Person("Anna")})
    about: About = ABOUT
    open_to_all: bool = False
    taken: list[Taken] = field(default_factory=list)
    before: Callable[[str], None] = lambda _: None
    calls: list[str] = field(default_factory=list)
    leases: int = 0
    last: dict[str, tuple[str, Answer]] = field(default_factory=dict)

    def _person(self, call: str, token: str) -> Person:
        self.calls.append(call)
        self.before(call)
        if token not in self.people:
            raise UnknownPersonError("This link isn't known here.")
        return self.people[token]

    def _free(self, person: Person) -> int | None:
        held = {_number(one.held) for one in self.people.values() if one.held is not None}
        done = {one.question for one in self.taken if isinstance(one.answer, Answer)}
        used = held | done | person.skipped
        waiting = [number for number in person.undone if number not in held]
        free = waiting or [n for n in range(len(self.questions)) if n not in used]
        return free[0] if free else None

    def _turn(self, token: str) -> Turn:
        person = self.people[token]
        why: Why = person.state
        if person.quota is not None and len(person.mine) >= person.quota and person.held is None:
            why = why or "quota"
        if not why and person.held is None:
            number = self._free(person)
            if number is None:
                done = {one.question for one in self.taken if isinstance(one.answer, Answer)}
                why = "over" if len(done) == len(self.questions) else "wait"
            else:
                self.leases += 1
                person.held = f"{number}-{self.leases}"
                person.undone = [one for one in person.undone if one != number]
        question = None
        if not why and person.held is not None:
            question = Question(person.held, *self.questions[_number(person.held)])
        return Turn(
            name=person.name,
            question=question,
            why=why,
            done=len(person.mine),
            expected=person.quota or len(self.questions),
            left=len(self.questions)
            - len([one for one in self.taken if isinstance(one.answer, Answer)]),
            quota=person.quota,
            seconds=sum(
                one.answer.seconds
                for one in self.taken
                if one.token == token and isinstance(one.answer, Answer)
            ),
            undo=bool(person.mine),
        )

    def _hold(self, token: str, question: str) -> int:
        if self.people[token].held != question:
            raise StaleError("This question was answered in another window.")
        return _number(question)

    async def knows(self, token: str) -> bool:
        return token in self.people

    async def turn(self, token: str, question: str | None = None) -> Turn:
        self._person("turn", token)
        return self._turn(token)

    async def answer(self, token: str, question: str, answer: Answer) -> Turn:
        person = self._person("answer", token)
        if self.last.get(token) == (question, answer):
            return self._turn(token)
        number = self._hold(token, question)
        kind, texts = self.questions[number]
        if kind != "direct" and sorted(answer.ranking) != list(range(len(texts))):
            raise BadAnswerError("This ranks other texts.")
        self.taken.append(Taken(token, number, answer))
        self.last[token] = (question, answer)
        person.held = None
        person.mine.append(number)
        return self._turn(token)

    async def skip(self, token: str, question: str, reason: str, note: str = "") -> Turn:
        person = self._person("skip", token)
        number = self._hold(token, question)
        self.taken.append(Taken(token, number, f"{reason}: {note}"))
        person.held = None
        person.skipped.add(number)
        return self._turn(token)

    async def undo(self, token: str) -> Turn:
        person = self._person("undo", token)
        if not person.mine:
            raise StaleError("There is nothing to take back.")
        number = person.mine.pop()
        self.taken = [one for one in self.taken if (one.token, one.question) != (token, number)]
        person.held = None
        person.undone = [number]
        return self._turn(token)

    async def renew(self, token: str, question: str) -> None:
        self._person("renew", token)
        self._hold(token, question)

    async def leave(self, token: str, question: str) -> None:
        person = self._person("leave", token)
        self._hold(token, question)
        person.held = None

    async def join(self, name: str) -> str:
        self.calls.append("join")
        if name in {person.name for person in self.people.values()}:
            raise UsageError(f"The name {name} is taken. Give another.")
        token = f"token{len(self.people)}"
        self.people[token] = Person(name)
        return token

    @property
    def answers(self) -> list[Answer | str]:
        """What was taken, in order."""
        return [one.answer for one in self.taken]


def as_people(people: FakePeople) -> People:
    """As a server takes them."""
    return cast(People, people)


def asking(*kinds: Kind, texts: Mapping[Kind, tuple[str, ...]] | None = None) -> FakePeople:
    """Questions of these kinds, one after the other."""
    shown = texts or {}
    defaults: dict[Kind, tuple[str, ...]] = {
        "pair": ("left", "right"),
        "list": ("alpha", "beta", "gamma", "delta"),
        "direct": ("alone",),
    }
    return FakePeople(
        [
            (kind, tuple(f"{text} {number}" for text in shown.get(kind, defaults[kind])))
            for number, kind in enumerate(kinds)
        ]
    )


def _number(question: str) -> int:
    return int(question.partition("-")[0])
