"""The rows of a table that can't be used: gathered, so that all of them are reported at once."""

from __future__ import annotations

from bisect import insort
from typing import NamedTuple

from judgeq.errors import DataError

MOST_LISTED = 10


class BadRow(NamedTuple):
    """A row (0-based), what is wrong with it (place and problem), and what to do about it."""

    row: int
    said: str
    remedy: str


def place(row: int, line: int | None) -> str:
    """A row (0-based) and its line, if there are lines, for a message; there rows begin at 1."""
    return f"row {row + 1}" + ("" if line is None else f" (line {line})")


class BadRows:
    """Problems with the rows of one table: the first ten are kept, the others counted."""

    def __init__(self, table: str) -> None:
        self.count = 0
        self._table = table
        self._first: list[BadRow] = []

    def wanted(self, row: int) -> bool:
        """Count a problem of this row, and say whether it will be listed: call `add` then."""
        self.count += 1
        return len(self._first) < MOST_LISTED or row < self._first[-1].row

    def add(self, row: int, said: str, remedy: str) -> None:
        """List a problem that was counted."""
        insort(self._first, BadRow(row, said, remedy), key=lambda bad: bad.row)
        del self._first[MOST_LISTED:]

    def check(self) -> None:
        """Raise DataError listing the problems, if there is one."""
        if not self.count:
            return
        first = self._first[0]
        if self.count == 1:
            raise DataError(f"{self._table}, {first.said}. {first.remedy}")
        lines = [f"{self._table}: {self.count:,} problems."]
        lines += [f"{bad.said}." for bad in self._first]
        if self.count > len(self._first):
            lines.append(f"And {self.count - len(self._first):,} more.")
        lines += dict.fromkeys(bad.remedy for bad in self._first)
        raise DataError("\n".join(lines))
