"""What a mixture's threshold brings over θ > 0, by the share of positive items; and how often scores
are found to have two humps."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from itertools import product

import numpy as np

from benchmarks.judges import JUDGES, play
from judgeq import seeds, strategies
from judgeq.judge import simulated
from judgeq.rating import CHOICES, ESTIMATORS, Parameters, mixture
from judgeq.settings.run import Simulation
from judgeq.strategies import History
from judgeq.types import Bools

N, SEEDS = 1000, 10
HUMP_RUNS, HUMP_ITEMS = 20, 200
HUMP_DESIGNS = ("lists", "pairs, similar")


def thresholds() -> None:
    """1,000 items, 10 seeds, the simulated judge of runs. Goal: F1 well above that of θ > 0 where few
    items are positive, and equal where half are."""
    print(
        f"F1 of the positive class ({CHOICES[0]}); in brackets in how many of {SEEDS} runs there is"
    )
    print("a threshold, over which both means are taken")
    print("strategy                         positive   θ > 0   mixture")
    for strategy in ("listwise10x3", "listwise10x3:matchmaking=similar", "pairwise24"):
        for share in (0.1, 0.3, 0.5):
            rows = [row for seed in range(SEEDS) if (row := _f1(strategy, share, seed)) is not None]
            zero, parted = np.mean(rows, axis=0) if rows else (np.nan, np.nan)
            print(f"{strategy:32} {share:8.0%} {zero:7.3f} {parted:9.3f}   ({len(rows)})")


def humps() -> None:
    """200 items, 20 runs: how many runs in 100 warn of two groups. Goal: nearly all of two groups, and
    at most 5 of normally distributed items."""
    with ProcessPoolExecutor() as processes:
        shares = list(processes.map(_warned, product(JUDGES, HUMP_DESIGNS)))
    print("| judge | " + " | ".join(HUMP_DESIGNS) + " |\n|---|" + "---|" * len(HUMP_DESIGNS))
    for number, judge in enumerate(JUDGES):
        row = shares[number * len(HUMP_DESIGNS) :][: len(HUMP_DESIGNS)]
        print(f"| {judge} | " + " | ".join(f"{100 * share:.0f}" for share in row) + " |")


def _warned(about: tuple[str, str]) -> float:
    """Return the share of runs of a judge and a design whose scores have two humps."""
    judge, design = about
    fits = (
        play(judge, design, HUMP_ITEMS, seed, end=False).history.fit(ESTIMATORS["pl"], Parameters())
        for seed in range(HUMP_RUNS)
    )
    return float(np.mean([mixture.has_two_humps(fit.theta) for fit in fits]))


def _f1(strategy: str, share: float, seed: int) -> tuple[float, float] | None:
    gold = np.arange(N) < share * N
    judge = Simulation()
    seen = simulated.latent_scores(gold.astype(np.float64), judge, seed)
    history = History.begin(N, strategies.parse(strategy), seed)
    for round in history.to_come():
        matches = history.next_round()
        rng = seeds.rng(seed, "answers", round)
        history.add(simulated.answers(matches, seen, judge, rng), len(matches))
    theta = history.fit(ESTIMATORS[CHOICES[0]], Parameters()).theta
    cut = mixture.threshold(theta).value
    return None if cut is None else (_positive(theta > 0, gold), _positive(theta > cut, gold))


def _positive(labelled: Bools, gold: Bools) -> float:
    return float(2 * (labelled & gold).sum() / (labelled.sum() + gold.sum()))
