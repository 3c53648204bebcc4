"""Tables: named columns of cells, as a file, a DataFrame or a list of texts has them; and values in
messages.

Neither pandas nor polars is imported: whatever has columns that become lists is a DataFrame.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from judgeq.errors import DataError, UsageError
from judgeq.settings.run import REHEARSAL

TEXT, ID = "text", "id"
"""The columns of texts and ids, where no others are named; a table's only column is one of texts."""


class DataFrame(Protocol):
    """What is needed of a DataFrame of pandas or polars."""

    @property
    def columns(self) -> Any:
        """The names of the columns."""

    def __getitem__(self, column: Any, /) -> Any: ...


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A table, or some rows of it. Raises DataError where a name stands for two columns, and for what a
    rehearsal wrote."""

    name: str
    """For messages."""
    header: Sequence[str]
    columns: Mapping[str, Any]
    """Those that were read: lists of Python's own types, or what becomes one."""
    rows: Sequence[int]
    """The numbers of its rows in the source, 0-based."""
    lines: Sequence[int] = ()
    """Where each row of the source begins, 1-based; empty where there are no lines."""
    decimal_comma: bool = False

    def __post_init__(self) -> None:
        for column, times in Counter(filter(None, self.header)).items():
            if times > 1:
                twice = f"{self.name} has more than one column {display(column)}"
                raise DataError(f"{twice}. Rename one of them in its header.")
        if REHEARSAL in self.header:
            raise DataError(
                f"{self.name} is from a rehearsal: its numbers are made up. To read it as a table of "
                f"texts, remove its column {REHEARSAL}."
            )

    def __len__(self) -> int:
        return len(self.rows)

    def place(self, i: int) -> str:
        """Where the i-th row lies, for a message."""
        row = self.rows[i]
        return place(row, self.lines[row] if len(self.lines) else 0)

    def error(self, i: int, problem: str, remedy: str, column: str = "") -> DataError:
        """That the i-th row can't be used, or its cell in a column."""
        where = self.place(i) + (f", column {display(column)}" if column else "")
        return DataError(f"{self.name}, {where}: {problem}. {remedy}")


def table_of(data: Any, text: str, more: Mapping[str, Sequence[object]]) -> Table:
    """A DataFrame, a list (a Series, an array) of texts, or a dict of texts by id, as a table. `text`
    names the column of the texts of a list; `more` are further columns, by name, which come before
    others of their names.

    Raises UsageError for anything else, and where columns differ in length.
    """
    data = data.collect() if hasattr(data, "collect") else data  # a LazyFrame
    columns: dict[str, Any]
    if hasattr(data, "columns") and hasattr(data, "__getitem__"):
        name, columns = "the DataFrame", {str(column): data[column] for column in data.columns}
        header = [*map(str, data.columns)]
    elif isinstance(data, Mapping):
        name, header = "the dict of texts", [ID, text]
        columns = {ID: as_list([*data], name), text: as_list([*data.values()], name)}
    else:
        name, header, columns = "the list of texts", [text], {text: as_list(data, "the dataset")}
    n = len(as_list(columns[header[0]], name)) if header else 0
    for column in more:
        columns[column] = as_list(more[column], column)
        if len(columns[column]) != n:
            lengths = f"{column} {len(columns[column]):,}, {header[0]} {n:,}"
            raise UsageError(f"{name}: the columns differ in length ({lengths}).")
    return Table(name, [*(one for one in header if one not in more), *more], columns, range(n))


def as_list(values: Any, name: str) -> list[object]:
    """A column, or any series of cells, as a list of Python's own types. Raises UsageError, with its
    name, where it is none."""
    for method in ("to_list", "tolist", "to_pylist"):
        if hasattr(values, method):
            values = getattr(values, method)()
    if isinstance(values, Sequence) and not isinstance(values, str | bytes):
        return [*map(_plain, values)]
    raise UsageError(
        f"{name} can't be made of a {type(values).__name__}. Give the name of a dataset, the path of a "
        "file, a DataFrame, a list of texts, or a dict of texts by id."
    )


def _plain(cell: Any) -> object:
    """A cell as Python's own type; None where it is missing."""
    if isinstance(cell, str):
        return str(cell)
    if type(cell).__name__ in ("NAType", "NaTType"):
        return None
    cell = cell.item() if hasattr(cell, "item") else cell  # a number of NumPy's
    return None if isinstance(cell, float) and cell != cell else cell


def place(row: int, line: int) -> str:
    """Where a row lies, for a message: by its number from 0, and its line."""
    return f"row {row + 1}" + (f" (line {line})" if line else "")


def display(value: object, limit: int = 60) -> str:
    """A value for a message: quoted, control characters escaped, cut where it is long."""
    text = repr(value if not isinstance(value, str) else value[: limit + 1])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def did_you_mean(word: str, among: Iterable[str]) -> str:
    """ " Did you mean 'x'?", or "" where nothing is close."""
    close = difflib.get_close_matches(word, [*among], n=1)
    return f" Did you mean {display(close[0])}?" if close else ""


def listed(values: Iterable[object], most: int = 12) -> str:
    """Values for a message, comma-separated, the first `most` of them."""
    every = list(values)
    more = f" and {len(every) - most:,} more" if len(every) > most else ""
    return ", ".join(display(value, 40) for value in every[:most]) + more
