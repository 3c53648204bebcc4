"""What is shown, as data: results, evaluations, lists and studies become sections, which are rendered
to a terminal here, and elsewhere to HTML (html.py), Markdown (markdown.py) and JSON (json.py).

Names, ids and texts in a section are untrusted: whatever renders them makes them safe. Sentences stand
in the text templates of templates/show/ (`stated`, `line`, `lines_of`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.text import Text

from judgeq.escaping import escaped, excerpt, plain
from judgeq.evaluation.metrics import Measured
from judgeq.text import count, duration, listed, money, percent, rate, several, wrapped

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.figure import Figure

WIDTH = 100
"""Prose is set no wider than so many cells, however wide the terminal is."""
LONGEST = 10_000  # cells of one value
COMFORTABLE = 30
"""Cells of a column that grows for which spare columns are left out."""
GAP = "  "
FOLDER = Path(__file__).parent / "templates" / "show"
FUNCTIONS = (count, duration, excerpt, format, listed, money, percent, plain, rate, several)
"""What templates may call; `cell_text`, too."""

Cell = str | int | float | Measured | None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: numbers stand on the right.

    `show` turns a cell into text (default `cell_text`), of which a terminal shows `at_most` cells. Where
    it is too narrow for the table, columns that are `spare` are left out, the last first, and then the
    text is cut to `least` cells. On a page, `whole` ones stay on one line.
    """

    name: str
    right: bool = False
    whole: bool = False
    at_most: int = LONGEST
    least: int = LONGEST
    spare: bool = False
    grows: bool = False
    """Whether a screen with room for it shows more than `at_most` cells."""
    show: Callable[[Any], str] | None = None

    def text(self, cell: Cell, at_most: int = LONGEST) -> str:
        """The cell as it is shown, on one line of so many cells at most."""
        if isinstance(cell, str):
            return plain(cell, at_most)
        is_unknown = cell is None or (isinstance(cell, float) and math.isnan(cell))
        return cell_text(cell) if self.show is None or is_unknown else self.show(cell)


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
    table, blocks (a caption, and a text to the letter), notes, and warnings, a sentence each.

    Rows hold plain values. `close`: it belongs to the section before it, without a blank line.
    `folded`: a page shows its title only, until it is opened.
    """

    title: str = ""
    facts: Sequence[tuple[str, str]] = ()
    columns: Sequence[Column] = ()
    rows: Sequence[Sequence[Cell]] = ()
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    close: bool = False
    picture: Picture | None = None
    blocks: Sequence[tuple[str, str]] = ()
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Chapter:
    """Sections under a heading; `anchor` is its name in links."""

    anchor: str
    title: str
    sections: Sequence[Section]


def words(*names: str, at_most: int = LONGEST) -> list[Column]:
    """Columns of text."""
    return [Column(name, at_most=at_most) for name in names]


def numbers(*names: str, show: Callable[[Any], str] | None = None) -> list[Column]:
    """Columns of numbers."""
    return [Column(name, right=True, show=show) for name in names]


Field = tuple[Column, str | Callable[[Any], Cell]]
"""A column, and the attribute of a thing, or the function, that gives its cell."""


def table(
    things: Iterable[Any],
    fields: Iterable[Field],
    title: str = "",
    **more: Any,
) -> Section:
    """A section with a row for each thing, without empty columns; `more` are other parts of it."""
    columns, getters = zip(*fields, strict=True)
    get = [attrgetter(one) if isinstance(one, str) else one for one in getters]
    rows = [[of(thing) for of in get] for thing in things]
    used = [at for at in range(len(columns)) if any(row[at] not in (None, "") for row in rows)]
    rows = [[row[at] for at in used] for row in rows]
    return Section(title, columns=[columns[at] for at in used], rows=rows, **more)


def cell_text(cell: Cell) -> str:
    """Whole numbers with commas, others with three decimals, intervals in brackets; "–" for what
    can't be known."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return "–"
    if isinstance(cell, Measured):
        if cell.low is None or cell.high is None:
            return cell_text(cell.value)
        return f"{cell_text(cell.value)} [{cell.low:z.3f}, {cell.high:z.3f}]"
    if isinstance(cell, int):
        return count(cell)
    return cell if isinstance(cell, str) else f"{cell:z.3f}"


def stated(template: str, **values: Any) -> Section:
    """The section that a template states, a line each: `label | value` is a fact, left out if it is
    empty; the labels # and > and ! mark the title, notes and warnings."""
    marked: dict[str, list[str]] = {"#": [], ">": [], "!": []}
    facts = []
    for label, text in lines_of(template, 2, **values):
        if text and label in marked:
            marked[label].append(text)
        elif text:
            facts.append((label, text))
    return Section(" ".join(marked["#"]), facts, notes=marked[">"], warnings=marked["!"])


def lines_of(template: str, cells: int = 1, **values: Any) -> list[list[str]]:
    """The lines of a template with these values, without blank ones, each of so many cells between |.
    No value adds a line, and only the last cell may hold a | of a value."""
    text = _templates().get_template(f"{template}.txt").render(values)
    return [
        [cell.strip() for cell in line.split("|", cells - 1)]
        for line in text.split("\n")
        if line.strip()
    ]


def line(template: str, **values: Any) -> str:
    """The lines of a template on one."""
    return " · ".join(text for (text,) in lines_of(template, **values))


@cache
def _templates() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    def on_one_line(value: Any) -> Any:
        return "" if value is None else str(value).replace("\n", " ")

    environment = Environment(  # noqa: S701  (no HTML: what renders sections escapes)
        loader=FileSystemLoader(FOLDER),
        undefined=StrictUndefined,
        finalize=on_one_line,
        auto_reload=False,
    )
    environment.globals |= {one.__name__: one for one in (*FUNCTIONS, cell_text)}
    return environment


def terminal(
    sections: Iterable[Section], width: int = 1000, *, on_screen: bool = False
) -> Iterator[Text]:
    """Yield the lines for a terminal so wide, from top to bottom. Nothing in a section is markup or can
    act on the terminal. Lines break between words only: what has none, such as a path, may be longer.
    `on_screen`: the width is that of a screen, which columns that grow may fill."""
    prose = min(width, WIDTH)
    for place, section in enumerate(sections):
        if place and not section.close:
            yield Text()
        if section.title:
            yield from _lines(section.title, prose, "bold")
        names = max((cell_len(name) for name, _ in section.facts), default=0)
        for name, value in section.facts:
            room = max(20, prose - names - len(GAP))
            lines = wrapped(plain(value, LONGEST), room)
            if any(cell_len(line) > room for line in lines):  # a path, a command: to be copied
                if name:
                    yield Text(plain(name, LONGEST), "dim")
                yield from (Text(line) for line in wrapped(plain(value, LONGEST), prose))
                continue
            for label, line in zip_longest([plain(name, LONGEST)], lines, fillvalue=""):
                yield Text.assemble((label.ljust(names), "dim"), GAP, line)
        if section.columns:
            yield from _table(section, width, on_screen)
        for caption, text in section.blocks:
            yield from _lines(caption, prose, "dim")
            yield from (Text(escaped(line)) for line in text.splitlines())
        for note in section.notes:
            yield from _lines(note, prose)
        for warning in section.warnings:
            yield from _lines(warning, prose, "yellow")


def _lines(text: str, width: int, style: str = "") -> Iterator[Text]:
    return (Text(line, style) for line in wrapped(escaped(text), width))


def _table(section: Section, width: int, on_screen: bool) -> Iterator[Text]:
    """A table, its columns left out or cut where the terminal is too narrow for it."""
    columns = section.columns
    most = [LONGEST if one.grows and on_screen else one.at_most for one in columns]
    cells = [
        [column.name, *(column.text(row[at], most[at]) for row in section.rows)]
        for at, column in enumerate(columns)
    ]
    needed = [max(map(cell_len, column)) for column in cells]
    widths = _widths(columns, needed, width)
    apart = columns[0].whole and sum(widths.values()) + len(GAP) * (len(widths) - 1) > width
    if apart:  # what is whole has a line of its own, and the other columns are below it
        rest = _widths(columns[1:], needed[1:], width - len(GAP))
        widths = {at + 1: room for at, room in rest.items()}
    for place in range(len(section.rows) + 1):
        if apart:
            yield Text(plain(cells[0][place], LONGEST), "" if place else "dim")
        parts = [""] if apart else []
        for at, room in widths.items():
            text = plain(cells[at][place], room)
            blank = " " * (room - cell_len(text))
            parts.append(f"{blank}{text}" if columns[at].right else f"{text}{blank}")
        yield Text(GAP.join(parts).rstrip(), "" if place else "dim")


def _widths(columns: Sequence[Column], widths: Sequence[int], most: int) -> dict[int, int]:
    """The columns that are shown, and how many cells each has, in a table `most` cells wide."""
    room = {
        at: min(widths[at], max(column.least, cell_len(column.name)))
        for at, column in enumerate(columns)
    }
    spare = [at for at, column in enumerate(columns) if column.spare]
    growing = [at for at, column in enumerate(columns) if column.grows]
    comfort = sum(max(0, min(widths[at], COMFORTABLE) - room[at]) for at in growing)

    def left() -> int:
        return most - sum(room.values()) - len(GAP) * (len(room) - 1)

    while left() < comfort and spare:
        del room[spare.pop()]
    for at in growing:  # before others have more than they need
        room[at] += max(0, min(min(widths[at], COMFORTABLE) - room[at], left()))
    for at, least in room.items():
        room[at] = min(widths[at], least + max(0, left()))
    return room
