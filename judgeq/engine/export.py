"""A run as tables for other programs: its scores, the comparisons they are made of, and its calls.

Made in batches, so that a large run needs no object for each of its rows at once. Items are named by
their ids; no texts, no prompts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import numpy as np

from judgeq.config import Settings
from judgeq.datasets.table_writer import Batch, Table
from judgeq.engine import results, rounds
from judgeq.engine.scores import cells
from judgeq.errors import RunError
from judgeq.people import answers
from judgeq.rating import comparisons
from judgeq.replies import reason_in
from judgeq.run_places import RunPlace
from judgeq.store import Store
from judgeq.types import Call, Rows, Verdicts

ROWS = 1 << 16
"""About so many rows are made at once."""
ANSWERED = frozenset({"ok", "unusable", "cached", "duplicate", "undone"})
"""The outcomes of calls that brought a reply; of the others the error is kept."""
COMPARISONS = {
    "winner": str,
    "loser": str,
    "weight": float,
    "round": int,
    "judge": str,
    "job": int,
}
CALLS = {
    "job": int,
    "round": int,
    "judge": str,
    "attempt": int,
    "outcome": str,
    "input_tokens": int,
    "cached_tokens": int,
    "output_tokens": int,
    "reasoning_tokens": int,
    "cost": float,
    "latency": float,
    "at": float,
    "error": str,
}
REPLIES = {"reply": str, "reason": str}


async def scores(run: RunPlace, settings: Settings) -> Table:
    """A row for each item: the columns of scores.csv but the texts, rated as the settings say.

    Raises NoVerdictsError where nothing was judged, and RunError.
    """
    rated = (await results.read(run, settings)).scores
    numbers = rated.numbers
    kinds: dict[str, type] = {"id": str}
    kinds |= {name: float if of.dtype.kind == "f" else int for name, of in numbers.items()}

    async def batches() -> AsyncIterator[Batch]:
        for rows in _spans(len(rated.ids)):
            yield [rated.ids[rows], *(cells(name, of[rows]) for name, of in numbers.items())]

    return Table(kinds, batches())


async def comparisons_of(run: RunPlace) -> Table:
    """A row for each comparison that the verdicts imply: k(k−1)/2 for a ranking of k, job by job; a tie
    is two, one each way, of weight ½, and of an order that a partial ranking doesn't know there is
    none. Of pairs asked in both orders those that are rated: the couples, a flip being a tie. Raises
    RunError.
    """
    async with rounds.reading(run) as store:
        ids, info = (await store.items()).ids, run.info()
        judged = (await results.replayed(info, store)).verdicts
        judges = (await results.with_people(info, store))[0].judge_names

    async def batches() -> AsyncIterator[Batch]:
        for round, verdicts in enumerate(judged, start=1):
            for winner, loser, weight, verdict in _implied(verdicts):
                asked = 0 if verdicts.judges is None else verdicts.judges[verdict]
                yield [
                    [ids[row] for row in winner.tolist()],
                    [ids[row] for row in loser.tolist()],
                    weight,
                    np.full(len(weight), round),
                    [judges[judge] for judge in np.broadcast_to(asked, len(weight)).tolist()],
                    verdicts.matches[verdict],
                ]

    return Table(COMPARISONS, batches())


def _implied(verdicts: Verdicts) -> Iterator[tuple[Rows, Rows, Any, Any]]:
    """Winners, losers, weights, and the verdicts that imply them, some thousands at a time; a tie is
    there twice, one way after the other."""
    sizes = np.diff(verdicts.offsets)
    block = np.cumsum(sizes * (sizes - 1) // 2) // ROWS
    for number in np.unique(block):
        chosen, part = np.flatnonzero(block == number), verdicts.where(block == number)
        first, second, tied = comparisons.pairs_of(part)
        order = np.lexsort((second, first))
        order = np.repeat(order, 1 + tied[order])
        turned = np.diff(order, prepend=-1) == 0
        for rows in _spans(len(order)):
            one, other_way = order[rows], turned[rows]
            winner = np.where(other_way, second[one], first[one])
            loser = np.where(other_way, first[one], second[one])
            weight = np.where(tied[one], 0.5, 1.0)
            verdict = chosen[np.searchsorted(part.offsets, first[one], "right") - 1]
            yield part.items[winner], part.items[loser], weight, verdict


async def calls(run: RunPlace, *, replies: bool = False) -> Table:
    """A row for each call, job by job, in the order in which a job's ended; with `replies` the raw reply
    and the reason in it, or a person's note. Raises RunError.

    `judge` is the person who answered, where one did; `error` why they skipped a question.
    Times are in seconds, `at` since the epoch. `cost` is in dollars, None where it is unknown. Of a
    "cached" call, which the cache answered, tokens and cost are what it once took.
    """

    async def batches() -> AsyncIterator[Batch]:
        async with rounds.reading(run) as store:
            judges = (await results.with_people(run.info(), store))[0].judge_names
            round_of, judge_of = await _asked(store)
            if judge_of.max(initial=0) >= len(judges) or judge_of.min(initial=0) < 0:
                raise RunError(
                    f"{run.label} is damaged: a question is for a judge that isn't there."
                )
            for jobs in _spans(len(round_of)):
                ended = sorted((await store.calls(range(jobs.start, jobs.stop))).items())
                rows = [
                    (job, int(round_of[job]), _name(judges, call, judge_of[job]), *_cells(call))
                    for job, its_calls in ended
                    for call in its_calls
                ]
                if rows:
                    yield list(zip(*rows, strict=True))[: len(columns)]

    columns = CALLS | (REPLIES if replies else {})
    return Table(columns, batches())


async def _asked(store: Store) -> tuple[Rows, Rows]:
    """The round and the judge of each job, shape (jobs,): they are numbered from 0, round by round."""
    numbers, judges = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
    for round, counts in enumerate((await rounds.planned(store))[0], start=1):
        asked = (await store.matches(round)).judges
        numbers.append(np.full(counts.total, round, np.int32))
        judges.append(np.zeros(counts.total, np.int32) if asked is None else asked)
    return np.concatenate(numbers), np.concatenate(judges)


def _name(judges: Sequence[str], call: Call, asked: int) -> str:
    """Who answered, where the judge of this number was asked."""
    return judges[asked if call.judge is None or call.judge >= len(judges) else call.judge]


def _cells(call: Call) -> Sequence[Any]:
    """From `attempt` to the reason, or a person's note."""
    text, reason = call.reply or None, None
    answered, person = call.outcome in ANSWERED, call.judge is not None
    if call.outcome == "skipped":
        text = answers.remark(call)
    if answered and person:
        reason = answers.remark(call)
    elif answered and text is not None:
        reason = reason_in(text)
    reply, error = (text, None) if answered else (None, text)
    amounts = (*call.usage, call.cost, call.latency, call.at)
    return [call.attempt, call.outcome, *amounts, error, reply, reason]


def _spans(n: int) -> Iterator[slice]:
    """The numbers below n, so many at a time."""
    return (slice(begin, min(begin + ROWS, n)) for begin in range(0, n, ROWS))
