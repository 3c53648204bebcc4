"""How the mock server behaves, what it saw, and the limits that it enforces exactly."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

import orjson
from pydantic import BaseModel, ConfigDict, Field

from judgeq.types import Usage

WINDOW = 60.0
FAULTS = (
    *("rate_limited", "errors", "dropped", "hung", "refused", "cut_off", "filtered"),
    *("unreadable", "incomplete", "wrapped"),
)


Share = Annotated[float, Field(ge=0, le=1)]


class MockSettings(BaseModel):
    """How the server behaves. Shares (0 to 1) are of requests, and of a batch's lines.

    `structured` replies that it can do: with "ignored" it takes a schema and doesn't keep to it. Of
    batches, `batch_expire` and `batch_invalid` are shares of batches, `batch_limited` and
    `batch_unanswered` of requests to create one, `batch_flaky` of all other requests about them,
    `batch_failing`, `batch_lost` and `batch_doubled` of lines, `batch_broken` of downloads; times are
    in seconds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    host: str = "127.0.0.1"
    port: int = Field(8000, ge=0, le=65535)
    seed: int = Field(0, ge=0)
    only_model: str | None = None
    latency: float = Field(0.0, ge=0)
    rpm: float | None = Field(None, gt=0)
    tpm: float | None = Field(None, gt=0)
    rate_limited: Share = 0.0
    retry_after: float = Field(1.0, ge=0)
    errors: Share = 0.0
    dropped: Share = 0.0
    hung: Share = 0.0
    unreadable: Share = 0.0
    incomplete: Share = 0.0
    refused: Share = 0.0
    cut_off: Share = 0.0
    filtered: Share = 0.0
    wrapped: Share = 0.0
    key: str | None = None
    echo_key: bool = False
    structured: Literal["schema", "ignored", "json", "text"] = "schema"
    max_input_tokens: int | None = Field(None, ge=1)
    quota_after: int | None = Field(None, ge=0)
    reasoning_tokens: int = Field(0, ge=0)
    reasoning_beside: bool = False
    cached_share: Share = 0.0
    usage: bool = True
    batch_time: float = Field(2.0, ge=0)
    batch_expire: Share = 0.0
    batch_invalid: Share = 0.0
    batch_queue_tokens: int | None = Field(None, ge=1)
    batch_limited: Share = 0.0
    batch_unanswered: Share = 0.0
    batch_flaky: Share = 0.0
    batch_failing: Share = 0.0
    batch_lost: Share = 0.0
    batch_doubled: Share = 0.0
    batch_broken: Share = 0.0

    @property
    def failures(self) -> tuple[tuple[str, float], ...]:
        """The faults that take an answer's place, and their shares."""
        return tuple((name, getattr(self, name)) for name in FAULTS)


@dataclass(slots=True)
class Stats:
    """What the server saw. Tokens are those of answered requests."""

    requests: int = 0
    answered: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    limited: int = 0
    tokens: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    in_flight: int = 0
    most_in_flight: int = 0
    asked: Counter[str] = field(default_factory=Counter)
    delivered: Counter[str] = field(default_factory=Counter)

    def count(self, number: str, usage: Usage) -> None:
        """Count a question that was answered, and the tokens that it took."""
        self.answered += 1
        self.delivered[number] += 1
        self.tokens = [a + b for a, b in zip(self.tokens, usage, strict=True)]

    def as_json(self, *, questions: bool = False) -> dict[str, Any]:
        """As `/stats` tells it."""
        stats: dict[str, Any] = {
            "requests": self.requests,
            "answered": self.answered,
            "outcomes": dict(self.outcomes),
            "refused_by_limits": self.limited,
            "tokens": dict(zip(Usage._fields, self.tokens, strict=True)),
            "in_flight": self.in_flight,
            "most_in_flight": self.most_in_flight,
            "questions": len(self.asked),
            "asked_again": self.asked.total() - len(self.asked),
        }
        if questions:
            stats["by_question"] = {
                number: {"asked": asked, "answered": self.delivered[number]}
                for number, asked in self.asked.items()
            }
        return stats


def question_id(messages: Sequence[Mapping[str, Any]]) -> str:
    """What a question is known by: a hash of its messages."""
    return hashlib.sha256(orjson.dumps(messages, option=orjson.OPT_SORT_KEYS)).hexdigest()


class Room(NamedTuple):
    """A limit a minute, what is left of it, and seconds until more is."""

    limit: float
    remaining: float
    reset: float


class Limit:
    """At most `limit` in any 60 seconds, exactly: a log of what was let through."""

    def __init__(self, limit: float | None, clock: Callable[[], float]) -> None:
        self.limit = limit
        self._clock = clock
        self._log: deque[tuple[float, float]] = deque()
        self._sum = 0.0

    def wait(self, amount: float) -> float:
        """Seconds until so much may pass; 0 if it may now."""
        if self.limit is None:
            return 0.0
        now = self._clock()
        while self._log and self._log[0][0] <= now - WINDOW:
            self._sum -= self._log.popleft()[1]
        over = self._sum + amount - self.limit
        if over <= 1e-9 or not self._log:
            return 0.0
        for at, passed in self._log:
            over -= passed
            if over <= 1e-9:
                return max(0.001, at + WINDOW - now)
        return WINDOW

    def take(self, amount: float) -> None:
        """Let it pass."""
        if self.limit is not None:
            self._log.append((self._clock(), amount))
            self._sum += amount

    def room(self) -> Room | None:
        """What is left; None where nothing is limited."""
        if self.limit is None:
            return None
        reset = self._log[0][0] + WINDOW - self._clock() if self._log else 0.0
        return Room(self.limit, max(0.0, self.limit - self._sum), max(0.0, reset))
