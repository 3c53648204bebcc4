"""Votes on pairs in a table: which of two texts won, by whom, as other programs write it.

A row holds the two texts that were compared, each by its id or its whole text, and the winner: one of
the two as the row names them, or the side it stood on ("left", "right", "1", "2", "a", "b", or the
name of its column); or a word for a tie. A row without a winner is no vote: it is left out, and
reported. All are of one round, unless a column says otherwise. The first text is taken to have been
shown first (or on the left), except where the winner's column is one of the two: then the order isn't
known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from judgeq.datasets.columns import is_empty
from judgeq.datasets.tables import UNUSABLE, Table, shown
from judgeq.judged_tables import Cells, Named, as_word, opened
from judgeq.recordings import Judgment, Recording
from judgeq.types import Verdict

SIDES: Mapping[str, int] = {
    **dict.fromkeys(("left", "l", "a", "1", "first"), 0),
    **dict.fromkeys(("right", "r", "b", "2", "second"), 1),
}
TIES = frozenset(("tie", "tied", "draw", "equal", "same", "="))


class Columns(NamedTuple):
    """The names of the columns. `ties` are words for a tie beside TIES; `says` is what a winner's cell
    names (None: what all of them can be read as)."""

    left: str
    right: str
    winner: str
    judge: str | None = None
    round: str | None = None
    ties: Sequence[str] = ()
    says: Named | None = None


def read(
    path: Path, columns: Columns, ids: Sequence[str], texts: Sequence[str] | None
) -> Recording:
    """The votes of a table over the dataset with these ids and texts.

    Raises DataError naming the table, and the rows of what is wrong.
    """
    wanted = {
        columns.left: "--left names the column of the first text.",
        columns.right: "--right names the column of the second text.",
        columns.winner: "--winner names the column of the winner.",
    }
    table = opened(path, wanted, columns.judge, columns.round)
    return _Votes(Cells(table, ids, texts, columns.judge, columns.round), columns).recording()


class _Votes:
    """A table of votes on its way to judgments."""

    def __init__(self, cells: Cells, columns: Columns) -> None:
        self._cells = cells
        self._table: Table = cells.table
        self._columns = columns
        self._ties = TIES | {word.strip().casefold() for word in columns.ties}
        left, right = columns.left.casefold(), columns.right.casefold()
        self._sides = {**SIDES, left: 0, right: 1}

    def recording(self) -> Recording:
        """The judgments, in the order of their rounds."""
        table, columns, cells = self._table, self._columns, self._cells
        winners = table.columns[columns.winner]
        pairs = [self._pair(i) for i in range(len(table))]
        says = columns.says or cells.says(self._read(pairs))
        ordered = columns.winner not in (columns.left, columns.right)
        judgments = []
        itself = empty = 0
        for i, (pair, winner) in enumerate(zip(pairs, winners, strict=True)):
            if pair is None or winner is UNUSABLE:
                continue
            if is_empty(winner):
                empty += 1
            elif pair[0] == pair[1]:
                itself += 1
            else:
                verdict = self._verdict(i, pair, as_word(winner), says)
                if verdict is not None:
                    judgments.append(
                        Judgment(cells.round(i), pair, verdict, cells.judge(i), ordered)
                    )
        left_out = [
            (empty, "rows that name no winner"),
            (itself, "rows that compare a text with itself"),
        ]
        return cells.recording(judgments, "votes", left_out)

    def _pair(self, i: int) -> tuple[int, int] | None:
        """The items of a row; None where one isn't there, which is reported."""
        sides = (self._columns.left, self._columns.right)
        left, right = (self._cells.item(i, name) for name in sides)
        return None if left is None or right is None else (left, right)

    def _read(
        self, pairs: Sequence[tuple[int, int] | None]
    ) -> Iterator[tuple[int, str, int | None, int | None]]:
        """Each winner's cell that is no tie, as of `Cells.says`."""
        column = self._columns.winner
        for i, pair in enumerate(pairs):
            cell = self._table.columns[column][i]
            if pair is None or is_empty(cell) or cell is UNUSABLE:
                continue
            word = as_word(cell)
            if word.casefold() not in self._ties:
                yield i, column, self._named(i, word), self._sides.get(word.casefold())

    def _named(self, i: int, word: str) -> int | None:
        """The side whose text a cell names as its row does."""
        for side, column in enumerate((self._columns.left, self._columns.right)):
            if as_word(self._table.columns[column][i]) == word:
                return side
        return None

    def _verdict(self, i: int, pair: tuple[int, int], word: str, says: Named) -> Verdict | None:
        """What a row says; None where it can't be read, which is reported."""
        side = self._named(i, word) if says == "text" else self._sides.get(word.casefold())
        if side is not None:
            return Verdict((pair[side], pair[1 - side]))
        if word.casefold() in self._ties:
            return Verdict.of([pair])
        of = "neither of its texts" if says == "text" else "no side"
        self._cells.wrong(
            i,
            f"{self._columns.winner} is {shown(word)}, which is {of}, nor a word for a tie",
            "A winner is one of the two as the row names it, or its side (left, right, 1, 2, a, b); "
            "--tie WORD names another word for a tie.",
        )
        return None
