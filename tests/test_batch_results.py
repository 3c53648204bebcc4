from __future__ import annotations

from typing import Any

import orjson
import pytest

from judgeq.errors import (
    JudgeError,
    QuotaError,
    RateLimitedError,
    RefusedRequestError,
    ServerFailedError,
    SteppedDownError,
)
from judgeq.judge.backend import Result
from judgeq.judge.http.openai import OpenAIChat
from judgeq.judge.prices import Pricing
from judgeq.settings.model import Access, Model, Price
from judgeq.types import Usage
from tests.test_openai_chat import Notes
from tests.web import completion

SIZE = 400
PRICE = Price(input=1.0, output=10.0)


def chat(memory: Notes | None = None, **model: Any) -> OpenAIChat:
    settings = Model(base_url="http://127.0.0.1:9/v1", **model)
    return OpenAIChat("m", settings, Access(), Pricing("flat", PRICE, PRICE), memory=memory)


def line(status: int, body: Any) -> Result:
    return Result("a-1", status, orjson.dumps(body))


def refused(message: str, **more: str) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


def test_a_line_is_read_as_a_live_answer_is() -> None:
    backend = chat()
    reply = backend.read_result(line(200, completion("A")), SIZE, backend.form)
    assert (reply.text, reply.usage, reply.problem) == ("A", Usage(100, 0, 10, 0), None)
    assert reply.cost == pytest.approx((100 * 1.0 + 10 * 10.0) / 1e6)
    cut = backend.read_result(line(200, completion("A", reason="length")), SIZE, backend.form)
    assert cut.problem is not None
    filtered = backend.read_result(
        line(400, refused("no", code="content_filter")), SIZE, backend.form
    )
    assert filtered.problem is not None


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (429, refused("slow down"), RateLimitedError),
        (429, refused("You exceeded your current quota", code="insufficient_quota"), QuotaError),
        (500, refused("oh"), ServerFailedError),
        (504, refused("oh"), ServerFailedError),
        (400, refused("no such thing as a temperature of 3"), RefusedRequestError),
        (400, None, RefusedRequestError),
    ],
)
def test_a_line_that_failed_is_the_error_it_would_be_live_and_cost_nothing(
    status: int, body: Any, error: type[JudgeError]
) -> None:
    backend = chat()
    with pytest.raises(error) as raised:
        backend.read_result(line(status, body), SIZE, backend.form)
    assert raised.value.cost == 0.0


@pytest.mark.parametrize("ended", ["expired", "cancelled"])
def test_a_line_that_was_never_asked_cost_nothing(ended: Any) -> None:
    backend = chat()
    with pytest.raises(ServerFailedError, match=ended) as raised:
        backend.read_result(Result("a-1", 0, b"", ended), SIZE, backend.form)
    assert raised.value.cost == 0.0


@pytest.mark.parametrize("result", [Result("a-1", 0, b"{}"), line(200, None), line(200, [1])])
def test_a_line_that_says_nothing_may_have_cost(result: Result) -> None:
    backend = chat()
    with pytest.raises(ServerFailedError) as raised:
        backend.read_result(result, SIZE, backend.form)
    assert raised.value.cost is None


def test_a_whole_batch_that_was_refused_steps_down_once() -> None:
    notes = Notes()
    backend, no = chat(notes), line(400, refused("response_format json_schema is not supported"))
    form = backend.form
    for _ in range(5):
        with pytest.raises(SteppedDownError):
            backend.read_result(no, SIZE, form)
    assert backend.mode == "json"
    assert backend.form != form
    assert next(iter(notes.values()))["structured"] == "json"


def test_a_session_that_knows_better_already_does_not_step_down_again() -> None:
    form, backend = chat().form, chat()
    backend.mode = "json"  # recalled
    with pytest.raises(SteppedDownError):
        backend.read_result(line(400, refused("json_schema is not supported")), SIZE, form)
    assert backend.mode == "json"
