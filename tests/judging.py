"""People who judge in tests: they answer by the gold labels with noise, through `People` alone."""

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from judgeq import config
from judgeq.engine import assembly, session
from judgeq.engine.interrupts import Interrupts
from judgeq.engine.results import Result
from judgeq.errors import StoppedError
from judgeq.people.answers import Answer, Question
from judgeq.people.people import People
from judgeq.people.registry import Change

N = 24


def dataset(folder: Path, n: int = N) -> Path:
    """A table of n texts whose gold is the number that they hold."""
    path = folder / "texts.csv"
    lines = [f"t{row},text number {row} of them,{row}" for row in range(n)]
    path.write_text("\n".join(["id,text,gold", *lines]) + "\n", encoding="utf-8")
    return path


def settings(folder: Path, **more: Any) -> config.Settings:
    """A run of people over that table."""
    given: dict[str, Any] = {
        "dataset": str(dataset(folder, more.pop("texts", N))),
        "gold_column": "gold",
        "judge": ("people",),
        "feature": "how large the number is",
        "strategy": "pairwise2",
    }
    return config.settle({**given, **more})


def number(text: str) -> int:
    """The gold of a text."""
    return int(text.split()[2])


def answered(question: Question, noise: Callable[[], float] = lambda: 0.0) -> Answer:
    """What somebody says who sees the gold through noise."""
    seen = [number(text) + noise() for text in question.texts]
    if question.kind == "direct":
        return Answer(score=min(1.0, max(0.0, seen[0] / 100)), seconds=1.0)
    return Answer(tuple(sorted(range(len(seen)), key=lambda at: -seen[at])), seconds=1.0)


async def judge(people: People, token: str, noise: float = 0.0, seed: int = 0) -> int:
    """Answer until all is over, or the quota is reached; how many answers it took."""
    chance, count = random.Random(seed), 0
    turn = await people.turn(token)
    while turn.why in ("", "wait"):
        if turn.question is None:
            await asyncio.sleep(0.01)
            turn = await people.turn(token)
            continue
        said = answered(turn.question, lambda: chance.gauss(0, noise))
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


def judged_by(
    names: Sequence[str], noise: float = 0.0, quota: int | None = None
) -> Callable[[People], AbstractAsyncContextManager[None]]:
    """A page on which people of these names judge all there is."""

    @asynccontextmanager
    async def page(people: People) -> AsyncIterator[None]:
        tokens = await register(people, names, quota)
        async with _beside(
            *(judge(people, token, noise, seed) for seed, token in enumerate(tokens))
        ):
            yield

    return page


def run(
    folder: Path, names: Sequence[str] = ("Ann", "Bob"), *, noise: float = 0.0, **more: Any
) -> Result:
    """The result of a run that these people judged."""
    prepared = session.prepare(settings(folder, **more), folder / "runs")
    return session.execute(prepared, lambda _: None, page=judged_by(names, noise))


def stopped(
    folder: Path, quota: int, names: Sequence[str] = ("Ann", "Bob"), **more: Any
) -> assembly.Run:
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
        session.execute(prepared, lambda _: None, page=page, interrupts=interrupts)
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
        async with _beside(_noting(people, ann, note)):
            yield

    prepared = session.prepare(settings(folder, **more), folder / "runs")
    return session.execute(prepared, lambda _: None, page=page)


async def _noting(people: People, token: str, note: str) -> None:
    turn = await people.turn(token)
    while turn.why in ("", "wait"):
        if turn.question is None:
            await asyncio.sleep(0.01)
            turn = await people.turn(token)
        else:
            answer = answered(turn.question)._replace(note=note)
            turn = await people.answer(token, turn.question.id, answer)
