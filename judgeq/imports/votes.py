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
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from judgeq.datasets import tables
from judgeq.datasets.columns import cells_of, is_empty
from judgeq.datasets.tables import Table, display
from judgeq.errors import DataError
from judgeq.imports.recordings import REPEATED, Judgment, Recording, renumbered
from judgeq.settings.run import DatasetSpec
from judgeq.types import Verdict

Named: TypeAlias = Literal["text", "side"]
"""What an answer's cell names: a text, as its row does, or the side or place where it stood."""

SIDES = (("left", "l", "a", "first"), ("right", "r", "b", "second"))
TIES = frozenset(("tie", "tied", "draw", "equal", "same", "="))


class Columns(NamedTuple):
    """The names of the columns; `best` or `worst` may be None. `ties` are words for a tie beside TIES,
    and the items two (None: best-worst answers, which know no tie). `says` is what the cells of the
    answers name (None: what they can name in all rows)."""

    items: Sequence[str]
    best: str | None
    worst: str | None = None
    judge: str | None = None
    round: str | None = None
    ties: Sequence[str] | None = None
    says: Named | None = None


class _Answer(NamedTuple):
    """A cell of an answer: its word, and the items of its row that it names as a text and as a side."""

    word: str
    text: int | None
    side: int | None


class _Row(NamedTuple):
    """A row that is an answer: its number, the items shown by column, and the best and the worst, as far
    as it has them."""

    number: int
    items: Mapping[str, int]
    answers: Mapping[str | None, _Answer]


def read(
    path: Path, columns: Columns, ids: Sequence[str], texts: Sequence[str] | None
) -> Recording:
    """The answers of a table over the dataset with these ids and texts.

    Raises DataError naming the table, and the rows of what is wrong.
    """
    if tables.format_of(path) is None:
        raise DataError(f"{path} is no table of judgments: {tables.SUFFIXES} are read.")
    items: dict[str, int | None] = {}  # by id or text but for white space; None: of several items
    for row, text in enumerate(texts or ()):
        items[text.strip()] = None if text.strip() in items else row
    items.update((name, row) for row, name in enumerate(ids))
    wanted = [*filter(None, (*columns.items, *columns[1:5]))]
    table = tables.read(path, DatasetSpec(dataset=str(path)), wanted)
    flag = "its flag (judgeq import --help)"
    table = replace(table, columns={column: cells_of(table, column, flag) for column in wanted})
    every = [_row(table, i, columns, items) for i in range(len(table))]
    rows = [row for row in every if row is not None]
    says = columns.says or _says(table, rows)
    judgments = [
        Judgment(
            _round(table, row.number, columns.round),
            tuple(row.items.values()),
            _verdict(table, row, columns, says),
            _judge(table, row.number, columns.judge),
            ordered=columns.best not in columns.items,
        )
        for row in rows
    ]
    if not judgments:
        raise DataError(f"{table.name} holds no answers.")
    notices = []
    if left_out := len(every) - len(rows):
        notices.append(f"rows without an answer were left out: {left_out:,}.")
    if repeated := len(judgments) - len(set(judgments)):
        notices.append(f"{REPEATED.format(repeated)}: each counts.")
    judgments.sort(key=lambda judgment: judgment.round)
    return Recording(renumbered(judgments), tuple(f"{table.name}: {one}" for one in notices))


def _word(cell: Any) -> str:
    """A cell as a word: a whole number without a point, as which tables may hold it; "" for none."""
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    return "" if is_empty(cell) else str(cell)


def _row(table: Table, i: int, columns: Columns, known: Mapping[str, int | None]) -> _Row | None:
    """A row; None of one that is no answer. Raises DataError for one that is wrong."""
    votes = columns.ties is not None
    items: dict[str, int] = {}
    places: dict[str, int] = {}
    for place, column in enumerate(columns.items):
        word = _word(table.columns[column][i])
        if not word and not votes:
            continue
        item = known.get(word, known.get(word.strip()))
        if item is None:
            many = word.strip() in known
            wrong = "the text of several items" if many else "no item's id or text"
            remedy = "Name texts by their ids (--id-column)."
            raise _wrong(table, i, column, f"which is {wrong}", remedy)
        items[column] = item
        words = (str(place + 1), *(SIDES[place] if votes else ()))
        places = {column.casefold(): item} | dict.fromkeys(words, item) | places
    shown = {*items.values()}
    if len(shown) < max(2, len(items)):
        wrong = "one text is shown twice" if len(items) > 1 else "fewer than two texts are shown"
        raise table.error(i, wrong, "Leave such rows out.")
    answers: dict[str | None, _Answer] = {}
    for column in filter(None, (columns.best, columns.worst)):
        if cell := _word(table.columns[column][i]):
            text, word = known.get(cell, known.get(cell.strip())), cell.strip().casefold()
            answers[column] = _Answer(word, text if text in shown else None, places.get(word))
    return _Row(i, items, answers) if answers else None


def _wrong(table: Table, i: int, column: str, wrong: str, remedy: str) -> DataError:
    return table.error(i, f"{column} is {display(table.columns[column][i])}, {wrong}", remedy)


def _says(table: Table, rows: Sequence[_Row]) -> Named:
    """What the answers name, by those that can name only the one, or only the other. Raises DataError
    where that leaves it open."""
    open_at, only = None, set[Named]()
    for row in rows:
        for _, text, side in row.answers.values():
            if text is None or side is None:
                only |= {"text"} if text is not None else {"side"} if side is not None else set()
            elif text != side:
                open_at = row.number if open_at is None else open_at
    if len(only) > 1 or (open_at is not None and not only):
        where = "" if open_at is None else f", {table.place(open_at)}"
        raise DataError(
            f"{table.name}{where}: an answer may name a text or a side: --winner-is text or "
            "--winner-is side says which."
        )
    return "side" if only == {"side"} else "text"


def _round(table: Table, i: int, column: str | None) -> int:
    word = "1" if column is None else _word(table.columns[column][i])
    if not word.isdecimal():
        remedy = "Number the rounds, or leave --round-column out."
        raise _wrong(table, i, str(column), "which is no whole number", remedy)
    return int(word)


def _judge(table: Table, i: int, column: str | None) -> str | None:
    name = None if column is None else _word(table.columns[column][i]).strip()
    if name == "":
        remedy = "Name every judge, or leave --judge-column out."
        raise table.error(i, f"{column} is empty", remedy)
    return name


def _verdict(table: Table, row: _Row, columns: Columns, says: Named) -> Verdict:
    """What a row's answers say. Raises DataError where they can't be read."""
    shown, named = [*row.items.values()], dict[str | None, list[int]]()
    for column, answer in row.answers.items():
        item = answer.side if says == "side" else answer.text
        if item is not None:
            named[column] = [item]
        elif columns.ties is not None and answer.word in {*TIES, *columns.ties}:
            return Verdict.of([shown])
        else:
            remedy = "Name a text by its id or text, or by its place (1, 2, … or its column)."
            tie = "" if columns.ties is None else ", and no word for a tie (--tie names others)"
            wrong = f"which is none of its texts{tie}"
            raise _wrong(table, row.number, str(column), wrong, remedy)
    best, worst = named.get(columns.best, []), named.get(columns.worst, [])
    if best and best == worst:
        wrong = f"{columns.best} and {columns.worst} name the same text"
        raise table.error(row.number, wrong, "Correct the row, or leave it out.")
    others = [item for item in shown if item not in (*best, *worst)]
    return Verdict.of(filter(None, (best, others, worst)), partial=True)
