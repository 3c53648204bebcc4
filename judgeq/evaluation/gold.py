"""Gold labels to compare scores with, also from a file; which are positive, and how to evaluate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from judgeq.datasets.columns import read_gold, read_ids, row_ids
from judgeq.datasets.tables import ID, SUFFIXES, display, format_of, listed, read
from judgeq.engine.results import Result
from judgeq.errors import DataError, UsageError
from judgeq.evaluation.metrics import LEVEL, MEASURES, RESAMPLES
from judgeq.settings.run import DatasetSpec
from judgeq.text import LEFT_OUT
from judgeq.types import Bools, Floats

RULES = ("default", "mixture")
"""The thresholds that aren't numbers."""
FILE_FLAGS = ("gold_column", "id_column", "gold_levels")
"""The fields of a plan that are about a file of labels."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """How to evaluate.

    `threshold` is the number above which a score is positive, "default", or "mixture" (where two
    Gaussian components of the scores cross, without the gold); `rating_name` and `subset` leave the
    others out (None: all), as `measures` does. `gold` are other labels than the run's: a file, with its
    columns and levels, or a number for each item (nan: none). Labels above `positive_over` are positive
    (None: the larger of two labels). Raises UsageError for impossible values.
    """

    resamples: int = RESAMPLES
    seed: int = 0
    threshold: float | str = "default"
    rating_name: str | None = None
    subset: str | None = None
    gold: str | Path | Sequence[float] | Floats | None = field(default=None, metadata=LEFT_OUT)
    gold_column: str | None = None
    id_column: str | None = None
    gold_levels: Sequence[str] | None = None
    positive_over: float | None = None
    measures: frozenset[str] = field(default=frozenset(MEASURES), metadata=LEFT_OUT)
    level: ClassVar[float] = LEVEL
    JSON_KEYS: ClassVar = {"level": "level"}

    def __post_init__(self) -> None:
        if self.resamples < 0 or self.seed < 0:
            raise UsageError(
                f"resamples is {self.resamples}, seed {self.seed}. Give 0 or more of both."
            )
        if self.threshold in RULES:
            return
        if isinstance(self.threshold, str) or not math.isfinite(self.threshold):
            raise UsageError(f"--threshold {self.threshold}: give {', '.join(RULES)}, or a number.")


@dataclass(frozen=True, slots=True, eq=False)
class Gold:
    """The labels that scores are compared with: `values` of shape (n,), nan for an item without one.

    `positive`, of shape (n,), is the truth of detection; None without two classes. `classes` names the
    gold that is positive, or why there is no detection. `others` counts the rows of a file about items
    that aren't in the run.
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
    distinct = np.unique(values[~np.isnan(values)])
    if over is not None:
        if not distinct[0] <= over < distinct[-1]:
            raise UsageError(
                f"--positive-over {over:g} leaves one class: the gold labels are from "
                f"{distinct[0]:g} to {distinct[-1]:g}. Give a number that some are above and some not."
            )
        return Gold(values, source, values > over, f"gold > {over:g}")
    if len(distinct) == 2:
        return Gold(values, source, values == distinct[1], f"gold = {distinct[1]:g}")
    why = f"the gold has {len(distinct):,} values; --positive-over X makes those above X positive"
    if len(distinct) == 1:
        why = f"all gold labels are {distinct[0]:g}"
    return Gold(values, source, None, why)


def _read(path: Path, ids: Sequence[str], plan: Plan) -> Gold:
    """The gold of the items `ids` from a CSV, TSV, JSONL or Parquet file, nan for items that aren't in
    it; rows may be about other items, for a run may have a part.

    Without a column of ids an id is what the column "id" says, if there is one and the items aren't
    known by their row numbers; else the row number, from 0.
    """
    column, id_column = plan.gold_column or "gold", plan.id_column
    if format_of(path) is None:
        raise UsageError(f"--gold {path}: expected a file name that ends in {SUFFIXES}.")
    if id_column == column:
        raise UsageError(f"--id-column and --gold-column are both {display(column)}.")
    spec = DatasetSpec(dataset=str(path), gold_column=column, id_column=id_column)
    table = read(path, spec, {column, id_column or ID})
    rows = {name: row for row, name in enumerate(ids)}
    numbered = list(rows) == [*map(str, range(len(ids)))]
    if id_column is None and not numbered and column != ID and ID in table.columns:
        id_column = ID
    names = row_ids(table) if id_column is None else read_ids(table, id_column)
    labels = dict(zip(names, read_gold(table, column, plan.gold_levels), strict=True))
    gold = np.array([labels.get(name, np.nan) for name in ids])
    if np.isnan(gold).all():
        by = "row number" if id_column is None else f"column {display(id_column)}"
        raise DataError(
            f"{path}, column {display(column)}: no row has a label of an item of the run. By {by} the "
            f"file is about {listed(names[:3])} …, the run about {listed(ids[:3])} …: --id-column "
            "names the column of the ids."
        )
    found = gold_of(gold, path.name, plan.positive_over)
    return replace(found, others=len(labels.keys() - rows.keys()))


def gold_for(run: Result, plan: Plan, *, needed: bool = False) -> Gold | None:
    """The gold of a run's items: its own, or other labels. None if it has none, and they are neither
    `needed` nor what something of the plan is about. Raises as `gold_of`, DataError naming file and row,
    and UsageError for columns or levels that can't be."""
    ids, over = run.items.ids, plan.positive_over
    if isinstance(plan.gold, str | Path):
        return _read(Path(plan.gold), ids, plan)
    for name in FILE_FLAGS:
        if getattr(plan, name) is not None:
            flag = "--" + name.replace("_", "-")
            raise UsageError(f"{flag} is about a file of labels: name it with --gold FILE.")
    if plan.gold is None:
        needed |= over is not None or plan.threshold != "default"
        own = run.items.gold
        unlabelled = own is None or np.isnan(own).all()
        return None if unlabelled and not needed else gold_of(own, f"run {run.run.id}", over)
    values = np.asarray(plan.gold, dtype=np.float64)
    if values.shape != (len(ids),):
        raise UsageError(
            f"gold has the shape {values.shape}. Expected a number for each of the {len(ids):,} items "
            f"of run {run.run.id}, in the order of its scores."
        )
    return gold_of(values, "gold", over)
