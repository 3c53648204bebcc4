"""The corpora judgeq knows: `datasets/<name>/dataset.toml`, where their files lie, and their download.

A corpus whose licence forbids passing it on is found in the user's own folders or downloaded; what
may be shipped of it (its labels) stands beside its dataset.toml.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from pydantic import ValidationError

from judgeq import files
from judgeq.datasets.columns import dataset_of
from judgeq.datasets.dataset import Dataset, DatasetInfo, RowIds, refuse
from judgeq.datasets.tables import OF_COLUMNS, OF_TABLES, read
from judgeq.errors import DataError, UsageError
from judgeq.escaping import shell_word
from judgeq.settings.run import DatasetSpec

TIMEOUT = 10.0
"""Seconds without a byte, after which a download is given up."""


def names() -> list[str]:
    """The known corpora, sorted."""
    return sorted(path.parent.name for path in files.shipped("datasets").glob("*/dataset.toml"))


def corpus(name: str) -> DatasetInfo:
    """The description of a known corpus; raises DataError where its dataset.toml is broken."""
    path = files.shipped("datasets") / name / "dataset.toml"
    remedy = "Mend it, or install judgeq anew."
    told = files.read_toml(path, "", remedy)
    try:
        return DatasetInfo.model_validate({**told, "name": name})
    except ValidationError as error:
        raise DataError(f"{path}: {files.problems(error)}. {remedy}") from error


def catalog(data_dir: Path | None = None) -> list[DatasetInfo]:
    """All of them. Raises DataError where a dataset.toml is broken. Nothing is downloaded."""
    infos = []
    for which in map(corpus, names()):
        where = _found(_places(which, data_dir, Path.cwd()))
        size = where.stat().st_size if where else which.size
        infos.append(which.model_copy(update={"where": where, "size": size}))
    return infos


def load(spec: DatasetSpec, base: Path, *, may_download: bool) -> Dataset:
    """The corpus that `spec` names; its labels only, where its texts can't be had.

    Raises DataError where neither is here, or a file isn't the one that is known, and UsageError for
    settings that can't be.
    """
    own = (*OF_COLUMNS[:4], "gold_levels", *OF_TABLES)
    refuse(spec, own, "is for files; a known dataset has its own")
    which = corpus(spec.dataset)
    data_dir = None if spec.data_dir is None else base / spec.data_dir
    if data_dir is not None and not data_dir.is_dir():
        raise UsageError(f"--data-dir {spec.data_dir}: there is no folder {data_dir}.")
    places = _places(which, data_dir, base)
    found, why = _found(places), "downloading is turned off"
    if found is None and may_download and which.url and which.sha256 and which.size:
        why = fetch(which.url, places[-1], sha256=which.sha256, size=which.size)
        found = None if why else places[-1]
    if found is not None:
        return _whole(which, found, spec.latent_column)
    source = f" from {which.url} (sha256 {which.sha256})" if which.url else ""
    missing = (
        f"The texts of {which.name} are not on this machine ({why}). Get {which.file}{source} and put "
        f"it at {places[-1]}, or into any other folder and name that with --data-dir."
    )
    if which.labels is None or spec.latent_column is not None:
        raise DataError(missing)
    path = files.shipped("datasets") / which.name / which.labels
    table = DatasetSpec(dataset=which.labels, id_column="row", gold_column="gold")
    labels = dataset_of(read(path, table), table)
    notice = (
        f"The texts of {which.name} are not here ({why}), its labels only: enough for a simulated "
        "judge, not for one that reads."
    )
    labels = replace(labels, ids=RowIds(len(labels)), missing_texts=missing)
    return _described(which, labels, notice)


def _whole(which: DatasetInfo, path: Path, latent_column: str | None) -> Dataset:
    """A corpus with its texts. Raises DataError for a file that isn't the one that is known."""
    data = files.contents(path)
    digest = hashlib.sha256(data).hexdigest()
    if which.sha256 not in (None, digest):
        raise DataError(
            f"{path} is not the file of {which.name} that is expected here (sha256 {which.sha256}). "
            f"Delete or rename it; or judge it as an ordinary file: "
            f"`--dataset {shell_word(str(path))}`"
        )
    columns = {"text_column", "id_column", "gold_column", "gold_levels", "delimiter"}
    table = DatasetSpec(
        dataset=which.file,
        latent_column=latent_column,
        keep_columns=True,
        **which.model_dump(include=columns),
    )
    source = read(path, table, data=data)
    return _described(which, dataset_of(source, table, which.unlabelled))


def _described(which: DatasetInfo, dataset: Dataset, *notices: str) -> Dataset:
    """The items with what is known of their corpus: the same with texts and without, where its file
    has a checksum."""
    return replace(
        dataset,
        name=which.name,
        gold_kind=which.gold_kind,
        gold_meaning=which.gold_meaning,
        subsets={
            name: np.array([str(cell) == value for cell in dataset.columns[column]])
            for name, (column, value) in which.subsets.items()
            if dataset.columns
        },
        columns={},
        prompt=which.prompt,
        known_as=which.sha256
        and f"{which.name} sha256:{which.sha256} text={which.text_column} id={which.id_column}",
        licence=which.licence,
        notices=(*notices, *filter(None, [which.notice])),
    )


def _places(which: DatasetInfo, data_dir: Path | None, base: Path) -> Sequence[Path]:
    """Every path at which the file of a corpus is looked for, in order; the last one is the cache, where
    a download is put."""
    roots = [files.shipped("datasets"), base / "datasets", files.user_cache() / "datasets"]
    if data_dir is not None:
        roots.insert(0, data_dir)
    return [folder / which.file for root in roots for folder in (root, root / which.name)]


def _found(places: Sequence[Path]) -> Path | None:
    """The first at which a file lies, right or not."""
    return next((path for path in places if os.path.isfile(path)), None)  # noqa: PTH113  never raises


# Downloads


def fetch(url: str, target: Path, *, sha256: str, size: int, timeout: float = TIMEOUT) -> str:
    """Puts the file at `url` to `target`, whole or not at all; "" or why it couldn't be had.

    $JUDGEQ_OFFLINE, no network, a refusal, a silence, another file than the one with this checksum, and
    a folder that can't be written to are reasons. Proxies are those of the environment.
    """
    from http.client import HTTPException
    from urllib.request import Request, build_opener

    if os.environ.get("JUDGEQ_OFFLINE", "") not in ("", "0"):
        return "JUDGEQ_OFFLINE is set"
    request = Request(url, headers={"User-Agent": "judgeq"})  # noqa: S310  a test checks the scheme
    try:
        with build_opener().open(request, timeout=timeout) as response:
            body: bytes = response.read(size + 1)
    except (OSError, HTTPException, ValueError) as error:
        return f"{urlsplit(url).netloc} can't be reached: {error}"
    if hashlib.sha256(body).hexdigest() != sha256:
        return f"{url} gave another file, perhaps a proxy's or a login page, which wasn't kept"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with files.replacing(target, refusal=lambda _, error: OSError(*error.args)) as file:
            file.buffer.write(body)
    except OSError as error:
        return f"{target.parent} can't be written to: {error.strerror or error}"
    return ""
