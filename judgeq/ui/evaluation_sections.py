"""How good runs are, and which is better, as sections that fit into 100 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np

from judgeq.evaluation.agreement import PanelAgreement
from judgeq.evaluation.compare import NOTHING, Comparison, Pair, zero_outside
from judgeq.evaluation.evaluate import (
    CORRELATION,
    COUNTS,
    DETECTION,
    FOLDS,
    Assessment,
    Plan,
    apart,
)
from judgeq.evaluation.gold import Gold
from judgeq.evaluation.metrics import LEVEL, Measured
from judgeq.evaluation.whole import Evaluation
from judgeq.ui import judge_sections, people_sections, scale_sections
from judgeq.ui.order_sections import order
from judgeq.ui.run_sections import cautions
from judgeq.ui.sections import Section, numbers, shown, words
from judgeq.ui.text import count, listed, several

NAMES: Mapping[str, str] = {
    "pearson": "Pearson",
    "spearman": "Spearman",
    "kendall": "Kendall",
    "recall": "recall",
    "precision": "precision",
    "f1": "F1 (positive)",
    "accuracy": "accuracy",
    "macro_f1": "macro F1",
    "auc": "ROC AUC",
    "tp": "true positive",
    "fp": "false positive",
    "fn": "false negative",
    "tn": "true negative",
}
# Three values with their intervals are what fits into 100 columns.
POSITIVE, BOTH = DETECTION[:3], DETECTION[3:]
PAPER = ("recall", "accuracy", "precision", "f1", "macro_f1", "auc", *CORRELATION)
SHORT = {**NAMES, "f1": "F1", "auc": "AUC"}

PAIRED = 4
"""Of more judges than this the agreement is shown as a matrix."""
LEFT_OUT = 6
"""So many ratings are named that lack the score of an item."""


def evaluation(evaluation: Evaluation) -> Iterator[Section]:
    """One run against gold, and how well its judges agree."""
    run, gold, assessments = evaluation.run, evaluation.gold, evaluation.assessments
    note = apart(run.scores)
    yield Section(f"{run.run.id}: {run.state}", warnings=[] if note is None else [note])
    if gold is None:
        note = "There are no gold labels to hold the scores against: --gold names a file of them."
        yield Section(notes=[note], close=True)
    else:
        yield Section(facts=[*gold_facts(gold, evaluation.plan, [assessments])], close=True)
        yield from against_gold(evaluation)
    if evaluation.judges is not None:
        yield from agreement_of_judges(evaluation.judges)
    yield from people(evaluation)
    yield from scale_sections.reliability(evaluation.reliability)
    yield from scale_sections.misfit(evaluation.misfit)
    yield from order(run)
    if evaluation.length is not None:
        yield length(run.scores.main[0], evaluation.length)
    yield from cautions(run)


def people(evaluation: Evaluation) -> Iterator[Section]:
    """How well people who judged agree, models with them, and each of them."""
    if evaluation.people is not None:
        yield from people_sections.people(evaluation.people)
        yield judge_sections.listed(evaluation.run.run, evaluation.people.each)


def against_gold(evaluation: Evaluation) -> Iterator[Section]:
    """Detection and correlation, where there is gold."""
    gold, assessments = evaluation.gold, evaluation.assessments
    if gold is None:
        return
    if gold.positive is not None:
        yield _measures("Detection: the positive items", POSITIVE, assessments, close=False)
        yield _measures("Detection: both classes", BOTH, assessments)
        yield _measures("Confusion counts", COUNTS, assessments)
    title = "Correlation with the gold labels"
    yield _measures(title, CORRELATION, assessments, close=gold.positive is not None)
    yield from _within([assessments])
    yield from _reasons([assessments])


def length(rating: str, measured: Measured) -> Section:
    """Whether longer texts score higher."""
    if measured.value is None:
        return Section(notes=[f"Length of the texts: {measured.why}."])
    said = f"Spearman's correlation of the scores ({rating}) with the length of the texts:"
    reach = measured.low is not None and measured.high is not None
    sure = reach and zero_outside(measured)
    rewarded = "longer" if measured.value > 0 else "shorter"
    means = (
        f"{rewarded} texts score higher, which may be the judge's fault or the texts' own"
        if sure
        else "none that chance wouldn't give"
        if reach
        else "no interval was computed"
    )
    return Section(notes=[f"{said} {shown(measured)}; {means}."])


def agreement_of_judges(judges: PanelAgreement) -> Iterator[Section]:
    """How well several judges of a run agree: pair by pair, or as a matrix for each rating."""
    if len(judges.names) > PAIRED:
        places = range(len(judges.names))
        for rating, matrix in judges.kendall.items():
            yield Section(
                f"Kendall's τ-b between the judges' ratings ({rating})",
                columns=[
                    *words(""),
                    *words("judge", whole=True, at_most=24),
                    *numbers(*(str(place) for place in places[1:]), whole=True),
                ],
                rows=[
                    (
                        *(str(place + 1), judges.names[place]),
                        *(float(matrix[place, at]) if at < place else "" for at in places[:-1]),
                    )
                    for place in places
                ],
            )
    else:
        pairs = [*combinations(range(len(judges.names)), 2)]
        yield Section(
            "Agreement between the judges' ratings",
            columns=[
                *words("rating", whole=True),
                *words("judge", "judge"),
                *numbers("Kendall's τ-b"),
            ],
            rows=[
                (rating, judges.names[one], judges.names[other], float(matrix[one, other]))
                for rating, matrix in judges.kendall.items()
                for one, other in pairs
            ],
        )
    what = (
        "items"
        if judges.kendall.keys() == {"direct"}
        else "pairs of items, which their answers imply"
    )
    alpha = shown(judges.alpha) if judges.shared else "– (they judged nothing in common)"
    notes = [f"Krippendorff's α {alpha}, on {count(judges.shared)} {what}, judged by several."]
    by = [
        f"{count(verdicts)} by {name}"
        for name, verdicts in zip(judges.names, judges.verdicts, strict=True)
    ]
    if judges.others:
        by.append(f"{count(judges.others_verdicts)} by {several(judges.others, 'other judge')}")
    notes.append(f"Verdicts: {listed(by)}.")
    if judges.others:
        notes.append(f"Listed are the {len(judges.names)} with the most verdicts; α is of all.")
    yield Section(notes=notes, close=True)


def comparison(compared: Comparison) -> Iterator[Section]:
    """Several runs side by side, their differences to the first, and how alike they rank."""
    runs, gold, assessments = compared.runs, compared.gold, compared.assessments
    yield Section(warnings=compared.notices)
    over = "" if compared.items == "all" else f', "{compared.items}" only'
    yield Section(
        f"{len(runs)} runs over {count(len(runs[0].items.ids))} items{over}",
        [(f"run {at}", f"{run.run.id}: {run.state}") for at, run in enumerate(runs, start=1)],
        close=True,
    )
    yield Section(facts=[*gold_facts(gold, compared.plan, assessments)])
    yield _side_by_side(compared)
    yield from _within(assessments, numbered=True)
    if compared.differences:
        title = "Differences to run 1"
        if compared.plan.resamples:
            title += " (paired: the same items are drawn for both; *: 0 is outside the interval)"
        yield Section(notes=[title], close=True)
        parts = (POSITIVE, BOTH, CORRELATION) if gold.positive is not None else (CORRELATION,)
        for names in parts:
            yield _differences(names, compared.differences)
    if compared.agreement:
        yield _agreement(compared.agreement)
    yield from _reasons(assessments, numbered=True)
    yield from cautions(*runs)


def gold_facts(
    gold: Gold, plan: Plan, runs: Sequence[Sequence[Assessment]]
) -> Iterator[tuple[str, str]]:
    """What the numbers are made from; `runs` are the assessments of each."""
    labelled = int((~np.isnan(gold.values)).sum())
    others = f"; {several(gold.others, 'row')} of it not in the run" if gold.others else ""
    yield "gold", f"{several(labelled, 'label')} of {gold.source}{others}"
    if gold.positive is None:
        yield "detection", f"none: {gold.classes}"
    else:
        yield "positive", gold.classes
        yield from _thresholds(runs)
    if plan.resamples:
        how = f"percentile bootstrap over items, {several(plan.resamples, 'resample')}"
        yield "intervals", f"{LEVEL * 100:g} %, {how}"
    first = [[one for one in of_run if one.items == of_run[0].items] for of_run in runs]
    unlabelled = first[0][0].without_gold
    lacking = [
        f"{several(one.without_score, 'item')} without a score ({_which(one, at, len(runs))})"
        for at, of_run in enumerate(first, start=1)
        for one in of_run
        if one.without_score
    ]
    left = [f"{several(unlabelled, 'item')} without a gold label"] if unlabelled else []
    left += lacking[:LEFT_OUT]
    if len(lacking) > LEFT_OUT:
        left.append(f"items of {several(len(lacking) - LEFT_OUT, 'rating')} more")
    if left:
        yield "left out", "; ".join(left)


def _which(assessment: Assessment, number: int, runs: int) -> str:
    return assessment.rating if runs == 1 else f"run {number}, {assessment.rating}"


def _thresholds(runs: Sequence[Sequence[Assessment]]) -> Iterator[tuple[str, str]]:
    fixed: dict[str, str] = {}
    chosen: dict[str, str] = {}
    crossing: dict[str, str] = {}
    for at, of_run in enumerate(runs, start=1):
        for one in of_run:
            threshold = one.threshold
            if threshold is None:
                continue
            if threshold.rule == "mixture":
                at_value = (
                    f"none: {threshold.why}"
                    if threshold.value is None
                    else f"{threshold.value:.5g}"
                )
                crossing[_which(one, at, len(runs))] = at_value
            elif threshold.low is None or threshold.high is None:
                given = " (given)" if threshold.rule == "given" else ""
                fixed[one.rating] = f"{one.rating} > {threshold.value:g}{given}"
            else:
                chosen[_which(one, at, len(runs))] = (
                    f"median {threshold.value:.5g}, from {threshold.low:.5g} to {threshold.high:.5g}"
                )
    if fixed:
        yield "threshold", ", ".join(fixed.values())
    if chosen:
        yield "threshold", f"chosen by {FOLDS}-fold cross-validation for the highest F1"
        yield from chosen.items()
    if crossing:
        yield "threshold", "where two Gaussian components of the scores cross (the gold isn't used)"
        yield from crossing.items()


def _value(measured: Measured) -> str:
    """Without its interval."""
    return shown(measured.value)


def _measures(
    title: str, names: Sequence[str], assessments: Sequence[Assessment], *, close: bool = True
) -> Section:
    """A row each rating, a column each measure with its interval; counts as whole numbers."""
    with_items = any(one.items != "all" for one in assessments)
    show = _value if names is COUNTS else None
    return Section(
        title,
        columns=[
            *words(*(("items",) if with_items else ()), "rating", whole=True),
            *numbers(*(NAMES[name] for name in names), show=show),
            *numbers("n"),
        ],
        rows=[
            (
                *((one.items,) if with_items else ()),
                one.rating,
                *(one.measures[name] for name in names),
                one.n,
            )
            for one in assessments
        ],
        close=close,
    )


def _within(runs: Sequence[Sequence[Assessment]], *, numbered: bool = False) -> Iterator[Section]:
    """Correlation within components, where there are several."""
    apart = [
        (at, one, one.within_components)
        for at, of_run in enumerate(runs, start=1)
        for one in of_run
        if one.within_components is not None
    ]
    if not apart:
        return
    with_items = any(one.items != "all" for _, one, _ in apart)
    left = {"run": numbered, "items": with_items, "rating": True}
    yield Section(
        "Correlation within components (their mean, weighted by items)",
        columns=[
            *words(*(name for name, there in left.items() if there), whole=True),
            *numbers("Pearson", "Spearman", "components", "n"),
        ],
        rows=[
            (
                *((str(at),) if numbered else ()),
                *((one.items,) if with_items else ()),
                *(one.rating, within.pearson, within.spearman, within.components, within.n),
            )
            for at, one, within in apart
        ],
        close=True,
    )


def _side_by_side(compared: Comparison) -> Section:
    """The paper's table: a row each run and rating. Nine measures leave no room for intervals."""
    detected = compared.gold.positive is not None
    names = PAPER if detected else CORRELATION
    what = "Detection of, and correlation with," if detected else "Correlation with"
    head, show = (SHORT, _value) if detected else (NAMES, None)
    return Section(
        f"{what} the gold labels",
        columns=[
            *words("run", "rating", whole=True),
            *numbers(*(head[name] for name in names), show=show),
        ],
        rows=[
            (str(at), one.rating, *(one.measures[name] for name in names))
            for at, of_run in enumerate(compared.assessments, start=1)
            for one in of_run
        ],
    )


def _differences(names: Sequence[str], differences: Sequence[Pair]) -> Section:
    return Section(
        columns=[
            *words("run", "rating", whole=True),
            *numbers(*(NAMES[name] for name in names), show=difference),
        ],
        rows=[
            (
                f"{pair.number} − {pair.against_number}",
                _ratings(pair.rating, pair.against_rating, "−"),
                *(pair.measures[name] for name in names),
            )
            for pair in differences
        ],
        close=True,
    )


def _ratings(one: str, other: str, between: str) -> str:
    return one if one == other else f"{one} {between} {other}"


def difference(measured: Measured) -> str:
    """ "+0.012 [0.003, 0.021]*"; what isn't marked ends with a blank, so that columns stand straight."""
    if measured.value is None:
        return "– "
    if measured.low is None or measured.high is None:
        return f"{measured.value:+z.3f} "
    mark = "*" if zero_outside(measured) else " "
    return f"{measured.value:+z.3f} [{_bound(measured.low)}, {_bound(measured.high)}]{mark}"


def _bound(value: float) -> str:
    """Three decimals, or as many as show on which side of 0 it is."""
    if abs(value) <= NOTHING:
        return "0.000"
    return next(text for digits in range(3, 12) if float(text := f"{value:.{digits}f}") != 0)


def _agreement(agreement: Sequence[Pair]) -> Section:
    return Section(
        "Do they rank alike? (gold is no matter)",
        columns=[
            *words("runs", "rating", whole=True),
            *numbers("Kendall", "Spearman", "n"),
        ],
        rows=[
            (
                f"{pair.against_number} and {pair.number}",
                _ratings(pair.against_rating, pair.rating, "and"),
                *(pair.measures["kendall"], pair.measures["spearman"]),
                pair.n,
            )
            for pair in agreement
        ],
        close=True,
    )


def _reasons(runs: Sequence[Sequence[Assessment]], *, numbered: bool = False) -> Iterator[Section]:
    """Why there is a dash."""
    reasons: dict[str, dict[str, None]] = {}
    for at, of_run in enumerate(runs, start=1):
        for one in of_run:
            where = f"run {at}, {one.rating}" if numbered else one.rating
            if one.items != "all":
                where += f" over {one.items}"
            for name, measured in one.measures.items():
                if measured.why is not None:
                    reasons.setdefault(measured.why, {})[f"{NAMES[name]} of {where}"] = None
    notes = [f"–: {reason} ({', '.join(places)})." for reason, places in reasons.items()]
    yield Section(notes=notes, close=True)
