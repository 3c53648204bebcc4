"""Batch APIs: what the adapters send, and what they make of answers and results of servers that may mean
no good."""

import io
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from judgeq import errors
from judgeq.judge.backend import Remote, Result
from judgeq.judge.http import batch_api
from judgeq.judge.http.batch_api import BatchAPI
from judgeq.mock_server import running
from judgeq.types import Match
from tests import faulty_server
from tests.anthropic_server import AnthropicServer
from tests.batch_server import (
    BATCH,
    KEY,
    LINE,
    NAME,
    Server,
    adapter,
    asked_at,
    creating,
    everything,
    forms,
    lines,
    told,
)
from tests.fakes import Clock, any_json
from tests.faulty_server import FaultySettings
from tests.test_openai_chat import request
from tests.web import answering


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGEQ_API_KEY", KEY)


@forms
def test_only_our_key_and_headers_are_sent_and_no_variable_of_a_package_counts(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, "/other")
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "sk-other-key")
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Other: other\nAuthorization: Bearer other")
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
    file = {"input_file_id": "f0", "endpoint": "/v1/chat/completions"}
    how = {"completion_window": "24h", "metadata": {"judgeq": NAME}}
    assert orjson.loads(server.seen[1][3]) == file | how


@forms
@pytest.mark.parametrize("flag", ["env:http_proxy", None])
async def test_the_proxy_is_used_and_the_query_of_the_base_url_is_kept(
    form: str, flag: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, base = Server(form), "http://x.openai.azure.com/v1?api-version=1"
    async with answering(server.handle) as url:
        monkeypatch.setenv("http_proxy", url.removesuffix("/v1"))
        async with asked_at(form, base, proxy=flag) as backend:
            await everything(backend.batch_api, tmp_path)
    assert len(server.seen) >= 5
    for _, url, headers, _ in server.seen:
        assert url.startswith("http://x.openai.azure.com/v1/")
        assert "?api-version=1" in url
        if form == "openai":
            assert headers["api-key"] == KEY
    if form == "openai":
        assert orjson.loads(server.seen[1][3])["endpoint"] == "/chat/completions"


BAD_IDS = ["../../x", "", "x" * 129, "a\n", 7, KEY]


@forms
@pytest.mark.parametrize("bad", BAD_IDS)
def test_no_id_of_a_server_gets_into_an_address_or_a_name_of_a_file(
    form: str, bad: Any, tmp_path: Path
) -> None:
    server = Server(form).says("/batches", {**BATCH[form], "id": bad})
    with pytest.raises(errors.ServerFailedError, match="id that can't be one") as raised:
        creating(server, form)
    assert raised.value.cost is None
    assert KEY not in str(raised.value)

    async def story(api: BatchAPI) -> None:
        remote = Remote("b", "", "ended", 0.0, results=[bad])
        for call in (api.get(bad), api.cancel(bad), api.download(remote, tmp_path)):
            with pytest.raises(errors.ServerFailedError):
                await call

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
            for call in (api.get("b"), api.create(NAME, lines(api))):
                with pytest.raises(errors.RefusedRequestError, match="has moved"):
                    await call
            remote = Remote("b", "", "ended", 0.0, results=["f1"])
            (refused,) = (await api.download(remote, tmp_path)).refused
            assert isinstance(refused, errors.RefusedRequestError)
            assert "has moved" in str(refused)

    server = Server(form)
    told(server, story, form)
    assert elsewhere.seen == []


@forms
def test_what_a_server_says_is_masked(form: str, tmp_path: Path) -> None:
    batch = {**BATCH[form], "errors": {"data": [{"message": f"no {KEY}", "code": KEY, "line": 3}]}}
    batch |= dict.fromkeys(("status", "processing_status"), f"failed {KEY}\x1b[2J")
    created = creating(Server(form).says("/batches", batch), form)
    assert KEY not in repr(created)
    assert "\x1b" not in created.status
    error = {"error": {"message": f"Incorrect API key provided: {KEY}"}}
    with pytest.raises(errors.KeyRefusedError) as raised:
        creating(Server(form).says("/batches", error, 401), form)
    assert KEY not in str(raised.value)
    own, response = f"{NAME}-0", {"status_code": 400, "body": {"x": KEY}}
    said = [{"custom_id": own, "response": response, "result": KEY}, {"custom_id": f"x{KEY}"}]
    data = b"\n".join(map(orjson.dumps, said))
    server = Server(form).says("/content", data).says("/results", data)
    [file] = downloading(server, tmp_path, form)
    assert KEY not in file.read_text()
    assert orjson.loads(file.read_bytes().splitlines()[0])["custom_id"] == own


@forms
@pytest.mark.parametrize("status", [404, 405])
def test_a_server_without_batches_is_said_to_be_one(form: str, status: int) -> None:
    server = Server(form).says("/batches", {"detail": "Not Found"}, status)
    with pytest.raises(
        errors.RefusedRequestError, match=r"no batch API.*leave --batch out"
    ) as raised:
        creating(server, form)
    assert raised.value.cost == 0.0
    if form == "openai":
        assert server.asked[-1] == "DELETE /files/f0"
        with pytest.raises(errors.RefusedRequestError, match="no batch API"):
            creating(Server().says("/files", {}, status))
    with pytest.raises(errors.RefusedRequestError, match="no batch API"):
        told(server, lambda api: api.identify(NAME, 1, 0.0, ()), form)


@forms
@pytest.mark.parametrize(
    ("status", "cost"),
    [(400, 0.0), (401, 0.0), (413, 0.0), (408, None), (429, None), (500, None)],
)
def test_what_a_refused_batch_may_have_cost(form: str, status: int, cost: float | None) -> None:
    server = Server(form).says("/batches", {"error": {"message": "no"}}, status)
    with pytest.raises(errors.JudgeError) as raised:
        creating(server, form)
    assert raised.value.cost == cost
    assert ("DELETE /files/f0" in server.asked) is (form == "openai" and cost is not None)


@forms
@pytest.mark.parametrize("said", [b"<html>", b"[1]", b"{}"])
def test_an_answer_that_is_no_batch_may_have_made_one(form: str, said: bytes) -> None:
    server = Server(form).says("/batches", said)
    with pytest.raises(errors.ServerFailedError) as raised:
        creating(server, form)
    assert raised.value.cost is None
    with pytest.raises(errors.ServerFailedError):
        told(server, lambda api: api.identify(NAME, 1, 0.0, ()), form)


@forms
def test_a_list_without_an_end_is_given_up(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_api, "MOST_PAGES", 4)
    server, made = Server(form), 0

    async def page(request: web.Request) -> web.Response:
        nonlocal made
        made += 1
        return web.json_response({"data": [{**BATCH[form], "id": f"b{made}"}], "has_more": True})

    server.answers = {"/batches": page}
    with pytest.raises(errors.ServerFailedError, match="without an end"):
        told(server, lambda api: api.identify(NAME, 5, 0.0, ()), form)
    assert made == 4


@forms
async def test_a_batch_whose_creation_got_no_answer_is_known_again(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faulty_server, "LARGEST_PAGE", 3)
    clock, before = Clock(), 0.0
    faulty = FaultySettings(port=0, batch_time=100.0, batch_unanswered=1.0)
    async with running(AnthropicServer(faulty, clock=clock)) as url:
        backend = adapter(form, url)
        await backend.open()
        api = backend.batch_api
        bodies = [backend.prepare(request(Match(n, 1, (0, 1)))).body for n in range(10)]
        for name in (NAME, *(f"jq-other{other}" for other in range(7))):
            lines = b"".join(api.line(f"{name}-{n}", body) for n, body in enumerate(bodies))
            with pytest.raises(errors.CallError) as raised:
                await api.create(name, io.BytesIO(lines))
            assert raised.value.cost is None
        if form == "anthropic":
            with pytest.raises(errors.CallError) as unsure:
                await api.identify(NAME, 10, before, ())
            assert str(unsure.value).count("batch_") == 8
        else:
            assert await api.identify(NAME, 10, before, ()) is not None
        clock.now += 1_000
        late = await api.identify(NAME, 10, before, ())
        assert late is not None
        assert late.stands == "ended"
        assert await api.identify("jq-nobody", 10, before, ()) is None
        if form == "anthropic":
            assert await api.identify(NAME, 9, before, ()) is None
            assert await api.identify(NAME, 10, before, [late.id]) is None
            assert await api.identify(NAME, 10, late.made + 601, ()) is None
        await backend.close()


def downloading(server: Server, folder: Path, form: str = "openai", **how: bool) -> Any:
    remote = Remote("b", "", "ended", 0.0, results=["f1"])
    download = told(server, lambda api: api.download(remote, folder, **how), form)
    for error in download.refused:
        raise error
    return download.files


@forms
@pytest.mark.parametrize(
    "data", [orjson.dumps(LINE) + b"\n" + orjson.dumps(LINE)[:-5], b'{"custom_id":7}', b"\xff\xfe"]
)
def test_a_file_that_is_none_of_results_is_not_kept(form: str, data: bytes, tmp_path: Path) -> None:
    server = Server(form).says("/content", data).says("/results", data)
    with pytest.raises(errors.ServerFailedError, match="came broken"):
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
    with pytest.raises(errors.CallError):
        downloading(server, tmp_path, form)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("limit", ["LARGEST_FILE", "LARGEST_LINE"])
def test_a_server_can_not_fill_the_disk(
    limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_api, limit, 1_000)
    data = orjson.dumps({**LINE, "more": "x" * 2_000})
    with pytest.raises(errors.ServerFailedError, match="longer than any"):
        downloading(Server().says("/content", data), tmp_path)
    assert list(tmp_path.iterdir()) == []


@forms
@pytest.mark.parametrize(
    ("status", "error"), [(404, errors.BatchNotFoundError), (410, errors.BatchGoneError)]
)
def test_only_a_410_says_that_a_batch_or_its_results_are_gone(
    form: str, status: int, error: type[errors.JudgeError], tmp_path: Path
) -> None:
    said = {"error": {"message": "No such thing"}}
    server = Server(form).says("/content", said, status).says("/results", said, status)
    with pytest.raises(error, match=rf"the results in \w+ .*\({status}: No such thing\)"):
        downloading(server, tmp_path, form)
    server = Server(form).says("/batches/batch_1", said, status)
    with pytest.raises(error, match=rf"the batch batch_1 .*\({status}: No such thing\)"):
        told(server, lambda api: api.get("batch_1"), form)


@pytest.mark.parametrize("unreadable", ["f1", "f2"])
@pytest.mark.parametrize(
    ("status", "error"),
    [
        (403, errors.JudgeError),
        (404, errors.BatchNotFoundError),
        (410, errors.BatchGoneError),
        (500, errors.ServerFailedError),
    ],
)
def test_a_file_that_cant_be_read_keeps_no_other_from_being_read(
    unreadable: str, status: int, error: type[errors.JudgeError], tmp_path: Path
) -> None:
    server = Server().says(f"/files/{unreadable}/content", {"error": {"message": "no"}}, status)
    remote = Remote("b", "", "ended", 0.0, results=["f1", "f2"])
    download = told(server, lambda api: api.download(remote, tmp_path))
    readable = "f2" if unreadable == "f1" else "f1"
    assert download.files == [tmp_path / f"{readable}.jsonl"]
    assert list(tmp_path.iterdir()) == download.files
    (refusal,) = download.refused
    assert isinstance(refusal, error)


@forms
def test_a_batch_is_found_in_the_list_by_its_id(form: str) -> None:
    server = Server(form)
    found = told(server, lambda api: api.find_listed("batch_1", 1_000.0), form)
    assert found.id == "batch_1"
    assert found.stands == "ended"
    assert told(server, lambda api: api.find_listed("batch_2", 1_000.0), form) is None
    for status in (404, 405):
        server.says("/batches", {}, status)
        with pytest.raises(errors.RefusedRequestError, match="has no batch API"):
            told(server, lambda api: api.find_listed("batch_1", 1_000.0), form)


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    folder, secret = tmp_path / "batches", tmp_path / "secret"
    folder.mkdir()
    secret.write_text('{"custom_id":"a"}')
    (folder / "f1.jsonl").symlink_to(secret)
    assert downloading(Server(), folder) == [folder / "f1.jsonl"]
    assert not (folder / "f1.jsonl").is_symlink()
    assert secret.read_text() == '{"custom_id":"a"}'
    linked = tmp_path / "linked"
    linked.symlink_to(folder)
    with pytest.raises(errors.RunError, match="link"):
        downloading(Server(), linked)


def read(path: Path, form: str, *said: Any) -> list[Result]:
    path.write_text("\n".join(map(json.dumps, said)) + "\n\n")
    return list(adapter(form, "http://127.0.0.1:9/v1").batch_api.results(path))


def test_what_lines_of_openais_say(tmp_path: Path) -> None:
    def line(response: Any, error: Any = None) -> dict[str, Any]:
        return {"id": "x", "custom_id": "a-1", "response": response, "error": error}

    deep = json.loads("[" * 400 + "]" * 400)
    expired, cancelled = {"code": "batch_expired", "message": "late"}, {"code": "batch_cancelled"}
    bad = {"status_code": 400, "body": {"error": {"message": "no"}}}
    expected: list[tuple[dict[str, Any], int, str | None]] = [
        (line({"status_code": 200, "body": {"a": 1}}), 200, None),
        (line(bad, {"code": "x"}), 400, None),
        (line(None, expired), 0, "expired"),
        (line(None, cancelled), 0, "cancelled"),
        (line({"status_code": 0, "body": None}, expired), 0, "expired"),
        (line({"status_code": 0, "body": {}}), 0, None),
        (line({"status_code": "200", "body": {}}), 0, None),
        (line({"status_code": True}), 0, None),
        (line(None, {"code": ["batch_expired"]}), 0, None),
        (line(7, 8), 0, None),
        (line({"status_code": 200, "body": deep}), 200, None),
    ]
    no_results = ({"response": bad}, {"custom_id": "a b"}, {"custom_id": "x" * 65})
    said = (*(one for one, _, _ in expected), *no_results)
    results = read(tmp_path / "f.jsonl", "openai", *said)
    assert [(one.status, one.ended) for one in results] == [known[1:] for known in expected]
    assert {result.custom_id for result in results} == {"a-1"}
    assert [result.body for result in results[:2]] == [b'{"a":1}', b'{"error":{"message":"no"}}']
    assert results[-1].body == b""


def test_what_lines_of_anthropics_say(tmp_path: Path) -> None:
    def line(kind: Any, **more: Any) -> dict[str, Any]:
        return {"custom_id": "a-1", "result": {"type": kind, **more}}

    def errored(word: Any) -> dict[str, Any]:
        inner = {"type": word, "message": "no"}
        return line("errored", error={"type": "error", "error": inner, "request_id": "r"})

    statuses = {"invalid_request": 400, "authentication": 401, "billing": 402, "permission": 403}
    statuses |= {"not_found": 404, "rate_limit": 429, "api": 500, "timeout": 504, "overloaded": 529}
    expected: list[tuple[dict[str, Any], int, str | None]] = [
        (line("succeeded", message={"content": []}), 200, None),
        *((errored(f"{word}_error"), status, None) for word, status in statuses.items()),
        (errored("request_too_large"), 413, None),
        (errored("new_error"), 500, None),
        (line("errored", error={"type": "invalid_request", "message": "flat"}), 400, None),
        (line("canceled"), 0, "cancelled"),
        (line("expired"), 0, "expired"),
        (line("succeeded"), 0, None),
        (line("new"), 0, None),
        (line(["succeeded"]), 0, None),
        ({"custom_id": "a-1"}, 0, None),
    ]
    said = (*(one for one, _, _ in expected), {"result": {"type": "expired"}})
    results = read(tmp_path / "f.jsonl", "anthropic", *said)
    assert [(one.status, one.ended) for one in results] == [known[1:] for known in expected]
    assert results[0].body == b'{"content":[]}'
    inner = {"type": "invalid_request_error", "message": "no"}
    assert orjson.loads(results[1].body) == {"type": "error", "error": inner}


@forms
def test_a_file_taken_as_it_is_has_empty_lines_for_those_that_cant_be_results(
    form: str, tmp_path: Path
) -> None:
    whole = orjson.dumps(LINE)
    content = b"\n".join((b"[]", whole, b'{"custom_id": 1}', b"{", whole))
    server = Server(form).says("/content", content).says("/results", content)

    (file,) = downloading(server, tmp_path, form, as_it_is=True)
    assert file.read_bytes().split(b"\n") == [b"", whole, b"", b"", whole, b""]


def line(status: int, body: Any) -> Result:
    return Result("a-1", status, orjson.dumps(body))


def refused(message: str, **more: str) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


@pytest.mark.parametrize(
    ("result", "error", "cost"),
    [
        (line(429, refused("slow down")), errors.RateLimitedError, 0.0),
        (line(429, refused("no", code="insufficient_quota")), errors.QuotaError, 0.0),
        (line(500, refused("oh")), errors.ServerFailedError, 0.0),
        (line(400, None), errors.RefusedRequestError, 0.0),
        # One that says nothing may have cost.
        (Result("a-1", 0, b"{}"), errors.ServerFailedError, None),
        (line(200, [1]), errors.ServerFailedError, None),
    ],
)
def test_a_line_that_failed_is_the_error_it_would_be_live(
    result: Result, error: type[errors.JudgeError], cost: float | None
) -> None:
    backend = adapter("openai", "http://127.0.0.1:9/v1")
    with pytest.raises(error) as raised:
        backend.read_result(result, 400, backend.form)
    assert raised.value.cost == cost


def test_a_text_that_is_refused_is_no_error() -> None:
    backend, no = adapter("openai", "http://127.0.0.1:9/v1"), refused("no", code="content_filter")
    assert backend.read_result(line(400, no), 400, backend.form).problem is not None


def test_a_whole_batch_that_was_refused_steps_down_once() -> None:
    backend = adapter("openai", "http://127.0.0.1:9/v1")
    no, form = line(400, refused("response_format json_schema is not supported")), backend.form
    for _ in range(5):
        with pytest.raises(errors.SteppedDownError):
            backend.read_result(no, 400, form)
    assert backend.mode == "json"
    assert backend.form != form


WORDS = [
    *("custom_id", "response", "error", "status_code", "body", "code", "result", "type", "message"),
    *("succeeded", "errored", "expired", "id", "status", "errors", "data", "batch_expired", "a-1"),
]


@forms
@given(fields=st.dictionaries(st.sampled_from(WORDS), any_json(*WORDS)))
def test_any_line_is_a_result_and_any_result_a_reply_or_an_error(
    form: str, fields: dict[str, Any]
) -> None:
    backend = adapter(form, "http://127.0.0.1:9/v1")
    line = fields if form == "openai" else {"result": fields}
    with suppress(errors.JudgeError):
        backend.read_result(backend.batch_api.result("a-1", line), 10, backend.form)
