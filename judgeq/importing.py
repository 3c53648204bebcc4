"""A finished run made out of recorded judgments."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from judgeq import config, datasets, recordings, runs
from judgeq.config import Settings
from judgeq.datasets import Dataset
from judgeq.errors import DataError
from judgeq.recordings import Judgment
from judgeq.results import Judged
from judgeq.runs import RunFolder, RunInfo, whoami
from judgeq.store import Items
from judgeq.store.sqlite import SqliteStore
from judgeq.types import JobState, Matches, Outcome

LEAD_FOR = 600.0


Read = Callable[[Dataset], Sequence[Judgment]]


def import_file(
    settings: Settings, path: Path, root: Path, *, new: bool = False
) -> tuple[RunFolder, bool]:
    """As `import_judgments`, of a file. Raises DataError naming its line of what is wrong."""
    return import_judgments(settings, lambda data: recordings.read(path, data.ids), root, new=new)


def import_judgments(
    settings: Settings, read: Read, root: Path, *, new: bool = False
) -> tuple[RunFolder, bool]:
    """The run of the judgments that `read` gives on `settings.dataset`, and whether it was there
    before.

    It appears under `root` whole or not at all. Raises DataError or UsageError for a dataset that
    can't be had.
    """
    settings = settings.rooted()
    dataset = datasets.load(settings, seed=settings.seed)
    judgments = read(dataset)
    facts = {
        "version": 1,
        "dataset": dataset.content,
        "labels": dataset.labels,  # kept in the run, and what it is evaluated by
        "recording": recordings.checksum(judgments),
    }
    name = f"{dataset.name}-imported"
    folder = runs.place(root, name, config.fingerprint(facts), new)
    if folder.path.exists():
        return folder, True
    try:
        root.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".importing-", dir=root))
        # A level below: what a killed import leaves behind is not listed as a run.
        made = RunFolder(temporary / folder.id)
        made.path.mkdir()
    except OSError as error:
        raise DataError(f"{root} can't be written: {error.strerror}.") from error
    try:
        info = _info(settings, dataset, judgments, facts)
        asyncio.run(_fill(made, info, dataset, judgments))
        try:
            made.path.rename(folder.path)
        except OSError:
            if not folder.path.exists():
                raise
            return folder, True  # another process has just imported the same
    finally:
        shutil.rmtree(temporary)
    return folder, False


def _info(
    settings: Settings,
    dataset: Dataset,
    judgments: Sequence[Judgment],
    facts: dict[str, Any],
) -> RunInfo:
    names = _judges(judgments)
    return RunInfo.begun(
        settings,
        dataset,
        facts,
        strategy="imported",
        rounds=judgments[-1].round,
        imported=True,
        judges=() if names == [None] else tuple(name or "" for name in names),
    )


def _judges(judgments: Sequence[Judgment]) -> list[str | None]:
    """Who judged, in the order of their first judgments."""
    return list(dict.fromkeys(judgment.judge for judgment in judgments))


async def _fill(
    folder: RunFolder, info: RunInfo, dataset: Dataset, judgments: Sequence[Judgment]
) -> None:
    folder.write_info(info)
    store = SqliteStore(folder.database)
    numbers = {name: number for number, name in enumerate(_judges(judgments))}
    judged = Judged.begin(len(dataset), None, info.settings)
    first = 0
    try:
        epoch = await store.lead(whoami(), LEAD_FOR)
        await store.set_items(Items(dataset.ids, dataset.gold, dataset.subsets))
        for round_, some in groupby(judgments, key=lambda each: each.round):
            of_round = list(some)
            await store.plan_round(round_, epoch, judged.elo, _matches(of_round, numbers))
            outcomes = [
                Outcome(first + place, JobState.DONE, judgment.verdict)
                for place, judgment in enumerate(of_round)
            ]
            await store.settle(whoami(), outcomes)
            first += len(of_round)
            judged.add(await store.verdicts(round_))
    finally:
        await store.close()


def _matches(judgments: Sequence[Judgment], numbers: dict[str | None, int]) -> Matches:
    sizes = [len(judgment.presented) for judgment in judgments]
    return Matches(
        items=np.array([row for each in judgments for row in each.presented], dtype=np.int32),
        offsets=np.cumsum([0, *sizes], dtype=np.int64),
        judges=np.array([numbers[each.judge] for each in judgments], dtype=np.int32),
    )
