"""The corpora judgeq knows: `datasets/<name>/dataset.toml`, and where their files lie.

A corpus whose licence forbids passing it on is found in the user's own folders or downloaded; what
may be shipped of it (its labels) stands beside its dataset.toml.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from judgeq import files
from judgeq.datasets import download
from judgeq.datasets.columns import items, read_gold, read_latent
from judgeq.datasets.dataset import OF_TABLES, Dataset, DatasetInfo, RowIds, refuse
from judgeq.datasets.formats import Format, read
from judgeq.datasets.tables import Table, Wanted
from judgeq.errors import DataError, UsageError
from judgeq.files import problems, read_toml
from judgeq.settings import DatasetSpec
from judgeq.types import GoldKind


class Columns(BaseModel, frozen=True, extra="forbid"):
    """Which column is what."""

    text: str
    id: str | None = None
    gold: str | None = None


class Gold(BaseModel, frozen=True, extra="forbid"):
    """What the gold column means; `levels` from least to most, `unlabelled` cells mean no gold."""

    kind: GoldKind
    meaning: str
    levels: tuple[str, ...] | None = None
    unlabelled: tuple[str, ...] = ()


class Subset(BaseModel, frozen=True, extra="forbid"):
    """The rows whose cell in `column` is `equals`."""

    column: str
    equals: str


class Corpus(BaseModel, frozen=True, extra="forbid"):
    """A dataset.toml. `labels` names a file beside it with the gold of every row, without texts."""

    name: str
    title: str
    description: str
    licence: str
    citation: str
    notice: str = ""
    homepage: str | None = None
    url: str | None = None
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    size: int | None = Field(default=None, gt=0)
    items: int | None = Field(default=None, ge=2)
    file: str
    format: Format
    encoding: Literal["utf-8", "utf-8-sig"] = "utf-8"
    delimiter: str | None = Field(default=None, min_length=1, max_length=1)
    prompt: str | None = None
    labels: str | None = None
    columns: Columns
    gold: Gold | None = None
    subsets: Mapping[str, Subset] = Field(default_factory=dict)


def known(data_dir: Path | None = None) -> list[DatasetInfo]:
    """All of them. Raises DataError where a dataset.toml is broken. Nothing is downloaded."""
    infos = []
    same = {"name", "title", "description", "items", "licence", "prompt", "citation"}
    for which in map(corpus, names()):
        where = find(which, data_dir, Path.cwd())
        infos.append(
            DatasetInfo(
                **which.model_dump(include=same),
                size=where.stat().st_size if where else which.size,
                gold_meaning=which.gold.meaning if which.gold else "",
                gold_kind=which.gold.kind if which.gold else None,
                address=which.url,
                where=where,
                labels_only=where is None and which.labels is not None,
            )
        )
    return infos


def load(spec: DatasetSpec, base: Path, *, may_download: bool) -> Dataset:
    """The corpus that `spec` names; its labels only, where its texts can't be had.

    Raises DataError where neither is here, and UsageError for settings that can't be.
    """
    settings = (*("text_column", "id_column", "gold_column", "gold_levels"), *OF_TABLES)
    refuse(spec, settings, "is for files; a known dataset has its own")
    which = corpus(spec.dataset)
    data_dir = None if spec.data_dir is None else base / spec.data_dir
    if data_dir is not None and not data_dir.is_dir():
        raise UsageError(f"--data-dir {spec.data_dir}: there is no folder {data_dir}.")
    path, why = obtain(which, data_dir, base, may_download=may_download)
    if path is not None:
        return _of_file(which, path, spec.latent_column)
    missing = instructions(which, why, data_dir, base)
    if which.labels is None or spec.latent_column is not None:
        raise DataError(missing)
    return _of_labels(which, why, missing)


def _of_file(which: Corpus, path: Path, latent_column: str | None) -> Dataset:
    columns, remedy = which.columns, "Its dataset.toml names it; use the file that belongs to it."
    named = (
        columns.text,
        columns.id,
        columns.gold,
        *(one.column for one in which.subsets.values()),
    )
    wanted = dict.fromkeys(filter(None, named), remedy)
    if latent_column is not None:
        wanted.setdefault(latent_column, "Name the right one with --latent-column.")
    table = read(path, Wanted(wanted), form=which.format, delimiter=which.delimiter)
    ids, texts = items(table, columns.text, columns.id)
    gold = None
    if columns.gold is not None and which.gold is not None:
        gold = read_gold(table, columns.gold, which.gold.levels, which.gold.unlabelled)
    latent = None if latent_column is None else read_latent(table, latent_column)
    subsets = {
        name: np.array([str(cell) == subset.equals for cell in table.columns[subset.column]])
        for name, subset in which.subsets.items()
    }
    table.bad.check()
    return _dataset(which, table, ids, texts, gold=gold, latent=latent, subsets=subsets)


def _of_labels(which: Corpus, why: str, missing: str) -> Dataset:
    """The gold of a corpus whose texts can't be had."""
    path = folder(which.name) / (which.labels or "")
    table = read(path, Wanted(dict.fromkeys(("row", "gold"), "Install judgeq anew.")))
    if list(table.columns["row"]) != [str(row) for row in range(which.items or 0)]:
        raise DataError(
            f"{path}: expected the rows 0 to {(which.items or 0) - 1} in order. Install judgeq anew."
        )
    notice = (
        f"The texts of {which.name} are not here ({why}), its labels only: enough for a simulated "
        "judge, not for one that reads."
    )
    gold = read_gold(table, "gold")
    table.bad.check()
    ids = RowIds(len(table))
    return _dataset(which, table, ids, None, notice, gold=gold, missing_texts=missing)


def _dataset(
    which: Corpus,
    table: Table,
    ids: Sequence[str],
    texts: Sequence[str] | None,
    *notices: str,
    **more: Any,
) -> Dataset:
    """What is known of a corpus. One with a checksum is the same with its texts and without."""
    columns, gold = which.columns, which.gold
    known_as = f"{which.name} sha256:{which.sha256} text={columns.text} id={columns.id}"
    return Dataset(
        name=which.name,
        ids=ids,
        texts=texts,
        source=table.name,
        gold_kind=gold.kind if gold else None,
        gold_meaning=gold.meaning if gold else "",
        prompt=which.prompt,
        known_as=None if which.sha256 is None else known_as,
        licence=which.licence,
        notices=(*notices, *filter(None, [which.notice])),
        **more,
    )


def names() -> list[str]:
    """The known corpora, sorted."""
    return sorted(path.parent.name for path in files.shipped("datasets").glob("*/dataset.toml"))


def corpus(name: str) -> Corpus:
    """The description of a known corpus; raises DataError where its dataset.toml is broken."""
    path = folder(name) / "dataset.toml"
    remedy = "Mend it, or install judgeq anew."
    try:
        corpus = Corpus.model_validate(read_toml(path, "", remedy))
    except ValidationError as error:
        raise DataError(f"{path}: {problems(error)}. {remedy}") from error
    if corpus.name != name:
        raise DataError(f"{path}: name is {corpus.name!r}, expected its folder's name, {name!r}.")
    return corpus


def folder(name: str) -> Path:
    """Where the dataset.toml of a corpus lies, and what is shipped beside it."""
    return files.shipped("datasets") / name


def cached(which: Corpus) -> Path:
    """Where a download of the corpus is put."""
    return files.user_cache() / "datasets" / which.name / which.file


def places(which: Corpus, data_dir: Path | None, base: Path) -> list[Path]:
    """Every path at which the file of a corpus is looked for, in order."""
    given = [] if data_dir is None else [data_dir]
    if os.environ.get("JUDGEQ_DATA"):
        given.append(base / os.environ["JUDGEQ_DATA"])
    own = [path / which.file for root in given for path in (root, root / which.name)]
    here = base / "datasets" / which.name / which.file
    every = [*own, folder(which.name) / which.file, here, cached(which)]
    return list(dict.fromkeys(every))


def find(which: Corpus, data_dir: Path | None, base: Path) -> Path | None:
    """The first of its places at which a file lies, right or not.

    Raises DataError where a folder may not be looked into.
    """
    for path in places(which, data_dir, base):
        try:
            if path.is_file():
                return path
        except OSError as error:
            raise DataError(f"{path} can't be looked at: {error.strerror}.") from error
    return None


def obtain(
    which: Corpus, data_dir: Path | None, base: Path, *, may_download: bool
) -> tuple[Path | None, str]:
    """The corpus's file, found or downloaded; or None and why it can't be had.

    Raises DataError where a file was found, or came, that is not the right one.
    """
    path = find(which, data_dir, base)
    if path is not None:
        _check(which, path)
        return path, ""
    if which.url is None or which.sha256 is None or which.size is None:
        return None, "it has no address to download it from"
    if not may_download:
        return None, "downloading is turned off"
    target = cached(which)
    why = download.fetch(which.url, target, sha256=which.sha256, size=which.size)
    return (None, why) if why else (target, "")


def instructions(which: Corpus, why: str, data_dir: Path | None, base: Path) -> str:
    """How to put a corpus's file in place: name, address, checksum, and the folders searched."""
    every = places(which, data_dir, base)
    source = f" from {which.url}" if which.url else ""
    check = f" (sha256 {which.sha256})" if which.sha256 else ""
    folders = ", ".join(dict.fromkeys(str(path.parent) for path in every))
    return (
        f"The texts of {which.name} are not on this machine ({why}). Get {which.file}{source}"
        f"{check} and put it at {cached(which)}, or into any other folder and name that with "
        f"--data-dir or $JUDGEQ_DATA. Searched: {folders}."
    )


def _check(which: Corpus, path: Path) -> None:
    if which.sha256 is None:
        return
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}. Check who may.") from error
    if digest != which.sha256:
        raise DataError(
            f"{path} is not the file of {which.name} that is expected here: its sha256 is {digest}, "
            f"expected {which.sha256}. Delete or rename it; or, if it is what you want judged, "
            f"name it as an ordinary file: --dataset {path}"
        )
