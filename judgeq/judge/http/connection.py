"""A session with one server: the user's key, headers, proxy, certificates, and how long calls may take.

Nothing is sent to another address than one that our caller made, and no redirect is followed.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from urllib.parse import urlsplit

import aiohttp

from judgeq.errors import (
    CallTimeoutError,
    ConnectionFailedError,
    JudgeError,
    RefusedRequestError,
)
from judgeq.judge.http import errors as http_errors
from judgeq.judge.http.bodies import read_all
from judgeq.judge.http.deadlines import Deadlines, InFlight
from judgeq.judge.http.gone import Gone
from judgeq.judge.http.network import connects, proxy_for, tls_of
from judgeq.judge.masking import Mask
from judgeq.judge.model import extra_headers
from judgeq.settings.model import Access

KEEP_ALIVE = 4.0  # seconds; uvicorn, which vLLM runs on, closes idle connections after 5


class Passed:
    """Counts the bytes of a long body, sent or received: as long as some pass, a call isn't silent."""

    def __init__(self) -> None:
        self.total_bytes = 0

    async def through(self, parts: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        """The parts, counted before they are handed on."""
        async for part in parts:
            self.total_bytes += len(part)
            yield part


class Connection:
    """The session, which is made when it is opened. `model` is the name that errors give; `url` where
    most is sent."""

    def __init__(
        self,
        model: str,
        url: str,
        access: Access,
        *,
        connections: int = 100,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.mask = Mask(())
        self._model = model
        self._url = url
        self._access = access
        self._connections = connections
        self._wall_clock = wall_clock
        self._session: aiohttp.ClientSession | None = None
        self._deadlines = Deadlines(silence=access.first_byte_timeout, total=access.timeout)
        self._gone = Gone(self._deadlines, self._connects)
        self._proxy: str | None = None
        self._sent: Mapping[str, str] = {}

    @property
    def is_open(self) -> bool:
        """Whether there is a session."""
        return self._session is not None

    async def open(
        self, secret: str | None, authorize: Callable[[dict[str, str], str | None], None]
    ) -> None:
        """Make the session. `authorize` adds to the headers what lets us in.

        Raises UsageError for a certificate, proxy or header that can't be had.
        """
        sent = extra_headers(self._access)
        self._proxy = proxy_for(self._url, self._access)
        self.mask = Mask.of(self._access, secret, sent, self._proxy)
        authorize(sent, secret)
        # Not the session's own: those aiohttp sends a proxy as well, in the clear.
        self._sent = {**sent, "Content-Type": "application/json", "Accept-Encoding": "identity"}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._connections,
                keepalive_timeout=KEEP_ALIVE,
                ttl_dns_cache=300,
                ssl=tls_of(self._access),
            ),
            # Before a connection is made nothing is sent: that may end by aiohttp's own timer.
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=self._access.connect_timeout, sock_read=None
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )

    async def _connects(self) -> bool | None:
        """Whether the server takes connections; None where that can't be said, behind a proxy."""
        if self._proxy is not None:
            return None
        parts = urlsplit(self._url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return await connects(parts.hostname or "", port, self._access.connect_timeout)

    async def close(self) -> None:
        """Let go of the connections."""
        self._gone.close()
        if self._session is not None:
            await self._session.close()
            self._session = None

    def request(
        self,
        method: str,
        url: str,
        body: bytes | AsyncIterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send one, inside `watched`. What comes back is not masked yet."""
        if self._session is None:
            raise JudgeError("the backend was not opened")
        return self._session.request(
            method,
            url,
            data=body,
            headers={**self._sent, **(headers or {})},
            proxy=self._proxy,
            allow_redirects=False,
        )

    async def exchange(
        self, method: str, url: str, body: bytes | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of the answer. All that comes in is masked here, before anything
        is cut or parsed; of a success's headers only numbers are read."""
        async with self.watched(url) as call, self.request(method, url, body) as response:
            call.body = response.content
            self._gone.answered(call)
            data = self.mask.body(await read_all(response))
            if response.status == 200:
                return 200, response.headers, data
            return response.status, self.mask.headers(response.headers), data

    @asynccontextmanager
    async def watched(self, url: str, passed: Passed | None = None) -> AsyncIterator[InFlight]:
        """A call that ends when it takes too long; with a long body, which is what `passed` counts,
        only when nothing passes. Raises ConnectionFailedError, CallTimeoutError or
        RefusedRequestError in place of what aiohttp raises within."""
        try:
            async with asyncio.timeout(None) as scope:
                call = self._deadlines.begin(scope)
                if passed is not None:
                    call.body, call.limited = passed, False
                try:
                    yield call
                finally:
                    self._deadlines.end(call)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if call.why is not None:
                raise ConnectionFailedError(
                    f"{url} was silent for {self._deadlines.seconds(call.started):.0f} s, and "
                    f"{call.why}: the server that had the call is gone."
                ) from None
            raise self._broken(url, error) from None  # its own words are not masked

    def refusal(self, status: int, headers: Mapping[str, str], body: bytes, url: str) -> JudgeError:
        """What a masked answer means that is no success."""
        return http_errors.error_for(
            status, headers, body, model=self._model, url=url, now=self._wall_clock()
        )

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._wall_clock()

    async def refused(self, response: aiohttp.ClientResponse, url: str) -> JudgeError:
        """What an answer means that is no success, read and masked."""
        data = self.mask.body(await read_all(response))
        return self.refusal(response.status, self.mask.headers(response.headers), data, url)

    def _broken(self, url: str, error: BaseException) -> JudgeError:
        """What aiohttp's errors mean: whether it was sent, and whether another try may mend it."""
        what = f"{url}: {self.mask.text(str(error)) or type(error).__name__}"
        match error:
            case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
                return RefusedRequestError(
                    f"{what}. Its certificate is not trusted: name the authority's with --ca-file."
                )
            case aiohttp.ClientHttpProxyError():
                return RefusedRequestError(f"the proxy refused: {what}. See --proxy.")
            case aiohttp.ConnectionTimeoutError():
                seconds = f"{self._access.connect_timeout:g} s"
                return CallTimeoutError(
                    f"no connection to {url} within {seconds}.", cost=0.0, unavailable=True
                )
            case TimeoutError():
                access = self._access
                return CallTimeoutError(
                    f"{url} did not answer in time (--first-byte-timeout "
                    f"{access.first_byte_timeout:g}, --timeout {access.timeout:g})."
                )
            case aiohttp.ClientConnectorError():
                if isinstance(error.os_error, ConnectionRefusedError):
                    self._gone.refused()
                full = error.errno in (errno.EMFILE, errno.ENFILE)  # too many open files, here
                return ConnectionFailedError(
                    f"no connection: {what}.", cost=0.0, unavailable=True, too_many=full
                )
        return ConnectionFailedError(f"the connection broke: {what}.")
