"""What is secret never comes back, in whatever form and wherever a server puts it."""

from __future__ import annotations

import asyncio
import base64
import json
import string
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import web
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from judgeq.errors import JudgeError, UnusableReplyError, UsageError
from judgeq.escaping import plain
from judgeq.judge.backend import Request
from judgeq.judge.http.openai import OpenAIChat
from judgeq.judge.secrets import _PUBLIC, Mask, from_environment
from judgeq.replies import read_reply
from judgeq.settings.model import Access, Model
from judgeq.types import Match
from tests.cli import judgeq, only_run
from tests.web import answering, completion, serving

pytestmark = pytest.mark.usefixtures("rated_by_elo")

KEY = "sk-9fQ2/xW7+Lm3_Zr8pTb5Vn1Yd6Hc4"
PAIR = Match(0, 1, (0, 1))
LONGEST_SHOWN = 5
"""Characters in a row of a secret that may be left: any text holds so many by chance."""


def leaks(secret: str, shown: str) -> list[str]:
    """Pieces of the secret in what is shown."""
    size = LONGEST_SHOWN + 1
    pieces = {secret[i : i + size] for i in range(len(secret) - size + 1)}
    return sorted(piece for piece in pieces if piece in shown)


def encoded(before: bytes, secret: str, after: bytes = b"") -> str:
    return base64.b64encode(before + secret.encode() + after).decode()


FORMS: dict[str, Callable[[str], str]] = {
    "bare": lambda key: key,
    "scheme": lambda key: f"Bearer {key}",
    "quoted by Python": lambda key: repr(key.encode()),
    "percent": lambda key: quote(key, safe=""),
    "percent in a path": quote,
    "JSON": lambda key: json.dumps(key)[1:-1],
    "JSON with slashes": lambda key: json.dumps(key)[1:-1].replace("/", "\\/"),
    "base64": lambda key: encoded(b"", key),
    "base64 of Basic": lambda key: encoded(b"user:", key),
    "base64 within": lambda key: encoded(b"ab", key, b" and more"),
    "base64 within URLs": lambda key: encoded(b"a", key, b"?").replace("+", "-").replace("/", "_"),
}

CARRIERS: dict[str, Callable[[str], tuple[int, dict[str, str], Any]]] = {
    "message": lambda text: (400, {}, {"error": {"message": text}}),
    "key refused": lambda text: (401, {}, {"error": {"message": text, "code": "no_key"}}),
    "limited": lambda text: (429, {"Retry-After": "0"}, {"error": text}),
    "code": lambda text: (500, {}, {"error": {"message": "no", "code": text, "type": text}}),
    "code alone": lambda text: (500, {}, {"error": {"code": text}}),
    "detail": lambda text: (422, {}, {"detail": [{"loc": ["body", text], "msg": text}]}),
    "odd": lambda text: (400, {}, {"error": {"message": {text: [text]}}}),
    "provider": lambda text: (400, {}, {"error": {"message": "no", "metadata": {"raw": text}}}),
    "list": lambda text: (400, {}, [{"error": {"message": text}}]),
    "text": lambda text: (500, {}, text),
    "page": lambda text: (502, {}, f"<html><p class='a'>{text}</p></html>"),
    "page with success": lambda text: (200, {}, f"<html>{text}</html>"),
    "text in JSON": lambda text: (500, {}, json.dumps(text)),
    "error with success": lambda text: (200, {}, {"error": {"message": text, "code": 500}}),
    "structured": lambda text: (400, {}, {"error": {"message": f"response_format {text}"}}),
    "request id": lambda text: (400, {"x-request-id": text}, {"error": {"message": "no"}}),
    "moved": lambda text: (307, {"Location": text}, "elsewhere"),
    "reply": lambda text: (200, {}, completion(text)),
    "answer": lambda text: (200, {}, completion(f'{{"winner": "{text}"}}')),
    "answer's name": lambda text: (200, {}, completion(f'{{"winner": {{"{text}": 1}}}}')),
    "refusal": lambda text: (200, {}, {"choices": [{"message": {"refusal": text}}]}),
}


class Echo:
    """A backend, and a server that answers it with what it is given."""

    def __init__(self, runner: asyncio.Runner, access: Access) -> None:
        self._runner = runner
        self._access = access
        self._answer = web.Response()

    async def _handle(self, _: web.Request) -> web.StreamResponse:
        return self._answer

    def __enter__(self) -> Echo:
        async def begin() -> None:
            self._server = answering(self._handle)
            url = await self._server.__aenter__()
            self._backend = OpenAIChat("m", Model(base_url=url), self._access, None)
            await self._backend.open()

        self._runner.run(begin())
        return self

    def __exit__(self, *_: object) -> None:
        async def end() -> None:
            await self._backend.close()
            await self._server.__aexit__(None, None, None)

        self._runner.run(end())

    def shown(self, status: int, headers: dict[str, str], body: Any) -> list[str]:
        """What of such an answer goes to disk, to a log, and on a screen."""
        text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)

        async def ask() -> list[str]:
            # A response is sent once; it is made where the loop runs.
            how: dict[str, Any] = {"status": status, "headers": headers}
            self._answer = web.Response(**how, body=text.encode(), content_type="text/plain")
            request = Request(PAIR, 1, 1, lambda: [{"role": "user", "content": "which?"}])
            try:
                reply = await self._backend.complete(request, self._backend.prepare(request))
            except JudgeError as error:
                return [str(error), repr(error)]
            kept = [reply.text, reply.problem or ""]
            try:
                read_reply(reply.text, PAIR)
            except UnusableReplyError as error:
                kept.append(str(error))
            return kept

        said = self._runner.run(ask())
        return [*said, *(plain(each, 10_000) for each in said)]


@pytest.fixture(scope="module")
def echo() -> Iterator[Echo]:
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        patch.setenv("JUDGEQ_API_KEY", KEY)
        with Echo(runner, Access()) as made:
            yield made


CUTS = (0, 40, 100, 200, 300, 4_000, 10_000)
POSITIONS = st.one_of(*(st.integers(max(0, at - len(KEY) * 6 - 40), at + 10) for at in CUTS))


@settings(max_examples=120)
@example("bare", "message", 262, "x")
@example("bare", "request id", 80, "x")
@example("bare", "moved", 180, "x")
@example("bare", "page with success", 70, "x")
@example("bare", "text", 9_980, "x ")
@given(
    form=st.sampled_from(sorted(FORMS)),
    carrier=st.sampled_from(sorted(CARRIERS)),
    position=POSITIONS,
    filling=st.sampled_from(["x", "x ", "ä", "%2", "\\", "<", "sk-", "&#"]),
)
def test_no_six_characters_of_the_key_come_back(
    echo: Echo, form: str, carrier: str, position: int, filling: str
) -> None:
    secret = FORMS[form](KEY)
    text = (filling * position)[:position] + secret + " and so on"
    status, headers, body = CARRIERS[carrier](text)
    assume(all(value.isascii() and value.isprintable() for value in headers.values()))
    assume(all(len(value) < 8_000 for value in headers.values()))
    for shown in echo.shown(status, headers, body):
        assert not leaks(KEY, shown)
        if form.startswith("base64"):
            assert encoded(b"", KEY[6:-6])[:12] not in shown
            assert secret[12:-12] not in shown


@settings(max_examples=80)
@given(key=st.text("abcdefgh-_+/", min_size=12), letters=st.booleans(), data=st.data())
def test_however_a_body_is_escaped(key: str, letters: bool, data: st.DataObject) -> None:
    key = f"/{key}/"
    assume(len(set(key)) > 6 and not leaks(key, _PUBLIC))
    ways = {sign: [sign, f"\\u{ord(sign):04x}"][: 1 + letters] for sign in key}
    ways["/"] = ["/", r"\/"]
    written = "".join(data.draw(st.sampled_from(ways[sign])) for sign in key)
    masked = Mask([key]).body(f'{{"error": "\\"no\\" {written}"}}'.encode())
    assert json.loads(masked) == {"error": '"no" ***'}


@settings(max_examples=40)
@given(text=st.text(), key=st.text(string.ascii_letters + string.digits, min_size=20))
def test_what_holds_no_secret_stays_to_the_letter(text: str, key: str) -> None:
    assume(not leaks(key, text))
    body = json.dumps({"choices": [{"message": {"content": text}}]}).encode()
    assert Mask([key]).text(text) == text
    assert Mask([key]).body(body) == body
    assert Mask([key]).headers({"x": "50%", "y": text}) == {"x": "50%", "y": text}


@pytest.mark.parametrize(
    "key", ["A", "tie", "winner", "ranking", "reason", "content", "message", "choices"]
)
def test_a_secret_that_is_a_word_of_answers_changes_no_verdict(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGEQ_API_KEY", key)
    with asyncio.Runner() as runner, Echo(runner, Access(headers=(f"X-Mode: {key}",))) as made:
        answer = '{"winner": "A", "why": "' + key + '"}'
        assert made.shown(200, {}, completion(answer))[0] == answer


@pytest.mark.parametrize("given", ["http://me:{}@127.0.0.1:9", "env:PROXY", "me:{}@127.0.0.1:9"])
def test_a_proxys_password_is_masked_in_every_form(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    password = "p@ss/w0rd+1"
    address = given.format(quote(password, safe=""))
    if given.startswith("me:"):  # such as an environment may hold
        mask = Mask.of(Access(), None, {}, address)
    else:
        address = address.replace("env:PROXY", "http://me:p%40ss%2Fw0rd%2B1@127.0.0.1:9")
        access = Access(proxy="env:PROXY" if given == "env:PROXY" else address)
        monkeypatch.setenv("PROXY", address)
        mask = Mask.of(access, None, {}, from_environment(access.proxy or "", "--proxy"))
    for back in (password, quote(password, safe=""), f"me:{password}", encoded(b"me:", password)):
        masked = mask.text(f"407: {back} is wrong")
        assert "***" in masked
        assert not leaks(password, masked)
        assert encoded(b"me:", password)[:8] not in masked


@pytest.mark.parametrize(
    "proxy", ["http://me:hunter2222@h:port", "socks5://me:hunter2222@h:1", "me:hunter2222@h:1"]
)
def test_an_impossible_proxy_is_reported_without_its_password(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    monkeypatch.delenv("http_proxy", raising=False)
    with pytest.raises(UsageError, match="HTTP_PROXY") as caught:
        asyncio.run(OpenAIChat("m", Model(base_url="http://h.invalid/v1"), Access(), None).open())
    assert "hunter2222" not in str(caught.value)


@pytest.mark.parametrize(
    "carrier", ["message", "request id", "moved", "page with success", "reply"]
)
@pytest.mark.usefixtures("short_waits")
def test_nothing_of_a_key_is_left_by_a_run(tmp_path: Path, carrier: str) -> None:
    (tmp_path / "two.csv").write_text("text\nfirst\nsecond\n")
    cut = {"message": 250, "request id": 80, "moved": 180, "page with success": 40, "reply": 20}

    async def handler(got: web.Request) -> web.Response:
        noise = "" if carrier in ("request id", "moved") else "\x1b]0;title\x07\x9b31m\nERROR\r"
        key = got.headers["Authorization"].removeprefix("Bearer ")
        echoed = f"{noise}{'x' * cut[carrier]}{key}"
        status, headers, body = CARRIERS[carrier](echoed)
        text = body if isinstance(body, str) else json.dumps(body)
        return web.Response(status=status, headers=headers, text=text)

    with serving(handler) as url:
        done = judgeq(
            tmp_path, "run", "-d", "two.csv", "-s", "pairwise1", "--prompt", "bias",
            "--judge", "m", "--base-url", url, "--log", "log.txt",
            "--header", "Authorization: env:AUTH", "--header", f"X-Same: {KEY}",
            variables={"AUTH": f"Bearer {KEY}"}, expect=4,
        )  # fmt: skip
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    written = [done.stdout.encode(), done.stderr.encode(), *files]
    assert (only_run(tmp_path) / "run.db").exists()
    log = (tmp_path / "log.txt").read_text()
    assert "***" in log
    assert log.replace("\n", "").isprintable()
    for content in written:
        assert not leaks(KEY, content.decode(errors="replace"))
