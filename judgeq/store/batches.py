"""How batches stand in the rows of a store.

What a provider says of a batch is kept as far as it can be: it must not be what loses a batch. What is
read back may be anybody's: what can't have been written by us raises ValueError or TypeError.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import orjson

from judgeq.store.rows import MANY, check_range, text
from judgeq.store.statements import NEVER
from judgeq.types import Batch, BatchState, Job, Line

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LATEST = 1e11  # seconds since the epoch


def of_lines(batch: Batch, lines: Sequence[Line]) -> Batch:
    """The batch with these lines alone."""
    bounds = [line.bound for line in lines if line.bound is not None]
    reserved = math.fsum(bounds) if len(bounds) == len(lines) else None
    return batch._replace(jobs=len(lines), reserved=reserved)


def columns(batch: Batch) -> dict[str, Any]:
    """The fields of a batch that a store keeps: all but `left` and `at_risk`. Raises ValueError for a
    name that can't be."""
    if not _NAME.fullmatch(batch.name):
        raise ValueError(f"a batch can't be named {batch.name!r}")
    kept = batch._asdict() | {"state": BatchState(batch.state).value}
    for name in ("remote", "status", "error"):
        kept[name] = text(kept[name])
    for name in ("total", "done", "failed"):  # as the provider counts
        kept[name] = min(max(0, kept[name]), MANY - 1)
    if batch.expires is not None and not 0 <= batch.expires < _LATEST:
        kept["expires"] = None
    return kept


def read(row: Sequence[Any]) -> Batch:
    """The batch of a row of statements.BATCHES. Raises ValueError or TypeError for one that can't be."""
    *kept, until, left, at_risk, unbounded = row
    batch = Batch(*kept)
    if until != NEVER or not _NAME.fullmatch(batch.name):
        raise ValueError("a batch has no worker, or one that may die, or a name that can't be")
    what = f"the batch {batch.name}"
    check_range(
        what, batch.judge, batch.jobs, batch.total, batch.done, batch.failed, batch.answered
    )
    check_range(what, batch.made, batch.seen, batch.expires, below=_LATEST)
    check_range(what, batch.reserved, batch.tokens, batch.cost, below=math.inf)
    risk = None if unbounded else at_risk / 1e9
    return batch._replace(state=BatchState(batch.state), left=left, at_risk=risk)


def packed(lines: Sequence[Line]) -> bytes:
    """The lines of a batch: of each its job, its bound in dollars (None: none) and its size."""
    return orjson.dumps([(line.job.match.id, line.bound, line.size) for line in lines])


def lines(sent: bytes, jobs: Sequence[Job]) -> list[Line]:
    """The lines of these jobs. Raises ValueError or TypeError where they aren't there, or can't be."""
    table = {job: (bound, size) for job, bound, size in orjson.loads(sent)}
    if missing := [job.match.id for job in jobs if job.match.id not in table]:
        raise ValueError(f"a batch has job {missing[0]}, which it wasn't given")
    for bound, size in table.values():
        check_range("a line of a batch", bound, size, below=math.inf)
    return [Line(job, *table[job.match.id]) for job in jobs]
