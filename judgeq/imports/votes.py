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

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from judgeq.errors import DataError
from judgeq.imports.recordings import Judgment, Recording, renumbered
from judgeq.imports.tables import Cells
from judgeq.types import Verdict

Named: TypeAlias = Literal["text", "side"]
"""What an answer's cell names: a text, as its row does, or the side or place where it stood."""

SIDES = (("left", "l", "a", "first"), ("right", "r", "b", "second"))
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


class _Answers:
    """A table of answers on its way to judgments."""

    def __init__(self, cells: Cells, columns: Columns) -> None:
        self._cells = cells
        self._columns = columns
        self._answers = [name for name in (columns.best, columns.worst) if name is not None]
        self._votes = columns.ties is not None
        self._kind = VOTES if self._votes else BEST_WORST
        self._ties = {word.strip().casefold() for word in columns.ties or ()}
        self._places: dict[str, str] = {}
        if self._votes:
            self._ties |= TIES
            for column, words in zip(columns.items, SIDES, strict=True):
                self._places |= dict.fromkeys(words, column)
        for place, column in enumerate(columns.items, start=1):
            self._places |= {str(place): column, column.casefold(): column}
        self._rows = [self._shown(i) for i in range(len(cells.table))]

    def recording(self) -> Recording:
        """The judgments in the order of their rounds, numbered from 1. Raises DataError for bad rows,
        and where there are no judgments."""
        cells, columns, table = self._cells, self._columns, self._cells.table
        says = columns.says or self._says()
        ordered = columns.best not in columns.items
        judgments = []
        empty = itself = 0
        for i, items in enumerate(self._rows):
            if not items:
                continue
            presented = tuple(items.values())
            if not any(cells.word(i, column).strip() for column in self._answers):
                empty += 1
            elif len(set(presented)) == 1:
                itself += 1
            elif (verdict := self._verdict(i, items, says)) is not None:
                judgment = Judgment(cells.round(i), presented, verdict, cells.judge(i), ordered)
                judgments.append(judgment)
        table.check()
        if not judgments:
            raise DataError(f"{table.name} holds no {self._kind.name}.")
        left_out = ((empty, self._kind.empty), (itself, "rows that compare a text with itself"))
        notices = [f"{what} were left out: {count:,}." for count, what in left_out if count]
        alike = len(judgments) - len(set(judgments))
        if alike:
            notices.append(
                f"{alike:,} of the {self._kind.name} repeat another, by the same judge: each counts."
            )
        judgments.sort(key=lambda judgment: judgment.round)
        return Recording(
            renumbered(judgments), tuple(f"{table.name}: {notice}" for notice in notices)
        )

    def _shown(self, i: int) -> dict[str, int]:
        """The items of a row, by their columns; none where something is wrong, which is reported."""
        cells, columns = self._cells, self._columns.items
        there = [name for name in columns if self._votes or cells.word(i, name).strip()]
        items = {name: item for name in there if (item := cells.item(i, name)) is not None}
        if len(items) < len(there):
            return {}
        found = list(items.values())
        twice = [name for name in items if found.count(items[name]) > 1]
        if twice and not self._votes:
            wrong = f"{' and '.join(twice[:2])} are the same text"
            cells.report(i, wrong, "A text can be shown once in a row.")
            return {}
        if len(items) < 2:
            cells.report(i, "fewer than two texts are shown", "Leave such rows out.")
            return {}
        return items

    def _says(self) -> Named:
        """What answers name: what all of them can be read as, and only that.

        Raises DataError where they can be read as both, and the two differ.
        """
        differing = None
        as_text = as_side = True
        for i, column, items in self._given():
            text, side = (self._item(i, column, items, says) for says in ("text", "side"))
            as_text, as_side = as_text and text is not None, as_side and side is not None
            if None not in (text, side) and text != side and differing is None:
                differing = f"{self._cells.table.at(i)}: {column}"
        if as_text and as_side and differing is not None:
            raise DataError(
                f"{differing} may name a text or a side: --winner-is text or --winner-is side says "
                "which."
            )
        return "text" if as_text or not as_side else "side"

    def _given(self) -> Iterator[tuple[int, str, dict[str, int]]]:
        """The row, the column and the items of each answer that is there, and no tie."""
        for i, items in enumerate(self._rows):
            for column in self._answers if items else ():
                word = self._cells.word(i, column).strip()
                if word and word.casefold() not in self._ties:
                    yield i, column, items

    def _item(self, i: int, column: str, items: dict[str, int], says: str) -> int | None:
        """The item of a row that an answer names by its text, or by its place."""
        word = self._cells.word(i, column)
        if says == "side":
            return items.get(self._places.get(word.strip().casefold(), ""))
        for name, item in items.items():
            if self._cells.word(i, name).strip() == word.strip():
                return item
        known = None if self._votes else self._cells.known(word)
        return known if known in items.values() else None

    def _verdict(self, i: int, items: dict[str, int], says: Named) -> Verdict | None:
        """What a row says; None where it can't be read, which is reported."""
        cells, kind = self._cells, self._kind
        ends: dict[str, int] = {}
        for column in self._answers:
            word = cells.word(i, column).strip()
            item = self._item(i, column, items, says) if word else None
            if item is not None:
                ends[column] = item
            elif word.casefold() in self._ties:
                return Verdict.of([tuple(items.values())])
            elif word:
                why = kind.no_text if says == "text" else kind.no_place
                cells.wrong(i, column, why, kind.remedy)
                return None
        if len(set(ends.values())) < len(ends):
            wrong = f"{' and '.join(ends)} name the same text"
            cells.report(i, wrong, "Correct the row, or leave it out.")
            return None
        best, worst = (
            [[ends[column]] for column in (name,) if column in ends]
            for name in (self._columns.best, self._columns.worst)
        )
        others = [item for item in items.values() if item not in ends.values()]
        return Verdict.of([*best, *([others] if others else []), *worst], partial=True)
