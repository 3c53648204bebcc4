"""Runs put in a place whole: made in a folder beside, or copied between folders and stores."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from judgeq import prompts
from judgeq.errors import DataError, RunError, UsageError
from judgeq.files import refuse_linked_folder
from judgeq.run_places.folders import FolderRuns, RunFolder
from judgeq.run_places.stored import StoredRun
from judgeq.store.postgres import copying


@contextmanager
def staging(root: Path, name: str) -> Iterator[RunFolder]:
    """A folder for a run that is being made under `root`, which is not listed as one; gone afterwards,
    unless it was put in its place. Raises DataError where it can't be made."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".importing-", dir=root))
        # A level below: what a killed process leaves behind is not listed as a run.
        made = RunFolder(temporary / name)
        made.path.mkdir()
    except OSError as error:
        raise DataError(f"{root} can't be written: {error.strerror}.") from error
    try:
        yield made
    finally:
        shutil.rmtree(temporary)


def put(made: RunFolder, place: RunFolder) -> bool:
    """Put a run that was made in a folder in its place, whole or not at all; False where there is one,
    which another process has just put there. Raises as the store does."""
    try:
        if isinstance(place, StoredRun):
            _to_store(made, place)
        else:
            made.path.rename(place.path)
    except (OSError, RunError):
        if not place.exists and not place.path.exists():
            raise
        return False
    return True


def copy(run: RunFolder, to: FolderRuns) -> RunFolder:
    """Copy a run between a folder and a store. The copy's place.

    Raises RunError while a process leads or works on the run, and where one of its name is there
    already; UsageError for a copy within folders, or from one store to another.
    """
    place = to.called(run.id)
    if isinstance(run, StoredRun) is isinstance(place, StoredRun):
        raise UsageError(
            "a run is copied between a folder and a store: --to takes a store's address for a run in a "
            "folder, and a folder for a run in a store (--store)."
        )
    if isinstance(place, StoredRun):
        with run.locked():
            _to_store(run, place)
    elif isinstance(run, StoredRun):
        _to_folder(run, place, to.root)
    return place


def _to_store(run: RunFolder, place: StoredRun) -> None:
    info, prompt = run.info(), None
    if info.facts.get("prompt"):  # the set that it was begun with, as a store keeps it
        try:
            prompt = prompts.of_facts(info.facts).model_dump_json()
        except (TypeError, ValueError) as error:
            raise RunError(f"the run's prompt set can't be read: {error}.") from error
    text = info.model_dump_json(indent=2)
    copying.to_store(run.database, place.address, place.id, info.fingerprint, text, prompt)


def _to_folder(run: StoredRun, folder: RunFolder, root: Path) -> None:
    refuse_linked_folder(folder.path)
    there = RunError(f"{folder.path} is there already. Nothing was changed.")
    if folder.exists:
        raise there
    with staging(root, run.id) as made:
        made.write_info(run.info().model_copy(update={"shared": ""}))
        copying.to_file(run.address, run.id, made.database)
        if folder.path.is_dir():  # of its results
            for path in (made.database, made.config):
                path.rename(folder.path / path.name)
        elif not put(made, folder):
            raise there
