"""Votes on pairs in a table: which of two texts won, by whom, as other programs write it.

A row holds the two texts that were compared, each by its id or its whole text, and the winner: one of
the two as the row names them, or the side it stood on ("left", "right", "1", "2", "a", "b", or the
name of its column); or a word for a tie. A row without a winner is no vote: it is left out, and
reported. All are of one round, unless a column says otherwise. The first text is taken to have been
shown first (or on the left), except where the winner's column is one of the two: then the order isn't
known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from judgeq.datasets import tables
from judgeq.datasets.columns import is_empty
from judgeq.datasets.tables import FORMATS, UNUSABLE, Table, shown
from judgeq.errors import DataError
from judgeq.recordings import Judgment, Recording
from judgeq.types import Verdict

Winner: TypeAlias = Literal["text", "side"]
"""What a winner's cell names: a text, as its row does, or a side."""
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
    says: Winner | None = None


def read(
    path: Path, columns: Columns, ids: Sequence[str], texts: Sequence[str] | None
) -> Recording:
    """The votes of a table over the dataset with these ids and texts.

    Raises DataError naming the table, and the rows of what is wrong.
    """
    form = FORMATS.get(path.suffix.lower())
    if form is None:
        raise DataError(f"{path} is no table of votes: {tables.SUFFIXES} are read.")
    wanted = {
        columns.left: "--left names the column of the first text.",
        columns.right: "--right names the column of the second text.",
        columns.winner: "--winner names the column of the winner.",
    }
    if columns.judge is not None:
        wanted[columns.judge] = "--judge-column names the column of who judged."
    if columns.round is not None:
        wanted[columns.round] = "--round-column names the column of the round."
    return _Votes(tables.read(path, form, wanted), columns, ids, texts).recording()


class _Votes:
    """A table of votes on its way to judgments."""

    def __init__(
        self, table: Table, columns: Columns, ids: Sequence[str], texts: Sequence[str] | None
    ) -> None:
        self._table = table
        self._columns = columns
        self._ids = {name: row for row, name in enumerate(ids)}
        self._texts: dict[str, int | None] = {}
        for row, text in enumerate(texts or ()):
            text = text.strip()
            self._texts[text] = None if text in self._texts else row  # None: of several items
        self._ties = TIES | {word.strip().casefold() for word in columns.ties}
        self._itself = self._open = 0
        left, right = columns.left.casefold(), columns.right.casefold()
        self._sides = {**SIDES, left: 0, right: 1}

    def recording(self) -> Recording:
        """The judgments, in the order of their rounds."""
        table, columns = self._table, self._columns
        winners = table.columns[columns.winner]
        pairs = [self._pair(i) for i in range(len(table))]
        says = columns.says or self._says(pairs)
        ordered = columns.winner not in (columns.left, columns.right)
        judgments = []
        for i, (pair, winner) in enumerate(zip(pairs, winners, strict=True)):
            if pair is None or winner is UNUSABLE:
                continue
            if is_empty(winner):
                self._open += 1
            elif pair[0] == pair[1]:
                self._itself += 1
            else:
                verdict = self._verdict(i, pair, _word(winner), says)
                if verdict is not None:
                    judgments.append(
                        Judgment(self._round(i), pair, verdict, self._judge(i), ordered)
                    )
        table.check()
        if not judgments:
            raise DataError(f"{table.name} holds no votes.")
        judgments.sort(key=lambda judgment: judgment.round)
        rounds = {number: place for place, number in enumerate(_distinct(judgments), start=1)}
        judgments = [one._replace(round=rounds[one.round]) for one in judgments]
        return Recording(judgments, tuple(self._notices(judgments)))

    def _pair(self, i: int) -> tuple[int, int] | None:
        """The items of a row; None where one isn't there, which is reported."""
        found = [self._item(i, name) for name in (self._columns.left, self._columns.right)]
        left, right = found
        return None if left is None or right is None else (left, right)

    def _item(self, i: int, column: str) -> int | None:
        cell = self._table.columns[column][i]
        if cell is UNUSABLE:
            return None
        name = "" if is_empty(cell) else _word(cell, strip=False)
        row = self._ids.get(name)
        if row is None:
            row = self._ids.get(name.strip())
        if row is not None:
            return row
        row = self._texts.get(name.strip())
        if row is None:
            several = name.strip() in self._texts
            wrong = f"{column} is {shown(cell)}, which is the text of several items"
            if not several:
                wrong = f"{column} is {shown(cell)}, which is no item's id or text"
            self._wrong(i, wrong, "Name texts by the ids that the dataset has (--id-column).")
        return row

    def _says(self, pairs: Sequence[tuple[int, int] | None]) -> Winner:
        """What the winners' cells name: what all of them can be read as, and only that.

        Raises DataError where they can be read as both, and the two differ.
        """
        differing = None
        as_text = as_side = True
        for i, pair in enumerate(pairs):
            cell = self._table.columns[self._columns.winner][i]
            if pair is None or is_empty(cell) or cell is UNUSABLE:
                continue
            word = _word(cell)
            if word.casefold() in self._ties:
                continue
            text, side = self._named(i, word), self._sides.get(word.casefold())
            as_text, as_side = as_text and text is not None, as_side and side is not None
            if text is not None and side is not None and text != side and differing is None:
                differing = i
        if as_text and as_side and differing is not None:
            winner = self._columns.winner
            raise DataError(
                f"{self._table.at(differing)}: {winner} may name a text or a side: --winner-is text or "
                "--winner-is side says which."
            )
        return "text" if as_text or not as_side else "side"

    def _named(self, i: int, word: str) -> int | None:
        """The side whose text a cell names as its row does."""
        for side, column in enumerate((self._columns.left, self._columns.right)):
            if _word(self._table.columns[column][i]) == word:
                return side
        return None

    def _verdict(self, i: int, pair: tuple[int, int], word: str, says: Winner) -> Verdict | None:
        """What a row says; None where it can't be read, which is reported."""
        side = self._named(i, word) if says == "text" else self._sides.get(word.casefold())
        if side is not None:
            return Verdict((pair[side], pair[1 - side]))
        if word.casefold() in self._ties:
            return Verdict.of([pair])
        of = "neither of its texts" if says == "text" else "no side"
        self._wrong(
            i,
            f"{self._columns.winner} is {shown(word)}, which is {of}, nor a word for a tie",
            "A winner is one of the two as the row names it, or its side (left, right, 1, 2, a, b); "
            "--tie WORD names another word for a tie.",
        )
        return None

    def _judge(self, i: int) -> str | None:
        if self._columns.judge is None:
            return None
        cell = self._table.columns[self._columns.judge][i]
        if is_empty(cell):
            remedy = "Name every judge, or leave --judge-column out."
            self._wrong(i, f"{self._columns.judge} is empty", remedy)
            return None
        return _word(cell)

    def _round(self, i: int) -> int:
        if self._columns.round is None:
            return 1
        cell = self._table.columns[self._columns.round][i]
        try:
            return int(_word(cell))
        except ValueError:
            wrong = f"{self._columns.round} is {shown(cell)}, which is no whole number"
            self._wrong(i, wrong, "Number the rounds, or leave --round-column out.")
            return 1

    def _wrong(self, i: int, wrong: str, remedy: str) -> None:
        bad, number = self._table.bad, self._table.numbers[i]
        if bad.wanted(number):
            bad.add(number, f"{self._table.place(i)}: {wrong}", remedy)

    def _notices(self, judgments: Sequence[Judgment]) -> list[str]:
        name, notices = self._table.name, []
        if self._open:
            notices.append(f"{name}: rows that name no winner were left out: {self._open:,}.")
        if self._itself:
            notices.append(
                f"{name}: rows that compare a text with itself were left out: {self._itself:,}."
            )
        alike = sum(a == b for a, b in pairwise(sorted(judgments, key=repr)))
        if alike:
            notices.append(
                f"{name}: {alike:,} of the votes repeat another, by the same judge: each counts."
            )
        return notices


def _word(cell: object, *, strip: bool = True) -> str:
    """A cell as a word: a whole number without a point, as which tables may hold it."""
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    return str(cell).strip() if strip else str(cell)


def _distinct(judgments: Sequence[Judgment]) -> dict[int, None]:
    """The numbers of the rounds, in their order."""
    return dict.fromkeys(judgment.round for judgment in judgments)
