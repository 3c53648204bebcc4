"""What a simulation study and a reproduction found, as sections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path

from judgeq.study.reproduction import Reproduced
from judgeq.study.simulation import Grid, StudyRow
from judgeq.text import count, several
from judgeq.ui.sections import Section, numbers, words
from judgeq.ui.study_figures import Ranked

SHOWN = 12
FIELDS = ("strategy", "parameters", "rating", "rho", "rho_se", "cost", "score")
"""The columns of strategies."""
ELO = {
    None: "",
    True: "; all Elo ratings equal the published ones to the last bit",
    False: "; the Elo ratings differ from the published ones",
}


def study(
    grid: Grid,
    rows: Sequence[StudyRow],
    ranked: Sequence[Ranked],
    table: Path,
    figures: Path | None,
) -> Iterator[Section]:
    """The best strategies of a study, by score_α, and its files."""
    notes = [f"Table {table}  (a line for each case and rating)"]
    if len(ranked) > SHOWN:
        what = "means over distributions, biases and seeds"
        notes.insert(0, f"The best {SHOWN} of {count(len(ranked))}; {what}.")
    if figures is not None:
        notes.append(f"Figures {figures}  (PNG and SVG, and the ranking as CSV)")
    cases = several(len(rows) // len(grid.ratings), "case")
    columns = [
        *words("strategy", "parameters", "rating"),
        *numbers("ρ", "s.e.", whole=True),
        *numbers("cost", whole=True, show="{:,.0f}".format),
        *numbers("score", whole=True),
    ]
    yield Section(
        f"The best strategies, over {cases} rated by {' and '.join(grid.ratings)}",
        columns=columns,
        rows=[*map(attrgetter(*FIELDS), ranked[:SHOWN])],
        notes=notes,
    )


def reproduction(parts: Sequence[Reproduced]) -> Iterator[Section]:
    """How many published numbers were reproduced, each of them, and why some differ."""
    every = [number for part in parts for number in part.numbers]
    whys = [one.why for one in every if one.why and not one.exact]
    reasons = {why: f"[{at}]" for at, why in enumerate(dict.fromkeys(whys), start=1)}
    exact = sum(one.exact for one in every)
    yield Section(
        f"{exact} of {several(len(every), 'published number')} reproduced exactly",
        columns=[
            *words("dataset", "row", "measure", whole=True),
            *numbers("published", "ours", "their θ, by us", whole=True),
            *words(""),
        ]
        if every
        else (),
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
