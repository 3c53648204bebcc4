"""Who may ask a server of ours for something, and how often: no page of another site, nobody by another
name, and on an address that others reach only those who have a token.

A page that a user has open elsewhere can send requests to this machine. It can read none of the answers
(their headers forbid it), and what a browser marks as another site's request is not answered. An
attacker's name that leads to this machine (DNS rebinding) is recognised by the Host header.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import re
import secrets
import socket
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from judgeq.errors import UsageError
from judgeq.escaping import multiline
from judgeq.settings.run import split_prefix
from judgeq.ui import html
from judgeq.web.connections import (
    ConnectionLimits,
    Connections,
    Handler,
    WatchedConnection,
    watch,
)

HEADERS = {
    "Cache-Control": "private, no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Server": "judgeq",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
LOCAL = ("localhost", "127.0.0.1", "::1")
ANY = ("0.0.0.0", "::", "")  # noqa: S104  (recognised, not bound)
OWN = ("same-origin", "none", None)
"""Sec-Fetch-Site of requests that no other site made; old browsers send none."""
_TOKEN = re.compile(r"[\w.~+/=-]{1,200}", re.ASCII)


class RefusedError(Exception):
    """A request that isn't answered: the status, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def is_local(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return host in LOCAL or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return False


def token_of(request: web.Request) -> str:
    """The token in a request's header; "" without one."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token if scheme.lower() == "bearer" and _TOKEN.fullmatch(token) else ""


@dataclass
class Place:
    """Where a server listens."""

    host: str
    port: int

    @property
    def address_shown(self) -> str:
        """The server's address, without any secret."""
        host = socket.gethostname() if self.host in ANY else self.host
        return f"http://{_in_address(host)}:{self.port}/"

    def names(self, request: web.Request) -> set[str]:
        """The Host headers that are answered. A server that listens on all addresses also answers by
        the connection's own: an attacker can give a name, not this machine's address."""
        hosts = [self.host]
        if self.host in ANY:
            own = request.get_extra_info("sockname")
            hosts = [socket.gethostname(), *([own[0]] if own else [])]
        names = {_in_address(host).lower() for host in (*LOCAL, *hosts)}
        return {f"{name}:{self.port}" for name in names} | (names if self.port == 80 else set())

    def check_name(self, request: web.Request) -> None:
        """Raises RefusedError for a request by another name than this server's."""
        names = request.headers.getall("Host", [])
        if len(names) != 1 or names[0].lower() not in self.names(request):
            raise RefusedError(421, f"The address of this server is {self.address_shown}.")


@dataclass
class Guard(Place):
    """The checks of a server that can only be read. `token` is None if none is needed; requests bring it
    in a header, which the pages' script sets."""

    token: str | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        """The server's address as a link; with the token, if there is one, which browsers keep."""
        return self.address_shown + ("" if self.token is None else f"#token={self.token}")

    def check(self, request: web.Request) -> None:
        """Raises RefusedError for a request that isn't answered."""
        self.check_name(request)
        if request.method not in ("GET", "HEAD"):
            raise RefusedError(405, "Nothing can be changed here: only GET and HEAD are answered.")
        check_site(request)
        if self.token is None or request.path.startswith("/assets/"):
            return
        if not secrets.compare_digest(token_of(request), self.token):
            raise RefusedError(401, "Open the link that `judgeq serve` printed: it has the token.")


def check_site(request: web.Request) -> None:
    """Raises RefusedError if another site asks: it may lead here by a link, and in no other way."""
    if request.headers.get("Sec-Fetch-Site") in OWN:
        return
    mode, use = (request.headers.get(f"Sec-Fetch-{name}") for name in ("Mode", "Dest"))
    if (mode, use) != ("navigate", "document"):
        raise RefusedError(403, "A page of another site may not ask for this.")


@dataclass
class Entrance(Place):
    """Where the page is on which people judge, also behind a reverse proxy, and which requests come from
    it.

    A link's token follows its "#", which browsers send to nobody: it is in no log, no Referer and no
    request line. The page sends it with each call, in a header that no other site can set."""

    site: str = field(default="", kw_only=True)
    """The address of a reverse proxy, without a path ("https://lab.example.org"), or ""."""
    path: str = field(default="", kw_only=True)
    """The beginning of all paths ("/study1"), or ""."""

    @classmethod
    def at(cls, host: str, port: int, prefix: str) -> Self:
        """`prefix`: a path, or a whole address. Raises UsageError for anything else."""
        try:
            site, path = split_prefix(prefix)
        except ValueError as error:
            raise UsageError(f"--url-prefix: {error}.") from error
        return cls(host, port, site=site, path=path)

    @property
    def address_shown(self) -> str:
        """The address of the page."""
        return (self.site or super().address_shown.rstrip("/")) + self.path + "/"

    @property
    def is_only_here(self) -> bool:
        """Whether only this machine reaches the page, as far as judgeq can tell."""
        return not self.site and is_local(self.host)

    def link(self, token: str) -> str:
        """The link of the person who has this token."""
        return f"{self.address_shown}#{token}"

    def names(self, request: web.Request) -> set[str]:
        """The Host headers that are answered; the reverse proxy's with and without a port."""
        proxy = urlsplit(self.site)
        own = {proxy.netloc, proxy.hostname or ""} if self.site else set()
        return super().names(request) | own

    def client(self, request: web.Request) -> str:
        """The client that a request is counted for; "" if it isn't known. The reverse proxy of `site`,
        which has to be on this machine, gives it as the last of X-Forwarded-For."""
        if not self.site:
            return neighbourhood(request.remote)
        forwarded = request.headers.getall("X-Forwarded-For", [""])[-1].rpartition(",")[2].strip()
        return neighbourhood(forwarded) if is_local(request.remote or "") else ""

    def check(self, request: web.Request) -> None:
        """Raises RefusedError for a request that isn't answered. Calls come from the page itself:
        browsers say so by Sec-Fetch-Site on https and on this machine, and else by Origin."""
        self.check_name(request)
        if request.method in ("GET", "HEAD"):
            check_site(request)
        if request.method != "POST":
            return
        site, origin = (request.headers.get(name) for name in ("Sec-Fetch-Site", "Origin"))
        own = site in OWN
        if own and site is None and origin is not None:
            own = urlsplit(origin.lower()).netloc in self.names(request)
        if not own:
            raise RefusedError(
                403,
                "A page at another address asked for this. Whoever runs the study: give the address "
                "that people open with --url-prefix.",
            )
        if request.content_type != "application/json":
            raise RefusedError(415, "Only JSON is read.")


class Rates:
    """How often each client may ask: `burst` requests at once, which fill up again at `rate` a second.
    Of more than `most` clients those who asked longest ago are forgotten."""

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float], *, most: int = 10_000
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._most = most
        self._clients: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """Take a request: 0.0, or the seconds until there is one to take."""
        left = self._left(client)
        ready = left >= 1
        self._put(client, left - ready)
        return 0.0 if ready else (1 - left) / self._rate

    def give_back(self, client: str) -> None:
        """Don't count the last request."""
        self._put(client, min(self._burst, self._left(client) + 1))

    def _left(self, client: str) -> float:
        left, at = self._clients.get(client, (self._burst, self._clock()))
        return min(self._burst, left + (self._clock() - at) * self._rate)

    def _put(self, client: str, left: float) -> None:
        self._clients[client] = (left, self._clock())
        self._clients.move_to_end(client)
        if len(self._clients) > self._most:
            self._clients.popitem(last=False)


def neighbourhood(address: str | None) -> str:
    """The client that requests of an address are counted for: IPv6 gives everybody 2^64 addresses."""
    try:
        version = ipaddress.ip_address(address or "")
    except ValueError:
        return address or ""
    if version.version == 4:
        return str(version)
    return str(ipaddress.ip_network((version, 64), strict=False))


def response(content: str, kind: str = "text/html") -> web.Response:
    """A page of ours, or what belongs to one."""
    return web.Response(text=content, content_type=kind, charset="utf-8")


def refusal(status: int, why: str, wait: int = 0) -> web.Response:
    """Why a call isn't answered, and in how many seconds to try again."""
    headers = {"Retry-After": str(wait)} if wait else None
    return web.json_response({"error": why}, status=status, headers=headers)


def assets(files: Mapping[str, str]) -> Handler:
    """What answers requests for these style sheets and scripts, by name."""

    async def asset(request: web.Request) -> web.Response:
        file = files.get(request.match_info["name"])
        if file is None:
            raise web.HTTPNotFound
        kind = "text/css" if file.endswith(".css") else "text/javascript"
        return response(html.asset(file), kind)

    return asset


async def protect(_: web.Request, response: web.StreamResponse) -> None:
    """Set the headers of every answer; a page with a policy of its own keeps that."""
    for name, value in HEADERS.items():
        response.headers[name] = value
    response.headers.setdefault("Content-Security-Policy", html.POLICY)


def logger(name: str) -> logging.Logger:
    """What logs bugs of ours, escaped for a terminal: no requests, and nothing that strangers send which
    isn't HTTP."""

    class Visible(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return multiline(super().format(record))

    def is_ours(record: logging.LogRecord) -> bool:
        return not isinstance((record.exc_info or (None, None))[1], HttpProcessingError)

    logger = logging.Logger(f"judgeq.{name}", logging.ERROR)
    handler = logging.StreamHandler()
    handler.setFormatter(Visible(f"judgeq {name}: %(message)s"))
    handler.addFilter(is_ours)
    logger.addHandler(handler)
    return logger


@asynccontextmanager
async def listening(
    app: web.Application,
    host: str,
    port: int,
    log: logging.Logger,
    *,
    limits: ConnectionLimits | None = None,
    behind_proxy: bool = False,
) -> AsyncIterator[int]:
    """Serve the app while inside, and yield the port, which for 0 is any free one.

    `behind_proxy`: connections from this machine are a reverse proxy's, and aren't counted for one
    address. `limits` are those of the process if none are given. Raises OSError if it can't listen.
    """

    def address_of(peer: str) -> str:
        return "" if behind_proxy and is_local(peer) else neighbourhood(peer)

    app.on_response_prepare.append(protect)
    app.middlewares.insert(0, watch)
    connections = Connections(limits or ConnectionLimits.of_process(), address_of)
    runner = web.AppRunner(
        app, access_log=None, logger=log, shutdown_timeout=1.0, handle_signals=False
    )
    await runner.setup()
    server = runner.server
    if server is None:
        raise RuntimeError("the runner made no server")
    try:
        listener = await asyncio.get_running_loop().create_server(
            lambda: WatchedConnection(server, connections, log), host or None, port
        )
        try:
            yield listener.sockets[0].getsockname()[1]
        finally:
            listener.close()
    finally:
        await runner.cleanup()


def unable(host: str, port: int, error: OSError) -> UsageError:
    """That nothing can listen there, and what to do."""
    what = f"can't listen on {host}, port {port}"
    if error.errno == errno.EADDRINUSE:
        return UsageError(f"{what}: it is in use. Give another --port; 0 takes any free one.")
    reason = error.strerror or str(error)
    return UsageError(f"{what}: {reason}. Give another --port, or a --host of this machine.")


def _in_address(host: str) -> str:
    """A host as addresses have it: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host
