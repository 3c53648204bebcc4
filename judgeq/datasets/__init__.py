"""A known corpus, a table of the user's, or synthetic items: each becomes one frozen Dataset."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from judgeq.datasets import corpora, synthetic
from judgeq.datasets.columns import (
    checked_levels,
    is_empty,
    read_gold,
    read_ids,
    read_latent,
    read_texts,
    with_kind,
)
from judgeq.datasets.corpora import Corpus
from judgeq.datasets.dataset import OF_TABLES, STDIN, Dataset, RowIds, part, refuse
from judgeq.datasets.frames import Frame
from judgeq.datasets.synthetic import MEANING, SHAPES, SYNTHETIC
from judgeq.datasets.tables import (
    FORMATS,
    SUFFIXES,
    BadRows,
    Format,
    Table,
    did_you_mean,
    listed,
    read,
    shown,
)
from judgeq.errors import DataError, UsageError
from judgeq.settings import DatasetSpec
from judgeq.types import GoldKind

__all__ = ["STDIN", "Dataset", "DatasetInfo", "DatasetSpec", "known", "load"]

TEXT, ID = "text", "id"
"""The columns of a file that hold texts and ids, where no other is named."""


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
    spec: DatasetSpec,
    *,
    seed: int = 0,
    download: bool = True,
    base: Path | None = None,
    frame: Frame | None = None,
) -> Dataset:
    """The dataset that `spec` names; paths are relative to `base` (default: the current folder).
    `frame` is the table that "-" stands for, in place of standard input.

    Raises DataError where a file is missing or can't be read, naming row and column, and UsageError
    where a name or a combination of settings can't be. Only synthetic items and samples depend on
    `seed`.
    """
    if spec.dataset == STDIN and frame is not None:
        refuse(spec, ("n",), "is for synthetic datasets only")
        refuse(spec, ("delimiter", "encoding"), "is for files")
        return part(_table(spec, "python", frame), spec, seed)
    return part(_whole(spec, seed, download, base or Path.cwd()), spec, seed)


def _whole(spec: DatasetSpec, seed: int, download: bool, base: Path) -> Dataset:
    if f"{spec.dataset}:".startswith(SYNTHETIC):
        return synthetic.load(spec, seed)
    refuse(spec, ("n",), "is for synthetic datasets only")
    known_names = corpora.names()
    if spec.dataset in known_names:
        return _known(spec, base, download)
    if spec.dataset == STDIN:
        return _table(spec, "stdin", _on_stdin(spec))
    path = _user_path(spec.dataset, base, known_names)
    form = FORMATS[path.suffix.lower()]
    if form not in ("csv", "tsv"):
        refuse(spec, ("delimiter",), "is for CSV and TSV")
    if form == "parquet":
        refuse(spec, ("encoding",), "is for tables in text")
    return _table(spec, path.stem, _reader(spec, path, form))


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


# Tables of the user's

Reader = Callable[..., Table]
"""Reads the columns that are wanted, and the `optional` ones that are there, of one table."""


def _reader(spec: DatasetSpec, path: Path, form: Format, data: bytes | None = None) -> Reader:
    how = {"delimiter": spec.delimiter, "encoding": spec.encoding, "data": data}
    return partial(read, path, form, **how)  # type: ignore[arg-type]


def _on_stdin(spec: DatasetSpec) -> Reader:
    """What is on standard input: JSONL where that begins with a bracket, else CSV."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(
            "--dataset - reads CSV or JSONL from standard input, and nothing is given there: "
            "judgeq … --dataset - < my.csv"
        )
    data = sys.stdin.buffer.read()
    if data.startswith(b"PAR1"):
        raise DataError("Parquet isn't read from standard input: save it as a file, and name that.")
    start = b"".join(data[:100].removeprefix(b"\xef\xbb\xbf").replace(b"\0", b"").split())
    form: Format = "jsonl" if start.lstrip(b"\xff\xfe")[:1] in (b"{", b"[") else "csv"
    if form == "jsonl":
        refuse(spec, ("delimiter",), "is for CSV, and standard input holds JSONL")
    return _reader(spec, Path("standard input"), form, data)


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


def _table(spec: DatasetSpec, name: str, reader: Reader) -> Dataset:
    text = spec.text_column or TEXT
    levels = _levels(spec)
    if spec.id_column == text:
        raise UsageError(f"--id-column can't be the column of the texts, {shown(text)}.")
    wanted: dict[str, str] = {}
    for column, flag in (
        (spec.text_column, "--text-column"),
        (spec.id_column, "--id-column"),
        (spec.gold_column, "--gold-column"),
        (spec.latent_column, "--latent-column"),
    ):
        if column is not None:
            wanted.setdefault(column, f"Name the right one with {flag}.")
    looked_for = {text} | (set() if spec.id_column else {ID})
    table = reader(wanted, optional=sorted(looked_for - wanted.keys()))
    table, skipped = _skip_empty(table, text) if spec.skip_empty else (table, ())
    id_column, notices = _id_column(table, spec, text)
    missing = ""
    if text not in table.columns:
        # Judgments of items, and a simulated judge's, need no texts: ids say which items are meant.
        missing = _without_texts(reader, text, named=id_column is not None)
        notices = (*notices, f"{missing} Until then there are ids without texts here.")
    ids, texts, more = _items(table, text, id_column)
    gold, kind = None, None
    if spec.gold_column is not None:
        gold, kind = with_kind(read_gold(table, spec.gold_column, levels), levels)
    latent = None if spec.latent_column is None else read_latent(table, spec.latent_column)
    table.check()
    return Dataset(
        name=name,
        ids=ids,
        texts=texts,
        source=table.name,
        gold=gold,
        gold_kind=kind,
        latent=latent,
        notices=(*skipped, *notices, *more),
        missing_texts=missing,
    )


def _skip_empty(table: Table, text: str) -> tuple[Table, tuple[str, ...]]:
    """The rows that have a text, and a notice of the others."""
    cells = table.columns.get(text, ())
    empty = [row for row, cell in enumerate(cells) if is_empty(cell)]
    if not empty:
        return table, ()
    without = set(empty)
    named = ", ".join(f"{table.numbers[row] + 1}" for row in empty[:10])
    more = ", …" if len(empty) > 10 else ""
    return table.rows([row for row in range(len(table)) if row not in without]), (
        f"{len(empty):,} of {len(table):,} rows are left out (--skip-empty), since they have no text: "
        f"{named}{more}.",
    )


def _id_column(table: Table, spec: DatasetSpec, text: str) -> tuple[str | None, tuple[str, ...]]:
    """The column of ids, None for row numbers; and a notice where "id" can't be that column."""
    taken = (text, spec.gold_column, spec.latent_column)
    if spec.id_column is not None or ID not in table.columns or ID in taken:
        return spec.id_column, ()
    tried = replace(table, bad=BadRows(table.name))
    read_ids(tried, ID)
    try:
        tried.check()
    except DataError as error:
        why = str(error).split(". ")[0]
        return None, (
            f"{why}. So the column 'id' can't hold the ids, and row numbers are the ids.",
        )
    return ID, ()


def _without_texts(reader: Reader, text: str, *, named: bool) -> str:
    """What to do about the texts. Raises DataError where there are no ids either."""
    try:
        reader({text: "Name their column with --text-column."})
    except DataError as error:
        if not named:
            raise
        return str(error)
    return ""


def _levels(spec: DatasetSpec) -> tuple[str, ...] | None:
    if spec.gold_levels is None:
        return None
    if spec.gold_column is None:
        raise UsageError("--gold-levels needs --gold-column: the column that holds the labels.")
    return checked_levels(spec.gold_levels)


def _items(
    table: Table, text_column: str, id_column: str | None
) -> tuple[Sequence[str], list[str] | None, tuple[str, ...]]:
    """Ids, texts (None where the table has none), and a notice where texts repeat."""
    if len(table) < 2:
        table.check()
        raise DataError(
            f"{table.name} has {'one row' if len(table) else 'no rows'}. "
            "Expected at least two: comparing takes two."
        )
    texts = read_texts(table, text_column) if text_column in table.columns else None
    ids: Sequence[str]
    if id_column is not None:
        ids = read_ids(table, id_column)
    elif isinstance(table.numbers, range):
        ids = RowIds(len(table))
    else:
        ids = [str(number) for number in table.numbers]
    if texts is None:
        return ids, None, ()
    repeated = len(texts) - len(set(texts))
    if not repeated:
        return ids, texts, ()
    return ids, texts, (f"{repeated:,} of {len(texts):,} texts repeat an earlier one.",)


# Known corpora


def _known(spec: DatasetSpec, base: Path, may_download: bool) -> Dataset:
    settings = (*("text_column", "id_column", "gold_column", "gold_levels"), *OF_TABLES)
    refuse(spec, settings, "is for files; a known dataset has its own")
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
    wanted |= {subset.column: "Its dataset.toml names it." for subset in corpus.subsets.values()}
    if latent_column is not None:
        wanted.setdefault(latent_column, "Name the right one with --latent-column.")
    table = read(path, corpus.format, wanted, delimiter=corpus.delimiter)
    ids, texts, notices = _items(table, columns.text, columns.id)
    gold = None
    if columns.gold is not None and corpus.gold is not None:
        gold = read_gold(table, columns.gold, corpus.gold.levels, corpus.gold.unlabelled)
    latent = None if latent_column is None else read_latent(table, latent_column)
    subsets = {
        name: np.array([str(cell) == subset.equals for cell in table.columns[subset.column]])
        for name, subset in corpus.subsets.items()
    }
    table.check()
    made = _from_corpus(corpus, table, ids, texts, *notices)
    return replace(made, gold=gold, latent=latent, subsets=subsets)


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
    gold = read_gold(table, "gold")
    table.check()
    made = _from_corpus(corpus, table, RowIds(len(table)), None, notice)
    return replace(made, gold=gold, missing_texts=missing)


def _from_corpus(
    corpus: Corpus, table: Table, ids: Sequence[str], texts: Sequence[str] | None, *notices: str
) -> Dataset:
    """What is known of a corpus. One with a checksum is the same with its texts and without."""
    columns, gold = corpus.columns, corpus.gold
    known_as = f"{corpus.name} sha256:{corpus.sha256} text={columns.text} id={columns.id}"
    return Dataset(
        name=corpus.name,
        ids=ids,
        texts=texts,
        source=table.name,
        gold_kind=gold.kind if gold else None,
        gold_meaning=gold.meaning if gold else "",
        prompt=corpus.prompt,
        known_as=None if corpus.sha256 is None else known_as,
        licence=corpus.licence,
        notices=(*notices, *([corpus.notice] if corpus.notice else [])),
    )
