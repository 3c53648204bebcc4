"""How items, jobs, calls and verdicts stand in the rows of a store: how rows are made and read back.

A store may be anybody's: what can't have been written by us raises TypeError, ValueError or
struct.error, which the store turns into an error that names it.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from judgeq.judge.budget import rounded_up
from judgeq.store.protocol import Items
from judgeq.types import (
    Bools,
    Call,
    Failure,
    Job,
    Match,
    Matches,
    Outcome,
    Rows,
    Totals,
    Usage,
    Verdict,
)

CACHED = "cached"
"""The outcome of a call that the cache answered."""
MANY = 2**31
UNKNOWN = 2
"""Of `ties`: the order of this item and the one before isn't known (a partial ranking); 1 is a tie."""


def items(kept: Sequence[Sequence[Any]], subsets: Sequence[Sequence[Any]]) -> Items:
    """The items of rows (row, id, gold), with subsets (name, their rows packed). Raises ValueError for
    what can't be."""
    if [row for row, _, _ in kept] != list(range(len(kept))):
        raise ValueError("an item is missing, or has a row that can't be")
    gold = np.array([np.nan if label is None else label for *_, label in kept], dtype=np.float64)
    masks: dict[str, Bools] = {}
    for name, members in subsets:
        which = unpacked(members)
        if len(which) and not 0 <= which.min() <= which.max() < len(kept):
            raise ValueError(f"subset {name!r} names no item")
        masks[str(name)] = mask = np.zeros(len(kept), dtype=np.bool_)
        mask[which] = True
    return Items([name for _, name, _ in kept], None if np.isnan(gold).all() else gold, masks)


def item_rows(items: Items) -> Iterator[tuple[int, str, float | None]]:
    """A row for each item."""
    labels = [None] * len(items.ids) if items.gold is None else items.gold.tolist()
    for row, (name, label) in enumerate(zip(items.ids, labels, strict=True)):
        yield row, name, None if label != label else label


def job(row: Sequence[Any], round: int, n: int) -> Job:
    """The job of a row (statements.JOB); of n items.

    Raises ValueError for one that no strategy makes.
    """
    number, items, judge, repeat, attempts, unusable, error = row
    presented = struct.unpack(f"<{len(items) // 4}i", items)
    if min(judge, repeat, attempts, unusable) < 0 or max(row[2:6]) >= MANY:
        raise ValueError(f"a count of job {number} can't be")
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
    given = ((matches.judges, 0), (matches.ordered, True), (matches.repeats, 0))
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
    sent = at_risk = unbounded = 0
    for call in outcome.calls:
        if call.outcome != CACHED and call.judge is None:
            amount, no = _released(call)
            sent, at_risk, unbounded = sent + 1, at_risk + amount, unbounded + no
    return sent, at_risk, unbounded


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


def update(outcome: Outcome, worker: int) -> tuple[Any, ...]:
    """What an outcome says about its job, as statements.SETTLE takes it."""
    return (
        outcome.job,
        last_attempt(outcome),
        worker,
        is_final(outcome),
        outcome.state.value,
        sum(call.outcome == "unusable" for call in outcome.calls),
        *released(outcome),
        text(outcome.error),
    )


def last_attempt(outcome: Outcome) -> int | None:
    """The attempt by which an outcome is found that was settled before; None without one."""
    for call in reversed(outcome.calls):
        if call.outcome != CACHED and call.judge is None:
            return call.attempt
    return None


def late(outcome: Outcome) -> Outcome:
    """An outcome for a job that is settled already: paid duplicates, and no verdict."""
    calls = [call._replace(outcome="duplicate") for call in outcome.calls if call.outcome != CACHED]
    return outcome._replace(verdict=None, calls=tuple(calls))


def calls(outcome: Outcome, worker: int) -> list[tuple[object, ...]]:
    """A row for each call of an outcome, as statements.INSERT_CALL takes it."""
    return [
        (
            outcome.job,
            call.attempt,
            str(call.outcome),
            *call.usage,
            call.cost,
            call.latency,
            text(call.reply),
            call.at,
            call.judge,
            worker,
        )
        for call in outcome.calls
    ]


class Work(NamedTuple):
    """What changes of a worker's row: counts of jobs done, of calls and of those without an answer, of
    tokens and answers from the cache; and nano-dollars (schema.py)."""

    done: int = 0
    calls: int = 0
    errors: int = 0
    tokens: int = 0
    hits: int = 0
    saved: int = 0
    spent: int = 0
    at_risk: int = 0
    free: int = 0

    def plus(self, other: Work) -> Work:
        """The sums of both."""
        return Work(*map(operator.add, self, other))


def _paid(call: Call) -> int:
    """Nano-dollars that a call cost, as far as that is known."""
    return 0 if call.cost is None else math.ceil(call.cost * 1e9)


def work(outcomes: Iterable[tuple[Outcome, tuple[Any, ...]]]) -> Work:
    """What outcomes, each with its `update`, change of their worker's row."""
    done = calls = errors = tokens = hits = saved = spent = asked = released = 0
    for outcome, update in outcomes:
        released += update[7]
        done += outcome.verdict is not None
        for call in outcome.calls:
            tokens += sum(call.usage)
            if call.outcome == CACHED:
                hits += 1
                saved += _paid(call)
                continue
            calls += 1
            cost = _paid(call)
            spent += cost
            if call.judge is None:
                errors += call.outcome not in ("ok", "unusable", "duplicate")
                asked += cost
    return Work(done, calls, errors, tokens, hits, saved, spent, -released, released - asked)


def back(outcomes: Iterable[Outcome]) -> tuple[int, int]:
    """What was reserved for the calls of outcomes, and what of it their worker may spend again, in
    nano-dollars."""
    reserved = free = 0
    for outcome in outcomes:
        for call in outcome.calls:
            if call.outcome == CACHED or call.bound is None:
                continue
            bound, (released, _) = rounded_up(call.bound), _released(call)
            reserved += bound
            # What was put at risk may be rounded otherwise.
            free += released - _paid(call) - (nano(call.bound)[0] - bound)
    return reserved, free


def calls_by_job(kept: Sequence[Sequence[Any]]) -> dict[int, list[Call]]:
    """The calls of statements.CALLS_OF, by job. Raises ValueError for one that can't be."""
    by_job: dict[int, list[Call]] = {}
    for _, *row in kept:
        by_job.setdefault(row[0], []).append(call(row))
    return by_job


def call(row: Sequence[Any]) -> Call:
    """The call of a row (statements.CALL_COLUMNS). Raises ValueError for one that can't be."""
    number, attempt, outcome, *usage, cost, latency, reply, at, judge = row
    if not all(map(math.isfinite, (cost or 0.0, latency, at))):
        raise ValueError(f"a call about job {number} can't be")
    if judge is not None and not 0 <= judge < MANY:
        raise ValueError(f"a judge of job {number} can't be")
    return Call(attempt, outcome, Usage(*usage), cost, latency, reply, at, judge=judge)


def packed(active: Bools) -> bytes:
    """Which items are active, as a round keeps it."""
    return np.packbits(active, bitorder="little").tobytes()


def active(bits: bytes, n: int) -> Bools:
    """Which of n items a round could ask about. Raises ValueError for bits of another number."""
    if len(bits) != -(-n // 8):
        raise ValueError("a round's active items are not those of the run")
    packed = np.frombuffer(bits, dtype=np.uint8)
    return np.unpackbits(packed, count=n, bitorder="little").astype(np.bool_)


def verdicts_of(outcomes: Iterable[Outcome]) -> list[tuple[object, ...]]:
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
