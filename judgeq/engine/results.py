"""What a run's ledger says: the scores of its items, and what they cost. Always made again from it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, ClassVar

import numpy as np

from judgeq import rating
from judgeq.config import Settings
from judgeq.datasets import Dataset
from judgeq.datasets.tables import display
from judgeq.engine import rounds, unread
from judgeq.engine.interrupts import Stop, in_thread
from judgeq.engine.scores import Scores
from judgeq.errors import NoVerdictsError, RunError, UsageError
from judgeq.escaping import plain
from judgeq.events import Certainty, Placed, RoundRated
from judgeq.people import checks
from judgeq.person import Said
from judgeq.rating import (
    Estimator,
    Fit,
    GoOn,
    Parameters,
    comparisons,
    correlation,
    position_bias,
)
from judgeq.rating.mixture import has_two_humps
from judgeq.rating.position_bias import Effect, Slots
from judgeq.rating.posterior import Posterior
from judgeq.rating.ranks import intervals
from judgeq.run_places import RunInfo, RunPlace
from judgeq.run_places.info import Ended
from judgeq.store import Items, Store
from judgeq.store.protocol import Answered, ReplyProblem
from judgeq.strategies import MOST_ROUNDS, History
from judgeq.strategies.strategy import SETTLED
from judgeq.text import INLINE, LEFT_OUT, money, several
from judgeq.types import Counts, Floats, Totals, Verdicts

SHOWN = 10
"""So many items are reported from each end of a ranking."""
_TEXT = 200
DIRECT_AGREEMENT = 0.75
"""The correlation of direct scores with comparisons below which a caution is given: at 0.61 both
together were worse than the better one by 0.08 (docs/methods.md)."""
HARDLY = 0.5
"""The correlation below which they hardly agree."""

TWO_HUMPS = (
    "The scores form two groups. Within a group the order is less certain than the reliability "
    "suggests."
)

ABOUT = {
    "rehearsal": "info.settings.rehearsal",
    "run": "run.id",
    "folder": "run.path",
    "store": "run.store_address",
    "dataset": "info.dataset",
    "strategy": "info.strategy",
    "judge": "judge",
    "partial": "partial",
    "rating": "main.name",
    "fit": "fit",
    "components": "scores.components",
    "groups": "scores.group_count",
    "texts": "scores.with_texts",
}
"""The keys that say in JSON which run a result is, and by what it was rated."""
OF_RUN = {key: f"run.{path}" for key, path in ABOUT.items()}
"""The same of what has a result as its `run`."""


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """All that a finished, or partial, run has to show: what it is, its items, all that was judged, and
    the scores. `rating` and `parameters` are by what comparisons were rated; `slots` are None where
    items were judged alone, and `effect` is that of the place, if there are enough matches
    and the main rating has errors; `known` is how well the order is known, where that was worked out
    (`certainty`); `evaluation` are its assessments against gold labels, where it was evaluated;
    `answered` are the models that answered, as their providers say; `said` is what is on record of the
    people who judged, where people did.
    """

    run: RunPlace
    info: RunInfo = field(metadata=LEFT_OUT)
    items: Items
    history: History = field(metadata=LEFT_OUT)
    scores: Scores
    rating: str
    parameters: Parameters = field(metadata=LEFT_OUT)
    fit: Fit
    counts: Counts
    totals: Totals = field(metadata=INLINE)
    slots: Slots | None
    effect: Effect | None = None
    evaluation: Sequence[Any] = ()
    known: Certainty | None = None
    two_humps: bool = field(default=False, metadata=LEFT_OUT)
    """Whether the scores form two groups, for whose order ρ̂ is too high."""
    answered: Sequence[Answered] = field(default=(), metadata=LEFT_OUT)
    said: Said | None = field(default=None, metadata=LEFT_OUT)
    unread: Sequence[str] = field(default=(), metadata=LEFT_OUT)
    """Signs that a judge didn't read what it was asked, a sentence each."""
    reply_problems: Sequence[ReplyProblem] = field(default=(), metadata=LEFT_OUT)
    """What was wrong with unusable replies, the most frequent first."""
    # That the judges disagree, in sentences, where that was looked at (evaluate.with_agreement).
    panel_cautions: Sequence[str] = field(default=(), metadata=LEFT_OUT)
    JSON_KEYS: ClassVar = {
        **ABOUT,
        "scores": "run.scores",
        "items": "info.items",
        "items_judged": "scores.judged.sum",
        "left_early": "scores.left.sum",
        "rounds": "rounds",
        "rounds_planned": "rounds_planned",
        "jobs": "counts",
        "cost_equivalent_calls": "cost_equivalent_calls",
        "certainty": "known",
        "answered_by": "answered_by",
        "cautions": "cautions",
        "ended": "ended",
        "onto": "info.onto",
        "link": "fit.link",
        "effect": "effect",
        "both_orders": "history.flips",
    }

    def __repr__(self) -> str:
        cost = "" if self.totals.unpriced else f", {money(self.totals.cost, 2)}"
        partial = f"round {self.rounds_planned} of " if self.partial else ""
        return (
            f"<Result {self.info.mark}{self.run.id}: {len(self.scores.ids):,} items, "
            f"{partial}{self.rounds} rounds, {self.totals.calls:,} calls{cost}; "
            f"{', '.join(self.scores.ratings)}>"
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
    def judge(self) -> str:
        """The judges, for screens: people by how many answered, and by no names."""
        if self.said is None:
            return self.info.judge
        people = self.said.judged
        names = list(self.judges[: self.said.first])
        names[self.info.settings.people or 0] = "1 person" if people == 1 else f"{people:,} people"
        return " + ".join(names)

    @property
    def rounds_planned(self) -> int:
        """The rounds so far, without those of settled items."""
        return len(self.history.verdicts) - self.history.before

    @property
    def rounds(self) -> int:
        """All rounds, at most; of a run that ended early those that there were."""
        return self.info.most_rounds(self.rounds_planned, self.history.over)

    @property
    def ended(self) -> Ended | None:
        """That enough was known, where the run ended by it."""
        return self.info.ended_after(self.rounds_planned)

    @property
    def partial(self) -> bool:
        """Whether rounds or jobs are still to come."""
        return self.rounds_planned < self.rounds or self.counts.left > 0

    @property
    def state(self) -> str:
        """Whether it is "partial" or "finished"."""
        return "partial" if self.partial else "finished"

    @property
    def cautions(self) -> list[str]:
        """Return what a reader of the scores must know, the gravest first.

        Of a rehearsal it is that its answers are made up: nothing is found in them.
        """
        if self.info.settings.rehearsal:
            return self.info.cautions
        further = [*self.info.further_cautions, *self._missed_goal, *self._several_models]
        return [*self.first_cautions, *further]

    @property
    def one_sided(self) -> Iterator[str]:
        """Yield a sentence for each person all of whose answers put the same position first.

        Models that do so are stopped while they answer (judge/unread.py).
        """
        if self.said is None:
            return
        verdicts = comparisons.joined(self.history.asked)
        number_of_judges = max(len(self.judges), int(verdicts.judges.max(initial=0)) + 1)
        counts = checks.first_counts(verdicts, number_of_judges).tolist()
        for number in range(self.said.first, number_of_judges):
            seconds = self.said.seconds.get(number - self.said.first, ())
            name = plain(self.judges[min(number, len(self.judges) - 1)], rounds.NAME_SHOWN)
            sentence = checks.one_sided(name, counts[number], median(seconds) if seconds else None)
            if sentence is not None:
                yield sentence

    @property
    def first_cautions(self) -> list[str]:
        """Return the cautions that stand above the ranking: without them, the scores mislead.

        Of a rehearsal it is that its answers are made up.
        """
        if self.info.settings.rehearsal:
            return self.info.first_cautions
        link = [] if self.fit.link is None else self.fit.link.cautions
        humps = [TWO_HUMPS] if self.two_humps else []
        return [
            *self.info.first_cautions,
            *self.unread,
            *self.one_sided,
            *link,
            *filter(None, [apart(self.scores)]),
            *self.panel_cautions,
            *self._two_measures,
            *humps,
        ]

    @property
    def _missed_goal(self) -> Iterator[str]:
        """That the run used up its rounds before enough was known (--until)."""
        goal, known = self.history.goal, self.known
        if not goal or self.partial or self.ended or known is None or self.info.imported:
            return
        if goal.reached(known.rho, known.top_share) and self.history.twice:
            return
        what = f"reliability is {known.rho:.3f}"
        if goal.top is not None and known.top_share is not None:
            what = f"{known.top_share:.0%} of the first {goal.top} are settled, of {SETTLED:.0%}"
        yield f"The goal was missed (--until {goal.name}): {what}, and all rounds are over."

    @property
    def _two_measures(self) -> Iterator[str]:
        """That direct scores and comparisons agree so little that one may do better alone."""
        r = self.direct_agreement
        if r is None or r >= DIRECT_AGREEMENT:
            return
        how = "hardly agree" if r < HARDLY else "agree only in part"
        yield (
            f"Direct scores and comparisons {how} (correlation {r:.2f}). Pooling them may be worse than "
            "using the better one: read a few texts and check which ranking fits."
        )

    @property
    def answered_by(self) -> list[dict[str, Any]]:
        """The models that answered, as their providers say, by the names of judges."""
        names = dict(enumerate(self.info.settings.judges))
        return [one._asdict() | {"judge": names.get(one.judge)} for one in self.answered]

    @property
    def _several_models(self) -> Iterator[str]:
        """That several models answered for one judge, a sentence each."""
        calls = defaultdict[int, Counter[str]](Counter)
        for one in self.answered:
            calls[one.judge][plain(one.model, rounds.NAME_SHOWN)] += one.calls
        for number, name in enumerate(self.info.settings.judges):
            models = [f"{model} ({several(n, 'call')})" for model, n in calls[number].items()]
            if len(models) > 1:
                more = f" and {len(models) - SHOWN:,} more" if len(models) > SHOWN else ""
                yield (
                    f"{len(models):,} models answered for {name}: {', '.join(models[:SHOWN])}{more}. "
                    "They count as one judge, unless --split-models."
                )

    def probability_above(self, one: str, other: str) -> float:
        """The probability that an item has more of the feature than another, by the main rating; both by
        id. Raises UsageError for an id that isn't there, and where the estimator has no errors."""
        if self.fit.posterior is None:
            raise UsageError(f"the rating {self.rating} has no errors: rate by pl or bt.")
        rows = self.row_of(one), self.row_of(other)
        return float(self.fit.posterior.probability_above(*rows))

    def row_of(self, item: str) -> int:
        """The row of an item by its id. Raises UsageError."""
        ids = list(self.scores.ids)
        if item not in ids:
            raise UsageError(f"run {self.run.id} has no item {display(item)}.")
        return ids.index(item)

    @property
    def direct_agreement(self) -> float | None:
        """The correlation of direct scores with what comparisons alone say, where there are both."""
        if self.history.basis != "both":
            return None
        ratings = self.scores.ratings
        direct, other = ratings["direct"], ratings[rating.ESTIMATORS[self.rating].column]
        both = (self.scores.matches > 1) & ~np.isnan(direct)
        return correlation.point(correlation.pearson(direct[both], other[both]), int(both.sum()))

    @property
    def cost_equivalent_calls(self) -> float:
        """Of all that was judged: 1 a pair, k/2 a list of k."""
        return sum(verdicts.cost for verdicts in self.history.asked)


def apart(scores: Scores) -> str | None:
    """Return a warning if comparisons don't connect all items that they should; None if they do."""
    if not scores.apart:
        return None
    sizes = comparisons.component_sizes(scores.component)
    between = f"{sizes[-1]:,} to {sizes[0]:,}" if sizes[0] > sizes[-1] else f"{sizes[0]:,}"
    return (
        f"The texts form {len(sizes):,} separate groups (of {between}) that were never compared with "
        "one another. Scores and ranks hold only within a group: see the column component of scores.csv."
    )


async def rate(
    run: RunPlace,
    info: RunInfo,
    store: Store,
    history: History,
    settings: Settings,
    stop: Stop | None = None,
    items: Items | None = None,
) -> Result:
    """The result of what was judged so far: the final ratings, and all else that is shown. The `items`
    are read where they aren't at hand.

    Made in a thread, so that the event loop lives on; raises StoppedError once `stop` is asked for,
    and NoVerdictsError where there is no verdict, so that there are no ratings.
    """
    if not rounds.own_verdicts(history):
        raise NoVerdictsError(
            f"run {run.id} has no verdict, so there are no scores. See its jobs: "
            f"`{run.command('status')}`."
        )
    items = items or await store.items()
    totals, answered = await store.totals(), await store.answered()
    counts = await rounds.own_counts(store, info)
    cut_off = await unread.prompt_cautions(store, info)
    problems = await unread.reply_problems(store)
    judged_by, all_asked = info, comparisons.joined(history.asked)
    info, people = await with_people(info, store)
    if settings.split_models:
        info, people = rounds.split_by_model(history, info, people, await store.models())

    def rated(go_on: GoOn) -> Result:
        asked = comparisons.joined(history.asked)
        with history.going(go_on):
            scores, fit = _scores(items, history, settings, info.mark, go_on)
            known = None
            two_humps = False
            if rounds.at_the_end(history, settings):
                known = rounds.how_well(history, settings, totals)
            if known is not None and known.rho is not None:
                two_humps = has_two_humps(scores.main[1][scores.scored])
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
            two_humps=two_humps,
            counts=counts,
            totals=totals,
            answered=answered,
            slots=position_bias.slots(asked, couples=history.both_orders),
            effect=_effect(asked, history, settings, fit, go_on),
            said=people,
            unread=[*cut_off, *unread.answer_cautions(judged_by, all_asked)],
            reply_problems=problems,
        )

    return await in_thread(rated, stop)


def _scores(
    items: Items, history: History, settings: Settings, mark: str, go_on: GoOn
) -> tuple[Scores, Fit]:
    """The scores, with the `mark` of what is made up, and the fit of the main rating."""
    n, verdicts = len(items.ids), comparisons.joined(history.verdicts)
    fits = {
        estimator.column: history.fit(estimator, settings.parameters)
        for estimator in rating.of_run(settings.rating, history.basis)
    }
    *_, main = fits.values()
    component = np.ones(n, dtype=np.int64)  # scores of items judged alone are on one scale
    if not history.alone:
        component = comparisons.components(verdicts, n, scored=True)
    if history.group is not None:  # which these connect
        judged = component > 0
        parts = history.group[judged] * (n + 1) + component[judged]
        component[judged] = np.unique(parts, return_inverse=True)[1].reshape(-1) + 1
    scores = Scores(
        ids=items.ids,
        ratings={column: fit.theta for column, fit in fits.items()},
        intervals=None if main.posterior is None else intervals(main.posterior, go_on, component),
        mark=mark,
        matches=comparisons.matches_of(verdicts, n),
        wins=comparisons.wins_of(verdicts, n),
        left_after=history.left_after,
        gold=np.full(n, np.nan) if items.gold is None else items.gold,
        component=component,
        groups=items.groups,
        group=history.group,
        first_new=history.first_new,
    )
    return scores, main


def _effect(
    asked: Verdicts, history: History, settings: Settings, fit: Fit, go_on: GoOn
) -> Effect | None:
    """What the place presented is worth. Of pairs asked in both orders it is that of each
    question, by a fit of its own: in the couples it cancels out."""
    looked: Effect | None = fit.effect
    if looked is not None:
        return looked
    if history.both_orders:
        parameters, n = Parameters(fit.sigma, position=False), len(fit.theta)
        fit = rating.ESTIMATORS[settings.rating].fit(asked, n, parameters, go_on)
    if not isinstance(fit.posterior, Posterior):
        return None
    return position_bias.effect(fit.posterior, asked, joint=fit.position, go_on=go_on)


async def read(run: RunPlace, settings: Settings) -> Result:
    """Rate a run from its folder alone, also while another process goes on with it; of the settings
    the rating's decide. Raises RunError."""
    info = run.info()
    async with rounds.reading(run) as store:
        # By the settings of now: whether settled items are rated anew may be asked for afterwards.
        rated = info.settings.model_copy(update={"refit": settings.refit})
        history = await replayed(info.model_copy(update={"settings": rated}), store)
        return await rate(run, info, store, history, settings)


async def with_people(info: RunInfo, store: Store) -> tuple[RunInfo, Said | None]:
    """The run's description with the people of its store among its judges, after those of its panel;
    and what is on record of them, None where there are none."""
    people = await store.people()
    if not people:
        return info, None
    names = tuple(info.judge_names)
    checks, calls = await store.checks(), await store.people_calls()
    seconds, skipped = defaultdict[int, list[float]](list), Counter[int]()
    for _, call in calls:
        number = (call.judge or 0) - len(names)
        if call.outcome == "ok":
            seconds[number].append(call.latency)
        skipped[number] += call.outcome == "skipped"
    for check in checks:
        if check.person is not None and check.verdict is not None:
            seconds[check.person].append(check.seconds)
    record = Said(len(names), people, checks, seconds, skipped, len(calls))
    judges = (*names, *(person.name for person in people))
    return info.model_copy(update={"judges": judges}), record


async def judgments(run: RunPlace) -> tuple[Sequence[str], list[Verdicts], Sequence[str]]:
    """What a run's judges said: items' ids, verdicts round by round, the judges' names if known."""
    info = run.info()
    async with rounds.reading(run) as store:
        judges = (await with_people(info, store))[0].judges
        return (await store.items()).ids, (await replayed(info, store)).asked, judges


async def replayed(info: RunInfo, store: Store, last: int | None = None) -> History:
    """All that a run's ledger says, folded round by round; up to the round `last`, if given. Raises
    RunError for one that is damaged."""
    items = await store.items()
    if len(items.ids) != info.items:
        raise RunError(
            f"the run's record is damaged: config.json has {info.items} items, run.db {len(items.ids)}."
        )
    history = rounds.begin(info.items, info.strategy_of(info.settings), info.settings, items.groups)
    judges = max(1, len(info.judges))
    for round in history.to_come(MOST_ROUNDS):
        if round - 1 == last or await rounds.fold(history, store, judges) is None:
            break
    return history


def round_rated(
    dataset: Dataset,
    round: int,
    before: Floats,
    latest: tuple[str, Floats],
    known: Certainty | None = None,
) -> RoundRated:
    """A round that took the ratings from `before` to the `latest`, by name, both of shape (items,); an
    item without a rating (nan) counts as 0."""
    rating, after = latest[0], np.nan_to_num(latest[1])
    group, moved = comparisons.numbered(dataset.groups), None
    if round > 1:
        moved = correlation.point(correlation.spearman(before, after, group), len(after))

    def placed(rows: Sequence[int]) -> list[Placed]:
        texts = dataset.texts
        return [
            Placed(dataset.ids[row], texts[row][:_TEXT] if texts else None, float(after[row]))
            for row in rows
        ]

    order = np.argsort(-after, kind="stable").tolist() if group is None else []
    return RoundRated(round, moved, placed(order[:SHOWN]), placed(order[-SHOWN:]), known, rating)
