"""The story of a run: rounds of questions, Elo after each, Bradley-Terry at the end.

Completion order never matters: matches have canonical numbers, Elo folds verdicts in their order,
and randomness is drawn by name. So a run that was killed any number of times ends as one that was
not, and taking it up again is nothing but telling the story from the beginning: rounds that are
planned are not planned again, jobs that are done are not asked again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from judgeq import results, seeds
from judgeq.config import Settings
from judgeq.datasets import Dataset
from judgeq.errors import StoppedError
from judgeq.judge import panel
from judgeq.queue import AT_ONCE, AT_ONCE_UNPAID, Queue, Stop
from judgeq.rating import metrics, order_bias
from judgeq.runs import RunFolder, whoami
from judgeq.store import Items, Store
from judgeq.strategies import Strategy
from judgeq.types import (
    Counts,
    EndedEarly,
    Event,
    Floats,
    Matches,
    Placed,
    RoundRated,
    RoundStarted,
    RunStarted,
    Standings,
)
from judgeq.worker import drain

SHOWN = 3
LEAD_FOR = 600.0


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """All that a sitting needs."""

    folder: RunFolder
    settings: Settings
    dataset: Dataset
    strategy: Strategy
    store: Store
    judge: panel.Panel
    stop: Stop
    emit: Callable[[Event], None]


async def play(run: Run) -> results.Result:
    """Take the run from wherever it is to its scores.

    Raises StoppedError when a stop was asked for, and JudgeError when the judge can't go on; all
    that was answered is kept, and `play` may be called again.
    """
    store, n = run.store, len(run.dataset)
    epoch = await store.lead(whoami(), LEAD_FOR)
    run.emit(await _started(run))
    judged = results.Judged.begin(n, run.strategy, run.settings)
    for round in range(1, run.strategy.rounds + 1):
        before = judged.elo
        counts = await store.round_state(round)
        if counts is None:
            if run.stop.asked:
                raise StoppedError(f"stopped before round {round}")
            matches = asked(judged.standings, run.strategy, run.settings, round)
            await store.plan_round(round, epoch, before, matches)
            counts = await _state(run, round)
        if not counts.total:  # a round without matches says in the ledger that no more come
            judged.over = True
            run.emit(EndedEarly(round - 1))
            break
        await judge_round(run, round)
        judged.add(await store.verdicts(round))
        run.emit(_rated(run, round, before, judged))
    settings, dataset = run.settings, run.dataset
    items = Items(dataset.ids, dataset.gold, dataset.subsets)
    return await results.rate(
        run.folder, store, items, judged, run.strategy.rounds, settings.rating, settings.bt_sigma
    )


def asked(standings: Standings, strategy: Strategy, settings: Settings, round: int) -> Matches:
    """The questions of a round: the strategy's, to those whom the settings say, in the orders they
    say."""
    matches = strategy.next_round(standings, seeds.rng(settings.seed, "round", round))
    unit = 1
    if settings.both_orders:
        matches, unit = order_bias.doubled(matches), 2
    each = settings.ensemble == "each"
    return panel.assigned(matches, len(settings.members), each=each, unit=unit)


async def _started(run: Run) -> RunStarted:
    return RunStarted(
        run=run.folder.id,
        items=len(run.dataset),
        rounds=run.strategy.rounds,
        judge=run.judge.name,
        planned=(await results.planned(run.store))[0],
        totals=await run.store.totals(),
    )


async def judge_round(run: Run, round: int) -> None:
    """Let workers empty a planned round. Raises StoppedError when some of it is left."""
    counts = await _state(run, round)
    run.emit(RoundStarted(round, counts))
    if counts.left:
        await run.judge.open()
        at_once = AT_ONCE if run.judge.reads_text else AT_ONCE_UNPAID
        async with Queue(run.store, whoami(), run.stop, at_once=at_once) as queue:
            workers = min(run.settings.concurrency, counts.left)
            await drain(queue, run.judge, run.stop, run.emit, workers)
        counts = await _state(run, round)
    if counts.left:
        raise StoppedError(f"stopped in round {round}, with {counts.left} of its jobs left")


async def _state(run: Run, round: int) -> Counts:
    counts = await run.store.round_state(round)
    if counts is None:
        raise LookupError(f"round {round} is not planned")
    return counts


def _rated(run: Run, round: int, before: Floats, judged: results.Judged) -> RoundRated:
    direct = judged.direct
    after = judged.elo if direct is None else np.nan_to_num(direct)
    moved = metrics.spearman(before, after) if round > 1 else None
    shown = min(SHOWN, len(after))
    order = np.lexsort((np.arange(len(after)), -after))
    return RoundRated(
        round,
        moved,
        top=[_placed(run, row, after) for row in order[:shown].tolist()],
        bottom=[_placed(run, row, after) for row in order[-shown:].tolist()],
    )


def _placed(run: Run, row: int, ratings: Floats) -> Placed:
    texts = run.dataset.texts
    text = texts[row][:200] if texts is not None else None
    return Placed(run.dataset.ids[row], text, float(ratings[row]))
