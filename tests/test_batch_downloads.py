"""Results as they are downloaded, from servers that may mean no good, and read."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from judgeq.errors import (
    BatchGoneError,
    CallError,
    JudgeError,
    QuotaError,
    RateLimitedError,
    RefusedRequestError,
    RunError,
    ServerFailedError,
    SteppedDownError,
)
from judgeq.judge.backend import Remote, Result
from judgeq.judge.batches import api_of, provider
from judgeq.judge.batches.provider import BatchAPI
from judgeq.judge.http.anthropic import AnthropicMessages
from judgeq.judge.http.openai import OpenAIChat
from judgeq.judge.prices import Pricing
from judgeq.settings.model import Access, Model, Price
from judgeq.types import Usage
from tests.batch_server import (
    LINE,
    Server,
    forms,
    told,
)
from tests.web import completion


def downloading(server: Server, folder: Path, form: str = "openai", **access: Any) -> Any:
    remote = Remote("b", "", "ended", 0.0, results=["f1"])
    return told(server, lambda api: api.download(remote, folder), form, **access)


@forms
@pytest.mark.parametrize(
    "data",
    [
        orjson.dumps(LINE) + b"\n" + orjson.dumps(LINE)[:-5],
        b"<html>no</html>",
        b'{"error":{"message":"no"}}',
        b'{"custom_id":7}',
        b"\xff\xfe",
        b"[]",
    ],
)
def test_a_file_that_is_none_of_results_is_not_kept(form: str, data: bytes, tmp_path: Path) -> None:
    server = Server(form).says("/content", data).says("/results", data)
    with pytest.raises(ServerFailedError, match="came broken"):
        downloading(server, tmp_path, form)
    assert list(tmp_path.iterdir()) == []


@forms
@pytest.mark.parametrize("how", ["short", "endless", "gzip", "unchunked"])
def test_a_file_that_may_not_be_whole_is_not_kept(form: str, how: str, tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        line = orjson.dumps(LINE) + b"\n"
        if how == "gzip":
            return web.Response(body=line, headers={"Content-Encoding": "gzip"})
        transport = request.transport
        assert transport is not None
        head = {"short": "Content-Length: 5000\r\n", "unchunked": ""}
        chunked = "Transfer-Encoding: chunked\r\n"
        sent = f"HTTP/1.1 200 OK\r\n{head.get(how, chunked)}Connection: close\r\n\r\n".encode()
        sent += (b"%x\r\n" % len(line) + line + b"\r\n") if how == "endless" else line
        transport.write(sent)
        transport.close()
        return web.Response()

    server = Server(form)
    server.answers = {"/content": answer, "/results": answer}
    with pytest.raises(CallError):
        downloading(server, tmp_path, form)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("limit", ["LARGEST_FILE", "LARGEST_LINE"])
def test_a_server_can_not_fill_the_disk(
    limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider, limit, 1_000)
    data = orjson.dumps({**LINE, "more": "x" * 2_000})
    with pytest.raises(ServerFailedError, match="longer than any"):
        downloading(Server().says("/content", data), tmp_path)
    assert list(tmp_path.iterdir()) == []


@forms
def test_deleted_results_are_gone(form: str, tmp_path: Path) -> None:
    server = Server(form).says("/content", {}, 404).says("/results", {}, 410)
    with pytest.raises(BatchGoneError):
        downloading(server, tmp_path, form)


def test_nothing_is_written_or_read_through_a_link(tmp_path: Path) -> None:
    folder, secret = tmp_path / "batches", tmp_path / "secret"
    folder.mkdir()
    secret.write_text('{"custom_id":"a"}')
    (folder / "f1.jsonl").symlink_to(secret)
    with pytest.raises(RunError, match="link"):
        downloading(Server(), folder)
    with pytest.raises(RunError, match="link"):
        list(told(Server(), lambda api: _read(api, folder / "f1.jsonl")))
    linked = tmp_path / "linked"
    linked.symlink_to(folder)
    with pytest.raises(RunError, match="link"):
        downloading(Server(), linked)


async def _read(api: BatchAPI, path: Path) -> list[Result]:
    return list(api.results(path))


def read(path: Path, form: str, *said: Any) -> list[Result]:
    path.write_text("\n".join(map(json.dumps, said)) + "\n\n")
    results: list[Result] = told(Server(form), lambda api: _read(api, path), form)
    return results


def test_what_lines_of_openais_say(tmp_path: Path) -> None:
    def line(response: Any, error: Any = None) -> dict[str, Any]:
        return {"id": "x", "custom_id": "a-1", "response": response, "error": error}

    deep: Any = "x"
    for _ in range(400):
        deep = [deep]
    expired, cancelled = {"code": "batch_expired", "message": "late"}, {"code": "batch_cancelled"}
    results = read(
        tmp_path / "f.jsonl",
        "openai",
        line({"status_code": 200, "body": {"a": 1}}),
        line({"status_code": 400, "body": {"error": {"message": "no"}}}, {"code": "x"}),
        line(None, expired),
        line(None, cancelled),
        line({"status_code": 0, "body": None}, expired),
        line({"status_code": 0, "body": {}}),
        line({"status_code": "200", "body": {}}),
        line({"status_code": True}),
        line(None, {"code": ["batch_expired"]}),
        line(7, 8),
        line({"status_code": 200, "body": deep}),
        {"response": {"status_code": 200}},
        {"custom_id": "a b"},
        {"custom_id": "x" * 65},
    )
    assert [(result.status, result.ended) for result in results] == [
        *((200, None), (400, None), (0, "expired"), (0, "cancelled"), (0, "expired")),
        *((0, None), (0, None), (0, None), (0, None), (0, None), (200, None)),
    ]
    assert {result.custom_id for result in results} == {"a-1"}
    assert [result.body for result in results[:2]] == [b'{"a":1}', b'{"error":{"message":"no"}}']
    assert results[-1].body == b""


def test_what_lines_of_anthropics_say(tmp_path: Path) -> None:
    def line(kind: Any, **more: Any) -> dict[str, Any]:
        return {"custom_id": "a-1", "result": {"type": kind, **more}}

    def errored(word: Any) -> dict[str, Any]:
        inner = {"type": word, "message": "no"}
        return line("errored", error={"type": "error", "error": inner, "request_id": "r"})

    words: tuple[str, ...] = ("invalid_request_error", "authentication_error", "billing_error")
    words += ("permission_error",)
    words += ("not_found_error", "request_too_large", "rate_limit_error", "api_error")
    words += ("timeout_error", "overloaded_error", "new_error")
    results = read(
        tmp_path / "f.jsonl",
        "anthropic",
        line("succeeded", message={"content": []}),
        *map(errored, words),
        line("errored", error={"type": "invalid_request", "message": "flat"}),
        line("canceled"),
        line("expired"),
        line("succeeded"),
        line("new"),
        line(["succeeded"]),
        {"custom_id": "a-1"},
        {"result": {"type": "expired"}},
    )
    assert [(result.status, result.ended) for result in results] == [
        (200, None),
        *((status, None) for status in (400, 401, 402, 403, 404, 413, 429, 500, 504, 529, 500)),
        *((400, None), (0, "cancelled"), (0, "expired")),
        *((0, None), (0, None), (0, None), (0, None)),
    ]
    assert results[0].body == b'{"content":[]}'
    assert orjson.loads(results[1].body) == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "no"},
    }


WORDS = st.sampled_from(
    [
        "custom_id",
        "response",
        "error",
        "status_code",
        "body",
        "code",
        "result",
        "type",
        "message",
        "succeeded",
        "errored",
        "expired",
        "id",
        "status",
        "created_at",
        "request_counts",
        "total",
        "completed",
        "failed",
        "errors",
        "data",
        "output_file_id",
        "processing_status",
        "ended",
        "batch_expired",
        "a-1",
        "0001-01-01T00:00:00Z",
    ]
)
TEXT = st.text("aZ7-_ \x1b\n\u202eé", max_size=9)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | WORDS | TEXT
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(WORDS | TEXT, inner), max_leaves=8
)


def unopened(form: str) -> OpenAIChat | AnthropicMessages:
    kind = AnthropicMessages if form == "anthropic" else OpenAIChat
    return kind("m", Model(base_url="http://127.0.0.1:9/v1", api=form), Access(), None)


@forms
@given(fields=st.dictionaries(WORDS, ANYTHING))
def test_any_line_is_a_result_and_any_result_a_reply_or_an_error(
    form: str, fields: dict[str, Any]
) -> None:
    backend = unopened(form)
    api = api_of(backend)
    result = api.result("a-1", fields if form == "openai" else {"result": fields})
    with suppress(JudgeError):
        backend.read_result(result, 10, backend.form)


@forms
def test_a_file_taken_as_it_is_has_empty_lines_for_those_that_cant_be_results(
    form: str, tmp_path: Path
) -> None:
    whole = orjson.dumps(LINE)
    content = b"\n".join((b"[]", whole, b'{"custom_id": 1}', b"{", whole))
    server = Server(form).says("/content", content).says("/results", content)

    async def fetched(api: BatchAPI) -> list[Path]:
        return await api.download(await api.get("batch_1"), tmp_path, as_it_is=True)

    (file,) = told(server, fetched, form)
    assert file.read_bytes().split(b"\n") == [b"", whole, b"", b"", whole, b""]


# What a line of results becomes


SIZE = 400
PRICE = Price(input=1.0, output=10.0)


def chat(**model: Any) -> OpenAIChat:
    settings = Model(base_url="http://127.0.0.1:9/v1", **model)
    return OpenAIChat("m", settings, Access(), Pricing("flat", PRICE, PRICE))


def line(status: int, body: Any) -> Result:
    return Result("a-1", status, orjson.dumps(body))


def refused(message: str, **more: str) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


def test_a_line_is_read_as_a_live_answer_is() -> None:
    backend = chat()
    reply = backend.read_result(line(200, completion("A")), SIZE, backend.form)
    assert (reply.text, reply.usage, reply.problem) == ("A", Usage(100, 0, 10, 0), None)
    assert reply.cost == pytest.approx((100 * 1.0 + 10 * 10.0) / 1e6)
    cut = backend.read_result(line(200, completion("A", reason="length")), SIZE, backend.form)
    assert cut.problem is not None
    filtered = backend.read_result(
        line(400, refused("no", code="content_filter")), SIZE, backend.form
    )
    assert filtered.problem is not None


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (429, refused("slow down"), RateLimitedError),
        (429, refused("You exceeded your current quota", code="insufficient_quota"), QuotaError),
        (500, refused("oh"), ServerFailedError),
        (504, refused("oh"), ServerFailedError),
        (400, refused("no such thing as a temperature of 3"), RefusedRequestError),
        (400, None, RefusedRequestError),
    ],
)
def test_a_line_that_failed_is_the_error_it_would_be_live_and_cost_nothing(
    status: int, body: Any, error: type[JudgeError]
) -> None:
    backend = chat()
    with pytest.raises(error) as raised:
        backend.read_result(line(status, body), SIZE, backend.form)
    assert raised.value.cost == 0.0


@pytest.mark.parametrize("result", [Result("a-1", 0, b"{}"), line(200, None), line(200, [1])])
def test_a_line_that_says_nothing_may_have_cost(result: Result) -> None:
    backend = chat()
    with pytest.raises(ServerFailedError) as raised:
        backend.read_result(result, SIZE, backend.form)
    assert raised.value.cost is None


def test_a_whole_batch_that_was_refused_steps_down_once() -> None:
    backend, no = chat(), line(400, refused("response_format json_schema is not supported"))
    form = backend.form
    for _ in range(5):
        with pytest.raises(SteppedDownError):
            backend.read_result(no, SIZE, form)
    assert backend.mode == "json"
    assert backend.form != form
