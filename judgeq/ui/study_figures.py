"""The figures of a simulation study: which strategy ranks best, and for how many calls.

From rows in memory to Matplotlib figures and to files.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from io import StringIO
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, TypeVar

from judgeq.files import replacing
from judgeq.rating import ESTIMATORS
from judgeq.study.simulation import StudyRow
from judgeq.ui import figures
from judgeq.ui.figures import FAINT, GRID, PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = dict(zip(ESTIMATORS, "os^DvP", strict=False))
MEAN_MARKER, MEAN_SIZE = "X", 6.5
AXES = {
    "cost": "Cost-equivalent calls (1 a pair, k/2 a list of k)",
    "implied_pairs": "Comparisons that the answers imply",
}
RHO = "Spearman’s ρ against the latent order"

Thing = TypeVar("Thing")
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Ranked:
    """A strategy's means over distributions, biases and seeds.

    `rho_se` is the standard error of the mean over seeds, from each seed's mean ρ; None with one.
    """

    strategy: str
    parameters: str
    rating: str
    rho: float
    rho_se: float | None
    pairs: float
    lists: float
    cost: float
    score: float
    runs: int


def ranked(rows: Sequence[StudyRow]) -> list[Ranked]:
    """The strategies by mean score, best first, ties by name."""
    strategies = [
        Ranked(
            *name,
            rho=fmean(row.rho for row in runs),
            rho_se=_standard_error(runs),
            pairs=fmean(row.pairs for row in runs),
            lists=fmean(row.lists for row in runs),
            cost=fmean(row.cost for row in runs),
            score=fmean(row.score for row in runs),
            runs=len(runs),
        )
        for name, runs in _grouped(rows, _name).items()
    ]
    return sorted(
        strategies, key=lambda one: (-one.score, one.strategy, one.parameters, one.rating)
    )


def write(rows: Sequence[StudyRow], folder: Path) -> list[Path]:
    """Draw both figures into the folder, each as .png and .svg, and write the ranking as .csv; the paths
    in order.

    Nothing is written unless all could be drawn, and no file is ever half written. Raises RunError if
    one can't be.
    """
    contents = {}
    for name, x in {"rho_by_cost": "cost", "rho_by_pairs": "implied_pairs"}.items():
        figure = panels(rows, x)
        for kind in ("png", "svg"):
            contents[f"{name}.{kind}"] = figures.content(figure, kind)
    table = StringIO()
    ranking = csv.writer(table, lineterminator="\n")  # floats with all their digits
    ranking.writerows([[field.name for field in fields(Ranked)], *map(astuple, ranked(rows))])
    contents["ranking.csv"] = table.getvalue().encode()
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        with replacing(folder / name) as file:
            file.buffer.write(content)
    return [folder / name for name in contents]


def _name(row: StudyRow) -> tuple[str, str, str]:
    return row.strategy, row.parameters, row.rating


def _grouped(things: Iterable[Thing], key: Callable[[Thing], Key]) -> dict[Key, list[Thing]]:
    """In the order in which the keys first occur."""
    groups: dict[Key, list[Thing]] = {}
    for thing in things:
        groups.setdefault(key(thing), []).append(thing)
    return groups


def _standard_error(rows: Sequence[StudyRow]) -> float | None:
    seeds = _grouped(rows, lambda row: row.seed)
    means = [fmean(row.rho for row in group) for group in seeds.values()]
    return stdev(means) / math.sqrt(len(means)) if len(means) > 1 else None


def panels(rows: Sequence[StudyRow], x: str) -> Figure:
    """ρ by a column of AXES, a panel a distribution in the order in which they occur; both axes are
    shared. Colours are strategies, shapes are ratings, and points of a larger bias are larger."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    panels = _grouped(rows, lambda row: row.distribution)
    strategies = sorted({row.strategy for row in rows})
    colours = dict(zip(strategies, PALETTE, strict=False))
    biases = sorted({row.bias for row in rows})
    sizes = {bias: 7 * place / len(biases) for place, bias in enumerate(biases, start=1)}
    columns = math.ceil(math.sqrt(len(panels)))
    lines = math.ceil(len(panels) / columns)
    entries = [(name, "o", colour, 6.0) for name, colour in colours.items()]
    ratings = sorted({row.rating for row in rows}, reverse=True)
    entries += [(f"{ESTIMATORS[one].label} ({one})", MARKERS[one], FAINT, 6.0) for one in ratings]
    entries += [(f"{bias:,} items seen wrongly", "o", FAINT, sizes[bias]) for bias in biases]
    entries.append(("mean over these and seeds", MEAN_MARKER, FAINT, MEAN_SIZE))
    with figures.style():
        height = max(2.8 * lines, 0.2 * len(entries)) + 0.4
        figure = Figure(figsize=(3 * columns + 2.4, height), layout="constrained")
        grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).ravel()
        for axes in grid[len(panels) :]:
            axes.remove()
        for axes in figure.axes[-columns:]:  # nothing is below them
            axes.tick_params(labelbottom=True)
        for axes, (distribution, inside) in zip(figure.axes, panels.items(), strict=True):
            axes.set_title(distribution, fontsize=9)
            _draw(axes, inside, x, colours, sizes)
        across = [getattr(row, x) for row in rows]
        if 0 < 10 * min(across) <= max(across):
            figures.logarithmic(figure.axes[0], (1, 3))
        handles = [
            Line2D([], [], ls="", marker=m, c=c, ms=size, mew=0, label=label)
            for label, m, c, size in entries
        ]
        figure.legend(handles=handles, loc="outside right upper", frameon=False)
        figure.supxlabel(AXES[x], fontsize=9)
        figure.supylabel(RHO, fontsize=9)
        figure.draw_without_rendering()  # ticks take their style when first drawn
    return figure


def _draw(
    axes: Axes,
    rows: Sequence[StudyRow],
    x: str,
    colours: Mapping[str, str],
    sizes: Mapping[int, float],
) -> None:
    """The runs, the smaller points over the larger, and the means of strategies over them all."""

    def scatter(parts: Collection[Sequence[StudyRow]], size: float, **look: Any) -> None:
        across = [fmean(getattr(row, x) for row in part) for part in parts]
        up = [fmean(row.rho for row in part) for part in parts]
        shades = [colours[part[0].strategy] for part in parts]
        axes.scatter(across, up, s=size**2, c=shades, linewidths=0.6, **look)

    axes.grid(color=GRID, linewidth=0.6)
    for (rating, bias), group in _grouped(rows, lambda row: (row.rating, row.bias)).items():
        size, look = sizes[bias], {"marker": MARKERS[rating], "edgecolors": "none", "alpha": 0.45}
        scatter([[row] for row in group], size, zorder=3 - size / 8, **look)
    means = _grouped(rows, _name).values()
    scatter(means, MEAN_SIZE, marker=MEAN_MARKER, edgecolors="white", zorder=3)
