"""The commands around the paper: simulate, reproduce."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from judgeq.cli.app import command
from judgeq.cli.options import Json, Quiet, RunsDir, with_settings
from judgeq.cli.printing import complain, console, fail, print_json, show
from judgeq.errors import DataError, StoppedError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

Jobs = Annotated[
    int | None, typer.Option("--jobs", min=1, help="Processes.", show_default="one a core")
]


@command("simulate")
def simulate(
    grid: Annotated[
        str,
        typer.Option(help="paper, paper-random, or the path of a grid of your own (.toml)."),
    ] = "paper",
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the study.")] = Path(
        "study"
    ),
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="How many seeds, from 0 on.", show_default="the grid's: 2"),
    ] = None,
    jobs: Jobs = None,
    alpha: Annotated[
        float, typer.Option(min=0, max=1, help="The weight of effectiveness in score_α.")
    ] = 0.4,
    parquet: Annotated[
        bool, typer.Option("--parquet", help="Write study.parquet in place of study.csv.")
    ] = False,
    figures: Annotated[
        bool, typer.Option("--figures/--no-figures", help="Draw the figures as well.")
    ] = True,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run the paper's simulation study, or one of your own.

    Strategies × distributions × annotator bias × seeds, on the same strategies and
    ratings as real runs, over all cores. Interrupted, the same command goes on.
    Writes study.csv, and figures (PNG, SVG and the CSV behind each).

    A grid of your own is a TOML file with strategies = ["listwise10x2", …], and
    may have n, distributions, bias, ratings, seeds, sigma and [judge]
    (sim_model, sim_accuracy, sim_pmax, sim_distance, sim_bias,
    sim_position_bias).

    Examples:

      judgeq simulate --grid paper --out study

      judgeq simulate --grid my.toml --out mine
    """
    from judgeq.study import processes, simulation
    from judgeq.ui import study_figures
    from judgeq.ui.show import study as show_study

    chosen = simulation.load_grid(grid)
    if seeds is not None:
        chosen = chosen.model_copy(update={"seeds": seeds})
    try:
        with progress(console(stderr=True), quiet=quiet) as report:
            rows = simulation.study(
                chosen, out, jobs or processes.default_jobs(), report, alpha=alpha
            )
    except KeyboardInterrupt:
        raise StoppedError(
            f"stopped. What was simulated is kept in {out}: the same command goes on."
        ) from None
    table = out / ("study.parquet" if parquet else "study.csv")
    simulation.write_table(rows, table)
    drawn = []
    if figures:
        drawn = study_figures.write(rows, out / "figures", chosen.judge)
    ranked = study_figures.ranked(rows)
    if as_json:
        written = {"rows": len(rows), "table": table, "figures": drawn}
        print_json({"grid": chosen, **written, "ranking": ranked})
    elif not quiet:
        show(*show_study.study(chosen, rows, ranked, table, out / "figures" if drawn else None))


@command("reproduce")
@with_settings("data_dir")
def reproduce(
    what: Annotated[
        str, typer.Argument(help="What to make again: paper.", metavar="WHAT")
    ] = "paper",
    recordings: Annotated[
        Path | None,
        typer.Option(
            help="Where the published judgments lie.",
            show_default="downloaded from the authors' repository, and checked",
        ),
    ] = None,
    runs_dir: RunsDir = Path("runs"),
    quiet: Quiet = False,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Make the paper's published rows again from its published judgments.

    The judgments of GPT-5-mini on BABE and on Us vs. Them, in three rounds of
    lists of 10, are imported as runs, rated by Elo and by the paper's
    Bradley-Terry, and set beside the published numbers; where they differ, it
    says why. Ends with 3 when something could not be had.

    Examples:

      judgeq reproduce paper

      judgeq reproduce paper --recordings ../shared/recordings
    """
    if what != "paper":
        raise UsageError(f"{what!r} can't be reproduced: there is paper.")
    from judgeq.study import reproduction
    from judgeq.ui.show import study as show_study

    parts = reproduction.reproduce(
        recordings,
        flags["data_dir"],
        runs_dir,
        (lambda text: None) if quiet or as_json else complain,
    )
    if as_json:
        print_json(parts)
    elif not quiet:
        show(*show_study.reproduction(parts))
    missing = [part.dataset for part in parts if part.missing]
    if missing:
        fail(DataError(f"not all could be made again: {', '.join(missing)}."))


@contextmanager
def progress(console: Console, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
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
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("simulating", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
