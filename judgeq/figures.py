"""The figures of a simulation study: which strategy ranks best, and for how many calls.

From rows in memory to Matplotlib figures and to files; where the rows come from isn't known here.
Matplotlib is imported when something is drawn. Neither pyplot nor the user's matplotlibrc has a
part in it: the same rows give the same bytes.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from io import BytesIO, StringIO
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, TypeVar

from judgeq.words import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import XAxis
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by the colour-blind too; yellow last, as it is faint on white.
PALETTE = ["#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#000000", "#F0E442"]
FAINT = "#777777"
MARKERS = {"elo": "o", "bt": "s"}
OTHER_MARKER, MEAN_MARKER, MEAN_AREA = "^", "X", 42.0
RATINGS = {"elo": "Elo", "bt": "Bradley-Terry"}
COST = "Cost-equivalent calls (1 a pair, k/2 a list of k)"
IMPLIED = "Comparisons that the answers imply"
RHO = "Spearman’s ρ against the latent order"
HEADS = ["", "Strategy", "Parameters", "Rating", "ρ", "s.e.", "Pairs", "Lists", "Cost", "Score"]
GAPS = range(601)  # at which the win curve is drawn
CELL, LABEL = 44, 28  # characters of a row's text that are shown, in the table and elsewhere
STYLE = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "jq"}

Curve: TypeAlias = tuple[float, float, float, float]
Thing = TypeVar("Thing")
Key = TypeVar("Key")


@dataclass(frozen=True)  # read-only: any frozen dataclass or named tuple with these will do
class Row(Protocol):
    """One run of the study: a strategy on one set of texts, rated one way. Numbers are finite."""

    strategy: str
    parameters: str
    rating: str  # "elo" or "bt"
    distribution: str  # of the latent scores
    bias: int  # how many items the annotator always sees wrongly
    seed: int
    rho: float  # Spearman's, against the latent order
    pairs: int  # asked
    lists: int  # asked
    implied_pairs: int  # comparisons that the answers imply
    cost: float  # cost-equivalent calls: 1 a pair, k/2 a list of k
    score: float  # what the strategies are ranked by: more is better


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


def by_cost(rows: Sequence[Row]) -> Figure:
    """ρ by cost-equivalent calls, a panel a distribution. ValueError for no rows or a nan."""
    return _panels(_points(rows, lambda row: row.cost), COST)


def by_pairs(rows: Sequence[Row]) -> Figure:
    """ρ by comparisons implied, a panel a distribution. ValueError for no rows or a nan."""
    return _panels(_points(rows, lambda row: row.implied_pairs), IMPLIED)


def win_curve(pmax: float, tau: float, distance: float, accuracy: float) -> Figure:
    """P(correct) by gap, from 0 to 600, with the point that it is calibrated to; see `win`."""
    from matplotlib.figure import Figure

    with _style():
        figure = Figure(figsize=(5, 3.4), layout="constrained")
        axes = figure.subplots()
        axes.axhline(pmax, color=FAINT, linestyle="--", linewidth=1)
        axes.plot(GAPS, [win(gap, pmax, tau) for gap in GAPS], color=PALETTE[0], linewidth=2)
        axes.plot(distance, accuracy, "o", color=PALETTE[1], ms=8, mec="white", clip_on=False)
        label = f"calibrated to {accuracy:g} at {distance:g}"
        axes.text(distance + 12, accuracy - 0.03, label, color=FAINT)
        axes.text(GAPS[-1], pmax + 0.01, f"pmax = {pmax:g}", ha="right", color=FAINT)
        axes.set(xlabel="Gap between the two items", ylabel="Probability of a correct answer")
        axes.set(xlim=(0, max(GAPS[-1], distance)), ylim=(0.5, 1.04))
        figure.draw_without_rendering()  # ticks take their style when first drawn
    return figure


def win(gap: float, pmax: float, tau: float) -> float:
    """P(correct | gap) = ½ + (pmax − ½)(1 − exp(−gap/τ)), as the simulated judge answers."""
    return 0.5 + (pmax - 0.5) * -math.expm1(-gap / tau)


def ranked(rows: Sequence[Row]) -> list[Ranked]:
    """The strategies by mean score, best first, ties by name. ValueError for no rows or a nan."""
    found = [
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
        for name, runs in _grouped(_checked(rows), _name).items()
    ]
    return sorted(found, key=lambda one: (-one.score, one.strategy, one.parameters, one.rating))


def ranked_table(ranked: Sequence[Ranked], most: int = 20) -> Figure:
    """The first `most` of them as a table, as wide and as high as its texts."""
    table = [[*HEADS, "Runs"]]
    for place, one in enumerate(ranked[:most], start=1):
        names = [plain(one.strategy, CELL), plain(one.parameters, CELL), _rating(one.rating)]
        error = "–" if one.rho_se is None else f"{one.rho_se:.4f}"
        asked = [f"{mean:,.0f}" for mean in (one.pairs, one.lists, one.cost)]
        numbers = [f"{one.rho:.3f}", error, *asked, f"{one.score:.3f}", f"{one.runs:,}"]
        table.append([str(place), *names, *numbers])
    return _table(table, texts=range(1, 4))


def write(rows: Sequence[Row], folder: Path, *, curve: Curve) -> list[Path]:
    """Draw all figures into the folder, each as .png, .svg and .csv; the paths in order.

    `curve`: pmax, tau, distance and accuracy, as for `win_curve`. Nothing is written unless all
    could be drawn, and no file is ever half written. ValueError for no rows or a nan.
    """
    costs = _points(rows, lambda row: row.cost)
    pairs = _points(rows, lambda row: row.implied_pairs)
    chances = [(gap, win(gap, *curve[:2])) for gap in GAPS]
    order = ranked(rows)
    point, places = _Point._fields[:-2], [field.name for field in fields(Ranked)]
    contents: dict[str, bytes] = {}
    for name, figure, header, data in (
        ("rho_by_cost", _panels(costs, COST), [*point, "cost", "rho"], costs),
        ("rho_by_pairs", _panels(pairs, IMPLIED), [*point, "implied_pairs", "rho"], pairs),
        ("win_probability", win_curve(*curve), ["gap", "probability"], chances),
        ("ranking", ranked_table(order), places, [astuple(one) for one in order]),
    ):
        contents[f"{name}.png"] = _drawn(figure, "png", {"Software": None})
        contents[f"{name}.svg"] = _drawn(figure, "svg", {"Date": None})
        contents[f"{name}.csv"] = _csv(header, data)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        _replace(folder / name, content)
    return [folder / name for name in contents]


def _checked(rows: Sequence[Row]) -> Sequence[Row]:
    if not rows:
        raise ValueError("no rows to draw: the study has no results yet")
    for row in rows:
        if not all(map(math.isfinite, (row.rho, row.cost, row.score))):
            raise ValueError(f"a row has a number that can't be drawn; leave it out: {row}")
    return rows


def _name(row: Row) -> tuple[str, str, str]:
    return row.strategy, row.parameters, row.rating


def _grouped(things: Iterable[Thing], key: Callable[[Thing], Key]) -> dict[Key, list[Thing]]:
    """In the order in which the keys first occur."""
    groups: dict[Key, list[Thing]] = {}
    for thing in things:
        groups.setdefault(key(thing), []).append(thing)
    return groups


def _standard_error(rows: Sequence[Row]) -> float | None:
    seeds = _grouped(rows, lambda row: row.seed)
    means = [fmean(row.rho for row in group) for group in seeds.values()]
    return stdev(means) / math.sqrt(len(means)) if len(means) > 1 else None


def _points(rows: Sequence[Row], x: Callable[[Row], float]) -> list[_Point]:
    """The runs, then their means over biases and seeds."""
    points = [
        _Point("run", *_name(row), row.distribution, row.bias, row.seed, x(row), row.rho)
        for row in _checked(rows)
    ]
    for runs in list(_grouped(points, lambda point: point[1:5]).values()):
        mean_x, mean_rho = fmean(run.x for run in runs), fmean(run.rho for run in runs)
        points.append(runs[0]._replace(kind="mean", bias=None, seed=None, x=mean_x, rho=mean_rho))
    return points


def _rating(name: str) -> str:
    return RATINGS.get(name) or plain(name, LABEL)


@contextmanager
def _style() -> Iterator[None]:
    """Matplotlib's defaults and ours, whatever the user's matplotlibrc says; put back after."""
    import matplotlib.style

    with matplotlib.style.context(["default", STYLE]):
        yield


def _panels(points: Sequence[_Point], xlabel: str) -> Figure:
    """A panel a distribution, in the order in which they occur; both axes are shared."""
    from matplotlib.figure import Figure

    panels = _grouped(points, lambda point: point.distribution)
    colours = _colours(sorted({point.strategy for point in points}))
    areas = _areas(sorted({point.bias for point in points if point.bias is not None}))
    columns = math.ceil(math.sqrt(len(panels)))
    lines = math.ceil(len(panels) / columns)
    with _style():
        height = max(2.8 * lines, 0.2 * (len(colours) + len(areas) + 10)) + 0.4  # panels, legend
        figure = Figure(figsize=(3 * columns + 2.4, height), layout="constrained")
        grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).ravel()
        for axes in grid[len(panels) :]:
            axes.remove()
        for axes in figure.axes[-columns:]:  # nothing is below them
            axes.tick_params(labelbottom=True)
        for axes, (distribution, inside) in zip(figure.axes, panels.items(), strict=True):
            axes.set_title(plain(distribution, LABEL), fontsize=9, parse_math=False)
            _scatter(axes, inside, colours, areas)
        _scale(figure.axes[0].xaxis, [point.x for point in points])
        _legend(figure, list(_entries(points, colours, areas)))
        across, down = figure.supxlabel(xlabel, fontsize=9), figure.supylabel(RHO, fontsize=9)
        figure.draw_without_rendering()  # only now is known where the panels are
        first, last = grid[0].get_position(), grid[len(panels) - 1].get_position()
        across.set_x((first.x0 + grid[columns - 1].get_position().x1) / 2)
        down.set_y((first.y1 + last.y0) / 2)
    return figure


def _colours(strategies: Sequence[str]) -> dict[str, str]:
    """A colour each; past eight strategies from a scale, which the colour-blind can read too."""
    if len(strategies) <= len(PALETTE):
        return dict(zip(strategies, PALETTE, strict=False))
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    last = len(strategies) - 1
    return {name: to_hex(colormaps["viridis"](i / last)) for i, name in enumerate(strategies)}


def _areas(biases: Sequence[int]) -> dict[int, float]:
    """The area of each bias’s points, in square points of print: larger for a larger bias."""
    return {bias: 48 * (place / len(biases)) ** 2 for place, bias in enumerate(biases, start=1)}


def _scatter(
    axes: Axes, points: Sequence[_Point], colours: Mapping[str, str], areas: Mapping[int, float]
) -> None:
    """The runs, the smaller points over the larger, and the means over them all."""
    axes.grid(color="#E4E4E4", linewidth=0.6)
    for (rating, bias), group in _grouped(points, lambda p: (p.rating, p.bias)).items():
        axes.scatter(
            [point.x for point in group],
            [point.rho for point in group],
            s=MEAN_AREA if bias is None else areas[bias],
            c=[colours[point.strategy] for point in group],
            marker=MEAN_MARKER if bias is None else MARKERS.get(rating, OTHER_MARKER),
            alpha=1 if bias is None else 0.45,
            edgecolors="white" if bias is None else "none",
            linewidths=0.6,
            zorder=3 if bias is None else 2 + 1 / areas[bias],
        )


def _scale(axis: XAxis, xs: Sequence[float]) -> None:
    """Of the shared axes: logarithmic when the largest is ten times the smallest or more."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    if 0 < 10 * min(xs) <= max(xs):
        axis.axes.set_xscale("log")
        axis.set_major_locator(LogLocator(subs=(1, 3)))
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.10g}"))


def _entries(
    points: Sequence[_Point], colours: Mapping[str, str], areas: Mapping[int, float]
) -> Iterator[tuple[str, str, str, float]]:
    """Label, marker, colour and area of all that tells points apart; headings have no marker."""
    yield "Strategy", "", FAINT, 0
    for strategy, colour in colours.items():
        yield plain(strategy, LABEL), "o", colour, 36
    yield "\nRating", "", FAINT, 0
    for rating in sorted({point.rating for point in points}, reverse=True):
        yield _rating(rating), MARKERS.get(rating, OTHER_MARKER), FAINT, 36
    yield "\nItems always seen wrongly", "", FAINT, 0
    for bias, area in areas.items():
        yield f"{bias:,}", "o", FAINT, area
    yield "", "", FAINT, 0
    yield "mean over these and seeds", MEAN_MARKER, FAINT, MEAN_AREA


def _legend(figure: Figure, entries: Sequence[tuple[str, str, str, float]]) -> None:
    """One column right of the panels."""
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], ls="", marker=m, c=c, ms=a**0.5, mew=0) for _, m, c, a in entries]
    # Labels are set afterwards: a legend leaves out those that begin with an underscore.
    legend = figure.legend(lines, ["."] * len(lines), loc="outside right upper", frameon=False)
    for text, (label, marker, _, _) in zip(legend.get_texts(), entries, strict=True):
        text.set(parse_math=False, text=label, fontweight="normal" if marker else "bold")


def _table(cells: Sequence[Sequence[str]], texts: range) -> Figure:
    """Columns as wide as their longest cell, those that aren't `texts` to the right; three rules."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    gap, line, margin = 0.2, 0.23, 0.15  # inches
    with _style():
        figure = Figure()
        placed = [
            [figure.text(0, 0, cell, parse_math=False, va="center_baseline") for cell in row]
            for row in cells
        ]
        for text in placed[0]:
            text.set_fontweight("bold")
        figure.draw_without_rendering()  # only now are widths known
        columns = list(zip(*placed, strict=True))
        widths = [max(t.get_window_extent().width for t in c) / figure.dpi for c in columns]
        width = sum(widths) + gap * (len(widths) - 1) + 2 * margin
        height = line * (len(cells) + 0.5) + 2 * margin
        figure.set_size_inches(width, height)
        left = margin
        for number, (column, wide) in enumerate(zip(columns, widths, strict=True)):
            x, side = (left, "left") if number in texts else (left + wide, "right")
            for place, text in enumerate(column):
                down = margin + line * (place + (0.8 if place else 0.5))
                text.set(x=x / width, y=1 - down / height, ha=side)
            left += wide + gap
        for down, thick in ((margin, 1.1), (margin + 1.1 * line, 0.6), (height - margin, 1.1)):
            x0, y = margin / width, 1 - down / height
            figure.add_artist(Line2D([x0, 1 - x0], [y, y], linewidth=thick, color="black"))
    return figure


def _drawn(figure: Figure, kind: str, metadata: dict[str, None]) -> bytes:
    """The file's content; without the metadata that would differ from one day to another."""
    content = BytesIO()
    with _style():
        figure.savefig(content, format=kind, dpi=150, metadata=metadata)
    return content.getvalue()


def _csv(header: Sequence[str], data: Iterable[Iterable[object]]) -> bytes:
    """None is an empty cell; floats with all their digits, as csv writes their repr."""
    content = StringIO()
    csv.writer(content, lineterminator="\n").writerows([header, *data])
    return content.getvalue().encode("utf-8", "backslashreplace")


def _replace(path: Path, content: bytes) -> None:
    """Write beside the file, then put in its place."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
