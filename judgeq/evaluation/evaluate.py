"""How good a run's scores are: against gold labels with intervals, and by its judgments alone.

Every interval is the 95 % percentile interval of a bootstrap over the items: they are drawn with
replacement, while scores, gold and thresholds stay as they are. What is undefined is None, with its
reason. Items that were never judged are left out, and counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from judgeq import seeds
from judgeq.datasets.tables import did_you_mean, listed, shown
from judgeq.engine import session
from judgeq.engine.results import Result
from judgeq.engine.scores import Scores
from judgeq.errors import UsageError
from judgeq.evaluation import agreement, metrics, people, scale
from judgeq.evaluation.agreement import PanelAgreement
from judgeq.evaluation.gold import Gold, Plan, gold_for, gold_if_any, labelled
from judgeq.evaluation.metrics import Measured
from judgeq.evaluation.people import Yardstick
from judgeq.evaluation.scale import Misfit, Reliability
from judgeq.json_marks import INLINE, LEFT_OUT
from judgeq.rating import THRESHOLDS, comparisons, correlation, mixture
from judgeq.store import Items
from judgeq.types import Bools, Floats, Offsets

CORRELATION = tuple(correlation.CORRELATION)
DETECTION = ("recall", "precision", "f1", "accuracy", "macro_f1", "auc")
COUNTS = ("tp", "fp", "fn", "tn")
THRESHOLDED = frozenset({*DETECTION, *COUNTS} - {"auc"})
"""The measures that a threshold decides."""
SUMMARY = frozenset({"pearson", "spearman", *DETECTION, *COUNTS} - {"auc"})
"""What `summary` measures: all that costs next to nothing, also for a million items."""
CELLS = {
    "true_positive": "tp",
    "false_positive": "fp",
    "false_negative": "fn",
    "true_negative": "tn",
}
FOLDS = 10


@dataclass(frozen=True, slots=True)
class Threshold:
    """Over which score an item is labelled positive, by the `rule` "default", "given", "mixture" or
    "best": then `value` is the median of the folds' thresholds, which are between `low` and `high`. None
    where there is no such score, and `why`."""

    rule: str
    value: float | None
    low: float | None = None
    high: float | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Within:
    """Correlation within the `components` that no comparison connects, over the `n` items of those that
    have one: the mean, weighted by their items."""

    components: int
    n: int
    pearson: float | None
    spearman: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Assessment:
    """One rating of a run against gold over the `n` of `items` ("all", or a subset) that have both.

    `measures` are those of CORRELATION, and of DETECTION and COUNTS where gold has two classes;
    `threshold` is None where nothing is detected, and `within_components` where there is one component.
    `resampled` are the values of each measure in each resample.
    """

    run: str
    rating: str
    items: str
    n: int
    without_gold: int
    without_score: int
    threshold: Threshold | None
    measures: Mapping[str, Measured]
    within_components: Within | None
    resampled: Mapping[str, Floats] = field(metadata=LEFT_OUT)


def evaluate(
    run: Result, gold: Gold, plan: Plan, judges: PanelAgreement | None = None
) -> list[Assessment]:
    """Each rating over all items, then over each subset; also those by each of several judges alone.

    Raises UsageError.
    """
    ratings = ratings_of(run, gold, plan)
    if judges is not None:
        for rating in list(ratings):
            for judge, own in zip(judges.names, judges.ratings, strict=True):
                name, scores = f"{rating.name} by {judge}", own[rating.name]
                labels = _labels(rating.name, scores, gold, plan)
                ratings.append(Rating(rating.run, name, scores, *labels, None))
    return [
        assess(rating, gold, items, mask, plan)
        for items, mask in masks_of(run.items, plan.subset).items()
        for rating in ratings
    ]


# Ratings and labels


class Rating(NamedTuple):
    """A rating of a run: scores, and which items a threshold labels positive; of shape (n,)."""

    run: str
    name: str
    scores: Floats
    labelled: Bools | None
    threshold: Threshold | None
    component: Offsets | None


def ratings_of(
    run: Result, gold: Gold | None, plan: Plan, rows: Offsets | slice = slice(None)
) -> list[Rating]:
    """The ratings of a run that are asked for; `rows` put its items in another order."""
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
    if plan.threshold != "default" and gold is not None and gold.positive is None:
        raise UsageError(
            f"--threshold {plan.threshold}: nothing is detected, since {gold.classes}."
        )
    ratings = []
    for column in names:
        # What was never judged still has the start's rating, which says nothing of it.
        values = np.where(scores.judged, scores.ratings[column], np.nan)[rows]
        labels = _labels(column, values, gold, plan)
        ratings.append(Rating(name, column, values, *labels, scores.component[rows]))
    return ratings


def _labels(
    column: str, scores: Floats, gold: Gold | None, plan: Plan
) -> tuple[Bools | None, Threshold | None]:
    """Which items are labelled positive, shape (n,), and by which threshold.

    One that is chosen is chosen on all items, also where a subset is evaluated. No item is labelled
    where there is no threshold.
    """
    if gold is None or gold.positive is None:
        return None, None
    if not isinstance(plan.threshold, str):
        return scores > plan.threshold, Threshold("given", plan.threshold)
    if plan.threshold == "default":
        return scores > THRESHOLDS[column], Threshold("default", THRESHOLDS[column])
    if plan.threshold == "mixture":
        cut = mixture.threshold(scores)
        labelled = None if cut.value is None else scores > cut.value
        return labelled, Threshold("mixture", cut.value, why=cut.why)
    rows = np.flatnonzero(~(np.isnan(gold.values) | np.isnan(scores)))
    positive = gold.positive[rows]
    counts = int(positive.sum()), int((~positive).sum())
    if min(counts) < FOLDS:
        raise UsageError(
            f"--threshold best needs {FOLDS} items of each class for its {FOLDS} folds; with a score "
            f"({column}) and gold there are {counts[0]} positive and {counts[1]} negative."
        )
    labelled = np.zeros(len(scores), dtype=np.bool_)
    rng = seeds.rng(plan.seed, "folds")
    labelled[rows], chosen = metrics.cross_validated(scores[rows], positive, rng, FOLDS)
    value, low, high = (float(of(chosen)) for of in (np.median, np.min, np.max))
    return labelled, Threshold("best", value, low, high)


def masks_of(items: Items, wanted: str | None) -> dict[str, Bools]:
    """All items and the subsets, or the one wanted. Raises UsageError where there is none such."""
    masks = {"all": np.ones(len(items.ids), dtype=np.bool_), **items.subsets}
    if wanted is None:
        return masks
    if wanted not in masks:
        hint = did_you_mean(wanted, masks)
        raise UsageError(f"--subset {shown(wanted)}: the dataset has {listed(masks)}.{hint}")
    return {wanted: masks[wanted]}


# Measures


def assess(rating: Rating, gold: Gold, items: str, mask: Bools, plan: Plan) -> Assessment:
    """A rating over those of the items `items`, which are `mask`, that have gold and a score.

    The resamples depend on their number and the seed alone: the same items are drawn for every rating
    and run.
    """
    unlabelled, unscored = np.isnan(gold.values), np.isnan(rating.scores)
    rows = np.flatnonzero(mask & ~unlabelled & ~unscored)
    names = CORRELATION if gold.positive is None else (*CORRELATION, *DETECTION, *COUNTS)
    if plan.measures is not None:
        names = tuple(name for name in names if name in plan.measures)
    values, resampled = _values(rating, gold, rows, names, plan)
    return Assessment(
        run=rating.run,
        rating=rating.name,
        items=items,
        n=len(rows),
        without_gold=int((mask & unlabelled).sum()),
        without_score=int((mask & ~unlabelled & unscored).sum()),
        threshold=rating.threshold,
        measures={
            name: Measured(None, why=_why(name, rating, gold, rows))
            if value is None
            else metrics.measured(int(value) if name in COUNTS else value, resampled.get(name))
            for name, value in values.items()
        },
        within_components=_within(rating, gold, rows),
        resampled=resampled,
    )


def _values(
    rating: Rating, gold: Gold, rows: Offsets, names: Sequence[str], plan: Plan
) -> tuple[dict[str, float | None], dict[str, Floats]]:
    """The measures by name over these items, and their values in the resamples."""
    if len(rows) < 2:
        return dict.fromkeys(names), {}
    scores = rating.scores[rows]
    measures = {
        name: measure(scores, gold.values[rows])
        for name, measure in correlation.CORRELATION.items()
        if name in names
    }
    if gold.positive is not None:
        positive = gold.positive[rows]
        labels = np.zeros(len(rows), np.bool_) if rating.labelled is None else rating.labelled[rows]
        measures |= metrics.detection(scores, positive, labels)
        measures |= metrics.confusion(positive, labels)
        if rating.labelled is None:  # what no threshold decides is known all the same
            measures = {name: measures[name] for name in measures if name not in THRESHOLDED}
    values = {
        name: correlation.point(measures[name], len(rows)) if name in measures else None
        for name in names
    }
    rng = seeds.rng(plan.seed, "bootstrap")
    drawn: dict[str, list[Floats]] = {name: [] for name in names}
    for weights in metrics.resamples(len(rows), plan.resamples, rng):
        for name in measures.keys() & drawn.keys():
            drawn[name].append(measures[name](weights))
    return values, {name: np.concatenate(parts) for name, parts in drawn.items() if parts}


def _why(name: str, rating: Rating, gold: Gold, rows: Offsets) -> str:
    """Why a measure over these items is undefined."""
    scores = rating.scores[rows]
    if len(rows) < 2:
        return f"too few items ({len(rows)}) have both gold and score"
    if name in THRESHOLDED and rating.threshold is not None and rating.threshold.why is not None:
        return f"no threshold: {rating.threshold.why}"
    if name not in CORRELATION and gold.positive is not None:
        if len(np.unique(gold.positive[rows])) < 2:
            return "the gold is of one class only"
        return "no item is labelled positive"
    if np.ptp(gold.values[rows]) == 0:
        return "all gold labels are equal"
    return "all scores are equal" if np.ptp(scores) == 0 else "the values are too close together"


def _within(rating: Rating, gold: Gold, rows: Offsets) -> Within | None:
    if rating.component is None:
        return None
    component = rating.component[rows]
    if not len(rows) or (component == component[0]).all():
        return None
    pearson, spearman, n = correlation.within(rating.scores[rows], gold.values[rows], component)
    return Within(len(np.unique(component)), n, pearson, spearman)


def apart(scores: Scores) -> str | None:
    """A warning if comparisons don't connect all items; None if they do."""
    if not scores.apart:
        return None
    sizes = comparisons.component_sizes(scores.component)
    between = f"{sizes[-1]:,} to {sizes[0]:,}" if sizes[0] > sizes[-1] else f"{sizes[0]:,}"
    return (
        f"The texts form {len(sizes):,} separate groups (of {between}) that were never compared with "
        "one another. Scores and ranks hold only within a group: see the column component of scores.csv."
    )


# What a run reports of itself


def evaluated(result: Result) -> Result:
    """A result with how good it is against the gold labels, where there are some."""
    return replace(result, evaluation=summary(result))


def summary(run: Result) -> dict[str, Any]:
    """What a run reports of itself, without intervals: "correlation" by subset and rating; and for gold
    of two classes "detection" by rating, over all items. Empty without gold.

    `n` items have gold and a score; those `without_score` have gold, and were never judged.
    """
    if not labelled(run):
        return {}
    plan = Plan(resamples=0, measures=SUMMARY)
    gold = gold_for(run, plan)
    correlations: dict[str, Any] = {}
    detection: dict[str, Any] = {}
    for assessment in evaluate(run, gold, plan):
        values = {name: measure.value for name, measure in assessment.measures.items()}
        counts = {"n": assessment.n, "without_score": assessment.without_score}
        row: dict[str, Any] = counts | {name: values[name] for name in ("spearman", "pearson")}
        if assessment.within_components is not None:
            row["within_components"] = asdict(assessment.within_components)
        correlations.setdefault(assessment.items, {})[assessment.rating] = row
        if gold.positive is not None and assessment.items == "all":
            rates = ("recall", "accuracy", "precision", "f1", "macro_f1")
            detection[assessment.rating] = (
                counts
                | {name: values[name] for name in rates}
                | {name: values[cell] for name, cell in CELLS.items()}
            )
    return {"correlation": correlations} | ({"detection": detection} if detection else {})


# All of it


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """A run's ratings against gold, as planned; and, which needs no gold, how reliable its scores are,
    what doesn't fit them, whether longer texts score higher, and how well its judges agree."""

    run: Result = field(metadata=INLINE)
    plan: Plan
    gold: Gold | None
    assessments: Sequence[Assessment]
    reliability: Reliability
    misfit: Misfit
    judges: PanelAgreement | None = None  # None of one judge
    length: Measured | None = None  # None if the texts aren't here
    people: Yardstick | None = None  # None if no people judged


def evaluation(
    run: Result,
    plan: Plan,
    splits: int | None = None,
    texts: Sequence[str] | None = None,
) -> Evaluation:
    """A run's evaluation. `splits` is how often the judgments are halved (None: as `splits_for` has it);
    `texts` are the items' (None: read from the dataset). Raises UsageError or DataError."""
    gold = gold_if_any(run, plan, "rating_name", "subset")
    judges = agreement.of_run(run, plan.resamples, plan.seed)
    if texts is None and (dataset := session.dataset_of(run.run)) is not None:
        texts = dataset.texts
    times, seed = plan.resamples, plan.seed
    return Evaluation(
        run=evaluated(run),
        plan=plan,
        gold=gold,
        assessments=[] if gold is None else evaluate(run, gold, plan, judges),
        reliability=scale.reliability_of(run, splits, seed),
        misfit=scale.misfit_of(run),
        judges=judges,
        length=None if texts is None else scale.with_length(run.scores, texts, times, seed),
        people=people.yardstick(run, times, seed),
    )
