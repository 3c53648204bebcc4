"""Lists: each round every item is ranked within a list of k."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from judgeq.errors import UsageError
from judgeq.strategies import matchmaking
from judgeq.strategies.strategy import History, Strategy
from judgeq.types import Matches

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
        how = self.k, self.overlap, self.matchmaking, rng
        elo = history.standings.elo
        return history.in_groups(lambda rows: matchmaking.lists(elo, rows, *how))

    def asked(self, round: int, *sizes: int) -> tuple[int, int]:
        """The lists of a round, and the items in them."""
        lists = slots = 0
        for n in sizes:
            k = min(self.k, n)
            if n > 1:
                more = matchmaking.lists_of(n, k, min(self.overlap, k - 1))
                lists, slots = lists + more[0], slots + more[1]
        return lists, slots
