"""Judges of whom it is known how they err, and designs: what the tables of docs/methods.md are
counted on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from judgeq import seeds, strategies
from judgeq.judge import simulated
from judgeq.rating import ESTIMATORS, Parameters
from judgeq.settings.run import Simulation
from judgeq.strategies import History, Strategy
from judgeq.types import Floats, Matches, Verdicts

MANY = 1000
"""So many answers an item are taken for what a judge says in the end."""
Judge = Callable[[Matches, Floats, np.random.Generator], Verdicts]


def answered(matches: Matches, noisy: Floats) -> Verdicts:
    """Lists ranked by values by slot."""
    number = np.repeat(np.arange(len(matches)), matches.sizes)
    items = matches.items[np.lexsort((-noisy, number))]
    tied = np.zeros(len(items), dtype=np.bool_)
    return Verdicts(np.arange(len(matches)), items, matches.offsets, tied, matches.items)


def model(matches: Matches, truth: Floats, rng: np.random.Generator) -> Verdicts:
    """As Plackett and Luce have it."""
    return answered(matches, truth[matches.items] + rng.gumbel(size=len(matches.items)))


def thurstone(matches: Matches, truth: Floats, rng: np.random.Generator) -> Verdicts:
    """Normal noise by item and list."""
    return answered(matches, truth[matches.items] + rng.normal(0, 1.2, len(matches.items)))


def second_quality(truth: Floats) -> Floats:
    """As widely spread as the true values, which it has nothing to do with."""
    return np.random.default_rng(len(truth)).normal(0, truth.std(), len(truth))


def dependent(matches: Matches, truth: Floats, rng: np.random.Generator) -> Verdicts:
    """Each list weighs a second quality of the texts anew."""
    weight = np.repeat(rng.normal(0, 0.5, len(matches)), matches.sizes)
    seen = truth[matches.items] + weight * second_quality(truth)[matches.items]
    return answered(matches, seen + rng.gumbel(size=len(matches.items)))


def _careless(share: float) -> Judge:
    def judge(matches: Matches, truth: Floats, rng: np.random.Generator) -> Verdicts:
        noisy = truth[matches.items] + rng.gumbel(size=len(matches.items))
        at_random = np.repeat(rng.random(len(matches)) < share, matches.sizes)
        return answered(matches, np.where(at_random, rng.random(len(noisy)), noisy))

    return judge


def uneven(matches: Matches, truth: Floats, rng: np.random.Generator) -> Verdicts:
    """Of three texts in ten the noise is four times as large."""
    hard = np.random.default_rng(len(truth)).random(len(truth)) < 0.3
    noise = rng.gumbel(size=len(matches.items)) * np.where(hard[matches.items], 4, 1)
    return answered(matches, truth[matches.items] + noise)


def first_favoured(matches: Matches, truth: Floats, rng: np.random.Generator) -> Verdicts:
    """What is presented first seems 1.5 higher than it is."""
    first = np.zeros(len(matches.items))
    first[matches.offsets[:-1]] = 1.5
    return answered(matches, truth[matches.items] + first + rng.gumbel(size=len(first)))


def by_item(matches: Matches, truth: Floats, rng: np.random.Generator) -> Verdicts:
    """`vg`: noise by item that isn't Gumbel's, and lapses."""
    return simulated.answers(matches, 75 * truth, Simulation(sim_model="vg"), rng)


def by_pair(matches: Matches, truth: Floats, rng: np.random.Generator) -> Verdicts:
    """`rrt`: all pairs of a list are drawn independently, and it is ranked by wins."""
    return simulated.answers(matches, 75 * truth, Simulation(sim_model="rrt"), rng)


def normal(rng: np.random.Generator, n: int, spread: float) -> Floats:
    """Draw normally distributed true values."""
    return rng.normal(0, spread, n)


def two_groups(rng: np.random.Generator, n: int, spread: float) -> Floats:
    """Draw true values of two groups, three texts in ten and the others, twice the spread apart, each
    of an sd of a fifth of it."""
    is_low = rng.random(n) < 0.3
    values = np.where(is_low, -spread, spread) + rng.normal(0, spread / 5, n)
    centred: Floats = values - values.mean()
    return centred


def skew(rng: np.random.Generator, n: int, spread: float) -> Floats:
    """Draw exponentially distributed true values: many near the lowest, few far above."""
    values = rng.exponential(spread, n)
    centred: Floats = values - values.mean()
    return centred


TRUTHS: Mapping[str, Callable[[np.random.Generator, int, float], Floats]] = {
    "two groups": two_groups,
    "skew": skew,
}
"""How true values are drawn of judges by these names; of the others normally."""
JUDGES: Mapping[str, tuple[Judge, float]] = {
    "model, sd 0.5": (model, 0.5),
    "model, sd 0.7": (model, 0.7),
    "model, sd 1": (model, 1.0),
    "model, sd 2": (model, 2.0),
    "model, sd 4": (model, 4.0),
    "normal noise": (thurstone, 2.0),
    "vg": (by_item, 2.0),
    "rrt": (by_pair, 2.0),
    "dependent lists": (dependent, 2.0),
    "5 % at random": (_careless(0.05), 2.0),
    "20 % at random": (_careless(0.2), 2.0),
    "uneven texts": (uneven, 2.0),
    "first favoured": (first_favoured, 2.0),
    "two groups": (model, 2.0),
    "skew": (model, 2.0),
}
"""By name; and the sd of the true values."""
DESIGNS: Mapping[str, tuple[str, str]] = {
    "lists": ("listwise10x3", "random"),
    "lists, similar": ("listwise10x3", "similar"),
    "pairs": ("pairwise24", "random"),
    "pairs, similar": ("pairwise24", "similar"),
    "few pairs, similar": ("pairwise8", "similar"),
}
"""By name: the strategy and its matchmaking."""


@dataclass(frozen=True, slots=True)
class Play:
    """What a judge said in a run of a design about items of these true values; and `theta`, what it says
    in the end."""

    history: History
    truth: Floats
    theta: Floats


def in_the_end(judge: Judge, truth: Floats, k: int, rng: np.random.Generator) -> Floats:
    """Return θ by MANY answers an item to lists of k at random, without the effect of the place."""
    n = len(truth)
    items = np.concatenate([rng.permutation(n)[: n // k * k] for _ in range(MANY // k)])
    matches = Matches(items.astype(np.int32), np.arange(len(items) // k + 1, dtype=np.int64) * k)
    verdicts = judge(matches, truth, rng)
    return ESTIMATORS["pl"].fit(verdicts, n, Parameters(sigma=20.0, position=True)).maximum


def asked(judge: Judge, strategy: Strategy, truth: Floats, seed: int) -> History:
    """A run that a judge answered; texts alone by `vg`."""
    history = History.begin(len(truth), strategy, seed)
    for round in history.to_come():
        matches = history.next_round()
        answer = by_item if int(matches.sizes.max()) == 1 else judge
        history.add(answer(matches, truth, seeds.rng(seed, "answers", round)), len(matches))
    return history


def play(judge: str, design: str, n: int, seed: int, *, end: bool = True) -> Play:
    """A run of n items; `design` is of DESIGNS, or a strategy with or without its matchmaking.
    `end`: what the judge says in the end is worked out."""
    answer, _ = JUDGES[judge]
    name, _, matchmaking = design.partition(" ")
    if design in DESIGNS:
        name, matchmaking = DESIGNS[design]
    strategy = strategies.parse(name, matchmaking=matchmaking or None)
    truth, _ = _drawn(judge, n, seed)
    history = asked(answer, strategy, truth, seed)
    k = 2 if strategy.pairs else 10
    theta = _settled(judge, n, seed, k) if end else truth
    return Play(history, truth, theta)


def _drawn(judge: str, n: int, seed: int) -> tuple[Floats, np.random.Generator]:
    """Draw the true values of n items, and return what draws after them."""
    rng = np.random.default_rng(seed)
    return TRUTHS.get(judge, normal)(rng, n, JUDGES[judge][1]), rng


@cache
def _settled(judge: str, n: int, seed: int, k: int) -> Floats:
    """Return what a judge says in the end, which designs of the same k share."""
    truth, rng = _drawn(judge, n, seed)
    return in_the_end(JUDGES[judge][0], truth, k, rng)
