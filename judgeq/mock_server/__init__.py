"""`judgeq mock-server`: a local server that speaks like OpenAI's, and answers as the simulated judge.

For rehearsals, benchmarks and tests: it takes time, enforces limits, and fails as it is told. The
same question always gets the same answer; faults depend on the seed, the question and how often it
came. `/stats` tells what it saw.
"""

from __future__ import annotations

import asyncio
import math
import signal
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import orjson
from aiohttp import web

from judgeq.mock_server.batches import Batches
from judgeq.mock_server.chat import Chat, Stats, as_json, broke, drop, error, slow_down
from judgeq.settings.mock_server import MockSettings
from judgeq.types import Usage

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
LARGEST = 256 * 1024 * 1024
"""Bytes of a request."""
WINDOW = 60.0


class Limit:
    """At most `limit` in any 60 seconds, exactly: a log of what was let through."""

    def __init__(self, limit: float, clock: Callable[[], float]) -> None:
        self.limit = limit
        self._clock = clock
        self._log: deque[tuple[float, float]] = deque()
        self._sum = 0.0

    def wait(self, amount: float) -> float:
        """Seconds until so much may pass; 0 if it may now."""
        now = self._clock()
        while self._log and self._log[0][0] <= now - WINDOW:
            self._sum -= self._log.popleft()[1]
        over = self._sum + amount - self.limit
        if over <= 1e-9 or not self._log:
            return 0.0
        for at, passed in self._log:
            over -= passed
            if over <= 1e-9:
                return max(0.001, at + WINDOW - now)
        return WINDOW

    def take(self, amount: float) -> None:
        """Let it pass."""
        self._log.append((self._clock(), amount))
        self._sum += amount

    def room(self) -> dict[str, str]:
        """The limit, and what is left of it."""
        left = max(0.0, self.limit - self._sum)
        return {"limit": f"{self.limit:.0f}", "remaining": f"{left:.0f}"}


class MockServer:
    """The handlers. `scores` gives the latent score (1..1000) of the texts that are known."""

    make_chat: ClassVar[type[Chat]] = Chat
    make_batches: ClassVar[type[Batches]] = Batches

    def __init__(
        self,
        settings: MockSettings,
        scores: Mapping[str, float] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.settings = settings
        self.stats = Stats()
        self.chat = self.make_chat(settings, scores or {}, self.stats)
        limits = {"requests": settings.rpm, "tokens": settings.tpm}
        self._limits = {name: Limit(limit, clock) for name, limit in limits.items() if limit}
        self._sleep = sleep
        self.closing = asyncio.Event()
        begun, began = time.time(), clock()
        self.batches = self.make_batches(self.chat, lambda: begun + clock() - began)

    def app(self) -> web.Application:
        """The routes."""
        app = web.Application(client_max_size=LARGEST)
        app.router.add_post("/v1/chat/completions", self.complete)
        for route in self.batches.routes():
            app.router.add_route(route.method, route.path, self.with_key(route.handler))
        app.router.add_get("/stats", self.show_stats)
        app.router.add_route("*", "/{path:.*}", self.unknown)
        return app

    def with_key(self, handler: Handler) -> Handler:
        """The handler, for requests with the right key."""

        async def handle(request: web.Request) -> web.StreamResponse:
            return self._key_refused(request) or await handler(request)

        return handle

    # The statistics

    async def show_stats(self, request: web.Request) -> web.Response:
        """/stats."""
        return as_json(self.report())

    def report(self) -> dict[str, Any]:
        """What the server saw until now."""
        batches = self.batches.as_json()  # first: it answers what is due
        return {**self.stats.as_json(), "batches": batches}

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
        asked = self._key_refused(request) or self.chat.question(await request.read())
        if isinstance(asked, web.Response):
            self.stats.outcomes["refused_request"] += 1
            return asked
        self.stats.asked[asked.id] += 1
        answer = self.chat.answer(asked)
        usage = self.chat.usage(asked, answer)
        limited = self._limited(usage)
        if limited is not None:
            return limited
        headers = self._rates()
        fault, late = self.chat.fault(asked)
        if self.settings.latency:
            await self._sleep(self.settings.latency * (0.5 + late))
        self.stats.outcomes[fault or "ok"] += 1
        coin = (int(asked.id[-2:], 16) + self.stats.asked[asked.id]) % 2 == 0
        if fault == "rate_limited":
            return slow_down(self.settings.retry_after if coin else None)
        if fault == "errors":
            return broke()
        if fault == "hung":
            await self.closing.wait()
            return web.Response()
        completion, usage = self.chat.completion(asked, answer, usage, fault)
        if fault == "dropped":
            return await drop(request, completion, half=coin)
        self.stats.count(asked.id, usage)
        return as_json(orjson.Fragment(completion), headers=headers)

    def _key_refused(self, request: web.Request) -> web.Response | None:
        key = self.settings.key
        if key is None or request.headers.get("Authorization") == f"Bearer {key}":
            return None
        return error(401, "Incorrect API key provided: ***.", code="invalid_api_key")

    def _rates(self) -> dict[str, str]:
        """The headers that report limits."""
        return {
            f"x-ratelimit-{what}-{name}": value
            for name, limit in self._limits.items()
            for what, value in limit.room().items()
        }

    def _limited(self, usage: Usage) -> web.Response | None:
        """The refusal of what exceeds the limits, which then doesn't count; else it is counted."""
        amounts = {"requests": 1, "tokens": sum(usage[:3])}
        limits = [(limit, amounts[name]) for name, limit in self._limits.items()]
        wait = max([limit.wait(amount) for limit, amount in limits], default=0.0)
        if wait <= 0:
            for limit, amount in limits:
                limit.take(amount)
            return None
        self.stats.outcomes["limited"] += 1
        waits = {
            "Retry-After": str(math.ceil(wait)),
            "retry-after-ms": str(math.ceil(wait * 1000)),
        }
        return error(
            429,
            f"Rate limit reached. Please try again in {wait:.3f}s.",
            kind="requests",
            code="rate_limit_exceeded",
            headers={**self._rates(), **waits},
        )


@asynccontextmanager
async def running(server: MockServer) -> AsyncIterator[str]:
    """The base URL of the server, which listens. Raises OSError where it can't."""
    settings = server.settings
    runner = web.AppRunner(server.app(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, settings.host, settings.port, backlog=1024).start()
        port = runner.addresses[0][1]
        yield f"http://{settings.host}:{port}/v1"
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
    server = MockServer(settings, scores)
    async with running(server) as url:
        ready(url)
        await stop.wait()
        return server.report()
