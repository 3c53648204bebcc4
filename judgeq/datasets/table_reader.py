"""Files as tables: CSV, TSV, a text a line, JSON, Excel or Parquet, any of them gzipped.

Knows how files break (quoting, encoding, missing fields) and at which line; knows nothing of items,
gold or datasets.
"""

from __future__ import annotations

import codecs
import csv
import re
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import import_module
from io import BytesIO, TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

from judgeq.datasets.dataset import OF_COLUMNS
from judgeq.datasets.tables import TEXT, Table, display, place
from judgeq.errors import DataError, UsageError
from judgeq.files import ordinary
from judgeq.settings.run import DatasetSpec

Format: TypeAlias = Literal["csv", "tsv", "txt", "jsonl", "xlsx", "parquet"]
Rows: TypeAlias = Iterator[tuple[int, Sequence[Any]]]
"""The line on which each row begins (1-based; 0: there are no lines), and its cells."""

FORMATS: Mapping[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "txt",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".xlsx": "xlsx",
    ".parquet": "parquet",
}
SUFFIXES = f"{', '.join(FORMATS)}, also with .gz"
BINARY: Mapping[bytes, Format] = {b"PK\x03\x04": "xlsx", b"PAR1": "parquet"}
"""What such a file begins with, whatever its name says."""
# No judge reads a text this long; what does get there is a quotation mark that is never closed.
MAX_FIELD = 10_000_000
LARGEST = 1_000_000_000
"""Bytes that a compressed file may unpack to."""
MOST_ROWS = 1 << 20
"""Rows of an Excel sheet, by Excel's own limit."""
_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_QUOTED = re.compile(r'"[^"]*"?')


class BadRowError(Exception):
    """A row that can't be used: the line on which it begins, what is wrong, and what to do."""


def format_of(path: str | Path) -> Format | None:
    """The format that a file's name says; None for what isn't the name of a table."""
    return FORMATS.get(Path(str(path).lower().removesuffix(".gz")).suffix)


def contents(path: Path) -> bytes:
    """The bytes of a file. Raises DataError."""
    try:
        return ordinary(path).read_bytes()
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{path} can't be read (seen from {Path.cwd()}): {reason}.") from error


def read(
    path: Path,
    spec: DatasetSpec,
    columns: Collection[str] | None = None,
    *,
    data: bytes | None = None,
) -> Table:
    """The table in a file, read as `spec` says; only these `columns` of it (None: all). With `data`
    these are its bytes, and `path` names them: without a suffix they are JSON, or else a CSV file;
    without a header a text a line.

    Without a delimiter it is that of the format, or what the first line of a CSV file shows; without an
    encoding UTF-8, or what a byte order mark says. Without a header columns are named by number, from
    1; a single one "text". Lines of texts have no columns: where one is named, or what separates them,
    they are rows of a CSV.

    Raises DataError naming the file, and the row that can't be read; UsageError where its name says no
    format, or reading it needs a package that isn't installed.
    """
    name, form = str(path), format_of(path)
    if form is None and data is None:
        contents(path)  # which may say what is wrong with it
        raise UsageError(f"{name} has no suffix of a format that can be read: {SUFFIXES}.")
    data = _unpacked(name, contents(path) if data is None else data)
    form = next((BINARY[mark] for mark in BINARY if data.startswith(mark)), form)
    lines = None
    if form not in ("xlsx", "parquet"):
        lines = _lines(name, data, spec.encoding)
        if form is None:
            first = next(filter(str.strip, lines), "").lstrip()
            form = "jsonl" if first.startswith(("{", "[")) else "txt" if spec.no_header else "csv"
            lines.seek(0)
    if form == "txt" and (spec.delimiter or any(getattr(spec, role) for role in OF_COLUMNS)):
        form = "csv"
    if form == "parquet":
        return _parquet(name, data)
    if lines is None:
        return _table(name, _sheet(name, data), columns, not spec.no_header)
    if form == "jsonl":
        return _table(name, _objects(lines), columns)
    if form == "txt":
        texts = ((line, [text.strip()]) for line, text in enumerate(lines, 1) if text.strip())
        return _table(name, texts, columns, header=False)
    some = [*islice(filter(str.strip, lines), 20 if spec.no_header else 1)]
    lines.seek(0)
    mark = spec.delimiter or ("\t" if form == "tsv" else delimiter_of(some))
    return _table(name, _csv_rows(lines, mark), columns, not spec.no_header, mark == ";")


def packages(extra: str, what: str, *names: str) -> list[Any]:
    """Modules that come with an extra of judgeq's. Raises UsageError without it: `what` needs it."""
    try:
        return [*map(import_module, names)]
    except ImportError as error:
        raise UsageError(
            f"{what} needs {names[0]}. Install it with: pip install 'judgeq[{extra}]'"
        ) from error


# Bytes, encodings and separators


def _unpacked(name: str, data: bytes) -> bytes:
    """The bytes, decompressed if they are gzipped."""
    import gzip
    import zlib

    if not data.startswith(b"\x1f\x8b"):
        return data
    try:
        with gzip.GzipFile(fileobj=BytesIO(data)) as file:
            unpacked = file.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{name} can't be unpacked: {error}.") from error
    _check_size(name, len(unpacked))
    return unpacked


def _check_size(name: str, size: int) -> None:
    """A small file may be made to fill the memory."""
    if size > LARGEST:
        raise DataError(
            f"{name} unpacks to more than {LARGEST:,} bytes. Unpack it, and give a part at a time."
        )


def _lines(name: str, data: bytes, named: str | None) -> TextIOWrapper:
    """The lines of a text in the encoding that was named; else that of the byte order mark; else UTF-8.
    Raises DataError naming the place of what is no text."""
    marked = "utf-16" if data.startswith(_MARKS) else "utf-8"
    encoding = codecs.lookup(named or marked).name
    try:
        data.decode(encoding)
    except UnicodeDecodeError as error:
        before = data[: error.start].split(b"\n")
        raise DataError(
            f"{name}, line {len(before)}, byte {len(before[-1]) + 1}: not {encoding.upper()}. Name its "
            "encoding with --encoding (such as windows-1252), or save it as UTF-8."
        ) from error
    mark = "-sig" if encoding == "utf-8" else ""
    return TextIOWrapper(BytesIO(data), encoding + mark, newline="")


def delimiter_of(lines: Sequence[str]) -> str:
    """What separates the columns of these lines: the mark that each of them has most often outside
    quotation marks."""
    plain = [_QUOTED.sub("", line) for line in lines]
    return max(",;\t|", key=lambda mark: min((line.count(mark) for line in plain), default=0))


# Rows of cells


def _table(
    name: str,
    rows: Rows,
    columns: Collection[str] | None,
    header: bool = True,
    decimal_comma: bool = False,
) -> Table:
    """The table of rows that are all as long as the first: the header, if there is one."""
    lines = array("q")
    try:
        line, first = next(rows, (0, ()))
        names = [*map(str, first)]
        if not header:
            names = [TEXT] if len(first) == 1 else [str(at + 1) for at in range(len(first))]
            rows = chain([(line, first)] if first else (), rows)
        found = [name for name in names if name and (columns is None or name in columns)]
        read: dict[str, list[Any]] = {name: [] for name in found}
        places = [(names.index(name), cells) for name, cells in read.items()]
        for line, row in rows:
            if len(row) != len(names):
                many = "few" if len(row) < len(names) else "many"
                fields = f"too {many} fields: {len(row)}, where the first line has {len(names)}"
                remedy = "Put a field that holds a separator in quotation marks."
                raise BadRowError(line, fields, remedy)
            lines.append(line)
            for at, cells in places:
                cells.append(row[at])
    except BadRowError as bad:
        line, problem, remedy = bad.args
        raise DataError(f"{name}, {place(len(lines), line)}: {problem}. {remedy}") from bad
    return Table(name, names, read, range(len(lines)), lines, decimal_comma)


def _csv_rows(lines: Iterator[str], delimiter: str) -> Rows:
    """The rows of a CSV file, of which a blank line is none."""
    start = 1
    csv.field_size_limit(max(csv.field_size_limit(), MAX_FIELD))  # its own limit is 131,072
    try:
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        for row in reader:
            if row:
                yield start, row
            start = reader.line_num + 1
    except csv.Error as error:
        remedy = "A quotation mark is never closed, or one inside a quoted field is not doubled."
        raise BadRowError(start, f"broken quoting ({error})", remedy) from error


def _sheet(name: str, data: bytes) -> Rows:
    """The rows of a workbook's first sheet, of which blank ones are none. Formulas are not run: their
    last values are read."""
    import warnings
    from zipfile import ZipFile

    (openpyxl,) = packages("excel", f"Reading {name}", "openpyxl")
    try:
        with ZipFile(BytesIO(data)) as parts:
            _check_size(name, sum(part.file_size for part in parts.infolist()))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of styles that it doesn't know
            book = openpyxl.load_workbook(BytesIO(data), read_only=True, data_only=True)
        sheet = book.worksheets[0]
        sheet.reset_dimensions()  # a file may say anything
        width = None  # the header's
        for line, cells in enumerate(sheet.iter_rows(max_row=MOST_ROWS, values_only=True), 1):
            row = ["" if cell is None else cell for cell in cells[:width]]
            if any(cell != "" for cell in row):
                width = width or len(row)
                yield line, row + [""] * (width - len(row))
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{name} can't be read as an Excel file: {error}") from error


def _objects(lines: TextIOWrapper) -> Rows:
    """The keys of the first JSON object, then the values that each has of them: of one object a line, or
    of an array of them; a text in place of an object stands for one with that alone. Columns within
    objects are named by their path: "meta.text"."""
    import orjson

    remedy = "Expected one whole JSON object a line, or an array of objects."

    def parsed(line: int, text: str) -> Any:
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError as error:
            where = f"column {error.colno} of line {line + error.lineno - 1}"
            raise BadRowError(line, f"broken JSON: {error.msg} at {where}", remedy) from error

    is_array = next(filter(str.strip, lines), "").lstrip().startswith("[")
    lines.seek(0)
    entries = ((line, parsed(line, text)) for line, text in enumerate(lines, 1) if text.strip())
    if is_array:
        entries = ((0, entry) for entry in parsed(1, lines.read()))
    keys: list[str] = []
    for line, entry in entries:
        cells = _flat({TEXT: entry} if isinstance(entry, str) else entry)
        if not isinstance(cells, dict) or not cells:
            raise BadRowError(line, f"{display(entry)} is no JSON object with values", remedy)
        if not keys:
            keys = [*cells]
            yield 0, keys
        yield line, [*map(cells.get, keys)]


def _flat(entry: Any, path: str = "", depth: int = 9) -> Any:
    """The cells of an object by their paths, as deep as anybody nests columns; any other value alone."""
    if not (isinstance(entry, dict) and depth):
        return {path[:-1]: entry} if path else entry
    flat: dict[str, Any] = {}
    for key, value in entry.items():
        flat |= _flat(value, f"{path}{key}.", depth - 1)
    return flat


def _parquet(name: str, data: bytes) -> Table:
    pa, parquet = packages("parquet", f"Reading {name}", "pyarrow", "pyarrow.parquet")
    try:
        table = parquet.ParquetFile(BytesIO(data)).read()
        table.validate(full=True)  # so that all of its texts are UTF-8
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{name} can't be read as Parquet: {error}") from error
    columns = dict(zip(table.column_names, table.columns, strict=True))
    return Table(name, table.column_names, columns, range(table.num_rows))
