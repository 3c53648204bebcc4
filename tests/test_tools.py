"""The commands around models, as a user runs them: estimate, doctor, cache, mock-server."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli import json_of, judgeq
from tests.mock import mock, stats

pytestmark = pytest.mark.usefixtures("rated_by_elo")

PRICES = ("--price", "1,10")
DEMO = ("-d", "demo", "--judge", "mock")
NOTHING = dict.fromkeys(("low", "high", "expected"), 0)


def estimated(folder: Path, *flags: str, judge: str = "mock") -> Any:
    return json_of(folder, "estimate", "-d", "demo", "--judge", judge, *flags)


def test_an_estimate_holds_and_sends_and_writes_nothing(tmp_path: Path) -> None:
    with mock(tmp_path) as url:
        flags = ("--base-url", url, *PRICES)
        told = estimated(tmp_path, *flags)
        assert (told["calls"], told["from_cache"], told["jobs_done"]) == (72, 0, 0)
        assert told["rounds_not_looked_into"] == 2
        assert stats(url)["requests"] == 0
        assert not (tmp_path / "runs").exists()
        shown = judgeq(tmp_path, "run", *DEMO, *flags, "--dry-run").stdout
        assert "72 calls (rounds 2 and 3 depend on earlier answers)" in shown
        assert "nothing was sent" in shown

        result = json_of(tmp_path, "run", *DEMO, *flags)
        for bounds, found in (
            (told["cost"], result["cost"]),
            (told["input_tokens"], result["tokens"]["input"]),
        ):
            assert bounds["low"] < found < bounds["high"]

        # The first round is in the cache now; and all is done, in the run itself.
        again = estimated(tmp_path, *flags, "--new")
        assert (again["calls"], again["from_cache"]) == (48, 24)
        assert again["cost"]["low"] < result["cost"] * 48 / 72 < again["cost"]["high"]
        first = estimated(tmp_path, *flags, "--new", "--rounds", "1")
        assert (first["calls"], first["from_cache"]) == (0, 24)
        assert first["cost"] == NOTHING
        done = estimated(tmp_path, *flags)
        assert (done["calls"], done["jobs_done"]) == (0, 72)
        assert done["cost"] == NOTHING
        assert done["cost_so_far"] == result["cost"]
        without = estimated(tmp_path, *flags, "--new", "--no-cache")
        assert (without["calls"], without["from_cache"]) == (72, 0)


def test_a_price_that_is_not_known_is_not_zero(tmp_path: Path) -> None:
    with mock(tmp_path) as url:
        told = estimated(tmp_path, "--base-url", url)
        assert (told["cost"], told["price"]) == (None, None)
        shown = judgeq(tmp_path, "estimate", *DEMO, "--base-url", url).stdout
        assert "unknown: give --price IN,OUT" in shown
        assert json_of(tmp_path, "run", *DEMO, "--base-url", url)["cost"] is None
    finished = judgeq(tmp_path, "show").stdout + judgeq(tmp_path, "status").stdout
    assert re.search(r"cost +unknown", finished)
    assert "$" not in finished
    assert "openai gpt-5-mini" in estimated(tmp_path, judge="gpt-5-mini")["price"]
    free = estimated(tmp_path, judge="simulated")
    assert (free["calls"], free["cost"]) == (72, NOTHING)


def checks(folder: Path, *flags: str, expect: int = 0) -> dict[str, tuple[str, str]]:
    done = judgeq(folder, "doctor", *flags, "--json", expect=expect)
    listed = json.loads(done.stdout)
    found = {each["name"]: (each["state"], each["report"]) for each in listed}
    assert len(found) == len(listed)  # nothing is said twice, and differently
    return found


@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_a_doctor_finds_all_well(tmp_path: Path, api: str) -> None:
    with mock(tmp_path, "--rpm", "600") as url:
        found = checks(tmp_path, "--judge", "mock", "--base-url", url, "--api", api, *PRICES)
        assert stats(url)["answered"] == 2  # a short question and a long one
    assert {state for state, _ in found.values()} == {"ok"}
    assert {"disk", "cache", "key", "address", "call", "price"} <= set(found)
    assert found["limits"][1] == "600 requests a minute"
    assert found["structured"][1] == "strict schemas are accepted"
    assert "tokens in" in found["call"][1]


@pytest.mark.parametrize(
    ("server", "name", "state", "told"),
    [
        (("--structured", "text"), "structured", "warning", "none"),
        (("--unreadable", "1"), "structured", "warning", "not known"),
        (("--only-model", "mocks"), "call", "failed", "doesn't know the model"),
        (("--key", "sk-1"), "key", "failed", "No API key was sent."),
        (("--key", "sk-1"), "call", "failed", "not tried, see key"),
        (("--errors", "1"), "call", "failed", "answered 5"),
    ],
)
def test_a_doctor_tells_what_is_wrong(
    tmp_path: Path, server: tuple[str, ...], name: str, state: str, told: str
) -> None:
    expect = 4 if state == "failed" or "--unreadable" in server else 0
    with mock(tmp_path, *server) as url:
        found = checks(tmp_path, "--judge", "mock", "--base-url", url, expect=expect)
    assert found[name][0] == state
    assert told in found[name][1]


def test_a_doctor_says_that_the_server_reports_the_cost(tmp_path: Path) -> None:
    with mock(tmp_path, "--reported-cost", "0.25") as url:
        found = checks(tmp_path, "--judge", "mock", "--base-url", url, *PRICES)
    state, report = found["price"]
    assert state == "ok"
    assert report == "$0.250000 for this call, as the server reports it (not by --price)"


def test_a_doctor_without_a_server_or_a_key(tmp_path: Path) -> None:
    found = checks(tmp_path, "--judge", "m", "--base-url", "http://127.0.0.1:9/v1", expect=4)
    assert found["address"][0] == "failed"
    found = checks(tmp_path, "--judge", "gpt-5-mini", expect=4)
    assert found["key"][0] == "failed"
    assert "OPENAI_API_KEY" in found["key"][1]
    assert set(checks(tmp_path)) == {"program", "disk", "cache"}


def test_the_cache_is_shown_and_cleared(tmp_path: Path) -> None:
    with mock(tmp_path) as url:
        flags = ("--base-url", url, "--rounds", "1", "--quiet", *PRICES)
        judgeq(tmp_path, "run", *DEMO, *flags)
        judgeq(tmp_path, "run", *DEMO, *flags, "--new")
    found = json_of(tmp_path, "cache")
    assert found["replies"] == 24
    misplaced = judgeq(tmp_path, "cache", "--cache-dir", "elsewhere", "clear", "--yes", expect=2)
    assert "No such option '--yes'. `judgeq cache --help` shows" in misplaced.stderr
    assert judgeq(tmp_path, "cache", "clear", "--yes").stdout == "24 replies removed.\n"
    assert json_of(tmp_path, "cache")["replies"] == 0
