"""A table's columns, the rows of it that can't be used, and values in messages about it."""

from __future__ import annotations

import difflib
import re
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from judgeq.errors import DataError
from judgeq.settings import REHEARSAL

UNUSABLE: Any = object()
"""In place of the cells of a row that is reported already."""
MOST_LISTED = 10
_NUMBER = re.compile(r"[-+]?\d+([.,]\d+)?")


def place(row: int, line: int | None) -> str:
    """A row (0-based) and its line, if there are lines, for a message; there rows begin at 1."""
    return f"row {row + 1}" + ("" if line is None else f" (line {line})")


class BadRows:
    """Problems with the rows of one table: the first ten are kept, the others counted."""

    def __init__(self, table: str) -> None:
        self.count = 0
        self.table = table
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

    @property
    def first(self) -> str:
        """The first problem in words; "" for none."""
        return self._first[0][1] if self._first else ""

    def check(self) -> None:
        """Raise DataError listing the problems, if there is one."""
        if not self.count:
            return
        if self.count == 1:
            _, problem, remedy = self._first[0]
            raise DataError(f"{self.table}, {problem}. {remedy}")
        lines = [f"{self.table}: {self.count:,} problems."]
        lines += [f"{problem}." for _, problem, _ in self._first]
        if self.count > len(self._first):
            lines.append(f"And {self.count - len(self._first):,} more.")
        lines += dict.fromkeys(remedy for *_, remedy in self._first)
        raise DataError("\n".join(lines))


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """The columns asked for, all of the same length; cells are as the table has them (CSV: str).

    Problems with rows are gathered in `bad`: call `bad.check` when all columns are read.
    """

    name: str  # for messages
    header: Sequence[str]  # the names of all its columns
    columns: Mapping[str, Sequence[object]]
    numbers: Sequence[int]  # of each row here, its number in the table (0-based)
    lines: Sequence[int] | None  # by number, where a row begins (1-based); None: no lines
    bad: BadRows
    decimal_comma: bool = False

    def __len__(self) -> int:
        return len(self.numbers)

    def line(self, i: int) -> int | None:
        """The line on which the i-th row begins."""
        return None if self.lines is None else self.lines[self.numbers[i]]

    def place(self, i: int) -> str:
        """Where the i-th row lies, for a message."""
        return place(self.numbers[i], self.line(i))

    def rows(self, chosen: Sequence[int]) -> Table:
        """These rows only, by their places here."""
        columns = {name: [cells[i] for i in chosen] for name, cells in self.columns.items()}
        return replace(self, columns=columns, numbers=[self.numbers[i] for i in chosen])

    def report(self, i: int, problem: str, remedy: str, column: str | None = None) -> None:
        """Note that the i-th row can't be used."""
        self.bad.add(self.numbers[i], self.line(i), problem, remedy, column)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The columns that are asked for: those that must be there, each with what to do where it isn't;
    and `others` (None: all) if they are there."""

    columns: Mapping[str, str]
    others: Sequence[str] | None = ()

    def of(self, name: str, header: Sequence[str]) -> dict[str, list[object]]:
        """An empty column for each that this header has. Raises DataError where one that must be there
        isn't, or any is there twice."""
        for column, times in Counter(header).items():
            if column and times > 1:
                raise DataError(
                    f"{name} has more than one column {shown(column)}. Rename one of them in its header."
                )
        if REHEARSAL in header:
            raise DataError(
                f"{name} is from a rehearsal: its numbers are made up. To read it as a table of texts, "
                f"remove its column {REHEARSAL}."
            )
        for column, remedy in self.columns.items():
            if column not in header:
                raise DataError(no_column(name, header, column, remedy))
        others = filter(None, header) if self.others is None else self.others
        return {column: [] for column in (*self.columns, *others) if column in header}


def no_column(name: str, header: Sequence[str], column: str, remedy: str) -> str:
    """That a table lacks a column, which it has instead, and what to do."""
    hint = did_you_mean(column, header)
    if any(mark in cell for cell in header for mark in (",;\t|" if len(header) == 1 else ";\t|")):
        hint = " If something else separates its columns, name that with --delimiter."
    elif any(_NUMBER.fullmatch(cell) or len(cell.split()) > 4 for cell in header):
        longest = max(range(len(header)), key=lambda at: len(header[at]))
        which = f" --text-column {longest + 1}" if len(header) > 1 else ""
        hint = f" Its first line looks like a row: if it has no header, add --no-header{which}."
    return f"{name} has no column {shown(column)}; it has {listed(header)}.{hint} {remedy}".strip()


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
