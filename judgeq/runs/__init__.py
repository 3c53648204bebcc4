"""Runs and their places: folders, or the rows of a database. Nothing above asks which it is."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from judgeq.runs.folders import FolderRuns as FolderRuns
from judgeq.runs.folders import RunFolder as RunFolder
from judgeq.runs.folders import network_file_system as network_file_system
from judgeq.runs.folders import whoami as whoami
from judgeq.runs.info import RunInfo as RunInfo
from judgeq.runs.place import id_of as id_of
from judgeq.runs.place import name_of as name_of
from judgeq.runs.stored import StoredRun, StoredRuns

RunPlace: TypeAlias = RunFolder | StoredRun
Runs: TypeAlias = FolderRuns | StoredRuns


def runs_in(root: Path, store: str | None = None) -> Runs:
    """The runs under a folder; or in the PostgreSQL database of this address, whose results then go
    under the folder; "" is none. Raises UsageError for an address that is none."""
    return StoredRuns.at(store, root) if store else FolderRuns(root)
