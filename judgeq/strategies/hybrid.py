"""Each item alone: direct scores, the paper's baseline; and the hybrid, in which lists follow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from judgeq.errors import UsageError
from judgeq.strategies.listwise import Listwise
from judgeq.strategies.strategy import History, Strategy
from judgeq.types import Matches


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
