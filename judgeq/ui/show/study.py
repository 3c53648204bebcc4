"""What a simulation study and a reproduction found, as sections; and the ranking of strategies."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from operator import attrgetter
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, TypeVar

from judgeq.study.reproduction import Reproduced
from judgeq.study.simulation import Grid, StudyRow
from judgeq.text import count, several
from judgeq.ui.sections import Column, Section, numbers, words

BEST = 12
"""Strategies that are shown."""
FIELDS = ("strategy", "parameters", "rating", "rho", "rho_se", "cost", "score")
"""What is shown of each."""
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


def study(
    grid: Grid,
    rows: Sequence[StudyRow],
    ranked: Sequence[Ranked],
    table: Path,
) -> Iterator[Section]:
    """The best strategies of a study, by score_α, and its files."""
    notes = [f"Table {table}  (a line for each case and rating)"]
    if len(ranked) > BEST:
        what = "means over distributions, biases and seeds"
        notes.insert(0, f"The best {BEST} of {count(len(ranked))}; {what}.")
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
