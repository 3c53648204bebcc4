"""People as judges, as a page and its server see them: the real ones, with a store of their own."""

import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from judgeq.judge.questions import Questions
from judgeq.people.answers import Answer, Turn
from judgeq.people.assignment import Assignment
from judgeq.people.people import People
from judgeq.prompts import PromptSet
from judgeq.store import Items
from judgeq.store.sqlite import SqliteStore
from judgeq.types import Matches
from judgeq.web.annotate import annotating
from judgeq.web.guard import Entrance
from tests.cli import query
from tests.judging import register

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
        """Whether Anna has a question."""
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
            await self.people.begin(len(self.questions))
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
