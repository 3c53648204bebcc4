"""How good a run's scores are: against gold labels with intervals, and by its judgments alone.

Every interval is the 95 % percentile interval of a bootstrap over the items: they are drawn with
replacement, while scores, gold and thresholds stay as they are. What is undefined is None, with its
reason. Items that were never judged are left out, and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from judgeq import seeds
from judgeq.datasets.tables import did_you_mean, display, listed
from judgeq.engine.datasets import check_ids, dataset_of
from judgeq.engine.results import Result
from judgeq.engine.status import State
from judgeq.errors import UsageError
from judgeq.evaluation import agreement, people, scale
from judgeq.evaluation.agreement import PanelAgreement
from judgeq.evaluation.gold import Gold, Plan, gold_for
from judgeq.evaluation.metrics import MEASURES, Measured, Sample, bootstrap, measures
from judgeq.evaluation.people import Yardstick
from judgeq.evaluation.scale import Misfit, Reliability
from judgeq.rating import THRESHOLDS, correlation, mixture, ranks
from judgeq.rating.mixture import Threshold
from judgeq.store import Items
from judgeq.text import INLINE
from judgeq.types import Bools, Floats, Offsets

SUMMARY = frozenset(MEASURES) - {"kendall", "auc"}
"""What `evaluated` measures: all that costs next to nothing, also for a million items."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """One rating of a run against gold over the `n` of `items` ("all", or a subset) that have both.

    `measures` are those of MEASURES, without those of detection unless gold has two classes;
    `threshold` is None where nothing is detected. Where items are in groups, or form several that
    comparisons don't connect, correlations are those within these `parts`, pooled (how many; None: all
    are on one scale).
    """

    rating: str
    items: str
    n: int
    without_gold: int
    without_score: int
    threshold: Threshold | None
    measures: Mapping[str, Measured]
    parts: int | None


def evaluate(
    run: Result, gold: Gold | None, plan: Plan, judges: PanelAgreement | None = None
) -> list[Assessment]:
    """Each rating over all items, then over each subset; also the main one by each of several judges
    alone. Nothing without gold. Raises UsageError."""
    if gold is None:
        return []
    ratings = ratings_of(run, gold, plan, judges)
    return [
        assess(rating, gold, items, mask, plan)
        for items, mask in masks_of(run.items, plan.subset).items()
        for rating in ratings
    ]


# Ratings and labels


class Rating(NamedTuple):
    """A rating of a run: scores of shape (n,), nan for those without; and over which score a threshold
    labels an item positive; `part` numbers what it is compared within: its group, or else its component
    where there are several (None: all are on one scale)."""

    name: str
    scores: Floats
    part: Offsets | None
    threshold: Threshold | None = None


def ratings_of(
    run: Result, gold: Gold | None, plan: Plan, judges: PanelAgreement | None = None
) -> list[Rating]:
    """The ratings of a run that are asked for, and the main one by each of several judges alone."""
    scores, name = run.scores, run.run.id
    names = list(scores.ratings)
    if plan.rating_name is not None:
        if plan.rating_name not in names:
            raise UsageError(
                f"--rating-name {plan.rating_name}: run {name} has {listed(names)}, not this."
            )
        names = [plan.rating_name]
    if not isinstance(plan.threshold, str) and len(names) > 1:
        raise UsageError(
            f"--threshold {plan.threshold:g}: run {name} has {listed(names)}, each on a scale of "
            "its own. Say which is meant with --rating-name."
        )
    # What was never judged still has the start's rating, which says nothing of it.
    every = [
        (column, column, np.where(scores.judged, scores.ratings[column], np.nan), scores.component)
        for column in names
    ]
    if judges is not None and judges.rating == names[-1]:
        alone = zip(judges.names, judges.ratings, judges.components, strict=True)
        every += [(f"{names[-1]} by {judge}", names[-1], own, its) for judge, own, its in alone]
    ratings = []
    for label, column, values, component in every:
        part = scores.group
        if part is None and component.max(initial=0) > 1:
            part = component
        ratings.append(Rating(label, values, part, _threshold(column, values, gold, plan)))
    return ratings


def _threshold(column: str, scores: Floats, gold: Gold | None, plan: Plan) -> Threshold | None:
    """That of the rating of a column, chosen on all items, also where a subset is evaluated; None where
    nothing is detected."""
    rule = plan.threshold
    if gold is None or gold.positive is None:
        if gold is not None and rule != "default":
            raise UsageError(f"--threshold {rule}: nothing is detected, since {gold.classes}.")
        return None
    if rule == "mixture":
        return mixture.threshold(scores)
    if isinstance(rule, str):
        return Threshold(THRESHOLDS[column], rule="default")
    return Threshold(rule, rule="given")


def masks_of(items: Items, wanted: str | None) -> dict[str, Bools]:
    """All items and the subsets, or the one wanted. Raises UsageError where there is none such."""
    masks = {"all": np.ones(len(items.ids), dtype=np.bool_), **items.subsets}
    if wanted is None:
        return masks
    if wanted not in masks:
        hint = did_you_mean(wanted, masks)
        raise UsageError(f"--subset {display(wanted)}: the dataset has {listed(masks)}.{hint}")
    return {wanted: masks[wanted]}


# Measures


def assess(rating: Rating, gold: Gold, items: str, mask: Bools, plan: Plan) -> Assessment:
    """A rating over those of the items `items`, which are `mask`, that have gold and a score.

    The resamples depend on their number and the seed alone: the same items are drawn for every rating
    and run.
    """
    unlabelled, unscored = np.isnan(gold.values), np.isnan(rating.scores)
    rows = np.flatnonzero(mask & ~unlabelled & ~unscored)
    cut = None if rating.threshold is None else rating.threshold.value
    labelled = None if cut is None else rating.scores > cut
    columns = (rating.scores, gold.values, gold.positive, labelled, rating.part)
    of_rows: list[Any] = [None if column is None else column[rows] for column in columns]
    sample = Sample(*of_rows)
    names = [
        name
        for name, (takes, _) in MEASURES.items()
        if name in plan.measures and (takes == "gold" or gold.positive is not None)
    ]
    there = measures(sample, names) if len(rows) > 1 else {}
    found = bootstrap(there, len(rows), plan.resamples, seeds.rng(plan.seed, "bootstrap"))
    for name in names:
        if name not in found or found[name].value is None:
            found[name] = Measured(None, why=_why(name, rating, sample))
    return Assessment(
        rating=rating.name,
        items=items,
        n=len(rows),
        without_gold=int((mask & unlabelled).sum()),
        without_score=int((mask & ~unlabelled & unscored).sum()),
        threshold=rating.threshold,
        measures={name: found[name] for name in names},
        parts=None if sample.part is None else len(np.unique(sample.part)),
    )


def _why(name: str, rating: Rating, sample: Sample) -> str:
    """Why a measure is undefined."""
    takes, _ = MEASURES[name]
    if len(sample.scores) < 2:
        return f"too few items ({len(sample.scores)}) have both gold and score"
    if takes == "labelled" and rating.threshold is not None and rating.threshold.why is not None:
        return f"no threshold: {rating.threshold.why}"
    if takes != "gold":
        one_class = len(np.unique(np.asarray(sample.positive))) < 2
        return "the gold is of one class only" if one_class else "no item is labelled positive"
    for values, what in ((sample.gold, "gold labels"), (sample.scores, "scores")):
        if np.ptp(values) == 0:
            return f"all {what} are equal"
    return "the values are too close"


@dataclass(frozen=True, slots=True)
class OfGroup:
    """A group of `items` items: how well their order is known (ρ̂), and Spearman's correlation of the
    main rating with gold over the `n` that have both; None where that is undefined. ρ̂ is None where
    texts have one answer each, too."""

    group: str
    items: int
    reliability: float | None
    spearman: float | None
    n: int


def by_group(run: Result) -> Iterator[OfGroup]:
    """A run's groups in the order of the dataset; none without groups."""
    scores, sure = run.scores, run.fit.posterior
    for rows in run.history.groups if scores.groups is not None else ():
        known = rows[scores.scored[rows]]
        rho = None
        if sure is not None and sure.is_repeated:
            rho = ranks.reliability(sure.mean[known], sure.errors_apart[known])
        both = known[~np.isnan(scores.gold[known])]
        alike = correlation.spearman(scores.main[1][both], scores.gold[both])
        found = correlation.point(alike, len(both))
        yield OfGroup((scores.groups or ())[rows[0]], len(rows), rho, found, len(both))


# What a run reports of itself


def evaluated(run: Result) -> Result:
    """A run with how good it is against its gold labels, if it has some: without intervals."""
    plan = Plan(resamples=0, measures=SUMMARY)
    return with_agreement(replace(run, evaluation=evaluate(run, gold_for(run, plan), plan)))


def with_agreement(run: Result) -> Result:
    """Return a run with the caution that its judges disagree, where they do."""
    if run.info.settings.rehearsal:
        return run
    found = agreement.of_run(run, resamples=0, seed=0, summary=True)
    return run if found is None else replace(run, panel_cautions=found.cautions)


def state_with_agreement(state: State) -> State:
    """Return a state with the caution that its judges disagree, unless a session works on it."""
    if state.result is None or state.running:
        return state
    return replace(state, result=with_agreement(state.result))


# All of it


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """A run with its `evaluation` against gold, as planned, whose labels are those of its items; and,
    without gold, how reliable its scores are, what doesn't fit them, whether longer texts score higher,
    and how well its judges agree."""

    run: Result = field(metadata=INLINE)
    plan: Plan
    gold: Gold | None
    reliability: Reliability
    misfit: Misfit
    judges: PanelAgreement | None = None  # None of one judge
    length: Measured | None = None  # None if the texts aren't here
    people: Yardstick | None = None  # None if no people judged
    by_group: Sequence[OfGroup] = ()


def texts_of(run: Result) -> Sequence[str] | None:
    """Return the texts of a run's items: its own, or its dataset's; None if they aren't here.

    Raises RunError where the run's record has other ids than the dataset.
    """
    if run.scores.texts is not None:
        return run.scores.texts
    dataset = dataset_of(run.run)
    if dataset is None:
        return None
    check_ids(run.run.label, run.scores.ids, dataset)
    return dataset.texts


def evaluation(
    run: Result, plan: Plan, splits: int | None = None, *, shown: bool = True
) -> Evaluation:
    """A run's evaluation, with its texts where they are here and may be `shown`. `splits` is how often
    the judgments are halved (None: as `split_half` has it). Raises UsageError or DataError."""
    gold = gold_for(run, plan, needed=(plan.rating_name or plan.subset) is not None)
    times, seed, texts = plan.resamples, plan.seed, texts_of(run)
    labels = run.scores.gold if gold is None else gold.values
    run = replace(run, scores=replace(run.scores, texts=texts if shown else None, gold=labels))
    judges = agreement.of_run(run, times, seed)
    if judges is not None and not run.info.settings.rehearsal:
        run = replace(run, panel_cautions=judges.cautions)
    return Evaluation(
        run=replace(run, evaluation=evaluate(run, gold, plan, judges)),
        plan=plan,
        gold=gold,
        reliability=scale.reliability_of(run, splits, seed),
        misfit=scale.misfit_of(run),
        judges=judges,
        length=None if texts is None else scale.with_length(run.scores, texts, times, seed),
        people=people.yardstick(run, times, seed),
        by_group=[*by_group(run)],
    )
