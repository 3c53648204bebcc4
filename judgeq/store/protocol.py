"""What a store takes and gives beside the vocabulary, and the narrow connection that it needs of a
database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from judgeq.events import Event
from judgeq.store.statements import Bulk
from judgeq.types import Bools, Floats, Match, Matches, Offsets, Rows, Usage

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """What the store knows of the dataset: n ids, n gold labels (nan: none; None: no gold at all),
    and named subsets as masks of shape (n,). Never the texts."""

    ids: Sequence[str]
    gold: Floats | None
    subsets: Mapping[str, Bools]

    def same_as(self, other: Items) -> bool:
        """Whether ids, gold and subsets are equal."""
        if len(self.ids) != len(other.ids) or list(self.ids) != list(other.ids):
            return False
        if (self.gold is None) != (other.gold is None) or set(self.subsets) != set(other.subsets):
            return False
        if (
            self.gold is not None
            and other.gold is not None
            and not np.array_equal(self.gold, other.gold, equal_nan=True)
        ):
            return False
        return all(np.array_equal(mask, other.subsets[name]) for name, mask in self.subsets.items())


class Spent(NamedTuple):
    """What the replies to one question took together: tokens, dollars (None: unknown), and seconds (0
    where the cache answered)."""

    match: Match
    usage: Usage
    cost: float | None
    latency: float


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Verdicts as they stand in a store, column by column: shape (verdicts,), or their items one after
    the other; a score is nan where there is none. `lengths` are those of the rankings and `asked_of`
    those of their matches, in items."""

    jobs: Offsets
    ranked: Rows
    lengths: Offsets
    asked: Rows
    asked_of: Offsets
    ties: NDArray[np.uint8]
    scores: Floats
    judges: Rows
    ordered: Bools


class Database(Protocol):
    """One run's tables, by the statements of statements.py. Errors are RunErrors: StoreAwayError where
    the database can't be reached or can't commit just now, which another try may mend.

    What a task does in a transaction, no other task of this process sees or disturbs.
    """

    blocking: bool
    """Whether operations keep the event loop until they are done."""
    emit: Callable[[Event], None]
    """Notifies the user."""
    hurried: bool
    """Whether what is away isn't waited for any longer."""
    label: str
    """The run, for messages."""

    @property
    def inside(self) -> bool:
        """Whether this task is in a transaction."""

    def transaction(self) -> AbstractAsyncContextManager[None]:
        """What this task does inside is one transaction; inside another it is a part of that."""

    async def again(self, work: Callable[[], Awaitable[T]]) -> T:
        """What `work` returns, done again while the database is away: it may be done twice. In a
        transaction it is done once."""

    async def read(self, statement: str, **values: object) -> list[Any]:
        """The rows of a statement that may be run twice: it is, while the database is away."""

    async def change(self, statement: str, **values: object) -> int:
        """How many rows a statement changed; in a transaction of this task."""

    async def each(self, bulk: Bulk, rows: Sequence[tuple[Any, ...]]) -> list[bool]:
        """Run a statement for each of these rows, in a transaction of this task; for which of them it
        changed anything. Several rows about the same id are run in their order."""

    async def load(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Put many new rows of the run into a table, in a transaction of this task."""

    async def claim(self, worker: int, n: int, judges: Sequence[int] | None) -> list[Any]:
        """Give the worker up to n pending jobs for these judges (None: for all), lowest numbers first;
        their rows (statements.JOB)."""

    async def end_dead(self) -> int:
        """End the workers whose lease is over, and put their jobs back in the queue; how many jobs."""

    async def put_back_unbegun(self, ours: Sequence[int]) -> int:
        """Put jobs back in the queue that other workers have and never began; how many they were."""

    async def counts(self, first: int, last: int) -> list[Any]:
        """How many jobs of this span are in each state: (state, count), perhaps several of a state."""

    async def verdicts(self, first: int, last: int) -> Columns:
        """The verdicts on a span of jobs. Raises ValueError for what can't be."""

    async def matches(self, first: int, last: int) -> Matches:
        """The questions of a span of jobs. Raises ValueError for what can't be."""

    async def close(self) -> None:
        """Let go of it."""
