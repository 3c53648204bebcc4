"""OpenAI's files and batches, which Azure and others speak as well.

Nothing runs in the background: when a batch is asked for, the lines are answered that are due by then,
as live questions are. What was answered stays, byte for byte.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from judgeq import seeds
from judgeq.mock_server.chat import Chat, as_json, error

DAY = 86_400  # seconds


@dataclass(slots=True, eq=False)
class Batch:
    """A batch, which takes `time` seconds. Its lines are answered in the order of `order`; `answered` is
    how many are. `output` are the results of lines that succeeded, `errors` those of others: whole once
    it is `closed`."""

    lines: Sequence[Mapping[str, Any]]
    made: float
    time: float
    order: Sequence[int]
    fields: Mapping[str, Any]
    id: str = field(default_factory=lambda: f"batch_{secrets.token_hex(12)}")
    answered: int = 0
    cancelled: float | None = None
    closed: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    output: bytearray = field(default_factory=bytearray)
    errors: bytearray = field(default_factory=bytearray)

    def state(self, now: float) -> str:
        """Where it stands."""
        if self.cancelled is not None:
            return "cancelled"
        return "in_progress" if now < self.end else "completed"

    @property
    def end(self) -> float:
        """When it ends, in seconds since the epoch."""
        return self.made + self.time if self.cancelled is None else self.cancelled

    def due(self, now: float) -> int:
        """How many of its lines are answered by then."""
        if self.cancelled is not None:
            return self.answered
        share = (now - self.made) / self.time if self.time else 1.0
        return int(len(self.lines) * min(1.0, share))


class Batches:
    """All files and batches of a server. `now` gives seconds since the epoch."""

    kind: type[Batch] = Batch

    def __init__(self, chat: Chat, now: Callable[[], float]) -> None:
        self.settings = chat.settings
        self.now = now
        self.batches: dict[str, Batch] = {}
        self.chat = chat
        self.files: dict[str, bytes | bytearray] = {}
        self.results_end: dict[str, float] = {}  # of files of results, when their batch ended

    def routes(self) -> list[web.RouteDef]:
        """Where they are."""
        return [
            web.post("/v1/files", self.upload),
            web.get("/v1/files/{id}/content", self.content),
            web.delete("/v1/files/{id}", self.delete),
            web.post("/v1/batches", self.create),
            web.get("/v1/batches", self.list_batches),
            web.get("/v1/batches/{id}", self.batch),
            web.post("/v1/batches/{id}/cancel", self.cancel),
        ]

    # Files

    async def upload(self, request: web.Request) -> web.Response:
        """Keep a file."""
        file = (await request.post()).get("file")
        if not isinstance(file, web.FileField):
            return error(400, "'file' is a required property", param="file")
        return as_json(
            {"id": self._keep(file.file.read()), "object": "file", "status": "processed"}
        )

    def _keep(self, data: bytes | bytearray) -> str:
        name = f"file-{secrets.token_hex(12)}"
        self.files[name] = data
        return name

    async def content(self, request: web.Request) -> web.StreamResponse:
        """What is in a file."""
        name = request.match_info["id"]
        if name not in self.files or self.not_found_yet(self.results_end.get(name)):
            return error(404, f"No such File object: {name}", param="id")
        return web.Response(body=bytes(self.files[name]))

    async def delete(self, request: web.Request) -> web.Response:
        """Delete a file."""
        name = request.match_info["id"]
        deleted = self.files.pop(name, None) is not None
        return as_json({"id": name, "object": "file", "deleted": deleted})

    # Batches

    async def create(self, request: web.Request) -> web.StreamResponse:
        """Create a batch."""
        asked = orjson.loads(await request.read())
        data = self.files.get(asked["input_file_id"])
        if data is None:
            text = f"Invalid file: no file with id '{asked['input_file_id']}'."
            return error(400, text, param="input_file_id")
        batch = self.add(list(map(orjson.loads, data.splitlines())), asked)
        return as_json(self.batch_json(batch, batch.state(self.now())))

    def add(self, lines: Sequence[Mapping[str, Any]], asked: Mapping[str, Any]) -> Batch:
        """A new batch."""
        order = seeds.rng(self.settings.seed, "mock batch order", len(self.batches))
        batch = self.kind(
            lines,
            self.now(),
            self.settings.batch_time,
            order.permutation(len(lines)).tolist(),
            {name: asked.get(name) for name in ("endpoint", "input_file_id", "metadata")},
        )
        self.batches[batch.id] = batch
        return batch

    def not_found_yet(self, since: float | None) -> bool:
        """Return whether what is there since then is still answered with 404."""
        return since is not None and self.now() < since + self.settings.batch_not_found

    def found(self, name: str) -> Batch | None:
        """Return the batch with this id; None where there is none, or it isn't found yet."""
        batch = self.batches.get(name)
        return None if batch is None or self.not_found_yet(batch.made) else batch

    async def list_batches(self, request: web.Request) -> web.Response:
        """All that are found, the newest first, on one page."""
        page = [
            self.batch_json(batch, self.catch_up(batch))
            for batch in reversed(self.batches.values())
            if not self.not_found_yet(batch.made)
        ]
        return as_json({"object": "list", "data": page, "has_more": False})

    async def batch(self, request: web.Request) -> web.Response:
        """How a batch stands."""
        batch = self.found(request.match_info["id"])
        if batch is None:
            text = f"No batch found with id '{request.match_info['id']}'."
            return error(404, text, param="id")
        return as_json(self.batch_json(batch, self.catch_up(batch)))

    async def cancel(self, request: web.Request) -> web.Response:
        """Cancel a batch."""
        batch = self.found(request.match_info["id"])
        if batch is not None and not self.cancels(batch):
            return error(409, "Cannot cancel a batch that has ended.")
        return await self.batch(request)

    def cancels(self, batch: Batch) -> bool:
        """Cancel what isn't answered yet; False where it has ended."""
        self.catch_up(batch)
        if not batch.closed and batch.cancelled is None:
            batch.cancelled = self.now()
        return not batch.closed

    def batch_json(self, batch: Batch, state: str) -> dict[str, Any]:
        """A batch as the API shows it."""
        if batch.closed and "output_file_id" not in batch.fields:
            files = {"output_file_id": batch.output, "error_file_id": batch.errors}
            kept = {name: self._keep(data) if data else None for name, data in files.items()}
            self.results_end |= {name: batch.end for name in kept.values() if name is not None}
            batch.fields = {**batch.fields, **kept}
        return {
            "id": batch.id,
            "object": "batch",
            "completion_window": "24h",
            "status": state,
            "errors": None,
            "created_at": int(batch.made),
            "expires_at": int(batch.made + DAY),
            f"{state}_at": int(batch.end) if batch.closed else None,
            "request_counts": {
                "total": len(batch.lines),
                "completed": batch.counts["billed"],
                "failed": batch.counts.total() - batch.counts["billed"],
            },
            **batch.fields,
        }

    # Lines

    def catch_up(self, batch: Batch) -> str:
        """Answer what is due, and write the results once it ended; where it stands by then."""
        now = self.now()
        due, state = batch.due(now), batch.state(now)
        while batch.answered < due:
            line = batch.lines[batch.order[batch.answered]]
            said = self.answer_line(orjson.dumps(line["body"]))
            batch.answered += 1
            batch.counts["billed" if said.status == 200 else "failed"] += 1
            self.write(batch, line, said)
        if now >= batch.end and not batch.closed:
            self.close(batch, state)
            batch.closed = True
        return state

    def answer_line(self, data: bytes) -> web.Response:
        """The answer to the body of a line."""
        return self.chat.line(data)

    def write(self, batch: Batch, line: Mapping[str, Any], said: web.Response) -> None:
        """Add a line to the results."""
        body = orjson.Fragment(said.text) if said.text else ""
        results = batch.output if said.status == 200 else batch.errors
        results += result(line, {"status_code": said.status, "body": body}, None)

    def close(self, batch: Batch, state: str) -> None:
        """Write the lines that weren't answered."""
        for number in batch.order[batch.answered :]:
            problem = {"code": f"batch_{state}", "message": f"The batch {state}."}
            batch.counts[state] += 1
            batch.errors += result(batch.lines[number], None, problem)

    def as_json(self) -> dict[str, Any]:
        """As `/stats` reports it: how many were created, and lines that are billed."""
        for batch in self.batches.values():
            self.catch_up(batch)
        billed = sum(batch.counts["billed"] for batch in self.batches.values())
        return {"created": len(self.batches), "billed": billed}


def result(line: Mapping[str, Any], response: Any, problem: Any) -> bytes:
    """A line of results."""
    found = {"custom_id": line["custom_id"], "response": response, "error": problem}
    return orjson.dumps(found, option=orjson.OPT_APPEND_NEWLINE)
