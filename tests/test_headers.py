from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from judgeq.judge.http.headers import LONGEST, duration, rate, retry_after
from judgeq.judge.limiter import RateHeaders

NOW = 1_795_176_000.0
DATE = "Fri, 20 Nov 2026 12:00:00 GMT"
HOSTILE = st.text(max_size=80) | st.from_regex(
    r"[-+]?\d{1,40}(\.\d*)?(e\d+)?[smhd]*", fullmatch=True
)


# How long to wait


@pytest.mark.parametrize(
    ("found", "seconds"),
    [
        ({}, None),
        ({"content-type": "text/html"}, None),
        ({"Retry-After": "3"}, 3.0),
        ({"retry-after": "0.250"}, 0.25),
        ({"retry-after": "2", "Retry-After-MS": "1500"}, 1.5),
        ({"retry-after": "2", "retry-after-ms": "soon"}, 2.0),
        # LiteLLM passes on what the server behind it said.
        ({"LLM_Provider-Retry-After": "56", "llm_provider-retry-after-ms": "55025"}, 55.025),
        ({"llm_provider-retry-after": "56", "Retry-After": "2"}, 2.0),
        *[({"retry-after": text}, None) for text in ("", "soon", "-5", "nan", "inf", "0x10", "é")],
    ],
)
def test_how_long_to_wait(found: dict[str, str], seconds: float | None) -> None:
    assert retry_after(found, NOW) == seconds
    assert retry_after(CIMultiDictProxy(CIMultiDict(found)), NOW) == seconds


@given(st.integers(-(10**6), 10**6))
def test_a_date_is_counted_from_now_and_never_past(seconds: int) -> None:
    moment = datetime.fromtimestamp(NOW + seconds, UTC)
    for text in (format_datetime(moment, usegmt=True), moment.isoformat(), moment.ctime()):
        assert retry_after({"Retry-After": text}, NOW) == max(0, seconds)


@given(HOSTILE, HOSTILE)
def test_a_wait_is_in_bounds_whatever_is_said(seconds: str, milliseconds: str) -> None:
    found = retry_after({"retry-after": seconds, "retry-after-ms": milliseconds}, NOW)
    assert found is None or 0 <= found <= LONGEST


# Durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1.0),
        ("6m0s", 360.0),
        ("20ms", 0.02),
        ("1h2m3.5s", 3723.5),
        ("2m59.56s", 179.56),
        ("1d", 86_400.0),
        ("7.66s", 7.66),
        ("12", 12.0),
        ("0", 0.0),
        (" 1.5 ", 1.5),
        ("33011.382867097855", 33011.382867097855),
        ("", None),
        ("1x", None),
        ("s", None),
        ("1s 2", None),
        ("-1s", None),
        ("soon", None),
    ],
)
def test_a_duration(text: str, seconds: float | None) -> None:
    found = duration(text)
    assert found == (None if seconds is None else pytest.approx(seconds))


# Limits


def test_openai() -> None:
    """platform.openai.com/docs/guides/rate-limits"""
    found = {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-limit-tokens": "150000",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-remaining-tokens": "149984",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-reset-tokens": "6m0s",
    }
    said = RateHeaders(60, 59, 150_000, 149_984)
    assert rate(found) == said
    assert rate({name.title(): value for name, value in found.items()}) == said
    assert rate(CIMultiDictProxy(CIMultiDict(found))) == said


def test_groqs_requests_are_a_day() -> None:
    """console.groq.com/docs/rate-limits"""
    found = {
        "x-ratelimit-limit-requests": "1000",
        "x-ratelimit-limit-tokens": "18000",
        "x-ratelimit-remaining-requests": "370",
        "x-ratelimit-remaining-tokens": "17997",
        "x-ratelimit-reset-requests": "2m59.56s",
        "x-ratelimit-reset-tokens": "7.66s",
        "X-Groq-Region": "bra",
    }
    assert rate(found) == RateHeaders(None, 370, 18_000, 17_997)


def test_cerebras_and_mistral_name_the_minute() -> None:
    """inference-docs.cerebras.ai/support/rate-limits"""
    found = {
        "x-ratelimit-limit-requests-day": "14400",
        "x-ratelimit-limit-tokens-minute": "60000",
        "x-ratelimit-remaining-requests-day": "14399",
        "x-ratelimit-remaining-tokens-minute": "59000",
        "x-ratelimit-reset-requests-day": "33011.38",
        "x-ratelimit-reset-tokens-minute": "11.38",
    }
    assert rate(found) == RateHeaders(None, None, 60_000, 59_000)
    found = {"x-ratelimit-limit-req-minute": "30", "x-ratelimit-remaining-req-minute": "0"}
    assert rate(found) == RateHeaders(requests_limit=30, requests_remaining=0)


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"content-type": "application/json", "date": DATE, "x-groq-region": "bra"},
        {"x-ratelimit-limit-requests": "many"},
        # Azure says -1 for "unknown": learn.microsoft.com/answers/questions/5625878
        {"x-ratelimit-limit-tokens": "-1", "x-ratelimit-remaining-tokens": "-1"},
        {"x-ratelimit-limit": "100", "x-ratelimit-reset": "1"},  # in what time?
        {"x-ratelimit-limit-images": "5"},
        {"llm_provider-x-ratelimit-limit-requests": "5"},
    ],
)
def test_no_limits_are_none(found: dict[str, str]) -> None:
    assert rate(found) is None


# The id


def test_litellms_limits_by_whose_they_are_the_tightest_holds() -> None:
    """LiteLLM 1.106 under a key, a team and a user with limits"""
    found = {
        "x-ratelimit-api_key-limit-requests": "60",
        "x-ratelimit-api_key-remaining-requests": "59",
        "x-ratelimit-team-limit-requests": "30",
        "x-ratelimit-team-remaining-requests": "0",
        "x-ratelimit-user-limit-tokens": "9000",
        "x-ratelimit-user-remaining-tokens": "8000",
        "x-ratelimit-model_per_key-limit-tokens": "5000",
        "x-ratelimit-model_per_key-remaining-tokens": "4000",
        "x-ratelimit-limit-requests": "600",
    }
    assert rate(found) == RateHeaders(30, 0, 5000, 4000)
