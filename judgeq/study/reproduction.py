"""The paper's published rows, made again from its published judgments (Haak and Schaer).

The authors' files are pickles. They are read only if their checksum is that of the published ones,
and by an unpickler that refuses every global: plain lists, dicts and numbers are all they hold.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import pickle
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np

from judgeq import config
from judgeq.datasets import Dataset, corpora
from judgeq.engine import import_run, results
from judgeq.engine.results import Result
from judgeq.errors import DataError
from judgeq.evaluation.evaluate import evaluate
from judgeq.evaluation.gold import Plan, gold_for
from judgeq.files import user_cache
from judgeq.imports import recordings
from judgeq.imports.recordings import Judgment, Recording
from judgeq.run_places import RunPlace
from judgeq.text import LEFT_OUT
from judgeq.types import Floats, Verdict

REPOSITORY = "https://raw.githubusercontent.com/HaakFab/bias_pc"
COMMIT = "a9de85f32620b57c944d200b48f2b2b63b7690bc"
THEIRS = "Their θ, evaluated here, give the published number"
NO_THETA = "Their θ are in the authors' .pkl files only, and were not evaluated here"


@dataclass(frozen=True, slots=True)
class Source:
    """One of the authors' files: where it lies in their repository, and what else it is called; and the
    published rows that are made of it. `judgments` is `recordings.checksum` of what it holds, whatever
    form it is in."""

    dataset: str
    path: str
    sha256: str
    judgments: str
    size: int
    names: Sequence[str]
    rows: Sequence[dict[str, Any]]


_PUBLISHED = Path(__file__).with_name("published.toml")
SOURCES = [Source(**one) for one in tomllib.loads(_PUBLISHED.read_text("utf-8"))["source"]]


@dataclass(frozen=True, slots=True)
class Number:
    """One published number beside ours. `theirs` is from their own ratings, evaluated by us: None
    where the file holds none. `why` says why ours differs; "" where it doesn't."""

    dataset: str
    row: str
    measure: str
    published: float
    ours: float | None
    theirs: float | None
    why: str
    JSON_KEYS: ClassVar = {"exact": "exact"}

    @property
    def exact(self) -> bool:
        """Whether ours is the published number, to its three decimals."""
        return self.ours is not None and f"{self.ours:.3f}" == f"{self.published:.3f}"


@dataclass(frozen=True, slots=True, eq=False)
class Reproduced:
    """One dataset's part: the run that was made of the judgments, and the numbers; or why not.

    `elo_equal` says whether all Elo ratings are the published ones to the last bit; None where the
    recording has no ratings beside it. `checked` says what was checked of the recording.
    """

    dataset: str
    run: RunPlace | None = field(metadata=LEFT_OUT)
    numbers: Sequence[Number]
    elo_equal: bool | None
    missing: str = ""
    checked: str = ""
    JSON_KEYS: ClassVar = {
        "run": "run_id",
        "elo_equal_to_the_last_bit": "elo_equal",
    }

    @property
    def run_id(self) -> str | None:
        """The run."""
        return None if self.run is None else self.run.id


def reproduce(
    recordings_dir: Path | None,
    data_dir: Path | None,
    runs_dir: Path,
    report: Callable[[str], None],
) -> list[Reproduced]:
    """All published rows. A dataset whose judgments or gold can't be had, or aren't what was published,
    is reported as missing."""
    parts = []
    for source in SOURCES:
        report(f"{source.dataset}: judgments of GPT-5-mini")
        try:
            path = _locate(source, recordings_dir)
            parts.append(_reproduced(source, path, data_dir, runs_dir, report))
        except DataError as error:
            parts.append(Reproduced(source.dataset, None, [], None, str(error)))
    return parts


def _locate(source: Source, folder: Path | None) -> Path:
    """The recording's file, downloaded if no folder is given. Raises DataError."""
    name = Path(source.path).name
    if folder is not None:
        names = (name, *source.names)
        for place in (folder, folder / "original", folder / Path(source.path).parent):
            for path in (place / name for name in names):
                if path.is_file():
                    return path
        raise DataError(f"--recordings {folder} holds none of {', '.join(names)}.")
    target = user_cache() / "recordings" / COMMIT[:12] / name
    if not target.is_file():
        url = f"{REPOSITORY}/{COMMIT}/{source.path}"
        if why := corpora.fetch(url, target, sha256=source.sha256, size=source.size):
            raise DataError(
                f"{url} can't be had: {why}. Get it by another way, and name its folder with "
                "--recordings."
            )
    return target


def _reproduced(
    source: Source,
    path: Path,
    data_dir: Path | None,
    runs_dir: Path,
    report: Callable[[str], None],
) -> Reproduced:
    published: list[Floats] = []
    checked = f"{path} is the authors' file, by its sha256"

    def read(dataset: Dataset) -> Recording:
        if path.suffix == ".jsonl":
            recording = recordings.read(path, dataset.ids)
            if recordings.checksum(recording.judgments) != source.judgments:
                raise DataError(f"{path} holds other judgments than the authors' {source.path}.")
            return recording
        judgments, *ratings = read_pickle(path, source.sha256, len(dataset))
        published.extend(ratings)
        return Recording(judgments, ())

    settings = config.settle({"dataset": source.dataset, "data_dir": data_dir, "rating": "bt-mm"})
    run, *_ = import_run.import_judgments(settings, read, runs_dir)
    report(f"{source.dataset}: rating {run.id} by Elo and bt-mm until it converges")
    opened = asyncio.run(results.read(run, settings))
    if opened.items.gold is None:
        raise DataError(f"{source.dataset} has no gold labels here.")
    theirs = dict(zip(("elo", "bt"), published, strict=False))
    measured = _measured(opened)
    by_theirs = _measured(replace(opened, scores=replace(opened.scores, ratings=theirs)))
    numbers = []
    for row in source.rows:
        for measure, value in row["published"].items():
            key = row["subset"], row["rating"], measure
            other, why = by_theirs.get(key), row["why"]
            if why:
                why += f". {NO_THETA if other is None else THEIRS}"
            name = row["name"]
            numbers.append(Number(source.dataset, name, measure, value, measured[key], other, why))
    ours = opened.scores.ratings["elo"]
    equal = bool(np.array_equal(ours, theirs["elo"])) if theirs else None
    if not theirs:
        checked = (
            f"{path} holds the judgments of the authors' {source.path}, by a checksum of what was "
            "judged; their ratings, which it doesn't hold, were not compared"
        )
    return Reproduced(source.dataset, run, numbers, equal, checked=checked)


def _measured(run: Result) -> dict[tuple[str, str, str], float | None]:
    """Every measure of a run's ratings against its gold, by subset, rating and measure."""
    plan = Plan(resamples=0)
    return {
        (assessment.items, assessment.rating, name): measured.value
        for assessment in evaluate(run, gold_for(run, plan), plan)
        for name, measured in assessment.measures.items()
    }


class _Plain(pickle.Unpickler):
    """Refuses every global: what it reads can't run code."""

    def find_class(self, module_name: str, global_name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it names {module_name}.{global_name}")


def read_pickle(path: Path, sha256: str, n: int) -> tuple[list[Judgment], Floats, Floats]:
    """The judgments, Elo and θ in one of the authors' files, over n items.

    Raises DataError unless the file is the published one.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}.") from error
    if (actual := hashlib.sha256(data).hexdigest()) != sha256:
        raise DataError(
            f"{path} is not the published file: expected sha256 {sha256}, got {actual}. It was not "
            "opened, for a pickle of somebody else's may run code."
        )
    try:
        elo, theta, _, lists = _Plain(io.BytesIO(data)).load()
        judgments = [_judgment(answer) for answer in lists]
        return judgments, _column(elo, n), _column(theta, n)
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError) as error:
        raise DataError(f"{path} holds something else than expected: {error}.") from error


def _judgment(answer: dict[str, Any]) -> Judgment:
    presented, ranked = (
        tuple(map(int, answer[f"{which}_indices"])) for which in ("input", "ranked")
    )
    return Judgment(int(answer["round"]), presented, Verdict(ranked))


def _column(values: dict[int, float], n: int) -> Floats:
    return np.array([float(values[row]) for row in range(n)])
