"""Events: what the engine tells a face, as frozen data. A face folds them and never answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from judgeq.types import Batch, Counts, JobState, Totals, Usage


@dataclass(frozen=True, slots=True)
class Certainty:
    """How well the order is known after a round: agreement with the judge, not with the truth.

    `rho` is ρ̂, the expected Spearman's ρ between the ratings and what they may be, and `next_rho`
    what it is expected to be after one more round, which would take `next_calls` questions (0: there
    can't be one) and `next_cost` dollars (None: unknown). Where the first `top` items matter,
    `top_share` is the share of them that are expected among the first. All three are None where
    there was one round of comparisons, in which nothing is repeated.
    """

    round: int
    rho: float | None
    next_rho: float | None
    next_calls: int
    next_cost: float | None = None
    top: int | None = None
    top_share: float | None = None


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A session begins. `planned` holds the jobs of the rounds that earlier sessions planned, round
    by round, and `totals` what they spent: nothing for a new run. `sizes` are the jobs of each round,
    where that is known beforehand. `people`: they are asked, and no model."""

    run: str
    items: int
    rounds: int
    judge: str
    planned: Sequence[Counts] = ()
    totals: Totals = Totals()  # noqa: RUF009  (immutable)
    sizes: Sequence[int] = ()
    people: bool = False


@dataclass(frozen=True, slots=True)
class PeopleHere:
    """How many people have their page open, and are to be asked more."""

    people: int


@dataclass(frozen=True, slots=True)
class RoundStarted:
    """A round is planned, or taken up again; `counts` are its jobs."""

    round: int
    counts: Counts


class JobStarted(NamedTuple):
    """A worker has claimed a job."""

    job: int


class CallStarted(NamedTuple):
    """A request leaves for the judge."""


class CallEnded(NamedTuple):
    """A request came back, or didn't. `cached`: the cache gave the reply, for nothing. `error` is why
    there was no answer."""

    outcome: str
    usage: Usage
    cost: float | None
    latency: float
    cached: bool = False
    error: str | None = None


class JobEnded(NamedTuple):
    """A job has reached `state`; PENDING means it was given back."""

    job: int
    state: JobState


@dataclass(frozen=True, slots=True)
class Placed:
    """An item at an end of the current ranking; `text` is None where the texts aren't here.
    `rating` is its Elo, or the score (0 to 1) of one that was judged alone."""

    id: str
    text: str | None
    rating: float


@dataclass(frozen=True, slots=True)
class EndedEarly:
    """The strategy has no items left to compare, or enough is known: there were only `rounds` rounds."""

    rounds: int


@dataclass(frozen=True, slots=True)
class RoundRated:
    """A round is rated.

    `moved` is Spearman's ρ between the ratings before and after it; None in the first round. `top` and
    `bottom` are the ends of the ranking, each from high to low; of groups there are none. `known` is
    how well the order is known now, where that was worked out. `rating` names what `Placed.rating` is:
    Elo, or direct scores.
    """

    round: int
    moved: float | None
    top: Sequence[Placed]
    bottom: Sequence[Placed]
    known: Certainty | None = None
    rating: str = "elo"


@dataclass(frozen=True, slots=True)
class BatchesOpen:
    """Batches are waited for; they are looked at in so many seconds."""

    batches: Sequence[Batch]
    seconds: float


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the user should know, in one sentence. `needed`: also who wants to see nothing but
    warnings."""

    text: str
    warning: bool = False
    needed: bool = False


@dataclass(frozen=True, slots=True)
class Forecast(Notice):
    """What is left of a run with models, before its first call: questions to ask, those that the cache
    answers, tokens and dollars from least to most (None: unknown), and the cap (None: none)."""

    calls: int = 0
    from_cache: int = 0
    input_tokens: tuple[float, float] = (0.0, 0.0)
    output_tokens: tuple[float, float] = (0.0, 0.0)
    cost: tuple[float, float] | None = None
    max_cost: float | None = None


@dataclass(frozen=True, slots=True)
class Stopping:
    """A stop was asked for: no new calls; those in flight are let finish."""


Event: TypeAlias = (
    RunStarted
    | RoundStarted
    | PeopleHere
    | JobStarted
    | CallStarted
    | CallEnded
    | JobEnded
    | RoundRated
    | BatchesOpen
    | EndedEarly
    | Notice
    | Stopping
)
Emit: TypeAlias = Callable[[Event], None]
