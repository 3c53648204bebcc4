"""Who meets whom: random and similar-rating pairs and lists.

"Similar" means a window of 10 % of the active items, in the order of their ratings (Haak and
Schaer, section on matchmaking). Everything works on positions in the sorted order and runs in
O(n log n).
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import numpy as np

from judgeq.types import Floats, Matches, Offsets, Rows

Matchmaking: TypeAlias = Literal["similar", "random"]

WINDOW = 0.1
SWAPS = 0.1
# So many random tries find a free partner in all but nearly empty windows; then we enumerate.
TRIES = 256


def order_by_rating(ratings: Floats, rows: Rows, rng: np.random.Generator) -> Rows:
    """`rows` sorted by their rating, lowest first, ties in random order; shape as `rows`."""
    shuffled = rng.permutation(rows)
    return shuffled[np.argsort(ratings[shuffled], kind="stable")]


def window(n: int) -> int:
    """How many positions away a similar item may be, among n active items (at least 1)."""
    return max(1, round(WINDOW * n))


def pairs(ratings: Floats, rows: Rows, how: Matchmaking, rng: np.random.Generator) -> Matches:
    """One round of pairs over the active `rows`, each in one pair; an odd item sits out.

    Which of the two is presented first is random.
    """
    if how == "random":
        shuffled = rng.permutation(rows)
        couples = shuffled[: len(rows) // 2 * 2].reshape(-1, 2)
    else:
        ordered = order_by_rating(ratings, rows, rng)
        couples = ordered[similar_couples(len(rows), rng)]
        couples = rng.permuted(couples, axis=1)
    return Matches(
        items=np.ascontiguousarray(couples, dtype=np.int32).reshape(-1),
        offsets=np.arange(len(couples) + 1, dtype=np.int64) * 2,
    )


def similar_couples(n: int, rng: np.random.Generator) -> Offsets:
    """Positions 0..n−1 in couples, shape (n // 2, 2).

    Positions are visited in random order; each takes a random free partner within the window, else
    any free one. A try at random is uniform over the free positions it accepts; since free ones
    thin out as 1/f, all tries together cost O(n log n).
    """
    reach = window(n)
    free = _Free(n)
    draws = _Uniforms(rng)
    couples: list[tuple[int, int]] = []
    for position in rng.permutation(n).tolist():
        if not free.has(position):
            continue
        free.take(position)
        if not free.count:
            break
        low, high = max(0, position - reach), min(n - 1, position + reach)
        partner = free.within(low, high, draws)
        if partner is None:
            partner = free.any(draws)
        free.take(partner)
        couples.append((position, partner))
    return np.array(couples, dtype=np.int64).reshape(-1, 2)


class _Uniforms:
    """Uniform integers one at a time, drawn in blocks."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._block: list[float] = []

    def below(self, n: int) -> int:
        if not self._block:
            self._block = self._rng.random(4096).tolist()
        return int(self._block.pop() * n)


class _Free:
    """The free positions: membership, a random one overall, a random one within a window."""

    def __init__(self, n: int) -> None:
        self._places = list(range(n))  # free positions in no order
        self._index = list(range(n))  # where a position stands in _places, or −1
        self._next = list(range(n + 1))  # union-find towards the next free position
        self.count = n

    def has(self, position: int) -> bool:
        return self._index[position] >= 0

    def take(self, position: int) -> None:
        index, last = self._index[position], self._places[-1]
        self._places[index] = last
        self._index[last] = index
        self._places.pop()
        self._index[position] = -1
        self._next[position] = position + 1
        self.count -= 1

    def any(self, draws: _Uniforms) -> int:
        return self._places[draws.below(self.count)]

    def next_from(self, position: int) -> int:
        """The first free position at or after `position`; n if there is none."""
        root = position
        while self._next[root] != root:
            root = self._next[root]
        while self._next[position] != root and position != root:
            self._next[position], position = root, self._next[position]
        return root

    def within(self, low: int, high: int, draws: _Uniforms) -> int | None:
        first = self.next_from(low)
        if first > high:
            return None
        span = high - low + 1
        for _ in range(TRIES):
            position = low + draws.below(span)
            if self._index[position] >= 0:
                return position
        free = []
        while first <= high:
            free.append(first)
            first = self.next_from(first + 1)
        return free[draws.below(len(free))]


def list_sizes(n: int, k: int, overlap: int = 0) -> Offsets:
    """The sizes of one round's lists: as many as needed, differing by at most one, never 1.

    n items in lists of at most k, consecutive ones sharing `overlap`. Only lists of 2 over an odd
    n can't be had without a single item: there the first list has 3.
    Raises ValueError unless 2 ≤ k ≤ n and 0 ≤ overlap < k.
    """
    count, slots = lists_of(n, k, overlap)
    size, longer = divmod(slots, count)
    sizes = np.full(count, size, dtype=np.int64)
    sizes[:longer] += 1
    return sizes


def lists_of(n: int, k: int, overlap: int = 0) -> tuple[int, int]:
    """How many lists a round has, and how many items all of them together. Raises as `list_sizes`."""
    if not (2 <= k <= n and 0 <= overlap < k):
        raise ValueError(f"no lists of {k} with overlap {overlap} over {n} items")
    count = math.ceil((n - overlap) / (k - overlap))
    slots = n + overlap * (count - 1)
    return (n // 2 if slots // count < 2 else count), slots


def lists(
    ratings: Floats, rows: Rows, k: int, overlap: int, how: Matchmaking, rng: np.random.Generator
) -> Matches:
    """One round of lists over the active `rows`, each in at least one list.

    Similar: sorted by rating, then a tenth of the positions swap places within the window, so that
    rounds don't repeat their lists; then cut. The order within each list is random.
    """
    n = len(rows)
    if how == "random":
        ordered = rng.permutation(rows)
    else:
        ordered = order_by_rating(ratings, rows, rng)
        _swap_some(ordered, rng)
    k = min(k, n)
    return cut(ordered, k, min(overlap, k - 1), rng)


def cut(ordered: Rows, k: int, overlap: int, rng: np.random.Generator) -> Matches:
    """Lists of at most k of these items, which stand in this order, in sizes as `list_sizes` makes them;
    the order within each list is random."""
    sizes = list_sizes(len(ordered), k, overlap)
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    # List m begins `overlap` positions before the end of list m − 1.
    back = np.repeat(np.arange(len(sizes)) * overlap, sizes)
    items = ordered[np.arange(offsets[-1]) - back]
    presented = np.lexsort((rng.random(len(items)), np.repeat(np.arange(len(sizes)), sizes)))
    return Matches(items=items[presented].astype(np.int32, copy=False), offsets=offsets)


def _swap_some(ordered: Rows, rng: np.random.Generator) -> None:
    """Swap 10 % of the positions with one within the window, in place, one after the other."""
    n = len(ordered)
    reach = window(n)
    chosen = rng.choice(n, size=round(SWAPS * n), replace=False)
    others = np.clip(chosen + rng.integers(-reach, reach + 1, size=len(chosen)), 0, n - 1)
    for a, b in zip(chosen.tolist(), others.tolist(), strict=True):
        ordered[a], ordered[b] = ordered[b], ordered[a]
