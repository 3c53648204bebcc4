"""What an answer says, by the form of API: its text, why it may be none, and what it took.

A server may be anybody's: whatever is not as documented is reported as a problem, never guessed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from judgeq.types import Fields, Usage


class Answer(NamedTuple):
    """What a successful answer says: its tokens (None where it doesn't say), its text, and why that is
    no answer, if it is none. It is billed as if it had read so many tokens `more`."""

    usage: Usage | None
    text: str
    problem: str | None
    more: int = 0


def read_completion(answer: Fields) -> Answer:
    """What a chat completion says."""
    return Answer(read_usage(answer.get("usage")), *read_choice(answer))


def read_usage(usage: Any) -> Usage | None:
    """Tokens of an answer: cached input apart, reasoning inside output. None where it doesn't say.

    Most servers count reasoning in `completion_tokens`; xAI and Gemini count it beside them, and in
    the total alone. Where that can't be seen, the larger reading is taken: it was perhaps billed.
    """
    if not isinstance(usage, dict):
        return None
    prompt, output = count_in(usage, "prompt_tokens"), count_in(usage, "completion_tokens")
    if prompt is None or output is None:
        return None
    cached = count_in(usage.get("prompt_tokens_details"), "cached_tokens")
    if cached is None:
        cached = count_in(usage, "prompt_cache_hit_tokens") or 0  # DeepSeek's name
    cached = min(cached, prompt)
    reasoning = count_in(usage.get("completion_tokens_details"), "reasoning_tokens")
    if reasoning is None:
        reasoning = count_in(usage, "reasoning_tokens") or 0  # Perplexity's place
    total = count_in(usage, "total_tokens") or 0
    if reasoning > output or total != prompt + output:
        output = max(output + reasoning, total - prompt)
    return Usage(prompt - cached, cached, output, reasoning)


def count_in(fields: Any, name: str) -> int | None:
    """A number of something; None where it doesn't say."""
    value = fields_in(fields).get(name)
    return value if type(value) is int and 0 <= value < 2**53 else None


def fields_in(value: Any) -> Fields:
    """A JSON object's fields; none for anything else."""
    return value if isinstance(value, dict) else {}


def objects_in(value: Any) -> list[Fields]:
    """The objects in a list; none for anything else."""
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def object_in(data: bytes) -> Fields | None:
    """A JSON object; None for anything else."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def read_choice(answer: Fields) -> tuple[str, str | None]:
    """The text of the first choice, and why it is no answer, if it is none."""
    choices = answer.get("choices")
    choice = fields_in(choices[0]) if isinstance(choices, list) and choices else {}
    message = choice.get("message")
    if not isinstance(message, dict):
        return "", "the answer held no message."
    text, reason = _text(message.get("content")), choice.get("finish_reason")
    refusal = message.get("refusal")
    if isinstance(refusal, str) and refusal:
        return refusal, "the model refused to answer."
    if reason == "length":
        return text, "the answer was cut off at the limit of output tokens."
    if reason == "content_filter":
        return text, "the provider's content filter cut the answer off."
    if not text.strip():
        return text, "the answer was empty."
    return text, None


def _text(content: Any) -> str:
    """A message's content: a string, or parts of which some are text."""
    if isinstance(content, str):
        return content
    parts = [part.get("text") for part in objects_in(content)]
    return "".join(part for part in parts if isinstance(part, str))


_CUT_OFF = {
    "max_tokens": "the answer was cut off at the limit of output tokens.",
    "model_context_window_exceeded": "the answer was cut off at the end of the model's context.",
    "pause_turn": "the model paused before its answer was whole.",
}


def read_message(answer: Fields) -> Answer:
    """What a message of Anthropic's API says: the input of a tool that was called, else its text.

    What it thought is left out. What was written to the provider's cache costs 1.25 times what other
    input does, and kept for an hour twice as much, as is assumed where it doesn't say for how long.
    """
    usage, more = _message_usage(answer.get("usage"))
    content = answer.get("content")
    if not isinstance(content, list):
        return Answer(usage, "", "the answer held no message.", more)
    blocks = objects_in(content)
    called = [block.get("input") for block in blocks if block.get("type") == "tool_use"]
    text = _text([block for block in blocks if block.get("type") == "text"])
    if called and isinstance(called[0], dict):
        text = orjson.dumps(called[0]).decode()
    reason = answer.get("stop_reason")
    problem = _CUT_OFF.get(reason) if isinstance(reason, str) else None
    if reason == "refusal":
        problem = "the model refused to answer."
    elif problem is None and not text.strip():
        problem = "the answer was empty."
    return Answer(usage, text, problem, more)


def _message_usage(usage: Any) -> tuple[Usage | None, int]:
    """Tokens of a message, and how many more it is billed as for writing to the cache."""
    if not isinstance(usage, dict):
        return None, 0
    read, output = count_in(usage, "input_tokens"), count_in(usage, "output_tokens")
    if read is None or output is None:
        return None, 0
    cached = count_in(usage, "cache_read_input_tokens") or 0
    briefly = count_in(usage.get("cache_creation"), "ephemeral_5m_input_tokens") or 0
    written = count_in(usage, "cache_creation_input_tokens") or 0
    written = max(
        written, briefly + (count_in(usage.get("cache_creation"), "ephemeral_1h_input_tokens") or 0)
    )
    thought = count_in(usage.get("output_tokens_details"), "thinking_tokens") or 0
    more = written - briefly + (briefly + 3) // 4
    return Usage(read + written, cached, output, min(thought, output)), more
