"""What a strategy is, what it plans from, the history of a run's rounds, and when enough is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, Self

import numpy as np

from judgeq import seeds
from judgeq.errors import UsageError
from judgeq.rating import (
    ESTIMATORS,
    Basis,
    Estimator,
    Fit,
    GoOn,
    Parameters,
    always,
    comparisons,
    direct,
    elo,
    placing,
    position_bias,
)
from judgeq.rating.placing import Batch
from judgeq.rating.position_bias import Flips
from judgeq.rating.posterior import Posterior
from judgeq.strategies.matchmaking import Repeats
from judgeq.types import Bools, Floats, Matches, Offsets, Rows, Verdicts

SETTLED = 0.95
"""The share of the first items that have to be among the first in draws of the posterior."""


class Strategy:
    """What the runner asks of a strategy: a frozen dataclass of its parameters. By default it asks
    about pairs, and no item leaves early.

    `kind` is the registered name, `usage` how it is written, `summary` what it does, and `when` it is
    of use. Its parameters `short` are numbers that follow the kind in its name, and `named` always
    stand there. `pairs` says whether it asks about pairs; `prunes` whether items may leave early;
    `mixed` whether the first round asks about items alone, and those after it compare.
    """

    __slots__ = ()
    kind: ClassVar[str]
    usage: ClassVar[str]
    summary: ClassVar[str]
    when: ClassVar[str]
    short: ClassVar[tuple[str, ...]] = ()
    named: ClassVar[tuple[str, ...]] = ()
    pairs: ClassVar[bool] = True
    prunes: ClassVar[bool] = False
    mixed: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """The strategy as one writes it on the command line, without its matchmaking: with what isn't
        so by default."""
        shown = {}
        for one in fields(self):  # type: ignore[arg-type]
            value = getattr(self, one.name)
            if one.name in self.named or value not in (one.default, "similar", "random"):
                shown[one.name] = str(value)
        numbers = "x".join(shown.pop(name) for name in self.short if name in shown)
        order = sorted(shown, key=lambda name: name not in self.named)
        further = ",".join(f"{name}={shown[name]}" for name in order)
        return f"{self.kind}{numbers}{further and ':' + further}"

    @property
    def rounds(self) -> int:
        """How many rounds there will be, at most."""
        return 1

    @property
    def before(self) -> int:
        """How many rounds there were before its own, of runs that it is placed onto."""
        return 0

    @property
    def first_new(self) -> int:
        """The row of the first item that isn't settled."""
        return 0

    def batches(self, n: int, parameters: Parameters) -> tuple[Batch, ...]:
        """The items that were judged together, the settled ones first, and its own of n, rated by these
        parameters; () where all are its own."""
        return ()

    def first_rated(self, round: int) -> int:
        """The first of the items whose rating a round decides: those before are settled by then."""
        return 0

    @property
    def adaptive(self) -> bool:
        """Whether earlier answers decide what is asked later. The scale separation reliability of such
        a run is too high (Bramley and Vitello 2019, "The effect of adaptivity on the reliability
        coefficient in adaptive comparative judgement")."""
        similar = getattr(self, "matchmaking", "random") == "similar" and self.rounds > 1
        return similar or self.prunes

    def facts(self) -> dict[str, Any]:
        """What of it decides a run, as plain JSON."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]

    def extended(self, rounds: int) -> Self:
        """The same with so many rounds in all, if it has fewer. Raises UsageError for a strategy whose
        rounds are always the same."""
        if rounds <= self.rounds:
            return self
        if "rounds" not in {field.name for field in fields(self)}:  # type: ignore[arg-type]
            raise UsageError(f"--strategy {self.name} has no further rounds.")
        return replace(self, rounds=rounds)  # type: ignore[type-var]

    def check(self, *sizes: int) -> None:
        """Raise UsageError when items in groups of these sizes can't be judged so."""
        if max(sizes) < 2:
            raise UsageError(f"--strategy {self.name}: {max(sizes)} items make no pair.")
        if self.prunes and len(sizes) > 1:
            raise UsageError(
                f"--strategy {self.name} doesn't go with --group-column: which items leave is decided "
                "over all of them. Give listwise10 or pairwise."
            )

    def next_round(self, history: History, rng: np.random.Generator) -> Matches:
        """The next round's questions over the active items; none when too few are left. Those that
        compare items are planned by `History.in_groups`."""
        raise NotImplementedError

    def later(self, history: History, rng: np.random.Generator) -> Matches:
        """Questions like those of the rounds after the first, for an estimate."""
        return self.next_round(history, rng)

    def stay(self, history: History, rng: np.random.Generator) -> Bools:
        """Which items stay active after the rounds so far, shape (items,)."""
        return history.standings.active

    def asked(self, round: int, *sizes: int) -> tuple[int, int]:
        """How many questions a round over active items in groups of these sizes has, and how many items
        all of them together; by default those of pairs."""
        pairs = sum(n // 2 for n in sizes)
        return pairs, pairs * 2

    def left(self, round: int, n: int) -> int:
        """How many of n active items are left after a round, at most."""
        return n

    def calls(self, *sizes: int) -> int:
        """Questions asked over groups of these sizes in all rounds, at most."""
        return sum(questions for questions, _ in self.asked_by_round(*sizes))

    def cost(self, *sizes: int) -> float:
        """Cost-equivalent calls over groups of these sizes in all rounds, at most: 1 a pair, k/2 a list
        of k, ½ for an item alone."""
        return sum(items for _, items in self.asked_by_round(*sizes)) / 2

    def asked_by_round(self, *sizes: int) -> Iterator[tuple[int, int]]:
        """As `asked`, of each round."""
        for round in range(1, self.rounds + 1):
            yield self.asked(round, *sizes)
            sizes = tuple(self.left(round, n) for n in sizes)


@dataclass(frozen=True, slots=True)
class Goal:
    """What a run ends at: ρ̂, or the first `top` items settled. None of them: when its rounds are
    over."""

    rho: float | None = None
    top: int | None = None

    @classmethod
    def read(cls, text: str | None) -> Goal:
        """What `--until` says, as the setting lets it be said: "0.95", "top20"."""
        if text is None:
            return cls()
        return cls(top=int(text[3:])) if text.startswith("top") else cls(rho=float(text))

    def __bool__(self) -> bool:
        return self != Goal()

    @property
    def name(self) -> str:
        """As it is written."""
        if self.rho is not None:
            return f"{self.rho:g}"
        return "" if self.top is None else f"top{self.top}"

    def reached(self, rho: float | None, top_share: float | None) -> bool:
        """Whether an order is known well enough, of which this is ρ̂ and the share of the first items;
        never where these aren't known (None)."""
        if self.rho is not None and rho is not None and rho >= self.rho:
            return True
        return self.top is not None and top_share is not None and top_share >= SETTLED


@dataclass(frozen=True, slots=True, eq=False)
class Standings:
    """The state of the ranking before a round: arrays of shape (items,)."""

    elo: Floats
    active: Bools


@dataclass(slots=True, eq=False)
class History:
    """What was judged so far, round by round, and the `standings` that it folds to.

    `left_after`, shape (items,), is the round after which an item left (0: it didn't). With
    `both_orders`, `verdicts` are those of the couples, and `asked` those of the matches. `strategy` is
    None for judgments that were imported. `over` once a round is planned that has no matches: the
    strategy had too few items left to compare. `goal` says when enough is known. `refit`: settled items
    are rated anew with those that are placed. `go_on` is called in each step of a fit. `group` numbers
    the group of each item from 1, shape (n,), within which alone it is compared; None: all are one.
    """

    standings: Standings
    verdicts: list[Verdicts] = field(default_factory=list)
    strategy: Strategy | None = None
    seed: int = 0
    both_orders: bool = False
    asked: list[Verdicts] = field(default_factory=list)
    over: bool = False
    goal: Goal = Goal()
    refit: bool = False
    go_on: GoOn = always
    group: Offsets | None = None
    repeats: Repeats = field(default_factory=Repeats)  # of rounds that are planned
    left_after: Offsets = field(init=False)
    _parts: Sequence[placing.Part] = ()
    _fits: dict[tuple[str, Parameters], Fit] = field(default_factory=dict)
    """Those of the rounds so far."""

    def __post_init__(self) -> None:
        self.left_after = np.zeros(len(self.standings.elo), dtype=np.int64)

    @classmethod
    def begin(cls, n: int, strategy: Strategy | None, seed: int = 0, **how: Any) -> History:
        """Before anything was judged; `how` are other fields."""
        standings = Standings(elo.start(n), np.ones(n, dtype=np.bool_))
        return cls(standings, strategy=strategy, seed=seed, **how)

    @property
    def basis(self) -> Basis:
        """What was judged so far: items against one another, each alone, or both."""
        scored = any(verdicts.scored.any() for verdicts in self.verdicts)
        if any(comparisons.compares(verdicts) for verdicts in self.verdicts):
            return "both" if scored else "comparisons"
        direct = self.strategy is not None and self.strategy.kind == "direct"
        return "scores" if scored or direct else "comparisons"

    @property
    def before(self) -> int:
        """How many of the rounds are those of settled items."""
        return 0 if self.strategy is None else self.strategy.before

    @property
    def first_new(self) -> int:
        """The row of the first item that isn't settled."""
        return 0 if self.strategy is None else self.strategy.first_new

    @property
    def flips(self) -> Flips | None:
        """The pairs asked in both orders, whose answers differ; None where they weren't."""
        return position_bias.merged(comparisons.joined(self.asked))[1] if self.both_orders else None

    @property
    def alone(self) -> bool:
        """Whether items were judged alone, and never compared."""
        return self.basis == "scores"

    @property
    def rows(self) -> Rows:
        """The active items, in the order of the dataset."""
        rows: Rows = np.flatnonzero(self.standings.active).astype(np.int32)
        return rows

    @property
    def groups(self) -> list[Rows]:
        """The active items of each group, in the order of the dataset."""
        rows = self.rows
        if self.group is None:
            return [rows]
        of = self.group[rows]
        order = np.argsort(of, kind="stable")
        return np.split(rows[order], np.flatnonzero(np.diff(of[order])) + 1)

    @property
    def sizes(self) -> list[int]:
        """How many active items each group has."""
        return [len(rows) for rows in self.groups]

    def in_groups(self, plan: Callable[[Rows], Matches]) -> Matches:
        """The questions that `plan` makes of the active items of each group that has two or more. Those
        of a group are spread evenly over the round: what of it is answered first is of all groups."""
        parts = [plan(rows) for rows in self.groups if len(rows) > 1]
        return parts[0] if len(parts) == 1 else spread(parts)

    def to_come(self, planned: int = 0) -> Iterator[int]:
        """The numbers of the rounds to come: the one loop over rounds. Whoever takes one adds its
        verdicts, or leaves the loop. There are at least those that are `planned` already."""
        of = self.strategy
        while not self.over and (of is None or len(self.verdicts) < max(of.rounds, planned)):
            yield len(self.verdicts) + 1

    def next_round(self) -> Matches:
        """The strategy's questions for the next round; none without a strategy."""
        if self.strategy is None:
            return Matches.none()
        round = max(1, len(self.verdicts) + 1 - self.strategy.before)
        return self.strategy.next_round(self, self._rng("round", round))

    def add(
        self, verdicts: Verdicts, planned: int | None = None, active: Bools | None = None
    ) -> None:
        """Fold the next round's verdicts. `planned` is how many matches it had; `active` are the items,
        shape (n,), that the round after it was planned from: without it the strategy says which leave.
        """
        if planned == 0:
            self.over = True
            return
        self._fits.clear()
        self.asked.append(verdicts)
        if self.both_orders:
            verdicts, _ = position_bias.merged(verdicts)
        self.verdicts.append(verdicts)
        before, round = self.standings, len(self.verdicts)
        if not verdicts.scored.any():
            ratings = elo.fold(before.elo, verdicts)
            if self.strategy is not None:  # settled ratings stay as they are
                first = self.strategy.first_rated(round)
                ratings[:first] = before.elo[:first]
        elif self.alone:
            scores = direct.fit(comparisons.joined(self.verdicts), len(before.elo), Parameters())
            ratings = elo.start_from(scores.theta)
        else:
            ratings = before.elo
        self.standings = Standings(ratings, before.active)
        if active is None and self.strategy is not None and self.strategy.prunes:
            active = self.strategy.stay(self, self._rng("leave", round))
        if active is not None and self.strategy is not None:
            self._stay(active)

    def renumber(self, numbers: Callable[[Verdicts], Rows]) -> None:
        """Give the judges of all verdicts other numbers, of shape (verdicts,)."""
        self.asked, self.verdicts = (
            [replace(part, judges=numbers(part)) for part in parts]
            for parts in (self.asked, self.verdicts)
        )
        self._fits.clear()

    def _stay(self, active: Bools) -> None:
        """Let all items leave but these, which may have left before."""
        left = np.where(self.standings.active, len(self.verdicts), self.left_after)
        self.left_after = np.where(active, 0, left)
        self.standings = Standings(self.standings.elo, active)

    @property
    def twice(self) -> bool:
        """Whether the judged items that aren't settled were in two rankings on average."""
        own = comparisons.joined(self.verdicts[self.before :])
        matches = comparisons.matches_of(own.where(~own.scored), len(self.standings.elo))
        return comparisons.repeated(matches[self.first_new :])

    # What rounds are planned by

    @contextmanager
    def going(self, go_on: GoOn) -> Iterator[None]:
        """While inside, fits call `go_on` in each step."""
        before, self.go_on = self.go_on, go_on
        try:
            yield
        finally:
            self.go_on = before

    def posterior(self) -> Posterior | None:
        """That of `pl` with σ chosen (of `hybrid`, where items were also judged alone), by all verdicts
        and whatever the run is rated by; None where all were judged alone, or none were."""
        if self.alone or not any(map(len, self.verdicts)):
            return None
        estimator = ESTIMATORS["hybrid" if self.basis == "both" else "pl"]
        posterior: Posterior | None = self.fit(estimator, Parameters()).posterior
        return posterior

    def fit(self, estimator: Estimator, parameters: Parameters) -> Fit:
        """The fit of an estimator to all that was judged; Elo is there after every round. Raises
        UsageError where the effect of the place can't be taken out."""
        if estimator.name == "elo":
            return Fit(self.standings.elo)
        if parameters.position and self.both_orders:
            raise UsageError(
                "--unbias-position: this run asks each pair in both orders, which takes the effect of "
                "the place out already. Leave it out."
            )
        if self.both_orders:
            parameters = replace(parameters, position=False)

        key, n = (estimator.name, parameters), len(self.standings.elo)
        if key in self._fits:
            return self._fits[key]
        batches = () if self.strategy is None else self.strategy.batches(n, parameters)
        if batches:
            parts, go_on = self._settled(batches), self._step
            made = placing.fit(batches, self.verdicts, n, go_on, refit=self.refit, parts=parts)
        else:
            made = estimator.fit(comparisons.joined(self.verdicts), n, parameters, self._step)
        self._fits[key] = made
        return made

    def _settled(self, batches: Sequence[Batch]) -> Sequence[placing.Part]:
        """The fits of settled items, made once: no later verdict changes them."""
        if not self._parts:
            self._parts = placing.settled(batches[:-1], self.verdicts, self._step)
        return self._parts

    def _step(self) -> None:
        self.go_on()  # that of now, however old the fit is

    @property
    def latest(self) -> tuple[str, Floats]:
        """The rating that there is after every round, and its name: Elo, or scores of items alone."""
        estimator = ESTIMATORS["direct" if self.alone else "elo"]
        return estimator.column, self.fit(estimator, Parameters()).theta

    def _rng(self, what: str, round: int) -> np.random.Generator:
        return seeds.rng(self.seed, what, round)


def spread(parts: Sequence[Matches]) -> Matches:
    """All of these questions as those of one round, those of each part evenly over it."""
    if not parts:
        return Matches.none()
    at = np.concatenate([np.linspace(0, 1, len(part), endpoint=False) for part in parts])
    sizes = np.concatenate([part.sizes for part in parts])
    slots = np.argsort(np.repeat(at, sizes), kind="stable")
    items = np.concatenate([part.items for part in parts])[slots]
    return Matches(items, np.append(0, np.cumsum(sizes[np.argsort(at, kind="stable")])))
