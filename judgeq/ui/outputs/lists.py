"""What lists, checks and studies print."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from judgeq.ui.outputs.runs import Output


class DatasetFacts(Output):
    """A known dataset. `where`: its file, null if it is to be had first; `labels_only`: no texts yet."""

    name: str
    title: str
    description: str
    items: int | None
    size: int | None
    licence: str
    gold_meaning: str
    gold_kind: str
    prompt: str | None
    citation: str
    address: str | None
    where: str | None
    labels_only: bool


class StrategyFacts(Output):
    """A strategy, and what it costs over `items` items; null where it is `refused`."""

    name: str
    usage: str
    summary: str
    when: str
    settings: list[str]
    rounds: int
    prunes: bool
    items: int
    calls: int | None
    cost_equivalent_calls: float | None
    refused: str | None


class PromptFacts(Output):
    """A prompt set, as its file has it."""

    name: str
    title: str
    feature: str
    ties: bool
    system: str
    pair: str
    list: str
    direct: str | None
    personas: dict[str, str]
    people: dict[str, str]


class Message(Output):
    """A message, as a model is sent it."""

    role: str
    content: str


class CheckFacts(Output):
    """Something that a run needs, and how it is."""

    name: str
    state: Literal["ok", "warning", "failed"]
    report: str


class ModelFacts(Output):
    """Dollars per million tokens."""

    provider: str
    model: str
    input: float
    cached: float | None
    output: float
    context_window: int | None


class CachedModel(Output):
    """Replies of a model, and what they cost."""

    replies: int
    cost: float | None
    """Null where that of some reply is unknown."""


class CacheOutput(Output):
    """The reply cache."""

    folder: str
    replies: int
    bytes: int
    hits: int
    misses: int
    oldest: str | None
    newest: str | None
    models: dict[str, CachedModel]


class Removed(Output):
    """Replies that were removed."""

    removed: int


class StoreTable(Output):
    """A table: about how many rows, bytes with its indexes, rows that are dead and not yet vacuumed."""

    rows: int
    bytes: int
    dead: int


class StoredRunFacts(Output):
    """A run in a store; `touched` is when it was last written to, in seconds since 1970."""

    run: str
    touched: float
    led_by: str | None
    texts_shared: bool
    workers: int


class StoreOutput(Output):
    """A store. `version` is null where its schema isn't there yet; `clock_ahead` are seconds by which
    the database's clock is ahead of this machine's."""

    store: str
    server: str
    schema_name: str = Field(alias="schema")
    version: int | None
    migrated_from: int | None
    may_create: bool
    may_write: bool
    clock_ahead: float
    bytes: int
    tables: dict[str, StoreTable]
    runs: list[StoredRunFacts]


class Vacuumed(Output):
    """Tables that were vacuumed, and how large they were before and are now."""

    tables: int
    dead_before: int
    bytes_before: int
    bytes: int


class Dropped(Output):
    """A run that was deleted from a store."""

    run: str
    rows_deleted: int


class Copied(Output):
    """A run that was copied."""

    run: str
    source: str = Field(alias="from")
    to: str


class Ranked(Output):
    """A strategy of the study, with ρ against the latent order, averaged over `runs` cases."""

    strategy: str
    parameters: str
    rating: str
    rho: float
    rho_se: float | None
    pairs: float
    lists: float
    cost: float
    score: float
    runs: int


class FittedSetting(Output):
    """A setting of the simulated judge that was fitted, with its 95 % interval."""

    value: float
    low: float
    high: float


class FittedStatistic(Output):
    """A statistic of the run and of the simulated ones; `off` is in standard deviations of these."""

    name: str
    observed: float
    simulated: float
    sd: float
    off: float


class FitOutput(Output):
    """The simulated judge that answers as a run's did; `alike`: no statistic is off by more than 3.
    `strategy` is null where the run's own questions were simulated, `sim_unreadable` where no reply is
    known of."""

    judge: dict[str, float | str]
    sim_unreadable: float | None
    estimates: dict[str, FittedSetting]
    statistics: list[FittedStatistic]
    alike: bool
    shape: str
    strategy: str | None
    questions: int
    simulations: int
    order_known: bool
    flags: list[str]
    toml: str


class StudyOutput(Output):
    """A simulation study: its grid, how many rows its table has, and the ranking by score_α; `fit` is
    there with --fit."""

    grid: dict[str, Any]
    rows: int
    table: str
    figures: list[str]
    ranking: list[Ranked]
    fit: FitOutput | None = None


class PlanPoint(Output):
    """A strategy after so many rounds: ρ against the latent order over seeds (its mean, standard
    deviation, and the mean's standard error), in cost-equivalent calls, questions and dollars."""

    line: str
    strategy: str
    rounds: int
    rho: float
    sd: float | None
    se: float | None
    cost: float
    questions: float
    dollars: float | None
    rhos: list[float]


class PlanOutput(Output):
    """What a budget buys: each strategy's points with rising cost; `best` has the highest ρ, `cheaper`
    is nearly as good. `price` is in dollars a cost-equivalent call; `fit` is there with --like."""

    n: int
    simulated: int
    calls: float
    price: float | None
    budget: float | None
    judge: dict[str, float | int | str]
    sim_unreadable: float
    shape: str
    seeds: int
    like: str | None
    fit: FitOutput | None
    points: list[PlanPoint]
    best: PlanPoint
    not_told_apart: list[str]
    cheaper: PlanPoint | None
    left_out: list[str]
    plot: str | None


class PublishedNumber(Output):
    """A published number beside ours."""

    dataset: str
    row: str
    measure: str
    published: float
    ours: float
    theirs: float | None
    why: str
    exact: bool


class ReproducedFacts(Output):
    """A dataset of the paper; `missing` says what couldn't be had."""

    dataset: str
    run: str | None
    elo_equal_to_the_last_bit: bool | None
    checked: str | None
    missing: str | None
    numbers: list[PublishedNumber]
