"""The judgments that an item was in and what each argues for; and what is known of two items.

`gathered` indexes a run's judgments once; `trails` are then of any items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import ClassVar

import numpy as np

from judgeq.engine.results import Result
from judgeq.json_marks import INLINE, LEFT_OUT
from judgeq.rating import comparisons, misfit
from judgeq.strategies import History
from judgeq.types import Bools, Floats, Offsets, Verdicts

NEIGHBOURS = 2
OUTCOMES = ("as expected", "higher", "lower")
"""How an item did in a judgment, by the sign of what is unexpected."""


@dataclass(frozen=True, slots=True)
class Judgment:
    """One answer of a judge: to `job`, the number of its question in the ledger, asked in `round` (from
    1). `presented` are the rows of the items as shown, `ordered` whether that order is known; `groups`
    are tied rows, most of the feature first, or `partial`: rows whose order isn't known. `score` is that
    of one item alone, else None. `surprise` is that of `misfit.surprise`, nan of an item alone. `judge`
    is None where there is one judge. `rated`: the ratings are made from it; not from one of two orders
    whose other brought no answer, nor from a list of one. `ids` are those of all items, by row.
    """

    job: int
    round: int
    judge: str | None
    presented: tuple[int, ...]
    ordered: bool
    groups: tuple[tuple[int, ...], ...]
    score: float | None
    surprise: float
    rated: bool
    partial: bool = False
    ids: Sequence[str] = field(default=(), repr=False, compare=False, metadata=LEFT_OUT)
    JSON_KEYS: ClassVar = {
        "presented": "presented_ids",
        "order_known": "ordered",
        "groups": "groups_of_ids",
    }

    @property
    def presented_ids(self) -> list[str]:
        """The items as shown."""
        return [self.ids[row] for row in self.presented]

    @property
    def groups_of_ids(self) -> list[list[str]]:
        """The groups of tied items, most of the feature first."""
        return [[self.ids[row] for row in group] for group in self.groups]

    def compared(self, row: int) -> int:
        """With how many others it compares a row."""
        group = next(group for group in self.groups if row in group)
        return len(self.presented) - (len(group) if self.partial else 1)

    def next_to(self, row: int) -> list[int]:
        """Items placed next above a row, with it and next below, NEIGHBOURS of each place at most."""
        at = next(at for at, group in enumerate(self.groups) if row in group)
        near = self.groups[max(at - 1, 0) : at + 2]
        return [one for group in near for one in [r for r in group if r != row][:NEIGHBOURS]]

    def above(self, one: int, other: int) -> float | None:
        """1 where a row is placed above another, 0 below, ½ where they are tied; None where their order
        isn't known."""
        places = {row: place for place, group in enumerate(self.groups) for row in group}
        if self.partial and places[one] == places[other]:
            return None
        return 0.5 + 0.5 * float(np.sign(places[other] - places[one]))


@dataclass(frozen=True, slots=True)
class Appearance:
    """An item in a judgment: its `slot` as presented (from 1; None where the order isn't known), the
    comparisons that it won (a tie counts ½), and how many it was `expected` to win under the main
    rating.

    `residual` says how much the judgment argues against the item's place: above 0 for a higher one,
    below 0 for a lower one, of mean 0 and variance 1 under the model (`misfit.residuals`). Of an item
    alone it is its score less what items of its rating get (a straight line through all of them), in
    standard deviations of these. `expected` and `residual` are nan where the rating has none.
    """

    judgment: Judgment = field(metadata=INLINE)
    slot: int | None
    wins: float
    expected: float
    residual: float
    JSON_KEYS: ClassVar = {"outcome": "outcome"}

    @property
    def outcome(self) -> str | None:
        """One of OUTCOMES: did it do as well as its rating lets expect? None without a residual."""
        if np.isnan(self.residual):
            return None
        return OUTCOMES[
            int(np.sign(self.residual)) if abs(self.residual) > misfit.UNEXPECTED else 0
        ]


@dataclass(frozen=True, slots=True)
class Met:
    """How often an item was in one judgment with another, and was placed `above` it, `below` it, or tied
    with it; of the others no order is known."""

    met: int
    above: int
    below: int
    tied: int

    @property
    def compared(self) -> int:
        """In how many judgments their order is known."""
        return self.above + self.below + self.tied


@dataclass(frozen=True, slots=True)
class Trail:
    """The judgments that the item of `row` was in, in the order asked."""

    row: int = field(metadata=LEFT_OUT)
    appearances: tuple[Appearance, ...]
    JSON_KEYS: ClassVar = {
        "judgments": "appearances",
        "argue_most": "argue_most",
    }

    @property
    def against(self) -> list[Appearance]:
        """Those by which its place is judged, the ones that argue most against it first."""
        arguing = [one for one in self.appearances if one.judgment.rated and one.residual]
        arguing = [one for one in arguing if not np.isnan(one.residual)]
        return sorted(arguing, key=lambda one: -abs(one.residual))

    @property
    def argue_most(self) -> list[int]:
        """The jobs of these."""
        return [one.judgment.job for one in self.against]


@dataclass(frozen=True, slots=True)
class Versus:
    """What is known of two items, given by their rows: the judgments that both were in, and the
    probability that the one has more of the feature, by the main rating (None where that has no errors,
    or `why` nothing connects the two)."""

    one: int = field(metadata=LEFT_OUT)
    other: int = field(metadata=LEFT_OUT)
    together: tuple[Judgment, ...]
    probability: float | None
    why: str | None = None
    JSON_KEYS: ClassVar = {"probability_above": "probability", "above": "above", "direct": "direct"}

    @property
    def above(self) -> list[float | None]:
        """Of each of `together` whether the one was placed above the other (`Judgment.above`)."""
        return [judgment.above(self.one, self.other) for judgment in self.together]

    @property
    def direct(self) -> Met:
        """How often the one was placed above and below the other, in the judgments of both."""
        won = self.above
        return Met(len(won), won.count(1.0), won.count(0.0), won.count(0.5))


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """All answers of a run (`verdicts`, with both orders each by itself), and where each item is in
    them: `slots[begins[row]:begins[row + 1]]` of `verdicts.items`. `surprise` and `rated` are by
    verdict.
    """

    run: Result
    verdicts: Verdicts
    slots: Offsets
    begins: Offsets
    surprise: Floats
    rated: Bools

    def judgment(self, at: int) -> Judgment:
        """The verdict of this number."""
        verdicts, names = self.verdicts, self.run.judges
        slots = slice(verdicts.offsets[at], verdicts.offsets[at + 1])
        score = np.nan if verdicts.scores is None else verdicts.scores[at]
        alone = slots.stop - slots.start == 1
        judge = 0 if verdicts.judges is None else int(verdicts.judges[at])
        return Judgment(
            job=int(verdicts.matches[at]),
            round=1 if verdicts.rounds is None else int(verdicts.rounds[at]) + 1,
            judge=names[judge] if len(names) > 1 else None,
            presented=tuple(verdicts.presented[slots].tolist()),
            ordered=verdicts.ordered is None or bool(verdicts.ordered[at]),
            groups=comparisons.groups_of(verdicts, at),
            score=None if np.isnan(score) else float(score),
            surprise=float("nan") if alone else float(self.surprise[at]),
            rated=bool(self.rated[at]),
            partial=verdicts.partial is not None and bool(verdicts.partial[at]),
            ids=self.run.scores.ids,
        )


def gathered(run: Result) -> Evidence:
    """The index of a run's judgments: some arrays as long as its verdicts."""
    verdicts = comparisons.joined(run.history.asked)
    rated = np.diff(verdicts.offsets) > 1
    if verdicts.scores is not None:
        rated |= ~np.isnan(verdicts.scores)
    if run.history.both_orders:
        couples = comparisons.joined(run.history.verdicts).matches // 2
        rated &= np.isin(verdicts.matches // 2, couples)
    begins = np.zeros(len(run.scores.ids) + 1, dtype=np.int64)
    np.cumsum(comparisons.matches_of(verdicts, len(begins) - 1), out=begins[1:])
    return Evidence(
        run=run,
        verdicts=verdicts,
        slots=np.argsort(verdicts.items, kind="stable"),
        begins=begins,
        surprise=misfit.surprise(verdicts, run.scores.main[1]),
        rated=rated,
    )


def trails(evidence: Evidence, rows: Sequence[int]) -> list[Trail]:
    """The trails of these items, in their order. Judgments that several were in are the same object."""
    of_rows = [evidence.slots[evidence.begins[row] : evidence.begins[row + 1]] for row in rows]
    slots, verdicts = np.concatenate([np.empty(0, np.int64), *of_rows]), evidence.verdicts
    of = np.searchsorted(verdicts.offsets, slots, side="right") - 1
    places = comparisons.presented_at(verdicts)[slots] - verdicts.offsets[of] + 1
    residual, expected = misfit.residuals(verdicts, evidence.run.scores.main[1], slots)
    if verdicts.scores is not None:
        residual = np.where(np.isnan(residual), _scored(evidence)[of], residual)
    wins = comparisons.wins_by_slot(verdicts)[slots]
    judgments = {at: evidence.judgment(at) for at in np.unique(of).tolist()}
    columns = (of, places, wins, expected, residual)
    appearances = [
        Appearance(judgment := judgments[at], place if judgment.ordered else None, *numbers)
        for at, place, *numbers in zip(*(column.tolist() for column in columns), strict=True)
    ]
    following = iter(appearances)
    return [
        Trail(row, tuple(islice(following, len(part))))
        for row, part in zip(rows, of_rows, strict=True)
    ]


def _scored(evidence: Evidence) -> Floats:
    """The residual of each score of an item alone, shape (verdicts,); nan for comparisons, and 0 where
    all are as the rating says. By least squares of the scores on the rating: where that is their mean
    (direct scores alone), the line is the rating itself."""
    verdicts = evidence.verdicts
    residual = np.full(len(verdicts), np.nan)
    if verdicts.scores is None:
        return residual
    theta = evidence.run.scores.main[1][verdicts.items[verdicts.offsets[:-1]]]
    known = ~np.isnan(verdicts.scores) & ~np.isnan(theta)
    if not known.any():
        return residual
    x, y = theta[known] - theta[known].mean(), verdicts.scores[known]
    size = float(x @ x)
    slope = float(x @ y) / size if size > 0 else 0.0
    off = y - y.mean() - slope * x
    spread = float(np.sqrt((off * off).mean()))
    residual[known] = np.where(np.abs(off) > 1e-9, off / (spread or 1.0), 0.0)
    return residual


def versus(evidence: Evidence, one: int, other: int) -> Versus:
    """What is known of two items."""
    first, second = trails(evidence, [one, other])
    shared = {appearance.judgment.job for appearance in first.appearances}
    together = tuple(
        appearance.judgment
        for appearance in second.appearances
        if appearance.judgment.job in shared
    )
    run, posterior, why = evidence.run, evidence.run.fit.posterior, None
    component, probability = run.scores.component, None
    if posterior is None:
        why = f"the rating {run.main.name} has no errors"
    elif component[one] != component[other] or not component[one]:
        why = "no judgments connect the two"
    else:
        probability = posterior.probability_above(one, other)
    return Versus(one, other, together, probability, why)


def elo_by_round(run: Result) -> Floats:
    """Before the first round and after each, shape (rounds + 1, all items)."""
    again = History.begin(len(run.scores.ids), None)
    ratings = [again.standings.elo]
    for verdicts in run.history.verdicts:
        again.add(verdicts)
        ratings.append(again.standings.elo)
    return np.stack(ratings)
