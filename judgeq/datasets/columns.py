"""A table's columns become a dataset: ids, texts, gold, latent values."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any, TypeVar

import numpy as np

from judgeq.datasets.dataset import STDIN, Dataset, RowIds, without_repeated
from judgeq.datasets.tables import (
    ID,
    OF_COLUMNS,
    TEXT,
    Table,
    as_list,
    did_you_mean,
    display,
    listed,
)
from judgeq.errors import DataError, UsageError
from judgeq.settings.run import DatasetSpec
from judgeq.types import Floats, GoldKind

# float() also takes "nan", "inf", "1_000" and digits of other scripts; a gold column means none.
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

_TRUTH = {"true": 1.0, "false": 0.0}

# Ids end up in tables, on terminals and in file names; none of those may be steered by one.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_NO_TEXT = re.compile(r"[\0\ud800-\udfff]")

# Characters that leave no mark: white space, controls but NUL, joiners, selectors, fillers, tags.
_UNSEEN = re.compile(
    "[\\s\x01-\x1f\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202f\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000e0000-\U000e0fff]+"
)

EXCEL_ERRORS = frozenset(
    (
        *("#n/a", "#name?", "#value!", "#ref!", "#div/0!", "#num!", "#null!", "#spill!", "#calc!"),
        *("#getting_data", "#field!", "#blocked!", "#connect!", "#unknown!", "#busy!", "#python!"),
        *("#nv", "#wert!", "#bezug!", "#zahl!"),  # German
        *("#nom?", "#valeur!", "#nombre!", "#nul!"),  # French
        *("#¿nombre?", "#¡valor!", "#¡ref!", "#¡num!", "#¡nulo!", "#¡div/0!"),  # Spanish
        *("#nome?", "#valore!", "#rif!"),  # Italian
    )
)
"""What Excel writes in place of a value, in small letters; a text that begins with = or - becomes it."""
MISSING = frozenset(
    ("", "na", "n/a", "n.a.", "<na>", "nan", "null", "none", "nil", "\\n", ".", "-", "--", "–", "—")
)
"""Cells that say that there is no value, as R, pandas, databases, SPSS and people write it."""
NO_TEXT = (MISSING | EXCEL_ERRORS) - {""}
"""Texts that stand for a missing one, in small letters."""

# From here on whole numbers are rather a measurement than levels.
MOST_LEVELS = 20

T = TypeVar("T")


def columns_of(spec: DatasetSpec) -> set[str] | None:
    """The columns of a table that its dataset is made of, if they are there; None: all."""
    named = {getattr(spec, role) for role in OF_COLUMNS} - {None}
    return None if spec.keep_columns else {spec.text_column or TEXT, ID, *named}


def dataset_of(table: Table, spec: DatasetSpec, unlabelled: Sequence[str] = ()) -> Dataset:
    """The items of a table, with `unlabelled` as in `read_gold`. Judgments of items, and a simulated
    judge's, need no texts: where there is no column of them, ids say which items are meant.

    Raises DataError for a column that is missing or a row that can't be used, UsageError for settings
    that can't be.
    """
    text, levels, id_column = spec.text_column or TEXT, spec.gold_levels, spec.id_column
    if levels is not None and spec.gold_column is None:
        raise UsageError("--gold-levels needs --gold-column: the column that holds the labels.")
    if id_column == text:
        raise UsageError(f"--id-column can't be the column of the texts, {display(text)}.")
    texts = None
    missing = ""
    notices = list[str]()
    cautions = list[str]()
    if table.empty_rows:
        notices.append(f"{_rows(table.empty_rows)} left out: all cells are empty.")
    if spec.text_column or text in table.columns:
        cells = cells_of(table, text, "--text-column")
        if spec.skip_empty:
            table, left_out = without_empty(table, cells)
            notices += left_out
        else:
            cautions += no_text_cautions(cells)
        texts = values_of(table, text, partial(_text, text), "--text-column")
    else:
        alone = " If each line is a text, add --no-header." if spec.dataset == STDIN else ""
        missing = no_column(table, text, "--text-column") + alone
    ids = None
    try:
        if id_column or (ID in table.columns and ID not in (text, spec.gold_column)):
            ids = read_ids(table, id_column or ID)
    except DataError as error:
        if id_column:
            raise
        if isinstance(error, RepeatedIdError):
            notices.append(
                f"{error.words}, so row numbers are used as ids. Name another with --id-column."
            )
        else:
            notices.append(f"Row numbers are used as ids. {error}")
    if texts is None and ids is None:
        raise DataError(missing)
    if texts is None:
        notices.append(f"{missing} Until then there are ids without texts here.")
    gold = latent = kind = None
    if spec.gold_column is not None:
        gold = read_gold(table, spec.gold_column, levels, unlabelled)
        kind = kind_of(gold, levels)
    if spec.latent_column is not None:
        latent = read_latent(table, spec.latent_column)
    if (n := len(table)) < 2:
        raise DataError(
            f"{table.name} has {'one row' if n else 'no rows'}. "
            "Expected at least two: comparing takes two."
        )
    groups = None if spec.group_column is None else read_groups(table, spec.group_column)
    used = {"", text, spec.gold_column, spec.group_column, None if ids is None else id_column or ID}
    others = {*table.header} - used if spec.keep_columns else ()
    dataset = Dataset(
        name=table.name,
        ids=row_ids(table) if ids is None else ids,
        texts=texts,
        source=table.name,
        gold=None if kind is None else gold,
        gold_kind=kind,
        latent=latent,
        groups=groups,
        columns={name: cells_of(table, name, "") for name in table.header if name in others},
        notices=tuple(notices),
        cautions=tuple(cautions),
        missing_texts=missing,
    )
    return without_repeated(dataset, merge=spec.merge_duplicates)


def row_ids(table: Table) -> Sequence[str]:
    """The numbers of the rows as ids."""
    return RowIds(len(table)) if isinstance(table.rows, range) else [*map(str, table.rows)]


def is_empty(cell: object) -> bool:
    """Whether a cell of texts holds none: nothing, or characters that can't be seen."""
    if cell is None:
        return True
    if not isinstance(cell, str):
        return False
    if cell and " " < cell[0] < "\x7f":  # the quick way, for most texts
        return False
    return not cell or _UNSEEN.fullmatch(cell) is not None


def stands_for_no_text(cell: object) -> bool:
    """Whether a text is only a word for a missing one: NA, n/a, null, none, - or an error of Excel."""
    return isinstance(cell, str) and len(cell) < 30 and cell.strip().casefold() in NO_TEXT


def without_empty(table: Table, cells: Sequence[object]) -> tuple[Table, list[str]]:
    """Return the table without rows whose text is empty or stands for a missing one, and a notice of
    how many these are."""
    empty = [is_empty(cell) for cell in cells]
    words = Counter(
        str(cell).strip() for cell in cells if not is_empty(cell) and stands_for_no_text(cell)
    )
    out = sum(empty) + words.total()
    if not out:
        return table, []
    told = f"Left out: {out:,} of {len(cells):,} rows"
    if not words:
        notice = f"{told} without a text."
    elif any(empty):
        notice = (
            f"{told}: {sum(empty):,} without a text, {words.total():,} whose text is only "
            f"{_counted(words)}."
        )
    else:
        notice = f"{told}, whose text is only {_counted(words)}."
    rows = [
        row
        for row, cell, none in zip(table.rows, cells, empty, strict=True)
        if not none and not stands_for_no_text(cell)
    ]
    return replace(table, rows=rows), [notice]


def no_text_cautions(cells: Sequence[object]) -> list[str]:
    """Return a caution where texts only stand for a missing one, with what they say and how often."""
    words = Counter(str(cell).strip() for cell in cells if stands_for_no_text(cell))
    if not words:
        return []
    is_one = words.total() == 1
    hold = "holds" if is_one else "hold"
    judged = (
        "It is judged as a text; leave it" if is_one else "They are judged as texts; leave them"
    )
    return [
        f"{words.total():,} of {len(cells):,} texts {hold} only {_counted(words)}. {judged} out with "
        "--skip-empty."
    ]


def _rows(n: int) -> str:
    return "1 row is" if n == 1 else f"{n:,} rows are"


def _counted(words: Counter[str], most: int = 6) -> str:
    """Return words with how often they occur, the most frequent ones."""
    parts = [
        display(word) + (f" ({times:,} times)" if times > 1 else "")
        for word, times in words.most_common(most)
    ]
    more = f" and {len(words) - most:,} more" if len(words) > most else ""
    return ", ".join(parts) + more


def _text(column: str, cell: Any) -> str:
    if is_empty(cell):
        remedy = "Fill it in, remove the row, or leave out such rows with --skip-empty."
        raise ValueError("the text is empty", remedy)
    if not isinstance(cell, str):
        remedy = "Name the right column with --text-column."
        if path := _path_of_text(cell):
            remedy = f"Name the text within it: --text-column {display(f'{column}.{path}')}."
        raise ValueError(f"expected text, got {display(cell)}", remedy)
    found = None if cell.isascii() and "\0" not in cell else _NO_TEXT.search(cell)
    if found:
        what = "a NUL character" if found[0] == "\0" else f"half a character ({display(cell)})"
        raise ValueError(f"the text holds {what}", "Remove it.")
    return cell


def _path_of_text(value: object) -> str:
    """Return the path of the longest text within a list or object; "" where there is none."""
    found = dict[str, str]()

    def look(part: object, path: str, depth: int) -> None:
        if isinstance(part, str):
            found[path] = part
        elif isinstance(part, list) and depth:
            for at, element in enumerate(part[:3]):
                look(element, f"{path}.{at}", depth - 1)
        elif isinstance(part, dict) and depth:
            for key, element in [*part.items()][:20]:
                look(element, f"{path}.{key}", depth - 1)

    look(value, "", 4)
    longest = max(found, key=lambda path: len(found[path]), default="")
    return longest.removeprefix(".")


class RepeatedIdError(DataError):
    """Two rows have one id. `words` say so without a remedy."""

    def __init__(self, message: str, words: str) -> None:
        super().__init__(message)
        self.words = words


def read_ids(table: Table, column: str) -> list[str]:
    """The id of every row. Raises DataError where one is empty, twice, or can't be an id."""
    remedy = "Give every row an id of its own, or name another column with --id-column."

    ids = values_of(table, column, partial(_name, "id", remedy), "--id-column")
    first: dict[str, int] = {}
    for i, name in enumerate(ids):
        if first.setdefault(name, i) != i:
            before = table.place(first[name])
            twice = f"the id {display(name)} is also that of {before}"
            raise RepeatedIdError(
                str(table.error(i, twice, remedy, column)),
                f"Column {display(column)} has duplicates ({display(name)} in {before} and "
                f"{table.place(i)})",
            )
    return ids


def read_groups(table: Table, column: str) -> list[str]:
    """The group of every row. Raises DataError where one is missing, or can't be one."""
    remedy = "Give every row a group, or remove it: texts are compared only within a group."
    return values_of(table, column, partial(_name, "group", remedy), "--group-column")


def _name(what: str, remedy: str, cell: Any) -> str:
    """The name in a cell. Raises ValueError for what can't be one."""
    if is_empty(cell):
        raise ValueError(f"the {what} is empty", remedy)
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    if not isinstance(cell, str) and type(cell) is not int:
        raise ValueError(f"{cell} can't be the {what}: it is no text or whole number", remedy)
    if _CONTROL.search(name := str(cell)):
        raise ValueError(f"the {what} {display(name)} holds a control character", remedy)
    return name


def read_gold(
    table: Table,
    column: str,
    levels: Sequence[str] | None = None,
    unlabelled: Sequence[str] = (),
) -> Floats:
    """The gold of every row, nan where the cell is empty, one of MISSING or one of `unlabelled`.

    With `levels` (least of the feature first) a label becomes its place in them, 0-based, also where
    it is one of MISSING. Raises DataError for a cell that is neither, UsageError for levels that are not
    two or more different ones.
    """
    number = {level.strip(): float(i) for i, level in enumerate(levels or ())}
    if levels is not None and len({*number} - {""}) < max(2, len(levels)):
        raise UsageError(
            f"--gold-levels is {listed(number)}. Expected at least two different labels, from least to "
            "most of the feature: --gold-levels low,high"
        )
    cells = [cell for cell in cells_of(table, column, "--gold-column") if not is_empty(cell)]
    seen = listed(dict.fromkeys(str(cell).strip() for cell in cells))
    remedy = (
        f"Name labels in words from least to most with --gold-levels low,high (seen: {seen}); leave the "
        "cell empty where there is no gold."
    )
    numbers = 0 if number else sum(_number(table, cell) is not None for cell in cells)
    if numbers > len(cells) / 2:
        remedy = (
            f"{numbers:,} of {len(cells):,} labels are numbers: correct this one, or leave it empty "
            "where there is no label."
        )

    def gold_of(cell: Any) -> float:
        # As JSON writes it, so that true, 1 and "a" can be named on the command line.
        label = str(cell).lower() if isinstance(cell, bool) else str(cell).strip()
        value = number.get(label) if number else _number(table, cell)
        if value is not None:
            return value
        if is_empty(cell) or label in unlabelled or label.casefold() in MISSING | EXCEL_ERRORS:
            return math.nan
        if number:
            raise ValueError(f"{display(cell)} is none of the levels {listed(number)}", remedy)
        raise ValueError(f"{display(cell)} is not a number", remedy)

    return np.array(values_of(table, column, gold_of, "--gold-column"), dtype=np.float64)


def read_latent(table: Table, column: str) -> Floats:
    """The numbers that a simulated judge sees. Raises DataError for a row that has none."""

    def latent_of(cell: Any) -> float:
        if (value := _number(table, cell)) is None:
            remedy = "A latent column needs one in every row."
            raise ValueError(f"{display(cell)} is not a number", remedy)
        return value

    return np.array(values_of(table, column, latent_of, "--latent-column"), dtype=np.float64)


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
    if isinstance(cell, Decimal) and cell.is_finite():
        return float(cell)
    return float(cell) if isinstance(cell, (int, float)) and math.isfinite(cell) else None


# Cells


def cells_of(table: Table, column: str, flag: str) -> list[Any]:
    """A column's cells, None where one is missing. Raises DataError where there is no such column,
    which names the flag for another."""
    if column not in table.columns:
        raise DataError(no_column(table, column, flag))
    cells = table.columns[column]
    if type(cells) is not list:
        cells = as_list(cells, f"the column {display(column)}")
    return cells if len(cells) == len(table) else [cells[row] for row in table.rows]


def values_of(table: Table, column: str, value_of: Callable[[Any], T], flag: str) -> list[T]:
    """What `value_of` makes of each cell of a column. Raises DataError for the first of which it
    raises ValueError (what is wrong, what to do), with the number of the others."""
    values, bad = list[T](), dict[int, ValueError]()
    for i, cell in enumerate(cells_of(table, column, flag)):
        try:
            values.append(value_of(cell))
        except ValueError as error:
            bad[i] = error
    if bad:
        i, (problem, remedy) = min(bad), bad[min(bad)].args
        more = f" ({len(bad):,} bad cells in this column)" if len(bad) > 1 else ""
        raise table.error(i, f"{problem}{more}", remedy, column)
    return values


def no_column(table: Table, column: str, flag: str) -> str:
    """That a column is missing, which there are instead, and what to do."""
    if not table.header:
        return f"{table.name} is empty. Expected a table of texts."
    also = table.hints if flag == "--text-column" else ""
    if also and table.header[0].startswith("#"):
        also += f"; where the line {display(table.header[0], 30)} is a comment, add --comment '#'"
    return (
        f"{table.name} has no column {display(column)}; it has {listed(table.header)}."
        f"{did_you_mean(column, table.header)} Name the right one with {flag}{also}."
    )
