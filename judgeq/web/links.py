"""How the page on which people judge is reached: its links, also behind a reverse proxy, and which
requests are its own.

A link's token stands behind its "#", which browsers send to nobody: it is in no log, no Referer and no
request line. The page sends it along with each call, in a header that no other site can set, so that
no request is made with somebody's token unless the page makes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit

from aiohttp import web

from judgeq.errors import UsageError
from judgeq.settings.people import split_prefix
from judgeq.web.guard import OWN, Place, RefusedError, check_site, is_local
from judgeq.web.rates import neighbourhood

_TOKEN = re.compile(r"[\w.~+/=-]{1,200}", re.ASCII)


@dataclass
class Entrance(Place):
    """`site`: the address of a reverse proxy, without a path ("https://lab.example.org"); `path`: what
    stands before all paths ("/study1"). Both may be empty."""

    site: str = field(default="", kw_only=True)
    path: str = field(default="", kw_only=True)

    @classmethod
    def at(cls, host: str, port: int, prefix: str) -> Self:
        """`prefix`: a path, or a whole address. Raises UsageError for what is neither."""
        try:
            site, path = split_prefix(prefix)
        except ValueError as error:
            raise UsageError(f"--url-prefix: {error}.") from error
        return cls(host, port, site=site, path=path)

    @property
    def address_shown(self) -> str:
        """Where to find the page."""
        return (self.site or super().address_shown.rstrip("/")) + self.path + "/"

    @property
    def leads_here(self) -> bool:
        """Whether only this machine reaches it, as far as is known."""
        return not self.site and is_local(self.host)

    def link(self, token: str) -> str:
        """The page of whoever has this token."""
        return f"{self.address_shown}#{token}"

    def names(self, request: web.Request) -> set[str]:
        """The Host headers that are answered, that of the reverse proxy with and without a port."""
        proxy = urlsplit(self.site)
        return super().names(request) | (
            {proxy.netloc, proxy.hostname or ""} if self.site else set()
        )

    def client(self, request: web.Request) -> str:
        """For whom requests are counted: an address, with its neighbours; "" where it isn't known. The
        reverse proxy of `site` names it last in X-Forwarded-For, which is believed from this machine."""
        if not self.site:
            return neighbourhood(request.remote)
        named = request.headers.getall("X-Forwarded-For", [""])[-1].rpartition(",")[2].strip()
        return neighbourhood(named) if is_local(request.remote or "") else ""

    def check(self, request: web.Request) -> None:
        """Raises RefusedError for a request that isn't to be answered."""
        self.check_name(request)
        if request.method in ("GET", "HEAD"):
            check_site(request)
        elif request.method == "POST":
            self._check_call(request)

    def _check_call(self, request: web.Request) -> None:
        """Calls come from the page itself. Browsers say so by Sec-Fetch-Site on https and on this
        machine, and else by Origin."""
        site, origin = (request.headers.get(name) for name in ("Sec-Fetch-Site", "Origin"))
        own = site in OWN
        if own and site is None and origin is not None:
            own = urlsplit(origin.lower()).netloc in self.names(request)
        if not own:
            raise RefusedError(
                403,
                "This was asked by a page of another address. Whoever runs the study: name the address "
                "by which people reach it with --url-prefix.",
            )
        if request.content_type != "application/json":
            raise RefusedError(415, "Only JSON is taken.")


def token_of(request: web.Request) -> str | None:
    """The token that a request brings, if any."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token if scheme.lower() == "bearer" and _TOKEN.fullmatch(token) else None
