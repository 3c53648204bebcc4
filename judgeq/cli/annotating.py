"""The command that opens the page of a run's people again: annotate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from judgeq.cli.app import command
from judgeq.cli.options import (
    RESUMED,
    Json,
    LogFile,
    Quiet,
    RetryFailed,
    RunName,
    RunsDir,
    given,
    with_settings,
)
from judgeq.cli.printing import write_log
from judgeq.errors import UsageError


@command("annotate")
@with_settings(*RESUMED)
def annotate(
    name: RunName = "last",
    browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    retry_failed: RetryFailed = False,
    runs_dir: RunsDir = Path("runs"),
    quiet: Quiet = False,
    log: LogFile = None,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Open the page on which people judge a run, until all is judged.

    For a run of `judgeq run --judge people`; the same as `judgeq resume`. Each judge
    needs a link, which `judgeq judges add` prints; with --open-to-all anybody who
    reaches the page may judge. Ctrl-C closes it; all answers are saved.

    With another --host the connection isn't encrypted: use a reverse proxy
    (--url-prefix).

    Examples:

      judgeq annotate last

      judgeq annotate last --open-to-all --host 0.0.0.0

      judgeq annotate last --url-prefix https://lab.example.org/study1
    """
    changes = given(flags)
    from judgeq.cli.running import play, taken_up

    write_log(log)
    prepared = taken_up(name, runs_dir, flags["store"], changes)
    folder = prepared.folder
    if prepared.settings.people is None:
        raise UsageError(
            f"run {folder.id} is judged by {folder.info().judge}, not by people. To start one that is: "
            "judgeq run --judge people"
        )
    play(prepared, quiet, as_json, retry_failed, browser=browser)
