from __future__ import annotations

import json
import math
import time
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from judgeq import errors
from judgeq.errors import (
    CallError,
    JudgeError,
    RateLimitedError,
    ServerFailedError,
    SteppedDownError,
    UnknownModelError,
)
from judgeq.judge.http.answers import LONGEST, duration, rate, retry_after
from judgeq.judge.http.errors import SHOWN, error_for, error_in, read
from judgeq.judge.limiter import RateHeaders

REPLIES = Path(__file__).parent / "replies"
NOW = 1_795_176_000.0  # Fri, 20 Nov 2026 12:00:00 GMT
URL = "http://h/v1/chat/completions"
FILES = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(REPLIES.glob("*.json"))}
CASES = [
    pytest.param(reply, id=f"{name}: {reply['name']}")
    for name, file in FILES.items()
    for reply in file["replies"]
]


def refusal(
    status: int = 400, body: Any = b"", headers: dict[str, str] | None = None
) -> JudgeError:
    if not isinstance(body, bytes):
        body = body.encode() if isinstance(body, str) else orjson.dumps(body)
    return error_for(status, headers or {}, body, model="m", url=URL, now=NOW)


def answered(body: Any) -> JudgeError | None:
    return error_in(body, model="m", url=URL)


# What servers are documented to say


@pytest.mark.parametrize("reply", CASES)
def test_a_documented_answer_is_its_named_error(reply: dict[str, Any]) -> None:
    status, body = reply["status"], reply["body"]
    error = answered(body) if status == 200 else refusal(status, body, reply["headers"])
    assert type(error) is getattr(errors, reply["error"])
    assert isinstance(error, JudgeError)
    assert error.cost == reply.get("cost", 0.0)
    assert ("retry_after" in reply) == isinstance(error, CallError)
    if isinstance(error, CallError):
        assert error.retry_after == reply["retry_after"]
    assert ("what" in reply) == isinstance(error, SteppedDownError)
    if isinstance(error, SteppedDownError):
        assert error.what == reply["what"]
    text = str(error)
    assert str(status) in text
    assert "\n" not in text
    assert all(words in text for words in reply.get("says", ()))
    assert not any(words in text for words in reply.get("hides", ()))


def test_every_file_of_answers_has_its_source_and_every_answer_its_name() -> None:
    assert len(CASES) >= 45
    for file in FILES.values():
        assert "https://" in file["source"] or "github.com/" in file["source"]
        names = [reply["name"] for reply in file["replies"]]
        assert len(set(names)) == len(names)


NO_ANSWERS = ("KeyMissingError", "CallTimeoutError", "ConnectionFailedError", "BatchGoneError")


def test_every_error_that_an_answer_can_mean_is_among_them() -> None:
    named = {reply["error"] for file in FILES.values() for reply in file["replies"]}
    assert named == {
        kind.__name__
        for kind in (
            *JudgeError.__subclasses__(),
            *CallError.__subclasses__(),
        )
        if kind is not CallError and kind.__name__ not in NO_ANSWERS
    }


# What is told


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a_name_for_the_limit_that_is_refused_is_told_apart(name: str) -> None:
    error = {"message": f"Unrecognized request argument supplied: {name}", "param": name}
    told = refusal(400, {"error": error})
    assert isinstance(told, SteppedDownError)
    assert told.what == name


@pytest.mark.parametrize(
    "error", ["Model 'x' not found", {"message": "Model 'x' not found", "type": "not_found"}]
)
def test_an_error_within_fastapis_detail_is_read(error: Any) -> None:
    said = read(orjson.dumps({"detail": {"error": error}}))
    assert said.message == "Model 'x' not found"
    assert type(refusal(404, {"detail": {"error": error}})) is UnknownModelError
    read(b'{"detail":{"error":' * 400 + b"{}" + b"}}" * 400)  # no matter how deep


def test_long_words_are_cut_and_on_one_line() -> None:
    told = str(refusal(418, "a\r\nb\t\x1b[31m " + 10_000 * "x"))
    assert told.startswith("the server answered 418: a b [31m xxx")
    assert told.count("x") < SHOWN
    assert "…" in told
    assert told.isprintable()


def test_a_header_is_believed_before_the_words() -> None:
    body = {"error": {"message": "Please try again in 9s.", "code": "rate_limit_exceeded"}}
    for headers, seconds in (({}, 9.0), ({"Retry-After": "2"}, 2.0), ({"Retry-After": "0"}, 0.0)):
        told = refusal(429, body, headers)
        assert isinstance(told, RateLimitedError)
        assert told.retry_after == seconds


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("Please retry after 26 seconds.", 26.0),
        ("Please retry after 1 second.", 1.0),
        ("Try again in 2 minutes", 120.0),
        ("try again in 1.2s", 1.2),
        ("try again in 250 ms, please", 0.25),
        ("try again in 6m0s.", 360.0),
        ("try again in 1h2m3.5s", 3723.5),
        ("try again in 5", 5.0),
        ("try again in a while", None),
        ("try again in 3 parsecs", 3.0),
        ("try again in 3x", None),
        ("try again in " + 5000 * "9", None),
        ("", None),
    ],
)
def test_a_wait_in_words(words: str, seconds: float | None) -> None:
    told = refusal(429, {"error": {"message": words}})
    assert isinstance(told, RateLimitedError)
    assert told.retry_after == (None if seconds is None else pytest.approx(seconds))


# What one thing must not be taken for


def test_an_outage_that_names_a_format_is_not_a_refusal_of_it() -> None:
    for status in (502, 503):
        told = refusal(status, {"error": {"message": "json_schema service is not supported now"}})
        assert type(told) is ServerFailedError
    told = refusal(500, {"error": {"message": "crashed at json_schema"}})
    assert type(told) is ServerFailedError


# Anything may come


STATUS = st.integers(100, 599)
HEADERS = st.dictionaries(
    st.sampled_from(["Retry-After", "retry-after-ms", "Location", "x-request-id", "CF-Ray"]),
    st.text(max_size=80),
)
WORDS = st.sampled_from(
    [
        "rate_limit", "insufficient_quota", "json_schema", "max_completion_tokens", "temperature",
        "model", "not found", "context length", "try again in 1s", "unsupported", "detail", "loc",
    ]
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers() | st.text() | WORDS,
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(
            [
                "error", "message", "detail", "msg", "code", "type", "param", "status", "loc",
                "metadata", "raw", "object", "statusCode", "error_type",
            ]
        ),
        inner,
        max_size=5,
    ),
    max_leaves=12,
)  # fmt: skip


def sound(error: JudgeError) -> None:
    text = str(error)
    assert text.isprintable()
    assert len(text) < SHOWN + 700
    if isinstance(error, CallError) and error.retry_after is not None:
        assert 0 <= error.retry_after < math.inf


@given(STATUS, HEADERS, JSON)
def test_any_json_is_some_error(status: int, headers: dict[str, str], body: Any) -> None:
    sound(refusal(status, json.dumps(body).encode(), headers))


@pytest.mark.parametrize(
    "part",
    ["<style", "<", "<script>", "model ", "max_tokens ", "unsupported max_tokens ", "not ",
     "no model", "try again in 1", "extra", "1s"],
)  # fmt: skip
def test_a_hostile_body_takes_no_time_to_read(part: str) -> None:
    """Every expression takes time in proportion to the text: a huge one is cut before."""
    started = time.process_time()
    body = (part * (2_000_000 // len(part))).encode()
    sound(refusal(400, body))
    sound(refusal(429, {"error": {"message": body.decode()}}))
    assert time.process_time() - started < 2.0


# What headers say


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
