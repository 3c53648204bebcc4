"""Texts of others, made safe: on a terminal's line, for its shell, in a spreadsheet's cell, and between
the fences of a prompt.

A fence is a line that carries a text's label, none of which a text can make itself: what a reader may
take for one, "<" and "text" in whatever letters and with whatever between them, is changed where it
stands: its "<" becomes "‹". All else is sent to the letter.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from functools import lru_cache
from itertools import pairwise

from rich.cells import cell_len, get_character_cell_size

_ANSI = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # titles, links
    r"|\x1b[ -/]*[0-Z\\^-~]"  # the rest
)
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co"})
_RUN = ("=", "+", "-", "@", "\t", "\r", "\n", *"＝＋－＠")
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


def for_spreadsheet(cell: object) -> object:
    """A cell of a CSV file that people open: one that a spreadsheet would run begins with "'".

    Only words are changed, such as names and ids; numbers are ours.
    """
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_RUN) else cell


# Fences

# What looks like "<" besides it; "‹" is what look-alikes become, and no fence.
_OPENERS = (
    "\u02c2\u1438\u16b2\u2329\u226a\u226e\u227a\u22d6\u276c\u276e\u27e8\u29fc\u2a79\u2aa1\u3008"
    "\ufe64\uff1c\U0001d236"
)
_OPENER = re.compile(f"[<{_OPENERS}]")
# From Unicode's confusables.txt, beyond what decomposes to the letters.
_LOOKS = {
    look: letter
    for letter, looks in {
        "t": "τтᴛꞇŧƭ†⊤⟙ⲧᎢꓔ𖼊𑢼𐊗𐊱𐌕",
        "e": "еєεҽəɛɇꬲ℮⋿ⲉⴹᎬꓰ𑢦𑢮𐊆",
        "x": "хχ×✕✖⨯⤫⤬ҳᕁᕽ᙮᙭╳ⲭⵝᚷꓫꭓ𐌢𑣬𐊐𐊴𐌗𐔧",
    }.items()
    for look in (*looks, *looks.casefold())
}
_WORD = "text"
# Letters and marks that are not seen, which Unicode doesn't count as format characters.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
# The quick way, and all there is to see in ASCII: anything but letters and digits in between.
_FENCE_IN_ASCII = re.compile(r"<(?=(?:[^\w<]|_)*text)", re.IGNORECASE)

_FENCED = re.compile(r"^<text ([A-Z]+)>\n(.*?)\n</text \1>$", re.DOTALL | re.MULTILINE)


def fenced(label: str, text: str) -> str:
    """The text between its fences, with look-alikes inside it changed ("<text" to "‹text")."""
    return f"<text {label}>\n{without_fences(text)}\n</text {label}>"


def texts_in(content: str) -> list[tuple[str, str]]:
    """The labels and texts that `fenced` put into a message, look-alikes as it changed them."""
    return _FENCED.findall(content)


def without_fences(text: str) -> str:
    """The text, with "‹" where something in it opens what looks like a fence."""
    if "<" not in text and (text.isascii() or _OPENER.search(text) is None):
        return text
    text = _FENCE_IN_ASCII.sub("‹", text)
    if text.isascii() and text.isprintable():
        return text
    openers = [match.start() for match in _OPENER.finditer(text)]
    kept, done = [], 0
    for at, after in pairwise((*openers, len(text))):
        if _opens(text, at + 1, after):
            kept += [text[done:at], "‹"]
            done = at + 1
    return "".join((*kept, text[done:])) if kept else text


def _opens(text: str, start: int, end: int) -> bool:
    """Whether the first letters there, as a reader sees them, are those of a fence."""
    read = 0
    for at in range(start, end):
        for char in _seen(text[at]):
            if char == _WORD[read]:
                read += 1
                if read == len(_WORD):
                    return True
            elif read or char.isalnum() or char == "‹":
                return False
    return False


@lru_cache(maxsize=4096)
def _seen(char: str) -> str:
    """What a reader sees in a character: decomposed, small, without marks, look-alikes resolved."""
    seen = []
    for part in unicodedata.normalize("NFKD", char).casefold():
        unseen = unicodedata.category(part) in ("Mn", "Me", "Cf", "Cc") or part in _BLANK
        if not unseen or part.isspace():
            seen.append(_LOOKS.get(part, part))
    return "".join(seen)
