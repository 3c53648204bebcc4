"""A column's cells become ids, texts, gold or latent values, or an error that names the row."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from judgeq.datasets.tables import Table, did_you_mean, listed, shown
from judgeq.errors import DataError
from judgeq.types import Floats, GoldKind

# float() also takes "nan", "inf", "1_000" and digits of other scripts; a gold column means none.
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

# Ids end up in tables, on terminals and in file names; none of those may be steered by one.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")

# From here on whole numbers are rather a measurement than levels.
MOST_LEVELS = 20


def read_texts(table: Table, column: str) -> list[str]:
    """The text of every row as it stands; raises DataError where one is empty or no text."""
    texts = []
    for row, cell in enumerate(table.columns[column]):
        if isinstance(cell, str) and not cell.isspace() and cell and "\0" not in cell:
            texts.append(cell)
            continue
        at = f"{table.at(row)}, column {shown(column)}"
        if cell is None or (isinstance(cell, str) and not cell.strip()):
            raise DataError(f"{at}: the text is empty. Remove the row, or fill it in.")
        if isinstance(cell, str):
            raise DataError(f"{at}: the text holds a NUL character. Remove it.")
        raise DataError(
            f"{at}: expected text, got {shown(cell)}. Name the right column with --text-column."
        )
    return texts


def read_ids(table: Table, column: str) -> list[str]:
    """The id of every row; raises DataError where one is empty, twice, or can't be an id."""
    first: dict[str, int] = {}
    for row, cell in enumerate(table.columns[column]):
        whole = isinstance(cell, int) and not isinstance(cell, bool)
        name = str(cell) if isinstance(cell, str) or whole else ""
        if not name.strip() or _CONTROL.search(name):
            wrong = _no_id(cell)
        elif first.setdefault(name, row) != row:
            wrong = f"the id {shown(name)} is also that of {table.at(first[name])}"
        else:
            continue
        raise DataError(
            f"{table.at(row)}, column {shown(column)}: {wrong}. Give every row an id of its own, "
            "or leave --id-column out to number the rows."
        )
    return list(first)


def _no_id(cell: object) -> str:
    if cell is None or (isinstance(cell, str) and not cell.strip()):
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
    """The gold of every row, nan where the cell is empty, null or one of `unlabelled`.

    With `levels` (least of the feature first) a label becomes its place in them, 0-based.
    Raises DataError naming the row of a cell that is neither.
    """
    number = None if levels is None else {level.strip(): float(i) for i, level in enumerate(levels)}
    gold = np.full(len(table), np.nan)
    for row, cell in enumerate(table.columns[column]):
        if isinstance(cell, str):
            cell = cell.strip()
        if cell is None or cell == "" or cell in unlabelled:
            continue
        value = _number(cell) if number is None else number.get(_label(cell))
        if value is None:
            at = f"{table.at(row)}, column {shown(column)}"
            why = _no_number(table, column, cell) if number is None else _no_level(cell, number)
            raise DataError(f"{at}: {why}")
        gold[row] = value
    return gold


def read_latent(table: Table, column: str) -> Floats:
    """The numbers that a simulated judge sees; raises DataError where a row has none."""
    latent = np.empty(len(table))
    for row, cell in enumerate(table.columns[column]):
        value = _number(cell.strip() if isinstance(cell, str) else cell)
        if value is None:
            raise DataError(
                f"{table.at(row)}, column {shown(column)}: {shown(cell)} is not a number. "
                "A latent column needs one in every row."
            )
        latent[row] = value
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


def _number(cell: object) -> float | None:
    if isinstance(cell, str):
        if not _NUMBER.fullmatch(cell):
            return {"true": 1.0, "false": 0.0}.get(cell.casefold())
        cell = float(cell)
    return float(cell) if isinstance(cell, (int, float)) and math.isfinite(cell) else None


def _label(cell: object) -> str:
    """A label as JSON writes it, so that true, 1 and "a" can be named on the command line."""
    return str(cell).lower() if isinstance(cell, bool) else str(cell)


def _no_number(table: Table, column: str, cell: object) -> str:
    word = str(cell).casefold().lstrip("+-")
    if word in ("nan", "inf", "infinity") or _NUMBER.fullmatch(word):
        return f"{shown(cell)} is no finite number. Leave the cell empty where there is no gold."
    cells = (str(each).strip() for each in table.columns[column] if each is not None)
    seen = dict.fromkeys(each for each in cells if each)
    return (
        f"{shown(cell)} is not a number. If the column holds labels, name them from least to most "
        f"of the feature with --gold-levels low,high (seen: {listed(seen)}); leave the cell empty "
        "where there is no gold."
    )


def _no_level(cell: object, number: Mapping[str, float]) -> str:
    return (
        f"{shown(cell)} is none of the levels {listed(number)}."
        f"{did_you_mean(_label(cell), number)} Name every label, least of the feature first, with "
        "--gold-levels low,high; leave the cell empty where there is no gold."
    )
