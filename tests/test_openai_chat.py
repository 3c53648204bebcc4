import asyncio
import json
import shutil
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from hypothesis import given

from judgeq import errors, prompts
from judgeq.judge import prices
from judgeq.judge.backend import Reply, Request, Result
from judgeq.judge.cache import key_of
from judgeq.judge.http.connection import LARGEST_REPLY, STALL_GRACE_SECONDS
from judgeq.judge.http.model_backend import ModelBackend
from judgeq.judge.http.openai import OpenAIChat, read_usage
from judgeq.judge.limiter import RateHeaders
from judgeq.settings.model import LIMIT_FIELDS, Access, Model, Price
from judgeq.types import Match, Usage
from tests.cli import LONGEST
from tests.fakes import any_json, turns
from tests.web import Handler, answering, completion, serving

KEY = "sk-test-0123456789abcdef"
PAIR = Match(0, 1, (0, 1))
LIST = Match(1, 1, (0, 1, 2))
TEXTS = ["a quiet text", "a LOUD text", "another"]
BIAS = prompts.load("bias")


def request(match: Match = PAIR) -> Request:
    return Request(match, 1, 1, lambda: prompts.messages(BIAS, [TEXTS[i] for i in match.items]))


@asynccontextmanager
async def backend(
    url: str, access: Access | None = None, kind: type[ModelBackend] = OpenAIChat, **model: Any
) -> AsyncIterator[ModelBackend]:
    """A model that is asked at an address, and whose tokens cost $1 and $10 a million."""
    name, api = ("m", "openai") if kind is OpenAIChat else ("claude-haiku-4-5", "anthropic")
    flat, at = Price(input=1.0, output=10.0, cached=0.1), datetime(2026, 11, 21, tzinfo=UTC)
    pricing = prices.find(name, base_url=url, flat=flat, table={}, at=at)
    made = kind(name, Model(base_url=url, api=api, **model), access or Access(), pricing)
    await made.open()
    try:
        yield made
    finally:
        await made.close()


@asynccontextmanager
async def told(
    handler: Handler, access: Access | None = None, **how: Any
) -> AsyncIterator[ModelBackend]:
    """One whose server answers with `handler`."""
    async with answering(handler) as url, backend(url, access, **how) as made:
        yield made


async def ask(made: ModelBackend, match: Match = PAIR) -> Reply:
    return await made.complete(request(match), made.prepare(request(match)))


def saying(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Handler:
    data = body if isinstance(body, bytes) else orjson.dumps(body)

    async def handler(_: web.Request) -> web.Response:
        return web.Response(body=data, status=status, headers=headers)

    return handler


@pytest.fixture(autouse=True)
def _our_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGEQ_API_KEY", KEY)


async def test_what_is_sent_and_what_comes_back() -> None:
    seen: list[tuple[web.Request, Any]] = []

    async def handler(got: web.Request) -> web.Response:
        seen.append((got, await got.json()))
        return web.json_response(completion('{"winner": "B"}'))

    extra = {"top_p": 0.5, "service_tier": "flex"}
    how: dict[str, Any] = {"temperature": 0, "reasoning_effort": "low"}
    more = {"max_output_tokens": 77, "extra_body": extra}
    async with told(handler, Access(headers=("X-Plain: 1",)), **how, **more) as made:
        reply = await ask(made)
        assert reply[:3] == ('{"winner": "B"}', Usage(100, 0, 10, 0), (100 + 100) / 1e6)
        assert reply.answerer.model == "m"
        ((got, body),) = seen
        assert got.path == "/v1/chat/completions"
        assert got.headers["Authorization"] == f"Bearer {KEY}"
        assert got.headers["X-Plain"] == "1"
        assert body.pop("messages") == request().messages()
        schema = {"name": "answer", "strict": True, "schema": prompts.schema(2, ties=False)}
        form = {"type": "json_schema", "json_schema": schema}
        rest = {"response_format": form, "stream": False}
        assert body == {"model": "m", "max_tokens": 77, **how, **extra, **rest}


def test_everything_that_decides_the_reply_is_in_the_key() -> None:
    def keyed(match: Match = PAIR, url: str = "http://h/v1", **model: Any) -> str | None:
        made = OpenAIChat("m", Model(base_url=url, **model), Access(), None)
        return made.prepare(request(match)).key

    keys = [keyed(), keyed(LIST), keyed(Match(0, 1, (1, 0))), keyed(url="http://other/v1")]
    keys += [keyed(temperature=0.0), keyed(temperature=1.0)]
    keys += [keyed(extra_body={"top_k": 1}), keyed(structured="json")]
    assert None not in keys
    assert len(set(keys)) == len(keys)
    assert keyed() == keys[0] == keyed(Match(9, 4, (0, 1)))
    # A whole reply is the same under any limit on output, wherever that is given.
    limits: list[dict[str, Any]] = [{"max_output_tokens": 5}]
    limits += [{"extra_body": {name: 9}} for name in LIMIT_FIELDS]
    assert {keyed(**limit) for limit in limits} == {keyed()}


def test_the_word_not_to_stream_is_not_in_the_key() -> None:
    """What was bought before it was sent is found in the cache."""
    made = OpenAIChat("m", Model(base_url="http://h/v1"), Access(), None)
    prepared = made.prepare(request())
    body = orjson.loads(prepared.body)
    assert body.pop("stream") is False
    assert prepared.key == key_of(b"http://h/v1/chat/completions", orjson.dumps(body))


def refused(message: str, param: str, code: str | None = None) -> web.Response:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return web.json_response({"error": error}, status=400)


async def test_auto_steps_down_and_a_mode_that_was_named_does_not() -> None:
    asked: list[str] = []

    async def handler(got: web.Request) -> web.Response:
        kind = (await got.json()).get("response_format", {"type": "text"})["type"]
        asked.append(kind)
        if kind == "text":
            return web.json_response(completion("{}"))
        no = f"Invalid parameter: 'response_format' of type '{kind}' is not supported with this model."
        return refused(no, "response_format")

    async with told(handler) as made:
        early = made.prepare(request())
        for steps in (1, 2):
            with pytest.raises(errors.SteppedDownError):
                await ask(made)
            assert made.version == steps
        await ask(made)
        with pytest.raises(errors.SteppedDownError):  # prepared before: no step further down
            await made.complete(request(), early)
        assert (made.version, made.mode) == (2, "text")
        assert asked == ["json_schema", "json_object", "text", "json_schema"]
    async with told(handler, structured="json") as made:
        with pytest.raises(
            errors.RefusedRequestError, match="can't do --structured json: take auto"
        ):
            await ask(made)
        assert asked[4:] == ["json_object"]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "System role not supported"),
        (500, "Jinja Exception: System role not supported"),
        (400, "Unsupported value: 'messages[0].role' does not support 'system' with this model."),
        (400, "Conversation roles must alternate user/assistant/user/assistant/..."),
    ],
)
async def test_without_a_system_role_its_words_come_before_the_users(
    status: int, message: str
) -> None:
    asked: list[list[dict[str, str]]] = []

    async def handler(got: web.Request) -> web.Response:
        asked.append((await got.json())["messages"])
        if asked[-1][0]["role"] == "system":
            return web.json_response({"error": {"message": message}}, status=status)
        return web.json_response(completion('{"winner": "B"}'))

    async with told(handler) as made:
        form = made.form
        with pytest.raises(errors.SteppedDownError) as caught:
            await ask(made)
        assert (caught.value.what, caught.value.cost, made.version) == ("system", 0.0, 1)
        for _ in range(2):  # it is remembered
            assert (await ask(made)).text == '{"winner": "B"}'
        system, user = request().messages()
        together = f"{system['content']}\n\n{user['content']}"
        assert asked[1:] == [[{"role": "user", "content": together}]] * 2
        assert made.form != form


async def test_a_server_that_wants_no_role_at_all_is_not_asked_for_ever() -> None:
    async with told(saying({"error": {"message": "System role not supported"}}, 400)) as made:
        with pytest.raises(errors.SteppedDownError):
            await ask(made)
        with pytest.raises(errors.RefusedRequestError, match="It was sent no system role"):
            await ask(made)


async def test_a_server_that_streams_unless_told_not_to_is_told() -> None:
    async def handler(got: web.Request) -> web.Response:
        if (await got.json()).get("stream") is False:
            return web.json_response(completion('{"winner": "B"}'))
        return web.Response(text='data: {"choices": []}\n\n', content_type="text/event-stream")

    async with told(handler) as made:
        assert (await ask(made)).text == '{"winner": "B"}'


async def test_a_server_that_streams_all_the_same_is_named() -> None:
    async with told(saying(b'data: {"choices": []}\n\ndata: [DONE]\n\n')) as made:
        with pytest.raises(errors.ServerFailedError, match="streams its answer, though"):
            await ask(made)


async def test_the_limit_goes_by_the_name_that_the_server_knows() -> None:
    async def handler(got: web.Request) -> web.Response:
        body = await got.json()
        if "max_tokens" in body:
            no = "Unsupported parameter: 'max_tokens' is not supported with this model. "
            no += "Use 'max_completion_tokens' instead."
            return refused(no, "max_tokens", "unsupported_parameter")
        return web.json_response(completion(str(body["max_completion_tokens"])))

    async with told(handler, max_output_tokens=9) as made:
        with pytest.raises(errors.SteppedDownError):
            await ask(made)
        assert (await ask(made)).text == "9"


async def test_refused_connections_cost_nothing_and_a_redirect_is_not_followed() -> None:
    paths: list[str] = []

    async def handler(got: web.Request) -> web.Response:
        paths.append(got.path)
        raise web.HTTPFound("/elsewhere")

    async with answering(handler) as url, backend(url) as made:
        with pytest.raises(errors.RefusedRequestError, match="--base-url"):
            await ask(made)
    assert paths == ["/v1/chat/completions"]
    async with backend(url) as made:
        with pytest.raises(errors.ConnectionFailedError) as caught:
            await ask(made)
    assert caught.value.cost == 0.0


async def test_no_answer_in_time_may_have_been_paid() -> None:
    async def handler(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    async with told(handler, Access(timeout=0.05)) as made:
        with pytest.raises(errors.CallTimeoutError, match=r"--timeout 0\.05") as caught:
            await ask(made)
        assert caught.value.cost is None


class JumpingTime:
    """The clock of the running loop, which may jump as if this process had been stopped."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._jumped = 0.0
        loop = asyncio.get_running_loop()
        time = loop.time
        monkeypatch.setattr(loop, "time", lambda: time() + self._jumped)

    def jump(self, seconds: float) -> None:
        """Let so many seconds pass at once."""
        self._jumped += seconds


async def test_an_answer_that_came_while_this_process_was_stopped_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = threading.Event()
    may_answer = threading.Event()
    answered = threading.Event()
    data = orjson.dumps(completion('{"winner": "A"}'))

    async def handler(got: web.Request) -> web.StreamResponse:
        asked.set()
        await asyncio.to_thread(may_answer.wait, LONGEST)
        response = web.StreamResponse(headers={"Content-Length": str(len(data))})
        await response.prepare(got)
        await response.write(data)
        await response.write_eof()
        answered.set()
        return response

    clock = JumpingTime(monkeypatch)
    with serving(handler) as url:
        async with backend(url, Access(timeout=5.0)) as made:
            task = asyncio.create_task(ask(made))
            assert await asyncio.to_thread(asked.wait, LONGEST)
            # From here to the next await this loop stands still, as in a stopped process.
            may_answer.set()
            assert answered.wait(LONGEST)
            clock.jump(3_600.0)
            assert (await task).text == '{"winner": "A"}'


async def test_a_call_that_nobody_answered_while_this_process_was_stopped_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = asyncio.Event()

    async def handler(got: web.Request) -> web.StreamResponse:
        asked.set()
        await asyncio.Event().wait()
        return web.Response()

    clock = JumpingTime(monkeypatch)
    async with told(handler, Access(timeout=5.0)) as made:
        task = asyncio.create_task(ask(made))
        await asked.wait()
        clock.jump(3_600.0)
        await turns()
        assert not task.done()
        clock.jump(STALL_GRACE_SECONDS)
        with pytest.raises(errors.CallTimeoutError, match="--timeout 5"):
            await task


@pytest.mark.parametrize("half", [False, True])
async def test_a_broken_connection_may_have_been_paid(half: bool) -> None:
    async def handler(got: web.Request) -> web.StreamResponse:
        assert got.transport is not None
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        if half:
            await response.prepare(got)
            await response.write(b'{"choices":')
        got.transport.close()
        return response

    async with told(handler) as made:
        with pytest.raises(errors.ConnectionFailedError) as caught:
            await ask(made)
        assert caught.value.cost is None


async def test_a_connection_that_is_reset_during_its_first_handshake_is_tried_again() -> None:
    async def reset(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    server = await asyncio.start_server(reset, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with backend(f"https://127.0.0.1:{port}/v1") as made:
            with pytest.raises(errors.ConnectionFailedError, match="no connection") as caught:
                await ask(made)
    assert not caught.value.misdirected
    assert caught.value.unavailable


@pytest.mark.parametrize(
    ("number", "is_unknown"),
    [(socket.EAI_NONAME, True), (socket.EAI_AGAIN, False), (socket.EAI_FAIL, False)],
)
async def test_only_a_name_that_does_not_exist_is_misdirected(
    monkeypatch: pytest.MonkeyPatch, number: int, is_unknown: bool
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(number, "a failure of names")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    async with backend("http://judge.example/v1") as made:
        with pytest.raises(errors.ConnectionFailedError, match="a failure of names") as caught:
            await ask(made)
    assert caught.value.misdirected is is_unknown
    assert ("isn't known" in str(caught.value)) is is_unknown


@pytest.mark.parametrize("body", [b"<html>Welcome</html>", b"", b"[1, 2]", b"\xff\xfe", b"null"])
async def test_an_answer_in_no_form_is_the_servers_failure(body: bytes) -> None:
    async with told(saying(body)) as made:
        with pytest.raises(
            errors.ServerFailedError, match="something other than a JSON object"
        ) as caught:
            await ask(made)
        assert caught.value.cost is None


async def test_an_endless_answer_is_unusable_and_may_have_been_paid() -> None:
    async def handler(got: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(got)
        for _ in range(LARGEST_REPLY // 2**20 + 2):
            await response.write(b" " * 2**20)
        return response

    async with told(handler) as made:
        reply = await ask(made)
        assert reply.cost is None
        assert "longer than 16,777,216 bytes" in (reply.problem or "")


async def test_errors_come_named_with_their_pause_and_limits_are_believed() -> None:
    body = {"error": {"message": "Slow down", "type": "requests", "code": "rate_limit_exceeded"}}
    limits = {"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "0"}

    async with told(saying(body, 429, {"retry-after-ms": "250", **limits})) as made:
        believed: list[RateHeaders] = []
        made._believe = believed.append
        with pytest.raises(errors.RateLimitedError) as caught:
            await ask(made)
        assert (caught.value.retry_after, caught.value.cost) == (0.25, 0.0)
        assert (believed[0].requests_limit, believed[0].requests_remaining) == (60, 0)


@pytest.mark.parametrize("tokens", [(0, 0), (100, 0), (0, 10)])
async def test_a_text_for_no_tokens_may_have_been_paid_for(tokens: tuple[int, int]) -> None:
    usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]}

    async with told(saying(completion("{}", usage=usage))) as made:
        assert (await ask(made))[1:3] == (Usage(), None)
        result = Result("a-1", 200, orjson.dumps(completion("{}", usage=usage)))
        assert made.read_result(result, 400, made.form)[1:3] == (Usage(), None)


REPLIES = Path(__file__).parent / "replies"
REPORTED = json.loads((REPLIES / "usage.json").read_text("utf-8"))["usages"]


@pytest.mark.parametrize("reported", REPORTED, ids=[each["name"] for each in REPORTED])
def test_usage_of_the_providers(reported: dict[str, Any]) -> None:
    assert read_usage(reported["usage"]) == Usage(**reported["expected"])


@pytest.mark.parametrize(
    "usage",
    [
        *(None, {}, [], "12", {"prompt_tokens": 3}, {"completion_tokens": 3}),
        *({"total_tokens": 3}, {"prompt_tokens": 4, "total_tokens": 3}),
        {"prompt_tokens": None, "completion_tokens": None, "total_tokens": None},
        *({"prompt_tokens": odd, "completion_tokens": 3} for odd in (-1, 1.5, True, 2**60)),
    ],
)
def test_usage_that_does_not_tell_is_unknown_and_not_zero(usage: Any) -> None:
    assert read_usage(usage) is None


READER = OpenAIChat("m", Model(), Access(), None)
USAGE = any_json(
    *("prompt_tokens", "completion_tokens", "prompt_tokens_details", "cached_tokens"),
    *("reasoning_tokens", "completion_tokens_details", "total_tokens"),
)


@given(USAGE)
def test_whatever_a_server_sends_usage_adds_up(usage: Any) -> None:
    found = read_usage(usage)
    if found is not None:
        assert all(count >= 0 for count in found)
        assert found.reasoning <= found.output
        if usage.get("prompt_tokens") is not None:
            prompt = usage["prompt_tokens"]
            assert found.input + found.cached == prompt or found.input == prompt < found.cached
        if usage.get("completion_tokens") is not None:
            assert usage["completion_tokens"] <= found.output


CALLED = {"type": "function", "function": {"name": "answer", "arguments": '{"winner": "A"}'}}


def choice(content: Any = "{}", reason: Any = "stop", **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, **more}
    return {"choices": [{"index": 0, "message": message, "finish_reason": reason}]}


@pytest.mark.parametrize(
    ("answer", "text", "problem"),
    [
        (choice("A"), "A", None),
        (choice("A", None), "A", None),
        (choice([{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]), "AB", None),
        (choice([{"type": "image"}, 3, {"text": 4}]), "", "empty"),
        (choice(None, refusal="I can't help with that."), "I can't help with that.", "refused"),
        (choice('{"winner": "A"', "length"), '{"winner": "A"', "cut off at the limit"),
        (choice('So: {"winner": "A"}', "length"), 'So: {"winner": "A"}', "cut off at the limit"),
        (choice('{"winner": "A"}', "length"), '{"winner": "A"}', None),
        (choice("", "length", reasoning_content="Hmm"), "", "cut off at the limit"),
        (choice("A", "content_filter"), "A", "content filter"),
        (choice(""), "", "empty"),
        (choice(" \n"), " \n", "empty"),
        (choice(None), "", "empty"),
        (choice('{"winner": "A"}  \n\n', "length"), '{"winner": "A"}  \n\n', None),
        (choice('{"winner": "A"} is lou', "length"), '{"winner": "A"} is lou', None),
        (choice("A", "sensitive"), "A", "content filter"),
        ({"choices": [{"finish_reason": "content_filter"}]}, "", "content filter"),
        (choice({"winner": "A"}), '{"winner":"A"}', None),
        (choice({"type": "text", "text": "A"}), "A", None),
        (choice([{"type": "thinking", "text": "Hm"}, {"type": "text", "text": "A"}]), "A", None),
        (choice(None, "tool_calls", tool_calls=[CALLED]), '{"winner": "A"}', None),
        (choice("So:", "tool_calls", tool_calls=[CALLED]), 'So:\n{"winner": "A"}', None),
        (choice("B", tool_calls=[CALLED] * 2), 'B\n{"winner": "A"}\n{"winner": "A"}', None),
        (choice("", function_call={"arguments": {"winner": "A"}}), '{"winner":"A"}', None),
        (
            choice(None, reasoning_content='{"winner": "A"}'),
            "",
            'was empty: the server put the words into "reasoning_content"',
        ),
        (choice(" ", reasoning="Hm. A"), " ", 'put the words into "reasoning"'),
    ],
)
def test_what_is_no_answer_is_told(answer: Any, text: str, problem: str | None) -> None:
    read = READER.read_result(Result("a-1", 200, orjson.dumps(answer)), 400, READER.form)
    assert (read.text, read.problem is None) == (text, problem is None)
    assert (problem or "") in (read.problem or "")


@pytest.mark.parametrize(
    "answer",
    [
        {"choices": [], "usage": None},
        {"choices": None},
        {},
        {"choices": [None]},
        {"choices": [{"text": "old completions"}]},
        choice('{"winner": "A"}', "error"),
        choice('{"winner": "A"}', "abort"),
        choice("", "insufficient_system_resource"),
        {"choices": [{**choice("")["choices"][0], "error": {"code": 502, "message": "no"}}]},
    ],
)
def test_a_failure_inside_a_200_is_the_servers(answer: dict[str, Any]) -> None:
    """Live as well as in a batch."""
    with pytest.raises(errors.ServerFailedError, match="answered 200 with") as caught:
        READER.read_result(Result("a-1", 200, orjson.dumps(answer)), 400, READER.form)
    assert caught.value.cost is None


async def test_a_failure_that_says_its_tokens_costs_these() -> None:
    async with told(saying(completion("", reason="error"))) as made:
        with pytest.raises(errors.ServerFailedError, match="finish_reason 'error'") as caught:
            await ask(made)
        assert caught.value.cost == (100 + 100) / 1e6


async def test_a_call_never_costs_more_than_its_bound_and_estimates_learn() -> None:
    async with told(saying(completion("{}"))) as made:
        before = made.prepare(request(LIST))
        cost = (await ask(made, LIST)).cost
        assert cost is not None
        assert cost < (before.bound or 0)
        assert made.prepare(request(LIST)).tokens == pytest.approx(110)


@pytest.mark.parametrize(
    ("said", "dollars"),
    [("1.35e-05", 1.35e-05), ("0", None), ("", None), (None, None), ("1e14", None)],
)
async def test_a_proxys_price_of_a_call_is_its_cost(
    said: str | None, dollars: float | None
) -> None:
    """As LiteLLM reports it; it says 0 of models that it doesn't know."""
    headers = {} if said is None else {"x-litellm-response-cost": said}
    saying_so = saying(completion('{"winner": "A"}'), headers=headers)

    async with answering(saying_so) as url, backend(url) as priced:
        assert (await ask(priced)).cost == (dollars or (100 + 100) / 1e6)
        made = OpenAIChat("m", Model(base_url=url), Access(), None)
        await made.open()
        assert (await ask(made)).cost == dollars
        await made.close()


SOME = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


ODD_COSTS: list[Any] = [None, -1, True, "0.01", [], 1e300, {}]


@pytest.mark.parametrize(
    ("usage", "dollars"),
    [
        ({"cost": 0.0123}, 0.0123),
        ({"cost": 0.0123, "is_byok": False}, 0.0123),
        ({"cost": 0.01, "cost_details": {"upstream_inference_cost": 0.01}}, 0.01),
        # The user's own key: its provider bills as well.
        (
            {"cost": 0.01, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.2}},
            0.01 + 0.2,
        ),
        ({"cost": 0.01, "is_byok": True}, None),
        # 0 is believed of OpenRouter, and unknown elsewhere.
        ({"cost": 0, "is_byok": False}, 0.0),
        ({"cost": 0}, None),
        ({"cost": {"total_cost": 0.006}}, 0.006),
        *[({"cost": cost}, None) for cost in ODD_COSTS],
    ],
)
async def test_the_cost_that_a_server_reports_is_that_of_the_call(
    usage: dict[str, Any], dollars: float | None
) -> None:
    async with answering(saying(completion("{}", usage=SOME | usage))) as url:
        async with backend(url) as priced:
            reply = await ask(priced)
            assert reply.cost == ((100 + 100) / 1e6 if dollars is None else dollars)
            assert reply.usage == Usage(100, 0, 10, 0)
        made = OpenAIChat("m", Model(base_url=url), Access(), None)
        await made.open()
        assert (await ask(made)).cost == dollars
        await made.close()


async def test_a_cost_is_reported_without_tokens_too() -> None:
    async with told(saying(completion("{}", usage={"cost": 0.5}))) as made:
        assert (await ask(made))[1:3] == (Usage(), 0.5)


async def test_a_reported_cost_above_the_bound_raises_that_of_later_calls() -> None:
    async with told(saying(completion("{}", usage=SOME | {"cost": 3.0}))) as made:
        warned: list[str] = []
        made._bounds._warn = warned.append
        before = made.prepare(request())
        assert (before.bound or 0) < 3.0
        assert (await ask(made)).cost == 3.0
        after = made.prepare(request())
        assert after.bound == pytest.approx(2 * 3.0)
        assert after.version == before.version + 1
        (warning,) = warned
        assert "so the server says. Its prices are higher than those of --price" in warning


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate, and is not here")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    made += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    made += ["-keyout", str(key), "-out", str(cert)]
    subprocess.run(made, check=True, capture_output=True)
    return cert, key


async def test_a_certificate_of_ones_own_is_named(certificate: tuple[Path, Path]) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)

    async with answering(saying(completion("{}")), context) as url:
        async with backend(url, Access(ca_file=certificate[0])) as made:
            assert (await ask(made)).text == "{}"
        async with backend(url) as made:
            with pytest.raises(errors.RefusedRequestError, match="--ca-file"):
                await ask(made)
    async with answering(saying({})) as url, backend(url.replace("http", "https")) as made:
        with pytest.raises(errors.RefusedRequestError, match="speaks no TLS"):
            await ask(made)


def test_a_ca_file_that_can_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    for path in (tmp_path / "ca.pem", tmp_path / "none.pem"):
        made = OpenAIChat("m", Model(base_url="http://h/v1"), Access(ca_file=path), None)
        with pytest.raises(errors.UsageError, match=r"--ca-file .* can't be used"):
            asyncio.run(made.open())
