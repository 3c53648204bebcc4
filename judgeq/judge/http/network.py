"""The way to a server: proxies, and certificates to trust."""

from __future__ import annotations

import ssl
from contextlib import suppress
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from judgeq.errors import UsageError
from judgeq.files import ordinary
from judgeq.judge.model import from_environment
from judgeq.settings.model import Access


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
