"""The rounds of a run whose jobs other processes' workers may hold, and the scheduler's lease."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from judgeq import config
from judgeq.engine import assembly, pilot, runner, session
from judgeq.engine.interrupts import Stop
from judgeq.errors import LedError, RunError
from judgeq.events import Event, Notice
from judgeq.judge.slices import Keeper
from judgeq.run_places import whoami
from judgeq.store import Store
from judgeq.store.sqlite import SqliteStore
from judgeq.strategies import History
from judgeq.types import (
    Counts,
    JobState,
    Matches,
    Outcome,
    Verdict,
)
from tests.fakes import Clock

N = 10
PAIRS = Matches(np.array([0, 1, 2, 3, 4, 5], dtype=np.int32), np.array([0, 2, 4, 6]))
LEASE = 600.0
THEIRS = "another process"


def story(
    root: Path,
    told: Callable[[assembly.Session, Clock], Coroutine[None, None, None]],
    **settings: object,
) -> None:
    """Let a run of three pairs, whose round isn't planned yet, be gone through."""

    async def begun() -> None:
        made = session.prepare(
            config.settle(
                {"dataset": "synthetic:linear", "n": N, "strategy": "pairwise"} | settings
            ),
            root,
        )
        made.folder.path.mkdir(parents=True)
        clock, stop = Clock(), Stop()
        store = SqliteStore(Path(made.folder.database), clock=clock)
        try:
            await store.set_items(made.items)
            async with assembly.panel(made, stop, lambda _: None) as judge:
                opened = assembly.Session(made, store, judge, stop, lambda _: None)
                await told(opened, clock)
        finally:
            await store.close()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(begun())


async def planned(opened: assembly.Session) -> None:
    epoch = await opened.store.lead(whoami(), LEASE)
    everybody = np.ones(N, dtype=np.bool_)
    await opened.store.plan_round(1, epoch, everybody, PAIRS)


async def never(seconds: float) -> None:
    raise AssertionError("nothing has to be waited for")


def test_a_round_waits_for_jobs_that_another_worker_holds(tmp_path: Path) -> None:
    async def told(opened: assembly.Session, clock: Clock) -> None:
        await planned(opened)
        held = await opened.store.claim(THEIRS, 2, LEASE)
        states: list[Counts] = []

        async def sleep(seconds: float) -> None:
            """The other worker answers one, and then gives the other back."""
            states.append(await state(opened.store))
            job = held.pop(0).match
            if held:
                answer = Outcome(job.id, JobState.DONE, Verdict(job.items))
            else:
                answer = Outcome(job.id, JobState.PENDING)
            await opened.store.settle(THEIRS, [answer])

        await runner.judge_round(opened, 1, sleep)
        # Our own part is done before the first wait; what was given back is ours.
        assert states == [Counts(running=2, done=1), Counts(running=1, done=2)]
        assert await state(opened.store) == Counts(done=3)

    story(tmp_path, told)


def test_jobs_whose_lease_has_lapsed_are_taken_over_at_the_barrier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def told(opened: assembly.Session, clock: Clock) -> None:
        await planned(opened)
        await opened.store.claim(THEIRS, 2, LEASE)  # it dies
        waits = list[float]()

        async def sleep(seconds: float) -> None:
            waits.append(seconds)

        async def reap() -> int:
            if len(waits) < 3:  # its lease isn't over
                return 0
            await opened.store.lead("a file's only process", LEASE)
            return 2

        monkeypatch.setattr(opened.store, "reap", reap)
        await runner.judge_round(opened, 1, sleep)
        assert len(waits) == 3
        assert await state(opened.store) == Counts(done=3)

    story(tmp_path, told)


def test_only_as_many_first_questions_are_asked_as_are_missing(tmp_path: Path) -> None:
    async def told(opened: assembly.Session, clock: Clock) -> None:
        await planned(opened)
        failed = await opened.store.claim(THEIRS, 1, LEASE)
        failure = Outcome(failed[0].match.id, JobState.FAILED, error="no answer")
        await opened.store.settle(THEIRS, [failure])
        for number, done in ((1, 1), (1, 1), (2, 2), (100, 2)):  # of three
            await pilot._judge_first(opened, number)
            assert await state(opened.store) == Counts(pending=2 - done, done=done, failed=1)

    story(tmp_path, told)


def test_the_next_round_is_judged_while_the_last_is_rated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that no worker waits for a fit."""
    judge_round, rated = runner.judge_round, list[int]()
    judged = [asyncio.Event() for _ in range(3)]

    async def judge(session: assembly.Session, round: int) -> None:
        await judge_round(session, round)
        judged[round - 1].set()

    async def rate(session: assembly.Session, history: History, *_: object) -> None:
        round = len(history.verdicts)
        if 0 < round < 3:
            await judged[round].wait()
        rated.append(round)

    async def told(opened: assembly.Session, clock: Clock) -> None:
        async with asyncio.timeout(60):
            await rounds_of(opened)
        assert await opened.store.counts() == Counts(done=15)

    monkeypatch.setattr(runner, "_rate_round", rate)
    monkeypatch.setattr(runner, "judge_round", judge)
    story(tmp_path, told, strategy="pairwise3")
    assert rated == [0, 1, 2, 3]


class Alone:
    """Keeps the cap of one process, which has none."""

    async def set_cap(self, cap: int | None) -> None:
        pass


@pytest.mark.parametrize("matchmaking", ["random", "similar"])
def test_rounds_that_no_answer_decides_are_planned_ahead_where_others_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, matchmaking: str
) -> None:
    """So that their workers never wait at a barrier; the scores stay the same."""
    judge_round, planned, scores = runner.judge_round, list[bool](), list[list[float]]()

    async def judged(session: assembly.Session, round: int) -> None:
        planned.append(await session.store.round_state(round + 1) is not None)
        await judge_round(session, round)
        assert (await state(session.store, round)).left == 0

    async def told(opened: assembly.Session, clock: Clock) -> None:
        opened.store.keeper = cast("Keeper", Alone()) if scores else None
        scores.append((await rounds_of(opened)).standings.elo.tolist())

    monkeypatch.setattr(runner, "judge_round", judged)
    for place in ("alone", "shared"):
        story(tmp_path / place, told, strategy="pairwise3", matchmaking=matchmaking)
    ahead = matchmaking == "random"
    assert planned == [False] * 3 + [ahead, ahead, False]
    assert scores[0] == scores[1]


def test_who_was_taken_over_plans_nothing_and_says_so(tmp_path: Path) -> None:
    async def told(opened: assembly.Session, clock: Clock) -> None:
        epoch = await runner.lead(opened)
        await planned(opened)  # by a new epoch, which is another process's
        with pytest.raises(RunError, match=re.escape("another process has taken the run over")):
            await runner._all_rounds(opened, epoch, 0)

    story(tmp_path, told, strategy="pairwise3")


def test_who_waits_for_the_scheduler_says_when_it_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "BARRIER_WAIT", 0.0)
    events: list[Event] = []

    async def told(opened: assembly.Session, clock: Clock) -> None:
        led = LedError("the run is led by another process.", until=1.0)
        renewed = LedError("the run is led by another process.", until=2.0)
        answers: list[LedError | int] = [led, led, 7, led, renewed, led, renewed, renewed, 8]

        async def lead(holder: str, ttl: float) -> int:
            if isinstance(answer := answers.pop(0), LedError):
                raise answer
            return answer

        monkeypatch.setattr(opened.store, "lead", lead)
        waiting = replace(opened, emit=events.append)
        assert await runner.lead(waiting) == 7
        (notice,) = events
        assert isinstance(notice, Notice)
        assert (
            "led by another process. This `judgeq run` takes over if that process is dead"
            in notice.text
        )
        assert "judgeq worker" not in notice.text
        with pytest.raises(LedError, match=r"To help it, start `judgeq worker .*add --standby"):
            await runner.lead(waiting)
        settings = waiting.run.settings.model_copy(update={"standby": True})
        standby = replace(waiting, run=replace(waiting.run, settings=settings))
        assert await runner.lead(standby) == 8
        (*_, notice) = events
        assert isinstance(notice, Notice)
        assert "takes over when it ends; if it is dead, within" in notice.text

    story(tmp_path, told)


async def rounds_of(opened: assembly.Session) -> History:
    return await runner._all_rounds(opened, await opened.store.lead(whoami(), LEASE), 0)


async def state(store: Store, round: int = 1) -> Counts:
    counts = await store.round_state(round)
    assert counts is not None
    return counts


def test_workers_are_called_with_the_models_of_the_run_and_no_other_judge() -> None:
    def called(**given: object) -> str:
        run = SimpleNamespace(
            settings=config.settle({"dataset": "demo", **given}),
            folder=SimpleNamespace(argument="x"),
        )
        return runner._call_for_workers(cast(Any, SimpleNamespace(run=run)), Counts(pending=2))

    assert called().endswith("Start them: `judgeq worker x`.")
    assert called(judge=("gpt-5-mini",)).endswith("`judgeq worker x --judge gpt-5-mini`.")
