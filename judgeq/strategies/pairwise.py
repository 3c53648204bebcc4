"""Pairs: each round every active item meets one other. Streak and tail pruning let items leave."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from judgeq.errors import UsageError
from judgeq.strategies import matchmaking
from judgeq.strategies.listwise import cut
from judgeq.strategies.strategy import History, Strategy
from judgeq.types import Bools, Matches, Rows

MOST_CALLS = 1_000_000
"""Calls that all pairs can be meant to take, at most."""


@dataclass(frozen=True, slots=True)
class Pairwise(Strategy):
    """`rounds` rounds of n // 2 pairs."""

    rounds: int = 24
    matchmaking: matchmaking.Matchmaking = "similar"

    kind = "pairwise"
    short: ClassVar[tuple[str, ...]] = ("rounds",)
    usage = "pairwise[<rounds>]"
    summary = "Pairs are compared, in 24 rounds."
    when = "The simplest question, for judges that can't rank lists."

    def next_round(self, history: History, rng: np.random.Generator) -> Matches:
        """The next round's pairs over the active items; none when fewer than two are active."""
        elo, how = history.standings.elo, self.matchmaking
        return history.in_groups(
            lambda rows: cut(matchmaking.for_pairs(elo, rows, how, rng), 2, 0, rng)
        )


def _check_leaving(strategy: Pairwise, after: int) -> None:
    """Raise UsageError where the first item could leave only after round `after`, for that would
    spare no question."""
    if after >= strategy.rounds:
        raise UsageError(
            f"--strategy {strategy.name}: the first items leave after round {after:,}, and there are "
            f"no more than {strategy.rounds}. Give less, more --rounds, or pairwise{strategy.rounds}, "
            "which asks the same."
        )


@dataclass(frozen=True, slots=True)
class Streak(Pairwise):
    """As Pairwise, but an item leaves once it has won, or lost, `r` matches in a row against at
    least `d` distinct opponents (Haak and Schaer). `rounds` is the most there will be."""

    r: int = 4
    d: int = 3

    kind = "streak"
    short = ()
    named = ("r", "d")
    usage = "streak[:r=4,d=3]"
    summary = (
        "As pairwise, but an item leaves once it has won, or lost, r matches in a row against at least "
        "d distinct opponents."
    )
    when = "To repeat the paper: plain pairs for the same money rank better (ρ +0.01 to +0.03)."
    prunes = True

    def check(self, *sizes: int) -> None:
        """Raise UsageError when items can't be judged so, or none could ever leave early."""
        Pairwise.check(self, *sizes)
        if self.d >= (n := sum(sizes)):
            raise UsageError(
                f"--strategy {self.name}: no item meets {self.d:,} distinct opponents among {n:,} items."
            )
        _check_leaving(self, max(self.r, self.d))

    def stay(self, history: History, rng: np.random.Generator) -> Bools:
        """Which items stay active after the rounds so far: those without a streak.

        A tie ends a streak; a round that an item sat out, or whose judge gave no verdict, doesn't. Where
        several judges answered about a pair, most of them say who won.
        """
        active = history.standings.active.copy()
        # Of each item whether it won (1) or lost (-1) last, and its opponents since that began.
        streaks = [(0, list[int]()) for _ in active]
        for verdicts in history.verdicts:
            votes = Counter[tuple[int, int]]()
            pairs, ties = verdicts.items.reshape(-1, 2).tolist(), verdicts.tied[1::2].tolist()
            for (winner, loser), tied in zip(pairs, ties, strict=True):
                first, second = sorted((winner, loser))
                votes[first, second] += 0 if tied else 1 if winner == first else -1
            for (first, second), more in votes.items():
                won = (more > 0) - (more < 0)
                for item, opponent, way in ((first, second, won), (second, first, -won)):
                    before, met = streaks[item]
                    met = [*met, opponent] if way == before else [opponent]
                    streaks[item] = way, met if way else []
        for item, (_, met) in enumerate(streaks):
            if len(met) >= self.r and len(set(met)) >= self.d:
                active[item] = False
        return active


@dataclass(frozen=True, slots=True)
class Tail(Pairwise):
    """As Pairwise, but from round `w` on, after each round `p` % of the active items leave from each
    tail of the ranking: the floor of it, at least one a tail, while two items remain."""

    w: int = 8
    p: int = 20

    kind = "tail"
    short = ()
    named = ("w", "p")
    usage = "tail[:w=8,p=20]"
    summary = (
        "As pairwise, but from round w on, after each round p % of the active items leave from each end "
        "of the ranking."
    )
    when = "To repeat the paper: plain pairs for the same money rank better (ρ +0.01 to +0.04)."
    prunes = True

    def check(self, *sizes: int) -> None:
        """Raise UsageError when items can't be judged so, or none could ever leave early."""
        Pairwise.check(self, *sizes)
        if (n := sum(sizes)) < 4:
            raise UsageError(f"--strategy {self.name}: of {n} items none leaves from each end.")
        _check_leaving(self, self.w)

    def stay(self, history: History, rng: np.random.Generator) -> Bools:
        """Which items stay active after the rounds so far: the middle, from round w on."""
        rows = history.rows
        leave = self._leave(len(history.verdicts), len(rows))
        if not leave:
            return history.standings.active
        ordered = matchmaking.order_by_rating(history.standings.elo, rows, rng)
        stay = np.zeros(len(history.standings.active), dtype=np.bool_)
        stay[ordered[leave:-leave]] = True
        return stay

    def _leave(self, round: int, active: int) -> int:
        """How many of the active items leave from each tail after a round."""
        if round < self.w:
            return 0
        return min(max(1, active * self.p // 100), (active - 2) // 2 if active > 2 else 0)

    def left(self, round: int, n: int) -> int:
        """How many of n active items are left after a round."""
        return n - 2 * self._leave(round, n)


@dataclass(frozen=True, slots=True)
class Complete(Strategy):
    """All n(n − 1)/2 pairs in each of `m` rounds."""

    m: int = 1

    kind = "complete"
    usage = "complete[:m=1]"
    summary = "All pairs are compared, m times."
    when = "For a few hundred items at most, as a yardstick for the others."

    @property
    def rounds(self) -> int:
        """Rounds, each of all pairs."""
        return self.m

    def check(self, *sizes: int) -> None:
        """Raise UsageError for a number of calls that can't be meant."""
        Strategy.check(self, *sizes)
        n, calls = sum(sizes), self.m * self.asked(1, *sizes)[0]
        if calls > MOST_CALLS:
            raise UsageError(
                f"--strategy {self.name} over {n:,} items is {calls:,} calls, more than "
                f"{MOST_CALLS:,}: all pairs are for a few hundred items. listwise10 ranks "
                f"nearly as well with {3 * -(-n // 10):,}."
            )

    def next_round(self, history: History, rng: np.random.Generator) -> Matches:
        """All pairs, in random order, in which Elo folds them."""

        def plan(rows: Rows) -> Matches:
            pairs = np.stack(np.triu_indices(len(rows), 1), axis=1)
            return cut(rows[rng.permutation(pairs).reshape(-1)], 2, 0, rng)

        return history.in_groups(plan)

    def asked(self, round: int, *sizes: int) -> tuple[int, int]:
        """All pairs."""
        items = sum(n * (n - 1) for n in sizes)
        return items // 2, items
