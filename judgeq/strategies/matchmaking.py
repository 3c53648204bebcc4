"""Who meets whom: random and similar-rating pairs and lists; and how often a run asked the same before.

"Similar" means a window of 10 % of the active items, in the order of their ratings (Haak and
Schaer, section on matchmaking). Everything works on positions in the sorted order.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from judgeq.types import Floats, Matches, Offsets, Rows

Matchmaking: TypeAlias = Literal["similar", "random"]

WINDOW = 0.1
SWAPS = 0.1
TRIES = 64
"""So many random tries find a free partner in all but nearly empty windows, which are searched."""


def order_by_rating(ratings: Floats, rows: Rows, rng: np.random.Generator) -> Rows:
    """`rows` sorted by their rating, lowest first, ties in random order; shape as `rows`."""
    shuffled = rng.permutation(rows)
    return shuffled[np.argsort(ratings[shuffled], kind="stable")]


def window(n: int) -> int:
    """How many positions away a similar item may be, among n active items (at least 1)."""
    return max(1, round(WINDOW * n))


def for_pairs(ratings: Floats, rows: Rows, how: Matchmaking, rng: np.random.Generator) -> Rows:
    """The `rows` in the order in which each two are a pair; an odd item is left out."""
    if how == "random":
        return rng.permutation(rows)[: len(rows) // 2 * 2]
    couples = similar_couples(len(rows), rng)
    return order_by_rating(ratings, rows, rng)[couples.reshape(-1)]


def similar_couples(n: int, rng: np.random.Generator) -> Offsets:
    """Positions 0..n−1 in couples, shape (n // 2, 2).

    Positions are visited in random order; each takes a random free partner within the window, else
    any free one.
    """
    reach, free = window(n), np.ones(n, np.bool_)
    couples: list[tuple[int, int]] = []
    for position in rng.permutation(n).tolist():
        if not free[position] or len(couples) == n // 2:
            continue
        free[position] = False
        low, high = max(0, position - reach), min(n, position + reach + 1)
        tries = rng.integers(low, high, TRIES)
        partners = tries[free[tries]]
        if not len(partners):
            partners = low + np.flatnonzero(free[low:high])
        if not len(partners):
            partners = np.flatnonzero(free)
        partner = int(partners[rng.integers(len(partners))])
        free[partner] = False
        couples.append((position, partner))
    return np.array(couples, dtype=np.int64).reshape(-1, 2)


def for_lists(ratings: Floats, rows: Rows, how: Matchmaking, rng: np.random.Generator) -> Rows:
    """The `rows` in the order in which a round's lists are cut from them.

    Similar: sorted by rating, then a tenth of the positions swap places within the window, one after
    the other, so that rounds don't repeat their lists.
    """
    if how == "random":
        return rng.permutation(rows)
    n = len(rows)
    ordered, reach = order_by_rating(ratings, rows, rng), window(n)
    chosen = rng.choice(n, size=round(SWAPS * n), replace=False)
    others = np.clip(chosen + rng.integers(-reach, reach + 1, size=len(chosen)), 0, n - 1)
    for swapped in np.stack([chosen, others], axis=1):
        ordered[swapped] = ordered[swapped[::-1]]
    return ordered


class Repeats:
    """Numbers the questions of a run, round by round: 0 for one about these items in this order to
    this judge that wasn't asked before, 1 for the second of its kind, and so on. So the reply cache
    gives one answer to a question that two runs have in common, and not one answer to a question that
    one run asks ten times to learn how sure its judge is.

    Questions are known by 64 bits of a hash: 12 million of them are mistaken for one another with a
    chance of 4 in a million, and then one is asked that the cache could have answered.
    """

    def __init__(self) -> None:
        self.rounds = 0
        self._asked: dict[int, int] = {}

    def add(self, matches: Matches) -> Rows:
        """The numbers of the next round's questions, shape (matches,)."""
        self.rounds += 1
        numbers = []
        for judge, items in zip(matches.judges.tolist(), matches, strict=True):
            question = hash((judge, items.tobytes()))
            numbers.append(self._asked.get(question, 0))
            self._asked[question] = numbers[-1] + 1
        return np.array(numbers, np.int32)
