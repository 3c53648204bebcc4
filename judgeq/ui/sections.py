"""What is shown, as data: results, evaluations, lists and studies become sections, which are rendered
to a terminal here, and elsewhere to HTML (html.py), Markdown (markdown.py) and JSON (json.py).

Names, ids and texts in a section are untrusted: whatever renders them makes them safe.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from judgeq.escaping import escaped, plain
from judgeq.evaluation.metrics import Measured
from judgeq.json_marks import LEFT_OUT
from judgeq.text import count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 100
LONGEST = 10_000  # cells of one value

Cell = str | int | float | Measured | None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: numbers stand on the right.

    `show` turns a cell into text (default `shown`); on a terminal that is cut after `at_most` cells,
    kept on one line where it is `whole`, and has the colour that `colours` gives it. Where the terminal
    is too narrow for the table, it may be cut to `least` cells; where that doesn't do, columns that are
    `spare` are left out, the most spare first.
    """

    name: str
    right: bool = False
    whole: bool = False
    at_most: int = LONGEST
    least: int = LONGEST
    spare: int = 0
    show: Callable[[Any], str] | None = None
    colours: Mapping[str, str] | None = None

    def text(self, cell: Cell, at_most: int = LONGEST) -> str:
        """The cell as it is shown, on one line of so many cells at most."""
        if isinstance(cell, str):
            return plain(cell, at_most)
        return shown(cell) if self.show is None or cell is None else self.show(cell)


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure: `name` is that of its file, unique among what is shown together, and `alt` says in words
    what it shows. `draw` makes it; a terminal has none."""

    name: str
    alt: str
    draw: Callable[[], Figure]


@dataclass(frozen=True, slots=True)
class Section:
    """A part of what is shown, in this order: a title, facts (a name and what is so named), a figure, a
    table, blocks (a caption, and a text to the letter), notes and warnings, a sentence each.

    Rows hold plain values. `close`: it belongs to the section before it, without a blank line.
    """

    title: str = ""
    facts: Sequence[tuple[str, str]] = ()
    columns: Sequence[Column] = ()
    rows: Sequence[Sequence[Cell]] = ()
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    close: bool = field(default=False, metadata=LEFT_OUT)
    picture: Picture | None = None
    blocks: Sequence[tuple[str, str]] = ()
    JSON_KEYS: ClassVar = {"columns": "names", "picture": "pictured"}

    @property
    def names(self) -> list[str]:
        """Of the columns."""
        return [column.name for column in self.columns]

    @property
    def pictured(self) -> str | None:
        """What the figure shows, in words."""
        return None if self.picture is None else self.picture.alt


@dataclass(frozen=True, slots=True)
class Chapter:
    """Sections under a heading; `anchor` is its name in links."""

    anchor: str
    title: str
    sections: Sequence[Section]


def words(*names: str, whole: bool = False, at_most: int = LONGEST) -> list[Column]:
    """Columns of text."""
    return [Column(name, whole=whole, at_most=at_most) for name in names]


def numbers(
    *names: str, whole: bool = False, show: Callable[[Any], str] | None = None
) -> list[Column]:
    """Columns of numbers."""
    return [Column(name, right=True, whole=whole, show=show) for name in names]


def shown(cell: Cell) -> str:
    """Whole numbers with commas, others with three decimals, intervals in brackets; "–" for what
    can't be known."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return "–"
    if isinstance(cell, Measured):
        if cell.low is None or cell.high is None:
            return shown(cell.value)
        return f"{shown(cell.value)} [{cell.low:z.3f}, {cell.high:z.3f}]"
    if isinstance(cell, int):
        return count(cell)
    return cell if isinstance(cell, str) else f"{cell:z.3f}"


def terminal(sections: Iterable[Section], width: int = 1000) -> Iterator[RenderableType]:
    """For rich, from top to bottom, on a terminal so wide. Nothing in a section is markup or can act on
    the terminal."""
    for place, section in enumerate(sections):
        if place and not section.close:
            yield Text()
        if section.title and not section.columns:
            yield Text(escaped(section.title), "bold")
        if section.facts:
            yield _grid(section.facts)
        if section.columns:
            yield _table(section, width)
        for caption, text in section.blocks:
            yield Text(escaped(caption), "dim")
            yield from (Text(escaped(line)) for line in text.splitlines())
        yield from (Text(escaped(note)) for note in section.notes)
        yield from (Text(escaped(warning), "yellow") for warning in section.warnings)


def _grid(facts: Sequence[tuple[str, str]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    for name, value in facts:
        grid.add_row(Text(plain(name, LONGEST), "dim"), Text(plain(value, LONGEST)))
    return grid


def _table(section: Section, width: int) -> Table:
    """As narrow as it must be to fit into WIDTH columns, if it can, and into those that there are."""
    places, columns = _fitting(section, width)
    rows = [
        [column.text(row[at], column.at_most) for at, column in zip(places, columns, strict=True)]
        for row in section.rows
    ]
    table = Table(box=SIMPLE_HEAD, title_justify="left", title_style="")
    table.title = Text(escaped(section.title)) if section.title else None
    if sum(_widths(columns, rows)) + 3 * len(columns) + 1 > min(WIDTH, width):
        table.padding = (0, 1, 0, 0)
    for column in columns:
        table.add_column(
            Text(column.name),
            justify="right" if column.right else "left",
            no_wrap=column.whole,
            overflow="fold",
        )
    for row in rows:
        table.add_row(
            *(
                Text(text, (column.colours or {}).get(text, ""))
                for column, text in zip(columns, row, strict=True)
            )
        )
    return table


def _fitting(section: Section, width: int) -> tuple[list[int], list[Column]]:
    """The columns that are shown on a terminal so wide, and their places in a row."""
    columns = list(section.columns)
    rows = [
        [column.text(cell, column.at_most) for column, cell in zip(columns, row, strict=True)]
        for row in section.rows
    ]
    widths = _widths(columns, rows)
    kept = list(range(len(columns)))
    while (over := sum(widths[at] + 2 for at in kept) + 2 - width) > 0:
        spare = max(kept, key=lambda at: columns[at].spare)
        if columns[spare].spare and over > sum(
            widths[at] - _least(columns[at], widths[at]) for at in kept
        ):
            kept.remove(spare)
            continue
        for at in reversed(kept):
            cut = min(over, widths[at] - _least(columns[at], widths[at]))
            columns[at] = replace(columns[at], at_most=min(columns[at].at_most, widths[at] - cut))
            over -= cut
        break
    return kept, [columns[at] for at in kept]


def _least(column: Column, width: int) -> int:
    """To how many cells a column so wide may be cut."""
    return min(max(column.least, cell_len(column.name)), width)


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    heads = [column.name for column in columns]
    return [max(map(cell_len, cells)) for cells in zip(heads, *rows, strict=True)]
