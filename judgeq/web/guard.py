"""Who may ask the server for something: no page of another site, nobody by another name, and on an
address that others reach only whoever has the token.

A page that a user has open elsewhere can send requests to this machine. It can read none of the answers
(they say so by their headers), and those that a browser marks as another site's aren't answered at all.
A name of an attacker's that leads to this machine (DNS rebinding) is known by the Host header.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
from dataclasses import dataclass, field

from aiohttp import web

from judgeq.ui import html

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
"""Sec-Fetch-Site of requests that no other site made; browsers that are old send none."""


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


def in_address(host: str) -> str:
    """A host as it stands in an address: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


@dataclass
class Place:
    """Where a server is: `host` and `port` are those that are listened on."""

    host: str
    port: int

    @property
    def address_shown(self) -> str:
        """Where to find the server, without any secret."""
        host = socket.gethostname() if self.host in ANY else self.host
        return f"http://{in_address(host)}:{self.port}/"

    def names(self, request: web.Request) -> set[str]:
        """The Host headers that are answered. Where all addresses are listened on, the connection's own
        is: an attacker has a name to give, not this machine's address."""
        hosts = [self.host]
        if self.host in ANY:
            own = request.get_extra_info("sockname")
            hosts = [socket.gethostname(), *([own[0]] if own else [])]
        names = {in_address(host).lower() for host in (*LOCAL, *hosts)}
        return {f"{name}:{self.port}" for name in names} | (names if self.port == 80 else set())

    def check_name(self, request: web.Request) -> None:
        """Raises RefusedError for a request by a name that isn't this server's."""
        names = request.headers.getall("Host", [])
        if len(names) != 1 or names[0].lower() not in self.names(request):
            raise RefusedError(421, f"This server answers by the name {self.address_shown}.")


@dataclass
class Guard(Place):
    """What is asked of a request to read. `token` is None where none is needed; requests bring it in a
    header, which pages set by a script."""

    token: str | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        """Where to find the server, as a link; with the token, if there is one, which browsers keep."""
        return self.address_shown + ("" if self.token is None else f"#token={self.token}")

    def check(self, request: web.Request) -> None:
        """Raises RefusedError for a request that isn't to be answered."""
        self.check_name(request)
        if request.method not in ("GET", "HEAD"):
            raise RefusedError(405, "Nothing can be changed here: only GET and HEAD are answered.")
        check_site(request)
        if self.token is None or request.path.startswith("/assets/"):
            return
        if not _same(request.headers.get("Authorization", ""), f"Bearer {self.token}"):
            raise RefusedError(401, "Open the link that `judgeq serve` printed: it has the token.")


def check_site(request: web.Request) -> None:
    """Raises RefusedError where another site asks: it may lead here by a link, and no other way."""
    if request.headers.get("Sec-Fetch-Site") in OWN:
        return
    mode, use = (request.headers.get(f"Sec-Fetch-{name}") for name in ("Mode", "Dest"))
    if (mode, use) != ("navigate", "document"):
        raise RefusedError(403, "Another site's page may not ask for this.")


def _same(given: str, secret: str) -> bool:
    """Compared in a time that says nothing of where they differ."""
    return secrets.compare_digest(given.encode("utf-8", "surrogatepass"), secret.encode())


async def protect(_: web.Request, response: web.StreamResponse) -> None:
    """The headers that go with every answer; a page with a policy of its own keeps that."""
    for name, value in HEADERS.items():
        response.headers[name] = value
    response.headers.setdefault("Content-Security-Policy", html.POLICY)
