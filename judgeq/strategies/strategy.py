"""What a strategy is, and what it plans from: the history of a run's rounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from judgeq import seeds
from judgeq.errors import UsageError
from judgeq.rating import (
    ESTIMATORS,
    Estimator,
    Fit,
    GoOn,
    Parameters,
    always,
    comparisons,
    elo,
    position_bias,
)
from judgeq.rating.position_bias import Flips
from judgeq.types import Bools, Floats, Matches, Offsets, Rows, Standings, Verdicts


class Strategy:
    """What the runner asks of a strategy: a frozen dataclass of its parameters. By default it asks
    about pairs, and no item leaves early.

    `kind` is the registered name, for example "listwise"; `prunes` says whether items may leave early.
    """

    __slots__ = ()
    kind: ClassVar[str]
    prunes: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """The strategy as one writes it on the command line; settings that have only a flag are left
        out."""
        raise NotImplementedError

    @property
    def rounds(self) -> int:
        """How many rounds there will be, at most."""
        return 1

    @property
    def adaptive(self) -> bool:
        """Whether earlier answers decide what is asked later. The scale separation reliability of such
        a run is too high (Bramley and Vitello 2019, "The effect of adaptivity on the reliability
        coefficient in adaptive comparative judgement")."""
        return self.prunes

    def check(self, n: int) -> None:
        """Raise UsageError when n items can't be judged so."""
        if n < 2:
            raise UsageError(f"--strategy {self.name}: {n} items make no pair.")

    def next_round(self, history: History, rng: np.random.Generator) -> Matches:
        """The next round's questions over the active items; none when too few are left."""
        raise NotImplementedError

    def stay(self, history: History, rng: np.random.Generator) -> Bools:
        """Which items stay active after the rounds so far, shape (items,)."""
        return history.standings.active

    def calls(self, n: int) -> int:
        """Questions asked over n items in all rounds, at most."""
        raise NotImplementedError

    def cost(self, n: int) -> float:
        """Cost-equivalent calls over n items in all rounds, at most: 1 a pair, k/2 a list of k."""
        return float(self.calls(n))


@dataclass(slots=True, eq=False)
class History:
    """What was judged so far, round by round, and the `standings` that it folds to.

    `left_after`, shape (items,), is the round after which an item left (0: it didn't). With
    `both_orders`, `verdicts` are those of the couples, and `asked` those of the matches. `strategy` is
    None for judgments that were imported. `over` once a round is planned that has no matches: the
    strategy had too few items left to compare.
    """

    standings: Standings
    verdicts: list[Verdicts] = field(default_factory=list)
    strategy: Strategy | None = None
    seed: int = 0
    both_orders: bool = False
    asked: list[Verdicts] = field(default_factory=list)
    flips: Flips | None = None
    over: bool = False
    left_after: Offsets = field(init=False)

    def __post_init__(self) -> None:
        self.left_after = np.zeros(len(self.standings.elo), dtype=np.int64)

    @classmethod
    def begin(
        cls, n: int, strategy: Strategy | None, seed: int = 0, *, both_orders: bool = False
    ) -> History:
        """Before anything was judged."""
        standings = Standings(elo.start(n), np.ones(n, dtype=np.bool_))
        return cls(standings, strategy=strategy, seed=seed, both_orders=both_orders)

    @property
    def alone(self) -> bool:
        """Whether items are judged alone."""
        if self.strategy is not None and self.strategy.kind == "direct":
            return True
        return any(verdicts.scores is not None for verdicts in self.verdicts)

    @property
    def rows(self) -> Rows:
        """The active items, in the order of the dataset."""
        rows: Rows = np.flatnonzero(self.standings.active).astype(np.int32)
        return rows

    def to_come(self) -> Iterator[int]:
        """The numbers of the rounds to come: the one loop over rounds. Whoever takes one adds its
        verdicts, or leaves the loop."""
        most = None if self.strategy is None else self.strategy.rounds
        while not self.over and (most is None or len(self.verdicts) < most):
            yield len(self.verdicts) + 1

    def next_round(self) -> Matches:
        """The strategy's questions for the next round; none without a strategy."""
        if self.strategy is None:
            return Matches(np.empty(0, np.int32), np.zeros(1, np.int64))
        return self.strategy.next_round(self, self._rng("round", len(self.verdicts) + 1))

    def add(
        self, verdicts: Verdicts, planned: int | None = None, active: Bools | None = None
    ) -> None:
        """Fold the next round's verdicts. `planned` is how many matches it had, `active` the items,
        shape (n,), that the round after it was planned from; without it the strategy says which leave.
        """
        if planned == 0:
            self.over = True
            return
        self.asked.append(verdicts)
        if self.both_orders:
            verdicts, flips = position_bias.merged(verdicts)
            self.flips = flips if self.flips is None else position_bias.plus(self.flips, flips)
        self.verdicts.append(verdicts)
        before, round = self.standings, len(self.verdicts)
        ratings = before.elo if verdicts.scores is not None else elo.fold(before.elo, verdicts)
        self.standings = Standings(ratings, before.active)
        if self.strategy is not None and self.strategy.prunes:
            if active is None:
                active = self.strategy.stay(self, self._rng("leave", round))
            left = np.where(before.active, round, self.left_after)
            self.left_after = np.where(active, 0, left)
            self.standings = Standings(ratings, active)

    def held_out(self) -> Verdicts | None:
        """The verdicts on matches that were drawn at random, whatever earlier answers said, where an
        adaptive strategy holds some out; None where there are none."""
        return None

    def fit(self, estimator: Estimator, parameters: Parameters, go_on: GoOn = always) -> Fit:
        """The fit of an estimator to all that was judged; Elo is there after every round. Raises
        UsageError where the effect of the place can't be taken out."""
        if estimator.name == "elo":
            return Fit(self.standings.elo)
        if parameters.position and self.both_orders:
            raise UsageError(
                "--unbias-position: this run asks each pair in both orders, which takes the effect of "
                "the place out already. Leave it out."
            )
        verdicts = comparisons.joined(self.verdicts)
        return estimator.fit(verdicts, len(self.standings.elo), parameters, go_on)

    def rate(self, estimator: Estimator, parameters: Parameters, go_on: GoOn = always) -> Floats:
        """The ratings by an estimator, shape (items,)."""
        return self.fit(estimator, parameters, go_on).theta

    @property
    def latest(self) -> tuple[str, Floats]:
        """The rating that there is after every round, and its name: Elo, or scores of items alone."""
        estimator = ESTIMATORS["direct" if self.alone else "elo"]
        return estimator.column, self.rate(estimator, Parameters())

    def _rng(self, what: str, round: int) -> np.random.Generator:
        return seeds.rng(self.seed, what, round)
