"""Judgments in a table, as other programs write it: which text, judge and round its cells name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal, TypeAlias

from judgeq.datasets import tables
from judgeq.datasets.columns import is_empty
from judgeq.datasets.tables import FORMATS, UNUSABLE, Table, shown
from judgeq.errors import DataError
from judgeq.recordings import Judgment, Recording

Named: TypeAlias = Literal["text", "side"]
"""What an answer's cell names: a text, as its row does, or the side or place where it stood."""


def opened(path: Path, wanted: Mapping[str, str], judge: str | None, round_: str | None) -> Table:
    """A table with its columns checked; `wanted` says of each what names it. Raises DataError."""
    form = FORMATS.get(path.suffix.lower())
    if form is None:
        raise DataError(f"{path} is no table of judgments: {tables.SUFFIXES} are read.")
    wanted = dict(wanted)
    if judge is not None:
        wanted[judge] = "--judge-column names the column of who judged."
    if round_ is not None:
        wanted[round_] = "--round-column names the column of the round."
    return tables.read(path, form, wanted)


class Cells:
    """What the cells of a table say of the items of a dataset with these ids and texts, of the `judge`
    and of the `round`, which stand in columns of these names. What is wrong is reported with its row.
    """

    def __init__(
        self,
        table: Table,
        ids: Sequence[str],
        texts: Sequence[str] | None,
        judge: str | None,
        round_: str | None,
    ) -> None:
        self.table = table
        self._judge, self._round = judge, round_
        self._ids = {name: row for row, name in enumerate(ids)}
        self._texts: dict[str, int | None] = {}
        for row, text in enumerate(texts or ()):
            text = text.strip()
            self._texts[text] = None if text in self._texts else row  # None: of several items

    def known(self, name: str) -> int | None:
        """The item that has this id or, but for white space, this text; None for none or several."""
        row = self._ids.get(name)
        if row is None:
            row = self._ids.get(name.strip())
        return self._texts.get(name.strip()) if row is None else row

    def item(self, i: int, column: str) -> int | None:
        """The item that a row names in a column; None where it names none, which is reported."""
        cell = self.table.columns[column][i]
        if cell is UNUSABLE:
            return None
        name = "" if is_empty(cell) else as_word(cell, strip=False)
        row = self.known(name)
        if row is None:
            several = name.strip() in self._texts
            wrong = f"{column} is {shown(cell)}, which is the text of several items"
            if not several:
                wrong = f"{column} is {shown(cell)}, which is no item's id or text"
            self.wrong(i, wrong, "Name texts by the ids that the dataset has (--id-column).")
        return row

    def judge(self, i: int) -> str | None:
        """Who judged a row; None where it isn't asked for."""
        if self._judge is None:
            return None
        cell = self.table.columns[self._judge][i]
        if is_empty(cell):
            remedy = "Name every judge, or leave --judge-column out."
            self.wrong(i, f"{self._judge} is empty", remedy)
            return None
        return as_word(cell)

    def round(self, i: int) -> int:
        """The round of a row, as it is numbered there."""
        if self._round is None:
            return 1
        cell = self.table.columns[self._round][i]
        try:
            return int(as_word(cell))
        except ValueError:
            wrong = f"{self._round} is {shown(cell)}, which is no whole number"
            self.wrong(i, wrong, "Number the rounds, or leave --round-column out.")
            return 1

    def says(self, answers: Iterable[tuple[int, str, int | None, int | None]]) -> Named:
        """What answers name: what all of them can be read as, and only that. They are (row, column, the
        place whose text is named so, the place so called); None where a cell can't be read so.

        Raises DataError where they can be read as both, and the two differ.
        """
        differing = None
        as_text = as_side = True
        for i, column, text, side in answers:
            as_text, as_side = as_text and text is not None, as_side and side is not None
            if text is not None and side is not None and text != side and differing is None:
                differing = i, column
        if as_text and as_side and differing is not None:
            i, column = differing
            raise DataError(
                f"{self.table.at(i)}: {column} may name a text or a side: --winner-is text or "
                "--winner-is side says which."
            )
        return "text" if as_text or not as_side else "side"

    def wrong(self, i: int, wrong: str, remedy: str) -> None:
        """Report what is wrong with a row."""
        bad, number = self.table.bad, self.table.numbers[i]
        if bad.wanted(number):
            bad.add(number, f"{self.table.place(i)}: {wrong}", remedy)

    def recording(
        self, judgments: list[Judgment], what: str, left_out: Iterable[tuple[int, str]]
    ) -> Recording:
        """The judgments in the order of their rounds, numbered from 1. `what` are they called;
        `left_out` are numbers of rows, and what rows these are. Raises DataError for bad rows, and where
        there are no judgments.
        """
        self.table.check()
        name = self.table.name
        if not judgments:
            raise DataError(f"{name} holds no {what}.")
        judgments.sort(key=lambda judgment: judgment.round)
        numbers = dict.fromkeys(judgment.round for judgment in judgments)
        place = {number: at for at, number in enumerate(numbers, start=1)}
        judgments = [one._replace(round=place[one.round]) for one in judgments]
        notices = [
            f"{name}: {sentence} were left out: {count:,}." for count, sentence in left_out if count
        ]
        alike = sum(a == b for a, b in pairwise(sorted(judgments, key=repr)))
        if alike:
            notices.append(
                f"{name}: {alike:,} of the {what} repeat another, by the same judge: each counts."
            )
        return Recording(judgments, tuple(notices))


def as_word(cell: object, *, strip: bool = True) -> str:
    """A cell as a word: a whole number without a point, as which tables may hold it."""
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    return str(cell).strip() if strip else str(cell)
