"""The files of a run's ledger: how they are opened, and what the errors of SQLite and the disk mean.

Whoever put them there, nothing but a run of ours is read, and nothing of it is run.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from judgeq.errors import RunError
from judgeq.files import refuse_links
from judgeq.store import damage, schema, vetting


def connect(
    path: Path, *, read_only: bool, make: bool = True, accept_damage: bool = False
) -> sqlite3.Connection:
    """A connection to `path`, which a writer may `make`.

    Raises RunError for a file that is no run's, or was changed by another program, or, unless that is
    accepted, doesn't add up; and OSError or sqlite3.Error as they come.
    """
    files = [path.with_name(path.name + more) for more in ("", "-wal", "-shm")]
    refuse_links(*files)
    make = make and not read_only
    if not make:
        _refuse_lost(path)
    if not read_only:
        _refuse_journal(path)
    address = (path.parent.resolve() / path.name).as_uri() + (_read_only(path) if read_only else "")
    connection = sqlite3.connect(address, uri=True, isolation_level=None, timeout=10)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        # Before anything is written: the file may be another program's.
        empty = schema.is_empty(connection)
        if not make or not empty:
            schema.check(connection, path)
            vetting.check(connection, path)
            if not accept_damage:
                damage.refuse(str(path), damage.of(connection))
        if not read_only:
            refuse_links(*files)  # nobody put one there meanwhile
            _make_writable(connection, empty)
    except BaseException:
        connection.close()
        raise
    return connection


def _refuse_lost(path: Path) -> None:
    """SQLite would take a file of no bytes for a new database, and delete the log beside it."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        log = path.with_name(path.name + "-wal")
        old = f" Move {log.name} away first: it belongs to the lost file." if log.exists() else ""
        raise RunError(f"{path} is missing: {schema.LOST}{old}") from None
    if not size:
        raise RunError(f"{path} is empty: {schema.LOST}")


def _make_writable(connection: sqlite3.Connection, empty: bool) -> None:
    if empty:  # a kill must leave no journal behind: see _refuse_journal
        connection.execute("PRAGMA journal_mode = MEMORY")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("PRAGMA temp_store = MEMORY")  # a file more might be one too many
    connection.execute("PRAGMA secure_delete = ON")  # a forgotten name isn't left in the file
    if empty:
        schema.make(connection)


def _refuse_journal(path: Path) -> None:
    """SQLite plays a rollback journal back when the database is opened, and deletes any file that it
    names. We leave none behind."""
    journal = path.with_name(path.name + "-journal")
    if os.path.lexists(journal):
        raise RunError(
            f"{journal} is a journal that judgeq doesn't make: another program wrote to the run, or "
            "somebody put it there. Remove it if you don't know it; nothing was changed."
        )


def _read_only(path: Path) -> str:
    """How to open a file for reading: where nobody may write, it can't change either, and SQLite
    must not try to keep its log there."""
    log = path.with_name(path.name + "-wal")
    settled = not os.access(path.parent, os.W_OK) and not log.exists()
    return "?mode=ro&immutable=1" if settled else "?mode=ro"


def problem(path: Path, error: Exception) -> RunError:
    """Our error for one of SQLite's, or of the disk's, which names the file."""
    hint = ""
    if "full" in str(error):
        hint = " Free some space; nothing committed is lost, and the run can be resumed."
    elif "not a database" in str(error) or "malformed" in str(error):
        hint = " The file is damaged or not a judgeq run."
    return RunError(f"{path}: {error}.{hint}")
