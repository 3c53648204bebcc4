"""The commands around the paper: simulate, reproduce."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from judgeq.cli.options import CSV, Values, argument, command, of_settings, option
from judgeq.cli.printing import Answer, complain
from judgeq.errors import DataError, StoppedError


@command(
    "simulate",
    option("--grid", "paper, paper-random, or your own grid (a .toml file).", str, default="paper"),
    option("-o --out", "The folder of the study.", Path, default=Path("study")),
    option("--seeds", "Number of seeds, from 0.", int, least=1, shown="the grid's: 2"),
    option("--jobs", "Processes.", int, least=1, shown="one a core"),
    option(
        "--alpha", "The weight of effectiveness in score_α.", float, default=0.4, least=0, most=1
    ),
    option("--parquet", "Write study.parquet instead of study.csv."),
    CSV,
)  # fmt: skip
def simulate(
    grid: str,
    out: Path,
    seeds: int | None,
    jobs: int | None,
    alpha: float,
    parquet: bool,
    quiet: bool,
) -> Answer:
    """Run the paper's simulation study, or one of your own.

    All strategies, distributions, annotator biases and seeds are combined, with the
    strategies and ratings of real runs, on all cores. After an interruption, run the
    same command to continue. Writes study.csv; --csv writes the
    ranking.

    Your own grid is a TOML file with strategies = ["listwise10x2", …]; it may
    have n, distributions, bias, ratings, seeds, sigma and [judge]
    (sim_model, sim_accuracy, sim_pmax, sim_distance, sim_bias,
    sim_position_bias).

    Examples:

      judgeq simulate --grid paper --out study

      judgeq simulate --grid my.toml --out mine
    """
    from judgeq.study import simulation
    from judgeq.ui.show import study as show_study

    chosen = simulation.load_grid(grid)
    if seeds is not None:
        chosen = chosen.model_copy(update={"seeds": seeds})
    try:
        report = (lambda done, total: None) if quiet else progress
        rows = simulation.study(chosen, out, jobs or simulation.default_jobs(), report, alpha=alpha)
    except KeyboardInterrupt:
        raise StoppedError(
            f"Stopped. All results so far are in {out}. Run the same command to continue."
        ) from None
    table = out / ("study.parquet" if parquet else "study.csv")
    simulation.write_table(rows, table)
    ranked = show_study.ranked(rows)
    return Answer(
        {
            "grid": chosen,
            "rows": len(rows),
            "table": table,
            "ranking": ranked,
        },
        lambda _: show_study.study(chosen, rows, ranked, table),
        rows=lambda _: map(asdict, ranked),
    )


def progress(done: int, total: int) -> None:
    """Print how many cases of how many are done, with each tenth."""
    if not done or 10 * done // total > 10 * (done - 1) // total:
        complain(f"{done:,} of {total:,} cases simulated")


@command(
    "reproduce",
    argument("what", "[paper]", "What to reproduce.", type=click.Choice(["paper"]), default="paper"),
    *of_settings("data_dir"),
    option(
        "--recordings", "Folder of the published judgments.", Path,
        shown="downloaded from the authors' repository, and checked",
    ),
)  # fmt: skip
def reproduce(
    recordings: Path | None,
    given: Values,
    runs_dir: Path,
    quiet: bool,
    as_json: bool,
) -> Answer:
    """Reproduce the paper's published rows.

    Imports the published judgments of GPT-5-mini on BABE and on Us vs. Them (three
    rounds of lists of 10) as runs, rates them by Elo and by the paper's
    Bradley-Terry, and compares the results with the published numbers.

    Explains where they differ. Ends with exit code 3 if something could not be
    downloaded.

    Examples:

      judgeq reproduce paper

      judgeq reproduce paper --recordings ../shared/recordings
    """
    from judgeq.study import reproduction
    from judgeq.ui.show import study as show_study

    parts = reproduction.reproduce(
        recordings,
        given.get("data_dir"),
        runs_dir,
        (lambda text: None) if quiet or as_json else complain,
    )
    missing = [part.dataset for part in parts if part.missing]
    error = DataError(f"not reproduced, since data is missing: {', '.join(missing)}.")
    return Answer(parts, show_study.reproduction, error if missing else None)
