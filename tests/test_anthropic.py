"""Models asked in the form of Anthropic's API: what is sent, what comes back, which key goes where."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from judgeq import judge, prompts, run
from judgeq.config import settle
from judgeq.engine import assembly
from judgeq.errors import (
    KeyMissingError,
    KeyRefusedError,
    QuotaError,
    RateLimitedError,
    RefusedRequestError,
    ServerFailedError,
    SteppedDownError,
    UsageError,
)
from judgeq.judge import prices
from judgeq.judge.backend import Reply
from judgeq.judge.budget import output_bound
from judgeq.judge.http import headers
from judgeq.judge.http.anthropic import AnthropicMessages
from judgeq.judge.http.model_backend import ModelBackend
from judgeq.judge.http.openai import OpenAIChat
from judgeq.judge.http.responses import read_message
from judgeq.judge.prices import Pricing
from judgeq.judge.secrets import api_key, key_name
from judgeq.settings.model import Access, Model, Price
from judgeq.settings.providers import ANTHROPIC, OPENAI, PROVIDERS, Provider
from judgeq.types import Usage
from tests.mock import mock, stats
from tests.test_openai_chat import KEY, LIST, Notes, ask, request, saying
from tests.web import Handler, answering

CLAUDE = "claude-haiku-4-5"
TAKEN = {"input_tokens": 100, "output_tokens": 10}


@pytest.fixture(autouse=True)
def _only_our_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY")
    for name in names:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("JUDGEQ_API_KEY", KEY)


def message(*content: Any, reason: str = "end_turn", usage: Any = None) -> dict[str, Any]:
    """A message as Anthropic's API answers it."""
    blocks = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": CLAUDE,
        "content": blocks,
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": usage or TAKEN,
    }


@asynccontextmanager
async def backend(
    url: str, access: Access | None = None, memory: Notes | None = None, **model: Any
) -> AsyncIterator[AnthropicMessages]:
    pricing = prices.find(
        CLAUDE,
        base_url=url,
        flat=Price(input=1.0, output=10.0, cached=0.1),
        table={},
        at=datetime(2026, 11, 21, tzinfo=UTC),
    )
    made = AnthropicMessages(
        CLAUDE,
        Model(base_url=url, api="anthropic", **model),
        access or Access(),
        pricing,
        memory=memory,
    )
    await made.open()
    made.learn()
    try:
        yield made
    finally:
        await made.close()


def asked(
    handler: Handler,
    check: Callable[[AnthropicMessages], Awaitable[None]],
    access: Access | None = None,
    memory: Notes | None = None,
    **model: Any,
) -> None:
    """Run `check` on a backend whose server answers with `handler`."""

    async def story() -> None:
        async with answering(handler) as url, backend(url, access, memory, **model) as made:
            await check(made)

    asyncio.run(story())


def kept_bodies(answer: Any) -> tuple[Handler, list[tuple[web.Request, dict[str, Any]]]]:
    seen: list[tuple[web.Request, dict[str, Any]]] = []

    async def handler(got: web.Request) -> web.Response:
        seen.append((got, await got.json() if got.can_read_body else {}))
        return web.json_response(answer)

    return handler, seen


# What is sent


def test_what_is_sent_and_what_comes_back() -> None:
    handler, seen = kept_bodies(message('{"winner": "B"}'))

    async def check(made: AnthropicMessages) -> None:
        assert await ask(made) == Reply('{"winner": "B"}', Usage(100, 0, 10, 0), 200 / 1e6)
        ((got, body),) = seen
        assert got.path == "/v1/messages"
        assert got.headers["x-api-key"] == KEY
        assert got.headers["anthropic-version"] == "2023-06-01"
        assert "Authorization" not in got.headers
        system, user = request().messages()
        assert body == {
            "model": CLAUDE,
            "system": system["content"],
            "messages": [user],
            "max_tokens": output_bound(False),
            "output_config": {
                "format": {"type": "json_schema", "schema": prompts.schema(2, False)}
            },
        }

    asked(handler, check)


def test_the_reason_is_written_before_the_verdict() -> None:
    model = Model(api="anthropic")
    for mode in ("schema", "json"):
        made = AnthropicMessages(CLAUDE, model, Access(), None, reasons=True)
        made.mode = mode
        body = made.prepare(request(LIST)).body
        assert body.index(b'"reason":{') < body.index(b'"ranking":{')
        assert orjson.loads(body)["max_tokens"] == output_bound(True)


def test_settings_are_sent_by_their_names_there() -> None:
    handler, seen = kept_bodies(message('{"winner": "B"}'))

    async def check(made: AnthropicMessages) -> None:
        await ask(made)
        body = seen[0][1]
        assert body["max_tokens"] == 50
        assert (body["temperature"], body["top_p"], body["top_k"]) == (0.5, 0.9, 20)
        assert body["service_tier"] == "standard_only"
        assert body["output_config"] == {"effort": "low"}

    asked(
        handler,
        check,
        max_output_tokens=50,
        temperature=0.5,
        reasoning_effort="low",
        structured="text",
        extra_body={"top_p": 0.9, "service_tier": "standard_only", "top_k": 20},
    )


def test_headers_of_ones_own_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "t0ken-t0ken")
    handler, seen = kept_bodies(message('{"winner": "B"}'))

    async def check(made: AnthropicMessages) -> None:
        await ask(made)
        sent = seen[0][0].headers
        assert sent["Authorization"] == "Bearer-of t0ken"
        assert "x-api-key" not in sent
        assert sent["Anthropic-Version"] == "2024-01-01"

    own = ("Authorization: Bearer-of t0ken", "Anthropic-Version: 2024-01-01")
    asked(handler, check, Access(headers=own))


def test_a_server_without_structured_outputs_is_asked_by_a_tool_and_then_in_words() -> None:
    seen: list[str] = []
    able = {"text"}

    async def handler(got: web.Request) -> web.Response:
        body = await got.json()
        mode = "json" if "tools" in body else "schema" if "output_config" in body else "text"
        seen.append(mode)
        if mode not in able:
            said = {"schema": "output_config: Extra inputs are not permitted"}.get(
                mode, "Thinking may not be enabled when tool_choice forces tool use."
            )
            error = {"type": "invalid_request_error", "message": said}
            return web.json_response({"type": "error", "error": error}, status=400)
        if mode == "json":
            assert body["tool_choice"]["name"] == body["tools"][0]["name"] == "answer"
            tool = {"type": "tool_use", "id": "t", "name": "answer", "input": {"winner": "B"}}
            return web.json_response(message("Well.", tool, reason="tool_use"))
        return web.json_response(message('{"winner": "A"}'))

    async def check(made: AnthropicMessages) -> None:
        for _ in range(2):
            with pytest.raises(SteppedDownError):
                await ask(made)
        assert (await ask(made)).text == '{"winner": "A"}'
        able.add("json")

    async def recalled(made: AnthropicMessages) -> None:
        assert made.mode == "text"
        made.mode = "json"
        made._changed()
        assert (await ask(made)).text == '{"winner":"B"}'

    async def story() -> None:
        notes = Notes()
        async with answering(handler) as url:
            async with backend(url, memory=notes) as made:
                await check(made)
            async with backend(url, memory=notes) as made:
                await recalled(made)
            assert seen == ["schema", "json", "text", "json"]
            openai = OpenAIChat(CLAUDE, Model(base_url=url), Access(), None, memory=notes)
            openai.learn()
            assert openai.mode == "schema"  # a gateway may do it in one form, and not in the other

    asyncio.run(story())


def test_models_are_listed_in_one_page() -> None:
    handler, seen = kept_bodies({"data": [{"type": "model", "id": CLAUDE}], "has_more": False})

    async def check(made: AnthropicMessages) -> None:
        assert await made.model_names() == [CLAUDE]
        assert seen[0][0].path_qs == "/v1/models?limit=1000"
        assert seen[0][0].headers["x-api-key"] == KEY

    asked(handler, check)


# What comes back


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (message('{"win', reason="max_tokens"), "cut off at the limit of output tokens"),
        (message("{", reason="model_context_window_exceeded"), "cut off at the end of the model's"),
        (message("I can't.", reason="refusal"), "refused to answer"),
        (message(reason="refusal"), "refused to answer"),
        (message(), "was empty"),
        (message({"type": "thinking", "thinking": "hm", "signature": "s"}), "was empty"),
        ({"type": "message", "content": None, "usage": TAKEN}, "held no message"),
    ],
)
def test_what_is_no_answer_says_why(answer: dict[str, Any], problem: str) -> None:
    read = read_message(answer)
    assert problem in (read.problem or "")
    assert read.usage == Usage(100, 0, 10, 0)


def test_thoughts_are_no_part_of_the_answer() -> None:
    thought = {"type": "thinking", "thinking": '{"winner": "A"}', "signature": "s"}
    usage = TAKEN | {"output_tokens_details": {"thinking_tokens": 7}}
    read = read_message(
        message(thought, {"type": "redacted_thinking"}, '{"winner": "B"}', usage=usage)
    )
    assert read[1:] == ('{"winner": "B"}', None, 0)
    assert read.usage == Usage(100, 0, 10, 7)


@pytest.mark.parametrize(
    ("usage", "expected", "more"),
    [
        ({"cache_read_input_tokens": 40}, Usage(100, 40, 10, 0), 0),
        ({"cache_creation_input_tokens": 80}, Usage(180, 0, 10, 0), 80),  # for how long is unknown
        (
            {
                "cache_creation_input_tokens": 80,
                "cache_creation": {"ephemeral_5m_input_tokens": 80, "ephemeral_1h_input_tokens": 0},
            },
            Usage(180, 0, 10, 0),
            20,
        ),
        (
            {
                "cache_creation_input_tokens": 81,
                "cache_creation": {"ephemeral_5m_input_tokens": 1, "ephemeral_1h_input_tokens": 80},
            },
            Usage(181, 0, 10, 0),
            81,
        ),
        (
            {"cache_creation_input_tokens": None, "cache_read_input_tokens": None},
            Usage(100, 0, 10),
            0,
        ),
    ],
)
def test_usage_and_what_writing_to_the_cache_costs_more(
    usage: dict[str, Any], expected: Usage, more: int
) -> None:
    read = read_message(message("x", usage=TAKEN | usage))
    assert (read.usage, read.more) == (Usage(*expected), more)


@pytest.mark.parametrize(
    "usage", [{}, "x", {"input_tokens": 3}, {"input_tokens": -1, "output_tokens": 2}]
)
def test_usage_that_does_not_say_is_unknown_and_not_zero(usage: Any) -> None:
    read = read_message({"content": [{"type": "text", "text": "x"}], "usage": usage})
    assert read == (None, "x", None, 0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["content", "type", "text", "tool_use", "input", "usage", "input_tokens", "output_tokens",
             "cache_creation", "cache_creation_input_tokens", "ephemeral_5m_input_tokens", "stop_reason"]
        ),
        inner,
        max_size=5,
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(["content", "usage", "stop_reason"]), JSON))
def test_whatever_a_server_sends_is_read_or_a_problem(answer: dict[str, Any]) -> None:
    usage, text, problem, more = read_message(answer)
    assert isinstance(text, str)
    assert problem or text.strip()
    assert more >= 0
    assert usage is None or (min(usage) >= 0 and usage.reasoning <= usage.output)


def test_what_is_written_to_the_cache_is_paid_and_reserved() -> None:
    usage = {"input_tokens": 0, "output_tokens": 1, "cache_creation_input_tokens": 1000}
    cache = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}

    async def check(made: AnthropicMessages) -> None:
        reply = await ask(made)
        assert reply.usage == Usage(1000, 0, 1, 0)
        assert reply.cost == pytest.approx((2 * 1000 + 10) / 1e6)
        plain = AnthropicMessages(CLAUDE, Model(api="anthropic"), Access(), made._pricing)
        size = len(made.prepare(request()).body)
        bound, usual = made.prepare(request()).bound, plain.prepare(request()).bound
        assert bound is not None
        assert usual is not None
        assert bound >= usual + size / 1e6

    asked(saying(message("x", usage=usage)), check, extra_body=cache)


@pytest.mark.parametrize(
    ("status", "kind", "more", "error", "wait"),
    [
        (529, "overloaded_error", {}, ServerFailedError, None),
        (429, "rate_limit_error", {"retry-after": "7"}, RateLimitedError, 7.0),
    ],
)
def test_what_another_try_may_mend(
    status: int, kind: str, more: dict[str, str], error: type[Any], wait: float | None
) -> None:
    async def check(made: AnthropicMessages) -> None:
        with pytest.raises(error) as caught:
            await ask(made)
        assert caught.value.retry_after == wait
        assert caught.value.cost == 0

    body = {"type": "error", "error": {"type": kind, "message": "Overloaded"}}
    asked(saying(body, status, more), check)


def test_no_key_comes_back() -> None:
    bodies = [
        (
            {"type": "error", "error": {"type": "authentication_error", "message": f"bad {KEY}"}},
            401,
        ),
        (message(f"your key is {KEY}"), 200),
        (message({"type": "tool_use", "input": {"winner": KEY}}), 200),
    ]
    for body, status in bodies:

        async def check(made: AnthropicMessages) -> None:
            try:
                said = (await ask(made)).text
            except KeyRefusedError as error:
                said = str(error)
            assert KEY not in said
            assert "***" in said

        asked(saying(body, status), check)


def test_limits_are_those_of_input_where_they_are_given_apart() -> None:
    said = {
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "49",
        "anthropic-ratelimit-requests-reset": "2026-11-20T12:00:30Z",
        "anthropic-ratelimit-input-tokens-limit": "50000",
        "anthropic-ratelimit-input-tokens-remaining": "49000",
        "anthropic-ratelimit-input-tokens-reset": "2026-11-20T12:00:01Z",
        "anthropic-ratelimit-output-tokens-limit": "10000",
        "anthropic-ratelimit-tokens-limit": "60000",
        "anthropic-ratelimit-tokens-remaining": "59000",
        "anthropic-ratelimit-tokens-reset": "2026-11-20T12:00:02Z",
        "Date": "Fri, 20 Nov 2026 12:00:00 GMT",
    }
    for given_order in (said, dict(reversed(said.items()))):
        rate = headers.rate(given_order)
        assert rate is not None
        assert (rate.requests_limit, rate.requests_remaining) == (50, 49)
        assert (rate.tokens_limit, rate.tokens_remaining) == (50_000, 49_000)


# Which API, which address, which key


@pytest.mark.parametrize(
    ("name", "model", "api", "address", "key"),
    [
        ("gpt-5-mini", {}, "openai", OPENAI, "OPENAI_API_KEY"),
        (CLAUDE, {}, "anthropic", ANTHROPIC, "ANTHROPIC_API_KEY"),
        (CLAUDE, {"base_url": "http://h/v1"}, "openai", "http://h/v1", "JUDGEQ_API_KEY"),
        (CLAUDE, {"base_url": ANTHROPIC}, "openai", ANTHROPIC, "JUDGEQ_API_KEY"),
        (CLAUDE, {"base_url": OPENAI}, "openai", OPENAI, "OPENAI_API_KEY"),
        (CLAUDE, {"base_url": f"{OPENAI}/#x"}, "openai", OPENAI, "OPENAI_API_KEY"),
        (CLAUDE, {"api": "openai"}, "openai", OPENAI, "OPENAI_API_KEY"),
        ("x", {"api": "anthropic"}, "anthropic", ANTHROPIC, "ANTHROPIC_API_KEY"),
        (
            "x",
            {"api": "anthropic", "base_url": "http://h/v1/messages"},
            "anthropic",
            "http://h/v1",
            "JUDGEQ_API_KEY",
        ),
        (
            "x",
            {"api": "anthropic", "base_url": f"{ANTHROPIC}/"},
            "anthropic",
            ANTHROPIC,
            "ANTHROPIC_API_KEY",
        ),
        # What looks like a provider's own address, and is none, gets no provider's key.
        (
            CLAUDE,
            {"api": "anthropic", "base_url": "https://api.anthropic.com.thief.example/v1"},
            "anthropic",
            "https://api.anthropic.com.thief.example/v1",
            "JUDGEQ_API_KEY",
        ),
        (
            CLAUDE,
            {"api": "anthropic", "base_url": "http://api.anthropic.com/v1"},
            "anthropic",
            "http://api.anthropic.com/v1",
            "JUDGEQ_API_KEY",
        ),
    ],
)
def test_a_models_api_address_and_key(
    name: str, model: dict[str, Any], api: str, address: str, key: str
) -> None:
    made = Model(**model)
    assert (made.api_of(name), made.address_of(name)) == (api, address)
    assert key_name(name, made, Access()) == key
    again = Model(**made.model_dump())  # as it is kept
    assert (again.api_of(name), again.address_of(name)) == (api, address)
    kinds = {"anthropic": AnthropicMessages, "openai": OpenAIChat}
    assert assembly.backend_of(settle({"dataset": "demo", **model}), name) is kinds[api]


GATEWAYS = {"OPENAI_BASE_URL": "http://o/v1/", "ANTHROPIC_BASE_URL": "http://a"}


@pytest.mark.parametrize(
    ("name", "given", "address", "key"),
    [
        ("gpt-5-mini", {}, "http://o/v1", "OPENAI_API_KEY"),
        (CLAUDE, {}, "http://a/v1", "ANTHROPIC_API_KEY"),
        (CLAUDE, {"api": "openai"}, "http://o/v1", "OPENAI_API_KEY"),
        (CLAUDE, {"base_url": "http://h/v1"}, "http://h/v1", "JUDGEQ_API_KEY"),
        ("gpt-5-mini", {"base_url": "http://h/v1"}, "http://h/v1", "JUDGEQ_API_KEY"),
        ("gpt-5-mini", {"base_url": OPENAI}, OPENAI, "OPENAI_API_KEY"),
        ("gpt-5-mini", {"openai_base_url": "http://f/v1"}, "http://f/v1", "OPENAI_API_KEY"),
    ],
)
def test_the_environment_names_the_address_where_nothing_else_does(
    monkeypatch: pytest.MonkeyPatch, name: str, given: dict[str, Any], address: str, key: str
) -> None:
    for variable, value in GATEWAYS.items():
        monkeypatch.setenv(variable, value)
    made = settle({"dataset": "demo", "judge": name, **given})
    assert (made.address_of(name), key_name(name, made, made)) == (address, key)
    assert settle(made.model_dump(), resumed=True) == made
    for variable in GATEWAYS:
        monkeypatch.setenv(variable, "http://later/v1")
    assert settle(made.model_dump(), resumed=True) == made


def test_an_address_in_the_environment_decides_only_runs_that_are_asked_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = [settle({"dataset": "demo", "judge": name}) for name in ("simulated", CLAUDE)]
    monkeypatch.setenv("OPENAI_BASE_URL", "http://o/v1")
    assert [settle({"dataset": "demo", "judge": name}) for name in ("simulated", CLAUDE)] == before
    assert settle({"dataset": "demo", "judge": "m"}).deciding() == {
        "openai_base_url": "http://o/v1"
    }
    for official in (f"{OPENAI}/", "", " "):
        monkeypatch.setenv("OPENAI_BASE_URL", official)
        assert settle({"dataset": "demo", "judge": "m"}).deciding() == {}


def test_an_address_in_the_environment_that_cant_be_is_named_by_its_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "https://me:sk-secret@h")
    with pytest.raises(UsageError, match=r"^\$ANTHROPIC_BASE_URL: no user or password") as raised:
        settle({"dataset": "demo", "judge": CLAUDE})
    assert "sk-secret" not in str(raised.value)


def test_openais_address_does_not_speak_anthropics() -> None:
    with pytest.raises(UsageError, match="--api anthropic: that is not what OpenAI's own"):
        settle({"dataset": "demo", "base_url": OPENAI, "api": "anthropic"})


def test_what_was_asked_before_there_were_two_apis_is_the_same_run() -> None:
    assert Model(api="openai").deciding() == Model(base_url=OPENAI).deciding() == {}
    assert Model(api="anthropic").deciding() == {"api": "anthropic"}


def test_a_providers_key_goes_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUDGEQ_API_KEY")
    with pytest.raises(KeyMissingError, match="ANTHROPIC_API_KEY is not set"):
        api_key(CLAUDE, Model(), Access())
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai")
    with pytest.raises(KeyMissingError, match="ANTHROPIC_API_KEY is not set"):
        api_key(CLAUDE, Model(), Access())
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant")
    assert api_key(CLAUDE, Model(), Access()) == "sk-ant"
    assert api_key("gpt-5-mini", Model(), Access()) == "sk-openai"
    assert api_key(CLAUDE, Model(api="openai"), Access()) == "sk-openai"
    for api in ("anthropic", "openai", None):
        assert api_key(CLAUDE, Model(base_url="http://h/v1", api=api), Access()) is None
    assert api_key(CLAUDE, Model(base_url=ANTHROPIC), Access()) is None


@pytest.mark.parametrize(("kind", "name"), [(OpenAIChat, "m"), (AnthropicMessages, CLAUDE)])
def test_a_proxy_is_not_sent_what_is_meant_for_the_server(
    kind: type[ModelBackend], name: str
) -> None:
    """A tunnel is asked for in the clear."""
    seen: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
        writer.close()

    async def story() -> None:
        listening = await asyncio.start_server(proxy, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        access = Access(proxy=f"http://127.0.0.1:{port}", headers=("X-Team: t3am-s3cret",))
        made = kind(name, Model(base_url="https://model.invalid/v1"), access, None)
        async with listening:
            await made.open()
            with pytest.raises(RefusedRequestError, match="the proxy refused"):
                await ask(made)
            with pytest.raises(RefusedRequestError, match="the proxy refused"):
                await made.model_names()
            await made.close()

    asyncio.run(story())
    assert len(seen) == 2
    for sent in seen:
        assert sent.startswith(b"CONNECT model.invalid:443 ")
        assert KEY.encode() not in sent
        assert b"t3am-s3cret" not in sent


BOTH = ("gpt-5-mini", CLAUDE)


def test_each_provider_gets_its_own_key_and_questions_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    providers = cast("dict[str, Provider]", PROVIDERS)
    keys = {"openai": "sk-openai-0123456789", "anthropic": "sk-ant-0123456789"}
    with (
        mock(tmp_path, "--key", keys["openai"]) as openai,
        mock(tmp_path, "--key", keys["anthropic"]) as anthropic,
    ):
        for api, url in (("openai", openai), ("anthropic", anthropic)):
            provider = providers[api]._replace(address=url)
            monkeypatch.setitem(providers, api, provider)
            monkeypatch.setenv(provider.key, keys[api])
        settings = {"judge": BOTH, "prompt": "bias", "strategy": "pairwise1"}
        how = {"runs_dir": tmp_path, "sample": 20, "settings": {"cache": False}}
        run("demo", **settings, **how)  # type: ignore[arg-type]
        for url in (openai, anthropic):
            seen = stats(url)
            assert seen["outcomes"] == {"ok": 5}


@pytest.mark.parametrize(
    ("given", "flag"),
    [
        ({"api_key_env": "MY_KEY"}, "--api-key-env"),
        ({"api_key_file": "/tmp/key"}, "--api-key-file"),
        ({"headers": ("X-Team: mine",)}, "--header"),
        ({"extra_body": {"token": "s3cret"}}, "--extra-body"),
    ],
)
def test_nothing_that_may_hold_a_key_is_sent_to_two_providers(
    given: dict[str, Any], flag: str
) -> None:
    with pytest.raises(UsageError, match=f"{flag}: .* OpenAI and Anthropic") as caught:
        settle({"dataset": "demo", "judge": BOTH, **given})
    assert "s3cret" not in str(caught.value)
    for one in BOTH:
        settle({"dataset": "demo", "judge": (one,), **given})
    settle({"dataset": "demo", "judge": BOTH, "base_url": "http://gateway/v1", **given})
    settle({"dataset": "demo", "judge": BOTH, "api": "anthropic", **given})


def test_judges_of_two_providers_have_their_own_keys_prices_and_limits() -> None:
    settings = settle({"dataset": "demo", "judge": BOTH})
    assert [key_name(name, settings, settings) for name in BOTH] == [
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
    ]
    for name, provider in zip(BOTH, ("openai", "anthropic"), strict=True):
        pricing = assembly.price_of(settings, name)
        assert pricing is not None
        assert f", {provider} {name}" in pricing.source


def test_a_price_is_unknown_where_anthropic_bills_more_than_its_table() -> None:
    for field in ("speed", "inference_geo"):
        more = {"extra_body": {field: "x"}}
        settings = settle({"dataset": "demo", "judge": (CLAUDE,), **more})
        assert assembly.price_of(settings, CLAUDE) is None
        priced = settle({"dataset": "demo", "price": (1, 2), **more})
        assert assembly.price_of(priced, CLAUDE) is not None


def test_a_service_tier_in_the_body_decides_the_price() -> None:
    def price(**extra: str) -> Pricing | None:
        given = {"dataset": "demo", "judge": ("gpt-5-mini",), "extra_body": extra}
        return assembly.price_of(settle(given), "gpt-5-mini")

    usual, flex = price(), price(service_tier="flex")
    assert usual is not None
    assert flex is None or flex.price != usual.price
    assert price(service_tier="unheard of") is None


@pytest.mark.parametrize(
    ("given", "flag"),
    [
        ({"extra_body": {"tools": []}}, "--extra-body: 'tools'"),
        ({"extra_body": {"output_config": {}}}, "--extra-body: 'output_config'"),
    ],
)
def test_settings_that_it_does_not_know(given: dict[str, Any], flag: str) -> None:
    with pytest.raises(UsageError, match=flag):
        judge.check(CLAUDE, Model(**given))
    judge.check("gpt-5-mini", Model(**given))
    judge.check(CLAUDE, Model(base_url="http://h/v1", **given))


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("max_tokens: 17000 > 8192, which is the maximum", RefusedRequestError, "--max-output-tok"),
        ("Your credit balance is too low to access the Anthropic API.", QuotaError, "used up"),
    ],
)
def test_what_no_other_try_mends(text: str, error: type[Exception], words: str) -> None:
    async def check(made: AnthropicMessages) -> None:
        with pytest.raises(error, match=words):
            await ask(made)

    body = {"type": "error", "error": {"type": "invalid_request_error", "message": text}}
    asked(saying(body, 400), check)
