"""A session with one server: the user's key, headers, proxy, certificates, and how long calls may take.

Nothing is sent to another address than one that our caller made, and no redirect is followed.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import orjson

from judgeq.errors import (
    CallTimeoutError,
    ConnectionFailedError,
    JudgeError,
    KeyRefusedError,
    RefusedRequestError,
    ServerFailedError,
    UnusableReplyError,
    UsageError,
)
from judgeq.files import ordinary
from judgeq.judge.backend import MOST_OF_A_NAME
from judgeq.judge.http.errors import REFUSED_KEY, error_for
from judgeq.judge.http.proxies import Proxy, proxy_for
from judgeq.judge.secrets import OWN_KEY, Mask, extra_headers
from judgeq.settings.model import Access
from judgeq.settings.providers import PREFIXED, PROVIDERS
from judgeq.types import Fields, Headers

KEEP_ALIVE = 4.0  # seconds; uvicorn, which vLLM runs on, closes idle connections after 5
CONNECT = 10.0  # seconds for a connection
LARGEST_REPLY = 16 * 1024 * 1024
OLLAMA_PORT = 11434
KEY_HEADERS = ("authorization", "x-api-key", "api-key")
"""Headers that let a request in, in small letters."""
Body = bytes | AsyncIterable[bytes] | None
_TEXT_PARTS = ("text", "output_text")
STALL_SECONDS = 1.0
"""A timeout that is noticed so much too late says that this process didn't run: the computer slept."""
STALL_GRACE_SECONDS = 10.0
"""Seconds in which what came meanwhile is read, before calls are given up."""
READING_SECONDS = 0.02
"""The same where it did run."""
# No such name, or one without an address, where the system tells that apart.
_UNKNOWN_NAME = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))


@asynccontextmanager
async def time_limit(seconds: float | None) -> AsyncIterator[None]:
    """Raise TimeoutError if what is done inside takes longer, while this process runs (None: no limit).

    aiohttp's own limit ends calls before it reads their answers, when both are due at once.
    """
    if seconds is None:
        yield
        return
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds

    def end() -> None:
        """End it once what came by now was read; that has more time where the loop stood still."""
        now = loop.time()
        stalled = now > deadline + STALL_SECONDS
        limit.reschedule(now + (STALL_GRACE_SECONDS if stalled else READING_SECONDS))

    timer = loop.call_at(deadline, end)
    try:
        async with asyncio.timeout(None) as limit:
            yield
    finally:
        timer.cancel()


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


def unsent_key() -> str:
    """Return that no key was sent, with the variables of keys that are set but are other providers'."""
    providers = [*PROVIDERS.values(), *PREFIXED.values()]
    unsent = [one for one in providers if one.key and os.environ.get(one.key, "").strip()]
    if not unsent:
        return (
            f"No API key was sent. Put it into ${OWN_KEY}, or name its variable by --api-key-env."
        )
    named = " ".join(f"{one.key} is used for {one.name} only." for one in unsent[:2])
    named = named.removesuffix(".")
    return f"No API key was sent. {named}; add --api-key-env {unsent[0].key} to send it here."


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
            aiohttp.ClientTimeout(total=None, sock_connect=self._connect, sock_read=part)
            for part in (None, self._timeout)
        )
        self._proxy: Proxy | None = None
        self._has_key = False
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
        self._proxy = proxy_for(self.address, self._access)
        tls = tls_of(self._access)
        self._has_key = secret is not None
        self.mask = Mask.of(self._access, secret, sent, self._proxy and self._proxy.address)
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
            async with (
                time_limit(None if long else self._timeout),
                self._session.request(
                    method,
                    url,
                    data=body,
                    headers={**self._sent, **(headers or {})},
                    proxy=self._proxy and self._proxy.address,
                    allow_redirects=False,
                    timeout=self._of_a_file if long else self._of_a_call,
                ) as response,
            ):
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
        error = error_for(*answer, model=self._model, url=url, now=time.time())
        sent = self._has_key or any(name.lower() in KEY_HEADERS for name in self._sent)
        if isinstance(error, KeyRefusedError) and not sent:
            words = str(error).removesuffix(REFUSED_KEY).rstrip()
            error = KeyRefusedError(f"{words} {unsent_key()}", cost=error.cost)
        return self.masked(error)

    def masked(self, error: JudgeError) -> JudgeError:
        """Return the error with its message masked: it may hold words that were put together."""
        error.args = (self.mask.text(str(error)),)
        return error

    def _broken(self, url: str, error: BaseException) -> JudgeError:
        """What aiohttp's errors mean: whether it was sent, and whether another try may mend it."""
        what = f"{url}: {self.mask.text(str(error)) or type(error).__name__}"
        by_proxy = ""
        if self._proxy is not None:
            by_proxy = f" It was asked through the proxy of {self._proxy.source}."
        match error:
            case aiohttp.ClientConnectorSSLError() if "WRONG_VERSION_NUMBER" in what:
                return RefusedRequestError(
                    f"{what}. What listens there speaks no TLS: is it http:// instead of https://?"
                    f"{by_proxy}"
                )
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
                    f"no connection to {url} within {self._connect:g} s.{by_proxy}",
                    cost=0.0,
                    unavailable=True,
                )
            case TimeoutError():
                return CallTimeoutError(
                    f"{url} did not answer in time (--timeout {self._timeout:g})."
                )
            case aiohttp.ClientConnectorError():
                full = error.errno in (errno.EMFILE, errno.ENFILE)  # too many open files, here
                nobody = self._nobody_there(error)
                return ConnectionFailedError(
                    nobody or f"no connection: {what}.{by_proxy}",
                    cost=0.0,
                    unavailable=True,
                    too_many=full,
                    misdirected=bool(nobody),
                )
        return ConnectionFailedError(f"the connection broke: {what}.{by_proxy}")

    def _nobody_there(self, error: aiohttp.ClientConnectorError) -> str:
        """Return that nothing listens at an address, or that its name isn't known; "" for another
        error. It may be the proxy's."""
        address, who, remedy = self.address, "", "is the server running, and --base-url right?"
        if self._proxy is not None:
            address, who = self._proxy.address, f"the proxy of {self._proxy.source}, "
            remedy = f"set {self._proxy.source} right, or name the server in $NO_PROXY."
        parts = urlsplit(address)
        port = "" if parts.port is None else f":{parts.port}"
        if self._proxy is None and parts.port == OLLAMA_PORT:
            remedy = "is Ollama running (`ollama serve`)?"
        place = self.mask.text(f"{who}{parts.scheme}://{parts.hostname}{port}")
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            if error.os_error.errno not in _UNKNOWN_NAME:
                return ""  # the name server may answer another time
            return (
                f"The name in {place} isn't known ({error.os_error.strerror or error.os_error}): "
                f"{remedy if self._proxy else 'is --base-url right, and is there a network?'}"
            )
        refused = isinstance(error.os_error, ConnectionRefusedError)
        if refused or error.os_error.errno == errno.ECONNREFUSED:
            return f"Nothing listens at {place}: {remedy}"
        return ""


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
    if fields is None and data.lstrip().startswith((b"data:", b"event:", b":")):
        raise ServerFailedError(
            f'{url} streams its answer, though it is sent "stream": false. Turn streaming off there, or '
            "in the gateway in between."
        )
    if fields is None:
        is_page = data.lstrip()[:1] == b"<"  # HTML: another program's address
        raise ServerFailedError(
            f"{url} answered with something other than a JSON object: "
            f"{data[:100].decode(errors='replace')!r}. Is --base-url right?",
            misdirected=is_page,
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
    if type(value) is float and value.is_integer():  # some write 900.0
        value = int(value)
    return value if type(value) is int and 0 <= value < 2**53 else None


def name_in(fields: Fields, name: str) -> str | None:
    """The beginning of a name; None where it doesn't say."""
    value = fields.get(name)
    return value[:MOST_OF_A_NAME] or None if isinstance(value, str) else None


def text_in(content: Any) -> str:
    """Return the text of a message's content: a string, parts of which some are text, or an object.

    An object that isn't a part is the answer itself, as some servers parse it for us.
    """
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        if content.get("type") not in _TEXT_PARTS:
            return json_bytes(content).decode()
        content = [content]
    parts = [part.get("text") for part in objects_in(content) if _is_text(part)]
    return "".join(part for part in parts if isinstance(part, str))


def _is_text(part: Fields) -> bool:
    """Return whether a part of a content is text, and no thinking."""
    return "type" not in part or part["type"] in _TEXT_PARTS


def json_bytes(value: Any) -> bytes:
    """Return a part of an answer as JSON; nothing for what nests too deep to be an answer."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return b""
