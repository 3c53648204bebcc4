"""How good runs are, which is better, and whether a judge has changed, as sections that fit into 100
columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from judgeq.engine.drift import Drifted
from judgeq.engine.results import Result
from judgeq.evaluation.agreement import PanelAgreement
from judgeq.evaluation.compare import ALIKE, Compared, Comparison
from judgeq.evaluation.evaluate import Assessment, Evaluation, OfGroup
from judgeq.evaluation.gold import Gold, Plan
from judgeq.evaluation.metrics import MEASURES, Measured
from judgeq.evaluation.scale import Misfit, Reliability
from judgeq.events import Certainty
from judgeq.rating import position_bias
from judgeq.rating.drift import SPREAD, Drift
from judgeq.rating.position_bias import Slots
from judgeq.text import several
from judgeq.ui.sections import Column, Field, Section, numbers, stated, table, words
from judgeq.ui.show import people as show_people
from judgeq.ui.show.run import SEE, cautions, rating, simulated

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
}
# Three values with their intervals are what fits into 100 columns.
CORRELATION, POSITIVE = (tuple(MEASURES)[at : at + 3] for at in (0, 3))
BOTH = ("accuracy", "macro_f1", "auc")
RULES = {
    "default": "the default of each rating",
    "mixture": "where two Gaussian components of the scores cross (the gold isn't used)",
}

NOTHING_FOUND = (
    "Position bias, misfit and agreement of judges aren't looked for: the answers are made up."
)
GROUPS = 50
"""So many groups are listed at most."""

Runs = Sequence[Sequence[Assessment]]
"""The assessments of each run."""


def evaluation(evaluation: Evaluation) -> Iterator[Section]:
    """One run: the answers, what to be careful about, then all numbers behind them."""
    run, gold = evaluation.run, evaluation.gold
    title, facts = f"{run.info.mark}{run.run.id}: {run.state}", [*answers(evaluation)]
    yield Section(title, warnings=[one.removesuffix(SEE) for one in run.first_cautions])
    yield Section(facts=facts, close=True)
    yield cautions(run)
    if gold is not None:
        yield from against_gold(gold, evaluation.plan, [run.evaluation])
    yield from by_group(evaluation.by_group)
    yield rating(run)
    yield reliability(evaluation.reliability, run.known)
    if run.info.settings.rehearsal:
        yield Section(notes=[NOTHING_FOUND])
        return
    yield from order(run)
    yield from misfit(evaluation.misfit)
    if evaluation.judges is not None:
        yield agreement_of_judges(evaluation.judges)
    yield from people(evaluation)


def answers(evaluation: Evaluation) -> Sequence[tuple[str, str]]:
    """A line for each question: does it agree with gold, is it reliable, what distorts it?"""
    run, slots = evaluation.run, evaluation.run.slots
    main = (one for one in evaluation.run.evaluation if one.rating == run.scores.main[0])
    positions = _of_positions(run, slots) if slots is not None and len(slots.rate) else ""
    found = stated(
        "answers",
        e=evaluation,
        main=next(main, None),
        positions=positions,
        sentence=show_people.sentence,
    )
    return found.facts


def _of_positions(run: Result, slots: Slots) -> str:
    """Return whether the judge favours a position, in a sentence.

    Return "" where that can't be tested, but a caution names a person who always chose one position.
    """
    is_untested = slots.chance is None
    return "" if is_untested and any(run.one_sided) else position_bias.sentence(slots)


def by_group(groups: Sequence[OfGroup]) -> Iterator[Section]:
    """The groups, each by itself; of many the first."""
    fields: list[Field] = [
        (Column("group", at_most=40, least=12), "group"),
        (Column("items", right=True), "items"),
        (Column("ρ̂", right=True), "reliability"),
        (Column("Spearman", right=True), "spearman"),
        (Column("n", right=True), lambda one: one.n or None),
    ]
    if groups:
        more = len(groups) - GROUPS
        notes = [f"{several(more, 'more group')}: --json has all."] if more > 0 else []
        yield table(groups[:GROUPS], fields, "By group", notes=notes)


def people(evaluation: Evaluation) -> Iterator[Section]:
    """How well the people who judged agree, models with them, and each of them."""
    if evaluation.people is not None:
        yield from show_people.people(evaluation.people)
        yield show_people.listed(evaluation.run.run, evaluation.people.people)


# Against gold labels


def against_gold(gold: Gold, plan: Plan, runs: Runs) -> Iterator[Section]:
    """What the numbers are made from; correlation and detection of each rating of the runs."""
    labelled = int((~np.isnan(gold.values)).sum())
    rule = RULES.get(str(plan.threshold), str(plan.threshold))
    rows = [(str(at), one) for at, of_run in enumerate(runs, 1) for one in of_run]
    every = [one for of_run in runs for one in of_run if one.items == of_run[0].items]
    yield stated("gold", gold=gold, plan=plan, labelled=labelled, rule=rule, all=every)
    parts = {"Correlation with the gold labels": CORRELATION}
    if gold.positive is not None:
        parts |= {"Detection of the positive items": POSITIVE, "Detection of both classes": BOTH}
    lead: list[Field] = [(Column("rating"), lambda row: row[1].rating)]
    if len(runs) > 1:
        lead.insert(0, (Column("run"), itemgetter(0)))
    elif any(one.items != "all" for _, one in rows):
        lead.insert(0, (Column("items"), lambda row: row[1].items))
    for title, names in parts.items():
        measured = _measured(names, lambda row: row[1].measures)
        yield table(
            rows, [*lead, *measured, (Column("n", right=True), lambda row: row[1].n)], title
        )
    if any(one.threshold is not None for _, one in rows):
        cuts = (Column("positive over"), lambda row: _threshold(row[1]))
        yield table(rows, [*lead, cuts], "Thresholds")
    yield _reasons(one for _, one in rows)


def _measured(
    names: Sequence[str],
    of: Callable[[Any], Mapping[str, Measured]],
    show: Callable[[Measured], str] | None = None,
) -> Iterator[Field]:
    """The columns of these measures, which `of` gives of a row."""

    def measure(row: Any, name: str) -> Measured | None:
        return of(row).get(name)

    for name in names:
        yield Column(NAMES[name], right=True, show=show), partial(measure, name=name)


def _threshold(one: Assessment) -> str:
    """The score over which an item is positive; of several folds the median and the range."""
    at = one.threshold
    if at is None or at.value is None:
        return f"none: {'nothing is detected' if at is None else at.why}"
    return f"{at.value:.5g}"


def _reasons(assessments: Iterable[Assessment]) -> Section:
    """Why there is a dash."""
    reasons: dict[str, dict[str, None]] = {}
    for one in assessments:
        over = "" if one.items == "all" else f" over {one.items}"
        for name, measured in one.measures.items():
            if name in NAMES and measured.why is not None:
                place = f"{NAMES[name]} of {one.rating}{over}"
                reasons.setdefault(measured.why, {})[place] = None
    notes = [f"–: {reason} ({', '.join(places)})." for reason, places in reasons.items()]
    return Section(notes=notes, close=True)


# Several runs


def comparison(compared: Comparison) -> Iterator[Section]:
    """Several runs: which is better and do they rank alike, then all numbers."""
    runs, gold, others = compared.runs, compared.gold, compared.others
    first = [
        f"Run {number}: {one.removesuffix(SEE)}"
        for number, run in enumerate(runs, 1)
        for one in run.first_cautions
    ]
    yield Section(warnings=[*first, *compared.notices])
    yield replace(stated("compared", c=compared, difference=difference), close=True)
    further = [
        f"Run {number}: {one}"
        for number, run in enumerate(runs, 1)
        for one in run.cautions
        if one not in run.first_cautions
    ]
    yield Section(warnings=[*further, *simulated(*runs)], close=True)
    lead: list[Field] = [
        (Column("run"), lambda other: f"{other.number}"),
        (Column("rating"), partial(_both_ratings, of_first=compared.rating)),
    ]
    alike = _measured(ALIKE, lambda other: other.agreement)
    title = "Do they rank like run 1? (needs no gold labels)"
    yield table(others, [*lead, *alike, (Column("n", right=True), "n")], title)
    if gold is None:
        return
    yield from against_gold(gold, compared.plan, [run.evaluation for run in runs])
    title = "Differences to run 1"
    if compared.plan.resamples:
        title += " (*: the 95 % interval leaves out 0)"
    for part in [CORRELATION] if gold.positive is None else [CORRELATION, POSITIVE, BOTH]:
        gaps = _measured(part, lambda other: other.differences, difference)
        fields = [*lead, *gaps, (Column("n", right=True), "n_gold")]
        yield table(others, fields, title, close=not title)
        title = ""


def _both_ratings(other: Compared, of_first: str) -> str:
    return other.rating if other.rating == of_first else f"{other.rating} (run 1: {of_first})"


def difference(measured: Measured) -> str:
    """ "+0.012 [0.003, 0.021]*"; what isn't marked ends with a blank, so that columns stand straight."""
    if measured.value is None:
        return "– "
    if measured.low is None or measured.high is None:
        return f"{measured.value:+z.3f} "
    mark = "*" if measured.zero_outside else " "
    return f"{measured.value:+z.3f} [{measured.low:z.3f}, {measured.high:z.3f}]{mark}"


# The quality of a scale


def reliability(found: Reliability, known: Certainty | None = None) -> Section:
    """The expected agreement of the order, the separation and the split halves; when not to rely on
    them."""
    return stated("reliability_of", r=found, known=known)


def order(result: Result) -> Iterator[Section]:
    """How often each position wins, and what a position is worth."""
    slots = result.slots
    if slots is None:
        return
    intervals = map("{:z.3f} to {:z.3f}".format, slots.low, slots.high)
    rows = [
        *zip(
            range(1, len(slots.rate) + 1),
            *(slots.rate.tolist(), intervals, slots.matches.tolist()),
            strict=True,
        )
    ]
    columns = numbers("position", "win rate", "95 % interval", "n") if rows else []
    facts = stated("positions", r=result, sentence=partial(_of_positions, result))
    yield replace(facts, columns=columns, rows=rows)


def misfit(found: Misfit) -> Iterator[Section]:
    """How many judges and items don't fit."""
    parts = (("judge", found.judges), ("item", found.items))
    yield stated("misfit", m=found, fits=[(what, fit) for what, fit in parts if fit is not None])


def agreement_of_judges(judges: PanelAgreement) -> Section:
    """How well several judges of a run agree, as a matrix."""
    places, notes = range(len(judges.names)), stated("judges", judges=judges).notes
    if not places:
        return Section("Agreement of the judges", notes=notes)
    return Section(
        f"Agreement of the judges: Kendall's τ-b of their ratings ({judges.rating})",
        columns=[
            *words(""),
            *words("judge", at_most=24),
            *numbers("verdicts", *(str(place) for place in places[1:])),
        ],
        rows=[
            (
                *(str(place + 1), judges.names[place], judges.verdicts[place]),
                *(float(judges.kendall[place, at]) if at < place else "" for at in places[:-1]),
            )
            for place in places
        ],
        notes=notes,
    )


def length(rating: str, measured: Measured) -> Section:
    """Whether longer texts score higher, by the main rating."""
    return stated("length", rating=rating, measured=measured)


# Has a judge changed?


def drift(found: Drifted) -> Iterator[Section]:
    """A sentence, and a row for each way in which the judge may have drifted."""
    facts = stated("drift", d=found)
    yield replace(facts, notes=[])
    yield Section(
        columns=[
            *words("drift"),
            *numbers("p", "change", "95 % interval", "smallest change detectable"),
        ],
        rows=[_of_test(one) for one in found.tests],
        notes=facts.notes,
    )


def _of_test(one: Drift) -> Sequence[str]:
    p, *sizes = one[1:]
    form = "{:+.0%}" if one.kind == SPREAD else "{:+.2f} sd"
    change, low, high, least = ("–" if size is None else form.format(size) for size in sizes)
    return (
        one.kind,
        f"{p:.2g}",
        change,
        "–" if one.low is None else f"{low} to {high}",
        least.replace("+", "±"),
    )
