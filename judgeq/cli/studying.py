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
        typer.Option(help="paper, paper-random, or your own grid (a .toml file)."),
    ] = "paper",
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the study.")] = Path(
        "study"
    ),
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Number of seeds, from 0.", show_default="the grid's: 2"),
    ] = None,
    jobs: Jobs = None,
    alpha: Annotated[
        float, typer.Option(min=0, max=1, help="The weight of effectiveness in score_α.")
    ] = 0.4,
    parquet: Annotated[
        bool, typer.Option("--parquet", help="Write study.parquet instead of study.csv.")
    ] = False,
    figures: Annotated[
        bool, typer.Option("--figures/--no-figures", help="Draw the figures too.")
    ] = True,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run the paper's simulation study, or one of your own.

    All strategies, distributions, annotator biases and seeds are combined, with the
    strategies and ratings of real runs, on all cores. After an interruption, run the
    same command to continue. Writes study.csv and figures (PNG, SVG, CSV).

    Your own grid is a TOML file with strategies = ["listwise10x2", …]; it may
    have n, distributions, bias, ratings, seeds, sigma and [judge]
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
            f"Stopped. All results so far are in {out}. Run the same command to continue."
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
        str, typer.Argument(help="What to reproduce: paper.", metavar="WHAT")
    ] = "paper",
    recordings: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the published judgments.",
            show_default="downloaded from the authors' repository, and checked",
        ),
    ] = None,
    runs_dir: RunsDir = Path("runs"),
    quiet: Quiet = False,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Reproduce the paper's published rows from its published judgments.

    Imports the judgments of GPT-5-mini on BABE and on Us vs. Them (three rounds
    of lists of 10) as runs, rates them by Elo and by the paper's Bradley-Terry,
    and compares the results with the published numbers.

    Explains where they differ. Ends with exit code 3 if something could not be
    downloaded.

    Examples:

      judgeq reproduce paper

      judgeq reproduce paper --recordings ../shared/recordings
    """
    if what != "paper":
        raise UsageError(f"{what!r} can't be reproduced. Only paper can: judgeq reproduce paper.")
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
        fail(DataError(f"not reproduced, since data is missing: {', '.join(missing)}."))


@contextmanager
def progress(console: Console, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal, plain lines elsewhere; it is called with the cases done and all."""
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
