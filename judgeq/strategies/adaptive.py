"""Adaptive rounds: after a random partition, the items whose rank is least certain meet those that are
rated alike.

After each round `pl` is drawn from DRAWS times, spread wider where an item's rankings contradict one
another (`certainty.drawn_for_choice`). Of the items whose ranks vary most over the draws a quarter of
all (of pairs, half) is taken, sorted by rating and cut into lists, so that neighbours meet. What is
held out are lists of items drawn at random, which come last in a round; they are asked and rated as
the others are, but never decide which items are asked about.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from judgeq.errors import UsageError
from judgeq.rating.certainty import DRAWS, least_known
from judgeq.strategies import matchmaking
from judgeq.strategies.goal import Goal
from judgeq.strategies.listwise import check_implied
from judgeq.strategies.strategy import GROWTH, NEAR, History, Strategy
from judgeq.types import Matches, Offsets, Rows

VERSION = 2
"""Of how items are chosen: another number makes other runs."""
LONGER = 4
"""With --until there are so many times as many rounds as by default, at most."""


@dataclass(frozen=True, slots=True)
class Adaptive(Strategy):
    """Lists of `k`, or pairs (2). `most` is how many rounds there are at most (None: by default as many
    as cost what listwise and pairwise cost by default); `holdout` the share of lists more that are
    drawn at random."""

    k: int = 10
    most: int | None = None
    holdout: float = 0.0

    kind: ClassVar[str] = "adaptive"
    picks: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """The strategy as one writes it; settings that have only a flag are left out."""
        return f"{self.kind}{self.k}" + ("" if self.most is None else f"x{self.most}")

    @property
    def whole(self) -> int:
        """The first rounds, which ask about all items, at random."""
        return 3 if self.k == 2 else 1

    @property
    def share(self) -> float:
        """The share of the items that a later round asks about."""
        return 0.5 if self.k == 2 else 0.25

    @property
    def rounds(self) -> int:
        """How many rounds there will be, at most."""
        return self._by_default if self.most is None else self.most

    def most_rounds(self, goal: Goal) -> int:
        """How many rounds there will be, at most: with a goal more, since it ends the run."""
        return LONGER * self.rounds if goal and self.most is None else self.rounds

    @property
    def _by_default(self) -> int:
        """3 rounds of lists of all items, or 24 of pairs, at the same cost."""
        return self.whole + int(((24 if self.k == 2 else 3) - self.whole) / self.share)

    @property
    def pairs(self) -> bool:
        """Whether it asks about pairs."""
        return self.k == 2

    @property
    def adaptive(self) -> bool:
        """Whether earlier answers decide what is asked later."""
        return self.rounds > self.whole

    def facts(self) -> dict[str, Any]:
        """Its parameters, and by what it chooses."""
        algorithm = {
            "version": VERSION,
            "estimator": "pl",
            "draws": DRAWS,
            "share": self.share,
            "sigma": {"near": NEAR, "growth": GROWTH},
        }
        return {"kind": self.kind, **asdict(self), "algorithm": algorithm}

    def check(self, n: int) -> None:
        """Raise UsageError when n items can't be judged so."""
        Strategy.check(self, n)
        if self.k > 2 and n < self.k:
            raise UsageError(
                f"--strategy {self.name}: a list of {self.k} is larger than the dataset, which has "
                f"{n} items: give adaptive{n} or smaller."
            )
        if self.k > 2:
            check_implied(self.name, n, self.k)
        if self.holdout and self.rounds <= self.whole:
            raise UsageError(
                f"--holdout {self.holdout:g} is a share of the adaptive rounds, and --strategy "
                f"{self.name} has none: give more --rounds than {self.whole}."
            )

    def next_round(self, history: History, rng: np.random.Generator) -> Matches:
        """The next round's questions over the active items; none when fewer than two are active."""
        rows, round = history.rows, len(history.verdicts) + 1
        enough = history.most_matches is not None and history.matches >= history.most_matches
        if len(rows) < 2 or enough:
            return Matches.none()
        if round <= self.whole:
            return self._partition(rng.permutation(rows), rng)
        drawn = history.drawn()
        if drawn is None:  # no question brought an answer
            chosen, theta = rng.permutation(rows), history.standings.elo
        else:
            by_doubt = least_known(drawn, history.goal.focus)
            chosen, theta = by_doubt[history.standings.active[by_doubt]], drawn.mean
        busy = np.isin(chosen, np.asarray(history.busy, dtype=np.int32))
        chosen = np.concatenate([chosen[~busy], chosen[busy]])[: self._chosen(len(rows))]
        ordered = matchmaking.order_by_rating(theta, chosen, rng)
        matches = self._partition(ordered, rng)
        if history.questions is not None:
            return _some(matches, rng.permutation(len(matches))[: history.questions])
        return _both(matches, self._at_random(rows, self.held_out(round, len(rows)), rng))

    def _chosen(self, n: int) -> int:
        """About how many of n items a later round asks: a list at least; of pairs an even number."""
        if self.k == 2:
            return max(2, round(n * self.share) // 2 * 2)
        return min(n, max(self.k, round(n * self.share)))

    def _partition(self, ordered: Rows, rng: np.random.Generator) -> Matches:
        """Lists of neighbours, or pairs; an odd item sits out."""
        if self.k == 2:
            ordered = ordered[: len(ordered) // 2 * 2]
        return matchmaking.cut(ordered, min(self.k, len(ordered)), 0, rng)

    def _at_random(self, rows: Rows, number: int, rng: np.random.Generator) -> Matches:
        """So many lists of items drawn at random, each from another partition once one is used up."""
        k, lists = min(self.k, len(rows)), list[Rows]()
        while len(lists) < number:
            mixed = rng.permutation(rows)
            lists += list(mixed[: len(mixed) // k * k].reshape(-1, k))
        items = np.concatenate([np.empty(0, np.int32), *lists[:number]]).astype(np.int32)
        return Matches(items, np.arange(number + 1, dtype=np.int64) * k)

    def held_out(self, round: int, n: int) -> int:
        """How many of a round's matches, its last, are held out, where n items are active. Over the
        rounds the share is kept as nearly as whole lists let it."""
        later = round - self.whole
        if later < 1 or n < 2:
            return 0
        return self._held_out_in(later, n) - self._held_out_in(later - 1, n)

    def _held_out_in(self, rounds: int, n: int) -> int:
        """How many matches are held out in so many adaptive rounds."""
        return int(self.holdout * self._adaptive_calls(n) * rounds + 0.5)

    def _adaptive_calls(self, n: int) -> int:
        m = self._chosen(n)
        return m // 2 if self.k == 2 else len(matchmaking.list_sizes(m, min(self.k, m)))

    def calls_of(self, round: int, n: int) -> int:
        """Questions of a round over n active items."""
        if n < 2:
            return 0
        if round > self.whole:
            return self._adaptive_calls(n) + self.held_out(round, n)
        return n // 2 if self.k == 2 else len(matchmaking.list_sizes(n, min(self.k, n)))

    def calls(self, n: int) -> int:
        """Questions asked over n items in all rounds."""
        whole, later = self._rounds()
        calls = whole * self.calls_of(1, n) + later * self._adaptive_calls(n)
        return calls + self._held_out_in(later, n)

    def cost(self, n: int) -> float:
        """Cost-equivalent calls over n items in all rounds: 1 a pair, k/2 a list of k."""
        whole, later = self._rounds()
        slots = whole * (n // 2 * 2 if self.k == 2 else n) + later * self._chosen(n)
        return (slots + min(self.k, n) * self._held_out_in(later, n)) / 2

    def _rounds(self) -> tuple[int, int]:
        """How many rounds are of all items, and how many adaptive."""
        whole = min(self.whole, self.rounds)
        return whole, self.rounds - whole


def _some(matches: Matches, chosen: Offsets) -> Matches:
    """Those of the matches that are chosen, by their places, shape (some,)."""
    lists = list(matches)
    items = np.concatenate([lists[at] for at in chosen.tolist()])
    offsets = np.concatenate([[0], np.cumsum(matches.sizes[chosen])])
    return Matches(items, offsets)


def _both(a: Matches, b: Matches) -> Matches:
    offsets: Offsets = np.concatenate([a.offsets, b.offsets[1:] + a.offsets[-1]])
    return Matches(np.concatenate([a.items, b.items]), offsets)
