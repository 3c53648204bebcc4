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
    browser: Annotated[
        bool, typer.Option("--open", help="Open the page in the browser, once it is there.")
    ] = False,
    retry_failed: RetryFailed = False,
    runs_dir: RunsDir = Path("runs"),
    quiet: Quiet = False,
    log: LogFile = None,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Open the page on which people judge a run, until all is judged.

    For a run begun with `judgeq run --judge people`: the same as `judgeq resume`,
    which goes on with it. Each judge needs a link, which `judgeq judges add` prints;
    with --open-to-all whoever reaches the page may judge. Ctrl-C closes it, and
    nothing that was answered is lost. On another --host than this machine's, what
    is sent isn't encrypted: put a reverse proxy before it (--url-prefix).

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
            f"run {folder.id} asks no people, but {folder.info().judge}: begin one with `judgeq run "
            "--judge people`."
        )
    play(prepared, quiet, as_json, retry_failed, browser=browser)
