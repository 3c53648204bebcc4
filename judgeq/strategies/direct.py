"""Direct scores: each item judged by itself, once. The paper's baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from judgeq.errors import UsageError
from judgeq.strategies.strategy import History, Strategy
from judgeq.types import Matches


@dataclass(frozen=True, slots=True)
class Direct(Strategy):
    """One round, in which each item is scored alone, 0 to 1."""

    kind: ClassVar[str] = "direct"
    name: ClassVar[str] = "direct"
    pairs: ClassVar[bool] = False

    def check(self, n: int) -> None:
        """Raise UsageError when there is nothing to judge."""
        if n < 1:
            raise UsageError(f"--strategy {self.name}: there are no items.")

    def next_round(self, history: History, rng: np.random.Generator) -> Matches:
        """Each item by itself, in the order of the rows."""
        rows = history.rows
        return Matches(items=rows, offsets=np.arange(len(rows) + 1, dtype=np.int64))

    def asked(self, round: int, n: int) -> tuple[int, int]:
        """A question an item."""
        return n, n
