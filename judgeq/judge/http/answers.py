"""What is read of a server's answer, which may be anybody's: fields of its JSON, and its headers
(how long to wait, limits, what it cost, its id)."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any

import orjson
from multidict import CIMultiDict

from judgeq.errors import ServerFailedError
from judgeq.judge.backend import MOST_OF_A_NAME
from judgeq.judge.limiter import RateHeaders
from judgeq.types import Fields, Headers

LONGEST = 366 * 86_400.0
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_IDS = ("x-request-id", "apim-request-id", "request-id", "x-ms-request-id", "cf-ray")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
# OpenAI's names, which Azure, Groq and LiteLLM use (which says whose limit it is); Cerebras' and
# Mistral's; Kong's; Anthropic's, which limits input and output apart
# (platform.claude.com/docs/en/api/rate-limits).
_RATE = re.compile(
    r"x-ratelimit-((api_key|(end_)?user|team(_member)?|organization|project"
    r"|model_per_(key|team|project))-)?"
    r"(limit|remaining)-((requests|tokens)(-minute)?|(req-)?minute)"
    r"|anthropic-ratelimit-(requests|(input-)?tokens)-(limit|remaining)"
)


# Fields of its JSON


def object_in(data: bytes) -> Fields | None:
    """A JSON object; None for anything else."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def object_from(data: bytes, url: str) -> Fields:
    """A JSON object. Raises ServerFailedError for anything else, of unknown cost."""
    fields = object_in(data)
    if fields is None:
        raise ServerFailedError(
            f"{url} answered with something other than a JSON object: "
            f"{data[:100].decode(errors='replace')!r}. Is --base-url right?"
        )
    return fields


def fields_in(value: Any) -> Fields:
    """A JSON object's fields; none for anything else."""
    return value if isinstance(value, dict) else {}


def objects_in(value: Any) -> list[Fields]:
    """The objects in a list; none for anything else."""
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def count_in(fields: Any, name: str) -> int | None:
    """A number of something; None where it doesn't say."""
    value = fields_in(fields).get(name)
    return value if type(value) is int and 0 <= value < 2**53 else None


def name_in(fields: Fields, name: str) -> str | None:
    """The beginning of a name; None where it doesn't say."""
    value = fields.get(name)
    return value[:MOST_OF_A_NAME] or None if isinstance(value, str) else None


def text_in(content: Any) -> str:
    """A message's content: a string, or parts of which some are text."""
    if isinstance(content, str):
        return content
    parts = [part.get("text") for part in objects_in(content)]
    return "".join(part for part in parts if isinstance(part, str))


# Its headers


def retry_after(headers: Headers, now: float) -> float | None:
    """Seconds that the server asks to wait, 0 to LONGEST; None where it doesn't say.

    `retry-after-ms`, else `retry-after` as seconds or as a date (RFC 9110, 10.2.3); else the same of
    the server behind a LiteLLM proxy. `now` is seconds since the epoch.
    """
    headers = CIMultiDict(headers)
    if headers.get("rate_limit_type") == "max_parallel_requests":
        return None  # LiteLLM names its window, which a limit of calls in flight doesn't have
    for prefix in ("", "llm_provider-"):
        text = headers.get(f"{prefix}retry-after", "")
        seconds, milliseconds = duration(text), _number(headers.get(f"{prefix}retry-after-ms"))
        if milliseconds is not None:
            seconds = milliseconds / 1000
        elif seconds is None and (at := moment(text)) is not None:
            seconds = max(0.0, at - now)
        if seconds is not None:
            return min(seconds, LONGEST)
    return None


def rate(headers: Headers) -> RateHeaders | None:
    """What a server's headers say of limits a minute: of several the tightest. None where they say
    nothing. Groq's limit on requests is one a day (console.groq.com/docs/rate-limits), and left out."""
    limits: dict[str, float] = {}
    groq = False
    for name, value in headers.items():
        field = _field(lowered := name.lower())
        groq |= lowered == "x-groq-region"
        number = _number(value) if field else None
        if number is not None:
            limits[field] = min(number, limits.get(field, number))
    if groq:
        limits.pop("requests_limit", None)
    return RateHeaders(**limits) if limits else None


@lru_cache(1_000)
def _field(name: str) -> str:
    """The field of RateHeaders that a header, in small letters, gives; "" for none."""
    if not _RATE.fullmatch(name):
        return ""
    kind = "tokens" if "tokens" in name else "requests"
    return f"{kind}_{'remaining' if 'remaining' in name else 'limit'}"


def price(headers: Headers) -> float | None:
    """Dollars that this call cost, as a LiteLLM proxy computed them; None where it doesn't know, of
    which it says 0."""
    return _number(CIMultiDict(headers).get("x-litellm-response-cost")) or None


def request_id(headers: Headers) -> str | None:
    """What the provider's support asks for, up to 100 characters."""
    given = CIMultiDict(headers)
    return next((given[name][:100] for name in _IDS if given.get(name)), None)


def duration(text: str) -> float | None:
    """Seconds, 0 to LONGEST, of "1s", "6m0s", "20ms", "1h2m3.5s" or plain seconds; None for anything
    else."""
    seconds, parts = _number(text), _PART.findall(text[:60])
    if seconds is None and parts and "".join(map("".join, parts)) == text.strip():
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    return None if seconds is None else min(seconds, LONGEST)


def moment(text: str) -> float | None:
    """Seconds since the epoch of a date. One without a zone is in UTC, as HTTP wants it, and not in
    ours."""
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        with suppress(TypeError, ValueError, OverflowError, IndexError):
            moment = parse(text)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return None


def _number(text: str | None) -> float | None:
    """A number that is not negative and not absurd, or None. Azure says -1 for "unknown"."""
    with suppress(TypeError, ValueError):
        if text is not None and len(text) <= 30 and 0 <= float(text) < 1e15:
            return float(text)
    return None
