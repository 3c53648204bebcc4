"""Judgments in a table, as other programs write it: which text, judge and round its cells name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from judgeq.datasets.columns import is_empty
from judgeq.datasets.formats import SUFFIXES, format_of, read
from judgeq.datasets.tables import UNUSABLE, Wanted, shown
from judgeq.errors import DataError


class Cells:
    """What the cells of a table say of the items of a dataset with these ids and texts, of the `judge`
    and of the `round`, which stand in columns of these names; `wanted` says of each other column what
    names it. What is wrong is reported with its row.

    Raises DataError for a table that can't be read, or lacks a column.
    """

    def __init__(
        self,
        path: Path,
        wanted: Mapping[str, str],
        ids: Sequence[str],
        texts: Sequence[str] | None,
        judge: str | None,
        round_: str | None,
    ) -> None:
        if format_of(path) is None:
            raise DataError(f"{path} is no table of judgments: {SUFFIXES} are read.")
        wanted = dict(wanted)
        if judge is not None:
            wanted[judge] = "--judge-column names the column of who judged."
        if round_ is not None:
            wanted[round_] = "--round-column names the column of the round."
        self.table = read(path, Wanted(wanted))
        self._judge, self._round = judge, round_
        self._ids = {name: row for row, name in enumerate(ids)}
        self._texts: dict[str, int | None] = {}
        for row, text in enumerate(texts or ()):
            text = text.strip()
            self._texts[text] = None if text in self._texts else row  # None: of several items

    def word(self, i: int, column: str) -> str:
        """A cell as a word: a whole number without a point, as which tables may hold it; "" for none."""
        cell = self.table.columns[column][i]
        if isinstance(cell, float) and cell.is_integer():
            cell = int(cell)
        return "" if is_empty(cell) or cell is UNUSABLE else str(cell)

    def known(self, name: str) -> int | None:
        """The item that has this id or, but for white space, this text; None for none or several."""
        texts = self._texts.get(name.strip())
        return self._ids.get(name, self._ids.get(name.strip(), texts))

    def item(self, i: int, column: str) -> int | None:
        """The item that a row names in a column; None where it names none, which is reported."""
        name = self.word(i, column)
        row = self.known(name)
        if row is None and self.table.columns[column][i] is not UNUSABLE:
            several = name.strip() in self._texts
            which = "the text of several items" if several else "no item's id or text"
            remedy = "Name texts by the ids that the dataset has (--id-column)."
            self.wrong(i, column, f"which is {which}", remedy)
        return row

    def judge(self, i: int) -> str | None:
        """Who judged a row; None where it isn't asked for."""
        if self._judge is None:
            return None
        name = self.word(i, self._judge).strip()
        if not name:
            self.table.report(
                i, f"{self._judge} is empty", "Name every judge, or leave --judge-column out."
            )
        return name

    def round(self, i: int) -> int:
        """The round of a row, as it is numbered there."""
        if self._round is None:
            return 1
        try:
            return int(self.word(i, self._round))
        except ValueError:
            remedy = "Number the rounds, or leave --round-column out."
            self.wrong(i, self._round, "which is no whole number", remedy)
            return 1

    def wrong(self, i: int, column: str, why: str, remedy: str) -> None:
        """Report what is wrong with a cell of a row."""
        cell = self.table.columns[column][i]
        self.table.report(i, f"{column} is {shown(cell)}, {why}", remedy)
