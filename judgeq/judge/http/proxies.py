"""Which proxy a server is asked through: --proxy, else the environment's as curl reads it."""

from __future__ import annotations

import os
from contextlib import suppress
from ipaddress import ip_address, ip_network
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies

from judgeq.errors import UsageError
from judgeq.judge.secrets import from_environment
from judgeq.settings.model import Access

PORTS = {"http": 80, "https": 443}


class Proxy(NamedTuple):
    """A proxy: its address, which may hold a password, and the setting that names it."""

    address: str
    source: str


def proxy_for(url: str, access: Access) -> Proxy | None:
    """Return the proxy of --proxy, else of the environment, or None.

    Raises UsageError for an address that can't be a proxy's; what may hold a password isn't repeated.
    """
    if access.proxy is not None:
        proxy = Proxy(from_environment(access.proxy, "--proxy"), "--proxy")
    else:
        found = _from_environment(url)
        if found is None:
            return None
        proxy = found
    with suppress(ValueError):  # a port that is no number, half an IPv6 address
        parts = urlsplit(proxy.address)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return proxy
    raise UsageError(
        f"{proxy.source} is no address of a proxy that judgeq can use: give one such as "
        "http://127.0.0.1:3128, or name this server in $NO_PROXY."
    )


def _from_environment(url: str) -> Proxy | None:
    """Return the proxy that variables name for an address, unless $NO_PROXY names its host."""
    parts = urlsplit(url)
    host = parts.hostname
    if not host or is_bypassed(host, parts.port or PORTS.get(parts.scheme), _no_proxy()):
        return None
    for name in (f"{parts.scheme}_proxy", "all_proxy"):
        for variable in (name, name.upper()):
            address = os.environ.get(variable, "").strip()
            # In capitals it is meant for other hosts: curl doesn't read $HTTP_PROXY at all.
            if address and not (variable.isupper() and _is_loopback(host)):
                return Proxy(address, f"${variable}")
    others = getproxies()  # macOS and Windows have settings of their own
    system = {} if any(name in os.environ for name in _variables()) else others
    address = system.get(parts.scheme, "")
    return Proxy(address, "the system's proxy") if address and not _is_loopback(host) else None


def _variables() -> list[str]:
    names = [f"{scheme}_proxy" for scheme in ("http", "https", "all")]
    return [*names, *map(str.upper, names)]


def _no_proxy() -> str:
    return os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""


def is_bypassed(host: str, port: int | None, no_proxy: str) -> bool:
    """Return whether a host is named in a NO_PROXY list: by name, domain, address, range, or *.

    An entry may end with a port, and then is for that port alone.
    """
    address = _address(host)
    for entry in no_proxy.replace(",", " ").split():
        if entry == "*":
            return True
        if address is not None and _is_in_range(address, entry):
            return True
        name, named_port = _with_port(entry)
        if named_port not in (None, port):
            continue
        if address is not None:
            if _address(name) == address:
                return True
            continue
        domain = name.lower().removeprefix("*").lstrip(".").rstrip(".")
        own = host.lower().rstrip(".")
        if domain and (own == domain or own.endswith(f".{domain}")):
            return True
    return False


def _is_in_range(address: object, entry: str) -> bool:
    if "/" not in entry:
        return False
    try:
        return address in ip_network(entry, strict=False)
    except ValueError:
        return False


def _with_port(entry: str) -> tuple[str, int | None]:
    """Return the host of an entry, and its port, if it has one."""
    if _address(entry) is not None:  # an IPv6 address has colons of its own
        return entry, None
    host, colon, port = entry.rpartition(":")
    return (host, int(port)) if colon and port.isdecimal() else (entry, None)


def _address(host: str) -> object | None:
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
