"""How often 95 % intervals hold, and how far off ρ̂ is, by judge and design; and of which strategy
a run of the same cost ranks best."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import NamedTuple

import numpy as np

from benchmarks.judges import DESIGNS, JUDGES, play
from judgeq.rating import ESTIMATORS, Fit, Parameters, correlation
from judgeq.rating.comparisons import joined
from judgeq.rating.posterior import Posterior
from judgeq.rating.ranks import intervals, ranks, reliability
from judgeq.types import Floats

N, RUNS, COVERAGE_RUNS = 200, 20, 10
COSTS = {
    "0.5": ("listwise10x1",),
    "1": ("listwise10x2",),
    "1.5": ("listwise10x3", "listwise10x3 similar", "listwise20x3", "pairwise3", "hybrid10x3"),
    "3": ("listwise10x6", "listwise10x6 similar", "listwise20x6", "pairwise6"),
    "12": ("listwise10x24", "pairwise24 random", "pairwise24"),
}
"""Strategies by the cost-equivalent calls an item that they take; those of pairs match similar
items. The direct scores of the hybrid are `vg`'s."""

ONCE = ("listwise5x1", "listwise10x1", "listwise20x1", "pairwise1")
"""Strategies of one answer a text."""
ONCE_JUDGES = ("model, sd 0.5", "model, sd 1", "model, sd 2", "model, sd 4")


class Counted(NamedTuple):
    """The shares of items whose rating lies within its interval, of all, of the most extreme tenth by
    score, and of that by the truth, and of those whose true rank does; σ, ρ̂, and the true ρ."""

    ratings: float
    ends_by_score: float
    ends_by_truth: float
    ranks: float
    sigma: float
    known: float
    rho: float


def counted(
    judge: str,
    design: str,
    n: int,
    runs: Iterable[int],
    fit: Callable[..., Fit] = ESTIMATORS["pl"].fit,
) -> Counted:
    """Return means over runs of these seeds, of n items, rated by default as a user's runs are. The
    rating that should be covered is the same judge's in the end (`judges.play`)."""
    of_each = [_of_run(judge, design, n, seed, fit) for seed in runs]
    return Counted(*np.mean(of_each, axis=0).tolist())


def _of_run(judge: str, design: str, n: int, seed: int, fit: Callable[..., Fit]) -> Counted:
    run = play(judge, design, n, seed)
    rated = fit(joined(run.history.verdicts), n, Parameters())
    posterior = rated.posterior
    assert isinstance(posterior, Posterior)
    sure = intervals(posterior)
    rank = ranks(run.truth, np.ones(n, dtype=np.int64))
    within = (sure.low <= run.theta) & (run.theta <= sure.high)
    by_score, by_truth = (
        np.argsort(-np.abs(values - values.mean()))[: n // 10]
        for values in (rated.theta, run.theta)
    )
    return Counted(
        float(within.mean()),
        float(within[by_score].mean()),
        float(within[by_truth].mean()),
        float(((sure.rank_low <= rank) & (rank <= sure.rank_high)).mean()),
        posterior.sigma,
        reliability(posterior.mean, posterior.errors_across),
        true_rho(rated.theta, run.truth),
    )


def true_rho(theta: Floats, truth: Floats) -> float:
    """Spearman's ρ of ratings with the true values."""
    rho = correlation.point(correlation.spearman(theta, truth), len(truth))
    assert rho is not None
    return rho


def _of_designs(judge: str) -> list[Counted]:
    """Return a judge's row: all designs by one process, which keeps what the judge says in the end."""
    return [counted(judge, design, N, range(COVERAGE_RUNS)) for design in DESIGNS]


def coverage() -> None:
    """200 items, 10 runs: of ratings, of those of the most extreme tenth by score and of that by the
    truth, and of true ranks, the share in % within 95 % intervals; ρ̂ and, behind it, the true ρ. Goal:
    92 to 97 %, and ρ̂ within 0.02."""
    print("| judge | " + " | ".join(DESIGNS) + " |\n|---|" + "---|" * len(DESIGNS))
    with ProcessPoolExecutor() as processes:
        table = list(processes.map(_of_designs, JUDGES))
    for judge, cells in zip(JUDGES, table, strict=True):
        row = " | ".join(
            f"{100 * one.ratings:.0f}, {100 * one.ends_by_score:.0f}, {100 * one.ends_by_truth:.0f}, "
            f"{100 * one.ranks:.0f}; "
            f"{one.known:.3f} ({one.rho:.3f})"
            for one in cells
        )
        print(f"| {judge} | {row} |")
    of_all = np.concatenate(table)
    low, high = of_all.min(axis=0), of_all.max(axis=0)
    names = ("ratings", "extreme by score", "extreme by truth", "ranks")
    for name, least, most in zip(names, low, high, strict=False):
        print(f"{name}: {least:.1%} to {most:.1%}")


def once() -> None:
    """200 items, 20 runs of one answer a text, by judges as the model has them: of ratings, of those of
    the most extreme tenth by score, and of true ranks, the share in % within 95 % intervals. Goal: 90 to
    99 % of ratings, whatever the sd of the true values."""
    print("| judge | " + " | ".join(ONCE) + " |\n|---|" + "---|" * len(ONCE))
    with ProcessPoolExecutor() as processes:
        cells = list(processes.map(_once, product(ONCE_JUDGES, ONCE)))
    for number, judge in enumerate(ONCE_JUDGES):
        row = cells[number * len(ONCE) :][: len(ONCE)]
        shares = (", ".join(f"{100 * share:.0f}" for share in cell) for cell in row)
        print(f"| {judge} | {' | '.join(shares)} |")


def _once(about: tuple[str, str]) -> list[float]:
    """Return the shares of a cell of `once`. True values and ranks are those within components, since
    nothing compares these."""
    judge, design = about
    shares = []
    for seed in range(RUNS):
        run = play(judge, design, N, seed, end=False)
        fit = run.history.fit(ESTIMATORS["pl"], Parameters())
        assert fit.posterior is not None
        part = fit.posterior.component
        truth = run.truth - (np.bincount(part, run.truth) / np.maximum(np.bincount(part), 1))[part]
        sure = intervals(fit.posterior)
        rank = ranks(truth, part)
        within = (sure.low <= truth) & (truth <= sure.high)
        far = np.argsort(-np.abs(fit.theta))[: N // 10]
        of_ranks = (sure.rank_low <= rank) & (rank <= sure.rank_high)
        shares.append([within.mean(), within[far].mean(), of_ranks.mean()])
    means: list[float] = np.mean(shares, axis=0).tolist()
    return means


def strategies() -> None:
    """200 items, 20 runs: Spearman's ρ with the true values by strategies of the same cost."""
    judges = ("model, sd 2", "vg", "dependent lists", "20 % at random", "uneven texts")
    print(
        "| cost a text | strategy | " + " | ".join(judges) + " |\n|---|---|" + "---|" * len(judges)
    )
    names = [(cost, name) for cost, of_cost in COSTS.items() for name in of_cost]
    with ProcessPoolExecutor() as processes:
        means = list(processes.map(_mean_rho, product(judges, [name for _, name in names])))
    for number, (cost, name) in enumerate(names):
        row = " | ".join(f"{value:.3f}" for value in means[number :: len(names)])
        print(f"| {cost} | `{name}` | {row} |")


def _mean_rho(about: tuple[str, str]) -> float:
    judge, design = about
    values = []
    for seed in range(RUNS):
        run = play(judge, design, N, seed, end=False)
        estimator = ESTIMATORS["hybrid" if run.history.basis == "both" else "pl"]
        values.append(true_rho(run.history.fit(estimator, Parameters()).theta, run.truth))
    return float(np.mean(values))
