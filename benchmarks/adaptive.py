"""What adaptive rounds buy in the paper's simulation, and how far off ρ̂ is."""

from __future__ import annotations

import time
from itertools import product

import numpy as np

from judgeq import seeds, strategies
from judgeq.datasets import synthetic
from judgeq.judge import error_model
from judgeq.rating import ESTIMATORS, Parameters, certainty, correlation
from judgeq.settings import Simulation
from judgeq.strategies import History
from judgeq.types import Floats, Matches, Verdicts

N, SEEDS = 1000, 8
DESIGNS = (
    ("adaptive10", "pl"),
    ("listwise10", "pl"),
    ("listwise10", "bt-mm"),
    ("adaptive20", "pl"),
)


def adaptive() -> None:
    """1,000 items, the paper's distributions and three levels of bias, eight seeds, 1,500 cost-
    equivalent calls. Goals: 0.950 against 0.946 (rrt), 0.916 against 0.909 (vg)."""
    print(f"mean ρ of {N:,} items at 1,500 cost-equivalent calls, by bias of 0, 50 and 200 items")
    print("judge  distributions    " + "".join(f"{'+'.join(design):>18}" for design in DESIGNS))
    for model in ("rrt", "vg"):
        rows: list[list[float]] = []
        for shapes in (("linear", "bimodal", "normal"), ("binary",)):
            for shape, bias, seed in product(shapes, (0, 50, 200), range(SEEDS)):
                rows.append(_of_each(model, shape, bias, seed))
            of = np.array(rows)
            more = of[:, 0] - of[:, 1]
            error = more.std(ddof=1) / len(more) ** 0.5
            print(
                f"{model:6} {'those 3, binary' if 'binary' in shapes else 'its text names 3':17}"
                + "".join(f"{mean:18.3f}" for mean in of.mean(axis=0))
                + f"   adaptive10 − listwise10: {more.mean():+.4f} ± {error:.4f}",
                flush=True,
            )


def _of_each(model: str, shape: str, bias: int, seed: int) -> list[float]:
    """ρ by each design."""
    truth = synthetic.draw(shape, N, seeds.rng(seed, "latent", shape))
    judge = Simulation(sim_model="vg" if model == "vg" else "rrt", sim_biased_items=bias)
    seen = error_model.seen_scores(truth, judge, seed)
    histories: dict[str, History] = {}
    for strategy in dict.fromkeys(strategy for strategy, _ in DESIGNS):
        histories[strategy] = History.begin(N, strategies.parse(strategy), seed)
        _play(histories[strategy], seen, judge, seed)
    return [_rho(histories[strategy], rating, truth) for strategy, rating in DESIGNS]


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


def _rho(history: History, rating: str, truth: Floats) -> float:
    theta = history.rate(ESTIMATORS[rating], Parameters())
    rho = correlation.point(correlation.spearman(theta, truth), len(truth))
    assert rho is not None
    return rho


def known() -> None:
    """300 items, 10 seeds. Goal: ρ̂ within 0.02 of ρ where the judge fits the model."""
    print("judge                strategy       ρ̂       ρ    off by")
    for name, strategy in product(
        ("σ = 1", "σ = 2", "σ = 4", "rrt", "vg"), ("listwise10", "adaptive10", "pairwise24")
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
    return certainty.known(posterior, posterior.component > 0).rho, _rho(history, "pl", truth)


def matchmaking() -> None:
    """Planning adaptive rounds. Goals: under 1 s a round at 3,674 items, under 30 s at 100,000."""
    print("   items   a round, on average and at most (where σ is chosen anew)")
    for n in (3_674, 100_000):
        truth = synthetic.draw("normal", n, seeds.rng(0, "latent"))
        history = History.begin(n, strategies.parse("adaptive10x40"), 0)
        judge, planning = Simulation(), list[float]()
        for round in history.to_come():
            begun = time.perf_counter()
            matches = history.next_round()
            planning.append(time.perf_counter() - begun)
            rng = seeds.rng(0, "answers", round)
            history.add(error_model.answers(matches, truth, judge, rng), len(matches))
            if round == 9:
                break
        mean, most = np.mean(planning[1:]), max(planning[1:])
        print(f"{n:8,} {mean:8.2f} s {most:8.2f} s", flush=True)
