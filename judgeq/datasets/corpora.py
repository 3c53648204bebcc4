"""The corpora judgeq knows: `datasets/<name>/dataset.toml`, and where their files lie.

A corpus whose licence forbids passing it on is found in the user's own folders or downloaded; what
may be shipped of it (its labels) stands beside its dataset.toml.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from judgeq import paths
from judgeq.datasets import download
from judgeq.datasets.tables import Format
from judgeq.errors import DataError
from judgeq.files import problems, read_toml
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

    @field_validator("file", "labels")
    @classmethod
    def _bare(cls, value: str | None) -> str | None:
        if value is not None and Path(value).name != value:
            raise ValueError("must be the name of a file, without a folder")
        return value

    @model_validator(mode="after")
    def _whole(self) -> Corpus:
        # Plain http only to this very machine, for tests.
        if self.url is not None and not self.url.startswith(("https://", "http://127.0.0.1:")):
            raise ValueError("url must begin with https://")
        if self.url is not None and (self.sha256 is None or self.size is None):
            raise ValueError("url needs sha256 and size")
        if (self.columns.gold is None) != (self.gold is None):
            raise ValueError("columns.gold and [gold] need each other")
        if self.labels is not None and (self.gold is None or self.items is None):
            raise ValueError("labels need [gold] and items")
        return self


def names() -> list[str]:
    """The known corpora, sorted."""
    return sorted(path.parent.name for path in paths.shipped("datasets").glob("*/dataset.toml"))


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
    return paths.shipped("datasets") / name


def cached(which: Corpus) -> Path:
    """Where a download of the corpus is put."""
    return paths.user_cache() / "datasets" / which.name / which.file


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
