"""Tables: their columns, the rows of them that can't be used, and values in messages."""

from __future__ import annotations

import difflib
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from judgeq.errors import DataError
from judgeq.settings.run import REHEARSAL

TEXT, ID = "text", "id"
"""The columns of texts and ids, where no others are named; a table's only column is one of texts."""
LISTED = 10
"""Bad rows in a message."""
_NUMBER = re.compile(r"[-+]?\d+([.,]\d+)?")

Rows: TypeAlias = Iterator[tuple[int, Sequence[Any] | ValueError]]
"""The line on which each row begins (1-based; 0: there are no lines), and its cells; or, of one that
can't be used, what is wrong with it and what to do."""


class Source(NamedTuple):
    """What a table is read from: `rows` gives the cells of some of the columns, in their order."""

    name: str  # for messages
    header: Sequence[str]
    rows: Callable[[Sequence[str]], Rows]
    decimal_comma: bool = False


class Table:
    """The columns of a source that are asked for; cells are as it has them (CSV: str).

    A row that can't be used is in none of them, and what is wrong is gathered: call `check` in the end.
    """

    def __init__(
        self, source: Source, columns: Mapping[str, str], others: Sequence[str] | None = ()
    ) -> None:
        """Reads the columns that must be there, each with what to do where it isn't; and `others` (None:
        all) if they are there. Raises DataError for a column that is missing, or there twice."""
        self.name, self.header, rows, self.decimal_comma = source
        self.numbers = array("q")  # of each row, its number in the source, 0-based
        self.bad: list[tuple[int, str, str]] = []  # row number, what is wrong, what to do
        self._lines = array("q")  # as in Rows, by row number
        for column, times in Counter(filter(None, self.header)).items():
            if times > 1:
                twice = f"{self.name} has more than one column {display(column)}"
                raise DataError(f"{twice}. Rename one of them in its header.")
        if REHEARSAL in self.header:
            raise DataError(
                f"{self.name} is from a rehearsal: its numbers are made up. To read it as a table of "
                f"texts, remove its column {REHEARSAL}."
            )
        for column, remedy in columns.items():
            if self.header and column not in self.header:
                raise DataError(self.without(column, remedy))
        every = (*columns, *(self.header if others is None else others))
        wanted = [name for name in dict.fromkeys(every) if name and name in self.header]
        cells_of: list[list[Any]] = [[] for _ in wanted]
        for number, (line, cells) in enumerate(rows(wanted)):
            self._lines.append(line)
            self.numbers.append(number)
            if isinstance(cells, ValueError):
                self.report(-1, *cells.args)
                self.numbers.pop()
                continue
            for column_cells, cell in zip(cells_of, cells):  # noqa: B905  strict takes time
                column_cells.append(cell)
        self.columns = dict(zip(wanted, cells_of, strict=True))
        if not self.header:
            self.check()
            raise DataError(f"{self.name} is empty. Expected a table of texts.")

    def __len__(self) -> int:
        return len(self.numbers)

    def place(self, i: int) -> str:
        """Where the i-th row lies, for a message; there rows begin at 1."""
        line = self._lines[self.numbers[i]]
        return f"row {self.numbers[i] + 1}" + (f" (line {line})" if line else "")

    def report(self, i: int, problem: str, remedy: str, column: str | None = None) -> None:
        """Note that the i-th row can't be used, or its cell in a column."""
        where = self.place(i) + ("" if column is None else f", column {display(column)}")
        self.bad.append((self.numbers[i], f"{where}: {problem}", remedy))

    def check(self) -> None:
        """Raise DataError listing the bad rows, if there is one."""
        if not self.bad:
            return
        _, problems, remedies = zip(*sorted(self.bad, key=itemgetter(0))[:LISTED], strict=True)
        if len(self.bad) == 1:
            raise DataError(f"{self.name}, {problems[0]}. {remedies[0]}")
        lines = [f"{self.name}: {len(self.bad):,} problems.", *(f"{bad}." for bad in problems)]
        if more := len(self.bad) - len(problems):
            lines.append(f"And {more:,} more.")
        raise DataError("\n".join([*lines, *dict.fromkeys(remedies)]))

    def keep(self, rows: Iterable[int]) -> None:
        """Leave out all other rows."""
        chosen = [*rows]
        self.columns = {name: [cells[i] for i in chosen] for name, cells in self.columns.items()}
        self.numbers = array("q", [self.numbers[i] for i in chosen])

    def without(self, column: str, remedy: str) -> str:
        """That a column is missing, which there are instead, and what to do."""
        header = self.header
        hint = did_you_mean(column, header)
        if {*"".join(header)} & {*(",;\t|" if len(header) == 1 else ";\t|")}:
            hint = " If something else separates its columns, name that with --delimiter."
        elif any(_NUMBER.fullmatch(cell) or len(cell.split()) > 4 for cell in header):
            longest = max(range(len(header)), key=lambda at: len(header[at]))
            which = f" --text-column {longest + 1}" if len(header) > 1 else ""
            hint = f" Its first line looks like a row: if it has no header, add --no-header{which}."
        elif "\0" in "".join(header):
            hint = " It may be in another encoding, which --encoding names."
        has = f"{self.name} has no column {display(column)}; it has {listed(header)}."
        return f"{has}{hint} {remedy}".strip()


def display(value: object, limit: int = 60) -> str:
    """A value for a message: quoted, control characters escaped, cut where it is long."""
    text = repr(value if not isinstance(value, str) else value[: limit + 1])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def did_you_mean(word: str, among: Iterable[str]) -> str:
    """ " Did you mean 'x'?", or "" where nothing is close."""
    folded = {name.strip().casefold(): name for name in among}
    close = difflib.get_close_matches(word.strip().casefold(), folded, n=1, cutoff=0.6)
    return f" Did you mean {display(folded[close[0]])}?" if close else ""


def listed(values: Iterable[object], most: int = 12) -> str:
    """Values for a message, comma-separated, the first `most` of them."""
    every = list(values)
    more = f" and {len(every) - most:,} more" if len(every) > most else ""
    return ", ".join(display(value, 40) for value in every[:most]) + more
