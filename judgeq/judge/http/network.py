"""The way to a server: proxies, certificates to trust, and whether anything listens there."""

from __future__ import annotations

import asyncio
import errno
import re
import ssl
from contextlib import suppress
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from judgeq.errors import UsageError
from judgeq.files import ordinary
from judgeq.judge.model import from_environment
from judgeq.settings.model import Access

_NOBODY = {
    *(errno.ECONNREFUSED, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT),
    *(errno.ENETUNREACH, errno.EHOSTUNREACH),
}


def proxy_for(url: str, access: Access) -> str | None:
    """The proxy of --proxy, else the environment's as curl reads it.

    Raises UsageError for one that can't be; what may hold a password is not repeated.
    """
    if access.proxy is not None:
        return _proxy_address(from_environment(access.proxy, "--proxy"), "--proxy")
    parts = urlsplit(url)
    if not parts.hostname or proxy_bypass(parts.hostname):
        return None
    known = getproxies()
    proxy = known.get(parts.scheme) or known.get("all")
    return proxy and _proxy_address(proxy, f"${parts.scheme.upper()}_PROXY or $ALL_PROXY")


def _proxy_address(proxy: str, where: str) -> str:
    with suppress(ValueError):  # a port that is no number, half an IPv6 address
        parts = urlsplit(proxy)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
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


async def connects(host: str, port: int, seconds: float) -> bool | None:
    """Whether something listens there: True, False where it is refused, None where it can't be said."""
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return None
    except OSError as error:  # of several addresses it names all errors
        numbers = set(map(int, re.findall(r"\[Errno (\d+)\]", str(error))))
        return False if errno.ECONNREFUSED in numbers and numbers <= _NOBODY else None
    writer.close()
    with suppress(OSError):  # it may be torn down at once: something was there
        await writer.wait_closed()
    return True
