"""DataFrames and lists of texts, given from Python, as tables. Neither pandas nor polars is imported:
whatever has columns that become lists is a DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from judgeq.datasets.tables import BadRows, Table, Wanted
from judgeq.errors import UsageError


class DataFrame(Protocol):
    """What is needed of a DataFrame of pandas or polars."""

    @property
    def columns(self) -> Any:
        """The names of the columns."""

    def __getitem__(self, column: Any, /) -> Any: ...


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """A table in memory: called, it gives the columns that are wanted. `cells` makes a column a list,
    when it is asked for."""

    name: str
    header: Sequence[str]
    cells: Callable[[str], list[object]]

    def __call__(self, wanted: Wanted) -> Table:
        """The columns. Raises DataError where one that is wanted isn't there."""
        names = wanted.of(self.name, self.header)
        cells = {name: [_plain(cell) for cell in self.cells(name)] for name in names}
        rows = max(map(len, cells.values()), default=0)
        return Table(self.name, self.header, cells, range(rows), None, BadRows(self.name))


def frame_of(data: Any, text_column: str) -> Frame:
    """A DataFrame, or a list (a Series, an array) of texts, as a table.

    Raises UsageError for anything else, and for columns of the same name.
    """
    if hasattr(data, "collect"):  # a LazyFrame
        data = data.collect()
    columns: Any = getattr(data, "columns", None)
    if columns is not None and hasattr(data, "__getitem__"):
        names = {str(name): name for name in columns}
        if len(names) < len(columns):
            raise UsageError("The DataFrame has columns of the same name. Rename them.")
        return Frame("the DataFrame", list(names), lambda name: _column(data, name, names[name]))
    texts = None if isinstance(data, str | bytes | Mapping) else _listed(data)
    if texts is None:
        raise UsageError(
            f"A {type(data).__name__} is no dataset. Give the name of one, the path of a file, a "
            "DataFrame, or a list of texts."
        )
    return Frame("the list of texts", [text_column], lambda _: texts)


def _column(frame: DataFrame, name: str, key: Any) -> list[object]:
    cells = _listed(frame[key])
    if cells is None:
        raise UsageError(f"The column {name!r} of the DataFrame can't be made a list.")
    return cells


def _listed(values: Any) -> list[object] | None:
    """A column, or any series of cells, as a list; None where it is none."""
    for method in ("to_list", "tolist"):
        if hasattr(values, method):
            cells = getattr(values, method)()
            return cells if isinstance(cells, list) else None
    return list(values) if isinstance(values, Sequence) else None


def _plain(cell: Any) -> object:
    """A cell as Python's own type; None where it is missing."""
    if cell is None or isinstance(cell, str | int):
        return str(cell) if isinstance(cell, str) else cell
    if type(cell).__name__ in ("NAType", "NaTType"):
        return None
    if hasattr(cell, "item"):  # a number of NumPy's
        cell = cell.item()
    return None if isinstance(cell, float) and cell != cell else cell
