"""What a store takes and gives beside the vocabulary, and the narrow connection that it needs of a
database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar

from judgeq.events import Event
from judgeq.store.schema import Bulk
from judgeq.text import LEFT_OUT
from judgeq.types import Bools, Floats, Match, Usage, Verdicts

T = TypeVar("T")


class Database(Protocol):
    """One run's tables. Errors are RunErrors: StoreAwayError where the database can't be reached or
    can't commit just now, which another try may mend.

    What a task does in a transaction, no other task of this process sees or disturbs. In a statement
    `@.` stands before a table, `@run` is the number of the run, `@now` the time on the store's clock,
    and `:name` a value; `@lock` locks the rows that are read until the transaction ends, and `@rows` is
    where the rows of a `Bulk` statement come from, which is written for one row of values and run for
    many. Statements are in the SQL that SQLite (3.26 and later) and PostgreSQL both read: no RETURNING,
    UPDATE … FROM, FILTER and the like. What a database does its own way is in its own file.
    """

    COUNTS: ClassVar[str]
    """How many jobs of a round, or of all, are in each state: rows (state, count)."""
    TAKE_OVER: ClassVar[Sequence[str]] = ()
    """What is done before this process leads."""
    blocking: ClassVar[bool]
    """Whether operations keep the event loop until they are done, so that nothing runs meanwhile."""
    emit: Callable[[Event], None]
    """Notifies the user of what they should know of the store."""
    label: str
    """The run, for messages."""

    @property
    def _inside(self) -> bool:
        """Whether this task is in a transaction."""

    def _transaction(self) -> AbstractAsyncContextManager[None]:
        """What this task does inside is one transaction; inside another it is a part of that."""

    async def again(self, work: Callable[[], Awaitable[T]]) -> T:
        """What `work` returns, done again while the store can't be reached or can't commit just now: it
        may be done twice. In a transaction it is done once. Raises StoreAwayError when that takes too
        long (see `hurry`)."""

    def hurry(self) -> None:
        """A stop was asked for: from now on don't wait for long where the store can't be reached."""

    async def _read(self, statement: str, **values: object) -> list[Any]:
        """The rows of a statement that may be run twice: it is, while the database is away."""

    async def _change(self, statement: str, **values: object) -> int:
        """How many rows a statement changed; outside of a transaction it is one of its own."""

    async def _each(self, bulk: Bulk, rows: Sequence[tuple[Any, ...]]) -> list[bool]:
        """Run a statement for each of these rows, in a transaction of this task; for which of them it
        changed anything. Several rows about the same id are run in their order."""

    async def _claim(self, worker: int, n: int, which: str) -> list[Any]:
        """Give the worker up to n pending jobs of those for `which` this holds, lowest numbers first;
        their rows (schema.JOB)."""

    async def _verdicts(self, round: int | None, n: int) -> Verdicts:
        """The verdicts of a round, or of all, over n items. Raises ValueError for what can't be."""

    async def close(self) -> None:
        """Let go of it; what was written is kept."""


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """What the store knows of the dataset: n ids, n gold labels (nan: none; None: no gold at all),
    named subsets as masks of shape (n,), and the group of each item (None: no groups). Never the
    texts."""

    ids: Sequence[str]
    gold: Floats | None
    subsets: Mapping[str, Bools]
    groups: Sequence[str] | None = None

    def same_as(self, other: Items) -> bool:
        """Whether ids, gold and subsets are equal. (Groups decide a run, and never change.)"""
        ours, theirs = (
            (
                list(items.ids),
                None if items.gold is None else items.gold.tobytes(),
                {name: mask.tobytes() for name, mask in items.subsets.items()},
            )
            for items in (self, other)
        )
        return ours == theirs


class Answered(NamedTuple):
    """How many `calls` for a judge of the panel, by its number, were answered by a model of this name
    and fingerprint, as its provider says."""

    judge: int
    model: str
    fingerprint: str | None
    calls: int


class PromptCount(NamedTuple):
    """Calls to one judge of the panel, all from the cache or none, for which the server counted as many
    `tokens` of input. Sizes are of their texts, in characters (Call.prompt_size), all in one band."""

    judge: int
    is_cached: bool
    tokens: int
    calls: int
    smallest: int
    largest: int
    too_few: int
    """How many of them have more characters than so many tokens can hold."""


class ReplyProblem(NamedTuple):
    """What was wrong with so many unusable replies."""

    problem: str
    replies: int


class Spent(NamedTuple):
    """What the replies to one question took together: tokens, dollars (None: unknown), and seconds (0
    where the cache answered)."""

    match: Match
    usage: Usage
    cost: float | None
    latency: float


# Who works on a run of a store that many machines share, and what they share


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A worker of the run. Times are seconds since the epoch on the database's clock, which read `now`;
    `over`: it left or was found dead; `lapsed`: it gave no sign for as long as its lease. `running`
    counts the jobs that it has now, `rate` its calls a second in about the last minute, `spent` the
    nano-dollars of its calls."""

    number: int = field(metadata=LEFT_OUT)
    name: str
    host: str
    pid: int
    since: float
    seen: float
    over: bool = field(metadata=LEFT_OUT)
    lapsed: bool = field(metadata=LEFT_OUT)
    done: int
    calls: int
    errors: int
    running: int
    now: float = field(metadata=LEFT_OUT)
    rate: float
    spent: int
    JSON_KEYS: ClassVar = {
        "state": "doing",
        "calls_a_second": "rate",
        "spent": "dollars",
    }

    @property
    def doing(self) -> Literal["working", "waiting", "silent", "left"]:
        """What it does, in a word; "silent" is one that may be dead or cut off."""
        if self.over:
            return "left"
        if self.lapsed:
            return "silent"
        return "working" if self.running else "waiting"

    @property
    def label(self) -> str:
        """Its name without what tells it from its namesakes."""
        return holder_name(self.name)

    @property
    def dollars(self) -> float:
        """What its calls cost."""
        return self.spent / 1e9


class Leader(NamedTuple):
    """Who leads the run; or led it last, unless `leads`."""

    name: str
    epoch: int
    leads: bool


class Cap(NamedTuple):
    """The run's cap in dollars (None: none), and what is gone of it: spent, possibly to be paid for
    calls in flight or lost, and held by workers for their next calls."""

    max_cost: float | None
    spent: float
    at_risk: float
    held: float


@dataclass(frozen=True, slots=True)
class Crew:
    """All of it; workers in the order in which they came."""

    leader: Leader | None
    workers: Sequence[WorkerState]
    cap: Cap
    JSON_KEYS: ClassVar = {"calls_a_second": "rate"}

    @property
    def rate(self) -> float:
        """Calls a second in about the last minute."""
        return sum(worker.rate for worker in self.workers)


class Prospect(NamedTuple):
    """A run: whether jobs of it wait, or are held; how many rounds are planned, and whether the last
    of them says that no more come."""

    name: str
    fingerprint: str
    pending: bool
    running: bool
    planned: int
    ended: bool


def holder_name(holder: str) -> str:
    """The name of a leader or worker, without what tells it from its namesakes."""
    return holder.rpartition(" (")[0] or holder
