"""Lists: each round every item is ranked within a list of k."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from judgeq.errors import UsageError
from judgeq.strategies import matchmaking
from judgeq.strategies.strategy import History, Strategy
from judgeq.types import Matches

MOST_IMPLIED = 100_000_000
"""Comparisons that a round may imply: about as many as fit into a few gigabytes."""


@dataclass(frozen=True, slots=True)
class Listwise(Strategy):
    """`rounds` rounds of lists of `k`; consecutive lists of a round share `overlap` items."""

    k: int = 10
    rounds: int = 3
    overlap: int = 0
    matchmaking: matchmaking.Matchmaking = "similar"

    kind: ClassVar[str] = "listwise"

    @property
    def name(self) -> str:
        """The strategy as one writes it, without its matchmaking."""
        rounds = "" if self.rounds == 3 else f"x{self.rounds}"
        overlap = f":overlap={self.overlap}" if self.overlap else ""
        return f"{self.kind}{self.k}{rounds}{overlap}"

    @property
    def adaptive(self) -> bool:
        """Whether earlier answers decide what is asked later: all start with the same rating."""
        return self.matchmaking == "similar" and self.rounds > 1

    @property
    def pairs(self) -> bool:
        """Whether it asks about pairs."""
        return False

    def check(self, n: int) -> None:
        """Raise UsageError when n items can't be judged so: a list can't be larger than they are."""
        if n < self.k:
            raise UsageError(
                f"--strategy {self.name}: a list of {self.k} is larger than the dataset, which has "
                f"{n} items: give {self.kind}{n} or smaller."
            )
        check_implied(self.name, n, self.k, self.overlap)

    def next_round(self, history: History, rng: np.random.Generator) -> Matches:
        """The next round's lists over the active items."""
        elo, rows = history.standings.elo, history.rows
        if len(rows) < 2:
            return Matches.none()
        return matchmaking.lists(elo, rows, self.k, self.overlap, self.matchmaking, rng)

    def calls_of(self, round: int, n: int) -> int:
        """Questions of a round over n active items."""
        k = min(self.k, n)
        return len(matchmaking.list_sizes(n, k, min(self.overlap, k - 1))) if n > 1 else 0

    def calls(self, n: int) -> int:
        """Questions asked over n items in all rounds."""
        return self.rounds * len(matchmaking.list_sizes(n, self.k, self.overlap))

    def cost(self, n: int) -> float:
        """Cost-equivalent calls over n items in all rounds: k/2 a list of k."""
        return self.rounds * float(matchmaking.list_sizes(n, self.k, self.overlap).sum()) / 2


def check_implied(name: str, n: int, k: int, overlap: int = 0) -> None:
    """Raise UsageError where a round of lists of k over n items implies more comparisons than can be
    rated; `name` is the strategy's."""
    lists = -(-(n - overlap) // (k - overlap))  # as list_sizes, which would take memory for each
    implied = lists * (k * (k - 1) // 2)
    if implied > MOST_IMPLIED:
        raise UsageError(
            f"--strategy {name}: a round of {lists:,} lists of {k:,} implies {implied:,} comparisons, "
            f"more than {MOST_IMPLIED:,}, which could not be rated. Give shorter lists, or less overlap."
        )
