"""Tables as files for other programs: CSV, JSONL or Parquet, written a batch of rows at a time.

Half a character, which UTF-8 can't say, is written as "?". CSV is what people open in a spreadsheet:
there a text that it would run is written with "'" before it. Numbers read back as the same bits.
"""

from __future__ import annotations

import codecs
import csv
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import IO, Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import orjson

from judgeq.datasets.table_reader import packages
from judgeq.escaping import for_spreadsheet
from judgeq.settings.run import REHEARSAL

Format: TypeAlias = Literal["csv", "jsonl", "parquet"]
FORMATS: tuple[Format, ...] = get_args(Format)
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
    """Write the table, in UTF-8. Raises UsageError for Parquet without the package that writes it; and
    OSError."""
    names = [*table.columns]
    batches = ([*map(_cells, batch)] async for batch in table.batches)
    if kind == "parquet":
        return await _write_parquet(table.columns, batches, file)
    rows = (row async for batch in batches for row in zip(*batch, strict=True))
    if kind == "jsonl":
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
