"""How verdicts and questions stand in the rows of a store, and how many are read back and checked at
once: a run's file may be anybody's."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from judgeq.types import Bools, Matches, Offsets, Rows, Verdict, Verdicts

UNKNOWN = 2
"""Of `ties`: the order of this item and the one before isn't known (a partial ranking); 1 is a tie."""


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


def of_rows(rows: Sequence[Sequence[Any]], n: int) -> Verdicts:
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
    partial = _partial(tied, offsets)
    score = np.asarray(scores, dtype=np.float64)  # a list of one without says nothing
    by, known = np.asarray(judges, dtype=np.int32), np.asarray(ordered, dtype=np.bool_)
    return Verdicts(
        matches=np.asarray(jobs, dtype=np.int64),
        items=ranked,
        offsets=offsets,
        tied=tied != 0,
        presented=asked,
        scores=None if np.isnan(score).all() else score,
        judges=by if by.any() else None,
        ordered=None if known.all() else known,
        partial=partial if partial.any() else None,
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
