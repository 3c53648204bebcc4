"""The commands of workers: worker, workers. What they need is imported when they run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from judgeq.cli import running
from judgeq.cli.app import command
from judgeq.cli.options import Json, LogFile, Quiet, given, with_settings
from judgeq.cli.printing import (
    complain,
    console,
    fail,
    print_json,
    show,
    write_log,
)
from judgeq.errors import JudgeqError, StoppedError, UsageError
from judgeq.settings import SETTINGS
from judgeq.settings.declaration import DATA, JUDGE, RUNNING
from judgeq.settings.model import Access

if TYPE_CHECKING:
    from judgeq.config import Settings
    from judgeq.engine.remote_worker import WorkerOptions

OF_WORKERS = [
    *("store", "data_dir", "base_url", "api", "extra_body", "concurrency", "max_invalid"),
    *(name for name in Access.model_fields if SETTINGS[name].flag),
    "sim_latency",
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
        help="A judge that this worker may ask: simulated, or a model's name; may be repeated. Money is "
        "spent only on models named here.",
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
        help="idle: leave when there is nothing to take; done: when the runs are finished (without any "
        "to work on it looks for one for a minute).",
        show_default="goes on until stopped",
        rich_help_panel=RUNNING,
    ),
]
MaxHours = Annotated[
    float | None,
    typer.Option(
        "--max-hours",
        metavar="X",
        help="Leave in time for the calls in flight to end within this many hours.",
        show_default=False,
        rich_help_panel=RUNNING,
    ),
]


def _of_a_worker(
    runs: Runs = None,
    judge: Judges = None,
    dataset: Files = None,
    exit_when: ExitWhen = None,
    max_hours: MaxHours = None,
) -> None:
    """The flags of a worker, also of each that `workers` starts."""


def _given(flags: dict[str, Any]) -> WorkerOptions:
    """What they give; the settings among them are a worker's own."""
    from judgeq.engine.remote_worker import WorkerOptions

    runs, files, exit_when, max_hours = map(
        flags.pop, ("runs", "dataset", "exit_when", "max_hours")
    )
    if exit_when not in (None, "idle", "done"):
        raise UsageError(f"--exit-when {exit_when}: give idle or done.")
    if max_hours is not None and max_hours <= 0:
        raise UsageError(f"--max-hours {max_hours:g}: give a number above 0.")
    return WorkerOptions(given(flags), tuple(files or ()), tuple(runs or ()), exit_when, max_hours)


@command("worker")
@with_settings(*OF_WORKERS, flags_of=_of_a_worker)
def worker(
    quiet: Quiet = False,
    log: LogFile = None,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Work on the runs of a store: take their jobs and ask the judges, until stopped.

    `judgeq run --store` plans the rounds; any number of workers, on any machines,
    answer them. Judges, servers, keys and prices are this worker's own, never the
    database's, and --max-cost caps what this process spends.

    Ctrl-C or SIGTERM lets the calls in flight finish and gives the other jobs back;
    twice stops now.

    Examples:

      judgeq worker --store postgresql://me@host/judgeq --exit-when done

      judgeq worker --store … my-run --judge gpt-5-mini --max-cost 5

      judgeq worker --store … -j my-model --base-url http://127.0.0.1:8000/v1
    """
    from judgeq.engine import remote_worker, stopping
    from judgeq.ui import lines
    from judgeq.ui.json import plain
    from judgeq.ui.sections import line

    write_log(log)
    mine = _given(flags)
    tally = remote_worker.Tally()
    shown = console(stderr=True)
    face = lines.Quiet(shown) if quiet else lines.WorkerLines(shown, tally)
    ended: JudgeqError | None = None
    running.restore_ctrl_c()
    try:
        stopping.run_loop(remote_worker.join(mine, face, tally, beside=face.draw_forever))
    except StoppedError as error:
        ended = StoppedError(f"{error}. Jobs without an answer were given back: others take them.")
    except JudgeqError as error:
        ended = error
    left = mine.exit_when or "" if ended is None else type(ended).__name__
    if as_json:
        print_json({"left": left, **plain(tally)}, ended)
    elif not quiet:
        show(line("worker", tally=tally))
    if ended is not None:
        fail(ended)


@command("workers")
@with_settings(*OF_WORKERS, flags_of=_of_a_worker)
def workers(
    context: typer.Context,
    on: Annotated[
        str,
        typer.Option(
            "--on",
            metavar="CLUSTER",
            help="dask=tcp://HOST:8786, ray=auto or ray=ray://HOST:10001.",
            show_default=False,
            rich_help_panel=RUNNING,
        ),
    ],
    n: Annotated[
        int,
        typer.Option(
            "--number", "-n", min=1, metavar="N", help="How many.", rich_help_panel=RUNNING
        ),
    ] = 1,
    quiet: Quiet = False,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Start workers on your Dask or Ray cluster, watch them and stop them.

    Takes the flags of `judgeq worker`, for each of them. The cluster must be running;
    Ctrl-C stops the workers as SIGTERM does.

    Keys are never sent: they come from the environment there, as does a store's
    address that isn't given by --store here.

    Examples:

      judgeq workers --on dask=tcp://head:8786 -n 20 --store postgresql://me@db/judgeq
    """
    from judgeq import config
    from judgeq.engine import cluster

    mine = _given(flags)
    source = context.get_parameter_source("store")
    if source is None or source.name != "COMMANDLINE":  # it may hold a password: as it is there
        mine = replace(mine, settings={k: v for k, v in mine.settings.items() if k != "store"})
    _check_secrets(config.settle({"dataset": "demo", **mine.settings}))
    here = [str(Path(name).absolute()) for name in mine.datasets]  # on a file system that all have
    reports = dict[int, cluster.Report]()

    def ended(number: int, report: cluster.Report) -> None:
        reports[number] = report
        if not quiet or report.error:
            did = f"{report.tally.get('done', 0):,} jobs, {report.tally.get('calls', 0):,} calls"
            why = f": {report.error}" if report.error else ""
            complain(f"worker {number} ({report.where}) has ended, {did}{why}")
            for text in report.warnings:
                complain(f"worker {number}: {text}")

    running.restore_ctrl_c()
    with cluster.submitted(on, replace(mine, datasets=here), n) as (tasks, stop):
        cluster.watch(tasks, stop, ended)
    if as_json:
        print_json([{"number": n, **reports[n]._asdict()} for n in sorted(reports)])
    codes = [reports[n].exit_code for n in sorted(reports) if reports[n].exit_code]
    if codes:
        raise typer.Exit(codes[0])


def _check_secrets(settings: Settings) -> None:
    """Raise UsageError for settings that hold a secret, which would be sent."""
    kept = settings.kept()
    for name, flag in (("headers", "--header"), ("proxy", "--proxy")):
        if getattr(kept, name) != getattr(settings, name):
            raise UsageError(
                f"{flag} holds what may be a secret, which is never sent to other machines: give it "
                "as env:VARIABLE, and set the variable there."
            )
