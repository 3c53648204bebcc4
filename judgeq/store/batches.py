"""How batches stand in the rows of a store.

What a provider says of a batch is kept as far as it can be: it must not be what loses a batch. What is
read back may be anybody's: what can't have been written by us raises ValueError or TypeError.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from judgeq.store import rows
from judgeq.store.statements import NEVER
from judgeq.types import Batch, BatchState, Job, Line

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LINE = np.dtype([("job", "<i8"), ("bound", "<f8"), ("size", "<i4")])
_UNBOUNDED = -1.0
_MANY = 2**31
_LATEST = 1e11  # seconds since the epoch
_COUNTED = ("total", "done", "failed")  # by the provider


def without(batch: Batch, lines: Sequence[Line], gone: Collection[int]) -> Batch:
    """The batch without the jobs that are gone. Raises ValueError for a name that can't be."""
    if not _NAME.fullmatch(batch.name):
        raise ValueError(f"a batch can't be named {batch.name!r}")
    if not gone:
        return batch
    bounds = [line.bound for line in lines if line.job.match.id not in gone]
    known = [bound for bound in bounds if bound is not None]
    reserved = math.fsum(known) if len(known) == len(bounds) else None
    return batch._replace(jobs=len(bounds), reserved=reserved)


def columns(batch: Batch) -> dict[str, Any]:
    """The fields of a batch that a store keeps: all but `left` and `at_risk`."""
    expires = batch.expires
    return {
        **batch._asdict(),
        "state": BatchState(batch.state).value,
        "remote": rows.text(batch.remote),
        "status": rows.text(batch.status),
        "error": rows.text(batch.error),
        **{name: min(max(0, getattr(batch, name)), _MANY - 1) for name in _COUNTED},
        "expires": expires if expires is not None and 0 <= expires < _LATEST else None,
    }


def read(row: Sequence[Any]) -> Batch:
    """The batch of a row of statements.BATCHES. Raises ValueError or TypeError for one that can't be."""
    *kept, first, last, until, left, at_risk, unbounded, lowest, highest = row
    batch = Batch(*kept)
    if until != NEVER or not _NAME.fullmatch(batch.name):
        raise ValueError("a batch has no worker, or one that may die, or a name that can't be")
    counts = (batch.judge, batch.jobs, batch.total, batch.done, batch.failed, batch.answered)
    times = (batch.made, batch.seen or 0.0, batch.expires or 0.0)
    amounts = (batch.reserved or 0.0, batch.tokens, batch.cost)
    if not (
        all(type(count) is int and 0 <= count < _MANY for count in counts)
        and all(0 <= time < _LATEST for time in times)
        and all(0 <= amount < math.inf for amount in amounts)
    ):
        raise ValueError(f"the batch {batch.name} has a number that can't be")
    if left and not _ends(first)[0] <= lowest <= highest <= _ends(last)[1]:
        raise ValueError(f"the batch {batch.name} has a job that it wasn't given")
    return batch._replace(
        state=BatchState(batch.state), left=left, at_risk=None if unbounded else at_risk / 1e9
    )


def packed(lines: Sequence[Line], gone: Collection[int] = ()) -> bytes:
    """The lines of a batch, by job: its number (int64), its bound in dollars (float64; -1: none) and its
    size (int32), little-endian. Those of the jobs that are gone are left out."""
    kept = sorted((line for line in lines if line.job.match.id not in gone), key=_number)
    table = np.empty(len(kept), _LINE)
    table["job"] = [_number(line) for line in kept]
    table["bound"] = [_UNBOUNDED if line.bound is None else line.bound for line in kept]
    table["size"] = [line.size for line in kept]
    return table.tobytes()


def _number(line: Line) -> int:
    return line.job.match.id


def _ends(sent: bytes) -> tuple[int, int]:
    """The lowest and the highest number of the jobs in packed lines; (0, -1) without any."""
    if len(sent) % _LINE.itemsize:
        raise ValueError("the lines of a batch are cut off")
    if not sent:
        return 0, -1
    ends = np.frombuffer(sent, _LINE)["job"][[0, -1]]
    return int(ends[0]), int(ends[1])


def lines(sent: bytes, jobs: Sequence[Job]) -> list[Line]:
    """The lines of these jobs. Raises ValueError where they aren't there, or can't be."""
    _ends(sent)  # whole
    table = np.frombuffer(sent, _LINE)
    bounds, sizes = table["bound"], table["size"]
    if not np.isfinite(bounds).all() or ((bounds < 0) & (bounds != _UNBOUNDED)).any():
        raise ValueError("a line of a batch has a bound that can't be")
    if (np.diff(table["job"]) <= 0).any() or (sizes < 0).any():
        raise ValueError("the lines of a batch can't be")
    numbers = np.array([job.match.id for job in jobs], dtype=np.int64)
    places = np.searchsorted(table["job"], numbers)
    if len(numbers) and (
        places.max() == len(table) or not np.array_equal(table["job"][places], numbers)
    ):
        raise ValueError("a batch has a job that it wasn't given")
    return [
        Line(job, None if bound == _UNBOUNDED else bound, size)
        for job, bound, size in zip(
            jobs, bounds[places].tolist(), sizes[places].tolist(), strict=True
        )
    ]
