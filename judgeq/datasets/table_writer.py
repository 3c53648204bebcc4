"""Tables as files for other programs: CSV, JSONL, Parquet or Excel, written a batch of rows at a time.

JSONL and Parquet are exact. CSV and Excel are what people open in a spreadsheet: there a text that it
would run is written with "'" before it. Numbers read back as the same bits in all but
Excel, which keeps 15 digits.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import IO, Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import orjson

from judgeq.datasets.formats import MOST_ROWS
from judgeq.errors import UsageError
from judgeq.escaping import for_spreadsheet

Format: TypeAlias = Literal["csv", "jsonl", "parquet", "xlsx"]
FORMATS: tuple[Format, ...] = get_args(Format)
LONGEST_CELL = 32_767
"""Characters of a cell in Excel, by its own limit."""
Batch: TypeAlias = Sequence[Any]
"""Some rows: a sequence or an array of cells for each column, None (of numbers: nan) for no value."""


class Table(NamedTuple):
    """A table: str, int or float for each column by name, and the rows in batches."""

    columns: Mapping[str, type]
    batches: AsyncIterator[Batch]


async def write(table: Table, kind: Format, file: IO[bytes]) -> None:
    """Write the table, in UTF-8. Raises UsageError for Parquet and Excel without the package that writes
    them, or where an Excel sheet can't hold it; and OSError."""
    if kind in ("parquet", "xlsx"):
        await (_write_parquet if kind == "parquet" else _write_excel)(table, file)
        return
    if kind == "csv":
        file.write(_csv([list(table.columns)]).encode())
    lines = _csv_lines if kind == "csv" else _json_lines
    encode: Callable[[Sequence[str], Batch], bytes] = lines
    async for batch in table.batches:
        file.write(encode(list(table.columns), [_cells(column) for column in batch]))


def _cells(column: Any) -> Sequence[Any]:
    """A column's cells, None for nan."""
    if not isinstance(column, np.ndarray):
        return column  # type: ignore[no-any-return]
    cells: list[Any] = column.tolist()
    if column.dtype.kind == "f" and np.isnan(column).any():
        return [None if cell != cell else cell for cell in cells]
    return cells


def _csv_lines(_: Sequence[str], batch: Batch) -> bytes:
    safe = [[for_spreadsheet(cell) for cell in column] for column in batch]
    # Half a character, which JSON can say, is no UTF-8.
    return _csv(zip(*safe, strict=True)).encode(errors="replace")


def _csv(rows: Any) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _json_lines(names: Sequence[str], batch: Batch) -> bytes:
    rows = (dict(zip(names, row, strict=True)) for row in zip(*batch, strict=True))
    return b"".join(map(_json_line, rows))


def _json_line(row: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:  # half a character
        return json.dumps(row).encode() + b"\n"


async def _write_parquet(table: Table, file: IO[bytes]) -> None:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError("Parquet needs pyarrow: pip install 'judgeq[parquet]'.") from error
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
    try:
        from openpyxl import Workbook
        from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE as UNSEEN
    except ImportError as error:
        raise UsageError("Excel files need openpyxl: pip install 'judgeq[excel]'.") from error

    def written(cell: object) -> object:
        if not isinstance(cell, str):
            return cell
        return for_spreadsheet(UNSEEN.sub("", _utf8(cell) or ""))

    book = Workbook(write_only=True)
    sheet = book.create_sheet()
    sheet.append(list(table.columns))
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
