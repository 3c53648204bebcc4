"""Columns between NumPy, Python and PostgreSQL: arrays for statements, and blocks of rows that the
database has packed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from judgeq.judge.budget import rounded_up
from judgeq.store import answers, rows
from judgeq.types import Attempt, JobState, Matches, Outcome

BLOCK = 100_000
"""Rows of a block."""


def array(values: Iterable[float | bool | None]) -> str:
    """Numbers as an array's text; made in a third of psycopg's time."""
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


def unpacked(blocks: Sequence[Sequence[bytes | None]], column: int, kind: str) -> Any:
    """A column of several blocks, each of which holds it packed, as an array of the kind given."""
    data = b"".join(block[column] or b"" for block in blocks)
    array = np.frombuffer(data, dtype=kind)
    return array.astype(array.dtype.newbyteorder("="))


def verdicts(blocks: Sequence[Sequence[Any]]) -> answers.Columns:
    """The verdicts that statements.VERDICTS packed. Raises ValueError where they can't be."""
    lengths, asked_of = unpacked(blocks, 4, ">i4"), unpacked(blocks, 6, ">i4")
    if (lengths % 4).any() or (asked_of % 4).any():
        raise ValueError("a verdict's items are cut off")
    return answers.Columns(
        jobs=unpacked(blocks, 2, ">i8"),
        ranked=unpacked(blocks, 3, "<i4"),
        lengths=lengths.astype(np.int64) // 4,
        asked=unpacked(blocks, 5, "<i4"),
        asked_of=asked_of.astype(np.int64) // 4,
        ties=unpacked(blocks, 7, "u1"),
        scores=unpacked(blocks, 8, ">f8"),
        judges=unpacked(blocks, 9, ">i4"),
        ordered=unpacked(blocks, 10, "u1") != 0,
    )


def matches(blocks: Sequence[Sequence[Any]]) -> Matches:
    """The questions that statements.MATCHES packed. Raises ValueError where they can't be."""
    lengths = unpacked(blocks, 3, ">i4").astype(np.int64)
    if (lengths % 4).any():
        raise ValueError("a match's items are cut off")
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths // 4, out=offsets[1:])
    return Matches(unpacked(blocks, 2, "<i4"), offsets, unpacked(blocks, 4, ">i4"))


def attempts(wanted: Sequence[Attempt]) -> tuple[dict[int, list[int]], list[str]]:
    """What attempts add to each job (number of attempts, nano-dollars at risk, unbounded ones), and the
    arrays that say so."""
    added: dict[int, list[int]] = {}
    for attempt in wanted:
        risk, unbounded = rows.nano(attempt.bound)
        sums = added.setdefault(attempt.job, [0, 0, 0])
        for place, more in enumerate((1, risk, unbounded)):
            sums[place] += more
    return added, [array(added), *(array(column) for column in zip(*added.values(), strict=True))]


def waves(outcomes: Sequence[Outcome]) -> list[list[Outcome]]:
    """Outcomes in their order, in parts that have at most one of each job."""
    parts: list[list[Outcome]] = []
    seen: dict[int, int] = {}
    for outcome in outcomes:
        place = seen.get(outcome.job, 0)
        seen[outcome.job] = place + 1
        if place == len(parts):
            parts.append([])
        parts[place].append(outcome)
    return parts


def settled(run: int, outcomes: Sequence[Outcome], workers: Sequence[int]) -> tuple[object, ...]:
    """What statements.SETTLE takes, for outcomes of different jobs, each of this worker."""
    by_worker = list(zip(outcomes, workers, strict=True))
    jobs = [
        (
            outcome.job,
            worker,
            rows.is_final(outcome),
            sum(call.outcome == "unusable" for call in outcome.calls),
            *rows.released(outcome),
        )
        for outcome, worker in by_worker
    ]
    number, of, answered, unusable, *released = map(array, zip(*jobs, strict=True))
    states = "{" + ",".join([JobState(outcome.state).value for outcome in outcomes]) + "}"
    called = [(*row, worker) for o, worker in by_worker for row in rows.calls(o)]
    columns = list(zip(*called, strict=True)) or [()] * 13
    calls = [array(column) for column in columns]
    calls[2] = [str(outcome) for outcome in columns[2]]  # type: ignore[call-overload]
    calls[9] = [rows.text(reply) for reply in columns[9]]  # type: ignore[call-overload]
    said = rows.given(outcomes)
    job, ranking, ties, score, judge = list(zip(*said, strict=True)) or [()] * 5
    errors = [rows.text(outcome.error) for outcome in outcomes]
    given = (number, of, answered, states, unusable, *released, errors)
    verdicts = (array(job), list(ranking), list(ties), array(score), array(judge))
    return (*given, run, run, run, *calls, run, *verdicts)


def spent(outcomes: Iterable[Outcome]) -> tuple[int, int, int, int, int, int]:
    """What outcomes change of their worker's row: jobs done, calls, calls without an answer; and in
    nano-dollars what was spent, what is at risk, what is free again."""
    done = calls = errors = paid = at_risk = free = 0
    for outcome in outcomes:
        done += outcome.verdict is not None
        for call in outcome.calls:
            if call.outcome == rows.CACHED:
                continue
            calls += 1
            errors += call.outcome not in ("ok", "unusable", "duplicate") and call.judge is None
            _, gone, _ = rows.released(Outcome(outcome.job, outcome.state, None, (call,)))
            cost = rows.nano(call.cost)[0]
            paid, at_risk, free = paid + cost, at_risk - gone, free + gone - cost
    return done, calls, errors, paid, at_risk, free


def back(outcomes: Iterable[Outcome]) -> tuple[int, int]:
    """What was reserved for the calls of outcomes, and what of it their worker may spend again, in
    nano-dollars."""
    reserved = free = 0
    for outcome in outcomes:
        for call in outcome.calls:
            if call.outcome == rows.CACHED or call.bound is None:
                continue
            bound = rounded_up(call.bound)
            *_, freed = spent([outcome._replace(calls=(call,))])
            reserved += bound
            free += freed - (rows.nano(call.bound)[0] - bound)  # which may be rounded otherwise
    return reserved, free
