"""Tables that are held by column: DataFrames, texts by id, lists of texts. Neither pandas nor polars is
imported: whatever has columns that become lists is a DataFrame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any, Protocol

from judgeq.datasets.tables import ID, Rows, Source
from judgeq.errors import UsageError


class DataFrame(Protocol):
    """What is needed of a DataFrame of pandas or polars."""

    @property
    def columns(self) -> Any:
        """The names of the columns."""

    def __getitem__(self, column: Any, /) -> Any: ...


def source_of(data: Any, text: str, more: Mapping[str, Sequence[object]]) -> Source:
    """A DataFrame, a list (a Series, an array) of texts, or a dict of texts by id, as a source. `text`
    names the column of the texts of a list; `more` are further columns, by name.

    Raises UsageError for anything else.
    """
    data = data.collect() if hasattr(data, "collect") else data  # a LazyFrame
    if hasattr(data, "columns") and hasattr(data, "__getitem__"):
        return by_column("the DataFrame", data.columns, data, more)
    if isinstance(data, Mapping):
        columns = {ID: [*data], text: [*data.values()]}
        return by_column("the dict of texts", columns, columns, more)
    if (texts := _listed(data)) is not None:
        return by_column("the list of texts", [text], {text: texts}, more)
    raise UsageError(
        f"A {type(data).__name__} is no dataset. Give the name of one, the path of a file, a "
        "DataFrame, a list of texts, or a dict of texts by id."
    )


def by_column(
    name: str, header: Any, columns: Any, more: Mapping[str, Sequence[object]] | None = None
) -> Source:
    """The source with these `columns`, and `more`, which come before others of their names. They are
    made lists only where they are asked for, which raises UsageError where one can't be, or where they
    differ in length."""
    more = more or {}
    keys = {str(key): key for key in header}
    names = [*map(str, header)]

    def rows(wanted: Sequence[str]) -> Rows:
        cells = []
        for column in wanted:
            values = _listed(more[column] if column in more else columns[keys[column]])
            if values is None:
                raise UsageError(f"The column {column!r} of {name} can't be made a list.")
            cells.append(values)
        if len({*map(len, cells)}) > 1:
            lengths = zip(wanted, map(len, cells), strict=True)
            shown = ", ".join(f"{column} {length:,}" for column, length in lengths)
            raise UsageError(f"{name}: the columns differ in length ({shown}).")
        return zip(repeat(0), ([*map(_plain, row)] for row in zip(*cells, strict=True)))

    return Source(name, [*(column for column in names if column not in more), *more], rows)


def _listed(values: Any) -> list[object] | None:
    """A column, or any series of cells, as a list; None where it is none."""
    for method in ("to_list", "tolist", "to_pylist"):
        if hasattr(values, method):
            values = getattr(values, method)()
    return (
        [*values] if isinstance(values, Sequence) and not isinstance(values, str | bytes) else None
    )


def _plain(cell: Any) -> object:
    """A cell as Python's own type; None where it is missing."""
    if isinstance(cell, str):
        return str(cell)
    if type(cell).__name__ in ("NAType", "NaTType"):
        return None
    cell = cell.item() if hasattr(cell, "item") else cell  # a number of NumPy's
    return None if isinstance(cell, float) and cell != cell else cell
