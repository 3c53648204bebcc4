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
        str, typer.Option("--format", metavar="html|md|json", help="Format of the report.")
    ] = "html",
    listed: Annotated[
        int,
        typer.Option(
            "--texts",
            metavar="N",
            min=1,
            max=MOST_TEXTS,
            help="Texts in the table at most. Of more, the highest, the lowest and some in between.",
        ),
    ] = 2_000,
    appendix: Annotated[
        bool,
        typer.Option("--appendix", help="Only what a paper's appendix needs: about four pages."),
    ] = False,
    browser: Annotated[
        bool, typer.Option("--open", help="Open the report in the browser.")
    ] = False,
    runs_dir: RunsDir = Path("runs"),
    store: StoreAddress = None,
    quiet: Quiet = False,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Write a report of a run: the result, how sure it is, and what a paper needs.

    report.html in the run's folder is one file that needs no network. It opens with
    the highest and lowest texts, reliability, agreement with gold labels, and cost;
    each text opens to the judgments behind its score. Calls no model.

    --no-texts leaves texts out, for corpora that may not be shared. --appendix
    writes appendix.html: methods, prompt, scale, reliability and checks.

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
    plan, (run,) = opened_runs([name], runs_dir, store, flags)
    shown = run.info.settings_with(without).texts
    made = asyncio.run(record.of_run(run, plan, shown=shown))
    table = None if appendix else asyncio.run(texts.gathered(made, listed))
    paths = page.write(made, table, run.run.path / f"{'appendix' if appendix else 'report'}.{kind}")
    if as_json:
        print_json(
            {
                "run": run.run.id,
                "folder": run.run.path,
                "store": run.run.store_address,
                "partial": run.partial,
                "format": kind,
                "files": paths,
                "items": run.info.items,
                "listed": 0 if table is None else len(table.data["items"]),
                "texts": made.texts is not None,
            }
        )
    elif not quiet:
        show(str(paths[0]))
        if shown and made.texts is None:
            complain("The texts of this run aren't on this machine: the report shows ids only.")
    if browser:
        typer.launch(paths[0].resolve().as_uri())
