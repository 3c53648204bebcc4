"""How good runs are, and which is better, as sections that fit into 100 columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from judgeq.evaluation.agreement import PanelAgreement
from judgeq.evaluation.compare import Comparison, Pair
from judgeq.evaluation.evaluate import Assessment, Evaluation, apart
from judgeq.evaluation.gold import Gold, Plan
from judgeq.evaluation.metrics import COUNTS, MEASURES, NOTHING, Measured
from judgeq.rating import position_bias
from judgeq.ui.sections import Cell, Column, Section, numbers, stated, words
from judgeq.ui.show import people as show_people
from judgeq.ui.show import quality as show_quality
from judgeq.ui.show.people import sentence
from judgeq.ui.show.run import cautions, rating

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
CORRELATION, POSITIVE = (tuple(MEASURES)[at : at + 3] for at in (0, 3))
BOTH = ("accuracy", "macro_f1", "auc")
PAPER = ("recall", "accuracy", "precision", "f1", "macro_f1", "auc", *CORRELATION)
SHORT = {**NAMES, "f1": "F1", "auc": "AUC"}
RULES = {
    "default": "the default of each rating",
    "mixture": "where two Gaussian components of the scores cross (the gold isn't used)",
}

Runs = Sequence[Sequence[Assessment]]
"""The assessments of each run."""


def evaluation(evaluation: Evaluation) -> Iterator[Section]:
    """One run: the answers, what to be careful about, then all numbers behind them."""
    run, gold = evaluation.run, evaluation.gold
    note = apart(run.scores)
    yield Section(
        f"{run.run.id}: {run.state}",
        [*answers(evaluation)],
        warnings=[] if note is None else [note],
    )
    yield from cautions(run)
    if gold is not None:
        yield gold_facts(gold, evaluation.plan, [evaluation.run.evaluation])
        yield from against_gold(evaluation)
    yield rating(run)
    yield show_quality.reliability(evaluation.reliability, run.known)
    yield from show_quality.order(run)
    yield from show_quality.misfit(evaluation.misfit)
    if evaluation.judges is not None:
        yield agreement_of_judges(evaluation.judges)
    yield from people(evaluation)


def answers(evaluation: Evaluation) -> Sequence[tuple[str, str]]:
    """A line for each question: does it agree with gold, is it reliable, what distorts it?"""
    run, slots = evaluation.run, evaluation.run.slots
    main = (one for one in evaluation.run.evaluation if one.rating == run.scores.main[0])
    positions = position_bias.sentence(slots) if slots is not None and len(slots.rate) else ""
    found = stated(
        "answers", e=evaluation, main=next(main, None), positions=positions, sentence=sentence
    )
    return found.facts


def people(evaluation: Evaluation) -> Iterator[Section]:
    """How well the people who judged agree, models with them, and each of them."""
    if evaluation.people is not None:
        yield from show_people.people(evaluation.people)
        yield show_people.listed(evaluation.run.run, evaluation.people.people)


def against_gold(evaluation: Evaluation) -> Iterator[Section]:
    """Correlation and detection of each rating, if there is gold."""
    gold, runs = evaluation.gold, [evaluation.run.evaluation]
    if gold is None:
        return
    yield _measures("Correlation with the gold labels", CORRELATION, runs)
    yield from _within(runs)
    if gold.positive is not None:
        yield _measures("Detection of the positive items", POSITIVE, runs)
        yield _measures("Detection of both classes", BOTH, runs)
        columns = numbers(*(NAMES[name] for name in COUNTS), "n", show="{:,.0f}".format)
        yield _table("Confusion counts", columns, runs, lambda one: (*_values(one, COUNTS), one.n))
        yield from _thresholds(runs)
    yield _reasons(runs)


def _table(
    title: str,
    columns: Sequence[Column],
    runs: Runs,
    cells: Callable[[Assessment], Sequence[Cell]],
) -> Section:
    """A row for each rating, with the number of its run, or its items, if there are several."""
    by_run = len(runs) > 1
    by_items = not by_run and any(one.items != "all" for one in runs[0])
    first = ["run"] if by_run else ["items"] if by_items else []
    rows = [
        (*([str(at)] if by_run else [one.items] if by_items else []), one.rating, *cells(one))
        for at, of_run in enumerate(runs, start=1)
        for one in of_run
    ]
    return Section(title, columns=[*words(*first, "rating", whole=True), *columns], rows=rows)


def _measures(title: str, names: Sequence[str], runs: Runs) -> Section:
    """A column for each measure with its interval."""
    columns = numbers(*(NAMES[name] for name in names), "n")
    return _table(title, columns, runs, lambda one: (*(one.measures[of] for of in names), one.n))


def _values(assessment: Assessment, names: Sequence[str]) -> list[float | None]:
    """The measures without their intervals."""
    return [assessment.measures[name].value for name in names]


def _within(runs: Runs) -> Iterator[Section]:
    """Correlation within groups of items that were never compared, if there are several."""
    parts = [[one for one in of_run if one.within_components is not None] for of_run in runs]
    names = ("pearson", "spearman", "components", "n")
    if any(parts):
        yield _table(
            "Correlation within groups of compared items (mean, weighted by items)",
            numbers("Pearson", "Spearman", "groups", "n"),
            parts,
            lambda one: [getattr(one.within_components, name) for name in names],
        )


def length(rating: str, measured: Measured) -> Section:
    """Whether longer texts score higher, by the main rating."""
    return stated("length", rating=rating, measured=measured)


def agreement_of_judges(judges: PanelAgreement) -> Section:
    """How well several judges of a run agree, as a matrix."""
    places = range(len(judges.names))
    return Section(
        f"Agreement of the judges: Kendall's τ-b of their ratings ({judges.rating})",
        columns=[
            *words(""),
            *words("judge", whole=True, at_most=24),
            *numbers("verdicts", *(str(place) for place in places[1:]), whole=True),
        ],
        rows=[
            (
                *(str(place + 1), judges.names[place], judges.verdicts[place]),
                *(float(judges.kendall[place, at]) if at < place else "" for at in places[:-1]),
            )
            for place in places
        ],
        notes=stated("judges", judges=judges).notes,
    )


def comparison(compared: Comparison) -> Iterator[Section]:
    """Several runs: which is better and do they rank alike, then all numbers."""
    runs, gold = compared.runs, compared.gold
    assessments = [run.evaluation for run in runs]
    gaps = {pair.number: pair.measures["spearman"] for pair in compared.differences}
    verdicts = {
        pair.number: (pair.number, pair.measures["spearman"], gaps.get(pair.number))
        for pair in compared.agreement
        if pair.against_number == 1
    }
    yield Section(warnings=compared.notices)
    first = stated(
        "compared",
        runs=runs,
        items=compared.items,
        verdicts=verdicts.values(),
        difference=difference,
    )
    yield replace(first, close=True)
    yield from cautions(*runs)
    names = ("kendall", "spearman")
    title = "Do they rank alike? (needs no gold labels)"
    yield _pairs(title, numbers("Kendall", "Spearman", "n"), compared.agreement, names, "&")
    if gold is None:
        return
    yield gold_facts(gold, compared.plan, assessments)
    parts: list[Sequence[str]] = [CORRELATION]
    if gold.positive is None:
        yield _measures("Correlation with the gold labels", CORRELATION, assessments)
    else:  # the paper's table: nine measures leave no room for intervals
        parts = [POSITIVE, BOTH, CORRELATION]
        columns, title = numbers(*(SHORT[name] for name in PAPER)), "Detection and correlation"
        yield _table(title, columns, assessments, lambda one: _values(one, PAPER))
        yield from _thresholds(assessments)
    yield from _within(assessments)
    if compared.differences:
        title = "Differences to run 1"
        if compared.plan.resamples:
            title += " (*: beyond what other items, or other answers, would change)"
        for at, part in enumerate(parts):
            columns = numbers(*(NAMES[name] for name in part), show=difference)
            yield _pairs("" if at else title, columns, compared.differences, part, "−")
    yield _reasons(assessments)


def _pairs(
    title: str, columns: Sequence[Column], pairs: Sequence[Pair], names: Sequence[str], sign: str
) -> Section:
    """A row for each pair of ratings with these measures, and n if it has a column."""
    rows: list[Sequence[Cell]] = []
    for pair in pairs:
        rating = pair.rating
        if rating != pair.against_rating:
            rating += f" {sign} {pair.against_rating}"
        cells: list[Cell] = [*(pair.measures[name] for name in names), pair.n]
        rows.append((f"{pair.number} {sign} {pair.against_number}", rating, *cells[: len(columns)]))
    heads = [*words("runs", "rating", whole=True), *columns]
    return Section(title, columns=heads, rows=rows, close=not title)


def gold_facts(gold: Gold, plan: Plan, runs: Runs) -> Section:
    """What the numbers are made from."""
    labelled = int((~np.isnan(gold.values)).sum())
    rule = RULES.get(str(plan.threshold), str(plan.threshold))
    every = [one for of_run in runs for one in of_run if one.items == of_run[0].items]
    return stated("gold", gold=gold, plan=plan, labelled=labelled, rule=rule, all=every)


def _thresholds(runs: Runs) -> Iterator[Section]:
    """The score over which an item is positive, by rating."""
    if any(one.threshold is not None for of_run in runs for one in of_run):
        yield _table("Thresholds", words("positive over"), runs, lambda one: [_threshold(one)])


def _threshold(one: Assessment) -> str:
    at = one.threshold
    if at is None or at.value is None:
        return f"none: {'nothing is detected' if at is None else at.why}"
    return f"{at.value:.5g}"


def difference(measured: Measured) -> str:
    """ "+0.012 [0.003, 0.021]*"; what isn't marked ends with a blank, so that columns stand straight."""
    if measured.value is None:
        return "– "
    if measured.low is None or measured.high is None:
        return f"{measured.value:+z.3f} "
    mark = "*" if measured.zero_outside else " "
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
