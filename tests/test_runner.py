"""Settings against a run; its rounds, whose jobs other processes' workers may hold; and its lease."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from judgeq import config
from judgeq.engine import assembly, estimate, runner, session
from judgeq.engine.assembly import Run
from judgeq.engine.interrupts import Stop
from judgeq.errors import DataError, LedError, RunError, UsageError
from judgeq.escaping import shell_command
from judgeq.evaluation.evaluate import evaluated
from judgeq.events import Event, Notice, RoundRated, RunStarted
from judgeq.judge.budget import Keeper
from judgeq.run_places import folders, whoami
from judgeq.store import Store
from judgeq.store.sqlite import SqliteStore
from judgeq.strategies import History
from judgeq.types import Counts, JobState, Matches, Outcome, Verdict
from tests.fakes import Clock

pytestmark = pytest.mark.usefixtures("rated_by_elo")


def prepared(root: Path, **settings: object) -> Run:
    return session.prepare(config.settle(settings), root)


def test_a_model_gets_a_clear_error_where_the_texts_are_not(tmp_path: Path) -> None:
    with pytest.raises(DataError) as told:
        prepared(tmp_path, dataset="babe", judge="gpt-m")
    message = str(told.value)
    for words in ("final_labels_SG2.csv", "https://raw.githubusercontent.com/", "c02ebe82"):
        assert words in message
    with pytest.raises(DataError, match="without texts"):
        prepared(tmp_path, dataset="synthetic:linear", judge="gpt-m")
    assert not list(tmp_path.glob("*"))
    assert prepared(tmp_path, dataset="demo", judge="gpt-m").dataset.texts


def test_what_a_model_needs_is_told_before_anything_is_written(tmp_path: Path) -> None:
    data = tmp_path / "my.csv"
    data.write_text("text\na\nb\nc\n")
    mine = {"dataset": str(data), "judge": "gpt-m", "strategy": "pairwise"}
    zest = {"feature": "zest", "max_cost": 1.0}
    refused: list[tuple[dict[str, object], str]] = [
        ({}, r"name a prompt set with --prompt .* --feature"),
        (zest, "--max-cost 1: the price of gpt-m is unknown"),
        ({"strategy": "listwise3", "both_orders": True}, "--both-orders goes with pairs, not with"),
    ]
    for more, told in refused:
        with pytest.raises(UsageError, match=told):
            prepared(tmp_path / "runs", **mine | more)
    assert not (tmp_path / "runs").exists()
    (found,) = prepared(tmp_path / "runs", **mine, **zest, price=(1.0, 1.0)).pricing.values()
    assert found
    assert found.source == "--price"


def test_events_tell_the_story(tmp_path: Path) -> None:
    events: list[Event] = []
    this = prepared(tmp_path, dataset="demo", strategy="listwise10x2")
    result = session.execute(this, events.append)
    (started,) = (e for e in events if isinstance(e, RunStarted))
    first, second = (e for e in events if isinstance(e, RoundRated))
    assert (started.items, started.rounds, list(started.planned)) == (240, 2, [])
    assert first.moved is None
    assert 0 < (second.moved or 0) <= 1
    best = int(result.scores.ratings["elo"].argmax())
    text = (this.dataset.texts or [])[best]
    assert (second.top[0].id, second.top[0].text) == (result.scores.ids[best], text[:200])
    assert second.bottom[-1].rating == result.scores.ratings["elo"].min()
    events.clear()
    again = session.execute(session.resume(this.folder, {}), events.append)
    assert again.totals.calls == 48
    assert events == []  # it is finished: nothing is gone through again
    again = session.execute(session.resume(this.folder, {}), events.append, retry_failed=True)
    (started,) = (e for e in events if isinstance(e, RunStarted))
    assert [counts.done for counts in started.planned] == [24, 24]
    assert started.totals.calls == again.totals.calls == 48


def test_a_network_file_system_gets_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "network_file_system", lambda _: "nfs4")
    events: list[Event] = []
    session.execute(prepared(tmp_path, dataset="synthetic:linear", n=20), events.append)
    (notice,) = (e for e in events if isinstance(e, Notice))
    assert notice.warning
    assert "network file system (nfs4)" in notice.text


def test_gold_that_changed_is_taken_over_without_asking_again(tmp_path: Path) -> None:
    """A model never sees the labels; so a new gold column is no new run, but new in scores.csv."""
    data = tmp_path / "d.csv"
    data.write_text("text,latent,gold\n" + "".join(f"t{i},{i},{i % 2}\n" for i in range(20)))
    given = {"dataset": str(data), "latent_column": "latent"}
    first = session.execute(prepared(tmp_path, **given), lambda _: None)
    assert not evaluated(first).evaluation
    changed = prepared(tmp_path, **given, gold_column="gold")
    # The simulated judge's answers come from the labels: for it this is another run.
    assert changed.folder.id != first.run.id
    result = session.execute(changed, lambda _: None)
    assert [one.n for one in evaluated(result).evaluation] == [20, 20]


N = 10
PAIRS = Matches(np.array([0, 1, 2, 3, 4, 5], dtype=np.int32), np.array([0, 2, 4, 6]))
LEASE = 600.0
THEIRS = "another process"


@asynccontextmanager
async def story(root: Path, **settings: object) -> AsyncIterator[assembly.Session]:
    """A session of a run of three pairs, whose round isn't planned yet."""
    given = {"dataset": "synthetic:linear", "n": N, "strategy": "pairwise"} | settings
    made = session.prepare(config.settle(given), root)
    made.folder.path.mkdir(parents=True)
    clock, stop = Clock(), Stop()
    store = SqliteStore(Path(made.folder.database), clock=clock)
    tasks = len(asyncio.all_tasks())
    try:
        await store.set_items(made.items)
        async with assembly.panel(made, stop, lambda _: None) as judge:
            yield assembly.Session(made, store, judge, stop, lambda _: None)
    finally:
        await store.close()
    assert len(asyncio.all_tasks()) == tasks


async def planned(opened: assembly.Session) -> None:
    epoch = await opened.store.lead(whoami(), LEASE)
    everybody = np.ones(N, dtype=np.bool_)
    await opened.store.plan_round(1, epoch, everybody, PAIRS)


async def never(seconds: float) -> None:
    raise AssertionError("nothing has to be waited for")


async def test_a_round_waits_for_jobs_that_another_worker_holds(tmp_path: Path) -> None:
    async with story(tmp_path) as opened:
        await planned(opened)
        held = await opened.store.claim(THEIRS, 2, LEASE)
        states: list[Counts] = []

        async def sleep(seconds: float) -> None:
            """The other worker answers one, and then gives the other back."""
            states.append(await state(opened.store))
            job = held.pop(0).match
            answered = Outcome(job.id, JobState.DONE, Verdict(job.items))
            answer = answered if held else Outcome(job.id, JobState.PENDING)
            await opened.store.settle(THEIRS, [answer])

        await runner.judge_round(opened, 1, sleep)
        # Our own part is done before the first wait; what was given back is ours.
        assert states == [Counts(running=2, done=1), Counts(running=1, done=2)]
        assert await state(opened.store) == Counts(done=3)


async def test_jobs_whose_lease_has_lapsed_are_taken_over_at_the_barrier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with story(tmp_path) as opened:
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


async def test_only_as_many_first_questions_are_asked_as_are_missing(tmp_path: Path) -> None:
    async with story(tmp_path) as opened:
        await planned(opened)
        failed = await opened.store.claim(THEIRS, 1, LEASE)
        failure = Outcome(failed[0].match.id, JobState.FAILED, error="no answer")
        await opened.store.settle(THEIRS, [failure])
        for number, done in ((1, 1), (1, 1), (2, 2), (100, 2)):  # of three
            await estimate._judge_first(opened, number)
            assert await state(opened.store) == Counts(pending=2 - done, done=done, failed=1)


async def test_the_next_round_is_judged_while_the_last_is_rated(
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

    monkeypatch.setattr(runner, "_rate_round", rate)
    monkeypatch.setattr(runner, "judge_round", judge)
    async with story(tmp_path, strategy="pairwise3") as opened:
        async with asyncio.timeout(60):
            await rounds_of(opened)
        assert await opened.store.counts() == Counts(done=15)
    assert rated == [0, 1, 2, 3]


class Alone:
    """Keeps the cap of one process, which has none."""

    async def set_cap(self, cap: int | None) -> None:
        pass


@pytest.mark.parametrize("matchmaking", ["random", "similar"])
async def test_rounds_that_no_answer_decides_are_planned_ahead_where_others_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, matchmaking: str
) -> None:
    """So that their workers never wait at a barrier; the scores stay the same."""
    judge_round, planned, scores = runner.judge_round, list[bool](), list[list[float]]()

    async def judged(session: assembly.Session, round: int) -> None:
        planned.append(await session.store.round_state(round + 1) is not None)
        await judge_round(session, round)
        assert (await state(session.store, round)).left == 0

    monkeypatch.setattr(runner, "judge_round", judged)
    for place in ("alone", "shared"):
        how = {"strategy": "pairwise3", "matchmaking": matchmaking}
        async with story(tmp_path / place, **how) as opened:
            opened.store.keeper = cast("Keeper", Alone()) if place == "shared" else None
            scores.append((await rounds_of(opened)).standings.elo.tolist())
    ahead = matchmaking == "random"
    assert planned == [False] * 3 + [ahead, ahead, False]
    assert scores[0] == scores[1]


async def test_who_was_taken_over_plans_nothing_and_says_so(tmp_path: Path) -> None:
    async with story(tmp_path, strategy="pairwise3") as opened:
        epoch = await runner.lead(opened)
        await planned(opened)  # by a new epoch, which is another process's
        with pytest.raises(RunError, match=re.escape("another process has taken the run over")):
            await runner._all_rounds(opened, epoch, 0)


async def test_who_waits_for_the_scheduler_says_when_it_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "BARRIER_WAIT", 0.0)
    events: list[Event] = []

    async with story(tmp_path) as opened:
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
        taking = "led by another process. This `judgeq run` takes over if that process is dead"
        assert taking in notice.text
        assert "judgeq worker" not in notice.text
        with pytest.raises(LedError, match=r"To help it, start `judgeq worker .*add --standby"):
            await runner.lead(waiting)
        settings = waiting.run.settings.model_copy(update={"standby": True})
        standby = replace(waiting, run=replace(waiting.run, settings=settings))
        assert await runner.lead(standby) == 8
        (*_, notice) = events
        assert isinstance(notice, Notice)
        assert "takes over when it ends; if it is dead, within" in notice.text


async def rounds_of(opened: assembly.Session) -> History:
    return await runner._all_rounds(opened, await opened.store.lead(whoami(), LEASE), 0)


async def state(store: Store, round: int = 1) -> Counts:
    counts = await store.round_state(round)
    assert counts is not None
    return counts


def test_workers_are_called_with_the_models_of_the_run_and_no_other_judge() -> None:
    def called(**given: object) -> str:
        settings = config.settle({"dataset": "demo", **given})
        folder = SimpleNamespace(command=lambda name, *options: shell_command(name, "x", options))
        run = SimpleNamespace(settings=settings, folder=folder)
        return runner._call_for_workers(cast(Any, SimpleNamespace(run=run)), Counts(pending=2))

    assert called().endswith("Start them: `judgeq worker x`.")
    assert called(judge=("gpt-5-mini",)).endswith("`judgeq worker x --judge gpt-5-mini`.")
