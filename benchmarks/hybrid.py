"""What direct scores add to lists: on published judgments, and by how well they tell the items apart."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from judgeq import seeds, strategies
from judgeq.datasets import load, synthetic
from judgeq.judge import simulated
from judgeq.rating import ESTIMATORS, Parameters, correlation
from judgeq.rating import direct as direct_and_lists
from judgeq.rating.comparisons import joined
from judgeq.settings.run import DatasetSpec, Simulation
from judgeq.strategies import History
from judgeq.types import Floats, Verdicts

FIGURE = Path(__file__).parent.parent / "docs" / "recorded.svg"
DRAWN = {
    "direct alone": "each text scored alone",
    "three rounds of lists, `pl`": "three rounds of lists of ten",
    "direct and 2 of lists, κ = 0.75": "both together (hybrid)",
}
"""The rows that are drawn, and what they are called in the figure."""
RESAMPLES = 1000
N, SEEDS = 500, 10
LISTS = 0.7
"""The accuracy of lists, of pairs 90 apart."""


SHARED = Path("../shared")


def recorded() -> None:
    """Pearson's r and Spearman's ρ with the gold labels of GPT-5-mini's published judgments, by calls a
    text; `hybrid` with κ of ¾, as it is, and of 1."""
    if not (SHARED / "recordings").exists():
        print("the recordings aren't at ../shared")
        return
    print("| | calls a text | BABE | Us vs. Them |\n|---|---|---|---|")
    datasets = {"BABE": "babe", "Us vs. Them": "us_vs_them"}
    columns = {title: _recorded(name) for title, name in datasets.items()}
    for rows in zip(*columns.values(), strict=True):
        numbers = " | ".join(f"{row.pearson:.3f} / {row.spearman:.3f}" for row in rows)
        print(f"| {rows[0].name} | {rows[0].calls:g} | {numbers} |")
    _draw(columns)


class Row(NamedTuple):
    """What judgments say of gold labels; `low` and `high` are the 95 % interval of Pearson's r, by a
    bootstrap over texts."""

    name: str
    calls: float
    pearson: float
    spearman: float
    low: float
    high: float


def _recorded(name: str) -> list[Row]:
    data = load(DatasetSpec(dataset=name, data_dir=SHARED / "data"), download=False)
    assert data.gold is not None
    n, gold = len(data), data.gold
    alone, lists = read(name, "direct"), read(name, "listwise10x3")

    def row(what: str, calls: float, theta: Floats) -> Row:
        known = np.flatnonzero(~np.isnan(gold) & ~np.isnan(theta))
        drawn = np.random.default_rng(0).choice(known, (RESAMPLES, len(known)))
        again = [np.corrcoef(theta[some], gold[some])[0, 1] for some in drawn]
        low, high = np.quantile(again, (0.025, 0.975))
        pearson, spearman = (
            correlation.point(measure(theta[known], gold[known]), len(known)) or 0.0
            for measure in (correlation.pearson, correlation.spearman)
        )
        return Row(what, calls, pearson, spearman, low, high)

    def rated(estimator: str, rounds: list[Verdicts]) -> Floats:
        return ESTIMATORS[estimator].fit(joined(rounds), n, Parameters()).theta

    rows = [row("direct alone", 1, rated("direct", alone))]
    rows += [row("three rounds of lists, Elo", 0.3, rated("elo", lists))]
    rows += [row("three rounds of lists, `pl`", 0.3, rated("pl", lists))]
    for share in (direct_and_lists.SHARE, 1.0):
        as_it_is, direct_and_lists.SHARE = direct_and_lists.SHARE, share
        for rounds in (1, 2, 3):
            theta = rated("hybrid", alone + lists[:rounds])
            what = f"direct and {rounds} of lists, κ = {share:g}"
            rows.append(row(what, 1 + rounds / 10, theta))
        direct_and_lists.SHARE = as_it_is
    return rows


def _draw(columns: dict[str, list[Row]]) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    mpl.rcParams |= {"svg.hashsalt": "judgeq", "svg.fonttype": "none", "font.size": 10}
    figure, panels = pyplot.subplots(1, 2, figsize=(7.2, 1.9), layout="constrained", sharey=True)
    for axes, (title, rows) in zip(panels, columns.items(), strict=True):
        some = [row for row in rows if row.name in DRAWN]
        for place, (row, colour) in enumerate(
            zip(some, ("#d55e00", "#0072b2", "#009e73"), strict=True)
        ):
            axes.plot((row.low, row.high), (place, place), color=colour, linewidth=2)
            axes.plot(row.pearson, place, "o", color=colour, markersize=8)
        axes.set_yticks(range(len(some)), [DRAWN[row.name] for row in some])
        axes.set_ylim(len(some) - 0.5, -0.5)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("Pearson's r with gold labels")
        axes.grid(axis="x", alpha=0.3)
    figure.savefig(FIGURE, metadata={"Date": None})
    pyplot.close(figure)
    print(f"drawn: {FIGURE}")


def read(name: str, kind: str) -> list[Verdicts]:
    """The verdicts of a recording, round by round."""
    path = SHARED / "recordings" / f"{name}_gpt-5-mini_{kind}.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    rounds = []
    for number in sorted({line.get("round", 1) for line in lines}):
        some = [line for line in lines if line.get("round", 1) == number]
        shown = [line["presented"] for line in some]
        flat = [
            np.array([item for items in of for item in items], np.int32)
            for of in ([one.get("ranking", one["presented"]) for one in some], shown)
        ]
        offsets = np.cumsum([0, *map(len, shown)])
        tied = np.zeros(len(flat[0]), dtype=np.bool_)
        verdicts = Verdicts(np.arange(len(some)), flat[0], offsets, tied, flat[1])
        scores = np.array([line.get("score", np.nan) for line in some])
        rounds.append(replace(verdicts, scores=scores) if kind == "direct" else verdicts)
    return rounds


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
        history.add(simulated.answers(matches, truth, judge, rng), len(matches))
    theta = history.fit(ESTIMATORS[rating], Parameters()).theta
    measures = (correlation.pearson(theta, truth), correlation.spearman(theta, truth))
    r, rho = (correlation.point(measure, N) or 0.0 for measure in measures)
    return r, rho
