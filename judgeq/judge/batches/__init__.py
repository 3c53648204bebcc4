"""The seam between judgeq and a provider's batch API: many requests in a file, their answers in others.

A round goes out as files of lines, each with an id of its own; a day later at most it comes back as
files of results, in any order, which may lack lines, hold them twice, or hold errors in their place.
Nothing here knows the ledger: what to send, and what becomes of a result, is engine/batch.py's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, Protocol

from judgeq.types import Batch, BatchState

KEPT: Mapping[str, int] = {"openai": 30, "anthropic": 29}
"""Days for which a provider keeps a batch's results, by the form of its API."""


class Limits(NamedTuple):
    """What one batch may hold: requests, and bytes in all."""

    lines: int
    bytes: int


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


def noted(batch: Batch, remote: Remote, at: float) -> Batch:
    """The batch with what its provider says of it, seen `at`, in seconds since the epoch."""
    return batch._replace(
        remote=remote.id,
        state=BatchState.SENT,
        status=remote.status,
        total=remote.total,
        done=remote.done,
        failed=remote.failed,
        expires=remote.expires,
        seen=at,
    )


class Identified(NamedTuple):
    """What a provider's list says of a batch that we may have created: it (None: it isn't there); the
    ids of those that may be it, which can't be said yet."""

    remote: Remote | None
    doubtful: Sequence[str] = ()


class Result(NamedTuple):
    """One line of a result file. `body` is the answer as it would have come live, with its HTTP
    `status`; where there is none (status 0) `ended` says why: the batch was cancelled or expired before
    it was asked, at no cost, or nobody says (None)."""

    custom_id: str
    status: int
    body: bytes
    ended: Literal["cancelled", "expired"] | None = None


class BatchAPI(Protocol):
    """A provider's batch API. All raise CallError where another try may mend it, and JudgeError where
    none can, as backends do; an error's `cost` is None where the batch may have been created all the
    same."""

    @property
    def limits(self) -> Limits:
        """What one batch may hold."""

    def line(self, custom_id: str, body: bytes) -> bytes:
        """A request, by its body as it would be sent live, as it stands in a batch's file, whose parts
        are these and nothing else. Its id has at most 64 letters, digits, - and _."""

    async def create(self, name: str, lines: BinaryIO) -> Remote:
        """Create a batch of the lines in a file, from its place on; the provider is sent our name for
        it, if it keeps any."""

    async def get(self, remote: str) -> Remote:
        """How a batch stands, by the provider's id."""

    async def identify(
        self, name: str, count: int, since: float, known: Collection[str]
    ) -> Identified:
        """The batch of our name with so many lines, made at that time or later, if the provider has
        it: by its name, or by the ids of its lines (`NAME-…`). `known` are the provider's ids of
        other batches of ours."""

    async def download(self, remote: Remote, folder: Path, *, as_it_is: bool = False) -> list[Path]:
        """Write the results of a batch that ended whole into a folder, as files of their own names, and
        return them: none where it has none. What is there already was whole, and isn't asked for.

        Raises BrokenResultsError where a line of them can't be one; `as_it_is` leaves such lines empty.
        """

    def results(self, file: Path) -> Iterator[Result]:
        """What a file of results says, line by line. Raises RunError for one that is no such file."""

    async def cancel(self, remote: str) -> Remote:
        """Ask the provider to stop working on a batch. What it has answered by then is billed."""
