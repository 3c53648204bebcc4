"""A column's cells become ids, texts, gold or latent values; rows that can't be used are gathered in
the table's `bad`, and the values are good for nothing until its `check` has passed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from judgeq.datasets.dataset import RowIds
from judgeq.datasets.tables import UNUSABLE, Table, did_you_mean, listed, shown
from judgeq.errors import DataError, UsageError
from judgeq.types import Floats, GoldKind

ID = "id"
"""The column of ids, where no other is named."""

# float() also takes "nan", "inf", "1_000" and digits of other scripts; a gold column means none.
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

# Ids end up in tables, on terminals and in file names; none of those may be steered by one.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

MISSING = frozenset(("", "na", "nan", "null", "."))
"""Cells of gold that say that there is none, as R, pandas, databases and SPSS write it."""

# From here on whole numbers are rather a measurement than levels.
MOST_LEVELS = 20


def items(
    table: Table, text_column: str, id_column: str | None
) -> tuple[Sequence[str], list[str] | None]:
    """The ids (row numbers without a column of them), and the texts (None where the table has none).
    Raises DataError for less than two rows."""
    if len(table) < 2:
        table.bad.check()
        raise DataError(
            f"{table.name} has {'one row' if len(table) else 'no rows'}. "
            "Expected at least two: comparing takes two."
        )
    texts = read_texts(table, text_column) if text_column in table.columns else None
    if id_column is not None:
        return read_ids(table, id_column), texts
    numbers = table.numbers
    return RowIds(len(table)) if isinstance(numbers, range) else [*map(str, numbers)], texts


def read_texts(table: Table, column: str) -> list[str]:
    """The text of every row as it stands; a row is bad where it is empty or no text."""
    texts = []
    for row, cell in enumerate(table.columns[column]):
        if isinstance(cell, str) and not cell.isspace() and cell and "\0" not in cell:
            try:
                cell.encode()
            except UnicodeEncodeError:
                problem = f"the text holds half a character ({shown(cell)})"
                table.report(row, problem, "Remove it.", column)
            texts.append(cell)
        elif cell is not UNUSABLE:
            table.report(row, *_no_text(cell), column)
    return texts


def is_empty(cell: object) -> bool:
    """Whether a cell of texts holds none."""
    return cell is None or (isinstance(cell, str) and not cell.strip())


def _no_text(cell: object) -> tuple[str, str]:
    if is_empty(cell):
        remedy = "Fill it in, remove the row, or leave out such rows with --skip-empty."
        return "the text is empty", remedy
    if isinstance(cell, str):
        return "the text holds a NUL character", "Remove it."
    return f"expected text, got {shown(cell)}", "Name the right column with --text-column."


def read_ids(table: Table, column: str) -> list[str]:
    """The id of every row; a row is bad where it is empty, twice, or can't be an id."""
    first: dict[str, int] = {}
    for row, cell in enumerate(table.columns[column]):
        whole = isinstance(cell, int) and not isinstance(cell, bool)
        name = str(cell) if isinstance(cell, str) or whole else ""
        if not name.strip() or _CONTROL.search(name):
            wrong = _no_id(cell)
        elif first.setdefault(name, row) != row:
            wrong = f"the id {shown(name)} is also that of {table.place(first[name])}"
        else:
            continue
        if cell is not UNUSABLE:
            remedy = "Give every row an id of its own, or name another column with --id-column."
            table.report(row, wrong, remedy, column)
    return list(first)


def _no_id(cell: object) -> str:
    if is_empty(cell):
        return "the id is empty"
    if isinstance(cell, str):
        return f"the id {shown(cell)} holds a control character"
    return f"{shown(cell)} can't be an id: it is no text or whole number"


def read_gold(
    table: Table,
    column: str,
    levels: Sequence[str] | None = None,
    unlabelled: Sequence[str] = (),
) -> Floats:
    """The gold of every row, nan where the cell is empty, one of MISSING or one of `unlabelled`.

    With `levels` (least of the feature first) a label becomes its place in them, 0-based, also where
    it is one of MISSING. A row is bad whose cell is neither.
    """
    number = None if levels is None else {level.strip(): float(i) for i, level in enumerate(levels)}
    gold = np.full(len(table), np.nan)
    for row, cell in enumerate(table.columns[column]):
        if isinstance(cell, str):
            cell = cell.strip()
        if cell is None or cell is UNUSABLE or cell in unlabelled:
            continue
        value = _number(table, cell) if number is None else number.get(_label(cell))
        if value is not None:
            gold[row] = value
        elif str(cell).casefold() not in MISSING:
            why = ("", "")
            if table.bad.wanted(table.numbers[row]):  # else it is only counted
                why = _no_number(table, column, cell) if number is None else _no_level(cell, number)
            table.report(row, *why, column)
    return gold


def read_latent(table: Table, column: str) -> Floats:
    """The numbers that a simulated judge sees; a row is bad that has none."""
    latent = np.zeros(len(table))
    for row, cell in enumerate(table.columns[column]):
        value = _number(table, cell.strip() if isinstance(cell, str) else cell)
        if value is not None:
            latent[row] = value
        elif cell is not UNUSABLE:
            remedy = "A latent column needs one in every row."
            table.report(row, f"{shown(cell)} is not a number", remedy, column)
    return latent


def with_kind(
    gold: Floats, levels: Sequence[str] | None = None
) -> tuple[Floats | None, GoldKind | None]:
    """Gold with its kind, or (None, None) where no item is labelled.

    Named levels decide: two are binary, more ordinal. Of numbers, two distinct ones are binary, at
    most 20 distinct whole ones ordinal; anything else is continuous.
    """
    labelled = ~np.isnan(gold)
    distinct = np.unique(gold[labelled])
    if not len(distinct):
        return None, None
    if levels is not None:
        return gold, "binary" if len(levels) == 2 else "ordinal"
    if len(distinct) == 2:
        return gold, "binary"
    whole = bool(np.all(distinct == np.round(distinct)))
    return gold, "ordinal" if whole and len(distinct) <= MOST_LEVELS else "continuous"


def checked_levels(levels: Sequence[str]) -> tuple[str, ...]:
    """Gold labels from least to most of the feature, without blanks. Raises UsageError."""
    stripped = tuple(level.strip() for level in levels)
    if len(stripped) < 2 or len(set(stripped)) < len(stripped) or not all(stripped):
        raise UsageError(
            f"--gold-levels is {listed(levels)}. Expected at least two different labels, from least to "
            "most of the feature: --gold-levels low,high"
        )
    return stripped


def _number(table: Table, cell: object) -> float | None:
    if isinstance(cell, str):
        if table.decimal_comma and "." not in cell:
            cell = cell.replace(",", ".")
        if not _NUMBER.fullmatch(cell):
            return {"true": 1.0, "false": 0.0}.get(cell.casefold())
        cell = float(cell)
    return float(cell) if isinstance(cell, (int, float)) and math.isfinite(cell) else None


def _label(cell: object) -> str:
    """A label as JSON writes it, so that true, 1 and "a" can be named on the command line."""
    return str(cell).lower() if isinstance(cell, bool) else str(cell)


def _no_number(table: Table, column: str, cell: object) -> tuple[str, str]:
    word = str(cell).casefold().lstrip("+-")
    if word in ("inf", "infinity") or _NUMBER.fullmatch(word):
        return f"{shown(cell)} is no finite number", "Leave the cell empty where there is no gold."
    filled = (cell for cell in table.columns[column] if cell is not None and cell is not UNUSABLE)
    seen = dict.fromkeys(label for cell in filled if (label := str(cell).strip()))
    return f"{shown(cell)} is not a number", (
        "If the column holds labels, name them from least to most of the feature with "
        f"--gold-levels low,high (seen: {listed(seen)}); leave the cell empty where there is no gold."
    )


def _no_level(cell: object, number: Mapping[str, float]) -> tuple[str, str]:
    return f"{shown(cell)} is none of the levels {listed(number)}", (
        f"{did_you_mean(_label(cell), number)} Name every label, least of the feature first, with "
        "--gold-levels low,high; leave the cell empty where there is no gold."
    ).lstrip()
