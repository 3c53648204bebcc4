"""Views of a run's items: the highest and lowest, the least certain, the most contested, and so on. The
evidence behind one score, or about two items: the judgments that they were in and what each argues for,
and the calls and reasons that the ledger holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, ClassVar

import numpy as np

from judgeq.datasets.tables import display
from judgeq.engine import rounds
from judgeq.engine.results import OF_RUN, Result
from judgeq.engine.scores import Scores
from judgeq.errors import UsageError
from judgeq.escaping import plain
from judgeq.person import remark
from judgeq.rating import comparisons, scale_quality
from judgeq.rating.correlation import Order
from judgeq.replies import reason_in
from judgeq.strategies import History
from judgeq.text import LEFT_OUT
from judgeq.types import Call, Floats

SHOWN = 10
"""Items of a view, or groups of which the ends are shown, if no number is given."""
GROUPS_LISTED = 10
GROUP_SHOWN = 40
"""Groups, and cells of a group's name, that an error lists."""
ANSWERED = ("ok", "cached")
"""The outcomes of calls that brought a verdict."""


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
    JSON_KEYS: ClassVar = {**OF_RUN, "cautions": "run.cautions"}


def group_view(scores: Scores, n: int | None = None) -> View:
    """Return the n highest and the n lowest items of each group; without n the ends of SHOWN groups."""
    return View(
        scores, "groups", group_ends(scores)[: 2 * SHOWN] if n is None else group_ends(scores, n)
    )


def ends(run: Result, n: int, group: str | None = None) -> list[View]:
    """Return the n highest of the items and the n lowest, each from high to low; all as one where these
    are as many. Of a `group` where one is named. Raises UsageError for one that isn't there."""
    scores, rows = run.scores, ranked(run.scores)
    if group is not None:
        check_group(scores, group)
        rows = [row for row in rows if scores.groups and scores.groups[row] == group]
    elif scores.groups is not None:
        return [group_view(scores)]
    if len(rows) <= 2 * n:
        return [View(scores, "all", rows, why="none of them is ranked")]
    return [View(scores, "top", rows[:n]), View(scores, "bottom", rows[-n:])]


def check_group(scores: Scores, group: str) -> None:
    """Raise UsageError for a group that isn't there, naming those that are."""
    if scores.groups is None:
        raise UsageError("--group: the run has no groups. `judgeq run --group-column` makes some.")
    if group in scores.groups:
        return
    names = sorted({*scores.groups})
    listed = ", ".join(plain(name, GROUP_SHOWN) for name in names[:GROUPS_LISTED])
    more = f" and {len(names) - GROUPS_LISTED:,} more" if len(names) > GROUPS_LISTED else ""
    raise UsageError(
        f"--group {display(group)}: there is no such group. There are: {listed}{more}."
    )


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
    if run.info.settings.rehearsal:
        return View(run.scores, "contested", (), why="the answers are made up")
    fit = scale_quality.fit_of_items(comparisons.joined(run.history.verdicts), run.scores.main[1])
    few = f"no item was in {scale_quality.LEAST} comparisons, which this takes"
    return _largest(run, "contested", n, fit.z, few, z=fit.z, infit=fit.infit)


def against_gold(run: Result, n: int) -> View:
    """The items that judge and gold place furthest apart (`gap_to_gold`), whichever is higher."""
    gap = gap_to_gold(run.scores)
    return _largest(run, "against gold", n, np.abs(gap), "no judged item has a gold label", gap=gap)


VIEWS = {"uncertain": uncertain, "contested": contested, "against_gold": against_gold}


def chosen(
    run: Result, given: int | None, item: str | None, kinds: Sequence[str], group: str | None = None
) -> list[View]:
    """Return those next to an item by its id, and VIEWS of these kinds, of so many items each, or SHOWN;
    the ends, of a group, where none is asked for, or a group is. Raises UsageError."""
    n = SHOWN if given is None else given
    if item is None and not kinds and group is None and run.scores.groups is not None:
        return [group_view(run.scores, given)]
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


def group_ends(scores: Scores, n: int = 1) -> list[int]:
    """Return the rows of the n highest and of the n lowest ranked items of each group."""
    found = list[int]()
    for _, rows in groupby(ranked(scores), lambda row: scores.groups and scores.groups[row]):
        every = [*rows]
        found += dict.fromkeys((*every[:n], *every[-n:]))
    return found


def _highest(values: Floats, n: int) -> list[int]:
    """The rows of the n highest values; ties in the order of the rows."""
    rows = np.flatnonzero(~np.isnan(values))
    highest: list[int] = rows[np.argsort(-values[rows], kind="stable")][:n].tolist()
    return highest


# The evidence


@dataclass(frozen=True, slots=True)
class Appearance:
    """An item in one answer of a judge."""

    job: int  # the number of the question in the ledger
    round: int  # from 1
    judge: str | None  # None where there is one judge
    presented: Sequence[str]  # the items as shown, by id
    slot: int | None  # its place among these, from 1; None where that order isn't known
    groups: Sequence[Sequence[str]]  # tied items, most of the feature first
    partial: bool  # whether a group's items aren't tied, but in an order that isn't known
    score: float | None  # of an item judged alone
    wins: float  # the comparisons that it won; a tie counts ½
    comparisons: int
    expected: float  # wins under the main rating; nan where it has none, as of an item alone
    # How much the answer argues for a higher place (over 0) or a lower one, of mean 0 and variance 1
    # under the model (`misfit.Residuals`); nan as `expected`.
    residual: float
    JSON_KEYS: ClassVar = {"outcome": "outcome"}

    @property
    def outcome(self) -> str | None:
        """Whether it did as well as its rating lets expect; None without a residual."""
        if np.isnan(self.residual):
            return None
        if abs(self.residual) <= scale_quality.UNEXPECTED:
            return "as expected"
        return "higher" if self.residual > 0 else "lower"

    def above(self, one: str, other: str) -> float | None:
        """1 where an item is placed above another, 0 below, ½ where they are tied; None where their
        order isn't known."""
        places = {item: place for place, group in enumerate(self.groups) for item in group}
        if self.partial and places[one] == places[other]:
            return None
        return 0.5 + 0.5 * float(np.sign(places[other] - places[one]))


def trails(run: Result, rows: Sequence[int]) -> list[list[Appearance]]:
    """Of each of these items the answers that it was in, in the order asked."""
    every, ids = comparisons.joined(run.history.asked), run.scores.ids
    within = np.bincount(every.of_slot, np.isin(every.items, rows), len(every))
    verdicts = every.where(within > 0)
    position = comparisons.presented_at(verdicts) - verdicts.offsets[verdicts.of_slot] + 1
    residual, _, expected = scale_quality.residuals(verdicts, run.scores.main[1])
    of_slots = zip(
        np.where(verdicts.ordered[verdicts.of_slot], position, 0).tolist(),
        comparisons.wins_by_slot(verdicts).tolist(),
        comparisons.compared_by_slot(verdicts).tolist(),
        expected.tolist(),
        residual.tolist(),
        strict=True,
    )
    names = run.judges
    of_verdicts = zip(
        verdicts.matches.tolist(),
        (verdicts.rounds + 1).tolist(),
        [names[judge] if len(names) > 1 else None for judge in verdicts.judges.tolist()],
        verdicts.questions,
        verdicts.each(),
        strict=True,
    )
    found: dict[int, list[Appearance]] = {row: [] for row in rows}
    for job, round, judge, shown, verdict in of_verdicts:
        presented = [ids[row] for row in shown.tolist()]
        groups = [[ids[row] for row in group] for group in verdict.groups]
        for row in verdict.items:
            slot, *numbers = next(of_slots)
            if row in found:
                answer = job, round, judge, presented, slot or None, groups
                one = Appearance(*answer, verdict.partial, verdict.score, *numbers)
                found[row].append(one)
    return [found[row] for row in rows]


def elo_by_round(run: Result) -> Floats:
    """Before the first round and after each, shape (rounds + 1, all items)."""
    again = History.begin(len(run.scores.ids), None)
    ratings = [again.standings.elo]
    for verdicts in run.history.verdicts:
        again.add(verdicts)
        ratings.append(again.standings.elo)
    return np.stack(ratings)


async def calls_of(run: Result, jobs: Sequence[int]) -> Mapping[int, Sequence[Call]]:
    """The calls behind these jobs, as they ended, also while another process continues the run."""
    async with rounds.reading(run.run) as store:
        return await store.calls(sorted(jobs))


async def reasons_of(run: Result, jobs: Sequence[int]) -> dict[int, str]:
    """The reasons that models gave with their verdicts, and people's notes, by job, if the run has any.
    They are untrusted: whoever shows them makes them safe."""
    if not (run.info.settings.reasons or run.said is not None):
        return {}
    found = {job: _reason(calls) for job, calls in (await calls_of(run, jobs)).items()}
    return {job: reason for job, reason in found.items() if reason is not None}


def _reason(calls: Sequence[Call]) -> str | None:
    answer = next((call for call in reversed(calls) if call.outcome in ANSWERED), None)
    if answer is None or answer.reply is None:
        return None
    return reason_in(answer.reply) if answer.judge is None else remark(answer)


def who(run: Result, call: Call) -> str | None:
    """The person whose call it is; None of a model's."""
    if call.judge is None or run.said is None:
        return None
    number = run.said.first + call.judge - len(run.info.settings.judges)
    names = run.judges
    return names[number] if 0 <= number < len(names) else None


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """The evidence about one item, or two, given by their `rows`."""

    run: Result
    rows: Sequence[int] = field(metadata=LEFT_OUT)
    judgments: Sequence[Appearance]  # of the item; of two of the first, where both were in
    reasons: Mapping[int, str]  # by job
    replies: Mapping[int, Sequence[Call]] | None  # the calls by job, where they are asked for
    # Of two, that the first has more of the feature, by the main rating; None where that has no errors,
    # or nothing connects the two.
    probability: float | None = None
    JSON_KEYS: ClassVar = {
        **OF_RUN,
        "items": "items",
        "probability_above": "probability",
        "direct": "direct",
    }

    @property
    def items(self) -> list[dict[str, Any]]:
        """The items, with the columns of scores.csv."""
        return self.run.scores.records(self.rows)

    @property
    def direct(self) -> dict[str, int] | None:
        """How often two items `met`, and the first was placed above the other, below it, or tied with
        it; None of one."""
        if len(self.rows) < 2:
            return None
        ids = [self.run.scores.ids[row] for row in self.rows]
        won = Counter(one.above(*ids) for one in self.judgments)
        return {"met": won.total(), "above": won[1.0], "below": won[0.0], "tied": won[0.5]}


async def explanation(
    run: Result, row: int, other: int | None = None, *, replies: bool = False
) -> Explanation:
    """The evidence about an item, or two; with all `replies`, which may be long. Raises RunError."""
    rows = [row] if other is None else [row, other]
    (judgments,), probability = trails(run, rows[:1]), None
    if other is not None:
        name = run.scores.ids[other]
        judgments = [one for one in judgments if name in one.presented]
        posterior, component = run.fit.posterior, run.scores.component
        if posterior is not None and 0 < component[row] == component[other]:
            probability = posterior.probability_above(row, other)
    jobs = sorted({one.job for one in judgments})
    reasons, calls = await reasons_of(run, jobs), await calls_of(run, jobs) if replies else None
    return Explanation(run, rows, judgments, reasons, calls, probability)
