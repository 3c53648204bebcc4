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

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from judgeq.errors import DataError
from judgeq.imports.recordings import Judgment, Recording, renumbered
from judgeq.imports.tables import Cells
from judgeq.types import Verdict

Named: TypeAlias = Literal["text", "side"]
"""What an answer's cell names: a text, as its row does, or the side or place where it stood."""

SIDES: Sequence[tuple[str, ...]] = (("left", "l", "a", "first"), ("right", "r", "b", "second"))
TIES = frozenset(("tie", "tied", "draw", "equal", "same", "="))


class Columns(NamedTuple):
    """The names of the columns; `best` or `worst` may be None. `ties` are words for a tie beside TIES,
    and the items two (None: best-worst answers, which know no tie). `says` is what the cells of the
    answers name (None: what all of them can be read as)."""

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
    no_text: str
    no_place: str
    remedy: str


VOTES = _Kind(
    "votes",
    "rows that name no winner",
    "which is neither of its texts, nor a word for a tie",
    "which is no side, nor a word for a tie",
    "A winner is one of the two as the row names it, or its side (left, right, 1, 2, a, b); --tie WORD "
    "names another word for a tie.",
)
BEST_WORST = _Kind(
    "best-worst answers",
    "rows that name neither the best nor the worst",
    "which is none of the texts of its row",
    "which is no place of its row",
    "The best and the worst are named as the row names them, by id or text, or by place (1, 2, … or "
    "the name of its column).",
)


def read(
    path: Path, columns: Columns, ids: Sequence[str], texts: Sequence[str] | None
) -> Recording:
    """The answers of a table over the dataset with these ids and texts.

    Raises DataError naming the table, and the rows of what is wrong.
    """
    items, best, worst = columns.items, columns.best, columns.worst
    wanted = dict.fromkeys(items, "--item-columns names the columns of the texts shown.")
    flags = {
        best: "--best names the column of the best.",
        worst: "--worst names that of the worst.",
    }
    if columns.ties is not None:
        flags = {
            items[0]: "--left names the column of the first text.",
            items[1]: "--right names the column of the second text.",
            best: "--winner names the column of the winner.",
        }
    wanted |= {column: flag for column, flag in flags.items() if column is not None}
    cells = Cells(path, wanted, ids, texts, columns.judge, columns.round)
    return _Answers(cells, columns).recording()


class _Row(NamedTuple):
    """A row that can be read: its number, its items by their columns, the answers by theirs: the item
    that each means as a text, or as a side; and whether it says that the items are tied."""

    i: int
    items: dict[str, int]
    answers: dict[str, dict[Named, int | None]]
    tie: bool


class _Answers:
    """A table of answers on its way to judgments."""

    def __init__(self, cells: Cells, columns: Columns) -> None:
        self._cells = cells
        self._columns = columns
        self._votes = columns.ties is not None
        self._kind = VOTES if self._votes else BEST_WORST
        self._ties = {word.strip().casefold() for word in columns.ties or ()}
        self._ties |= TIES if self._votes else frozenset()
        sides = SIDES if self._votes else ((),) * len(columns.items)
        self._places = {
            word: column
            for place, (column, words) in enumerate(zip(columns.items, sides, strict=True), start=1)
            for word in (str(place), *words)
        }
        self._places |= {column.casefold(): column for column in columns.items}

    def recording(self) -> Recording:
        """The judgments in the order of their rounds, numbered from 1. Raises DataError for bad rows,
        and where there are no judgments."""
        cells, columns, kind = self._cells, self._columns, self._kind
        rows = [row for i in range(len(cells.table)) if (row := self._row(i)) is not None]
        says = columns.says or self._says(rows)
        ordered = columns.best not in columns.items
        judgments = []
        empty = itself = 0
        for row in rows:
            presented = tuple(row.items.values())
            if not row.answers:
                empty += 1
            elif len(set(presented)) == 1:
                itself += 1
            elif (verdict := self._verdict(row, says)) is not None:
                of = cells.round(row.i), presented, verdict, cells.judge(row.i), ordered
                judgments.append(Judgment(*of))
        cells.table.bad.check()
        if not judgments:
            raise DataError(f"{cells.table.name} holds no {kind.name}.")
        alike = len(judgments) - len(set(judgments))
        notices = [
            f"{cells.table.name}: {notice}"
            for count, notice in (
                (empty, f"{kind.empty} were left out: {empty:,}."),
                (itself, f"rows that compare a text with itself were left out: {itself:,}."),
                (
                    alike,
                    f"{alike:,} of the {kind.name} repeat another, by the same judge: each counts.",
                ),
            )
            if count
        ]
        judgments.sort(key=lambda judgment: judgment.round)
        return Recording(renumbered(judgments), tuple(notices))

    def _row(self, i: int) -> _Row | None:
        """A row; None where its items aren't as they should, which is reported."""
        cells, columns = self._cells, self._columns
        there = [name for name in columns.items if self._votes or cells.word(i, name).strip()]
        items = {name: item for name in there if (item := cells.item(i, name)) is not None}
        if len(items) < len(there):
            return None
        found = list(items.values())
        twice = [name for name, item in items.items() if found.count(item) > 1]
        if len(found) < 2:
            cells.table.report(i, "fewer than two texts are shown", "Leave such rows out.")
        elif twice and not self._votes:
            wrong = f"{' and '.join(twice[:2])} are the same text"
            cells.table.report(i, wrong, "A text can be shown once in a row.")
        else:
            answers = [name for name in (columns.best, columns.worst) if name is not None]
            words = {name: cells.word(i, name) for name in answers if cells.word(i, name).strip()}
            tie = any(word.strip().casefold() in self._ties for word in words.values())
            means = {name: self._means(i, word, items) for name, word in words.items()}
            return _Row(i, items, means, tie)
        return None

    def _means(self, i: int, cell: str, items: dict[str, int]) -> dict[Named, int | None]:
        """The item that an answer means where it names a text, and where it names a side."""
        cells, word = self._cells, cell.strip()
        named = [item for name, item in items.items() if cells.word(i, name).strip() == word]
        if not named and not self._votes:
            named = [item for item in items.values() if item == cells.known(cell)]
        side = items.get(self._places.get(word.casefold(), ""))
        return {"text": named[0] if named else None, "side": side}

    def _says(self, rows: Sequence[_Row]) -> Named:
        """What answers name: what all of them that are no ties can be read as, and only that.

        Raises DataError where they can be read as both, and the two differ.
        """
        table = self._cells.table
        answers = [
            (means["text"], means["side"], row.i, column)
            for row in rows
            for column, means in row.answers.items()
            if not row.tie
        ]
        if any(side is None for _, side, *_ in answers):
            return "text"
        if any(text is None for text, *_ in answers):
            return "side"
        for text, side, i, column in answers:
            if text != side:
                raise DataError(
                    f"{table.name}, {table.place(i)}: {column} may name a text or a side: "
                    "--winner-is text or --winner-is side says which."
                )
        return "text"

    def _verdict(self, row: _Row, says: Named) -> Verdict | None:
        """What a row says; None where it can't be read, which is reported."""
        ends: dict[str | None, list[int]] = {}
        for column, means in row.answers.items():
            item = means[says]
            if item is not None:
                ends[column] = [item]
            elif row.tie:
                return Verdict.of([tuple(row.items.values())])
            else:
                why = self._kind.no_text if says == "text" else self._kind.no_place
                self._cells.wrong(row.i, column, why, self._kind.remedy)
                return None
        best, worst = ends.get(self._columns.best, []), ends.get(self._columns.worst, [])
        if best and best == worst:
            wrong = f"{self._columns.best} and {self._columns.worst} name the same text"
            self._cells.table.report(row.i, wrong, "Correct the row, or leave it out.")
            return None
        others = [item for item in row.items.values() if item not in (*best, *worst)]
        return Verdict.of(filter(None, (best, others, worst)), partial=True)
