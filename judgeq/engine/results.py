"""What a run's ledger says: the scores of its items, scores.csv, and what they cost. Always made again
from it."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from judgeq import rating
from judgeq.certainty import Certainty
from judgeq.config import Settings
from judgeq.datasets.tables import did_you_mean, shown
from judgeq.engine import knowing
from judgeq.engine.queue import Stop
from judgeq.engine.stopping import in_thread
from judgeq.errors import NoVerdictsError, RunError, UsageError
from judgeq.files import refuse_linked_folder, replacing, unwritable
from judgeq.rating import (
    Estimator,
    Fit,
    GoOn,
    Parameters,
    comparisons,
    position_bias,
    position_effect,
)
from judgeq.rating.intervals import Intervals, intervals
from judgeq.rating.position_bias import Flips, Slots
from judgeq.rating.position_effect import Effect
from judgeq.rating.posterior import Posterior
from judgeq.runs import RunInfo, RunPlace
from judgeq.runs.info import Ended
from judgeq.store import Items, Store
from judgeq.strategies import MOST_ROUNDS, History, Strategy
from judgeq.types import Bools, Counts, Floats, Offsets, Totals, Verdicts
from judgeq.untrusted import excerpt, for_spreadsheet

SURE = ("se", "low", "high", "rank_low", "rank_high", "tier")
"""The columns of scores.csv that say how sure the main rating is."""
_NEAR, _LOOKED_AT = 200, 50_000
"""Ids of so many characters at most, of the first so many items, are looked at for near ones."""
TEXT = 200
"""So many characters of a text stand in scores.csv."""


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """The ratings of n items; all arrays of shape (n,).

    `ratings` are by the estimators' columns, the main one last: `elo` starts at 1500, `pl` and `bt`
    are the θ of Plackett-Luce and Bradley-Terry; or `direct`, the score of each item judged alone (nan
    for none). `matches` counts the judged questions that the item was in; `wins` the comparisons they
    imply that it won (a tie counts ½); `left_after` is the round after which it left early, or 0;
    `gold` is nan where there is no label. `component` numbers the groups of items that comparisons
    connect (0: never judged): ratings of different ones are not on one scale. `intervals` say how sure
    the main rating is, with `se`, `low`, `high`, `rank_low`, `rank_high` and `tier` as arrays; None
    where its estimator has no errors. `texts` are the items' texts, where they are shown.
    """

    ids: Sequence[str]
    ratings: Mapping[str, Floats]
    matches: Offsets
    wins: Floats
    left_after: Offsets
    gold: Floats
    component: Offsets
    texts: Sequence[str] | None = None
    intervals: Intervals | None = None

    def __repr__(self) -> str:
        judged = int(self.judged.sum())
        return f"<Scores of {len(self.ids):,} items, {judged:,} judged: {', '.join(self.ratings)}>"

    @property
    def judged(self) -> Bools:
        """Which items a judge has said something about, shape (n,)."""
        judged: Bools = self.matches > 0
        return judged

    @property
    def columns(self) -> list[str]:
        """The columns of scores.csv."""
        more = ["component"] if self.apart else []
        text = [] if self.texts is None else ["text"]
        sure = [] if self.intervals is None else [*SURE]
        counts = ["matches", "wins", "left_after", "gold"]
        return ["id", "rank", *self.ratings, *sure, *counts, *more, *text]

    @property
    def se(self) -> Floats:
        """The standard errors of the main rating, shape (n,); nan where there is none."""
        if self.intervals is None:
            return np.full(len(self.ids), np.nan)
        return np.where(self.judged, self.intervals.se, np.nan)

    @property
    def main(self) -> tuple[str, Floats]:
        """The main rating, by which items are ranked, and its name."""
        return list(self.ratings.items())[-1]

    @property
    def rank(self) -> Offsets:
        """The rank of each item within its component, shape (n,): 1 for most of the feature; ties have
        the lowest of their ranks (1, 2, 2, 4); 0 for an item that was never judged."""
        values = self.main[1]
        rows = np.flatnonzero(self.judged & ~np.isnan(values))
        rows = rows[np.lexsort((-values[rows], self.component[rows]))]
        component, values = self.component[rows], values[rows]
        begins = np.ones(len(rows), dtype=np.bool_)
        begins[1:] = component[1:] != component[:-1]
        untied = begins.copy()
        untied[1:] |= values[1:] != values[:-1]
        place = np.arange(len(rows))
        first, tied = (np.maximum.accumulate(np.where(at, place, 0)) for at in (begins, untied))
        rank = np.zeros(len(self.ids), dtype=np.int64)
        rank[rows] = tied - first + 1
        return rank

    @property
    def apart(self) -> bool:
        """Whether there are several components."""
        return bool(self.component.max(initial=0) > 1)


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """All that a finished, or partial, run has to show: what it is, its items, all that was judged, and
    the scores. `rating` and `parameters` are by what comparisons were rated; `slots` are None where
    items were judged alone, and `effects` of the place are by judge, as far as there are enough matches
    and the main rating has errors; `known` is how well the order is known, where that was worked out
    (`knowing`); `evaluation` (`evaluate.evaluated` makes it) is there only with gold labels.
    """

    run: RunPlace
    info: RunInfo
    items: Items
    history: History
    scores: Scores
    rating: str
    parameters: Parameters
    fit: Fit
    counts: Counts
    totals: Totals
    slots: Slots | None
    effects: Sequence[Effect] = ()
    evaluation: dict[str, Any] = field(default_factory=dict)
    known: Certainty | None = None

    def __repr__(self) -> str:
        cost = "" if self.totals.unpriced else f", ${self.totals.cost:.2f}"
        partial = f"round {self.rounds_planned} of " if self.partial else ""
        return (
            f"<Result {self.run.id}: {len(self.scores.ids):,} items, {partial}{self.rounds} rounds, "
            f"{self.totals.calls:,} calls{cost}; {', '.join(self.scores.ratings)}>"
        )

    @property
    def main(self) -> Estimator:
        """The estimator of the main rating."""
        return rating.of_run(self.rating, self.history.basis)[-1]

    @property
    def judges(self) -> Sequence[str]:
        """The judges' names by their numbers, as they are reported."""
        return self.info.judge_names

    @property
    def rounds_planned(self) -> int:
        """The rounds so far."""
        return len(self.history.verdicts)

    @property
    def rounds(self) -> int:
        """All rounds, at most; of a run that ended early those that there were."""
        if self.history.over or self.info.ended_after(self.rounds_planned):
            return self.rounds_planned
        return max(self.rounds_planned, self.info.rounds)

    @property
    def ended(self) -> Ended | None:
        """That enough was known, where the run ended by it."""
        return self.info.ended if self.info.ended_after(self.rounds_planned) else None

    @property
    def partial(self) -> bool:
        """Whether rounds or jobs are still to come."""
        return self.rounds_planned < self.rounds or self.counts.left > 0

    @property
    def state(self) -> str:
        """Whether it is "partial" or "finished"."""
        return "partial" if self.partial else "finished"

    @property
    def flips(self) -> Flips | None:
        """The pairs asked in both orders, whose answers differ; None where they weren't."""
        return self.history.flips

    def probability_above(self, one: str, other: str) -> float:
        """The probability that an item has more of the feature than another, by the main rating; both by
        id. Raises UsageError for an id that isn't there, and where the estimator has no errors."""
        if self.fit.posterior is None:
            raise UsageError(f"the rating {self.rating} has no errors: rate by pl or bt.")
        return self.fit.posterior.probability_above(self.row_of(one), self.row_of(other))

    def row_of(self, item: str) -> int:
        """The row of an item by its id. Raises UsageError, which names one with an id that is near."""
        ids = list(self.scores.ids)
        if item in ids:
            return ids.index(item)
        near = (name for name in ids[:_LOOKED_AT] if max(len(name), len(item)) <= _NEAR)
        hint = did_you_mean(item, near)
        raise UsageError(f"run {self.run.id} has no item {shown(item)}.{hint}")

    @property
    def cost_equivalent_calls(self) -> float:
        """Of all that was judged: 1 a pair, k/2 a list of k."""
        return sum(verdicts.cost for verdicts in self.history.asked)


async def rate(
    run: RunPlace,
    info: RunInfo,
    store: Store,
    items: Items,
    history: History,
    settings: Settings,
    stop: Stop | None = None,
) -> Result:
    """The result of what was judged so far: the final ratings, and all else that is shown.

    Made in a thread, so that the event loop lives on; raises StoppedError once `stop` is asked for,
    and NoVerdictsError where there is no verdict, so that there are no ratings.
    """
    if not any(map(len, history.verdicts)):
        raise NoVerdictsError(
            f"run {run.id} has no verdict, so that there are no ratings: `judgeq status {run.argument}` "
            "says what became of its jobs."
        )
    counts, totals = await store.counts(), await store.totals()

    def rated(go_on: GoOn) -> Result:
        scores, fit = _scores(items, history, settings, go_on)
        known = None
        if knowing.in_the_end(history, settings):
            with history.going(go_on):
                known = knowing.how_well(history, settings, counts, totals)
        return Result(
            run=run,
            info=info,
            items=items,
            history=history,
            scores=scores,
            rating=settings.rating,
            parameters=settings.parameters,
            fit=fit,
            known=known,
            counts=counts,
            totals=totals,
            slots=position_bias.slots(
                comparisons.joined(history.asked), couples=history.both_orders
            ),
            effects=_effects(history, settings, fit, go_on),
        )

    return await in_thread(rated, stop)


def _scores(items: Items, history: History, settings: Settings, go_on: GoOn) -> tuple[Scores, Fit]:
    """The scores, and the fit of the main rating."""
    n = len(items.ids)
    verdicts = comparisons.joined(history.verdicts)
    fits = {
        estimator.column: history.fit(estimator, settings.parameters, go_on)
        for estimator in rating.of_run(settings.rating, history.basis)
    }
    *_, main = fits.values()
    go_on()
    scores = Scores(
        ids=items.ids,
        ratings={column: fit.theta for column, fit in fits.items()},
        intervals=None if main.posterior is None else intervals(main.posterior, go_on),
        matches=comparisons.matches_of(verdicts, n),
        wins=comparisons.wins_of(verdicts, n),
        left_after=history.left_after,
        gold=np.full(n, np.nan) if items.gold is None else items.gold,
        # Scores of items judged alone are on one scale.
        component=np.ones(n, dtype=np.int64)
        if history.alone
        else comparisons.scale_components(verdicts, n),
    )
    go_on()
    return scores, main


def _effects(history: History, settings: Settings, fit: Fit, go_on: GoOn) -> list[Effect]:
    """What the place presented is worth, by judge. Of pairs asked in both orders it is that of each
    question, by a fit of its own: in the couples it cancels out."""
    asked = comparisons.joined(history.asked)
    if history.both_orders:
        parameters, n = Parameters(fit.sigma), len(fit.theta)
        fit = rating.ESTIMATORS[settings.rating].fit(asked, n, parameters, go_on)
    if not isinstance(fit.posterior, Posterior):
        return []
    return position_effect.effects(fit.posterior, asked, joint=fit.position, go_on=go_on)


async def read(run: RunPlace, settings: Settings) -> Result:
    """Rate a run from its folder alone, also while another process goes on with it; of the settings
    the rating's decide. Raises RunError."""
    info = run.info()
    store = run.store(read_only=True)
    try:
        items = await store.items()
        if len(items.ids) != info.items:
            counts = f"config.json has {info.items} items, run.db {len(items.ids)}"
            raise RunError(f"{run.shown} is damaged: {counts}.")
        history = await replayed(info, store)
        return await rate(run, info, store, items, history, settings)
    finally:
        await store.close()


async def judgments(run: RunPlace) -> tuple[Sequence[str], list[Verdicts], Sequence[str]]:
    """What a run's judges said: items' ids, verdicts round by round, the judges' names if known."""
    info = run.info()
    store = run.store(read_only=True)
    try:
        return (await store.items()).ids, (await replayed(info, store)).asked, info.judges
    finally:
        await store.close()


async def replayed(info: RunInfo, store: Store, rounds: int | None = None) -> History:
    """All that a run's ledger says, folded round by round; of the first `rounds` only, if given."""
    strategy = None if info.imported else info.settings.make_strategy()
    history = begin(info.items, strategy, info.settings)
    judges = max(1, len(info.judges))
    for round in history.to_come(MOST_ROUNDS):
        if round - 1 == rounds or await fold_round(history, store, judges) is None:
            break
    return history


def begin(n: int, strategy: Strategy | None, settings: Settings) -> History:
    """The history of a run of n items before anything was judged."""
    return History.begin(
        n, strategy, settings.seed, both_orders=settings.both_orders, goal=settings.goal
    )


async def fold_round(history: History, store: Store, judges: int) -> Counts | None:
    """Fold the next round as the ledger has it; its jobs, or None where it isn't planned.

    Raises RunError for a verdict of a judge that the run, which has `judges`, doesn't have.
    """
    round = len(history.verdicts) + 1
    counts = await store.round_state(round)
    if counts is None:
        return None
    verdicts = await store.verdicts(round)
    if verdicts.judges is not None and int(verdicts.judges.max()) >= judges:
        raise RunError(
            f"the run's ledger is damaged: it has an answer of judge {verdicts.judges.max()}, and "
            f"there are {judges}."
        )
    active = await store.active(round + 1)
    history.add(verdicts, counts.total, active, history.matches)
    return counts


def write_scores(scores: Scores, path: Path) -> None:
    """scores.csv, whole or not at all: `scores.columns`, where empty cells say that there is none.

    Numbers are written so that reading them gives the same bits, and ids to the letter; texts so that
    a spreadsheet runs none.
    """
    columns = (
        scores.ids,
        [rank or "" for rank in scores.rank.tolist()],
        *(_cells(values) for values in scores.ratings.values()),
        *_sure(scores),
        scores.matches.tolist(),
        _cells(scores.wins),
        [round or "" for round in scores.left_after.tolist()],
        _cells(scores.gold),
        *([[number or "" for number in scores.component.tolist()]] if scores.apart else []),
        *([] if scores.texts is None else [_excerpts(scores.texts)]),
    )
    refuse_linked_folder(path.parent)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path.parent, error) from error
    with replacing(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(scores.columns)
        writer.writerows(zip(*columns, strict=True))


def _sure(scores: Scores) -> list[list[Any]]:
    """The cells of SURE; empty for items that were never judged."""
    if scores.intervals is None:
        return []
    columns: list[list[Any]] = []
    for name in SURE:
        values = getattr(scores.intervals, name)
        if values.dtype == np.float64:
            columns.append(_cells(np.where(scores.judged, values, np.nan)))
        else:
            columns.append([number or "" for number in values.tolist()])
    return columns


def _cells(values: Floats) -> list[str]:
    """Numbers as the shortest text that reads back as the same bits; "" for nan."""
    text = orjson.dumps(np.ascontiguousarray(values), option=orjson.OPT_SERIALIZE_NUMPY).decode()
    return ["" if cell == "null" else cell for cell in text[1:-1].split(",")]


def _excerpts(texts: Sequence[str]) -> list[object]:
    return [for_spreadsheet(excerpt(text, TEXT)) for text in texts]
