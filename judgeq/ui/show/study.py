"""What a simulation study and a reproduction found: sections, a ranking of strategies, and a figure."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from io import StringIO
from operator import attrgetter
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, TypeVar

from judgeq.files import replacing
from judgeq.rating import ESTIMATORS
from judgeq.study.reproduction import Reproduced
from judgeq.study.simulation import Grid, StudyRow
from judgeq.text import count, several
from judgeq.ui import figures
from judgeq.ui.figures import GRID, PALETTE
from judgeq.ui.sections import Column, Section, numbers, words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BEST = 12
"""Strategies that are shown."""
FIELDS = ("strategy", "parameters", "rating", "rho", "rho_se", "cost", "score")
"""What is shown of each."""
MARKERS = dict(zip(ESTIMATORS, "os^DvP", strict=False))
ELO = {
    None: "",
    True: "; all Elo ratings equal the published ones to the last bit",
    False: "; the Elo ratings differ from the published ones",
}
Thing = TypeVar("Thing")


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
    strategies = []
    for runs in _grouped(rows, attrgetter("strategy", "parameters", "rating")).values():
        seeds = [fmean(row.rho for row in of) for of in _grouped(runs, attrgetter("seed")).values()]
        error = stdev(seeds) / math.sqrt(len(seeds)) if len(seeds) > 1 else None
        pairs, lists, cost, score = (
            fmean(map(attrgetter(of), runs)) for of in ("pairs", "lists", "cost", "score")
        )
        rho = fmean(row.rho for row in runs)
        one, n = runs[0], len(runs)
        name = one.strategy, one.parameters, one.rating
        strategies.append(Ranked(*name, rho, error, pairs, lists, cost, score, n))
    return sorted(strategies, key=lambda one: (-one.score, *astuple(one)[:3]))


def _grouped(things: Iterable[Thing], key: Callable[[Thing], Any]) -> dict[Any, list[Thing]]:
    """In the order in which the keys first occur."""
    groups: dict[Any, list[Thing]] = {}
    for thing in things:
        groups.setdefault(key(thing), []).append(thing)
    return groups


def write(rows: Sequence[StudyRow], folder: Path) -> list[Path]:
    """Draw the figure into the folder, as .png and .svg, and write the ranking as .csv; the paths in
    order. No file is ever half written. Raises RunError if one can't be."""
    drawn, table = figure(rows), StringIO()
    contents = {f"rho_by_cost.{kind}": figures.content(drawn, kind) for kind in ("png", "svg")}
    ranking = csv.writer(table, lineterminator="\n")  # floats with all their digits
    ranking.writerows([[field.name for field in fields(Ranked)], *map(astuple, ranked(rows))])
    contents["ranking.csv"] = table.getvalue().encode()
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        with replacing(folder / name) as file:
            file.buffer.write(content)
    return [folder / name for name in contents]


def figure(rows: Sequence[StudyRow]) -> Figure:
    """ρ by cost, a panel a distribution; colours are strategies, shapes are ratings."""
    from matplotlib.figure import Figure

    panels = _grouped(rows, attrgetter("distribution"))
    colours = dict(zip(sorted({row.strategy for row in rows}), PALETTE, strict=False))
    with figures.style():
        figure = Figure(figsize=(2.6 * len(panels) + 2.4, 3.2), layout="constrained")
        grid = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
        for axes, (distribution, inside) in zip(grid, panels.items(), strict=True):
            axes.set_title(distribution, fontsize=9)
            axes.grid(color=GRID, linewidth=0.6)
            for (strategy, rating), runs in _grouped(
                inside, attrgetter("strategy", "rating")
            ).items():
                axes.plot(
                    *zip(*((row.cost, row.rho) for row in runs), strict=True),
                    *(MARKERS[rating],),
                    color=colours[strategy],
                    ms=4,
                    mew=0,
                    alpha=0.6,
                    label=f"{strategy} ({rating})",
                )
        costs = [row.cost for row in rows]
        if 0 < 10 * min(costs) <= max(costs):
            figures.logarithmic(grid[0], (1, 3))
        figure.legend(
            *grid[0].get_legend_handles_labels(), loc="outside right upper", frameon=False
        )
        figure.supxlabel("Cost-equivalent calls (1 a pair, k/2 a list of k)", fontsize=9)
        figure.supylabel("Spearman’s ρ against the latent order", fontsize=9)
        figure.draw_without_rendering()  # ticks take their style when first drawn
    return figure


def study(
    grid: Grid,
    rows: Sequence[StudyRow],
    ranked: Sequence[Ranked],
    table: Path,
    figures: Path | None,
) -> Iterator[Section]:
    """The best strategies of a study, by score_α, and its files."""
    notes = [f"Table {table}  (a line for each case and rating)"]
    if len(ranked) > BEST:
        what = "means over distributions, biases and seeds"
        notes.insert(0, f"The best {BEST} of {count(len(ranked))}; {what}.")
    if figures is not None:
        notes.append(f"Figure {figures}  (PNG and SVG, and the ranking as CSV)")
    cases = several(len(rows) // len(grid.ratings), "case")
    cost = Column("cost", right=True, show="{:,.0f}".format)
    yield Section(
        f"The best strategies, over {cases} rated by {' and '.join(grid.ratings)}",
        columns=[
            *words("strategy", "parameters", "rating"),
            *numbers("ρ", "s.e."),
            *(cost, *numbers("score")),
        ],
        rows=[*map(attrgetter(*FIELDS), ranked[:BEST])],
        notes=notes,
    )


def reproduction(parts: Sequence[Reproduced]) -> Iterator[Section]:
    """How many published numbers were reproduced, each of them, and why some differ."""
    every = [number for part in parts for number in part.numbers]
    whys = [one.why for one in every if one.why and not one.exact]
    reasons = {why: f"[{at}]" for at, why in enumerate(dict.fromkeys(whys), start=1)}
    exact = sum(one.exact for one in every)
    columns = [
        *words("dataset", "row", "measure"),
        *numbers("published", "ours", "their θ, by us"),
        *words(""),
    ]
    yield Section(
        f"{exact} of {several(len(every), 'published number')} reproduced exactly",
        columns=columns if every else (),
        rows=[
            (
                *(one.dataset, one.row),
                "F1 (positive)" if one.measure == "f1" else one.measure,
                *(one.published, one.ours, one.theirs),
                "exact" if one.exact else reasons.get(one.why, "differs"),
            )
            for one in every
        ],
        notes=[
            *(f"{mark} {why}." for why, mark in reasons.items()),
            'The paper\'s tables call the F1 of the positive class "Macro F1".',
        ],
    )
    for part in parts:
        if part.run is None:
            yield Section(warnings=[f"{part.dataset}: missing. {part.missing}"], close=True)
            continue
        run = f"{part.dataset}: run {part.run.id}{ELO[part.elo_equal]}"
        yield Section(notes=[run, f"{part.dataset}: checked: {part.checked}."], close=True)
