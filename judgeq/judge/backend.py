"""The seam between judgeq and whatever judges: text in, text out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from judgeq.types import Match, Usage


class Request(NamedTuple):
    """One question on its way to a judge.

    `attempt` counts all requests committed for the match; `ask` counts how often a reply was read
    (2 when the first was unusable). `messages` renders the prompt, and is called only by a backend
    that reads text.
    """

    match: Match
    attempt: int
    ask: int
    messages: Callable[[], list[dict[str, str]]]


class Prepared(NamedTuple):
    """A request as it would be sent.

    `key` names everything that decides the reply, for the cache (None: not to be kept). `tokens` is
    about what it takes, for the limiter. `bound` is the most it can cost in dollars; None where the
    price is unknown. `version` is the backend's when this was made. `lost` is the most that it is
    taken to have cost if its answer never comes; None: as `bound`.
    """

    body: bytes = b""
    key: str | None = None
    tokens: float = 0.0
    bound: float | None = 0.0
    version: int = 0
    lost: float | None = None


def key_of(*parts: bytes) -> str:
    """A key for the cache from parts, each hashed with its length, so that no two can run together."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


class Reply(NamedTuple):
    """What came back: the text, the tokens, and the cost in dollars (None: unknown).

    `problem` says why the text is no answer: the model refused, or was cut off.
    """

    text: str
    usage: Usage
    cost: float | None
    problem: str | None = None


class Memory(Protocol):
    """What is remembered about servers from one run to the next (judge/cache.py)."""

    def recall(self, name: str) -> dict[str, Any] | None:
        """What was noted under a name in the last days."""

    def remember(self, name: str, note: Mapping[str, Any]) -> None:
        """Note something."""


class Cached(NamedTuple):
    """A valid reply as the cache keeps it: `cost` in dollars is what it cost when it was bought, and
    `at` when that was, in seconds since the epoch."""

    text: str
    usage: Usage
    cost: float | None
    at: float


class Backend(Protocol):
    """Something that answers."""

    @property
    def name(self) -> str:
        """As the user named it, for screens and run ids."""

    @property
    def version(self) -> int:
        """Goes up when the same request would now be sent, or bounded, otherwise (SteppedDownError)."""

    async def open(self) -> None:
        """Get ready to be asked, once. Raises JudgeError when it can't be: no key, say."""

    def prepare(self, request: Request) -> Prepared:
        """The request as it would be sent now."""

    async def complete(self, request: Request, prepared: Prepared) -> Reply:
        """One attempt. Raises CallError if another may mend it, JudgeError if none can."""

    async def close(self) -> None:
        """Let go of connections."""
