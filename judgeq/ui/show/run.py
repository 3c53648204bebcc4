"""A run as sections: what it came to, and what is on record of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from judgeq.engine.results import Result
from judgeq.engine.scores import Scores
from judgeq.engine.status import State
from judgeq.escaping import quoted
from judgeq.evaluation.evaluate import apart
from judgeq.person import Said
from judgeq.rating import of_run, position_bias
from judgeq.text import count, duration, listed, money, several
from judgeq.types import Counts, Floats, Totals
from judgeq.ui.lines import reliability
from judgeq.ui.sections import Section
from judgeq.ui.show import items as show_items

ENDS = 3
"""So many items are shown from each end of a ranking."""
SIMULATED = (
    "The simulated judge reads the gold labels, so its agreement with them says nothing. No model was "
    "asked."
)


# What it came to


def result(result: Result) -> Iterator[Section]:
    """What a run came to: the ranked texts, how sure that is, what it cost, what to be careful about."""
    yield Section(_headline(result), warnings=[*_unfinished(result)])
    yield ends(result.scores)
    yield Section(facts=_numbers(result))
    warnings = [*_warnings(result)]
    warnings += [text for section in cautions(result) for text in section.warnings]
    if warnings:
        yield Section(warnings=warnings)


def _headline(result: Result) -> str:
    """What was ranked, by what and by whom."""
    info, judged = result.info, int(result.scores.judged.sum())
    n = several(info.items, "text")
    texts = n if judged == info.items else f"{count(judged)} of {n}"
    how = "scored one by one" if result.history.alone else "ranked"
    by = f' by "{info.feature}"' if info.feature else ""
    judge = "the simulated judge" if result.judge == "simulated" else result.judge
    return f"{texts} of {info.dataset} {how}{by}, judged by {judge}"


def _unfinished(result: Result) -> Iterator[str]:
    if result.partial:
        done, planned = result.counts.done, result.counts.total
        place = f"round {result.rounds_planned} of {result.rounds}"
        yield f"Unfinished: {count(done)} of {several(planned, 'job')} done, {place}."


def ends(scores: Scores) -> Section:
    """The texts at both ends of the ranking, with 95 % intervals where there are some."""
    top, bottom = rows_at_ends(np.where(scores.rank > 0, scores.main[1], np.nan))
    columns, rows = show_items.table(scores, [*top, *bottom])
    if len(rows) < int(scores.scored.sum()):
        rows.insert(len(top), ("…", *[""] * (len(columns) - 1)))
    return Section(columns=columns, rows=rows)


def rows_at_ends(ratings: Floats) -> tuple[list[int], list[int]]:
    """The rows of the items at the top and at the bottom, each from high to low."""
    order = np.argsort(-ratings, kind="stable")
    order = order[~np.isnan(ratings[order])]
    if len(order) <= 2 * ENDS:
        return order.tolist(), []
    return order[:ENDS].tolist(), order[-ENDS:].tolist()


def _numbers(result: Result) -> list[tuple[str, str]]:
    """How reliable the order is, how well it agrees with gold labels, and what it cost."""
    counts, totals, info = result.counts, of_models(result), result.info
    price = f"{_dollars(totals)} for {several(totals.calls, 'call')}"
    outcome = f"{count(counts.failed)} failed, {count(counts.invalid)} invalid"
    saved = f"; the cache saved {money(totals.saved)}" if totals.saved else ""
    asked = not (info.imported or info.settings.only_people)
    return filled(
        ("Reliability", _reliability(result)),
        ("Ended", _ended(result)),
        ("Gold labels", result.evaluation and _gold(result)),
        ("Answers", result.said and by_people(result.said)),
        ("Judgments", info.imported and f"{in_words(counts)}, imported"),
        ("Cost", asked and f"{price}; {outcome}{saved}"),
        ("Corrected", result.fit.position and "the scores are without the effect of the position"),
    )


def _reliability(run: Result | State) -> str:
    """How well the order is known, in sentences; "" where that isn't known."""
    if run.known is None:
        return ""
    parts = reliability(run.known, people=run.info.settings.only_people)
    return " ".join(f"{part[0].upper()}{part[1:]}." for part in parts).removeprefix("Reliability ")


def _gold(result: Result) -> str:
    """How well the main rating agrees with the gold labels."""
    rating = result.scores.main[0]
    row = result.evaluation["correlation"]["all"][rating]
    found = result.evaluation.get("detection", {}).get(rating)
    measures = {} if found is None else {"F1": found["f1"], "accuracy": found["accuracy"]}
    measures |= {"Spearman": row["spearman"], "Pearson": row["pearson"]}
    if (within := row.get("within_components")) is not None:
        measures["within groups Spearman"] = within["spearman"]
    shown = (f"{name} {'–' if x is None else f'{x:z.2f}'}" for name, x in measures.items())
    return f"{', '.join(shown)} (n = {count(row['n'])})"


def _warnings(result: Result) -> Iterator[str]:
    """What to be careful about."""
    counts, totals, run = result.counts, result.totals, result.run.argument
    note = apart(result.scores)
    if note is not None:
        yield note
    lost = [(counts.failed, "failed"), (counts.invalid, "got no usable answer")]
    if any(n for n, _ in lost):
        parts = listed([f"{several(n, 'job')} {how}" for n, how in lost if n])
        yield f"{parts}, left out of the scores: `judgeq resume {run} --retry-failed` asks again."
    if totals.unknown:
        most = "" if not totals.at_risk else f": up to {money(totals.at_risk)}"
        yield f"{several(totals.unknown, 'call')} got no answer and may have been paid{most}."
    yield from _position_bias(result)


def _position_bias(result: Result) -> Iterator[str]:
    """A bias that is significant, and that the scores aren't corrected for."""
    slots = result.slots
    if slots is None or result.fit.position or result.flips is not None:
        return
    if slots.favoured or slots.slighted:
        yield f"{position_bias.sentence(slots)} See `judgeq evaluate`."
    for effect in result.effects if len(result.effects) == 1 else ():
        if effect.low > 0 or effect.high < 0:
            yield (
                f"Being shown last instead of first changes a score by {effect.value:+.2f} (95 % "
                f"interval {effect.low:+.2f} to {effect.high:+.2f}); --unbias-position corrects for it."
            )


def cautions(*runs: Result) -> Iterator[Section]:
    """That a ledger is damaged, and that a judge was simulated."""
    for run in runs:
        yield Section(warnings=run.cautions, close=True)
    if any("simulated" in run.info.settings.judge and not run.info.imported for run in runs):
        yield Section(warnings=[SIMULATED], close=True)


def ending(result: Result, run: str) -> Section:
    """Where the scores are, and three commands to go on with; `run` is how they name the run, "" for
    the last one."""
    name = f" {run}" if run else ""
    top = int(np.nanargmax(np.where(result.scores.scored, result.scores.main[1], np.nan)))
    if result.partial and not result.info.imported:
        verb = "resume" if result.info.settings.people is None else "annotate"
        commands = [f"{verb}{name}", f"status{name}"]
    else:
        commands = [f"explain{name} {quoted(result.scores.ids[top])}"]
        more = _extendable(result)
        commands += [f"resume{name} --rounds {result.rounds + 1}" if more else f"evaluate{name}"]
    facts = [("Scores", str(result.run.scores)), ("Next", f"judgeq report{name} --open")]
    return Section(facts=[*facts, *(("", f"judgeq {command}") for command in commands)])


def _extendable(result: Result) -> bool:
    """Whether `resume --rounds` can buy one more round."""
    known, strategy = result.known, result.history.strategy
    if strategy is None or known is None or not known.next_calls or result.ended:
        return False
    return "rounds" in strategy.facts()


# What is on record of it


def facts(run: Result | State) -> list[tuple[str, str]]:
    """What a run is, how far it is, and how its scores were made, as far as there are any."""
    info = run.info
    result, most = (run, run.rounds) if isinstance(run, Result) else (run.result, run.most_rounds)
    people = None if result is None else result.said
    totals = run.totals if people is None or result is None else of_models(result)
    paid = not info.settings.only_people
    return filled(
        ("dataset", f"{info.dataset}, {several(info.items, 'text')}"),
        ("name", info.settings.name),
        ("ranked by", info.feature),
        ("judge", info.judge),
        ("strategy", f"{info.strategy}, round {run.rounds_planned} of {most}"),
        ("left early", result and int(result.scores.left.sum())),
        ("jobs", in_words(run.counts)),
        ("answers", people and by_people(people)),
        ("calls", paid and calls(totals)),
        ("cost", paid and cost(totals)),
        *([] if result is None else rating(result)),
        ("reliability", _reliability(run)),
        ("ended", _ended(run)),
    )


def filled(*facts: tuple[str, object]) -> list[tuple[str, str]]:
    """Those that have a value."""
    return [(name, str(value)) for name, value in facts if value]


def _ended(run: Result | State) -> str:
    return f"after round {run.ended.round}, with {run.ended.sentence}" if run.ended else ""


def rating(result: Result) -> Iterator[tuple[str, str]]:
    """How the scores were made, and how precise they are."""
    *others, main = of_run(result.rating, result.history.basis)
    fit, sure = result.fit, result.scores.intervals
    text = f"{main.name} ({main.label})" + "".join(f"; also {one.label}" for one in others)
    if fit.sigma is not None:
        text += f". Prior σ = {fit.sigma:.3g}, {'fitted' if fit.chosen else 'as given'}"
    yield "score", f"{text}{'; corrected for position' if fit.position else ''}"
    if sure is not None:
        groups = f"{several(int(sure.tier.max()), 'group')} can be told apart"
        limit = "lower" if fit.at_least else "upper" if fit.at_limit else ""
        at = f" (the fitted prior is at its {limit} limit, {fit.sigma:g}; --sigma overrides it)"
        error = np.nanmedian(result.scores.se)
        yield "precision", f"median standard error {error:.2f}; {groups}{at if limit else ''}"


def by_people(said: Said) -> str:
    """What people answered, in words."""
    answers = sum(map(len, said.seconds.values()))
    checks = sum(check.verdict is not None for check in said.checks)
    skipped = sum(said.skipped.values())
    return _those_there(
        (True, f"{count(answers)} by {several(said.judged, 'person', 'people')}"),
        (answers, f"{duration(said.median or 0)} each (median)"),
        (checks, f"{count(checks)} of them to check people"),
        (skipped, f"{count(skipped)} skipped"),
    )


def of_models(result: Result) -> Totals:
    """The totals without the answers of people."""
    theirs = 0 if result.said is None else result.said.calls
    return replace(result.totals, calls=result.totals.calls - theirs)


def in_words(counts: Counts) -> str:
    """Job counts in words; what is zero and unremarkable is left out."""
    return _those_there(
        (True, f"{count(counts.done)} of {count(counts.total)} done"),
        (counts.invalid, f"{count(counts.invalid)} invalid (left out of the scores)"),
        (counts.failed, f"{count(counts.failed)} failed (--retry-failed asks them again)"),
        (counts.left, f"{count(counts.left)} left"),
    )


def calls(totals: Totals) -> str:
    """Calls, retries and unknowns in words."""
    return _those_there(
        (True, count(totals.calls)),
        (totals.retries, f"{count(totals.retries)} of them without a reply"),
        (totals.unusable, several(totals.unusable, "unusable reply", "unusable replies")),
        (totals.uncounted, f"{several(totals.uncounted, 'reply', 'replies')} without token counts"),
        (totals.unknown, f"{count(totals.unknown)} more never answered (unknown, possibly paid)"),
        (totals.hits, f"{several(totals.hits, 'answer')} from the cache"),
    )


def _those_there(*parts: tuple[int, str]) -> str:
    return ", ".join(text for there, text in parts if there)


def cost(totals: Totals) -> str:
    """What the calls cost, and what the cache saved."""
    saved = f"; the cache saved {money(totals.saved)}" if totals.saved else ""
    return f"{_dollars(totals)}{saved}"


def _dollars(totals: Totals) -> str:
    """What the calls cost; unknown where a price is, and what else may have been paid."""
    dollars, unknown = money(totals.cost), totals.unpriced + totals.unknown
    if not unknown or totals.at_risk == 0:
        return dollars
    calls = f"{several(unknown, 'call')} of unknown cost"
    if totals.at_risk is None:
        return f"at least {dollars} ({calls})" if totals.cost else f"unknown ({calls})"
    return f"{dollars}, and possibly up to {money(totals.at_risk)} for {calls}"
