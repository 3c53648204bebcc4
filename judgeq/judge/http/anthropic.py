"""Anthropic's API: messages, and batches of them (platform.claude.com/docs/en/api/messages)."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Any, BinaryIO, Literal

import orjson
from typing_extensions import override

from judgeq.errors import (
    BatchGoneError,
    BatchNotFoundError,
    CallError,
    CallTimeoutError,
    ConnectionFailedError,
)
from judgeq.judge.backend import Remote, Result
from judgeq.judge.http.batch_api import PAGE, BatchAPI, count, lines_of, seconds, words
from judgeq.judge.http.connection import (
    Body,
    count_in,
    fields_in,
    json_bytes,
    object_from,
    objects_in,
    text_in,
)
from judgeq.judge.http.errors import NO_MESSAGE
from judgeq.judge.http.model_backend import ModelBackend
from judgeq.types import Fields, Headers, Usage

BATCHES = "messages/batches"
VERSION = "2023-06-01"
TOOL = "answer"
PIECE = 262_144
"""Bytes of a file of requests that are read at once."""
BEFORE, AFTER = b'{"requests":[', b"]}"
SLACK = 600.0
"""Seconds by which the provider's clock may be behind ours."""
_COUNTS = ("processing", "succeeded", "errored", "canceled", "expired")
_STATUS = {
    "invalid_request": 400,
    "authentication": 401,
    "billing": 402,
    "permission": 403,
    "not_found": 404,
    "request_too_large": 413,
    "rate_limit": 429,
    "api": 500,
    "timeout": 504,
    "overloaded": 529,
}
_ENDED: Mapping[str, Literal["cancelled", "expired"]] = {
    "canceled": "cancelled",
    "expired": "expired",
}


class AnthropicMessages(ModelBackend):
    """The backend.

    Replies are structured by `output_config`; where a server or a model doesn't know that, by a tool
    that has to be called, whose input is the reply; then in words alone.
    """

    path = "messages"

    @property
    @override
    def batch_api(self) -> BatchAPI:
        return AnthropicBatches(self.connection)

    @override
    def limit_fields(self) -> list[str]:
        return ["max_tokens"]

    @override
    def authorize(self, headers: dict[str, str], secret: str | None) -> None:
        """Add the key, and the version of the API."""
        there = {name.lower() for name in headers}
        if secret is not None and not there & {"x-api-key", "authorization"}:
            headers["x-api-key"] = secret
        if "anthropic-version" not in there:
            headers["anthropic-version"] = VERSION

    @override
    def body(self, messages: Sequence[Mapping[str, str]], k: int) -> Fields:
        """What the system says stands next to the messages. A limit on output has to be sent."""
        model = self.model
        system = "\n\n".join(part["content"] for part in messages if part["role"] == "system")
        sent: Fields = {"system": system} if system else {}
        sent["messages"] = [part for part in messages if part["role"] != "system"]
        sent["max_tokens"] = model.max_output_tokens or self.output_bound
        if model.temperature is not None:
            sent["temperature"] = model.temperature
        sent |= model.extra_body or {}
        output: Fields = {}
        if model.reasoning_effort is not None:
            output["effort"] = model.reasoning_effort
        if self.mode == "schema":
            output["format"] = {"type": "json_schema", "schema": self.schema(k)}
        elif self.mode == "json":
            sent["tools"] = [
                {"name": TOOL, "description": "Give your answer.", "input_schema": self.schema(k)}
            ]
            sent["tool_choice"] = {"type": "tool", "name": TOOL, "disable_parallel_tool_use": True}
        return sent | ({"output_config": output} if output else {})

    @override
    def read(self, answer: Fields) -> tuple[Usage | None, str, object]:
        """The input of a tool that was called, else the text, without what it thought."""
        usage, content = read_usage(answer.get("usage")), answer.get("content")
        if not isinstance(content, list):
            reason = answer.get("stop_reason")
            return usage, "", "refusal" if reason == "refusal" else NO_MESSAGE
        blocks = objects_in(content)
        called = [block.get("input") for block in blocks if block.get("type") == "tool_use"]
        text = text_in([block for block in blocks if block.get("type") == "text"])
        inputs = [json_bytes(given).decode() for given in called if isinstance(given, dict)]
        return usage, "\n".join(inputs) or text, answer.get("stop_reason")

    @override
    def thinking(self, answer: Fields) -> tuple[str, str]:
        blocks = objects_in(answer.get("content"))
        words = [block.get("thinking") for block in blocks if block.get("type") == "thinking"]
        return "thinking", "".join(text_in(part) for part in words)


class AnthropicBatches(BatchAPI):
    """Batches as Anthropic has them (platform.claude.com/docs/en/build-with-claude/batch-processing):
    created by one request that holds all lines, with a stream of results. They have no name of ours: one
    is known again by the ids of its lines, once it has ended."""

    results_path = f"{BATCHES}/{{}}/results"
    most_bytes = 256_000_000 - len(BEFORE + AFTER)

    @override
    def line(self, custom_id: str, body: bytes) -> bytes:
        return b'{"custom_id":' + orjson.dumps(custom_id) + b',"params":' + body + b"}\n"

    @override
    async def create(self, name: str, lines: BinaryIO) -> Remote:
        """The name is sent only in the ids of the lines."""
        passed, length = 0, lines.seek(0, os.SEEK_END)
        length += len(BEFORE) + len(AFTER) - (length > 0)

        async def body() -> AsyncIterator[bytes]:
            nonlocal passed
            async for part in framed(lines):
                passed += len(part)
                yield part

        try:
            sent = {"Content-Length": str(length)}
            return self.remote(await self._asked("POST", BATCHES, body=body(), headers=sent))
        except (ConnectionFailedError, CallTimeoutError) as error:
            if passed < length:  # and nobody makes a batch of a part of it
                error.cost = 0.0
            raise

    @override
    async def identify(
        self, name: str, count: int, since: float, known: Collection[str]
    ) -> Remote | None:
        """By the ids of its lines, which are to be had when it has ended."""
        doubtful = []
        async for batch in self.listed(since - SLACK):
            remote = self.remote(batch)
            if remote.made < since - SLACK or remote.id in known or remote.total != count:
                continue
            try:
                if remote.stands == "working":
                    doubtful.append(remote.id)
                elif await self._begins(remote.id, f"{name}-"):
                    return remote
            except (BatchGoneError, BatchNotFoundError):
                doubtful.append(remote.id)
        if doubtful:
            raise CallError(f"it may be {', '.join(doubtful)}, which its results will tell.")
        return None

    async def _asked(
        self,
        method: str,
        path: str,
        query: str = "",
        body: Body = None,
        headers: Headers | None = None,
        what: str = "",
    ) -> Fields:
        """The JSON object that an address of the API gives. Raises as `refusal`; ServerFailedError, of
        unknown cost, for anything else."""
        url = self.connection.url(path, query)
        return object_from((await self.answered(method, url, body, headers, what)).body, url)

    @override
    async def one(self, what: Literal["get", "cancel"], remote: str) -> Fields:
        method, path = "GET", f"{BATCHES}/{remote}"
        if what == "cancel":
            method, path = "POST", f"{path}/cancel"
        return await self._asked(method, path, what=f"the batch {remote}")

    @override
    async def page(self, after: str) -> Fields:
        query = f"limit={PAGE}" + (f"&after_id={after}" if after else "")
        return await self._asked("GET", BATCHES, query)

    async def _begins(self, remote: str, prefix: str) -> bool:
        """Whether the id of the first line in a batch's results begins so."""
        async with self.content(remote) as parts, aclosing(lines_of(parts)) as lines:
            async for line in lines:
                first = object_from(line, f"the batch {remote}")
                return str(first.get("custom_id")).startswith(prefix)
        return False

    @override
    def remote(self, batch: Fields) -> Remote:
        counts = batch.get("request_counts")
        name, made = self.checked_id(batch.get("id")), seconds(batch.get("created_at"))
        ended = batch.get("processing_status") == "ended"
        return Remote(
            id=name,
            status=words(batch.get("processing_status"), 40),
            stands="ended" if ended else "working",
            made=time.time() if made is None else made,
            total=sum(count(counts, state) for state in _COUNTS),
            done=count(counts, "succeeded"),
            failed=count(counts, "errored"),
            expires=seconds(batch.get("expires_at")),
            results=[name] if ended else [],
        )

    @override
    def result(self, custom_id: str, line: Fields) -> Result:
        result = fields_in(line.get("result"))
        kind, error = str(result.get("type")), fields_in(result.get("error"))
        if kind == "succeeded" and isinstance(result.get("message"), dict):
            return Result(custom_id, 200, json_bytes(result["message"]))
        if kind == "errored" and error:
            inner = fields_in(error.get("error")) or error
            status = _STATUS.get(str(inner.get("type")).removesuffix("_error"), 500)
            return Result(custom_id, status, json_bytes({"type": "error", "error": inner}))
        ended = _ENDED.get(kind)
        return Result(custom_id, 0, b"" if ended else json_bytes(line.get("result")), ended)


async def framed(lines: BinaryIO) -> AsyncIterator[bytes]:
    """A body that holds the lines of a file, with commas in place of the ends of all but the last."""
    lines.seek(0)
    yield BEFORE
    piece = lines.read(PIECE)
    while piece:
        following = lines.read(PIECE)
        yield (piece if following else piece.removesuffix(b"\n")).replace(b"\n", b",")
        piece = following
    yield AFTER


def read_usage(usage: Any) -> Usage | None:
    """Tokens of a message; None where it doesn't say. What was written to the provider's cache is
    input."""
    read, output = count_in(usage, "input_tokens"), count_in(usage, "output_tokens")
    if read is None or output is None:
        return None
    written = count_in(usage, "cache_creation_input_tokens") or 0
    cached = count_in(usage, "cache_read_input_tokens") or 0
    thought = count_in(usage.get("output_tokens_details"), "thinking_tokens") or 0
    return Usage(read + written, cached, output, min(thought, output))
