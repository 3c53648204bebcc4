"""What the headers of a server's answer say: how long to wait, what its limits are, its id."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from judgeq.judge.limiter import RateHeaders

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_IDS = ("x-request-id", "apim-request-id", "request-id", "x-ms-request-id", "cf-ray")
_EPOCH = 1_000_000_000  # a number above this is a moment, not a duration
LONGEST = 366 * 86_400.0

_PREFIX = "x-ratelimit-"
# OpenAI's names, which Azure, Groq and LiteLLM use; Cerebras' and Mistral's; Kong's.
_FIELDS = {
    f"{what}-{name}": f"{kind}_{what}"
    for kind, names in (
        ("requests", ("requests", "requests-minute", "req-minute", "minute")),
        ("tokens", ("tokens", "tokens-minute")),
    )
    for name in names
    for what in ("limit", "remaining", "reset")
}
# OpenRouter's: requests, but in what time only the reset tells.
_WITHOUT_UNIT = {what: f"requests_{what}" for what in ("limit", "remaining", "reset")}
# LiteLLM's say whose limit it is, of which the tightest holds; and how many calls may run together.
_OWNERS = frozenset(
    {
        *("api_key", "user", "team", "team_member", "end_user", "organization", "project"),
        *("model_per_key", "model_per_team", "model_per_project"),
    }
)
_OWNED = {
    "limit-requests": "requests_limit",
    "remaining-requests": "requests_remaining",
    "limit-tokens": "tokens_limit",
    "remaining-tokens": "tokens_remaining",
    "limit-max_parallel_requests": "calls_limit",
}
# Anthropic's. Of tokens it limits input and output apart, and sums them up under "tokens": what is asked
# here is mostly input (platform.claude.com/docs/en/api/rate-limits).
_ANTHROPIC = {
    f"anthropic-ratelimit-{kind}-{what}": f"{kind.removeprefix('input-')}_{what}"
    for kind in ("requests", "tokens", "input-tokens")
    for what in ("limit", "remaining", "reset")
}
# A proxy's own wish comes before that of the server behind it, as LiteLLM passes it on.
_WAITS = ("", "llm_provider-")


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that the server asks to wait, 0 to LONGEST; None where it doesn't say.

    `retry-after-ms`, else `retry-after` as seconds or as a date (RFC 9110, 10.2.3); else the same of
    the server behind a LiteLLM proxy. `now` is seconds since the epoch.
    """
    lowered = _lowered(headers)
    for prefix in _WAITS:
        milliseconds = _number(lowered.get(f"{prefix}retry-after-ms"))
        if milliseconds is not None:
            return min(milliseconds / 1000, LONGEST)
        said = lowered.get(f"{prefix}retry-after")
        seconds = duration(said, now)
        if seconds is not None:
            return seconds
        moment = _moment(said)
        if moment is not None:
            return _until(moment, now)
    return None


def rate(headers: Mapping[str, str], now: float | None = None) -> RateHeaders | None:
    """What x-ratelimit headers, and Anthropic's, say of limits a minute, and of calls together; None
    where they say nothing.

    A reset that is a moment is counted from `now` (seconds since the epoch), else from the answer's
    own `date`. Groq's limit on requests is one a day (console.groq.com/docs/rate-limits), and left
    out, as is one without a unit that does not reset within a minute.
    """
    texts: dict[str, str] = {}
    plain: dict[str, str] = {}
    owned: list[tuple[str, str]] = []
    date, groq = None, False
    for name, value in headers.items():
        name = name.lower()
        if name.startswith(_PREFIX):
            name = name[len(_PREFIX) :]
            if name in _FIELDS:
                texts[_FIELDS[name]] = value
            elif name in _WITHOUT_UNIT:
                plain[_WITHOUT_UNIT[name]] = value
            else:
                owner, _, what = name.partition("-")
                if owner in _OWNERS and what in _OWNED:
                    owned.append((_OWNED[what], value))
        elif name in _ANTHROPIC:
            if "-input-" in name or _ANTHROPIC[name] not in texts:
                texts[_ANTHROPIC[name]] = value
        elif name == "date":
            date = value
        elif name == "x-groq-region":
            groq = True
    if not (texts or plain or owned):
        return None
    without_unit = not any(field in texts for field in _WITHOUT_UNIT.values())
    limits: dict[str, float | None] = {
        field: _reset(text, now, date) if field.endswith("reset") else _number(text)
        for field, text in (plain | texts if without_unit else texts).items()
    }
    reset = limits.get("requests_reset")
    if groq or (without_unit and (reset is None or reset > 60)):
        limits["requests_limit"] = None
    for field, text in owned:
        number, general = _number(text), limits.get(field)
        if number is not None:
            limits[field] = number if general is None else min(number, general)
    if set(limits.values()) == {None}:
        return None
    return RateHeaders(**limits)


def price(headers: Mapping[str, str]) -> float | None:
    """Dollars that this call cost, as a LiteLLM proxy computed them; None where it doesn't know.

    It says 0 of models whose price it doesn't know.
    """
    return _number(_lowered(headers).get("x-litellm-response-cost")) or None


def is_about_parallel(headers: Mapping[str, str]) -> bool:
    """Whether a 429 is for too many calls in flight together, as LiteLLM says it."""
    return _lowered(headers).get("rate_limit_type") == "max_parallel_requests"


def _reset(text: str | None, now: float | None, date: str | None) -> float | None:
    """Seconds to a reset. The date is read only where it is needed: that takes longer than all else."""
    seconds = duration(text, now)
    if seconds is None and text and now is None and date:
        return duration(text, _moment(date))
    return seconds


def request_id(headers: Mapping[str, str]) -> str | None:
    """What the provider's support asks for, up to 100 characters."""
    lowered = _lowered(headers)
    for name in _IDS:
        if number := lowered.get(name):
            return number[:100]
    return None


def duration(text: str | None, now: float | None) -> float | None:
    """Seconds, 0 to LONGEST, of "1s", "6m0s", "20ms", "1h2m3.5s", plain seconds, or until a moment
    (an ISO date, or seconds or milliseconds since the epoch); None for anything else.

    Where `now`, in seconds since the epoch, is None, a moment tells nothing.
    """
    if not text or len(text) > 60:
        return None
    text = text.strip()
    seconds = _number(text)
    if seconds is not None:
        if seconds > 1000 * _EPOCH:
            seconds /= 1000
        return _until(seconds, now) if seconds > _EPOCH else min(seconds, LONGEST)
    parts = _PART.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return min(sum(float(number) * _UNITS[unit] for number, unit in parts), LONGEST)
    try:
        return _until(_utc(datetime.fromisoformat(text)), now)
    except (ValueError, OverflowError):
        return None


def _lowered(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _until(moment: float, now: float | None) -> float | None:
    return None if now is None else min(max(0.0, moment - now), LONGEST)


def _moment(text: str | None) -> float | None:
    """Seconds since the epoch of a date as in mail and HTTP, or None."""
    if not text or len(text) > 60:
        return None
    try:
        return _utc(parsedate_to_datetime(text))
    except (TypeError, ValueError, OverflowError, IndexError):
        return None


def _utc(moment: datetime) -> float:
    """A date without a zone is in UTC, as HTTP wants it, and not in ours."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _number(text: str | None) -> float | None:
    """A number that is not negative and not absurd, or None. Azure says -1 for "unknown"."""
    if text is None or len(text) > 30:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 1e15 else None
