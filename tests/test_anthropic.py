"""Models asked in the form of Anthropic's API: what is sent, what comes back, which key goes where."""

import asyncio
import json
import os
from contextlib import suppress
from typing import Any
from unittest.mock import patch

import orjson
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from judgeq import errors, judge, prompts
from judgeq.config import settle
from judgeq.engine import assembly
from judgeq.judge.backend import Result
from judgeq.judge.http.anthropic import AnthropicMessages
from judgeq.judge.http.model_backend import ModelBackend
from judgeq.judge.http.openai import OpenAIChat
from judgeq.judge.prices import Pricing, output_bound
from judgeq.judge.secrets import api_key
from judgeq.settings.model import Access, Model
from judgeq.settings.providers import ANTHROPIC, OPENAI
from judgeq.types import Usage
from tests.fakes import any_json
from tests.test_openai_chat import KEY, ask, backend, request, told

CLAUDE = "claude-haiku-4-5"
TAKEN = {"input_tokens": 100, "output_tokens": 10}


@pytest.fixture(autouse=True)
def _only_our_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGEQ_API_KEY", KEY)


def message(*content: Any, reason: str = "end_turn", usage: Any = None) -> dict[str, Any]:
    """A message as Anthropic's API answers it."""
    blocks = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    made = {"id": "msg_1", "type": "message", "role": "assistant", "model": CLAUDE}
    said = {"content": blocks, "stop_reason": reason, "stop_sequence": None}
    return {**made, **said, "usage": usage or TAKEN}


async def test_what_is_sent_and_what_comes_back() -> None:
    seen: list[tuple[web.Request, dict[str, Any]]] = []

    async def handler(got: web.Request) -> web.Response:
        seen.append((got, await got.json()))
        return web.json_response(message('{"winner": "B"}'))

    how: dict[str, Any] = {"temperature": 0, "reasoning_effort": "low"}
    async with told(handler, kind=AnthropicMessages, **how, extra_body={"top_p": 1}) as made:
        reply = await ask(made)
        assert reply[:3] == ('{"winner": "B"}', Usage(100, 0, 10, 0), 200 / 1e6)
        assert reply.answerer.model == CLAUDE
        ((got, body),) = seen
        assert got.path == "/v1/messages"
        assert got.headers["x-api-key"] == KEY
        assert got.headers["anthropic-version"] == "2023-06-01"
        assert "Authorization" not in got.headers
        system, user = request().messages()
        form = {"type": "json_schema", "schema": prompts.schema(2, False)}
        asked = {"model": CLAUDE, "system": system["content"], "messages": [user]}
        rest = {"output_config": {"format": form, "effort": "low"}, "temperature": 0, "top_p": 1}
        assert body == {**asked, **rest, "max_tokens": output_bound(False), "stream": False}


async def test_a_server_without_structured_outputs_is_asked_by_a_tool_and_then_in_words() -> None:
    seen: list[str] = []
    able = {"text"}

    async def handler(got: web.Request) -> web.Response:
        body = await got.json()
        mode = "json" if "tools" in body else "schema" if "output_config" in body else "text"
        seen.append(mode)
        if mode not in able:
            said = "Thinking may not be enabled when tool_choice forces tool use."
            if mode == "schema":
                said = "output_config: Extra inputs are not permitted"
            error = {"type": "invalid_request_error", "message": said}
            return web.json_response({"type": "error", "error": error}, status=400)
        if mode == "json":
            assert body["tool_choice"]["name"] == body["tools"][0]["name"] == "answer"
            tool = {"type": "tool_use", "id": "t", "name": "answer", "input": {"winner": "B"}}
            return web.json_response(message("Well.", tool, reason="tool_use"))
        return web.json_response(message('{"winner": "A"}'))

    async with told(handler, kind=AnthropicMessages) as made:
        for _ in range(2):
            with pytest.raises(errors.SteppedDownError):
                await ask(made)
        assert (await ask(made)).text == '{"winner": "A"}'
        assert seen == ["schema", "json", "text"]
    async with told(handler, structured="json", kind=AnthropicMessages) as made:
        able.add("json")
        assert (await ask(made)).text == '{"winner":"B"}'


READER = AnthropicMessages(CLAUDE, Model(api="anthropic"), Access(), None)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (message('{"win', reason="max_tokens"), "cut off at the limit of output tokens"),
        (message("{", reason="model_context_window_exceeded"), "cut off at the end of the model's"),
        (message("I can't.", reason="refusal"), "refused to answer"),
        (message(reason="refusal"), "refused to answer"),
        (message(), "was empty"),
        (message({"type": "thinking", "thinking": "hm", "signature": "s"}), "was empty"),
        (
            message({"type": "thinking", "thinking": '{"winner": "A"}', "signature": "s"}),
            'was empty: the server put the words into "thinking"',
        ),
    ],
)
def test_what_is_no_answer_says_why(answer: dict[str, Any], problem: str) -> None:
    read = READER.read_result(Result("a-1", 200, orjson.dumps(answer)), 400, READER.form)
    assert problem in (read.problem or "")
    assert read.usage == Usage(100, 0, 10, 0)


@pytest.mark.parametrize(
    "answer",
    [
        {"type": "message", "content": None, "usage": TAKEN},
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        message('{"winner": "A"}', reason="error"),
    ],
)
def test_a_failure_inside_a_200_is_the_servers(answer: dict[str, Any]) -> None:
    with pytest.raises(errors.ServerFailedError, match="answered 200 with"):
        READER.read_result(Result("a-1", 200, orjson.dumps(answer)), 400, READER.form)


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
def test_a_whole_answer_counts_though_the_reply_was_cut_off_after_it(reason: str) -> None:
    answer = message('{"winner": "A"} because', reason=reason)
    read = READER.read_result(Result("a-1", 200, orjson.dumps(answer)), 400, READER.form)
    assert (read.text, read.problem) == ('{"winner": "A"} because', None)


def test_several_calls_of_the_tool_are_all_read() -> None:
    tools = [
        {"type": "tool_use", "id": label, "name": "answer", "input": {"winner": label}}
        for label in "AB"
    ]
    _, text, _ = READER.read(message(*tools, reason="tool_use"))
    assert text == '{"winner":"A"}\n{"winner":"B"}'


def test_what_was_written_to_a_cache_or_thought_is_counted() -> None:
    taken: dict[str, Any] = {
        **TAKEN,
        "cache_creation_input_tokens": 7,
        "cache_read_input_tokens": 20,
    }
    taken |= {"output_tokens_details": {"thinking_tokens": 3}}
    usage, *_ = READER.read(message("A", usage=taken))
    assert usage == Usage(107, 20, 10, 3)


JSON = any_json(
    *("content", "type", "text", "tool_use", "input", "usage", "input_tokens", "output_tokens"),
    *("cache_creation_input_tokens", "stop_reason"),
)


@given(st.dictionaries(st.sampled_from(["content", "usage", "stop_reason"]), JSON))
def test_whatever_a_server_sends_is_read_or_a_problem(answer: dict[str, Any]) -> None:
    usage, text, _ = READER.read(answer)
    assert isinstance(text, str)
    assert usage is None or (min(usage) >= 0 and usage.reasoning <= usage.output)
    body = json.dumps(answer).encode()
    with suppress(errors.CallError):
        reply = READER.read_result(Result("a-1", 200, body), 400, READER.form)
        assert reply.problem or reply.text.strip()


def key_sent(name: str, model: Model, access: Access) -> str:
    """The variable whose key a model's server is sent."""
    names = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "JUDGEQ_API_KEY")
    with patch.dict(os.environ, {name: f"sk-{name}" for name in names}):
        return (api_key(name, model, access) or "").removeprefix("sk-")


AS_CLAUDE = {"api": "anthropic"}
THIEF = "https://api.anthropic.com.thief.example/v1"
CLEAR = "http://api.anthropic.com/v1"
OWN, MESSAGES = {"base_url": "http://h/v1"}, {"base_url": "http://h/v1/messages"}
SLASHED = {"base_url": f"{ANTHROPIC}/"}


@pytest.mark.parametrize(
    ("name", "model", "api", "address", "key"),
    [
        ("gpt-5-mini", {}, "openai", OPENAI, "OPENAI_API_KEY"),
        (CLAUDE, {}, "anthropic", ANTHROPIC, "ANTHROPIC_API_KEY"),
        (CLAUDE, OWN, "openai", "http://h/v1", "JUDGEQ_API_KEY"),
        (CLAUDE, {"base_url": ANTHROPIC}, "openai", ANTHROPIC, "JUDGEQ_API_KEY"),
        (CLAUDE, {"base_url": f"{OPENAI}/#x"}, "openai", OPENAI, "OPENAI_API_KEY"),
        (CLAUDE, {"api": "openai"}, "openai", OPENAI, "OPENAI_API_KEY"),
        ("x", AS_CLAUDE, "anthropic", ANTHROPIC, "ANTHROPIC_API_KEY"),
        ("x", AS_CLAUDE | OWN, "anthropic", "http://h/v1", "JUDGEQ_API_KEY"),
        ("x", AS_CLAUDE | MESSAGES, "anthropic", "http://h/v1", "JUDGEQ_API_KEY"),
        ("x", AS_CLAUDE | SLASHED, "anthropic", ANTHROPIC, "ANTHROPIC_API_KEY"),
        # What looks like a provider's own address, and is none, gets no provider's key.
        (CLAUDE, AS_CLAUDE | {"base_url": THIEF}, "anthropic", THIEF, "JUDGEQ_API_KEY"),
        (CLAUDE, AS_CLAUDE | {"base_url": CLEAR}, "anthropic", CLEAR, "JUDGEQ_API_KEY"),
    ],
)
def test_a_models_api_address_and_key(
    name: str, model: dict[str, Any], api: str, address: str, key: str
) -> None:
    made = Model(**model)
    assert (made.api_of(name), made.address_of(name)) == (api, address)
    assert key_sent(name, made, Access()) == key
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
    assert (made.address_of(name), key_sent(name, made, made)) == (address, key)
    assert settle(made.model_dump(), resumed=True) == made
    for variable in GATEWAYS:
        monkeypatch.setenv(variable, "http://later/v1")
    assert settle(made.model_dump(), resumed=True) == made


@pytest.mark.parametrize("kind", [OpenAIChat, AnthropicMessages])
async def test_a_proxy_is_not_sent_what_is_meant_for_the_server(kind: type[ModelBackend]) -> None:
    """A tunnel is asked for in the clear."""
    seen: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(proxy, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        access = Access(proxy=f"http://127.0.0.1:{port}", headers=("X-Team: t3am-s3cret",))
        async with backend("https://model.invalid/v1", access, kind) as made:
            with pytest.raises(errors.RefusedRequestError, match="the proxy refused"):
                await ask(made)
    (sent,) = seen
    assert sent.startswith(b"CONNECT model.invalid:443 ")
    assert KEY.encode() not in sent
    assert b"t3am-s3cret" not in sent


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


@pytest.mark.parametrize("field", ["tools", "output_config", "cache_control"])
def test_settings_that_it_does_not_know(field: str) -> None:
    given: dict[str, Any] = {"extra_body": {field: {}}}
    with pytest.raises(errors.UsageError, match=f"--extra-body: {field}"):
        judge.check(CLAUDE, Model(**given))
    judge.check("gpt-5-mini", Model(**given))
    judge.check(CLAUDE, Model(base_url="http://h/v1", **given))
