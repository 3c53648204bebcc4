"""What the commands print that look into a run's scores: show and explain."""

from __future__ import annotations

from typing import Literal

from judgeq.ui.outputs.runs import Components, Output, Rating, Tokens

ViewName = Literal["all", "top", "bottom", "around", "uncertain", "contested", "against gold"]


class Item(Output):
    """An item by its columns of scores.csv; null for what it hasn't."""

    id: str
    rank: int | None
    """1: most of the feature; null: never judged."""
    ratings: dict[str, float | None]
    """By their names, the main rating last."""
    se: float | None
    """The standard error of the main rating, and the ends of its 95 % interval and of the rank's."""
    low: float | None
    high: float | None
    rank_low: int | None
    rank_high: int | None
    tier: int | None
    matches: int
    wins: float
    left_after: int | None
    """The round after which it left early."""
    gold: float | None
    component: int | None
    text: str | None
    """Null where the texts aren't here, or aren't wanted."""


class Shown(Item):
    """An item of a table, and what the table adds to it: by name."""

    measures: dict[str, float | None]


class ViewFacts(Output):
    """A table: its items in their order, or `why` there are none. `around`: the item asked for."""

    view: ViewName
    why: str | None
    around: str | None
    items: list[Shown]


class OfRun(Output):
    """Of which run this is, and by what it was rated."""

    run: str
    folder: str
    store: str | None = None
    partial: bool
    components: Components
    damage: list[str]
    """What doesn't add up in run.db, where --accept-damage rates it all the same."""
    rating: Rating
    texts: bool
    """Whether the texts are here."""


class ReportOutput(OfRun):
    """Which report was written: `files` are all of it, the report first; of all `items` so many are
    `listed` in its table."""

    format: Literal["html", "md", "json"]
    files: list[str]
    items: int
    listed: int


class ShowOutput(OfRun):
    """Tables of items; `items_left` counts those that all conditions of `where` hold for."""

    where: list[str]
    items_left: int
    views: list[ViewFacts]


class CallFacts(Output):
    """One call: what became of it, and its raw reply, or why there is none. `judge`: the person who
    answered (null: a model). `at`: seconds since 1970."""

    attempt: int
    judge: str | None
    outcome: str
    tokens: Tokens
    cost: float | None
    latency: float
    at: float
    reply: str | None


class Asked(Output):
    """A question: its number in the ledger, and the items as presented. `judge` is null where there is
    one; `calls` without --replies."""

    job: int
    round: int
    judge: str | None
    presented: list[str]
    calls: list[CallFacts] | None


class Judged(Asked):
    """A question with its verdict, as groups of tied items, most of the feature first."""

    order_known: bool
    """Whether the items stand in the order presented."""
    verdict: list[list[str]]
    partial: bool
    """Whether a group of several items isn't tied, but of an order that wasn't asked."""
    score: float | None
    """Of an item judged alone."""
    surprise: float | None
    """Standardised: how unexpected the judgment is under the main rating."""
    rated: bool
    """Whether the ratings are made from it."""
    reason: str | None


class JudgedItem(Judged):
    """What a judgment says of the item: the comparisons that it won and was expected to win; above 0
    `residual` argues for a higher place than it has, below 0 for a lower one; standardised."""

    slot: int | None
    wins: float
    expected: float | None
    residual: float | None


class JudgedTwo(Judged):
    """A judgment of both items. `above`: 1 where the first is placed above the second, 0 below, 0.5
    tied, null where their order wasn't asked."""

    above: float | None


class Met(Output):
    """How often items met, and how often the first was placed above, below, or tied; of the others
    their order wasn't asked."""

    met: int
    above: int
    below: int
    tied: int


class OpponentFacts(Met):
    """An item that was met."""

    id: str


class ExplainOutput(OfRun):
    """The evidence behind one score."""

    item: Item
    judgments: list[JudgedItem]
    argue_most: list[int]
    """The jobs whose judgments argue against its place, the strongest first."""
    elo: list[float]
    """Before the first round and after each."""
    opponents: list[OpponentFacts]
    without_verdict: list[Asked]
    """Questions about it that failed, were invalid, or are still to come."""


class ThroughItem(Output):
    """An item that both met, in judgments without the other one: comparisons won, of how many. `says`: 1
    that the first is above the second, −1 the other way round, 0 neither."""

    id: str
    one_won: float
    one_met: int
    other_won: float
    other_met: int
    says: int


class ThroughFacts(Output):
    """What the items that both met say."""

    items: int
    for_one: int
    for_other: int
    by_item: list[ThroughItem]


class VersusOutput(OfRun):
    """What is known of two items; null `probability_above` with the reason `why`."""

    items: list[Item]
    probability_above: float | None
    why: str | None
    direct: Met
    together: list[JudgedTwo]
    through: ThroughFacts


class ServeOutput(Output):
    """Where the runs are served, a line once it listens."""

    address: str
    """To open in a browser; with the token, where one is asked for."""
