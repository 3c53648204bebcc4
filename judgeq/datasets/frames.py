"""DataFrames, texts by id and lists of texts, given from Python, as sources of tables. Neither pandas
nor polars is imported: whatever has columns that become lists is a DataFrame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from judgeq.datasets.tables import ID, Choose, Rows, Source
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

    Raises UsageError for anything else, and for columns of the same name.
    """
    data = data.collect() if hasattr(data, "collect") else data  # a LazyFrame
    if hasattr(data, "columns") and hasattr(data, "__getitem__"):
        name, header = "the DataFrame", [*data.columns]
    elif isinstance(data, Mapping):
        name, header = "the dict of texts", [ID, text]
        data = {ID: [*data], text: [*data.values()]}
    elif isinstance(data, str | bytes) or (texts := _listed(data)) is None:
        raise UsageError(
            f"A {type(data).__name__} is no dataset. Give the name of one, the path of a file, a "
            "DataFrame, a list of texts, or a dict of texts by id."
        )
    else:
        name, header, data = "the list of texts", [text], {text: texts}
    keys = {str(key): key for key in header}
    if len(keys) < len(header):
        raise UsageError("The DataFrame has columns of the same name. Rename them.")

    def rows(choose: Choose) -> Rows:
        columns = {}  # made lists only where they are asked for
        for column in choose([*{**keys, **more}]):
            cells = _listed(more[column] if column in more else data[keys[column]])
            if cells is None:
                raise UsageError(f"The column {column!r} of {name} can't be made a list.")
            columns[column] = cells
        lengths = {column: len(cells) for column, cells in columns.items()}
        if len({*lengths.values()}) > 1:
            shown = ", ".join(f"{column} {length:,}" for column, length in lengths.items())
            raise UsageError(f"{name}: the columns differ in length ({shown}).")
        for row in zip(*columns.values(), strict=True):
            yield 0, [*map(_plain, row)]

    return Source(name, rows)


def _listed(values: Any) -> list[object] | None:
    """A column, or any series of cells, as a list; None where it is none."""
    for method in ("to_list", "tolist"):
        if hasattr(values, method):
            values = getattr(values, method)()
    return [*values] if isinstance(values, Sequence) else None


def _plain(cell: Any) -> object:
    """A cell as Python's own type; None where it is missing."""
    if isinstance(cell, str):
        return str(cell)
    if type(cell).__name__ in ("NAType", "NaTType"):
        return None
    cell = cell.item() if hasattr(cell, "item") else cell  # a number of NumPy's
    return None if isinstance(cell, float) and cell != cell else cell
