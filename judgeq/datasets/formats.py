"""Files as sources of tables: CSV, TSV, a text a line, JSON, Excel or Parquet, any of them gzipped.

Knows how files break (quoting, encoding, missing fields) and at which line; knows nothing of items,
gold or datasets.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from io import BytesIO, TextIOWrapper
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, Literal, TypeAlias

from judgeq.datasets.dataset import OF_COLUMNS, refuse
from judgeq.datasets.frames import by_column
from judgeq.datasets.tables import TEXT, Rows, Source, display, listed
from judgeq.errors import DataError, UsageError
from judgeq.files import ordinary
from judgeq.settings.run import DatasetSpec

Format: TypeAlias = Literal["csv", "tsv", "txt", "jsonl", "xlsx", "parquet"]

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
SETTINGS = {
    "delimiter": "csv, tsv",
    "encoding": "csv, tsv, txt, jsonl",
    "no_header": "csv, tsv, txt, xlsx",
}
"""How a file is read, and of which formats that can be set."""
# No judge reads a text this long; what does get there is a quotation mark that is never closed.
MAX_FIELD = 10_000_000
LARGEST = 1_000_000_000
"""Bytes that a compressed file may unpack to."""
MOST_ROWS = 1 << 20
"""Rows of an Excel sheet, by Excel's own limit."""

# What a file that is no text begins with, and what to do with it.
_BINARY = {
    b"PK\x03\x04": "an Excel file, whatever its name says. Rename it, so that it ends in .xlsx.",
    b"\xd0\xcf\x11\xe0": "an Excel file of the old kind. Save it as .xlsx.",
    b"\x1f\x8b": "compressed, whatever its name says. Rename it, so that it ends in .csv.gz.",
    b"PAR1": "a Parquet file, whatever its name says. Rename it, so that it ends in .parquet.",
}
_MARKS = {  # that of UTF-16 is the beginning of one of UTF-32
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_QUOTED = re.compile(r'"[^"]*"?')


def format_of(path: str | Path) -> Format | None:
    """The format that a file's name says; None for what isn't the name of a table."""
    return FORMATS.get(Path(str(path).lower().removesuffix(".gz")).suffix)


def contents(path: Path) -> bytes:
    """The bytes of a file. Raises DataError."""
    try:
        return ordinary(path).read_bytes()
    except FileNotFoundError as error:
        raise DataError(
            f"There is no file {path} (seen from {Path.cwd()}). Check the path."
        ) from error
    except IsADirectoryError as error:
        raise DataError(f"{path} is a folder. Name a file in it ({SUFFIXES}).") from error
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror or error}.") from error


def read(
    path: Path, spec: DatasetSpec, *, form: Format | None = None, data: bytes | None = None
) -> Source:
    """The table in a file, read as `spec` says. With `data` these are its bytes, and `path` names them.

    Without `form` it is that of the file's name; without a delimiter that of the format, or what the
    first line of a CSV file shows; without an encoding it is UTF-8, or what a byte order mark says.
    Without a header columns are named by number, from 1; a single one "text". Lines of texts have no
    columns: where one is named, or what separates them, they are rows of a CSV.

    Raises DataError naming the file where it can't be read, UsageError where its name says no format,
    or reading it needs a package that isn't installed, or a setting isn't for it; or the source does.
    """
    name, form = str(path), form or format_of(path)
    columns = {column for role in OF_COLUMNS if (column := getattr(spec, role))}
    if form == "txt" and (columns or spec.delimiter):
        form = "csv"
    for setting, forms in SETTINGS.items():
        if form and form not in forms.split(", "):
            refuse(spec, [setting], f"is for {forms.upper()}, and {name} holds {form.upper()}")
    data = contents(path) if data is None else data  # `path` may be a folder
    if form is None:
        raise UsageError(
            f"The suffix of {name} is no format that can be read. "
            f"Name it by what it holds: {SUFFIXES}."
        )
    if name.lower().endswith(".gz"):
        data = _unpacked(name, data)
    if form == "parquet":
        return _parquet(name, data)
    if form == "xlsx":
        return _source(name, _sheet(name, data), not spec.no_header)
    for mark, what in _BINARY.items():
        if data.startswith(mark):
            raise DataError(f"{name} is {what}")
    lines = partial(_lines, name, data, spec.encoding)
    if form == "jsonl":
        return _source(name, _objects(name, lines, columns))
    if form == "txt":
        texts = ((number, [line.strip()]) for number, line in enumerate(lines(), 1) if line.strip())
        return _source(name, texts, header=False)
    first = [*islice(filter(str.strip, lines()), 20 if spec.no_header else 1)]
    delimiter = spec.delimiter or ("\t" if form == "tsv" else delimiter_of(first, columns))
    source = _source(name, _csv_rows(lines(), delimiter), not spec.no_header)
    return source._replace(decimal_comma=delimiter == ";")


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


def _lines(name: str, data: bytes, named: str | None) -> Iterator[str]:
    """The lines of a text in the encoding that was named; else that of the byte order mark; else UTF-8.
    Raises DataError naming the place of what is no text."""
    marked = (encoding for mark, encoding in _MARKS.items() if data.startswith(mark))
    encoding = codecs.lookup(named or next(marked, "utf-8")).name
    mark = "-sig" if encoding == "utf-8" else ""
    try:
        yield from TextIOWrapper(BytesIO(data), encoding + mark, newline="")
    except UnicodeError as error:
        # The piece that can't be decoded, if that is what is wrong: the file is where it first stands.
        at = data.find(getattr(error, "object", b"")) + getattr(error, "start", 0)
        line, byte = data.count(b"\n", 0, at) + 1, at - data.rfind(b"\n", 0, at)
        raise DataError(
            f"{name}, line {line}, byte {byte} (0x{data[at]:02x}): not {encoding.upper()}. Name its "
            "encoding with --encoding (such as windows-1252), or save it as UTF-8."
        ) from error


def delimiter_of(lines: Sequence[str], columns: Collection[str] = ()) -> str:
    """What separates the columns of these lines: the mark that stands in each of them equally often
    outside quotation marks, and more often than others; else a comma. `columns` are those looked for: a
    header that is one of them is no list of several."""
    plain = [_QUOTED.sub("", line) for line in lines if line.strip("\r\n") not in columns]
    counts = {mark: {line.count(mark) for line in plain} for mark in ",;\t|"}
    often = {mark: max(found) for mark, found in counts.items() if len(found) == 1}
    marks = [mark for mark in often if often[mark] == max(often.values())]
    return marks[0] if len(marks) == 1 else ","


# Rows of cells


def _source(name: str, rows: Rows, header: bool = True) -> Source:
    """The table of rows that are all as long as the first that can be used: the header, if there is
    one."""
    before: list[tuple[int, Any]] = []
    names: list[str] = []
    for line, row in rows:
        if not isinstance(row, ValueError):
            names = [*map(str, row)]
            if not header:
                before.append((line, row))
                names = [TEXT] if len(row) == 1 else [str(at + 1) for at in range(len(row))]
            break
        before.append((line, row))
    which = "the header" if header else "the first line"
    remedy = "Put a field that holds a separator in quotation marks."

    def cells(wanted: Sequence[str]) -> Rows:
        places = [names.index(column) for column in wanted]
        for line, row in chain(before, rows):
            if isinstance(row, ValueError):
                yield line, row
            elif len(row) == len(names):
                yield line, [row[at] for at in places]
            else:
                fields = f"too {'many' if len(row) > len(names) else 'few'} fields: {len(row)}"
                yield line, ValueError(f"{fields}, where {which} has {len(names)}", remedy)

    return Source(name, names, cells)


def _csv_rows(lines: Iterator[str], delimiter: str) -> Rows:
    """The rows of a CSV file, of which a blank line is none."""
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
        remedy = (
            "A quotation mark is opened and never closed, or one inside a quoted field is "
            "not doubled; what follows it can't be read."
        )
        yield start, ValueError(f"broken quoting ({error})", remedy)
    finally:
        csv.field_size_limit(before)


def _sheet(name: str, data: bytes) -> Rows:
    """The rows of a workbook's first sheet, of which blank ones are none. Formulas are not run: their
    last values are read."""
    import warnings
    import zipfile

    (openpyxl,) = packages("excel", f"Reading {name}", "openpyxl")
    try:
        with zipfile.ZipFile(BytesIO(data)) as parts:
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
                width = width or max(at for at, cell in enumerate(row, 1) if cell != "")
                yield line, [*row, *[""] * width][:width]
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{name} can't be read as an Excel file: {error}") from error


def _objects(name: str, lines: Any, needed: Collection[str]) -> Rows:
    """The keys of the first JSON object, then the values that each has of them: of one object a line, or
    of an array of them; a text in place of an object stands for one with that alone. Each must have the
    `needed` keys. Columns within objects are named by their path: "meta.text"."""
    import orjson

    def parsed(text: str) -> Any:
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError as error:
            of_line = f" of line {error.lineno}" if error.lineno > 1 else ""
            return ValueError(f"broken JSON: {error.msg} at column {error.colno}{of_line}")

    entries: Iterator[tuple[int, Any]] = (
        (line, parsed(entry)) for line, entry in enumerate(lines(), 1) if entry.strip()
    )
    if next(filter(str.strip, lines()), "").lstrip().startswith("["):
        whole = parsed("".join(lines()))
        if isinstance(whole, ValueError):
            raise DataError(f"{name}: {whole}. Expected an array of objects.")
        entries = zip(repeat(0), whole)
    keys: list[str] = []
    for line, entry in entries:
        cells = _flat({TEXT: entry} if isinstance(entry, str) else entry)
        if not isinstance(cells, dict) or not cells:
            what = f"{display(entry)} is {'an empty' if entry == {} else 'no'} JSON object"
            remedy = "Expected one whole JSON object a line, or an array of objects."
            yield line, ValueError(str(entry) if isinstance(entry, ValueError) else what, remedy)
            continue
        if not keys:
            keys = [*cells]
            yield 0, keys
        if absent := [key for key in needed if key not in cells]:
            problem = f"no key {display(min(absent))}; it has {listed(cells)}"
            yield line, ValueError(problem, "Give every object this key (null where it's unknown).")
        else:
            yield line, [*map(cells.get, keys)]


def _flat(entry: Any, path: str = "", depth: int = 9) -> Any:
    """The cells of an object by their paths, as deep as anybody nests columns; any other value alone."""
    if not (isinstance(entry, dict) and depth):
        return {path[:-1]: entry} if path else entry
    flat: dict[str, Any] = {}
    for key, value in entry.items():
        flat |= _flat(value, f"{path}{key}.", depth - 1)
    return flat


def _parquet(name: str, data: bytes) -> Source:
    pa, parquet = packages("parquet", f"Reading {name}", "pyarrow", "pyarrow.parquet")
    try:
        table = parquet.ParquetFile(BytesIO(data)).read()
        table.validate(full=True)  # so that all of its texts are UTF-8
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{name} can't be read as Parquet: {error}") from error
    return by_column(name, table.column_names, table)
