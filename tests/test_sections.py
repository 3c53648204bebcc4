"""One section, rendered to a terminal."""

from __future__ import annotations

import io
import math

from rich.console import Console

from judgeq.evaluation.metrics import Measured
from judgeq.ui.sections import Column, Section, numbers, terminal, words

SECTION = Section(
    "A [bold]title[/]",
    columns=[*words("name", at_most=12), *numbers("ρ", "n")],
    rows=[
        ("[red]x\x1b[31m | *y* <b>\nz", Measured(0.5, 0.25, 0.75), 12_345),
        ("=1+1", math.nan, None),
    ],
    notes=["the \x1b[2J end"],
    warnings=["partial"],
)


def printed(*sections: Section, width: int = 200) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width)
    for part in terminal(sections):
        console.print(part, markup=False)
    return file.getvalue()


def test_on_a_terminal_nothing_is_markup_or_acts() -> None:
    text = printed(SECTION)
    assert "A [bold]title[/]" in text
    assert "[red]x | *y…" in text
    assert "0.500 [0.250, 0.750]" in text
    assert "12,345" in text
    assert text.count("–") == 2
    assert "\x1b[31m" not in text
    assert "\x1b[2J" not in text


def test_lines_break_between_words_and_are_not_padded() -> None:
    words_of = "to be or not to be that is the question whether " * 5 + "end"
    section = Section(
        words_of,
        [("a fact", words_of)],
        words("short", "long"),
        [("x", words_of), ("y" * 30, "z")],
        notes=[words_of, "/a/path/without/a/blank/is/longer/than/the/terminal"],
        warnings=[words_of],
    )
    lines = list(map(str, terminal([section], 40)))
    assert all(line == line.rstrip() for line in lines)
    assert [line for line in lines if len(line) > 40] == [str(section.notes[1])]
    known = {*words_of.split(), "a", "fact", "short", "long", "x", "y" * 30, "z", section.notes[1]}
    assert {word for line in lines for word in line.split()} == known
    wide = list(map(str, terminal([section], 300)))
    assert max(map(len, wide)) > 200  # a table takes the room that there is
    assert max(len(line) for line in wide if line.startswith("to be")) <= 100


def test_sections_are_apart_unless_they_belong_together() -> None:
    first = Section("first", [("a", "1")])
    lines = printed(first, Section(notes=["close"], close=True), Section("next")).splitlines()
    assert [line.removesuffix("1").strip() for line in lines] == ["first", "a", "close", "", "next"]


def test_a_column_says_how_its_cells_are_shown() -> None:
    states = Column("state", colours={"ok": "green"})
    (price,) = numbers("price", show=lambda value: f"{value:.1f} $")
    text = printed(Section(columns=[states, price], rows=[("ok", 2.0), ("failed", None)]))
    assert "2.0 $" in text
    assert "–" in text
