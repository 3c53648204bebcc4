from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgeq.judge.http.responses import read_choice, read_usage
from judgeq.types import Usage

REPORTED = json.loads((Path(__file__).parent / "replies" / "usage.json").read_text("utf-8"))[
    "usages"
]


@pytest.mark.parametrize("reported", REPORTED, ids=[each["name"] for each in REPORTED])
def test_usage_of_the_providers(reported: dict[str, Any]) -> None:
    assert read_usage(reported["usage"]) == Usage(**reported["expected"])


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        [],
        "12",
        {"prompt_tokens": 3},
        {"completion_tokens": 3},
        {"prompt_tokens": -1, "completion_tokens": 3},
        {"prompt_tokens": 1.5, "completion_tokens": 3},
        {"prompt_tokens": True, "completion_tokens": 3},
        {"prompt_tokens": 2**60, "completion_tokens": 3},
    ],
)
def test_usage_that_does_not_tell_is_unknown_and_not_zero(usage: Any) -> None:
    assert read_usage(usage) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["choices", "message", "content", "refusal", "finish_reason", "text", "prompt_tokens",
             "completion_tokens", "prompt_tokens_details", "cached_tokens", "reasoning_tokens",
             "completion_tokens_details", "total_tokens"]
        ),
        inner,
        max_size=5,
    ),
    max_leaves=12,
)  # fmt: skip


@given(JSON)
def test_whatever_a_server_sends_usage_adds_up(usage: Any) -> None:
    found = read_usage(usage)
    if found is not None:
        assert all(count >= 0 for count in found)
        assert found.input + found.cached == usage["prompt_tokens"]
        assert found.reasoning <= found.output
        assert usage["completion_tokens"] <= found.output


@given(st.dictionaries(st.just("choices"), JSON))
def test_whatever_a_server_sends_is_a_text_or_a_problem(answer: Any) -> None:
    text, problem = read_choice(answer)
    assert isinstance(text, str)
    assert problem or text.strip()


def choice(content: Any = "{}", reason: Any = "stop", **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, **more}
    return {"choices": [{"index": 0, "message": message, "finish_reason": reason}]}


@pytest.mark.parametrize(
    ("answer", "text", "problem"),
    [
        (choice("A"), "A", None),
        (choice("A", None), "A", None),
        (choice([{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]), "AB", None),
        (choice([{"type": "image"}, 3, {"text": 4}]), "", "empty"),
        (choice(None, refusal="I can't help with that."), "I can't help with that.", "refused"),
        (choice('{"winner": "A"}', "length"), '{"winner": "A"}', "cut off at the limit"),
        (choice("", "length", reasoning_content="Hmm"), "", "cut off at the limit"),
        (choice("A", "content_filter"), "A", "content filter"),
        (choice(""), "", "empty"),
        (choice(" \n"), " \n", "empty"),
        (choice(None), "", "empty"),
        ({"choices": []}, "", "no message"),
        ({}, "", "no message"),
        ({"choices": [{"text": "old completions"}]}, "", "no message"),
    ],
)
def test_what_is_no_answer_is_told(answer: Any, text: str, problem: str | None) -> None:
    found, told = read_choice(answer)
    assert found == text
    assert (told is None) == (problem is None)
    assert (problem or "") in (told or "")
