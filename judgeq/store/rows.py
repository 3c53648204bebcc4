"""How items, jobs, verdicts, calls, batches, people and checks stand in the rows of a store.

A store may be anybody's: numbers that can't be are refused when it is opened (schema.ADDED_UP), and
what can't be read raises TypeError, ValueError or struct.error, which the store turns into an error that
names it. What a provider says of a batch is kept as far as it can be: it must not be what loses a batch.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from operator import eq
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from judgeq.datasets.dataset import RowIds
from judgeq.judge.budget import rounded_up
from judgeq.person import Check, Person, PersonState
from judgeq.store.protocol import Items
from judgeq.types import (
    Answerer,
    Batch,
    BatchState,
    Bools,
    Call,
    Doubt,
    Job,
    JobState,
    Line,
    Match,
    Matches,
    Offsets,
    Outcome,
    Rows,
    Usage,
    Verdict,
    Verdicts,
)

CACHED = "cached"
"""The outcome of a call that the cache answered."""
NEVER = math.inf
"""The end of a batch's lease."""
UNKNOWN = 2
"""Of `ties`: the order of this item and the one before isn't known (a partial ranking); 1 is a tie."""
_MANY = 2**31
_LATEST = 1e11  # seconds since the epoch
_BATCH_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def text(value: str | None) -> str | None:
    """A text as any store can hold it: without the character NUL, and without halves of characters."""
    if value is None or (value.isascii() and "\0" not in value):
        return value
    return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


# Items


def items(kept: Sequence[Sequence[Any]], subsets: Sequence[Sequence[Any]]) -> Items:
    """The items of rows (id, gold, group), with subsets (name, members). Row numbers as ids are no
    string for each of millions."""
    ids, labels, groups = map(list, zip(*kept, strict=True)) if kept else ([], [], [])
    gold, numbers = np.array(labels, dtype=np.float64), RowIds(len(ids))  # None is nan
    return Items(
        ids=numbers if all(map(eq, ids, numbers)) else ids,
        gold=None if np.isnan(gold).all() else gold,
        subsets={name: chosen(members) for name, members in subsets},
        groups=groups if any(groups) else None,
    )


def item_rows(items: Items) -> list[tuple[object, ...]]:
    """A row for each item."""
    nothing = [None] * len(items.ids)
    gold = nothing if items.gold is None else items.gold.tolist()
    return list(zip(range(len(items.ids)), items.ids, gold, items.groups or nothing, strict=True))


def chosen(mask: bytes) -> Bools:
    """Which items are chosen, a byte each."""
    return np.frombuffer(mask, dtype=np.uint8).astype(np.bool_)


# Jobs


def presented(what: str, data: bytes, n: int) -> tuple[int, ...]:
    """The items in a question, of n items. Raises ValueError or struct.error for what none is about."""
    asked = struct.unpack(f"<{len(data) // 4}i", data)
    if not asked or len(set(asked)) < len(asked) or not 0 <= min(asked) <= max(asked) < n:
        raise ValueError(f"{what} is about an item that isn't there, or about one twice, or none")
    return asked


def job(row: Sequence[Any], n: int) -> Job:
    """The job of a row that begins with schema.JOB; of n items. Raises ValueError for one that can't
    be."""
    number, round, items, judge, repeat, *known = row[:8]
    asked = presented(f"job {number}", items, n)
    return Job(Match(number, round, asked, judge, repeat), *known)


def jobs(matches: Matches, round: int, first: int, state: JobState) -> Iterator[tuple[object, ...]]:
    """A row for each question of a round, from this number on: its items, state, judge, whether the
    order presented is known, how often it was asked before."""
    data = matches.items.astype("<i4", copy=False).tobytes()
    columns = (matches.judges, matches.ordered, matches.repeats)
    bounds = (matches.offsets * 4).tolist()
    for m, known in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        yield first + m, round, data[bounds[m] : bounds[m + 1]], state.value, *known


# Verdicts: read back and checked many at once


def packed(items: Sequence[int]) -> bytes:
    """Row numbers as a store keeps them."""
    return struct.pack(f"<{len(items)}i", *items)


def unpacked(data: bytes) -> Rows:
    """Row numbers that a store kept."""
    return np.frombuffer(data, dtype="<i4").astype(np.int32, copy=False)


def verdict(said: Verdict) -> tuple[bytes, bytes | None, float | None]:
    """Items most of the feature first, ties or None, score or None."""
    ties = bytes(said.tied)
    if said.partial:
        ties = ties.replace(b"\1", bytes((UNKNOWN,)))
    return packed(said.items), ties or None, said.score


def matches(rows: Sequence[tuple[bytes, int]]) -> Matches:
    """The questions of rows (items, judge)."""
    judges = np.array([judge for _, judge in rows], dtype=np.int32)
    items = [items for items, _ in rows]
    return Matches(unpacked(b"".join(items)), _offsets(map(len, items)), judges)


def _offsets(sizes: Iterable[int]) -> Offsets:
    """Where the items begin and end that stand in each of so many bytes."""
    return np.cumsum([0, *sizes], dtype=np.int64) // 4


def verdicts(rows: Sequence[Sequence[Any]], n: int) -> Verdicts:
    """The verdicts, over n items, of rows (job, ranking, ties, the match's items, score, judge, whether
    their order is known). Raises as `assembled`."""
    jobs, ranked, *packed, scores, judges, ordered = zip(*rows, strict=True) if rows else ((),) * 7
    joined = map(b"".join, (ranked, *packed))
    return assembled(n, [jobs, *joined, [len(one) for one in ranked], scores, judges, ordered])


def assembled(n: int, columns: Sequence[Any]) -> Verdicts:
    """The verdicts of columns as they stand in a store, over n items: jobs; rankings, ties and the items
    presented, each in one run of bytes; the bytes of each ranking; scores (None or nan: none), judges,
    whether their order is known.

    Raises ValueError unless each ranks exactly the items of its match.
    """
    jobs, rankings, ties, presented, sizes, scores, judges, ordered = columns
    ranked, asked = unpacked(rankings), unpacked(presented)
    offsets, tied = _offsets(sizes), np.frombuffer(ties, np.uint8)
    _check(ranked, asked, offsets, tied, n)
    return Verdicts(
        matches=np.asarray(jobs, dtype=np.int64),
        items=ranked,
        offsets=offsets,
        tied=tied != 0,
        presented=asked,
        scores=np.asarray(scores, dtype=np.float64),
        judges=np.asarray(judges, dtype=np.int32),
        ordered=np.asarray(ordered, dtype=np.bool_),
        partial=_partial(tied, offsets),
    )


def _check(ranked: Rows, asked: Rows, offsets: Offsets, ties: NDArray[np.uint8], n: int) -> None:
    lengths = np.diff(offsets)
    which = np.repeat(np.arange(len(lengths)) << 32, lengths)
    # A stable sort is fast where most is sorted.
    one, other = (np.sort(which + rows, kind="stable") for rows in (ranked, asked))
    if not np.array_equal(one, other):
        raise ValueError("a verdict doesn't rank the items of its match")
    if len(ties) != len(ranked) or (lengths < 1).any() or ties[offsets[:-1]].any():
        raise ValueError("a verdict's ties can't be")
    if len(ranked) and not 0 <= int(ranked.min()) <= int(ranked.max()) < n:
        raise ValueError("a verdict ranks an item that isn't there")


def _partial(ties: NDArray[np.uint8], offsets: Offsets) -> Bools:
    """Which verdicts are partial rankings: they have one group of items whose order isn't known, some
    beside it, and no ties. Raises ValueError for what can't be."""
    unknown = ties == UNKNOWN
    begins = unknown.copy()
    begins[1:] &= ~unknown[:-1]  # never a verdict's first slot: groups of two verdicts don't touch
    groups, of_group, tied = (
        np.add.reduceat(column, offsets[:-1], dtype=np.int64)
        for column in (begins, unknown, ties != 0)
    )
    odd = (groups > 1) | (groups > 0) & ((tied > of_group) | (of_group + 1 == np.diff(offsets)))
    if odd.any() or ties.max(initial=0) > UNKNOWN:
        raise ValueError("a verdict's partial ranking can't be")
    partial: Bools = groups > 0
    return partial


# Calls


def _attempts(outcome: Outcome) -> list[Call]:
    """The calls of an outcome that were sent as attempts."""
    return [call for call in outcome.calls if call.outcome != CACHED and call.judge is None]


def person_of(outcome: Outcome) -> int | None:
    """The person who gave an outcome; None for another judge's."""
    return outcome.calls[-1].judge if outcome.calls else None


class Update(NamedTuple):
    """What an outcome says about its job, as workers.SETTLE takes it. `attempt` is the one by which
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
    """What an outcome of a worker says about its job. An answer whose cost is known takes all of its
    attempt from `at_risk` and `unbounded`."""
    attempts = _attempts(outcome)
    released = [call.bound for call in attempts if call.cost is not None]
    return Update(
        job=outcome.job,
        attempt=attempts[-1].attempt if attempts else None,
        worker=worker,
        final=outcome.verdict is not None or person_of(outcome) is not None,
        state=outcome.state.value,
        unusable=[call.outcome for call in outcome.calls].count("unusable"),
        open=len(attempts),
        at_risk=sum(map(rounded_up, released)),
        unbounded=released.count(None),
        error=text(outcome.error),
    )


def late(outcome: Outcome) -> Outcome:
    """An outcome for a job that is settled already: paid duplicates, and no verdict."""
    calls = [call._replace(outcome="duplicate") for call in outcome.calls if call.outcome != CACHED]
    return outcome._replace(verdict=None, calls=tuple(calls))


def calls(outcome: Outcome, worker: int) -> list[tuple[object, ...]]:
    """A row for each call of an outcome: schema.CALL, and the worker."""
    return [
        (outcome.job, call.attempt, str(call.outcome), *call.usage, call.cost, call.latency,
         text(call.reply), call.at, call.judge, *map(text, call.answerer), call.prompt_size,
         text(call.problem), call.overpriced_bytes, worker)
        for call in outcome.calls
    ]  # fmt: skip


def verdict_rows(outcomes: Iterable[Outcome]) -> list[tuple[object, ...]]:
    """A row for each verdict of these outcomes."""
    return [(o.job, *verdict(o.verdict), person_of(o)) for o in outcomes if o.verdict]


def work(settled: Sequence[tuple[Outcome, Update]]) -> dict[str, int]:
    """What outcomes add to the columns of their worker's row: jobs done, calls and those without an
    answer, tokens, answers from the cache, nano-dollars."""
    every = [call for outcome, _ in settled for call in outcome.calls]
    calls = [call for call in every if call.outcome != CACHED]
    spent = sum(rounded_up(call.cost) for call in calls)
    released = sum(update.at_risk for _, update in settled)
    return {
        "done": sum(outcome.verdict is not None for outcome, _ in settled),
        "calls": len(calls),
        "errors": sum(
            call.judge is None and call.outcome not in ("ok", "unusable", "duplicate")
            for call in calls
        ),
        "tokens": sum(sum(call.usage) for call in every),
        "hits": len(every) - len(calls),
        "saved": sum(rounded_up(call.cost) for call in every if call.outcome == CACHED),
        "spent": spent,
        "at_risk": -released,
        "free": released - spent,
    }


def reserved(outcome: Outcome) -> int:
    """The nano-dollars that were reserved for the calls of an outcome."""
    return sum(rounded_up(call.bound) for call in _attempts(outcome))


def call(row: Sequence[Any]) -> Call:
    """The call of a row (schema.CALL)."""
    _, attempt, outcome, *others = row
    *usage, cost, latency, reply, at, judge, model, fingerprint = others[:-3]
    prompt_size, problem, overpriced_bytes = others[-3:]
    return Call(
        attempt=attempt,
        outcome=outcome,
        usage=Usage(*usage),
        cost=cost,
        latency=latency,
        reply=reply,
        at=at,
        judge=judge,
        answerer=Answerer(model, fingerprint),
        prompt_size=prompt_size,
        problem=problem,
        overpriced_bytes=overpriced_bytes,
    )


# Batches


def batch_columns(batch: Batch, lines: Sequence[Line] | None = None) -> dict[str, Any]:
    """What is kept of a batch beside its name: all but `left` and `at_risk`; with these `lines` alone,
    if they are given. Raises ValueError for a name that can't be."""
    if not _BATCH_NAME.fullmatch(batch.name):
        raise ValueError(f"a batch can't be named {batch.name!r}")
    kept: dict[str, Any] = {
        name: text(str(value)) if isinstance(value, str) else value
        for name, value in zip(batch._fields[1:-2], batch[1:-2], strict=True)
    }
    for name in ("total", "done", "failed"):  # as the provider counts
        kept[name] = min(max(0, kept[name]), _MANY - 1)
    if not 0 <= (batch.expires or 0) < _LATEST:
        kept["expires"] = None
    if lines is not None:
        bounds = [line.bound for line in lines]
        kept["jobs"] = len(lines)
        kept["reserved"] = None if None in bounds else math.fsum(filter(None, bounds))
        # Of each its job, its bound in dollars (None: none) and its size.
        kept["sent"] = orjson.dumps([(line.job.match.id, *line[1:]) for line in lines])
    return kept


def batch(row: Sequence[Any]) -> Batch:
    """The batch of a row. Raises ValueError for a name or a state that can't be."""
    batch = Batch(*row)
    if not _BATCH_NAME.fullmatch(batch.name):
        raise ValueError("a batch has a name that can't be")
    doubt = None if batch.doubt is None else Doubt(batch.doubt)
    return batch._replace(state=BatchState(batch.state), doubt=doubt)


def lines(sent: bytes, jobs: Sequence[Job]) -> list[Line]:
    """The lines of these jobs in a batch. Raises ValueError, TypeError or KeyError where they aren't
    there, or can't be."""
    table = {job: (bound, size) for job, bound, size in orjson.loads(sent)}
    if not all((bound or 0) >= 0 <= size for bound, size in table.values()):
        raise ValueError("a line of a batch can't be")
    return [Line(job, *table[job.match.id]) for job in jobs]


# People


def person_columns(person: Person) -> dict[str, Any]:
    """A person's row. Raises ValueError for one that can't be kept."""
    if not person.name.strip() or len(person.token) != 32:
        raise ValueError(f"a person can't be kept as {person.name!r}")
    state = PersonState(person.state).value
    return {**person._asdict(), "name": text(person.name), "state": state}


def person(row: Sequence[Any]) -> Person:
    """The person of a row. Raises ValueError for one that can't be."""
    person = Person(*row)
    return person._replace(state=PersonState(person.state))


def check_columns(check: Check) -> dict[str, Any]:
    """A check's row."""
    columns = check._asdict() | {"items": packed(check.items), "known": packed(check.known)}
    said = columns.pop("verdict")
    answer = verdict(said) if said else (None, None, None)
    return columns | dict(zip(("ranking", "ties", "score"), answer, strict=True))


def check(row: Sequence[Any], n: int) -> Check:
    """The check of a row, over n items. Raises ValueError or struct.error for one that can't be."""
    number, items, person, repeats, known, lease, ranking, ties, score, *times = row
    what = f"check {number}"
    asked = presented(what, items, n)
    true, said = (presented(what, order, n) if order else () for order in (known, ranking))
    if any(ranked and sorted(ranked) != sorted(asked) for ranked in (true, said)):
        raise ValueError(f"{what} ranks items that it isn't about")
    answer = Verdict(said, tuple(map(bool, ties or b"")), score) if said else None
    return Check(number, asked, person, repeats, true, lease, answer, *times)
