"""Columns out of a file: CSV, TSV, a text a line, JSON, Excel or Parquet, any of them gzipped.

Knows how files break (quoting, encoding, missing fields) and at which row and line; knows nothing
of items, gold or datasets.
"""

from __future__ import annotations

import codecs
import csv
import re
from array import array
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from io import BytesIO, TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from judgeq.datasets.tables import UNUSABLE, BadRows, Table, Wanted, listed, shown
from judgeq.errors import DataError, UsageError
from judgeq.files import ordinary

Format: TypeAlias = Literal["csv", "tsv", "txt", "jsonl", "xlsx", "parquet"]

FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        ".csv": "csv",
        ".tsv": "tsv",
        ".txt": "txt",
        ".jsonl": "jsonl",
        ".ndjson": "jsonl",
        ".json": "jsonl",
        ".xlsx": "xlsx",
        ".parquet": "parquet",
    }
)
SUFFIXES = f"{', '.join(FORMATS)}, also with .gz"
TEXT = "text"
"""The column of a table that has no others: a text a line, or an array of texts."""
# No judge reads a text this long; what does get there is a quotation mark that is never closed.
MAX_FIELD = 10_000_000
LARGEST = 1_000_000_000
"""Bytes that a compressed file may unpack to."""
MOST_ROWS = 1 << 20
"""Rows of an Excel sheet, by Excel's own limit."""

# The mark of UTF-32 begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# What a file that is no text begins with, and its name and suffix.
_BINARY = (
    (b"PK\x03\x04", "an Excel file", ".xlsx"),
    (b"\xd0\xcf\x11\xe0", "an Excel file of the old kind", ""),
    (b"\x1f\x8b", "compressed", ".csv.gz"),
    (b"PAR1", "a Parquet file", ".parquet"),
)
_QUOTED = re.compile(r'"[^"]*"?')


def format_of(path: str | Path) -> Format | None:
    """The format that a file's name says; None for what isn't the name of a table."""
    name = str(path).lower().removesuffix(".gz")
    return FORMATS.get(Path(name).suffix)


def read(
    path: Path,
    wanted: Wanted,
    *,
    form: Format | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    header: bool = True,
    data: bytes | None = None,
) -> Table:
    """The columns `wanted` of a file. With `data` these are its bytes, and `path` is their name.

    Without `form` it is that of the file's name; without `delimiter` that of the format, or what the
    first line of a CSV file shows; without `encoding` it is UTF-8, or what a byte order mark says.
    Without a `header` columns are named by number, from 1; a single one "text". Rows that can't be
    used are gathered in the table. Raises DataError naming the file where it can't be read, UsageError
    where its name says no format, or reading it needs a package that isn't installed.
    """
    name, form = str(path), form or format_of(path)
    data = _contents(path, form) if data is None else data
    if name.lower().endswith(".gz"):
        data = _unpacked(name, data)
    if not data:
        raise DataError(f"{name} is empty. Expected a table of texts.")
    bad = BadRows(name)
    if form == "parquet":
        return _read_parquet(data, wanted, bad)
    if form == "xlsx":
        return _of_rows(_sheet(name, data), wanted, bad, header=header)
    for mark, what, suffix in _BINARY:
        if data.startswith(mark):
            remedy = f"Rename it, so that it ends in {suffix}." if suffix else "Save it as .xlsx."
            raise DataError(f"{name} is {what}, whatever its name says. {remedy}")
    encoding = encoding_of(data, encoding)

    def lines() -> Iterator[str]:
        return _without_nul(name, TextIOWrapper(BytesIO(data), encoding, newline=""))

    try:
        if form == "jsonl":
            return _read_json(TextIOWrapper(BytesIO(data), encoding, newline="\n"), wanted, bad)
        if form == "txt":
            texts = ((number, [line.strip()]) for number, line in enumerate(lines(), 1))
            return _of_rows(filter(lambda row: row[1][0], texts), wanted, bad, header=False)
        if delimiter is None and form == "csv":
            some = list(islice(filter(str.strip, lines()), 20 if not header else 1))
            looked_for = {*wanted.columns, *(wanted.others or ())}
            delimiter = delimiter_of("".join(some), looked_for) if header else _delimiter_in(some)
        rows = _csv_rows(lines(), delimiter or "\t")
        return _of_rows(rows, wanted, bad, header=header, decimal_comma=delimiter == ";")
    except UnicodeError as error:
        raise undecodable(name, data, encoding) from error


# Bytes, encodings and separators


def _contents(path: Path, form: Format | None) -> bytes:
    try:
        ordinary(path)
        if path.is_dir():
            raise DataError(f"{path} is a folder. Name a file in it ({SUFFIXES}).")
        if form is None:
            raise UsageError(
                f"The suffix of {path} is no format that can be read. "
                f"Name it by what it holds: {SUFFIXES}."
            )
        return path.read_bytes()
    except FileNotFoundError as error:
        raise DataError(
            f"There is no file {path} (seen from {Path.cwd()}). Check the path."
        ) from error
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror or error}.") from error


def _unpacked(name: str, data: bytes) -> bytes:
    import gzip
    import zlib

    try:
        with gzip.GzipFile(fileobj=BytesIO(data)) as file:
            unpacked = file.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{name} can't be unpacked: {error}.") from error
    _check_size(name, len(unpacked))
    return unpacked


def _check_size(name: str, size: int) -> None:
    if size > LARGEST:
        raise DataError(
            f"{name} unpacks to more than {LARGEST / 1e9:g} GB. If that is right, unpack it yourself "
            "and name the CSV."
        )


def encoding_of(data: bytes, named: str | None) -> str:
    """The encoding that was named; else that of the byte order mark; else UTF-8."""
    if named is not None:
        codec = codecs.lookup(named).name
        return "utf-8-sig" if codec == "utf-8" else codec
    marked = (encoding for mark, encoding in _MARKS if data.startswith(mark))
    return next(marked, "utf-8-sig")


def delimiter_of(header: str, columns: Container[str]) -> str:
    """What separates the columns of this header line: a comma; but where it has none outside
    quotation marks, the one of semicolon, tab and | that it has. `columns` are those looked for: a
    line that is one of them is no list of several."""
    plain = _QUOTED.sub("", header)
    there = [mark for mark in ";\t|" if mark in plain]
    if "," in plain or len(there) != 1 or header.strip("\r\n") in columns:
        return ","
    return there[0]


def _delimiter_in(rows: Sequence[str]) -> str:
    """What separates the columns of these lines, none of which is a header: the mark that stands in each
    of them equally often, the most often; else a comma."""
    counts = {
        mark: {_QUOTED.sub("", row).count(mark) for row in rows} for mark in (",", ";", "\t", "|")
    }
    return max(counts, key=lambda mark: max(counts[mark]) if len(counts[mark]) == 1 else 0)


def undecodable(name: str, data: bytes, encoding: str) -> DataError:
    """The error for a table that isn't in its encoding, with the place at fault."""
    if encoding != "utf-8-sig":
        return DataError(f"{name} is not {encoding}. Name its encoding with --encoding.")
    where = ""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        at = error.start
        line, begin = data.count(b"\n", 0, at) + 1, data.rfind(b"\n", 0, at)
        where = f", line {line}, byte {at - begin} (0x{data[at]:02x})"
    return DataError(
        f"{name}{where}: not UTF-8. Name its encoding with --encoding (such as windows-1252), or save "
        "it as UTF-8."
    )


# Rows of cells: CSV, TSV, Excel, a text a line


class _BrokenError(Exception):
    """What follows a line of a CSV file can't be read."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


def _of_rows(
    rows: Iterator[tuple[int, Sequence[Any]]],
    wanted: Wanted,
    bad: BadRows,
    *,
    header: bool,
    decimal_comma: bool = False,
) -> Table:
    """A table of rows, each with its line; the first is the header, if there is one."""
    lines = array("q")
    try:
        first = next(rows, None)
        if first is None:
            raise DataError(f"{bad.table} is empty. Expected a header line and rows.")
        names = [str(cell) for cell in first[1]]
        if not header:
            rows = chain([first], rows)
            names = [TEXT] if len(names) == 1 else [str(at + 1) for at in range(len(names))]
        cells = wanted.of(bad.table, names)
        columns = [(names.index(column), into.append) for column, into in cells.items()]
        for line, row in rows:
            if len(row) != len(names):
                which = "too many" if len(row) > len(names) else "too few"
                where = "the header" if header else "the first line"
                problem = f"{which} fields: {len(row)}, where {where} has {len(names)}"
                remedy = "Put a field that holds a separator in quotation marks."
                bad.add(len(lines), line, problem, remedy)
                row = [UNUSABLE] * len(names)
            for column, append in columns:
                append(row[column])
            lines.append(line)
    except _BrokenError as error:
        remedy = (
            "A quotation mark is opened and never closed, or one inside a quoted field is "
            "not doubled; what follows it can't be read."
        )
        bad.add(len(lines), error.line, str(error), remedy)
        bad.check()
    return Table(bad.table, names, cells, range(len(lines)), lines, bad, decimal_comma)


def _csv_rows(lines: Iterator[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file and the lines on which they begin; a blank line is no row."""
    start = 1
    before = csv.field_size_limit()
    csv.field_size_limit(max(before, MAX_FIELD))  # csv's own limit is 131,072 characters
    try:
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        for row in reader:
            if row:
                yield start, row
            start = reader.line_num + 1
    except csv.Error as error:
        raise _BrokenError(start, f"broken quoting ({error})") from error
    finally:
        csv.field_size_limit(before)


def _without_nul(name: str, lines: Iterable[str]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if "\0" in line:
            raise DataError(
                f"{name}, line {number}: a NUL character. The file is damaged, or no text file, or "
                "in another encoding, which --encoding names."
            )
        yield line


def _sheet(name: str, data: bytes) -> Iterator[tuple[int, list[Any]]]:
    """The rows of a workbook's first sheet, of which blank ones are none. Formulas are not run: their
    last values are read."""
    import warnings
    import zipfile

    try:
        import openpyxl
    except ImportError as error:
        raise UsageError(
            f"Reading {name} needs openpyxl. Install it with: pip install 'judgeq[excel]'"
        ) from error
    try:
        with zipfile.ZipFile(BytesIO(data)) as parts:
            _check_size(name, sum(part.file_size for part in parts.infolist()))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of styles that it doesn't know
            book = openpyxl.load_workbook(BytesIO(data), read_only=True, data_only=True)
        sheet = book.worksheets[0]
        sheet.reset_dimensions()  # a file may say anything
        width = 0
        for line, cells in enumerate(sheet.iter_rows(max_row=MOST_ROWS, values_only=True), 1):
            row = ["" if cell is None else cell for cell in cells[: width or None]]
            if any(cell != "" for cell in row):
                while not width and row[-1] == "":
                    row.pop()
                width = width or len(row)  # the header's
                yield line, row + [""] * (width - len(row))
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{name} can't be read as an Excel file: {error}") from error


# JSON


def _read_json(lines: Iterator[str], wanted: Wanted, bad: BadRows) -> Table:
    """A table of one JSON object a line, or of an array of them; a text in place of an object stands
    for one with that alone. Columns within objects are named by their path: "meta.text"."""
    header: list[str] = []
    cells: dict[str, list[object]] = {}
    places = array("q")
    remedy = "Expected one whole JSON object a line, or an array of objects."
    for row, (line, entry) in enumerate(_entries(lines, bad.table)):
        places.append(line)
        if isinstance(entry, dict):
            entry = _flat(entry)
            if not header:
                header = list(entry)
                cells = wanted.of(bad.table, header)
                for column in cells.values():
                    column.extend([UNUSABLE] * row)
            if lacking := [key for key in wanted.columns if key not in entry]:
                problem = f"no key {shown(lacking[0])}; it has {listed(entry)}"
                bad.add(
                    row,
                    line or None,
                    problem,
                    "Give every object this key (null where it's unknown).",
                )
                entry = None
        else:
            broken = isinstance(entry, ValueError)
            problem = f"broken JSON: {entry}" if broken else f"{shown(entry)} is no JSON object"
            bad.add(row, line or None, problem, remedy)
            entry = None
        for key, column in cells.items():
            column.append(UNUSABLE if entry is None else entry.get(key))
    if not header:
        bad.check()
        raise DataError(f"{bad.table} is empty. {remedy}")
    lined = places if places[0] else None
    return Table(bad.table, header, cells, range(len(places)), lined, bad)


def _entries(lines: Iterator[str], name: str) -> Iterator[tuple[int, object]]:
    """What each line holds, and its number; of an array each entry, and 0. A line that can't be read
    gives an error in place of what it holds."""
    import orjson

    def parsed(text: str) -> object:
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError as error:
            of_line = f" of line {error.lineno}" if error.lineno > 1 else ""
            return ValueError(f"{error.msg} at column {error.colno}{of_line}")

    numbered = ((number, text) for number, text in enumerate(lines, 1) if text.strip())
    first = next(numbered, (1, ""))
    if first[1].lstrip().startswith("["):
        whole = parsed(first[1] + "".join(text for _, text in numbered))
        if not isinstance(whole, list):
            raise DataError(f"{name}: broken JSON: {whole}. Expected an array of objects.")
        entries: Iterable[tuple[int, object]] = ((0, entry) for entry in whole)
    else:
        entries = ((line, parsed(text)) for line, text in chain([first], numbered) if text)
    for line, entry in entries:
        yield line, {TEXT: entry} if isinstance(entry, str) else entry


def _flat(entry: Mapping[str, object], depth: int = 8) -> dict[str, object]:
    """An object without objects in it, as deep as anybody nests columns."""
    flat: dict[str, object] = {}
    for key, value in entry.items():
        if isinstance(value, dict) and value and depth:
            flat |= {f"{key}.{name}": cell for name, cell in _flat(value, depth - 1).items()}
        else:
            flat[key] = value
    return flat


# Parquet


def _read_parquet(data: bytes, wanted: Wanted, bad: BadRows) -> Table:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError(
            f"Reading {bad.table} needs pyarrow. Install it with: pip install 'judgeq[parquet]'"
        ) from error
    try:
        with parquet.ParquetFile(BytesIO(data)) as file:
            header = file.schema_arrow.names
            cells = wanted.of(bad.table, header)
            rows = range(file.metadata.num_rows)
            for batch in file.iter_batches(columns=list(cells)):
                for name, column in cells.items():
                    column.extend(batch.column(name).to_pylist())
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{bad.table} can't be read as Parquet: {error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{bad.table} holds text that is not UTF-8. Write it anew.") from error
    return Table(bad.table, header, cells, rows, None, bad)
