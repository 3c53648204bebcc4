"""How well a run's order is known: after a round, what one more would cost and is expected to bring, and
whether it is enough.

All of it is agreement with the judge, not with the truth. It takes a fit, which is little beside a
round of a model's answers and much beside a simulated judge's: so after each round it is worked out
where a model is asked about up to LARGE items, or `--until` needs it; else in the end only.
"""

from __future__ import annotations

from judgeq.certainty import Certainty
from judgeq.config import Settings
from judgeq.engine import questions
from judgeq.rating import LIMITS, Parameters, comparisons, order
from judgeq.strategies import History
from judgeq.types import Counts, Totals

LARGE = 20_000
"""Of more items a fit after each round takes too long."""


def after_each_round(history: History, settings: Settings) -> bool:
    """Whether it is worked out after each round of a session."""
    if history.alone:
        return False
    few = len(history.standings.elo) <= LARGE
    return bool(history.goal) or (few and bool(settings.models))


def in_the_end(history: History, settings: Settings) -> bool:
    """Whether a result shows it: where the fit is made anyway, or the run is to end by it."""
    if history.alone:
        return False
    return bool(history.goal) or rated_by_the_same(settings)


def rated_by_the_same(settings: Settings) -> bool:
    """Whether the run is rated as its order is judged: by `pl`, σ chosen."""
    return settings.rating == "pl" and settings.parameters == Parameters()


def how_well(
    history: History, settings: Settings, counts: Counts, totals: Totals
) -> Certainty | None:
    """How well the order is known by all verdicts so far; None where items are judged alone, or none
    is."""
    posterior = history.posterior()
    if posterior is None:
        return None
    judged = posterior.component > 0
    calls = _next_calls(history)
    growth = None
    if calls:
        growth = 1 + calls * questions.asked_by(settings) / _so_far(history)
    known = order.known(
        posterior.mean[judged], posterior.errors_across[judged], growth, history.goal.top
    )
    calls *= questions.times(settings)
    return Certainty(
        round=len(history.verdicts),
        rho=known.rho,
        next_rho=known.next_rho,
        next_calls=calls,
        next_cost=_cost(calls * _length(history), settings, counts, totals),
        top=history.goal.top,
        top_share=known.top,
        next_top_share=known.next_top,
        sigma=posterior.sigma if posterior.sigma < LIMITS[0] and history.basis != "both" else None,
        perhaps_less=history.perhaps_too_sure and history.basis != "both",
    )


def _so_far(history: History) -> float:
    """How many verdicts there are; those on items alone count by their items, as a list of k does."""
    compared = [verdicts for verdicts in history.verdicts if comparisons.compares(verdicts)]
    lists, items = sum(map(len, compared)), sum(len(verdicts.items) for verdicts in compared)
    alone = sum(
        len(verdicts) for verdicts in history.verdicts if not comparisons.compares(verdicts)
    )
    return max(1.0, lists + alone * lists / max(1, items))


def _next_calls(history: History) -> int:
    """Questions of one more round, each counted once; 0 where there can't be one."""
    if history.strategy is None or history.over:
        return 0
    active = int(history.standings.active.sum())
    return history.strategy.calls_of(len(history.verdicts) + 1, active) if active > 1 else 0


def _length(history: History) -> float:
    """By how much a question of the next round is longer than those so far: 1, unless these were also
    about items alone."""
    if history.basis != "both":
        return 1.0
    compared = [verdicts for verdicts in history.asked if comparisons.compares(verdicts)]
    items, all_items = (sum(len(part.items) for part in of) for of in (compared, history.asked))
    return items / sum(map(len, compared)) / (all_items / sum(map(len, history.asked)))


def _cost(calls: float, settings: Settings, counts: Counts, totals: Totals) -> float | None:
    """What so many calls cost in dollars, as those so far; None where that isn't known."""
    asked = counts.done + counts.invalid + counts.failed - totals.hits
    if not settings.models or totals.unpriced or asked <= 0 or not totals.calls:
        return None
    return totals.cost / asked * calls


def enough(history: History, known: Certainty) -> bool:
    """Whether the run's goal is reached. Not before items were in two rankings on average: until then
    nothing says how far the judge contradicts itself."""
    goal = history.goal
    if not goal or not history.twice:
        return False
    return goal.reached(known.rho, known.top_share)
