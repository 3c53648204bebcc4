"""How the bytes of a table in text are to be read: its encoding, and what separates its columns."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Container
from typing import BinaryIO

from judgeq.errors import DataError

Opener = Callable[[], BinaryIO]
"""Opens the bytes of a table, from their beginning each time."""

# The mark of UTF-32 begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_QUOTED = re.compile(r'"[^"]*"?')


def encoding_of(opened: Opener, named: str | None) -> str:
    """The encoding that was named; else that of the byte order mark; else UTF-8."""
    if named is not None:
        codec = codecs.lookup(named).name
        return "utf-8-sig" if codec == "utf-8" else codec
    with opened() as file:
        start = file.read(4)
    marked = (encoding for mark, encoding in _MARKS if start.startswith(mark))
    return next(marked, "utf-8-sig")


def delimiter_of(header: str, columns: Container[str]) -> str:
    """What separates the columns of this header line: a comma; but where it has none outside
    quotation marks, the one of semicolon and tab that it has. `columns` are those looked for: a
    line that is one of them is no list of several."""
    plain = _QUOTED.sub("", header)
    there = [mark for mark in ";\t" if mark in plain]
    if "," in plain or len(there) != 1 or header.strip("\r\n\ufeff") in columns:
        return ","
    return there[0]


def undecodable(name: str, opened: Opener, encoding: str) -> DataError:
    """The error for a table that isn't in its encoding. Looks again for the line at fault: a decoder
    that streams doesn't know where it stood."""
    if encoding != "utf-8-sig":
        return DataError(f"{name} is not {encoding}. Name its encoding with --encoding.")
    remedy = "Name its encoding with --encoding (such as windows-1252), or save it as UTF-8."
    with opened() as file:
        for number, raw in enumerate(file, 1):
            try:
                raw.decode()
            except UnicodeDecodeError as error:
                where = f", line {number}, byte {error.start + 1} (0x{raw[error.start]:02x})"
                return DataError(f"{name}{where}: not UTF-8. {remedy}")
    return DataError(f"{name} is not UTF-8. {remedy}")
