"""A finished run made out of recorded judgments."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from judgeq import config, datasets, run_places, trust
from judgeq.config import Settings
from judgeq.datasets import Dataset
from judgeq.engine import admission
from judgeq.files import refuse_linked_folder
from judgeq.imports import recordings, votes
from judgeq.imports.recordings import Judgment, Numbers, Recording
from judgeq.run_places import RunInfo, RunPlace
from judgeq.store import Items
from judgeq.types import Matches, Verdict

Read = Callable[[Dataset], Recording]


class Imported(NamedTuple):
    """The run that was made; whether it was there before; sentences that the user should read."""

    folder: RunPlace
    before: bool
    notices: tuple[str, ...]


def reading(
    path: Path, numbers: Numbers | None = None, columns: votes.Columns | None = None
) -> Read:
    """What reads the judgments of a file: a table of votes or of best-worst answers with these
    `columns`; else a recording, and `numbers` as in `recordings.read`. Raises DataError naming its line
    of what is wrong."""

    def read(dataset: Dataset) -> Recording:
        if columns is not None:
            return votes.read(path, columns, dataset.ids, dataset.texts)
        return recordings.read(path, dataset.ids, numbers)

    return read


def import_judgments(
    settings: Settings, read: Read, root: Path, *, drop_identity: bool = False, new: bool = False
) -> Imported:
    """The run of the judgments that `read` gives on `settings.dataset`.

    With `drop_identity` lists that were ranked exactly as presented are left out, and it is the run of
    those that remain; else there is a notice where they are more than chance allows. The run appears in
    its place whole or not at all. Raises DataError or UsageError for a dataset that can't be had.
    """
    settings = settings.rooted()
    dataset = datasets.load(settings, seed=settings.seed)
    with _uncollected():
        recording = read(dataset)
    if drop_identity:
        recording = recordings.without_as_presented(recording)
    elif warning := recordings.too_many_as_presented(recording.judgments):
        recording = recording._replace(notices=(*recording.notices, warning))
    judgments, notices = recording
    notices = (*dataset.notices, *notices)
    facts = {
        "version": 1,
        "dataset": dataset.content,
        "labels": dataset.labels,  # kept in the run, and what it is evaluated by
        "recording": recordings.checksum(judgments),
    }
    if dataset.groups is not None:
        recordings.check_groups(judgments, dataset.groups)
        facts["groups"] = dataset.grouping
    name = f"{dataset.name}-imported"
    there = run_places.runs_in(root, settings.store)
    folder = there.place(name, config.fingerprint(facts), new)
    admission.check_name(settings.name, folder, there)
    refuse_linked_folder(folder.path)
    made = False
    if not folder.exists:
        names = list(dict.fromkeys(judgment.judge for judgment in judgments))
        info = RunInfo.begun(
            settings,
            dataset,
            facts,
            strategy="imported",
            rounds=judgments[-1].round,
            imported=True,
            judges=() if names == [None] else tuple(name or "" for name in names),
        )
        items = Items(dataset.ids, dataset.gold, dataset.subsets, dataset.groups)
        with _uncollected():
            made = asyncio.run(folder.record(info, items, _rounds(judgments, names)))
    trust.remember(folder, config.fingerprint(facts), settings)
    return Imported(folder, not made, notices)  # where another process has just imported the same


@contextmanager
def _uncollected() -> Iterator[None]:
    """While inside Python looks for no garbage: there is none in millions of new tuples, and to look
    takes a third of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _rounds(
    judgments: Sequence[Judgment], names: Sequence[str | None]
) -> Iterator[tuple[Matches, list[Verdict]]]:
    """What was asked in each round, of judges by their numbers among these names, and the answers."""
    numbers = {name: number for number, name in enumerate(names)}
    for _, group in groupby(judgments, key=lambda judgment: judgment.round):
        of_round = list(group)
        presented = [one.presented for one in of_round]
        matches = Matches(
            items=np.array([row for rows in presented for row in rows], dtype=np.int32),
            offsets=np.cumsum([0, *map(len, presented)], dtype=np.int64),
            judges=np.array([numbers[one.judge] for one in of_round], dtype=np.int32),
            ordered=np.array([one.ordered for one in of_round], dtype=np.bool_),
        )
        yield matches, [one.verdict for one in of_round]
