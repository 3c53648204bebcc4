"""Verdicts read back from the rows of a store, and checked: a run's file may be anybody's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from judgeq.store.protocol import Columns
from judgeq.store.rows import MANY, UNKNOWN, unpacked
from judgeq.types import Bools, Offsets, Rows, Verdicts


def columns(rows: Sequence[Sequence[Any]]) -> Columns:
    """The columns of rows (job, ranking, ties, score, the match's items, its judge, whether their order
    is known). Raises ValueError for a judge that can't be."""
    if not all(type(number) is int and 0 <= number < MANY for number in {row[5] for row in rows}):
        raise ValueError("a judge's number can't be")
    ties = b"".join(row[2] or bytes(len(row[1]) // 4) for row in rows)
    return Columns(
        jobs=np.array([row[0] for row in rows], dtype=np.int64),
        ranked=unpacked(b"".join(row[1] for row in rows)),
        lengths=np.array([len(row[1]) // 4 for row in rows], dtype=np.int64),
        asked=unpacked(b"".join(row[4] for row in rows)),
        asked_of=np.array([len(row[4]) // 4 for row in rows], dtype=np.int64),
        ties=np.frombuffer(ties, dtype=np.uint8),
        scores=np.array([np.nan if row[3] is None else row[3] for row in rows], dtype=np.float64),
        judges=np.array([row[5] for row in rows], dtype=np.int32),
        ordered=np.array([row[6] != 0 for row in rows], dtype=np.bool_),
    )


def assembled(columns: Columns, n: int) -> Verdicts:
    """The verdicts, over n items.

    Raises ValueError unless each ranks exactly the items of its match, or scores its one item.
    """
    lengths, scores = columns.lengths, columns.scores
    if not np.array_equal(lengths, columns.asked_of):
        raise ValueError("a verdict's length is not that of its match")
    if len(columns.judges) and int(columns.judges.min()) < 0:
        raise ValueError("a judge's number can't be")
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    _check(columns.ranked, columns.asked, offsets, columns.ties, n)
    partial = _partial(columns.ties, offsets)
    # A list of one without a score says nothing; there are some in published recordings.
    scored = ~np.isnan(scores)
    if (scored & (lengths != 1)).any() or ((scores < 0) | (scores > 1)).any():
        raise ValueError("a score can't be")
    return Verdicts(
        matches=columns.jobs,
        items=columns.ranked,
        offsets=offsets,
        tied=columns.ties != 0,
        presented=columns.asked,
        scores=scores if scored.any() else None,
        judges=columns.judges if columns.judges.any() else None,
        ordered=None if columns.ordered.all() else columns.ordered,
        partial=partial if partial.any() else None,
    )


def _check(ranked: Rows, asked: Rows, offsets: Offsets, ties: NDArray[np.uint8], n: int) -> None:
    lengths = np.diff(offsets)
    which = np.repeat(np.arange(len(lengths)) << 32, lengths)
    if not np.array_equal(np.sort(which + ranked), np.sort(which + asked)):
        raise ValueError("a verdict doesn't rank the items of its match")
    if len(ties) != len(ranked) or (lengths < 1).any() or ties[offsets[:-1]].any():
        raise ValueError("a verdict's ties can't be")
    if len(ranked) and not 0 <= int(ranked.min()) <= int(ranked.max()) < n:
        raise ValueError("a verdict ranks an item that isn't there")


def _partial(ties: NDArray[np.uint8], offsets: Offsets) -> Bools:
    """Which verdicts are partial rankings: they have one group of items whose order isn't known, some
    beside it, and no ties. Raises ValueError for what can't be."""
    if ties.max(initial=0) < UNKNOWN:
        return np.zeros(len(offsets) - 1, dtype=np.bool_)
    unknown = ties == UNKNOWN
    begins = unknown.copy()
    begins[1:] &= ~unknown[:-1]  # never a verdict's first slot: groups of two verdicts don't touch
    groups, of_group, tied = (
        np.add.reduceat(column, offsets[:-1], dtype=np.int64)
        for column in (begins, unknown, ties != 0)
    )
    if (
        ties.max() > UNKNOWN
        or (groups > 1).any()
        or ((groups > 0) & ((tied > of_group) | (of_group + 1 == np.diff(offsets)))).any()
    ):
        raise ValueError("a verdict's partial ranking can't be")
    partial: Bools = groups > 0
    return partial
