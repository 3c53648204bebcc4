"""Which model answered, as its provider says: kept with each call; a run answered by several says so."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from judgeq.judge.backend import MOST_OF_A_NAME
from tests.batch_server import APIS, texts_in
from tests.cli import judgeq, only_run
from tests.mock import mock
from tests.test_openai_chat import ask, saying, told
from tests.web import completion

QUESTIONS = 8
WORDS = ("--strategy", "listwise4x2", "--prompt", "bias", "--judge", "m", "--price", "1,2")
SAYS = "2 models answered for m: m (5 calls), m-next (3 calls)."


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return texts_in(tmp_path_factory.mktemp("texts"), 16)


def run(folder: Path, texts: Path, *more: str, server: tuple[str, ...] = ()) -> dict[str, Any]:
    with mock(folder, "--model-after", "5", *server) as url:
        done = judgeq(folder, "run", "-d", texts, *WORDS, "--base-url", url, "--json", *more)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_run_answered_by_several_models_says_so_everywhere(tmp_path: Path, texts: Path) -> None:
    found = run(tmp_path, texts, "--concurrency", "1")
    assert [(one["model"], one["calls"]) for one in found["answered_by"]] == [
        ("m", 5),
        ("m-next", 3),
    ]
    assert {one["judge"] for one in found["answered_by"]} == {"m"}
    assert len({one["fingerprint"] for one in found["answered_by"]}) == 2
    assert [one for one in found["cautions"] if SAYS in one]
    for command in ("evaluate", "show", "show --write"):
        assert SAYS in " ".join(judgeq(tmp_path, *command.split()).stdout.split()), command
    judgeq(tmp_path, "report", "--format", "md")
    assert SAYS in (only_run(tmp_path) / "report.md").read_text(encoding="utf-8")
    calls = judgeq(tmp_path, "export", "--table", "calls").stdout
    assert calls.count(",m-next,fp_") == 3


def test_a_cached_reply_keeps_the_model_that_answered_then(tmp_path: Path, texts: Path) -> None:
    with mock(tmp_path, "--model-after", "5") as url:
        words = ("run", "-d", texts, *WORDS, "--base-url", url, "--concurrency", "1", "--json")
        bought, free = (
            json.loads(judgeq(tmp_path, *words, *new).stdout) for new in ((), ("--new",))
        )
    assert free["cache_hits"] == QUESTIONS
    assert free["answered_by"] == bought["answered_by"]


def test_the_models_are_one_judge_unless_they_are_split(tmp_path: Path, texts: Path) -> None:
    run(tmp_path, texts, "--concurrency", "1")
    one = json.loads(judgeq(tmp_path, "evaluate", "--json").stdout)
    assert one["judges"] is None
    split = json.loads(judgeq(tmp_path, "evaluate", "--split-models", "--json").stdout)
    assert split["judges"]["names"] == ["m (m)", "m (m-next)"]
    assert split["judges"]["verdicts"] == [5, 3]
    assert split["judge"] == "m (m) + m (m-next)"


@pytest.mark.parametrize("api", APIS)
def test_a_batch_says_which_model_answered_too(
    tmp_path: Path, texts: Path, api: str, short_waits: None
) -> None:
    server = ("--batch-time", "0")
    found = run(tmp_path, texts, *APIS[api], "--batch", server=server)
    assert [one["calls"] for one in found["answered_by"]] == [5, 3]


async def test_what_a_server_names_is_bounded_and_no_more_than_a_name() -> None:
    named = {"model": "\x1b[31m" + "x" * 1000, "system_fingerprint": ["no name"]}
    async with told(saying(completion('{"winner": "A"}') | named)) as made:
        answerer = (await ask(made)).answerer
    assert answerer.model == ("\x1b[31m" + "x" * 1000)[:MOST_OF_A_NAME]
    assert answerer.fingerprint is None


def test_a_name_can_not_style_the_terminal(tmp_path: Path, texts: Path) -> None:
    run(tmp_path, texts, "--concurrency", "1")
    ledger = only_run(tmp_path) / "run.db"
    with sqlite3.connect(ledger) as connection:
        connection.execute("UPDATE calls SET model = char(27) || '[31m<b>' || model")
    judgeq(tmp_path, "report")
    assert "\x1b" not in judgeq(tmp_path, "evaluate", "--split-models").stdout
    assert "<b>m" not in (only_run(tmp_path) / "report.html").read_text(encoding="utf-8")
