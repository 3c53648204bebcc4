"""Stores: the databases that keep a run's facts, opened here and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from judgeq.store.protocol import Items as Items
from judgeq.store.protocol import Spent as Spent
from judgeq.store.sql_store import Store as Store
from judgeq.store.sqlite import SqliteStore, connect, reported

if TYPE_CHECKING:
    from judgeq.store.postgres.address import Address

DATABASE = "run.db"
"""The file of a run's folder that holds its facts."""


def open_store(
    folder: Path, *, read_only: bool = False, make: bool = True, accept_damage: bool = False
) -> Store:
    """The store of the run in `folder`; a writer must hold the run's lock, and makes it if it
    may be. Raises RunError if it can't be opened, or is damaged and that isn't
    accepted."""
    path = folder / DATABASE
    return SqliteStore(path, read_only=read_only, make=make, accept_damage=accept_damage)


def make_store(folder: Path) -> None:
    """Make the store of a run that begins in `folder`, unless it is there; it is on the disk then.
    Raises RunError."""
    path = folder / DATABASE
    with reported(path):
        connect(path, read_only=False).close()


def open_stored(address: Address, run: int, name: str, *, damage: Sequence[str] = ()) -> Store:
    """The store of the run of this number and name in a PostgreSQL database."""
    from judgeq.store.postgres.store import PostgresStore  # not needed for folders

    return PostgresStore(address, run, name=name, damage=damage)
