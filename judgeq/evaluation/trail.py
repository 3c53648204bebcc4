"""The evidence behind scores: the judgments that an item was in, what each says of its place,
and what is known of two items.

`gathered` indexes a run's judgments once; then `trails` are of as many items as one likes. Only what
the ledger holds beside the verdicts is read again (`from_ledger`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
from judgeq.types import Bools, Call, Floats, Match, Offsets, Verdicts


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


# What the ledger holds beside the verdicts

ANSWERED = ("ok", "cached")
"""The outcomes of calls that brought a verdict."""


def answer(calls: Sequence[Call]) -> Call | None:
    """The call that gave a question's verdict, of those about it; None where none did."""
    return next((call for call in reversed(calls) if call.outcome in ANSWERED), None)


def words(call: Call | None) -> str | None:
    """The reason that a model gave with its verdict, or a person's note; None where there is none. A
    stranger's words, to be made safe where they are shown."""
    if call is None or call.reply is None:
        return None
    return prompts.reason(call.reply) if call.judge is None else answers.remark(call)


@dataclass(frozen=True, slots=True, eq=False)
class Ledger:
    """Of some items: `elo`, shape (rounds + 1, items), before the first round and after each; by row
    the questions about it that brought no verdict (`open`: failed, invalid, or still to come); and by
    job the `calls` that were asked for, in the order in which they ended."""

    rows: tuple[int, ...]
    elo: Floats
    open: Mapping[int, Sequence[Match]]
    calls: Mapping[int, Sequence[Call]]

    @property
    def reasons(self) -> dict[int, str]:
        """The reasons, and people's notes, that were given, by job."""
        given = {job: words(answer(calls)) for job, calls in self.calls.items()}
        return {job: said for job, said in given.items() if said is not None}


async def from_ledger(run: Result, trails: Sequence[Trail], *, replies: bool = False) -> Ledger:
    """What a run's ledger holds of the items of these trails; the calls about them only with
    `replies` (raw ones may be long), and where reasons were asked for or people could write notes.
    Reads while another process goes on. Raises RunError."""
    rows = tuple(trail.row for trail in trails)
    store = run.run.store(read_only=True)
    try:
        unanswered = await _open(run, store, rows)
        jobs = {one.judgment.job for trail in trails for one in trail.appearances}
        jobs |= {match.id for matches in unanswered.values() for match in matches}
        wanted = replies or run.info.settings.reasons or run.said is not None
        calls = await store.calls(sorted(jobs)) if wanted else {}
        return Ledger(rows, elo_by_round(run)[:, list(rows)], unanswered, calls)
    finally:
        await store.close()


def elo_by_round(run: Result) -> Floats:
    """Before the first round and after each, shape (rounds + 1, all items)."""
    again = History.begin(len(run.scores.ids), None)
    ratings = [again.standings.elo]
    for verdicts in run.history.verdicts:
        again.add(verdicts)
        ratings.append(again.standings.elo)
    return np.stack(ratings)


async def _open(run: Result, store: Store, rows: Collection[int]) -> dict[int, list[Match]]:
    """By row its questions in the rounds of the result that have no verdict."""
    answered = {int(job) for part in run.history.asked for job in part.matches.tolist()}
    unanswered: dict[int, list[Match]] = {row: [] for row in rows}
    first, n = 0, len(run.scores.ids)
    for round in range(1, run.rounds_planned + 1):
        matches = await store.matches(round)
        if len(matches.items) and not 0 <= int(matches.items.min()) <= int(matches.items.max()) < n:
            raise RunError(f"{run.run.shown} is damaged: it asks about an item that isn't there.")
        about = np.flatnonzero(np.isin(matches.items, list(rows)))
        of = np.unique(np.searchsorted(matches.offsets, about, side="right") - 1)
        for at in of.tolist():
            if first + at in answered:
                continue
            items = tuple(matches.items[matches.offsets[at] : matches.offsets[at + 1]].tolist())
            judge = 0 if matches.judges is None else int(matches.judges[at])
            match = Match(first + at, round, items, judge)
            for row in unanswered.keys() & set(items):
                unanswered[row].append(match)
        first += len(matches)
    return unanswered


# All of it, of one item or two


def who(run: Result, call: Call) -> str | None:
    """The person whose call it is; None of a model's."""
    if call.judge is None or call.judge >= len(run.judges):
        return None
    return run.judges[call.judge]


@dataclass(frozen=True, slots=True, eq=False)
class Explained:
    """The evidence `about` one item, or two, with what the ledger holds of them; the raw replies only
    `with_replies`."""

    run: Result
    about: Trail | Versus = field(metadata=INLINE)
    ledger: Ledger = field(metadata=LEFT_OUT)
    with_replies: bool = field(metadata=LEFT_OUT)
    JSON_KEYS: ClassVar = {
        **OF_RUN,
        "items": "items",
        "elo": "ledger.elo.T",
        "without_verdict": "without_verdict",
        "reasons": "ledger.reasons",
        "replies": "replies",
    }

    @property
    def items(self) -> list[dict[str, Any]]:
        """The items, with the columns of scores.csv."""
        return self.run.scores.records(self.ledger.rows)

    @property
    def without_verdict(self) -> list[dict[str, Any]]:
        """The questions about them that brought no verdict."""
        names, ids = self.run.judges, self.run.scores.ids
        matches = {match.id: match for of_item in self.ledger.open.values() for match in of_item}
        return [
            {
                "job": match.id,
                "round": match.round,
                "judge": names[match.judge] if 1 < len(names) > match.judge else None,
                "presented": [ids[row] for row in match.items],
            }
            for match in matches.values()
        ]

    @property
    def replies(self) -> dict[int, list[dict[str, Any]]] | None:
        """The calls, by job; `judge` is the person whose call it is (None: a model's)."""
        if not self.with_replies:
            return None
        return {
            job: [call._asdict() | {"judge": who(self.run, call)} for call in calls]
            for job, calls in self.ledger.calls.items()
        }
