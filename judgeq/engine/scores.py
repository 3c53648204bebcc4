"""The scores of a run's items: arrays, scores.csv, DataFrames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from judgeq.datasets.dataset import MergedRows
from judgeq.errors import UsageError
from judgeq.escaping import excerpt, for_spreadsheet
from judgeq.files import make_folder, replacing
from judgeq.rating import ESTIMATORS
from judgeq.rating.comparisons import component_sizes
from judgeq.rating.ranks import Intervals, ranks
from judgeq.settings.run import REHEARSAL
from judgeq.types import Bools, Floats, Offsets

if TYPE_CHECKING:
    import pandas

SURE = ("se", "low", "high", "rank_low", "rank_high", "tier")
"""The columns of scores.csv that say how sure the main rating is."""
OPTIONAL = ("settled", "left_after", "gold")
"""The columns that scores.csv has only where an item has a value."""
RATINGS = tuple(dict.fromkeys(one.column for one in ESTIMATORS.values()))
MADE_UP = "made up"
"""What each row of a rehearsal's tables says in the column REHEARSAL."""
FROM_LABELS = "from the gold labels"
"""What each row says where the simulated judge ranked the user's own texts."""
DECIMALS = 4
AT_ONCE = 10_000
"""Rows that are written together: a million's cells would take half a gigabyte."""
MARKS = '",\n\r'
"""What makes a cell of a CSV file one in quotation marks."""
TEXT = 200
"""So many characters of a text stand in scores.csv."""


def mark_columns(mark: str) -> dict[str, str]:
    """Return the column by which tables carry a mark of what is made up, and what rows say there."""
    name = mark.removesuffix(": ")
    return {name: MADE_UP if name == REHEARSAL else FROM_LABELS} if name else {}


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """The ratings of n items; all arrays of shape (n,).

    `ratings` are by the estimators' columns, the main one last: `elo` starts at 1500, `pl` and `bt`
    are the θ of Plackett-Luce and Bradley-Terry; or `direct`, the score of each item judged alone (nan
    for none). `matches` counts the judged questions that the item was in; `wins` the comparisons they
    imply that it won (a tie counts ½); `left_after` is the round after which it left early, or 0;
    `gold` is nan where there is no label. The first `first_new` items are settled ones of earlier runs.
    `component` numbers the groups of items that comparisons
    connect (0: never judged): ratings of different ones are not on one scale. `intervals` say how sure
    the main rating is, with `se`, `low`, `high`, `rank_low`, `rank_high` and `tier` as arrays; None
    where its estimator has no errors. `texts` are the items' texts, where they are shown, and `others`
    the dataset's other columns, where they are kept. `groups` name the group of each item, within which
    alone items are compared, and `group` numbers it from 1; None where all are one. `mark` is that of a
    rehearsal, of which all is made up. `rows` are those of a table whose equal texts are one item each.
    """

    ids: Sequence[str]
    ratings: Mapping[str, Floats]
    matches: Offsets
    wins: Floats
    left_after: Offsets
    gold: Floats
    component: Offsets
    groups: Sequence[str] | None = None
    group: Offsets | None = None
    texts: Sequence[str] | None = None
    intervals: Intervals | None = None
    others: Mapping[str, Sequence[object]] = field(default_factory=dict)
    mark: str = ""
    first_new: int = 0
    rows: MergedRows | None = None

    def __repr__(self) -> str:
        judged = int(self.judged.sum())
        of = f"{self.mark}of {len(self.ids):,} items"
        return f"<Scores {of}, {judged:,} judged: {', '.join(self.ratings)}>"

    @property
    def components(self) -> dict[str, Any]:
        """How many groups of items comparisons connect, and the sizes of the largest ten."""
        sizes = component_sizes(self.component)
        return {"count": len(sizes), "largest": sizes[:10]}

    @property
    def with_texts(self) -> bool:
        """Whether the items' texts are here."""
        return self.texts is not None

    @property
    def left(self) -> Bools:
        """Which items left the run early, shape (n,)."""
        return np.greater(self.left_after, 0)

    @property
    def settled(self) -> Offsets:
        """1 for items that earlier runs settled, else 0, shape (n,)."""
        return np.less(np.arange(len(self.ids)), self.first_new).astype(np.int64)

    @property
    def judged(self) -> Bools:
        """Which items a judge has said something about, shape (n,)."""
        return np.greater(self.matches, 0)

    @property
    def scored(self) -> Bools:
        """Which items were judged and have a main rating, shape (n,)."""
        scored: Bools = self.judged & ~np.isnan(self.main[1])
        return scored

    @property
    def group_count(self) -> int | None:
        """How many groups there are; None without groups."""
        return None if self.group is None else int(self.group.max())

    @property
    def apart(self) -> bool:
        """Whether there are several components, of one group or where there are none."""
        judged = 1 if self.group is None else len(np.unique(self.group[self.judged]))
        return int(self.component.max(initial=0)) > judged

    @property
    def main(self) -> tuple[str, Floats]:
        """The main rating, by which items are ranked, and its name."""
        return list(self.ratings.items())[-1]

    @property
    def se(self) -> Floats:
        """The standard errors of the main rating, shape (n,); nan where there is none."""
        none = np.full(len(self.ids), np.nan)
        return none if self.intervals is None else np.where(self.judged, self.intervals.se, none)

    @property
    def rank(self) -> Offsets:
        """The rank of each item within its component, shape (n,): 1 for most of the feature; ties have
        the lowest of their ranks (1, 2, 2, 4); 0 for an item that was never judged."""
        return ranks(self.main[1], np.where(self.judged, np.maximum(self.component, 1), 0))

    @property
    def numbers(self) -> dict[str, Offsets | Floats]:
        """The columns of scores.csv that are numbers, shape (n,): nan where there is none, and 0 in
        those of integers but `matches`, where it is a number (`cells`)."""
        sure = dict[str, Offsets | Floats]()
        for name in SURE if self.intervals is not None else ():
            values = getattr(self.intervals, name)
            is_float = values.dtype.kind == "f"
            sure[name] = np.where(self.judged, values, np.nan) if is_float else values
        counts = [
            "settled",
            "matches",
            "wins",
            "left_after",
            "gold",
            *(["component"] if self.apart else []),
        ]
        others = {name: getattr(self, name) for name in counts}
        return {"rank": self.rank, **self.ratings, **sure, **others}

    @property
    def marked(self) -> dict[str, str]:
        """The column by which tables say what is made up, and what each row says there; {} of a real
        run."""
        return mark_columns(self.mark)

    @property
    def table(self) -> dict[str, Any]:
        """The columns of scores.csv by name, with whole texts: strings, arrays of floats, and integers
        as `cells`. In a rehearsal the first one says what it is."""
        marked = {name: [value] * len(self.ids) for name, value in self.marked.items()}
        numbers = {name: cells(name, values) for name, values in self.numbers.items()}
        texts = {} if self.texts is None else {"text": [*self.texts]}
        groups = {} if self.groups is None else {"group": [*self.groups]}
        return {**marked, "id": [*self.ids], **groups, **numbers, **texts}

    @property
    def data_columns(self) -> dict[str, Sequence[object]]:
        """The dataset's other columns that are kept; one that is called as a column of scores.csv gets
        the prefix data_."""
        if not self.others:
            return {}
        reserved = {*self.table, *RATINGS, *OPTIONAL}
        return {
            f"data_{name}" if name in reserved else name: column
            for name, column in self.others.items()
        }

    def records(self, rows: Iterable[int]) -> list[dict[str, Any]]:
        """These items with the columns of scores.csv, and their whole texts where these are shown."""
        table = self.table
        return [{name: column[row] for name, column in table.items()} for row in rows]

    def by_row(self) -> Scores:
        """Return the scores of the rows of the table: each has the score of its text, and its own id,
        gold and other columns. The same scores where no texts were merged."""
        if self.rows is None:
            return self
        item = self.rows.item
        rows = item.tolist()
        intervals = self.intervals
        if intervals is not None:
            arrays = {name: getattr(intervals, name)[item] for name in SURE}
            intervals = replace(intervals, **arrays)
        return RowScores(
            ids=self.rows.ids,
            ratings={name: values[item] for name, values in self.ratings.items()},
            matches=self.matches[item],
            wins=self.wins[item],
            left_after=self.left_after[item],
            gold=self.gold[item] if self.rows.gold is None else self.rows.gold,
            component=self.component[item],
            groups=None if self.groups is None else [self.groups[row] for row in rows],
            group=None if self.group is None else self.group[item],
            texts=None if self.texts is None else [self.texts[row] for row in rows],
            intervals=intervals,
            others=self.rows.columns if self.others else {},
            mark=self.mark,
            item_rank=self.rank[item],
            item_settled=self.settled[item],
        )

    def to_pandas(self) -> pandas.DataFrame:
        """The columns of scores.csv as a DataFrame of pandas: ids and whole texts to the letter, numbers
        to the bit, as float64 with nan and Int64 with NA, and the dataset's columns that are kept.
        Raises UsageError without pandas."""
        try:
            import pandas as pd
        except ImportError as error:
            raise UsageError("to_pandas needs pandas: pip install pandas.") from error
        scores = self.by_row()
        columns, integers = scores.table, scores.numbers
        for name in [name for name, values in integers.items() if values.dtype.kind != "f"]:
            columns[name] = pd.array(columns[name], dtype="Int64")
        return pd.DataFrame({**columns, **scores.data_columns})


@dataclass(frozen=True, slots=True, eq=False)
class RowScores(Scores):
    """The scores of the rows of a table: ranks are those of the items, which a row may share."""

    item_rank: Offsets = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    item_settled: Offsets = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def rank(self) -> Offsets:
        """The rank of the item of each row."""
        return self.item_rank

    @property
    def settled(self) -> Offsets:
        """1 for rows of items that earlier runs settled, else 0."""
        return self.item_settled


def cells(name: str, column: Offsets | Floats) -> Any:
    """A column of `Scores.numbers`: floats as they are, integers with None for the 0 of a rank, a tier,
    a round or a component that isn't one."""
    if column.dtype.kind == "f":
        return column
    numbers = column.tolist()
    return numbers if name == "matches" else [number or None for number in numbers]


def write_scores(scores: Scores, path: Path) -> None:
    """scores.csv, whole or not at all, for people: the columns of `Scores.table` but those of OPTIONAL
    that are empty throughout, and the dataset's own. Each row of the table that was judged has one, also
    where equal texts are one item.

    Empty cells mean that there is no value. Numbers have DECIMALS; ids are to the letter, and texts such
    that a spreadsheet runs none.
    """
    scores = scores.by_row()
    texts = {} if scores.texts is None else {"text": scores.texts}
    groups = {} if scores.groups is None else {"group": scores.groups}
    marked = scores.marked
    others, numbers = scores.data_columns, scores.numbers
    for name in OPTIONAL:
        if _empty(name, numbers[name]).all():
            del numbers[name]
    make_folder(path.parent)
    with replacing(path) as file:
        header = _quoted([*marked, "id", *groups, *numbers, *texts]), _words(others)
        file.write(",".join(chain(*header)) + "\n")
        for begin in range(0, len(scores.ids), AT_ONCE):
            rows = slice(begin, begin + AT_ONCE)
            ids = scores.ids[rows]
            words = [
                *([excerpt(text, TEXT) for text in of[rows]] for of in texts.values()),
                *(column[rows] for column in others.values()),
            ]
            columns = [
                *([value] * len(ids) for value in marked.values()),
                _quoted(ids),
                *(_words(column[rows]) for column in groups.values()),
                *(_written(name, column[rows]) for name, column in numbers.items()),
                *map(_words, words),
            ]
            file.writelines(f"{','.join(row)}\n" for row in zip(*columns, strict=True))


def _empty(name: str, values: Offsets | Floats) -> Bools:
    """Which cells of a column of `Scores.numbers` have no value, as in `cells`, shape (n,)."""
    if values.dtype.kind == "f":
        return np.isnan(values)
    return np.equal(values, 0) & (name != "matches")


def _written(name: str, values: Offsets | Floats) -> list[str]:
    """A column's numbers, as `cells`, with DECIMALS at most; "" for none."""
    rounded = np.ascontiguousarray(np.round(values, DECIMALS) + 0)  # no -0
    cells = orjson.dumps(rounded, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].decode().split(",")
    for row in np.flatnonzero(_empty(name, values)).tolist():
        cells[row] = ""
    return cells


def _words(values: Iterable[object]) -> Sequence[str]:
    """Cells of the dataset's, None for no value, such that a spreadsheet doesn't run them."""
    words = (
        value if isinstance(value, int | float) else "" if value is None else str(value)
        for value in values
    )
    return _quoted([str(for_spreadsheet(word)) for word in words])


def _quoted(cells: Sequence[str]) -> Sequence[str]:
    """Texts as cells of a CSV file, as the module csv writes them, which takes ten times as long."""
    joined = "".join(cells)
    if not any(mark in joined for mark in MARKS):
        return cells
    return [
        f'"{cell.replace(chr(34), chr(34) * 2)}"' if any(map(cell.__contains__, MARKS)) else cell
        for cell in cells
    ]
