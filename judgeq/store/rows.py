"""How jobs, calls and verdicts stand in the rows of the SQLite file, and are read back.

A run's file may be anybody's: what can't have been written by us raises TypeError, ValueError or
struct.error, which the store turns into an error that names the file.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from judgeq.types import Bools, Job, JobState, Match, Offsets, Outcome, Rows, Verdict, Verdicts

CACHED = "cached"
"""The outcome of a call that the cache answered."""


def job(row: Sequence[Any], round: int) -> Job:
    """The job as claimed, from (id, items, judge, attempts, unusable, error)."""
    number, items, judge, attempts, unusable, error = row
    presented = struct.unpack(f"<{len(items) // 4}i", items)
    if type(judge) is not int:
        raise ValueError("a judge's number can't be")
    return Job(Match(number, round, presented, judge), attempts, unusable, error)


def nano(bound: float | None) -> tuple[int, int]:
    """What an attempt adds to `at_risk` (nano-dollars, rounded up) and to `unbounded`."""
    return (0, 1) if bound is None else (math.ceil(bound * 1e9), 0)


def released(outcome: Outcome) -> tuple[int, int, int]:
    """What an outcome's calls take from `open`, `at_risk` and `unbounded`.

    A call of unknown cost is no longer open, and stays at risk.
    """
    if len(outcome.calls) == 1:
        (call,) = outcome.calls
        if call.outcome != CACHED:
            return (1, *nano(call.bound)) if call.cost is not None else (1, 0, 0)
    sent = [call for call in outcome.calls if call.outcome != CACHED]
    bounds = [nano(call.bound) for call in sent if call.cost is not None]
    return len(sent), sum(amount for amount, _ in bounds), sum(no for _, no in bounds)


def update(outcome: Outcome, worker: str) -> tuple[object, ...]:
    """What an outcome says about its job.

    (whether anybody's word, else whose word, gives it this state; state; unusable replies more;
    open, at risk and unbounded less; error; job). While it goes on nobody's word does: NULL equals
    no worker.
    """
    return (
        outcome.verdict is not None,
        None if outcome.state is JobState.RUNNING else worker,
        outcome.state,
        sum(call.outcome == "unusable" for call in outcome.calls),
        *released(outcome),
        outcome.error,
        outcome.job,
    )


def late(outcome: Outcome) -> Outcome:
    """An outcome for a job that is settled already: paid duplicates, and no verdict."""
    calls = tuple(
        call if call.outcome == CACHED else call._replace(outcome="duplicate")
        for call in outcome.calls
    )
    return outcome._replace(verdict=None, calls=calls)


def calls(outcome: Outcome) -> list[tuple[object, ...]]:
    """A row for each call of an outcome."""
    return [
        (
            outcome.job,
            call.attempt,
            call.outcome,
            *call.usage,
            call.cost,
            call.latency,
            call.reply,
            call.at,
        )
        for call in outcome.calls
    ]


def verdict(job: int, said: Verdict) -> tuple[int, bytes, bytes | None, float | None]:
    """(job, items most of the feature first, ties or None, score or None)."""
    items = said.items
    return job, struct.pack(f"<{len(items)}i", *items), bytes(said.tied) or None, said.score


def verdicts(rows: Sequence[Sequence[Any]], n: int) -> Verdicts:
    """The verdicts from (job, ranking, ties, score, the match's items, its judge), over n items.

    Raises ValueError unless each ranks exactly the items of its match, or scores its one item.
    """
    if any(len(row[1]) != len(row[4]) for row in rows):
        raise ValueError("a verdict's length is not that of its match")
    lengths = np.array([len(row[1]) // 4 for row in rows], dtype=np.int64)
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if not all(type(each) is int and 0 <= each < 2**31 for each in {row[5] for row in rows}):
        raise ValueError("a judge's number can't be")
    ranked = _unpacked(b"".join(row[1] for row in rows))
    asked = _unpacked(b"".join(row[4] for row in rows))
    scores = np.array([np.nan if row[3] is None else row[3] for row in rows], dtype=np.float64)
    judges = np.array([row[5] for row in rows], dtype=np.int32)
    ties = b"".join(row[2] or bytes(len(row[1]) // 4) for row in rows)
    tied = np.frombuffer(ties, dtype=np.uint8) != 0
    _check(ranked, asked, offsets, tied, n)
    # A list of one without a score says nothing; there are some in published recordings.
    scored = ~np.isnan(scores)
    if (scored & (lengths != 1)).any() or ((scores < 0) | (scores > 1)).any():
        raise ValueError("a score can't be")
    return Verdicts(
        matches=np.array([row[0] for row in rows], dtype=np.int64),
        items=ranked,
        offsets=offsets,
        tied=tied,
        presented=asked,
        scores=scores if scored.any() else None,
        judges=judges if judges.any() else None,
    )


def _unpacked(data: bytes) -> Rows:
    return np.frombuffer(data, dtype="<i4").astype(np.int32, copy=False)


def _check(ranked: Rows, asked: Rows, offsets: Offsets, tied: Bools, n: int) -> None:
    lengths = np.diff(offsets)
    which = np.repeat(np.arange(len(lengths)) << 32, lengths)
    if not np.array_equal(np.sort(which + ranked), np.sort(which + asked)):
        raise ValueError("a verdict doesn't rank the items of its match")
    if len(tied) != len(ranked) or (lengths < 1).any() or tied[offsets[:-1]].any():
        raise ValueError("a verdict's ties can't be")
    if len(ranked) and not 0 <= int(ranked.min()) <= int(ranked.max()) < n:
        raise ValueError("a verdict ranks an item that isn't there")
