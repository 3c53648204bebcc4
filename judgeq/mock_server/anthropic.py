"""The mock server in the words of Anthropic's messages, as strict as that API is about what it is sent.

Names, limits and errors are those of platform.claude.com/docs/en/api/messages, …/errors and
…/rate-limits, and of the types in anthropic-sdk-python.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from judgeq.mock_server.asked import Asked
from judgeq.mock_server.behaviour import Room
from judgeq.mock_server.forms import Answered
from judgeq.mock_server.wire import as_json

REASONS = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}
# What a schema of structured outputs may not hold.
UNSUPPORTED = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "maxItems", "uniqueItems"),
    }
)


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class _Part(_Strict):
    type: Literal["text"]
    text: str = Field(min_length=1)
    cache_control: dict[str, Any] | None = None


class _Message(_Strict):
    role: Literal["user", "assistant"]
    content: str | list[_Part]


class _Format(_Strict):
    type: Literal["json_schema"]
    fields: dict[str, Any] = Field(alias="schema")


class _Output(_Strict):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: _Format | None = None


class _Tool(_Strict):
    name: str
    input_schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None


class _Choice(_Strict):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class _Body(_Strict):
    model: str
    max_tokens: Annotated[int, Field(ge=1)]
    messages: list[_Message] = Field(min_length=1)
    system: str | list[_Part] | None = None
    temperature: float | None = Field(None, ge=0, le=1)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=0)
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    metadata: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    cache_control: dict[str, Any] | None = None
    inference_geo: str | None = None
    speed: Literal["standard", "fast"] | None = None
    output_config: _Output | None = None
    tools: list[_Tool] | None = None
    tool_choice: _Choice | None = None


def error(
    status: int,
    message: str,
    *,
    kind: str = "invalid_request_error",
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """An error as Anthropic writes it."""
    return as_json({"type": "error", "error": {"type": kind, "message": message}}, status, headers)


class AnthropicForm:
    """See Form."""

    def read(self, data: bytes, headers: Mapping[str, str]) -> Asked | web.Response:
        """See Form."""
        if "anthropic-version" not in headers:
            return error(400, "anthropic-version: header is required")
        try:
            body = orjson.loads(data)
        except orjson.JSONDecodeError:
            body = None
        if not isinstance(body, dict):
            return error(400, "The request body is not valid JSON.")
        messages = body.get("messages")
        roles = [part.get("role") for part in messages or () if isinstance(part, dict)]
        if "system" in roles:
            return error(
                400,
                'messages: Unexpected role "system". The Messages API accepts a top-level `system` '
                'parameter, not "system" as an input message role.',
            )
        try:
            asked = _Body.model_validate(body)
        except ValidationError as invalid:
            first = invalid.errors()[0]
            return error(400, f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
        if asked.stream:
            return error(400, "stream: this server answers in one piece only")
        problem = _form_problem(asked)
        return error(400, problem) if problem else _asked(asked, body)

    def key_in(self, headers: Mapping[str, str]) -> str:
        """See Form."""
        return headers.get("x-api-key") or headers.get("Authorization", "")

    def fits(self, key: str, headers: Mapping[str, str]) -> bool:
        """See Form."""
        return self.key_in(headers) in (key, f"Bearer {key}")

    def rates(self, rooms: Mapping[str, Room | None], now: float) -> dict[str, str]:
        """See Form. What is limited is input and output together, which go by "tokens"."""
        return {
            f"anthropic-ratelimit-{name}-{what}": value
            for name, room in rooms.items()
            if room is not None
            for what, value in (
                ("limit", f"{room.limit:.0f}"),
                ("remaining", f"{room.remaining:.0f}"),
                ("reset", _moment(now + room.reset)),
            )
        }

    def answer(self, asked: Asked, answered: Answered) -> dict[str, Any]:
        """See Form."""
        text, refusal = answered.message.get("content"), answered.message.get("refusal")
        reason = "refusal" if refusal else REASONS[answered.reason]
        content: list[dict[str, Any]] = []
        if answered.usage is not None and answered.usage.reasoning:
            content.append({"type": "thinking", "thinking": "Let me see.", "signature": "mock"})
        called = _loaded(text) if asked.structured == 1 and not refusal else None
        if called is not None:
            tool = {"type": "tool_use", "id": f"toolu_{answered.number}"}
            content.append({**tool, "name": asked.body["tool_choice"]["name"], "input": called})
            reason = "tool_use" if reason == "end_turn" else reason
        elif text or refusal:
            content.append({"type": "text", "text": refusal or text})
        return {
            "id": f"msg_{answered.number}",
            "type": "message",
            "role": "assistant",
            "model": asked.body["model"],
            "content": content,
            "stop_reason": reason,
            "stop_sequence": None,
            **({} if answered.usage is None else {"usage": _usage(asked, answered)}),
        }

    def listed(self, name: str) -> web.Response:
        """See Form."""
        page = {"data": [_model(name)], "has_more": False, "first_id": name, "last_id": name}
        return as_json(page)

    def model(self, name: str) -> web.Response:
        """See Form."""
        return as_json(_model(name))

    def no_model(self, name: object) -> web.Response:
        """See Form."""
        return error(404, f"model: {name}", kind="not_found_error")

    def wrong_key(self, shown: str) -> web.Response:
        """See Form."""
        return error(401, f"invalid x-api-key{shown}", kind="authentication_error")

    def unstructured(self, asked: Asked, shown: str) -> web.Response:
        """See Form."""
        field = "output_config.format" if asked.structured == 2 else "tool_choice"
        return error(400, f"{field}: Extra inputs are not permitted{shown}")

    def too_long(self, sent: int, longest: int) -> web.Response:
        """See Form."""
        return error(400, f"prompt is too long: {sent} tokens > {longest} maximum")

    def no_quota(self) -> web.Response:
        """See Form."""
        return error(
            400,
            "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing "
            "to upgrade or purchase credits.",
        )

    def limited(self, wait: float, headers: Mapping[str, str]) -> web.Response:
        """See Form."""
        return error(
            429,
            "This request would exceed your organization's rate limit.",
            kind="rate_limit_error",
            headers={**headers, "retry-after": str(math.ceil(wait))},
        )

    def slow_down(self, seconds: float | None) -> web.Response:
        """See Form."""
        more = {} if seconds is None else {"retry-after": f"{seconds:g}"}
        return error(
            429,
            "Number of requests has exceeded your limit.",
            kind="rate_limit_error",
            headers=more,
        )

    def failed(self, shown: str, *, even: bool) -> web.Response:
        """See Form: it broke, or has too much to do."""
        if even:
            return error(529, f"Overloaded{shown}", kind="overloaded_error")
        return error(500, f"Internal server error{shown}", kind="api_error")


def _asked(asked: _Body, body: Mapping[str, Any]) -> Asked:
    texts = [] if asked.system is None else [_text(asked.system)]
    texts += [_text(message.content) for message in asked.messages]
    form = asked.output_config and asked.output_config.format
    schema, structured = (form.fields, 2) if form else (None, 0)
    if asked.tools and asked.tool_choice and asked.tool_choice.type == "tool":
        schema, structured = asked.tools[0].input_schema, 1
    question = [{"role": "system", "content": body.get("system")}, *body["messages"]]
    return Asked(body, question, texts, structured, schema)


def _form_problem(asked: _Body) -> str | None:
    """Why the form that a reply is to have is refused, or None."""
    choice, names = asked.tool_choice, [tool.name for tool in asked.tools or ()]
    if choice is not None and choice.type == "tool":
        if choice.name not in names:
            return f"tool_choice: Tool '{choice.name}' not found in provided tools"
        if asked.thinking and asked.thinking.get("type") != "disabled":
            return "Thinking may not be enabled when tool_choice forces tool use."
    if asked.output_config is None or asked.output_config.format is None:
        return None
    for part in _parts(asked.output_config.format.fields):
        kind = part.get("type")
        for name in UNSUPPORTED.intersection(part):
            return f"output_config.format.schema: For '{kind}' type, property '{name}' is not supported"
        if kind == "object" and part.get("additionalProperties") is not False:
            return (
                "output_config.format.schema: For 'object' type, 'additionalProperties' must be "
                "explicitly set to false"
            )
    return None


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """A schema, and all schemas within."""
    if not isinstance(schema, dict):
        return
    yield schema
    inner = [*(schema.get("properties") or {}).values(), *(schema.get("anyOf") or ())]
    for part in (*inner, schema.get("items")):
        yield from _parts(part)


def _usage(asked: Asked, answered: Answered) -> dict[str, Any]:
    """Tokens; with `cache_control` all that was not read from the cache is written to it."""
    usage = answered.usage
    if usage is None:
        return {}
    cache = asked.body.get("cache_control")
    written = 0 if cache is None else usage.input
    hour = written if cache and cache.get("ttl") == "1h" else 0
    return {
        "input_tokens": usage.input - written,
        "cache_creation_input_tokens": written,
        "cache_creation": {
            "ephemeral_5m_input_tokens": written - hour,
            "ephemeral_1h_input_tokens": hour,
        },
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
        "service_tier": "standard",
    }


def _text(content: str | list[_Part]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


def _loaded(text: Any) -> dict[str, Any] | None:
    """The input of a tool that a reply's text is, or None."""
    try:
        value = orjson.loads(text or "")
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _model(name: str) -> dict[str, Any]:
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": "1970-01-01T00:00:00Z",
        "lifecycle": "active",
    }


def _moment(seconds: float) -> str:
    """A moment, by seconds since the epoch, as RFC 3339 has it."""
    return datetime.fromtimestamp(math.ceil(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
