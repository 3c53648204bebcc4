"""How items, jobs, calls, people and checks stand in the rows of a store.

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
from judgeq.person import Check, Handed, Person, PersonState
from judgeq.store.protocol import Items
from judgeq.store.verdicts import packed, unpacked, verdict
from judgeq.types import (
    Answerer,
    Bools,
    Call,
    Failure,
    Job,
    JobState,
    Match,
    Matches,
    Outcome,
    Totals,
    Usage,
    Verdict,
)

CACHED = "cached"
"""The outcome of a call that the cache answered."""
MANY = 2**31
_LATEST = 1e11  # seconds since the epoch
_DIGEST = 32


def check_range(what: str, *numbers: float | None, below: float = MANY) -> None:
    """Raise ValueError unless all numbers that are there are from 0 to below this."""
    if not all(number is None or 0 <= number < below for number in numbers):
        raise ValueError(f"a number of {what} can't be")


def text(value: str | None) -> str | None:
    """A text as any store can hold it: without the character NUL, and without halves of characters."""
    if value is None or (value.isascii() and "\0" not in value):
        return value
    return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


# Items


def items(kept: Sequence[Sequence[Any]], subsets: Sequence[Sequence[Any]]) -> Items:
    """The items of rows (row, id, gold, group), with subsets (name, their rows packed). Raises
    ValueError for what can't be."""
    n = len(kept)
    if [row for row, *_ in kept] != list(range(n)):
        raise ValueError("an item is missing, or has a row that can't be")
    gold = np.array(
        [np.nan if label is None else label for _, _, label, _ in kept], dtype=np.float64
    )
    masks: dict[str, Bools] = {}
    for name, members in subsets:
        which = unpacked(members)
        check_range(
            f"subset {name!r}", which.min(initial=0), which.max(initial=-1) + 1, below=n + 1
        )
        masks[str(name)] = np.isin(np.arange(n), which)
    groups = [group for *_, group in kept]
    if None in groups and any(groups):
        raise ValueError("an item has no group, and others have one")
    return Items(
        ids=[name for _, name, *_ in kept],
        gold=None if np.isnan(gold).all() else gold,
        subsets=masks,
        groups=groups if any(groups) else None,
    )


def item_rows(items: Items) -> Iterator[tuple[int, str, float | None, str | None]]:
    """A row for each item."""
    labels = [None] * len(items.ids) if items.gold is None else items.gold.tolist()
    groups: Sequence[str | None] = items.groups or [None] * len(items.ids)
    for row, (name, label, group) in enumerate(zip(items.ids, labels, groups, strict=True)):
        yield row, name, None if label != label else label, group


def active_bits(active: Bools) -> bytes:
    """Which items are active, as a round keeps it."""
    return np.packbits(active, bitorder="little").tobytes()


def active(bits: bytes, n: int) -> Bools:
    """Which of n items a round could ask about. Raises ValueError for bits of another number."""
    if len(bits) != -(-n // 8):
        raise ValueError("a round's active items are not those of the run")
    packed = np.frombuffer(bits, dtype=np.uint8)
    return np.unpackbits(packed, count=n, bitorder="little").astype(np.bool_)


# Jobs


def presented(what: str, data: bytes, n: int) -> tuple[int, ...]:
    """The items in a question, of n items. Raises ValueError or struct.error for what none is about."""
    asked = struct.unpack(f"<{len(data) // 4}i", data)
    if not asked or len(set(asked)) < len(asked) or not 0 <= min(asked) <= max(asked) < n:
        raise ValueError(f"{what} is about an item that isn't there, or about one twice, or none")
    return asked


def job(row: Sequence[Any], round: int, n: int) -> Job:
    """The job of a row (statements.JOB); of n items. Raises ValueError for one that can't be."""
    number, items, judge, repeat, attempts, unusable, error = row
    check_range(f"job {number}", judge, repeat, attempts, unusable)
    asked = presented(f"job {number}", items, n)
    return Job(Match(number, round, asked, judge, repeat), attempts, unusable, error)


def jobs(matches: Matches, first: int, state: JobState) -> Iterator[tuple[object, ...]]:
    """A row for each question of a round: number, items, state, judge, whether the order presented is
    known, how often it was asked before."""
    data = matches.items.astype("<i4", copy=False).tobytes()
    bounds = (matches.offsets * 4).tolist()
    given = ((matches.judges, 0), (matches.ordered, True), (matches.repeats, 0))
    columns = [
        [usual] * len(matches) if values is None else values.tolist() for values, usual in given
    ]
    for m, values in enumerate(zip(*columns, strict=True)):
        yield first + m, data[bounds[m] : bounds[m + 1]], state.value, *values


# Calls


def nano(bound: float | None) -> tuple[int, int]:
    """What an attempt adds to `at_risk` (nano-dollars, rounded up) and to `unbounded`."""
    return (0, 1) if bound is None else (rounded_up(bound), 0)


def _released(call: Call) -> tuple[int, int]:
    """What the answer to an attempt takes from `at_risk` and `unbounded`: all, if its cost is known."""
    return (0, 0) if call.cost is None else nano(call.bound)


def _attempts(outcome: Outcome) -> list[Call]:
    """The calls of an outcome that were sent as attempts."""
    return [call for call in outcome.calls if call.outcome != CACHED and call.judge is None]


def person_of(outcome: Outcome) -> int | None:
    """The person who gave an outcome; None for another judge's."""
    return outcome.calls[-1].judge if outcome.calls else None


class Update(NamedTuple):
    """What an outcome says about its job, as statements.SETTLE takes it. `attempt` is the one by which
    it is found where it was settled before. A `final` one gives its job its state, whoever holds it: a
    verdict, and what people say, who hold no jobs."""

    job: int
    attempt: int | None
    worker: int
    final: bool
    state: str
    unusable: int
    open: int
    at_risk: int
    unbounded: int
    error: str | None


def update(outcome: Outcome, worker: int) -> Update:
    """What an outcome of a worker says about its job."""
    attempts = _attempts(outcome)
    released = [_released(call) for call in attempts]
    return Update(
        job=outcome.job,
        attempt=attempts[-1].attempt if attempts else None,
        worker=worker,
        final=outcome.verdict is not None or person_of(outcome) is not None,
        state=outcome.state.value,
        unusable=sum(call.outcome == "unusable" for call in outcome.calls),
        open=len(attempts),
        at_risk=sum(at_risk for at_risk, _ in released),
        unbounded=sum(unbounded for _, unbounded in released),
        error=text(outcome.error),
    )


def late(outcome: Outcome) -> Outcome:
    """An outcome for a job that is settled already: paid duplicates, and no verdict."""
    calls = [call._replace(outcome="duplicate") for call in outcome.calls if call.outcome != CACHED]
    return outcome._replace(verdict=None, calls=tuple(calls))


def calls(outcome: Outcome, worker: int) -> list[tuple[object, ...]]:
    """A row for each call of an outcome, as statements.INSERT_CALL takes it."""
    return [
        (outcome.job, call.attempt, str(call.outcome), *call.usage, call.cost, call.latency,
         text(call.reply), call.at, call.judge, *map(text, call.answerer), worker)
        for call in outcome.calls
    ]  # fmt: skip


def verdict_rows(outcomes: Iterable[Outcome]) -> list[tuple[object, ...]]:
    """A row for each verdict of these outcomes, as statements.INSERT_VERDICT takes it."""
    return [(o.job, *verdict(o.verdict), person_of(o)) for o in outcomes if o.verdict]


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

    def __add__(self, other: Work) -> Work:  # type: ignore[override]
        return Work(*map(operator.add, self, other))


def work(outcome: Outcome, released: int) -> Work:
    """What an outcome, which releases so much `at_risk`, changes of its worker's row."""
    calls = [call for call in outcome.calls if call.outcome != CACHED]
    spent = sum(rounded_up(call.cost) for call in calls)
    return Work(
        done=outcome.verdict is not None,
        calls=len(calls),
        errors=sum(
            call.judge is None and call.outcome not in ("ok", "unusable", "duplicate")
            for call in calls
        ),
        tokens=sum(sum(call.usage) for call in outcome.calls),
        hits=len(outcome.calls) - len(calls),
        saved=sum(rounded_up(call.cost) for call in outcome.calls if call.outcome == CACHED),
        spent=spent,
        at_risk=-released,
        free=released - spent,
    )


def reserved(outcome: Outcome) -> int:
    """The nano-dollars that were reserved for the calls of an outcome."""
    return sum(rounded_up(call.bound) for call in _attempts(outcome))


def call(row: Sequence[Any]) -> Call:
    """The call of a row (statements.CALL_COLUMNS). Raises ValueError for one that can't be."""
    number, attempt, outcome, *usage, cost, latency, reply, at, judge, model, fingerprint = row
    if not all(map(math.isfinite, (cost or 0.0, latency, at))):
        raise ValueError(f"a call about job {number} can't be")
    check_range(f"a call about job {number}", judge)
    answerer = Answerer(model, fingerprint)
    return Call(attempt, outcome, Usage(*usage), cost, latency, reply, at, 0.0, judge, answerer)


def totals(calls: Sequence[Any], attempts: Sequence[Any]) -> Totals:
    """What a ledger adds up to, from the one row of CALLS and that of ATTEMPTS. Raises ValueError for
    costs that can't be."""
    made, failed, *usage, cost, unpriced, hits, saved, unusable, uncounted = calls
    in_flight, unknown, at_risk, unbounded = attempts
    if not math.isfinite(cost + saved):
        raise ValueError(f"the costs of its calls add up to {cost + saved}")
    risk = None if unbounded else at_risk / 1e9
    known = (made, failed, Usage(*usage), cost, unpriced)
    return Totals(*known, in_flight, unknown, risk, hits, saved, unusable, uncounted)


def failure(number: int, error: Any, at: Any, in_a_row: int) -> Failure:
    """The last call that brought no answer. Raises ValueError for one that can't be."""
    check_range(f"call {number}", at, below=_LATEST)
    return Failure(str(error), at, in_a_row)


# People


def person_columns(person: Person) -> dict[str, Any]:
    """A person's row. Raises ValueError for one that can't be kept."""
    if not person.name.strip() or len(person.token) != _DIGEST:
        raise ValueError(f"a person can't be kept as {person.name!r}")
    state = PersonState(person.state).value
    return {**person._asdict(), "name": text(person.name), "state": state}


def person(row: Sequence[Any]) -> Person:
    """The person of a row. Raises ValueError or TypeError for one that can't be."""
    number, name, token, quota, state, since = row
    check_range(f"person {number}", number, quota)
    check_range(f"person {number}", since, below=_LATEST)
    if len(token) != _DIGEST:
        raise ValueError(f"the token of person {number} can't be")
    return Person(number, name, bytes(token), quota, PersonState(state), since)


def handed(row: Sequence[Any]) -> Handed:
    """What a person has. Raises ValueError for what can't be."""
    read = Handed(*row)
    if not math.isfinite(read.at) or (read.job is None) is (read.check is None):
        raise ValueError("what a person has can't be")
    return read


def check_columns(check: Check) -> dict[str, Any]:
    """A check's row."""
    ranking, ties, score = verdict(check.verdict) if check.verdict else (None, None, None)
    columns = {"items": packed(check.items), "known": packed(check.known)}
    return {**check._asdict(), **columns, "ranking": ranking, "ties": ties, "score": score}


def check(row: Sequence[Any], n: int) -> Check:
    """The check of a row, over n items. Raises ValueError or struct.error for one that can't be."""
    number, items, person, repeats, known, lease, ranking, ties, score, seconds, at = row
    what = f"check {number}"
    asked = presented(what, items, n)
    true = presented(what, known, n) if known else ()
    said = None if ranking is None else presented(what, ranking, n)
    if any(ranked and sorted(ranked) != sorted(asked) for ranked in (true, said)):
        raise ValueError(f"{what} ranks items that it isn't about")
    if not math.isfinite(seconds + at):
        raise ValueError(f"{what} has a time that can't be")
    answer = None if said is None else Verdict(said, tuple(map(bool, ties or b"")), score)
    return Check(number, asked, person, repeats, true, lease, answer, seconds, at)
