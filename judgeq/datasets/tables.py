"""Columns out of a CSV, TSV, JSONL or Parquet table, in one pass and no others than asked for.

Knows how files break (quoting, encoding, missing fields) and at which row and line; knows nothing
of items, gold or datasets.
"""

from __future__ import annotations

import csv
import difflib
from array import array
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO, TextIOWrapper
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Literal, TypeAlias

from judgeq.datasets.bad_rows import BadRows, place
from judgeq.datasets.text_files import Opener, delimiter_of, encoding_of, undecodable
from judgeq.errors import DataError, UsageError

Format: TypeAlias = Literal["csv", "tsv", "jsonl", "parquet"]

FORMATS: Mapping[str, Format] = MappingProxyType(
    {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
)
SUFFIXES = ", ".join(FORMATS)


class Unusable:
    """In place of the cells of a row that is reported already."""


UNUSABLE = Unusable()

# No judge reads a text this long; what does get there is a quotation mark that is never closed.
MAX_FIELD = 10_000_000


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

    def at(self, i: int) -> str:
        """As `place`, with the table's name."""
        return f"{self.name}, {self.place(i)}"

    def rows(self, chosen: Sequence[int]) -> Table:
        """These rows only, by their places here."""
        columns = {name: [cells[i] for i in chosen] for name, cells in self.columns.items()}
        return replace(self, columns=columns, numbers=[self.numbers[i] for i in chosen])

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


def check_header(name: str, header: Sequence[str], wanted: Mapping[str, str]) -> None:
    """Raise DataError for a table in which a column is wanted and not there, or is there twice."""
    seen: set[str] = set()
    for column in header:
        if column and column in seen:
            raise DataError(
                f"{name} has more than one column {shown(column)}. Rename one of them in its header."
            )
        seen.add(column)
    for column, remedy in wanted.items():
        if column not in seen:
            hint = did_you_mean(column, header)
            if len(header) == 1 and any(mark in header[0] for mark in ",;\t|"):
                hint = " If something else separates its columns, name that with --delimiter."
            raise DataError(
                f"{name} has no column {shown(column)}; it has {listed(header)}.{hint} {remedy}"
            )


def _cells(
    header: Sequence[str], wanted: Mapping[str, str], optional: Sequence[str]
) -> dict[str, list[object]]:
    """An empty column for each that is wanted, or optional and there."""
    return {name: [] for name in (*wanted, *(name for name in optional if name in header))}


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
        while line := file.readline(MAX_FIELD):
            if line.strip():
                return line
    return ""


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
            check_header(name, header, wanted)
            cells = _cells(header, wanted, optional)
            columns = [(header.index(column), into.append) for column, into in cells.items()]
            start = reader.line_num + 1
            for row in reader:
                if row:  # a blank line is no row
                    if len(row) != len(header):
                        _report_width(bad, len(lines), start, len(row), len(header))
                        row = [UNUSABLE] * len(header)  # type: ignore[list-item]
                    for column, append in columns:
                        append(row[column])
                    lines.append(start)
                start = reader.line_num + 1
        except csv.Error as error:
            if bad.wanted(len(lines)):
                said = f"{place(len(lines), start)}: broken quoting ({error})"
                remedy = (
                    "A quotation mark is opened and never closed, or one inside a quoted field is "
                    "not doubled; what follows it can't be read."
                )
                bad.add(len(lines), said, remedy)
            bad.check()
    return Table(name, cells, range(len(lines)), lines, bad)


def _report_width(bad: BadRows, row: int, line: int, width: int, expected: int) -> None:
    if bad.wanted(row):
        which = "too many" if width > expected else "too few"
        problem = f"{which} fields: {width}, where the header has {expected}"
        remedy = "Put a field that holds a separator in quotation marks."
        bad.add(row, f"{place(row, line)}: {problem}", remedy)


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
            check_header(name, list(entry), wanted)
            cells = _cells(list(entry), wanted, optional)
            for column in cells.values():
                column.extend([UNUSABLE] * row)
        if cells is None:
            continue
        if entry is not None and (lacking := [key for key in wanted if key not in entry]):
            if bad.wanted(row):
                said = f"{place(row, number)}: no key {shown(lacking[0])}; it has {listed(entry)}"
                remedy = "Give every object this key (null where it's unknown)."
                bad.add(row, said, remedy)
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

    remedy = "Expected one whole JSON object a line."
    try:
        entry: object = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raw.decode()  # a line that is not UTF-8 gets that error instead
        problem = f"broken JSON: {error.msg} at column {error.colno}"
    else:
        if isinstance(entry, dict):
            return entry
        problem = f"{shown(entry)} is no JSON object"
    if bad.wanted(row):
        bad.add(row, f"{place(row, line)}: {problem}", remedy)
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
            check_header(str(path), file.schema_arrow.names, wanted)
            cells = _cells(file.schema_arrow.names, wanted, optional)
            rows = range(file.metadata.num_rows)
            for batch in file.iter_batches(columns=list(cells)):
                for name, column in cells.items():
                    column.extend(batch.column(name).to_pylist())
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} can't be read as Parquet: {error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} holds text that is not UTF-8. Write it anew.") from error
    return Table(str(path), cells, rows, None, BadRows(str(path)))
