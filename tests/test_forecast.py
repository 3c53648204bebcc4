"""What is known before the first call: what it takes, where it goes, what is known of it already."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import judgeq as package
from judgeq.cli import run as running
from judgeq.engine import usage
from judgeq.errors import KeyMissingError
from judgeq.events import CallStarted, Event, Forecast
from tests.cli import judgeq, only_run
from tests.mock import mock, stats

pytestmark = pytest.mark.usefixtures("rated_by_elo", "undrawn")

LIMIT = ("--max-output-tokens", "500")


def table(folder: Path, texts: int, name: str = "my.csv") -> Path:
    path = folder / name
    path.write_text("text\n" + "".join(f"This is text number {i}.\n" for i in range(texts)))
    return path


def job(url: str, *more: str, price: str = "1,10") -> tuple[str, ...]:
    mine = ("run", "-d", "my.csv", "--feature", "length", "--judge", "m", "-s", "listwise5x2")
    return (*mine, "--base-url", url, "--price", price, *LIMIT, *more)


def dear(url: str) -> tuple[str, ...]:
    """A run that may cost more than half a dollar."""
    return job(url, price="100,100")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "is_terminal", lambda: True)


def test_what_is_left_is_shown_before_the_first_call_and_the_address(tmp_path: Path) -> None:
    table(tmp_path, 20)
    with mock(tmp_path) as url:
        stopped = judgeq(tmp_path, *job(url, "--max-cost", "0.0068"), expect=6).stderr
        shown, address, *_ = stopped.splitlines()
        assert shown.startswith("To ask: 8 calls, ")
        assert shown.endswith("; capped at $0.0068.")
        assert address == f"m is asked at {url}."
        asked = stats(url)["requests"]
        assert 0 < asked < 8
        more = judgeq(tmp_path, *job(url, "--yes")).stderr
        assert more.startswith(f"Left: {8 - asked} calls, ")
        assert "; no cap (--max-cost sets one)." in more.splitlines()[0]
        # Nothing is left: nothing is said.
        again = judgeq(tmp_path, *job(url)).stderr
        assert "calls" not in again


def test_events_and_estimates_say_the_same(tmp_path: Path) -> None:
    events: list[Event] = []
    with mock(tmp_path) as url:
        settings = {"price": (1, 10), "cache_dir": tmp_path / "replies"}
        how: dict[str, Any] = {"judge": "m", "base_url": url, "strategy": "listwise5x2"}
        how |= {"max_output_tokens": 500, "runs_dir": tmp_path / "runs", "settings": settings}
        texts = [f"This is text number {i}." for i in range(20)]
        left = package.estimate(texts, "length", **how)
        package.run(texts, "length", max_cost=9, on_event=events.append, **how)
    (said,) = (event for event in events if isinstance(event, Forecast))
    assert events.index(said) < [type(event) for event in events].index(CallStarted)
    assert left.cost is not None
    assert (said.calls, said.from_cache, said.max_cost) == (left.calls, 0, 9)
    assert said.cost == (left.cost.low, left.cost.high)
    assert said.output_tokens == (left.output.low, left.output.high)


@pytest.mark.usefixtures("terminal")
def test_on_a_terminal_a_dear_run_without_a_cap_is_begun_only_after_a_yes(tmp_path: Path) -> None:
    table(tmp_path, 20)
    with mock(tmp_path) as url:
        for answer in ("n\n", "", "what?\n"):
            refused = judgeq(tmp_path, *dear(url), "--json", expect=5, stdin=answer)
            assert "no cap" in refused.stderr
            assert "Begin? [y/N]" in refused.stderr
            assert json.loads(refused.stdout)["error"]["type"] == "StoppedError"
        assert stats(url)["requests"] == 0
        assert not (tmp_path / "runs").exists()
        # Neither cheap runs, nor those with a cap, nor --yes are asked about.
        for flags in (job(url), (*dear(url), "--seed", "1", "--max-cost", "90")):
            assert "Begin?" not in judgeq(tmp_path, *flags).stderr
        assert "Begin?" not in judgeq(tmp_path, *dear(url), "--seed", "2", "--yes").stderr
        assert "Begin?" in judgeq(tmp_path, *dear(url), "--seed", "3", stdin="y\n").stderr
        assert stats(url)["requests"] == 32


def test_without_a_terminal_nothing_is_asked(tmp_path: Path) -> None:
    table(tmp_path, 20)
    with mock(tmp_path) as url:
        assert "Begin?" not in judgeq(tmp_path, *dear(url)).stderr


@pytest.mark.usefixtures("terminal")
def test_a_missing_key_comes_before_the_question(tmp_path: Path) -> None:
    table(tmp_path, 20)
    official = ("-d", "my.csv", "--feature", "length", "-j", "gpt-5-mini", "--price", "1000,1000")
    assert "Begin?" not in judgeq(tmp_path, "run", *official, expect=4).stderr
    with pytest.raises(KeyMissingError):
        package.run(["a", "b", "c"], "length", judge="gpt-5-mini", runs_dir=tmp_path / "runs")


def test_failed_jobs_that_are_asked_again_are_counted(tmp_path: Path) -> None:
    table(tmp_path, 20)
    with mock(tmp_path) as url:
        judgeq(tmp_path, *job(url, "--max-output-tokens", "5", "--max-invalid", "1"), expect=4)
        more = judgeq(tmp_path, "resume", "--retry-failed", "--max-output-tokens", "500").stderr
    assert more.startswith("Left: 8 calls, ")


def test_a_key_that_is_not_sent_is_named_with_the_flag_that_sends_it(tmp_path: Path) -> None:
    table(tmp_path, 10)
    unsent = "$OPENAI_API_KEY is set, but not sent to"
    with mock(tmp_path) as url:

        def said(*flags: str, **variables: str) -> str:
            shown = judgeq(tmp_path, *job(url, *flags, "--new", "--no-cache"), variables=variables)
            return shown.stderr

        key = {"OPENAI_API_KEY": "sk-mine-0123456789"}
        shown = said(**key)
        assert f"{unsent} {url}. --api-key-env OPENAI_API_KEY sends it there." in shown
        assert "sk-mine" not in shown
        assert unsent not in said()
        assert unsent not in said("--api-key-env", "OPENAI_API_KEY", **key)
        assert unsent not in said(**key, JUDGEQ_API_KEY="sk-local-0123456789")
        assert unsent not in said("--header", "Authorization: Bearer x", **key)


def test_the_same_data_with_a_row_more_is_said_to_be_another_run(tmp_path: Path) -> None:
    path = table(tmp_path, 20)
    with mock(tmp_path) as url:
        assert "another run" not in judgeq(tmp_path, *job(url)).stderr
        first = only_run(tmp_path).name
        path.write_text(path.read_text() + "One more.\n")
        said = (
            f"This is another run than {first} (1 of 21 texts is new): 0 of its first 5 questions"
        )
        estimated = judgeq(tmp_path, "estimate", *job(url)[1:], "--json").stdout
        known = {"run": first, "new_texts": 1, "questions": 5, "known": 0}
        assert json.loads(estimated)["earlier"] == known
        assert said in " ".join(judgeq(tmp_path, "estimate", *job(url)[1:]).stdout.split())
        assert said in judgeq(tmp_path, *job(url)).stderr
        # A text that changed can't be told from one that is new: no run keeps texts.
        path.write_text(path.read_text().replace("number 7.", "number seven."))
        changed = judgeq(tmp_path, *job(url)).stderr
        assert "(the texts differ): 4 of its first 5 questions are known." in changed
        # Other words are asked for: another run, and no surprise.
        assert "another run" not in judgeq(tmp_path, *job(url, "--reasons")).stderr
        # Of a run that was deleted the cache knows the answers.
        judgeq(tmp_path, "runs")
        for run in (tmp_path / "runs").glob("*"):
            if run.name != first:
                for file in run.iterdir():
                    file.unlink()
                run.rmdir()
        assert "): 5 of its first 5 questions are known." in judgeq(tmp_path, *job(url)).stderr


def test_of_many_questions_some_are_looked_up_and_all_where_the_cache_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"Text {i}." + " More words." * (i % 7) ** 2 for i in range(200)]
    with mock(tmp_path) as url:
        settings = {"price": (1, 10), "cache_dir": tmp_path / "replies"}
        how: dict[str, Any] = {"judge": "m", "base_url": url, "strategy": "listwise5x1"}
        how |= {"max_output_tokens": 500, "runs_dir": tmp_path / "runs", "settings": settings}
        whole = package.estimate(texts, "length", **how)
        monkeypatch.setattr(usage, "LOOKED_UP", 10)
        part = package.estimate(texts, "length", **how)
        assert (part.calls, part.hits, part.sampled) == (whole.calls, 0, True) == (40, 0, True)
        assert whole.cost is not None
        assert part.cost is not None
        assert whole.cost.high <= part.cost.high < 1.1 * whole.cost.high
        assert whole.output == part.output
        path = tmp_path / "my.csv"
        path.write_text("text\n" + "\n".join(texts))
        flags = (*job(url), "-s", "listwise5x1")
        assert "at most 40 calls" in judgeq(tmp_path, "estimate", *flags[1:]).stdout
        assert judgeq(tmp_path, *flags).stderr.startswith("To ask: at most 40 calls, ")
        # As many are known as if all had been looked up: only those that the run asked.
        package.run(texts, "length", **how)
        again = package.estimate(texts, "length", **how, new=True)
        assert (again.calls, again.hits, again.sampled) == (0, 40, False)


def test_what_batches_have_is_not_asked_once_more(tmp_path: Path) -> None:
    table(tmp_path, 20)
    with mock(tmp_path, "--batch-time", "1000") as url:
        assert "8 calls" in judgeq(tmp_path, *job(url, "--batch", "--no-wait"), expect=5).stderr
        left = json.loads(judgeq(tmp_path, "estimate", *job(url, "--batch")[1:], "--json").stdout)
    assert (left["calls"], left["rounds_not_looked_into"]) == (4, 1)
