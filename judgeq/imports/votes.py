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

Tables come in further shapes. A vote's winner may be a column for each outcome (1 where the left text
won, where the right one did, where it was a tie). Several judges may have a column of winners each. Ids
that a program made floats (1.0) are those of whole numbers (1). A row that compares a text with itself
is no answer.
"""

from __future__ import annotations

import re
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

Named: TypeAlias = Literal["text", "side", "index", "left-won"]
"""What an answer's cell names: a text, as its row does; the side or place where it stood; its place
from 0 ("index"); or whether the left one won, 1 or 0 ("left-won")."""

SIDES = (("left", "l", "a", "first"), ("right", "r", "b", "second"))
TIES = frozenset(
    (
        *("tie", "tied", "draw", "equal", "same", "=", "both", "neither", "a=b", "no preference"),
        *("bothbad", "both bad", "tie (bothbad)", "tie(bothbad)", "equally good", "about the same"),
    )
)
_KINDS_OF_TEXT = "text|option|response|answer|assistant|model|output|candidate|completion|item"
_SIDE = re.compile(
    rf"\[*(?:the )?(?:(?:{_KINDS_OF_TEXT})[ _-]?)?(left|right|first|second|a|b|1|2)\]*"
    rf"(?: (?:{_KINDS_OF_TEXT}))?"
    r"(?: (?:is|was) (?:the |much |slightly |significantly |clearly )*(?:better|best|winner|preferred)"
    r"| wins| won)?[.!]?"
)
"""A side in words: "Text1", "model_a", "[[A]]", "A is better", "the second response"."""
_ARROW = re.compile(r"\[*(a|b)(<+|>+)(a|b)\]*")
"""A side as a comparison: "A>B", "[[B>>A]]"."""
_WHOLE = re.compile(r"([+-]?\d+)\.0*")
_FALSE = frozenset(("", "0", "false", "no"))
_TRUE = frozenset(("1", "true", "yes"))


class Columns(NamedTuple):
    """The names of the columns; `best` or `worst` may be None. `ties` are words for a tie beside TIES,
    and the items two (None: best-worst answers, which know no tie). `says` is what the cells of the
    answers name (None: what they can name in all rows). `outcomes` are three columns, or two, in place
    of `best`: 1 where the left text won, where the right one did, where it was a tie. `by_judge` are
    columns of winners in place of `best`, each of a judge that is called as the column."""

    items: Sequence[str]
    best: str | None
    worst: str | None = None
    judge: str | None = None
    round: str | None = None
    ties: Sequence[str] | None = None
    says: Named | None = None
    outcomes: Sequence[str] = ()
    by_judge: Sequence[str] = ()

    @property
    def read(self) -> list[str]:
        """The columns of the table that are read, each once."""
        roles = (self.best, self.worst, self.judge, self.round)
        every = (*self.items, *roles, *self.outcomes, *self.by_judge)
        return [*dict.fromkeys(column for column in every if column is not None)]


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
    items = _items_by_name(ids, texts)
    table = tables.read(path, DatasetSpec(dataset=str(path)), columns.read)
    if len(columns.outcomes) > 1 and (name := ",".join(columns.outcomes)) in table.header:
        columns = columns._replace(best=name, outcomes=())  # one column is called so
        table = tables.read(path, DatasetSpec(dataset=str(path)), columns.read)
    cells = {column: _cells(table, column, columns) for column in columns.read}
    table = replace(table, columns=cells)
    if columns.outcomes:
        table = replace(table, columns={**table.columns, _OUTCOME: _outcomes(table, columns)})
        columns = columns._replace(best=_OUTCOME, says="side")
    judgments = list[Judgment]()
    without_answer = 0
    with_itself = 0
    for judge in columns.by_judge or (None,):
        asked = columns if judge is None else columns._replace(best=judge)
        every = [_row(table, i, asked, items) for i in range(len(table))]
        with_itself = sum(row is None for row in every)
        answered = [row for row in every if row is not None and row.answers]
        without_answer += len(every) - with_itself - len(answered)
        says = columns.says or _says(table, answered)
        judgments += [_judgment(table, row, asked, says, judge) for row in answered]
    if not judgments:
        raise DataError(f"{table.name} holds no answers.")
    notices = []
    if table.empty_rows:
        notices.append(f"rows whose cells are all empty were left out: {table.empty_rows:,}.")
    if without_answer:
        notices.append(f"rows without an answer were left out: {without_answer:,}.")
    if with_itself:
        rows = "1 row that compares" if with_itself == 1 else f"{with_itself:,} rows that compare"
        are = "is" if with_itself == 1 else "are"
        notices.append(f"{rows} a text with itself {are} left out.")
    if repeated := len(judgments) - len(set(judgments)):
        notices.append(f"{REPEATED.format(repeated)}: each counts.")
    judgments.sort(key=lambda judgment: judgment.round)
    return Recording(renumbered(judgments), tuple(f"{table.name}: {one}" for one in notices))


def _items_by_name(ids: Sequence[str], texts: Sequence[str] | None) -> dict[str, int | None]:
    """Return the rows of items by id or text, but for white space; None for a name of several."""
    items: dict[str, int | None] = {}
    for row, text in enumerate(texts or ()):
        items[text.strip()] = None if text.strip() in items else row
    whole: dict[str, int | None] = {}  # ids that are floats, as whole numbers
    for row, name in enumerate(ids):
        if found := _WHOLE.fullmatch(name):
            whole[found[1]] = None if found[1] in whole else row
    items.update(whole)
    items.update((name, row) for row, name in enumerate(ids))
    return items


_NOT_THERE = -1
"""In place of an item's row: no item is called so."""


def _item(word: str, items: Mapping[str, int | None]) -> int | None:
    """Return the row of the item with this id or text; None for several, _NOT_THERE for none."""
    for name in (word, word.strip()):
        if name in items:
            return items[name]
    if found := _WHOLE.fullmatch(word.strip()):  # 1.0, as programs write whole numbers
        return items.get(found[1], _NOT_THERE)
    return _NOT_THERE


_OUTCOME = "the winner"
"""The column that is made of a column for each outcome."""


def _outcomes(table: Table, columns: Columns) -> list[str]:
    """Return the side that won, row by row, from a column for each outcome. Raises DataError for a row
    that names several."""
    words = ("left", "right", "tie")
    sides = list[str]()
    for i in range(len(table)):
        won = list[str]()
        for word, column in zip(words, columns.outcomes, strict=False):
            cell = _word(table.columns[column][i]).strip().casefold()
            if found := _WHOLE.fullmatch(cell):
                cell = found[1]
            if cell in _TRUE:
                won.append(word)
            elif cell not in _FALSE:
                raise _wrong(table, i, column, "which is neither 1 nor 0", "Correct the row.")
        if len(won) > 1:
            problem = f"{' and '.join(won)} are both marked as the outcome"
            raise table.error(i, problem, "Mark one of them.")
        sides.append(won[0] if won else "")
    return sides


def _cells(table: Table, column: str, columns: Columns) -> list[Any]:
    """Return a column's cells. Raises DataError where it is missing, with columns that may be meant."""
    if column in table.columns:
        return cells_of(table, column, "")
    listed = [name for name in table.header if name.casefold().startswith("winner_")]
    if column == columns.best and len(listed) > 1:
        raise DataError(
            f"{table.name} has no column {display(column)}. A column for each outcome is named in the "
            f"order left, right, tie: --winner {','.join(listed[:3])}"
        )
    return cells_of(table, column, "its flag (judgeq import --help)")


def _judgment(
    table: Table, row: _Row, columns: Columns, says: Named, judge: str | None
) -> Judgment:
    """Return what a row says, of the `judge` whose column it is, or who is named in it."""
    return Judgment(
        _round(table, row.number, columns.round),
        tuple(row.items.values()),
        _verdict(table, row, columns, says),
        _judge(table, row.number, columns.judge) if judge is None else judge,
        ordered=columns.best not in columns.items,
    )


def _word(cell: Any) -> str:
    """A cell as a word: a whole number without a point, as which tables may hold it; "" for none."""
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    return "" if is_empty(cell) else str(cell)


def _row(table: Table, i: int, columns: Columns, known: Mapping[str, int | None]) -> _Row | None:
    """A row, without answers where it is none; None where it compares a text with itself. Raises
    DataError for one that is wrong."""
    votes = columns.ties is not None
    items: dict[str, int] = {}
    places: dict[str, int] = {}
    for place, column in enumerate(columns.items):
        word = _word(table.columns[column][i])
        if not word and not votes:
            continue
        item = _item(word, known)
        if item is None or item == _NOT_THERE:
            wrong = "the text of several items" if item is None else "no item's id or text"
            remedy = "Name texts by their ids (--id-column)."
            raise _wrong(table, i, column, f"which is {wrong}", remedy)
        items[column] = item
        words = (str(place + 1), *(SIDES[place] if votes else ()))
        places = {column.casefold(): item} | dict.fromkeys(words, item) | places
    shown = {*items.values()}
    if votes and len(shown) == 1:
        return None
    if len(shown) < max(2, len(items)):
        wrong = "one text is shown twice" if len(items) > 1 else "fewer than two texts are shown"
        raise table.error(i, wrong, "Leave such rows out.")
    answers: dict[str | None, _Answer] = {}
    for column in filter(None, (columns.best, columns.worst)):
        if cell := _word(table.columns[column][i]):
            text, word = _item(cell, known), cell.strip().casefold()
            side = None if columns.says in ("index", "left-won") else places.get(word)
            if side is None and votes:
                side = places.get(_side_of(word, columns.says))
            answers[column] = _Answer(word, text if text in shown else None, side)
    return _Row(i, items, answers)


def _side_of(word: str, says: Named | None) -> str:
    """Return the side that a vote's word means, "" for none: "a is better", "text1", "b>a"; or a number
    that counts from 0, or is 1 where the left text won."""
    found = _WHOLE.fullmatch(word)
    number = found[1] if found else word
    if says == "index":
        return {"0": "left", "1": "right"}.get(number, "")
    if says == "left-won":
        return "left" if number in _TRUE else "right" if number in _FALSE else ""
    if number in ("1", "2"):
        return number
    if arrow := _ARROW.fullmatch(word):
        left, sign, right = arrow.groups()
        if left == right:
            return ""
        return left if sign.startswith(">") else right
    side = _SIDE.fullmatch(" ".join(word.split()))
    return side[1] if side else ""


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
        item = answer.text if says == "text" else answer.side
        if item is not None:
            named[column] = [item]
        elif columns.ties is not None and answer.word in {*TIES, *columns.ties}:
            return Verdict.of([shown])
        else:
            remedy = "Name a text by its id or text, or by its place (1, 2, … or its column)."
            if columns.ties is not None and answer.word in (
                "0",
                "1",
                "0.0",
                "1.0",
                "true",
                "false",
            ):
                remedy = (
                    "Say what 0 and 1 mean: --winner-is left-won (1: the left text won), or "
                    "--winner-is index (0: the left text won)."
                )
            tie = "" if columns.ties is None else ", and no word for a tie (--tie names others)"
            wrong = f"which is none of its texts{tie}"
            raise _wrong(table, row.number, str(column), wrong, remedy)
    best, worst = named.get(columns.best, []), named.get(columns.worst, [])
    if best and best == worst:
        wrong = f"{columns.best} and {columns.worst} name the same text"
        raise table.error(row.number, wrong, "Correct the row, or leave it out.")
    others = [item for item in shown if item not in (*best, *worst)]
    return Verdict.of(filter(None, (best, others, worst)), partial=True)
