"""OpenAI's files and batches, which Azure and others speak as well.

Fields, states and limits are those of platform.openai.com/docs/api-reference/batch and of the types in
openai-python.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import aiohttp
import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict, ValidationError

from judgeq.mock_server import asked as asking
from judgeq.mock_server.answering import Reply
from judgeq.mock_server.batches import DAY, Batch, Batches, Lines, State, line_of, read_all
from judgeq.mock_server.forms import Form
from judgeq.mock_server.openai_validation import checked
from judgeq.mock_server.wire import as_json, drop, error

KEPT = 30 * DAY
MOST_BYTES = 200 * 1024 * 1024
UNASKED = {
    True: (
        "batch_expired",
        "This request could not be executed before the completion window expired.",
    ),
    False: ("batch_cancelled", "This request was not executed because the batch was cancelled."),
}


class _Lasting(BaseModel):
    model_config = ConfigDict(strict=True)
    anchor: Literal["created_at"]
    seconds: int


class _Create(BaseModel):
    model_config = ConfigDict(strict=True)
    input_file_id: str
    endpoint: Literal["/v1/chat/completions", "/chat/completions"]
    completion_window: Literal["24h"]
    metadata: dict[str, str] | None = None
    output_expires_after: _Lasting | None = None


@dataclass(frozen=True, slots=True, eq=False)
class File:
    """A file that was uploaded, or a batch's results."""

    id: str
    name: str
    purpose: str
    data: bytearray
    made: float
    expires: float | None
    batch: Batch | None = None

    def as_json(self) -> dict[str, Any]:
        """As the API shows it."""
        return {
            "id": self.id,
            "object": "file",
            "bytes": len(self.data),
            "created_at": int(self.made),
            "expires_at": None if self.expires is None else int(self.expires),
            "filename": self.name,
            "purpose": self.purpose,
            "status": "processed",
            "status_details": None,
        }


class OpenAIBatches:
    """The handlers, and how lines are read and results written (see Written)."""

    kept: float = KEPT

    def __init__(self, batches: Batches, form: Form) -> None:
        self.form = form
        self._batches = batches
        self._files: dict[str, File] = {}
        self._made = 0

    def routes(self) -> list[web.RouteDef]:
        """Where they are."""
        return [
            web.post("/v1/files", self.upload),
            web.get("/v1/files/{id}", self.file),
            web.get("/v1/files/{id}/content", self.content),
            web.delete("/v1/files/{id}", self.delete),
            web.post("/v1/batches", self.create),
            web.get("/v1/batches", self.listed),
            web.get("/v1/batches/{id}", self.batch),
            web.post("/v1/batches/{id}/cancel", self.cancel),
        ]

    # Files

    async def upload(self, request: web.Request) -> web.Response:
        """Keep a file."""
        try:
            fields, name, data = await _form_data(request)
        except ValueError:  # no form data, or damaged
            return error(400, "'file' is a required property", param="file")
        if name is not None and data is None:
            return error(413, f"The file exceeds the maximum size of {MOST_BYTES} bytes.")
        if name is None or data is None:
            return error(400, "'file' is a required property", param="file")
        purpose = fields.get("purpose")
        if purpose != "batch":
            text = f"'{purpose}' is not one of ['batch'] - 'purpose'"
            return error(400, text, param="purpose")
        if not name.endswith(".jsonl"):
            return error(400, "Invalid file format for Batch API. Must be .jsonl")
        lasting = fields.get("expires_after[seconds]", str(KEPT))
        if not lasting.isdecimal() or not 3600 <= int(lasting) <= KEPT:
            text = f"Invalid 'expires_after.seconds': {lasting}. Expected 3600 to {KEPT}."
            return error(400, text, param="expires_after.seconds")
        file = self._keep(name, purpose, data, int(lasting))
        return as_json(file.as_json())

    def _keep(
        self,
        name: str,
        purpose: str,
        data: bytearray,
        lasting: int | None,
        batch: Batch | None = None,
    ) -> File:
        self._made += 1
        now = self._batches.now()
        expires = None if lasting is None else now + lasting
        made = self._batches.name("file-", "file", self._made)
        self._files[made] = File(made, name, purpose, data, now, expires, batch)
        return self._files[made]

    def _named(self, request: web.Request) -> File | web.Response:
        name = request.match_info["id"]
        return self._kept(name) or error(404, f"No such File object: {name}", param="id")

    def _kept(self, name: str) -> File | None:
        """A file that hasn't expired."""
        file, now = self._files.get(name), self._batches.now()
        late = file is not None and file.expires is not None and now >= file.expires
        gone = file is not None and file.batch is not None and self._batches.gone(file.batch, now)
        return None if late or gone else file

    async def file(self, request: web.Request) -> web.Response:
        """What a file is."""
        file = self._named(request)
        return file if isinstance(file, web.Response) else as_json(file.as_json())

    async def content(self, request: web.Request) -> web.StreamResponse:
        """What is in it."""
        file = self._named(request)
        if isinstance(file, web.Response):
            return file
        if file.batch is None:
            return web.Response(body=file.data, content_type="application/octet-stream")
        return await self._batches.send(request, file.batch, file.data, sized=True)

    async def delete(self, request: web.Request) -> web.Response:
        """Delete a file."""
        file = self._named(request)
        if isinstance(file, web.Response):
            return file
        del self._files[file.id]
        return as_json({"id": file.id, "object": "file", "deleted": True})

    # Batches

    async def create(self, request: web.Request) -> web.StreamResponse:
        """Create a batch."""
        try:
            asked = _Create.model_validate(orjson.loads(await request.read()))
        except orjson.JSONDecodeError:
            return error(400, "We could not parse the JSON body of your request.")
        except ValidationError as invalid:
            return asking.refusal(**invalid.errors()[0])
        if (problem := _metadata_problem(asked.metadata or {})) is not None:
            return error(400, problem, param="metadata")
        file = self._kept(asked.input_file_id)
        if file is None or file.purpose != "batch":
            text = f"Invalid file: no file with id '{asked.input_file_id}' and purpose 'batch'."
            return error(400, text, param="input_file_id")
        if self._batches.drawn("limited") is not None:
            return self.form.slow_down(self._batches.settings.retry_after)
        lines = Lines(file.data)
        model, problems = await checked(lines, asked.endpoint, self._batches)
        batch = self._batches.create(
            "openai",
            self,
            lines,
            problems,
            metadata=asked.metadata,
            input_file_id=file.id,
            endpoint=asked.endpoint,
            model=model,
            lasting=asked.output_expires_after and asked.output_expires_after.seconds,
        )
        shown = self._shown(batch, batch.made, State.VALIDATING)
        unanswered = self._batches.drawn("unanswered")
        if unanswered is not None and unanswered < 0.5:
            return await drop(request, orjson.dumps(shown), half=unanswered < 0.25)
        return as_json(shown) if unanswered is None else self.form.failed("", even=False)

    async def listed(self, request: web.Request) -> web.Response:
        """A page of the list, the newest first."""
        after, limit = request.query.get("after"), request.query.get("limit", "20")
        if not limit.isdecimal() or not 1 <= int(limit) <= 100:
            text = f"Invalid 'limit': expected an integer from 1 to 100, but got {limit} instead."
            return error(400, text, param="limit")
        batches = self._batches.listed("openai")
        if after is not None:
            places = [place for place, batch in enumerate(batches) if batch.id == after]
            if not places:
                return error(400, f"Invalid 'after': no batch with id '{after}'.", param="after")
            batches = batches[places[0] + 1 :]
        page = batches[: self._batches.page(int(limit))]
        data = [await self._view(batch) for batch in page]
        return as_json(
            {
                "object": "list",
                "data": data,
                "first_id": page[0].id if page else None,
                "last_id": page[-1].id if page else None,
                "has_more": len(batches) > len(page),
            }
        )

    async def batch(self, request: web.Request) -> web.Response:
        """How a batch stands."""
        batch = self._batches.find("openai", request.match_info["id"])
        return _no_batch(request) if batch is None else as_json(await self._view(batch))

    async def cancel(self, request: web.Request) -> web.Response:
        """Cancel a batch."""
        batch = self._batches.find("openai", request.match_info["id"])
        if batch is None:
            return _no_batch(request)
        now, done = await self._batches.cancel(batch)
        if not done:
            return error(409, f"Cannot cancel a batch with status '{batch.state(now)}'.")
        return as_json(await self._view(batch))

    async def _view(self, batch: Batch) -> dict[str, Any]:
        now = await self._batches.catch_up(batch)
        return self._shown(batch, now, batch.state(now))

    def _shown(self, batch: Batch, now: float, state: State) -> dict[str, Any]:
        """A batch as the API shows it."""
        going, end, cancelled = batch.course, int(batch.end), batch.cancelled
        if batch.closed and "files" not in batch.more:
            batch.more["files"] = [
                self._keep(
                    f"{batch.id}_{kind}.jsonl", "batch_output", data, batch.more["lasting"], batch
                ).id
                if data
                else None
                for kind, data in (("output", batch.output), ("error", batch.errors))
            ]
        files = batch.more.get("files", (None, None))
        begun = (
            going.validated <= now and not batch.problems and (cancelled or now) >= going.validated
        )
        finalizing = begun and cancelled is None and now >= going.worked and not going.expired
        counted = begun and state != State.VALIDATING
        failed = (
            len(batch.lines) - batch.counts["succeeded"] if batch.closed else batch.counts["failed"]
        )
        return {
            "id": batch.id,
            "object": "batch",
            "endpoint": batch.more["endpoint"],
            "model": batch.more["model"],
            "errors": {"object": "list", "data": batch.problems} if state == State.FAILED else None,
            "input_file_id": batch.more["input_file_id"],
            "completion_window": "24h",
            "status": state,
            "output_file_id": files[0],
            "error_file_id": files[1],
            "created_at": int(batch.made),
            "in_progress_at": int(going.validated) if counted else None,
            "expires_at": int(going.expires),
            "finalizing_at": int(going.worked) if finalizing and counted else None,
            "completed_at": end if state == State.COMPLETED else None,
            "failed_at": end if state == State.FAILED else None,
            "expired_at": end if state == State.EXPIRED else None,
            "cancelling_at": None if cancelled is None else int(cancelled),
            "cancelled_at": end if state == State.CANCELLED else None,
            "request_counts": {
                "total": len(batch.lines) if counted else 0,
                "completed": batch.counts["succeeded"] if counted else 0,
                "failed": failed if counted else 0,
            },
            "usage": _usage(batch) if batch.closed else None,
            "metadata": dict(batch.metadata) or None,
        }

    # Lines

    def read(self, line: memoryview) -> tuple[str, bytes]:
        """See Written."""
        asked = orjson.loads(line)
        return asked["custom_id"], orjson.dumps(asked["body"])

    def result(self, batch: Batch, line: int, custom_id: str, reply: Reply) -> bytes:
        """See Written."""
        response = {
            "status_code": reply.status,
            "request_id": self._batches.name("", batch.id, line) if reply.status else "",
            "body": orjson.Fragment(reply.body) if reply.body else "",
        }
        return line_of(self._line(batch, line, custom_id, response, None))

    def unasked(self, batch: Batch, line: int, custom_id: str, *, expired: bool) -> bytes:
        """See Written."""
        code, message = UNASKED[expired]
        problem = {"code": code, "message": message}
        return line_of(self._line(batch, line, custom_id, None, problem))

    def _line(self, batch: Batch, line: int, custom_id: str, response: Any, problem: Any) -> Any:
        name = self._batches.name("batch_req_", batch.id, line)
        return {"id": name, "custom_id": custom_id, "response": response, "error": problem}


def _no_batch(request: web.Request) -> web.Response:
    return error(404, f"No batch found with id '{request.match_info['id']}'.", param="id")


def _metadata_problem(metadata: Mapping[str, str]) -> str | None:
    """Why metadata is refused, or None."""
    if len(metadata) > 16:
        return f"Invalid 'metadata': too many properties. Expected at most 16, but got {len(metadata)}."
    for key, value in metadata.items():
        if len(key) > 64:
            return (
                f"Invalid key in 'metadata': too long. Expected at most 64 characters: {key[:64]}."
            )
        if len(value) > 512:
            return f"Invalid 'metadata.{key}': string too long. Expected at most 512 characters."
    return None


def _usage(batch: Batch) -> dict[str, Any]:
    fresh, cached, output, reasoning = batch.tokens
    return {
        "input_tokens": fresh + cached,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": fresh + cached + output,
    }


async def _form_data(
    request: web.Request,
) -> tuple[dict[str, str], str | None, bytearray | None]:
    """The fields of a form, its file's name, and what is in it (None if that is too much). Raises
    ValueError for what is no form."""
    fields: dict[str, str] = {}
    name, data = None, None
    if not request.content_type.startswith("multipart/"):
        raise ValueError(request.content_type)
    async for part in await request.multipart():
        if not isinstance(part, aiohttp.BodyPartReader):
            continue
        if part.name == "file":
            name, data = part.filename or "file", await read_all(_chunks(part), MOST_BYTES)
        else:
            fields[part.name or ""] = await part.text()
    return fields, name, data


async def _chunks(part: aiohttp.BodyPartReader) -> AsyncIterator[bytes]:
    while chunk := await part.read_chunk(1 << 16):
        yield chunk
