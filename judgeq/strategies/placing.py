"""New items are judged next to settled ones, the anchors, so that they get scores on the same scale.

A quarter of the places are for anchors: lists of ten hold two or three, pairs every other time one. More
buy nothing, since only the appearances of new items count. The anchors of a list are spread evenly
over the scale, and others each time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from judgeq.errors import UsageError
from judgeq.rating import Parameters
from judgeq.rating.placing import Batch
from judgeq.strategies.listwise import Listwise
from judgeq.strategies.pairwise import Pairwise
from judgeq.strategies.strategy import History, Strategy
from judgeq.types import Matches, Offsets, Rows

SHARE = 0.25
"""Of the places in lists, those of anchors."""


def placing(of: Strategy, settled: Sequence[Batch], anchors: Sequence[int]) -> Placing:
    """A strategy that places new items by the questions of another. Raises UsageError for one that
    can't."""
    plain = not (of.mixed or of.prunes)
    if plain and (isinstance(of, Pairwise) or (isinstance(of, Listwise) and not of.overlap)):
        return Placing(of, tuple(settled), tuple(anchors))
    raise UsageError(
        f"--strategy {of.name} doesn't place texts onto a scale: --onto goes with lists (without "
        "overlap) and pairs, as listwise10 or pairwise."
    )


@dataclass(frozen=True, slots=True)
class Placing(Strategy):
    """The rounds of `of` over the items that follow those of the batches that are `settled`, whose
    rounds come before, with these `anchors`, by their rows, the lowest first."""

    of: Listwise | Pairwise
    settled: tuple[Batch, ...]
    anchors: tuple[int, ...]

    kind = "placing"

    @property
    def name(self) -> str:
        """The strategy as one writes it."""
        return self.of.name

    def facts(self) -> dict[str, Any]:
        """What of it decides a run, as plain JSON: what it places by."""
        return self.of.facts()

    @property
    def pairs(self) -> bool:  # type: ignore[override]
        """Whether it asks about pairs."""
        return self.of.pairs

    @property
    def before(self) -> int:
        """How many rounds there were before its own."""
        return sum(batch.rounds for batch in self.settled)

    @property
    def rounds(self) -> int:
        """How many rounds there will be, with those before, at most."""
        return self.before + self.of.rounds

    @property
    def first_new(self) -> int:
        """The row of the first new item."""
        return sum(batch.items for batch in self.settled)

    def batches(self, n: int, parameters: Parameters) -> tuple[Batch, ...]:
        """The items that were judged together, the settled ones first, and its own of n."""
        onto = tuple(range(len(self.settled)))
        return (*self.settled, Batch(n - self.first_new, self.of.rounds, onto, parameters))

    def first_rated(self, round: int) -> int:
        """The first of the items whose rating a round decides: those before are settled by then."""
        first = 0
        for batch in self.settled:
            round -= batch.rounds
            if round <= 0:
                break
            first += batch.items
        return first

    def check(self, *sizes: int) -> None:
        """Raise UsageError where a list can't be as large."""
        there = sum(sizes) - self.first_new + len(self.anchors)
        if self._k > there:
            raise UsageError(
                f"--strategy {self.name}: a list of {self._k} is larger than the new texts and their "
                f"anchors, which are {there}: give {self.of.kind}{there} or smaller."
            )

    def next_round(self, history: History, rng: np.random.Generator) -> Matches:
        """The next round's lists, or pairs."""
        new = np.arange(self.first_new, len(history.standings.elo), dtype=np.int32)
        return lists(new, np.array(self.anchors, np.int32), self._k, rng)

    def asked(self, round: int, *sizes: int) -> tuple[int, int]:
        """How many questions a round of its own over n items has, and how many items these; none of the
        rounds before."""
        if round <= self.before:
            return 0, 0
        new, held = _places(sum(sizes) - self.first_new, len(self.anchors), self._k)
        return len(new), int((new + held).sum())

    @property
    def _k(self) -> int:
        return self.of.k if isinstance(self.of, Listwise) else 2


def lists(new: Rows, anchors: Rows, k: int, rng: np.random.Generator) -> Matches:
    """A round's lists of up to k over the new rows, each of which is in one, with anchors in a quarter
    of the places; the order within a list is random."""
    sizes, held = _places(len(new), len(anchors), k)
    fresh = np.split(rng.permutation(new), np.cumsum(sizes)[:-1])
    parts = [
        rng.permutation(np.append(own, anchors[evenly(count, len(anchors), rng)]))
        for own, count in zip(fresh, held.tolist(), strict=True)
    ]
    return Matches(np.concatenate(parts), np.append(0, np.cumsum(sizes + held)))


def _places(n: int, anchors: int, k: int) -> tuple[Offsets, Offsets]:
    """How many of n new items each list of k has, and how many anchors, which fill it up."""
    count = math.ceil(n / (k * (1 - SHARE)))
    new = n // count + (np.arange(count) < n % count)
    return new, np.minimum(k - new, anchors)


def evenly(count: int, n: int, rng: np.random.Generator) -> Offsets:
    """So many of n places, evenly apart, from a random one on."""
    return ((np.arange(count) + rng.random()) * n / max(count, 1)).astype(np.int64)
