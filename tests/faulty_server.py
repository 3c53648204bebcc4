"""The mock server with what goes wrong with batches and replies: a test double."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from judgeq import prompts, seeds
from judgeq.mock_server import Handler, MockServer
from judgeq.mock_server.batches import Batch, Batches
from judgeq.mock_server.chat import Chat, Question, as_json, broke, drop, error, slow_down
from judgeq.replies import write_reply
from judgeq.settings.mock_server import MockSettings
from judgeq.types import Match, Usage, Verdict

KEPT = 30 * 86_400
"""Seconds for which results are kept."""
COUNTED = ("billed", "failed", "cancelled", "expired")
LARGEST_PAGE = 100
CAN = {"schema": ("", "text", "json_object", "json_schema"), "json": ("", "text", "json_object")}
FAULTS = ("limited", "unanswered", "invalid", "expire", "broken", "flaky")


FAILURES_INSIDE: Sequence[dict[str, Any]] = (
    {"choices": [{"message": None, "error": {"code": 502, "message": "Upstream error"}}]},
    {"choices": [{"message": None, "error": {"code": 429, "message": "Slow down"}}]},
    {"choices": [{"message": {"content": ""}, "finish_reason": "error"}]},
    {"choices": []},
    {"choices": None, "base_resp": {"status_code": 1002, "status_msg": "rate limit"}},
)


class FaultySettings(MockSettings):
    """How the mock server behaves, and what else goes wrong. Shares are from 0 to 1."""

    only_model: str | None = None  # know no other model than this
    refused: float = 0.0  # replies that refuse
    cut_off: float = 0.0  # replies cut off by length
    incomplete: float = 0.0  # replies that lack a label
    structured: str = "schema"  # the structured replies it can do
    max_input_tokens: int | None = None  # the longest question it reads
    quota_after: int | None = None  # answers until the quota is used up
    reasoning_tokens: int = 0  # of every reply
    unread: str = ""  # answers that need no text: "presented", "reversed", "constant"
    unread_model: str | None = None  # only this model answers so
    context: int | None = None  # tokens to which a longer question is cut off, without a word
    failed_inside: float = 0.0  # replies with status 200 that hold a failure, in several forms
    thinks: bool = False  # in every reply, with a draft of the answer
    system_role: bool = True  # without it messages of the system are refused
    streams: bool = False  # unless a request says "stream": false
    reported_cost: float | None = None  # dollars that every reply says it cost

    batch_expire: float = 0.0  # batches that expire half-way
    batch_invalid: float = 0.0  # batches that fail validation
    batch_queue_tokens: int | None = None  # the most in batches that wait, at four bytes a token
    batch_limited: float = 0.0  # creations refused with 429
    batch_unanswered: float = 0.0  # creations that succeed and whose answer is lost
    batch_flaky: float = 0.0  # other requests that fail, with 429, 500 or no answer
    batch_failing: float = 0.0  # lines that fail, with 500, 429 or status 0
    batch_lost: float = 0.0  # answered lines that results lack
    batch_doubled: float = 0.0  # lines that results hold twice
    batch_broken: float = 0.0  # downloads that end half-way


class FaultyChat(Chat):
    """The simulated judge, with more that goes wrong."""

    settings: FaultySettings
    faults = (
        *("rate_limited", "errors", "dropped", "hung", "refused", "cut_off"),
        *("unreadable", "incomplete", "failed_inside"),
    )

    def question(self, data: bytes) -> Question | web.Response:
        settings, asked = self.settings, super().question(data)
        if isinstance(asked, web.Response):
            return asked
        body = orjson.loads(data)
        if settings.streams and body.get("stream") is not False:
            return web.Response(text='data: {"choices": []}\n\n', content_type="text/event-stream")
        if not settings.system_role and body["messages"][0]["role"] == "system":
            return error(400, "System role not supported")
        if settings.only_model not in (None, asked.model):
            text = f"The model `{asked.model}` does not exist or you do not have access to it."
            return error(404, text, code="model_not_found")
        if asked.form not in CAN.get(settings.structured, ("", "text")):
            text = "Invalid parameter: 'response_format' is not supported with this model."
            return error(400, text, param="response_format")
        longest = settings.max_input_tokens
        if longest is not None and asked.tokens > longest:
            return error(
                400,
                f"This model's maximum context length is {longest} tokens. However, your messages "
                f"resulted in {asked.tokens} tokens. Please reduce the length of the messages.",
                code="context_length_exceeded",
                param="messages",
            )
        if settings.quota_after is not None and self.stats.answered >= settings.quota_after:
            text = "You exceeded your current quota, please check your plan and billing details."
            return error(429, text, kind="insufficient_quota", code="insufficient_quota")
        return asked

    def answer(self, asked: Question) -> str:
        how = self.settings.unread
        if not how or self.settings.unread_model not in (None, asked.model):
            return super().answer(asked)
        k = len(prompts.texts_in(asked.content))
        match = Match(0, 1, tuple(range(k)))
        if k == 1:
            return write_reply(Verdict((0,), (), 0.8), match)
        order = match.items[::-1] if how == "reversed" else match.items
        return write_reply(Verdict(order), match)

    def usage(self, asked: Question, answer: str) -> Usage:
        usage, reasoning = super().usage(asked, answer), self.settings.reasoning_tokens
        if self.settings.context is not None:
            usage = usage._replace(input=min(usage.input, self.settings.context))
        return usage._replace(output=usage.output + reasoning, reasoning=reasoning)

    def usage_fields(self, usage: Usage) -> dict[str, Any]:
        fields = super().usage_fields(usage)
        if self.settings.reported_cost is not None:
            fields["usage"]["cost"] = self.settings.reported_cost
        return fields

    def completion(
        self, asked: Question, answer: str, usage: Usage, fault: str
    ) -> tuple[bytes, Usage]:
        if self.settings.thinks:
            answer = f"<think>Perhaps {answer}.</think>\n\n{answer}"
        body, usage = super().completion(asked, answer, usage, fault)
        if fault != "failed_inside":
            return body, usage
        forms = FAILURES_INSIDE
        failure = forms[self.stats.outcomes["failed_inside"] % len(forms)]
        return orjson.dumps(orjson.loads(body) | failure | {"usage": None}), Usage()

    def spoil(self, answer: str, fault: str) -> tuple[dict[str, Any], str]:
        match fault:
            case "incomplete":
                return {"content": answer.replace('"A"', '"B"')}, "stop"
            case "refused":
                return {"content": None, "refusal": "I'm sorry, I can't help with that."}, "stop"
        return super().spoil(answer, fault)


@dataclass(eq=False)
class FaultyBatch(Batch):
    """A batch that expires with this `share` of its lines answered. `problems` say why it fails its
    validation; `again` are results that come twice; `size` is in bytes."""

    share: float = 1.0
    problems: Sequence[Mapping[str, Any]] = ()
    size: int = 0
    again: bytearray = field(default_factory=bytearray)

    def state(self, now: float) -> str:
        state = super().state(now)
        if self.cancelled is None and self.problems:
            return "failed"
        return "expired" if state == "completed" and self.share < 1 else state

    @property
    def end(self) -> float:
        return self.made if self.cancelled is None and self.problems else super().end

    def due(self, now: float) -> int:
        if self.cancelled is not None or self.problems:
            return self.answered
        return math.ceil(self.share * super().due(now))


class FaultyBatches(Batches):
    """All files and batches of a server, with faults."""

    kind = FaultyBatch
    settings: FaultySettings
    batches: dict[str, FaultyBatch]  # type: ignore[assignment]

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        settings = self.settings
        self._asked: Counter[str] = Counter()
        self._faults = {name: seeds.Stream(settings.seed, "mock batches", name) for name in FAULTS}
        self._lines = seeds.Stream(settings.seed, "mock batch lines")
        self._how = 1.0

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

    # Results

    def gone(self, batch: FaultyBatch) -> bool:
        """Whether its results are deleted by now."""
        return self.now() >= batch.end + KEPT

    async def content(self, request: web.Request) -> web.StreamResponse:
        found = await super().content(request)
        name = request.match_info["id"]  # of results: nobody downloads what is sent
        return await self.send(request, self.files[name]) if found.status == 200 else found

    async def send(self, request: web.Request, data: bytes | bytearray) -> web.StreamResponse:
        """Send results: whole, or broken off, some as if they were whole."""
        how = self.drawn("broken")
        if how is not None and how < 2 / 3:
            return await drop(request, bytes(data), half=True)
        return web.Response(body=bytes(data if how is None else data[: len(data) // 2]))

    # Batches

    async def create(self, request: web.Request) -> web.StreamResponse:
        return self.limited() or await self.told(request, await super().create(request))

    def limited(self) -> web.Response | None:
        """The refusal of a creation, or None."""
        return slow_down(self.settings.retry_after) if self.drawn("limited") is not None else None

    async def told(self, request: web.Request, created: web.StreamResponse) -> web.StreamResponse:
        """The answer to a creation, unless it is to get lost."""
        if created.status != 200 or (how := self.drawn("unanswered")) is None:
            return created
        assert isinstance(created, web.Response)
        body = (created.text or "").encode()
        return await drop(request, body, half=how < 0.25) if how < 0.5 else broke()

    def problems(self, lines: Sequence[Any], size: int) -> list[dict[str, Any]]:
        """Why a batch of so many bytes is not to pass its validation: by a fault, or since too much
        waits."""
        most, now = self.settings.batch_queue_tokens, self.now()
        if (drawn := self.drawn("invalid")) is not None:
            text, line = "The request body is not valid.", int(drawn * len(lines)) + 1
            return [{"code": "invalid_request", "line": line, "message": text, "param": "body"}]
        waiting = [
            batch.size for batch in self.batches.values() if not batch.problems and now < batch.end
        ]
        if most is None or (sum(waiting) + size) / 4 <= most:
            return []
        text = (
            f"Enqueued token limit reached. Limit: {most:,} enqueued tokens. Please try again once "
            "some in_progress batches have been completed."
        )
        return [{"code": "token_limit_exceeded", "line": None, "message": text, "param": None}]

    def add(self, lines: Sequence[Mapping[str, Any]], asked: Mapping[str, Any]) -> FaultyBatch:
        """A new batch: `asked` has its size, or a file of so many bytes that may be refused."""
        size = asked.get("size") or len(self.files[asked["input_file_id"]])
        problems = () if "size" in asked else self.problems(lines, size)
        batch = super().add(lines, asked)
        assert isinstance(batch, FaultyBatch)
        batch.problems, batch.size = problems, size
        batch.share = 1.0 if self.drawn("expire") is None else 0.5
        return batch

    def batch_json(self, batch: Batch, state: str) -> dict[str, Any]:
        shown = super().batch_json(batch, state)
        if state == "failed":
            assert isinstance(batch, FaultyBatch)
            shown["errors"] = {"object": "list", "data": batch.problems}
            shown["request_counts"]["total"] = 0
        return shown

    # Lines

    def answer_line(self, data: bytes) -> web.Response:
        asked, stats, self._how = self.chat.question(data), self.chat.stats, 1.0
        if not isinstance(asked, Question):
            return super().answer_line(data)
        times = stats.asked[asked.id] + 1
        drawn, how = self._lines.at(int(asked.id[:15], 16), times).random(2).tolist()
        if drawn < self.settings.batch_failing:
            stats.asked[asked.id] = times
            stats.outcomes["errors"] += 1
            if how >= 2 / 3:
                return web.Response(status=0)
            return slow_down() if how >= 1 / 3 else broke()
        self._how = how
        return super().answer_line(data)

    def write(self, batch: Batch, line: Mapping[str, Any], said: web.Response) -> None:
        assert isinstance(batch, FaultyBatch)
        lost, doubled = self.settings.batch_lost, self.settings.batch_doubled
        before = len(batch.output)
        super().write(batch, line, said)
        if said.status == 200 and self._how < lost:
            del batch.output[before:]
        elif said.status == 200 and self._how < lost + doubled:
            batch.again += batch.output[before:]

    def close(self, batch: Batch, state: str) -> None:
        assert isinstance(batch, FaultyBatch)
        batch.output += batch.again
        if not batch.problems:
            super().close(batch, state)

    async def list_batches(self, request: web.Request) -> web.Response:
        page, more = self.page(request.query.get("after"), int(request.query.get("limit", 20)))
        data = [self.batch_json(batch, self.catch_up(batch)) for batch in page]
        return as_json({"object": "list", "data": data, "has_more": more})

    def page(self, after: str | None, limit: int) -> tuple[list[FaultyBatch], bool]:
        """The batches that follow one, the newest first; and whether there are more."""
        names = [name for name in reversed(self.batches) if self.found(name)]
        names = names[names.index(after) + 1 if after in names else 0 :]
        limit = min(limit, LARGEST_PAGE)
        return [self.batches[name] for name in names[:limit]], len(names) > limit

    def as_json(self) -> dict[str, Any]:
        """With all that were created, in order."""
        shown: list[dict[str, Any]] = [
            {
                "id": batch.id,
                "metadata": batch.fields["metadata"],
                "first_custom_id": batch.lines[0]["custom_id"],
                "state": self.catch_up(batch),
                "lines": len(batch.lines),
                **{name: batch.counts[name] for name in COUNTED},
            }
            for batch in self.batches.values()
        ]
        return super().as_json() | {"list": shown}


class FaultyServer(MockServer):
    """The mock server, with faults."""

    settings: FaultySettings
    batches: FaultyBatches
    make_chat = FaultyChat
    make_batches = FaultyBatches

    async def show_stats(self, request: web.Request) -> web.Response:
        """/stats, with ?questions=1 question by question."""
        seen, stats = self.report(), self.stats
        if "questions" in request.query:
            seen["by_question"] = {
                number: {"asked": asked, "answered": stats.delivered[number]}
                for number, asked in stats.asked.items()
            }
        return as_json(seen)

    def with_key(self, handler: Handler) -> Handler:
        async def unless_flaky(request: web.Request) -> web.StreamResponse:
            return await self.batches.flaky(request) or await handler(request)

        return super().with_key(unless_flaky)
