"""How people reach the page on which they judge: its links, also behind a reverse proxy, and which
requests come from it.

A link's token follows its "#", which browsers send to nobody: it is in no log, no Referer and no request
line. The page sends it with each call, in a header that no other site can set.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit

from aiohttp import web

from judgeq.errors import UsageError
from judgeq.settings.people import split_prefix
from judgeq.web.guard import OWN, Place, RefusedError, check_site, is_local, neighbourhood


@dataclass
class Entrance(Place):
    """Where the page is."""

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
            return check_site(request)
        if request.method != "POST":
            return None
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
        return None
