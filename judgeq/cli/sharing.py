"""The commands that share judgments: import, export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from judgeq.cli.app import command
from judgeq.cli.options import (
    Json,
    Quiet,
    RunName,
    RunsDir,
    StartAfresh,
    StoreAddress,
    given,
    with_settings,
)
from judgeq.cli.printing import complain, print_json_lines, spare
from judgeq.cli.showing import rate_run
from judgeq.errors import RunError, UsageError


@command("import")
@with_settings(
    *("dataset", "text_column", "id_column", "gold_column", "gold_levels", "delimiter", "encoding"),
    *("skip_empty", "limit", "sample", "n", "data_dir", "seed"),
    *("rating", "sigma", "unbias_position", "texts"),
)
def import_(
    file: Annotated[
        Path,
        typer.Argument(
            help="Judgments, one JSON object a line.", metavar="FILE", show_default=False
        ),
    ],
    items: Annotated[
        str | None,
        typer.Option(
            metavar="rows|ids",
            help="What numbers without quotes stand for.",
            show_default="rows; an error where one is another item's id",
        ),
    ] = None,
    drop_identity: Annotated[
        bool,
        typer.Option(
            "--drop-identity",
            help="Leave out lists of three or more that were ranked exactly as presented.",
        ),
    ] = False,
    new: StartAfresh = False,
    runs_dir: RunsDir = Path("runs"),
    store: StoreAddress = None,
    quiet: Quiet = False,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Make a finished run out of recorded judgments.

    Each line is {"round": 1, "presented": [5, 2, 9], "ranking": [9, 5, 2]}, or
    has a "winner" (of two; "tie" for none) or a "score" (of one, 0 to 1) in place
    of the ranking; tied items of a ranking stand in an inner list. Items are row
    numbers of the dataset (from 0), or ids in quotes. "judge" names who judged;
    "ordered": false says that the order shown isn't known, as where the winner
    always stands first. A wrong line is an error with its number; nothing is half
    imported. Items compared with themselves, and copies of an earlier line (the
    same round, group, judge, items and answer), are left out and reported.

    Some programs record a failed call as the order presented. Lists that were
    ranked so are counted where they are more than chance allows, and left out
    with --drop-identity.

    Examples:

      judgeq import --dataset babe recording.jsonl

      judgeq import -d my.csv --id-column id judgments.jsonl

      judgeq import --dataset babe recording.jsonl --drop-identity
    """
    from judgeq import config
    from judgeq.engine import importing

    if items not in (None, "rows", "ids"):
        raise UsageError(f"--items {items!r}: give rows or ids.")
    settings = config.settle(given(flags) | {"store": store})
    folder, before, notices = importing.import_file(
        settings,
        file,
        runs_dir,
        numbers=items,  # type: ignore[arg-type]
        drop_identity=drop_identity,
        new=new,
    )
    for notice in notices:
        complain(notice)
    if before and not quiet:
        complain(f"{folder.id} was imported before; --new imports it again beside it.")
    rate_run(folder, settings, quiet, as_json)


@command("export")
def export(
    name: RunName = "last",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The file to write.", show_default="standard output"),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="row|id",
            help="Name items by row number, or by id.",
            show_default="row; id where a row number is another item's id",
        ),
    ] = None,
    runs_dir: RunsDir = Path("runs"),
    store: StoreAddress = None,
) -> None:
    """Write a run's judgments, so that they can be published and shared.

    The same form as `judgeq import` reads: one JSON object a line, in the order
    in which they are rated. No texts, no prompts, no costs.

    Examples:

      judgeq export last --out judgments.jsonl
    """
    import asyncio

    from judgeq import files, recordings, runs
    from judgeq.engine import results
    from judgeq.engine.status import state

    if by not in (None, "row", "id"):
        raise UsageError(f"--by {by!r}: give row or id.")
    folder = runs.runs_in(runs_dir, store).find(name)
    spare(out, "--out")
    if folder.info().settings.both_orders:
        complain(
            f"{folder.id} asked each pair in both orders. A recording has no sign of that: imported, "
            "both answers count by themselves, and the scores are others."
        )
    if (word := asyncio.run(state(folder)).word) != "finished":
        complain(f"{folder.id} is {word}: imported, what there is counts as a finished run.")
    ids, rounds, judges = asyncio.run(results.judgments(folder))
    naming: Any = by or recordings.by_default(ids)
    lines = recordings.lines(recordings.of(rounds, judges), ids, naming)
    if out is None:
        print_json_lines(lines)
        return
    try:
        with files.replacing(out) as file:
            file.writelines(f"{line}\n" for line in lines)
    except RunError as error:
        raise UsageError(f"--out {out} can't be written.") from error
