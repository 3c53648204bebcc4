"""Tables as files for other programs: CSV, JSONL, Parquet or Excel, written a batch of rows at a time.

JSONL and Parquet are exact. CSV and Excel are what people open in a spreadsheet: there a text that it
would run is written with "'" before it. Numbers read back as the same bits in all but
Excel, which keeps 15 digits.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import IO, Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import orjson

from judgeq.datasets.formats import MOST_ROWS, packages
from judgeq.errors import UsageError
from judgeq.escaping import for_spreadsheet
from judgeq.settings import REHEARSAL

Format: TypeAlias = Literal["csv", "jsonl", "parquet", "xlsx"]
FORMATS: tuple[Format, ...] = get_args(Format)
LONGEST_CELL = 32_767
"""Characters of a cell in Excel, by its own limit."""
MADE_UP = "made up"
"""What each row of a rehearsal's tables says in the column REHEARSAL."""
Batch: TypeAlias = Sequence[Any]
"""Some rows: a sequence or an array of cells for each column, None (of numbers: nan) for no value."""


class Table(NamedTuple):
    """A table: str, int or float for each column by name, and the rows in batches."""

    columns: Mapping[str, type]
    batches: AsyncIterator[Batch]


def marked(table: Table) -> Table:
    """The table with a first column that says that all of it is made up."""

    async def batches() -> AsyncIterator[Batch]:
        async for batch in table.batches:
            yield [[MADE_UP] * len(batch[0]), *batch]

    return Table({REHEARSAL: str, **table.columns}, batches())


async def write(table: Table, kind: Format, file: IO[bytes]) -> None:
    """Write the table, in UTF-8. Raises UsageError for Parquet and Excel without the package that writes
    them, or where an Excel sheet can't hold it; and OSError."""
    if kind in ("parquet", "xlsx"):
        await (_write_parquet if kind == "parquet" else _write_excel)(table, file)
        return
    names = list(table.columns)
    if kind == "csv":
        file.write(_csv([names]))
    async for batch in table.batches:
        rows = zip(*map(_cells, batch), strict=True)
        if kind == "csv":
            file.write(_csv(rows))
        else:
            file.writelines(_json_line(dict(zip(names, row, strict=True))) for row in rows)


def _cells(column: Any) -> Sequence[Any]:
    """A column's cells, None for nan."""
    if not isinstance(column, np.ndarray):
        return column  # type: ignore[no-any-return]
    cells: list[Any] = column.tolist()
    if column.dtype.kind == "f" and np.isnan(column).any():
        return [None if cell != cell else cell for cell in cells]
    return cells


def _csv(rows: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    safe = ([for_spreadsheet(cell) for cell in row] for row in rows)
    csv.writer(text, lineterminator="\n").writerows(safe)
    return text.getvalue().encode(errors="replace")  # JSON can say half a character


def _json_line(row: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:  # half a character
        return json.dumps(row).encode() + b"\n"


async def _write_parquet(table: Table, file: IO[bytes]) -> None:
    pa, parquet = packages("parquet", "Parquet", "pyarrow", "pyarrow.parquet")
    types = {str: pa.string(), int: pa.int64(), float: pa.float64()}
    schema = pa.schema([(name, types[kind]) for name, kind in table.columns.items()])
    with parquet.ParquetWriter(file, schema) as writer:
        async for batch in table.batches:
            arrays = []
            for column, field in zip(batch, schema, strict=True):
                cells = [*map(_utf8, column)] if field.type == pa.string() else column
                arrays.append(pa.array(cells, field.type, from_pandas=True))
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


async def _write_excel(table: Table, file: IO[bytes]) -> None:
    openpyxl, cells_of = packages("excel", "Excel", "openpyxl", "openpyxl.cell.cell")

    def written(cell: object) -> object:
        if not isinstance(cell, str):
            return cell
        return for_spreadsheet(cells_of.ILLEGAL_CHARACTERS_RE.sub("", _utf8(cell) or ""))

    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet()
    sheet.append([*map(written, table.columns)])
    rows, longest = 1, 0
    async for batch in table.batches:
        for row in zip(*map(_cells, batch), strict=True):
            cells = [*map(written, row)]
            rows, longest = rows + 1, max(longest, *(len(str(cell)) for cell in cells))
            if rows <= MOST_ROWS and longest <= LONGEST_CELL:
                sheet.append(cells)
    book.save(file)
    if rows > MOST_ROWS or longest > LONGEST_CELL:
        raise UsageError(
            f"An Excel sheet holds {MOST_ROWS:,} rows and {LONGEST_CELL:,} characters a cell, and this "
            "table has more: --format csv, jsonl or parquet writes it."
        )


def _utf8(text: str | None) -> str | None:
    """The text, "?" for half a character."""
    return text if text is None else text.encode(errors="replace").decode()
