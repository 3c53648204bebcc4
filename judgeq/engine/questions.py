"""The questions of a run: how many it has so far and may have, and which those of a round are, for the
judges and in the orders that the settings name."""

from __future__ import annotations

from dataclasses import replace

from judgeq import seeds
from judgeq.config import Settings
from judgeq.judge import panel
from judgeq.rating import position_bias
from judgeq.store import Store
from judgeq.strategies import History, Strategy
from judgeq.strategies.repeats import Repeats
from judgeq.types import Counts, Matches


async def planned(store: Store) -> tuple[list[Counts], bool]:
    """The jobs of the planned rounds by state, round by round; and whether no more come, because
    the last one planned has no matches."""
    rounds: list[Counts] = []
    while (counts := await store.round_state(len(rounds) + 1)) is not None:
        if not counts.total:
            return rounds, True
        rounds.append(counts)
    return rounds, False


def sizes(strategy: Strategy, settings: Settings, n: int) -> list[int]:
    """The jobs of each round there may be, over n items; none where items leave, so that they aren't
    known beforehand."""
    if strategy.prunes:
        return []
    rounds = range(1, strategy.rounds + 1)
    return [times(settings) * strategy.calls_of(round, n) for round in rounds]


def most_calls(strategy: Strategy, settings: Settings, n: int) -> int:
    """The jobs of all rounds over n items, at most."""
    return times(settings) * strategy.calls(n)


def times(settings: Settings) -> int:
    """How often each question is asked: of each judge, in both orders."""
    return asked_by(settings) * (2 if settings.both_orders else 1)


def share_sent(settings: Settings) -> float:
    """The share of the questions that are sent to models, where people answer the others; else 1."""
    return 1 - share_of_people(settings) if settings.models else 1.0


def share_of_people(settings: Settings) -> float:
    """The share of the questions that are for people."""
    if settings.people is None:
        return 0.0
    if settings.ensemble == "each":
        return settings.each / asked_by(settings)
    return settings.each / (settings.each - 1 + len(settings.panelists))


def asked_by(settings: Settings) -> int:
    """How many judges each question is for."""
    people = settings.each - 1 if settings.people is not None else 0
    return people + (len(settings.panelists) if settings.ensemble == "each" else 1)


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
