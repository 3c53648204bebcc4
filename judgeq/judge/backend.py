"""The seam between judgeq and whatever judges: text in, text out."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

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


class Reply(NamedTuple):
    """What came back: the text, the tokens, and the cost in dollars (None: price unknown)."""

    text: str
    usage: Usage
    cost: float | None


class Backend(Protocol):
    """Something that answers. `reads_text` tells whether it needs the texts of the items."""

    @property
    def name(self) -> str:
        """As the user named it, for screens and run ids."""

    @property
    def reads_text(self) -> bool:
        """Whether `Request.messages` will be called."""

    async def complete(self, request: Request) -> Reply:
        """One attempt. Raises CallError if another may mend it, JudgeError if none can."""

    async def close(self) -> None:
        """Let go of connections."""
