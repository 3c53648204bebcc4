"""Real kills of sessions that ask in batches, at each step: nothing is asked twice, nothing is lost."""

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import faulty_server
from tests.batch_killing import STEPS, Forks, forks
from tests.batch_server import APIS, QUESTIONS, SMALL_BATCHES, live, texts
from tests.cli import only_run, query, scores
from tests.mock import billed, mock, stats

pytestmark = pytest.mark.usefixtures("rated_by_elo")
__all__ = ["live", "texts"]  # fixtures

SEEDS = 32
LONG = [pytest.mark.long]
KILLED = [
    pytest.param(api, seed, id=f"{api}-{seed}", marks=LONG if seed >= len(STEPS) else [])
    for seed in range(SEEDS)
    for number, api in enumerate(APIS)
    if (seed + seed // len(STEPS)) % len(APIS) == number
]
"""Each seed by one of the APIs in turn, so that each step comes first with each of them: the first
round of the steps in `make test`."""
BATCHES = 6
CAP = 0.003


@pytest.fixture(scope="module")
def forking(tmp_path_factory: pytest.TempPathFactory, texts: Path) -> Iterator[Forks]:
    folder = tmp_path_factory.mktemp("warm")
    with mock(folder, "--batch-time", "0") as url:
        words = ("run", "-d", texts, *SMALL_BATCHES, "--base-url", url, "--batch")
        with forks(folder, words) as forking:
            yield forking


def kills(seed: int) -> Iterator[tuple[str | int, ...]]:
    """Where sessions are killed, one after the other: each step comes first in some seed."""
    steps, drawn = list(STEPS), random.Random(seed)
    first = steps[seed % len(steps)]
    if first == "identified":
        yield "before its id is written", drawn.randint(1, 3)
    of_a_batch = first in ("with its files", "without its files", "downloaded")
    last = BATCHES if of_a_batch and seed >= len(steps) else 1 if first == "identified" else 2
    yield first, last if of_a_batch else drawn.randint(1, last)
    for _ in range(drawn.randint(0, 3)):
        yield drawn.choice(steps), drawn.randint(1, 5)


@pytest.mark.parametrize(("api", "seed"), KILLED)
def test_killed_anywhere_nothing_is_asked_twice(
    tmp_path: Path,
    texts: Path,
    forking: Forks,
    live: dict[str, str],
    api: str,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(faulty_server, "LARGEST_PAGE", 2)
    time, cap = ("0", "0.03")[seed % 2], CAP if seed % 3 == 0 else None
    with mock(tmp_path, "--batch-time", time) as url:
        words = ("run", "-d", str(texts), *SMALL_BATCHES, *APIS[api], "--base-url", url, "--batch")
        killed = 0
        kill: tuple[str | int, ...]
        for kill in itertools.chain(kills(seed), itertools.repeat(())):
            capped = () if cap is None else ("--max-cost", str(cap))
            done = forking.session(tmp_path, (*words, *capped), *kill)
            seen = stats(url, questions=True)
            assert cap is None or billed(seen) <= cap
            if done.code == 0:
                break
            if done.code == 6 and cap is not None:
                cap *= 2
            else:
                assert done.code is None, done
            killed += done.code is None
    assert killed or cap is not None
    assert scores(only_run(tmp_path)) == live[api]
    # Each question was asked once: what is given up for lost was never created.
    assert [one["answered"] for one in seen["by_question"].values()] == [1] * QUESTIONS
    check_ledger(tmp_path, seen)
    assert not list(tmp_path.glob("runs/*/batches"))


def check_ledger(folder: Path, seen: dict[str, Any]) -> None:
    """The ledger says of batches, calls and money what the server says."""
    run = only_run(folder)
    sql = "SELECT name, state, remote, jobs FROM batches JOIN workers USING (worker)"
    kept: list[Any] = query(run, sql)
    assert {state for _, state, _, _ in kept} <= {"collected", "lost"}
    there = {batch["id"]: batch["first_custom_id"] for batch in seen["batches"]["list"]}
    assert len(there) == seen["batches"]["created"]
    named = {remote: name for name, state, remote, _ in kept if state == "collected"}
    assert {remote: first.rpartition("-")[0] for remote, first in there.items()} == named
    assert all(remote is None for _, state, remote, _ in kept if state == "lost")
    ((cost, answered, at_risk, unknown),) = query(
        run,
        "SELECT (SELECT sum(cost) FROM calls), (SELECT count(*) FROM calls WHERE outcome = 'ok'), "
        "sum(at_risk), sum(open) FROM jobs",
    )
    assert cost == pytest.approx(billed(seen), rel=1e-12)
    assert answered == QUESTIONS
    assert unknown == sum(jobs for _, state, _, jobs in kept if state == "lost")
    assert (at_risk > 0) == (unknown > 0)
