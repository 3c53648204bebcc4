"""A server that says of batches what a test wants it to say, and a batch API that asks it."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from judgeq.judge.http.anthropic import AnthropicMessages
from judgeq.judge.http.batch_api import BatchAPI
from judgeq.judge.http.openai import OpenAIChat
from judgeq.settings.model import Access, Model
from tests.cli import judgeq, only_run, scores
from tests.mock import mock
from tests.web import answering

APIS = {"openai": (), "anthropic": ("--api", "anthropic")}
"""The flags by which a model is asked in the form of each API."""
SMALL_BATCHES = (
    *("--strategy", "listwise3x2", "--prompt", "bias", "--judge", "m", "--quiet"),
    *("--price", "1,2", "--max-output-tokens", "20", "--batch-size", "4"),
)
"""A job of a model, in batches of four questions,"""
QUESTIONS = 20
"""of which it has so many about `texts`."""
KEY = "sk-test-0123456789abcdef"
NAME = "jq-0a1b2c3d"
BATCH: dict[str, Any] = {
    "openai": {"id": "batch_1", "status": "completed", "created_at": 1_000, "output_file_id": "f1"},
    "anthropic": {
        "id": "batch_1",
        "processing_status": "ended",
        "created_at": "1970-01-01T00:16:40Z",
        "request_counts": {"succeeded": 1},
    },
}
FORMS = ("openai", "anthropic")
forms = pytest.mark.parametrize("form", FORMS)
LINE = {"custom_id": f"{NAME}-0", "response": None, "error": None}


class Server:
    """Says what `answers` hold by the end of a path, or by a part of it, and keeps what it was asked."""

    def __init__(self, form: str = "openai", **answers: Any) -> None:
        self.answers: dict[str, Any] = {
            "/files/f0": {},
            "/content": orjson.dumps(LINE),
            "/results": orjson.dumps(LINE),
            "/files": {"id": "f0"},
            "/batches": {**BATCH[form], "data": [BATCH[form]], "has_more": False},
        }
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []

    def says(self, path: str, answer: Any, status: int = 200, **headers: str) -> Server:
        self.answers[path] = (status, answer, headers)
        return self

    @property
    def asked(self) -> list[str]:
        return [f"{method} {url.partition('/v1')[2]}" for method, url, _, _ in self.seen]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.seen.append((request.method, str(request.url), dict(request.headers), body))
        parts = [part for part in self.answers if part in request.path]
        answer: Any = self.answers[max(parts, key=lambda p: (request.path.endswith(p), len(p)))]
        if callable(answer):
            response: web.StreamResponse = await answer(request)
            return response
        status, said, headers = answer if isinstance(answer, tuple) else (200, answer, {})
        data = said if isinstance(said, bytes) else orjson.dumps(said)
        return web.Response(status=status, body=data, headers=headers)


def adapter(form: str, url: str, **access: Any) -> OpenAIChat | AnthropicMessages:
    """The model "m", asked in this form at an address."""
    kind = AnthropicMessages if form == "anthropic" else OpenAIChat
    return kind("m", Model(base_url=url, api=form), Access(**access), None)


@asynccontextmanager
async def asked_at(
    form: str, url: str, **access: Any
) -> AsyncIterator[OpenAIChat | AnthropicMessages]:
    """`adapter`, open while inside."""
    backend = adapter(form, url, **access)
    await backend.open()
    try:
        yield backend
    finally:
        await backend.close()


def told(
    server: Server,
    story: Callable[[BatchAPI], Awaitable[Any]],
    form: str = "openai",
    **access: Any,
) -> Any:
    async def run() -> Any:
        async with (
            answering(server.handle) as url,
            asked_at(form, url, **access) as backend,
        ):
            return await story(backend.batch_api)

    return asyncio.run(run())


def lines(api: BatchAPI, count: int = 2) -> io.BytesIO:
    return io.BytesIO(b"".join(api.line(f"{NAME}-{n}", b'{"a":"b"}') for n in range(count)))


async def everything(api: BatchAPI, folder: Path) -> None:
    remote = await api.create(NAME, lines(api))
    await api.identify(NAME, 1, 0.0, ())
    await api.get(remote.id)
    await api.cancel(remote.id)
    await api.download(remote, folder)


def creating(server: Server, form: str = "openai", **access: Any) -> Any:
    return told(server, lambda api: api.create(NAME, lines(api)), form, **access)


def texts_in(folder: Path, n: int) -> Path:
    """A table of n short texts."""
    file = folder / "texts.csv"
    rows = [f"{number},Text {number} says {number**2}.\n" for number in range(n)]
    file.write_text("id,text\n" + "".join(rows), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return texts_in(tmp_path_factory.mktemp("texts"), 30)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, texts: Path) -> dict[str, str]:
    """The scores of the job in small batches, asked live, by API."""
    known = {}
    for name, flags in APIS.items():
        folder = tmp_path_factory.mktemp(name)
        words = ("run", "-d", str(texts), *SMALL_BATCHES, *flags, "--no-cache")
        with mock(folder) as url:
            judgeq(folder, *words, "--base-url", url)
        known[name] = scores(only_run(folder))
    return known
