"""Pairs: each round every item meets one other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from judgeq.strategies import matchmaking
from judgeq.types import Matches, Rows, Standings


@dataclass(frozen=True, slots=True)
class Pairwise:
    """`rounds` rounds of n // 2 pairs."""

    rounds: int = 24
    matchmaking: matchmaking.Matchmaking = "similar"

    kind: ClassVar[str] = "pairwise"
    least_items: ClassVar[int] = 2

    @property
    def name(self) -> str:
        """The strategy as one writes it; settings that have only a flag are left out."""
        return self.kind if self.rounds == 24 else f"{self.kind}{self.rounds}"

    def next_round(self, standings: Standings, rng: np.random.Generator) -> Matches:
        """The next round's pairs over the active items."""
        rows: Rows = np.flatnonzero(standings.active).astype(np.int32)
        return matchmaking.pairs(standings.elo, rows, self.matchmaking, rng)

    def calls(self, n: int) -> int:
        """Questions asked over n items in all rounds."""
        return self.rounds * (n // 2)

    def cost(self, n: int) -> float:
        """Cost-equivalent calls over n items in all rounds: 1 a pair."""
        return float(self.calls(n))
