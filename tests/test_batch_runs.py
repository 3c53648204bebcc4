"""Runs of every kind in batches: as live to the last bit, under caps, on PostgreSQL beside workers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.batch_killing import Forks, forks, quick
from tests.batch_server import APIS, texts_in
from tests.cli import ended, judgeq, only_run, query, scores
from tests.mock import billed, mock, stats
from tests.postgres import new_store

ASKED = (
    *("--prompt", "bias", "--quiet", "--price", "1,2"),
    *("--max-output-tokens", "200"),
)
LISTS = ("--strategy", "listwise4x2", "--judge", "m", *ASKED)
QUESTIONS = 8
KINDS = {
    "two models": "--strategy listwise4x2 --judge m --judge n",
    "each": "--strategy listwise4x2 --judge m --judge n --ensemble each",
    "personas": "--strategy listwise4x2 --judge m --persona journalist --persona reader",
    "both orders": "--strategy pairwise2 --judge m --both-orders",
    "direct": "--strategy direct --judge m",
    "hybrid": "--strategy hybrid --judge m",
    "reasons": "--strategy listwise4x2 --judge m --reasons",
    "until": "--strategy listwise10x9 --judge m --until 0.5",
}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, short_waits: None) -> None:
    quick(monkeypatch.setattr)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return texts_in(tmp_path_factory.mktemp("texts"), 16)


@pytest.fixture(params=list(APIS))
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def live(folder: Path, texts: Path, *words: str) -> str:
    """The scores of the same run asked live."""
    place = folder / "live"
    place.mkdir()
    with mock(place) as url:
        judgeq(place, "run", "-d", texts, *words, "--base-url", url, "--no-cache")
    return scores(only_run(place))


@pytest.mark.parametrize("kind", KINDS)
def test_runs_of_every_kind_have_the_scores_of_live_ones(
    tmp_path: Path, texts: Path, api: str, kind: str
) -> None:
    words = (*KINDS[kind].split(), *ASKED, *APIS[api])
    with mock(tmp_path, "--batch-time", "0") as url:
        batched = ("--base-url", url, "--batch", "--batch-size", "5")
        judgeq(tmp_path, "run", "-d", texts, *words, *batched)
        seen = stats(url)
    assert seen["requests"] == 0
    assert seen["batches"]["billed"] == query(only_run(tmp_path), "SELECT count(*) FROM jobs")[0][0]
    assert scores(only_run(tmp_path)) == live(tmp_path, texts, *words)


def test_a_cap_cuts_rounds_into_batches_and_is_never_exceeded(
    tmp_path: Path, texts: Path, api: str
) -> None:
    words = (*LISTS, *APIS[api])
    codes, cap, paid, most = list[int](), 0.0006, 0.0, 0
    with mock(tmp_path, "--batch-time", "0.02") as url:
        while codes[-1:] != [0] and len(codes) < 20:
            flags = ("--base-url", url, "--batch", "--max-cost", str(cap))
            done = ended(tmp_path, "run", "-d", texts, *words, *flags)
            codes.append(done.returncode)
            seen = stats(url)
            most = max([most, *(batch["lines"] for batch in seen["batches"]["list"])])
            paid = billed(seen)
            assert paid <= cap
            assert codes[-1] == 0 or "might exceed --max-cost" in done.stderr
            cap += 0.0002
        answered = [one["answered"] for one in stats(url, questions=True)["by_question"].values()]
    assert set(codes[:-1]) == {6}
    assert codes[-1] == 0
    assert answered == [1] * QUESTIONS
    assert most < QUESTIONS // 2, "no batch was a whole round"
    state = json.loads(judgeq(tmp_path, "status", "--json").stdout)
    assert state["cost"] == pytest.approx(paid, rel=1e-12)
    assert scores(only_run(tmp_path)) == live(tmp_path, texts, *words)


def test_a_run_goes_on_live_once_what_is_out_is_collected(
    tmp_path: Path, texts: Path, api: str
) -> None:
    words = (*LISTS, *APIS[api])
    with mock(tmp_path, "--batch-time", "0.02") as url:
        run = ("run", "-d", str(texts), *words, "--base-url", url)
        judgeq(tmp_path, *run, "--batch", "--no-wait", expect=5)
        judgeq(tmp_path, *run)
        seen = stats(url, questions=True)
    assert (seen["batches"]["billed"], seen["requests"]) == (QUESTIONS // 2, QUESTIONS // 2)
    assert [one["answered"] for one in seen["by_question"].values()] == [1] * QUESTIONS
    assert scores(only_run(tmp_path)) == live(tmp_path, texts, *words)


@pytest.fixture(scope="module")
def forking(tmp_path_factory: pytest.TempPathFactory, texts: Path) -> Iterator[Forks]:
    folder = tmp_path_factory.mktemp("warm")
    with mock(folder, "--batch-time", "0") as url:
        words = ("run", "-d", texts, *LISTS, "--base-url", url, "--batch")
        with forks(folder, words) as forking:
            yield forking


@pytest.mark.parametrize(
    ("api", "step"),
    [
        ("openai", "before its id is written"),
        ("anthropic", "between two commits"),
        pytest.param("openai", "before it is created", marks=pytest.mark.long),
        pytest.param("openai", "between two commits", marks=pytest.mark.long),
        pytest.param("anthropic", "before it is created", marks=pytest.mark.long),
        pytest.param("anthropic", "before its id is written", marks=pytest.mark.long),
    ],
)
def test_on_postgresql_a_killed_run_goes_on_and_workers_leave_its_batches_alone(
    tmp_path: Path, texts: Path, forking: Forks, api: str, step: str
) -> None:
    store, words = f"{new_store()}&lease=1", (*LISTS, *APIS[api])
    with mock(tmp_path, "--batch-time", "0") as url:
        asking = ("--base-url", url, "--store", store)
        run = ("run", "-d", str(texts), *words, *asking, "--batch", "--batch-size", "2")
        assert forking.session(tmp_path, run, step, 1).code is None
        worker = ("worker", *words[2:4], *APIS[api], *asking, "-d", str(texts), "--quiet")
        # Refused where jobs are left that are no worker's, else not looked at.
        assert ended(tmp_path, *worker, "--exit-when", "idle").returncode in (0, 2)
        done = forking.session(tmp_path, run)
        assert done.code == 0, done
        seen = stats(url, questions=True)
    answered = [one["answered"] for one in seen["by_question"].values()]
    assert answered == [1] * QUESTIONS
    assert scores(only_run(tmp_path), "--store", store) == live(tmp_path, texts, *words)
