"""How far off ρ̂ is."""

from __future__ import annotations

from itertools import product

import numpy as np

from judgeq import seeds, strategies
from judgeq.datasets import synthetic
from judgeq.judge import error_model
from judgeq.rating import ESTIMATORS, Parameters, correlation, order
from judgeq.settings import Simulation
from judgeq.strategies import History
from judgeq.types import Floats, Matches, Verdicts


def _play(history: History, seen: Floats, judge: Simulation | None, seed: int) -> None:
    for round in history.to_come():
        matches = history.next_round()
        rng = seeds.rng(seed, "answers", round)
        if judge is None:
            history.add(_by_the_model(matches, seen, rng), len(matches))
        else:
            history.add(error_model.answers(matches, seen, judge, rng), len(matches))


def _by_the_model(matches: Matches, theta: Floats, rng: np.random.Generator) -> Verdicts:
    """Answers of a judge that Plackett-Luce describes."""
    noisy = theta[matches.items] + rng.gumbel(size=len(matches.items))
    number = np.repeat(np.arange(len(matches)), matches.sizes)
    ranked = matches.items[np.lexsort((-noisy, number))]
    tied = np.zeros(len(ranked), dtype=np.bool_)
    return Verdicts(np.arange(len(matches)), ranked, matches.offsets, tied, matches.items)


def _rho(history: History, truth: Floats) -> float:
    theta = history.rate(ESTIMATORS["pl"], Parameters())
    rho = correlation.point(correlation.spearman(theta, truth), len(truth))
    assert rho is not None
    return rho


def known() -> None:
    """300 items, 10 seeds. Goal: ρ̂ within 0.02 of ρ where the judge fits the model."""
    print("judge                strategy       ρ̂       ρ    off by")
    for name, strategy in product(
        ("σ = 1", "σ = 2", "σ = 4", "rrt", "vg"), ("listwise10", "pairwise24")
    ):
        rows = np.array([_known(name, strategy, seed) for seed in range(10)])
        estimate, true = rows.mean(axis=0)
        label = name if name in ("rrt", "vg") else f"model, {name}"
        print(
            f"{label:20} {strategy:12} {estimate:6.3f}  {true:6.3f}  {estimate - true:+.3f}",
            flush=True,
        )


def _known(judge: str, strategy: str, seed: int) -> tuple[float, float]:
    """ρ̂ and ρ of one run."""
    n, history = 300, History.begin(300, strategies.parse(strategy), seed)
    rng = seeds.rng(seed, "latent")
    if judge in ("rrt", "vg"):
        truth = synthetic.draw("normal", n, rng)
        _play(history, truth, Simulation(sim_model="vg" if judge == "vg" else "rrt"), seed)
    else:
        truth = rng.normal(0, float(judge.removeprefix("σ = ")), n)
        _play(history, truth, None, seed)
    posterior = history.posterior()
    assert posterior is not None
    return order.known(posterior.mean, posterior.errors_across).rho, _rho(history, truth)
