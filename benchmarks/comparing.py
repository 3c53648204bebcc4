"""What comparing brings over scoring each text alone, by what is sent to a model."""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import mean

import judgeq

FIGURE = Path(__file__).parent.parent / "docs" / "comparing.svg"
SEEDS = 10
CURVES = {
    "each text scored alone": ("direct",),
    "lists of ten, 1 to 4 rounds": tuple(f"listwise10x{rounds}" for rounds in (1, 2, 3, 4)),
    "pairs, 1 to 24 rounds": tuple(f"pairwise{rounds}" for rounds in (1, 2, 4, 8, 16, 24)),
}


def comparing() -> None:
    """Spearman's ρ with the gold over the input tokens of the demo corpus, as a table and an SVG. The
    simulated judge makes the same errors alone, in pairs and in lists."""
    print("strategy        calls   tokens in       ρ")
    curves = {}
    for name, strategies in CURVES.items():
        points = []
        for strategy in strategies:
            plan = judgeq.estimate(
                "demo", strategy=strategy, judge="gpt-5-mini", settings={"cache": False}
            )
            tokens = (plan.input.low + plan.input.high) / 2
            rho = mean(_rho(strategy, seed) for seed in range(SEEDS))
            print(f"{strategy:14} {plan.calls:6,} {tokens:11,.0f} {rho:7.3f}")
            points.append((tokens, rho))
        curves[name] = points
    _draw(curves)


def _rho(strategy: str, seed: int) -> float:
    rating = "direct" if strategy == "direct" else "pl"
    with tempfile.TemporaryDirectory() as folder:
        result = judgeq.run(
            "demo",
            strategy=strategy,
            seed=seed,
            runs_dir=folder,
            settings={"texts": False},
            progress=False,
        )
    of_all = (one for one in result.evaluation if one.items == "all")
    return float({one.rating: one for one in of_all}[rating].measures["spearman"].value)


def _draw(curves: dict[str, list[tuple[float, float]]]) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    mpl.rcParams |= {"svg.hashsalt": "judgeq", "svg.fonttype": "none", "font.size": 10}
    figure, axes = pyplot.subplots(figsize=(6.4, 3.4), layout="constrained")
    styles = zip(("#d55e00", "#0072b2", "#009e73"), "Dos", (9, 6, 6), strict=True)
    for (name, points), (colour, marker, size) in zip(curves.items(), styles, strict=True):
        tokens, rhos = zip(*points, strict=True)
        axes.plot(tokens, rhos, marker=marker, color=colour, markersize=size, label=name)
    axes.set_xscale("log")
    axes.set_xlabel("input tokens for 240 short texts")
    axes.set_ylabel("Spearman's ρ with the truth")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(FIGURE, metadata={"Date": None})
    pyplot.close(figure)
    print(f"drawn: {FIGURE}")
