"""OpenAI's API, as it, Azure and many other servers speak it: chat completions, and batches of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO, Literal
from urllib.parse import parse_qsl, urlsplit

import orjson
from typing_extensions import override

from judgeq.errors import JudgeError
from judgeq.judge.backend import Remote, Result
from judgeq.judge.http.batch_api import PAGE, BatchAPI, count, seconds, words
from judgeq.judge.http.connection import (
    Connection,
    count_in,
    fields_in,
    json_bytes,
    object_from,
    objects_in,
    text_in,
)
from judgeq.judge.http.errors import NO_MESSAGE
from judgeq.judge.http.model_backend import ModelBackend
from judgeq.settings.model import LIMIT_FIELDS
from judgeq.types import Fields, Sleep, Usage

if TYPE_CHECKING:
    from openai import AsyncOpenAI

Call = Awaitable[Any]
"""A call of the openai package, whose answer isn't parsed."""
NAME = "judgeq"
"""What our name for a batch stands under in its metadata."""
DAY = 86_400.0
WAITS = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds between looks whether Azure has read a file that was uploaded."""
_STANDS: Mapping[str, Literal["working", "ended", "refused"]] = {
    "completed": "ended",
    "expired": "ended",
    "cancelled": "ended",
    "failed": "refused",
}
_ENDED: Mapping[str, Literal["cancelled", "expired"]] = {
    "batch_expired": "expired",
    "batch_cancelled": "cancelled",
}


class OpenAIChat(ModelBackend):
    """The backend."""

    path = "chat/completions"

    @property
    @override
    def batch_api(self) -> BatchAPI:
        return OpenAIBatches(self.connection)

    @override
    def limit_fields(self) -> list[str]:
        """OpenAI's reasoning models refuse the old name of the limit, and many other servers don't know
        the new."""
        own = urlsplit(self.address).hostname == "api.openai.com" or is_azure(self.address)
        return [*(LIMIT_FIELDS if own else LIMIT_FIELDS[::-1])]

    @override
    def authorize(self, headers: dict[str, str], secret: str | None) -> None:
        """Add the key as a bearer's token; Azure takes a header of its own."""
        if secret is not None and not any(name.lower() == "authorization" for name in headers):
            headers["Authorization"] = f"Bearer {secret}"
            if is_azure(self.address):
                headers.setdefault("api-key", secret)

    @override
    def body(self, messages: Sequence[Mapping[str, str]], k: int) -> Fields:
        model = self.model
        fields: Fields = {
            "messages": messages,
            "temperature": model.temperature,
            "reasoning_effort": model.reasoning_effort,
            self.limit_field: model.max_output_tokens,
        }
        sent = {name: value for name, value in fields.items() if value is not None}
        sent |= model.extra_body or {}
        if self.mode == "schema":
            form = {"name": "answer", "strict": True, "schema": self.schema(k)}
            sent["response_format"] = {"type": "json_schema", "json_schema": form}
        elif self.mode == "json":
            sent["response_format"] = {"type": "json_object"}
        return sent

    @override
    def read(self, answer: Fields) -> tuple[Usage | None, str, object]:
        """The text of its first choice, and what it called tools with: none are offered, so that such
        a call is an answer, too."""
        usage = read_usage(answer.get("usage"))
        choice = _first_choice(answer)
        message = choice.get("message")
        if not isinstance(message, dict):
            reason = choice.get("finish_reason")
            return usage, "", "content_filter" if reason == "content_filter" else NO_MESSAGE
        refusal = message.get("refusal")
        if isinstance(refusal, str) and refusal:
            return usage, refusal, "refusal"
        parts = [text_in(message.get("content")), *_tool_inputs(message)]
        return usage, "\n".join(filter(str.strip, parts)) or parts[0], choice.get("finish_reason")

    @override
    def thinking(self, answer: Fields) -> tuple[str, str]:
        message = fields_in(_first_choice(answer).get("message"))
        for name in ("reasoning_content", "reasoning", "thinking"):
            words = text_in(message.get(name))
            if words.strip():
                return name, words
        return "", ""


class OpenAIBatches(BatchAPI):
    """Batches as OpenAI has them (platform.openai.com/docs/guides/batch): a file of lines is uploaded, a
    batch made of it, and its results come as up to two files: of the requests that were answered, and of
    those that failed. They are asked through the openai package."""

    results_path = "files/{}/content"
    most_bytes = 200_000_000

    def __init__(self, connection: Connection, sleep: Sleep = asyncio.sleep) -> None:
        super().__init__(connection)
        azure = is_azure(connection.address)
        self.most_lines = 100_000 if azure else 50_000
        self._endpoint = "/chat/completions" if azure else "/v1/chat/completions"
        self._sleep = sleep

    @override
    def line(self, custom_id: str, body: bytes) -> bytes:
        before = {"custom_id": custom_id, "method": "POST", "url": self._endpoint}
        return orjson.dumps(before)[:-1] + b',"body":' + body + b"}\n"

    @override
    async def create(self, name: str, lines: BinaryIO) -> Remote:
        """A file of which surely no batch was made is deleted again."""
        file = await self._upload(name, lines)
        try:
            made = await self._asked(
                lambda client: client.batches.with_raw_response.create(
                    input_file_id=file,
                    endpoint=self._endpoint,  # type: ignore[arg-type]  # Azure's has no version in it
                    completion_window="24h",
                    metadata={NAME: name},
                )
            )
            return self.remote(made)
        except JudgeError as error:
            if error.cost is not None:
                await self._delete(file)
            raise

    async def _upload(self, name: str, lines: BinaryIO) -> str:
        """The id of a file with the lines, once it can be used. Raises errors of no cost."""
        try:
            lines.seek(0)
            content = (f"{name}.jsonl", lines, "application/jsonl")
            said = await self._asked(
                lambda client: client.files.with_raw_response.create(file=content, purpose="batch")
            )
            file = self.checked_id(said.get("id"))
            for wait in WAITS:
                if said.get("status") not in ("pending", "running"):
                    break
                await self._sleep(wait)
                said = await self._asked(
                    lambda client: client.files.with_raw_response.retrieve(file)
                )
        except JudgeError as error:
            error.cost = 0.0
            raise
        return file

    @override
    async def one(self, what: Literal["get", "cancel"], remote: str) -> Fields:
        def call(client: AsyncOpenAI) -> Call:
            batches = client.batches.with_raw_response
            return batches.cancel(remote) if what == "cancel" else batches.retrieve(remote)

        return await self._asked(call, f"the batch {remote}")

    @override
    async def page(self, after: str) -> Fields:
        more = {"after": after} if after else None
        return await self._asked(
            lambda client: client.batches.with_raw_response.list(limit=PAGE, extra_query=more)
        )

    async def _asked(self, call: Callable[[AsyncOpenAI], Call], what: str = "") -> Fields:
        """The JSON object that a call of the package brings. What it sends goes through our connection:
        with our key and headers in place of its own, which variables of the environment may add to; and
        is tried once. Raises as BatchAPI.refusal of `what`, and as live calls."""
        import httpx2  # openai's own, which comes with it
        from openai import APIConnectionError, AsyncOpenAI

        address, answered = self.connection.address, self.answered
        parts = urlsplit(address)

        class Transport(httpx2.AsyncBaseTransport):
            async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
                kept = ("content-type", "content-length")
                headers = {name: request.headers[name] for name in kept if name in request.headers}
                stream, body = request.stream, None
                if isinstance(stream, httpx2.AsyncByteStream) and "content-length" in headers:
                    body = stream
                answer = await answered(request.method, str(request.url), body, headers, what)
                return httpx2.Response(answer.status, content=answer.body)

        async with AsyncOpenAI(
            api_key="among the headers",
            base_url=parts._replace(query="").geturl(),
            default_query=dict(parse_qsl(parts.query)),
            max_retries=0,
            http_client=httpx2.AsyncClient(transport=Transport(), trust_env=False),
        ) as client:
            try:
                response = await call(client)
            except APIConnectionError as error:
                # Older versions of the package wrap what a transport raises.
                raise (error.__cause__ or error) from None
        return object_from(response.content, address)

    @override
    async def identify(
        self, name: str, count: int, since: float, known: Collection[str]
    ) -> Remote | None:
        """By its metadata."""
        ours = [
            self.remote(batch)
            async for batch in self.listed(since - DAY)
            if fields_in(batch.get("metadata")).get(NAME) == name
        ]
        return min(ours, key=lambda remote: remote.stands == "refused", default=None)

    @override
    def remote(self, batch: Fields) -> Remote:
        status = words(batch.get("status"), 40)
        counts, made = batch.get("request_counts"), seconds(batch.get("created_at"))
        files = [batch.get(name) for name in ("output_file_id", "error_file_id")]
        results = [self.checked_id(file) for file in files if file]
        stands, done = _STANDS.get(status, "working"), count(counts, "completed")
        if stands == "refused" and (results or done):
            stands = "ended"  # other servers' word for one that broke down half-way
        problems = objects_in(fields_in(batch.get("errors")).get("data"))
        return Remote(
            id=self.checked_id(batch.get("id")),
            status=status,
            stands=stands,
            made=time.time() if made is None else made,
            total=count(counts, "total"),
            done=done,
            failed=count(counts, "failed"),
            expires=seconds(batch.get("expires_at")),
            problems=[_problem(part) for part in problems[:20]],
            full=any(part.get("code") == "token_limit_exceeded" for part in problems),
            results=results,
        )

    @override
    async def looked_at(self, batch: Fields) -> Remote:
        """The batch; when it has ended the file of our texts goes, whose work is done."""
        remote = self.remote(batch)
        if remote.stands != "working" and batch.get("input_file_id"):
            await self._delete(batch["input_file_id"])
        return remote

    async def _delete(self, file: str) -> None:
        """Delete a file, if that can be done."""
        with suppress(JudgeError):
            name = self.checked_id(file)
            await self._asked(lambda client: client.files.with_raw_response.delete(name))

    @override
    def result(self, custom_id: str, line: Fields) -> Result:
        response, error = fields_in(line.get("response")), line.get("error")
        status = count_in(response, "status_code") or 0
        if 100 <= status < 600:
            return Result(custom_id, status, json_bytes(response.get("body")))
        ended = _ENDED.get(str(fields_in(error).get("code")))
        return Result(custom_id, 0, b"" if error is None else json_bytes({"error": error}), ended)


def _first_choice(answer: Fields) -> Fields:
    """Return the first choice of an answer; no fields where it has none."""
    choices = answer.get("choices")
    return fields_in(choices[0]) if isinstance(choices, list) and choices else {}


def _tool_inputs(message: Fields) -> list[str]:
    """Return what a message calls tools with, as text."""
    calls = [fields_in(call.get("function")) for call in objects_in(message.get("tool_calls"))]
    calls.append(fields_in(message.get("function_call")))  # as it was once named
    inputs = [call.get("arguments") for call in calls]
    return [
        given if isinstance(given, str) else json_bytes(given).decode() for given in inputs if given
    ]


def _problem(error: Fields) -> str:
    line = count_in(error, "line")
    where = "" if line is None else f"line {line}: "
    return where + (words(error.get("message")) or "no reason given")


def read_usage(usage: Any) -> Usage | None:
    """Tokens of an answer: cached input apart, reasoning inside output. None where it doesn't say.

    Most servers count reasoning in `completion_tokens`; xAI and Gemini count it beside them, and in
    the total alone. Where that can't be seen, the larger reading is taken: it was perhaps billed.
    Where `completion_tokens` are missing they are the rest of the total, and likewise the prompt's.
    Cached tokens are a part of `prompt_tokens`; where they are more, they were counted beside them.
    """
    prompt, output = count_in(usage, "prompt_tokens"), count_in(usage, "completion_tokens")
    all_tokens = count_in(usage, "total_tokens")
    # DeepSeek has a name of its own for what was cached, Perplexity another place for reasoning.
    details = fields_in(usage).get("prompt_tokens_details")
    cached = count_in(details, "cached_tokens") or count_in(usage, "prompt_cache_hit_tokens") or 0
    if all_tokens is not None:
        if prompt is not None and prompt < cached <= all_tokens - prompt != output:
            all_tokens -= cached  # counted beside the prompt, but in the total
        if output is None and prompt is not None and prompt <= all_tokens:
            output = all_tokens - prompt
        elif prompt is None and output is not None and output <= all_tokens:
            prompt = all_tokens - output
    if prompt is None or output is None:
        return None
    reasoning = count_in(usage.get("completion_tokens_details"), "reasoning_tokens")
    reasoning = reasoning or count_in(usage, "reasoning_tokens") or 0
    total = all_tokens or 0
    if reasoning > output or total != prompt + output:
        output = max(output + reasoning, total - prompt)
    return Usage(prompt - cached if cached <= prompt else prompt, cached, output, reasoning)


def is_azure(address: str) -> bool:
    """Whether it is Azure's, which has ways of its own."""
    return (urlsplit(address).hostname or "").endswith((".azure.com", ".azure-api.net"))
