"""The evidence behind one score, or about two items: the judgments that they were in and what each
argues for, and the calls, reasons and open questions that the ledger holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from judgeq.engine.results import OF_RUN, Result
from judgeq.errors import RunError
from judgeq.people import answers
from judgeq.rating import comparisons, misfit
from judgeq.replies import reason_in
from judgeq.store import Store
from judgeq.strategies import History
from judgeq.text import INLINE, LEFT_OUT
from judgeq.types import Call, Floats, Rows, Verdicts

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
    `score` is that of one item alone, else None. `surprise` is that of `misfit.Residuals`, nan of an
    item alone. `judge` is None where there is one judge. `rated`: the ratings are made from it; not from
    one of two orders whose other brought no answer, nor from a list of one.
    """

    job: int
    round: int
    judge: str | None
    presented: Sequence[str]
    order_known: bool
    groups: Sequence[Sequence[str]]
    score: float | None
    surprise: float
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


def judgment(
    run: Result, verdicts: Verdicts, at: int, surprise: float, *, rated: bool = True
) -> Judgment:
    """The verdict of the number `at` among verdicts of a run."""
    slots, ids = slice(verdicts.offsets[at], verdicts.offsets[at + 1]), run.scores.ids
    presented = [ids[row] for row in verdicts.presented[slots].tolist()]
    score = np.nan if verdicts.scores is None else verdicts.scores[at]
    return Judgment(
        job=int(verdicts.matches[at]),
        round=1 if verdicts.rounds is None else int(verdicts.rounds[at]) + 1,
        judge=_judge(run, verdicts.judges, at),
        presented=presented,
        order_known=verdicts.ordered is None or bool(verdicts.ordered[at]),
        groups=[[ids[row] for row in group] for group in comparisons.groups_of(verdicts, at)],
        score=None if np.isnan(score) else float(score),
        surprise=surprise if len(presented) > 1 else float("nan"),
        rated=rated,
        partial=verdicts.partial is not None and bool(verdicts.partial[at]),
    )


def _judge(run: Result, judges: Rows | None, at: int) -> str | None:
    """The name of a question's judge; None where there is one judge."""
    return run.judges[judges[at]] if judges is not None and len(run.judges) > 1 else None


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
    found, by_item = misfit.residuals(verdicts, theta), np.argsort(verdicts.items, kind="stable")
    ends = np.append(0, np.cumsum(comparisons.matches_of(verdicts, len(theta))))
    of_rows = [by_item[ends[row] : ends[row + 1]] for row in rows]
    slots = np.concatenate([np.empty(0, np.int64), *of_rows])
    of = np.searchsorted(verdicts.offsets, slots, side="right") - 1
    judgments = {
        at: judgment(run, verdicts, at, float(found.surprise[at]), rated=bool(rated[at]))
        for at in np.unique(of).tolist()
    }
    places = comparisons.presented_at(verdicts)[slots] - verdicts.offsets[of] + 1
    wins, of_all = (
        by_slot(verdicts)[slots]
        for by_slot in (comparisons.wins_by_slot, comparisons.compared_by_slot)
    )
    expected, residual = found.expected[slots], found.slots[slots]
    columns = (column.tolist() for column in (of, places, wins, expected, residual, of_all))
    following = (
        Appearance(judgments[at], place if judgments[at].order_known else None, *numbers)
        for at, place, *numbers in zip(*columns, strict=True)
    )
    return [list(islice(following, len(part))) for part in of_rows]


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
    if call.judge is None or call.judge >= len(run.judges):
        return None
    return run.judges[call.judge]


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A question that has no verdict: failed, invalid, or not answered yet."""

    job: int
    round: int
    judge: str | None  # None where there is one
    presented: Sequence[str]  # the items' ids


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """The evidence about one item, or two, given by their `rows`.

    `judgments` are those that the item was in; of two items those that both were in, as of the first.
    `by_round` is the Elo at the start and after each round, shape (rounds + 1, items). `unanswered` are
    the questions about them without a verdict, and `calls` those about all of these by job, as they
    ended. Of two items `probability` is that the first has more of the feature, by the main rating; None
    where that has no errors, or nothing connects the two, and `why`.
    """

    run: Result
    rows: Sequence[int] = field(metadata=LEFT_OUT)
    judgments: Sequence[Appearance]
    by_round: Floats = field(metadata=LEFT_OUT)
    unanswered: Sequence[Unanswered]
    calls: Mapping[int, Sequence[Call]] = field(metadata=LEFT_OUT)
    with_replies: bool = field(metadata=LEFT_OUT)
    probability: float | None = None
    why: str | None = None
    JSON_KEYS: ClassVar = {
        **OF_RUN,
        "items": "items",
        "elo": "by_round.T",
        "without_verdict": "unanswered",
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
            why = "no judgments connect the two"
        else:
            probability = posterior.probability_above(row, other)
    store = run.run.store(read_only=True)
    try:
        unanswered = await _unanswered(run, store, rows)
        wanted = replies or run.info.settings.reasons or run.said is not None
        jobs = {one.judgment.job for one in judgments} | {one.job for one in unanswered}
        calls = await store.calls(sorted(jobs)) if wanted else {}
    finally:
        await store.close()
    elo = elo_by_round(run)[:, rows]
    return Explanation(run, rows, judgments, elo, unanswered, calls, replies, probability, why)


async def _unanswered(run: Result, store: Store, rows: Sequence[int]) -> list[Unanswered]:
    """The questions about these items in the planned rounds that have no verdict."""
    answered = {job for part in run.history.asked for job in part.matches.tolist()}
    unanswered: list[Unanswered] = []
    first, ids = 0, run.scores.ids
    for round in range(1, run.rounds_planned + 1):
        matches = await store.matches(round)
        if len(matches.items) and not 0 <= matches.items.min() <= matches.items.max() < len(ids):
            raise RunError(f"{run.run.label} is damaged: it asks about an item that isn't there.")
        about = np.flatnonzero(np.isin(matches.items, rows))
        for at in np.unique(np.searchsorted(matches.offsets, about, side="right") - 1).tolist():
            if first + at not in answered:
                items = matches.items[matches.offsets[at] : matches.offsets[at + 1]].tolist()
                presented = [ids[item] for item in items]
                judge = _judge(run, matches.judges, at)
                unanswered.append(Unanswered(first + at, round, judge, presented))
        first += len(matches)
    return unanswered
