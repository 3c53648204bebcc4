"""Anthropic's message batches.

Fields, states and limits are those of platform.claude.com/docs/en/api/messages/batches and of the types
in anthropic-sdk-python.
"""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from typing import Any

import orjson
from aiohttp import web

from judgeq.mock_server.answering import Reply
from judgeq.mock_server.anthropic import error
from judgeq.mock_server.batches import (
    BURST,
    DAY,
    ENDED,
    Batch,
    Batches,
    Lines,
    State,
    line_of,
    read_all,
)
from judgeq.mock_server.forms import Form
from judgeq.mock_server.wire import as_json, drop

MOST_LINES = 100_000
MOST_BYTES = 256 * 1024 * 1024
BROKE = b'{"type":"error","error":{"type":"api_error","message":"Internal server error"}}'
NAMED = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class AnthropicBatches:
    """The handlers, and how lines are read and results written (see Written)."""

    kept: float = 29 * DAY

    def __init__(self, batches: Batches, form: Form) -> None:
        self.form = form
        self._batches = batches

    def routes(self) -> list[web.RouteDef]:
        """Where they are."""
        return [
            web.post("/v1/messages/batches", self.create),
            web.get("/v1/messages/batches", self.listed),
            web.get("/v1/messages/batches/{id}", self.batch),
            web.get("/v1/messages/batches/{id}/results", self.results),
            web.post("/v1/messages/batches/{id}/cancel", self.cancel),
            web.delete("/v1/messages/batches/{id}", self.delete),
        ]

    async def create(self, request: web.Request) -> web.StreamResponse:
        """Create a batch."""
        if "anthropic-version" not in request.headers:
            return error(400, "anthropic-version: header is required")
        body = await read_all(request.content.iter_any(), MOST_BYTES)
        if body is None:
            text = "Request exceeds the maximum allowed number of bytes."
            return error(413, text, kind="request_too_large")
        try:
            asked = orjson.loads(body)
        except orjson.JSONDecodeError:
            return error(400, "The request body is not valid JSON.")
        body.clear()
        requests: Any = asked.get("requests") if isinstance(asked, dict) else None
        if (problem := _problem(requests)) is not None:
            return error(400, problem)
        batches = self._batches
        if batches.drawn("limited") is not None:
            return self.form.slow_down(batches.settings.retry_after)
        if (drawn := batches.drawn("invalid")) is not None:
            return error(
                400, f"requests.{int(drawn * len(requests))}.params: Input should be an object"
            )
        lines = Lines(await _in_lines(requests))
        if batches.full("anthropic", lines):
            return self.form.slow_down(batches.settings.retry_after)
        batch = batches.create("anthropic", self, lines)
        shown = self._shown(request, batch, batch.made, State.VALIDATING)
        unanswered = batches.drawn("unanswered")
        if unanswered is not None and unanswered < 0.5:
            return await drop(request, orjson.dumps(shown), half=unanswered < 0.25)
        return as_json(shown) if unanswered is None else self.form.failed("", even=False)

    async def listed(self, request: web.Request) -> web.Response:
        """A page of the list, the newest first."""
        query, batches = request.query, self._batches.listed("anthropic")
        limit = query.get("limit", "20")
        if not limit.isdecimal() or not 1 <= int(limit) <= 1000:
            return error(400, "limit: Input should be from 1 to 1000")
        if "before_id" in query and "after_id" in query:
            return error(400, "Only one of before_id and after_id can be provided")
        size, names = self._batches.page(int(limit)), [batch.id for batch in batches]
        for name in ("before_id", "after_id"):
            if name in query and query[name] not in names:
                return error(400, f"{name}: no batch with this id")
        if "before_id" in query:
            newer = batches[: names.index(query["before_id"])]
            page, more = newer[-size:], len(newer) > size
        else:
            older = batches[names.index(query["after_id"]) + 1 if "after_id" in query else 0 :]
            page, more = older[:size], len(older) > size
        return as_json(
            {
                "data": [await self._view(request, batch) for batch in page],
                "has_more": more,
                "first_id": page[0].id if page else None,
                "last_id": page[-1].id if page else None,
            }
        )

    async def batch(self, request: web.Request) -> web.Response:
        """How a batch stands."""
        batch = self._named(request)
        return _no_batch(request) if batch is None else as_json(await self._view(request, batch))

    async def results(self, request: web.Request) -> web.StreamResponse:
        """What became of each line."""
        batch = self._named(request)
        if batch is None:
            return _no_batch(request)
        now = await self._batches.catch_up(batch)
        if not batch.closed:
            return error(400, f"Batch {batch.id} has no available results: it has not ended.")
        if self._batches.gone(batch, now):
            text = f"The results of batch {batch.id} are no longer available."
            return error(404, text, kind="not_found_error")
        return await self._batches.send(request, batch, batch.output, batch.errors, sized=False)

    async def cancel(self, request: web.Request) -> web.Response:
        """Cancel a batch."""
        batch = self._named(request)
        if batch is None:
            return _no_batch(request)
        _, done = await self._batches.cancel(batch)
        if not done:
            return error(400, f"Batch {batch.id} cannot be canceled: its processing has ended.")
        return as_json(await self._view(request, batch))

    async def delete(self, request: web.Request) -> web.Response:
        """Delete a batch that ended."""
        batch = self._named(request)
        if batch is None:
            return _no_batch(request)
        await self._batches.catch_up(batch)
        if not batch.closed:
            text = f"Batch {batch.id} cannot be deleted while it is processing: cancel it first."
            return error(400, text)
        batch.deleted = True
        return as_json({"id": batch.id, "type": "message_batch_deleted"})

    def _named(self, request: web.Request) -> Batch | None:
        return self._batches.find("anthropic", request.match_info["id"])

    async def _view(self, request: web.Request, batch: Batch) -> dict[str, Any]:
        now = await self._batches.catch_up(batch)
        return self._shown(request, batch, now, batch.state(now))

    def _shown(
        self, request: web.Request, batch: Batch, now: float, state: State
    ) -> dict[str, Any]:
        """A batch as the API shows it."""
        ended, cancelled, counts = state in ENDED, batch.cancelled, batch.counts
        going = "in_progress" if cancelled is None else "canceling"
        gone = ended and self._batches.gone(batch, now)
        address = f"{request.scheme}://{request.host}/v1/messages/batches/{batch.id}/results"
        return {
            "id": batch.id,
            "type": "message_batch",
            "processing_status": "ended" if ended else going,
            "request_counts": {
                "processing": 0 if ended else len(batch.lines),
                "succeeded": counts["succeeded"] if ended else 0,
                "errored": counts["failed"] if ended else 0,
                "canceled": counts["cancelled"] if ended else 0,
                "expired": counts["expired"] if ended else 0,
            },
            "ended_at": _moment(batch.end) if ended else None,
            "created_at": _moment(batch.made),
            "expires_at": _moment(batch.course.expires),
            "archived_at": _moment(now) if gone else None,
            "cancel_initiated_at": None if cancelled is None else _moment(cancelled),
            "results_url": address if ended and not gone else None,
        }

    # Lines

    def read(self, line: memoryview) -> tuple[str, bytes]:
        """See Written."""
        asked = orjson.loads(line)
        return asked["custom_id"], orjson.dumps(asked["params"])

    def result(self, batch: Batch, line: int, custom_id: str, reply: Reply) -> bytes:
        """See Written."""
        if reply.status == 200:
            result = {"type": "succeeded", "message": orjson.Fragment(reply.body)}
        else:
            result = {"type": "errored", "error": orjson.Fragment(reply.body or BROKE)}
        return line_of({"custom_id": custom_id, "result": result})

    def unasked(self, batch: Batch, line: int, custom_id: str, *, expired: bool) -> bytes:
        """See Written."""
        return line_of(
            {"custom_id": custom_id, "result": {"type": "expired" if expired else "canceled"}}
        )


def _no_batch(request: web.Request) -> web.Response:
    return error(404, f"No batch with id {request.match_info['id']}.", kind="not_found_error")


def _problem(requests: Any) -> str | None:
    """Why requests are refused, or None. What their `params` say is looked at later, line by line."""
    if not isinstance(requests, list):
        return "requests: Field required"
    if not 1 <= len(requests) <= MOST_LINES:
        return f"requests: List should have 1 to {MOST_LINES} items, not {len(requests)}"
    known: set[str] = set()
    for number, line in enumerate(requests):
        custom_id = line.get("custom_id") if isinstance(line, dict) else None
        if not isinstance(custom_id, str) or not NAMED.fullmatch(custom_id):
            return f"requests.{number}.custom_id: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'"
        if not isinstance(line.get("params"), dict):
            return f"requests.{number}.params: Input should be an object"
        if custom_id in known:
            return f"requests.{number}.custom_id: must be unique, but '{custom_id}' came before"
        known.add(custom_id)
    return None


async def _in_lines(requests: list[Any]) -> bytearray:
    """The requests line by line; the list is used up."""
    data = bytearray()
    requests.reverse()
    while requests:
        request = requests.pop()
        data += line_of({"custom_id": request["custom_id"], "params": request["params"]})
        if len(requests) % BURST == 0:
            await asyncio.sleep(0)
    return data


def _moment(seconds: float) -> str:
    """A moment, by seconds since the epoch, as RFC 3339 has it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
