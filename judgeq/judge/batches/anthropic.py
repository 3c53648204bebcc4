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
from judgeq.judge.batches import provider
from judgeq.judge.batches.provider import (
    PAGE,
    ProviderBatches,
    count,
    encoded,
    object_from,
    seconds,
)
from judgeq.judge.http.connection import Passed, read_all
from judgeq.judge.http.responses import fields_in
from judgeq.types import Fields

PATH = "messages/batches"
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


class AnthropicBatches(ProviderBatches):
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
        passed, url = Passed(), self.url(PATH)
        length, pieces = framed(BEFORE, lines, AFTER, b",")
        body, sent = passed.through(pieces), {"Content-Length": str(length)}
        try:
            return self.remote(await self.asked("POST", url, "", body, sent, passed))
        except (ConnectionFailedError, CallTimeoutError) as error:
            if passed.total_bytes < length:  # and nobody makes a batch of a part of it
                error.cost = 0.0
            raise

    @override
    async def one(self, what: Literal["get", "cancel"], remote: str) -> Fields:
        url, batch = self.url(f"{PATH}/{remote}"), f"the batch {remote}"
        if what == "cancel":
            return await self.asked("POST", f"{url}/cancel", batch)
        return await self.asked("GET", url, batch)

    @override
    async def page(self, after: str) -> Fields:
        more = f"&after_id={after}" if after else ""
        return await self.asked("GET", self.url(PATH, f"limit={PAGE}{more}"))

    async def asked(
        self,
        method: str,
        url: str,
        what: str = "",
        body: bytes | AsyncIterator[bytes] | None = None,
        sent: Mapping[str, str] | None = None,
        passed: Passed | None = None,
    ) -> Fields:
        """The JSON object that an address of the API gives; `passed` counts the bytes of a long body.
        Raises as ProviderBatches.refusal."""
        async with (
            self._connection.watched(url, passed),
            self._connection.request(method, url, body, sent) as response,
        ):
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
            if remote.stands == "working":
                doubtful.append(remote.id)
                continue
            try:
                first = await self._first(remote.id)
            except BatchGoneError:
                doubtful.append(remote.id)
                continue
            if first.startswith(f"{name}-"):
                return Identified(remote)
        return Identified(None, doubtful)

    async def _first(self, remote: str) -> str:
        """The id of the first line in a batch's results."""
        async with self.content(remote) as parts, aclosing(provider.lines(parts)) as lines:
            async for line in lines:
                said = object_from(line, self.url(f"{PATH}/{remote}/results"))
                return str(said.get("custom_id"))
        return ""

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
        kind = result.get("type")
        if kind == "succeeded" and isinstance(result.get("message"), dict):
            return Result(custom_id, 200, encoded(result["message"]))
        if kind == "errored" and isinstance(error := result.get("error"), dict):
            inner = fields_in(error.get("error")) or error
            word = inner.get("type")
            word = word.removesuffix("_error") if isinstance(word, str) else ""
            body = encoded({"type": "error", "error": inner})
            return Result(custom_id, _STATUS.get(word, 500), body)
        ended = _ENDED.get(kind) if isinstance(kind, str) else None
        return Result(custom_id, 0, b"" if ended else encoded(line.get("result")), ended)


def framed(
    before: bytes, lines: BinaryIO, after: bytes, between: bytes
) -> tuple[int, AsyncIterator[bytes]]:
    """A body that holds the lines of a file, and how long it is: with `between` in
    place of the ends of all lines but the last, which is left out."""
    size = lines.seek(0, os.SEEK_END)
    lines.seek(0)

    async def pieces() -> AsyncIterator[bytes]:
        yield before
        piece = lines.read(provider.PIECE)
        while piece:
            following = lines.read(provider.PIECE)
            yield (piece if following else piece.removesuffix(b"\n")).replace(b"\n", between)
            piece = following
        yield after

    return len(before) + max(0, size - 1) + len(after), pieces()
