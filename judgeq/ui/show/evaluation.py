"""How good runs are, and which is better, as sections that fit into 100 columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

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
from judgeq.text import count, listed, several
from judgeq.ui.sections import Cell, Column, Section, numbers, shown, words
from judgeq.ui.show import people as show_people
from judgeq.ui.show import quality as show_quality
from judgeq.ui.show.run import cautions

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
LEFT_OUT = 6
"""So many ratings are named that lack the score of an item."""
RULES = {
    "best": f"chosen by {FOLDS}-fold cross-validation for the highest F1",
    "mixture": "where two Gaussian components of the scores cross (the gold isn't used)",
}

Runs = Sequence[Sequence[Assessment]]
"""The assessments of each run; of several runs their numbers stand beside the ratings."""


def evaluation(evaluation: Evaluation) -> Iterator[Section]:
    """One run against gold, and how well its judges agree."""
    run, gold = evaluation.run, evaluation.gold
    note = apart(run.scores)
    yield Section(f"{run.run.id}: {run.state}", warnings=[] if note is None else [note])
    if gold is None:
        note = "There are no gold labels to hold the scores against: --gold names a file of them."
        yield Section(notes=[note], close=True)
    else:
        facts = gold_facts(gold, evaluation.plan, [evaluation.assessments])
        yield Section(facts=[*facts], close=True)
        yield from against_gold(evaluation)
    if evaluation.judges is not None:
        yield from agreement_of_judges(evaluation.judges)
    yield from people(evaluation)
    yield show_quality.reliability(evaluation.reliability)
    yield from show_quality.misfit(evaluation.misfit)
    yield from show_quality.order(run)
    if evaluation.length is not None:
        yield length(run.scores.main[0], evaluation.length)
    yield from cautions(run)


def people(evaluation: Evaluation) -> Iterator[Section]:
    """How well people who judged agree, models with them, and each of them."""
    if evaluation.people is not None:
        yield from show_people.people(evaluation.people)
        yield show_people.listed(evaluation.run.run, evaluation.people.each)


def against_gold(evaluation: Evaluation) -> Iterator[Section]:
    """Detection and correlation, where there is gold."""
    gold, runs = evaluation.gold, [evaluation.assessments]
    if gold is None:
        return
    detected = gold.positive is not None
    if detected:
        yield _measures("Detection: the positive items", POSITIVE, runs, close=False)
        yield _measures("Detection: both classes", BOTH, runs)
        columns = numbers(*(NAMES[name] for name in COUNTS), "n")
        yield _table("Confusion counts", columns, runs, lambda one: (*_values(one, COUNTS), one.n))
    yield _measures("Correlation with the gold labels", CORRELATION, runs, close=detected)
    yield from _within(runs)
    yield _reasons(runs)


def _table(
    title: str,
    columns: Sequence[Column],
    runs: Runs,
    cells: Callable[[Assessment], Sequence[Cell]],
    *,
    close: bool = True,
) -> Section:
    """A row each rating (and run, or items, where there are several), with cells under the columns."""
    several_runs = len(runs) > 1
    with_items = not several_runs and any(one.items != "all" for one in runs[0])
    left = {"run": several_runs, "items": with_items, "rating": True}
    names = [name for name, there in left.items() if there]
    rows = []
    for at, of_run in enumerate(runs, start=1):
        for one in of_run:
            labels = {"run": str(at), "items": one.items, "rating": one.rating}
            rows.append((*(labels[name] for name in names), *cells(one)))
    return Section(title, columns=[*words(*names, whole=True), *columns], rows=rows, close=close)


def _measures(title: str, names: Sequence[str], runs: Runs, *, close: bool = True) -> Section:
    """A column each measure with its interval."""
    columns = numbers(*(NAMES[name] for name in names), "n")
    return _table(
        title,
        columns,
        runs,
        lambda one: (*(one.measures[name] for name in names), one.n),
        close=close,
    )


def _values(assessment: Assessment, names: Sequence[str]) -> list[float | None]:
    """The measures without their intervals."""
    return [assessment.measures[name].value for name in names]


def _within(runs: Runs) -> Iterator[Section]:
    """Correlation within components, where there are several."""
    parts = [[one for one in of_run if one.within_components is not None] for of_run in runs]
    if any(parts):
        yield _table(
            "Correlation within components (their mean, weighted by items)",
            numbers("Pearson", "Spearman", "components", "n"),
            parts,
            lambda one: (
                ()
                if (within := one.within_components) is None
                else (within.pearson, within.spearman, within.components, within.n)
            ),
        )


def length(rating: str, measured: Measured) -> Section:
    """Whether longer texts score higher."""
    if measured.value is None:
        return Section(notes=[f"Length of the texts: {measured.why}."])
    said = f"Spearman's correlation of the scores ({rating}) with the length of the texts:"
    if measured.low is None:
        means = "no interval was computed"
    elif zero_outside(measured):
        rewarded = "longer" if measured.value > 0 else "shorter"
        means = f"{rewarded} texts score higher, which may be the judge's fault or the texts' own"
    else:
        means = "none that chance wouldn't give"
    return Section(notes=[f"{said} {shown(measured)}; {means}."])


def agreement_of_judges(judges: PanelAgreement) -> Iterator[Section]:
    """How well several judges of a run agree: a matrix for each rating."""
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
    direct = judges.kendall.keys() == {"direct"}
    what = "items" if direct else "pairs of items, which their answers imply"
    alpha = shown(judges.alpha) if judges.shared else "– (they judged nothing in common)"
    by = [
        f"{count(verdicts)} by {name}"
        for name, verdicts in zip(judges.names, judges.verdicts, strict=True)
    ]
    notes = [f"Krippendorff's α {alpha}, on {count(judges.shared)} {what}, judged by several."]
    if judges.others:
        by.append(f"{count(judges.others_verdicts)} by {several(judges.others, 'other judge')}")
        notes.append(f"Listed are the {len(judges.names)} with the most verdicts; α is of all.")
    yield Section(notes=[*notes, f"Verdicts: {listed(by)}."], close=True)


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
    if gold.positive is None:
        columns, parts = numbers(*(NAMES[name] for name in CORRELATION)), [CORRELATION]
        title = "Correlation with the gold labels"
        yield _table(
            title,
            columns,
            assessments,
            lambda one: [one.measures[name] for name in CORRELATION],
            close=False,
        )
    else:  # the paper's table: nine measures leave no room for intervals
        columns, parts = numbers(*(SHORT[name] for name in PAPER)), [POSITIVE, BOTH, CORRELATION]
        title = "Detection of, and correlation with, the gold labels"
        yield _table(title, columns, assessments, lambda one: _values(one, PAPER), close=False)
    yield from _within(assessments)
    if compared.differences:
        title = "Differences to run 1"
        if compared.plan.resamples:
            title += " (paired: the same items are drawn for both; *: 0 is outside the interval)"
        yield Section(notes=[title], close=True)
        for names in parts:
            columns = numbers(*(NAMES[name] for name in names), show=difference)
            yield _pairs("", columns, compared.differences, names, "−")
    if compared.agreement:
        title, names = "Do they rank alike? (gold is no matter)", ("kendall", "spearman")
        yield _pairs(title, numbers("Kendall", "Spearman", "n"), compared.agreement, names, "and")
    yield _reasons(assessments)
    yield from cautions(*runs)


def _pairs(
    title: str, columns: Sequence[Column], pairs: Sequence[Pair], names: Sequence[str], sign: str
) -> Section:
    """A row each two ratings that are held together: these measures, and n where it has a column."""
    rows: list[Sequence[Cell]] = []
    for pair in pairs:
        one, other = (pair.number, pair.rating), (pair.against_number, pair.against_rating)
        if sign == "and":
            one, other = other, one
        rating = one[1] if one[1] == other[1] else f"{one[1]} {sign} {other[1]}"
        cells: list[Cell] = [pair.measures[name] for name in names]
        cells += [pair.n] if len(columns) > len(cells) else []
        rows.append((f"{one[0]} {sign} {other[0]}", rating, *cells))
    heads = [*words("runs" if title else "run", "rating", whole=True), *columns]
    return Section(title, columns=heads, rows=rows, close=True)


def gold_facts(gold: Gold, plan: Plan, runs: Runs) -> Iterator[tuple[str, str]]:
    """What the numbers are made from."""
    labelled = int((~np.isnan(gold.values)).sum())
    others = f"; {several(gold.others, 'row')} of it not in the run" if gold.others else ""
    yield "gold", f"{several(labelled, 'label')} of {gold.source}{others}"
    all_of = [
        (one, one.rating if len(runs) == 1 else f"run {at}, {one.rating}")
        for at, of_run in enumerate(runs, start=1)
        for one in of_run
        if one.items == of_run[0].items
    ]
    if gold.positive is None:
        yield "detection", f"none: {gold.classes}"
    else:
        yield "positive", gold.classes
        thresholds = [_threshold(one, name) for one, name in all_of]
        yield from (("threshold", said) for said in dict.fromkeys(thresholds))
        rule = RULES.get(str(plan.threshold))
        yield from [] if rule is None else [("", rule)]
    if plan.resamples:
        how = f"percentile bootstrap over items, {several(plan.resamples, 'resample')}"
        yield "intervals", f"{LEVEL * 100:g} %, {how}"
    unlabelled = all_of[0][0].without_gold
    left = [f"{several(unlabelled, 'item')} without a gold label"] if unlabelled else []
    lacking = [
        f"{several(one.without_score, 'item')} without a score ({name})"
        for one, name in all_of
        if one.without_score
    ]
    left += lacking[:LEFT_OUT]
    if len(lacking) > LEFT_OUT:
        left.append(f"items of {several(len(lacking) - LEFT_OUT, 'rating')} more")
    if left:
        yield "left out", "; ".join(left)


def _threshold(assessment: Assessment, name: str) -> str:
    """Over which score an item is positive; `name` is the rating's, with its run."""
    threshold = assessment.threshold
    if threshold is None:
        return f"{name}: none"
    if threshold.value is None:
        return f"{name}: none: {threshold.why}"
    if threshold.rule not in RULES:
        given = " (given)" if threshold.rule == "given" else ""
        return f"{assessment.rating} > {threshold.value:g}{given}"
    if threshold.low is None:
        return f"{name}: {threshold.value:.5g}"
    reach = f"from {threshold.low:.5g} to {threshold.high:.5g}"
    return f"{name}: median {threshold.value:.5g}, {reach}"


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


def _reasons(runs: Runs) -> Section:
    """Why there is a dash."""
    reasons: dict[str, dict[str, None]] = {}
    for at, of_run in enumerate(runs, start=1):
        for one in of_run:
            where = one.rating if len(runs) == 1 else f"run {at}, {one.rating}"
            where += "" if one.items == "all" else f" over {one.items}"
            for name, measured in one.measures.items():
                if measured.why is not None:
                    reasons.setdefault(measured.why, {})[f"{NAMES[name]} of {where}"] = None
    notes = [f"–: {reason} ({', '.join(places)})." for reason, places in reasons.items()]
    return Section(notes=notes, close=True)
