"""The mock server in the words of OpenAI's chat completions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from judgeq.mock_server import asked as asking
from judgeq.mock_server.asked import Asked
from judgeq.mock_server.behaviour import Room
from judgeq.mock_server.forms import Answered
from judgeq.mock_server.wire import as_json, error


class OpenAIForm:
    """See Form."""

    def read(self, data: bytes, headers: Mapping[str, str]) -> Asked | web.Response:
        """See Form."""
        return asking.read(data)

    def key_in(self, headers: Mapping[str, str]) -> str:
        """See Form."""
        return headers.get("Authorization", "")

    def fits(self, key: str, headers: Mapping[str, str]) -> bool:
        """See Form."""
        return self.key_in(headers) == f"Bearer {key}"

    def rates(self, rooms: Mapping[str, Room | None], now: float) -> dict[str, str]:
        """See Form."""
        return {
            f"x-ratelimit-{what}-{name}": value
            for name, room in rooms.items()
            if room is not None
            for what, value in (
                ("limit", f"{room.limit:.0f}"),
                ("remaining", f"{room.remaining:.0f}"),
                ("reset", f"{room.reset:.3f}s"),
            )
        }

    def answer(self, asked: Asked, answered: Answered) -> dict[str, Any]:
        """See Form."""
        completion: dict[str, Any] = {
            "id": f"chatcmpl-{answered.number}",
            "object": "chat.completion",
            "created": int(answered.at),
            "model": asked.body["model"],
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "refusal": None, **answered.message},
                    "logprobs": answered.logprobs,
                    "finish_reason": answered.reason,
                }
            ],
        }
        usage = answered.usage
        if usage is not None:
            prompt = usage.input + usage.cached
            completion["usage"] = {
                "prompt_tokens": prompt,
                "completion_tokens": usage.output - answered.beside,
                "total_tokens": prompt + usage.output,
                "prompt_tokens_details": {"cached_tokens": usage.cached},
                "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
            }
        return completion

    def listed(self, name: str) -> web.Response:
        """See Form."""
        listed = [{"id": name, "object": "model", "created": 0, "owned_by": "judgeq"}]
        return as_json({"object": "list", "data": listed})

    def model(self, name: str) -> web.Response:
        """See Form."""
        return as_json({"id": name, "object": "model", "created": 0})

    def no_model(self, name: object) -> web.Response:
        """See Form."""
        return error(
            404,
            f"The model `{name}` does not exist or you do not have access to it.",
            code="model_not_found",
        )

    def wrong_key(self, shown: str) -> web.Response:
        """See Form."""
        return error(401, f"Incorrect API key provided:{shown or ' ***.'}", code="invalid_api_key")

    def unstructured(self, asked: Asked, shown: str) -> web.Response:
        """See Form."""
        kind = asked.body["response_format"]["type"]
        return error(
            400,
            f"Invalid parameter: 'response_format' of type '{kind}' is not supported with this "
            f"model.{shown}",
            param="response_format",
        )

    def too_long(self, sent: int, longest: int) -> web.Response:
        """See Form."""
        return error(
            400,
            f"This model's maximum context length is {longest} tokens. However, your messages "
            f"resulted in {sent} tokens. Please reduce the length of the messages.",
            code="context_length_exceeded",
            param="messages",
        )

    def no_quota(self) -> web.Response:
        """See Form."""
        return error(
            429,
            "You exceeded your current quota, please check your plan and billing details.",
            kind="insufficient_quota",
            code="insufficient_quota",
        )

    def limited(self, wait: float, headers: Mapping[str, str]) -> web.Response:
        """See Form."""
        waits = {
            "Retry-After": str(math.ceil(wait)),
            "retry-after-ms": str(math.ceil(wait * 1000)),
        }
        return error(
            429,
            f"Rate limit reached. Please try again in {wait:.3f}s.",
            kind="requests",
            code="rate_limit_exceeded",
            headers={**headers, **waits},
        )

    def slow_down(self, seconds: float | None) -> web.Response:
        """See Form."""
        more = {} if seconds is None else {"Retry-After": f"{seconds:g}"}
        return error(429, "Slow down.", code="rate_limit_exceeded", headers=more)

    def failed(self, shown: str, *, even: bool) -> web.Response:
        """See Form."""
        return error(500, f"The server had an error.{shown}", kind="server_error")
