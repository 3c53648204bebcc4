"""Texts between fence lines that carry their labels, none of which a text can make itself.

What a reader may take for a fence, "<" and "text" in whatever letters and with whatever between
them, is changed where it stands: its "<" becomes "‹". All else is sent to the letter.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from itertools import pairwise

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
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
# The quick way, and all there is to see in ASCII: anything but letters and digits in between.
_PLAIN = re.compile(r"<(?=(?:[^\w<]|_)*text)", re.IGNORECASE)

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
    text = _PLAIN.sub("‹", text)
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
        unseen = unicodedata.category(part) in ("Mn", "Me", "Cf", "Cc") or part in _UNSEEN
        if not unseen or part.isspace():
            seen.append(_LOOKS.get(part, part))
    return "".join(seen)
