"""A known corpus, a file of the user's, or synthetic items: each becomes one frozen Dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pydantic import BaseModel

from judgeq.datasets import corpora
from judgeq.datasets.columns import read_gold, read_ids, read_latent, read_texts, with_kind
from judgeq.datasets.content import RowIds, content, labels
from judgeq.datasets.corpora import Corpus
from judgeq.datasets.synthetic import MEANING, SHAPES, draw
from judgeq.datasets.tables import FORMATS, SUFFIXES, Table, did_you_mean, listed, read, shown
from judgeq.errors import DataError, UsageError
from judgeq.seeds import rng
from judgeq.types import Bools, Floats, GoldKind

SYNTHETIC = "synthetic:"
DEFAULT_N = 1_000
MOST_ITEMS = 10_000_000


class DatasetSpec(BaseModel, frozen=True, extra="forbid"):
    """What to load.

    `dataset` is a known name, "synthetic:<shape>", or the path of a .csv, .tsv, .jsonl, .ndjson or
    .parquet file. `n` is for synthetic items; the columns and levels are for files, except
    `latent_column`, which names a numeric column for the simulated judge of known ones too.
    """

    dataset: str
    text_column: str | None = None
    id_column: str | None = None
    gold_column: str | None = None
    gold_levels: tuple[str, ...] | None = None
    latent_column: str | None = None
    n: int | None = None
    data_dir: Path | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """The items, as columns of length n.

    `texts` is None where only labels are here, or none exist; `missing_texts` then tells what to do
    (it is the error of a judge that reads). `gold` is nan where unlabelled. `latent` is what a
    simulated judge sees: as it is where synthetic (1..1000), else raw numbers. `content` is a
    sha256 that tells the items (ids and texts; of a known corpus its file, whether or not the texts
    are here), `labels` one of gold and latent. `notices` are sentences that the user must be told.
    """

    name: str
    ids: Sequence[str]
    texts: Sequence[str] | None
    gold: Floats | None
    gold_kind: GoldKind | None
    gold_meaning: str
    latent: Floats | None
    subsets: Mapping[str, Bools]
    prompt: str | None
    content: str
    labels: str
    source: str
    licence: str
    notices: tuple[str, ...]
    missing_texts: str

    def __post_init__(self) -> None:
        for array in (self.gold, self.latent, *self.subsets.values()):
            if array is not None:
                array.flags.writeable = False  # `labels` was made of it

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """What can be loaded by name; `where` is the file found for it, `size` its bytes."""

    name: str
    title: str
    description: str
    items: int | None = None
    size: int | None = None
    licence: str = ""
    gold_meaning: str = ""
    gold_kind: GoldKind | None = None
    prompt: str | None = None
    citation: str = ""
    address: str | None = None
    where: Path | None = None
    labels_only: bool = False


def load(
    spec: DatasetSpec, *, seed: int = 0, download: bool = True, base: Path | None = None
) -> Dataset:
    """The dataset that `spec` names; paths are relative to `base` (default: the current folder).

    Raises DataError where a file is missing or can't be read, naming row and column, and UsageError
    where a name or a combination of settings can't be. Only synthetic items depend on `seed`.
    """
    if f"{spec.dataset}:".startswith(SYNTHETIC):
        return _synthetic(spec, seed)
    _refuse(spec, ("n",), "is for synthetic datasets only")
    base = base or Path.cwd()
    known_names = corpora.names()
    if spec.dataset in known_names:
        return _known(spec, base, download)
    return _file(spec, _user_path(spec.dataset, base, known_names))


def known(data_dir: Path | None = None) -> list[DatasetInfo]:
    """Everything that has a name: the known corpora, then the synthetic shapes.

    Raises DataError where a dataset.toml is broken. Nothing is downloaded.
    """
    return [_info(corpora.corpus(name), data_dir) for name in corpora.names()] + [
        DatasetInfo(
            name=f"{SYNTHETIC}{shape}",
            title=f"Synthetic items, {shape}",
            description=description,
            gold_meaning=MEANING,
            gold_kind="binary" if shape == "binary" else "continuous",
        )
        for shape, description in SHAPES.items()
    ]


def _info(corpus: Corpus, data_dir: Path | None) -> DatasetInfo:
    where = corpora.find(corpus, data_dir, Path.cwd())
    return DatasetInfo(
        name=corpus.name,
        title=corpus.title,
        description=corpus.description,
        items=corpus.items,
        size=where.stat().st_size if where else corpus.size,
        licence=corpus.licence,
        gold_meaning=corpus.gold.meaning if corpus.gold else "",
        gold_kind=corpus.gold.kind if corpus.gold else None,
        prompt=corpus.prompt,
        citation=corpus.citation,
        address=corpus.url,
        where=where,
        labels_only=where is None and corpus.labels is not None,
    )


def _refuse(spec: DatasetSpec, settings: Sequence[str], reason: str) -> None:
    for setting in settings:
        if getattr(spec, setting) is not None:
            flag = f"--{setting.replace('_', '-')}"
            raise UsageError(f"{flag} {reason}; leave it out with --dataset {spec.dataset}")


# Files of the user's


def _user_path(name: str, base: Path, known_names: Sequence[str]) -> Path:
    """The path that a name means; raises UsageError or DataError where it can't be a dataset."""
    path = base / name
    if path.suffix.lower() in FORMATS:
        return path
    every = [*known_names, *(SYNTHETIC + shape for shape in SHAPES)]
    hint = did_you_mean(Path(name).name, every)
    try:
        if name.strip() and path.is_dir():
            raise DataError(f"{path} is a folder. Name a file in it ({SUFFIXES}).{hint}")
        if path.is_file():
            raise UsageError(
                f"The suffix of {path} doesn't tell a format that can be read. "
                f"Name it by what it holds: {SUFFIXES}."
            )
    except OSError as error:
        raise DataError(f"{shown(name)} can't be looked at: {error.strerror}.") from error
    raise UsageError(
        f"No dataset is called {shown(name)}.{hint} Known are {listed(every)}; "
        f"or give the path of a file ({SUFFIXES})."
    )


def _file(spec: DatasetSpec, path: Path) -> Dataset:
    text = spec.text_column or "text"
    levels = _levels(spec)
    if spec.id_column == text:
        raise UsageError(f"--id-column can't be the column of the texts, {shown(text)}.")
    wanted = {text: "Name the column of the texts with --text-column."}
    for column, flag in (
        (spec.id_column, "--id-column"),
        (spec.gold_column, "--gold-column"),
        (spec.latent_column, "--latent-column"),
    ):
        if column is not None:
            wanted.setdefault(column, f"Name the right one with {flag}.")
    table = read(path, FORMATS[path.suffix.lower()], wanted)
    ids, texts, notices = _items(table, text, spec.id_column)
    gold, kind = None, None
    if spec.gold_column is not None:
        gold, kind = with_kind(read_gold(table, spec.gold_column, levels), levels)
    latent = None if spec.latent_column is None else read_latent(table, spec.latent_column)
    return Dataset(
        name=path.stem,
        ids=ids,
        texts=texts,
        gold=gold,
        gold_kind=kind,
        gold_meaning="",
        latent=latent,
        subsets={},
        prompt=None,
        content=content(ids, texts),
        labels=labels(gold, latent),
        source=str(path),
        licence="",
        notices=notices,
        missing_texts="",
    )


def _levels(spec: DatasetSpec) -> tuple[str, ...] | None:
    if spec.gold_levels is None:
        return None
    if spec.gold_column is None:
        raise UsageError("--gold-levels needs --gold-column: the column that holds the labels.")
    levels = tuple(level.strip() for level in spec.gold_levels)
    if len(levels) < 2 or len(set(levels)) < len(levels) or not all(levels):
        raise UsageError(
            f"--gold-levels is {listed(spec.gold_levels)}. Expected at least two different labels, "
            "from least to most of the feature: --gold-levels low,high"
        )
    return levels


def _items(
    table: Table, text_column: str, id_column: str | None
) -> tuple[Sequence[str], list[str], tuple[str, ...]]:
    """Ids, texts, and a notice where texts repeat."""
    if len(table) < 2:
        raise DataError(
            f"{table.path} has {'one row' if len(table) else 'no rows'}. "
            "Expected at least two: comparing takes two."
        )
    texts = read_texts(table, text_column)
    ids = RowIds(len(table)) if id_column is None else read_ids(table, id_column)
    repeated = len(texts) - len(set(texts))
    if not repeated:
        return ids, texts, ()
    return ids, texts, (f"{repeated:,} of {len(texts):,} texts repeat an earlier one.",)


# Known corpora


def _known(spec: DatasetSpec, base: Path, may_download: bool) -> Dataset:
    settings = ("text_column", "id_column", "gold_column", "gold_levels")
    _refuse(spec, settings, "is for files; a known dataset has its own")
    corpus = corpora.corpus(spec.dataset)
    data_dir = None if spec.data_dir is None else base / spec.data_dir
    if data_dir is not None and not data_dir.is_dir():
        raise UsageError(f"--data-dir {spec.data_dir}: there is no folder {data_dir}.")
    path, why = corpora.obtain(corpus, data_dir, base, may_download=may_download)
    if path is not None:
        return _corpus(corpus, path, spec.latent_column)
    missing = corpora.instructions(corpus, why, data_dir, base)
    if corpus.labels is None or spec.latent_column is not None:
        raise DataError(missing)
    return _labels(corpus, corpora.folder(corpus.name) / corpus.labels, why, missing)


def _corpus(corpus: Corpus, path: Path, latent_column: str | None) -> Dataset:
    columns = corpus.columns
    wanted = {
        column: "Its dataset.toml names it; use the file that belongs to it."
        for column in (columns.text, columns.id, columns.gold)
        if column is not None
    }
    wanted |= {each.column: "Its dataset.toml names it." for each in corpus.subsets.values()}
    if latent_column is not None:
        wanted.setdefault(latent_column, "Name the right one with --latent-column.")
    table = read(path, corpus.format, wanted, delimiter=corpus.delimiter)
    ids, texts, notices = _items(table, columns.text, columns.id)
    gold = None
    if columns.gold is not None and corpus.gold is not None:
        gold = read_gold(table, columns.gold, corpus.gold.levels, corpus.gold.unlabelled)
    latent = None if latent_column is None else read_latent(table, latent_column)
    subsets = {
        name: np.array([str(cell) == each.equals for cell in table.columns[each.column]])
        for name, each in corpus.subsets.items()
    }
    return _from_corpus(corpus, table, (ids, texts), gold, latent, subsets, notices)


def _labels(corpus: Corpus, path: Path, why: str, missing: str) -> Dataset:
    """The gold of a corpus whose texts can't be had."""
    table = read(path, "csv", {"row": "Install judgeq anew.", "gold": "Install judgeq anew."})
    rows = [str(row) for row in range(corpus.items or 0)]
    if list(table.columns["row"]) != rows:
        raise DataError(
            f"{path}: expected the rows 0 to {len(rows) - 1} in order. Install judgeq anew."
        )
    notice = (
        f"The texts of {corpus.name} are not here ({why}), its labels only: enough for a simulated "
        "judge, not for one that reads."
    )
    items = (RowIds(len(table)), None)
    made = _from_corpus(corpus, table, items, read_gold(table, "gold"), None, {}, (notice,))
    return replace(made, missing_texts=missing)


def _identity(corpus: Corpus, ids: Sequence[str], texts: Sequence[str] | None) -> str:
    """The items' `content`: of a corpus with a checksum the same with its texts and without."""
    if corpus.sha256 is None:
        return content(ids, texts or ())
    columns = corpus.columns
    return f"{corpus.name} sha256:{corpus.sha256} text={columns.text} id={columns.id}"


def _from_corpus(
    corpus: Corpus,
    table: Table,
    items: tuple[Sequence[str], Sequence[str] | None],
    gold: Floats | None,
    latent: Floats | None,
    subsets: Mapping[str, Bools],
    notices: tuple[str, ...],
) -> Dataset:
    ids, texts = items
    return Dataset(
        name=corpus.name,
        ids=ids,
        texts=texts,
        gold=gold,
        gold_kind=corpus.gold.kind if corpus.gold else None,
        gold_meaning=corpus.gold.meaning if corpus.gold else "",
        latent=latent,
        subsets=subsets,
        prompt=corpus.prompt,
        content=_identity(corpus, ids, texts),
        labels=labels(gold, latent),
        source=str(table.path),
        licence=corpus.licence,
        notices=(*notices, *([corpus.notice] if corpus.notice else [])),
        missing_texts="",
    )


# Synthetic items


def _synthetic(spec: DatasetSpec, seed: int) -> Dataset:
    columns = ("text_column", "id_column", "gold_column", "gold_levels", "latent_column")
    _refuse(spec, columns, "is not for synthetic datasets")
    shape = spec.dataset.removeprefix(SYNTHETIC)
    if shape not in SHAPES:
        hint = did_you_mean(shape, SHAPES)
        every = listed(SYNTHETIC + each for each in SHAPES)
        raise UsageError(f"There is no dataset {shown(spec.dataset)}.{hint} There are {every}.")
    n = DEFAULT_N if spec.n is None else spec.n
    if not 2 <= n <= MOST_ITEMS:
        raise UsageError(f"--n is {n:,}. Expected 2 to {MOST_ITEMS:,} items.")
    latent = draw(shape, n, rng(seed, "synthetic", shape))
    binary = shape == "binary"
    gold = (latent > latent.mean()).astype(np.float64) if binary else latent
    ids = RowIds(n)
    return Dataset(
        name=f"synthetic-{shape}",
        ids=ids,
        texts=None,
        gold=gold,
        gold_kind="binary" if binary else "continuous",
        gold_meaning=MEANING,
        latent=latent,
        subsets={},
        prompt=None,
        content=f"synthetic:{shape} n={n}",
        labels=labels(gold, latent),
        source="synthetic",
        licence="",
        notices=(),
        missing_texts=(
            f"The items of {spec.dataset} are numbers without texts, so only a simulated judge can "
            "compare them. For a judge that reads, name a dataset with texts: --dataset demo"
        ),
    )
