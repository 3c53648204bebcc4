"""The figures of a simulation study: which strategy ranks best, and for how many calls.

From rows in memory to Matplotlib figures and to files; where the rows come from isn't known here.
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

import numpy as np

from judgeq.escaping import plain
from judgeq.files import replacing
from judgeq.judge.error_model import probability_correct
from judgeq.rating import ESTIMATORS
from judgeq.settings import Simulation
from judgeq.study.simulation import StudyRow
from judgeq.ui import figures
from judgeq.ui.figures import FAINT, GRID, PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = dict(zip(ESTIMATORS, "os^Dv", strict=False))
OTHER_MARKER, MEAN_MARKER, MEAN_SIZE = "^", "X", 6.5
AXES = {
    "cost": "Cost-equivalent calls (1 a pair, k/2 a list of k)",
    "implied_pairs": "Comparisons that the answers imply",
}
RHO = "Spearman’s ρ against the latent order"
GAPS = np.arange(601.0)  # at which the win curve is drawn
LABEL = 28  # characters of a row's text that are shown

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


def win_curve(judge: Simulation) -> Figure:
    """P(correct) of a simulated judge by gap, with the point that it is calibrated to."""
    return figures.figure((_win_curve, judge))


def _win_curve(axes: Axes, judge: Simulation) -> None:
    distance, accuracy = judge.sim_distance, judge.sim_accuracy
    figures.label(axes, "Gap between the two items", "Probability of a correct answer")
    axes.set(xlim=(0, max(GAPS[-1], distance)), ylim=(0.5, 1.04))
    axes.axhline(judge.sim_pmax, color=FAINT, linestyle="--", linewidth=1)
    axes.plot(GAPS, probability_correct(GAPS, judge), color=PALETTE[0], linewidth=2)
    axes.plot(distance, accuracy, "o", color=PALETTE[1], ms=8, mec="white", clip_on=False)
    axes.text(distance + 12, accuracy - 0.03, f"calibrated to {accuracy:g} at {distance:g}")
    axes.text(GAPS[-1], judge.sim_pmax + 0.01, f"pmax = {judge.sim_pmax:g}", ha="right")


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


def write(rows: Sequence[StudyRow], folder: Path, judge: Simulation) -> list[Path]:
    """Draw all figures into the folder, each as .png, .svg and .csv, and write the ranking as .csv; the
    paths in order.

    `judge` is the simulated one. Nothing is written unless all could be drawn, and no file is ever half
    written. Raises RunError if one can't be.
    """
    axes = {"rho_by_cost": "cost", "rho_by_pairs": "implied_pairs"}
    drawn = {name: panels(rows, x) for name, x in axes.items()}
    drawn["win_probability"] = win_curve(judge)
    tables: dict[str, Iterable[Iterable[object]]] = {
        name: [(*_Point._fields[:-2], x, "rho"), *points(rows, x)] for name, x in axes.items()
    }
    chances = zip(GAPS.astype(int).tolist(), probability_correct(GAPS, judge).tolist(), strict=True)
    tables["win_probability"] = [("gap", "probability"), *chances]
    tables["ranking"] = [[field.name for field in fields(Ranked)], *map(astuple, ranked(rows))]
    contents = {
        f"{name}.{kind}": figures.content(figure, kind)
        for name, figure in drawn.items()
        for kind in ("png", "svg")
    }
    contents |= {f"{name}.csv": _csv(table) for name, table in tables.items()}
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


def _rating(name: str) -> str:
    estimator = ESTIMATORS.get(name)
    if estimator is None:
        return plain(name, LABEL)
    return estimator.label if name == estimator.column else f"{estimator.label} ({name})"


def panels(rows: Sequence[StudyRow], x: str) -> Figure:
    """ρ by a column of AXES, a panel a distribution in the order in which they occur; both axes are
    shared. Colours are strategies, shapes are ratings, and points of a larger bias are larger."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    drawn = points(rows, x)
    panels = _grouped(drawn, lambda point: point.distribution)
    colours = _colours(sorted({point.strategy for point in drawn}))
    biases = sorted({point.bias for point in drawn if point.bias is not None})
    sizes = {bias: 7 * place / len(biases) for place, bias in enumerate(biases, start=1)}
    columns = math.ceil(math.sqrt(len(panels)))
    lines = math.ceil(len(panels) / columns)
    entries = [(plain(name, LABEL), "o", colour, 6.0) for name, colour in colours.items()]
    ratings = sorted({point.rating for point in drawn}, reverse=True)
    entries += [(_rating(one), MARKERS.get(one, OTHER_MARKER), FAINT, 6.0) for one in ratings]
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
            axes.set_title(plain(distribution, LABEL), fontsize=9)
            _scatter(axes, inside, colours, sizes)
        if 0 < 10 * min(point.x for point in drawn) <= max(point.x for point in drawn):
            figures.logarithmic(figure.axes[0], (1, 3))
        handles = [
            Line2D([], [], ls="", marker=m, c=c, ms=size, mew=0) for _, m, c, size in entries
        ]
        # Labels are set afterwards: a legend leaves out those that begin with an underscore.
        legend = figure.legend(
            handles, ["."] * len(handles), loc="outside right upper", frameon=False
        )
        for text, (label, *_) in zip(legend.get_texts(), entries, strict=True):
            text.set_text(label)
        figure.supxlabel(AXES[x], fontsize=9)
        figure.supylabel(RHO, fontsize=9)
        figure.draw_without_rendering()  # ticks take their style when first drawn
    return figure


def _colours(strategies: Sequence[str]) -> dict[str, str]:
    """A colour each; past eight strategies from a scale, which the colour-blind can read too."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    shades = PALETTE
    if len(strategies) > len(PALETTE):
        shades = [
            to_hex(shade) for shade in colormaps["viridis"](np.linspace(0, 1, len(strategies)))
        ]
    return dict(zip(strategies, shades, strict=False))


def _scatter(
    axes: Axes, points: Sequence[_Point], colours: Mapping[str, str], sizes: Mapping[int, float]
) -> None:
    """The runs, the smaller points over the larger, and the means over them all."""
    axes.grid(color=GRID, linewidth=0.6)
    for (rating, bias), group in _grouped(points, lambda p: (p.rating, p.bias)).items():
        size, look = MEAN_SIZE, {"marker": MEAN_MARKER, "edgecolors": "white", "zorder": 3.0}
        if bias is not None:
            size, marker = sizes[bias], MARKERS.get(rating, OTHER_MARKER)
            look = {"marker": marker, "edgecolors": "none", "zorder": 3 - size / 8, "alpha": 0.45}
        across, up = [point.x for point in group], [point.rho for point in group]
        shades = [colours[point.strategy] for point in group]
        axes.scatter(across, up, size**2, shades, linewidths=0.6, **look)  # type: ignore[arg-type]


def _csv(table: Iterable[Iterable[object]]) -> bytes:
    """None is an empty cell; floats with all their digits, as csv writes their repr."""
    content = StringIO()
    csv.writer(content, lineterminator="\n").writerows(table)
    return content.getvalue().encode("utf-8", "backslashreplace")
