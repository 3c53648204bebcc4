"""How verdicts and questions stand in the rows of a store, and how many are read back and checked at
once: a run's file may be anybody's."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from judgeq.types import Bools, Floats, Matches, Offsets, Rows, Verdict, Verdicts

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
    """The questions of rows (items, judge). Raises ValueError where one is cut off."""
    _, offsets = _offsets([len(items) for items, _ in rows])
    judges = np.array([judge for _, judge in rows], dtype=np.int32)
    return Matches(unpacked(b"".join(items for items, _ in rows)), offsets, judges)


def _offsets(sizes: Sequence[int] | Offsets) -> tuple[Offsets, Offsets]:
    """How many items there are in each of so many bytes, and where they begin and end. Raises ValueError
    where one is cut off."""
    bytes_of = np.asarray(sizes, dtype=np.int64)
    if (bytes_of % 4).any():
        raise ValueError("the items of a question or a verdict are cut off")
    offsets = np.zeros(len(bytes_of) + 1, dtype=np.int64)
    np.cumsum(bytes_of // 4, out=offsets[1:])
    return bytes_of // 4, offsets


def of_rows(rows: Sequence[Sequence[Any]], n: int) -> Verdicts:
    """The verdicts, over n items, of rows (job, ranking, ties, score, the match's items, its judge,
    whether their order is known). Raises as `assembled`."""
    return assembled(
        n,
        np.array([row[0] for row in rows], dtype=np.int64),
        unpacked(b"".join(row[1] for row in rows)),
        [len(row[1]) for row in rows],
        unpacked(b"".join(row[4] for row in rows)),
        [len(row[4]) for row in rows],
        np.frombuffer(b"".join(row[2] or bytes(len(row[1]) // 4) for row in rows), np.uint8),
        np.array([np.nan if row[3] is None else row[3] for row in rows], dtype=np.float64),
        np.array([row[5] for row in rows], dtype=np.int32),
        np.array([row[6] != 0 for row in rows], dtype=np.bool_),
    )


def assembled(
    n: int,
    jobs: Offsets,
    ranked: Rows,
    ranked_bytes: Sequence[int] | Offsets,
    asked: Rows,
    asked_bytes: Sequence[int] | Offsets,
    ties: NDArray[np.uint8],
    scores: Floats,  # nan where there is none
    judges: Rows,
    ordered: Bools,
) -> Verdicts:
    """The verdicts of columns as they stand in a store, over n items.

    Raises ValueError unless each ranks exactly the items of its match, or scores its one item.
    """
    lengths, offsets = _offsets(ranked_bytes)
    if not np.array_equal(lengths, _offsets(asked_bytes)[0]):
        raise ValueError("a verdict's length is not that of its match")
    if judges.min(initial=0) < 0:
        raise ValueError("a judge's number can't be")
    _check(ranked, asked, offsets, ties, n)
    partial = _partial(ties, offsets)
    # A list of one without a score says nothing; there are some in published recordings.
    scored = ~np.isnan(scores)
    if (scored & (lengths != 1)).any() or ((scores < 0) | (scores > 1)).any():
        raise ValueError("a score can't be")
    return Verdicts(
        matches=jobs,
        items=ranked,
        offsets=offsets,
        tied=ties != 0,
        presented=asked,
        scores=scores if scored.any() else None,
        judges=judges if judges.any() else None,
        ordered=None if ordered.all() else ordered,
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
