"""The questions of a round: the strategy's, for the judges and in the orders that the settings name."""

from __future__ import annotations

from dataclasses import replace

from judgeq import seeds
from judgeq.config import Settings
from judgeq.judge import panel
from judgeq.rating import position_bias
from judgeq.store import Store
from judgeq.strategies import History
from judgeq.strategies.repeats import Repeats
from judgeq.types import Matches


def of_round(history: History, settings: Settings) -> Matches:
    """Those of the next round: the strategy's, to the judges and in the orders that the settings
    name."""
    matches, round = history.next_round(), len(history.verdicts) + 1
    unit = 1
    if settings.both_orders:
        matches, unit = position_bias.doubled(matches), 2
    judges, rng = len(settings.panelists), seeds.rng(settings.seed, "panel", round)
    if settings.ensemble == "each" or judges == 1:
        each = [
            number
            for number in range(judges)
            for _ in range(settings.each if number == settings.people else 1)
        ]
        return panel.by_each(matches, each, rng, unit)
    return panel.drawn(matches, judges, rng, unit)


async def numbered(matches: Matches, repeats: Repeats, store: Store | None, round: int) -> Matches:
    """The questions of a round, with how often each was asked in the rounds before, some of which
    `repeats` may not have seen: they are in the store."""
    while store is not None and repeats.rounds < round - 1:
        repeats.add(await store.matches(repeats.rounds + 1))
    return replace(matches, repeats=repeats.add(matches))
