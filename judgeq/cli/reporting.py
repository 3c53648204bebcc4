"""The command that writes a run's report: report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from judgeq.cli.app import command
from judgeq.cli.evaluating import opened_runs, plan_flags
from judgeq.cli.options import Json, Quiet, RunName, RunsDir, StoreAddress, given, with_settings
from judgeq.cli.printing import complain, print_json, show

MOST_TEXTS = 100_000


@command("report")
@with_settings("rating", "sigma", "unbias_position", "texts", flags_of=plan_flags)
def report(
    name: RunName = "last",
    kind: Annotated[
        str, typer.Option("--format", metavar="html|md|json", help="What is written.")
    ] = "html",
    listed: Annotated[
        int,
        typer.Option(
            "--texts",
            metavar="N",
            min=1,
            max=MOST_TEXTS,
            help="So many texts at most are in the table: of more the ends, the middle, the least "
            "certain and a sample.",
        ),
    ] = 2_000,
    browser: Annotated[
        bool, typer.Option("--open", help="Open the report in the browser.")
    ] = False,
    runs_dir: RunsDir = Path("runs"),
    store: StoreAddress = None,
    quiet: Quiet = False,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Write a run's report: a page to read, to share, and to put beside a paper.

    What was done, what went wrong, the scale with its intervals, gold, the
    judge, the money, the design, all that is needed to make it again, and the
    texts with the judgments behind each score. report.html in the run's folder is
    one file that needs no network; --format md writes Markdown with its figures
    beside it, json the sections as data. --no-texts leaves all texts out, for
    corpora that may not be shared. Asks nothing.

    Examples:

      judgeq report --open

      judgeq report babe-list --texts 5000 --threshold best

      judgeq report last --no-texts --format md
    """
    import asyncio

    from judgeq.evaluation import record
    from judgeq.ui.report import page, texts

    page.check(kind)
    without = given({"texts": flags.pop("texts")})
    plan, (run,) = opened_runs([name], runs_dir, store, **flags)
    shown = run.info.settings_with(without).texts
    made = asyncio.run(record.of_run(run, plan, shown=shown))
    table = asyncio.run(texts.gathered(made, listed))
    paths = page.write(made, table, run.run.path, kind)
    if as_json:
        written = {"run": run.run.id, "folder": run.run.path, "store": run.run.store_address}
        written |= {"partial": run.partial, "format": kind, "files": paths}
        counts = {"items": run.info.items, "listed": len(table.rows)}
        print_json({**written, **counts, "texts": made.texts is not None})
    elif not quiet:
        show(str(paths[0]))
        if shown and made.texts is None:
            complain("the texts of this run aren't here: the report has its ids alone.")
    if browser:
        typer.launch(paths[0].resolve().as_uri())
