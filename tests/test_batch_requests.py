"""What the adapters send, and what they make of servers that mean no good."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from judgeq.errors import (
    JudgeError,
    KeyRefusedError,
    RefusedRequestError,
    ServerFailedError,
)
from judgeq.judge.backend import Remote
from judgeq.judge.batches import api_of, provider
from judgeq.judge.batches.provider import BatchAPI
from judgeq.judge.http.anthropic import AnthropicMessages
from judgeq.judge.http.openai import OpenAIChat
from judgeq.settings.model import Access, Model
from tests.batch_server import (
    BATCH,
    KEY,
    NAME,
    Server,
    creating,
    everything,
    forms,
    lines,
    told,
)
from tests.web import answering


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGEQ_API_KEY", KEY)


# What is sent


@forms
def test_only_our_key_and_headers_are_sent_and_no_variable_of_a_package_counts(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = "http://127.0.0.1:9/v1"
    for name, value in {
        "OPENAI_API_KEY": "sk-other-key",
        "OPENAI_ADMIN_KEY": "sk-other-key",
        "OPENAI_BASE_URL": elsewhere,
        "OPENAI_ORG_ID": "org-other",
        "OPENAI_PROJECT_ID": "proj-other",
        "OPENAI_CUSTOM_HEADERS": "X-Other: other\nAuthorization: Bearer other",
        "ANTHROPIC_API_KEY": "sk-other-key",
        "ANTHROPIC_BASE_URL": elsewhere,
        "SSL_CERT_FILE": "/nowhere",
    }.items():
        monkeypatch.setenv(name, value)
    server = Server(form)
    told(server, lambda api: everything(api, tmp_path), form, headers=("X-Team: ours",))
    allowed = {"Host", "X-Team", "Content-Type", "Content-Length", "Accept", "Accept-Encoding"}
    allowed |= {"User-Agent", "Authorization"} if form == "openai" else {"User-Agent", "x-api-key"}
    allowed |= {"anthropic-version"} if form == "anthropic" else set()
    assert len(server.seen) >= 5
    for method, _, headers, _ in server.seen:
        assert headers.keys() <= allowed, method
        assert headers["X-Team"] == "ours"
        assert headers["User-Agent"].startswith(("Python/", "AsyncOpenAI/"))
        key = headers["Authorization"] if form == "openai" else headers["x-api-key"]
        assert key == (f"Bearer {KEY}" if form == "openai" else KEY)


def test_openais_wire_form(tmp_path: Path) -> None:
    server = Server()
    told(server, lambda api: everything(api, tmp_path))
    assert server.asked == [
        "POST /files",
        "POST /batches",
        "GET /batches?limit=100",
        "GET /batches/batch_1",
        "POST /batches/batch_1/cancel",
        "GET /files/f1/content",
    ]
    _, _, headers, body = server.seen[0]
    assert headers["Content-Type"].startswith("multipart/form-data; boundary=")
    assert int(headers["Content-Length"]) == len(body)
    assert f'filename="{NAME}.jsonl"'.encode() in body
    assert b'name="purpose"\r\n\r\nbatch\r\n' in body
    line = b'{"custom_id":"jq-0a1b2c3d-1","method":"POST","url":"/v1/chat/completions","body":'
    assert line + b'{"a":"b"}}\n' in body
    assert orjson.loads(server.seen[1][3]) == {
        "input_file_id": "f0",
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
        "metadata": {"judgeq": NAME},
    }


@forms
@pytest.mark.parametrize("flag", [True, False])
def test_the_proxy_is_used_and_the_query_of_the_base_url_is_kept(
    form: str, flag: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, base = Server(form), "http://x.openai.azure.com/v1?api-version=1"
    if flag:
        told(server, lambda api: everything(api, tmp_path), form, base, proxy="{url}")
    else:

        async def story() -> None:
            async with answering(server.handle) as url:
                monkeypatch.setenv("http_proxy", url)
                kind = AnthropicMessages if form == "anthropic" else OpenAIChat
                backend = kind("m", Model(base_url=base, api=form), Access(), None)
                await backend.open()
                await everything(api_of(backend), tmp_path)
                await backend.close()

        asyncio.run(story())
    assert len(server.seen) >= 5
    for _, url, headers, _ in server.seen:
        assert url.startswith("http://x.openai.azure.com/v1/")
        assert "?api-version=1" in url
        if form == "openai":
            assert headers["api-key"] == KEY
    if form == "openai":
        assert orjson.loads(server.seen[1][3])["endpoint"] == "/chat/completions"


# What a server may not decide

BAD_IDS = ["../../x", "a/b", "", "x" * 129, "a\n", ".", "é", 7, None, ["a"], KEY]


@forms
@pytest.mark.parametrize("bad", BAD_IDS)
def test_no_id_of_a_server_gets_into_an_address_or_a_name_of_a_file(
    form: str, bad: Any, tmp_path: Path
) -> None:
    server = Server(form).says("/batches", {**BATCH[form], "id": bad})
    with pytest.raises(ServerFailedError, match="id that can't be one") as raised:
        creating(server, form)
    assert raised.value.cost is None
    assert KEY not in str(raised.value)

    async def story(api: BatchAPI) -> None:
        with pytest.raises(ServerFailedError):
            await api.get(bad)
        with pytest.raises(ServerFailedError):
            await api.cancel(bad)
        with pytest.raises(ServerFailedError):
            await api.download(Remote("b", "", "ended", 0.0, results=[bad]), tmp_path)

    asked = len(server.seen)
    told(server, story, form)
    assert len(server.seen) == asked
    assert list(tmp_path.iterdir()) == []


def test_the_key_never_goes_where_results_are_said_to_be(tmp_path: Path) -> None:
    elsewhere = Server("anthropic")

    async def story(api: BatchAPI) -> None:
        async with answering(elsewhere.handle) as url:
            batch = {**BATCH["anthropic"], "results_url": f"{url}/results"}
            server.says("/batches", {**batch, "data": [batch]})
            await everything(api, tmp_path)

    server = Server("anthropic")
    told(server, story, "anthropic")
    assert "GET /messages/batches/batch_1/results" in server.asked
    assert elsewhere.seen == []


@forms
def test_no_redirect_is_followed(form: str, tmp_path: Path) -> None:
    elsewhere = Server(form)

    async def story(api: BatchAPI) -> None:
        async with answering(elsewhere.handle) as url:
            server.says("/batches", b"", 307, Location=url)
            server.says("/content", b"", 302, Location=url)
            server.says("/results", b"", 302, Location=url)
            for call in (
                api.get("b"),
                api.create(NAME, lines(api)),
                api.download(Remote("b", "", "ended", 0.0, results=["f1"]), tmp_path),
            ):
                with pytest.raises(RefusedRequestError, match="has moved"):
                    await call

    server = Server(form)
    told(server, story, form)
    assert elsewhere.seen == []


@forms
def test_what_a_server_says_is_masked(form: str, tmp_path: Path) -> None:
    batch = {
        **BATCH[form],
        "status": f"failed {KEY}\x1b[2J",
        "processing_status": f"failed {KEY}\x1b[2J",
        "errors": {"data": [{"message": f"no {KEY}", "code": KEY, "line": 3}]},
    }
    created = creating(Server(form).says("/batches", batch), form)
    assert KEY not in repr(created)
    assert "\x1b" not in created.status
    error = {"error": {"message": f"Incorrect API key provided: {KEY}"}}
    with pytest.raises(KeyRefusedError) as raised:
        creating(Server(form).says("/batches", error, 401), form)
    assert KEY not in str(raised.value)
    own, other = f"{NAME}-0", {"custom_id": f"x{KEY}"}
    said = [
        {"custom_id": own, "response": {"status_code": 400, "body": {"x": KEY}}, "result": KEY},
        {"custom_id": other["custom_id"]},
    ]
    data = b"\n".join(map(orjson.dumps, said))
    server = Server(form).says("/content", data).says("/results", data)

    async def story(api: BatchAPI) -> list[Path]:
        return await api.download(Remote("b", "", "ended", 0.0, results=["f1"]), tmp_path)

    [file] = told(server, story, form)
    assert KEY not in file.read_text()
    assert orjson.loads(file.read_bytes().splitlines()[0])["custom_id"] == own


# Answers that are none


@forms
@pytest.mark.parametrize("status", [404, 405])
def test_a_server_without_batches_is_said_to_be_one(form: str, status: int) -> None:
    server = Server(form).says("/batches", {"detail": "Not Found"}, status)
    with pytest.raises(RefusedRequestError, match=r"no batch API.*leave --batch out") as raised:
        creating(server, form)
    assert raised.value.cost == 0.0
    if form == "openai":
        assert server.asked[-1] == "DELETE /files/f0"
        with pytest.raises(RefusedRequestError, match="no batch API"):
            creating(Server().says("/files", {}, status))
    with pytest.raises(RefusedRequestError, match="no batch API"):
        told(server, lambda api: api.identify(NAME, 1, 0.0, ()), form)


@forms
@pytest.mark.parametrize(
    ("status", "cost"),
    [
        *((status, 0.0) for status in (400, 401, 402, 403, 404, 413, 422)),
        *((status, None) for status in (408, 409, 425, 429, 500, 502, 529)),
    ],
)
def test_what_a_refused_batch_may_have_cost(form: str, status: int, cost: float | None) -> None:
    server = Server(form).says("/batches", {"error": {"message": "no"}}, status)
    with pytest.raises(JudgeError) as raised:
        creating(server, form)
    assert raised.value.cost == cost
    assert ("DELETE /files/f0" in server.asked) is (form == "openai" and cost is not None)


@forms
@pytest.mark.parametrize("said", [b"<html>", b"[1]", b"null", b"{}", b"[" * 2_000])
def test_an_answer_that_is_no_batch_may_have_made_one(form: str, said: bytes) -> None:
    server = Server(form).says("/batches", said)
    with pytest.raises(ServerFailedError) as raised:
        creating(server, form)
    assert raised.value.cost is None
    with pytest.raises(ServerFailedError):
        told(server, lambda api: api.identify(NAME, 1, 0.0, ()), form)


def test_the_file_of_our_texts_is_deleted_once_when_its_batch_ended() -> None:
    server = Server().says("/batches", {**BATCH["openai"], "input_file_id": "f0"})
    server.says("/files/f0", {}, 500)

    async def story(api: BatchAPI) -> None:
        for _ in range(3):
            assert (await api.get("batch_1")).stands == "ended"

    told(server, story)
    assert server.asked.count("DELETE /files/f0") == 1


# Pages


@forms
def test_a_list_without_an_end_is_given_up(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "MOST_PAGES", 4)
    server, made = Server(form), 0

    async def page(request: web.Request) -> web.Response:
        nonlocal made
        made += 1
        return web.json_response({"data": [{**BATCH[form], "id": f"b{made}"}], "has_more": True})

    server.answers = {"/batches": page}
    with pytest.raises(ServerFailedError, match="without an end"):
        told(server, lambda api: api.identify(NAME, 5, 0.0, ()), form)
    assert made == 4
