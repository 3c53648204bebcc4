"""A known corpus, a table of the user's, or synthetic items: each becomes one frozen Dataset."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from judgeq.datasets import corpora, synthetic
from judgeq.datasets.columns import (
    ID,
    checked_levels,
    is_empty,
    items,
    read_gold,
    read_ids,
    read_latent,
    with_kind,
)
from judgeq.datasets.dataset import (
    OF_FILES,
    STDIN,
    Dataset,
    DatasetInfo,
    part,
    refuse,
    without_long,
)
from judgeq.datasets.formats import SUFFIXES, TEXT, Format, format_of, read
from judgeq.datasets.synthetic import SHAPES, SYNTHETIC
from judgeq.datasets.tables import (
    BadRows,
    Table,
    Wanted,
    did_you_mean,
    listed,
    no_column,
    shown,
)
from judgeq.errors import DataError, UsageError
from judgeq.settings import DatasetSpec

__all__ = ["FROM_PYTHON", "STDIN", "TEXT", "Dataset", "DatasetInfo", "DatasetSpec", "known", "load"]

FROM_PYTHON = "python"
"""The name of texts that were given in Python."""
Reader = Callable[[Wanted], Table]
"""Gives the columns that are wanted of one table."""
LIKELY: Mapping[str, Sequence[str]] = {
    "--text-column": (
        *("text", "texts", "content", "body", "message", "comment", "sentence", "review", "tweet"),
        *("post", "response", "answer", "abstract", "document", "description"),
    ),
    "--id-column": ("id", "ids", "doc_id", "item_id", "text_id", "identifier"),
    "--gold-column": ("gold", "label", "labels", "score", "rating", "target", "class"),
}
"""What columns are called, whatever the case of the letters, by the flag that names them."""


def load(
    spec: DatasetSpec,
    *,
    seed: int = 0,
    download: bool = True,
    base: Path | None = None,
    frame: Reader | None = None,
) -> Dataset:
    """The dataset that `spec` names; paths are relative to `base` (default: the current folder).
    `frame` is the table that "-" stands for, in place of standard input.

    Raises DataError where a file is missing or can't be read, naming row and column, and UsageError
    where a name or a combination of settings can't be. Only synthetic items and samples depend on
    `seed`.
    """
    base, name = base or Path.cwd(), spec.dataset
    if f"{name}:".startswith(SYNTHETIC):
        return part(synthetic.load(spec, seed), spec, seed)
    refuse(spec, ("n",), "is for synthetic datasets only")
    known_names = corpora.names()
    if name in known_names:
        whole = corpora.load(spec, base, may_download=download)
    elif name == STDIN and frame is not None:
        refuse(spec, OF_FILES, "is for files")
        whole = _table(spec, FROM_PYTHON, frame)
    elif name == STDIN:
        whole = _table(spec, "stdin", _on_stdin(spec))
    else:
        form = format_of(name)
        if form is None and not (name and _is_there(base / name)):
            every = [*known_names, *(SYNTHETIC + shape for shape in SHAPES)]
            raise UsageError(
                f"No dataset is called {shown(name)}.{did_you_mean(Path(name).name, every)} Known are "
                f"{listed(every)}; or give the path of a file ({SUFFIXES})."
            )
        stem = Path(name).stem
        stem = Path(stem).stem if name.lower().endswith(".gz") else stem
        whole = _table(spec, stem, _reader(spec, base / name, form))
    return without_long(part(whole, spec, seed), spec.longest_text)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # no name that a file can have
        return False


def known(data_dir: Path | None = None) -> list[DatasetInfo]:
    """Everything that has a name: the known corpora, then the synthetic shapes.

    Raises DataError where a dataset.toml is broken. Nothing is downloaded.
    """
    return [*corpora.known(data_dir), *synthetic.known()]


def _reader(
    spec: DatasetSpec, path: Path, form: Format | None, data: bytes | None = None
) -> Reader:
    """What reads a file, or the bytes of one. Lines of texts have no columns: where one is named, or
    what separates them, they are rows of a CSV."""
    columns = (spec.text_column, spec.id_column, spec.gold_column, spec.latent_column)
    if form == "txt" and any((*columns, spec.delimiter)):
        form = "csv"
    it = f"and {path} holds {str(form).upper()}"
    if form not in ("csv", "tsv", None):
        refuse(spec, ("delimiter",), f"is for CSV and TSV, {it}")
    if form in ("jsonl", "parquet"):
        refuse(spec, ("no_header",), f"is for CSV, TSV and Excel files, {it}")
    if form in ("xlsx", "parquet"):
        refuse(spec, ("encoding",), f"is for tables in text, {it}")
    return partial(
        read,
        path,
        form=form,
        delimiter=spec.delimiter,
        encoding=spec.encoding,
        header=not spec.no_header,
        data=data,
    )


def _on_stdin(spec: DatasetSpec) -> Reader:
    """What is on standard input, in the format that it looks like."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(
            "--dataset - reads a table or a text a line from standard input, and nothing is given "
            "there: judgeq … --dataset - < my.csv"
        )
    data = sys.stdin.buffer.read()
    start = (
        data[:100_000].replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe").decode(errors="ignore")
    )
    first = next(iter(start.split("\n")), "") if (start := start.strip()) else ""
    cells = [cell.strip() for cell in re.split(r"[,;\t|]", first)]
    is_header = any(cell.casefold() in LIKELY["--text-column"] for cell in cells)
    is_prose = first.endswith((".", "!", "?")) or any(len(cell.split()) > 4 for cell in cells)
    form: Format = "csv"
    if data.startswith((b"PAR1", b"PK\x03\x04")):
        form = "parquet" if data.startswith(b"PAR1") else "xlsx"
    elif first.startswith(("{", "[")):
        form = "jsonl"
    elif spec.no_header or (is_prose and not is_header):
        form = "txt"
    return _reader(spec, Path("standard input"), form, data)


# Tables of the user's


def _table(spec: DatasetSpec, name: str, reader: Reader) -> Dataset:
    text = spec.text_column or TEXT
    levels = None if spec.gold_levels is None else checked_levels(spec.gold_levels)
    if levels is not None and spec.gold_column is None:
        raise UsageError("--gold-levels needs --gold-column: the column that holds the labels.")
    if spec.id_column == text:
        raise UsageError(f"--id-column can't be the column of the texts, {shown(text)}.")
    columns: dict[str, str] = {}
    for column, flag in (
        (spec.text_column, "--text-column"),
        (spec.id_column, "--id-column"),
        (spec.gold_column, "--gold-column"),
        (spec.latent_column, "--latent-column"),
    ):
        if column is not None:
            columns.setdefault(column, f"Name the right one with {flag}.")
    others = None if spec.keep_columns else [name for name in (text, ID) if name not in columns]
    table = reader(Wanted(columns, others))
    table, notices = _chosen(table, spec, text)
    id_column, more = _id_column(table, spec, text)
    missing = ""
    if text not in table.columns:
        # Judgments of items, and a simulated judge's, need no texts: ids say which items are meant.
        missing = _no_texts(table, spec)
        if id_column is None:
            raise DataError(missing)
        more = (*more, f"{missing} Until then there are ids without texts here.")
    ids, texts = items(table, text, id_column)
    gold, kind = None, None
    if spec.gold_column is not None:
        gold, kind = with_kind(read_gold(table, spec.gold_column, levels), levels)
    latent = None if spec.latent_column is None else read_latent(table, spec.latent_column)
    table.bad.check()
    used = (text, id_column, spec.gold_column)
    return Dataset(
        name=name,
        ids=ids,
        texts=texts,
        source=table.name,
        gold=gold,
        gold_kind=kind,
        latent=latent,
        columns={name: cells for name, cells in table.columns.items() if name not in used}
        if spec.keep_columns
        else {},
        notices=(*notices, *more),
        missing_texts=missing,
    )


def _chosen(table: Table, spec: DatasetSpec, text: str) -> tuple[Table, tuple[str, ...]]:
    """The rows to judge, and notices of those that are left out, and of texts that repeat."""
    cells, notices = table.columns.get(text, ()), []
    if spec.skip_empty and (empty := [row for row, cell in enumerate(cells) if is_empty(cell)]):
        named = ", ".join(f"{table.numbers[row] + 1}" for row in empty[:10])
        notices.append(
            f"{len(empty):,} of {len(table):,} rows are left out (--skip-empty), since they have no "
            f"text: {named}{', …' if len(empty) > 10 else ''}."
        )
        without = set(empty)
        table = table.rows([row for row in range(len(table)) if row not in without])
        cells = table.columns[text]
    first: dict[object, int] = {}
    for row, cell in enumerate(cells):
        first.setdefault(cell if isinstance(cell, str) else row, row)
    if len(first) < len(cells):
        repeated = f"{len(cells) - len(first):,} of {len(cells):,} texts repeat an earlier one"
        if spec.merge_duplicates:
            notices.append(f"{repeated}, and are judged once with it (--merge-duplicates).")
            table = table.rows(list(first.values()))
        else:
            once = "--merge-duplicates judges each text once"
            notices.append(f"{repeated}, and each is judged as an item of its own ({once}).")
    return table, tuple(notices)


def _id_column(table: Table, spec: DatasetSpec, text: str) -> tuple[str | None, tuple[str, ...]]:
    """The column of ids, None for row numbers; and a notice where "id" can't be that column."""
    taken = (text, spec.gold_column, spec.latent_column)
    if spec.id_column is not None or ID not in table.columns or ID in taken:
        return spec.id_column, ()
    tried = replace(table, bad=BadRows(table.name))
    read_ids(tried, ID)
    if not tried.bad.count:
        return ID, ()
    return None, (f"{table.name}, {tried.bad.first}, so row numbers are the ids, not that column.",)


def _no_texts(table: Table, spec: DatasetSpec) -> str:
    """That the column of texts is missing, and how to name it: in a command to copy, if one nearly
    fits."""
    flags = {}
    for flag, likely in LIKELY.items():
        given = getattr(spec, flag[2:].replace("-", "_"))
        fits = [name for name in table.header if name.strip().casefold() in likely and name != ID]
        if given is None and fits:
            flags[flag] = min(fits, key=lambda name: likely.index(name.strip().casefold()))
    remedy = "Name the right one with --text-column."
    if "--text-column" in flags:
        command = (
            "" if spec.dataset == STDIN else f"judgeq run --dataset {shlex.quote(spec.dataset)} "
        )
        words = " ".join(f"{flag} {shlex.quote(name)}" for flag, name in flags.items())
        remedy = f"Try: {command}{words}"
    elif spec.dataset == STDIN and not spec.no_header:
        remedy += " If each line is a text, add --no-header."
    return no_column(table.name, table.header, TEXT, remedy)
