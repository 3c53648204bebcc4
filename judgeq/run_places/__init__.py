"""Runs and their places: folders, or the rows of a database. Nothing above asks which it is."""

from __future__ import annotations

from pathlib import Path

from judgeq.run_places.folders import FolderRuns as FolderRuns
from judgeq.run_places.folders import RunFolder as RunFolder
from judgeq.run_places.folders import id_of as id_of
from judgeq.run_places.folders import name_of as name_of
from judgeq.run_places.folders import network_file_system as network_file_system
from judgeq.run_places.folders import whoami as whoami
from judgeq.run_places.info import RunInfo as RunInfo
from judgeq.run_places.stored import StoredRuns

RunPlace = RunFolder
Runs = FolderRuns


def runs_in(root: Path, store: str | None = None) -> Runs:
    """The runs under a folder; or in the PostgreSQL database of this address, whose results then go
    under the folder; "" is none. Raises UsageError for an address that is none."""
    return StoredRuns.at(store, root) if store else FolderRuns(root)
