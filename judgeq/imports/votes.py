"""Votes on pairs and best-worst answers in a table, as other programs write them.

A row holds the texts that were shown, each by its id or its whole text: of a vote two; of a best-worst
answer four or five as a rule, fewer where cells are empty. And it holds which of them was named the
best (of a vote: the winner) and which the worst: as the row names them, or by place (its number from 1,
or the name of its column; of a vote also its side: "left", "right", "a", "b"); or of a vote a word for a
tie. A best-worst answer is a partial ranking: the best above all, the worst below all, and nothing is
known of the others. One of the two may be missing; a row without both, or without a winner, is no
answer: it is left out, and reported. All are of one round, unless a column says otherwise. The texts are
taken to have been shown in the order of the columns, except where the winner's column is one of them:
then the order isn't known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from judgeq.datasets import formats
from judgeq.datasets.columns import is_empty
from judgeq.datasets.tables import Table, display
from judgeq.errors import DataError
from judgeq.imports.recordings import Judgment, Recording, renumbered
from judgeq.settings.run import DatasetSpec
from judgeq.types import Verdict

Named: TypeAlias = Literal["text", "side"]
"""What an answer's cell names: a text, as its row does, or the side or place where it stood."""

SIDES: Sequence[tuple[str, ...]] = (("left", "l", "a", "first"), ("right", "r", "b", "second"))
ITSELF = "rows that compare a text with itself"
TIES = frozenset(("tie", "tied", "draw", "equal", "same", "="))


class Columns(NamedTuple):
    """The names of the columns; `best` or `worst` may be None. `ties` are words for a tie beside TIES,
    and the items two (None: best-worst answers, which know no tie). `says` is what the cells of the
    answers name (None: as the first says that can name only the one, or only the other)."""

    items: Sequence[str]
    best: str | None
    worst: str | None = None
    judge: str | None = None
    round: str | None = None
    ties: Sequence[str] | None = None
    says: Named | None = None


class _Kind(NamedTuple):
    """How a kind of answers is called, and what is said of its rows."""

    name: str
    empty: str
    wrong: str
    remedy: str


VOTES = _Kind(
    "votes",
    "rows that name no winner",
    "which is neither of its texts, nor a side, nor a word for a tie",
    "A winner is one of the two as the row names it, or its side (left, right, 1, 2, a, b); --tie WORD "
    "names another word for a tie.",
)
BEST_WORST = _Kind(
    "best-worst answers",
    "rows that name neither the best nor the worst",
    "which is none of the texts of its row, and no place of it",
    "The best and the worst are named as the row names them, by id or text, or by place (1, 2, … or "
    "the name of its column).",
)


def read(
    path: Path, columns: Columns, ids: Sequence[str], texts: Sequence[str] | None
) -> Recording:
    """The answers of a table over the dataset with these ids and texts.

    Raises DataError naming the table, and the rows of what is wrong.
    """
    if formats.format_of(path) is None:
        raise DataError(f"{path} is no table of judgments: {formats.SUFFIXES} are read.")
    known: dict[str, int | None] = {}  # by id or text but for white space; None: of several items
    for row, text in enumerate(texts or ()):
        known[text.strip()] = None if text.strip() in known else row
    known.update((name, row) for row, name in enumerate(ids))
    flags = _flags(columns)
    table = formats.read(path, DatasetSpec(dataset=str(path)), flags)
    cells = {column: table.cells(column, flag) for column, flag in flags.items()}
    return _Answers(table, cells, columns, known).recording()


def _flags(columns: Columns) -> dict[str, str]:
    """The columns to read, each with the flag that names it."""
    shown = ["--item-columns"] * len(columns.items)
    flags = [*shown, "--best"] if columns.ties is None else ["--left", "--right", "--winner"]
    named = (*columns.items, *columns[1:5])
    flags += ["--worst", "--judge-column", "--round-column"]
    return {column: flag for column, flag in zip(named, flags, strict=True) if column}


class _Answers:
    """A table of answers on its way to judgments: `cells` by column; `known` are the items by id or
    text."""

    def __init__(
        self,
        table: Table,
        cells: Mapping[str, Sequence[object]],
        columns: Columns,
        known: Mapping[str, int | None],
    ) -> None:
        self._table = table
        self._cells = cells
        self._columns = columns
        self._known = known
        self._says = columns.says
        self._votes = columns.ties is not None
        self._kind = VOTES if self._votes else BEST_WORST
        self._ties = TIES | {word.strip().casefold() for word in columns.ties or ()}
        self._places = {column.casefold(): column for column in columns.items}
        for place, column in enumerate(columns.items):
            words = (str(place + 1), *(SIDES[place] if self._votes else ()))
            self._places = dict.fromkeys(words, column) | self._places

    def recording(self) -> Recording:
        """The judgments in the order of their rounds, numbered from 1. Raises DataError for bad rows,
        and where there are no judgments."""
        table, kind = self._table, self._kind
        judgments = []
        left_out = {kind.empty: 0, ITSELF: 0}
        for i in range(len(table)):
            items = self._items(i)
            presented = tuple(items.values())
            answers = filter(None, (self._columns.best, self._columns.worst))
            words = {column: word for column in answers if (word := self._word(i, column))}
            if not words:
                left_out[kind.empty] += 1
            elif len(set(presented)) == 1:
                left_out[ITSELF] += 1
            else:
                verdict = self._verdict(i, items, words)
                ordered = self._columns.best not in self._columns.items
                of = self._round(i), presented, verdict, self._judge(i), ordered
                judgments.append(Judgment(*of))
        if not judgments:
            raise DataError(f"{table.name} holds no {kind.name}.")
        notices = [f"{what} were left out: {n:,}." for what, n in left_out.items() if n]
        if repeated := len(judgments) - len(set(judgments)):
            notices.append(
                f"{repeated:,} of the {kind.name} repeat another, by the same judge: each counts."
            )
        judgments.sort(key=lambda judgment: judgment.round)
        named = tuple(f"{table.name}: {notice}" for notice in notices)
        return Recording(renumbered(judgments), named)

    def _word(self, i: int, column: str) -> str:
        """A cell as a word: a whole number without a point, as which tables may hold it; "" for none."""
        cell = self._cells[column][i]
        if isinstance(cell, float) and cell.is_integer():
            cell = int(cell)
        return "" if is_empty(cell) else str(cell)

    def _wrong(self, i: int, column: str, why: str, remedy: str) -> DataError:
        return self._table.error(i, f"{column} is {display(self._cells[column][i])}, {why}", remedy)

    def _items(self, i: int) -> dict[str, int]:
        """A row's items by their columns. Raises DataError where they aren't as they should."""
        names = self._columns.items
        items = {name: self._item(i, name) for name in names if self._votes or self._word(i, name)}
        found = list(items.values())
        twice = [name for name, item in items.items() if found.count(item) > 1]
        if len(found) < 2:
            raise self._table.error(i, "fewer than two texts are shown", "Leave such rows out.")
        if twice and not self._votes:
            wrong = f"{' and '.join(twice[:2])} are the same text"
            raise self._table.error(i, wrong, "A text can be shown once in a row.")
        return items

    def _item(self, i: int, column: str) -> int:
        """The item that a row names in a column. Raises DataError where it names none."""
        name = self._word(i, column)
        item = self._known.get(name, self._known.get(name.strip()))
        if item is None:
            several = name.strip() in self._known
            which = "the text of several items" if several else "no item's id or text"
            remedy = "Name texts by the ids that the dataset has (--id-column)."
            raise self._wrong(i, column, f"which is {which}", remedy)
        return item

    def _meant(self, i: int, column: str, cell: str, items: dict[str, int]) -> int | None:
        """The item of a row that an answer names; None for none. The first answer that can be only a
        text, or only a side, says what all that follow name.

        Raises DataError where it may still name one as a text, and another as a side.
        """
        word = cell.strip()
        known = self._known.get(cell, self._known.get(word))
        text = known if known in items.values() else None
        side = items.get(self._places.get(word.casefold(), ""))
        if self._says is None and text != side:
            if text is not None and side is not None:
                raise DataError(
                    f"{self._table.name}, {self._table.place(i)}: {column} may name a text or a side: "
                    "--winner-is text or --winner-is side says which."
                )
            self._says = "side" if text is None else "text"
        return side if self._says == "side" else text

    def _judge(self, i: int) -> str | None:
        column = self._columns.judge
        name = None if column is None else self._word(i, column).strip()
        if name == "":
            remedy = "Name every judge, or leave --judge-column out."
            raise self._table.error(i, f"{column} is empty", remedy)
        return name

    def _round(self, i: int) -> int:
        column = self._columns.round
        word = "1" if column is None else self._word(i, column)
        try:
            return int(word)
        except ValueError as error:
            remedy = "Number the rounds, or leave --round-column out."
            raise self._wrong(i, column or "", "which is no whole number", remedy) from error

    def _verdict(self, i: int, items: dict[str, int], words: dict[str, str]) -> Verdict:
        """What a row's answers, by their columns, say. Raises DataError where they can't be read."""
        columns, ends = self._columns, dict[str | None, list[int]]()
        for column, word in words.items():
            item = self._meant(i, column, word, items)
            if item is not None:
                ends[column] = [item]
            elif self._votes and word.strip().casefold() in self._ties:
                return Verdict.of([tuple(items.values())])
            else:
                raise self._wrong(i, column, self._kind.wrong, self._kind.remedy)
        best, worst = ends.get(columns.best, []), ends.get(columns.worst, [])
        if best and best == worst:
            wrong = f"{columns.best} and {columns.worst} name the same text"
            raise self._table.error(i, wrong, "Correct the row, or leave it out.")
        others = [item for item in items.values() if item not in (*best, *worst)]
        return Verdict.of(filter(None, (best, others, worst)), partial=True)
