"""Worker processes on a PostgreSQL store: sharing a run, and what they are not talked into."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from judgeq.engine import remote_worker
from judgeq.engine.remote_worker import Tally
from judgeq.errors import BudgetError
from tests.cli import json_of, judgeq, scores, start
from tests.mock import mock, stats
from tests.postgres import new_store, sql

LISTS = ("-d", "demo", "-s", "listwise10x1", "--sample", "60")
PAIRS = ("-d", "synthetic:linear", "--n", "20", "-s")
CAP = ("--max-output-tokens", "50", "--price", "1000,1000", "--max-cost", "6")
"""Enough for some of six lists."""


@pytest.fixture(autouse=True)
def without_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_worker, "PATIENCE", 0.0)


@pytest.fixture
def store() -> str:
    return new_store()


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with mock(tmp_path) as url:
        yield url


def model(url: str) -> tuple[str, ...]:
    return ("--judge", "m", "--base-url", url)


def worked(tally: Tally, **own: Any) -> None:
    """A worker of this process works until all is done."""
    settings = remote_worker.settings_of(own)
    remote_worker.join(settings, lambda _: None, tally, exit_when="done")


@contextmanager
def planning(folder: Path, store: str, *flags: str, ends: bool = True) -> Iterator[str]:
    """`judgeq run --workers 0`, which has planned a round; the run's id."""
    process = start(folder, "run", "--store", store, *flags, "--workers", "0", "--json")
    try:
        assert process.stderr is not None
        line = next((line for line in process.stderr if "new run" in line), "")
        run = line.split(" · ")[1]
        planned = "SELECT count(*) FROM @.rounds JOIN @.runs USING (run)"
        waited_for(store, f"{planned} WHERE name = '{run}'")
        yield run
        if ends:
            out, err = process.communicate(timeout=60)
            assert process.returncode == 0, err
            (folder / "result.json").write_text(out)
    finally:
        process.kill()
        process.communicate()


def waited_for(store: str, question: str) -> int:
    """The number that a statement gives, once it isn't 0."""
    for _ in range(600):
        if (rows := sql(store, question)) and rows[0][0]:
            return int(rows[0][0])
        time.sleep(0.05)
    raise AssertionError(question)


def begun(folder: Path, store: str, *flags: str) -> str:
    """A run of which a round is planned and nothing was asked."""
    with planning(folder, store, *flags, ends=False) as run:
        return run


def test_workers_as_processes_give_the_scores_of_one_process(tmp_path: Path, store: str) -> None:
    flags = ("-d", "synthetic:normal", "--n", "60", "-s", "pairwise3")
    alone = json_of(tmp_path, "run", *flags)["run"]
    expected = scores(tmp_path / "runs" / alone)
    (tmp_path / "many").mkdir()
    with planning(tmp_path / "many", store, *flags) as run:
        words = ("worker", run, "--exit-when", "done", "--concurrency", "8", "--json")
        workers = [start(tmp_path, *words, variables={"JUDGEQ_STORE": store}) for _ in range(2)]
        ended = [json.loads(worker.communicate(timeout=60)[0]) for worker in workers]
    assert scores(tmp_path / "many" / "runs" / run, "--store", store) == expected
    assert sum(worker["done"] for worker in ended) == 90
    assert {worker["left"] for worker in ended} == {"done"}


def test_a_signal_hands_jobs_back_and_another_worker_does_them(tmp_path: Path, store: str) -> None:
    with mock(tmp_path, "--latency", "1") as url:
        with planning(tmp_path, store, *LISTS, *model(url)):
            how = ("--store", store, *model(url), "--concurrency", "2", "--json")
            process = start(tmp_path, "worker", *how)
            waited_for(store, "SELECT count(*) FROM @.jobs WHERE open > 0")
            process.send_signal(signal.SIGTERM)
            out = json.loads(process.communicate(timeout=60)[0])
            assert (process.returncode, out["left"]) == (5, "StoppedError")
            assert out["calls"] == out["done"] > 0  # those in flight were let finish
            worked(tally := Tally(), store=store, judge=("m",), base_url=url)
        assert stats(url)["requests"] == 6 == out["calls"] + tally.calls


def test_a_worker_spends_no_more_than_its_own_cap(tmp_path: Path, store: str, url: str) -> None:
    begun(tmp_path, store, *LISTS, *model(url), *CAP[:-2])
    own: dict[str, Any] = {"price": (1000.0, 1000.0), "max_cost": 6.0, "concurrency": 1}
    with pytest.raises(BudgetError):
        worked(tally := Tally(), store=store, judge=("m",), base_url=url, **own)
    assert 0 < tally.cost <= 6.0
    assert stats(url)["requests"] == tally.calls < 6


def test_who_writes_to_the_database_can_not_lift_the_cap_of_a_run(tmp_path: Path, url: str) -> None:
    store = f"{new_store()}&lease=1"
    begun(tmp_path, store, *(flags := (*LISTS, *model(url), *CAP)))
    lift = "'BEGIN NEW.cap := NULL; RETURN NEW; END'"
    sql(store, f"CREATE FUNCTION @.lift() RETURNS trigger LANGUAGE plpgsql AS {lift}")
    on_update = "BEFORE UPDATE ON @.runs FOR EACH ROW EXECUTE FUNCTION @.lift()"
    sql(store, f"CREATE TRIGGER lift {on_update}")
    how = ("--store", store, "--concurrency", "1")
    judgeq(tmp_path, "run", *flags, *how, expect=BudgetError.exit_code)
    assert 0 < stats(url)["requests"] < 6


def test_who_only_plans_names_workers_and_ends_at_the_cap(tmp_path: Path, url: str) -> None:
    store = f"{new_store()}&lease=1"  # nobody waits long for the scheduler that was killed
    run = begun(tmp_path, store, *(flags := (*LISTS, *model(url), *CAP)))
    own: dict[str, Any] = {"price": (1000.0, 1000.0), "concurrency": 1}
    with pytest.raises(BudgetError):
        worked(Tally(), store=store, judge=("m",), base_url=url, **own)
    waiting = ("run", "--store", store, "--workers", "0", *flags)
    said = judgeq(tmp_path, *waiting, expect=BudgetError.exit_code).stderr
    assert 0 < stats(url)["requests"] < 6
    assert f"judgeq worker {run} --store" in said
    assert "--judge m" in said
    assert "no worker may go on under --max-cost 6" in said


def test_a_worker_needs_a_store_and_runs_that_are_there(tmp_path: Path, store: str) -> None:
    begun(tmp_path, store, *PAIRS, "pairwise1")
    at = ("worker", "--store", store)
    for words, code, told in (
        (("worker",), 2, "--store is missing"),
        ((*at, "-j", "people"), 2, "a worker asks none"),
        ((*at, "x"), 7, "no run 'x'"),
        ((*at, "--exit-when", "tired"), 2, "'tired' is not one of 'idle', 'done'"),
    ):
        assert told in judgeq(tmp_path, *words, expect=code).stderr
