"""The commands that share judgments: import, export."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import typer

from judgeq.cli.app import command
from judgeq.cli.options import (
    AcceptDamage,
    Json,
    Quiet,
    RunName,
    RunsDir,
    StartAfresh,
    StoreAddress,
    given,
    with_settings,
)
from judgeq.cli.printing import binary_output, complain, print_json_lines, spare
from judgeq.cli.showing import rate_run
from judgeq.errors import UsageError

if TYPE_CHECKING:
    from judgeq.config import Settings
    from judgeq.datasets.table_writer import Format
    from judgeq.engine.status import State
    from judgeq.imports import votes
    from judgeq.runs import RunPlace

VOTES = "Table of votes"
BEST_WORST = "Table of best-worst answers"
EITHER = "Either table"
_TABLES = (".csv", ".tsv", ".parquet")


def _column(text: str, panel: str = VOTES) -> Any:
    return typer.Option(metavar="COLUMN", help=text, rich_help_panel=panel)


def _columns(
    file: Path,
    of_votes: dict[str, Any],
    of_best_worst: dict[str, Any],
    judge: str | None,
    round_: str | None,
    says: Literal["text", "side"] | None,
) -> votes.Columns | None:
    """The columns of a table of votes, or of best-worst answers, by the flags of each and those of both;
    None for a recording. Raises UsageError where one is missing."""
    from judgeq.imports import votes

    one, other = (
        [flag for flag, value in of.items() if value is not None]
        for of in (of_votes, of_best_worst)
    )
    if one and other:
        raise UsageError(
            f"{one[0]} is of votes on pairs, and {other[0]} of best-worst answers: give those of one."
        )
    if other:
        items, best, worst = of_best_worst.values()
        named = [] if items is None else next(csv.reader([items], skipinitialspace=True), [])
        if len(set(named)) < max(len(named), 2) or (best is None and worst is None):
            raise UsageError(
                f"{file}: of best-worst answers name the columns: --item-columns a,b,c,d (two or more, "
                "each once), and --best, --worst or both (and --judge-column)."
            )
        return votes.Columns(named, best, worst, judge, round_, None, says)
    left, right, winner, ties = of_votes.values()
    if left is not None and right is not None and winner is not None:
        return votes.Columns((left, right), winner, None, judge, round_, ties or (), says)
    named = [*one, *filter(None, (judge, round_, says))]
    if named or file.suffix.lower() in _TABLES:
        raise UsageError(
            f"{file}: of a table of votes name the columns: --left, --right and --winner (and "
            "--judge-column); of best-worst answers --item-columns, --best and --worst."
        )
    return None


@command("import")
@with_settings(
    *("dataset", "text_column", "id_column", "gold_column", "gold_levels", "delimiter", "encoding"),
    *("skip_empty", "sample", "n", "data_dir", "seed"),
    *("rating", "sigma", "unbias_position", "texts"),
)
def import_(
    file: Annotated[
        Path,
        typer.Argument(
            help="Judgments, one JSON object a line; or a table of votes or best-worst answers.",
            metavar="FILE",
            show_default=False,
        ),
    ],
    left: Annotated[str | None, _column("The first text of a vote: its id, or the text.")] = None,
    right: Annotated[str | None, _column("The second text.")] = None,
    winner: Annotated[
        str | None, _column("Which won: the text, its side (left, right, 1, 2, a, b), or tie.")
    ] = None,
    item_columns: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN,…",
            help="The texts of a best-worst question, in the order shown.",
            rich_help_panel=BEST_WORST,
        ),
    ] = None,
    best: Annotated[
        str | None,
        _column("The best: the text, its place (1, 2, …) or its column's name.", BEST_WORST),
    ] = None,
    worst: Annotated[str | None, _column("The worst.", BEST_WORST)] = None,
    judge_column: Annotated[str | None, _column("Who judged.", EITHER)] = None,
    round_column: Annotated[
        str | None, _column("The round, where there were several.", EITHER)
    ] = None,
    tie: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORD",
            help="One more word for a tie in --winner; may be repeated.",
            rich_help_panel=VOTES,
        ),
    ] = None,
    winner_is: Annotated[
        Literal["text", "side"] | None,
        typer.Option(
            metavar="text|side",
            help="What --winner (or --best, --worst) names, where it might be either.",
            rich_help_panel=EITHER,
        ),
    ] = None,
    items: Annotated[
        Literal["rows", "ids"] | None,
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
    of the ranking.

    Tied items of a ranking are in an inner list. Items are row numbers of the dataset
    (from 0), or ids in quotes. "judge" is the judge's name; "ordered": false means
    that the order shown isn't known.

    A wrong line is an error with its number; nothing is half imported. Items
    compared with themselves, and copies of an earlier line, are left out and
    reported.

    A table of votes on pairs, or of best-worst answers, as other programs write it,
    is imported by naming its columns. Of a best-worst answer only the best and the
    worst count.

    Some programs record a failed call as the order presented. Lists that were
    ranked so are counted where they are more than chance allows, and left out
    with --drop-identity.

    Examples:

      judgeq import --dataset babe recording.jsonl

      judgeq import -d my.csv --id-column id judgments.jsonl

      judgeq import --dataset babe recording.jsonl --drop-identity

      judgeq import -d texts.csv votes.csv --left a --right b --winner w --judge-column who

      judgeq import -d texts.csv bws.csv --item-columns a,b,c,d --best best --worst worst
    """
    from judgeq import config
    from judgeq.engine import import_run

    columns = _columns(
        file,
        {"--left": left, "--right": right, "--winner": winner, "--tie": tie},
        {"--item-columns": item_columns, "--best": best, "--worst": worst},
        judge_column,
        round_column,
        winner_is,
    )
    settings = config.settle(given(flags) | {"store": store})
    folder, before, notices = import_run.import_file(
        settings,
        file,
        runs_dir,
        numbers=items,
        columns=columns,
        drop_identity=drop_identity,
        new=new,
    )
    for notice in notices:
        complain(notice)
    if before and not quiet:
        complain(f"{folder.id} was imported before; --new imports it again beside it.")
    rate_run(folder, settings, quiet, as_json)


@command("export")
@with_settings("rating", "sigma", "unbias_position")
def export(
    name: RunName = "last",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The file to write.", show_default="standard output"),
    ] = None,
    table: Annotated[
        Literal["scores", "comparisons", "calls"] | None,
        typer.Option(
            metavar="scores|comparisons|calls",
            help="Write a table in place of the recording.",
            show_default="the recording; scores with --format",
        ),
    ] = None,
    kind: Annotated[
        Literal["csv", "jsonl", "parquet", "xlsx"] | None,
        typer.Option(
            "--format",
            metavar="csv|jsonl|parquet|xlsx",
            help="The table's format.",
            show_default="by the file's name; csv",
        ),
    ] = None,
    replies: Annotated[
        bool,
        typer.Option(
            "--replies", help="With --table calls: the raw replies, and the reasons in them."
        ),
    ] = False,
    by: Annotated[
        Literal["row", "id"] | None,
        typer.Option(
            metavar="row|id",
            help="How a recording names items: by row number, or by id.",
            show_default="row; id where a row number is another item's id",
        ),
    ] = None,
    runs_dir: RunsDir = Path("runs"),
    store: StoreAddress = None,
    accept_damage: AcceptDamage = False,
    **flags: Any,
) -> None:
    """Write a run's judgments, to publish and share them; or a table of it.

    The recording has the form that `judgeq import` reads: one JSON object a line,
    in the order in which they are rated. No texts, no prompts, no costs.

    --table writes for other programs: the scores without the texts; the comparisons
    that they are made of (a tie is two, of weight 0.5); or the calls, with tokens,
    costs, times and errors.

    In CSV and Excel a text that a spreadsheet would run begins with '; JSONL and
    Parquet have it as it is.

    Examples:

      judgeq export last --out judgments.jsonl

      judgeq export last --table scores --format csv

      judgeq export last --table comparisons --out comparisons.parquet

      judgeq export last --table calls --replies --out calls.jsonl
    """
    import asyncio

    from judgeq import files, runs
    from judgeq.engine import results
    from judgeq.imports import recordings

    out = None if out == Path("-") else out
    folder = runs.runs_in(runs_dir, store).find(name, accept_damage)
    spare(out, "--out")
    if table is not None or kind is not None:
        if by is not None:
            raise UsageError("--by goes with a recording: tables name items by their ids.")
        if given(flags) and table not in (None, "scores"):
            raise UsageError("--rating, --sigma and --unbias-position go with --table scores.")
        settings = folder.info().settings_with(given(flags))
        _export_table(folder, settings, table or "scores", kind, out, replies)
        return
    if replies or given(flags):
        raise UsageError(
            "--replies, --rating, --sigma and --unbias-position go with --table: a recording has none."
        )
    if out is not None and out.suffix.lower() in (".csv", ".parquet", ".xlsx"):
        complain(
            f"{out} is a recording, in JSONL: --table writes tables (scores, comparisons, calls)."
        )
    if folder.info().settings.both_orders:
        complain(
            f"{folder.id} asked each pair in both orders. A recording has no sign of that: imported, "
            "both answers count by themselves, and the scores are others."
        )
    if (word := _state(folder).word) != "finished":
        complain(f"{folder.id} is {word}: imported, what there is counts as a finished run.")
    ids, rounds, judges = asyncio.run(results.judgments(folder))
    naming = by or recordings.by_default(ids)
    lines = recordings.lines(recordings.of(rounds, judges), ids, naming)
    if out is None:
        print_json_lines(lines)
        return
    with files.replacing(out, refusal=_refusal) as file:
        file.writelines(f"{line}\n" for line in lines)


def _state(run: RunPlace) -> State:
    """How far a run is; that it is damaged is said."""
    import asyncio

    from judgeq.engine.status import state
    from judgeq.store.damage import caution

    there = asyncio.run(state(run))
    if there.damage:
        complain(caution(run.ledger, there.damage))
    return there


def _refusal(out: Path, error: OSError) -> UsageError:
    return UsageError(f"--out {out} can't be written: {error.strerror}.")


def _export_table(
    run: RunPlace,
    settings: Settings,
    name: str,
    kind: Format | None,
    out: Path | None,
    replies: bool,
) -> None:
    """Write a table of a run to a file, or to standard output."""
    import asyncio

    from judgeq import files
    from judgeq.datasets import table_writer
    from judgeq.engine import export

    ends: Any = "csv" if out is None else out.suffix.lower().removeprefix(".") or "csv"
    if kind is None and ends not in table_writer.FORMATS:
        formats = ", ".join(table_writer.FORMATS)
        raise UsageError(f"--out {out}: its name ends in none of {formats}; or add --format.")
    kind = kind or ends
    if replies and name != "calls":
        raise UsageError("--replies goes with --table calls.")

    async def written(file: IO[bytes]) -> None:
        if name == "scores":
            table = await export.scores(run, settings)
        elif name == "comparisons":
            table = await export.comparisons_of(run)
        else:
            table = await export.calls(run, replies=replies)
        if settings.rehearsal:
            table = table_writer.marked(table)
        await table_writer.write(table, kind, file)

    if (word := _state(run).word) != "finished":
        complain(f"{run.id} is {word}: this is what there is so far.")
    if out is not None:
        with files.replacing(out, refusal=_refusal) as text:
            asyncio.run(written(text.buffer))
        return
    with binary_output(f"--format {kind}" if kind in ("parquet", "xlsx") else None) as file:
        asyncio.run(written(file))
