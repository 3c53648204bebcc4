"""A run as sections: what it came to, how far it is, what it would take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from judgeq.certainty import Certainty
from judgeq.engine.estimate import Estimate
from judgeq.engine.pilot import Range
from judgeq.engine.results import Result
from judgeq.engine.scores import Scores
from judgeq.engine.status import State
from judgeq.escaping import plain
from judgeq.evaluation.evaluate import apart
from judgeq.person import Said
from judgeq.rating import THRESHOLDS, of_run
from judgeq.rating.intervals import Intervals
from judgeq.runs import RunInfo
from judgeq.text import count, duration, money, several
from judgeq.types import Batch, Counts, Failure, Floats, Totals
from judgeq.ui.sections import Section, numbers, words
from judgeq.ui.show import batches as show_batches
from judgeq.ui.show import crew as show_crew
from judgeq.ui.show import items as show_items
from judgeq.ui.show import quality as show_quality
from judgeq.ui.text import batch_state, certainty

ENDS = 3
"""So many items are shown from each end of a ranking."""
FEW_WAITS = 3
"""So many rounds of batches are no reason to think of another strategy."""
SIMULATED = (
    "The judge was simulated: no model was asked, no money was spent. It answers from the gold "
    "labels, so its agreement with them is so by construction."
)


def result(result: Result) -> Iterator[Section]:
    """What a run came to, from top to bottom."""
    yield Section(f"{result.run.id}: {result.state}", [*facts(result)])
    if result.evaluation:
        if "detection" in result.evaluation:
            yield _detection(result.evaluation["detection"])
        yield _correlation(result.evaluation["correlation"])
    if (note := apart(result.scores)) is not None:
        yield Section(warnings=[note], close=True)
    yield from show_quality.order(result)
    if result.scores.texts is not None:
        yield ends(result.scores)
    yield from cautions(result)
    yield Section(
        notes=[
            f"Scores {result.run.scores}  ({', '.join(result.scores.columns)})",
            f"Ledger {result.run.ledger}  (every call and verdict)",
            *([f"Config {result.run.config}"] if result.run.config != result.run.ledger else []),
        ]
    )


def cautions(*runs: Result) -> Iterator[Section]:
    """That a ledger doesn't add up, and that a judge was simulated, where that is so."""
    for run in runs:
        yield Section(warnings=run.cautions, close=True)
    if any("simulated" in run.info.settings.judge and not run.info.imported for run in runs):
        yield Section(warnings=[SIMULATED], close=True)


def facts(result: Result) -> Iterator[tuple[str, str]]:
    """What a run is, and what it came to, in facts."""
    info = result.info
    source = f"{info.dataset}, {several(info.items, 'item')}"
    judged = int(result.scores.judged.sum())
    if judged < info.items:
        source += f"; {count(judged)} judged, the others are left out of the evaluation"
    rounds = f"{result.rounds_planned} of {several(result.rounds, 'round')}"
    left = int((result.scores.left_after > 0).sum())
    if left:
        rounds += f"; {several(left, 'item')} left early"
    yield "dataset", source
    yield "strategy", f"{info.strategy}, {rounds}"
    yield "judge", result.judge
    yield "jobs", jobs(result.counts)
    equivalent = f"{result.cost_equivalent_calls:,.0f} cost-equivalent calls"
    equivalent += " (1 a pair, k/2 a list of k)"
    if result.said is not None:
        yield "answers", by_people(result.said)
    if info.settings.only_people:
        yield "effort", equivalent
    else:
        yield "calls", calls(of_models(result))
        yield "cost", f"{cost(result.totals)}; {equivalent}"
    yield "ratings", _ratings(result)
    if result.scores.intervals is not None:
        yield "certainty", _certainty(result, result.scores.intervals)
    if result.known is not None:
        yield "order", _known(result.known, info)
    if result.ended is not None:
        yield "ended", f"once enough was known: {result.ended.sentence}"


def by_people(said: Said) -> str:
    """What people gave, in words."""
    given = sum(map(len, said.seconds.values()))
    persons = several(said.judged, "person", "people")
    checks = sum(check.verdict is not None for check in said.checks)
    skipped = sum(said.skipped.values())
    return _those_there(
        (True, f"{count(given)} by {persons}"),
        (given, f"{duration(said.median or 0)} each (median)"),
        (checks, f"{count(checks)} of them to check people"),
        (skipped, f"{count(skipped)} skipped"),
    )


def _known(known: Certainty, info: RunInfo) -> str:
    """How well the order is known, and of what that is said."""
    said = "; ".join(certainty(known, people=info.settings.only_people)).removeprefix("order ")
    return f"{said} (agreement with the judge, not with the truth)"


def _ratings(result: Result) -> str:
    """How the scores were made, in words."""
    *others, main = of_run(result.rating, result.history.basis)
    return "; ".join([*(one.described() for one in others), main.described(result.fit)])


def _certainty(result: Result, intervals: Intervals) -> str:
    """How sure the main rating is, in words."""
    errors = result.scores.se
    tiers = int(intervals.tier.max())
    text = f"standard errors {np.nanmedian(errors):.2f} (median), {several(tiers, 'tier')} of items"
    fit = result.fit
    if fit.at_least:
        text += f"; σ = {fit.sigma:g} is the least that is tried: --sigma sets another"
    elif fit.at_limit:
        text += f"; σ = {fit.sigma:g} is the most that is tried, so that they may be too small"
        text += ": --sigma sets another"
    return text


def of_models(result: Result) -> Totals:
    """What the ledger adds up to, without the answers of people."""
    theirs = 0 if result.said is None else result.said.calls
    return replace(result.totals, calls=result.totals.calls - theirs)


def jobs(counts: Counts) -> str:
    """Job counts in words; what is zero and unremarkable is left out."""
    return _those_there(
        (True, f"{count(counts.done)} of {count(counts.total)} done"),
        (counts.invalid, f"{count(counts.invalid)} invalid (left out of the ratings)"),
        (counts.failed, f"{count(counts.failed)} failed (--retry-failed asks them again)"),
        (counts.left, f"{count(counts.left)} left"),
    )


def calls(totals: Totals) -> str:
    """Calls, retries and unknowns in words."""
    uncounted = several(totals.uncounted, "reply", "replies")
    unknown = f"{count(totals.unknown)} more were sent and never answered (unknown, possibly paid)"
    return _those_there(
        (True, count(totals.calls)),
        (totals.retries, f"{count(totals.retries)} of them without a reply"),
        (totals.unusable, several(totals.unusable, "unusable reply", "unusable replies")),
        (totals.uncounted, f"{uncounted} that didn't say what tokens they took"),
        (totals.unknown, unknown),
        (totals.hits, f"{several(totals.hits, 'answer')} from the cache"),
    )


def _those_there(*parts: tuple[int, str]) -> str:
    return ", ".join(text for there, text in parts if there)


def cost(totals: Totals) -> str:
    """What the calls cost; unknown where a price is, and what may have been paid besides."""
    dollars, unknown = money(totals.cost), totals.unpriced + totals.unknown
    if unknown:
        calls = f"{several(unknown, 'call')} of unknown cost"
        if totals.at_risk is None:
            dollars = f"at least {dollars} ({calls})" if totals.cost else f"unknown ({calls})"
        elif totals.at_risk:
            dollars += f", and possibly up to {money(totals.at_risk)} for {calls}"
    if totals.saved:
        dollars += f"; the cache saved {money(totals.saved)}"
    return dollars


def _detection(by_rating: Mapping[str, Mapping[str, Any]]) -> Section:
    """Positive against negative."""
    over = ", ".join(f"{name} > {THRESHOLDS[name]:g}" for name in by_rating)
    measures = ("recall", "accuracy", "precision", "f1", "macro_f1", "n")
    return Section(
        f"Detection against the gold labels (positive: {over})",
        columns=[
            *words("rating"),
            *numbers("recall", "accuracy", "precision", "F1 (positive)", "macro F1", "n"),
        ],
        rows=[(name, *(row[key] for key in measures)) for name, row in by_rating.items()],
    )


def _correlation(subsets: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Section:
    rows = []
    for subset, by_rating in subsets.items():
        for name, row in by_rating.items():
            rows.append((subset, name, row["spearman"], row["pearson"], row["n"]))
            if (within := row.get("within_components")) is not None:
                named = f"{name} within components"
                rows.append((subset, named, within["spearman"], within["pearson"], within["n"]))
    return Section(
        "Correlation with the gold labels",
        columns=[*words("items", "rating"), *numbers("Spearman", "Pearson", "n")],
        rows=rows,
    )


def status(state: State) -> Iterator[Section]:
    """How far a run is."""
    info, failure = state.info, state.failure
    facts = [
        ("dataset", f"{info.dataset}, {several(info.items, 'item')}"),
        (
            "strategy",
            f"{info.strategy}, {len(state.rounds)} of {several(state.most_rounds, 'round')}",
        ),
        ("judge", info.judge),
        ("jobs", jobs(state.counts)),
        *(
            []
            if info.settings.only_people
            else [("calls", calls(state.totals)), ("cost", cost(state.totals))]
        ),
        *([] if state.known is None else [("order", _known(state.known, info))]),
        *((f"batch {one.name}", _batch(one)) for one in state.batches),
        *([] if failure is None else [("last failure", _failure(failure))]),
        *((f"round {number}", jobs(counts)) for number, counts in enumerate(state.rounds, start=1)),
    ]
    ended = "" if state.ended is None else f": {state.ended.sentence}"
    late = show_batches.deadlines(state.batches, state.at)
    yield Section(f"{state.run.id}: {state.word}{ended}", facts, warnings=late)
    if state.crew is not None:
        yield from show_crew.crew(state.crew)
    if state.ratings is not None:
        when = "in the end" if state.word == "finished" else f"after round {state.complete}"
        yield _ranking(when, state.ids, state.rating, state.ratings)
    if state.word == "no verdicts":
        note = (
            "None of its jobs brought a verdict, so that there are no ratings: `judgeq resume "
            f"{state.run.argument} --retry-failed` asks them again."
        )
        yield Section(notes=[note], close=True)
    if state.word == "stopped":
        verb = "resume" if info.settings.people is None else "annotate"
        yield Section(notes=[f"`judgeq {verb} {state.run.argument}` goes on."], close=True)


def _batch(batch: Batch) -> str:
    """A batch that is out: how it stands at its provider."""
    return (
        f"{batch_state(batch)}, {count(batch.done)} of {several(batch.jobs, 'question')} answered"
    )


def _failure(last: Failure) -> str:
    """When and why a call brought no answer, and whether others did since."""
    at = f"{datetime.fromtimestamp(last.at, UTC).astimezone():%Y-%m-%d %H:%M:%S}"
    if last.in_a_row:
        at += f", {several(last.in_a_row, 'call')} since the last answer"
    return f"{at}: {plain(last.error, 400)}"


def ends(scores: Scores) -> Section:
    """The items at the top and at the bottom of the ranking, with the 95 % intervals of rank and rating
    where there are some."""
    rating, values = scores.main
    rows = [row for part in _ends(np.where(scores.rank > 0, values, np.nan)) for row in part]
    sure = "" if scores.intervals is None else ", with 95 % intervals"
    of = "items" if scores.texts is None else "texts"
    title = f"The highest and the lowest {of}, by {rating}{sure}"
    return Section(title, *show_items.table(scores, rows))


def _ranking(when: str, ids: Sequence[str], rating: str, ratings: Floats) -> Section:
    """The items at the top and at the bottom of a ranking."""
    return Section(
        columns=[
            *words(when),
            *words("item", at_most=60),
            *numbers(rating, show=_digits(rating)),
        ],
        rows=[
            (end, ids[row], float(ratings[row]))
            for end, rows in zip(("top", "bottom"), _ends(ratings), strict=True)
            for row in rows
        ],
    )


def _ends(ratings: Floats) -> tuple[list[int], list[int]]:
    """The rows of the items at the top and at the bottom, each from high to low."""
    order = np.argsort(-ratings, kind="stable")
    order = order[~np.isnan(ratings[order])]
    shown = min(ENDS, len(order) // 2)
    return order[:shown].tolist(), order[len(order) - shown :].tolist()


def _digits(rating: str) -> Callable[[float], str]:
    digits = 0 if rating == "elo" else 3
    return lambda value: f"{value:z.{digits}f}"


def estimate(estimate: Estimate) -> Section:
    """What a run would take."""
    prepared, totals = estimate.prepared, estimate.totals
    strategy, rounds = prepared.strategy, prepared.strategy.rounds
    facts = [
        ("dataset", f"{prepared.dataset.name}, {several(len(prepared.dataset), 'item')}"),
        ("strategy", f"{strategy.name}, {several(rounds, 'round')}"),
        ("judge", " + ".join(prepared.settings.judges)),
    ]
    if prepared.settings.servers:
        facts.append(("asked at", ", ".join(prepared.settings.servers)))
    people, models = prepared.settings.people is not None, bool(prepared.settings.models)
    if people:
        facts.append(("answers", _answers(estimate)))
    if models or not people:
        facts.append(("calls", _calls(estimate)))
    if estimate.calls and (models or not people):
        facts += [
            ("tokens in", _tokens(estimate.input)),
            ("tokens out", _tokens(estimate.output)),
            ("basis", estimate.basis),
        ]
    if models or not people:
        facts.append(("cost", _cost(estimate)))
    if estimate.waits:
        facts.append(("time", _waits(estimate.waits)))
    if estimate.seconds is not None and estimate.calls:
        facts.append(("time", _time(estimate, estimate.seconds)))
    if totals.calls and (models or not people):
        facts.append(("so far", f"{several(totals.calls, 'call')}, {cost(totals)}"))
    pilot = estimate.pilot
    if pilot is None:
        return Section(f"{prepared.folder.id}: nothing is sent", facts)
    asked = f"{several(pilot.questions, 'question')}; of the first round {_outcomes(pilot.counts)}"
    facts.append(("pilot", asked))
    facts += [("its calls", calls(pilot.totals)), ("its cost", cost(pilot.totals))]
    note = (
        "The pilot's answers are kept: `judgeq run` with the same flags (without --pilot and --new) "
        "goes on from there."
    )
    return Section(f"{prepared.folder.id}: a pilot was asked, nothing else", facts, notes=[note])


def _answers(estimate: Estimate) -> str:
    """How many answers people are asked for."""
    settings, strategy = estimate.prepared.settings, estimate.prepared.strategy
    most = "at most " if strategy.prunes or settings.goal else ""
    each = "each question by one person"
    if settings.each > 1:
        each = f"each question by {several(settings.each, 'person', 'people')}"
    return f"{most}{count(estimate.answers)} to be given by people, {each}"


def _waits(waits: int) -> str:
    """How long batches may take; what that means for the choice of a strategy."""
    text = f"up to {several(waits, 'wait')} of 24 hours: each round is one, and goes out when "
    text += "the one before has come back"
    if waits > FEW_WAITS:
        text += "; three rounds of lists (listwise10x3) suit batches better"
    return text


def _time(estimate: Estimate, seconds: Range) -> str:
    text, latency = _between(seconds, duration), estimate.latency
    if latency is None or latency.expected is None:
        return text
    return f"{text}; a question took {latency.expected:.2g} s, the longest {latency.high:.2g} s"


def _outcomes(counts: Counts) -> str:
    parts = [f"{count(counts.done)} judged"]
    parts += [f"{count(counts.invalid)} invalid"] if counts.invalid else []
    parts += [f"{count(counts.failed)} failed"] if counts.failed else []
    return ", ".join(parts)


def _calls(estimate: Estimate) -> str:
    prepared = estimate.prepared
    early = prepared.strategy.prunes or prepared.settings.goal
    most = "at most " if estimate.rounds_open and early else ""
    parts = [f"{most}{count(estimate.calls)} to be asked"]
    if estimate.done:
        parts.append(f"{count(estimate.done)} done")
    if estimate.hits:
        parts.append(f"{count(estimate.hits)} in the cache")
    if estimate.rounds_open and estimate.prepared.settings.models:
        rounds = several(estimate.rounds_open, "round")
        parts.append(f"{rounds} of it unknown until the others are judged")
    return ", ".join(parts)


def _tokens(tokens: Range) -> str:
    """To three digits: an estimate knows no more."""
    return _between(tokens, lambda n: count(round(whole := round(n), min(0, 3 - len(str(whole))))))


def _between(span: Range, shown: Callable[[float], str]) -> str:
    """A range in words, with what is expected where that is known."""
    low, high = shown(span.low), shown(span.high)
    if low == high:
        return low
    if span.expected is None:
        return f"{low} to {high}"
    return f"about {shown(span.expected)} ({low} to {high})"


def _cost(estimate: Estimate) -> str:
    dollars, source = estimate.cost, estimate.price_source
    if not estimate.prepared.settings.models:
        return "$0"
    if dollars is None:
        return "unknown: --price IN,OUT (dollars per million tokens) gives the price"
    range_ = _between(dollars, lambda amount: money(amount, 2))
    cap = estimate.prepared.settings.max_cost
    capped = "" if cap is None else f"; capped at {money(cap)}"
    return f"{range_}, {source or 'as the server reports'}{capped}"
