"""What a provider's JSON says of a batch, checked: its server may be anybody's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from judgeq.errors import ServerFailedError
from judgeq.escaping import plain
from judgeq.judge.masking import Mask

PROBLEM = 300
"""Cells of a terminal that a server's words may take."""
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_CUSTOM_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def object_in(data: bytes, url: str) -> dict[str, Any]:
    """A JSON object. Raises ServerFailedError for anything else, of unknown cost."""
    try:
        fields = orjson.loads(data)
    except orjson.JSONDecodeError:
        fields = None
    if not isinstance(fields, dict):
        raise ServerFailedError(
            f"{url} answered with something other than a JSON object. Is --base-url right?"
        )
    return fields


def identity(value: Any, mask: Mask) -> str:
    """A provider's id, which may stand in an address and in a file's name. Raises ServerFailedError
    for what is none."""
    if isinstance(value, str) and _ID.fullmatch(value) and not mask.holds(value):
        return value
    raise ServerFailedError(
        "the server named a batch, or a file, by an id that can't be one: up to 128 letters, digits, - "
        "and _ are expected. Is --base-url right?"
    )


def custom_id(fields: Mapping[str, Any]) -> str | None:
    """The id of a line as we gave it; None where it can't be one of ours."""
    value = fields.get("custom_id")
    return value if isinstance(value, str) and _CUSTOM_ID.fullmatch(value) else None


def count(fields: Any, name: str) -> int:
    """A number of lines; 0 where it doesn't say."""
    value = fields.get(name) if isinstance(fields, dict) else None
    return value if type(value) is int and 0 <= value < 2**53 else 0


def seconds(value: Any) -> float | None:
    """A moment in seconds since the epoch, given as such or as a date (RFC 3339); None for neither."""
    if isinstance(value, str) and len(value) <= 60:
        try:
            moment = datetime.fromisoformat(value)
            value = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    return float(value) if type(value) in (int, float) and 0 <= value < 2**53 else None


def shown(value: Any, mask: Mask, width: int = PROBLEM) -> str:
    """A server's words on one line: masked, then cut."""
    return plain(mask.text(value), width) if isinstance(value, str) else ""


def encoded(value: Any) -> bytes:
    """A part of a line as JSON; nothing for what nests too deep to be an answer."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return b""
