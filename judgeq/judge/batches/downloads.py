"""Files of results: written whole or not at all, and read line by line.

No key reaches the disk, whatever the server puts into a file; a file under its own name is whole.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from judgeq.errors import BrokenResultsError, RunError
from judgeq.files import refuse_linked_folder, refuse_links, replacing, unwritable
from judgeq.judge.http.connection import LARGEST_REPLY
from judgeq.judge.secrets import Mask

LARGEST_FILE = 4 * 1024**3
LARGEST_LINE = LARGEST_REPLY + 65_536

Opened = Callable[[str], AbstractAsyncContextManager[AsyncIterator[bytes]]]


async def fetch(
    folder: Path, name: str, opened: Opened, mask: Mask, *, as_it_is: bool = False
) -> Path:
    """Write the file that `opened` gives the bytes of, by its id, into the folder, unless it is there;
    `as_it_is`: with empty lines for those that are broken.

    Raises BrokenResultsError for one with such lines, and RunError where it can't be written.
    """
    path = folder / f"{name}.jsonl"
    if _is_there(path):
        return path
    with replacing(path) as file:
        async with opened(name) as parts, aclosing(lines(parts, as_it_is=as_it_is)) as whole:
            async for line in whole:
                masked = _masked(line, mask)
                if masked is None and not as_it_is:
                    raise BrokenResultsError(
                        "a file of results came broken: a line of it is no JSON object with a "
                        "custom_id."
                    )
                _write(file.buffer, masked or b"", path)
    return path


def _is_there(path: Path) -> bool:
    """Whether a file is there; where not, its folder is, without what killed processes left of it."""
    refuse_linked_folder(path.parent)
    refuse_links(path)
    if path.exists():
        return True
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in path.parent.glob(f".{path.name}.*"):
            left.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(path.parent, error) from error
    return False


async def lines(
    parts: AsyncIterator[bytes], *, as_it_is: bool = False
) -> AsyncGenerator[bytes, None]:
    """The lines of a stream, without their ends. Raises BrokenResultsError for what is too long; or
    (`as_it_is`) ends there, with a line that is none."""
    pending, size = bytearray(), 0
    async for part in parts:
        size += len(part)
        *ends, rest = part.split(b"\n")
        for end in ends:
            line = bytes(pending) + end
            pending.clear()
            if line.strip():
                yield line
        pending += rest
        if size > LARGEST_FILE or len(pending) > LARGEST_LINE:
            if as_it_is:
                yield b"cut off"
                return
            raise BrokenResultsError("the server's file of results is longer than any can be.")
    if pending.strip():
        yield bytes(pending)


def _write(file: BinaryIO, line: bytes, path: Path) -> None:
    try:
        file.write(line + b"\n")
    except OSError as error:  # before it is taken for one of the connection's
        raise unwritable(path, error) from error


def _masked(line: bytes, mask: Mask) -> bytes | None:
    """A line as it may be kept; None for one that can't be one of results."""
    given = _object(line)
    if given is None or not isinstance(given.get("custom_id"), str):
        return None
    masked = mask.body(line)
    if masked == line:
        return line
    return masked if _object(masked) is not None else b""


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file that `fetch` wrote. Raises RunError for one that it can't have written."""
    refuse_links(path)
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(LARGEST_LINE + 1):
                number += 1
                if not line.strip():
                    continue
                given = _object(line)
                if given is None:
                    raise RunError(
                        f"{path}, line {number}: that is no result of a batch. Remove the file, and "
                        "it is downloaded again."
                    )
                yield given
    except OSError as error:
        raise RunError(f"{path} can't be read: {error.strerror}.") from error
