"""The way of the openai package to a server: our own session.

The package says what is asked and in which form. Where it goes, with which key and headers, through
which proxy, and for how long, is the session's: of the package's own address, key and headers, and of
its environment variables, nothing gets through.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import aiohttp
import httpx2

from judgeq.judge.batches.refusals import Explain
from judgeq.judge.http.connection import Connection, Passed, parts_of, read_all
from judgeq.judge.http.model_backend import beside

_KEPT = ("Content-Type", "Content-Length")


class Through(httpx2.AsyncBaseTransport):
    """Sends the package's requests to `address` within one watched call, whose bytes `passed` counts.

    What is no success is raised, as `explain` makes of its status and error.
    """

    def __init__(
        self,
        connection: Connection,
        address: str,
        passed: Passed,
        explain: Explain,
    ) -> None:
        self._connection = connection
        self._address = address
        self._passed = passed
        self._explain = explain

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """See httpx2.AsyncBaseTransport."""
        path, _, query = request.url.raw_path.decode("ascii").partition("?")
        url = beside(self._address, path.lstrip("/"), query)
        body: bytes | AsyncIterator[bytes] | None = None
        sent = {name: request.headers[name] for name in _KEPT if name in request.headers}
        if sent.get("Content-Type", "").startswith("multipart/") and isinstance(
            request.stream, httpx2.AsyncByteStream
        ):
            body = self._passed.through(request.stream)
        else:
            body = await request.aread() or None
            sent.pop("Content-Length", None)
        async with AsyncExitStack() as stack:
            response = await stack.enter_async_context(
                self._connection.request(request.method, url, body, sent)
            )
            if not 200 <= response.status < 300:
                error = await self._connection.refused(response, url)
                raise self._explain(response.status, error)
            if path.endswith("/content"):
                stream = _Content(response, self._passed, stack.pop_all())
                return httpx2.Response(200, stream=stream)
            return httpx2.Response(200, content=await read_all(response))


class _Content(httpx2.AsyncByteStream):
    """A long answer; its connection is let go when it is closed."""

    def __init__(
        self, response: aiohttp.ClientResponse, passed: Passed, stack: AsyncExitStack
    ) -> None:
        self._response = response
        self._passed = passed
        self._stack = stack

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._passed.through(parts_of(self._response)):
            yield part

    async def aclose(self) -> None:
        """See httpx2.AsyncByteStream."""
        await self._stack.aclose()
