"""Gold labels to hold scores against, also from a file; and which are positive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np

from judgeq.datasets.columns import ID, check_levels, read_gold, read_ids
from judgeq.datasets.dataset import RowIds
from judgeq.datasets.formats import SUFFIXES, format_of, read
from judgeq.datasets.tables import Wanted, listed, shown
from judgeq.errors import DataError, UsageError
from judgeq.json_marks import LEFT_OUT
from judgeq.types import Bools, Floats


@dataclass(frozen=True, slots=True, eq=False)
class Gold:
    """What scores are held against: `values` of shape (n,), nan where an item has no label.

    `positive`, of shape (n,), is the truth of detection; None where there are no two classes.
    `classes` says which gold is positive, or why there is no detection. `others` counts the rows of
    a file about items that the run doesn't have.
    """

    values: Floats = field(metadata=LEFT_OUT)
    source: str
    positive: Bools | None = field(metadata=LEFT_OUT)
    classes: str
    others: int = 0
    JSON_KEYS: ClassVar = {"not_in_run": "others"}


def gold_of(values: Floats | None, source: str, over: float | None = None) -> Gold:
    """Labels of shape (n,) as gold; `source` says where they are from, `over` over which label an
    item is positive (None: of two values the larger).

    Raises UsageError where there is no label, or where `over` leaves one class.
    """
    if values is None or np.isnan(values).all():
        raise UsageError(
            f"{source} has no gold labels. Give them with --gold FILE (and --gold-column, --id-column)."
        )
    known = values[~np.isnan(values)]
    distinct = np.unique(known)
    if over is not None:
        if not distinct[0] <= over < distinct[-1]:
            raise UsageError(
                f"--positive-over {over:g} leaves one class: the gold labels are from "
                f"{distinct[0]:g} to {distinct[-1]:g}. Give a number that some are above and some not."
            )
        return Gold(values, source, values > over, f"gold > {over:g}")
    if len(distinct) == 2:
        return Gold(values, source, values == distinct[1], f"gold = {distinct[1]:g}")
    if len(distinct) == 1:
        return Gold(values, source, None, f"all gold labels are {distinct[0]:g}")
    why = f"the gold has {len(distinct):,} values; --positive-over X makes those above X positive"
    return Gold(values, source, None, why)


def read_gold_file(
    path: Path,
    ids: Sequence[str],
    gold_column: str = "gold",
    id_column: str | None = None,
    levels: Sequence[str] | None = None,
) -> tuple[Floats, int]:
    """The gold of the items `ids`, shape (n,), from a CSV, TSV, JSONL or Parquet file, nan for items
    that aren't in it; and how many rows are about other items, for a run may have a part.

    Without `id_column` an id is what the column "id" says, if there is one and the items aren't known
    by their row numbers; else the row number, from 0.

    Raises DataError naming file and row, UsageError for columns or levels that can't be.
    """
    if format_of(path) is None:
        raise UsageError(f"--gold {path}: its suffix tells no format. Name it by one: {SUFFIXES}.")
    if id_column == gold_column:
        raise UsageError(f"--id-column and --gold-column are both {shown(gold_column)}.")
    levels = check_levels(levels)
    wanted = {gold_column: "Name the column of the gold labels with --gold-column."}
    if id_column is not None:
        wanted[id_column] = "Name the column of the ids with --id-column."
    numbered = all(name == str(row) for row, name in enumerate(ids))
    looked_for = () if numbered or id_column or gold_column == ID else (ID,)
    table = read(path, Wanted(wanted, looked_for))
    if ID in looked_for and ID in table.columns:
        id_column = ID
    labels = read_gold(table, gold_column, levels)
    names = RowIds(len(table)) if id_column is None else read_ids(table, id_column)
    table.bad.check()
    rows = {name: row for row, name in enumerate(ids)}
    gold = np.full(len(rows), np.nan)
    others = sum(name not in rows for name in names)
    if 0 < others == len(names):
        hint = " Name the column of the ids with --id-column." if id_column is None else ""
        what = "row number" if id_column is None else "id"
        raise DataError(
            f"{table.name}, {table.place(0)}: the run has no item of the {what} {shown(names[0])}, nor "
            f"of any other in the file; its ids are {listed(ids[:3])} …{hint}"
        )
    for row, name in enumerate(names):
        if name in rows:
            gold[rows[name]] = labels[row]
    if np.isnan(gold).all():
        raise DataError(
            f"{path}, column {shown(gold_column)}: no row of an item of the run has a gold label."
        )
    return gold, others
