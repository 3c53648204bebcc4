"""A session with one server: the user's key, headers, proxy, certificates, and how long calls may take.

Nothing is sent to another address than one that our caller made, and no redirect is followed.
"""

from __future__ import annotations

import errno
import ssl
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import orjson

from judgeq.errors import (
    CallTimeoutError,
    ConnectionFailedError,
    JudgeError,
    RefusedRequestError,
    ServerFailedError,
    UnusableReplyError,
    UsageError,
)
from judgeq.files import ordinary
from judgeq.judge.backend import MOST_OF_A_NAME
from judgeq.judge.http.errors import error_for
from judgeq.judge.secrets import Mask, extra_headers, from_environment
from judgeq.settings.model import Access
from judgeq.types import Fields, Headers

KEEP_ALIVE = 4.0  # seconds; uvicorn, which vLLM runs on, closes idle connections after 5
CONNECT = 10.0  # seconds for a connection
LARGEST_REPLY = 16 * 1024 * 1024
Body = bytes | AsyncIterable[bytes] | None


async def bounded(parts: AsyncIterable[bytes]) -> bytes:
    """All parts of a body. Raises UnusableReplyError, which may have been paid for, for one that is
    longer than LARGEST_REPLY: a server may be anybody's."""
    data = bytearray()
    async for part in parts:
        data += part
        if len(data) > LARGEST_REPLY:
            raise UnusableReplyError(
                f"the answer is longer than {LARGEST_REPLY:,} bytes.", cost=None
            )
    return bytes(data)


def proxy_for(url: str, access: Access) -> str | None:
    """The proxy of --proxy, else the environment's as curl reads it.

    Raises UsageError for one that can't be; what may hold a password is not repeated.
    """
    if access.proxy is not None:
        proxy, where = from_environment(access.proxy, "--proxy"), "--proxy"
    else:
        parts, known = urlsplit(url), getproxies()
        proxy = known.get(parts.scheme) or known.get("all") or ""
        where = f"${parts.scheme.upper()}_PROXY or $ALL_PROXY"
        if not proxy or not parts.hostname or proxy_bypass(parts.hostname):
            return None
    with suppress(ValueError):  # a port that is no number, half an IPv6 address
        address = urlsplit(proxy)
        if address.scheme in ("http", "https") and address.hostname and address.port != 0:
            return proxy
    raise UsageError(
        f"{where} is no address of a proxy that judgeq can use: give one such as "
        "http://127.0.0.1:3128, or name this server in $NO_PROXY."
    )


def tls_of(access: Access) -> ssl.SSLContext | bool:
    """The authorities of --ca-file, else the system's. Raises UsageError for a file that has none."""
    if access.ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(ordinary(access.ca_file)))
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"--ca-file {access.ca_file} can't be used: {error.strerror or error}."
        ) from error


class Answer(NamedTuple):
    """What a server answered, masked before anything is cut or parsed; of a success's headers, of which
    only numbers are read, nothing is."""

    status: int
    headers: Headers
    body: bytes


class Connection:
    """The session, which is made when it is opened. `model` is the name that errors give; `address` the
    API's, from which all that is asked starts."""

    def __init__(self, model: str, address: str, access: Access, connections: int = 100) -> None:
        self.address = address
        self.mask = Mask(())
        self._timeout = access.timeout  # seconds
        self._connect = min(CONNECT, self._timeout)
        self._of_a_call, self._of_a_file = (
            aiohttp.ClientTimeout(total=whole, sock_connect=self._connect, sock_read=part)
            for whole, part in ((self._timeout, None), (None, self._timeout))
        )
        self._proxy: str | None = None
        self._sent: Headers = {}  # with each request, the key among them
        self._model = model
        self._access = access
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    def url(self, path: str, query: str = "") -> str:
        """An address of the API: the path before the query, of which Azure has one, and more of that."""
        parts = urlsplit(self.address)
        query = "&".join(filter(None, (parts.query, query)))
        return parts._replace(path=f"{parts.path.rstrip('/')}/{path}", query=query).geturl()

    async def open(
        self, secret: str | None, authorize: Callable[[dict[str, str], str | None], None]
    ) -> None:
        """Make the session, once. `authorize` adds to the headers what lets us in with the secret.

        Raises UsageError for a certificate, proxy or header that can't be had.
        """
        if self._session is not None:
            return
        sent = extra_headers(self._access)
        self._proxy, tls = proxy_for(self.address, self._access), tls_of(self._access)
        self.mask = Mask.of(self._access, secret, sent, self._proxy)
        authorize(sent, secret)
        # Not the session's own: those aiohttp sends a proxy as well, in the clear.
        self._sent = {**sent, "Content-Type": "application/json", "Accept-Encoding": "identity"}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._connections,
                keepalive_timeout=KEEP_ALIVE,
                ttl_dns_cache=300,
                ssl=tls,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        """Let go of the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    @asynccontextmanager
    async def request(
        self,
        method: str,
        url: str,
        body: Body = None,
        headers: Headers | None = None,
        *,
        long: bool = False,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A call that ends in time, whose answer is not masked yet; of a `long` one, a file in the one
        direction or the other, each part of the answer has the time of a call. Raises
        ConnectionFailedError, CallTimeoutError or RefusedRequestError in place of what aiohttp raises
        within."""
        if self._session is None:
            raise JudgeError("the backend was not opened")
        try:
            async with self._session.request(
                method,
                url,
                data=body,
                headers={**self._sent, **(headers or {})},
                proxy=self._proxy,
                allow_redirects=False,
                timeout=self._of_a_file if long else self._of_a_call,
            ) as response:
                yield response
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._broken(url, error) from None  # its own words are not masked

    async def answer(self, response: aiohttp.ClientResponse) -> Answer:
        """What a response holds."""
        try:
            data, status = await bounded(response.content.iter_any()), response.status
        except UnusableReplyError:
            response.close()
            raise
        said = response.headers if status == 200 else self.mask.headers(response.headers)
        return Answer(status, said, self.mask.body(data))

    def refusal(self, answer: Answer, url: str) -> JudgeError:
        """What an answer means that is no success."""
        return self.masked(error_for(*answer, model=self._model, url=url, now=time.time()))

    def masked(self, error: JudgeError) -> JudgeError:
        """Return the error with its message masked: it may hold words that were put together."""
        error.args = (self.mask.text(str(error)),)
        return error

    def _broken(self, url: str, error: BaseException) -> JudgeError:
        """What aiohttp's errors mean: whether it was sent, and whether another try may mend it."""
        what = f"{url}: {self.mask.text(str(error)) or type(error).__name__}"
        match error:
            case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
                return RefusedRequestError(
                    f"{what}. Its certificate is not trusted: name the authority's with --ca-file."
                )
            case aiohttp.ClientResponseError() if "Please install" in what:  # to decompress it
                return RefusedRequestError(
                    f"{what}. It was asked for uncompressed: see to the server, or to the proxy in "
                    "between.",
                    cost=None,
                )
            case aiohttp.ClientHttpProxyError():
                return RefusedRequestError(f"the proxy refused: {what}. See --proxy.")
            case aiohttp.ConnectionTimeoutError():
                return CallTimeoutError(
                    f"no connection to {url} within {self._connect:g} s.",
                    cost=0.0,
                    unavailable=True,
                )
            case TimeoutError():
                return CallTimeoutError(
                    f"{url} did not answer in time (--timeout {self._timeout:g})."
                )
            case aiohttp.ClientConnectorError():
                full = error.errno in (errno.EMFILE, errno.ENFILE)  # too many open files, here
                return ConnectionFailedError(
                    f"no connection: {what}.", cost=0.0, unavailable=True, too_many=full
                )
        return ConnectionFailedError(f"the connection broke: {what}.")


# Fields of an answer's JSON, which may be anybody's


def object_in(data: bytes) -> Fields | None:
    """A JSON object; None for anything else."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def object_from(data: bytes, url: str) -> Fields:
    """A JSON object. Raises ServerFailedError for anything else, of unknown cost."""
    fields = object_in(data)
    if fields is None:
        raise ServerFailedError(
            f"{url} answered with something other than a JSON object: "
            f"{data[:100].decode(errors='replace')!r}. Is --base-url right?"
        )
    return fields


def fields_in(value: Any) -> Fields:
    """A JSON object's fields; none for anything else."""
    return value if isinstance(value, dict) else {}


def objects_in(value: Any) -> list[Fields]:
    """The objects in a list; none for anything else."""
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def count_in(fields: Any, name: str) -> int | None:
    """A number of something; None where it doesn't say."""
    value = fields_in(fields).get(name)
    return value if type(value) is int and 0 <= value < 2**53 else None


def name_in(fields: Fields, name: str) -> str | None:
    """The beginning of a name; None where it doesn't say."""
    value = fields.get(name)
    return value[:MOST_OF_A_NAME] or None if isinstance(value, str) else None


def text_in(content: Any) -> str:
    """A message's content: a string, or parts of which some are text."""
    if isinstance(content, str):
        return content
    parts = [part.get("text") for part in objects_in(content)]
    return "".join(part for part in parts if isinstance(part, str))
