"""What the simulated judge says to a question, in OpenAI's words, and what a fault makes of it: live, or
in a batch; and counts of all of it."""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import orjson
from aiohttp import web

from judgeq import prompts, seeds
from judgeq.judge.simulated import HIGH, LOW, reason_for, rehearsal_scores, verdict_on
from judgeq.replies import write_reply
from judgeq.settings.mock_server import FAULTS, MockSettings
from judgeq.settings.run import Simulation
from judgeq.types import Match, Usage

LIVE = frozenset({"rate_limited", "dropped", "hung"})
"""The faults that a line of a batch can't have."""


@dataclass(slots=True)
class Stats:
    """What the server saw. Tokens are those of answered requests."""

    requests: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)
    in_flight: int = 0
    most_in_flight: int = 0
    asked: Counter[str] = field(default_factory=Counter)
    delivered: Counter[str] = field(default_factory=Counter)

    @property
    def answered(self) -> int:
        """Requests that were answered."""
        return self.delivered.total()

    def count(self, number: str, usage: Usage) -> None:
        """Count a question that was answered, and the tokens that it took."""
        self.delivered[number] += 1
        self.tokens.update(usage._asdict())

    def as_json(self) -> dict[str, Any]:
        """As `/stats` tells it."""
        return {
            "requests": self.requests,
            "answered": self.answered,
            "outcomes": dict(self.outcomes),
            "refused_by_limits": self.outcomes["limited"],
            "tokens": {name: self.tokens[name] for name in Usage._fields},
            "in_flight": self.in_flight,
            "most_in_flight": self.most_in_flight,
            "questions": len(self.asked),
            "asked_again": self.asked.total() - len(self.asked),
        }


class Question(NamedTuple):
    """A question: what it is known by, all of its text, the tokens of that, the form that its reply is
    to have, if any, and the most tokens that this may have."""

    id: str
    model: str
    content: str
    tokens: int
    form: str
    limit: float


class Chat:
    """The simulated judge. `scores` gives the latent score (1..1000) of the texts that are known."""

    faults: ClassVar[Sequence[str]] = FAULTS

    def __init__(self, settings: MockSettings, scores: Mapping[str, float], stats: Stats) -> None:
        self.settings = settings
        self.stats = stats
        # As they stand between the fences of a prompt.
        self._scores = {_as_fenced(text): score for text, score in scores.items()}
        self._simulation = Simulation()
        self._answers = seeds.Stream(settings.seed, "mock answers")
        self._faults = seeds.Stream(settings.seed, "mock faults")
        self._shares = {name: getattr(settings, name) for name in self.faults}

    def question(self, data: bytes) -> Question | web.Response:
        """What a body asks for, or the refusal of it."""
        asked = _read(data)
        return asked or error(400, "The body is no JSON object with a model and messages.")

    @property
    def _changed(self) -> bool:
        """Whether another model answers by now, which errs in its own way."""
        after = self.settings.model_after
        return after is not None and self.stats.answered >= after

    def fault(self, asked: Question) -> tuple[str, float]:
        """The fault of a request, or "", and how long it takes (0 to 1): by how often it came."""
        if not self.settings.latency and not any(self._shares.values()):
            return "", 0.0
        times = self.stats.asked[asked.id]
        drawn, late = self._faults.at(int(asked.id[:15], 16), times).random(2).tolist()
        for name, share in self._shares.items():
            drawn -= share
            if drawn < 0:
                return name, late
        return "", late

    def completion(
        self, asked: Question, answer: str, usage: Usage, fault: str
    ) -> tuple[bytes, Usage]:
        """The answer as its fault and the limit on output leave it, and the tokens that it took."""
        if usage.output > asked.limit:
            fault, output = "cut_off", int(asked.limit)
            usage = usage._replace(output=output, reasoning=min(usage.reasoning, output))
        message, reason = self.spoil(answer, fault)
        choice = {
            "index": 0,
            "message": {"role": "assistant", "refusal": None, **message},
            "finish_reason": reason,
        }
        model = f"{asked.model}-next" if self._changed else asked.model
        completion = {
            "id": f"chatcmpl-{asked.id[:24]}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": f"fp_{hashlib.sha256(model.encode()).hexdigest()[:10]}",
            "choices": [choice],
            **self.usage_fields(usage),
        }
        return orjson.dumps(completion), usage

    def spoil(self, answer: str, fault: str) -> tuple[dict[str, Any], str]:
        """The message and why it ended, with a fault put in."""
        if fault == "cut_off":
            return {"content": answer[: len(answer) // 2]}, "length"
        if fault == "unreadable":
            answer = "I would rather not rank these, sorry."
        return {"content": answer}, "stop"

    def usage_fields(self, usage: Usage) -> dict[str, Any]:
        """What an answer says of its tokens."""
        prompt = usage.input + usage.cached
        fields = {
            "prompt_tokens": prompt,
            "completion_tokens": usage.output,
            "total_tokens": prompt + usage.output,
            "prompt_tokens_details": {"cached_tokens": usage.cached},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
        }
        return {"usage": fields}

    def usage(self, asked: Question, answer: str) -> Usage:
        """The tokens that an answer takes."""
        return Usage(asked.tokens, 0, count_tokens(answer))

    def line(self, data: bytes) -> web.Response:
        """The answer to the body of a batch's line, counted: the same as live."""
        asked = self.question(data)
        if isinstance(asked, web.Response):
            self.stats.outcomes["refused_request"] += 1
            return asked
        self.stats.asked[asked.id] += 1
        fault, _ = self.fault(asked)
        if fault == "errors":
            self.stats.outcomes["errors"] += 1
            return broke()
        fault = "" if fault in LIVE else fault
        self.stats.outcomes[fault or "ok"] += 1
        answer = self.answer(asked)
        body, usage = self.completion(asked, answer, self.usage(asked, answer), fault)
        self.stats.count(asked.id, usage)
        return as_json(orjson.Fragment(body))

    def answer(self, asked: Question) -> str:
        """What the simulated judge says to the texts between the fences."""
        texts = [text for _, text in prompts.texts_in(asked.content)]
        scores = [self._score(text) for text in texts]
        rng = self._answers.at(int(asked.id[:15], 16), self._changed)
        match = Match(0, 1, tuple(range(max(1, len(texts)))))
        verdict = verdict_on(match, scores or [(LOW + HIGH) / 2], self._simulation, rng)
        wanted = texts and prompts.ASK_REASON in asked.content
        return write_reply(verdict, match, reason_for(verdict, match, scores) if wanted else None)

    def _score(self, text: str) -> float:
        """The latent score of a text: as given, else by its hash."""
        known = self._scores.get(text)
        return float(rehearsal_scores([text])[0]) if known is None else known


def question_id(messages: Sequence[Mapping[str, Any]]) -> str:
    """What a question is known by: a hash of its messages."""
    return hashlib.sha256(orjson.dumps(messages, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _read(data: bytes) -> Question | None:
    """The question in a body; None where there is none."""
    try:
        body = orjson.loads(data)
        messages, model = body["messages"], body["model"]
        texts = [_text(message["content"]) for message in messages]
        form: Any = body.get("response_format") or {}
        kind = str(form.get("type", ""))
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return None
    if not texts or not isinstance(model, str):
        return None
    limits = [body.get(name) for name in ("max_completion_tokens", "max_tokens")]
    limit = min((limit for limit in limits if isinstance(limit, int)), default=math.inf)
    tokens = sum(count_tokens(text) + 8 for text in texts)
    return Question(question_id(messages), model, "\n\n".join(texts), tokens, kind, limit)


def _text(content: Any) -> str:
    """The text of a message, which may come in parts."""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _as_fenced(text: str) -> str:
    texts = prompts.texts_in(prompts.fenced("A", text))
    return texts[0][1] if texts else text


def count_tokens(text: str) -> int:
    """About four bytes a token; never more than there are bytes."""
    return math.ceil(len(text.encode()) / 4)


# Answers as they go over the wire


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


def slow_down(seconds: float | None = None) -> web.Response:
    """A refusal for no reason of ours, which may say for how long."""
    more = {} if seconds is None else {"Retry-After": f"{seconds:g}"}
    return error(429, "Slow down.", code="rate_limit_exceeded", headers=more)


def broke() -> web.Response:
    """The server failed."""
    return error(500, "The server had an error.", kind="server_error")


async def drop(request: web.Request, body: bytes, *, half: bool) -> web.StreamResponse:
    """Cut the connection, before or in the middle of the answer."""
    response = web.StreamResponse(headers={"Content-Length": str(len(body))})
    if half:
        await response.prepare(request)
        await response.write(body[: len(body) // 2])
    if request.transport is not None:
        request.transport.close()
    return response
