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
import json
import re
import zlib
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from importlib import import_module
from io import BytesIO, TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Literal, Protocol, TypeAlias
from zipfile import ZipFile

from judgeq.errors import DataError, UsageError
from judgeq.files import contents
from judgeq.settings.run import MARK_SIMULATED, REHEARSAL, DatasetSpec

TEXT, ID = "text", "id"
"""The columns of texts and ids, where no others are named; a table's only column is one of texts."""
OF_COLUMNS = ("text_column", "id_column", "gold_column", "group_column", "latent_column")
OF_TABLES = (
    "delimiter",
    "encoding",
    "sheet",
    "comment",
    "escape",
    "no_header",
    "skip_empty",
    "merge_duplicates",
    "keep_columns",
)
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
"""Bytes that a compressed file may unpack to; characters that the texts of one may have together."""
UNPACKED_ROWS = 10_000_000
"""Rows that a compressed file may hold."""
UNPACKED_LINES = 50_000_000
"""Lines that a gzipped file may hold: a text may have several."""
UNPACKED_LINE_BYTES = 50_000_000
"""Bytes of a line of a gzipped CSV file."""
UNPACKED_CELLS = 50_000_000
"""Cells of an Excel sheet, with those left of the last one of a row."""
STREAMED_CHARACTERS = 50_000_000
"""A longer JSON array is read an element at a time."""
JSON_COLUMNS = 16_384
"""Columns that JSON objects may have together, as many as an Excel sheet."""
PARQUET_BATCH_ROWS = 65_536
"""Rows of a Parquet file that are decoded at once."""
CHUNK_BYTES = 1 << 24
"""Bytes that are unpacked, or looked at, at once."""
MOST_ROWS = 1 << 20
"""Rows of an Excel sheet, by Excel's own limit."""
HINTS: Mapping[Format, str] = {
    "csv": "; see also --no-header, --delimiter and --encoding",
    "tsv": "; see also --no-header, --delimiter and --encoding",
    "txt": "; see also --no-header, --delimiter and --encoding",
    "xlsx": "; see also --no-header and --sheet",
    "jsonl": "",
    "parquet": "",
}
"""The flags that may help where a file of this format has no such column."""
_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_QUOTED = re.compile(r'"[^"]*"?')
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)
_NOT_A_NUMBER = re.compile(r"\b(?:NaN|Infinity)\b")
_EXCEL_ESCAPE = re.compile(r"_x([0-9A-Fa-f]{4})_")


class DataFrame(Protocol):
    """What is needed of a DataFrame of pandas or polars."""

    @property
    def columns(self) -> Any:
        """The names of the columns."""

    def __getitem__(self, column: Any, /) -> Any: ...


class ColumnarDataset(Protocol):
    """What is needed of a dataset of Hugging Face, or a table of Arrow."""

    @property
    def column_names(self) -> Any:
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
    hints: str = ""
    """Flags that may help where a column is missing, by the file's format."""
    empty_rows: int = 0
    """How many rows of the source were left out because all of their cells are empty."""

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
    """Return the table of what is given in Python: a DataFrame, a dataset of Hugging Face, a list of
    texts (a Series, an array) or of dicts, or a dict of texts by id.

    `text` names the column of the texts of a list. `more` are further columns by name, which replace
    columns of the same name. An index of pandas that isn't the default one is the column of ids, under
    its own name too. Raises UsageError for anything else, and where columns differ in length.
    """
    data = data.collect() if hasattr(data, "collect") else data  # a LazyFrame
    columns: dict[str, Any]
    if hasattr(data, "column_names") and hasattr(data, "__getitem__"):
        name = "the dataset"
        columns = {str(column): as_cells(data[column], name) for column in data.column_names}
    elif hasattr(data, "columns") and hasattr(data, "__getitem__"):
        name = "the DataFrame"
        columns = {str(column): data[column] for column in data.columns}
    elif isinstance(data, Mapping):
        name = "the dict of texts"
        columns = {ID: as_list([*data], name), text: as_list([*data.values()], name)}
    elif isinstance(data, Sequence) and data and all(isinstance(row, Mapping) for row in data):
        name = "the list of dicts"
        columns = _columns_of_dicts(data)
    else:
        name = "the list of texts"
        columns = {text: as_list(data, "the dataset")}
    header = [*columns]
    n = len(as_list(columns[header[0]], name)) if header else 0
    for column, cells in _index_columns(data).items():
        if column not in columns:
            columns[column] = cells
            header.append(column)
    for column in more:
        columns[column] = as_list(more[column], column)
        if len(columns[column]) != n:
            lengths = f"{column} {len(columns[column]):,}, {header[0]} {n:,}"
            raise UsageError(f"{name}: the columns differ in length ({lengths}).")
    header = [*(column for column in header if column not in more), *more]
    return Table(name, header, _with_path(columns, text), range(n))


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
        "file, a DataFrame, a list of texts or of dicts, or a dict of texts by id."
    )


def as_cells(values: Any, name: str) -> list[object]:
    """Return a column as a list; one that can only be iterated over, too. Raises UsageError."""
    is_sequence = isinstance(values, Sequence) or hasattr(values, "to_pylist")
    return as_list(values if is_sequence else [*values], name)


def _plain(cell: Any) -> object:
    """A cell as Python's own type; None where it is missing."""
    if isinstance(cell, str):
        return str(cell)
    if type(cell).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(cell, Decimal):
        return int(cell) if cell.is_finite() and cell == int(cell) else _plain(float(cell))
    cell = cell.item() if hasattr(cell, "item") else cell  # a number of NumPy's
    return None if isinstance(cell, float) and cell != cell else cell


def _index_columns(data: Any) -> dict[str, list[object]]:
    """Return the index of a DataFrame or Series of pandas as columns: by its name, and as ids.

    Without columns for the default index, for one of several levels, and for one that can't be ids:
    values that occur twice, or that are no texts or whole numbers.
    """
    index: Any = getattr(data, "index", None)
    if not hasattr(index, "is_unique") or getattr(index, "nlevels", 1) != 1:
        return {}
    name = getattr(index, "name", None)
    is_default = type(index).__name__ == "RangeIndex" and (index.start, index.step) == (0, 1)
    if (is_default and name is None) or not index.is_unique:
        return {}
    cells = as_list(index, "the index")
    if not all(isinstance(cell, str) or type(cell) is int for cell in cells):
        return {}
    return {ID if name is None else str(name): cells, ID: cells}


def _columns_of_dicts(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[object]]:
    """Return the columns of rows that are dicts: all their keys, nested ones by their path."""
    columns: dict[str, list[object]] = {}
    for number, row in enumerate(rows):
        for column, cell in _flat(dict(row)).items():
            cells = columns.setdefault(column, [])
            cells.extend([None] * (number - len(cells)))
            cells.append(_plain(cell))
    for cells in columns.values():
        cells.extend([None] * (len(rows) - len(cells)))
    return columns


def _with_path(columns: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Return the columns, and the one at a path within another ("messages.0.content"), if there is."""
    if path in columns:
        return columns
    parent = path
    while "." in parent:
        parent, _, _ = parent.rpartition(".")
        if parent in columns:
            cells = as_cells(columns[parent], parent)
            found = [_plain(value_at(cell, path[len(parent) + 1 :])) for cell in cells]
            if any(cell is not None for cell in found):
                return {**columns, path: found}
    return columns


def value_at(value: Any, path: str) -> Any:
    """Return what lies at a path of keys and list positions, such as "messages.0.content"; else None."""
    if isinstance(value, Mapping):
        if path in value:
            return value[path]
        for at, character in enumerate(path):
            if character == "." and path[:at] in value:
                found = value_at(value[path[:at]], path[at + 1 :])
                if found is not None:
                    return found
        return None
    if isinstance(value, list | tuple):
        position, _, rest = path.partition(".")
        if position.isdecimal() and len(position) < 10 and int(position) < len(value):
            element = value[int(position)]
            return value_at(element, rest) if rest else element
    return None


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
    try:
        return _read(name, form, spec, columns, contents(path) if data is None else data)
    except MemoryError as error:
        raise DataError(
            f"{name} doesn't fit into this machine's memory. Give a part of it at a time."
        ) from error


def _read(
    name: str,
    form: Format | None,
    spec: DatasetSpec,
    columns: Collection[str] | None,
    packed: bytes,
) -> Table:
    """Return the table in these bytes of a file, as `read` does."""
    data = unpacked(name, packed)
    is_packed = data is not packed
    form = next((BINARY[mark] for mark in BINARY if data.startswith(mark)), form)
    roles = [getattr(spec, role) for role in OF_COLUMNS]
    named = {role for role in roles if role is not None}
    if form == "parquet":
        _refuse_other_formats(spec, form)
        return _parquet(name, data, columns, named)
    if form == "xlsx":
        _refuse_other_formats(spec, form)
        sheet = _sheet(name, data, spec.sheet)
        return _table(name, sheet, columns, header=not spec.no_header, form=form)
    lines = _lines(name, data, spec.encoding)
    too_wide = is_packed and _has_longer_line(data, UNPACKED_LINE_BYTES)
    del data, packed  # as text it may be read whole
    if form is None:
        first = next(filter(str.strip, lines), "").lstrip()
        form = "jsonl" if first.startswith(("{", "[")) else "txt" if spec.no_header else "csv"
        lines.seek(0)
    _refuse_other_formats(spec, form)
    if form == "jsonl":
        entries = _entries(lines, spec.text_column or TEXT, stream=is_packed)
        return _json_table(name, entries, columns, named, most_rows=_most_rows(is_packed))
    if form == "txt" and not (spec.delimiter or named):
        comment = spec.comment
        rows = (
            (number, [text.strip()])
            for number, text in _filled(lines)
            if comment is None or not text.startswith(comment)
        )
        return _table(name, rows, columns, header=False, form=form, most_rows=_most_rows(is_packed))
    if too_wide:
        raise _too_much(name, f"{UNPACKED_LINE_BYTES:,} bytes in a line")
    sample = [
        *islice(filter(str.strip, _uncommented(lines, spec.comment)), 20 if spec.no_header else 1)
    ]
    lines.seek(0)
    csv_lines = _uncommented(lines, spec.comment)
    separator = _SEPARATOR_LINE.fullmatch(sample[0]) if sample else None  # as Excel reads it
    skipped = 0
    if separator is not None:
        skipped = next(number for number, line in enumerate(csv_lines, 1) if line.strip())
    mark = spec.delimiter or (separator and separator[1]) or ("\t" if form == "tsv" else None)
    mark = mark or delimiter_of(sample)
    return _table(
        name,
        _csv_rows(csv_lines, mark, spec.escape, skipped, lines),
        columns,
        header=not spec.no_header,
        decimal_comma=mark == ";",
        form=form,
        most_rows=_most_rows(is_packed),
    )


def _most_rows(is_packed: bool) -> int | None:
    """Return how many rows a file may hold, None for any number: one that is compressed is limited."""
    return UNPACKED_ROWS if is_packed else None


def _refuse_other_formats(spec: DatasetSpec, form: Format) -> None:
    """Raise UsageError for a setting that is for files of another format."""
    if spec.sheet is not None and form != "xlsx":
        raise UsageError("--sheet is for Excel files (.xlsx); leave it out.")
    if spec.comment is not None and form not in ("csv", "tsv", "txt"):
        raise UsageError("--comment is for CSV and text files; leave it out.")
    if spec.escape is not None and form not in ("csv", "tsv", "txt"):
        raise UsageError("--escape is for CSV files; leave it out.")


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
    """The bytes, decompressed if they are gzipped. Raises DataError for what is more than LARGEST bytes,
    or more than UNPACKED_LINES lines."""
    if not data.startswith(b"\x1f\x8b"):
        return data
    chunks = list[bytes]()
    size = 0
    lines = 0
    try:
        with gzip.GzipFile(fileobj=BytesIO(data)) as file:
            while chunk := file.read(CHUNK_BYTES):
                chunks.append(chunk)
                size += len(chunk)
                lines += max(chunk.count(b"\n"), chunk.count(b"\r"))
                _check_size(name, size)
                if lines > UNPACKED_LINES:
                    raise _too_much(name, f"{UNPACKED_LINES:,} lines")
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{name} can't be unpacked: {error}.") from error
    return b"".join(chunks)


def _check_size(name: str, size: int) -> None:
    """A small file may be made to fill the memory."""
    if size > LARGEST:
        raise _too_much(name, f"{LARGEST:,} bytes")


def _too_much(name: str, limit: str) -> DataError:
    """Return the error of a compressed file that holds more than a limit."""
    return DataError(f"{name} unpacks to more than {limit}. Unpack it, and give a part at a time.")


def _lines(name: str, data: bytes, named: str | None) -> TextIOWrapper:
    """The lines of a text in the encoding that was named; else that of the byte order mark; else UTF-8.
    Raises DataError naming the place of what is no text."""
    marked = "utf-16" if data.startswith(_MARKS) else "utf-8"
    encoding = codecs.lookup(named or marked).name
    if not _is_text(data, encoding):
        try:
            data.decode(encoding)
        except UnicodeDecodeError as error:
            before = data[: error.start].split(b"\n")
            raise DataError(
                f"{name}, line {len(before)}, byte {len(before[-1]) + 1}: not {encoding.upper()}. Name "
                "its encoding with --encoding (such as windows-1252), or save it as UTF-8."
            ) from error
    mark = "-sig" if encoding == "utf-8" else ""
    return TextIOWrapper(BytesIO(data), encoding + mark, newline="")


def _is_text(data: bytes, encoding: str) -> bool:
    """Whether the bytes are text in an encoding. Decodes a chunk at a time, for memory."""
    decoder = codecs.getincrementaldecoder(encoding)()
    view = memoryview(data)
    try:
        for begin in range(0, len(data), CHUNK_BYTES):
            decoder.decode(bytes(view[begin : begin + CHUNK_BYTES]))
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _has_longer_line(data: bytes, most: int) -> bool:
    """Whether a line of a text has more bytes than `most`."""
    begin = 0
    while begin + most < len(data):
        end = max(data.rfind(mark, begin, begin + most) for mark in (b"\n", b"\r"))
        if end < begin:
            return True
        begin = end + 1
    return False


class UncommentedLines(Iterator[str]):
    """The lines of a text but comments: lines that begin with a mark where a row may begin.

    A line within quotation marks is never a comment. Whoever reads rows says where one begins, by
    setting `row_begins`.
    """

    def __init__(self, lines: Iterable[str], comment: str) -> None:
        self.row_begins = True
        self.row_line = 0  # the number of the line on which the row begins that is read, from 1
        self._numbered = enumerate(lines, 1)
        self._comment = comment

    def __next__(self) -> str:
        for number, line in self._numbered:
            if not self.row_begins:
                return line
            if not line.startswith(self._comment):
                self.row_begins = False
                self.row_line = number
                return line
        raise StopIteration


def _uncommented(lines: TextIOWrapper, comment: str | None) -> Iterator[str]:
    """Return the lines of a text, without comments where a mark of these is given."""
    return lines if comment is None else UncommentedLines(lines, comment)


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
    *,
    header: bool = True,
    decimal_comma: bool = False,
    form: Format = "csv",
    most_rows: int | None = None,
) -> Table:
    """The table of rows that are all as long as the first: the header, if there is one.

    Rows of which all cells are empty are left out and counted; they keep their numbers. Raises DataError
    for a row that can't be read, and for more than `most_rows`.
    """
    lines = array("q")
    empty = list[int]()
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
            if _is_blank(row[0]) and all(map(_is_blank, row)):
                empty.append(len(lines))
                row = [""] * len(names)
            elif len(row) != len(names):
                raise BadRowError(line, _other_length(row, names), _length_remedy(row, names))
            lines.append(line)
            if most_rows is not None and len(lines) > most_rows:
                raise _too_much(name, f"{most_rows:,} rows")
            for at, cells in places:
                cells.append(row[at])
    except BadRowError as bad:
        line, problem, remedy = bad.args
        raise DataError(f"{name}, {place(len(lines), line)}: {problem}. {remedy}") from bad
    return Table(
        name=name,
        header=names,
        columns=read,
        rows=_without(len(lines), empty),
        lines=lines,
        decimal_comma=decimal_comma,
        hints=HINTS[form],
        empty_rows=len(empty),
    )


def _is_blank(cell: Any) -> bool:
    """Whether a cell of a table is empty."""
    return cell is None or cell == "" or (isinstance(cell, str) and cell.isspace())


def _without(n: int, left_out: Collection[int]) -> Sequence[int]:
    """Return the numbers of n rows but those that are left out."""
    if not left_out:
        return range(n)
    out = {*left_out}
    return [row for row in range(n) if row not in out]


def _other_length(row: Sequence[Any], names: Sequence[str]) -> str:
    """Say that a row has another number of fields than the header."""
    many = "few" if len(row) < len(names) else "many"
    return f"too {many} fields: {len(row)}, where the first line has {len(names)}"


def _length_remedy(row: Sequence[Any], names: Sequence[str]) -> str:
    """Say what to do about a row with another number of fields than the header."""
    if names and names[0].startswith(("#", "//")):
        mark = "#" if names[0].startswith("#") else "//"
        return f"If lines that begin with {mark} are comments, add --comment '{mark}'."
    if any(isinstance(cell, str) and cell.endswith("\\") for cell in row):
        return _ESCAPE_REMEDY
    return "Put a field that holds a separator in quotation marks."


_ESCAPE_REMEDY = "If a backslash stands before quotation marks within a text, add --escape '\\'."


def _csv_rows(
    lines: Iterator[str], delimiter: str, escape: str | None, skipped: int, source: TextIOWrapper
) -> Rows:
    """The rows of a CSV file after the lines that were skipped; a blank line is none. Where one is
    broken the `source` of the lines is read again, for what to do about it."""
    comments = lines if isinstance(lines, UncommentedLines) else None
    start = skipped + 1
    csv.field_size_limit(max(csv.field_size_limit(), MAX_FIELD))  # its own limit is 131,072
    try:
        reader = csv.reader(lines, delimiter=delimiter, escapechar=escape, strict=True)
        for row in reader:
            if comments is not None:
                start = comments.row_line
                comments.row_begins = True
            if row:
                yield start, row
            start = skipped + reader.line_num + 1
    except csv.Error as error:
        if comments is not None:
            start = comments.row_line
        remedy = "A quotation mark is never closed, or one inside a quoted field is not doubled."
        source.seek(0)
        if escape is None and '\\"' in "".join(islice(source, start - 1, start + 9)):
            remedy = _ESCAPE_REMEDY
        raise BadRowError(start, f"broken quoting ({error})", remedy) from error


# Excel


def _sheet(name: str, data: bytes, wanted: str | None) -> Rows:
    """The rows of a workbook's sheet: the first, or the `wanted` one; blank ones are none. Formulas are
    not run: their last values are read. Raises UsageError for a sheet that isn't there."""
    import warnings

    (openpyxl,) = packages("excel", f"Reading {name}", "openpyxl")
    try:
        with ZipFile(BytesIO(data)) as parts:
            _check_size(name, sum(part.file_size for part in parts.infolist()))
            for part in parts.infolist():
                with parts.open(part) as file:
                    _refuse_entities(name, file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of styles that it doesn't know
            book = openpyxl.load_workbook(BytesIO(data), read_only=True, data_only=True)
        sheets = {sheet.title: sheet for sheet in book.worksheets}
        if wanted is not None and wanted not in sheets:
            raise UsageError(
                f"{name} has no sheet {display(wanted)}; it has {listed(sheets)}."
                f"{did_you_mean(wanted, sheets)} Name one with --sheet."
            )
        sheet = book.worksheets[0] if wanted is None else sheets[wanted]
        sheet.reset_dimensions()  # a file may say anything
        width = None  # the header's
        cell_count = 0
        characters = 0
        for line, cells in enumerate(sheet.iter_rows(max_row=MOST_ROWS, values_only=True), 1):
            cell_count += len(cells)
            if cell_count > UNPACKED_CELLS:
                raise _too_much(name, f"{UNPACKED_CELLS:,} cells")
            row = [_excel_cell(cell) for cell in cells[:width]]
            if any(cell != "" for cell in row):
                characters += sum(len(cell) for cell in row if isinstance(cell, str))
                _check_size(name, characters)
                width = width or len(row)
                yield line, row + [""] * (width - len(row))
    except (DataError, UsageError):
        raise
    except Exception as error:
        raise DataError(
            f"{name} isn't a whole Excel workbook: save it again, or export it as CSV."
        ) from error


def _excel_cell(cell: Any) -> Any:
    """Return a cell's value: "" for none, and characters that Excel escapes as they are (_x000D_)."""
    if cell is None:
        return ""
    if isinstance(cell, str) and "_x" in cell:
        text = _EXCEL_ESCAPE.sub(lambda found: chr(int(found[1], 16)), cell)
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return cell


def _refuse_entities(name: str, part: IO[bytes]) -> None:
    """Raise DataError for a part of a workbook that declares entities, which it never needs: a small
    file may unfold to gigabytes by them."""
    from xml.parsers import expat

    class RootReachedError(Exception):
        """The declarations of a part end where its first element begins."""

    def refuse(*declared: object) -> None:
        raise DataError(
            f"{name} declares XML entities, which no Excel file needs, and which can fill the memory. "
            "Save it anew with Excel, or as CSV."
        )

    def stop(*element: object) -> None:
        raise RootReachedError

    parser = expat.ParserCreate()
    parser.EntityDeclHandler = refuse
    parser.StartElementHandler = stop
    try:
        while chunk := part.read(1 << 16):
            parser.Parse(chunk)
    except (expat.ExpatError, RootReachedError):
        return  # no XML, such as a picture; or nothing is declared from here on


# JSON

_TOO_DEEP = "is nested too deeply"


def _loads(text: str) -> Any:
    """Return the value of a JSON text; NaN and Infinity are numbers, as Python's json writes them.
    Raises orjson.JSONDecodeError."""
    import orjson

    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        if not _NOT_A_NUMBER.search(text):
            raise
        try:
            return json.loads(text, parse_constant=_constant)
        except RecursionError as error:
            raise orjson.JSONDecodeError(_TOO_DEEP, text, 0) from error


def _constant(name: str) -> float | None:
    """Return what NaN, Infinity or -Infinity stands for: NaN for no value."""
    return None if name == "NaN" else float(name)


def _entries(lines: TextIOWrapper, text_column: str, *, stream: bool) -> Iterator[tuple[int, Any]]:
    """Yield the values of a JSON file, one a row, with their lines (0: unknown).

    They stand one a line, one after the other, or in an array. A file with a single object may be a
    table as pandas and others write it; then its rows are yielded. With `stream` a long array is
    decoded an element at a time. Raises BadRowError.
    """
    first = next(filter(str.strip, lines), "")
    lines.seek(0)
    if first.lstrip().startswith("["):
        text = lines.read()
        lines.close()
        if stream and len(text) > STREAMED_CHARACTERS:
            yield from ((0, element) for element in _elements(text))
            return
        array_value = _decoded(text, 0)
        yield from ((0, element) for element in array_value)
        return
    try:
        value = _loads(first) if first else None
    except ValueError:  # not an object a line
        text = lines.read()
        values = [*_concatenated(text)]
        if len(values) == 1:
            yield from _unwrapped(values[0], text_column)
        else:
            yield from values
        return
    numbered = _filled(lines)
    first_line, _ = next(numbered, (0, ""))
    second = next(numbered, None)
    if second is None:
        yield from _unwrapped((first_line, value), text_column)
        return
    yield first_line, value
    for line, text in chain([second], numbered):
        yield line, _decoded(text, line)


_JSON_REMEDY = "Expected one whole JSON object a line, or an array of objects."


def _decoded(text: str, line: int) -> Any:
    """Return the value of a JSON text that begins on a line. Raises BadRowError."""
    import orjson

    try:
        return _loads(text)
    except orjson.JSONDecodeError as error:
        if error.msg.startswith((_TOO_DEEP, "depth limit")):
            raise BadRowError(line, f"the JSON {_TOO_DEEP}", _JSON_REMEDY) from error
        where = f"column {error.colno} of line {max(1, line) + error.lineno - 1}"
        raise BadRowError(line, f"broken JSON: {error.msg} at {where}", _JSON_REMEDY) from error
    except ValueError as error:  # a number of thousands of digits
        raise BadRowError(line, f"broken JSON: {error}", _JSON_REMEDY) from error


_BLANK = re.compile(r"[ \t\r\n]*")
_BLANK_OR_COMMA = re.compile(r"[ \t\r\n]*,?[ \t\r\n]*")


def _value_from(decoder: json.JSONDecoder, text: str, at: int, line: int) -> tuple[Any, int]:
    """Return the JSON value that begins at a character of a text, and where it ends. Raises
    BadRowError."""
    try:
        return decoder.raw_decode(text, at)
    except json.JSONDecodeError as error:
        where = f"column {error.colno} of line {error.lineno}"
        raise BadRowError(line, f"broken JSON: {error.msg} at {where}", _JSON_REMEDY) from error
    except RecursionError as error:
        raise BadRowError(line, f"the JSON {_TOO_DEEP}", _JSON_REMEDY) from error
    except ValueError as error:
        raise BadRowError(line, f"broken JSON: {error}", _JSON_REMEDY) from error


def _concatenated(text: str) -> Iterator[tuple[int, Any]]:
    """Yield the JSON values that stand one after the other, with their lines. Raises BadRowError."""
    decoder = json.JSONDecoder(parse_constant=_constant)
    at = _end(_BLANK, text, 0)
    line = 1 + text.count("\n", 0, at)
    while at < len(text):
        value, end = _value_from(decoder, text, at, line)
        yield line, value
        following = _end(_BLANK_OR_COMMA, text, end)
        line += text.count("\n", at, following)
        at = following


def _elements(text: str) -> Iterator[Any]:
    """Yield the elements of a JSON array one by one. Raises BadRowError."""
    decoder = json.JSONDecoder(parse_constant=_constant)
    at = _end(_BLANK, text, _end(_BLANK, text, 0) + 1)
    while text[at : at + 1] not in ("]", ""):
        value, at = _value_from(decoder, text, at, 0)
        yield value
        at = _end(_BLANK_OR_COMMA, text, at)
    if at >= len(text):
        raise BadRowError(0, "broken JSON: the array doesn't end", _JSON_REMEDY)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return where what a pattern matches at a place of a text ends."""
    found = pattern.match(text, at)
    return at if found is None else found.end()


def _unwrapped(single: tuple[int, Any], text_column: str) -> Iterator[tuple[int, Any]]:
    """Yield the rows of a JSON file that is a single value, with their lines.

    An object of columns or rows, as pandas writes it (orient: columns, index, split, table, list), or
    one that holds a single list of objects. Raises BadRowError for an object of which it isn't clear.
    """
    line, value = single
    is_table = isinstance(value, dict) and any(
        isinstance(part, dict | list) for part in value.values()
    )
    if not is_table or isinstance(value_at(value, text_column), str):
        yield line, value  # one row
        return
    rows = _rows_of_object(value, text_column)
    if rows is not None:
        yield from ((0, row) for row in rows)
        return
    problem = f"the file is one JSON object, with {listed(value, 6)}, and no text"
    if value and all(isinstance(cells, dict) for cells in value.values()):
        problem = "this looks like pandas' to_json()"
        remedy = 'Write it with to_json(path, orient="records"), or name --text-column.'
        raise BadRowError(line, problem, remedy)
    raise BadRowError(line, problem, "Expected an object for each text: one a line, or an array.")


def _rows_of_object(value: Mapping[str, Any], text_column: str) -> list[Any] | None:
    """Return the rows that an object holds as columns, rows or a list; None where that isn't clear."""
    cells = [*value.values()]
    if {"columns", "data"} <= value.keys() <= {"columns", "index", "data"}:  # orient="split"
        names = value["columns"]
        data = value["data"]
        if isinstance(names, list) and isinstance(data, list):
            return [
                dict(zip(map(str, names), row, strict=False))
                for row in data
                if isinstance(row, list)
            ]
    if cells and all(isinstance(column, dict) for column in cells):
        return _rows_of_dicts(value, text_column)
    texts = value.get(text_column)
    if isinstance(texts, list) and all(
        isinstance(column, list) and len(column) == len(texts) for column in cells
    ):  # orient="list"
        return [dict(zip(value, row, strict=True)) for row in zip(*cells, strict=True)]
    lists = [rows for rows in cells if isinstance(rows, list) and rows and _are_dicts(rows)]
    if len(lists) != 1:
        return None
    (rows,) = lists
    if all({"row", "row_idx"} <= row.keys() and isinstance(row["row"], dict) for row in rows):
        return [row["row"] for row in rows]  # as Hugging Face's API gives them
    return rows


def _are_dicts(rows: Sequence[Any]) -> bool:
    """Whether all rows are objects."""
    return all(isinstance(row, dict) for row in rows)


def _rows_of_dicts(value: Mapping[str, Any], text_column: str) -> list[Any] | None:
    """Return the rows of an object of objects: of columns by row label, or of rows by label. None where
    both may be meant.

    Labels that aren't the numbers from 0 are the ids, where no column is called so.
    """
    inner = [*dict.fromkeys(key for cells in value.values() for key in cells)]
    if text_column in value or (inner == _numbers(len(inner)) and text_column not in inner):
        rows: list[dict[str, Any]] = [
            {column: cells.get(label) for column, cells in value.items()} for label in inner
        ]
        labels = inner
    elif text_column in inner or [*value] == _numbers(len(value)):
        rows = [*value.values()]
        labels = [*value]
    else:
        return None
    if labels == _numbers(len(labels)):
        return rows
    return [{ID: label, **row} for label, row in zip(labels, rows, strict=True)]


def _numbers(n: int) -> list[str]:
    """Return the numbers below n, as JSON writes them as keys."""
    return [*map(str, range(n))]


def _json_table(
    name: str,
    entries: Iterator[tuple[int, Any]],
    columns: Collection[str] | None,
    named: Collection[str],
    *,
    most_rows: int | None,
) -> Table:
    """The table of JSON objects, a row each; a text stands for an object with that alone.

    All keys of all objects are columns. Those within objects are named by their path ("meta.text"), and
    those within lists by a position too ("messages.0.content"), where they are `named`.
    """
    lines = array("q")
    empty = list[int]()
    header: dict[str, None] = {}
    read: dict[str, list[Any]] = {}
    paths = [path for path in named if any(part.isdecimal() for part in path.split("."))]
    try:
        for line, entry in entries:
            cells = _flat({TEXT: entry} if isinstance(entry, str) else entry)
            if not isinstance(cells, dict) or not cells:
                problem = f"{display(entry)} is no JSON object with values"
                raise BadRowError(line, problem, _JSON_REMEDY)
            if _is_blank(next(iter(cells.values()))) and all(map(_is_blank, cells.values())):
                empty.append(len(lines))
            for path in paths:
                if path not in cells and (found := value_at(entry, path)) is not None:
                    cells[path] = found
            if not cells.keys() <= header.keys():
                for column in [column for column in cells if column not in header]:
                    header[column] = None
                    if column and (columns is None or column in columns):
                        read[column] = [None] * len(lines)
                if len(header) > JSON_COLUMNS:
                    problem = f"there are more than {JSON_COLUMNS:,} different keys"
                    raise BadRowError(line, problem, "Keep only those that are needed.")
            for column, values in read.items():
                values.append(cells.get(column))
            lines.append(line)
            if most_rows is not None and len(lines) > most_rows:
                raise _too_much(name, f"{most_rows:,} rows")
    except BadRowError as bad:
        line, problem, remedy = bad.args
        raise DataError(f"{name}, {place(len(lines), line)}: {problem}. {remedy}") from bad
    return Table(
        name=name,
        header=[*header],
        columns=read,
        rows=_without(len(lines), empty),
        lines=lines,
        empty_rows=len(empty),
    )


def _flat(entry: Any, path: str = "", depth: int = 9) -> Any:
    """The cells of an object by their paths, as deep as anybody nests columns; any other value alone."""
    if not (isinstance(entry, dict) and depth):
        return {path[:-1]: entry} if path else entry
    if not path and dict not in map(type, entry.values()):  # the quick way, for most tables
        return entry
    flat: dict[str, Any] = {}
    for key, value in entry.items():
        flat |= _flat(value, f"{path}{key}.", depth - 1)
    return flat


# Parquet


def _parquet(
    name: str, data: bytes, columns: Collection[str] | None, named: Collection[str]
) -> Table:
    """The table of a Parquet file; columns within structs are named by their path ("meta.text").

    Raises DataError for what can't be read, and for what would unpack to more than LARGEST bytes or
    UNPACKED_ROWS rows.
    """
    pa, parquet = packages("parquet", f"Reading {name}", "pyarrow", "pyarrow.parquet")
    try:
        file = parquet.ParquetFile(BytesIO(data))
        schema = file.schema_arrow
        Table(
            name=name, header=schema.names, columns={}, rows=()
        )  # raises for a name that is twice
        if file.metadata.num_rows > UNPACKED_ROWS:
            raise _too_much(name, f"{UNPACKED_ROWS:,} rows")
        wanted = _parquet_columns(schema, columns, named)
        _check_size(name, _declared_bytes(file.metadata, wanted))
        leaves = [file.schema.column(at) for at in range(len(file.schema))]
        texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
        file = parquet.ParquetFile(BytesIO(data), read_dictionary=texts)
        read = _decoded_columns(name, file, wanted)
    except (pa.ArrowException, OSError, MemoryError) as error:
        raise DataError(f"{name} can't be read as Parquet: {error}") from error
    header = [path for field in schema for path in _paths_of(pa, field)]
    for path in named:
        read = dict(_with_path(read, path))
    header += [path for path in read if path not in header]
    rows = range(file.metadata.num_rows)
    return Table(name=name, header=header, columns=read, rows=rows, hints=HINTS["parquet"])


def _parquet_columns(
    schema: Any, columns: Collection[str] | None, named: Collection[str]
) -> list[str]:
    """Return the top columns of a Parquet file that hold the columns that are wanted (None: all)."""
    if columns is None:
        return [*schema.names]
    wanted = {*columns, *named}
    return [
        column
        for column in schema.names
        if any(path == column or path.startswith(f"{column}.") for path in wanted)
    ]


def _paths_of(pa: Any, field: Any, path: str = "", depth: int = 9) -> Iterator[str]:
    """Yield the columns of a Parquet field: itself, or the paths of those within a struct."""
    if depth and pa.types.is_struct(field.type) and field.type.num_fields:
        for inner in field.type:
            yield from _paths_of(pa, inner, f"{path}{field.name}.", depth - 1)
    else:
        yield f"{path}{field.name}"


def _declared_bytes(metadata: Any, wanted: Collection[str]) -> int:
    """Return how many bytes the columns of a Parquet file have unpacked, as the file says."""
    size = 0
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for at in range(row_group.num_columns):
            column = row_group.column(at)
            if column.path_in_schema.split(".")[0] in wanted or column.path_in_schema in wanted:
                size += max(0, column.total_uncompressed_size)
    return size


def _decoded_columns(name: str, file: Any, wanted: Sequence[str]) -> dict[str, list[Any]]:
    """Return these columns of a Parquet file, as lists.

    Texts stay in their dictionaries, in which a text that repeats stands once, until it is counted how
    long they are together. Raises DataError for more than LARGEST.
    """
    (pa,) = packages("parquet", f"Reading {name}", "pyarrow")
    read: dict[str, list[Any]] = {column: [] for column in wanted}
    size = 0
    for batch in file.iter_batches(batch_size=PARQUET_BATCH_ROWS, columns=[*wanted]):
        for column in wanted:
            cells = batch.column(column)
            size += _bytes_of(pa, cells)
            _check_size(name, size)
            read[column] += _python_cells(pa, cells)
    return {
        path: cells
        for column in wanted
        for path, cells in _struct_columns(pa, file.schema_arrow.field(column), read[column])
    }


def _bytes_of(pa: Any, cells: Any) -> int:
    """Return how many bytes the values of an Arrow array have, each as often as it occurs."""
    (compute,) = packages("parquet", "Parquet", "pyarrow.compute")
    if pa.types.is_dictionary(cells.type):
        lengths = compute.binary_length(cells.dictionary)
        total: int = compute.sum(lengths.take(cells.indices)).as_py() or 0
        indices: int = cells.indices.nbytes
        return total + indices
    if pa.types.is_struct(cells.type):
        return sum(_bytes_of(pa, part) for part in cells.flatten())
    if pa.types.is_list(cells.type) or pa.types.is_large_list(cells.type):
        return _bytes_of(pa, cells.flatten()) + 8 * len(cells)
    size: int = cells.nbytes
    return size


def _python_cells(pa: Any, cells: Any) -> list[Any]:
    """Return the values of an Arrow array; equal texts of a dictionary are one object."""
    if not pa.types.is_dictionary(cells.type):
        cells.validate(full=True)  # so that all of its texts are UTF-8
        values: list[Any] = cells.to_pylist()
        return values
    used = cells.indices.unique()
    texts = cells.dictionary.take(used)
    texts.validate(full=True)
    by_index = dict(zip(used.to_pylist(), texts.to_pylist(), strict=True))
    return [by_index[index] for index in cells.indices.to_pylist()]


def _struct_columns(pa: Any, field: Any, cells: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield a column as it is, or those within a struct, by their paths."""
    for path in _paths_of(pa, field):
        if path == field.name:
            yield path, [*map(_plain, cells)]
        else:
            inner = path[len(field.name) + 1 :]
            yield path, [_plain(value_at(cell, inner)) for cell in cells]


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
