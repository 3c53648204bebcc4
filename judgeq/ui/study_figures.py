"""The figures of a simulation study: which strategy ranks best, and for how many calls.

From rows in memory to Matplotlib figures and to files.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from io import StringIO
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, NamedTuple, TypeVar

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


class _Point(NamedTuple):
    """A run, or the mean of a strategy's runs on one distribution, which has no bias and no seed."""

    kind: str
    strategy: str
    parameters: str
    rating: str
    distribution: str
    bias: int | None
    seed: int | None
    x: float
    rho: float


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
    """Draw both figures into the folder, each as .png, .svg and .csv, and write the ranking as .csv; the
    paths in order.

    Nothing is written unless all could be drawn, and no file is ever half written. Raises RunError if
    one can't be.
    """
    contents, tables = {}, {}
    for name, x in {"rho_by_cost": "cost", "rho_by_pairs": "implied_pairs"}.items():
        figure = panels(rows, x)
        for kind in ("png", "svg"):
            contents[f"{name}.{kind}"] = figures.content(figure, kind)
        tables[f"{name}.csv"] = _csv([(*_Point._fields[:-2], x, "rho"), *points(rows, x)])
    header = [field.name for field in fields(Ranked)]
    tables["ranking.csv"] = _csv([header, *map(astuple, ranked(rows))])
    contents |= tables
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


def points(rows: Sequence[StudyRow], x: str) -> list[_Point]:
    """The runs by a column `x`, then their means over biases and seeds."""
    points = [
        _Point("run", *_name(row), row.distribution, row.bias, row.seed, getattr(row, x), row.rho)
        for row in rows
    ]
    for runs in list(_grouped(points, lambda point: point[1:5]).values()):
        mean_x, mean_rho = fmean(run.x for run in runs), fmean(run.rho for run in runs)
        points.append(runs[0]._replace(kind="mean", bias=None, seed=None, x=mean_x, rho=mean_rho))
    return points


def panels(rows: Sequence[StudyRow], x: str) -> Figure:
    """ρ by a column of AXES, a panel a distribution in the order in which they occur; both axes are
    shared. Colours are strategies, shapes are ratings, and points of a larger bias are larger."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    drawn = points(rows, x)
    panels = _grouped(drawn, lambda point: point.distribution)
    strategies = sorted({point.strategy for point in drawn})
    colours = dict(zip(strategies, PALETTE, strict=False))
    biases = sorted({point.bias for point in drawn if point.bias is not None})
    sizes = {bias: 7 * place / len(biases) for place, bias in enumerate(biases, start=1)}
    columns = math.ceil(math.sqrt(len(panels)))
    lines = math.ceil(len(panels) / columns)
    entries = [(name, "o", colour, 6.0) for name, colour in colours.items()]
    ratings = sorted({point.rating for point in drawn}, reverse=True)
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
            _scatter(axes, inside, colours, sizes)
        if 0 < 10 * min(point.x for point in drawn) <= max(point.x for point in drawn):
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


def _scatter(
    axes: Axes, points: Sequence[_Point], colours: Mapping[str, str], sizes: Mapping[int, float]
) -> None:
    """The runs, the smaller points over the larger, and the means over them all."""
    axes.grid(color=GRID, linewidth=0.6)
    for (rating, bias), group in _grouped(points, lambda p: (p.rating, p.bias)).items():
        size, look = MEAN_SIZE, {"marker": MEAN_MARKER, "edgecolors": "white", "zorder": 3.0}
        if bias is not None:
            size, marker = sizes[bias], MARKERS[rating]
            look = {"marker": marker, "edgecolors": "none", "zorder": 3 - size / 8, "alpha": 0.45}
        across, up = [point.x for point in group], [point.rho for point in group]
        shades = [colours[point.strategy] for point in group]
        axes.scatter(across, up, size**2, shades, linewidths=0.6, **look)  # type: ignore[arg-type]


def _csv(table: Iterable[Iterable[object]]) -> bytes:
    """None is an empty cell; floats with all their digits, as csv writes their repr."""
    content = StringIO()
    csv.writer(content, lineterminator="\n").writerows(table)
    return content.getvalue().encode("utf-8", "backslashreplace")
