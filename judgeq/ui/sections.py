"""What is shown, as data: results, evaluations, lists and studies become sections, which are rendered
to a terminal here, and elsewhere to HTML (html.py), Markdown (markdown.py) and JSON (json.py).

Names, ids and texts in a section are untrusted: whatever renders them makes them safe. Sentences stand
in the text templates of templates/show/ (`stated`, `line`, `lines_of`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rich.cells import cell_len
from rich.text import Text

from judgeq.escaping import escaped, excerpt, plain
from judgeq.evaluation.metrics import Measured
from judgeq.text import LEFT_OUT, count, duration, listed, money, percent, rate, several, wrapped

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.figure import Figure

WIDTH = 100
"""Prose is set no wider than so many cells, however wide the terminal is."""
LONGEST = 10_000  # cells of one value
GAP = "  "
FOLDER = Path(__file__).parent / "templates" / "show"
FUNCTIONS = (count, duration, excerpt, format, listed, money, percent, plain, rate, several)
"""What templates may call; `shown`, too."""

Cell = str | int | float | Measured | None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: numbers stand on the right.

    `show` turns a cell into text (default `shown`); on a terminal that is cut after `at_most` cells,
    kept on one line where it is `whole`, and has the colour that `colours` gives it. Where the terminal
    is too narrow for the table, it may be cut to `least` cells; if that isn't enough, columns that are
    `spare` are left out, the most spare first, and the text of others is wrapped between words. On a
    page, measured cells are drawn on an `axis` from the one value to the other.
    """

    name: str
    right: bool = False
    whole: bool = False
    at_most: int = LONGEST
    least: int = LONGEST
    spare: int = 0
    show: Callable[[Any], str] | None = None
    colours: Mapping[str, str] | None = None
    axis: tuple[float, float] | None = None

    def text(self, cell: Cell, at_most: int = LONGEST) -> str:
        """The cell as it is shown, on one line of so many cells at most."""
        if isinstance(cell, str):
            return plain(cell, at_most)
        return cell_text(cell) if self.show is None or cell is None else self.show(cell)


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
    table, blocks (a caption, and a text to the letter), notes, warnings, and what is `good`, a sentence
    each.

    Rows hold plain values. `close`: it belongs to the section before it, without a blank line.
    `folded`: a page shows its title only, until it is opened.
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
    good: Sequence[str] = ()
    folded: bool = field(default=False, metadata=LEFT_OUT)
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


def terminal(sections: Iterable[Section], width: int = 1000) -> Iterator[Text]:
    """The lines for a terminal so wide, from top to bottom. Nothing in a section is markup or can act on
    the terminal. Lines break between words only: what has none, such as a path, may be longer."""
    prose = min(width, WIDTH)
    for place, section in enumerate(sections):
        if place and not section.close:
            yield Text()
        if section.title:
            yield from _lines(section.title, prose, "bold")
        names = max((cell_len(name) for name, _ in section.facts), default=0)
        for name, value in section.facts:
            lines = wrapped(plain(value, LONGEST), max(20, prose - names - len(GAP)))
            for label, line in zip_longest([plain(name, LONGEST)], lines, fillvalue=""):
                yield Text.assemble((label.ljust(names), "dim"), GAP, line)
        if section.columns:
            yield from _table(section, width)
        for caption, text in section.blocks:
            yield from _lines(caption, prose, "dim")
            yield from (Text(escaped(line)) for line in text.splitlines())
        for note in section.notes:
            yield from _lines(note, prose)
        for warning in section.warnings:
            yield from _lines(warning, prose, "yellow")
        for line in section.good:
            yield from _lines(line, prose, "green")


def _lines(text: str, width: int, style: str = "") -> Iterator[Text]:
    return (Text(line, style) for line in wrapped(escaped(text), width))


@dataclass(slots=True)
class _Part:
    """A column on its way to the terminal, with its cells as text, the head first."""

    column: Column
    cells: list[str]
    width: int

    @property
    def cut(self) -> int:
        """How many of its cells may be cut off."""
        least = max(self.column.least, cell_len(self.column.name))
        return max(0, self.width - least)

    @property
    def wrap(self) -> int:
        """By how many cells it is narrower where its text is wrapped; 0 where it isn't."""
        if self.column.whole or self.column.right:
            return 0
        return self.width - max(cell_len(word) for cell in self.cells for word in cell.split(" "))


def _table(section: Section, width: int) -> Iterator[Text]:
    """A table, its columns cut, left out or wrapped where the terminal is too narrow for it."""
    parts = _fitted(section, width)
    for place, row in enumerate(zip(*(part.cells for part in parts), strict=True)):
        cells = [wrapped(cell, part.width) for cell, part in zip(row, parts, strict=True)]
        for line in zip_longest(*cells, fillvalue=""):
            text = Text()
            for part, piece in zip(parts, line, strict=True):
                blank = " " * (part.width - cell_len(piece))
                style = (part.column.colours or {}).get(piece, "") if place else "dim"
                padded = f"{blank}{piece}" if part.column.right else f"{piece}{blank}"
                text.append(padded, style).append(GAP)
            text.rstrip()
            yield text


def _fitted(section: Section, width: int) -> list[_Part]:
    """The columns that are shown on a terminal so wide."""
    parts = []
    for at, column in enumerate(section.columns):
        cells = [column.name, *(column.text(row[at], column.at_most) for row in section.rows)]
        parts.append(_Part(column, cells, max(map(cell_len, cells))))

    def over() -> int:
        return sum(part.width + len(GAP) for part in parts) - len(GAP) - width

    while over() > sum(part.cut for part in parts):
        spare = max(parts, key=lambda part: part.column.spare)
        if not spare.column.spare:
            break
        parts.remove(spare)
    for part in reversed(parts):
        cut = min(part.cut, max(0, over()))
        if cut:
            part.width -= cut
            part.cells = [plain(cell, part.width) for cell in part.cells]
    while over() > 0 and (widest := max(parts, key=lambda part: part.wrap)).wrap > 0:
        widest.width -= 1
    return parts
