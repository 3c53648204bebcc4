"""Chat completions of OpenAI and of servers that speak like it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import orjson

from judgeq.judge.http.model_backend import (
    EMPTY,
    REFUSED,
    Answer,
    ModelBackend,
    count_in,
    fields_in,
    text_in,
)
from judgeq.settings.model import LIMIT_FIELDS
from judgeq.types import Fields, Usage

_PROBLEMS = {
    "length": "the answer was cut off at the limit of output tokens.",
    "content_filter": "the provider's content filter cut the answer off.",
}


class OpenAIChat(ModelBackend):
    """The backend."""

    path = "chat/completions"
    limit_fields = LIMIT_FIELDS

    def first_limit(self) -> str:
        """OpenAI's reasoning models refuse the old name of the limit, and many other servers don't know
        the new."""
        own = urlsplit(self.address).hostname == "api.openai.com" or is_azure(self.address)
        return LIMIT_FIELDS[0 if own else 1]

    def authorize(self, headers: dict[str, str], secret: str | None) -> None:
        """Add the key as a bearer's token; Azure takes a header of its own."""
        if secret is not None and not any(name.lower() == "authorization" for name in headers):
            headers["Authorization"] = f"Bearer {secret}"
            if is_azure(self.address):
                headers.setdefault("api-key", secret)

    def opening(self, messages: Sequence[Mapping[str, str]]) -> bytes:
        """A body up to its messages, and these."""
        return self.head + b',"messages":' + orjson.dumps(messages)

    def fields(self, k: int) -> Fields:
        """What follows in the body of a question about k texts: sampling, limit, the reply's form."""
        model = self.model
        fields: Fields = {
            "temperature": model.temperature,
            "reasoning_effort": model.reasoning_effort,
            self.limit_field: model.max_output_tokens,
        }
        sent = {name: value for name, value in fields.items() if value is not None}
        sent |= model.extra_body or {}
        if self.mode == "schema":
            form = {"name": "answer", "strict": True, "schema": self.schema(k)}
            sent["response_format"] = {"type": "json_schema", "json_schema": form}
        elif self.mode == "json":
            sent["response_format"] = {"type": "json_object"}
        return sent

    def read(self, answer: Fields) -> Answer:
        """What a chat completion says: the text of its first choice."""
        usage, choices = read_usage(answer.get("usage")), answer.get("choices")
        choice = fields_in(choices[0]) if isinstance(choices, list) and choices else {}
        message = choice.get("message")
        if not isinstance(message, dict):
            return Answer(usage, "", "the answer held no message.")
        text, reason = text_in(message.get("content")), choice.get("finish_reason")
        refusal = message.get("refusal")
        if isinstance(refusal, str) and refusal:
            return Answer(usage, refusal, REFUSED)
        problem = _PROBLEMS.get(reason) if isinstance(reason, str) else None
        return Answer(usage, text, problem or (None if text.strip() else EMPTY))


def read_usage(usage: Any) -> Usage | None:
    """Tokens of an answer: cached input apart, reasoning inside output. None where it doesn't say.

    Most servers count reasoning in `completion_tokens`; xAI and Gemini count it beside them, and in
    the total alone. Where that can't be seen, the larger reading is taken: it was perhaps billed.
    """
    prompt, output = count_in(usage, "prompt_tokens"), count_in(usage, "completion_tokens")
    if prompt is None or output is None:
        return None
    # DeepSeek has a name of its own for what was cached, Perplexity another place for reasoning.
    cached = count_in(usage.get("prompt_tokens_details"), "cached_tokens")
    cached = min(cached or count_in(usage, "prompt_cache_hit_tokens") or 0, prompt)
    reasoning = count_in(usage.get("completion_tokens_details"), "reasoning_tokens")
    reasoning = reasoning or count_in(usage, "reasoning_tokens") or 0
    total = count_in(usage, "total_tokens") or 0
    if reasoning > output or total != prompt + output:
        output = max(output + reasoning, total - prompt)
    return Usage(prompt - cached, cached, output, reasoning)


def is_azure(address: str) -> bool:
    """Whether it is Azure's, which has ways of its own."""
    return (urlsplit(address).hostname or "").endswith((".azure.com", ".azure-api.net"))
