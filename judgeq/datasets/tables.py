"""Tables: named columns of cells, read from a file (CSV, TSV, a text a line, JSON, Excel or Parquet, any
of them gzipped), or made of a DataFrame, a list or a dict of texts.

Knows how files break (quoting, encoding, missing fields) and at which line; knows nothing of items,
gold or datasets. Neither pandas nor polars is imported: whatever has columns that become lists is a
DataFrame.
"""

from __future__ import annotations

import codecs
import csv
import difflib
import gzip
import re
import zlib
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO, TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from judgeq.errors import DataError, UsageError
from judgeq.files import contents
from judgeq.settings.run import MARK_SIMULATED, REHEARSAL, DatasetSpec

TEXT, ID = "text", "id"
"""The columns of texts and ids, where no others are named; a table's only column is one of texts."""
OF_COLUMNS = ("text_column", "id_column", "gold_column", "group_column", "latent_column")
OF_TABLES = ("delimiter", "encoding", "no_header", "skip_empty", "merge_duplicates", "keep_columns")
"""Settings that say which columns of a table are what, and how it is read."""
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
MAX_FIELD = 10_000_000
"""Characters of a cell: what is longer is a quotation mark that is never closed."""
LARGEST = 1_000_000_000
"""Bytes that a compressed file may unpack to."""
MOST_ROWS = 1 << 20
"""Rows of an Excel sheet, by Excel's own limit."""
_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_QUOTED = re.compile(r'"[^"]*"?')


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
        for mark in (REHEARSAL, MARK_SIMULATED):
            if mark in self.header:
                what = "a rehearsal" if mark == REHEARSAL else "the simulated judge"
                raise DataError(
                    f"{self.name} is from {what}: its numbers are made up. To read it as a table of "
                    f"texts, remove its column {mark}."
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


# Of what is given in Python


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


# From files


class BadRowError(Exception):
    """A row that can't be used: the line on which it begins, what is wrong, what to do."""


def format_of(path: str | Path) -> Format | None:
    """The format that a file's name says; None for what isn't the name of a table."""
    return FORMATS.get(Path(str(path).lower().removesuffix(".gz")).suffix)


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
    data = unpacked(name, contents(path) if data is None else data)
    form = next((BINARY[mark] for mark in BINARY if data.startswith(mark)), form)
    if form == "parquet":
        return _parquet(name, data)
    if form == "xlsx":
        return _table(name, _sheet(name, data), columns, not spec.no_header)
    lines = _lines(name, data, spec.encoding)
    if form is None:
        first = next(filter(str.strip, lines), "").lstrip()
        form = "jsonl" if first.startswith(("{", "[")) else "txt" if spec.no_header else "csv"
        lines.seek(0)
    if form == "jsonl":
        return _table(name, _objects(lines), columns)
    if form == "txt" and not (spec.delimiter or any(getattr(spec, role) for role in OF_COLUMNS)):
        rows = ((line, [text.strip()]) for line, text in _filled(lines))
        return _table(name, rows, columns, header=False)
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


def unpacked(name: str, data: bytes) -> bytes:
    """The bytes, decompressed if they are gzipped."""
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


def _filled(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """The lines that aren't blank, by number."""
    return ((number, line) for number, line in enumerate(lines, 1) if line.strip())


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
        read: dict[str, list[Any]] = {
            name: [] for name in names if name and (columns is None or name in columns)
        }
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
    is_array = next(filter(str.strip, lines), "").lstrip().startswith("[")
    lines.seek(0)
    texts = [(0, lines.read())] if is_array else _filled(lines)
    keys: list[str] = []
    for line, text in texts:
        try:
            read = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            where = f"column {error.colno} of line {max(1, line) + error.lineno - 1}"
            raise BadRowError(line, f"broken JSON: {error.msg} at {where}", remedy) from error
        for entry in read if is_array else [read]:
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


# Values in messages


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
