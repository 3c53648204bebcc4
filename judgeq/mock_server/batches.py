"""What the mock server's two batch APIs share: how a batch goes in time, its lines, its results.

Nothing runs in the background: when a batch is asked for, the lines are answered that are due by then,
by the code that answers live questions. What was answered stays, byte for byte.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import numpy as np
import orjson
from aiohttp import web

from judgeq import seeds
from judgeq.mock_server.answering import Answering, Reply
from judgeq.mock_server.behaviour import MockSettings, Stats
from judgeq.mock_server.forms import Form
from judgeq.types import Usage

CHUNK = 64 * 1024
BURST = 50  # lines that are answered before others have a turn
DAY = 86_400  # seconds


class State(StrEnum):
    """Where a batch stands, in OpenAI's words."""

    VALIDATING = "validating"
    FAILED = "failed"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


ENDED = frozenset({State.FAILED, State.COMPLETED, State.EXPIRED, State.CANCELLED})


class Lines:
    """The lines of a file, by their places in its bytes."""

    def __init__(self, data: bytes | bytearray) -> None:
        self.size = len(data)
        self._data = memoryview(data)
        self._starts = array("Q", [0])
        at = 0
        while (at := data.find(b"\n", at) + 1) > 0:
            self._starts.append(at)
        if self._starts[-1] < len(data):
            self._starts.append(len(data) + 1)

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, number: int) -> memoryview:
        return self._data[self._starts[number] : self._starts[number + 1] - 1]


class Course(NamedTuple):
    """How a batch goes if nobody cancels it: when it is validated, when its last line is answered, when
    it ends, in seconds since the epoch; the share of its lines that is answered by then, and whether it
    expires. `expires` is when it says that it will."""

    validated: float
    worked: float
    ended: float
    share: float
    expired: bool
    expires: float


def course(settings: MockSettings, made: float, *, half_way: bool) -> Course:
    """The course of a batch that is made now; `half_way`: it expires there."""
    time, window = settings.batch_time, settings.batch_window
    validated = made + 0.1 * time
    if half_way:
        end = made + time
        return Course(validated, end, end, 0.5, True, end)
    end = made + window
    if settings.batch_crawl:
        return Course(min(validated, end), end, end, 0.5, True, end)
    if window < time:
        share = min(1.0, max(0.0, (window - 0.1 * time) / (0.8 * time)))
        return Course(min(validated, end), end, end, share, True, end)
    return Course(validated, made + 0.9 * time, made + time, 1.0, False, end)


class Written(Protocol):
    """How an API reads the lines of its batches and writes their results."""

    form: Form
    kept: float  # seconds from a batch's creation until its results are deleted

    def read(self, line: memoryview) -> tuple[str, bytes]:
        """A line's custom id, and the body of its request."""

    def result(self, batch: Batch, line: int, custom_id: str, reply: Reply) -> bytes:
        """The result of a line that was asked, with its line end."""

    def unasked(self, batch: Batch, line: int, custom_id: str, *, expired: bool) -> bytes:
        """The result of a line that was not asked, with its line end."""


@dataclass(slots=True, eq=False)
class Batch:
    """A batch. Its lines are answered in the order of `order`; `answered` says how many are.

    `problems` say why it fails validation. `output` are the results of lines that succeeded, `errors`
    of others; both are whole once it is `closed`. `first` is its first line's custom id.
    """

    number: int
    id: str
    api: str
    written: Written
    lines: Lines
    made: float
    course: Course
    pause: float
    order: Sequence[int]
    metadata: Mapping[str, str] = field(default_factory=dict)
    problems: list[dict[str, Any]] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)
    first: str = ""
    answered: int = 0
    cancelled: float | None = None
    closed: bool = False
    deleted: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    tokens: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    output: bytearray = field(default_factory=bytearray)
    errors: bytearray = field(default_factory=bytearray)
    again: list[bytes] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def state(self, now: float) -> State:
        """Where it stands."""
        going = self.course
        if self.cancelled is not None:
            over = now >= self.cancelled + self.pause
            return State.CANCELLED if over else State.CANCELLING
        if self.problems:
            return State.FAILED if now >= going.validated else State.VALIDATING
        if now >= going.ended:
            return State.EXPIRED if going.expired else State.COMPLETED
        if now >= going.worked:
            return State.FINALIZING
        return State.IN_PROGRESS if now >= going.validated else State.VALIDATING

    def ended(self, now: float) -> bool:
        """Whether nothing more will become of it."""
        return self.state(now) in ENDED

    @property
    def end(self) -> float:
        """When it ends, in seconds since the epoch."""
        if self.cancelled is not None:
            return self.cancelled + self.pause
        return self.course.validated if self.problems else self.course.ended

    def due(self, now: float) -> int:
        """How many of its lines are answered by then."""
        going, state = self.course, self.state(now)
        if self.cancelled is not None or self.problems or state == State.VALIDATING:
            return self.answered
        if now >= going.worked:
            return math.ceil(len(self.lines) * going.share)
        passed = (now - going.validated) / (going.worked - going.validated)
        return int(len(self.lines) * going.share * passed)


class Batches:
    """All batches of a server, of both APIs. `now` gives seconds since the epoch, `stats` what is
    counted."""

    def __init__(
        self,
        settings: MockSettings,
        answering: Answering,
        stats: Callable[[], Stats],
        now: Callable[[], float],
    ) -> None:
        self.settings = settings
        self.now = now
        self._begun = now()
        self._answering = answering
        self._stats = stats
        self._batches: dict[str, Batch] = {}
        self._asked: Counter[str] = Counter()
        self._faults = {
            name: seeds.Stream(settings.seed, "mock batches", name)
            for name in ("limited", "unanswered", "invalid", "expire", "broken", "flaky")
        }

    def create(
        self,
        api: str,
        written: Written,
        lines: Lines,
        problems: Sequence[dict[str, Any]] = (),
        *,
        metadata: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Batch:
        """A new batch, with `problems` if it is not to pass its validation."""
        now, number = self.now(), len(self._batches)
        batch = Batch(
            number,
            self.name("msgbatch_" if api == "anthropic" else "batch_", number),
            api,
            written,
            lines,
            now,
            course(self.settings, now, half_way=self.drawn("expire") is not None),
            0.1 * self.settings.batch_time,
            array(
                "Q",
                seeds.rng(self.settings.seed, "mock batch order", number)
                .permutation(len(lines))
                .astype(np.uint64)
                .tobytes(),
            ),
            metadata or {},
            list(problems),
            more,
        )
        if not problems:
            batch.first = written.read(lines[0])[0]
        self._batches[batch.id] = batch
        return batch

    def name(self, prefix: str, *what: object) -> str:
        """An id, for example batch_6f3c…, by what it names; another server gives others."""
        known = repr((self._begun, *what)).encode()
        return prefix + hashlib.blake2b(known, digest_size=12).hexdigest()

    def find(self, api: str, name: str) -> Batch | None:
        """A batch by its id."""
        batch = self._batches.get(name)
        return None if batch is None or batch.api != api or batch.deleted else batch

    def listed(self, api: str) -> list[Batch]:
        """An API's batches, the newest first."""
        return [
            batch
            for batch in reversed(self._batches.values())
            if batch.api == api and not batch.deleted
        ]

    def page(self, limit: int) -> int:
        """How many a page has at most, where so many were asked for."""
        return min(limit, self.settings.batch_page or limit)

    def full(self, api: str, lines: Lines) -> bool:
        """Whether a batch of these lines has no room beside those that haven't ended."""
        most, now = self.settings.batch_queue_tokens, self.now()
        if most is None:
            return False
        waiting = [
            batch.lines.size
            for batch in self.listed(api)
            if not batch.problems and not batch.ended(now)
        ]
        return (sum(waiting) + lines.size) / 4 > most

    def drawn(self, fault: str) -> float | None:
        """Whether the next of its kind has this fault, by how many came before: a number in [0, 1) by
        which to choose among its forms, or None."""
        share: float = getattr(self.settings, f"batch_{fault}")
        self._asked[fault] += 1
        if not share:
            return None
        drawn, how = self._faults[fault].at(self._asked[fault]).random(2).tolist()
        return how if drawn < share else None

    async def catch_up(self, batch: Batch) -> float:
        """Answer what is due, and write the results once it ended; the moment by which that holds."""
        async with batch.lock:
            now = self.now()
            due = batch.due(now)
            while batch.answered < due:
                self._answer(batch, now)
                if batch.answered % BURST == 0:
                    await asyncio.sleep(0)
            if batch.ended(now) and not batch.closed:
                await self._close(batch, now)
        return now

    async def cancel(self, batch: Batch) -> tuple[float, bool]:
        """Cancel what isn't answered yet: when that was, and whether it could be."""
        now = await self.catch_up(batch)
        if batch.ended(now):
            return now, False
        if batch.cancelled is None:
            batch.cancelled = now
        return await self.catch_up(batch), True

    def _answer(self, batch: Batch, now: float) -> None:
        """Answer the next line."""
        line = batch.order[batch.answered]
        custom_id, body = batch.written.read(batch.lines[line])
        serial = batch.number * 1_000_000 + line
        reply = self._answering.line(self._stats(), batch.written.form, body, serial, now)
        batch.answered += 1
        batch.counts["succeeded" if reply.status == 200 else "failed"] += 1
        if reply.usage is not None:
            batch.counts["billed"] += 1
            batch.tokens = [a + b for a, b in zip(batch.tokens, reply.usage, strict=True)]
        if reply.fate:
            batch.counts[reply.fate] += 1
        if reply.fate == "lost":
            return
        result = batch.written.result(batch, line, custom_id, reply)
        (batch.output if reply.status == 200 else batch.errors).extend(result)
        if reply.fate == "doubled":
            batch.again.append(result)

    async def _close(self, batch: Batch, now: float) -> None:
        """Write what ends the results: lines that come twice, and those that were not asked."""
        for result in batch.again:
            batch.output.extend(result)
        batch.again = []
        if not batch.problems:
            expired = batch.state(now) == State.EXPIRED
            for place in range(batch.answered, len(batch.lines)):
                line = batch.order[place]
                custom_id, _ = batch.written.read(batch.lines[line])
                batch.errors.extend(batch.written.unasked(batch, line, custom_id, expired=expired))
                batch.counts["expired" if expired else "cancelled"] += 1
                if place % BURST == 0:
                    await asyncio.sleep(0)
        batch.closed = True

    def gone(self, batch: Batch, now: float) -> bool:
        """Whether its results are deleted by now."""
        kept = self.settings.batch_gone
        return now >= (batch.made + batch.written.kept if kept is None else batch.end + kept)

    async def send(
        self, request: web.Request, batch: Batch, *parts: bytearray, sized: bool
    ) -> web.StreamResponse:
        """Send results, whole or broken off; `sized`: it is said before how long they are."""
        how = self.drawn("broken")
        batch.counts.update(("downloads",) if how is None else ("downloads", "broken"))
        total = sum(map(len, parts))
        left = total if how is None else total // 2
        response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
        # A third of the broken ones end early as if they were whole.
        pretended = how is not None and how >= 2 / 3
        if (sized or (how is not None and how < 1 / 3)) and not pretended:
            response.content_length = total
        await response.prepare(request)
        for part in parts:
            for at in range(0, min(len(part), left), CHUNK):
                await response.write(bytes(part[at : min(at + CHUNK, left)]))
            left -= min(len(part), left)
        if how is None or pretended:
            await response.write_eof()
            return response
        if request.transport is not None:
            request.transport.close()
        return response

    async def as_json(self) -> dict[str, Any]:
        """As `/stats` reports it: all that were created, in order."""
        shown: list[dict[str, Any]] = []
        for batch in list(self._batches.values()):
            now = await self.catch_up(batch)
            names = ("billed", "succeeded", "failed", "expired", "cancelled")
            shown.append(
                {
                    "id": batch.id,
                    "api": batch.api,
                    "metadata": dict(batch.metadata),
                    "first_custom_id": batch.first,
                    "state": batch.state(now),
                    "lines": len(batch.lines),
                    **{
                        name: batch.counts[name]
                        for name in (*names, "lost", "doubled", "downloads", "broken")
                    },
                    "tokens": dict(zip(Usage._fields, batch.tokens, strict=True)),
                }
            )
        totals = {name: sum(batch[name] for batch in shown) for name in ("billed", "downloads")}
        return {"created": len(shown), **totals, "list": shown}


def line_of(value: Mapping[str, Any]) -> bytes:
    """A line of JSON, with its end."""
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)


async def read_all(chunks: AsyncIterator[bytes], most: int) -> bytearray | None:
    """All chunks as one, or None if they have more bytes than these."""
    data, size = bytearray(), 0
    async for chunk in chunks:
        size += len(chunk)
        if size <= most:
            data += chunk
    return data if size <= most else None
