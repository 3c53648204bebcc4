"""Direct scores: each item judged by itself, once. The paper's baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from judgeq.errors import UsageError
from judgeq.types import Bools, Matches, Rows, Standings, Verdicts


@dataclass(frozen=True, slots=True)
class Direct:
    """One round, in which each item is scored alone, 0 to 1."""

    kind: ClassVar[str] = "direct"
    name: ClassVar[str] = "direct"
    rounds: ClassVar[int] = 1
    prunes: ClassVar[bool] = False

    def check(self, n: int) -> None:
        """Raise UsageError when there is nothing to judge."""
        if n < 1:
            raise UsageError(f"--strategy {self.name}: there are no items.")

    def next_round(self, standings: Standings, rng: np.random.Generator) -> Matches:
        """Each item by itself, in the order of the rows."""
        rows: Rows = np.flatnonzero(standings.active).astype(np.int32)
        return Matches(items=rows, offsets=np.arange(len(rows) + 1, dtype=np.int64))

    def stay(
        self, standings: Standings, judged: Sequence[Verdicts], rng: np.random.Generator
    ) -> Bools:
        """Who stays active: everybody."""
        return standings.active

    def calls(self, n: int) -> int:
        """Questions asked over n items."""
        return n

    def cost(self, n: int) -> float:
        """Cost-equivalent calls over n items: ½ an item, as k/2 a list of k."""
        return n / 2
