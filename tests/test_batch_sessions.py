"""Sessions around batches that are out: caps, servers that fail while others don't, clocks."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from judgeq.engine import batch
from judgeq.engine.queue import Stop
from judgeq.errors import (
    BrokenResultsError,
    ConnectionFailedError,
    JudgeError,
    KeyRefusedError,
    RateLimitedError,
)
from judgeq.judge.backend import Remote
from judgeq.store.sqlite import SqliteStore
from judgeq.types import Batch, JobState, Line, Outcome
from tests.cli import judgeq
from tests.fake_batches import FakeBatches, by_model
from tests.mock import mock

pytestmark = pytest.mark.usefixtures("rated_by_elo")

NOWHERE = "http://127.0.0.1:9/v1"
PAIRS = ("-d", "demo", "--sample", "48", "-s", "pairwise1", "--price", "1,2")
ASKED = (*PAIRS, "--judge", "m", "--base-url", NOWHERE)
RUN = ("run", *ASKED, "--quiet", "--batch")
FULL = {"status": "failed", "stands": "refused", "full": True, "problems": ["too much waits"]}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(batch, "LONGEST_WAIT", 0.02)
    monkeypatch.setattr(batch, "AGAIN", 0.01)
    monkeypatch.setattr(batch, "SETTLING", 0.01)
    monkeypatch.setattr(batch, "FULL_WAIT", 0.05)


def status(folder: Path) -> Any:
    return json.loads(judgeq(folder, "status", "--json").stdout)


def test_a_live_session_goes_on_when_a_batch_from_before_is_refused_for_too_much_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_model(monkeypatch, m=(fake := FakeBatches()))
    with mock(tmp_path) as url:
        judgeq(tmp_path, *RUN, "--base-url", url, "--no-wait", expect=5)
        fake.stands = FULL
        judgeq(tmp_path, *RUN[:-1], "--base-url", url)
    assert status(tmp_path)["state"] == "finished"


UNUSABLE = json.dumps(
    {
        "choices": [{"message": {"content": "Who knows?"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 50, "completion_tokens": 5},
    }
).encode()


def test_under_a_cap_a_live_session_first_collects_what_may_hold_all_that_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_model(monkeypatch, m=FakeBatches())
    capped = ("--max-cost", "0.015", "--max-output-tokens", "100")
    with mock(tmp_path) as url:
        judgeq(tmp_path, *RUN, "--base-url", url, *capped, "--no-wait", expect=5)
        jobs = status(tmp_path)["jobs"]
        assert jobs["running"]
        assert jobs["pending"]
        judgeq(tmp_path, "estimate", *ASKED, "--base-url", url, "--pilot", "20", *capped, expect=7)
        judgeq(tmp_path, *RUN[:-1], "--base-url", url, *capped)
    assert status(tmp_path)["state"] == "finished"


def test_one_provider_that_fails_keeps_no_other_from_being_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = FakeBatches(), FakeBatches()
    by_model(monkeypatch, m=bad, n=good)
    run = (*RUN, "--judge", "n", "--ensemble", "each")
    bad.errors["create"] = ConnectionFailedError("no connection.", cost=0.0)
    monkeypatch.setattr(batch, "TRIES", 2)
    judgeq(tmp_path, *run, expect=4)
    jobs = status(tmp_path)["jobs"]
    assert (jobs["done"], jobs["pending"]) == (24, 24)  # and then nothing is out
    assert {*bad.asked} == {"create"}
    bad.errors.clear()
    bad.stands = {"status": "in_progress", "stands": "working"}
    judgeq(tmp_path, "resume", "--no-wait", expect=5)
    bad.errors["get"] = KeyRefusedError("it refuses the key.")
    judgeq(tmp_path, "resume", expect=4)
    bad.errors.clear()
    bad.stands = good.stands
    judgeq(tmp_path, "resume")


@pytest.mark.parametrize("error", [KeyRefusedError("it refuses the key."), None])
def test_what_has_ended_is_collected_before_an_error_of_another_batch_ends_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: KeyRefusedError | None
) -> None:
    good, bad = FakeBatches(), FakeBatches()
    by_model(monkeypatch, m=bad, n=good)
    judgeq(tmp_path, *RUN, "--judge", "n", "--ensemble", "each", "--no-wait", expect=5)
    if error is None:  # it is at another address than its judge is asked at
        (ledger,) = tmp_path.glob("runs/*/run.db")
        with sqlite3.connect(ledger) as db:
            db.execute("UPDATE batches SET address = 'http://127.0.0.1:8' WHERE judge = 0")
    else:
        bad.errors["get"] = error
    judgeq(tmp_path, "resume", expect=4)
    assert status(tmp_path)["jobs"]["done"] == 24


def test_a_batch_that_may_not_have_been_created_cant_be_cancelled_which_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeBatches()
    by_model(monkeypatch, m=fake)
    fake.errors["create"] = ConnectionFailedError("the connection broke.")
    fake.doubtful = ["r7"]
    sleep = Stop.sleep

    async def stopped(stop: Stop, seconds: float) -> None:
        if fake.asked.count("identify") > 1:
            stop.ask()
        await sleep(stop, seconds)

    monkeypatch.setattr(Stop, "sleep", stopped)
    done = judgeq(tmp_path, "run", *ASKED, "--batch", expect=5)
    assert done.stderr.count("may be r7") == 1 < fake.asked.count("identify")
    said = judgeq(tmp_path, "runs", "batches", "cancel", expect=4).stderr
    assert "Nobody knows yet whether batch jq" in said


@pytest.mark.parametrize("years", [-1, 0, 1])
def test_a_batch_that_nobody_lists_is_given_up_whatever_the_clock_said_when_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, years: int
) -> None:
    fake = FakeBatches()
    by_model(monkeypatch, m=fake)
    fake.errors["create"] = ConnectionFailedError("the connection broke.")
    judgeq(tmp_path, *RUN, "--no-wait", expect=5)
    (ledger,) = tmp_path.glob("runs/*/run.db")
    with sqlite3.connect(ledger) as db:
        db.execute("UPDATE batches SET made = made + ?", (years * 31_557_600,))
    fake.errors.clear()
    judgeq(tmp_path, "resume", "--wait")
    assert status(tmp_path)["unknown_attempts"] == 24


class Refusing(FakeBatches):
    """Answers a first creation with 429, and a second as it is told."""

    def __init__(self, second: JudgeError | None = None) -> None:
        super().__init__()
        self.answers = [RateLimitedError("Slow down."), *filter(None, [second])]

    async def create(self, name: str, lines: BinaryIO) -> Remote:
        if self.answers:
            raise self.answers.pop(0)
        return await super().create(name, lines)


def test_a_refused_batch_that_the_next_session_finds_nowhere_cost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Refusing()
    by_model(monkeypatch, m=fake)
    fake.errors["identify"] = ConnectionFailedError("the connection broke.")
    judgeq(tmp_path, *RUN, "--no-wait", expect=5)
    assert status(tmp_path)["jobs"]["running"] == 24
    fake.errors.clear()
    judgeq(tmp_path, "resume", "--wait")
    assert len(fake.created) == 1
    assert (status(tmp_path)["state"], status(tmp_path)["unknown_attempts"]) == ("finished", 0)


def test_a_batch_refused_and_offered_again_to_no_answer_may_have_been_paid_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Refusing(ConnectionFailedError("the connection broke."))
    by_model(monkeypatch, m=fake)
    judgeq(tmp_path, *RUN)
    assert (status(tmp_path)["state"], status(tmp_path)["unknown_attempts"]) == ("finished", 24)


def test_a_line_of_results_that_is_always_broken_counts_as_possibly_paid_and_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "BROKEN", 2)
    fake = Breaking()
    by_model(monkeypatch, m=fake)
    done = judgeq(tmp_path, "run", *ASKED, "--batch")
    assert "lack 1 of its lines, which may have been paid for" in done.stderr
    assert fake.asked.count("download") == 2 + 1 + 1
    state = status(tmp_path)
    assert (state["jobs"]["done"], state["unknown_attempts"]) == (24, 1)


class Breaking(FakeBatches):
    """Its first batch has a broken line among its results."""

    async def download(self, remote: Remote, folder: Path, *, as_it_is: bool = False) -> list[Path]:
        (file,) = await super().download(remote, folder)
        if len(self.created) == 1:
            if not as_it_is:
                raise BrokenResultsError("a line of it is none.")
            _, *rest = file.read_bytes().splitlines()
            file.write_bytes(b"\n".join((b"", *rest)))
        return [file]


def test_a_folder_of_results_that_cant_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_model(monkeypatch, m=FakeBatches())
    judgeq(tmp_path, *RUN, "--no-wait", expect=5)
    (ledger,) = tmp_path.glob("runs/*/run.db")
    (ledger.parent / "batches").write_text("")
    assert "batches can't be written" in judgeq(tmp_path, "resume", expect=7).stderr


@pytest.mark.parametrize("lost", [1, 24])
def test_what_is_reserved_for_jobs_that_were_lost_before_they_were_sent_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    hand_over, losing = SqliteStore.hand_over, [lost]

    async def late(
        self: SqliteStore, worker: str, batch: Batch, lines: Sequence[Line]
    ) -> Collection[int]:
        gone = [line.job.match.id for line in lines][: losing.pop() if losing else 0]
        await self.settle(worker, [Outcome(job, JobState.PENDING) for job in gone])
        return await hand_over(self, worker, batch, lines)

    monkeypatch.setattr(SqliteStore, "hand_over", late)
    by_model(monkeypatch, m=FakeBatches())
    judgeq(tmp_path, *RUN, "--max-cost", "0.42")
    assert status(tmp_path)["state"] == "finished"
