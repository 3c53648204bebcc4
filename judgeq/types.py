"""The vocabulary: frozen data that flows along the line from items to scores.

Inside the program an item is its row number (int32). Ids and texts are looked up only at the edges.
Nothing here does I/O, reads a clock, or knows asyncio. What is made for every call is a NamedTuple,
which takes a fraction of a frozen dataclass's time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from enum import StrEnum
from itertools import pairwise, zip_longest
from operator import add
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from judgeq.text import LEFT_OUT

Rows: TypeAlias = NDArray[np.int32]
Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Offsets: TypeAlias = NDArray[np.int64]
Clock: TypeAlias = Callable[[], float]  # seconds
Sleep: TypeAlias = Callable[[float], Awaitable[None]]
Notify: TypeAlias = Callable[[str], None]  # gets a sentence for the user
Fields: TypeAlias = dict[str, Any]  # a JSON object
Headers: TypeAlias = Mapping[str, str]  # HTTP's, by name
GoldKind: TypeAlias = Literal["binary", "ordinal", "continuous"]


class JobState(StrEnum):
    """Where a job stands in the queue."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    INVALID = "invalid"  # answered, twice, and never usably: left out of the ratings
    FAILED = "failed"  # never answered: network, limits; left out until asked again


class Match(NamedTuple):
    """One question to the judge: `items` are row numbers in the order presented. Of several judges
    `judge` says which one is asked. `repeat` counts the matches before in which it was asked about the
    same items in the same order: it is asked again on purpose."""

    id: int
    round: int
    items: tuple[int, ...]
    judge: int = 0
    repeat: int = 0

    @property
    def kind(self) -> Literal["direct", "pair", "list"]:
        """What is asked: a score of one, which of two has more of the feature, or a ranking."""
        k = len(self.items)
        return "list" if k > 2 else "pair" if k == 2 else "direct"


_ZERO, _UNSAID = np.int32(0), cast("Any", None)
UNSAID = {
    "judges": _ZERO,
    "ordered": True,
    "repeats": _ZERO,
    "scores": np.nan,
    "rounds": _ZERO,
    "partial": False,
}
"""What stands in the columns of `Matches` and `Verdicts` that aren't given."""


class Ragged:
    """The `items` of each of several questions, or verdicts, one after the other in one array: those of
    number `m` (from 0) are `items[offsets[m]:offsets[m + 1]]`."""

    __slots__ = ()
    items: Rows
    offsets: Offsets

    def __post_init__(self) -> None:
        for name, value in UNSAID.items():
            if getattr(self, name, value) is None:
                object.__setattr__(self, name, np.full(len(self), value))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Offsets:
        """How many items each has, shape (n,)."""
        return np.diff(self.offsets)

    @property
    def of_slot(self) -> Offsets:
        """The number of the one that each slot of `items` is of, shape (slots,)."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @property
    def place(self) -> Offsets:
        """The place of each slot in its own, from 0, shape (slots,)."""
        return np.arange(len(self.items)) - self.offsets[self.of_slot]

    @property
    def cost(self) -> float:
        """Cost-equivalent calls: 1 a pair, k/2 a list of k (the paper's measure), ½ a text alone."""
        return len(self.items) / 2


@dataclass(frozen=True, slots=True, eq=False)
class Matches(Ragged):
    """The questions of one round, with their items in the order presented. By question: `judges`, who is
    asked; `ordered`: whether the order presented is known; `repeats`, how often each was asked before
    (`Repeats`)."""

    items: Rows
    offsets: Offsets
    judges: Rows = _UNSAID
    ordered: Bools = _UNSAID
    repeats: Rows = _UNSAID

    @classmethod
    def none(cls) -> Matches:
        """A round without questions."""
        return cls(np.empty(0, np.int32), np.zeros(1, np.int64))

    def __iter__(self) -> Iterator[Rows]:
        return (self.items[a:b] for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True))


class Job(NamedTuple):
    """A match in the queue.

    `attempts` counts the requests that were committed as about to be sent; `unusable` those that
    brought a reply which was no verdict; `error` says what was last wrong.
    """

    match: Match
    attempts: int = 0
    unusable: int = 0
    error: str | None = None


class Usage(NamedTuple):
    """Tokens of one call. `input` is uncached input; `reasoning` is a part of `output`."""

    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0


class Answerer(NamedTuple):
    """The model that answered, and its fingerprint, as its provider says; None where it doesn't."""

    model: str | None = None
    fingerprint: str | None = None


class Call(NamedTuple):
    """One request, paid for or not, and what became of it.

    `outcome` is "ok", "unusable", the `outcome` of a JudgeError, or "cached" for an answer that the
    cache gave: no request then, and `usage` and `cost` are what it once took. `cost` is in dollars,
    None where it is unknown. `latency` in seconds. `at` is seconds since the epoch. `bound` is what its
    attempt was begun with: where `cost` is unknown it is taken to have been paid. `judge` is the person
    who answered, among all judges (None: the match's judge). What a person says is no attempt: nothing
    was begun.
    """

    attempt: int
    outcome: str
    usage: Usage
    cost: float | None
    latency: float
    reply: str | None
    at: float
    bound: float | None = 0.0
    judge: int | None = None
    answerer: Answerer = Answerer()
    prompt_size: int = 0
    """Characters of the texts that were asked about, as judge/unread.py counts them; 0: not known."""
    problem: str | None = None
    """Why the reply is no verdict; None for one that is, and where none came."""
    overpriced_bytes: int | None = None
    """Bytes of a request that cost more than its bound; None for all others."""


class Failure(NamedTuple):
    """The last call without an answer: why, when (seconds since the epoch), and how many there were
    since the last answer (0: one came after it)."""

    error: str
    at: float
    in_a_row: int


class Verdict(NamedTuple):
    """The judge's answer to a match: its `items`, most of the feature first.

    `tied[p]` tells that the item at place p is tied with the one before it (never the first);
    empty where nothing is tied. `score`, 0 to 1, is the verdict on one item alone. `partial`: it has
    one group of several items, and others above or below; in which order the items of that group are
    isn't known, so that they are no tie and imply nothing of one another (only the best and the worst
    of a list were named, or the first few).
    """

    items: tuple[int, ...]
    tied: tuple[bool, ...] = ()
    score: float | None = None
    partial: bool = False

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The groups of tied items, most of the feature first."""
        groups: list[tuple[int, ...]] = []
        for item, tied in zip_longest(self.items, self.tied, fillvalue=0):
            groups.append((*groups.pop(), item) if tied else (item,))
        return tuple(groups)

    @classmethod
    def of(cls, groups: Iterable[Sequence[int]], *, partial: bool = False) -> Verdict:
        """The verdict with these groups of tied items; `partial`: of items whose order isn't known.
        Raises ValueError for a partial one that has several such groups, or nothing beside it."""
        groups = list(groups)
        if partial and (len(groups) < 2 or sum(len(group) > 1 for group in groups) > 1):
            raise ValueError(
                "a partial ranking has one group of items whose order isn't known, and others beside it."
            )
        items = tuple(item for group in groups for item in group)
        if len(items) == len(groups):
            return cls(items)
        tied = tuple(place > 0 for group in groups for place in range(len(group)))
        return cls(items, tied, partial=partial)


class Attempt(NamedTuple):
    """The intent to send one request, committed before it leaves.

    `bound` is the most it can cost, in dollars; None where that is unknown. `number` counts the job's
    attempts from 1, so that one isn't begun twice; None: whatever comes next.
    """

    job: int
    bound: float | None = 0.0
    number: int | None = None


class BatchState(StrEnum):
    """Where a batch of requests stands: written down, at the provider, all settled, or none."""

    INTENDED = "intended"  # about to be created: the provider may have it, and we don't know its id
    SENT = "sent"  # the provider has it, and not all of its jobs are settled
    COLLECTED = "collected"  # all of its jobs are settled
    REFUSED = "refused"  # the provider didn't take it: nothing was paid
    LOST = "lost"  # it can't be had from the provider (any more): it may have been paid


class Doubt(StrEnum):
    """What a provider says about a batch that may be wrong, and isn't believed for a while."""

    BATCH = "batch"  # it doesn't find the batch
    RESULTS = "results"  # it doesn't find the results of a batch that ended
    SHORT = "short"  # the results are broken, or hold less than was answered


class Batch(NamedTuple):
    """Many requests that are sent together, and answered within a day.

    `name` is random: the provider is sent it, and finds the batch by it. It was sent to the server at
    `address`, and in a `form` of the backend's (ModelBackend.form). `remote` is the provider's own id
    (None: not known), `status` the provider's last word on it, `total`, `done` and `failed` its counts,
    seen at `seen`. `reserved` is the most that it can cost in dollars (None: unknown), `tokens` about
    what it takes. `cost` is what its lines cost that are settled, in dollars, `answered` those that
    brought a reply. `error` says what went wrong with the batch as a whole. `doubt` is what its provider
    says and isn't believed yet, `doubted_since` when it said so first, `doubted_looks` how often since.
    `left` and `at_risk` are
    the store's own, when it is read: the jobs that it still has, and the most that these may cost
    (None: unknown). Times are seconds since the epoch.
    """

    name: str
    judge: int
    api: str
    address: str
    form: str
    made: float
    jobs: int
    reserved: float | None
    tokens: float
    state: BatchState = BatchState.INTENDED
    remote: str | None = None
    status: str = ""
    total: int = 0
    done: int = 0
    failed: int = 0
    seen: float | None = None
    expires: float | None = None
    cost: float = 0.0
    answered: int = 0
    error: str | None = None
    doubt: Doubt | None = None
    doubted_since: float | None = None
    doubted_looks: int = 0
    left: int = 0
    at_risk: float | None = 0.0

    @property
    def open(self) -> bool:
        """Whether it is out, or may be."""
        return self.state in (BatchState.INTENDED, BatchState.SENT)

    @property
    def deadline(self) -> float | None:
        """Return when its provider is to end it, in seconds since the epoch; None where nobody says."""
        if self.state is not BatchState.SENT or self.doubt is not None:
            return None
        if self.expires is None or self.expires <= self.made:
            return None
        return self.expires


class Line(NamedTuple):
    """A job in a batch: the most that its request can cost in dollars (None: unknown), and the bytes of
    its body."""

    job: Job
    bound: float | None
    size: int


class Outcome(NamedTuple):
    """What a worker has to say about a job: its new state, the verdict if any, and the calls since.
    State RUNNING only adds `calls` to the ledger; PENDING gives the job back."""

    job: int
    state: JobState
    verdict: Verdict | None = None
    calls: tuple[Call, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Verdicts(Ragged):
    """Many verdicts, in match order: each answers match `matches[v]` and ranks its `items`, most of the
    feature first; `tied[s]` tells that slot s is tied with slot s − 1 (never a verdict's first).
    `presented` holds the same items in the order presented. The others are by verdict: `scores` of items
    judged alone, else nan; `judges`: people have numbers after those of the judges that are asked;
    `ordered`: whether the order presented is known; `rounds`, from 0; `partial`: whether ties are of no
    known order.
    """

    matches: Offsets
    items: Rows
    offsets: Offsets
    tied: Bools
    presented: Rows
    scores: Floats = _UNSAID
    judges: Rows = _UNSAID
    ordered: Bools = _UNSAID
    rounds: Rows = _UNSAID
    partial: Bools = _UNSAID

    @property
    def questions(self) -> Matches:
        """What was asked."""
        return Matches(self.presented, self.offsets, self.judges, self.ordered)

    @property
    def scored(self) -> Bools:
        """Which are scores of items judged alone, shape (verdicts,)."""
        return ~np.isnan(self.scores)

    def where(self, chosen: Bools) -> Verdicts:
        """Those verdicts alone for which `chosen`, shape (verdicts,), is true."""
        slots = chosen[self.of_slot]
        kept: Any = {name: getattr(self, name)[slots] for name in ("items", "tied", "presented")}
        others = {one.name for one in fields(self)} - {*kept, "offsets"}
        kept |= {name: getattr(self, name)[chosen] for name in others}
        return Verdicts(**kept, offsets=np.append(0, np.cumsum(self.sizes[chosen])))

    def each(self) -> Iterator[Verdict]:
        """The verdicts, one by one."""
        items, tied = self.items.tolist(), self.tied.tolist()
        scores = self.scores.astype(object)
        scores[~self.scored] = None
        more = scores.tolist(), self.partial.tolist()
        for ends, score, partial in zip(pairwise(self.offsets.tolist()), *more, strict=True):
            ties = tuple(tied[slice(*ends)])
            yield Verdict(tuple(items[slice(*ends)]), ties if any(ties) else (), score, partial)


@dataclass(frozen=True, slots=True)
class Counts:
    """How many jobs are in each state."""

    pending: int = 0
    running: int = 0
    done: int = 0
    invalid: int = 0
    failed: int = 0

    @property
    def total(self) -> int:
        """All jobs."""
        return self.pending + self.running + self.done + self.invalid + self.failed

    @property
    def left(self) -> int:
        """Jobs without an outcome yet."""
        return self.pending + self.running

    def __add__(self, other: Counts) -> Counts:
        return Counts(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class Totals:
    """What the ledger of a run adds up to.

    `retries` are calls without a reply, which another followed unless its job failed; `unusable` those
    whose reply was no verdict. `usage` is that of the calls that reported one; `uncounted` replies came
    without. `cost` is in dollars over the calls whose cost is known; `unpriced` counts the others.
    `in_flight` counts attempts of running jobs that wait for an answer; `unknown` all other attempts
    without an outcome: their answers, if any, were lost, and may have been paid. `at_risk` is the
    most that all of these may have cost beyond `cost`, in dollars; None where a price is unknown.
    `hits` counts the answers that the cache gave; they once cost `saved` dollars, and are in no
    other number here.
    """

    calls: int = 0
    retries: int = 0
    usage: Usage = field(default=Usage(), metadata=LEFT_OUT)
    cost: float = 0.0
    unpriced: int = 0
    in_flight: int = 0
    unknown: int = 0
    at_risk: float | None = 0.0
    hits: int = 0
    saved: float = 0.0
    unusable: int = 0
    uncounted: int = 0
    JSON_KEYS: ClassVar = {
        "cost": "known_cost",
        "cost_of_priced_calls": "cost",
        "unpriced_calls": "unpriced",
        "tokens": "known_usage",
        "replies_without_usage": "uncounted",
        "unusable_replies": "unusable",
        "unknown_attempts": "unknown",
        "possibly_paid_at_most": "at_risk",
        "cache_hits": "hits",
        "cache_saved": "saved",
    }

    @property
    def known_cost(self) -> float | None:
        """Dollars; None where those of some calls aren't known."""
        return None if self.unpriced else self.cost

    @property
    def known_usage(self) -> Usage | None:
        """Tokens; None where no reply said how many."""
        return self.usage if any(self.usage) or not self.uncounted else None
