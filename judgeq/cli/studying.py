"""The commands around the paper: simulate, reproduce."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from judgeq.cli.app import EXIT_CODES, app
from judgeq.cli.options import Json, Quiet
from judgeq.cli.printing import console, print_json, show
from judgeq.errors import StoppedError


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
    may have n, distributions, bias, ratings, seeds, bt_sigma and [judge]
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
