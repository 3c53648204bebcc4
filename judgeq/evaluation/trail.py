"""The evidence behind one score, or about two items: the judgments that they were in and what each
argues for, and the calls, reasons and open questions that the ledger holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from judgeq import prompts
from judgeq.engine.results import OF_RUN, Result
from judgeq.errors import RunError
from judgeq.json_marks import INLINE, LEFT_OUT
from judgeq.people import answers
from judgeq.rating import comparisons, misfit
from judgeq.store import Store
from judgeq.strategies import History
from judgeq.types import Call, Floats, Match, Verdicts

NEIGHBOURS = 2
OUTCOMES = ("as expected", "higher", "lower")
"""How an item did in a judgment, by the sign of what is unexpected."""
ANSWERED = ("ok", "cached")
"""The outcomes of calls that brought a verdict."""


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
    below 0 for a lower one, of mean 0 and variance 1 under the model (`misfit.residuals`). `expected`
    and `residual` are nan where the rating has none, as of an item alone.
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
        arguing = (one for one in self.appearances if one.judgment.rated)
        return sorted(arguing, key=lambda one: -abs(np.nan_to_num(one.residual)))

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
    def direct(self) -> dict[str, int]:
        """How often they `met`, and the one was placed above the other, below it, or tied with it."""
        won = self.above
        counts = {name: won.count(x) for name, x in (("above", 1.0), ("below", 0.0), ("tied", 0.5))}
        return {"met": len(won), **counts}


def judgment(
    run: Result, verdicts: Verdicts, at: int, surprise: float, *, rated: bool = True
) -> Judgment:
    """The verdict of the number `at` among verdicts of a run."""
    slots = slice(verdicts.offsets[at], verdicts.offsets[at + 1])
    score = np.nan if verdicts.scores is None else verdicts.scores[at]
    of = None if verdicts.judges is None or len(run.judges) < 2 else int(verdicts.judges[at])
    return Judgment(
        job=int(verdicts.matches[at]),
        round=1 if verdicts.rounds is None else int(verdicts.rounds[at]) + 1,
        judge=None if of is None else run.judges[of],
        presented=tuple(verdicts.presented[slots].tolist()),
        ordered=verdicts.ordered is None or bool(verdicts.ordered[at]),
        groups=comparisons.groups_of(verdicts, at),
        score=None if np.isnan(score) else float(score),
        surprise=float("nan") if slots.stop - slots.start == 1 else surprise,
        rated=rated,
        partial=verdicts.partial is not None and bool(verdicts.partial[at]),
        ids=run.scores.ids,
    )


def trails(run: Result, rows: Sequence[int]) -> list[Trail]:
    """The trails of these items, in their order. Judgments that several were in are the same object."""
    verdicts, theta = comparisons.joined(run.history.asked), run.scores.main[1]
    rated = np.diff(verdicts.offsets) > 1
    if verdicts.scores is not None:
        rated |= ~np.isnan(verdicts.scores)
    if run.history.both_orders:
        couples = comparisons.joined(run.history.verdicts).matches // 2
        rated &= np.isin(verdicts.matches // 2, couples)
    surprise, by_item = misfit.surprise(verdicts, theta), np.argsort(verdicts.items, kind="stable")
    begins = np.searchsorted(verdicts.items[by_item], np.arange(len(theta) + 1))
    of_rows = [by_item[begins[row] : begins[row + 1]] for row in rows]
    slots = np.concatenate([np.empty(0, np.int64), *of_rows])
    of = np.searchsorted(verdicts.offsets, slots, side="right") - 1
    places = comparisons.presented_at(verdicts)[slots] - verdicts.offsets[of] + 1
    residual, expected = misfit.residuals(verdicts, theta, slots)
    wins = comparisons.wins_by_slot(verdicts)[slots]
    judgments = {
        at: judgment(run, verdicts, at, float(surprise[at]), rated=bool(rated[at]))
        for at in np.unique(of).tolist()
    }
    columns = (of, places, wins, expected, residual)
    following = (
        Appearance(judgments[at], place if judgments[at].ordered else None, *numbers)
        for at, place, *numbers in zip(*(column.tolist() for column in columns), strict=True)
    )
    return [
        Trail(row, tuple(islice(following, len(part))))
        for row, part in zip(rows, of_rows, strict=True)
    ]


def versus(run: Result, first: Trail, second: Trail) -> Versus:
    """What is known of two items."""
    one, other = first.row, second.row
    shared = {appearance.judgment.job for appearance in first.appearances}
    judgments = (appearance.judgment for appearance in second.appearances)
    together = tuple(judgment for judgment in judgments if judgment.job in shared)
    posterior, component = run.fit.posterior, run.scores.component
    if posterior is None:
        why = f"the rating {run.main.name} has no errors"
        return Versus(one, other, together, None, why)
    if component[one] != component[other] or not component[one]:
        return Versus(one, other, together, None, "no judgments connect the two")
    return Versus(one, other, together, posterior.probability_above(one, other))


def elo_by_round(run: Result) -> Floats:
    """Before the first round and after each, shape (rounds + 1, all items)."""
    again = History.begin(len(run.scores.ids), None)
    ratings = [again.standings.elo]
    for verdicts in run.history.verdicts:
        again.add(verdicts)
        ratings.append(again.standings.elo)
    return np.stack(ratings)


def answer(calls: Sequence[Call]) -> Call | None:
    """The call that brought a question's verdict, of those about it; None if none did."""
    return next((call for call in reversed(calls) if call.outcome in ANSWERED), None)


def words(call: Call | None) -> str | None:
    """The reason that a model gave with its verdict, or a person's note; None if there is none. It is
    untrusted: whoever shows it makes it safe."""
    if call is None or call.reply is None:
        return None
    return prompts.reason(call.reply) if call.judge is None else answers.remark(call)


def who(run: Result, call: Call) -> str | None:
    """The person whose call it is; None of a model's."""
    if call.judge is None or call.judge >= len(run.judges):
        return None
    return run.judges[call.judge]


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """The evidence `about` one item, or two."""

    run: Result
    about: Trail | Versus = field(metadata=INLINE)
    # The judgments that each item was in; of two items those that both were in.
    trails: Sequence[Trail] = field(metadata=LEFT_OUT)
    by_round: Floats = field(
        metadata=LEFT_OUT
    )  # Elo at the start and after each round, (rounds + 1, items)
    # The questions about them without a verdict: failed, invalid, or not answered yet.
    unanswered: Sequence[Match] = field(metadata=LEFT_OUT)
    calls: Mapping[int, Sequence[Call]] = field(metadata=LEFT_OUT)  # by job, as they ended
    with_replies: bool = field(metadata=LEFT_OUT)
    JSON_KEYS: ClassVar = {
        **OF_RUN,
        "items": "items",
        "elo": "by_round.T",
        "without_verdict": "without_verdict",
        "reasons": "reasons",
        "replies": "replies",
    }

    @property
    def items(self) -> list[dict[str, Any]]:
        """The items, with the columns of scores.csv."""
        return self.run.scores.records([trail.row for trail in self.trails])

    @property
    def reasons(self) -> dict[int, str]:
        """The reasons and people's notes, by job."""
        reasons = {job: words(answer(calls)) for job, calls in self.calls.items()}
        return {job: reason for job, reason in reasons.items() if reason is not None}

    @property
    def without_verdict(self) -> list[dict[str, Any]]:
        """The questions without a verdict."""
        names, ids = self.run.judges, self.run.scores.ids
        return [
            {
                "job": match.id,
                "round": match.round,
                "judge": names[match.judge] if 1 < len(names) > match.judge else None,
                "presented": [ids[row] for row in match.items],
            }
            for match in self.unanswered
        ]

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
    found = trails(run, rows)
    about: Trail | Versus = found[0]
    if other is not None:
        about = versus(run, *found)
        both = {judgment.job for judgment in about.together}
        found = [
            Trail(one.row, tuple(part for part in one.appearances if part.judgment.job in both))
            for one in found
        ]
    store = run.run.store(read_only=True)
    try:
        unanswered = await _unanswered(run, store, rows)
        jobs = {one.judgment.job for trail in found for one in trail.appearances}
        jobs |= {match.id for match in unanswered}
        wanted = replies or run.info.settings.reasons or run.said is not None
        calls = await store.calls(sorted(jobs)) if wanted else {}
    finally:
        await store.close()
    elo = elo_by_round(run)[:, rows]
    return Explanation(run, about, found, elo, unanswered, calls, replies)


async def _unanswered(run: Result, store: Store, rows: Sequence[int]) -> list[Match]:
    """The questions about these items in the planned rounds that have no verdict."""
    answered = {job for part in run.history.asked for job in part.matches.tolist()}
    unanswered: list[Match] = []
    first, n = 0, len(run.scores.ids)
    for round in range(1, run.rounds_planned + 1):
        matches = await store.matches(round)
        if len(matches.items) and not 0 <= matches.items.min() <= matches.items.max() < n:
            raise RunError(f"{run.run.shown} is damaged: it asks about an item that isn't there.")
        about = np.flatnonzero(np.isin(matches.items, rows))
        for at in np.unique(np.searchsorted(matches.offsets, about, side="right") - 1).tolist():
            if first + at not in answered:
                items = matches.items[matches.offsets[at] : matches.offsets[at + 1]].tolist()
                judge = 0 if matches.judges is None else int(matches.judges[at])
                unanswered.append(Match(first + at, round, tuple(items), judge))
        first += len(matches)
    return unanswered
