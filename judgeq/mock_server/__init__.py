"""`judgeq mock-server`: a local server that speaks like OpenAI's and Anthropic's, and answers as the
simulated judge.

For rehearsals, benchmarks and tests: it takes time, enforces limits, and fails as it is told. The
same question always gets the same answer; faults depend on the seed, the question and how often it
came. `/stats` tells what it saw.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import orjson
from aiohttp import web

from judgeq.mock_server.answering import Answering, even
from judgeq.mock_server.anthropic import AnthropicForm
from judgeq.mock_server.anthropic_batches import AnthropicBatches
from judgeq.mock_server.asked import Asked
from judgeq.mock_server.batches import Batches
from judgeq.mock_server.behaviour import Limit, MockSettings, Stats, question_id
from judgeq.mock_server.forms import Form
from judgeq.mock_server.openai import OpenAIForm
from judgeq.mock_server.openai_batches import OpenAIBatches
from judgeq.mock_server.wire import as_json, drop, error
from judgeq.types import Usage

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
OPENAI, ANTHROPIC = OpenAIForm(), AnthropicForm()


class MockServer:
    """The handlers. `scores` gives the latent score (1..1000) of the texts that are known."""

    def __init__(
        self,
        settings: MockSettings,
        scores: Mapping[str, float] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.stats = Stats()
        self._answering = Answering(settings, scores or {})
        self._requests = Limit(settings.rpm, clock)
        self._tokens = Limit(settings.tpm, clock)
        self._sleep = sleep
        self._wall_clock = wall_clock
        self._ids = count(1)
        self.closing = asyncio.Event()
        begun, began = wall_clock(), clock()
        self.batches = Batches(
            settings, self._answering, lambda: self.stats, lambda: begun + clock() - began
        )

    def app(self) -> web.Application:
        """The routes."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self.complete)
        app.router.add_post("/v1/messages", self.complete)
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/v1/models/{name:.+}", self.model)
        for batches in (
            OpenAIBatches(self.batches, OPENAI),
            AnthropicBatches(self.batches, ANTHROPIC),
        ):
            for route in batches.routes():
                app.router.add_route(route.method, route.path, self._with_key(route.handler))
        app.router.add_get("/stats", self.show_stats)
        app.router.add_post("/stats/reset", self.reset)
        app.router.add_route("*", "/{path:.*}", self.unknown)
        app.on_response_prepare.append(self._number)
        return app

    def _with_key(self, handler: Handler) -> Handler:
        """The handler about batches, for requests with the right key that don't fail."""

        async def handle(request: web.Request) -> web.StreamResponse:
            refused = self._key_refused(request)
            return refused or await self._flaky(request) or await handler(request)

        return handle

    async def _flaky(self, request: web.Request) -> web.StreamResponse | None:
        """The failure of a request about batches that creates none, or None."""
        creates = request.method == "POST" and request.path.endswith("/batches")
        how = None if creates else self.batches.drawn("flaky")
        if how is None:
            return None
        await request.release()
        if how < 1 / 3:
            return _form(request).slow_down(self.settings.retry_after)
        if how < 2 / 3:
            return _form(request).failed("", even=False)
        return await drop(request, b"{}", half=False)

    async def _number(self, request: web.Request, response: web.StreamResponse) -> None:
        """Give an answer the id that a provider's support asks for."""
        name = "request-id" if _form(request) is ANTHROPIC else "x-request-id"
        response.headers[name] = f"req_{next(self._ids):032x}"

    # The lists and the statistics

    async def models(self, request: web.Request) -> web.Response:
        """The models: one."""
        return self._key_refused(request) or _form(request).listed(self._name)

    async def model(self, request: web.Request) -> web.Response:
        """One model, if it is known."""
        name = request.match_info["name"]
        if self.settings.only_model not in (None, name):
            return _form(request).no_model(name)
        return self._key_refused(request) or _form(request).model(name)

    async def show_stats(self, request: web.Request) -> web.Response:
        """/stats, with ?questions=1 question by question."""
        return as_json(await self.seen(questions="questions" in request.query))

    async def seen(self, *, questions: bool = False) -> dict[str, Any]:
        """What the server saw until now."""
        batches = await self.batches.as_json()  # first: it answers what is due
        return {**self.stats.as_json(questions=questions), "batches": batches}

    async def reset(self, _: web.Request) -> web.Response:
        """Begin to count anew; batches stay."""
        self.stats = Stats(in_flight=self.stats.in_flight)
        return as_json({})

    async def unknown(self, request: web.Request) -> web.Response:
        """Anything else."""
        return error(404, f"Unknown request URL: {request.method} {request.path}.")

    # Completions

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """One question."""
        stats = self.stats
        stats.requests += 1
        stats.in_flight += 1
        stats.most_in_flight = max(stats.most_in_flight, stats.in_flight)
        try:
            return await self._complete(request)
        finally:
            stats.in_flight -= 1

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        asked = await self._asked(request)
        if isinstance(asked, web.Response):
            self.stats.outcomes["refused_request"] += 1
            return asked
        number = question_id(asked.messages)
        self.stats.asked[number] += 1
        answer = self._answering.answer(number, asked)
        usage = self._answering.usage(asked, answer)
        limited = self._limited(usage, _form(request))
        if limited is not None:
            return limited
        headers = self._rates(_form(request))
        fault, late = self._answering.fault(number, self.stats.asked[number])
        if self.settings.latency:
            await self._sleep(self.settings.latency * (0.5 + late))
        return await self._respond(request, asked, number, answer, usage, fault, headers)

    async def _asked(self, request: web.Request) -> Asked | web.Response:
        """What is asked for, or the refusal of it."""
        if (refused := self._key_refused(request)) is not None:
            return refused
        form = _form(request)
        asked = form.read(await request.read(), request.headers)
        if isinstance(asked, web.Response):
            return asked
        return self._answering.refusal(self.stats, form, asked, self._echo(request)) or asked

    def _key_refused(self, request: web.Request) -> web.Response | None:
        key, form = self.settings.key, _form(request)
        if key is None or form.fits(key, request.headers):
            return None
        return form.wrong_key(self._echo(request))

    def _echo(self, request: web.Request) -> str:
        """The key received, as some servers repeat it."""
        return f" {_form(request).key_in(request.headers)}" if self.settings.echo_key else ""

    def _rates(self, form: Form) -> dict[str, str]:
        """The headers that report limits."""
        rooms = {"requests": self._requests.room(), "tokens": self._tokens.room()}
        return form.rates(rooms, self._wall_clock())

    def _limited(self, usage: Usage, form: Form) -> web.Response | None:
        """The refusal of what exceeds the limits, which then doesn't count; else it is counted."""
        tokens = usage.input + usage.cached + usage.output
        wait = max(self._requests.wait(1), self._tokens.wait(tokens))
        if wait <= 0:
            self._requests.take(1)
            self._tokens.take(tokens)
            return None
        self.stats.limited += 1
        self.stats.outcomes["limited"] += 1
        return form.limited(wait, self._rates(form))

    async def _respond(
        self,
        request: web.Request,
        asked: Asked,
        number: str,
        answer: str,
        usage: Usage,
        fault: str,
        headers: Mapping[str, str],
    ) -> web.StreamResponse:
        stats, coin = self.stats, even(self.stats.asked[number], number)
        form = _form(request)
        stats.outcomes[fault or "ok"] += 1
        if fault == "rate_limited":
            return form.slow_down(self.settings.retry_after if coin else None)
        if fault == "errors":
            return form.failed(self._echo(request), even=coin)
        if fault == "hung":
            await self.closing.wait()
            return web.Response()
        answered, usage = self._answering.answered(
            asked, answer, usage, fault, stats.requests, self._wall_clock()
        )
        body = orjson.dumps(form.answer(asked, answered))
        if fault == "dropped":
            return await drop(request, body, half=coin)
        if request.transport is None or request.transport.is_closing():
            stats.outcomes["gone"] += 1  # the client went while we thought
            return web.Response()
        stats.count(number, usage)
        return web.Response(body=body, content_type="application/json", headers=headers)

    @property
    def _name(self) -> str:
        return self.settings.only_model or "mock"


def _form(request: web.Request) -> Form:
    """The form of API that a request speaks: by its path, of lists of models by its headers."""
    if request.path.startswith(("/v1/chat/completions", "/v1/files", "/v1/batches")):
        return OPENAI
    named = {"x-api-key", "anthropic-version"}.intersection(map(str.lower, request.headers))
    return ANTHROPIC if request.path.startswith("/v1/messages") or named else OPENAI


@asynccontextmanager
async def running(
    settings: MockSettings,
    scores: Mapping[str, float] | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[tuple[str, MockServer]]:
    """The server, listening: its base URL and itself. Raises OSError where it can't listen."""
    server = MockServer(settings, scores, clock=clock)
    runner = web.AppRunner(server.app(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, settings.host, settings.port, backlog=1024).start()
        port = runner.addresses[0][1]
        yield f"http://{settings.host}:{port}/v1", server
    finally:
        server.closing.set()
        await runner.cleanup()


async def serve(
    settings: MockSettings,
    scores: Mapping[str, float] | None,
    ready: Callable[[str], None],
) -> dict[str, Any]:
    """Serve until SIGINT or SIGTERM; the statistics then. `ready` is told the base URL."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, stop.set)
        except NotImplementedError:  # Windows: Ctrl-C raises KeyboardInterrupt there
            break
    async with running(settings, scores) as (url, server):
        ready(url)
        await stop.wait()
        return await server.seen()
