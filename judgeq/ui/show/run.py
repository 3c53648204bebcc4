"""A run as sections: what it would take, and what it came to. The words are in templates/show/."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from judgeq.engine.estimate import Estimate
from judgeq.engine.results import Result
from judgeq.engine.scores import Scores
from judgeq.engine.status import State
from judgeq.engine.unread import problem_sentence
from judgeq.escaping import shell_command
from judgeq.evaluation import items
from judgeq.events import Forecast, Notice
from judgeq.rating import of_run, position_bias
from judgeq.text import count
from judgeq.types import Totals
from judgeq.ui.progress import reliability
from judgeq.ui.sections import Section, lines_of, stated
from judgeq.ui.show import items as show_items

ENDS, GROUPS = 3, 5
"""So many items are shown from each end of a ranking; or the ends of so many groups."""
SEE = " See `judgeq evaluate`."
"""The end of a caution, which an evaluation leaves out."""
SIMULATED = (
    "The simulated judge reads the gold labels, so agreement with them proves nothing. No model was "
    "asked."
)


def estimate(estimate: Estimate) -> Section:
    """What a run would take: calls, dollars and tokens."""
    return stated("estimate", e=estimate)


def forecast(estimate: Estimate) -> list[Notice]:
    """What is left to pay for, as the notices of a run that begins."""
    (first,), *others = lines_of("forecast", e=estimate)
    cost = estimate.cost
    numbers = Forecast(
        first,
        calls=estimate.calls,
        from_cache=estimate.hits,
        input_tokens=(estimate.input.low, estimate.input.high),
        output_tokens=(estimate.output.low, estimate.output.high),
        cost=None if cost is None else (cost.low, cost.high),
        max_cost=estimate.prepared.settings.max_cost,
    )
    return [numbers, *(Notice(text) for (text,) in others)]


def result(result: Result) -> Iterator[Section]:
    """What a run came to: the ranked texts, how sure that is, what it cost, what to be careful about."""
    yield stated("headline", r=result)
    yield ends(result.scores)
    yield stated("numbers", r=result, totals=of_models(result), reliability=order(result))
    careful = stated(
        "warnings",
        r=result,
        bias=position_bias.sentence,
        problems=problem_sentence,
    )
    if warnings := [*careful.warnings, *simulated(result)]:
        yield Section(warnings=warnings)


def ends(scores: Scores) -> Section:
    """The texts at both ends of the ranking, with 95 % intervals where there are some; of groups the
    ends of each of the first."""
    if scores.group_count is not None:
        all_groups = scores.group_count
        which = f" (the first {GROUPS} of {count(all_groups)})" if all_groups > GROUPS else ""
        note = f"Highest and lowest text of each group{which}. `judgeq show --group NAME` lists a group."
        rows = items.group_ends(scores)[: 2 * GROUPS]
        return show_items.items(scores, rows, notes=[note])
    ranked = [row for row in items.ranked(scores) if row >= scores.first_new]
    top, bottom = ranked[:ENDS], ranked[max(ENDS, len(ranked) - ENDS) :]
    found = show_items.items(scores, [*top, *bottom])
    if len(top) + len(bottom) == len(ranked):
        return found
    gap = ("…", *[""] * (len(found.columns) - 1))
    return replace(found, rows=[*found.rows[: len(top)], gap, *found.rows[len(top) :]])


def order(run: Result | State) -> str:
    """How well the order is known, in sentences; "" where that isn't known."""
    if run.known is None:
        return ""
    first, *others = reliability(run.known, people=run.info.settings.only_people)
    parts = [first.removeprefix("reliability "), *others]
    return " ".join(f"{part[0].upper()}{part[1:]}." for part in parts)


def cautions(run: Result) -> Section:
    """Return what to be careful about beside the first cautions, and that a judge was simulated."""
    further = [one for one in run.cautions if one not in run.first_cautions]
    return Section(warnings=[*further, *simulated(run)], close=True)


def simulated(*runs: Result) -> Sequence[str]:
    """That a judge was simulated, if one was."""
    found = (run.info.simulated and not run.info.mark for run in runs)
    return [SIMULATED] if any(found) else []


def ending(result: Result, run: Sequence[str]) -> Section:
    """Return where the scores are, and three commands to go on with.

    `run` are the words by which these name the run, the options among them; none for the last run.
    """
    scores, known, strategy = result.scores, result.known, result.history.strategy
    own = scores.scored & (scores.settled == 0)
    top = int(np.nanargmax(np.where(own, scores.main[1], np.nan)))
    more = known is not None and known.next_calls and not result.ended
    section = stated(
        "ending",
        r=result,
        suggest=partial(_suggested, run),
        top=scores.ids[top],
        more=more and strategy is not None and "rounds" in strategy.facts(),
    )
    if not result.info.settings.rehearsal:
        return section
    return replace(section, blocks=[("To ask a model:", "\n".join(result.info.real_run()))])


def _suggested(
    run: Sequence[str], name: str, *options: object, positionals: Sequence[str] = ()
) -> str:
    """Return a command about a run that is named by these words."""
    return shell_command(name, [*run[:1], *positionals], [*run[1:], *map(str, options)])


def rating(result: Result) -> Section:
    """How the scores were made, and how precise they are."""
    *others, main = of_run(result.rating, result.history.basis)
    error = None if result.scores.intervals is None else np.nanmedian(result.scores.se)
    return stated("scores", r=result, main=main, others=others, error=error)


def of_models(result: Result) -> Totals:
    """The totals without the answers of people."""
    theirs = 0 if result.said is None else result.said.calls
    return replace(result.totals, calls=result.totals.calls - theirs)
