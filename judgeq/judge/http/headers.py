"""What a server's headers say: how long to wait (Retry-After), limits, what the call cost, its id."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache

from multidict import CIMultiDict

from judgeq.judge.limiter import RateHeaders
from judgeq.types import Headers

LONGEST = 366 * 86_400.0
MAX_DOLLARS_PER_CALL = 100_000.0
"""A call that is said to cost more isn't believed: the ledger's sums have to stay whole numbers."""
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
    """Return the dollars that this call cost, as a LiteLLM proxy computed them.

    None where it doesn't know, of which it says 0, and for a sum that can't be.
    """
    dollars = _number(CIMultiDict(headers).get("x-litellm-response-cost"))
    return dollars if dollars and dollars <= MAX_DOLLARS_PER_CALL else None


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
