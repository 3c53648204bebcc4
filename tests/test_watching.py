"""A run that another process works on is watched from its ledger alone."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from filelock import FileLock

from judgeq import api, config
from judgeq.engine import session
from judgeq.engine.watching import EVERY, QUIET, Watch
from judgeq.errors import RunError
from judgeq.events import EndedEarly, Event, Looked, Notice, RoundRated, RunStarted
from judgeq.runs import RunPlace
from judgeq.store import schema
from judgeq.types import Counts, Failure, Totals, Usage
from judgeq.ui.dashboard import Dashboard, PlainLines
from tests.cli import judgeq, start
from tests.fakes import Clock
from tests.postgres import new_store
from tests.test_dashboard import log, picture, terminal, written

JOBS = 24
"""A round of the demo's 240 items has so many lists."""


@dataclass
class Other:
    """Another process that works on a run: what it does while the watcher sleeps. The run was finished
    before, and is played again from a copy of its database."""

    run: RunPlace
    steps: list[Callable[[], object]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)
    lock: FileLock | None = None

    def begin(self) -> None:
        shutil.copy(self.run.ledger, f"{self.run.ledger}.whole")
        with self.database() as db:
            for table in ("rounds", "jobs", "verdicts", "calls", "totals"):
                db.execute(f"DELETE FROM {table}")

    @contextmanager
    def database(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.run.ledger, isolation_level=None)) as db:
            yield db

    def hold(self) -> None:
        self.lock = FileLock(self.run.path / "lock")
        self.lock.acquire(timeout=0)

    def let_go(self) -> None:
        assert self.lock is not None
        self.lock.release()

    def plan(self, round: int) -> None:
        """Plan a round, none of whose jobs is done."""
        first = JOBS * (round - 1)
        with self.database() as db:
            db.execute("ATTACH ? AS whole", (f"{self.run.ledger}.whole",))
            db.execute("BEGIN IMMEDIATE")
            db.execute("INSERT INTO rounds SELECT * FROM whole.rounds WHERE round = ?", (round,))
            db.execute(
                "INSERT INTO jobs SELECT * FROM whole.jobs WHERE id BETWEEN ? AND ?",
                (first, first + JOBS - 1),
            )
            db.execute("UPDATE jobs SET state = 'pending', attempts = 0 WHERE id >= ?", (first,))
            db.execute("COMMIT")

    def answer(self, upto: int) -> None:
        """Answer all jobs up to a number."""
        with self.database() as db:
            db.execute("ATTACH ? AS whole", (f"{self.run.ledger}.whole",))
            db.execute("BEGIN IMMEDIATE")
            for table in ("verdicts", "calls"):
                db.execute(
                    f"INSERT OR IGNORE INTO {table} SELECT * FROM whole.{table} WHERE job <= ?",
                    (upto,),
                )
            db.execute("UPDATE jobs SET state = 'done', attempts = 1 WHERE id <= ?", (upto,))
            db.execute("DELETE FROM totals")
            db.execute(schema.TOTAL)
            db.execute("COMMIT")

    def go_on(self, round: int, upto: int = 0) -> None:
        """Finish the round before, plan a round, and answer some of it."""
        self.answer(JOBS * (round - 1) - 1)
        self.plan(round)
        self.answer(upto)

    async def sleep(self, seconds: float) -> None:
        await self.clock.sleep(seconds)
        if not self.steps:
            raise TimeoutError("it goes on watching")
        self.steps.pop(0)()

    def watch(self, **more: object) -> Watch:
        return Watch(
            self.run,
            self.events.append,
            sleep=self.sleep,
            clock=self.clock,
            **more,  # type: ignore[arg-type]
        )

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if type(event) is kind]

    def follow(self, *, once: bool = False, **more: object) -> bool:
        return asyncio.run(self.watch(**more).follow(once=once))


@pytest.fixture
def other(tmp_path: Path) -> Other:
    result = api.run("demo", strategy="listwise10x3", runs_dir=tmp_path)
    other = Other(result.run)
    other.begin()
    return other


def reported(folder: Path) -> list[Event]:
    """The events of the same run, by the process that works on it."""
    events: list[Event] = []
    settings = config.settle({"dataset": "demo", "strategy": "listwise10x3"})
    session.execute(session.prepare(settings, folder), events.append)
    return events


def test_what_is_watched_is_what_the_run_itself_reports(other: Other, tmp_path: Path) -> None:
    own = reported(tmp_path / "again")
    other.hold()
    other.steps = [
        lambda: other.plan(1),
        lambda: other.answer(9),
        lambda: None,
        lambda: other.go_on(2),
        lambda: other.go_on(3, 60),
        lambda: other.answer(71),
        other.let_go,
    ]
    dataset = session.dataset_of(other.run)
    assert dataset is not None
    assert other.follow(texts=dataset.texts)
    assert not other.steps
    (began,) = other.of(RunStarted)
    assert isinstance(began, RunStarted)
    assert (began.watched, began.items, began.rounds, began.planned) == (True, 240, 3, [])
    assert other.of(RoundRated) == [event for event in own if isinstance(event, RoundRated)]
    looks = [event for event in other.events if isinstance(event, Looked)]
    last = looks[-1]
    assert (last.round, last.running, sum(last.planned, Counts())) == (3, False, Counts(done=72))
    assert last.totals.calls == 72
    shown = [(look.round, sum(look.planned, Counts()).done) for look in looks if look.running]
    assert shown[:4] == [(0, 0), (1, 0), (1, 10), (1, 10)]
    assert not other.of(Notice)
    assert set(other.clock.slept) == {EVERY}


def test_a_round_is_reported_with_its_own_jobs(other: Other) -> None:
    lines = PlainLines(log(), clock=other.clock)
    other.hold()
    other.plan(1)
    other.steps = [lambda: other.go_on(2, 40)]
    with pytest.raises(TimeoutError), lines:
        asyncio.run(Watch(other.run, lines, sleep=other.sleep, clock=other.clock).follow())
    text = written(lines._console)
    assert "watched: 0 jobs done, 0 failed, 0 invalid, 24 left" in text
    assert "round 1/3 rated · 24 done, 0 failed, 0 invalid" in text
    assert "round 2/3 · 17/24 jobs" in text


def test_of_a_run_that_nobody_works_on_it_says_so_and_waits(other: Other) -> None:
    other.plan(1)
    other.answer(5)
    other.steps = [lambda: None, other.hold, lambda: other.answer(7), lambda: None, other.let_go]
    other.steps += (QUIET - 2) * [lambda: None]
    with pytest.raises(TimeoutError):
        other.follow()
    texts = [event.text for event in other.events if isinstance(event, Notice)]
    nobody = f"Nobody works on the run now: `judgeq resume {other.run.argument}` goes on with it."
    assert texts == [nobody, "Somebody works on the run again.", nobody]
    running = [event.running for event in other.events if isinstance(event, Looked)]
    assert running == [False] * 3 + [True] * QUIET + [False]


def test_its_lock_is_left_alone_while_nobody_works_on_it(
    other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real = type(other.run).is_running

    def is_running(run: RunPlace) -> bool:
        asked.append(run.id)
        return real(run)

    monkeypatch.setattr(type(other.run), "is_running", is_running)
    other.plan(1)
    other.steps = [lambda: None] * 10
    with pytest.raises(TimeoutError):
        other.follow()
    assert len(asked) == 1


def test_once_looks_once(other: Other) -> None:
    other.plan(1)
    assert not other.follow(once=True)
    assert [type(event) for event in other.events] == [RunStarted, Notice, Looked]
    assert not other.clock.slept


def test_nobody_who_looks_on_ends_it(other: Other) -> None:
    looks = iter([True, True, False])
    other.hold()
    other.steps = [lambda: None] * 2
    assert not other.follow(wanted=lambda: next(looks))
    assert len(other.of(Looked)) == 3


def test_looks_at_a_large_ledger_come_more_seldom(other: Other) -> None:
    other.hold()
    ticks = iter([0.0, 0.4, 10.0, 10.01])
    other.steps = [lambda: None]
    watch = other.watch()
    watch.clock = lambda: next(ticks)
    with pytest.raises(TimeoutError):
        asyncio.run(watch.follow())
    assert other.clock.slept == [pytest.approx(8.0), EVERY]


def test_failures_are_reported_as_they_come(other: Other) -> None:
    other.hold()
    other.plan(1)

    def fail(job: int) -> None:
        with other.database() as db:
            db.execute(
                "INSERT INTO calls (job, attempt, outcome, input, cached, output, reasoning, cost, "
                "latency, reply, at) VALUES (?, 1, 'timeout', 0, 0, 0, 0, NULL, 1.0, 'no answer', 9.0)",
                (job,),
            )

    other.steps = [lambda: fail(0), lambda: None, lambda: other.answer(3)]
    with pytest.raises(TimeoutError):
        other.follow()
    failures = [event.failure for event in other.events if isinstance(event, Looked)]
    failed = Failure("no answer", 9.0, 1)
    assert failures == [None, failed, failed, failed._replace(in_a_row=0)]


def test_a_run_that_ends_early_ends_the_watch(other: Other) -> None:
    other.hold()
    other.plan(1)

    def no_more() -> None:
        other.answer(23)
        with other.database() as db:
            db.execute(
                "INSERT INTO rounds (round, first, last, epoch, ratings, active) "
                "SELECT 2, 24, 23, epoch, ratings, active FROM rounds WHERE round = 1"
            )
        other.let_go()

    other.steps = [no_more, lambda: None]
    assert other.follow()
    assert other.of(EndedEarly) == [EndedEarly(1)]
    assert [event.round for event in other.events if isinstance(event, RoundRated)] == [1]


def test_a_run_that_is_deleted_meanwhile_ends_it_with_an_error(other: Other) -> None:
    other.hold()
    other.plan(1)
    other.steps = [lambda: shutil.rmtree(other.run.path), *QUIET * [lambda: None]]
    with pytest.raises(RunError, match="is no run"):
        other.follow()


def test_a_run_whose_ledger_is_lost_ends_it_with_an_error(other: Other) -> None:
    Path(other.run.ledger).unlink()
    with pytest.raises(RunError, match=r"run\.db is missing"):
        other.follow()


def test_watching_leaves_the_run_as_it_is(other: Other) -> None:
    other.hold()
    other.plan(1)
    other.answer(20)
    before = {
        path: path.read_bytes() for path in other.run.path.iterdir() if path.suffix != ".db-shm"
    }
    assert not other.follow(once=True)
    for path, content in before.items():
        assert path.read_bytes() == content, path


# What is shown


def test_the_dashboard_shows_what_the_ledger_says() -> None:
    clock = Clock()
    face = Dashboard(terminal(), clock=clock)
    face(RunStarted("r", 100, 3, "m", watched=True))
    assert "watched" in picture(face)
    begun = Counts(pending=40, running=10)
    face(Looked(1, [begun], Totals(in_flight=8)))
    clock.now += 10
    totals = Totals(
        calls=25, retries=2, usage=Usage(1000, 200, 300, 100), cost=2.5, in_flight=9, hits=4
    )
    face(Looked(1, [Counts(30, 10, 9, 1)], totals, Failure("no answer", 5.0, 3)))
    shown = picture(face)
    assert "9 done · 0 failed · 1 invalid" in shown
    assert "25 · 3.3 calls/s · 9 in flight · 2 retries · 4 cache hits" in shown
    assert "3 calls in a row without an answer, the last: no answer" in shown
    assert "$2.50 so far · about $37.50 in all" in shown
    assert "watched for 10 s · about 2 min 20 s left" in shown  # when it began isn't known
    face(Looked(1, [Counts(40, 0, 9, 1)], totals, None, running=False))
    shown = picture(face)
    assert "not running" in shown
    assert "left" not in shown
    assert face.progress.of_round == Counts(40, 0, 9, 1)
    face(Looked(2, [Counts(done=49, invalid=1), Counts(pending=50)], totals))
    assert face.progress.of_run == Counts(pending=50, done=49, invalid=1)
    assert (face.progress.ended, face.progress.round, face.progress.idle) == (50, 2, False)


# The command


def test_a_finished_run_is_shown_and_that_is_all(tmp_path: Path) -> None:
    judgeq(tmp_path, "run", "-d", "demo", "-s", "listwise10x2", "-q")
    shown = judgeq(tmp_path, "watch").stdout
    assert "watched: 48 jobs done, 0 failed, 0 invalid, 0 left" in shown
    assert "round 2/2 rated · 24 done" in shown
    assert "is finished: `judgeq rate" in shown
    assert judgeq(tmp_path, "watch", "nothing", expect=7).stderr


def test_a_run_on_a_store_is_watched_too(tmp_path: Path) -> None:
    store = ("--store", new_store())
    judgeq(tmp_path, "run", "-d", "demo", "-s", "listwise10x2", "-q", *store)
    shown = judgeq(tmp_path, "watch", *store).stdout
    assert "round 2/2 rated · 24 done" in shown


def test_an_import_is_watched_to_its_end_at_once(tmp_path: Path) -> None:
    judgeq(tmp_path, "run", "-d", "demo", "-s", "pairwise2", "-q")
    judgeq(tmp_path, "export", "-o", "j.jsonl")
    judgeq(tmp_path, "import", "-d", "demo", "j.jsonl", "-q", "--runs-dir", "imports")
    shown = judgeq(tmp_path, "watch", "--once", "--runs-dir", "imports").stdout
    assert "round 2/2 rated · 120 done" in shown


def test_ctrl_c_ends_the_watch_and_nothing_else(tmp_path: Path) -> None:
    judgeq(tmp_path, "run", "-d", "demo", "-s", "listwise10x1", "-q")
    (run,) = (tmp_path / "runs").iterdir()
    with closing(sqlite3.connect(run / "run.db", isolation_level=None)) as db:
        db.execute("DELETE FROM verdicts WHERE job = 3")
        db.execute("UPDATE jobs SET state = 'pending' WHERE id = 3")
    process = start(tmp_path, "watch")
    assert process.stdout is not None
    assert "watched" in process.stdout.readline()
    assert "Nobody works on the run now" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert err == "judgeq: no longer watched; nothing was changed.\n"


def test_hostile_ids_and_names_stay_text(other: Other) -> None:
    other.plan(1)
    other.answer(23)
    other.plan(2)
    with other.database() as db:
        db.execute(
            "UPDATE items SET id = id || ?", ("[bold]\x1b[31m\x1b]0;x\x07\u202e\x00" + "y" * 9999,)
        )
    face = Dashboard(terminal(), clock=other.clock)
    asyncio.run(Watch(other.run, face, sleep=other.sleep, clock=other.clock).follow(once=True))
    shown = picture(face)
    assert "[bold]" in shown
    assert not set(shown) & {"\x1b", "\x07", "\u202e", "\x00"}
