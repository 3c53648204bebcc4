"""How jobs, calls and verdicts stand in the rows of the SQLite file: the statements that write and add
them up, and how rows are made and read back.

A run's file may be anybody's: what can't have been written by us raises TypeError, ValueError or
struct.error, which the store turns into an error that names the file.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from judgeq.types import (
    Bools,
    Call,
    Failure,
    Floats,
    Job,
    JobState,
    Match,
    Matches,
    Outcome,
    Rows,
    Standings,
    Totals,
    Usage,
    Verdict,
)

CACHED = "cached"
"""The outcome of a call that the cache answered."""
MANY = 2**31
UNKNOWN = 2
"""Of `ties`: the order of this item and the one before isn't known (a partial ranking); 1 is a tie."""

INSERT_JOB = "INSERT INTO jobs (id, items, judge, ordered, repeat) VALUES (?, ?, ?, ?, ?)"
INSERT_CALL = """
INSERT INTO calls (job, attempt, outcome, input, cached, output, reasoning, cost, latency, reply, at,
                   answered_by)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
ADD_TO_TOTALS = """
INSERT INTO totals VALUES (1, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET
    calls = calls + excluded.calls, tokens = tokens + excluded.tokens, cost = cost + excluded.cost
"""
INSERT_VERDICT = (
    "INSERT INTO verdicts (job, ranking, ties, score, answered_by) VALUES (?, ?, ?, ?, ?)"
)
PENDING = """
SELECT id, items, judge, repeat, attempts, unusable, error FROM jobs
WHERE state = 'pending' AND {} ORDER BY id LIMIT ?
"""
CLAIM = """
UPDATE jobs SET state = 'running', worker = ?, lease = ? WHERE state = 'pending' AND id <= ? AND {}
"""
UPDATE_JOB = """
UPDATE jobs SET
    state = CASE WHEN ? OR worker = ? THEN ? ELSE state END, unusable = unusable + ?,
    open = open - ?, at_risk = at_risk - ?, unbounded = unbounded - ?, error = coalesce(?, error)
WHERE id = ? AND state IN ('pending', 'running')
"""
RELEASE = """
UPDATE jobs SET open = open - ?, at_risk = at_risk - ?, unbounded = unbounded - ? WHERE id = ?
"""
BEGIN = """
UPDATE jobs SET
    attempts = attempts + 1, open = open + 1, at_risk = at_risk + ?, unbounded = unbounded + ?
WHERE id = ?
"""
# A stranger's ledger may say that money came in; a cap must not grow by it.
CALLS = """
SELECT coalesce(sum(outcome <> 'cached'), 0),
    coalesce(sum(outcome NOT IN ('ok', 'unusable', 'duplicate', 'cached', 'skipped', 'undone')), 0),
    coalesce(sum(CASE WHEN outcome <> 'cached' THEN input END), 0),
    coalesce(sum(CASE WHEN outcome <> 'cached' THEN cached END), 0),
    coalesce(sum(CASE WHEN outcome <> 'cached' THEN output END), 0),
    coalesce(sum(CASE WHEN outcome <> 'cached' THEN reasoning END), 0),
    coalesce(sum(CASE WHEN outcome <> 'cached' THEN max(cost, 0.0) END), 0.0),
    coalesce(sum(outcome <> 'cached' AND cost IS NULL), 0),
    coalesce(sum(outcome = 'cached'), 0),
    coalesce(sum(CASE WHEN outcome = 'cached' THEN cost END), 0.0),
    coalesce(sum(outcome = 'unusable'), 0),
    coalesce(sum(outcome IN ('ok', 'unusable', 'duplicate') AND cost IS NULL
        AND input + cached + output = 0), 0)
FROM calls
"""
SPENT = """
SELECT jobs.id, items, judge, repeat, 0, 0, NULL, total(max(input, 0)), total(max(cached, 0)),
    total(max(output, 0)), total(max(reasoning, 0)), total(max(cost, 0.0)), sum(cost IS NULL),
    total(CASE WHEN outcome <> 'cached' THEN max(latency, 0) END)
FROM calls JOIN jobs ON jobs.id = job
WHERE calls.id <= ? AND outcome IN ('ok', 'unusable', 'cached') AND state IN ('done', 'invalid')
GROUP BY job ORDER BY job
"""
JOBS_OF_CALLS = "SELECT id, job FROM calls ORDER BY id"
CALLS_OF = """
SELECT job, attempt, outcome, input, cached, output, reasoning, cost, latency, reply, at,
    answered_by
FROM calls
WHERE id IN ({}) ORDER BY id
"""
CALLS_BETWEEN = """
SELECT job, attempt, outcome, input, cached, output, reasoning, cost, latency, reply, at,
    answered_by
FROM calls
WHERE job BETWEEN ? AND ? ORDER BY id
"""
FAILED_CALL = """
SELECT id, reply, at FROM calls
WHERE outcome NOT IN ('ok', 'cached', 'unusable', 'duplicate', 'stepped_down', 'skipped', 'undone')
ORDER BY id DESC LIMIT 1
"""
FAILED_SINCE = """
SELECT count(*) FROM calls WHERE id > coalesce(
    (SELECT id FROM calls WHERE outcome IN ('ok', 'cached', 'unusable') ORDER BY id DESC LIMIT 1), 0)
"""
# A running job's last attempt may still be waited for.
ATTEMPTS = """
SELECT coalesce(sum(state = 'running' AND open > 0), 0),
    coalesce(sum(open - (state = 'running' AND open > 0)), 0),
    coalesce(sum(max(at_risk, 0)), 0), coalesce(sum(max(unbounded, 0)), 0)
FROM jobs
"""
REOPEN_JOBS = """
UPDATE jobs SET state = 'pending', unusable = 0, error = NULL WHERE state = ?
"""


def job(row: Sequence[Any], round: int, n: int) -> Job:
    """The job as claimed, from (id, items, judge, repeat, attempts, unusable, error); of n items.

    Raises ValueError for one that no strategy makes.
    """
    number, items, judge, repeat, *counts, error = row
    attempts, unusable = counts
    presented = struct.unpack(f"<{len(items) // 4}i", items)
    for count in (judge, repeat, attempts, unusable):
        if type(count) is not int or not 0 <= count < MANY:
            raise ValueError(f"a count of job {number} can't be: {count!r}")
    if not presented or len(set(presented)) < len(presented):
        raise ValueError(f"job {number} is about no item, or about one twice")
    if min(presented) < 0 or max(presented) >= n:
        raise ValueError(f"job {number} is about an item that isn't there")
    return Job(Match(number, round, presented, judge, repeat), attempts, unusable, error)


def jobs(matches: Matches, first: int) -> Iterator[tuple[object, ...]]:
    """A row for each question of a round: number, items, judge, whether the order presented is known,
    how often it was asked before."""
    data = matches.items.astype("<i4", copy=False).tobytes()
    bounds = (matches.offsets * 4).tolist()
    given = ((matches.judges, 0), (matches.ordered, 1), (matches.repeats, 0))
    columns = [
        [usual] * len(matches) if values is None else values.tolist() for values, usual in given
    ]
    for m, values in enumerate(zip(*columns, strict=True)):
        yield first + m, data[bounds[m] : bounds[m + 1]], *values


def matches(jobs: Sequence[Sequence[Any]]) -> Matches:
    """A round's questions from (items, judge), in the order of their numbers."""
    offsets = np.zeros(len(jobs) + 1, dtype=np.int64)
    np.cumsum([len(items) // 4 for items, _ in jobs], out=offsets[1:])
    judges = np.array([judge for _, judge in jobs], dtype=np.int32)
    return Matches(unpacked(b"".join(items for items, _ in jobs)), offsets, judges)


def text(value: str | None) -> str | None:
    """A text as any store can hold it: without the character NUL, and without halves of characters."""
    if value is None or (value.isascii() and "\0" not in value):
        return value
    return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def nano(bound: float | None) -> tuple[int, int]:
    """What an attempt adds to `at_risk` (nano-dollars, rounded up) and to `unbounded`."""
    return (0, 1) if bound is None else (math.ceil(bound * 1e9), 0)


def released(outcome: Outcome) -> tuple[int, int, int]:
    """What an outcome's calls take from `open`, `at_risk` and `unbounded`.

    A call of unknown cost is no longer open, and stays at risk as far as its `risk`.
    """
    if len(outcome.calls) == 1:
        (call,) = outcome.calls
        if call.outcome != CACHED and call.judge is None:
            return (1, *_released(call))
    sent = [
        _released(call) for call in outcome.calls if call.outcome != CACHED and call.judge is None
    ]
    return len(sent), sum(amount for amount, _ in sent), sum(no for _, no in sent)


def _released(call: Call) -> tuple[int, int]:
    """What a call takes from `at_risk` and `unbounded`."""
    if call.cost is not None:
        return nano(call.bound)
    if call.risk is None or call.bound is None:
        return 0, 0
    return max(0, nano(call.bound)[0] - nano(call.risk)[0]), 0


def is_final(outcome: Outcome) -> bool:
    """Whether an outcome gives its job its state, whoever holds it: a verdict, and what people say, who
    hold no jobs."""
    return outcome.verdict is not None or by(outcome) is not None


def by(outcome: Outcome) -> int | None:
    """The person who gave it; None for another judge's."""
    return outcome.calls[-1].judge if outcome.calls else None


def update(outcome: Outcome, worker: str) -> tuple[object, ...]:
    """What an outcome says about its job.

    (whether anybody's word, else whose word, gives it this state; state; unusable replies more;
    open, at risk and unbounded less; error; job). While it goes on nobody's word does: NULL equals
    no worker.
    """
    return (
        is_final(outcome),
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
            call.judge,
        )
        for call in outcome.calls
    ]


def added_up(calls: Sequence[Sequence[Any]]) -> tuple[int, float, float]:
    """What the rows of calls add to `totals`: calls, tokens, dollars."""
    tokens = sum(sum(row[3:7]) for row in calls)
    return len(calls), float(tokens), math.fsum(row[7] or 0.0 for row in calls)


def calls_by_job(kept: Sequence[Sequence[Any]]) -> dict[int, list[Call]]:
    """The calls from (job, attempt, outcome, the four counts of tokens, cost, latency, reply, at, the
    person), by job. Raises ValueError for one that can't be."""
    by_job: dict[int, list[Call]] = {}
    for row in kept:
        by_job.setdefault(row[0], []).append(call(row))
    return by_job


def call(row: Sequence[Any]) -> Call:
    """A call as in `calls_by_job`. Raises ValueError for one that can't be."""
    number, attempt, outcome, *usage, cost, latency, reply, at, judge = row
    if not all(map(math.isfinite, (cost or 0.0, latency, at))):
        raise ValueError(f"a call about job {number} can't be")
    if judge is not None and not 0 <= judge < MANY:
        raise ValueError(f"a judge of job {number} can't be")
    return Call(attempt, outcome, Usage(*usage), cost, latency, reply, at, judge=judge)


def standings(before: Standings) -> tuple[bytes, bytes]:
    """(ratings, which items are active) as a round keeps them."""
    bits = np.packbits(before.active, bitorder="little")
    return before.elo.astype("<f8").tobytes(), bits.tobytes()


def ratings(kept: bytes, n: int) -> Floats:
    """The ratings of n items that a round was made from. Raises ValueError for those of another
    number."""
    values = np.frombuffer(kept, dtype="<f8").astype(np.float64)
    if len(values) != n:
        raise ValueError("a round's ratings are not those of the run")
    return values


def active(bits: bytes, n: int) -> Bools:
    """Which of n items a round could ask about. Raises ValueError for bits of another number."""
    if len(bits) != -(-n // 8):
        raise ValueError("a round's active items are not those of the run")
    packed = np.frombuffer(bits, dtype=np.uint8)
    return np.unpackbits(packed, count=n, bitorder="little").astype(np.bool_)


def given(outcomes: Iterable[Outcome]) -> list[tuple[object, ...]]:
    """A row for each verdict of these outcomes: as `verdict`, and the person who gave it."""
    return [(*verdict(o.job, o.verdict), by(o)) for o in outcomes if o.verdict]


def verdict(job: int, said: Verdict) -> tuple[int, bytes, bytes | None, float | None]:
    """(job, items most of the feature first, ties or None, score or None)."""
    items = said.items
    ties = bytes(said.tied)
    if said.partial:
        ties = ties.replace(b"\1", bytes((UNKNOWN,)))
    return job, struct.pack(f"<{len(items)}i", *items), ties or None, said.score


def unpacked(data: bytes) -> Rows:
    """Row numbers as a store keeps them."""
    return np.frombuffer(data, dtype="<i4").astype(np.int32, copy=False)


def totals(calls: Sequence[Any], attempts: Sequence[Any]) -> Totals:
    """What a ledger adds up to, from the one row of CALLS and that of ATTEMPTS.

    Raises ValueError for costs that can't be.
    """
    made, failed, *usage, cost, unpriced, hits, saved, unusable, uncounted = calls
    in_flight, unknown, at_risk, unbounded = attempts
    if not math.isfinite(cost + saved):
        raise ValueError(f"the costs of its calls add up to {cost + saved}")
    return Totals(
        calls=made,
        retries=failed,
        usage=Usage(*usage),
        cost=cost,
        unpriced=unpriced,
        in_flight=in_flight,
        unknown=unknown,
        at_risk=None if unbounded else at_risk / 1e9,
        hits=hits,
        saved=saved,
        unusable=unusable,
        uncounted=uncounted,
    )


def failure(number: int, error: Any, at: Any, in_a_row: int) -> Failure:
    """The last call that brought no answer. Raises ValueError for one that can't be."""
    if not isinstance(error, str) or not 0 <= at < 1e11:
        raise ValueError(f"call {number} can't be")
    return Failure(error, at, in_a_row)
