"""The commands around the paper: simulate, reproduce."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from judgeq.cli.app import EXIT_CODES, app
from judgeq.cli.options import DataDir, Json, Quiet, RunsDir
from judgeq.cli.printing import complain, console, print_json, show
from judgeq.errors import DataError, StoppedError, UsageError


@app.command(epilog=EXIT_CODES)
def simulate(
    grid: Annotated[
        str, typer.Option(help="paper, paper-random, or the path of a grid of your own (.toml).")
    ] = "paper",
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the study.")] = Path(
        "study"
    ),
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="How many seeds, from 0 on.", show_default="the grid's: 2"),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, help="Processes.", show_default="one a core"),
    ] = None,
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
    may have n, distributions, bias, ratings, seeds, bt_sigma and \\[judge]
    (sim_model, sim_accuracy, sim_pmax, sim_distance, sim_bias).

    Examples:

      judgeq simulate --grid paper --out study
    """
    from judgeq import figures as drawing
    from judgeq import simulation, studies

    chosen = simulation.load_grid(grid)
    if seeds is not None:
        chosen = chosen.model_copy(update={"seeds": seeds})
    try:
        with studies.bar(console(stderr=True), quiet=quiet) as tell:
            rows = simulation.study(
                chosen, out, jobs or simulation.default_jobs(), tell, alpha=alpha
            )
    except KeyboardInterrupt:
        raise StoppedError(
            f"stopped. What was simulated is kept in {out}: the same command goes on."
        ) from None
    table = out / ("study.parquet" if parquet else "study.csv")
    simulation.write_table(rows, table)
    drawn = []
    if figures:
        judge = chosen.judge
        curve = (judge.sim_pmax, judge.tau, judge.sim_distance, judge.sim_accuracy)
        drawn = drawing.write(rows, out / "figures", curve=curve)
    ranked = drawing.ranked(rows)
    if as_json:
        print_json(studies.study_json(chosen, rows, ranked, table, drawn))
    elif not quiet:
        show(*studies.study(chosen, rows, ranked, table, out / "figures" if drawn else None))


@app.command(epilog=EXIT_CODES)
def reproduce(
    what: Annotated[str, typer.Argument(help="What to make again: paper.")] = "paper",
    recordings: Annotated[
        Path | None,
        typer.Option(
            help="Where the published judgments lie.",
            show_default="downloaded from the authors' repository, and checked",
        ),
    ] = None,
    data_dir: DataDir = None,
    runs_dir: RunsDir = Path("runs"),
    quiet: Quiet = False,
    as_json: Json = False,
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
    from judgeq import reproduction, studies

    found = reproduction.reproduce(
        recordings, data_dir, runs_dir, (lambda text: None) if quiet or as_json else complain
    )
    if as_json:
        print_json(studies.reproduced_json(found))
    elif not quiet:
        show(*studies.reproduced(found))
    missing = [part.dataset for part in found if part.missing]
    if missing:
        raise DataError(f"not all could be made again: {', '.join(missing)}.")
