"""How good a run's scores are against gold labels, with intervals.

Every interval is the 95 % percentile interval of a bootstrap over the items: they are drawn with
replacement, while scores, gold and thresholds stay as they are. What can't be told is None, and its
reason is told beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from judgeq import results, seeds
from judgeq.config import Rating
from judgeq.datasets.tables import did_you_mean, listed, shown
from judgeq.ensembles import Ensemble, ensemble
from judgeq.errors import UsageError
from judgeq.gold import Gold
from judgeq.rating import quality
from judgeq.rating.quality import Estimate, Measure
from judgeq.results import MIDDLE, Judged, Result
from judgeq.runs import RunFolder, RunInfo
from judgeq.store import Items
from judgeq.types import Bools, Floats, Offsets

CORRELATION = ("pearson", "spearman", "kendall")
DETECTION = ("recall", "precision", "f1", "accuracy", "macro_f1", "auc")
COUNTS = ("tp", "fp", "fn", "tn")
THRESHOLDED = frozenset({*DETECTION, *COUNTS} - {"auc"})
"""The measures that a threshold decides."""
FOLDS = 10

Rule: TypeAlias = Literal["default", "given", "best"]


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """A run as it is evaluated: its scores, the gold and subsets of its items, all that was judged."""

    result: Result
    items: Items
    info: RunInfo
    judged: Judged

    @property
    def id(self) -> str:
        """The run's id."""
        return self.result.run.id


@dataclass(frozen=True, slots=True)
class Plan:
    """How to evaluate. `threshold` is a rule, or the number over which a score is positive; `rating`
    and `subset` leave the others out (None: all)."""

    resamples: int = quality.RESAMPLES
    seed: int = 0
    threshold: float | Literal["default", "best"] = "default"
    rating: str | None = None
    subset: str | None = None


@dataclass(frozen=True, slots=True)
class Threshold:
    """Over which score an item is labelled positive. Of "best", `value` is the median of the folds'
    thresholds, which are between `low` and `high`."""

    rule: Rule
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One rating of a run against gold over the `n` of `items` ("all", or a subset) that have both.

    `measures` are those of CORRELATION, and of DETECTION and COUNTS where gold has two classes.
    `why` tells by measure what could not be told; `threshold` is None where nothing is detected.
    """

    run: str
    rating: str
    items: str
    n: int
    without_gold: int
    without_score: int
    threshold: Threshold | None
    measures: Mapping[str, Estimate]
    why: Mapping[str, str]


def judges_of(run: Scored, plan: Plan) -> Ensemble | None:
    """What each of a run's judges says; None for one judge alone."""
    names = run.info.judges or run.info.settings.judges
    if len(names) < 2:
        return None
    rating, sigma = run.result.rating, run.result.bt_sigma
    return ensemble(run.judged, names, rating, sigma, plan.resamples, plan.seed)


async def open_run(run: RunFolder, rating: Rating, sigma: float) -> Scored:
    """A run from its folder, rated by this estimator. Raises RunError."""
    result, items, judged = await results.opened(run, rating, sigma)
    return Scored(result, items, run.info(), judged)


# Ratings and labels


class Case(NamedTuple):
    """One rating: scores and labels of shape (n,)."""

    run: str
    rating: str
    scores: Floats
    said: Bools | None
    threshold: Threshold | None


def cases_of(run: Scored, gold: Gold, plan: Plan, order: Offsets | None = None) -> list[Case]:
    """The ratings of a run that are asked for; `order` puts its items in another order."""
    all_scores = run.result.scores
    # Who was never judged still has the start's rating, which says nothing of it.
    ratings = {
        name: np.where(all_scores.matches == 0, np.nan, values)
        for name, values in all_scores.ratings.items()
    }
    if plan.rating is not None:
        if plan.rating not in ratings:
            raise UsageError(
                f"--rating-name {plan.rating}: run {run.id} has {listed(ratings)}, not this."
            )
        ratings = {plan.rating: ratings[plan.rating]}
    if isinstance(plan.threshold, float) and len(ratings) > 1:
        raise UsageError(
            f"--threshold {plan.threshold:g}: run {run.id} has {listed(ratings)}, each on a scale of "
            "its own. Say which is meant with --rating-name."
        )
    if plan.threshold != "default" and gold.positive is None:
        raise UsageError(
            f"--threshold {plan.threshold}: nothing is detected, since {gold.classes}."
        )
    found = []
    for name, values in ratings.items():
        scores = values if order is None else values[order]
        said, threshold = _labels(name, scores, gold, plan)
        found.append(Case(run.id, name, scores, said, threshold))
    return found


def _labels(
    rating: str, scores: Floats, gold: Gold, plan: Plan
) -> tuple[Bools | None, Threshold | None]:
    """Who is labelled positive, shape (n,), and by which threshold.

    One that is chosen is chosen on all items, also where a subset is evaluated.
    """
    if gold.positive is None:
        return None, None
    if plan.threshold != "best":
        rule: Rule = "default" if plan.threshold == "default" else "given"
        value = MIDDLE[rating] if plan.threshold == "default" else plan.threshold
        return scores > value, Threshold(rule, value)
    rows = np.flatnonzero(~(np.isnan(gold.values) | np.isnan(scores)))
    positive = gold.positive[rows]
    counts = int(positive.sum()), int((~positive).sum())
    if min(counts) < FOLDS:
        raise UsageError(
            f"--threshold best needs {FOLDS} items of each class for its {FOLDS} folds; with a score "
            f"({rating}) and gold there are {counts[0]} positive and {counts[1]} negative."
        )
    said = np.zeros(len(scores), dtype=np.bool_)
    rng = seeds.rng(plan.seed, "folds")
    said[rows], chosen = quality.cross_validated(scores[rows], positive, rng, FOLDS)
    value, low, high = (float(each(chosen)) for each in (np.median, np.min, np.max))
    return said, Threshold("best", value, low, high)


# Measures


class Sample(NamedTuple):
    """What is measured over the items `rows`: the values, and those of each resample."""

    rows: Offsets
    values: Mapping[str, float | None]
    drawn: Mapping[str, Floats]


def sampled(case: Case, gold: Gold, rows: Offsets, plan: Plan) -> Sample:
    """Every measure over these items. The resamples depend on their number and the seed alone: the
    same items are drawn for every rating and run."""
    scores = case.scores[rows]
    names = CORRELATION if gold.positive is None else (*CORRELATION, *DETECTION, *COUNTS)
    if len(rows) < 2:
        return Sample(rows, dict.fromkeys(names), {})
    measures = dict(quality.correlation(scores, gold.values[rows]))
    if gold.positive is not None and case.said is not None:
        positive, said = gold.positive[rows], case.said[rows]
        measures |= quality.detection(scores, positive, said)
        cells = (positive & said, ~positive & said, positive & ~said, ~positive & ~said)
        measures |= {name: _counted(cell) for name, cell in zip(COUNTS, cells, strict=True)}
    values = {name: quality.point(measures[name], len(rows)) for name in names}
    drawn: dict[str, list[Floats]] = {name: [] for name in names}
    rng = seeds.rng(plan.seed, "bootstrap")
    for weights in quality.resamples(len(rows), plan.resamples, rng):
        for name in names:
            drawn[name].append(measures[name](weights))
    none = np.empty(0)
    return Sample(rows, values, {name: np.concatenate([none, *drawn[name]]) for name in names})


def _counted(cell: Bools) -> Measure:
    members = cell.astype(np.float64)
    return lambda weights: weights @ members


def estimate_of(value: float | None, drawn: Floats | None) -> Estimate:
    """A value with the interval of its resampled values; without where there are none."""
    if value is None or drawn is None:
        return Estimate(value)
    return Estimate(value, *quality.interval(drawn))


def row_of(case: Case, gold: Gold, items: str, mask: Bools, sample: Sample) -> Row:
    """The row of a sample that was drawn from the items `items`, which are `mask`."""
    unlabelled = np.isnan(gold.values)
    measures = {
        name: estimate_of(value, sample.drawn.get(name)) for name, value in sample.values.items()
    }
    why = {}
    for name, found in measures.items():
        if found.value is None:
            why[name] = _why(name, case.scores[sample.rows], gold, sample.rows)
        elif found.low is None and len(sample.drawn.get(name, ())):
            why[name] = "too few of the resamples can tell it"
    return Row(
        run=case.run,
        rating=case.rating,
        items=items,
        n=len(sample.rows),
        without_gold=int((mask & unlabelled).sum()),
        without_score=int((mask & ~unlabelled & np.isnan(case.scores)).sum()),
        threshold=case.threshold,
        measures=measures,
        why=why,
    )


def _why(name: str, scores: Floats, gold: Gold, rows: Offsets) -> str:
    """Why a measure over these items can't be told."""
    if len(rows) < 2:
        return f"too few items ({len(rows)}) have both gold and score"
    if name not in CORRELATION and gold.positive is not None:
        if len(np.unique(gold.positive[rows])) < 2:
            return "the gold is of one class only"
        return "no item is labelled positive"
    if np.ptp(gold.values[rows]) == 0:
        return "all gold labels are equal"
    return "all scores are equal" if np.ptp(scores) == 0 else "the values are too close together"


def known(gold: Gold, mask: Bools, *cases: Case) -> Offsets:
    """The items of `mask` that have gold, and a score in each case."""
    for case in cases:
        mask = mask & ~np.isnan(case.scores)
    return np.flatnonzero(mask & ~np.isnan(gold.values))


def masks_of(items: Items, wanted: str | None) -> dict[str, Bools]:
    """All items and the subsets, or the one wanted. Raises UsageError where there is none such."""
    masks = {"all": np.ones(len(items.ids), dtype=np.bool_), **items.subsets}
    if wanted is None:
        return masks
    if wanted not in masks:
        hint = did_you_mean(wanted, masks)
        raise UsageError(f"--subset {shown(wanted)}: the dataset has {listed(masks)}.{hint}")
    return {wanted: masks[wanted]}


def evaluate(run: Scored, gold: Gold, plan: Plan, judges: Ensemble | None = None) -> list[Row]:
    """Each rating over all items, then over each subset; of several judges also each of theirs.

    Raises UsageError.
    """
    cases = cases_of(run, gold, plan)
    if judges is not None:
        for case in list(cases):
            for name, ratings in zip(judges.names, judges.ratings, strict=True):
                scores = ratings[case.rating]
                said, threshold = _labels(case.rating, scores, gold, plan)
                cases.append(Case(run.id, f"{case.rating} by {name}", scores, said, threshold))
    return [
        row_of(case, gold, items, mask, sampled(case, gold, known(gold, mask, case), plan))
        for items, mask in masks_of(run.items, plan.subset).items()
        for case in cases
    ]
