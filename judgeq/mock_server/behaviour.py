"""What the mock server saw, and the limits that it enforces exactly."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from judgeq.types import Usage

WINDOW = 60.0


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
