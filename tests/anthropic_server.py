"""Anthropic's messages and message batches in front of the mock server: a test double, which translates.

What is asked goes on in OpenAI's form, and what comes back is translated: answers, refusals, limits,
batches.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import count
from typing import Any

import orjson
from aiohttp import web

from judgeq.mock_server import Handler
from judgeq.mock_server.batches import Batch
from judgeq.mock_server.chat import as_json, slow_down
from tests.faulty_server import FaultyBatch, FaultyServer

REASONS = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}
KINDS = {401: "authentication_error", 404: "not_found_error", 413: "request_too_large"}
KINDS |= {429: "rate_limit_error", 500: "api_error", 529: "overloaded_error"}


def error(status: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    inner = {"type": KINDS.get(status, "invalid_request_error"), "message": message}
    return as_json({"type": "error", "error": inner}, status, headers)


class AnthropicServer(FaultyServer):
    """The mock server, which also speaks Anthropic's API."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._failures = count()

    def app(self) -> web.Application:
        app = super().app()
        app.middlewares.append(self.in_both_forms)
        app.router.add_post("/v1/messages", self.message)
        where = "/v1/messages/batches"
        for method, path, handler in (
            ("POST", where, self.create),
            ("GET", where, self.list_batches),
            ("GET", f"{where}/{{id}}", self.batch),
            ("GET", f"{where}/{{id}}/results", self.results),
            ("POST", f"{where}/{{id}}/cancel", self.cancel),
        ):
            app.router.add_route(method, path, self.with_key(handler))
        return app

    @web.middleware
    async def in_both_forms(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not request.path.startswith("/v1/messages") and "x-api-key" not in request.headers:
            return await handler(request)
        if "anthropic-version" not in request.headers:
            return error(400, "anthropic-version: header is required")
        headers = {**request.headers}
        if "x-api-key" in request.headers:
            headers["Authorization"] = f"Bearer {request.headers['x-api-key']}"
        response = await handler(request.clone(headers=headers))
        if not isinstance(response, web.Response):
            return response
        if response.status >= 400:
            said = orjson.loads(response.text or "")
            if said.get("type") != "error":
                response = self._refusal(response, said["error"])
        response.headers["request-id"] = "req_1"
        return response

    def _refusal(self, response: web.Response, said: Mapping[str, Any]) -> web.Response:
        """OpenAI's error in Anthropic's words."""
        status, text = response.status, str(said["message"])
        if status == 401:
            text = text.replace("Incorrect API key provided:", "invalid x-api-key")
        elif said["code"] == "insufficient_quota":
            status, text = 400, "Your credit balance is too low to access the Anthropic API."
        elif said["code"] == "context_length_exceeded":
            longest, sent = re.findall(r"\d+", text)
            text = f"prompt is too long: {sent} tokens > {longest} maximum"
        elif said["param"] == "response_format":
            text = "output_config.format: Extra inputs are not permitted"

        elif said["code"] == "model_not_found":
            text = f"model: {text.partition('`')[2].partition('`')[0]}"
        elif status == 429:
            text = "Number of requests has exceeded your limit."
        elif status == 500 and next(self._failures) % 2:
            status, text = 529, text.replace("The server had an error.", "Overloaded")
        kept = {"retry-after": wait} if (wait := response.headers.get("Retry-After")) else {}
        return error(status, text, kept)

    async def message(self, request: web.Request) -> web.StreamResponse:
        """A question, asked in OpenAI's form."""
        asked = orjson.loads(await request.read())
        request._read_bytes = orjson.dumps(as_openai(asked))
        response = await self.complete(request)
        if response.status == 200 and isinstance(response, web.Response) and response.text:
            answer = message_of(orjson.loads(response.text))
            return as_json(answer, headers=dict(rates(response.headers)))
        return response

    # Batches

    async def create(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        requests = orjson.loads(body)["requests"]
        batches = self.batches
        if limited := batches.limited():
            return limited
        lines = [
            {"custom_id": one["custom_id"], "body": as_openai(one["params"])} for one in requests
        ]
        assert len({line["custom_id"] for line in lines}) == len(lines)
        problems = batches.problems(lines, len(body))
        if problems and problems[0]["code"] == "token_limit_exceeded":
            return slow_down(self.settings.retry_after)
        if problems:
            number = problems[0]["line"] - 1
            return error(400, f"requests.{number}.params: Input should be an object")
        batch = batches.add(lines, {"size": len(body)})
        return await batches.told(request, as_json(self._shown(request, batch)))

    async def list_batches(self, request: web.Request) -> web.Response:
        after, limit = request.query.get("after_id"), int(request.query.get("limit", 20))
        page, more = self.batches.page(after, limit)
        return as_json({"data": [self._view(request, batch) for batch in page], "has_more": more})

    async def batch(self, request: web.Request) -> web.Response:
        batch = self._named(request)
        return no_batch(request) if batch is None else as_json(self._view(request, batch))

    async def cancel(self, request: web.Request) -> web.Response:
        batch = self._named(request)
        if batch is None:
            return no_batch(request)
        if not self.batches.cancels(batch):
            return error(400, f"Batch {batch.id} cannot be canceled: its processing has ended.")
        return as_json(self._view(request, batch))

    async def results(self, request: web.Request) -> web.StreamResponse:
        batch = self._named(request)
        if batch is None or self.batches.gone(batch):
            return no_batch(request)
        self.batches.catch_up(batch)
        if batch.closed and self.batches.not_found_yet(batch.end):
            return no_batch(request)
        if not batch.closed:
            return error(400, f"Batch {batch.id} has no available results: it has not ended.")
        given = map(orjson.loads, [*batch.output.splitlines(), *batch.errors.splitlines()])
        lines = [orjson.dumps(self._result(line)) for line in given]
        return await self.batches.send(request, b"".join(line + b"\n" for line in lines))

    def _named(self, request: web.Request) -> FaultyBatch | None:
        batch = self.batches.found(request.match_info["id"])
        assert batch is None or isinstance(batch, FaultyBatch)
        return batch

    def _view(self, request: web.Request, batch: Batch) -> dict[str, Any]:
        self.batches.catch_up(batch)
        return self._shown(request, batch)

    def _shown(self, request: web.Request, batch: Batch) -> dict[str, Any]:
        counts, ended = batch.counts, batch.closed
        done = {
            "succeeded": counts["billed"],
            "errored": counts["failed"],
            "canceled": counts["cancelled"],
            "expired": counts["expired"],
        }
        return {
            "id": batch.id,
            "type": "message_batch",
            "processing_status": "ended" if ended else "in_progress",
            "request_counts": {
                "processing": 0 if ended else len(batch.lines),
                **(done if ended else dict.fromkeys(done, 0)),
            },
            "created_at": moment(batch.made),
            "expires_at": moment(batch.made + 86_400),
            "results_url": f"http://{request.host}/v1/messages/batches/{batch.id}/results",
        }

    def _result(self, line: Mapping[str, Any]) -> dict[str, Any]:
        response, problem = line["response"], line["error"]
        result: dict[str, Any]
        if problem is not None:
            ended = "expired" if problem["code"] == "batch_expired" else "canceled"
            result = {"type": ended}
        elif response["status_code"] == 200:
            result = {"type": "succeeded", "message": message_of(response["body"])}
        else:
            refused = as_json({}, response["status_code"] or 500)
            said = (response["body"] or BROKEN)["error"]
            result = {
                "type": "errored",
                "error": orjson.loads(self._refusal(refused, said).text or ""),
            }
        return {"custom_id": line["custom_id"], "result": result}


BROKEN = {"error": {"message": "Internal server error", "code": None, "param": None}}


def no_batch(request: web.Request) -> web.Response:
    return error(404, f"No batch with id {request.match_info['id']}.")


def rates(headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What OpenAI's headers say of limits, in those of Anthropic."""
    for name, value in headers.items():
        if (found := re.fullmatch(r"x-ratelimit-(\w+)-(\w+)", name)) is not None:
            what, which = found.groups()
            yield f"anthropic-ratelimit-{which}-{what}", value


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def as_openai(asked: Mapping[str, Any]) -> dict[str, Any]:
    """A question in OpenAI's form."""
    system = asked.get("system")
    messages = [{"role": "system", "content": system}] if system is not None else []
    body = {
        "model": asked["model"],
        "max_tokens": asked["max_tokens"],
        "stream": asked.get("stream"),
        "messages": [*messages, *asked["messages"]],
    }
    form = (asked.get("output_config") or {}).get("format")
    if form is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    return body


def message_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer of OpenAI's as Anthropic's."""
    [choice], usage = answer["choices"], answer["usage"]
    text, refusal = choice["message"].get("content"), choice["message"]["refusal"]
    thought = usage["completion_tokens_details"]["reasoning_tokens"]
    content: list[dict[str, Any]] = []
    if thought:
        content.append({"type": "thinking", "thinking": "Let me see.", "signature": "mock"})
    if text or refusal:
        content.append({"type": "text", "text": refusal or text})
    return {
        "id": answer["id"],
        "type": "message",
        "role": "assistant",
        "model": answer["model"],
        "content": content,
        "stop_reason": "refusal" if refusal else REASONS[choice["finish_reason"]],
        "stop_sequence": None,
        "usage": {
            "input_tokens": usage["prompt_tokens"],
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"thinking_tokens": thought},
        },
    }
