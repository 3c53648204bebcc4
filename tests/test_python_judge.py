"""A Python function as judge, texts and gold as they come, and runs that are awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import judgeq
from judgeq.events import RoundRated
from judgeq.judge.function import judge_name
from tests.cli import judgeq as command

TEXTS = ["a" * n for n in (3, 9, 1, 7, 5, 2, 8, 4, 6, 10)]
FEATURE = "how many letters it has"
ASKED: list[Sequence[str]] = []


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JUDGEQ_CACHE", str(tmp_path / "cache"))
    ASKED.clear()


def by_length(texts: Sequence[str], feature: str) -> list[int]:
    assert feature == FEATURE
    ASKED.append(texts)
    return sorted(range(len(texts)), key=lambda place: -len(texts[place]))


async def by_length_later(texts: Sequence[str], feature: str) -> np.ndarray[Any, Any]:
    await asyncio.sleep(0)
    return np.argsort([-len(text) for text in texts])


@pytest.mark.parametrize("judge", [by_length, by_length_later])
@pytest.mark.parametrize("strategy", ["listwise10", "complete"])
def test_a_function_that_counts_letters_ranks_by_length(judge: Any, strategy: str) -> None:
    result = judgeq.run(TEXTS, FEATURE, judge=judge, strategy=strategy)
    order = np.argsort(-result.scores.ratings["pl"])
    assert [len(TEXTS[row]) for row in order] == sorted(map(len, TEXTS), reverse=True)
    assert result.totals.cost == 0


def test_its_answers_are_kept_and_its_code_is_part_of_the_run() -> None:
    first = judgeq.run(TEXTS, FEATURE, judge=by_length, strategy="listwise4")
    asked = len(ASKED)
    assert asked == first.totals.calls
    judgeq.run(TEXTS, FEATURE, judge=by_length, strategy="listwise4")
    again = judgeq.run(TEXTS, FEATURE, judge=by_length, strategy="listwise4", new=True)
    assert len(ASKED) == asked
    assert again.totals.hits == asked
    other = judgeq.run(TEXTS, FEATURE, judge=lambda texts, _: [*range(len(texts))][::-1])
    assert other.run.id != first.run.id
    assert judge_name(by_length).startswith("python:by_length-")


def test_a_run_of_a_function_is_continued_from_python_only(tmp_path: Path) -> None:
    def stop(event: Any) -> None:
        if isinstance(event, RoundRated):
            raise judgeq.StoppedError("for the test")

    with pytest.raises(judgeq.StoppedError):
        judgeq.run(TEXTS, FEATURE, judge=by_length, strategy="listwise4", on_event=stop)
    (tmp_path / "texts.csv").write_text("text\n" + "\n".join(TEXTS) + "\n")
    refused = command(tmp_path, "resume", "-d", "texts.csv", expect=2).stderr
    assert "Continue it from Python: judgeq.resume(run, judge=function)" in refused
    with pytest.raises(judgeq.RunError, match="its judge changed"):
        judgeq.resume(dataset=TEXTS, judge=by_length_later)
    assert not judgeq.resume(dataset=TEXTS, judge=by_length).partial


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([0, 0, 1, 2], r"returned \[0, 0, 1, 2\], not an order of the places 0 to 3"),
        ([0, 1], "not an order of the places"),
        ("first", "not an order of the places"),
        (None, "returned None, not an order"),
    ],
)
def test_what_is_no_order_stops_the_run(answer: Any, message: str) -> None:
    with pytest.raises(judgeq.JudgeError, match=message):
        judgeq.run(TEXTS, FEATURE, judge=lambda *_: answer, strategy="listwise4:overlap=2")


def test_a_run_is_awaited_and_stops_when_cancelled() -> None:
    async def both() -> judgeq.Result:
        loop, started = asyncio.get_running_loop(), asyncio.Event()
        whole = await judgeq.arun(TEXTS, FEATURE, judge=by_length_later, strategy="listwise4")
        slow = asyncio.create_task(
            judgeq.arun(
                "demo",
                settings={"sim_latency": 30},
                on_event=lambda _: loop.call_soon_threadsafe(started.set),
            )
        )
        await started.wait()
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        return whole

    assert not asyncio.run(both()).partial
