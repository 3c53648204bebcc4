"""Chat completions of OpenAI and of servers that speak like it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import orjson

from judgeq.judge.http.model_backend import ModelBackend
from judgeq.judge.http.responses import Answer, read_completion
from judgeq.settings.model import LIMIT_FIELDS
from judgeq.types import Fields


class OpenAIChat(ModelBackend):
    """The backend."""

    path = "chat/completions"
    limit_fields = LIMIT_FIELDS

    def start(self) -> None:
        """Choose the name of the limit on output, and keep the head of each body."""
        # OpenAI's reasoning models refuse the old name, and many other servers don't know the new.
        if urlsplit(self.address).hostname != "api.openai.com" and not is_azure(self.address):
            self.limit_field = LIMIT_FIELDS[1]
        self._head = b'{"model":' + orjson.dumps(self.model_id) + b',"messages":'

    def authorize(self, headers: dict[str, str], secret: str | None) -> None:
        """Add the key as a bearer's token; Azure takes a header of its own."""
        if secret is not None and not any(name.lower() == "authorization" for name in headers):
            headers["Authorization"] = f"Bearer {secret}"
            if is_azure(self.address):
                headers.setdefault("api-key", secret)

    def opening(self, messages: Sequence[Mapping[str, str]]) -> bytes:
        """A body up to its messages, and these."""
        return self._head + orjson.dumps(messages)

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
            sent["response_format"] = {
                "type": "json_schema",
                "json_schema": {
                    "name": "answer",
                    "strict": True,
                    "schema": self.schema(k),
                },
            }
        elif self.mode == "json":
            sent["response_format"] = {"type": "json_object"}
        return sent

    def read(self, answer: Fields) -> Answer:
        """What a chat completion says."""
        return read_completion(answer)


def is_azure(address: str) -> bool:
    """Whether it is Azure's, which has ways of its own."""
    return (urlsplit(address).hostname or "").endswith((".azure.com", ".azure-api.net"))
