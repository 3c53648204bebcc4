"""What the commands around runs print: run, resume, rate, import, status, runs, batches."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Span = tuple[float, float]
State = Literal["running", "finished", "stopped", "no verdicts"]


class Output(BaseModel):
    """The base: all keys are declared, and all without a default are there."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


class ErrorFacts(Output):
    """Why a command ended."""

    type: str
    message: str
    exit_code: int


class Failed(Output):
    """What any command prints that could do nothing."""

    error: ErrorFacts


class Jobs(Output):
    """Questions by what became of them; invalid and failed ones are left out of the ratings."""

    pending: int
    running: int
    done: int
    invalid: int
    failed: int


class Tokens(Output):
    """`input` is uncached input; reasoning is a part of output."""

    input: int
    cached: int
    output: int
    reasoning: int


class CacheUse(Output):
    """Answers that the cache gave, and what they once cost in dollars."""

    hits: int
    saved: float


class Spending(Output):
    """Calls and dollars of a run, over all its sessions."""

    calls: int
    retries: int
    """Calls that brought no reply."""
    unusable_replies: int
    unknown_attempts: int
    """Sent and never answered: possibly paid."""
    tokens: Tokens | None
    replies_without_usage: int
    cost: float | None
    """Null where that of some call is unknown."""
    cost_of_priced_calls: float
    unpriced_calls: int
    possibly_paid_at_most: float | None
    """Beyond the known cost; null: unknown."""
    cache: CacheUse


class Components(Output):
    """Groups of items that comparisons connect; only ratings of one group are on one scale."""

    count: int
    largest: list[int]


class Rating(Output):
    """By what comparisons were rated; beyond the name only of an estimator that has standard errors."""

    name: str
    sigma: float | None = None
    """σ of the prior of θ."""
    sigma_chosen: bool = False
    """By the judgments; else it was given, or is the rating's default."""
    sigma_at_limit: bool = False
    """The least or the largest that is tried was chosen."""
    dispersion: float | None = None
    """How far the judgments scatter against how far they should if the model held; standard errors
    allow for it."""
    position_taken_out: bool = False
    """The effect of the place in which an item was shown."""


class Within(Output):
    """Correlation within components."""

    components: int
    n: int
    pearson: float | None
    spearman: float | None


class Correlation(Output):
    """Of one rating with the gold, over `n` items."""

    n: int
    without_score: int
    spearman: float | None
    pearson: float | None
    within_components: Within | None = None


class Detection(Output):
    """Of the positive class, at the default threshold. `f1` is that of the positive class."""

    n: int
    without_score: int
    recall: float | None
    accuracy: float | None
    precision: float | None
    f1: float | None
    macro_f1: float | None
    true_positive: int | None
    false_positive: int | None
    false_negative: int | None
    true_negative: int | None


class EvaluationFacts(Output):
    """Against gold labels; empty without. Correlation by subset ("all" first) and rating, detection by
    rating, of gold of two classes."""

    correlation: dict[str, dict[str, Correlation]] = {}
    detection: dict[str, Detection] = {}


class Slot(Output):
    """How often the item shown at a place won, with its 95 % interval."""

    slot: int
    win_rate: float
    low: float
    high: float
    matches: int


class Flips(Output):
    """Pairs that were asked in both orders, and those whose answers differed."""

    couples: int
    flipped: int
    incomplete: int


class Effect(Output):
    """How much higher in rating the last place is worth than the first, of these judges: `value` with
    its standard error and 95 % interval."""

    judges: list[str]
    value: float
    se: float
    low: float
    high: float
    matches: int


class Order(Output):
    """Position bias; slots are numbered from 1."""

    slots: list[Slot]
    effects: list[Effect]
    taken_out: bool
    """Whether the ratings are without these effects."""
    unknown: int = 0
    favoured: int | None = None
    slighted: int | None = None
    chance: float | None = None
    """How likely a slot is so far from 0.5 if none is favoured."""
    both_orders: Flips | None = None


class CertaintyFacts(Output):
    """How well the order is known after a round, and would be after one more: agreement with the judge,
    not with the truth."""

    round: int
    rho: float
    """The mean over draws of the posterior of Spearman's ρ with the ratings."""
    next_rho: float | None
    next_calls: int
    """Of one more round; 0: there can't be one."""
    next_cost: float | None
    """In dollars; null: unknown, or nothing is paid."""
    top: int | None
    """How many of the first items matter, by --until topK."""
    top_share: float | None
    """Which share of them is among the first in a draw, on average."""
    next_top_share: float | None
    labels_left: int | None
    """Items whose label isn't settled, by --until-labels."""
    sigma: float | None = None
    """That of the prior by which all this is, where it isn't that of the ratings."""
    perhaps_less: bool = False
    """σ is the least that is tried, and it can't be told whether it should be less: of a judge that
    hardly tells the items apart rho is too high."""


class EndedFacts(Output):
    """That the run ended because enough was known, by --until, and what was known."""

    round: int
    goal: str
    rho: float
    top_share: float | None
    labels_left: int | None


class RunOutput(Spending):
    """A run's result. With `error` it ended early: `partial` says whether anything is left to do."""

    run: str
    folder: str
    store: str | None = None
    """The database that keeps the run, where one does."""
    scores: str
    """scores.csv: a row an item."""
    partial: bool
    items: int
    items_judged: int
    components: Components
    damage: list[str]
    """What doesn't add up in run.db, where --accept-damage rates it all the same."""
    rounds: int
    rounds_planned: int
    jobs: Jobs
    cost_equivalent_calls: float
    rating: Rating
    left_early: int
    certainty: CertaintyFacts | None
    """Null where it wasn't worked out: items judged alone, or rated otherwise than by default."""
    ended: EndedFacts | None
    evaluation: EvaluationFacts
    order: Order
    error: ErrorFacts | None = None


class LastFailure(Output):
    """The last call without an answer; `at` in seconds since 1970."""

    error: str
    at: float
    in_a_row: int


class LeaderFacts(Output):
    """Who plans a store's run; who did last, unless `leads`."""

    name: str
    epoch: int
    leads: bool


class WorkerFacts(Output):
    """A process that works or worked on a store's run. `silent`: it may be dead, or cut off. Times are
    seconds since 1970 on the database's clock; `spent` is in dollars."""

    name: str
    host: str
    pid: int
    state: Literal["working", "waiting", "silent", "left"]
    since: float
    seen: float
    running: int
    """Jobs that it has now."""
    done: int
    calls: int
    errors: int
    calls_a_second: float
    """In about the last minute."""
    spent: float


class CapFacts(Output):
    """Dollars that the run may cost, over all workers: spent, at risk for calls in flight or lost, and
    held by workers for their next calls."""

    max_cost: float | None
    spent: float
    at_risk: float
    held: float


class LimitFacts(Output):
    """What processes share just now of a model's limits, over all runs of the store; null: none known.
    `pace` is the part of them that is used since calls were refused, `paused` the seconds for which
    nothing is sent."""

    name: str
    processes: int
    requests_a_minute: float | None
    tokens_a_minute: float | None
    calls_at_once: int | None
    in_flight: int
    pace: float
    paused: float


class Machines(Output):
    """Who works on a run in a store, and what they share."""

    leader: LeaderFacts | None
    calls_a_second: float
    workers: list[WorkerFacts]
    cap: CapFacts
    limits: list[LimitFacts]


class BatchFacts(Output):
    """A batch, and how its provider says it stands (`status`, `total`, `done`, `failed`). `reserved`,
    `at_risk` and `cost` are in dollars, null where unknown; times are seconds since the epoch."""

    name: str
    judge: int
    api: str
    address: str
    form: str
    made: float
    jobs: int
    reserved: float | None
    tokens: float
    state: Literal["intended", "sent", "collected", "refused", "lost"]
    remote: str | None
    status: str
    total: int
    done: int
    failed: int
    seen: float | None
    expires: float | None
    cost: float
    answered: int
    error: str | None
    left: int
    at_risk: float | None


class RunBatch(BatchFacts):
    """A batch of a run; whether a session works on that now."""

    run: str
    running: bool


class Released(Output):
    """How many batches were given up."""

    released: int


class StatusOutput(Spending):
    """How far a run is; of `run` and `resume` with the `error` that ended them without ratings."""

    run: str
    folder: str
    store: str | None = None
    state: State
    created: str
    dataset: str
    items: int
    strategy: str
    judge: str
    seed: int
    rounds: int
    rounds_planned: int
    jobs: Jobs
    jobs_by_round: list[Jobs]
    certainty: CertaintyFacts | None
    """After the last complete round, by `status`; null also of many items."""
    ended: EndedFacts | None
    batches: list[BatchFacts]
    """Those that are out."""
    last_failure: LastFailure | None
    machines: Machines | None = None
    """Of a run in a store, by `status`."""
    error: ErrorFacts | None = None


class UnreadableRun(Output):
    """A run's folder that can't be read."""

    run: str
    folder: str
    store: str | None = None
    state: Literal["unreadable"]
    reason: str
