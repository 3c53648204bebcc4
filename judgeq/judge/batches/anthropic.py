"""Anthropic's Message Batches (platform.claude.com/docs/en/build-with-claude/batch-processing).

A batch is created by one request that holds all, and has no name of ours: it is known again by the
ids of its lines, once it has ended.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import aclosing
from typing import BinaryIO, Literal

import orjson
from typing_extensions import override

from judgeq.errors import BatchGoneError, CallTimeoutError, ConnectionFailedError
from judgeq.judge.backend import Identified, Limits, Remote, Result
from judgeq.judge.batches.provider import (
    PAGE,
    BatchAPI,
    count,
    encoded,
    lines_of,
    object_from,
    seconds,
)
from judgeq.judge.http.connection import read_all
from judgeq.judge.http.model_backend import api_url, fields_in
from judgeq.types import Fields, Headers

PATH = "messages/batches"
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


class AnthropicBatches(BatchAPI):
    """Batches as Anthropic has them: the lines in the request, and a stream of results."""

    results_path = "messages/batches/{}/results"

    @property
    @override
    def limits(self) -> Limits:
        return Limits(lines=100_000, bytes=256_000_000 - len(BEFORE + AFTER))

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
            return self.remote(await self.asked("POST", PATH, "", body(), sent))
        except (ConnectionFailedError, CallTimeoutError) as error:
            if passed < length:  # and nobody makes a batch of a part of it
                error.cost = 0.0
            raise

    @override
    async def one(self, what: Literal["get", "cancel"], remote: str) -> Fields:
        path, batch = f"{PATH}/{remote}", f"the batch {remote}"
        if what == "cancel":
            return await self.asked("POST", f"{path}/cancel", what=batch)
        return await self.asked("GET", path, what=batch)

    @override
    async def page(self, after: str) -> Fields:
        more = f"&after_id={after}" if after else ""
        return await self.asked("GET", PATH, f"limit={PAGE}{more}")

    async def asked(
        self,
        method: str,
        path: str,
        query: str = "",
        body: bytes | AsyncIterator[bytes] | None = None,
        headers: Headers | None = None,
        what: str = "",
    ) -> Fields:
        """The JSON object that an address of the API gives. Raises as `refusal`; ServerFailedError, of
        unknown cost, for anything else."""
        url = api_url(self._address, path, query)
        async with self._connection.request(
            method, url, body, headers, long=body is not None
        ) as response:
            if not 200 <= response.status < 300:
                error = await self._connection.refused(response, url)
                raise self.refusal(response.status, error, what)
            return object_from(await read_all(response), url)

    @override
    async def identify(
        self, name: str, count: int, since: float, known: Collection[str]
    ) -> Identified:
        """By the ids of its lines, which are to be had when it has ended."""
        doubtful = []
        async for batch in self.listed(since - SLACK):
            remote = self.remote(batch)
            if remote.made < since - SLACK or remote.id in known or remote.total != count:
                continue
            try:
                if remote.stands == "ended" and await self._begins(remote.id, f"{name}-"):
                    return Identified(remote)
            except BatchGoneError:
                doubtful.append(remote.id)
            if remote.stands == "working":
                doubtful.append(remote.id)
        return Identified(None, doubtful)

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
            status=self.words(batch.get("processing_status"), 40),
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
            return Result(custom_id, 200, encoded(result["message"]))
        if kind == "errored" and error:
            inner = fields_in(error.get("error")) or error
            status = _STATUS.get(str(inner.get("type")).removesuffix("_error"), 500)
            return Result(custom_id, status, encoded({"type": "error", "error": inner}))
        ended = _ENDED.get(kind)
        return Result(custom_id, 0, b"" if ended else encoded(line.get("result")), ended)


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
