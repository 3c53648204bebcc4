"""The commands that share judgments: import, export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from judgeq.cli.app import EXIT_CODES, app
from judgeq.cli.options import (
    BtSigma,
    DataDir,
    Dataset,
    GoldColumn,
    GoldLevels,
    IdColumn,
    Json,
    Quiet,
    RatingName,
    RunName,
    RunsDir,
    Seed,
    StartAfresh,
    SyntheticSize,
    TextColumn,
)
from judgeq.cli.printing import complain, show_lines, show_result, spare
from judgeq.errors import RunError, UsageError


@app.command("import", epilog=EXIT_CODES)
def import_(
    file: Annotated[
        Path, typer.Argument(help="Judgments, one JSON object a line.", show_default=False)
    ],
    dataset: Dataset = None,
    text_column: TextColumn = None,
    id_column: IdColumn = None,
    gold_column: GoldColumn = None,
    gold_levels: GoldLevels = None,
    n: SyntheticSize = None,
    seed: Seed = None,
    data_dir: DataDir = None,
    rating: RatingName = None,
    bt_sigma: BtSigma = None,
    new: StartAfresh = False,
    runs_dir: RunsDir = Path("runs"),
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make a finished run out of recorded judgments.

    Each line is {"round": 1, "presented": [5, 2, 9], "ranking": [9, 5, 2]}, or
    has a "winner" (of two; "tie" for none) or a "score" (of one, 0 to 1) in place
    of the ranking; tied items of a ranking stand in an inner list. Items are row
    numbers of the dataset (from 0), or ids in quotes. A wrong line is an error
    with its number; nothing is half imported.

    Examples:

      judgeq import --dataset babe recording.jsonl

      judgeq import -d my.csv --id-column id judgments.jsonl
    """
    given = {
        "dataset": dataset,
        "text_column": text_column,
        "id_column": id_column,
        "gold_column": gold_column,
        "gold_levels": tuple(gold_levels.split(",")) if gold_levels is not None else None,
        "n": n,
        "seed": seed,
        "data_dir": data_dir,
        "rating": rating,
        "bt_sigma": bt_sigma,
    }
    import asyncio

    from judgeq import config, importing, results

    settings = config.settle(given)
    folder, before = importing.import_file(settings, file, runs_dir, new=new)
    if before and not quiet:
        complain(f"{folder.id} was imported before; --new imports it again beside it.")
    result = asyncio.run(results.read(folder, settings.rating, settings.bt_sigma))
    results.write_scores(result.scores, folder.scores)
    show_result(result, quiet, as_json)


@app.command(epilog=EXIT_CODES)
def export(
    name: RunName = "last",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The file to write.", show_default="standard output"),
    ] = None,
    by: Annotated[
        str,
        typer.Option(metavar="row|id", help="Name items by row number, or by id."),
    ] = "row",
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Write a run's judgments, so that they can be published and shared.

    The same form as `judgeq import` reads: one JSON object a line, in the order
    in which they are rated. No texts, no prompts, no costs.

    Examples:

      judgeq export last --out judgments.jsonl
    """
    import asyncio

    from judgeq import recordings, results, runs

    if by not in ("row", "id"):
        raise UsageError(f"--by {by!r}: give row or id.")
    folder = runs.find(runs_dir, name)
    spare(out, "--out")
    if folder.info().settings.both_orders:
        complain(
            f"{folder.id} asked each pair in both orders. A recording has no sign of that: imported, "
            "both answers count by themselves, and the scores are others."
        )
    if (state := asyncio.run(results.state(folder))).word != "finished":
        complain(f"{folder.id} is {state.word}: imported, what there is counts as a finished run.")
    ids, rounds, judges = asyncio.run(results.judgments(folder))
    lines = recordings.lines(recordings.of(rounds, judges), ids, by)  # type: ignore[arg-type]
    if out is None:
        show_lines(lines)
        return
    try:
        with runs.replacing(out) as temporary, temporary.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
    except RunError as error:
        raise UsageError(f"--out {out} can't be written.") from error
