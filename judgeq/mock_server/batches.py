"""OpenAI's files and batches, which Azure and others speak as well.

Nothing runs in the background: when a batch is asked for, the lines are answered that are due by then,
as live questions are. What was answered stays, byte for byte.
"""

from __future__ import annotations

import math
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from judgeq import seeds
from judgeq.mock_server.behaviour import Stats
from judgeq.mock_server.chat import Chat, as_json, broke, drop, error, slow_down
from judgeq.settings.mock_server import MockSettings
from judgeq.types import Usage

LARGEST_PAGE = 100
DAY = 86_400  # seconds
KEPT = 30 * DAY
"""Seconds for which results are kept."""
ENDED = frozenset({"failed", "completed", "expired", "cancelled"})
FAULTS = ("limited", "unanswered", "invalid", "expire", "broken", "flaky")
COUNTED = (
    *("billed", "succeeded", "failed", "expired", "cancelled"),
    *("lost", "doubled", "downloads", "broken"),
)


@dataclass(slots=True, eq=False)
class Batch:
    """A batch, which takes `time` seconds, or expires by then with this `share` of its lines answered:
    in the order of `order`; `answered` says how many are. `problems` say why it fails its validation.
    `output` are the results of lines that succeeded, `errors` of others; both are whole once it is
    `closed`."""

    lines: Sequence[Mapping[str, Any]]
    made: float
    time: float
    share: float
    order: Sequence[int]
    problems: Sequence[Mapping[str, Any]]
    size: int = 0
    fields: Mapping[str, Any] = field(default_factory=dict)
    id: str = field(default_factory=lambda: f"batch_{secrets.token_hex(12)}")
    answered: int = 0
    cancelled: float | None = None
    closed: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    tokens: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    output: bytearray = field(default_factory=bytearray)
    errors: bytearray = field(default_factory=bytearray)
    again: bytearray = field(default_factory=bytearray)

    def state(self, now: float) -> str:
        """Where it stands."""
        begun = now >= self.made + 0.1 * self.time
        if self.cancelled is not None:
            return "cancelled" if now >= self.end else "cancelling"
        if not begun or self.problems:
            return "failed" if begun else "validating"
        if now < self.end:
            return "in_progress"
        return "expired" if self.share < 1 else "completed"

    @property
    def end(self) -> float:
        """When it ends, in seconds since the epoch."""
        if self.cancelled is not None:
            return self.cancelled + 0.1 * self.time
        return self.made + self.time * (0.1 if self.problems else 1.0)

    def due(self, now: float) -> int:
        """How many of its lines are answered by then."""
        if self.cancelled is not None or self.problems or self.state(now) == "validating":
            return self.answered
        share = self.share * len(self.lines)
        if now >= self.end:
            return math.ceil(share)
        return int(share * ((now - self.made) / self.time - 0.1) / 0.9)


class Batches:
    """All files and batches of a server. `now` gives seconds since the epoch."""

    def __init__(
        self,
        settings: MockSettings,
        chat: Chat,
        stats: Callable[[], Stats],
        now: Callable[[], float],
    ) -> None:
        self.settings = settings
        self.now = now
        self.batches: dict[str, Batch] = {}
        self._chat = chat
        self._stats = stats
        self._files: dict[str, tuple[bytes | bytearray, Batch | None]] = {}
        self._asked: Counter[str] = Counter()
        self._faults = {name: seeds.Stream(settings.seed, "mock batches", name) for name in FAULTS}

    def routes(self) -> list[web.RouteDef]:
        """Where they are."""
        return [
            web.post("/v1/files", self.upload),
            web.get("/v1/files/{id}/content", self.content),
            web.delete("/v1/files/{id}", self.delete),
            web.post("/v1/batches", self.create),
            web.get("/v1/batches", self.listed),
            web.get("/v1/batches/{id}", self.batch),
            web.post("/v1/batches/{id}/cancel", self.cancel),
        ]

    def drawn(self, fault: str) -> float | None:
        """Whether the next of its kind has this fault, by how many came before: a number in [0, 1) by
        which to choose among its forms, or None."""
        self._asked[fault] += 1
        drawn, how = self._faults[fault].at(self._asked[fault]).random(2).tolist()
        return how if drawn < getattr(self.settings, f"batch_{fault}") else None

    async def flaky(self, request: web.Request) -> web.StreamResponse | None:
        """The failure of a request about batches that creates none, or None."""
        creates = request.method == "POST" and request.path.endswith("/batches")
        how = None if creates else self.drawn("flaky")
        if how is None:
            return None
        await request.release()
        if how < 2 / 3:
            return slow_down(self.settings.retry_after) if how < 1 / 3 else broke()
        return await drop(request, b"{}", half=False)

    # Files

    async def upload(self, request: web.Request) -> web.Response:
        """Keep a file."""
        file = (await request.post()).get("file")
        if not isinstance(file, web.FileField):
            return error(400, "'file' is a required property", param="file")
        return as_json(
            {"id": self._keep(file.file.read()), "object": "file", "status": "processed"}
        )

    def _keep(self, data: bytes | bytearray, batch: Batch | None = None) -> str:
        name = f"file-{secrets.token_hex(12)}"
        self._files[name] = data, batch
        return name

    def gone(self, batch: Batch | None) -> bool:
        """Whether its results are deleted by now."""
        return batch is not None and self.now() >= batch.end + KEPT

    async def content(self, request: web.Request) -> web.StreamResponse:
        """What is in a file."""
        data, batch = self._files.get(request.match_info["id"], (None, None))
        if data is None or self.gone(batch):
            return error(404, f"No such File object: {request.match_info['id']}", param="id")
        return web.Response(body=data) if batch is None else await self.send(request, batch, data)

    async def send(
        self, request: web.Request, batch: Batch, data: bytes | bytearray
    ) -> web.StreamResponse:
        """Send results, whole or broken off."""
        how = self.drawn("broken")
        batch.counts.update(("downloads",) if how is None else ("downloads", "broken"))
        if how is not None and how < 2 / 3:
            return await drop(request, bytes(data), half=True)
        # The other broken ones end early as if they were whole.
        return web.Response(body=bytes(data if how is None else data[: len(data) // 2]))

    async def delete(self, request: web.Request) -> web.Response:
        """Delete a file."""
        name = request.match_info["id"]
        deleted = self._files.pop(name, None) is not None
        return as_json({"id": name, "object": "file", "deleted": deleted})

    # Batches

    async def create(self, request: web.Request) -> web.StreamResponse:
        """Create a batch."""
        asked = orjson.loads(await request.read())
        data, _ = self._files.get(asked["input_file_id"], (None, None))
        if data is None:
            text = f"Invalid file: no file with id '{asked['input_file_id']}'."
            return error(400, text, param="input_file_id")
        if self.drawn("limited") is not None:
            return slow_down(self.settings.retry_after)
        lines = list(map(orjson.loads, data.splitlines()))
        batch = self.add(lines, self.problems(lines, len(data)), len(data), asked)
        return await self.told(request, self.shown(batch, "validating"))

    def problems(self, lines: Sequence[Any], size: int) -> list[dict[str, Any]]:
        """Why a batch of so many bytes is not to pass its validation: by a fault, or since too much
        waits."""
        most, now = self.settings.batch_queue_tokens, self.now()
        if (drawn := self.drawn("invalid")) is not None:
            text, line = "The request body is not valid.", int(drawn * len(lines)) + 1
            return [{"code": "invalid_request", "line": line, "message": text, "param": "body"}]
        waiting = [
            batch.size
            for batch in self.batches.values()
            if not batch.problems and batch.state(now) not in ENDED
        ]
        if most is None or (sum(waiting) + size) / 4 <= most:
            return []
        text = (
            f"Enqueued token limit reached. Limit: {most:,} enqueued tokens. Please try again once "
            "some in_progress batches have been completed."
        )
        return [{"code": "token_limit_exceeded", "line": None, "message": text, "param": None}]

    def add(
        self,
        lines: Sequence[Mapping[str, Any]],
        problems: Sequence[Mapping[str, Any]],
        size: int,
        asked: Mapping[str, Any],
    ) -> Batch:
        """A new batch."""
        order = seeds.rng(self.settings.seed, "mock batch order", len(self.batches))
        batch = Batch(
            lines,
            self.now(),
            self.settings.batch_time,
            1.0 if self.drawn("expire") is None else 0.5,
            order.permutation(len(lines)).tolist(),
            problems,
            size,
            {name: asked.get(name) for name in ("endpoint", "input_file_id", "metadata")},
        )
        self.batches[batch.id] = batch
        return batch

    async def told(self, request: web.Request, shown: Mapping[str, Any]) -> web.StreamResponse:
        """The answer to a creation, unless it is to get lost."""
        unanswered = self.drawn("unanswered")
        if unanswered is not None and unanswered < 0.5:
            return await drop(request, orjson.dumps(shown), half=unanswered < 0.25)
        return as_json(shown) if unanswered is None else broke()

    async def listed(self, request: web.Request) -> web.Response:
        """A page of the list, the newest first."""
        page, more = self.page(request.query.get("after"), int(request.query.get("limit", 20)))
        data = list(map(self._view, page))
        return as_json({"object": "list", "data": data, "has_more": more})

    def page(self, after: str | None, limit: int) -> tuple[list[Batch], bool]:
        """The batches that follow one, the newest first; and whether there are more."""
        names = list(reversed(self.batches))
        names = names[names.index(after) + 1 if after in names else 0 :]
        limit = min(limit, LARGEST_PAGE)
        return [self.batches[name] for name in names[:limit]], len(names) > limit

    async def batch(self, request: web.Request) -> web.Response:
        """How a batch stands."""
        batch = self.batches.get(request.match_info["id"])
        return _no_batch(request) if batch is None else as_json(self._view(batch))

    async def cancel(self, request: web.Request) -> web.Response:
        """Cancel a batch."""
        batch = self.batches.get(request.match_info["id"])
        if batch is None:
            return _no_batch(request)
        if not self.cancels(batch):
            return error(409, "Cannot cancel a batch that has ended.")
        return as_json(self._view(batch))

    def cancels(self, batch: Batch) -> bool:
        """Cancel what isn't answered yet; False where it has ended."""
        if self.catch_up(batch) in ENDED:
            return False
        batch.cancelled = self.now() if batch.cancelled is None else batch.cancelled
        return True

    def _view(self, batch: Batch) -> dict[str, Any]:
        return self.shown(batch, self.catch_up(batch))

    def shown(self, batch: Batch, state: str) -> dict[str, Any]:
        """A batch as the API shows it."""
        if batch.closed and "output_file_id" not in batch.fields:
            files = {"output_file_id": batch.output, "error_file_id": batch.errors}
            kept = {name: self._keep(data, batch) for name, data in files.items() if data}
            batch.fields = {**batch.fields, **dict.fromkeys(files), **kept}
        counted = state not in ("validating", "failed")
        failed = sum(batch.counts[name] for name in ("failed", "expired", "cancelled"))
        return {
            "id": batch.id,
            "object": "batch",
            "completion_window": "24h",
            "status": state,
            "errors": {"object": "list", "data": batch.problems} if state == "failed" else None,
            "created_at": int(batch.made),
            "expires_at": int(batch.made + DAY),
            f"{state}_at": int(batch.end) if state in ENDED else None,
            "request_counts": {
                "total": len(batch.lines) if counted else 0,
                "completed": batch.counts["succeeded"],
                "failed": failed,
            },
            **batch.fields,
        }

    # Lines

    def catch_up(self, batch: Batch) -> str:
        """Answer what is due, and write the results once it ended; where it stands by then."""
        now = self.now()
        due, state = batch.due(now), batch.state(now)
        while batch.answered < due:
            self._answer(batch, now)
        if state in ENDED and not batch.closed:
            batch.output += batch.again
            for line in batch.order[batch.answered :] if not batch.problems else ():
                problem = {"code": f"batch_{state}", "message": f"The batch {state}."}
                batch.counts[state] += 1
                batch.errors += _result(batch.lines[line], None, problem)
            batch.closed = True
        return state

    def _answer(self, batch: Batch, now: float) -> None:
        """Answer the next line."""
        number = batch.order[batch.answered]
        line, serial = batch.lines[number], len(self.batches) * 1_000_000 + number
        said = self._chat.line(self._stats(), orjson.dumps(line["body"]), serial, now)
        batch.answered += 1
        batch.counts["succeeded" if said.status == 200 else "failed"] += 1
        if said.usage is not None:
            batch.counts["billed"] += 1
            batch.tokens = [a + b for a, b in zip(batch.tokens, said.usage, strict=True)]
        if said.fate:
            batch.counts[said.fate] += 1
        if said.fate == "lost":
            return
        body = orjson.Fragment(said.body) if said.body else ""
        result = _result(line, {"status_code": said.status, "body": body}, None)
        if said.status == 200:
            batch.output += result
        else:
            batch.errors += result
        if said.fate == "doubled":
            batch.again += result

    def as_json(self) -> dict[str, Any]:
        """As `/stats` reports it: all that were created, in order."""
        shown: list[dict[str, Any]] = [
            {
                "id": batch.id,
                "metadata": batch.fields["metadata"],
                "first_custom_id": batch.lines[0]["custom_id"],
                "state": self.catch_up(batch),
                "lines": len(batch.lines),
                **{name: batch.counts[name] for name in COUNTED},
                "tokens": dict(zip(Usage._fields, batch.tokens, strict=True)),
            }
            for batch in self.batches.values()
        ]
        totals = {name: sum(batch[name] for batch in shown) for name in ("billed", "downloads")}
        return {"created": len(shown), **totals, "list": shown}


def _result(line: Mapping[str, Any], response: Any, problem: Any) -> bytes:
    """A line of results."""
    result = {"custom_id": line["custom_id"], "response": response, "error": problem}
    return orjson.dumps(result, option=orjson.OPT_APPEND_NEWLINE)


def _no_batch(request: web.Request) -> web.Response:
    return error(404, f"No batch found with id '{request.match_info['id']}'.", param="id")
