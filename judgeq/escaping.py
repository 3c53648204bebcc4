"""Texts of others, made safe: on a terminal's line, for its shell, and in a spreadsheet's cell."""

from __future__ import annotations

import re
import shlex
import unicodedata

from rich.cells import cell_len, get_character_cell_size

_ANSI = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # titles, links
    r"|\x1b[ -/]*[0-Z\\^-~]"  # the rest
)
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co"})
_RUN = ("=", "+", "-", "\t", "\r", "\n", *"＝＋－")
_RUN_BY_EXCEL = (*_RUN, *"@＠")
_MARKS = 2  # combining marks left on a letter


def plain(text: str, width: int) -> str:
    """The text on one line of at most `width` cells: safe to print, "…" where it was cut.

    White space is collapsed. ANSI sequences, control and format characters (so also bidi overrides,
    joiners and surrogates) are left out, as are variation selectors, over whose width terminals
    disagree, and piles of combining marks. Not escaped: hand it to rich as Text, not as markup.
    """
    limit = 4 * width + 64  # a text may be megabytes long; its start is enough
    piece = _one_line(text[:limit])
    if len(text) <= limit and cell_len(piece) <= width:
        return piece
    kept, used = [], 0
    for char in piece:
        used += get_character_cell_size(char)
        if used > width - 1:
            break
        kept.append(char)
    return "".join(kept).rstrip() + "…"


def excerpt(text: str, characters: int) -> str:
    """The text's first characters on one line, as `plain` makes it, and nothing in place of the rest."""
    return _one_line(text[: 4 * characters + 64])[:characters].rstrip()


def multiline(text: str) -> str:
    """The text in full with its line breaks and tabs; what `plain` leaves out is left out."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    lines = _ANSI.sub("", text).splitlines()
    return "\n".join(_visible(line.replace("\x1f", "")) for line in lines)


def _one_line(text: str) -> str:
    if text.isascii() and text.isprintable():  # the quick way, for most texts
        return " ".join(text.split()) if "  " in text else text.strip()
    return " ".join(_visible(_ANSI.sub("", text)).split())


def _visible(text: str) -> str:
    kept, marks = [], 0
    for char in text:
        category = unicodedata.category(char)
        marks = marks + 1 if category in ("Mn", "Me") else 0
        if marks > _MARKS or "\ufe00" <= char <= "\ufe0f":
            continue
        if category not in _UNSEEN or char.isspace():
            kept.append(char)
    return "".join(kept)


def escaped(text: str) -> str:
    """The text in full on one line, with escapes (\\x1b, \\n, \\u200b) for what can't be seen."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def quoted(text: str, characters: int = 300) -> str:
    """A value for a terminal and its shell: what can't be seen is escaped, what is long is cut."""
    text = text if len(text) <= characters else text[:characters] + "…"
    return shlex.quote(text) if text.isprintable() else ascii(text)


def for_spreadsheet(cell: object, *, excel: bool = False) -> object:
    """Return a cell of a CSV file that people open: one that a spreadsheet would run begins with "'".

    Only words are changed, such as names and ids; numbers are ours. A text may well begin with @, which
    Excel alone runs: that is changed only for `excel`.
    """
    begins = _RUN_BY_EXCEL if excel else _RUN
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(begins) else cell
