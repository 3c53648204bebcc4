"""What is wrong with a server, a key, a model's name or a cap is said before it costs time or money."""

import asyncio
import json
import shlex
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiohttp import web

from judgeq.judge import prices
from judgeq.settings.providers import ANTHROPIC, OPENAI
from tests.cli import json_of, judgeq, only_run, query
from tests.mock import mock, stats

TEXTS = "id,text\n" + "\n".join(f"t{i},This is text number {i}." for i in range(20))


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "texts.csv"
    path.write_text(TEXTS, encoding="utf-8")
    return path


def run_flags(texts: Path, judge: str, *flags: str) -> tuple[str, ...]:
    return ("run", "-d", str(texts), "--feature", "length", "--judge", judge, "--yes", *flags)


@pytest.fixture
def free_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


# Nobody there


def test_where_nothing_listens_a_run_stops_at_once(
    tmp_path: Path, texts: Path, free_port: int
) -> None:
    flags = run_flags(texts, "m", "--base-url", f"http://127.0.0.1:{free_port}/v1")
    said = judgeq(tmp_path, *flags, expect=4).stderr
    assert f"Nothing listens at http://127.0.0.1:{free_port}: is the server running" in said
    assert query(only_run(tmp_path), "SELECT count(*) FROM calls") == [(1,)]


def test_ollama_that_is_not_started_is_named(
    tmp_path: Path, texts: Path, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("judgeq.judge.http.connection.OLLAMA_PORT", free_port)
    flags = run_flags(texts, "m", "--base-url", f"http://127.0.0.1:{free_port}/v1")
    assert "is Ollama running (`ollama serve`)?" in judgeq(tmp_path, *flags, expect=4).stderr


def test_a_name_that_is_not_known_stops_a_run_at_once(tmp_path: Path, texts: Path) -> None:
    flags = run_flags(texts, "m", "--base-url", "http://judgeq-nosuch.invalid/v1")
    said = judgeq(tmp_path, *flags, expect=4).stderr
    assert "The name in http://judgeq-nosuch.invalid isn't known" in said


def test_a_page_in_place_of_an_answer_stops_a_run_at_once(tmp_path: Path, texts: Path) -> None:
    async def page(request: web.Request) -> web.Response:
        return web.Response(text="<html>Welcome</html>", content_type="text/html")

    with serving(page) as url:
        said = judgeq(tmp_path, *run_flags(texts, "m", "--base-url", url), expect=4).stderr
    assert "something other than a JSON object" in said
    assert query(only_run(tmp_path), "SELECT count(*) FROM calls") == [(1,)]


def test_tls_to_a_port_without_it_is_named(tmp_path: Path, texts: Path) -> None:
    with mock(tmp_path) as url:
        flags = run_flags(texts, "m", "--base-url", url.replace("http:", "https:"))
        said = judgeq(tmp_path, *flags, expect=4).stderr
    assert "speaks no TLS: is it http:// instead of https://?" in said


@contextmanager
def serving(handler: object) -> Iterator[str]:
    """The base URL of a server that answers everything by this handler, while inside."""

    async def started() -> object:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)  # type: ignore[arg-type]
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return runner

    loop = asyncio.new_event_loop()
    runner = loop.run_until_complete(started())
    import threading

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"  # type: ignore[attr-defined]
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()  # type: ignore[attr-defined]
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


# Keys and names


def test_a_key_that_is_set_and_not_sent_is_named(tmp_path: Path, texts: Path) -> None:
    async def refused(request: web.Request) -> web.Response:
        error = {"message": "Incorrect API key provided.", "code": "invalid_api_key"}
        return web.json_response({"error": error}, status=401)

    key = {"OPENAI_API_KEY": "sk-not-for-others"}
    said = (
        "No API key was sent. OPENAI_API_KEY is used for OpenAI only; add --api-key-env "
        "OPENAI_API_KEY to send it here."
    )
    refusal = "The server refused the API key, or the key lacks access."
    with serving(refused) as url:
        flags = run_flags(texts, "m", "--base-url", url)
        unsent = judgeq(tmp_path, *flags, expect=4, variables=key).stderr
        assert said in unsent
        assert refusal not in unsent
        named = (*flags, "--api-key-env", "OPENAI_API_KEY")
        sent = judgeq(tmp_path, *named, expect=4, variables=key).stderr
        assert "No API key was sent" not in sent
        assert f"{refusal} Check --api-key-env or --api-key-file." in sent
        doctor = ("doctor", "--judge", "m", "--base-url", url)
        checks = json_of(tmp_path, *doctor, expect=4, variables=key)
    assert json.dumps(checks).count(said) == 1
    assert {"name": "call", "state": "failed", "report": "not tried, see key"}.items() <= next(
        check for check in checks if check["name"] == "call"
    ).items()


@pytest.mark.parametrize(
    ("judge", "meant"),
    [
        ("gpt-5-mni", "gpt-5-mini"),
        ("gpt5-mini", "gpt-5-mini"),
        ("claude-haiku-45", "claude-haiku-4-5"),
        ("claude-hiaku-4-5", "claude-haiku-4-5"),
        ("gemini/gemini-2.5-flsh", "gemini/gemini-2.5-flash"),
    ],
)
def test_a_misspelt_model_is_caught_before_it_is_sent(
    tmp_path: Path, texts: Path, judge: str, meant: str
) -> None:
    said = judgeq(tmp_path, *run_flags(texts, judge), expect=2).stderr
    assert f"Did you mean {meant}?" in said
    assert not (tmp_path / "runs").exists()


def test_a_new_model_is_asked_where_a_price_is_given(tmp_path: Path, texts: Path) -> None:
    flags = run_flags(texts, "gpt-5-mni", "--price", "1,2", "--dry-run")
    assert json_of(tmp_path, *flags)["calls"]


def test_names_of_new_versions_and_of_ones_own_models_are_no_slips() -> None:
    for name in ("gpt-5-mini", "gpt-7-mini", "gpt-5-mini-audio", "ft:gpt-4o-mini:org::x"):
        assert prices.near_name(name, OPENAI) is None, name
    for name in ("claude-haiku-9-5", "claude-haiku-5", "claude-haiku-6", "claude-mythos-5"):
        assert prices.near_name(name, ANTHROPIC) is None, name
    assert prices.near_name("deepseek-v4-chat", "https://api.deepseek.com") is None
    assert prices.near_name("gpt-5-mni", "http://127.0.0.1:8000/v1") is None


def test_a_known_models_price_is_offered_behind_another_address(
    tmp_path: Path, texts: Path
) -> None:
    flags = run_flags(texts, "gpt-5-mini", "--base-url", "http://127.0.0.1:9/v1")
    said = judgeq(tmp_path, *flags, "--max-cost", "1", expect=2).stderr
    assert "At OpenAI it costs --price 0.25,2,0.025." in said


# Money


def test_the_line_that_is_printed_for_a_small_cap_works(tmp_path: Path, texts: Path) -> None:
    with mock(tmp_path) as url:
        flags = run_flags(texts, "m", "--base-url", url, "--price", "0.25,2", "-s", "listwise10x1")
        refused = judgeq(tmp_path, *flags, "--max-cost", "0.02", expect=6)
        assert stats(url)["requests"] == 0
        command = refused.stderr.partition("To continue: `judgeq ")[2].partition("`")[0]
        assert "--max-output-tokens" in command
        assert command.partition(" --")[2] in refused.stdout
        judgeq(tmp_path, *shlex.split(command))
        assert stats(url)["requests"] == 2


def test_a_cap_for_no_answer_at_all_is_raised_by_the_line_that_is_printed(
    tmp_path: Path, texts: Path
) -> None:
    with mock(tmp_path) as url:
        flags = run_flags(texts, "m", "--base-url", url, "--price", "0.25,2", "-s", "listwise10x1")
        refused = judgeq(tmp_path, *flags, "--max-cost", "0.0003", expect=6)
        command = refused.stderr.partition("To continue: `judgeq ")[2].partition("`")[0]
        assert "--max-cost" in command
        judgeq(tmp_path, *shlex.split(command))


@pytest.mark.parametrize(
    "extra",
    ['{"web_search_options": {}}', '{"plugins": [{"id": "web"}]}', '{"a": [{"mcp_servers": [1]}]}'],
)
def test_what_costs_more_than_tokens_is_refused_under_a_cap(
    tmp_path: Path, texts: Path, extra: str
) -> None:
    with mock(tmp_path) as url:
        flags = run_flags(texts, "m", "--base-url", url, "--price", "1,2", "--extra-body", extra)
        said = judgeq(tmp_path, *flags, "--max-cost", "1", expect=2).stderr
        assert "the provider may charge for" in said
        assert stats(url)["requests"] == 0
        judgeq(tmp_path, *flags, "-s", "listwise10x1")


def test_what_makes_tokens_dearer_needs_a_price(tmp_path: Path, texts: Path) -> None:
    extra = ("--extra-body", '{"cache_control": {"type": "ephemeral"}}', "--max-cost", "1")
    flags = (*run_flags(texts, "openrouter/openai/gpt-5-mini"), *extra, "--dry-run")
    assert "the price of openrouter/openai/gpt-5-mini is unknown" in (
        judgeq(tmp_path, *flags, expect=2).stderr
    )
    assert json_of(tmp_path, *flags, "--price", "1,2")["calls"]
    online = (*run_flags(texts, "openrouter/openai/gpt-5-mini:online"), "--price", "1,2")
    assert "searches the web" in judgeq(tmp_path, *online, "--max-cost", "1", expect=2).stderr


# doctor


def test_doctor_asks_one_long_question(tmp_path: Path) -> None:
    with mock(tmp_path) as url:
        checks = json_of(tmp_path, "doctor", "--judge", "m", "--base-url", url)
        assert "was read whole" in json.dumps(checks)
    with mock(tmp_path, "--context", "4096") as url:
        checks = json_of(tmp_path, "doctor", "--judge", "m", "--base-url", url, expect=4)
        assert "the server cuts long questions off: it read 4,096 tokens" in json.dumps(checks)
    with mock(tmp_path, "--max-input-tokens", "4096") as url:
        checks = json_of(tmp_path, "doctor", "--judge", "m", "--base-url", url)
        assert "is refused as too long, and not cut off" in json.dumps(checks)


def test_a_proxy_in_the_way_is_named(
    tmp_path: Path, texts: Path, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port}")
    flags = run_flags(texts, "m", "--base-url", "http://127.0.0.1:8000/v1")
    said = judgeq(tmp_path, *flags, expect=4).stderr
    assert f"Nothing listens at the proxy of $http_proxy, http://127.0.0.1:{free_port}" in said


def test_a_run_keeps_the_cap_the_key_and_the_price_of_a_later_session(
    tmp_path: Path, texts: Path
) -> None:
    key = {"OWN_KEY": "sk-right-0123456789"}
    with mock(tmp_path, "--key", key["OWN_KEY"]) as url:
        flags = run_flags(texts, "m", "--base-url", url, "-s", "listwise10x1")
        judgeq(tmp_path, *flags, expect=4)
        bounded = ("--max-cost", "0.02", "--price", "0.25,2", "--api-key-env", "OWN_KEY")
        refused = judgeq(tmp_path, *flags, *bounded, expect=6, variables=key)
        command = refused.stderr.partition("To continue: `judgeq ")[2].partition("`")[0]
        again = judgeq(tmp_path, "resume", expect=6, variables=key)
        assert "no cap" not in again.stderr
        done = judgeq(tmp_path, *shlex.split(command), variables=key)
        assert "no cap" not in done.stderr
    kept = json.loads((only_run(tmp_path) / "config.json").read_text())["settings"]
    assert (kept["max_cost"], kept["api_key_env"]) == (0.02, "OWN_KEY")


def test_a_session_without_a_cap_leaves_the_runs_cap(tmp_path: Path, texts: Path) -> None:
    with mock(tmp_path) as url:
        flags = run_flags(texts, "m", "--base-url", url, "--price", "0.25,2", "-s", "listwise10x1")
        judgeq(tmp_path, *flags, "--max-cost", "0.02", expect=6)
        judgeq(tmp_path, *flags, "--max-cost", "0.01", expect=6)
        judgeq(tmp_path, *flags)
    kept = json.loads((only_run(tmp_path) / "config.json").read_text())["settings"]
    assert kept["max_cost"] == 0.01
