"""Columns out of a CSV, TSV, JSONL or Parquet file, in one pass and no others than asked for.

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
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias

from judgeq.errors import DataError, UsageError

Format: TypeAlias = Literal["csv", "tsv", "jsonl", "parquet"]

FORMATS: Mapping[str, Format] = MappingProxyType(
    {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
)
SUFFIXES = ", ".join(FORMATS)

# No judge reads a text this long; what does get there is a quotation mark that is never closed.
MAX_FIELD = 10_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """The columns asked for, all of length `rows`; cells are as the file has them (CSV: str).

    `lines[r]` is the line on which row r begins (1-based), None where the format has no lines.
    """

    path: Path
    columns: Mapping[str, Sequence[object]]
    rows: int
    lines: Sequence[int] | None

    def __len__(self) -> int:
        return self.rows

    def at(self, row: int) -> str:
        """Where row `row` (0-based) lies, for a message."""
        return _at(self.path, row, None if self.lines is None else self.lines[row])


def read(
    path: Path, form: Format, wanted: Mapping[str, str], *, delimiter: str | None = None
) -> Table:
    """The columns `wanted` of a file; each comes with what to do where the file doesn't have it.

    Raises DataError naming file and row where the file can't be read, UsageError where reading
    Parquet needs a package that isn't installed.
    """
    try:
        _check_file(path)
        if form == "parquet":
            return _read_parquet(path, wanted)
        if form == "jsonl":
            return _read_jsonl(path, wanted)
        return _read_csv(path, wanted, delimiter or {"csv": ",", "tsv": "\t"}[form])
    except UnicodeDecodeError as error:
        raise _not_utf8(path) from error
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{path} can't be read: {reason}.") from error


def shown(value: object, limit: int = 60) -> str:
    """A value for a message: quoted, control characters escaped, cut where it is long."""
    text = repr(value if not isinstance(value, str) else value[: limit + 1])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def did_you_mean(word: str, among: Iterable[str]) -> str:
    """ " Did you mean 'x'?", or "" where nothing is close."""
    folded = {each.strip().casefold(): each for each in among}
    close = difflib.get_close_matches(word.strip().casefold(), folded, n=1, cutoff=0.6)
    return f" Did you mean {shown(folded[close[0]])}?" if close else ""


def listed(values: Iterable[object], most: int = 12) -> str:
    """Values for a message, comma-separated, the first `most` of them."""
    every = list(values)
    more = f" and {len(every) - most:,} more" if len(every) > most else ""
    return ", ".join(shown(value, 40) for value in every[:most]) + more


def _at(path: Path, row: int, line: int | None) -> str:
    return f"{path}, row {row + 1}" + ("" if line is None else f" (line {line})")


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise DataError(f"{path} is a folder. Name a file in it ({SUFFIXES}).")
    if not path.exists():
        raise DataError(f"There is no file {path} (seen from {Path.cwd()}). Check the path.")
    if not path.is_file():
        raise DataError(f"{path} is not a regular file. Save its content to one and name that.")
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty. Expected a table of texts.")


def _check_header(path: Path, header: Sequence[str], wanted: Mapping[str, str]) -> None:
    seen: set[str] = set()
    for name in header:
        if name and name in seen:
            raise DataError(
                f"{path} has more than one column {shown(name)}. Rename one of them in its header."
            )
        seen.add(name)
    for name, remedy in wanted.items():
        if name not in seen:
            hint = did_you_mean(name, header)
            if len(header) == 1 and any(mark in header[0] for mark in ";\t|"):
                hint = " The file seems to be separated by something else than its suffix says."
            raise DataError(
                f"{path} has no column {shown(name)}; it has {listed(header)}.{hint} {remedy}"
            )


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


def _without_nul(path: Path, lines: Iterable[str]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if "\0" in line:
            raise DataError(
                f"{path}, line {number}: a NUL character. The file is damaged, or no text file; "
                "save it anew as UTF-8 text."
            )
        yield line


def _read_csv(path: Path, wanted: Mapping[str, str], delimiter: str) -> Table:
    with _field_limit(), path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(_without_nul(path, file), delimiter=delimiter, strict=True)
        lines = array("q")
        start = 1
        try:
            header = next(filter(None, reader), None)
            if header is None:
                raise DataError(f"{path} is empty. Expected a header line and rows.")
            _check_header(path, header, wanted)
            cells: dict[str, list[object]] = {name: [] for name in wanted}
            columns = [(header.index(name), cells[name].append) for name in wanted]
            start = reader.line_num + 1
            for row in reader:
                if row:  # a blank line is no row
                    if len(row) != len(header):
                        at = _at(path, len(lines), start)
                        raise DataError(_wrong_width(at, len(row), len(header)))
                    for column, append in columns:
                        append(row[column])
                    lines.append(start)
                start = reader.line_num + 1
        except csv.Error as error:
            raise DataError(
                f"{_at(path, len(lines), start)}: broken quoting ({error}). A quotation mark is "
                "opened and never closed, or one inside a quoted field is not doubled."
            ) from error
    return Table(path, cells, len(lines), lines)


def _wrong_width(at: str, found: int, expected: int) -> str:
    which = "too many" if found > expected else "too few"
    return (
        f"{at}: {which} fields: {found}, where the header has {expected}. "
        "Put a field that holds a separator in quotation marks."
    )


def _not_utf8(path: Path) -> DataError:
    """Looks again for the byte at fault: a decoder that streams doesn't know where it stood."""
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            try:
                raw.decode()
            except UnicodeDecodeError as error:
                where = f", line {number}, byte {error.start + 1} (0x{raw[error.start]:02x})"
                return DataError(f"{path}{where}: not UTF-8. Save the file as UTF-8.")
    return DataError(f"{path} is not UTF-8. Save the file as UTF-8.")


# JSONL


def _read_jsonl(path: Path, wanted: Mapping[str, str]) -> Table:
    cells: dict[str, list[object]] = {name: [] for name in wanted}
    appends = [(name, column.append) for name, column in cells.items()]
    lines = array("q")
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            if number == 1:
                raw = raw.removeprefix(BOM_UTF8)
            if not raw.strip():
                continue
            entry = _json_object(raw, _at(path, len(lines), number))
            if not lines:
                _check_header(path, list(entry), wanted)
            for name, append in appends:
                if name not in entry:
                    raise DataError(
                        f"{_at(path, len(lines), number)}: no key {shown(name)}; it has "
                        f"{listed(entry)}. Give every object this key (null where it's unknown)."
                    )
                append(entry[name])
            lines.append(number)
    if not lines:
        raise DataError(f"{path} is empty. Expected one JSON object a line.")
    return Table(path, cells, len(lines), lines)


def _json_object(raw: bytes, at: str) -> dict[str, object]:
    import orjson

    try:
        entry: object = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raw.decode()  # a line that is not UTF-8 gets that error instead
        raise DataError(
            f"{at}: broken JSON: {error.msg} at column {error.colno}. "
            "Expected one whole JSON object a line."
        ) from error
    if not isinstance(entry, dict):
        raise DataError(f"{at}: {shown(entry)} is no JSON object. Expected one object a line.")
    return entry


# Parquet


def _read_parquet(path: Path, wanted: Mapping[str, str]) -> Table:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError(
            f"Reading {path} needs pyarrow. Install it with: pip install 'judgeq[parquet]'"
        ) from error
    cells: dict[str, list[object]] = {name: [] for name in wanted}
    try:
        with parquet.ParquetFile(path) as file:
            _check_header(path, file.schema_arrow.names, wanted)
            for batch in file.iter_batches(columns=list(wanted)):
                for name, column in cells.items():
                    column.extend(batch.column(name).to_pylist())
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} can't be read as Parquet: {error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} holds text that is not UTF-8. Write it anew.") from error
    rows = len(next(iter(cells.values())))
    return Table(path, cells, rows, None)
