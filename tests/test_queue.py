"""The queue of one process: its commits in groups; and the workers that empty it."""

import asyncio
import gc
import re
from types import SimpleNamespace
from typing import Any, cast

import pytest

from judgeq import prompts
from judgeq.engine.assembly import Run, Session
from judgeq.engine.interrupts import Stop
from judgeq.engine.queue import FEW, INTERVAL, Queue, drain
from judgeq.errors import JobLostError, JudgeError, RunError, StoreAwayError
from judgeq.events import CallEnded, Event, JobEnded, JobStarted
from judgeq.judge.backend import Request
from judgeq.judge.budget import Allowance, Budget
from judgeq.judge.judge import Judge
from judgeq.judge.panel import Panel
from judgeq.judge.questions import Questions
from judgeq.store import Store
from judgeq.types import Attempt, Job, JobState, Outcome, Verdict
from tests.fakes import Clock, FakeBackend, FakeStore, in_order, opened, turns


def queue_of(store: FakeStore, stop: Stop | None = None, clock: Clock | None = None) -> Queue:
    clock = clock or Clock()
    return Queue(cast("Store", store), "me", stop or Stop(), clock=clock, sleep=clock.sleep)


def done(job: Job) -> Outcome:
    return Outcome(job.match.id, JobState.DONE, Verdict(job.match.items))


async def wanted(queue: Queue) -> Job:
    job = await queue.get()
    assert job is not None
    return job


async def test_one_turn_is_one_claim_and_one_settle() -> None:
    store = FakeStore(jobs=50)
    async with queue_of(store) as queue:
        jobs = await asyncio.gather(*(wanted(queue) for _ in range(50)))
        assert sorted(job.match.id for job in jobs) == list(range(50))
        for job in jobs:
            queue.settle(done(job))
        assert await queue.get() is None
    every = list(range(50))
    assert store.done == [("claim", [50]), ("settle", every), ("claim", [1])]


async def test_where_others_work_only_what_can_soon_be_begun_is_claimed() -> None:
    """So that a worker that must wait for its limits, or for the server, leaves the rest to others."""

    clock, store = Clock(), FakeStore(jobs=300)
    store.keeper, running = object(), list[int]()
    paced = asyncio.Semaphore(0)  # one call for each release

    async def work() -> None:
        while (job := await queue.get()) is not None:
            await paced.acquire()
            await queue.begin(Attempt(job.match.id, 0.5))
            running.append(job.match.id)

    def held() -> int:
        return 300 - len(store.pending) - len(running)

    shared = cast("Store", store)
    async with Queue(shared, "me", Stop(), clock=clock, sleep=clock.sleep) as queue:
        workers = [asyncio.create_task(work()) for _ in range(64)]
        await turns()
        assert held() == FEW
        for count in range(1, 6):  # one a second
            clock.now += 1.0
            paced.release()
            await turns()
            assert len(running) == count
            assert FEW <= held() <= 2 * FEW
        for _ in range(59):  # as fast as can be: then it takes all that it has workers for
            paced.release()
        await turns(200)
        assert len(running) == 64
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


async def test_a_job_for_a_worker_that_was_cancelled_meanwhile_is_given_back() -> None:
    store = FakeStore(jobs=1)
    store.gates["claim"] = gate = asyncio.Event()
    async with queue_of(store) as queue:
        gone = asyncio.create_task(queue.get())
        await turns()
        gone.cancel()
        await turns()
        gate.set()
        await turns()
    assert store.outcomes == [Outcome(0, JobState.PENDING)]


async def test_answers_that_pour_in_share_a_commit() -> None:
    """While workers are busy, a commit waits until INTERVAL has passed since the one before."""

    clock = Clock()
    store = FakeStore(jobs=3)
    slept: list[float] = []
    awake = asyncio.Event()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await awake.wait()

    async with Queue(cast("Store", store), "me", Stop(), clock=clock, sleep=sleep) as queue:
        jobs = await asyncio.gather(*(wanted(queue) for _ in range(3)))
        assert slept == []  # the first at once
        clock.now += INTERVAL / 4
        for job in jobs[:2]:  # in two turns
            queue.settle(done(job))
            await turns()
        assert slept == [pytest.approx(INTERVAL * 3 / 4)]
        assert store.outcomes == []
        awake.set()
        await turns()
        assert store.done[-1] == ("settle", [0, 1])

        clock.now += 2 * INTERVAL  # a while later: at once
        queue.settle(Outcome(2, JobState.RUNNING))
        await turns()
        assert store.done[-1] == ("settle", [2])
        assert len(slept) == 1


async def test_left_while_the_pump_sleeps_it_ends() -> None:
    """An error or a stop may come just when answers are being gathered."""
    asleep, wake, clock = asyncio.Event(), asyncio.Event(), Clock()

    async def sleep(seconds: float) -> None:
        asleep.set()
        await wake.wait()

    store = cast("Store", FakeStore(jobs=2))
    async with asyncio.timeout(5), Queue(store, "me", Stop(), clock=clock, sleep=sleep) as queue:
        one, _ = await asyncio.gather(wanted(queue), wanted(queue))
        queue.settle(done(one))  # the other one isn't answered: that is waited for
        await asleep.wait()
        asyncio.get_running_loop().call_soon(wake.set)


async def test_begin_returns_when_it_is_committed() -> None:
    store = FakeStore(jobs=2)
    store.gates["begin"] = gate = asyncio.Event()
    async with queue_of(store) as queue:
        jobs = await asyncio.gather(wanted(queue), wanted(queue))
        begun = [asyncio.create_task(queue.begin(Attempt(job.match.id))) for job in jobs]
        await turns()
        assert not any(task.done() for task in begun)
        gate.set()
        await asyncio.gather(*begun)
        assert store.done[-1] == ("begin", [0, 1])


async def test_outcomes_go_before_retries_and_claims() -> None:
    """A note that an attempt failed must be there before the next attempt is."""

    store = FakeStore(jobs=2)
    async with queue_of(store) as queue:
        job = await wanted(queue)
        queue.settle(Outcome(job.match.id, JobState.RUNNING))
        await asyncio.gather(queue.begin(Attempt(job.match.id)), queue.get())
    assert store.done[1:] == [("settle", [0]), ("begin", [0]), ("claim", [1])]


@pytest.mark.parametrize("operation", ["settle", "begin", "claim"])
async def test_a_commit_that_has_begun_is_let_finish_whoever_is_cancelled(operation: str) -> None:
    """A store may wait for another machine: what it is committing must neither be lost nor repeated."""
    store, held, gate = FakeStore(jobs=3), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        async with queue_of(store) as queue:
            job = await wanted(queue)
            store.gates[operation] = gate
            queue.settle(Outcome(job.match.id, JobState.RUNNING))
            waiting: list[asyncio.Task[Any]] = [asyncio.create_task(queue.get())]
            if operation == "begin":
                waiting.append(asyncio.create_task(queue.begin(Attempt(job.match.id))))
            await turns()
            queue.settle(done(job))  # while the commit goes on
            held.set()
            try:
                await asyncio.Event().wait()
            finally:
                for task in waiting:
                    task.cancel()

    working = asyncio.create_task(work())
    await held.wait()
    for _ in range(2):  # also while it is being left
        working.cancel()
        await turns()
        assert not working.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await working
    states = [outcome.state for outcome in store.outcomes if outcome.job == 0]
    assert states == [JobState.RUNNING, JobState.DONE]
    begun = [what for kind, what in store.done if kind == "begin"]
    assert begun == ([[0]] if operation == "begin" else [])
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("error", [RunError("disk full"), ValueError("a bug")])
@pytest.mark.parametrize("operation", ["settle", "begin", "claim"])
def test_all_who_wait_are_told_and_all_who_come(operation: str, error: Exception) -> None:
    async def story() -> None:
        store = FakeStore(jobs=9)
        async with queue_of(store) as queue:
            job = await wanted(queue)
            store.fails[operation] = error
            queue.settle(Outcome(job.match.id, JobState.RUNNING))
            waiting = [queue.get(), queue.get()]
            if operation != "claim":
                waiting.append(queue.begin(Attempt(job.match.id)))
            async with asyncio.timeout(10):
                told = await asyncio.gather(*waiting, return_exceptions=True)
            assert told == [error] * len(waiting)
            store.fails.clear()
            before = list(store.done)
            for late in (queue.get(), queue.begin(Attempt(0))):
                with pytest.raises(type(error), match=re.escape(str(error))):
                    await late
            assert store.done == before  # nothing is tried again

    with pytest.raises(type(error), match=re.escape(str(error))):
        asyncio.run(story())


def test_an_error_of_the_store_is_raised_once_and_never_logged_as_unretrieved() -> None:
    """asyncio logs, with a traceback, each exception of a task that nobody asked for."""
    unretrieved: list[str] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unretrieved.append(context["message"]))
        store = FakeStore(jobs=9)
        async with queue_of(store) as queue:
            job = await wanted(queue)
            store.fails["settle"] = RunError("disk full")
            queue.settle(done(job))
            await queue.get()

    with pytest.raises(RunError, match="disk full"):
        asyncio.run(story())
    gc.collect()
    assert unretrieved == []


async def test_a_job_that_was_lost_and_is_claimed_again_at_once_is_handed_out() -> None:
    """It was taken for one that is still worked on, and nobody worked on it."""

    store = FakeStore(1)
    async with queue_of(store) as jobs:
        job = await wanted(jobs)
        store.lost = {0}
        store.pending.append(job)  # as the store has it once its begin is refused
        both = (jobs.begin(Attempt(0, 0.5)), jobs.get())
        begun, again = await asyncio.gather(*both, return_exceptions=True)
        assert isinstance(begun, JobLostError)
        assert again == job


@pytest.mark.parametrize("lost", [set(), {2}])
async def test_what_may_not_have_been_committed_is_sent_again(lost: set[int]) -> None:
    store = FakeStore(jobs=5)
    async with queue_of(store) as queue:
        jobs = [await wanted(queue) for _ in range(3)]
        store.fails["commit"] = StoreAwayError("gone")
        store.gates["again"] = back = asyncio.Event()
        begun = [asyncio.create_task(queue.begin(Attempt(n))) for n in (1, 2)]
        waiting = asyncio.create_task(queue.get())
        queue.settle(done(jobs[0]))
        await turns()
        queue.settle(done(jobs[1]))  # meanwhile
        del store.fails["commit"]
        store.lost = lost  # meanwhile
        back.set()
        job = await waiting
        assert job is not None
        results = await asyncio.gather(*begun, return_exceptions=True)
        assert [isinstance(result, JobLostError) for result in results] == [False, bool(lost)]
        settled, begun_jobs = (
            [what for operation, what in store.done if operation == kind]
            for kind in ("settle", "begin")
        )
        assert (settled, begun_jobs) == ([[0], [0], [1]], [[1, 2], [1, 2]])


TEXTS = ["first", "second"]


class Scene:
    """Workers over a store in memory and a scripted backend."""

    def __init__(self, store: FakeStore, backend: FakeBackend) -> None:
        self.store, self.backend, self.stop = store, backend, Stop()
        self.events: list[Event] = []
        asked = Questions(prompts.load("bias"), TEXTS)
        self.judge = Judge(asked, backend, self.events.append, self.stop.sleep, limiter=opened())
        self.stop.calls(self.judge.limiter.abort)

    async def play(self, workers: int) -> None:
        settings = SimpleNamespace(concurrency=workers, models=("m",))
        run = cast("Run", SimpleNamespace(settings=settings))
        store, panel = cast("Store", self.store), Panel([self.judge], "fake")
        await drain(Session(run, store, panel, self.stop, self.events.append))

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
async def test_an_error_of_one_stops_the_others_when_they_have_finished(error: Exception) -> None:
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


async def test_a_stop_lets_those_in_flight_finish_and_sends_nothing_new() -> None:
    async def answer(request: Request) -> str:
        await turns()
        scene.stop.ask()
        await turns()
        return in_order(request.match)

    scene = Scene(FakeStore(jobs=5), FakeBackend(answer, answer))
    await scene.play(2)
    assert scene.states == {0: JobState.DONE, 1: JobState.DONE}
    assert len(scene.store.pending) == 3


async def test_cancelled_it_cancels_all_at_once() -> None:
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
