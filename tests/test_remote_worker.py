"""A worker process over a store's runs: what it works on, how long it goes on, how it is stopped."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from judgeq import config
from judgeq.engine import remote_worker, session
from judgeq.engine.assembly import Run, Session
from judgeq.engine.interrupts import Stop
from judgeq.engine.remote_worker import LONGEST, PATIENCE, SHORTEST, StoreRuns, Worker
from judgeq.errors import JudgeError, JudgeqError, RunError, StoppedError, UsageError
from judgeq.events import Event, Notice
from judgeq.judge.backend import Request
from judgeq.judge.judge import Judge
from judgeq.judge.panel import Panel
from judgeq.judge.questions import Questions
from judgeq.run_places import RunFolder
from judgeq.store import Store
from judgeq.store.protocol import Prospect
from judgeq.types import Job, JobState, Match
from tests.fakes import Clock, FakeBackend, FakeStore, opened, turns

pytestmark = pytest.mark.usefixtures("rated_by_elo")


class FakeRuns:
    """Runs of a store in memory, each with a backend of its own."""

    def __init__(self, root: Path) -> None:
        small = {"dataset": "synthetic:normal", "n": 4, "strategy": "pairwise", "concurrency": 3}
        self.made = session.prepare(config.settle(small), root)
        self.stores: dict[str, FakeStore] = {}
        self.backends: dict[str, FakeBackend] = {}
        self.over: set[str] = set()
        self.refused: dict[str, JudgeqError] = {}
        self.unopened: dict[str, JudgeqError] = {}
        self.looks: list[Callable[[], object]] = []
        self.exhausted = False
        self.named: list[str] = []

    def add(self, name: str, jobs: int, *answers: Any, refused: str = "") -> None:
        self.stores[name] = FakeStore(jobs)
        self.backends[name] = FakeBackend(*answers)
        if refused:
            self.refused[name] = UsageError(refused)

    def looked(self, *looks: tuple[int, Callable[[], object]]) -> None:
        """Have these done at a look each, after so many at which nothing is."""
        for times, done in looks:
            self.looks += [lambda: None] * times + [done]

    async def prospects(self) -> Sequence[Prospect]:
        if self.looks:
            self.looks.pop(0)()
        return [
            Prospect(name, "f", bool(self.stores[name].pending), False, 1, False)
            for name in self.named or self.stores
            if name not in self.over
        ]

    async def admit(self, name: str) -> Run:
        if name in self.refused:
            raise self.refused[name]
        return replace(self.made, folder=RunFolder(Path(name)))

    @asynccontextmanager
    async def open(
        self, run: Run, stop: Stop, emit: Callable[[Event], None]
    ) -> AsyncIterator[Session]:
        if run.folder.id in self.unopened:
            raise self.unopened[run.folder.id]
        judge = Judge(Questions(), self.backends[run.folder.id], emit, stop.sleep, opened())
        stop.calls(judge.limiter.abort)
        panel = Panel([judge], "fake")
        yield Session(run, cast("Store", self.stores[run.folder.id]), panel, stop, emit)


class Scene:
    def __init__(self, tmp_path: Path, *names: str, **how: Any) -> None:
        self.runs, self.stop, self.clock = FakeRuns(tmp_path), Stop(), Clock()
        self.runs.named = list(names)
        self.events: list[Event] = []
        self.worker = Worker(
            cast("StoreRuns", self.runs),
            self.stop,
            self.events.append,
            **how,
            clock=self.clock,
            sleep=self.sleep,
            draw=lambda least, most: most,
        )

    async def sleep(self, seconds: float) -> None:
        await turns()
        await self.clock.sleep(seconds)
        if self.stop.asked:
            raise StoppedError("stopped")

    def go_on(self) -> None:
        asyncio.run(self.worker.go_on())

    @property
    def waited(self) -> float:
        return sum(self.clock.slept)

    @property
    def warnings(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Notice)]

    def done(self, name: str) -> list[int]:
        outcomes = self.runs.stores[name].outcomes
        return sorted(one.job for one in outcomes if one.state is JobState.DONE)


def test_a_worker_takes_the_jobs_of_all_runs_the_first_ones_first(tmp_path: Path) -> None:
    scene = Scene(tmp_path, exit_when="idle")
    scene.runs.add("a", 5)
    scene.runs.add("b", 0)
    scene.runs.add("c", 4)
    scene.go_on()
    assert (scene.done("a"), scene.done("c")) == ([*range(5)], [*range(4)])
    assert scene.worker.tally.runs == ["a", "c"]
    assert (scene.worker.tally.done, scene.worker.tally.calls) == (9, 9)
    assert scene.worker.tally.cost == pytest.approx(9 * 0.25)


def test_it_waits_for_the_next_round_until_the_run_is_over(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", exit_when="done")
    scene.runs.add("a", 2)
    scene.runs.add("not named", 1)

    def next_round() -> None:
        scene.runs.stores["a"].pending.append(Job(Match(2, 2, (1, 0))))

    scene.runs.looked((8, next_round), (3, lambda: scene.runs.over.add("a")))
    scene.go_on()
    assert scene.done("a") == [0, 1, 2]
    assert not scene.done("not named")
    pauses = [min(LONGEST, SHORTEST * 1.5**look) for look in range(1, 8)]
    assert scene.clock.slept[:7] == pytest.approx(pauses)  # more and more seldom
    assert scene.clock.slept.count(SHORTEST * 1.5) == 2  # and often again after there was work


def test_it_looks_for_a_run_that_begins_a_little_later(tmp_path: Path) -> None:
    late = Scene(tmp_path, exit_when="done")
    late.runs.add("before", 0)
    late.runs.over.add("before")
    late.runs.add("strange", 1, refused="run strange asks gpt")
    late.runs.looked((9, lambda: late.runs.add("a", 2)), (3, lambda: late.runs.over.add("a")))
    late.go_on()
    assert late.done("a") == [0, 1]
    assert all("it looks for one for 60 s" in text for text in late.warnings[1:])
    assert "it looks for one" not in late.warnings[0]
    in_vain = Scene(tmp_path, exit_when="done")
    in_vain.go_on()
    assert PATIENCE <= in_vain.waited <= PATIENCE + LONGEST
    named = Scene(tmp_path, "a", exit_when="done")
    named.runs.add("a", 0)
    named.runs.over.add("a")
    named.go_on()
    assert not named.clock.slept


def test_what_it_may_not_work_on_is_reported_once_and_left_alone(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.runs.add("strange", 1, refused="run strange asks gpt: --judge gpt")
    scene.runs.add("a", 1)
    scene.runs.looked((3, lambda: scene.runs.over.add("a")), (200, scene.stop.ask))
    with pytest.raises(StoppedError):
        scene.go_on()
    assert scene.warnings == ["run strange asks gpt: --judge gpt"]
    assert scene.done("a") == [0]
    assert not scene.runs.stores["strange"].done


def test_a_worker_that_may_work_on_nothing_ends_with_the_reason(tmp_path: Path) -> None:
    """Also one that was to wait for work for ever: it would never say so again."""
    scene = Scene(tmp_path)
    scene.runs.add("strange", 1, refused="run strange asks gpt at another address")
    with pytest.raises(UsageError, match="at another address"):
        scene.go_on()
    assert PATIENCE <= scene.waited <= PATIENCE + LONGEST  # another may begin meanwhile
    late = Scene(tmp_path)  # others did it meanwhile
    late.runs.add("strange", 1, refused="run strange asks gpt at another address")
    late.runs.looked((3, lambda: late.runs.over.add("strange")), (200, late.stop.ask))
    with pytest.raises(UsageError, match="at another address"):
        late.go_on()


def test_an_error_of_one_run_gives_its_jobs_back_and_sets_it_aside(tmp_path: Path) -> None:
    scene = Scene(tmp_path, exit_when="done")
    scene.runs.add("bad", 9, JudgeError("no such model"))
    scene.runs.add("a", 2)
    scene.runs.looked((5, lambda: scene.runs.over.add("a")))
    with pytest.raises(JudgeError, match="no such model"):
        scene.go_on()
    assert scene.done("a") == [0, 1]
    assert scene.warnings == ["no such model"]
    states = {outcome.job: outcome.state for outcome in scene.runs.stores["bad"].outcomes}
    assert states[0] is JobState.PENDING


def test_nothing_is_asked_about_items_that_are_not_there(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    scene.runs.add("a", 2)
    scene.runs.stores["a"].items = 5
    with pytest.raises(RunError, match="run a in the store has other texts than this worker"):
        scene.go_on()
    assert not scene.runs.backends["a"].requests


def test_a_store_that_is_away_is_waited_for(tmp_path: Path) -> None:
    scene = Scene(tmp_path, exit_when="idle")
    scene.runs.add("a", 1)

    def away() -> None:
        raise RunError("the store can't be used: connection refused")

    scene.runs.looks = [away, away]
    scene.go_on()
    assert scene.done("a") == [0]
    assert scene.warnings == ["the store can't be used: connection refused It is tried again."]
    wrong = Scene(tmp_path)
    wrong.runs.looks = [away] * 100
    with pytest.raises(RunError, match="connection refused"):
        wrong.go_on()
    assert PATIENCE <= wrong.waited <= PATIENCE + LONGEST

    later = Scene(tmp_path)
    later.runs.looks = [lambda: None, *[away] * 100, later.stop.ask]
    with pytest.raises(StoppedError):
        later.go_on()


async def test_it_leaves_in_time_before_its_hours_are_over(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    start, asked_at = scene.clock(), 0.0

    def asked() -> None:
        nonlocal asked_at
        asked_at = scene.clock() - start

    async def sleep(seconds: float) -> None:
        await scene.clock.sleep(seconds)
        if scene.clock() - start > 5000:  # the first calls take long to come back
            scene.worker.tally.slowest = 300.0

    scene.stop.calls(asked)
    work = (scene.worker, scene.stop, scene.events.append)
    await remote_worker.within(2.0, *work, clock=scene.clock, sleep=sleep)
    # A call that begins now would end too late.
    assert asked_at == 7200 - remote_worker.MARGIN - 300
    assert scene.warnings == ["--max-hours 2 are nearly over: this worker left in time."]


def test_calls_in_flight_are_given_up_when_its_hours_are_over(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def never(request: Request) -> str:
        await asyncio.Event().wait()
        return ""

    scene.runs.add("a", 3, never, never, never)
    hour = remote_worker.within(1e-5, scene.worker, scene.stop, scene.events.append)
    asyncio.run(hour)  # 36 ms
    (notice,) = scene.warnings
    assert notice.startswith("--max-hours 1e-05 are over. Calls in flight were given up")
    assert not scene.done("a")
