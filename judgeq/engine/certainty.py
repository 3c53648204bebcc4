"""How well a run's order is known after a round, and what one more round would cost and bring.

All of it is agreement with the judge, not with the truth. It takes a fit: little next to a round of a
model's answers, and much next to a simulated judge's. So after each round it is worked out where a model
is asked about up to LARGE items, or `--until` needs it; otherwise only at the end.
"""

from __future__ import annotations

from judgeq.certainty import Certainty
from judgeq.config import Settings
from judgeq.engine import rounds
from judgeq.rating import Parameters, comparisons, order
from judgeq.strategies import History
from judgeq.types import Counts, Totals

LARGE = 20_000
"""Of more items a fit after each round takes too long."""


def after_each_round(history: History, settings: Settings) -> bool:
    """Whether it is worked out after each round of a session."""
    few = len(history.standings.elo) <= LARGE
    return not history.alone and (bool(history.goal) or (few and bool(settings.models)))


def at_the_end(history: History, settings: Settings) -> bool:
    """Whether a result shows it: where the fit is made anyway, or the run ends by it."""
    return not history.alone and (bool(history.goal) or rates_by_order(settings))


def rates_by_order(settings: Settings) -> bool:
    """Whether the run is rated by the fit that its order is judged by: `pl` with a fitted σ."""
    return settings.rating == "pl" and settings.parameters == Parameters()


def how_well(
    history: History, settings: Settings, counts: Counts, totals: Totals
) -> Certainty | None:
    """How well the order is known by all verdicts so far; None where items are judged alone, or there
    is no verdict."""
    posterior = history.posterior()
    if posterior is None:
        return None
    calls = _next_calls(history, settings)
    compared = [verdicts for verdicts in history.asked if comparisons.compares(verdicts)]
    slots, all_slots = (sum(len(part.items) for part in of) for of in (compared, history.asked))
    # A text judged alone counts 1/k of a list of k.
    added = calls * slots / max(1, sum(map(len, compared))) / max(1, all_slots)
    judged, growth = posterior.component > 0, 1 + added if calls else None
    mean, errors = posterior.mean[judged], posterior.errors_across[judged]
    known = order.known(mean, errors, growth, history.goal.top)
    asked = sum(map(len, history.asked))
    return Certainty(
        round=len(history.verdicts),
        rho=known.rho,
        next_rho=known.next_rho,
        next_calls=calls,
        next_cost=_cost(added * asked, settings, counts, totals),
        top=history.goal.top,
        top_share=known.top,
        next_top_share=known.next_top,
    )


def _next_calls(history: History, settings: Settings) -> int:
    """Calls of one more round; 0 where there can't be one."""
    active = int(history.standings.active.sum())
    if history.strategy is None or history.over or active < 2:
        return 0
    matches = history.strategy.calls_of(len(history.verdicts) + 1, active)
    return matches * rounds.judgments_per_match(settings)


def _cost(calls: float, settings: Settings, counts: Counts, totals: Totals) -> float | None:
    """Dollars for so many calls, at the price of those so far; None where that is unknown."""
    asked = counts.done + counts.invalid + counts.failed - totals.hits
    if not settings.models or totals.unpriced or asked <= 0 or not totals.calls:
        return None
    return totals.cost / asked * calls
