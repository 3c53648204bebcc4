"""A known corpus, a table of the user's, or synthetic items: each becomes one frozen Dataset."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from judgeq.datasets import corpora, synthetic
from judgeq.datasets.columns import columns_of, dataset_of
from judgeq.datasets.dataset import (
    STDIN,
    Dataset,
    DatasetInfo,
    part,
    refuse,
    without_alone,
    without_long,
)
from judgeq.datasets.tables import (
    SUFFIXES,
    TEXT,
    Table,
    did_you_mean,
    display,
    format_of,
    listed,
    read,
)
from judgeq.errors import UsageError
from judgeq.settings.run import DatasetSpec

__all__ = [
    "FROM_PYTHON",
    "STDIN",
    "TEXT",
    "Dataset",
    "DatasetInfo",
    "DatasetSpec",
    "dataset_names",
    "load",
]

FROM_PYTHON = "python"
"""The name of texts that were given in Python."""


def load(
    spec: DatasetSpec,
    *,
    seed: int = 0,
    download: bool = True,
    base: Path | None = None,
    frame: Table | None = None,
) -> Dataset:
    """The dataset that `spec` names; paths are relative to `base` (default: the current folder).
    `frame` is the table that "-" stands for, in place of standard input.

    Raises DataError where a file is missing or can't be read, naming row and column, and UsageError
    where a name or a combination of settings can't be. Only synthetic items and samples depend on
    `seed`.
    """
    base, name = base or Path.cwd(), spec.dataset
    path, every = base / name, [*corpora.names(), *synthetic.NAMES]
    there = name and os.path.exists(path)  # noqa: PTH110  it may be any string
    if not (there or name in (*every, STDIN) or format_of(name)):
        raise UsageError(
            f"No dataset is called {display(name)}.{did_you_mean(path.name, every)} Known are "
            f"{listed(every)}; or give the path of a file ({SUFFIXES})."
        )
    if name in synthetic.NAMES:
        return part(synthetic.load(spec, seed), spec, seed)
    refuse(spec, ["n"], "is for synthetic datasets only")
    if name in every:
        whole = corpora.load(spec, base, may_download=download)
    else:
        stem = Path(path.stem).stem if path.suffix.lower() == ".gz" else path.stem
        if name != STDIN:
            table = read(path, spec, columns_of(spec))
        elif frame is not None:
            table, stem = frame, FROM_PYTHON
        else:
            table, stem = _on_stdin(spec), "stdin"
        whole = replace(dataset_of(table, spec), name=stem)
    return without_alone(without_long(part(whole, spec, seed), spec.longest_text))


def dataset_names() -> list[str]:
    """Return the names of the datasets that judgeq knows: corpora, and synthetic shapes."""
    return [*corpora.names(), *synthetic.NAMES]


def catalog(data_dir: Path | None = None) -> list[DatasetInfo]:
    """Everything that has a name: the known corpora, then the synthetic shapes.

    Raises DataError where a dataset.toml is broken. Nothing is downloaded.
    """
    return [*corpora.catalog(data_dir), *synthetic.catalog()]


def _on_stdin(spec: DatasetSpec) -> Table:
    """What is on standard input, in the format that it looks like."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(
            "--dataset - reads a table or a text a line from standard input, and nothing is given "
            "there: judgeq … --dataset - < my.csv"
        )
    data = sys.stdin.buffer.read()
    return read(Path("standard input"), spec, columns_of(spec), data=data)
