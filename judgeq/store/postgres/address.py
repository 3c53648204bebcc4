"""The address of a PostgreSQL store, and how it is shown: never with a password."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from judgeq.errors import RunError, UsageError
from judgeq.store.workers import LEASE

SCHEMA = "judgeq"
_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[^\[\]:@/?#,]*)(?::\d{1,5})?"
_ADDRESS = re.compile(
    rf"postgres(?:ql)?://(?:(?=([^@:/?#]*))([^@/?#]*@))?({_HOST}(?:,{_HOST})*)(/[^@?#]*)?(?:\?((?:[^#@=&]+=[^#&]*&?)*))?"
)
"""A user, their login up to its @, hosts, /database, and the parameters of an address."""
_SECRET = re.compile("password|secret")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_SECONDS = re.compile(r"[1-9]\d{0,4}(\.\d+)?")


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
    read = _ADDRESS.fullmatch(text)
    if read is None or not text.isprintable():
        raise UsageError(
            "--store can't be read as the address of a PostgreSQL database, "
            "postgresql://user@host:5432/database?schema=judgeq. In a user's name or password @ is "
            "written %40, / %2F, ? %3F and # %23."
        )
    user, login, hosts, path, query = (part or "" for part in read.groups())
    given = asked(query)
    schema, lease = given.pop("schema", SCHEMA), given.pop("lease", str(LEASE))
    if not _NAME.fullmatch(schema) or not _SECONDS.fullmatch(lease):
        raise UsageError(
            f"--store …?schema={schema}&lease={lease}: a schema's name is made of letters, digits and "
            "_, and doesn't begin with a digit; a lease is a number of seconds, 1 to 99999."
        )
    shown = {name: value for name, value in sorted(given.items()) if not _SECRET.search(name)}
    if schema != SCHEMA:
        shown["schema"] = schema
    conninfo = f"postgresql://{login}{hosts}{path}"
    label = f"postgresql://{user and f'{user}@'}{hosts}{path}"
    return Address(_with(conninfo, given, ""), schema, _with(label, shown, "/"), float(lease))


def _with(address: str, query: Mapping[str, str], safe: str) -> str:
    return f"{address}?{urlencode(query, quote_via=quote, safe=safe)}" if query else address


def asked(query: str) -> dict[str, str]:
    """The parameters of an address, as libpq reads them: + is no space."""
    return dict(parse_qsl(query.replace("+", "%2B"), keep_blank_values=True))


def unreachable(address: Address, error: Exception) -> RunError:
    """What says that the database can't be used, and why; without the password."""
    why = " ".join(str(error).split()) or type(error).__name__
    parts = urlsplit(address.conninfo)
    password = parts.password or ""
    given = [value for name, value in asked(parts.query).items() if _SECRET.search(name)]
    for secret in filter(None, (password, unquote(password), *given)):
        why = why.replace(secret, "•••")
    return RunError(f"{address.label} can't be used: {why.rstrip('.')}.")
