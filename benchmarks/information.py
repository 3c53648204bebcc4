"""What rounds bring by the closed form, beside simulated judges; and what to buy by it."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from itertools import product

import numpy as np

from benchmarks.coverage import true_rho
from benchmarks.judges import JUDGES, asked
from judgeq import prompts, strategies
from judgeq.datasets.dataset import tokens_of
from judgeq.rating import ESTIMATORS, UNKNOWN, Parameters, plackett_luce, ranks
from judgeq.rating.comparisons import joined
from judgeq.rating.ranks import expected_rho, growth
from judgeq.types import Floats, Verdicts

N, SEEDS = 300, 8
OF_MODEL = {"model, sd 0.5": 0.5, "model, sd 1": 1.0, "model, sd 2": 2.0, "model, sd 4": 4.0}
PLANS = {
    "listwise10x1": (1, 10),
    "listwise10x2": (2, 10),
    "listwise10x3": (3, 10),
    "listwise10x6": (6, 10),
    "listwise20x3": (3, 20),
    "pairwise4": (4, 2),
    "pairwise8": (8, 2),
    "pairwise24": (24, 2),
}
"""How often an item is asked about, and among how many; who meets is random."""
NEXT = {"listwise10x3": (2, 10), "listwise10x6": (5, 10), "pairwise8": (7, 2)}
OTHERS = ("model, sd 1", "model, sd 2", "vg", "dependent lists", "20 % at random", "uneven texts")
"""Judges by whom it is looked what the round before expects of the last one."""
TEXTS, SCORES = (50, 300, 1000), (0.7, 0.8, 0.85, 0.9, 0.95)


def rounds() -> None:
    """300 items, 8 runs: the true ρ of rounds of a judge that answers as the model says, and in brackets
    what the closed form expects, knowing the sd; then what ρ̂ is after one more round, and was
    expected to be. Goal: within 0.03."""
    with ProcessPoolExecutor() as processes:
        done = list(processes.map(_simulated, product(PLANS, OF_MODEL)))
        later = list(processes.map(_next, product(NEXT, OTHERS)))
    print(f"| strategy | {' | '.join(OF_MODEL)} |\n|---|{'---|' * len(OF_MODEL)}")
    off = []
    for number, (name, plan) in enumerate(PLANS.items()):
        of_plan = done[number * len(OF_MODEL) :][: len(OF_MODEL)]
        expected = [expected_rho(sd, *plan) for sd in OF_MODEL.values()]
        cells = [f"{one:.3f} ({by:.3f})" for one, by in zip(of_plan, expected, strict=True)]
        off += [by - one for one, by in zip(of_plan, expected, strict=True)]
        print(f"| `{name}` | {' | '.join(cells)} |")
    print(f"off by {min(off):+.3f} to {max(off):+.3f}, {_rms(off):.3f} on average\n")
    print(f"| round | {' | '.join(OTHERS)} |\n|---|{'---|' * len(OTHERS)}")
    for number, (name, (before, _)) in enumerate(NEXT.items()):
        pairs = later[number * len(OTHERS) :][: len(OTHERS)]
        shown = " | ".join(f"{now:.3f} ({foreseen:.3f})" for now, foreseen in pairs)
        print(f"| {before + 1} of `{name}` | {shown} |")


def _rms(off: list[float]) -> float:
    return float(np.sqrt(np.mean(np.square(off))))


def _simulated(about: tuple[str, str]) -> float:
    name, judge = about
    values = []
    for seed in range(SEEDS):
        truth, verdicts = _answers(name, judge, seed)
        theta = ESTIMATORS["pl"].fit(joined(verdicts), N, Parameters()).theta
        values.append(true_rho(theta, truth))
    return float(np.mean(values))


def _next(about: tuple[str, str]) -> list[float]:
    """ρ̂ after the next round, and what was expected of it."""
    name, judge = about
    before, k = NEXT[name]
    values = []
    for seed in range(SEEDS):
        _, verdicts = _answers(name, judge, seed)
        early, late = (
            plackett_luce.fit(joined(verdicts[:upto]), N, Parameters()).posterior
            for upto in (before, before + 1)
        )
        assert early is not None
        assert late is not None
        brings = growth(early.sigma, before, 1, k)
        foreseen = ranks.grown(ranks.reliability(early.mean, early.errors_across), brings)
        assert foreseen is not None
        values.append([ranks.reliability(late.mean, late.errors_across), foreseen])
    means: list[float] = np.mean(values, axis=0).tolist()
    return means


def _answers(name: str, judge: str, seed: int) -> tuple[Floats, list[Verdicts]]:
    answer, spread = JUDGES[judge]
    truth = np.random.default_rng(seed).normal(0, spread, N)
    strategy = strategies.parse(name, matchmaking="random")
    return truth, asked(answer, strategy, truth, seed).verdicts


def buying() -> None:
    """How many pairs a text, or rounds of lists of 10, say as much of texts of sd 2 as a direct score
    that correlates r with the truth (Spearman's); and how many times its input tokens the lists read."""
    prompt = prompts.load("bias")
    print(
        "| direct scores of r | pairs a text | rounds of lists | "
        + " | ".join(f"tokens, texts of {length}" for length in TEXTS)
        + " |\n|---|---|---|"
        + "---|" * len(TEXTS)
    )

    def tokens(k: int, length: int) -> float:
        """Of input, a text."""
        text = "word " * length
        messages = prompts.messages(prompt, [text] * k)
        fixed = tokens_of("".join(part["content"] for part in messages).replace(text, ""))
        return (fixed + k * length) / k

    for r in SCORES:
        pairs, lists = _needed(r, 2), _needed(r, 10)
        shares = " | ".join(
            f"{lists * tokens(10, length) / tokens(1, length):.1f}" for length in TEXTS
        )
        print(f"| {r:g} | {pairs:.1f} | {lists:.1f} | {shares} |")


def _needed(r: float, k: int) -> float:
    """Rankings of k a text that bring ρ̂ to r."""
    low, high = 0.0, 10_000.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if expected_rho(UNKNOWN, middle, k) < r else (low, middle)
    return high
