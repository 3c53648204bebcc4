"""Runs in batches at servers with faults: each job ends done, invalid or failed with its reason, nothing
is paid for twice that need not be, and nothing is left lying about."""

import itertools
import math
import re
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from aiohttp import web

from judgeq.engine import batch
from tests import faulty_server
from tests.anthropic_server import AnthropicServer
from tests.batch_killing import quick
from tests.batch_server import APIS, QUESTIONS, SMALL_BATCHES, live, texts
from tests.cli import ended, judgeq, only_run, query, scores
from tests.faulty_server import FaultyBatch, FaultyBatches
from tests.mock import billed, mock, stats

pytestmark = pytest.mark.usefixtures("rated_by_elo")
__all__ = ["live", "texts"]  # fixtures

# Those of a session that say nothing to the user, and pay for nothing twice.
QUIET = (
    *("--batch-expire 1", "--batch-limited 0.5 --retry-after 0.01", "--batch-unanswered 1"),
    *("--batch-doubled 0.5", "--batch-broken 0.5"),
    *("--batch-flaky 0.3 --retry-after 0.01", "--batch-failing 0.3"),
)
UNUSABLE = ("--refused 0.3", "--cut-off 0.3")
MIXED = "--batch-expire 0.2 --batch-limited 0.2 --batch-unanswered 0.2 --batch-broken 0.2"
MIXED += " --batch-flaky 0.1 --batch-failing 0.1 --batch-doubled 0.1 --batch-lost 0.05"
MIXED += " --retry-after 0.01"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, short_waits: None) -> None:
    quick(monkeypatch.setattr)
    monkeypatch.setattr(faulty_server, "LARGEST_PAGE", 1)


@pytest.fixture(params=list(APIS))
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Rehearsal:
    """Sessions of a run in batches at one server, until one ends with this code; and what holds however
    it ended."""

    def __init__(self, folder: Path, texts: Path, api: str, faults: str, until: int = 0) -> None:
        self.codes, self.errors = list[int](), ""
        words = ("run", "-d", str(texts), *SMALL_BATCHES, *APIS[api], "--batch", "--base-url")
        (temporary := folder / "temporary").mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tempfile, "tempdir", str(temporary))
            with mock(folder, "--batch-time", "0.02", *faults.split()) as url:
                while len(self.codes) < 8 and self.codes[-1:] != [until]:
                    done = ended(folder, *words, url)
                    assert "Traceback" not in done.stderr
                    self.codes.append(done.returncode)
                    self.errors += done.stderr
                self.seen = stats(url, questions=True)
        self.run = only_run(folder)
        assert not list(folder.glob("runs/*/batches"))
        assert not list(temporary.iterdir())
        assert not query(self.run, "SELECT id FROM jobs WHERE state = 'running'")
        open_batches = "SELECT 1 FROM batches WHERE state IN ('intended', 'sent')"
        assert not query(self.run, open_batches)
        lost = "state != 'done' AND error IS NULL AND attempts"
        assert not query(self.run, f"SELECT 1 FROM jobs WHERE {lost}")
        costs = "(SELECT coalesce(sum(cost), 0) FROM calls)"
        ((paid, risk),) = query(self.run, f"SELECT {costs}, sum(at_risk) / 1e9 FROM jobs")
        assert paid <= billed(self.seen) + 1e-12
        assert billed(self.seen) <= paid + risk + 1e-12

    def states(self) -> dict[Any, Any]:
        """How many jobs are in which state."""
        counted: Any = query(self.run, "SELECT state, count(*) FROM jobs GROUP BY state")
        return dict(counted)

    def answered(self) -> list[int]:
        """How often each question was answered."""
        return [one["answered"] for one in self.seen["by_question"].values()]


Rehearse: TypeAlias = Callable[..., Rehearsal]
Live: TypeAlias = dict[str, str]


@pytest.fixture
def rehearse(tmp_path: Path, texts: Path) -> Rehearse:
    return partial(Rehearsal, tmp_path, texts)


@pytest.mark.parametrize(
    ("api", "faults"), [*itertools.product(APIS, QUIET), ("openai", "--batch-queue-tokens 900")]
)
def test_what_is_mended_by_itself(rehearse: Rehearse, live: Live, api: str, faults: str) -> None:
    done = rehearse(api, faults)
    assert (done.codes, done.errors) == ([0], "")
    assert scores(done.run) == live[api]
    assert done.answered() == [1] * QUESTIONS


@pytest.mark.parametrize(
    ("api", "flaky"), [("openai", "--batch-flaky 0.3 --retry-after 0.01"), ("anthropic", "")]
)
def test_a_batch_that_was_created_though_the_answer_was_429_is_taken_up(
    rehearse: Rehearse, live: Live, api: str, flaky: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every second creation is answered so; another that wasn't taken is offered again, and neither is
    paid for twice, or unknown."""
    for routes in (FaultyBatches, AnthropicServer):
        monkeypatch.setattr(routes, "create", belied(routes.create))
    done = rehearse(api, f"--batch-limited 0.2 --retry-after 0.01 {flaky}")
    assert (done.codes, done.errors) == ([0], "")
    assert scores(done.run) == live[api]
    assert done.answered() == [1] * QUESTIONS
    assert query(done.run, "SELECT sum(open), sum(at_risk) FROM jobs") == [(0, 0)]
    refused = query(done.run, "SELECT state FROM batches WHERE error IS NOT NULL")
    assert {state for (state,) in refused} <= {"refused"}


def belied(create: Any) -> Any:
    """A creation of which every second is answered with 429."""
    counted = itertools.count()

    async def answered(self: Any, request: web.Request) -> web.StreamResponse:
        response: web.StreamResponse = await create(self, request)
        believed = response.status != 200 or next(counted) % 2 == 0
        return response if believed else web.json_response({}, status=429)

    return answered


def test_a_batch_refused_as_invalid_stops_the_run_and_costs_nothing(
    rehearse: Rehearse, live: Live, api: str
) -> None:
    done = rehearse(api, "--batch-invalid 0.3")
    assert done.codes == [4, 4, 0]
    assert ("line 1: The request" if api == "openai" else "requests.0.params") in done.errors
    assert scores(done.run) == live[api]
    assert done.answered() == [1] * QUESTIONS
    assert query(done.run, "SELECT count(*) FROM calls WHERE outcome = 'not_sent'") == [(4,)]


def test_lines_that_results_lack_are_reported_and_asked_again(
    rehearse: Rehearse, live: Live, api: str
) -> None:
    done = rehearse(api, "--batch-lost 0.2")
    assert done.codes == [0]
    assert scores(done.run) == live[api]
    assert sorted(done.answered()) == [1] * 15 + [2] * 5
    lacking = re.findall(r"lack (\d) of its lines, which may have been paid for", done.errors)
    assert sum(map(int, lacking)) == 5
    assert query(done.run, "SELECT sum(open) FROM jobs") == [(5,)]


@pytest.mark.parametrize(
    ("api", "faults"),
    [("openai", "--batch-lost 1"), ("anthropic", ""), ("openai", "--batch-failing 1")],
)
def test_who_never_has_an_answer_for_us_is_not_paid_for_ever(
    rehearse: Rehearse, api: str, faults: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not faults:
        monkeypatch.setattr(faulty_server, "KEPT", 0)
    done = rehearse(api, faults, until=4)
    assert done.codes == [4]
    assert done.states() == {"failed": QUESTIONS}
    assert set(done.answered()) == {0 if faults == "--batch-failing 1" else 8}


def test_lines_that_failed_inside_a_200_and_replies_with_thinking_are_read_as_live_ones(
    rehearse: Rehearse, live: Live
) -> None:
    done = rehearse("openai", "--failed-inside 0.4 --thinks 1")
    assert done.codes == [0]
    assert scores(done.run) == live["openai"]
    assert done.states() == {"done": QUESTIONS}
    outcomes: Any = query(done.run, "SELECT DISTINCT outcome FROM calls ORDER BY outcome")
    assert outcomes == [("ok",), ("rate_limited",), ("server_error",)]


def test_a_batch_without_a_system_role_is_sent_again_without_it(
    rehearse: Rehearse, live: Live
) -> None:
    done = rehearse("openai", "--system-role 0")
    assert done.codes == [0]
    assert done.states() == {"done": QUESTIONS}
    assert done.answered() == [1] * QUESTIONS


@pytest.mark.parametrize(("api", "faults"), list(zip(APIS, UNUSABLE, strict=True)))
def test_unusable_replies_are_asked_again_once(rehearse: Rehearse, api: str, faults: str) -> None:
    done = rehearse(api, faults)
    assert done.codes == [0]
    states = done.states()
    assert set(states) == {"done", "invalid"}
    reasons = query(done.run, "SELECT error FROM jobs WHERE state = 'invalid'")
    assert len(reasons) == states["invalid"]
    assert all(reason for (reason,) in reasons)
    assert query(done.run, "SELECT max(attempts), min(attempts) FROM jobs") == [(2, 1)]
    assert not done.seen["requests"]


def test_a_quota_that_is_used_up_ends_the_session(
    rehearse: Rehearse, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that stops leaves the batches that haven't ended by then to the next: here all have
    ended before the first is looked at."""
    monkeypatch.setattr(batch, "FIRST_WAIT", 0.0)
    done = rehearse(api, "--quota-after 7 --batch-time 0", until=4)
    assert done.codes == [4]
    assert "money or quota is used up" in done.errors
    assert done.states() == {"done": 7, "pending": 3}


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_all_of_it_at_once(rehearse: Rehearse, live: Live, api: str, seed: int) -> None:
    done = rehearse(api, f"{MIXED} --batch-time 0.0{seed}")
    assert done.codes[-1] == 0
    assert scores(done.run) == live[api]


def test_batches_cancelled_half_way_are_collected_and_the_rest_is_asked_again(
    tmp_path: Path, texts: Path, live: Live, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mock(tmp_path, "--batch-time", "0") as url:
        run = ("run", "-d", str(texts), *SMALL_BATCHES, *APIS[api], "--base-url", url, "--batch")
        with monkeypatch.context() as patch:
            patch.setattr(FaultyBatch, "end", math.inf)
            patch.setattr(FaultyBatch, "due", lambda batch, now: len(batch.lines) // 2)
            judgeq(tmp_path, *run, "--no-wait", expect=5)
            judgeq(tmp_path, "runs", "batches", "cancel")
        judgeq(tmp_path, *run)
        seen = stats(url, questions=True)
    assert [batch["cancelled"] for batch in seen["batches"]["list"]][:3] == [2, 2, 1]
    assert [one["answered"] for one in seen["by_question"].values()] == [1] * QUESTIONS
    assert scores(only_run(tmp_path)) == live[api]


def test_sessions_of_batches_keep_to_a_cap_that_reported_costs_are_above(
    tmp_path: Path, texts: Path
) -> None:
    """The first batch may cross it, being out before anything is known; no later one does."""
    with mock(tmp_path, "--batch-time", "0.02", "--reported-cost", "0.09") as url:
        mine = ["run", "-d", str(texts), *SMALL_BATCHES, "--batch", "--base-url", url]
        mine += ["--price", "1,1", "--max-output-tokens", "16000", "--batch-size", "6"]
        first = judgeq(tmp_path, *mine, "--max-cost", "0.06", expect=6)
        run, bought = only_run(tmp_path), stats(url)["answered"]
        assert bought == 6
        done = judgeq(tmp_path, *mine, "--max-cost", "0.6", expect=6)
        assert stats(url)["answered"] == bought
        for _ in range(3):  # what it says pays the next call, and holds
            assert "--max-output-tokens" not in first.stderr + done.stderr
            (remedy,) = re.findall(r"--max-cost ([0-9.]+) is enough", done.stderr)
            done = judgeq(tmp_path, *mine, "--max-cost", remedy, expect=6)
            assert stats(url)["answered"] > bought
            bought = stats(url)["answered"]
            assert bought * 0.09 <= float(remedy) + 1e-9
    ((calls, dollars),) = query(run, "SELECT count(*), sum(cost) FROM calls")
    assert calls == bought
    assert dollars == pytest.approx(bought * 0.09)


def test_a_server_without_batches_is_named_and_the_run_goes_on_live(
    tmp_path: Path, texts: Path, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = AnthropicServer.app

    def without_batches(server: AnthropicServer) -> web.Application:
        monkeypatch.setattr(server, "with_key", lambda _: server.unknown)
        return app(server)

    monkeypatch.setattr(AnthropicServer, "app", without_batches)
    with mock(tmp_path) as url:
        run = ("run", "-d", str(texts), *SMALL_BATCHES, *APIS[api], "--base-url", url)
        refused = judgeq(tmp_path, *run, "--batch", expect=4)
        assert "has no batch API, as it seems: leave --batch out" in refused.stderr
        assert not query(only_run(tmp_path), "SELECT 1 FROM jobs WHERE state != 'pending'")
        judgeq(tmp_path, *run)


def test_a_server_that_keeps_saying_429_leaves_no_job_claimed(rehearse: Rehearse) -> None:
    done = rehearse("anthropic", "--batch-limited 1 --retry-after 0.01", until=4)
    assert done.states() == {"pending": 10}
