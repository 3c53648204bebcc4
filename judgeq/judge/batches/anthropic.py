"""Anthropic's Message Batches (platform.claude.com/docs/en/build-with-claude/batch-processing).

A batch is created by one request that holds all, and has no name of ours: it is known again by the
ids of its lines, once it has ended.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal

import orjson

from judgeq.errors import (
    BatchGoneError,
    CallTimeoutError,
    ConnectionFailedError,
    RefusedRequestError,
    ServerFailedError,
)
from judgeq.judge.batches import Identified, Limits, Remote, Result, downloads, fields
from judgeq.judge.batches.refusals import gone, none_at
from judgeq.judge.http.connection import Passed, parts_of, read_all
from judgeq.judge.http.model_backend import ModelBackend, beside

BEFORE, AFTER = b'{"requests":[', b"]}"
SLACK = 600.0
"""Seconds by which the provider's clock may be behind ours."""
PAGE, MOST_PAGES = 100, 1_000
_PIECE = 262_144
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


class AnthropicBatches:
    """See BatchAPI."""

    def __init__(self, backend: ModelBackend) -> None:
        self._connection = backend.connection
        self._address = backend.address

    @property
    def limits(self) -> Limits:
        """See BatchAPI."""
        return Limits(lines=100_000, bytes=256_000_000 - len(BEFORE + AFTER))

    def line(self, custom_id: str, body: bytes) -> bytes:
        """See BatchAPI."""
        return b'{"custom_id":' + orjson.dumps(custom_id) + b',"params":' + body + b"}\n"

    async def create(self, name: str, lines: BinaryIO) -> Remote:
        """See BatchAPI: the name is sent only in the ids of the lines."""
        url, passed = self._url(), Passed()
        start = lines.tell()
        size = lines.seek(0, os.SEEK_END) - start
        lines.seek(start)
        length = len(BEFORE) + max(0, size - 1) + len(AFTER)  # the last line's end is left out
        sent = {"Content-Length": str(length)}
        body = passed.through(_framed(lines))
        try:
            async with (
                self._connection.watched(url, passed),
                self._connection.request("POST", url, body, sent) as response,
            ):
                if not 200 <= response.status < 300:
                    error = await self._connection.refused(response, url)
                    raise none_at(self._address)(response.status, error)
                answer = await read_all(response)
        except (ConnectionFailedError, CallTimeoutError) as error:
            if passed.total_bytes < length:  # and nobody makes a batch of a part of it
                error.cost = 0.0
            raise
        return self._remote(fields.object_in(answer, url))

    async def get(self, remote: str) -> Remote:
        """See BatchAPI. Raises BatchGoneError where the provider doesn't know it."""
        return self._remote(await self._asked("GET", self._url(self._known(remote)), remote))

    async def cancel(self, remote: str) -> Remote:
        """See BatchAPI: one that has ended can't be cancelled, and that is no error."""
        url = self._url(f"{self._known(remote)}/cancel")
        try:
            return self._remote(await self._asked("POST", url, remote))
        except (RefusedRequestError, ServerFailedError):
            now = await self.get(remote)
            if now.stands == "working":
                raise
            return now

    async def identify(
        self, name: str, count: int, since: float, known: Collection[str]
    ) -> Identified:
        """See BatchAPI: by the ids of its lines, which are to be had when it has ended."""
        doubtful = []
        async for remote in self._listed(since - SLACK):
            if remote.id in known or remote.total != count:
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

    async def _listed(self, since: float) -> AsyncIterator[Remote]:
        """The batches that were made since, newest first, over all pages."""
        after = ""
        seen: set[str] = set()
        for _ in range(MOST_PAGES):
            url = self._url(query=f"limit={PAGE}{f'&after_id={after}' if after else ''}")
            page = await self._asked("GET", url)
            data = page.get("data")
            if not isinstance(data, list):
                raise ServerFailedError(f"{url} answered with no list of batches.")
            batches = [self._remote(batch) for batch in data if isinstance(batch, dict)]
            for remote in batches:
                if remote.made >= since:
                    yield remote
            if page.get("has_more") is False or all(remote.made < since for remote in batches):
                return
            after = batches[-1].id
            if after in seen:  # it knows no pages
                return
            seen.add(after)
        raise ServerFailedError(f"{self._url()} lists batches without an end.")

    async def _first(self, remote: str) -> str:
        """The id of the first line in a batch's results."""
        async with self._content(remote) as parts, aclosing(downloads.lines(parts)) as lines:
            async for line in lines:
                said = fields.object_in(line, self._url(f"{remote}/results"))
                return str(said.get("custom_id"))
        return ""

    async def download(self, remote: Remote, folder: Path, *, as_it_is: bool = False) -> list[Path]:
        """See BatchAPI. Raises BatchGoneError for results that the provider has deleted."""
        mask = self._connection.mask
        return [
            await downloads.fetch(folder, self._known(name), self._content, mask, as_it_is=as_it_is)
            for name in remote.results
        ]

    @asynccontextmanager
    async def _content(self, remote: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """A batch's results, from the address we were given: never from one that the server names,
        for the key goes with it."""
        url, passed = self._url(f"{self._known(remote)}/results"), Passed()
        async with (
            self._connection.watched(url, passed),
            self._connection.request("GET", url) as response,
        ):
            if not 200 <= response.status < 300:
                error = await self._connection.refused(response, url)
                raise gone(f"the results of {remote}")(response.status, error)
            yield passed.through(parts_of(response))

    def results(self, file: Path) -> Iterator[Result]:
        """See BatchAPI. Lines without an id that can be ours are left out."""
        for line in downloads.read(file):
            custom_id = fields.custom_id(line)
            if custom_id is not None:
                yield _result(custom_id, line.get("result"))

    async def _asked(self, method: str, url: str, remote: str = "") -> dict[str, Any]:
        """A JSON object that an address of the API gives."""
        async with (
            self._connection.watched(url),
            self._connection.request(method, url) as response,
        ):
            if not 200 <= response.status < 300:
                error = await self._connection.refused(response, url)
                explain = gone(f"the batch {remote}") if remote else none_at(self._address)
                raise explain(response.status, error)
            return fields.object_in(await read_all(response), url)

    def _remote(self, batch: Mapping[str, Any]) -> Remote:
        """A batch as Remote. Raises ServerFailedError for what is none."""
        mask, counts = self._connection.mask, batch.get("request_counts")
        name, made = fields.identity(batch.get("id"), mask), fields.seconds(batch.get("created_at"))
        ended = batch.get("processing_status") == "ended"
        return Remote(
            id=name,
            status=fields.shown(batch.get("processing_status"), mask, 40),
            stands="ended" if ended else "working",
            made=self._connection.now() if made is None else made,
            total=sum(fields.count(counts, state) for state in _COUNTS),
            done=fields.count(counts, "succeeded"),
            failed=fields.count(counts, "errored"),
            expires=fields.seconds(batch.get("expires_at")),
            results=[name] if ended else [],
        )

    def _known(self, remote: str) -> str:
        return fields.identity(remote, self._connection.mask)

    def _url(self, path: str = "", query: str = "") -> str:
        return beside(self._address, f"messages/batches/{path}".rstrip("/"), query)


async def _framed(lines: BinaryIO) -> AsyncIterator[bytes]:
    """The body that holds the lines of a file, a piece at a time."""
    yield BEFORE
    piece = lines.read(_PIECE)
    while piece:
        following = lines.read(_PIECE)
        yield (piece if following else piece.removesuffix(b"\n")).replace(b"\n", b",")
        piece = following
    yield AFTER


def _result(custom_id: str, result: Any) -> Result:
    """What became of a request. Status 0 stands also for what is not as documented."""
    kind = result.get("type") if isinstance(result, dict) else None
    if kind == "succeeded" and isinstance(result.get("message"), dict):
        return Result(custom_id, 200, fields.encoded(result["message"]))
    if kind == "errored" and isinstance(error := result.get("error"), dict):
        inner = error["error"] if isinstance(error.get("error"), dict) else error
        word = inner.get("type")
        word = word.removesuffix("_error") if isinstance(word, str) else ""
        body = fields.encoded({"type": "error", "error": inner})
        return Result(custom_id, _STATUS.get(word, 500), body)
    ended = _ENDED.get(kind) if isinstance(kind, str) else None
    return Result(custom_id, 0, b"" if ended else fields.encoded(result), ended)
