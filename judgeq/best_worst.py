"""Best-worst answers in a table: of some texts that were shown the best and the worst, by whom.

A row holds the texts that were shown, four or five as a rule, each by its id or its whole text (fewer
where cells are empty), and which of them was named the best and which the worst: as the row names
them, by id or text, or by place (its number from 1, or the name of its column). That is a partial
ranking: the best above all, the worst below all, and nothing is known of the others. One of the two may
be missing; a row without both is no answer: it is left out, and reported. All are of one round, unless a
column says otherwise. The texts are taken to have been shown in the order of the columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from judgeq.datasets.columns import is_empty
from judgeq.datasets.tables import UNUSABLE, shown
from judgeq.judged_tables import Cells, Named, as_word, opened
from judgeq.recordings import Judgment, Recording
from judgeq.types import Verdict


class Columns(NamedTuple):
    """The names of the columns; `best` or `worst` may be None. `says` is what their cells name (None:
    what all of them can be read as)."""

    items: Sequence[str]
    best: str | None
    worst: str | None
    judge: str | None = None
    round: str | None = None
    says: Named | None = None

    @property
    def answers(self) -> list[str]:
        """The columns of the answers that there are."""
        return [column for column in (self.best, self.worst) if column is not None]


def read(
    path: Path, columns: Columns, ids: Sequence[str], texts: Sequence[str] | None
) -> Recording:
    """The answers of a table over the dataset with these ids and texts.

    Raises DataError naming the table, and the rows of what is wrong.
    """
    wanted = dict.fromkeys(columns.items, "--item-columns names the columns of the texts shown.")
    if columns.best is not None:
        wanted[columns.best] = "--best names the column of the best."
    if columns.worst is not None:
        wanted[columns.worst] = "--worst names the column of the worst."
    table = opened(path, wanted, columns.judge, columns.round)
    return _Answers(Cells(table, ids, texts, columns.judge, columns.round), columns).recording()


class _Answers:
    """A table of best-worst answers on its way to judgments."""

    def __init__(self, cells: Cells, columns: Columns) -> None:
        self._cells = cells
        self._columns = columns
        self._rows = [self._shown(i) for i in range(len(cells.table))]
        places = {str(place): column for place, column in enumerate(columns.items, start=1)}
        self._places = {column.casefold(): column for column in columns.items} | places

    def recording(self) -> Recording:
        """The judgments, in the order of their rounds."""
        cells, columns = self._cells, self._columns
        says = columns.says or cells.says(self._read())
        judgments = []
        empty = 0
        for i, items in enumerate(self._rows):
            if not items:
                continue
            given = [column for column in columns.answers if not self._is_empty(i, column)]
            if not given:
                empty += 1
                continue
            verdict = self._verdict(i, given, items, says)
            if verdict is not None:
                presented = tuple(items.values())
                judgments.append(Judgment(cells.round(i), presented, verdict, cells.judge(i)))
        left_out = [(empty, "rows that name neither the best nor the worst")]
        return cells.recording(judgments, "best-worst answers", left_out)

    def _shown(self, i: int) -> dict[str, int]:
        """The items of a row, by their columns; none where something is wrong, which is reported."""
        columns = self._cells.table.columns
        there = [name for name in self._columns.items if not is_empty(columns[name][i])]
        items = {name: self._cells.item(i, name) for name in there}
        known = {name: item for name, item in items.items() if item is not None}
        if len(known) < len(items):
            return {}
        twice = [name for name in known if list(known.values()).count(known[name]) > 1]
        if twice:
            wrong = f"{' and '.join(twice[:2])} are the same text"
            self._cells.wrong(i, wrong, "A text can be shown once in a row.")
            return {}
        if len(known) < 2:
            self._cells.wrong(i, "fewer than two texts are shown", "Leave such rows out.")
            return {}
        return known

    def _is_empty(self, i: int, column: str) -> bool:
        cell = self._cells.table.columns[column][i]
        return cell is UNUSABLE or is_empty(cell)

    def _read(self) -> Iterator[tuple[int, str, int | None, int | None]]:
        """Each answer's cell, as of `Cells.says`."""
        for i, items in enumerate(self._rows):
            for column in self._columns.answers if items else ():
                if not self._is_empty(i, column):
                    yield i, column, self._text(i, column, items), self._place(i, column, items)

    def _text(self, i: int, column: str, items: Mapping[str, int]) -> int | None:
        """The item of a row that an answer names as the row does, or by its id or text."""
        columns = self._cells.table.columns
        answer = columns[column][i]
        for name, item in items.items():
            if as_word(columns[name][i]) == as_word(answer):
                return item
        known = self._cells.known(as_word(answer, strip=False))
        return known if known in items.values() else None

    def _place(self, i: int, column: str, items: Mapping[str, int]) -> int | None:
        """The item of a row at the place that an answer names."""
        name = as_word(self._cells.table.columns[column][i]).casefold()
        return items.get(self._places.get(name, ""))

    def _verdict(
        self, i: int, given: Sequence[str], items: Mapping[str, int], says: Named
    ) -> Verdict | None:
        """What a row says; None where it can't be read, which is reported."""
        columns, of = self._columns, self._text if says == "text" else self._place
        ends = {column: of(i, column, items) for column in given}
        for column, item in ends.items():
            if item is None:
                cell = self._cells.table.columns[column][i]
                what = "none of the texts of its row" if says == "text" else "no place of its row"
                self._cells.wrong(
                    i,
                    f"{column} is {shown(cell)}, which is {what}",
                    "The best and the worst are named as the row names them, by id or text, or by "
                    "place (1, 2, … or the name of its column).",
                )
                return None
        best, worst = (ends.get(column or "") for column in (columns.best, columns.worst))
        if best is not None and best == worst:
            wrong = f"{columns.best} and {columns.worst} name the same text"
            self._cells.wrong(i, wrong, "Correct the row, or leave it out.")
            return None
        others = [item for item in items.values() if item not in (best, worst)]
        first, last = ([] if end is None else [[end]] for end in (best, worst))
        return Verdict.of([*first, *([others] if others else []), *last], partial=True)
