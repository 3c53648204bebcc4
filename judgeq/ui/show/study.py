"""What a simulation study and a reproduction came to, as sections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from judgeq.study.reproduction import Reproduced
from judgeq.study.simulation import Grid, StudyRow
from judgeq.text import several
from judgeq.ui.sections import Section, numbers, words
from judgeq.ui.study_figures import Ranked

SHOWN = 12


def study(
    grid: Grid,
    rows: Sequence[StudyRow],
    ranked: Sequence[Ranked],
    table: Path,
    figures: Path | None,
) -> Iterator[Section]:
    """The best of a study, by score_α, and where all of it lies."""
    cases = several(len(rows) // len(grid.ratings), "case")
    yield Section(f"{cases}, each rated by {' and '.join(grid.ratings)}")
    notes = [f"Table {table}  (a line a case and rating)"]
    if len(ranked) > SHOWN:
        best = f"The best {SHOWN} of {len(ranked)}; means over distributions, biases and seeds."
        notes.insert(0, best)
    if figures is not None:
        notes.append(f"Figures {figures}  (PNG, SVG, and the CSV behind each)")
    yield Section(
        columns=[
            *words("strategy", "parameters", "rating"),
            *numbers("ρ", "s.e.", whole=True),
            *numbers("cost", whole=True, show=lambda cost: f"{cost:,.0f}"),
            *numbers("score", whole=True),
        ],
        rows=[
            (
                *(best.strategy, best.parameters, best.rating),
                *(best.rho, best.rho_se, best.cost, best.score),
            )
            for best in ranked[:SHOWN]
        ],
        notes=notes,
        close=True,
    )


def reproduction(parts: Sequence[Reproduced]) -> Iterator[Section]:
    """The published numbers beside ours, and why some differ."""
    reasons: dict[str, int] = {}
    rows = []
    for part in parts:
        for number in part.numbers:
            mark = "exact" if number.exact else "differs"
            if number.why and not number.exact:
                mark = f"[{reasons.setdefault(number.why, len(reasons) + 1)}]"
            rows.append(
                (
                    *(number.dataset, number.row),
                    "F1 (positive)" if number.measure == "f1" else number.measure,
                    *(number.published, number.ours, number.theirs, mark),
                )
            )
    if rows:
        yield Section(
            columns=[
                *words("dataset", "row", "measure", whole=True),
                *numbers("published", "ours", "their θ, by us", whole=True),
                *words(""),
            ],
            rows=rows,
        )
    notes = [f"[{mark}] {why}." for why, mark in reasons.items()]
    notes.append('The paper\'s tables call the F1 of the positive class "Macro F1".')
    yield Section(notes=notes, close=True)
    for part in parts:
        if part.run is None:
            missing = f"{part.dataset}: missing. {part.missing}"
            yield Section(warnings=[missing], close=True)
            continue
        equal = {
            None: "",
            True: "; Elo ratings equal to the published ones, to the last bit",
            False: "; Elo ratings not the published",
        }
        yield Section(
            notes=[
                f"{part.dataset}: run {part.run.id}{equal[part.elo_equal]}",
                f"{part.dataset}: checked: {part.checked}.",
            ],
            close=True,
        )
