"""The address of a PostgreSQL store, and how it is shown: never with a password."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from judgeq.errors import RunError, UsageError

SCHEMA = "judgeq"
LEASE = 60.0
"""Seconds for which a worker, or the scheduler, is believed to live without a sign of it."""
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:@]*)(:\d{1,5})?")
_SECRET = re.compile("password|secret")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


class Address(NamedTuple):
    """Where a store is: `conninfo` for psycopg, which may hold a password; the schema; the address
    without secrets, as it may be shown, written down and given again; the seconds of a lease; and those
    for which it is tried again where the database is away."""

    conninfo: str
    schema: str
    label: str
    lease: float = LEASE
    patience: float = 0.0

    def __repr__(self) -> str:
        return self.label


def is_address(text: str) -> bool:
    """Whether this names a PostgreSQL store."""
    return text.startswith(("postgresql://", "postgres://"))


def parse(text: str) -> Address:
    """The address in a URL: postgresql://[user[:password]@][host[:port]]/database[?schema=…&lease=…].

    Raises UsageError for what is none; the message never holds the password.
    """
    if not is_address(text):
        raise UsageError(
            "--store takes the address of a PostgreSQL database, "
            "postgresql://user@host:5432/database?schema=judgeq"
        )
    unread = "--store can't be read as an address"
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise UsageError(f"{unread}: {error}.") from None
    if not text.isprintable():
        raise UsageError(f"{unread}: it holds what can't be printed.")
    login, _, hosts = parts.netloc.rpartition("@")
    if not all(map(_HOST.fullmatch, hosts.split(","))):
        raise UsageError(f"{unread}: a host is HOST or HOST:PORT.")
    given = asked(parts.query)
    if any("@" in part for part in (login, parts.path, *dict(given))) or "#" in text:
        raise UsageError(
            f"{unread}: in a user's name or password @ is written %40, / %2F, ? %3F and # %23."
        )
    schema = dict(given).get("schema", SCHEMA)
    if not _NAME.fullmatch(schema):
        raise UsageError(
            f"--store …?schema={schema}: a schema's name is made of letters, digits and _, and doesn't "
            "begin with a digit."
        )
    rest = _query([(name, value) for name, value in given if name not in ("schema", "lease")])
    conninfo = parts._replace(scheme="postgresql", query=rest).geturl()
    said = sorted(
        (name, value)
        for name, value in given
        if not _SECRET.search(name) and name != "lease" and (name, value) != ("schema", SCHEMA)
    )
    user = login.partition(":")[0]
    netloc = f"{user}@{hosts}" if user else hosts
    shown = parts._replace(
        scheme="postgresql", netloc=netloc, query=_query(said, safe="/")
    ).geturl()
    return Address(conninfo, schema, shown, _lease(dict(given).get("lease")))


def asked(query: str) -> list[tuple[str, str]]:
    """The parameters of an address, as libpq reads them: + is no space."""
    return parse_qsl(query.replace("+", "%2B"), keep_blank_values=True)


def _query(given: list[tuple[str, str]], safe: str = "") -> str:
    return urlencode(given, quote_via=quote, safe=safe)


def _lease(text: str | None) -> float:
    if text is None:
        return LEASE
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 86_400:
        raise UsageError(f"--store …?lease={text}: a lease is a number of seconds from 1 to 86400.")
    return seconds


def unreachable(address: Address, error: Exception) -> RunError:
    """What says that the database can't be used, and why; without the password."""
    lines = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()]
    why = " ".join(line if line.endswith((".", "?", ":")) else f"{line}." for line in lines)
    for secret in _secrets(address):
        why = why.replace(secret, "•••")
    return RunError(f"{address.label} can't be used: {why or f'{type(error).__name__}.'}")


def _secrets(address: Address) -> list[str]:
    parts = urlsplit(address.conninfo)
    given = [parts.password or "", unquote(parts.password or "")]
    given += [value for name, value in asked(parts.query) if _SECRET.search(name)]
    return [secret for secret in given if secret]
