"""What direct scores add to lists, by how well they tell the items apart."""

from __future__ import annotations

import numpy as np

from judgeq import seeds, strategies
from judgeq.datasets import synthetic
from judgeq.judge import error_model
from judgeq.rating import ESTIMATORS, Parameters, correlation
from judgeq.settings import Simulation
from judgeq.strategies import History

N, SEEDS = 500, 10
LISTS = 0.7
"""The accuracy of lists, of pairs 90 apart."""


def hybrid() -> None:
    """500 items, 10 seeds, the simulated judge (vg), 750 cost-equivalent calls each. Goal: where direct
    scores alone say as much as three rounds of lists, well above both."""
    print("mean Pearson's r, Spearman's ρ with the true scores")
    print(
        "direct scores of accuracy     direct alone    three rounds    direct and two   gain in r"
    )
    plain = np.array([_run("listwise10x3", "pl", seed, LISTS) for seed in range(SEEDS)])
    for accuracy in (0.6, 0.7, 0.8, 0.9):
        direct, both = (
            np.array([_run("hybrid10x3", name, seed, accuracy) for seed in range(SEEDS)])
            for name in ("direct", "hybrid")
        )
        means = (part.mean(axis=0) for part in (direct, plain, both))
        columns = "  ".join(f"{r:.3f}, {rho:.3f} " for r, rho in means)
        gain = both[:, 0] - np.maximum(plain[:, 0].mean(), direct[:, 0].mean())
        error = gain.std(ddof=1) / SEEDS**0.5
        print(f"{accuracy:<29} {columns}  {gain.mean():+.3f} ± {2 * error:.3f}")
    print("gain: over the better of the two alone, ± 2 standard errors over seeds")


def _run(text: str, rating: str, seed: int, alone: float) -> tuple[float, float]:
    """Pearson's r and Spearman's ρ of a rating with the true scores; `alone` is the accuracy of direct
    scores."""
    truth = synthetic.draw("normal", N, seeds.rng(seed, "latent"))
    history = History.begin(N, strategies.parse(text), seed)
    for round in history.to_come():
        matches = history.next_round()
        accuracy = alone if int(matches.sizes.max()) == 1 else LISTS
        rng, judge = seeds.rng(seed, "answers", round), Simulation(sim_accuracy=accuracy)
        history.add(error_model.answers(matches, truth, judge, rng), len(matches))
    theta = history.rate(ESTIMATORS[rating], Parameters())
    measures = (correlation.pearson(theta, truth), correlation.spearman(theta, truth))
    r, rho = (correlation.point(measure, N) or 0.0 for measure in measures)
    return r, rho
