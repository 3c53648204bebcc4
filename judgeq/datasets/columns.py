"""A table's columns become a dataset: ids, texts, gold, latent values. What is wrong with its rows is
gathered in the table, and values are good for nothing until its `check` has passed."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from judgeq.datasets.dataset import OF_COLUMNS, STDIN, Dataset, RowIds, flag_of
from judgeq.datasets.tables import ID, LISTED, TEXT, Source, Table, did_you_mean, display, listed
from judgeq.errors import DataError, UsageError
from judgeq.settings.run import DatasetSpec
from judgeq.types import Floats, GoldKind

LIKELY: Mapping[str, str] = {
    "text_column": "text texts content body message comment sentence review tweet post response "
    "answer abstract document description",
    "id_column": "id ids doc_id item_id text_id identifier",
    "gold_column": "gold label labels score rating target class",
}
"""What columns are called, whatever the case of the letters, the likeliest first."""

# float() also takes "nan", "inf", "1_000" and digits of other scripts; a gold column means none.
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

_TRUTH = {"true": 1.0, "false": 0.0}

# Ids end up in tables, on terminals and in file names; none of those may be steered by one.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_NO_TEXT = re.compile(r"[\0\ud800-\udfff]")

MISSING = frozenset(("", "na", "nan", "null", "."))
"""Cells of gold that say that there is none, as R, pandas, databases and SPSS write it."""

# From here on whole numbers are rather a measurement than levels.
MOST_LEVELS = 20


def dataset_of(source: Source, spec: DatasetSpec, unlabelled: Sequence[str] = ()) -> Dataset:
    """The items of a table, with `unlabelled` as in `read_gold`. Judgments of items, and a simulated
    judge's, need no texts: where there is no column of them, ids say which items are meant.

    Raises DataError for columns that are missing and rows that can't be used, UsageError for settings
    that can't be.
    """
    text, gold, levels = spec.text_column or TEXT, spec.gold_column, spec.gold_levels
    if levels is not None and gold is None:
        raise UsageError("--gold-levels needs --gold-column: the column that holds the labels.")
    if spec.id_column == text:
        raise UsageError(f"--id-column can't be the column of the texts, {display(text)}.")
    named = {
        column: f"Name the right one with {flag_of(role)}."
        for role in OF_COLUMNS
        if (column := getattr(spec, role)) is not None
    }
    table = Table(source, named, None if spec.keep_columns else (text, ID))
    notices = [*_choose_rows(table, spec, text)]
    ids, id_column = None, spec.id_column
    if id_column or ID in {*table.columns} - {text, *named}:
        before = len(table.bad)
        ids = read_ids(table, id_column or ID)
        if (bad := table.bad[before:]) and id_column is None:
            problem = min(bad)[1]
            notices.append(f"{table.name}, {problem}, so row numbers are the ids, not that column.")
            del table.bad[before:]
            ids = None
    texts, missing = None, ""
    if text in table.columns:
        texts = [*_values(table, text, _text)]
    else:
        missing = _no_texts(table, spec)
        if ids is None:
            raise DataError(missing)
        notices.append(f"{missing} Until then there are ids without texts here.")
    values = None if gold is None else read_gold(table, gold, levels, unlabelled)
    kind = None if values is None else kind_of(values, levels)
    latent = None if spec.latent_column is None else read_latent(table, spec.latent_column)
    table.check()
    if (n := len(table)) < 2:
        raise DataError(
            f"{table.name} has {'one row' if n else 'no rows'}. "
            "Expected at least two: comparing takes two."
        )
    used = {text, gold} if ids is None else {text, gold, id_column or ID}
    others = {name: cells for name, cells in table.columns.items() if name not in used}
    return Dataset(
        name=source.name,
        ids=row_ids(table) if ids is None else ids,
        texts=texts,
        source=source.name,
        gold=None if kind is None else values,
        gold_kind=kind,
        latent=latent,
        columns=others if spec.keep_columns else {},
        notices=tuple(notices),
        missing_texts=missing,
    )


def _choose_rows(table: Table, spec: DatasetSpec, text: str) -> Iterator[str]:
    """Leaves out rows as the settings say; gives notices of these, and of texts that repeat."""
    cells = table.columns.get(text, [])
    empty = [row for row, cell in enumerate(cells) if spec.skip_empty and is_empty(cell)]
    if empty:
        numbers = listed((table.numbers[row] + 1 for row in empty), LISTED)
        yield (
            f"{len(empty):,} of {len(cells):,} rows are left out (--skip-empty), since they have no "
            f"text: {numbers}."
        )
        table.keep(sorted({*range(len(cells))} - {*empty}))
        cells = table.columns[text]
    first: dict[object, int] = {}
    for row, cell in enumerate(cells):
        first.setdefault(cell if isinstance(cell, str) else row, row)
    if repeated := len(cells) - len(first):
        then = "each is judged as an item of its own (--merge-duplicates judges each text once)."
        if spec.merge_duplicates:
            then = "are judged once with it (--merge-duplicates)."
            table.keep(first.values())
        yield f"{repeated:,} of {len(cells):,} texts repeat an earlier one, and {then}"


def row_ids(table: Table) -> Sequence[str]:
    """The numbers of the rows as ids."""
    whole = [*table.numbers[-1:]] == [len(table) - 1]
    return RowIds(len(table)) if whole else [*map(str, table.numbers)]


def _no_texts(table: Table, spec: DatasetSpec) -> str:
    """That the column of texts is missing, and how to name it: in a command to copy, if one nearly
    fits."""
    folded = {name.strip().casefold(): name for name in reversed(table.header) if name != ID}
    fits = {}
    for role, likely in LIKELY.items():
        names = [folded[word] for word in likely.split() if word in folded]
        if names and getattr(spec, role) is None:
            fits[flag_of(role)] = shlex.quote(names[0])
    remedy = "Name the right one with --text-column."
    if "--text-column" in fits:
        source = (
            "" if spec.dataset == STDIN else f"judgeq run --dataset {shlex.quote(spec.dataset)} "
        )
        remedy = f"Try: {source}{' '.join(f'{flag} {column}' for flag, column in fits.items())}"
    elif spec.dataset == STDIN and not spec.no_header:
        remedy += " If each line is a text, add --no-header."
    return table.without(TEXT, remedy)


def _values(table: Table, column: str, value_of: Callable[[Any], Any]) -> Iterator[Any]:
    """What `value_of` makes of each cell of a column; nan where it raises ValueError (what is wrong,
    what to do), which is reported."""
    for row, cell in enumerate(table.columns[column]):
        try:
            yield value_of(cell)
        except ValueError as error:
            problem, remedy = error.args
            table.report(row, problem, remedy, column)
            yield math.nan


def _text(cell: Any) -> str:
    if is_empty(cell):
        remedy = "Fill it in, remove the row, or leave out such rows with --skip-empty."
        raise ValueError("the text is empty", remedy)
    if not isinstance(cell, str):
        remedy = "Name the right column with --text-column."
        raise ValueError(f"expected text, got {display(cell)}", remedy)
    if found := _NO_TEXT.search(cell):
        what = "a NUL character" if found[0] == "\0" else f"half a character ({display(cell)})"
        raise ValueError(f"the text holds {what}", "Remove it.")
    return cell


def is_empty(cell: object) -> bool:
    """Whether a cell of texts holds none."""
    return cell is None or (isinstance(cell, str) and not cell.strip())


def read_ids(table: Table, column: str) -> list[str]:
    """The id of every row; a row is bad where it is empty, twice, or can't be an id."""
    remedy = "Give every row an id of its own, or name another column with --id-column."
    rows = iter(range(len(table)))
    first: dict[str, int] = {}

    def id_of(cell: Any) -> str:
        row, name = next(rows), str(cell)
        if is_empty(cell):
            problem = "the id is empty"
        elif not isinstance(cell, str) and type(cell) is not int:
            problem = f"{name} can't be an id: it is no text or whole number"
        elif _CONTROL.search(name):
            problem = f"the id {display(name)} holds a control character"
        elif first.setdefault(name, row) != row:
            problem = f"the id {display(name)} is also that of {table.place(first[name])}"
        else:
            return name
        raise ValueError(problem, remedy)

    return [*_values(table, column, id_of)]


def read_gold(
    table: Table,
    column: str,
    levels: Sequence[str] | None = None,
    unlabelled: Sequence[str] = (),
) -> Floats:
    """The gold of every row, nan where the cell is empty, one of MISSING or one of `unlabelled`.

    With `levels` (least of the feature first) a label becomes its place in them, 0-based, also where
    it is one of MISSING. A row is bad whose cell is neither. Raises UsageError for levels that are not
    two or more different ones.
    """
    number = {level.strip(): float(i) for i, level in enumerate(levels or ())}
    if levels is not None and len({*number} - {""}) < max(2, len(levels)):
        raise UsageError(
            f"--gold-levels is {listed(number)}. Expected at least two different labels, from least to "
            "most of the feature: --gold-levels low,high"
        )
    cells = (cell for cell in table.columns[column] if not is_empty(cell))
    seen = listed(dict.fromkeys(str(cell).strip() for cell in cells))
    empty = "leave the cell empty where there is no gold."

    def gold_of(cell: Any) -> float:
        # As JSON writes it, so that true, 1 and "a" can be named on the command line.
        label = str(cell).lower() if isinstance(cell, bool) else str(cell).strip()
        value = number.get(label) if number else _number(table, cell)
        if value is not None:
            return value
        if cell is None or label in unlabelled or label.casefold() in MISSING:
            return math.nan
        if number:
            hint = did_you_mean(label, number).lstrip()
            every = "Name every label, least of the feature first, with --gold-levels low,high;"
            problem = f"{display(cell)} is none of the levels {listed(number)}"
            raise ValueError(problem, f"{hint} {every} {empty}".lstrip())
        raise ValueError(
            f"{display(cell)} is not a number",
            "If the column holds labels, name them from least to most of the feature with "
            f"--gold-levels low,high (seen: {seen}); {empty}",
        )

    return np.fromiter(_values(table, column, gold_of), np.float64, len(table))


def read_latent(table: Table, column: str) -> Floats:
    """The numbers that a simulated judge sees; a row is bad that has none."""

    def latent_of(cell: Any) -> float:
        if (value := _number(table, cell)) is None:
            remedy = "A latent column needs one in every row."
            raise ValueError(f"{display(cell)} is not a number", remedy)
        return value

    return np.fromiter(_values(table, column, latent_of), np.float64, len(table))


def kind_of(gold: Floats, levels: Sequence[str] | None = None) -> GoldKind | None:
    """The kind of gold; None where no item is labelled.

    Named levels decide: two are binary, more ordinal. Of numbers, two distinct ones are binary, at
    most 20 distinct whole ones ordinal; anything else is continuous.
    """
    distinct = np.unique(gold[~np.isnan(gold)])
    classes = len(levels or distinct)
    if not len(distinct):
        return None
    if classes == 2:
        return "binary"
    whole = levels or (np.all(distinct == np.round(distinct)) and classes <= MOST_LEVELS)
    return "ordinal" if whole else "continuous"


def _number(table: Table, cell: Any) -> float | None:
    """A finite number; None for any other cell."""
    if isinstance(cell, str):
        cell = cell.strip()
        if table.decimal_comma and "." not in cell:
            cell = cell.replace(",", ".")
        cell = float(cell) if _NUMBER.fullmatch(cell) else _TRUTH.get(cell.casefold())
    return float(cell) if isinstance(cell, (int, float)) and math.isfinite(cell) else None
