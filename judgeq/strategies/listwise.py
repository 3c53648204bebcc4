"""Lists: each round every item is ranked within a list of k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from judgeq.errors import UsageError
from judgeq.strategies import matchmaking
from judgeq.types import Bools, Matches, Rows, Standings, Verdicts


@dataclass(frozen=True, slots=True)
class Listwise:
    """`rounds` rounds of lists of `k`; consecutive lists of a round share `overlap` items."""

    k: int = 10
    rounds: int = 3
    overlap: int = 0
    matchmaking: matchmaking.Matchmaking = "similar"

    kind: ClassVar[str] = "listwise"
    prunes: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """The strategy as one writes it; settings that have only a flag are left out."""
        return f"{self.kind}{self.k}" + ("" if self.rounds == 3 else f"x{self.rounds}")

    def check(self, n: int) -> None:
        """Raise UsageError when n items can't be judged so: a list can't be larger than they are."""
        if n < self.k:
            raise UsageError(
                f"--strategy {self.name}: a list of {self.k} is larger than the dataset, which has "
                f"{n} items: give listwise{n} or smaller."
            )

    def next_round(self, standings: Standings, rng: np.random.Generator) -> Matches:
        """The next round's lists over the active items."""
        rows: Rows = np.flatnonzero(standings.active).astype(np.int32)
        return matchmaking.lists(standings.elo, rows, self.k, self.overlap, self.matchmaking, rng)

    def stay(
        self, standings: Standings, judged: Sequence[Verdicts], rng: np.random.Generator
    ) -> Bools:
        """Who stays active: everybody."""
        return standings.active

    def calls(self, n: int) -> int:
        """Questions asked over n items in all rounds."""
        return self.rounds * len(matchmaking.list_sizes(n, self.k, self.overlap))

    def cost(self, n: int) -> float:
        """Cost-equivalent calls over n items in all rounds: k/2 a list of k."""
        return self.rounds * float(matchmaking.list_sizes(n, self.k, self.overlap).sum()) / 2
