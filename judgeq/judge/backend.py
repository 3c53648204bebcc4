"""The seams between judgeq and whatever judges: text in, text out, one by one or in batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from judgeq.errors import JudgeError
from judgeq.types import Answerer, Match, Usage

KEPT: Mapping[str, int] = {"openai": 30, "anthropic": 29}
"""Days for which a provider keeps a batch's results, by the form of its API."""
DOUBT_SECONDS = 3_600.0
"""Seconds for which a provider must say that it doesn't find a batch, or its results, to be believed:
providers have said so for minutes about batches that were there."""
OVERDUE_SECONDS = 600.0
"""Seconds after a batch's deadline from which its user is warned that it should have ended."""


MOST_OF_A_NAME = 200
"""Characters that are kept of a model's name, or a fingerprint, that a server gives."""


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
    price is unknown. `version` is the backend's when this was made.
    """

    body: bytes = b""
    key: str | None = None
    tokens: float = 0.0
    bound: float | None = 0.0
    version: int = 0


class Reply(NamedTuple):
    """What came back: the text, the tokens, and the cost in dollars (None: unknown).

    `problem` says why the text is no answer: the model refused, or was cut off.
    """

    text: str
    usage: Usage
    cost: float | None
    problem: str | None = None
    answerer: Answerer = Answerer()


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

    def output_within(self, prepared: Prepared, dollars: float) -> int:
        """Return the limit on output tokens with which a request costs so many dollars at most."""

    async def complete(self, request: Request, prepared: Prepared) -> Reply:
        """One attempt. Raises CallError if another may mend it, JudgeError if none can."""

    async def close(self) -> None:
        """Let go of connections."""


# In batches


class Remote(NamedTuple):
    """A batch as its provider describes it.

    `status` is in the provider's own words; `stands` what that means for us: the provider still works
    on it, it ended and may have results, or it was refused as a whole and cost nothing. `problems` says
    why, line by line where it does; `full`: because too many tokens wait already, which time mends.
    `results` is where these are read, of no meaning outside the adapter. `made` and `expires` are
    seconds since the epoch.
    """

    id: str
    status: str
    stands: Literal["working", "ended", "refused"]
    made: float
    total: int = 0
    done: int = 0
    failed: int = 0
    expires: float | None = None
    problems: Sequence[str] = ()
    full: bool = False
    results: Sequence[str] = ()


class Download(NamedTuple):
    """The results of a batch, as far as the provider gave them."""

    files: Sequence[Path]
    refused: Sequence[JudgeError]
    """Why a file can't be read, for each such file."""


class Result(NamedTuple):
    """One line of a result file. `body` is the answer as it would have come live, with its HTTP
    `status`; where there is none (status 0) `ended` says why: the batch was cancelled or expired before
    it was asked, at no cost, or nobody says (None)."""

    custom_id: str
    status: int
    body: bytes
    ended: Literal["cancelled", "expired"] | None = None
