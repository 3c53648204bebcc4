"""`judgeq mock-server`: a local server that speaks like OpenAI's and Anthropic's, and answers as the
simulated judge.

For rehearsals, benchmarks and tests: it takes time, enforces limits, and fails as it is told. The
same question always gets the same answer; faults depend on the seed, the question and how often it
came. `/stats` tells what it saw.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import orjson
from aiohttp import web

from judgeq import fences, prompts, seeds
from judgeq.judge.error_model import HIGH, LOW, ErrorModel
from judgeq.judge.simulated import reason_for
from judgeq.mock_server.anthropic import AnthropicForm
from judgeq.mock_server.asked import Asked
from judgeq.mock_server.behaviour import Limit, MockSettings, Stats, question_id
from judgeq.mock_server.forms import Answered, Form
from judgeq.mock_server.logprobs import logprobs, tokens
from judgeq.mock_server.openai import OpenAIForm
from judgeq.mock_server.wire import as_json, drop, error, kept_to, spoilt
from judgeq.settings import Simulation
from judgeq.types import Match, Usage, Verdict

CAN = {"schema": 2, "ignored": 2, "json": 1, "text": 0}
OPENAI, ANTHROPIC = OpenAIForm(), AnthropicForm()
LIMIT_FIELDS = ("max_completion_tokens", "max_tokens")


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
        # As they stand between the fences of a prompt.
        self._scores = {_as_fenced(text): score for text, score in (scores or {}).items()}
        self._errors = ErrorModel(Simulation())
        self._answers = seeds.Stream(settings.seed, "mock answers")
        self._faults = seeds.Stream(settings.seed, "mock faults")
        self._requests = Limit(settings.rpm, clock)
        self._tokens = Limit(settings.tpm, clock)
        self._sleep = sleep
        self._wall_clock = wall_clock
        self._ids = count(1)
        self._any_fault = any(share for _, share in settings.failures)
        self.closing = asyncio.Event()

    def app(self) -> web.Application:
        """The routes."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self.complete)
        app.router.add_post("/v1/messages", self.complete)
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/v1/models/{name:.+}", self.model)
        app.router.add_get("/stats", self.show_stats)
        app.router.add_post("/stats/reset", self.reset)
        app.router.add_route("*", "/{path:.*}", self.unknown)
        app.on_response_prepare.append(self._number)
        return app

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
        return as_json(self.stats.as_json(questions="questions" in request.query))

    async def reset(self, _: web.Request) -> web.Response:
        """Begin to count anew."""
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
        answer = self._answer(number, asked)
        usage = self._usage(asked, answer)
        limited = self._limited(usage, _form(request))
        if limited is not None:
            return limited
        headers = self._rates(_form(request))
        fault, late = self._draw(number)
        if self.settings.latency:
            await self._sleep(self.settings.latency * (0.5 + late))
        return await self._respond(request, asked, number, answer, usage, fault, headers)

    async def _asked(self, request: web.Request) -> Asked | web.Response:
        """What is asked for, or the refusal of it."""
        if (refused := self._key_refused(request)) is not None:
            return refused
        asked = _form(request).read(await request.read(), request.headers)
        return asked if isinstance(asked, web.Response) else self._refusal(request, asked) or asked

    def _refusal(self, request: web.Request, asked: Asked) -> web.Response | None:
        """What a server refuses before it does anything."""
        settings, form = self.settings, _form(request)
        name = asked.body["model"]
        if settings.only_model not in (None, name):
            return form.no_model(name)
        if asked.structured > CAN[settings.structured]:
            return form.unstructured(asked, self._echo(request))
        longest = settings.max_input_tokens
        if longest is not None and (sent := _tokens(asked.content)) > longest:
            return form.too_long(sent, longest)
        if settings.quota_after is not None and self.stats.answered >= settings.quota_after:
            return form.no_quota()
        return None

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

    def _draw(self, number: str) -> tuple[str, float]:
        """The fault of this request, or "", and how long it takes (0 to 1): by how often it came."""
        if not self._any_fault and not self.settings.latency:
            return "", 0.0
        times = self.stats.asked[number]
        drawn, late = self._faults.at(int(number[:15], 16), times).random(2).tolist()
        for name, share in self.settings.failures:
            drawn -= share
            if drawn < 0:
                return name, late
        return "", late

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
        stats, even = self.stats, _even(self.stats.asked[number], number)
        form = _form(request)
        stats.outcomes[fault or "ok"] += 1
        if fault == "rate_limited":
            return form.slow_down(self.settings.retry_after if even else None)
        if fault == "errors":
            return form.failed(self._echo(request), even=even)
        if fault == "hung":
            await self.closing.wait()
            return web.Response()
        message, reason = spoilt(answer, fault)
        limits = [value for name in LIMIT_FIELDS if isinstance(value := asked.body.get(name), int)]
        beside = usage.reasoning if self.settings.reasoning_beside else 0
        if limits and usage.output - beside > min(limits):
            message, reason = {"content": answer[: len(answer) // 2]}, "length"
            usage = usage._replace(output=min(limits), reasoning=min(usage.reasoning, *limits))
        answered = Answered(
            stats.requests,
            self._wall_clock(),
            message,
            reason,
            usage if self.settings.usage else None,
            usage.reasoning if self.settings.reasoning_beside else 0,
            self._logprobs(asked, message),
        )
        body = orjson.dumps(form.answer(asked, answered))
        if fault == "dropped":
            return await drop(request, body, half=even)
        if request.transport is None or request.transport.is_closing():
            stats.outcomes["gone"] += 1  # the client went while we thought
            return web.Response()
        stats.answered += 1
        stats.delivered[number] += 1
        stats.tokens = [a + b for a, b in zip(stats.tokens, usage, strict=True)]
        return web.Response(body=body, content_type="application/json", headers=headers)

    def _logprobs(self, asked: Asked, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """How sure the server is of the tokens of a message, where that was asked for."""
        if asked.top_logprobs is None:
            return None
        content = message["content"]
        if content is None:
            return {"content": None, "refusal": None}
        scores = [self._score(text) for _, text in fences.texts_in(asked.content)]
        labels = orjson.dumps(prompts.labels(len(scores))).decode()
        by_label = dict(
            zip(orjson.loads(self._in_form(labels, asked, len(scores))), scores, strict=True)
        )
        return logprobs(content, by_label, Simulation(), asked.top_logprobs)

    def _usage(self, asked: Asked, answer: str) -> Usage:
        prompt = sum(_tokens(text) + 8 for text in asked.texts)
        cached = int(prompt * self.settings.cached_share)
        reasoning = self.settings.reasoning_tokens
        output = _tokens(answer) if asked.top_logprobs is None else len(tokens(answer))
        return Usage(prompt - cached, cached, output + reasoning, reasoning)

    def _answer(self, number: str, asked: Asked) -> str:
        """What the simulated judge says to the texts between the fences."""
        texts = [text for _, text in fences.texts_in(asked.content)]
        scores = [self._score(text) for text in texts]
        rng = self._answers.at(int(number[:15], 16))
        match = Match(0, 1, tuple(range(len(texts))))
        if len(texts) < 2:
            verdict = Verdict(
                match.items, (), self._errors.score(scores[0], rng) if scores else 0.5
            )
        else:
            verdict = Verdict(tuple(self._errors.order(scores, rng)))
        wanted = texts and prompts.ASK_REASON in asked.content
        reason = reason_for(verdict, match, scores) if wanted else None
        return self._in_form(prompts.reply(verdict, match, reason), asked, len(texts))

    def _in_form(self, text: str, asked: Asked, k: int) -> str:
        """The text in the words that the schema allows, if there is one and it is kept to."""
        if asked.schema is None or self.settings.structured != "schema":
            return text
        return kept_to(text, prompts.labels(k), asked.schema)

    def _score(self, text: str) -> float:
        """The latent score of a text: as given, else by its hash."""
        score = self._scores.get(text)
        if score is None:
            digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
            score = LOW + int.from_bytes(digest, "big") / 2**64 * (HIGH - LOW)
        return score

    @property
    def _name(self) -> str:
        return self.settings.only_model or "mock"


def _form(request: web.Request) -> Form:
    """The form of API that a request speaks: by its path, of lists of models by its headers."""
    if request.path == "/v1/chat/completions":
        return OPENAI
    named = {"x-api-key", "anthropic-version"}.intersection(map(str.lower, request.headers))
    return ANTHROPIC if request.path == "/v1/messages" or named else OPENAI


def _even(times: int, number: str) -> bool:
    """A fair coin of a question and how often it came."""
    return (int(number[-2:], 16) + times) % 2 == 0


def _as_fenced(text: str) -> str:
    texts = fences.texts_in(fences.fenced("A", text))
    return texts[0][1] if texts else text


def _tokens(text: str) -> int:
    """About four bytes a token; never more than there are bytes."""
    return math.ceil(len(text.encode()) / 4)


@asynccontextmanager
async def running(
    settings: MockSettings, scores: Mapping[str, float] | None = None
) -> AsyncIterator[tuple[str, MockServer]]:
    """The server, listening: its base URL and itself. Raises OSError where it can't listen."""
    server = MockServer(settings, scores)
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
    return server.stats.as_json()
