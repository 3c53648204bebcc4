from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from judgeq.judge.http.headers import LONGEST, duration, price, rate, request_id, retry_after
from judgeq.judge.limiter import RateHeaders

NOW = 1_795_176_000.0
DATE = "Fri, 20 Nov 2026 12:00:00 GMT"
HOSTILE = st.text(max_size=80) | st.from_regex(
    r"[-+]?\d{1,40}(\.\d*)?(e\d+)?[smhd]*", fullmatch=True
)


# How long to wait


@given(st.integers(0, 10**6))
def test_whole_seconds(seconds: int) -> None:
    assert retry_after({"retry-after": str(seconds)}, NOW) == seconds


@given(st.floats(0, 10**6))
def test_decimal_seconds_and_milliseconds(seconds: float) -> None:
    assert retry_after({"retry-after": f"{seconds:.3f}"}, NOW) == pytest.approx(seconds, abs=0.001)
    found = retry_after({"retry-after-ms": f"{seconds:.3f}"}, NOW)
    assert found == pytest.approx(seconds / 1000, abs=0.001)


@given(st.integers(-(10**6), 10**6))
def test_a_date_is_counted_from_now_and_never_past(seconds: int) -> None:
    moment = datetime.fromtimestamp(NOW + seconds, UTC)
    for text in (format_datetime(moment, usegmt=True), moment.isoformat(), moment.ctime()):
        assert retry_after({"Retry-After": text}, NOW) == max(0, seconds)


def test_milliseconds_come_first_and_nonsense_does_not() -> None:
    assert retry_after({"retry-after": "2", "retry-after-ms": "1500"}, NOW) == 1.5
    assert retry_after({"retry-after": "2", "retry-after-ms": "soon"}, NOW) == 2.0


@pytest.mark.parametrize("text", ["", " ", "soon", "-5", "nan", "inf", "-inf", "1;2", "0x10", "é"])
def test_nonsense_asks_for_nothing(text: str) -> None:
    assert retry_after({"retry-after": text}, NOW) is None
    assert retry_after({"retry-after-ms": text}, NOW) is None


@given(HOSTILE, HOSTILE)
def test_a_wait_is_in_bounds_whatever_is_said(seconds: str, milliseconds: str) -> None:
    found = retry_after({"retry-after": seconds, "retry-after-ms": milliseconds}, NOW)
    assert found is None or 0 <= found <= LONGEST


def test_nothing_said() -> None:
    assert retry_after({}, NOW) is None
    assert retry_after({"content-type": "text/html"}, NOW) is None


@pytest.mark.parametrize("name", ["retry-after", "Retry-After", "RETRY-AFTER"])
def test_names_count_in_any_case_and_any_mapping(name: str) -> None:
    assert retry_after({name: "3"}, NOW) == 3.0
    assert retry_after(CIMultiDictProxy(CIMultiDict({name: "3"})), NOW) == 3.0


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


def test_azure_knows_no_limit() -> None:
    """-1 is "unknown": learn.microsoft.com/answers/questions/5625878"""
    found = {
        "x-ratelimit-limit-tokens": "-1",
        "x-ratelimit-remaining-tokens": "-1",
    }
    assert rate(found) is None
    assert rate({"x-ratelimit-remaining-requests": "9"}) == RateHeaders(requests_remaining=9)


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
        {"x-ratelimit-limit": "100", "x-ratelimit-reset": "1"},  # in what time?
        {"x-ratelimit-limit-images": "5"},
        {"llm_provider-x-ratelimit-limit-requests": "5"},
    ],
)
def test_no_limits_are_none(found: dict[str, str]) -> None:
    assert rate(found) is None


@given(
    st.dictionaries(
        st.sampled_from(
            [
                *(
                    f"X-RateLimit-{what}{kind}"
                    for what in ("Limit", "Remaining", "Reset")
                    for kind in ("", "-Requests", "-Tokens", "-Req-Minute")
                ),
                "Date",
                "X-Groq-Region",
            ]
        ),
        HOSTILE,
    )
)
def test_limits_are_numbers_whatever_is_said(found: dict[str, str]) -> None:
    said = rate(found)
    assert said is None or any(each is not None for each in said)
    assert all(each is None or 0 <= each < math.inf for each in said or ())


# The id


@pytest.mark.parametrize("name", ["X-Request-ID", "apim-request-id", "request-id", "CF-Ray"])
def test_an_id_by_any_name(name: str) -> None:
    assert request_id({name: "abc", "Date": DATE}) == "abc"
    assert request_id(CIMultiDict({name: "abc"})) == "abc"


def test_the_servers_own_id_comes_before_its_proxys_and_is_cut() -> None:
    assert request_id({"cf-ray": "8abc-FRA", "x-request-id": "req_1"}) == "req_1"
    assert request_id({"cf-ray": "8abc-FRA", "x-request-id": ""}) == "8abc-FRA"
    assert request_id({"x-request-id": 1000 * "a"}) == 100 * "a"
    assert request_id({}) is None


# LiteLLM


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


def test_how_many_calls_a_key_may_have_in_flight_is_a_limit() -> None:
    found = {
        "x-ratelimit-api_key-remaining-max_parallel_requests": "0",
        "x-ratelimit-api_key-limit-max_parallel_requests": "4",
    }
    assert rate(found) == RateHeaders(calls_limit=4)
    assert rate({"x-ratelimit-api_key-limit-max_parallel_requests": "many"}) is None
    assert rate({"x-ratelimit-api_key-remaining-max_parallel_requests": "0"}) is None


def test_a_proxy_passes_on_how_long_the_server_behind_it_asked_to_wait() -> None:
    behind = {"llm_provider-retry-after": "56", "llm_provider-retry-after-ms": "55025"}
    assert retry_after(behind, NOW) == 55.025
    assert retry_after({"LLM_Provider-Retry-After": "56"}, NOW) == 56
    assert retry_after(behind | {"Retry-After": "2"}, NOW) == 2.0
    assert retry_after(behind | {"Retry-After": "soon"}, NOW) == 55.025


@pytest.mark.parametrize(
    ("said", "dollars"),
    [("1.35e-05", 1.35e-05), ("0", None), ("0.0", None), ("-1", None), ("nan", None), ("", None)],
)
def test_litellms_price_of_a_call_is_known_only_where_it_is_above_zero(
    said: str, dollars: float | None
) -> None:
    assert price({"X-LiteLLM-Response-Cost": said}) == dollars
    assert price({}) is None
