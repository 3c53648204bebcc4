"""Runs and their places: folders, or the rows of a database. Nothing above asks which it is."""

from __future__ import annotations

from pathlib import Path

from judgeq.runs.folders import FolderRuns as FolderRuns
from judgeq.runs.folders import RunFolder as RunFolder
from judgeq.runs.folders import network_file_system as network_file_system
from judgeq.runs.info import RunInfo as RunInfo
from judgeq.runs.places import RunPlace as RunPlace
from judgeq.runs.places import Runs as Runs
from judgeq.runs.places import whoami as whoami


def runs_in(root: Path, store: str | None = None) -> Runs:
    """The runs under a folder; or in the PostgreSQL database of this address, whose results then go
    under the folder; "" is none. Raises UsageError for an address that is none."""
    if not store:
        return FolderRuns(root)
    from judgeq.runs.stored import StoredRuns  # not needed for folders

    return StoredRuns.at(store, root)
