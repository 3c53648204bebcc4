from __future__ import annotations

import asyncio
from typing import cast

import pytest

from judgeq import prompts
from judgeq.engine.queue import Stop, drain
from judgeq.errors import JudgeError
from judgeq.events import CallEnded, Event, JobEnded, JobStarted
from judgeq.judge.backend import Request
from judgeq.judge.budget import Allowance, Budget
from judgeq.judge.judge import Judge
from judgeq.judge.questions import Questions
from judgeq.store import Store
from judgeq.types import JobState, Outcome
from tests.fakes import FakeBackend, FakeStore, in_order, opened, turns

TEXTS = ["first", "second"]


class Scene:
    """Workers over a store in memory and a scripted backend."""

    def __init__(self, store: FakeStore, backend: FakeBackend) -> None:
        self.store, self.backend, self.stop = store, backend, Stop()
        self.events: list[Event] = []
        questions = Questions(prompts.load("bias"), TEXTS)
        self.judge = Judge(
            questions, backend, self.events.append, self.stop.sleep, limiter=opened()
        )
        self.stop.calls(self.judge.limiter.abort)

    async def play(self, workers: int) -> None:
        store = cast("Store", self.store)
        await drain(store, self.judge, self.stop, self.events.append, workers)

    @property
    def states(self) -> dict[int, JobState]:
        return {outcome.job: outcome.state for outcome in self.store.outcomes}

    @property
    def asked(self) -> list[int]:
        return [request.match.id for request in self.backend.requests]


@pytest.mark.parametrize("workers", [1, 3, 20])
def test_workers_empty_the_queue(workers: int) -> None:
    scene = Scene(FakeStore(jobs=10), FakeBackend())
    asyncio.run(scene.play(workers))
    assert sorted(scene.asked) == list(range(10))
    assert scene.states == dict.fromkeys(range(10), JobState.DONE)
    for job in range(10):
        at = scene.events.index(JobStarted(job))
        assert scene.events.index(JobEnded(job, JobState.DONE)) > at
    assert sum(isinstance(event, CallEnded) for event in scene.events) == 10


def test_a_job_that_is_lost_is_neither_sent_nor_settled_nor_charged() -> None:
    store = FakeStore(jobs=6)
    store.lost = {1, 4}
    scene = Scene(store, FakeBackend())
    allowance = Allowance(10.0)
    scene.judge.budget = Budget(allowance)
    asyncio.run(scene.play(3))
    assert sorted(scene.asked) == [0, 2, 3, 5]
    assert scene.states == dict.fromkeys([0, 2, 3, 5], JobState.DONE)
    assert JobEnded(1, JobState.PENDING) in scene.events
    assert (allowance.spent, allowance.reserved) == (1_000_000_000, 0)
    assert scene.judge.limiter.in_flight == 0
    assert not scene.stop.asked


@pytest.mark.parametrize("error", [JudgeError("no such model"), ValueError("a bug")])
def test_an_error_of_one_stops_the_others_when_they_have_finished(error: Exception) -> None:
    async def story() -> None:
        failed = asyncio.Event()
        finished: list[int] = []

        async def fail(request: Request) -> str:
            await turns()
            failed.set()
            raise error

        async def finish(request: Request) -> str:
            await failed.wait()
            await turns()
            finished.append(request.match.id)
            return in_order(request.match)

        scene = Scene(FakeStore(jobs=9), FakeBackend(finish, fail, finish))
        with pytest.raises(type(error), match=str(error)):
            await scene.play(3)
        assert finished == [0, 2]
        assert scene.asked == [0, 1, 2]
        assert scene.states == {0: JobState.DONE, 1: JobState.PENDING, 2: JobState.DONE}
        assert JobEnded(1, JobState.PENDING) in scene.events
        assert scene.stop.asked
        assert len(scene.store.pending) == 6

    asyncio.run(story())


def test_a_stop_lets_those_in_flight_finish_and_sends_nothing_new() -> None:
    async def story() -> None:
        async def answer(request: Request) -> str:
            await turns()
            scene.stop.ask()
            await turns()
            return in_order(request.match)

        scene = Scene(FakeStore(jobs=5), FakeBackend(answer, answer))
        await scene.play(2)
        assert scene.states == {0: JobState.DONE, 1: JobState.DONE}
        assert len(scene.store.pending) == 3

    asyncio.run(story())


def test_a_job_claimed_and_not_sent_takes_its_attempt_back() -> None:
    async def story() -> None:
        scene = Scene(FakeStore(jobs=5), FakeBackend())
        scene.store.on_claim = scene.stop.ask
        await scene.play(2)
        assert scene.asked == []
        assert scene.events == []
        assert sorted(scene.store.outcomes) == [Outcome(job, JobState.PENDING) for job in (0, 1)]

    asyncio.run(story())


def test_cancelled_it_cancels_all_at_once() -> None:
    async def story() -> None:
        cancelled: list[int] = []

        async def hang(request: Request) -> str:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(request.match.id)
                raise
            return ""

        scene = Scene(FakeStore(jobs=5), FakeBackend(hang, hang, hang))
        playing = asyncio.create_task(scene.play(3))
        await turns()
        assert scene.asked == [0, 1, 2]
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        assert sorted(cancelled) == [0, 1, 2]
        assert scene.store.outcomes == []  # sent, and perhaps paid for: nothing is taken back
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(story())


def test_a_store_that_fails_ends_all() -> None:
    async def story() -> None:
        scene = Scene(FakeStore(jobs=50), FakeBackend())
        scene.store.fails["settle"] = OSError("disk full")
        with pytest.raises(OSError, match="disk full"):
            await asyncio.wait_for(scene.play(3), 10)
        assert len(scene.asked) == 3

    asyncio.run(story())
