"""What a simulation study and a reproduction show: progress, and what they came to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from judgeq.figures import Ranked
from judgeq.report import number, spoken
from judgeq.reproduction import Reproduced
from judgeq.simulation import Grid, Row
from judgeq.words import several

SHOWN = 12


@contextmanager
def bar(console: Console, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """While inside, a progress bar on a terminal and plain lines elsewhere; called with how many
    cases of how many are done."""
    if quiet:
        yield lambda done, total: None
        return
    if not console.is_terminal:
        tenths: set[int] = set()

        def line(done: int, total: int) -> None:
            tenth = 10 * done // max(total, 1)
            if tenth not in tenths:
                tenths.add(tenth)
                console.print(f"{done:,} of {total:,} cases simulated")

        yield line
        return
    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("simulating", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def study(
    grid: Grid, rows: Sequence[Row], ranked: Sequence[Ranked], table: Path, figures: Path | None
) -> Iterator[RenderableType]:
    """The best of a study, by score_α, and where all of it lies."""
    cases = several(len(rows) // len(grid.ratings), "case")
    yield Text(f"{cases}, each rated by {' and '.join(grid.ratings)}", "bold")
    yield _table(ranked[:SHOWN])
    if len(ranked) > SHOWN:
        yield Text(
            f"The best {SHOWN} of {len(ranked)}; means over distributions, biases and seeds."
        )
    yield Text("Table ").append(str(table), "bold").append("  (a line a case and rating)")
    if figures is not None:
        yield Text(f"Figures {figures}  (PNG, SVG, and the CSV behind each)")


def _table(ranked: Sequence[Ranked]) -> Table:
    table = Table(box=SIMPLE_HEAD)
    for name in ("strategy", "parameters", "rating"):
        table.add_column(name)
    for name in ("ρ", "s.e.", "cost", "score"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in ranked:
        table.add_row(
            each.strategy,
            spoken(each.parameters),
            each.rating,
            f"{each.rho:.3f}",
            "–" if each.rho_se is None else f"{each.rho_se:.3f}",
            f"{each.cost:,.0f}",
            f"{each.score:.3f}",
        )
    return table


def reproduced(found: Sequence[Reproduced]) -> Iterator[RenderableType]:
    """The published numbers beside ours, and why some differ."""
    table = Table(box=SIMPLE_HEAD)
    for name in ("dataset", "row", "measure"):
        table.add_column(name, no_wrap=True)
    for name in ("published", "ours", "their θ, by us"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    reasons: dict[str, int] = {}
    for part in found:
        for each in part.numbers:
            note = ""
            if each.why:
                note = f"[{reasons.setdefault(each.why, len(reasons) + 1)}]"
            elif not each.exact:
                note = "differs"
            table.add_row(
                each.dataset,
                each.row,
                "F1 (positive)" if each.measure == "f1" else each.measure,
                f"{each.published:.3f}",
                number(each.ours),
                number(each.theirs),
                "exact" if each.exact else note,
            )
    if any(part.numbers for part in found):
        yield table
    for why, mark in reasons.items():
        yield Text(f"[{mark}] {why}.")
    yield Text('The paper\'s tables call the F1 of the positive class "Macro F1".')
    for part in found:
        if part.run is not None:
            equal = {
                True: "equal to the published ones, to the last bit",
                False: "not the published",
            }
            told = "" if part.elo_equal is None else f"; Elo ratings {equal[part.elo_equal]}"
            yield Text(f"{part.dataset}: run {part.run.id}{told}")
        else:
            yield spoken(f"{part.dataset}: missing. {part.missing}", "yellow")


def reproduced_json(found: Sequence[Reproduced]) -> list[dict[str, Any]]:
    """For `--json`."""
    return [
        {
            "dataset": part.dataset,
            "run": None if part.run is None else part.run.id,
            "elo_equal_to_the_last_bit": part.elo_equal,
            "missing": part.missing or None,
            "numbers": [asdict(each) | {"exact": each.exact} for each in part.numbers],
        }
        for part in found
    ]


def study_json(
    grid: Grid,
    rows: Sequence[Row],
    ranked: Sequence[Ranked],
    table: Path,
    figures: Sequence[Path],
) -> dict[str, Any]:
    """For `--json`."""
    return {
        "grid": grid.model_dump(mode="json"),
        "rows": len(rows),
        "table": str(table),
        "figures": [str(path) for path in figures],
        "ranking": [asdict(each) for each in ranked],
    }
