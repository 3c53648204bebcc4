"""Hybrid: each item alone first, then lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from judgeq.errors import UsageError
from judgeq.strategies.direct import Direct
from judgeq.strategies.listwise import Listwise
from judgeq.strategies.strategy import History
from judgeq.types import Matches


@dataclass(frozen=True, slots=True)
class Hybrid(Listwise):
    """`rounds` rounds: in the first each item is scored alone, 0 to 1, in the others lists of `k` are
    ranked, which Elo makes up, started from the scores."""

    kind: ClassVar[str] = "hybrid"
    mixed: ClassVar[bool] = True

    def check(self, n: int) -> None:
        """Raise UsageError when n items can't be judged so."""
        if self.rounds < 2:
            raise UsageError(
                f"--strategy {self.name}: a hybrid has 2 rounds or more, one of texts alone and then "
                "lists."
            )
        Listwise.check(self, n)

    def next_round(self, history: History, rng: np.random.Generator) -> Matches:
        """Each item by itself, then lists over all."""
        if not history.verdicts:
            return Direct().next_round(history, rng)
        return Listwise.next_round(self, history, rng)

    def later(self, history: History, rng: np.random.Generator) -> Matches:
        """Lists over all, before anything is known of them."""
        return Listwise.next_round(self, history, rng)

    def asked(self, round: int, n: int) -> tuple[int, int]:
        """The questions of a round, and the items in them."""
        return (n, n) if round == 1 else Listwise.asked(self, round, n)
