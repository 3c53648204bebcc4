"""Answers of the mock server as they go over the wire: OpenAI's errors, answers spoilt."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from aiohttp import web


def spoilt(answer: str, fault: str) -> tuple[dict[str, Any], str]:
    """The message and why it ended, with a fault put in."""
    match fault:
        case "unreadable":
            return {"content": "I would rather not rank these, sorry."}, "stop"
        case "incomplete":
            return {"content": answer.replace('"A"', '"B"')}, "stop"
        case "refused":
            return {"content": None, "refusal": "I'm sorry, I can't help with that."}, "stop"
        case "cut_off":
            return {"content": answer[: len(answer) // 2]}, "length"
        case "filtered":
            return {"content": ""}, "content_filter"
        case "wrapped":
            return {"content": f"Here is my answer.\n\n```json\n{answer}\n```\n"}, "stop"
    return {"content": answer}, "stop"


def kept_to(answer: str, labels: Sequence[str], schema: Mapping[str, Any]) -> str:
    """The answer in the words that a schema allows: for each label the one in its place."""
    words = _words(schema)
    if len(words) < len(labels) or list(labels) == words[: len(labels)]:
        return answer
    allowed = dict(zip(labels, words, strict=False))
    return re.sub(r'"([A-Z]+)"', lambda label: f'"{allowed.get(label[1], label[1])}"', answer)


def _words(schema: Any) -> list[str]:
    """The words of the first enum in a schema."""
    values = schema.values() if isinstance(schema, dict) else schema
    if not isinstance(schema, dict | list):
        return []
    if isinstance(schema, dict) and isinstance(schema.get("enum"), list):
        return [str(word) for word in schema["enum"]]
    return next((words for value in values if (words := _words(value))), [])


async def drop(request: web.Request, body: bytes, *, half: bool) -> web.StreamResponse:
    """Cut the connection, before or in the middle of the answer."""
    response = web.StreamResponse(headers={"Content-Length": str(len(body))})
    if half:
        await response.prepare(request)
        await response.write(body[: len(body) // 2])
    if request.transport is not None:
        request.transport.close()
    return response


def as_json(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """An answer in JSON."""
    return web.Response(
        body=orjson.dumps(value), status=status, content_type="application/json", headers=headers
    )


def error(
    status: int,
    message: str,
    *,
    kind: str = "invalid_request_error",
    code: str | None = None,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """An error as OpenAI writes it."""
    fields = {"message": message, "type": kind, "param": param, "code": code}
    return as_json({"error": fields}, status, headers)
