"""Messages, as Anthropic's API has them (platform.claude.com/docs/en/api/messages)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from judgeq.judge.http.model_backend import ModelBackend
from judgeq.judge.http.responses import Answer, read_message
from judgeq.types import Fields

VERSION = "2023-06-01"
WRITING = 2
"""Times the price of input that input costs which is written to the provider's cache: for an hour; for
five minutes it is 1.25 times (platform.claude.com/docs/en/build-with-claude/prompt-caching)."""
TOOL = "answer"


class AnthropicMessages(ModelBackend):
    """The backend.

    Replies are structured by `output_config`; where a server or a model doesn't know that, by a tool
    that has to be called, whose input is the reply; then in words alone.
    """

    path = "messages"

    def start(self) -> None:
        """Keep the head of each body, and the price of writing to the cache."""
        self._server += " messages"  # where a gateway speaks both forms
        self._head = b'{"model":' + orjson.dumps(self.model_id)
        if b'"cache_control"' in orjson.dumps(self.model.extra_body):
            self.reading = WRITING

    def authorize(self, headers: dict[str, str], secret: str | None) -> None:
        """Add the key, and the version of the API."""
        there = {name.lower() for name in headers}
        if secret is not None and not there & {"x-api-key", "authorization"}:
            headers["x-api-key"] = secret
        if "anthropic-version" not in there:
            headers["anthropic-version"] = VERSION

    def models_url(self) -> str:
        """Where the server lists its models: a page holds 20 where none says otherwise."""
        url = super().models_url()
        return url if "?" in url else f"{url}?limit=1000"

    def opening(self, messages: Sequence[Mapping[str, str]]) -> bytes:
        """A body up to its messages, and these; what the system says stands next to the messages."""
        system = "\n\n".join(part["content"] for part in messages if part["role"] == "system")
        others = [part for part in messages if part["role"] != "system"]
        before = b',"system":' + orjson.dumps(system) if system else b""
        return self._head + before + b',"messages":' + orjson.dumps(others)

    def fields(self, k: int) -> Fields:
        """What follows in the body of a question about k texts. A limit on output has to be sent."""
        model = self.model
        fields: Fields = {
            "max_tokens": model.max_output_tokens or self.output_bound,
            "temperature": model.temperature,
        }
        sent = {name: value for name, value in fields.items() if value is not None}
        sent |= model.extra_body or {}
        output: Fields = {}
        if model.reasoning_effort is not None:
            output["effort"] = model.reasoning_effort
        if self.mode == "schema":
            output["format"] = {"type": "json_schema", "schema": self.schema(k)}
        elif self.mode == "json":
            tool = {
                "name": TOOL,
                "description": "Give your answer.",
                "input_schema": self.schema(k),
            }
            choice = {"type": "tool", "name": TOOL, "disable_parallel_tool_use": True}
            sent |= {"tools": [tool], "tool_choice": choice}
        return sent | ({"output_config": output} if output else {})

    def read(self, answer: Fields) -> Answer:
        """What a message says."""
        return read_message(answer)
