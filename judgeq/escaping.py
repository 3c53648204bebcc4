"""Texts of others, made safe: on a terminal's line, for its shell, and in a spreadsheet's cell."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise

from rich.cells import cell_len, get_character_cell_size

ANSI_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\x9d]*(?:\x07|\x1b\\|\x9c)"  # titles, links
    r"|\x1b[ -/]*[0-Z\\^-~]"  # the rest
)
"""Escape sequences of a terminal: colors, titles, movements of the cursor.

None reaches beyond the start of the next, so that the search takes time in proportion to the text.
"""
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co"})
_RUN = ("=", "+", "-", "\t", "\r", "\n", *"＝＋－")
_RUN_BY_EXCEL = (*_RUN, *"@＠")
_MARKS = 2  # combining marks left on a letter
_JOINERS = "\u200c\u200d"
_JOINED = frozenset({"So", "Sk", "Lo", "Lm", "Mn", "Mc"})
"""Categories of what a joiner stands between: pictures, letters of Arabic and Indic scripts, marks."""
_LAST_LATIN = "\u02ff"
WORD_CHARACTERS = 500
"""The longest word of a suggested command; longer ones, which may be a stranger's, are cut."""
PLACEHOLDER = "…"
"""Stands in a command for a value that the user has to fill in."""


def plain(text: str, width: int) -> str:
    """The text on one line of at most `width` cells: safe to print, "…" where it was cut.

    White space is collapsed. ANSI sequences, control and format characters (so also bidi overrides
    and surrogates) are left out, as are variation selectors, over whose width terminals disagree, and
    piles of combining marks. A joiner stays where it joins (👩‍👩‍👧), and is left out elsewhere, as
    between Latin letters. Not escaped: hand it to rich as Text, not as markup.
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
    return "".join(kept).rstrip(f" {_JOINERS}") + "…"


def unwrapped(text: str, characters: int) -> str:
    """Return the text on one line as `plain` does, but with its spaces as they are.

    For lines that may hold a command, whose words keep their spaces. A command is never cut: if it
    doesn't fit, the text ends before it.
    """
    cut = text
    if len(text) > characters:
        end = characters
        for start, stop in command_places(text):
            if start < characters < stop:
                end = start
        cut = f"{text[:end]}…"
    if cut.isascii() and cut.isprintable():
        return cut
    edges = [0, *chain.from_iterable(command_places(cut)), len(cut)]
    # Each part on its own: no sequence that begins before a command reaches into it.
    return "".join(_visible_in_line(cut[start:end]) for start, end in pairwise(edges))


def _visible_in_line(text: str) -> str:
    visible = _visible(ANSI_SEQUENCE.sub("", text))
    return "".join(" " if char.isspace() else char for char in visible)


def excerpt(text: str, characters: int) -> str:
    """The text's first characters on one line, as `plain` makes it, and nothing in place of the rest."""
    return _one_line(text[: 4 * characters + 64])[:characters].rstrip(f" {_JOINERS}")


def multiline(text: str) -> str:
    """The text in full with its line breaks and tabs; what `plain` leaves out is left out."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    lines = ANSI_SEQUENCE.sub("", text).splitlines()
    return "\n".join(_visible(line.replace("\x1f", "")) for line in lines)


def _one_line(text: str) -> str:
    if text.isascii() and text.isprintable():  # the quick way, for most texts
        return " ".join(text.split()) if "  " in text else text.strip()
    return " ".join(_visible(ANSI_SEQUENCE.sub("", text)).split())


def _visible(text: str) -> str:
    kept, marks = [], 0
    for char in text:
        category = unicodedata.category(char)
        marks = marks + 1 if category in ("Mn", "Me") else 0
        if marks > _MARKS or _is_variation_selector(char):
            continue
        if category not in _UNSEEN or char.isspace() or char in _JOINERS:
            kept.append(char)
    return "".join(
        char for at, char in enumerate(kept) if char not in _JOINERS or _is_joining(kept, at)
    )


def _is_variation_selector(char: str) -> bool:
    return "\ufe00" <= char <= "\ufe0f"


def _is_joining(characters: Sequence[str], at: int) -> bool:
    """Return whether the joiner at this place stands between two characters that joiners join."""
    if not 0 < at < len(characters) - 1:
        return False
    neighbors = characters[at - 1], characters[at + 1]
    return all(char > _LAST_LATIN and unicodedata.category(char) in _JOINED for char in neighbors)


def escaped(text: str) -> str:
    """The text in full on one line, with escapes (\\x1b, \\n, \\u200b) for what can't be seen."""
    if text.isprintable():
        return text
    return "".join(
        char
        if char.isprintable() or (char in _JOINERS and _is_joining(text, at))
        else _escape(char)
        for at, char in enumerate(text)
    )


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode()


# Words for a shell

_SHELL_WORD = r"""(?:[^\s`'"\\]|'[^']*'|"[^"]*"|\\.)++"""
_COMMAND_WORDS = rf"judgeq(?: {_SHELL_WORD})++"
_COMMAND = re.compile(rf"(?<!\\)(?=(`(?:[A-Z_]+={_SHELL_WORD} )*+{_COMMAND_WORDS}`))")
"""The place of a command in backticks, whose quoted words may hold spaces and backticks."""
ONLY_COMMAND = re.compile(_COMMAND_WORDS)


def command_places(text: str) -> list[tuple[int, int]]:
    """Return the start and the end of each command in backticks in a text.

    Words before a command may hold a backtick, an apostrophe, or what looks like the start of a command.
    So a command is looked for at each backtick, and places that overlap are made one.
    """
    places: list[tuple[int, int]] = []
    for found in _COMMAND.finditer(text):
        start, end = found.span(1)
        if places and start < places[-1][1]:
            start, last_end = places.pop()
            end = max(end, last_end)
        places.append((start, end))
    return places


def quoted(text: str, characters: int = 300) -> str:
    """Return a value for a sentence that a user may paste into a shell; what is long is cut."""
    return shell_word(text if len(text) <= characters else f"{text[:characters]}…")


def shell_word(text: str) -> str:
    """Return one word for a shell, which reads it to the letter and runs nothing of it.

    What can't be seen is escaped as `escaped` does, and so is what `plain` and `unwrapped` leave out:
    the printed line is what gets pasted. Two spaces in a row are parted by '', which the shell drops: a
    terminal's line may collapse them.
    """
    if text == PLACEHOLDER:
        return text
    cut = text if len(text) <= WORD_CHARACTERS else f"{text[:WORD_CHARACTERS]}…"
    return re.sub(r" (?= )", " ''", shlex.quote(_kept_when_printed(cut)))


def _kept_when_printed(text: str) -> str:
    """Return the text with escapes for all that `_visible` would drop."""
    kept: list[str] = []
    marks = 0
    for at, char in enumerate(text):
        marks = marks + 1 if unicodedata.category(char) in ("Mn", "Me") else 0
        if char in _JOINERS:
            before = kept[-1][-1] if kept else ""
            after = text[at + 1 : at + 2]
            is_kept = not _is_variation_selector(after) and _is_joining(before + char + after, 1)
        else:
            is_kept = char.isprintable() and marks <= _MARKS and not _is_variation_selector(char)
        kept.append(char if is_kept else _escape(char))
    return "".join(kept)


def shell_command(
    name: str,
    positionals: Iterable[str] = (),
    options: Iterable[str] = (),
    variables: Mapping[str, str] | None = None,
) -> str:
    """Return a judgeq command that is safe to paste into a shell, whatever the words hold.

    All messages suggest commands through this function. `name` is the command's own ("annotate add");
    `positionals` and `options` are words as they are, not yet quoted. Options stand after positionals,
    unless one of these begins with "-": then they stand before `--`. `variables` are set for the
    command alone.
    """
    first, then = [*positionals], [*options]
    if any(word.startswith("-") for word in first):
        first, then = [*then, "--"], first
    setting = [f"{variable}={shell_word(value)}" for variable, value in (variables or {}).items()]
    return " ".join([*setting, "judgeq", name, *map(shell_word, (*first, *then))])


def for_spreadsheet(cell: object, *, excel: bool = False) -> object:
    """Return a cell of a CSV file that people open: one that a spreadsheet would run begins with "'".

    Only words are changed, such as names and ids; numbers are ours. A text may well begin with @, which
    Excel alone runs: that is changed only for `excel`.
    """
    begins = _RUN_BY_EXCEL if excel else _RUN
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(begins) else cell
