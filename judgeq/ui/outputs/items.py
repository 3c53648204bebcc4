"""What the commands print that look into a run's scores: show and explain."""

from __future__ import annotations

from typing import Literal

from judgeq.ui.outputs.runs import Components, Output, Rating

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
    rating: Rating
    texts: bool
    """Whether the texts are here."""


class ShowOutput(OfRun):
    """Tables of items; `items_left` counts those that all conditions of `where` hold for."""

    where: list[str]
    items_left: int
    views: list[ViewFacts]
