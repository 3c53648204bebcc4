"""Sections as Markdown: GitHub's, with its tables; figures are files beside it.

What is shown is escaped, so that no name, id or text becomes a heading, a link, a picture or HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from judgeq.escaping import escaped, multiline, plain
from judgeq.ui.sections import Chapter, Section

_ACTIVE = re.compile(r"([\\`*_\[\]<>|~&$@])|:(?=//)|(?<=www)\.", re.IGNORECASE)
_AT_START = re.compile(r"^(\d*)([.)#=+-])")
LONGEST = 10_000


def document(title: str, chapters: Sequence[Chapter], pictures: str) -> str:
    """Chapters as one document. `pictures` begins the path of each figure's file, which ends in its
    name and .png."""
    parts = [f"# {text(title)}"]
    for chapter in chapters:
        parts.append(f"## {text(chapter.title)}")
        parts += _sections(chapter.sections, pictures)
    return "\n\n".join(parts) + "\n"


def _sections(sections: Iterable[Section], pictures: str) -> Iterator[str]:
    for section in sections:
        if section.title:
            yield f"### {text(section.title)}"
        if section.facts:
            yield "\n".join(
                f"- **{text(name)}**: {text(value)}" if name else f"  {text(value)}"
                for name, value in section.facts
            )
        if section.picture is not None:
            path = f"{pictures}{section.picture.name}.png"
            yield f"![{text(section.picture.alt)}]({path.replace(' ', '%20')})"
        if section.columns:
            yield _table(section)
        for caption, block in section.blocks:
            yield from (text(caption), _fenced(multiline(block)))
        yield from (text(note) for note in section.notes)
        yield from (f"> **{text(warning)}**" for warning in section.warnings)


def _table(section: Section) -> str:
    heads = [text(column.name) for column in section.columns]
    rules = ["---:" if column.right else "---" for column in section.columns]
    rows = [
        [
            text(column.text(cell, column.at_most))
            for column, cell in zip(section.columns, row, strict=True)
        ]
        for row in section.rows
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rules, *rows))


def text(words: str) -> str:
    """Words on one line, that Markdown shows as they are."""
    line = _ACTIVE.sub(r"\\\g<0>", plain(escaped(words), LONGEST))
    return _AT_START.sub(r"\1\\\2", line)


def _fenced(block: str) -> str:
    """Text to the letter, between a fence that is longer than any in it."""
    longest = max(map(len, re.findall(r"`{3,}", block)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}text\n{block}\n{fence}"
