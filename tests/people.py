"""People as judges: those who answer by the gold labels with noise, through `People` alone; and as a
page and its server see them, with a store of their own."""

import asyncio
import json
import random
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from judgeq import config
from judgeq.engine import session
from judgeq.engine.assembly import Run
from judgeq.engine.interrupts import Interrupts
from judgeq.engine.results import Result
from judgeq.errors import StoppedError
from judgeq.judge.questions import Questions
from judgeq.people.assignment import Assignment
from judgeq.people.people import Answer, People, Question, Turn
from judgeq.people.registry import Change
from judgeq.prompts import PromptSet
from judgeq.store import Items
from judgeq.store.sqlite import SqliteStore
from judgeq.types import Matches
from judgeq.web.annotate import annotating
from judgeq.web.guard import Entrance
from tests.cli import query

N = 24


def dataset(folder: Path, n: int = N) -> Path:
    """A table of n texts whose gold is the number that they hold."""
    path = folder / "texts.csv"
    lines = [f"t{row},text number {row} of them,{row}" for row in range(n)]
    path.write_text("\n".join(["id,text,gold", *lines]) + "\n", encoding="utf-8")
    return path


def settings(folder: Path, **more: Any) -> config.Settings:
    """A run of people over that table."""
    table = {"dataset": str(dataset(folder, more.pop("texts", N))), "gold_column": "gold"}
    asked = {"feature": "how large the number is", "strategy": "pairwise2", "judge": ("people",)}
    return config.settle({**table, **asked, **more})


def number(text: str) -> int:
    """The gold of a text."""
    return int(text.split()[2])


def answered(question: Question, noise: Callable[[], float] = lambda: 0.0) -> Answer:
    """What somebody says who sees the gold through noise."""
    seen = [number(text) + noise() for text in question.texts]
    if question.kind == "direct":
        return Answer(score=min(1.0, max(0.0, seen[0] / 100)), seconds=1.0)
    return Answer(tuple(sorted(range(len(seen)), key=lambda at: -seen[at])), seconds=1.0)


async def judge(
    people: People,
    token: str,
    noise: float = 0.0,
    seed: int = 0,
    note: str = "",
    waits: bool = True,
) -> int:
    """Answer until all is over or the quota is reached, or, of somebody who doesn't wait, there is no
    question; how many answers it took."""
    chance, count = random.Random(seed), 0
    turn = await people.turn(token)
    while turn.why == "" or (waits and turn.why == "wait"):
        if turn.question is None:
            await asyncio.sleep(0.01)
            turn = await people.turn(token)
            continue
        said = answered(turn.question, lambda: chance.gauss(0, noise))._replace(note=note)
        turn = await people.answer(token, turn.question.id, said)
        count += 1
        await asyncio.sleep(0)
    return count


async def register(people: People, names: Sequence[str], quota: int | None = None) -> list[str]:
    """Add people; their tokens."""
    return [one.link or "" for one in await people.change(Change("add", tuple(names), quota))]


@asynccontextmanager
async def _beside(*work: Coroutine[Any, Any, Any]) -> AsyncIterator[None]:
    """While inside, people are at work; it is left when they have done it."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        yield
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


Page: TypeAlias = Callable[[People], AbstractAsyncContextManager[None]]


def judged_by(names: Sequence[str], noise: float = 0.0, quota: int | None = None) -> Page:
    """A page on which people of these names judge all there is."""

    @asynccontextmanager
    async def page(people: People) -> AsyncIterator[None]:
        tokens = await register(people, names, quota)
        work = (judge(people, token, noise, seed) for seed, token in enumerate(tokens))
        async with _beside(*work):
            yield

    return page


def executed(prepared: Run, page: Page, interrupts: Interrupts | None = None) -> Result:
    return session.execute(prepared, lambda _: None, page=page, interrupts=interrupts)


def run(
    folder: Path, names: Sequence[str] = ("Ann", "Bob"), *, noise: float = 0.0, **more: Any
) -> Result:
    """The result of a run that these people judged."""
    prepared = session.prepare(settings(folder, **more), folder / "runs")
    return executed(prepared, judged_by(names, noise))


def stopped(folder: Path, quota: int, names: Sequence[str] = ("Ann", "Bob"), **more: Any) -> Run:
    """A run that was stopped when these people had answered so many questions each."""
    prepared = session.prepare(settings(folder, **more), folder / "runs")
    interrupts = Interrupts()

    @asynccontextmanager
    async def page(people: People) -> AsyncIterator[None]:
        for seed, token in enumerate(await register(people, names, quota)):
            await judge(people, token, seed=seed)
        interrupts.append(signal.SIGINT)
        yield

    with suppress(StoppedError):
        executed(prepared, page, interrupts)
    return prepared


def remarked(folder: Path, note: str, reason: str, **more: Any) -> Result:
    """The result of a run of which one person noted something at each answer, after the other had
    skipped the first question, for that reason."""

    @asynccontextmanager
    async def page(people: People) -> AsyncIterator[None]:
        ann, bob = await register(people, ["Ann", "Bob"])
        first = await people.turn(bob)
        assert first.question is not None
        after = await people.skip(bob, first.question.id, reason, note)
        if after.question is not None:
            await people.leave(bob, after.question.id)
        async with _beside(judge(people, ann, note=note)):
            yield

    return executed(session.prepare(settings(folder, **more), folder / "runs"), page)


# As a page sees them

PROMPT = PromptSet(
    name="bias",
    title="Bias in the wording of news",
    feature="biased wording",
    ties=True,
    system="-",
    pair="Below are two texts. Which of them is worded with more bias?",
    list="Below are $count texts. Rank them by how biased their wording is.",
    direct="How biased is the wording of this text?",
).model_copy(update={"people": (("guidelines", ""),)})  # of which no dialog is opened
TEXTS = {"pair": ("left", "right"), "list": ("alpha", "beta", "gamma", "delta"), "direct": ("one",)}


class Hurried(People):
    """People whose run is over with the last answer, where a runner sees to that a moment later."""

    async def answer(self, token: str, question: str, answer: Answer) -> Turn:
        turn = await super().answer(token, question, answer)
        return await self.turn(token) if turn.why == "wait" and await self.close() else turn


@dataclass
class Study:
    """Questions, one after the other, that Anna is asked, or whoever has these names."""

    folder: Path
    questions: Sequence[tuple[str, ...]]
    prompt: PromptSet = PROMPT
    open_to_all: bool = False
    names: Sequence[str] = ("Anna",)
    quota: int | None = None
    ahead: float = 0.0
    """Seconds by which the server's clock is ahead."""
    tokens: dict[str, str] = field(default_factory=dict)
    people: People | None = None

    @property
    def anna(self) -> str:
        return self.tokens["Anna"]

    @property
    def is_asked(self) -> bool:
        assert self.people is not None
        return self.people._assignment.people[0].handed is not None

    def kept(self) -> list[dict[str, Any]]:
        """The answers and skips that the store has, as replies."""
        sql = "SELECT reply FROM calls WHERE outcome IN ('ok', 'skipped') ORDER BY at"
        replies = [json.loads(str(reply)) for (reply,) in query(self.folder, sql)]
        return [{name: each[name] for name in each if name != "question"} for each in replies]

    @asynccontextmanager
    async def served(self, port: int = 0, **how: Any) -> AsyncIterator[Entrance]:
        """Its page, while inside; it may be opened again."""
        self.folder.mkdir(exist_ok=True)
        store = SqliteStore(self.folder / "run.db")
        try:
            texts = [text for question in self.questions for text in question]
            if not self.tokens:
                await self._plan(store, len(texts))
            assignment = Assignment(
                store, open_to_all=self.open_to_all, now=lambda: time.time() + self.ahead
            )
            self.people = Hurried(Questions(self.prompt, texts), assignment)
            if not self.tokens:
                given = await register(self.people, self.names, self.quota)
                self.tokens = dict(zip(self.names, given, strict=True))
            host = how.pop("host", "127.0.0.1")
            async with annotating(self.people, host, port, **how) as entrance:
                yield entrance
        finally:
            await store.close()

    async def _plan(self, store: SqliteStore, n: int) -> None:
        """A round each, so that they are asked in this order."""
        await store.set_items(Items([f"t{row}" for row in range(n)], None, {}))
        epoch, row = await store.lead("us", 60), 0
        for number, question in enumerate(self.questions, 1):
            items = np.arange(row, row := row + len(question), dtype=np.int32)
            matches = Matches(items, np.array([0, len(question)]))
            await store.plan_round(number, epoch, np.ones(n, dtype=np.bool_), matches)


def asking(
    folder: Path, *kinds: str, texts: Mapping[str, tuple[str, ...]] | None = None, **how: Any
) -> Study:
    """A study of questions of these kinds, whose texts end in the question's number."""
    words = TEXTS | dict(texts or {})
    questions = [tuple(f"{text} {at}" for text in words[kind]) for at, kind in enumerate(kinds)]
    return Study(folder, questions, **how)
