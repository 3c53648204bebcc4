"""Lists: each round every item is ranked within a list of k. Each item alone: direct scores, the paper's
baseline; and the hybrid, in which lists follow."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from judgeq.errors import UsageError
from judgeq.strategies import matchmaking
from judgeq.strategies.strategy import History, Strategy
from judgeq.types import Matches, Rows

MOST_IMPLIED = 100_000_000
"""Comparisons that a round may imply: about as many as fit into a few gigabytes."""


@dataclass(frozen=True, slots=True)
class Listwise(Strategy):
    """`rounds` rounds of lists of `k`; consecutive lists of a round share `overlap` items. They are
    drawn at random: similar items in a list rank no better at equal cost (docs/methods.md), and
    leave it open how wide the scale is."""

    k: int = 10
    rounds: int = 3
    overlap: int = 0
    matchmaking: matchmaking.Matchmaking = "random"

    kind = "listwise"
    short = ("k", "rounds")
    named = ("k",)
    usage = "listwise<k>[x<rounds>]"
    summary = "Lists of k (10) are ranked, in 3 rounds."
    when = (
        "The best ranking for the money: choose it first. Lists of 20 rank better still (ρ +0.01 for as "
        "many texts read), if a pilot shows that the judge can order 20."
    )
    pairs = False

    def __post_init__(self) -> None:
        if self.overlap >= self.k:
            raise UsageError(
                f"--strategy {self.name}: consecutive lists of {self.k} can share 0 to {self.k - 1} "
                "items."
            )

    def check(self, *sizes: int) -> None:
        """Raise UsageError when items in groups of these sizes can't be judged so: a list can't be
        larger than the largest."""
        if (n := max(sizes)) < self.k:
            where = "the dataset" if len(sizes) == 1 else "any group, the largest of"
            raise UsageError(
                f"--strategy {self.name}: a list of {self.k} is larger than {where}, which has "
                f"{n} items: give {self.kind}{n} or smaller."
            )
        lists, _ = self.asked(1, *sizes)
        implied = lists * (self.k * (self.k - 1) // 2)
        if implied > MOST_IMPLIED:
            raise UsageError(
                f"--strategy {self.name}: a round of {lists:,} lists of {self.k:,} implies {implied:,} "
                f"comparisons, more than {MOST_IMPLIED:,}, which could not be rated. Give shorter "
                "lists, or less overlap."
            )

    def next_round(self, history: History, rng: np.random.Generator) -> Matches:
        """The next round's lists over the active items."""
        elo, how = history.standings.elo, self.matchmaking

        def plan(rows: Rows) -> Matches:
            k, ordered = min(self.k, len(rows)), matchmaking.for_lists(elo, rows, how, rng)
            return cut(ordered, k, min(self.overlap, k - 1), rng)

        return history.in_groups(plan)

    def asked(self, round: int, *sizes: int) -> tuple[int, int]:
        """The lists of a round, and the items in them."""
        lists = slots = 0
        for n in sizes:
            k = min(self.k, n)
            if n > 1:
                more = lists_of(n, k, min(self.overlap, k - 1))
                lists, slots = lists + more[0], slots + more[1]
        return lists, slots


@dataclass(frozen=True, slots=True)
class Direct(Strategy):
    """One round, in which each item is scored alone, 0 to 1."""

    kind = "direct"
    usage = "direct"
    summary = "Each text is scored alone, 0 to 1."
    when = "The baseline: one short call an item, and usually the coarsest ranking."
    pairs = False

    def check(self, *sizes: int) -> None:
        """Raise UsageError when there is nothing to judge."""
        if not sum(sizes):
            raise UsageError(f"--strategy {self.name}: there are no items.")

    def next_round(self, history: History, rng: np.random.Generator) -> Matches:
        """Each item by itself, in the order of the rows."""
        rows = history.rows
        return Matches(items=rows, offsets=np.arange(len(rows) + 1, dtype=np.int64))

    def asked(self, round: int, *sizes: int) -> tuple[int, int]:
        """A question an item."""
        return sum(sizes), sum(sizes)


@dataclass(frozen=True, slots=True)
class Hybrid(Listwise):
    """`rounds` rounds: in the first each item is scored alone, 0 to 1, in the others lists of `k` are
    ranked, which Elo makes up, started from the scores. So many items, drawn at random, are scored twice
    (`repeat`), so that the reliability of the scores is known."""

    repeat: int = 0

    kind = "hybrid"
    usage = "hybrid<k>[x<rounds>][:repeat=100]"
    summary = (
        "Each text is scored alone, 0 to 1, then lists of k (10) are ranked; in 3 rounds with the "
        "first, and both make one rating. `repeat` texts are scored twice: how reliable scores are "
        "decides what lists add."
    )
    when = (
        "Where the judge scores single texts well: with two rounds of lists it beat either alone on "
        "published judgments."
    )
    mixed = True

    def check(self, *sizes: int) -> None:
        """Raise UsageError when items in groups of these sizes can't be judged so."""
        if self.rounds < 2:
            raise UsageError(
                f"--strategy {self.name}: a hybrid has 2 rounds or more, one of texts alone and then "
                "lists."
            )
        if self.repeat > (n := sum(sizes)):
            raise UsageError(
                f"--strategy {self.name}: the dataset has {n} items, of which {self.repeat} can't be "
                "scored twice. Leave repeat out."
            )
        Listwise.check(self, *sizes)

    def next_round(self, history: History, rng: np.random.Generator) -> Matches:
        """Each item by itself, then some of them again; then lists over all."""
        if history.verdicts:
            return Listwise.next_round(self, history, rng)
        again = rng.permutation(history.rows)[: self.repeat]
        rows = np.concatenate([history.rows, again])
        return Matches(items=rows, offsets=np.arange(len(rows) + 1, dtype=np.int64))

    def later(self, history: History, rng: np.random.Generator) -> Matches:
        """Lists over all, before anything is known of them."""
        return Listwise.next_round(self, history, rng)

    def asked(self, round: int, *sizes: int) -> tuple[int, int]:
        """The questions of a round, and the items in them."""
        alone = sum(sizes) + self.repeat
        return (alone, alone) if round == 1 else Listwise.asked(self, round, *sizes)


# Lists, also overlapping ones


def lists_of(n: int, k: int, overlap: int = 0) -> tuple[int, int]:
    """How many lists a round has, and how many items all of them together: as few lists as will do, of
    at most k, consecutive ones sharing `overlap` items, none of one item.

    Raises ValueError unless 2 ≤ k ≤ n and 0 ≤ overlap < k.
    """
    if not (2 <= k <= n and 0 <= overlap < k):
        raise ValueError(f"no lists of {k} with overlap {overlap} over {n} items")
    count = math.ceil((n - overlap) / (k - overlap))
    slots = n + overlap * (count - 1)
    return (n // 2 if slots // count < 2 else count), slots


def cut(ordered: Rows, k: int, overlap: int, rng: np.random.Generator) -> Matches:
    """Lists of at most k of these items, which stand in this order, with sizes that differ by at most
    one; those of 2 over an odd number can't be had without a single item: there the first has 3.
    The order within each list is random. Raises as `lists_of`."""
    count, slots = lists_of(len(ordered), k, overlap)
    size, longer = divmod(slots, count)
    sizes = size + (np.arange(count) < longer)
    number = np.repeat(np.arange(count), sizes)
    # Each list begins `overlap` positions before the end of the one before.
    items = ordered[np.arange(slots) - number * overlap]
    presented = np.lexsort((rng.random(slots), number))
    return Matches(items[presented].astype(np.int32), np.append(0, np.cumsum(sizes)))
