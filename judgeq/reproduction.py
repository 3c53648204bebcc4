"""The paper's published rows, made again from its published judgments (Haak and Schaer).

The authors' files are pickles. They are read only if their checksum is that of the published ones,
and by an unpickler that refuses every global: plain lists, dicts and numbers are all they hold.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np

from judgeq import config, evaluation, importing, recordings, results
from judgeq.datasets import Dataset, download
from judgeq.errors import DataError
from judgeq.paths import user_cache
from judgeq.rating import metrics
from judgeq.recordings import Judgment
from judgeq.runs import RunFolder
from judgeq.types import Floats, Verdict

REPOSITORY = "https://raw.githubusercontent.com/HaakFab/bias_pc"
COMMIT = "a9de85f32620b57c944d200b48f2b2b63b7690bc"
EARLY = (
    "the authors' fit was stopped before it converged; ours goes on until no θ changes by more than "
    "1e-6. Their θ, evaluated here, give the published number"
)


@dataclass(frozen=True, slots=True)
class Source:
    """One of the authors' files: where it lies in their repository, and what else it is called."""

    dataset: str
    path: str
    sha256: str
    size: int
    names: tuple[str, ...]


SOURCES = (
    Source(
        "babe",
        "BABE/5mini_10listwise3_clean.pkl",
        "437ae1d9c319bf1fa41f38f2fed3bf59affc4179624e2ad88ae681d34d03dbe1",
        223_044,
        ("babe_5mini_10listwise3_clean.pkl", "babe_gpt-5-mini_listwise10x3.jsonl"),
    ),
    Source(
        "us_vs_them",
        "USvsTHEM/listwise_10_3_mini.pkl",
        "692f7a08a244ea2416ca7b5b5fa03f7affa91b0022e286948e2edffc77b01616",
        136_231,
        ("usvsthem_listwise_10_3_mini.pkl", "us_vs_them_gpt-5-mini_listwise10x3.jsonl"),
    ),
)


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

    @property
    def exact(self) -> bool:
        """Whether ours is the published number, to its three decimals."""
        return self.ours is not None and f"{self.ours:.3f}" == f"{self.published:.3f}"


Published = tuple[str, Literal["elo", "bt"], str, str, float, str]
# Row, rating, subset, measure, published number, why ours differs.
ROWS: dict[str, tuple[Published, ...]] = {
    "babe": (
        ("mini_listwise_Elo", "elo", "all", "recall", 0.783, ""),
        ("mini_listwise_Elo", "elo", "all", "accuracy", 0.779, ""),
        ("mini_listwise_Elo", "elo", "all", "precision", 0.772, ""),
        ("mini_listwise_Elo", "elo", "all", "f1", 0.778, ""),
        ("mini_listwise_BT", "bt", "all", "recall", 0.844, EARLY),
        ("mini_listwise_BT", "bt", "all", "accuracy", 0.803, EARLY),
        ("mini_listwise_BT", "bt", "all", "precision", 0.776, EARLY),
        ("mini_listwise_BT", "bt", "all", "f1", 0.808, EARLY),
    ),
    "us_vs_them": (
        ("Elo, all comments", "elo", "all", "pearson", 0.564, ""),
        ("Elo, critical", "elo", "critical", "pearson", 0.501, ""),
        (
            "BT, all comments",
            "bt",
            "all",
            "pearson",
            0.593,
            f"{EARLY}. The paper's Table 3 prints 0.537, which the authors' own files don't give",
        ),
        ("BT, critical", "bt", "critical", "pearson", 0.536, EARLY),
    ),
}


@dataclass(frozen=True, slots=True, eq=False)
class Reproduced:
    """One dataset's part: the run that was made of the judgments, and the numbers; or why not.

    `elo_equal` tells whether all Elo ratings are the published ones to the last bit; None where the
    recording has no ratings beside it.
    """

    dataset: str
    run: RunFolder | None
    numbers: Sequence[Number]
    elo_equal: bool | None
    missing: str = ""


def reproduce(
    recordings_dir: Path | None,
    data_dir: Path | None,
    runs_dir: Path,
    tell: Callable[[str], None],
) -> list[Reproduced]:
    """All published rows. A dataset whose judgments or gold can't be had is told as missing.

    Raises DataError for a file that isn't what was published.
    """
    found = []
    for source in SOURCES:
        tell(f"{source.dataset}: judgments of GPT-5-mini")
        path, why = _locate(source, recordings_dir)
        if path is None:
            found.append(Reproduced(source.dataset, None, [], None, why))
            continue
        try:
            found.append(_reproduced(source, path, data_dir, runs_dir, tell))
        except DataError as error:
            found.append(Reproduced(source.dataset, None, [], None, str(error)))
    return found


def _locate(source: Source, folder: Path | None) -> tuple[Path | None, str]:
    """The recording's file, downloaded if no folder is given; or None and why."""
    name = Path(source.path).name
    if folder is not None:
        for place in (folder, folder / "original", folder / Path(source.path).parent):
            for each in (name, *source.names):
                if (place / each).is_file():
                    return place / each, ""
        return None, f"--recordings {folder} holds none of {', '.join((name, *source.names))}."
    target = user_cache() / "recordings" / COMMIT[:12] / name
    if target.is_file():
        return target, ""
    url = f"{REPOSITORY}/{COMMIT}/{source.path}"
    why = download.fetch(url, target, sha256=source.sha256, size=source.size)
    if why:
        return None, (
            f"{url} can't be had: {why}. Get it by another way, and name its folder with --recordings."
        )
    return target, ""


def _reproduced(
    source: Source,
    path: Path,
    data_dir: Path | None,
    runs_dir: Path,
    tell: Callable[[str], None],
) -> Reproduced:
    published: list[Floats] = []

    def read(dataset: Dataset) -> Sequence[Judgment]:
        if path.suffix == ".jsonl":
            return recordings.read(path, dataset.ids)
        judgments, *ratings = read_pickle(path, source.sha256, len(dataset))
        published.extend(ratings)
        return judgments

    settings = config.settle({"dataset": source.dataset, "data_dir": data_dir, "rating": "bt-mm"})
    run, _ = importing.import_judgments(settings, read, runs_dir)
    tell(f"{source.dataset}: rating {run.id} by Elo and bt-mm until it converges")
    opened = asyncio.run(evaluation.open_run(run, "bt-mm", settings.bt_sigma))
    result, items = opened.result, opened.items
    if items.gold is None:
        raise DataError(f"{source.dataset} has no gold labels here.")
    ours = result.scores.ratings
    theirs = dict(zip(("elo", "bt"), published, strict=False))
    everything = np.ones(len(items.ids), dtype=np.bool_)
    numbers = []
    for row, rating, subset, measure, value, why in ROWS[source.dataset]:
        mask = everything if subset == "all" else items.subsets[subset]
        gold = items.gold[mask]
        mine = _measure(measure, ours[rating][mask], gold, results.MIDDLE[rating])
        other = None
        if rating in theirs:
            other = _measure(measure, theirs[rating][mask], gold, results.MIDDLE[rating])
        number = Number(source.dataset, row, measure, value, mine, other, why)
        numbers.append(number)
    equal = bool(np.array_equal(ours["elo"], theirs["elo"])) if theirs else None
    return Reproduced(source.dataset, run, numbers, equal)


def _measure(measure: str, scores: Floats, gold: Floats, threshold: float) -> float | None:
    if measure == "pearson":
        return metrics.pearson(scores, gold)
    found = metrics.detection(scores, gold, threshold)
    return None if found is None else getattr(found, measure)


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
    if (found := hashlib.sha256(data).hexdigest()) != sha256:
        raise DataError(
            f"{path} is not the published file: expected sha256 {sha256}, got {found}. It was not "
            "opened, for a pickle of somebody else's may run code."
        )
    try:
        elo, theta, _, lists = _Plain(io.BytesIO(data)).load()
        judgments = [_judgment(each) for each in lists]
        return judgments, _column(elo, n), _column(theta, n)
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError) as error:
        raise DataError(f"{path} holds something else than expected: {error}.") from error


def _judgment(found: dict[str, Any]) -> Judgment:
    return Judgment(
        int(found["round"]),
        tuple(map(int, found["input_indices"])),
        Verdict(tuple(map(int, found["ranked_indices"]))),
    )


def _column(values: dict[int, float], n: int) -> Floats:
    return np.array([float(values[row]) for row in range(n)])
