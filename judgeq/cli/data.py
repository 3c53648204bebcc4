"""The commands that share judgments: import, export."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from judgeq.cli.options import (
    RATED,
    STORE,
    Values,
    argument,
    command,
    of_settings,
    option,
)
from judgeq.cli.printing import Answer, binary_output, complain, print_json_lines, spare
from judgeq.cli.run import warn_of_merged, written
from judgeq.errors import UsageError

if TYPE_CHECKING:
    from judgeq.config import Settings
    from judgeq.engine.export import Format
    from judgeq.imports import votes
    from judgeq.run_places import RunPlace

VOTES = "Table of votes"
BEST_WORST = "Table of best-worst answers"
EITHER = "Either table"
_TABLES = (".csv", ".tsv", ".parquet")


def _column(flag: str, text: str, group: str, metavar: str = "COLUMN", **how: Any) -> Any:
    return option(flag, text, str, group=group, metavar=metavar, **how)


COLUMNS = (
    _column("--left", "The first text of a vote: its id, or the text.", VOTES),
    _column("--right", "The second text.", VOTES),
    _column(
        "--winner",
        "Which won: the text, its side (left, right, 1, 2, a, b, 'A is better'), or tie. Or three "
        "columns of 1 and 0: the left won, the right won, a tie.",
        VOTES, "COLUMN,…",
    ),
    _column(
        "--winner-columns", "In place of --winner: a column of winners for each judge, by its name.",
        VOTES, "COLUMN,…",
    ),
    _column(
        "--tie", "One more word for a tie in --winner; may be repeated.", VOTES, "WORD",
        multiple=True,
    ),
    _column(
        "--item-columns", "The texts of a best-worst question, in the order shown.", BEST_WORST,
        "COLUMN,…",
    ),
    _column(
        "--best", "The best: the text, its place (1, 2, …) or its column's name.", BEST_WORST
    ),
    _column("--worst", "The worst.", BEST_WORST),
    _column("--judge-column", "Who judged.", EITHER),
    _column("--round-column", "The round, where there were several.", EITHER),
    option(
        "--winner-is",
        "What --winner (or --best, --worst) names: a text or a side; of 0 and 1 the text's index, or "
        "whether the left one won.",
        ("text", "side", "index", "left-won"), group=EITHER,
        shown="text or side, whichever fits all rows",
    ),
)  # fmt: skip


def columns_of(file: Path, values: Values) -> votes.Columns | None:
    """The columns of a table of votes, or of best-worst answers, by the flags of each and those of both;
    None for a recording. Raises UsageError where one is missing."""
    from judgeq.imports import votes

    left, right, winner, best, worst = (
        values[name] for name in ("left", "right", "winner", "best", "worst")
    )
    shared = values["judge_column"], values["round_column"]
    items = _names(values["item_columns"])
    by_judge = _names(values["winner_columns"])
    of_votes = any((left, right, winner, by_judge))
    of_best = any((items, best, worst))
    if of_best and values["winner_is"] in ("index", "left-won"):
        raise UsageError(f"--winner-is {values['winner_is']} goes with votes (--winner).")
    if by_judge and (winner or values["judge_column"]):
        raise UsageError("--winner-columns stands in place of --winner and --judge-column.")
    if not of_votes and len({*items}) == len(items) >= 2 and (best or worst):
        return votes.Columns(items, best, worst, *shared, None, values["winner_is"])
    if not of_best and left and right and winner:
        outcomes = _names(winner)
        columns = votes.Columns(
            (left, right), winner, None, *shared, values["tie"], values["winner_is"]
        )
        if len(outcomes) in (2, 3):
            columns = columns._replace(best=None, outcomes=outcomes)
        return columns
    if not of_best and left and right and by_judge:
        return votes.Columns(
            (left, right), None, None, *shared, values["tie"], values["winner_is"], (), by_judge
        )
    if any(values[flag.name] for flag in COLUMNS) or file.suffix.lower() in _TABLES:
        raise UsageError(
            f"{file}: name the columns. Votes have --left, --right and --winner; best-worst answers "
            "--item-columns a,b,c,d (two or more, each once), and --best, --worst or both."
        )
    return None


def _names(columns: str | None) -> list[str]:
    """Return the names of columns that a flag gives, separated by commas as in a CSV file."""
    return next(csv.reader([columns or ""], skipinitialspace=True), [])


@command(
    "import",
    argument(
        "file", "FILE",
        "Judgments, one JSON object a line; or a table of votes or best-worst answers.", type=Path,
    ),
    *of_settings(
        *("dataset", "text_column", "id_column", "gold_column", "gold_levels", "group_column"),
        *("delimiter", "encoding", "sheet", "comment", "escape", "no_header", "skip_empty"),
        *("sample", "n", "data_dir", "seed", "name", *RATED, "texts"),
    ),
    *COLUMNS,
    option(
        "--items", "What numbers without quotes stand for.", ("rows", "ids"),
        shown="rows; an error where one is another item's id",
    ),
    option(
        "--drop-identity", "Leave out lists of three or more that were ranked exactly as presented."
    ),
    STORE,
)  # fmt: skip
def import_(
    file: Path,
    given: Values,
    values: Values,
    runs_dir: Path,
    new: bool,
    quiet: bool,
) -> Answer:
    """Make a finished run out of recorded judgments.

    Each line is {"round": 1, "presented": [5, 2, 9], "ranking": [9, 5, 2]}, or
    has a "winner" (of two; "tie" for none) or a "score" (of one, 0 to 1) in place
    of the ranking.

    Tied items of a ranking are in an inner list. Items are row numbers of the dataset
    (from 0), or ids in quotes. "judge" is the judge's name; "ordered": false means
    that the order shown isn't known.

    A wrong line is an error with its number; nothing is half imported. Lines that
    repeat an earlier one count, and are reported.

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

      judgeq import -d texts.csv arena.csv --left a --right b --winner a_won,b_won,tie

      judgeq import -d texts.csv bws.csv --item-columns a,b,c,d --best best --worst worst
    """
    from judgeq import config
    from judgeq.engine import import_run

    columns = columns_of(file, values)
    settings = config.settle(given | {"store": values["store"]})
    folder, before, notices = import_run.import_judgments(
        settings,
        import_run.reading(file, values["items"], columns),
        runs_dir,
        drop_identity=values["drop_identity"],
        new=new,
    )
    for notice in notices:
        complain(notice)
    if before and not quiet:
        complain(f"{folder.id} was imported before; --new imports it again beside it.")
    return written(folder, settings)


@command(
    "export", *of_settings(*RATED, of_run=True),
    option("-o --out", "The file to write.", Path, shown="standard output"),
    option(
        "--table", "Write a table in place of the recording.", ("scores", "comparisons", "calls"),
        shown="the recording; scores with --format",
    ),
    option(
        "kind --format", "The table's format.", ("csv", "jsonl", "parquet", "xlsx"),
        shown="by the file's name; csv",
    ),
    option(
        "program --for",
        "Write CSV as this program opens it, with a byte order mark, or .xlsx; scores have the "
        "beginnings of the texts.",
        ("excel",),
    ),
    option("--replies", "With --table calls: the raw replies, and the reasons in them."),
    option(
        "--by", "How a recording names items: by row number, or by id.", ("row", "id"),
        shown="row; id where a row number is another item's id",
    ),
)  # fmt: skip
def export(
    place: RunPlace,
    given: Values,
    out: Path | None,
    table: str | None,
    kind: Format | None,
    program: str | None,
    replies: bool,
    by: Any,
) -> None:
    """Write a run's judgments, scores or calls to a file.

    The recording has the form that `judgeq import` reads: one JSON object a line,
    in the order in which they are rated. No texts, no prompts, no costs.

    --table writes for other programs: the scores without the texts; the comparisons
    that they are made of (a tie is two, of weight 0.5); or the calls, with tokens,
    costs, times and errors.

    In CSV a text that a spreadsheet would run begins with '; JSONL, Parquet and Excel
    have it as it is. For Excel take --for excel, or a file's name that ends in .xlsx.

    Examples:

      judgeq export last --out judgments.jsonl

      judgeq export last --table scores --format csv

      judgeq export last --for excel --out scores.xlsx

      judgeq export last --table comparisons --out comparisons.parquet

      judgeq export last --table calls --replies --out calls.jsonl
    """
    out = None if out == Path("-") else out
    spare(out, "--out")
    name = "scores" if table is None and (kind is not None or program is not None) else table
    if replies and name != "calls":
        raise UsageError("--replies goes with --table calls.")
    if given and name != "scores":
        raise UsageError("--rating, --sigma and --unbias-position go with --table scores.")
    if name is None:
        _export_recording(place, out, by)
    elif by is not None:
        raise UsageError("--by goes with a recording: tables name items by their ids.")
    else:
        settings = place.info().settings_with(given)
        _export_table(place, settings, name, kind, out, replies=replies, excel=program == "excel")


def _export_recording(run: RunPlace, out: Path | None, by: Any) -> None:
    """Write a run's judgments to a file, or to standard output."""
    import asyncio

    from judgeq import files
    from judgeq.engine import results
    from judgeq.imports import recordings

    if out is not None and out.suffix.lower() in (".csv", ".tsv", ".parquet", ".xlsx"):
        raise UsageError(
            f"--out {out}: a recording is JSONL. Give --table scores (or comparisons, calls), or a name "
            "that ends in .jsonl."
        )
    if run.info().settings.both_orders:
        complain(
            f"{run.id} asked each pair in both orders. A recording has no sign of that: imported, "
            "both answers count by themselves, and the scores are others."
        )
    _warn(run, "imported, what there is counts as a finished run.")
    ids, rounds, judges = asyncio.run(results.judgments(run))
    naming = by or recordings.by_default(ids)
    lines = recordings.lines(recordings.of(rounds, judges), ids, naming)
    if out is None:
        print_json_lines(lines)
        return
    with files.replacing(out, refusal=_refusal) as file:
        file.writelines(f"{line}\n" for line in lines)


def _warn(run: RunPlace, what: str) -> None:
    """Warn of a run that isn't finished."""
    import asyncio

    from judgeq.engine.status import state

    there = asyncio.run(state(run))
    if there.word != "finished":
        complain(f"{run.id} is {there.word}: {what}")


def _refusal(out: Path, error: OSError) -> UsageError:
    return UsageError(f"--out {out} can't be written: {error.strerror}.")


def _export_table(
    run: RunPlace,
    settings: Settings,
    name: str,
    kind: Format | None,
    out: Path | None,
    *,
    replies: bool,
    excel: bool,
) -> None:
    """Write a table of a run to a file, or to standard output."""
    import asyncio

    from judgeq import files
    from judgeq.engine import export
    from judgeq.engine.datasets import dataset_of

    ends: Any = "csv" if out is None else out.suffix.lower().removeprefix(".") or "csv"
    if kind is None and ends not in export.FORMATS:
        formats = ", ".join(export.FORMATS)
        raise UsageError(f"--out {out}: its name ends in none of {formats}; or add --format.")
    kind = kind or ends
    if excel and kind not in ("csv", "xlsx"):
        raise UsageError(f"--for excel writes csv or xlsx, not {kind}.")
    excel = excel or kind == "xlsx"
    dataset = None
    if name == "scores" and (excel or settings.merge_duplicates):
        dataset = dataset_of(run)
        warn_of_merged(settings, dataset)

    mark = run.info().mark

    async def write(file: IO[bytes]) -> None:
        if name == "comparisons":
            table = await export.comparisons_of(run)
        elif name == "calls":
            table = await export.calls(run, replies=replies)
        else:
            table = await export.scores(run, settings, dataset, with_texts=excel)
        if mark:
            table = export.marked(table, mark)
        await export.write(table, kind, file, excel=excel)

    _warn(run, "this is what there is so far.")
    if out is not None:
        with files.replacing(out, refusal=_refusal) as text:
            asyncio.run(write(text.buffer))
        return
    with binary_output(f"--format {kind}" if kind in ("parquet", "xlsx") else None) as file:
        asyncio.run(write(file))
