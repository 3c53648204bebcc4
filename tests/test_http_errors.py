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
from judgeq.judge.http.errors import NO_MESSAGE, SHOWN, error_for, error_in, read
from judgeq.judge.http.headers import LONGEST, rate, retry_after
from judgeq.judge.limiter import RateHeaders
from tests.fakes import any_json

REPLIES = Path(__file__).parent / "replies"
NOW = 1_795_176_000.0  # Fri, 20 Nov 2026 12:00:00 GMT
URL = "http://h/v1/chat/completions"
FILES = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(REPLIES.glob("*.json"))}
CASES = [
    pytest.param(reply, id=f"{name}: {reply['name']}")
    for name, file in FILES.items()
    for reply in file["replies"]
]


def refusal(status: int, body: Any, headers: dict[str, str] | None = None) -> errors.JudgeError:
    if not isinstance(body, bytes):
        body = body.encode() if isinstance(body, str) else orjson.dumps(body)
    return error_for(status, headers or {}, body, model="m", url=URL, now=NOW)


def answered(body: Any) -> errors.JudgeError | None:
    return error_in(body, model="m", url=URL)


@pytest.mark.parametrize("reply", CASES)
def test_a_documented_answer_is_its_named_error(reply: dict[str, Any]) -> None:
    status, body = reply["status"], reply["body"]
    error = answered(body) if status == 200 else refusal(status, body, reply["headers"])
    assert type(error) is getattr(errors, reply["error"])
    assert isinstance(error, errors.JudgeError)
    assert error.cost == reply.get("cost", 0.0)
    assert ("retry_after" in reply) == isinstance(error, errors.CallError)
    if isinstance(error, errors.CallError):
        assert error.retry_after == reply["retry_after"]
    assert ("what" in reply) == isinstance(error, errors.SteppedDownError)
    if isinstance(error, errors.SteppedDownError):
        assert error.what == reply["what"]
    text = str(error)
    assert str(status) in text
    assert "\n" not in text
    assert all(words in text for words in reply.get("says", ()))
    assert not any(words in text for words in reply.get("hides", ()))


NO_ANSWERS = (
    *("KeyMissingError", "CallTimeoutError", "ConnectionFailedError"),
    *("BatchGoneError", "BatchNotFoundError"),
)


def test_every_error_that_an_answer_can_mean_is_among_them() -> None:
    named = {reply["error"] for file in FILES.values() for reply in file["replies"]}
    kinds = {
        kind.__name__
        for kind in errors.JudgeError.__subclasses__() + errors.CallError.__subclasses__()
    }
    assert named == kinds - {"CallError", *NO_ANSWERS}


@pytest.mark.parametrize(
    "error", ["Model 'x' not found", {"message": "Model 'x' not found", "type": "not_found"}]
)
def test_an_error_within_fastapis_detail_is_read(error: Any) -> None:
    said = read(orjson.dumps({"detail": {"error": error}}))
    assert said.message == "Model 'x' not found"
    assert type(refusal(404, {"detail": {"error": error}})) is errors.UnknownModelError
    read(b'{"detail":{"error":' * 400 + b"{}" + b"}}" * 400)  # no matter how deep


def test_long_words_are_cut_and_on_one_line() -> None:
    told = str(refusal(418, "a\r\nb\t\x1b[31m " + 10_000 * "x"))
    assert told.startswith("the server answered 418: a b [31m xxx")
    assert ("…" in told, told.isprintable()) == (True, True)
    assert told.count("x") < SHOWN


def test_a_header_is_believed_before_the_words() -> None:
    body = {"error": {"message": "Please try again in 9s.", "code": "rate_limit_exceeded"}}
    for headers, seconds in (({}, 9.0), ({"Retry-After": "2"}, 2.0), ({"Retry-After": "0"}, 0.0)):
        told = refusal(429, body, headers)
        assert isinstance(told, errors.RateLimitedError)
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
    assert isinstance(told, errors.RateLimitedError)
    assert told.retry_after == (None if seconds is None else pytest.approx(seconds))


def test_an_answer_without_a_failure_holds_no_error() -> None:
    success = {"status_code": 0, "status_msg": "success"}
    fine = {"choices": [{"message": {"content": "A"}, "error": None}], "base_resp": success}
    assert answered(fine) is None
    assert error_in(fine, model="m", url=URL, reason="stop") is None
    told = error_in(fine | {"choices": []}, model="m", url=URL, reason=NO_MESSAGE)
    assert type(told) is errors.ServerFailedError
    assert str(told) == "the server answered 200 with no message."
    told = error_in({"error": False, "choices": []}, model="m", url=URL, reason=NO_MESSAGE)
    assert str(told) == "the server answered 200 with no message."
    words = {"code": 10013, "message": "input is flagged"}
    assert type(error_in(words, model="m", url=URL, reason=NO_MESSAGE)) is errors.UnusableReplyError


@pytest.mark.parametrize(
    ("message", "flag"),
    [
        ("temperature must be 1", "--temperature"),
        ("thinking is not for this model", "--reasoning-effort"),
        ("max_tokens must be at least 16", "--max-output-tokens"),
        ("top_k is too large", "--extra-body"),
    ],
)
def test_a_refusal_names_the_flag_that_it_is_about(message: str, flag: str) -> None:
    flags = ("--temperature", "--reasoning-effort", "--max-output-tokens", "--extra-body")
    told = str(refusal(400, {"error": {"message": message}}))
    assert [name for name in flags if name in told] == [flag]


def test_a_failure_that_names_a_schema_of_another_kind_is_not_a_refusal_of_ours() -> None:
    said = {"error": {"message": "invalid database schema"}}
    assert type(refusal(500, said)) is errors.ServerFailedError


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "database schema error"),
        (422, "schema mismatch in field messages"),
        (500, "CUDA error: unsupported grammar state"),
    ],
)
def test_a_schema_or_grammar_that_is_not_of_the_output_is_not_stepped_down_from(
    status: int, message: str
) -> None:
    error = refusal(status, {"error": {"message": message}})
    expected = errors.ServerFailedError if status == 500 else errors.RefusedRequestError
    assert type(error) is expected


@pytest.mark.parametrize(
    "message",
    [
        "The specified schema produces a constraint that has too many states for serving.",
        "Unsupported grammar for guided decoding",
        "unsupported grammar",
        "schema for 'answer' uses minItems, which is not supported",
    ],
)
def test_a_refused_schema_of_the_output_is_stepped_down_from(message: str) -> None:
    error = refusal(400, {"error": {"message": message}})
    assert isinstance(error, errors.SteppedDownError)
    assert error.what == "structured"


RATE_WORDS = "Rate limit reached for requests. You may {}. Please try again in {}."


@pytest.mark.parametrize(
    ("advice", "wait"),
    [
        ("purchase more credits to increase your rate limit", "2s"),
        ("raise your spend limit tier", "20s"),
    ],
)
def test_a_short_rate_limit_that_speaks_of_money_is_no_quota(advice: str, wait: str) -> None:
    error = refusal(429, {"error": {"message": RATE_WORDS.format(advice, wait)}})
    assert isinstance(error, errors.RateLimitedError)
    assert error.retry_after == float(wait.removesuffix("s"))


def test_money_words_with_a_long_wait_or_a_code_of_money_are_a_quota() -> None:
    message = RATE_WORDS.format("raise your spend limit", "7h12m")
    assert type(refusal(429, {"error": {"message": message}})) is errors.QuotaError
    message = RATE_WORDS.format("raise your spend limit", "2s")
    for code in ("insufficient_quota", "project_spend_limit_exceeded", "1113"):
        error = refusal(429, {"error": {"message": message, "code": code}})
        assert type(error) is errors.QuotaError, code


def test_an_outage_that_speaks_of_a_balance_is_no_quota() -> None:
    words = {"error": {"message": "The balance is insufficient in worker pool 3."}}
    assert type(refusal(503, words)) is errors.ServerFailedError
    assert type(refusal(403, words)) is errors.QuotaError
    assert type(answered(words)) is errors.QuotaError


def test_an_outage_that_names_a_format_is_not_a_refusal_of_it() -> None:
    no = "json_schema service is not supported now"
    for status, said in ((502, no), (503, no), (500, "crashed at json_schema")):
        assert type(refusal(status, {"error": {"message": said}})) is errors.ServerFailedError


STATUS = st.integers(100, 599)
HEADERS = st.dictionaries(
    st.sampled_from(["Retry-After", "retry-after-ms", "Location", "x-request-id", "CF-Ray"]),
    st.text(max_size=80),
)
JSON = any_json(
    *("error", "message", "detail", "msg", "code", "type", "param", "status", "loc", "metadata"),
    *("raw", "object", "statusCode", "error_type", "rate_limit", "insufficient_quota"),
    *("json_schema", "max_completion_tokens", "temperature", "model", "not found"),
    *("context length", "try again in 1s", "unsupported"),
)


def sound(error: errors.JudgeError) -> None:
    text = str(error)
    assert text.isprintable()
    assert len(text) < SHOWN + 700
    if isinstance(error, errors.CallError) and error.retry_after is not None:
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


DATE = "Fri, 20 Nov 2026 12:00:00 GMT"
NUMBER = r"[-+]?\d{1,40}(\.\d*)?(e\d+)?[smhd]*"
HOSTILE = st.text(max_size=80) | st.from_regex(NUMBER, fullmatch=True)


def headers_of(kind: str, **named: str) -> dict[str, str]:
    """Headers of limits: `limit_requests` of kind "x-ratelimit-" is x-ratelimit-limit-requests."""
    return {kind + name.replace("_", "-"): value for name, value in named.items()}


RATE = "x-ratelimit-"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        # platform.openai.com/docs/guides/rate-limits
        (
            headers_of(
                RATE, limit_requests="60", limit_tokens="150000", remaining_requests="59",
                remaining_tokens="149984", reset_requests="1s", reset_tokens="6m0s",
            ),
            RateHeaders(60, 59, 150_000, 149_984),
        ),
        # console.groq.com/docs/rate-limits: its requests are a day
        (
            headers_of(
                RATE, limit_requests="1000", limit_tokens="18000", remaining_requests="370",
                remaining_tokens="17997", reset_requests="2m59.56s", reset_tokens="7.66s",
            )
            | {"X-Groq-Region": "bra"},
            RateHeaders(None, 370, 18_000, 17_997),
        ),
        # inference-docs.cerebras.ai/support/rate-limits, and Mistral: they name the minute
        (
            headers_of(
                RATE, limit_requests_day="14400", limit_tokens_minute="60000",
                remaining_requests_day="14399", remaining_tokens_minute="59000",
                reset_requests_day="33011.38", reset_tokens_minute="11.38",
            ),
            RateHeaders(None, None, 60_000, 59_000),
        ),
        (
            headers_of(RATE, limit_req_minute="30", remaining_req_minute="0"),
            RateHeaders(requests_limit=30, requests_remaining=0),
        ),
        # LiteLLM 1.106 under a key, a team and a user with limits: the tightest holds
        (
            headers_of(f"{RATE}api_key-", limit_requests="60", remaining_requests="59")
            | headers_of(f"{RATE}team-", limit_requests="30", remaining_requests="0")
            | headers_of(f"{RATE}user-", limit_tokens="9000", remaining_tokens="8000")
            | headers_of(f"{RATE}model_per_key-", limit_tokens="5000", remaining_tokens="4000")
            | headers_of(RATE, limit_requests="600"),
            RateHeaders(30, 0, 5000, 4000),
        ),
        # platform.claude.com/docs/en/api/rate-limits: input and output are limited apart
        (
            headers_of("anthropic-ratelimit-", requests_limit="50", requests_remaining="49")
            | headers_of("anthropic-ratelimit-", tokens_limit="900", input_tokens_limit="700"),
            RateHeaders(50, 49, 700, None),
        ),
        # None, or in no time that is known; Azure says -1 for "unknown".
        ({"content-type": "application/json", "date": DATE, "x-groq-region": "bra"}, None),
        (headers_of(RATE, limit_requests="many"), None),
        (headers_of(RATE, limit_tokens="-1", remaining_tokens="-1"), None),
        (headers_of(RATE, limit="100", reset="1"), None),
        (headers_of(f"llm_provider-{RATE}", limit_requests="5"), None),
    ],
)  # fmt: skip
def test_limits_as_servers_name_them(found: dict[str, str], said: RateHeaders | None) -> None:
    assert rate(found) == said
    assert rate({name.title(): value for name, value in found.items()}) == said


@pytest.mark.parametrize(
    ("found", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "3"}, 3.0),
        ({"retry-after": "2", "Retry-After-MS": "1500"}, 1.5),
        ({"retry-after": "2", "retry-after-ms": "soon"}, 2.0),
        # LiteLLM passes on what the server behind it said.
        ({"LLM_Provider-Retry-After": "56", "llm_provider-retry-after-ms": "55025"}, 55.025),
        ({"llm_provider-retry-after": "56", "Retry-After": "2"}, 2.0),
        *[({"retry-after": text}, None) for text in ("", "soon", "-5", "nan", "inf", "0x10", "é")],
    ],
)
def test_how_long_to_wait(found: dict[str, str], seconds: float | None) -> None:
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
