"""Tables as files for other programs: CSV, JSONL, Parquet or Excel, written a batch of rows at a time.

Half a character, which UTF-8 can't say, is written as "?". CSV and Excel are what people open in a
spreadsheet: there a text that it would run is written with "'" before it. Numbers read back as the same
bits in all but Excel, which keeps 15 digits.
"""

from __future__ import annotations

import codecs
import csv
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import IO, Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import orjson

from judgeq.datasets.table_reader import MOST_ROWS, packages
from judgeq.errors import UsageError
from judgeq.escaping import for_spreadsheet
from judgeq.settings.run import REHEARSAL

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
    names = [*table.columns]
    batches = ([*map(_cells, batch)] async for batch in table.batches)
    if kind == "parquet":
        return await _write_parquet(table.columns, batches, file)
    rows = (row async for batch in batches for row in zip(*batch, strict=True))
    if kind == "xlsx":
        await _write_excel(names, rows, file)
    elif kind == "jsonl":
        async for row in rows:
            line = dict(zip(names, row, strict=True))
            file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
    else:
        lines = csv.writer(codecs.getwriter("utf-8")(file), lineterminator="\n")
        lines.writerow(map(for_spreadsheet, names))
        async for row in rows:
            lines.writerow(map(for_spreadsheet, row))
    return None


def _cells(column: Any) -> list[Any]:
    """A column's cells, None for nan."""
    cells = column.tolist() if isinstance(column, np.ndarray) else column
    return [
        cell.encode(errors="replace").decode()
        if isinstance(cell, str)
        else None
        if cell != cell
        else cell
        for cell in cells
    ]


async def _write_parquet(
    columns: Mapping[str, type], batches: AsyncIterator[Batch], file: IO[bytes]
) -> None:
    pa, parquet = packages("parquet", "Parquet", "pyarrow", "pyarrow.parquet")
    types = {str: pa.string(), int: pa.int64(), float: pa.float64()}
    schema = pa.schema([(name, types[kind]) for name, kind in columns.items()])
    with parquet.ParquetWriter(file, schema) as writer:
        async for cells in batches:
            arrays = [*map(pa.array, cells, schema.types)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


async def _write_excel(
    names: Sequence[str], rows: AsyncIterator[Sequence[Any]], file: IO[bytes]
) -> None:
    openpyxl, cells_of = packages("excel", "Excel", "openpyxl", "openpyxl.cell.cell")

    def written(cell: object) -> object:
        illegal = cells_of.ILLEGAL_CHARACTERS_RE
        return for_spreadsheet(illegal.sub("", cell) if isinstance(cell, str) else cell)

    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet()
    sheet.append([*map(written, names)])
    n = 1
    try:
        async for row in rows:
            cells, n = [*map(written, row)], n + 1
            if n > MOST_ROWS or any(len(str(cell)) > LONGEST_CELL for cell in cells):
                raise UsageError(
                    f"An Excel sheet holds {MOST_ROWS:,} rows and {LONGEST_CELL:,} characters a cell, "
                    "and this table has more: --format csv, jsonl or parquet writes it."
                )
            sheet.append(cells)
    finally:
        book.save(file)  # which closes its temporary files
