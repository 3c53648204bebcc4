"""Messages, as Anthropic's API has them (platform.claude.com/docs/en/api/messages)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from judgeq.judge.http.model_backend import (
    EMPTY,
    REFUSED,
    Answer,
    ModelBackend,
    count_in,
    objects_in,
    text_in,
)
from judgeq.types import Fields, Usage

VERSION = "2023-06-01"
TOOL = "answer"
_PROBLEMS = {
    "max_tokens": "the answer was cut off at the limit of output tokens.",
    "model_context_window_exceeded": "the answer was cut off at the end of the model's context.",
    "pause_turn": "the model paused before its answer was whole.",
    "refusal": REFUSED,
}


class AnthropicMessages(ModelBackend):
    """The backend.

    Replies are structured by `output_config`; where a server or a model doesn't know that, by a tool
    that has to be called, whose input is the reply; then in words alone.
    """

    path = "messages"

    def authorize(self, headers: dict[str, str], secret: str | None) -> None:
        """Add the key, and the version of the API."""
        there = {name.lower() for name in headers}
        if secret is not None and not there & {"x-api-key", "authorization"}:
            headers["x-api-key"] = secret
        if "anthropic-version" not in there:
            headers["anthropic-version"] = VERSION

    def opening(self, messages: Sequence[Mapping[str, str]]) -> bytes:
        """A body up to its messages, and these; what the system says stands next to the messages."""
        system = "\n\n".join(part["content"] for part in messages if part["role"] == "system")
        others = [part for part in messages if part["role"] != "system"]
        before = b',"system":' + orjson.dumps(system) if system else b""
        return self.head + before + b',"messages":' + orjson.dumps(others)

    def fields(self, k: int) -> Fields:
        """What follows in the body of a question about k texts. A limit on output has to be sent."""
        model = self.model
        sent: Fields = {"max_tokens": model.max_output_tokens or self.output_bound}
        if model.temperature is not None:
            sent["temperature"] = model.temperature
        sent |= model.extra_body or {}
        output: Fields = {}
        if model.reasoning_effort is not None:
            output["effort"] = model.reasoning_effort
        if self.mode == "schema":
            output["format"] = {"type": "json_schema", "schema": self.schema(k)}
        elif self.mode == "json":
            sent["tools"] = [
                {"name": TOOL, "description": "Give your answer.", "input_schema": self.schema(k)}
            ]
            sent["tool_choice"] = {"type": "tool", "name": TOOL, "disable_parallel_tool_use": True}
        return sent | ({"output_config": output} if output else {})

    def read(self, answer: Fields) -> Answer:
        """What a message says: the input of a tool that was called, else its text, without what it
        thought."""
        usage, content = read_usage(answer.get("usage")), answer.get("content")
        if not isinstance(content, list):
            return Answer(usage, "", "the answer held no message.")
        blocks = objects_in(content)
        called = [block.get("input") for block in blocks if block.get("type") == "tool_use"]
        text = text_in([block for block in blocks if block.get("type") == "text"])
        if called and isinstance(called[0], dict):
            text = orjson.dumps(called[0]).decode()
        reason = answer.get("stop_reason")
        problem = _PROBLEMS.get(reason) if isinstance(reason, str) else None
        return Answer(usage, text, problem or (None if text.strip() else EMPTY))


def read_usage(usage: Any) -> Usage | None:
    """Tokens of a message; None where it doesn't say. What was written to the provider's cache is
    input."""
    read, output = count_in(usage, "input_tokens"), count_in(usage, "output_tokens")
    if read is None or output is None:
        return None
    written = count_in(usage, "cache_creation_input_tokens") or 0
    cached = count_in(usage, "cache_read_input_tokens") or 0
    thought = count_in(usage.get("output_tokens_details"), "thinking_tokens") or 0
    return Usage(read + written, cached, output, min(thought, output))
