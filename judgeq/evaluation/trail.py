"""The evidence behind one score, or about two items: the judgments that they were in and what each
argues for, and the calls and reasons that the ledger holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from judgeq.engine.results import OF_RUN, Result
from judgeq.evaluation.agreement import judges_of
from judgeq.people import answers
from judgeq.rating import comparisons, misfit
from judgeq.replies import reason_in
from judgeq.strategies import History
from judgeq.text import INLINE, LEFT_OUT
from judgeq.types import Call, Floats, Verdicts

NEIGHBOURS = 2
OUTCOMES = ("as expected", "higher", "lower")
"""How an item did in a judgment, by the sign of what is unexpected."""
ANSWERED = ("ok", "cached")
"""The outcomes of calls that brought a verdict."""


@dataclass(frozen=True, slots=True)
class Judgment:
    """One answer of a judge: to `job`, the number of its question in the ledger, asked in `round` (from
    1). `presented` are the items as shown, by id, and `order_known` whether that order is known;
    `groups` are tied items, most of the feature first, or `partial`: items whose order isn't known.
    `score` is that of one item alone, else None. `judge` is None where there is one judge. `rated`: the
    ratings are made from it; not from one of two orders whose other brought no answer, nor from a list
    of one.
    """

    job: int
    round: int
    judge: str | None
    presented: Sequence[str]
    order_known: bool
    groups: Sequence[Sequence[str]]
    score: float | None
    rated: bool
    partial: bool = False

    def next_to(self, item: str) -> list[str]:
        """Items placed next above an item, with it and next below, NEIGHBOURS of each place at most."""
        at = next(at for at, group in enumerate(self.groups) if item in group)
        near = self.groups[max(at - 1, 0) : at + 2]
        return [one for group in near for one in [r for r in group if r != item][:NEIGHBOURS]]

    def above(self, one: str, other: str) -> float | None:
        """1 where an item is placed above another, 0 below, ½ where they are tied; None where their
        order isn't known."""
        places = {item: place for place, group in enumerate(self.groups) for item in group}
        if self.partial and places[one] == places[other]:
            return None
        return 0.5 + 0.5 * float(np.sign(places[other] - places[one]))


@dataclass(frozen=True, slots=True)
class Appearance:
    """An item in a judgment: its `slot` as presented (from 1; None where the order isn't known), the
    comparisons that it won (a tie counts ½), how many it was `expected` to win under the main rating,
    and of how many.

    `residual` says how much the judgment argues against the item's place: above 0 for a higher one,
    below 0 for a lower one, of mean 0 and variance 1 under the model (`misfit.Residuals`). `expected`
    and `residual` are nan where the rating has none, as of an item alone.
    """

    judgment: Judgment = field(metadata=INLINE)
    slot: int | None
    wins: float
    expected: float
    residual: float
    comparisons: int
    JSON_KEYS: ClassVar = {"outcome": "outcome"}

    @property
    def outcome(self) -> str | None:
        """One of OUTCOMES: did it do as well as its rating lets expect? None without a residual."""
        if np.isnan(self.residual):
            return None
        return OUTCOMES[
            int(np.sign(self.residual)) if abs(self.residual) > misfit.UNEXPECTED else 0
        ]


def trails(run: Result, rows: Sequence[int]) -> list[list[Appearance]]:
    """Of each of these items the judgments that it was in, in the order asked. Those that several were
    in are the same object."""
    verdicts, theta = comparisons.joined(run.history.asked), run.scores.main[1]
    rated = np.diff(verdicts.offsets) > 1
    if verdicts.scores is not None:
        rated |= ~np.isnan(verdicts.scores)
    if run.history.both_orders:
        couples = comparisons.joined(run.history.verdicts).matches // 2
        rated &= np.isin(verdicts.matches // 2, couples)
    by_item = np.argsort(verdicts.items, kind="stable")
    ends = np.append(0, np.cumsum(comparisons.matches_of(verdicts, len(theta))))
    of_rows = [by_item[ends[row] : ends[row + 1]] for row in rows]
    slots = np.concatenate([np.empty(0, np.int64), *of_rows])
    of = np.searchsorted(verdicts.offsets, slots, side="right") - 1
    judgments = {at: _judgment(run, verdicts, at, bool(rated[at])) for at in np.unique(of).tolist()}
    places = comparisons.presented_at(verdicts)[slots] - verdicts.offsets[of] + 1
    wins, of_all = (
        by_slot(verdicts)[slots]
        for by_slot in (comparisons.wins_by_slot, comparisons.compared_by_slot)
    )
    residual, _, expected = (column[slots] for column in misfit.residuals(verdicts, theta))
    columns = (column.tolist() for column in (of, places, wins, expected, residual, of_all))
    following = (
        Appearance(judgments[at], place if judgments[at].order_known else None, *numbers)
        for at, place, *numbers in zip(*columns, strict=True)
    )
    return [list(islice(following, len(part))) for part in of_rows]


def _judgment(run: Result, verdicts: Verdicts, at: int, rated: bool) -> Judgment:
    """The verdict of the number `at` among verdicts of a run."""
    slots, ids = slice(verdicts.offsets[at], verdicts.offsets[at + 1]), run.scores.ids
    score = np.nan if verdicts.scores is None else verdicts.scores[at]
    several = verdicts.judges is not None and len(run.judges) > 1
    return Judgment(
        job=int(verdicts.matches[at]),
        round=1 if verdicts.rounds is None else int(verdicts.rounds[at]) + 1,
        judge=run.judges[judges_of(verdicts)[at]] if several else None,
        presented=[ids[row] for row in verdicts.presented[slots].tolist()],
        order_known=verdicts.ordered is None or bool(verdicts.ordered[at]),
        groups=[[ids[row] for row in group] for group in comparisons.groups_of(verdicts, at)],
        score=None if np.isnan(score) else float(score),
        rated=rated,
        partial=verdicts.partial is not None and bool(verdicts.partial[at]),
    )


def against(appearances: Sequence[Appearance]) -> list[Appearance]:
    """Those by which an item's place is judged, the ones that argue most against it first."""
    arguing = (one for one in appearances if one.judgment.rated)
    return sorted(arguing, key=lambda one: -abs(np.nan_to_num(one.residual)))


def elo_by_round(run: Result) -> Floats:
    """Before the first round and after each, shape (rounds + 1, all items)."""
    again = History.begin(len(run.scores.ids), None)
    ratings = [again.standings.elo]
    for verdicts in run.history.verdicts:
        again.add(verdicts)
        ratings.append(again.standings.elo)
    return np.stack(ratings)


def reasons_of(calls: Mapping[int, Sequence[Call]]) -> dict[int, str]:
    """The reasons that models gave with their verdicts, and people's notes, by job. They are untrusted:
    whoever shows them makes them safe."""
    reasons = {}
    for job, of_job in calls.items():
        answer = next((call for call in reversed(of_job) if call.outcome in ANSWERED), None)
        if answer is not None and answer.reply is not None:
            by_model = answer.judge is None
            reasons[job] = reason_in(answer.reply) if by_model else answers.remark(answer)
    return {job: reason for job, reason in reasons.items() if reason is not None}


def who(run: Result, call: Call) -> str | None:
    """The person whose call it is; None of a model's."""
    if call.judge is None or run.said is None:
        return None
    person = call.judge - len(run.info.settings.judges)
    named = run.judges[run.said.first :]
    return named[person] if 0 <= person < len(named) else None


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """The evidence about one item, or two, given by their `rows`.

    `judgments` are those that the item was in; of two items those that both were in, as of the first.
    `calls` are those behind these by job, as they ended. Of two items `probability` is that the first
    has more of the feature, by the main rating; None where that has no errors, or nothing connects the
    two, and `why`.
    """

    run: Result
    rows: Sequence[int] = field(metadata=LEFT_OUT)
    judgments: Sequence[Appearance]
    calls: Mapping[int, Sequence[Call]] = field(metadata=LEFT_OUT)
    with_replies: bool = field(metadata=LEFT_OUT)
    probability: float | None = None
    why: str | None = None
    JSON_KEYS: ClassVar = {
        **OF_RUN,
        "items": "items",
        "reasons": "reasons",
        "replies": "replies",
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
        won = [one.judgment.above(*ids) for one in self.judgments]
        counts = {name: won.count(x) for name, x in (("above", 1.0), ("below", 0.0), ("tied", 0.5))}
        return {"met": len(won), **counts}

    @property
    def reasons(self) -> dict[int, str]:
        """The reasons and people's notes, by job."""
        return reasons_of(self.calls)

    @property
    def replies(self) -> dict[int, list[dict[str, Any]]] | None:
        """The calls, by job, with the person whose call it is (None: a model's)."""
        if not self.with_replies:
            return None
        return {
            job: [call._asdict() | {"judge": who(self.run, call)} for call in calls]
            for job, calls in self.calls.items()
        }


async def explanation(
    run: Result, row: int, other: int | None = None, *, replies: bool = False
) -> Explanation:
    """The evidence about an item, or two. Calls are read only with `replies`, which may be long, or if
    they may hold reasons or notes. Another process may continue the run. Raises RunError."""
    rows = [row] if other is None else [row, other]
    (judgments,), probability, why = trails(run, rows[:1]), None, None
    if other is not None:
        name = run.scores.ids[other]
        judgments = [one for one in judgments if name in one.judgment.presented]
        posterior, component = run.fit.posterior, run.scores.component
        if posterior is None:
            why = f"the rating {run.main.name} has no errors"
        elif component[row] != component[other] or not component[row]:
            group = run.scores.group
            apart = group is not None and group[row] != group[other]
            why = "they are of two groups" if apart else "no judgments connect the two"
        else:
            probability = posterior.probability_above(row, other)
    calls: Mapping[int, Sequence[Call]] = {}
    if replies or run.info.settings.reasons or run.said is not None:
        store = run.run.store(read_only=True)
        try:
            calls = await store.calls(sorted({one.judgment.job for one in judgments}))
        finally:
            await store.close()
    return Explanation(run, rows, judgments, calls, replies, probability, why)
