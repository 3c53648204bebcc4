"""The rounds of a run: the history before the first one, the questions of the next one, and what the
store has of those that are planned."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from judgeq import seeds
from judgeq.config import Settings
from judgeq.errors import RunError
from judgeq.judge import panel
from judgeq.rating import position_bias
from judgeq.run_places import RunPlace
from judgeq.store import Store
from judgeq.strategies import History, Strategy
from judgeq.types import Counts, Matches


@asynccontextmanager
async def reading(run: RunPlace) -> AsyncIterator[Store]:
    """A run's store, open for reading while inside. Raises RunError."""
    store = run.store(read_only=True)
    try:
        yield store
    finally:
        await store.close()


def begin(n: int, strategy: Strategy | None, settings: Settings) -> History:
    """The history of a run of n items before anything was judged."""
    return History.begin(
        n, strategy, settings.seed, both_orders=settings.both_orders, goal=settings.goal
    )


def questions(history: History, settings: Settings) -> Matches:
    """The questions of the next round: the strategy's, for the judges and in the orders that the
    settings ask for."""
    matches, round = history.next_round(), len(history.verdicts) + 1
    unit = 1
    if settings.both_orders:
        matches, unit = position_bias.doubled(matches), 2
    judges, rng = len(settings.panelists), seeds.rng(settings.seed, "panel", round)
    if settings.ensemble == "each" or judges == 1:
        people = [settings.people or 0] * (settings.each - 1)
        return panel.by_each(matches, sorted([*range(judges), *people]), rng, unit)
    return panel.drawn(matches, judges, rng, unit)


async def planned(store: Store) -> tuple[list[Counts], bool]:
    """The jobs of the planned rounds by state, round by round; and whether no more come, since the
    last one that was planned has no matches."""
    rounds: list[Counts] = []
    while (counts := await store.round_state(len(rounds) + 1)) is not None:
        if not counts.total:
            return rounds, True
        rounds.append(counts)
    return rounds, False


async def fold(history: History, store: Store, judges: int) -> Counts | None:
    """Fold the next round as the store has it; its jobs, or None where it isn't planned.

    Raises RunError for a verdict of a judge that the run, which has `judges` and the store's people,
    doesn't have.
    """
    round = len(history.verdicts) + 1
    counts = await store.round_state(round)
    if counts is None:
        return None
    verdicts = await store.verdicts(round)
    highest = 0 if verdicts.judges is None else int(verdicts.judges.max())
    if highest >= judges and highest >= (judges := judges + len(await store.people())):
        raise RunError(
            f"the run's record is damaged: it has an answer of judge {highest}, and there are {judges}."
        )
    history.add(verdicts, counts.total, await store.active(round + 1))
    return counts


def judgments_per_match(settings: Settings) -> int:
    """How many jobs a match of the strategy becomes: one for each judge, and each order."""
    judges = len(settings.panelists) if settings.ensemble == "each" else 1
    return (settings.each - 1 + judges) * (2 if settings.both_orders else 1)


def share_of_people(settings: Settings) -> float:
    """The share of the jobs that are for people."""
    if settings.people is None:
        return 0.0
    return settings.each / (settings.each - 1 + len(settings.panelists))
