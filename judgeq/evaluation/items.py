"""Views of a run's items: the highest and lowest, the least certain, the most contested, and so on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, ClassVar

import numpy as np

from judgeq.engine.results import OF_RUN, Result
from judgeq.engine.scores import Scores
from judgeq.rating import comparisons, scale_quality
from judgeq.rating.correlation import Order
from judgeq.text import LEFT_OUT
from judgeq.types import Floats


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Some items of `scores` in an order: their `rows`, most remarkable first. `measures` are further
    numbers of all items by name, shape (n,); the first decides the order. `why` there are none. `marked`
    is the row of the item that was asked for.
    """

    scores: Scores = field(metadata=LEFT_OUT)
    name: str
    rows: Sequence[int] = field(metadata=LEFT_OUT)
    measures: Mapping[str, Floats] = field(default_factory=dict, metadata=LEFT_OUT)
    why: str | None = None
    marked: int | None = field(default=None, metadata=LEFT_OUT)
    JSON_KEYS: ClassVar = {"around": "around", "items": "items"}

    @property
    def around(self) -> str | None:
        """The item that was asked for."""
        return None if self.marked is None else self.scores.ids[self.marked]

    @property
    def items(self) -> list[dict[str, Any]]:
        """The items, with their measures."""
        return [
            item | {name: values[row] for name, values in self.measures.items()}
            for item, row in zip(self.scores.records(self.rows), self.rows, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Views:
    """Views of a run's items."""

    run: Result
    views: Sequence[View]
    JSON_KEYS: ClassVar = OF_RUN


def ends(run: Result, n: int, group: str | None = None) -> list[View]:
    """The n highest of the items and the n lowest, each from high to low; all as one where these are as
    many. Of a `group`, where there are some; of none the ends of each, of n groups."""
    rows, groups = ranked(run.scores), run.scores.groups
    if groups is not None and group is None:
        return [View(run.scores, "groups", group_ends(run.scores)[: 2 * n])]
    if groups is not None:
        rows = [row for row in rows if groups[row] == group]
    if len(rows) <= 2 * n:
        return [View(run.scores, "all", rows, why=f"no group is called {group}")]
    return [View(run.scores, "top", rows[:n]), View(run.scores, "bottom", rows[-n:])]


def around(run: Result, n: int, row: int) -> View:
    """The n items next above an item and the n next below, of those that it can be compared with."""
    scores = run.scores
    if not scores.rank[row]:
        return View(scores, "around", [], why="this item was never judged", marked=row)
    rows = [other for other in ranked(scores) if scores.component[other] == scores.component[row]]
    at = rows.index(row)
    return View(scores, "around", rows[max(0, at - n) : at + n + 1], marked=row)


def uncertain(run: Result, n: int) -> View:
    """The items whose main rating has the largest standard errors."""
    why = f"the rating {run.main.name} has no standard errors"
    return _largest(run, "uncertain", n, run.scores.se, why)


def contested(run: Result, n: int) -> View:
    """The items whose judgments contradict one another most: of the highest infit, standardised (z) to
    allow for how many comparisons it is made of; of those of scale_quality.LEAST comparisons or more."""
    fit = scale_quality.fit_of_items(comparisons.joined(run.history.verdicts), run.scores.main[1])
    few = f"no item was in {scale_quality.LEAST} comparisons, which this takes"
    return _largest(run, "contested", n, fit.z, few, z=fit.z, infit=fit.infit)


def against_gold(run: Result, n: int) -> View:
    """The items that judge and gold place furthest apart (`gap_to_gold`), whichever is higher."""
    gap = gap_to_gold(run.scores)
    return _largest(run, "against gold", n, np.abs(gap), "no judged item has a gold label", gap=gap)


VIEWS = {"uncertain": uncertain, "contested": contested, "against_gold": against_gold}


def chosen(
    run: Result, n: int, item: str | None, kinds: Sequence[str], group: str | None = None
) -> list[View]:
    """Those next to an item by its id, and VIEWS of these kinds, of n items each; the ends, of a group,
    where none is asked for, or a group is. Raises UsageError."""
    views = [] if item is None else [around(run, n, run.row_of(item))]
    views += [VIEWS[kind](run, n) for kind in kinds]
    return views if views and group is None else [*views, *ends(run, n, group)]


def gap_to_gold(scores: Scores) -> Floats:
    """By how much the judge places each item above where gold has it: the difference of its ranks by the
    main rating and by gold, each the mean of those tied, as a share of the items of its component that
    have both. Shape (n,), −1 to 1: below 0 where gold is higher; nan without one of both. Of two
    classes gold's ranks are two, so that a positive at the very bottom is near −1."""
    gap = np.full(len(scores.ids), np.nan)
    rows = np.flatnonzero(scores.scored & ~np.isnan(scores.gold))
    part = scores.component[rows]
    # Of one component after the other: what comes before is the same of both.
    by_rating, by_gold = (
        Order(values[rows], part).ranks(np.ones((1, len(rows))))[0]
        for values in (scores.main[1], scores.gold)
    )
    gap[rows] = (by_rating - by_gold) / np.bincount(part)[part]
    return gap


def _largest(run: Result, name: str, n: int, values: Floats, why: str, **measures: Floats) -> View:
    """The view of the items with the largest values; `why` there are none where all are nan."""
    if np.isnan(values).all():
        return View(run.scores, name, [], why=why)
    return View(run.scores, name, _highest(values, n), measures)


def ranked(scores: Scores) -> list[int]:
    """The rows of ranked items, from high to low by the main rating; group by group."""
    rows = _highest(np.where(scores.rank > 0, scores.main[1], np.nan), len(scores.ids))
    return rows if scores.group is None else sorted(rows, key=scores.group.tolist().__getitem__)


def group_ends(scores: Scores) -> list[int]:
    """The rows of the highest and of the lowest ranked item of each group."""
    found = list[int]()
    for _, rows in groupby(ranked(scores), lambda row: scores.groups and scores.groups[row]):
        first, *_, last = [*rows] * 2
        found += dict.fromkeys((first, last))
    return found


def _highest(values: Floats, n: int) -> list[int]:
    """The rows of the n highest values; ties in the order of the rows."""
    rows = np.flatnonzero(~np.isnan(values))
    highest: list[int] = rows[np.argsort(-values[rows], kind="stable")][:n].tolist()
    return highest
