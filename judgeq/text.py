"""Numbers in words: counts, money, time; and words in lines."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.cells import cell_len

from judgeq.escaping import ONLY_COMMAND, command_places

LINE = 120
"""Cells of a line in a log, at most."""


def count(n: int) -> str:
    """1234567 → "1,234,567"."""
    return f"{n:,}"


def several(n: int, one: str, more: str = "") -> str:
    """(1, "call") → "1 call", (1200, "retry", "retries") → "1,200 retries"."""
    return f"{count(n)} {one if n == 1 else more or one + 's'}"


def listed(names: Sequence[str]) -> str:
    """Names in a sentence: "a, b and c"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def rate(x: float) -> str:
    """23.14 → "23.1", 5012.3 → "5,012"."""
    return f"{x:,.1f}" if x < 100 else f"{x:,.0f}"


def percent(done: int, total: int) -> int:
    """Whole percents: 100 only where all is done."""
    return math.floor(100 * done / max(total, 1))


def money(x: float, digits: int = 3) -> str:
    """Dollars: 12.345 → "$12.35", 0.012345 → "$0.0123", with `digits` that count under a dollar."""
    if x >= 1 or x <= 0:
        return f"${x:,.2f}" if x else "$0"
    if x < 1e-6:
        return "< $0.000001"
    decimals = max(2, digits - 1 - math.floor(math.log10(x)))
    whole, _, cents = f"{x:.{decimals}f}".partition(".")
    return f"${whole}.{cents.rstrip('0').ljust(2, '0')}"


def duration(seconds: float) -> str:
    """12.3 → "12 s", 200 → "3 min 20 s", 1500 → "25 min", 3900 → "1 h 05 min", 9e4 → "1 d 01 h"."""
    total = max(0, round(seconds))
    minutes, hours = total // 60, total // 3600
    if minutes < 1:
        return f"{total} s"
    if minutes < 10:
        return f"{minutes} min {total % 60:02} s"
    if hours < 1:
        return f"{minutes} min"
    if hours < 24:
        return f"{hours} h {minutes % 60:02} min"
    return f"{hours // 24} d {hours % 24:02} h"


def local_time(at: float, form: str = "%Y-%m-%d %H:%M") -> str:
    """Seconds since the epoch → "2026-11-24 16:05", in local time."""
    return datetime.fromtimestamp(at, UTC).astimezone().strftime(form)


def log_lines(text: str, width: int = LINE) -> str:
    """A line of a log; if it is longer than `width`, the lines that continue it are indented."""
    return "\n    ".join(wrapped(text, width - 4))


_UNBROKEN = re.compile(r"(?<!\w)`(?! )[^`]+(?<! )`|[^\s`]+ to [^\s`]*\d[^\s`]*|[^ `]+|`| ")
"""What stays on one line beside a command: words in backticks, a range, a word."""


def _parts(words: str) -> Iterator[str]:
    """Yield the parts of a text between which a line may be broken."""
    if ONLY_COMMAND.fullmatch(words):
        yield words
        return
    part = ""
    for piece in _pieces(words):
        if piece == " ":
            yield part
            part = ""
        else:
            part += piece
    yield part


def _pieces(words: str) -> Iterator[str]:
    """Yield the commands of a text, and what else stays on one line between them."""
    end = 0
    for start, command_end in [*command_places(words), (len(words), len(words))]:
        for found in _UNBROKEN.finditer(words, end, start):
            yield found[0]
        yield words[start:command_end]
        end = command_end


def wrapped(text: str, width: int) -> list[str]:
    """Return the text in lines of at most so many cells, broken between words.

    A longer word and a range of numbers stay whole, and so does a command: pasted in parts, each of its
    lines would be run.
    """
    words = text.lstrip(" ")
    indent = " " * (len(text) - len(words))
    lines = [indent]
    for word in _parts(words):
        longer = f"{lines[-1]} {word}" if lines[-1] != indent else f"{indent}{word}"
        if lines[-1] != indent and cell_len(longer) > width:
            lines.append(f"{indent}{word}")
        else:
            lines[-1] = longer
    return lines


# How fields of a result stand in its JSON (ui/dataclass_json.py)

LEFT_OUT: Mapping[Any, Any] = {"json": "left out"}
"""The metadata of a field that is no part of the JSON."""
INLINE: Mapping[Any, Any] = {"json": "inline"}
"""The metadata of a field whose own keys stand there in place of its name."""
