"""Runs that are asked in batches: what goes out, comes back, and is left in the ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from judgeq.engine import batch
from judgeq.types import Batch, BatchState
from judgeq.ui.show.status import DAY, deadlines
from tests.cli import judgeq, only_run, scores
from tests.mock import mock, stats

pytestmark = pytest.mark.usefixtures("rated_by_elo")

LISTS = ("-d", "demo", "-s", "listwise5x2", "--price", "1,2", "--quiet")
APIS = {"openai": ("--judge", "m"), "anthropic": ("--judge", "m", "--api", "anthropic")}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(batch, "LONGEST_WAIT", 0.05)
    monkeypatch.setattr(batch, "AGAIN", 0.01)
    monkeypatch.setattr(batch, "SETTLING", 0.01)
    monkeypatch.setattr(batch, "FULL_WAIT", 0.05)


@pytest.fixture(params=list(APIS))
def api(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return APIS[request.param]


@contextmanager
def server(folder: Path, *flags: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """A mock server's address, and the flags by which it is asked in batches."""
    with mock(folder, "--batch-time", "0", *flags) as url:
        yield url, (*LISTS, "--base-url", url, "--batch")


def live(folder: Path, *flags: str) -> str:
    """The scores of the same run asked live."""
    (folder / "live").mkdir()
    with mock(folder) as url:
        judgeq(folder / "live", "run", *LISTS, "--base-url", url, *flags)
    return scores(only_run(folder / "live"))


def status(folder: Path) -> Any:
    return json.loads(judgeq(folder, "status", "--json").stdout)


def by_question(url: str) -> list[int]:
    """How often each question was answered."""
    return [one["answered"] for one in stats(url, questions=True)["by_question"].values()]


@pytest.mark.parametrize("how", ["", "--batch"])
def test_what_was_asked_again_is_not_bought_by_the_next_run(
    tmp_path: Path, api: tuple[str, ...], how: str
) -> None:
    with mock(tmp_path, "--batch-time", "0", "--unreadable", "0.1", "--seed", "1") as url:
        run = ("run", *LISTS, "--base-url", url, *api, *how.split())
        judgeq(tmp_path, *run)
        assert status(tmp_path)["jobs"]["done"] == 96
        bought = by_question(url)
        assert len(bought) > 96
        judgeq(tmp_path, *run, "--new")
        assert by_question(url) == bought
    first, second = (scores(path.parent) for path in tmp_path.glob("runs/*/scores.csv"))
    assert first == second


def test_a_run_in_batches_has_the_scores_of_one_asked_live(
    tmp_path: Path, api: tuple[str, ...]
) -> None:
    with server(tmp_path) as (url, flags):
        judgeq(tmp_path, "run", *flags, *api)
        assert by_question(url) == [1] * 96
    assert scores(only_run(tmp_path)) == live(tmp_path, *api)
    state = status(tmp_path)
    assert (state["jobs"]["done"], state["calls"], state["batches"]) == (96, 96, [])
    assert not list(tmp_path.glob("runs/*/batches"))
    report = json.loads(judgeq(tmp_path, "report", "--format", "md", "--json").stdout)
    assert "96 calls (sent in batches)" in Path(tmp_path, report["files"][0]).read_text("utf-8")


def test_without_waiting_a_session_sends_and_ends_and_the_same_command_goes_on(
    tmp_path: Path, api: tuple[str, ...]
) -> None:
    with server(tmp_path) as (url, flags):
        first = judgeq(tmp_path, "run", *flags, *api, "--no-wait", expect=5)
        assert "1 batch still out, with 48 questions" in first.stderr
        assert status(tmp_path)["jobs"]["running"] == 48
        judgeq(tmp_path, "run", *flags, *api, "--no-wait", expect=5)
        assert status(tmp_path)["rounds_planned"] == 2
        judgeq(tmp_path, "resume")
        assert by_question(url) == [1] * 96
    assert scores(only_run(tmp_path)) == live(tmp_path, *api)


def test_equal_questions_are_bought_once_also_in_one_batch(
    tmp_path: Path, api: tuple[str, ...]
) -> None:
    texts = tmp_path / "texts.csv"
    texts.write_text("id,text\na,good\nb,bad\nc,good\nd,good\n")
    run = ("run", "-d", str(texts), "--prompt", "bias", "-s", "direct", *LISTS[4:], "--batch")
    with mock(tmp_path, "--batch-time", "0") as url:
        judgeq(tmp_path, *run, "--base-url", url, *api)
        assert by_question(url) == [1, 1]
    state = status(tmp_path)
    assert (state["jobs"]["done"], state["calls"], state["cache_hits"]) == (4, 2, 2)


# Deadlines of results


SENT = Batch("jq1", 0, "openai", "http://h/v1", "schema", 0.0, 48, 1.0, 1.0, BatchState.SENT, "b")


def test_results_that_are_soon_deleted_are_warned_of() -> None:
    theirs = SENT._replace(api="anthropic")
    assert deadlines([SENT, theirs], 19 * DAY) == []
    (warning,) = deadlines([SENT, theirs], 19.5 * DAY)
    assert "deleted by its provider on about 1970-01-30" in warning
    assert len(deadlines([SENT, theirs], 21 * DAY)) == 2
    assert "may be gone" in deadlines([SENT], 31 * DAY)[0]
    assert deadlines([SENT._replace(state=BatchState.COLLECTED)], 31 * DAY) == []
