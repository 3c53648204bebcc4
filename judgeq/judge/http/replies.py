"""What a chat completion says: its text, why it may be none, and what it took.

A server may be anybody's: whatever is not as documented is reported as a problem, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from judgeq.types import Usage


class Answer(NamedTuple):
    """What a successful answer says: its tokens (None where it doesn't say), its text, and why that is
    no answer, if it is none."""

    usage: Usage | None
    text: str
    problem: str | None


def read_completion(answer: Mapping[str, Any]) -> Answer:
    """What a chat completion says."""
    return Answer(read_usage(answer.get("usage")), *read_choice(answer))


def read_usage(usage: Any) -> Usage | None:
    """Tokens of an answer: cached input apart, reasoning inside output. None where it doesn't say.

    Most servers count reasoning in `completion_tokens`; xAI and Gemini count it beside them, and in
    the total alone. Where that can't be seen, the larger reading is taken: it was perhaps billed.
    """
    if not isinstance(usage, dict):
        return None
    prompt, output = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    if prompt is None or output is None:
        return None
    cached = _count(usage.get("prompt_tokens_details"), "cached_tokens")
    if cached is None:
        cached = _count(usage, "prompt_cache_hit_tokens") or 0  # DeepSeek's name
    cached = min(cached, prompt)
    reasoning = _count(usage.get("completion_tokens_details"), "reasoning_tokens")
    if reasoning is None:
        reasoning = _count(usage, "reasoning_tokens") or 0  # Perplexity's place
    total = _count(usage, "total_tokens") or 0
    if reasoning > output or total != prompt + output:
        output = max(output + reasoning, total - prompt)
    return Usage(prompt - cached, cached, output, reasoning)


def _count(fields: Any, name: str) -> int | None:
    value = fields.get(name) if isinstance(fields, dict) else None
    return value if type(value) is int and 0 <= value < 2**53 else None


def read_choice(answer: Mapping[str, Any]) -> tuple[str, str | None]:
    """The text of the first choice, and why it is no answer, if it is none."""
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
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
    if not isinstance(content, list):
        return ""
    parts = [part.get("text") for part in content if isinstance(part, dict)]
    return "".join(part for part in parts if isinstance(part, str))
