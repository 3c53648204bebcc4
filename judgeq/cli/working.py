"""The commands of workers: worker, workers. What they need is imported when they run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from judgeq.cli import running
from judgeq.cli.app import command
from judgeq.cli.options import Json, LogFile, Quiet, given, with_settings
from judgeq.cli.printing import console, error_json, fail, print_json, show, write_log
from judgeq.errors import JudgeqError, StoppedError, UsageError
from judgeq.settings import SETTINGS, Faults
from judgeq.settings.declaration import DATA, JUDGE, RUNNING
from judgeq.settings.model import Access

if TYPE_CHECKING:
    from judgeq.engine.joining import Given

OF_WORKERS = [
    *("store", "data_dir", "base_url", "extra_body", "concurrency", "max_invalid"),
    *(name for name in Access.model_fields if SETTINGS[name].flag),
    *Faults.model_fields,
]
"""The settings that are a worker's own, whatever a run says."""

Runs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RUN …",
        help="The runs to work on, each by its id or a unique beginning of it. Default: all whose "
        "judges this worker may ask.",
        show_default=False,
    ),
]
Judges = Annotated[
    list[str] | None,
    typer.Option(
        "--judge",
        "-j",
        metavar="NAME",
        help="A judge that this worker may ask: simulated, a model's name, or recorded:FILE; may be "
        "repeated. Money is spent only on models named here.",
        show_default="simulated",
        rich_help_panel=JUDGE,
    ),
]
Files = Annotated[
    list[str] | None,
    typer.Option(
        "--dataset",
        "-d",
        metavar="PATH",
        help="A file with texts of a run, which the run's checksum must fit; may be repeated. "
        "Datasets that have a name are found by it.",
        show_default=False,
        rich_help_panel=DATA,
    ),
]
ExitWhen = Annotated[
    str | None,
    typer.Option(
        "--exit-when",
        metavar="idle|done",
        help="idle: leave when there is nothing to take; done: when the runs are finished.",
        show_default="goes on until stopped",
        rich_help_panel=RUNNING,
    ),
]
MaxHours = Annotated[
    float | None,
    typer.Option(
        "--max-hours",
        metavar="X",
        help="Leave in time for the calls in flight to end before so many hours are over.",
        show_default=False,
        rich_help_panel=RUNNING,
    ),
]


def _given(
    runs: list[str] | None,
    judge: list[str] | None,
    dataset: list[str] | None,
    exit_when: str | None,
    max_hours: float | None,
    flags: Mapping[str, Any],
) -> Given:
    from judgeq.engine.joining import Given

    if exit_when not in (None, "idle", "done"):
        raise UsageError(f"--exit-when {exit_when}: give idle or done.")
    if max_hours is not None and max_hours <= 0:
        raise UsageError(f"--max-hours {max_hours:g}: give a number above 0.")
    settings = given(flags)
    if judge:
        settings["judge"] = tuple(judge)
    return Given(settings, tuple(dataset or ()), tuple(runs or ()), exit_when, max_hours)  # type: ignore[arg-type]


@command("worker")
@with_settings(*OF_WORKERS)
def worker(
    runs: Runs = None,
    judge: Judges = None,
    dataset: Files = None,
    exit_when: ExitWhen = None,
    max_hours: MaxHours = None,
    quiet: Quiet = False,
    log: LogFile = None,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Work on the runs of a store: take their jobs and ask the judges, until stopped.

    `judgeq run --store` plans the rounds; any number of workers, on any machines,
    answer them. Judges, servers, keys and prices are this worker's own, never the
    database's, and --max-cost caps what this process spends. Ctrl-C or SIGTERM lets
    the calls in flight finish and gives the other jobs back; twice stops now.

    Examples:

      judgeq worker --store postgresql://me@host/judgeq --exit-when done

      judgeq worker --store … my-run --judge gpt-5-mini --max-cost 5

      judgeq worker --store … -j my-model --base-url http://127.0.0.1:8000/v1
    """
    from judgeq.engine import joining, session
    from judgeq.engine.working import Tally
    from judgeq.ui import working

    write_log(log)
    mine = _given(runs, judge, dataset, exit_when, max_hours, flags)
    tally = Tally()
    lines = working.WorkerLines(console(stderr=True), tally, quiet=quiet)
    ended: JudgeqError | None = None
    running.restore_ctrl_c()
    try:
        session.run_loop(joining.join(mine, lines, tally, beside=lines.draw_forever))
    except StoppedError as error:
        ended = StoppedError(f"{error}. Jobs without an answer were given back: others take them.")
    except JudgeqError as error:
        ended = error
    left = exit_when or "" if ended is None else type(ended).__name__
    if as_json:
        print_json(working.as_json(tally, left) | ({} if ended is None else error_json(ended)))
    elif not quiet:
        show(working.summary(tally))
    if ended is not None:
        fail(ended)
