"""How often `judgeq drift` finds drift: where there is none, and of each kind, of four judges."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.judges import JUDGES, Judge, answered, asked
from judgeq import strategies
from judgeq.rating import ESTIMATORS, Parameters
from judgeq.rating.comparisons import joined
from judgeq.rating.drift import Drift, tests
from judgeq.types import Floats, Matches, Verdicts

N, RUNS = 1000, 40
KINDS = ("model, sd 2", "dependent lists", "20 % at random", "uneven texts")
TENTH = np.arange(N) < N // 10


def slanted(matches: Matches, truth: Floats, rng: np.random.Generator) -> Verdicts:
    """A judge that puts the last position 0.75 logits higher than the first."""
    place = (np.arange(len(matches.items)) - np.repeat(matches.offsets[:-1], matches.sizes)) / 9
    return answered(matches, truth[matches.items] + 0.75 * place + rng.gumbel(size=len(place)))


def measured(
    kind: str, questions: int, seed: int, change: Callable[[Floats], Floats], now: Judge | None
) -> list[Drift]:
    """The tests of one run, of which so many questions were asked again of a judge that changed."""
    judge, sd = JUDGES[kind]
    rng = np.random.default_rng(seed)
    truth = rng.normal(0, sd, N)
    strategy = strategies.parse("listwise10x3", matchmaking="random")
    every = joined(asked(judge, strategy, truth, seed).verdicts)
    chosen = np.zeros(len(every), dtype=np.bool_)
    chosen[rng.choice(len(every), questions, replace=False)] = True
    before = every.where(chosen)
    matches = Matches(before.presented, before.offsets)
    after = (now or judge)(matches, change(truth), rng)
    both = joined([every, after])
    theta = ESTIMATORS["pl"].fit(both, N, Parameters(position=False)).theta
    return tests(before, after, theta, {"tenth": TENTH.astype(np.float64)})


def drift() -> None:
    """How often drift is found. Goal: in at most 0.05 of unchanged judges."""
    every: list[tuple[str, int, Callable[[Floats], Floats], Judge | None]] = [
        ("none", 50, lambda truth: truth, None),
        ("none", 200, lambda truth: truth, None),
        ("spread 20 % smaller", 200, lambda truth: truth * 0.8, None),
    ]
    for name, questions, change, now in every:
        for kind in KINDS:
            _line(name, kind, questions, change, now)
    _line("position, 0.75 logits", KINDS[0], 200, lambda truth: truth, slanted)
    _line(
        "a tenth by half a sd", KINDS[0], 200, lambda truth: truth + TENTH * truth.std() / 2, None
    )


def _line(
    name: str, kind: str, questions: int, change: Callable[[Floats], Floats], now: Judge | None
) -> None:
    runs = [measured(kind, questions, seed, change, now) for seed in range(RUNS)]
    shares = [f"{np.mean([one.found for one in of]):.2f}" for of in zip(*runs, strict=True)]
    some = np.mean([any(one.found for one in run) for run in runs])
    print(f"| {name} | {kind} | {questions} | {some:.2f} | {' | '.join(shares)} |", flush=True)
