"""Columns out of a CSV, TSV, JSONL or Parquet table, in one pass and no others than asked for.

Knows how files break (quoting, encoding, missing fields) and at which row and line; knows nothing
of items, gold or datasets.
"""

from __future__ import annotations

import codecs
import csv
import difflib
import re
from array import array
from bisect import insort
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO, TextIOWrapper
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Literal, TypeAlias

from judgeq.errors import DataError, UsageError

Format: TypeAlias = Literal["csv", "tsv", "jsonl", "parquet"]

FORMATS: Mapping[str, Format] = MappingProxyType(
    {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
)
SUFFIXES = ", ".join(FORMATS)


Opener = Callable[[], BinaryIO]
"""Opens the bytes of a table, from their beginning each time."""

# The mark of UTF-32 begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_QUOTED = re.compile(r'"[^"]*"?')


UNUSABLE: Any = object()
"""In place of the cells of a row that is reported already."""

# No judge reads a text this long; what does get there is a quotation mark that is never closed.
MAX_FIELD = 10_000_000


MOST_LISTED = 10


def place(row: int, line: int | None) -> str:
    """A row (0-based) and its line, if there are lines, for a message; there rows begin at 1."""
    return f"row {row + 1}" + ("" if line is None else f" (line {line})")


class BadRows:
    """Problems with the rows of one table: the first ten are kept, the others counted."""

    def __init__(self, table: str) -> None:
        self.count = 0
        self._table = table
        self._first: list[tuple[int, str, str]] = []  # row, what is wrong, what to do

    def wanted(self, row: int) -> bool:
        """Whether a problem of this row will be listed."""
        return len(self._first) < MOST_LISTED or row < self._first[-1][0]

    def add(
        self, row: int, line: int | None, problem: str, remedy: str, column: str | None = None
    ) -> None:
        """Count a problem of a row (in a column), and list it if it is one of the first."""
        self.count += 1
        if self.wanted(row):
            where = place(row, line) + ("" if column is None else f", column {shown(column)}")
            insort(self._first, (row, f"{where}: {problem}", remedy), key=lambda bad: bad[0])
            del self._first[MOST_LISTED:]

    def check(self) -> None:
        """Raise DataError listing the problems, if there is one."""
        if not self.count:
            return
        if self.count == 1:
            _, said, remedy = self._first[0]
            raise DataError(f"{self._table}, {said}. {remedy}")
        lines = [f"{self._table}: {self.count:,} problems."]
        lines += [f"{said}." for _, said, _ in self._first]
        if self.count > len(self._first):
            lines.append(f"And {self.count - len(self._first):,} more.")
        lines += dict.fromkeys(remedy for *_, remedy in self._first)
        raise DataError("\n".join(lines))


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """The columns asked for, all of the same length; cells are as the table has them (CSV: str).

    `name` is the table's for messages. `numbers[i]` is the number of the i-th row here (0-based), and
    `lines[number]` the line on which that begins (1-based); None where the format has no lines.
    Problems with rows are gathered in `bad`: call `check` when all columns are read.
    """

    name: str
    columns: Mapping[str, Sequence[object]]
    numbers: Sequence[int]
    lines: Sequence[int] | None
    bad: BadRows

    def __len__(self) -> int:
        return len(self.numbers)

    def place(self, i: int) -> str:
        """Where the i-th row lies, for a message."""
        number = self.numbers[i]
        return place(number, None if self.lines is None else self.lines[number])

    def rows(self, chosen: Sequence[int]) -> Table:
        """These rows only, by their places here."""
        columns = {name: [cells[i] for i in chosen] for name, cells in self.columns.items()}
        return replace(self, columns=columns, numbers=[self.numbers[i] for i in chosen])

    def report(self, i: int, problem: str, remedy: str, column: str | None = None) -> None:
        """Note that the i-th row can't be used."""
        number = self.numbers[i]
        line = None if self.lines is None else self.lines[number]
        self.bad.add(number, line, problem, remedy, column)

    def check(self) -> None:
        """Raise DataError listing the rows that can't be used, if there is one."""
        self.bad.check()


def read(
    path: Path,
    form: Format,
    wanted: Mapping[str, str],
    *,
    optional: Sequence[str] = (),
    delimiter: str | None = None,
    encoding: str | None = None,
    data: bytes | None = None,
) -> Table:
    """The columns `wanted` of a file; each comes with what to do where the file doesn't have it. Of
    the `optional` columns those that the file has. With `data` these are its bytes, and `path` is
    their name.

    Without `delimiter` it is that of the format, or what the header of a CSV file shows; without
    `encoding` it is UTF-8, or what a byte order mark says. Rows that can't be used are gathered in
    the table. Raises DataError naming the file where it can't be read, UsageError where reading
    Parquet needs a package that isn't installed.
    """

    def opened() -> BinaryIO:
        return path.open("rb") if data is None else BytesIO(data)

    encoded = encoding or "utf-8-sig"
    try:
        if data is None:
            _check_file(path)
        elif not data:
            raise DataError(f"{path} is empty. Expected a table of texts.")
        if form == "parquet":
            return _read_parquet(path, wanted, optional)
        encoded = encoding_of(opened, encoding)
        if form == "jsonl":
            return _read_jsonl(str(path), opened, encoded, wanted, optional)
        given = delimiter or {"csv": None, "tsv": "\t"}[form]
        return _read_csv(str(path), opened, encoded, wanted, optional, given)
    except UnicodeError as error:
        raise undecodable(str(path), opened, encoded) from error
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{path} can't be read: {reason}.") from error


def shown(value: object, limit: int = 60) -> str:
    """A value for a message: quoted, control characters escaped, cut where it is long."""
    text = repr(value if not isinstance(value, str) else value[: limit + 1])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def did_you_mean(word: str, among: Iterable[str]) -> str:
    """ " Did you mean 'x'?", or "" where nothing is close."""
    folded = {name.strip().casefold(): name for name in among}
    close = difflib.get_close_matches(word.strip().casefold(), folded, n=1, cutoff=0.6)
    return f" Did you mean {shown(folded[close[0]])}?" if close else ""


def listed(values: Iterable[object], most: int = 12) -> str:
    """Values for a message, comma-separated, the first `most` of them."""
    every = list(values)
    more = f" and {len(every) - most:,} more" if len(every) > most else ""
    return ", ".join(shown(value, 40) for value in every[:most]) + more


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise DataError(f"{path} is a folder. Name a file in it ({SUFFIXES}).")
    if not path.exists():
        raise DataError(f"There is no file {path} (seen from {Path.cwd()}). Check the path.")
    if not path.is_file():
        raise DataError(
            f"{path} is not a regular file. Save its content to one and name that, or give it on "
            "standard input: --dataset -"
        )
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty. Expected a table of texts.")


def empty_columns(
    name: str, header: Sequence[str], wanted: Mapping[str, str], optional: Sequence[str]
) -> dict[str, list[object]]:
    """A column without cells for each that is wanted, or optional and there. Raises DataError where one
    that is wanted isn't there, or any is there twice."""
    for column, times in Counter(header).items():
        if column and times > 1:
            raise DataError(
                f"{name} has more than one column {shown(column)}. Rename one of them in its header."
            )
    for column, remedy in wanted.items():
        if column not in header:
            hint = did_you_mean(column, header)
            if len(header) == 1 and any(mark in header[0] for mark in ",;\t|"):
                hint = " If something else separates its columns, name that with --delimiter."
            raise DataError(
                f"{name} has no column {shown(column)}; it has {listed(header)}.{hint} {remedy}"
            )
    return {column: [] for column in (*wanted, *optional) if column in header}


# Encodings and separators


def encoding_of(opened: Opener, named: str | None) -> str:
    """The encoding that was named; else that of the byte order mark; else UTF-8."""
    if named is not None:
        codec = codecs.lookup(named).name
        return "utf-8-sig" if codec == "utf-8" else codec
    with opened() as file:
        start = file.read(4)
    marked = (encoding for mark, encoding in _MARKS if start.startswith(mark))
    return next(marked, "utf-8-sig")


def delimiter_of(header: str, columns: Container[str]) -> str:
    """What separates the columns of this header line: a comma; but where it has none outside
    quotation marks, the one of semicolon and tab that it has. `columns` are those looked for: a
    line that is one of them is no list of several."""
    plain = _QUOTED.sub("", header)
    there = [mark for mark in ";\t" if mark in plain]
    if "," in plain or len(there) != 1 or header.strip("\r\n\ufeff") in columns:
        return ","
    return there[0]


def undecodable(name: str, opened: Opener, encoding: str) -> DataError:
    """The error for a table that isn't in its encoding. Looks again for the line at fault: a decoder
    that streams doesn't know where it stood."""
    if encoding != "utf-8-sig":
        return DataError(f"{name} is not {encoding}. Name its encoding with --encoding.")
    remedy = "Name its encoding with --encoding (such as windows-1252), or save it as UTF-8."
    with opened() as file:
        for number, raw in enumerate(file, 1):
            try:
                raw.decode()
            except UnicodeDecodeError as error:
                where = f", line {number}, byte {error.start + 1} (0x{raw[error.start]:02x})"
                return DataError(f"{name}{where}: not UTF-8. {remedy}")
    return DataError(f"{name} is not UTF-8. {remedy}")


# CSV and TSV


@contextmanager
def _field_limit() -> Iterator[None]:
    """csv's limit of 131,072 characters a field, raised for as long as this file is read."""
    before = csv.field_size_limit()
    csv.field_size_limit(max(before, MAX_FIELD))
    try:
        yield
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


def _header_line(opened: Opener, encoding: str) -> str:
    """The first line that isn't blank, as far as is needed to see what separates its columns."""
    with TextIOWrapper(opened(), encoding=encoding, newline="") as file:
        return next(filter(str.strip, iter(lambda: file.readline(MAX_FIELD), "")), "")


def _read_csv(
    name: str,
    opened: Opener,
    encoding: str,
    wanted: Mapping[str, str],
    optional: Sequence[str],
    delimiter: str | None,
) -> Table:
    if delimiter is None:
        delimiter = delimiter_of(_header_line(opened, encoding), {*wanted, *optional})
    bad = BadRows(name)
    lines = array("q")
    with _field_limit(), TextIOWrapper(opened(), encoding=encoding, newline="") as file:
        reader = csv.reader(_without_nul(name, file), delimiter=delimiter, strict=True)
        start = 1
        try:
            header = next(filter(None, reader), None)
            if header is None:
                raise DataError(f"{name} is empty. Expected a header line and rows.")
            cells = empty_columns(name, header, wanted, optional)
            columns = [(header.index(column), into.append) for column, into in cells.items()]
            start = reader.line_num + 1
            for row in reader:
                if row:  # a blank line is no row
                    if len(row) != len(header):
                        which = "too many" if len(row) > len(header) else "too few"
                        said = f"{which} fields: {len(row)}, where the header has {len(header)}"
                        remedy = "Put a field that holds a separator in quotation marks."
                        bad.add(len(lines), start, said, remedy)
                        row = [UNUSABLE] * len(header)
                    for column, append in columns:
                        append(row[column])
                    lines.append(start)
                start = reader.line_num + 1
        except csv.Error as error:
            remedy = (
                "A quotation mark is opened and never closed, or one inside a quoted field is "
                "not doubled; what follows it can't be read."
            )
            bad.add(len(lines), start, f"broken quoting ({error})", remedy)
            bad.check()
    return Table(name, cells, range(len(lines)), lines, bad)


# JSONL


def _read_jsonl(
    name: str,
    opened: Opener,
    encoding: str,
    wanted: Mapping[str, str],
    optional: Sequence[str],
) -> Table:
    bad = BadRows(name)
    cells: dict[str, list[object]] | None = None
    lines = array("q")
    for number, raw in enumerate(_utf8_lines(opened, encoding), 1):
        if not raw.strip():
            continue
        row = len(lines)
        lines.append(number)
        entry = _json_object(raw, row, number, bad)
        if entry is not None and cells is None:
            cells = empty_columns(name, list(entry), wanted, optional)
            for column in cells.values():
                column.extend([UNUSABLE] * row)
        if cells is None:
            continue
        if entry is not None and (lacking := [key for key in wanted if key not in entry]):
            remedy = "Give every object this key (null where it's unknown)."
            bad.add(row, number, f"no key {shown(lacking[0])}; it has {listed(entry)}", remedy)
            entry = None
        for key, column in cells.items():
            column.append(UNUSABLE if entry is None else entry.get(key))
    if cells is None:
        bad.check()
        raise DataError(f"{name} is empty. Expected one JSON object a line.")
    return Table(name, cells, range(len(lines)), lines, bad)


def _utf8_lines(opened: Opener, encoding: str) -> Iterator[bytes]:
    """The lines in UTF-8, without a byte order mark."""
    if encoding != "utf-8-sig":
        with TextIOWrapper(opened(), encoding=encoding, newline="\n") as text:
            yield from (line.encode() for line in text)
        return
    with opened() as file:
        for number, raw in enumerate(file):
            yield raw if number else raw.removeprefix(BOM_UTF8)


def _json_object(raw: bytes, row: int, line: int, bad: BadRows) -> dict[str, object] | None:
    """The object that a line holds; None, and a bad row, where it holds none."""
    import orjson

    try:
        entry: object = orjson.loads(raw)
        if isinstance(entry, dict):
            return entry
        problem = f"{shown(entry)} is no JSON object"
    except orjson.JSONDecodeError as error:
        raw.decode()  # a line that is not UTF-8 gets that error instead
        problem = f"broken JSON: {error.msg} at column {error.colno}"
    bad.add(row, line, problem, "Expected one whole JSON object a line.")
    return None


# Parquet


def _read_parquet(path: Path, wanted: Mapping[str, str], optional: Sequence[str]) -> Table:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError(
            f"Reading {path} needs pyarrow. Install it with: pip install 'judgeq[parquet]'"
        ) from error
    try:
        with parquet.ParquetFile(path) as file:
            cells = empty_columns(str(path), file.schema_arrow.names, wanted, optional)
            rows = range(file.metadata.num_rows)
            for batch in file.iter_batches(columns=list(cells)):
                for name, column in cells.items():
                    column.extend(batch.column(name).to_pylist())
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} can't be read as Parquet: {error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} holds text that is not UTF-8. Write it anew.") from error
    return Table(str(path), cells, rows, None, BadRows(str(path)))
