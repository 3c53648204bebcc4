"""The commands of workers: worker, workers. What they need is imported when they run."""

from __future__ import annotations

from collections.abc import Mapping
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
    error_json,
    fail,
    print_json,
    show,
    show_text,
    write_log,
)
from judgeq.errors import JudgeqError, StoppedError, UsageError
from judgeq.settings import SETTINGS, Faults
from judgeq.settings.declaration import DATA, JUDGE, RUNNING
from judgeq.settings.model import Access

if TYPE_CHECKING:
    from judgeq.config import Settings
    from judgeq.engine.joining import Given

OF_WORKERS = [
    *("store", "data_dir", "base_url", "api", "extra_body", "concurrency", "max_invalid"),
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
        help="Leave in time for the calls in flight to end before so many hours are over.",
        show_default=False,
        rich_help_panel=RUNNING,
    ),
]


_OF_GIVEN = ("runs", "judge", "dataset", "exit_when", "max_hours")


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


def _of_a_worker(
    runs: Runs = None,
    judge: Judges = None,
    dataset: Files = None,
    exit_when: ExitWhen = None,
    max_hours: MaxHours = None,
) -> None:
    """The flags of each worker that `workers` starts."""


@command("workers")
@with_settings(*OF_WORKERS, flags_of=_of_a_worker)
def workers(
    context: typer.Context,
    on: Annotated[
        str,
        typer.Option(
            "--on",
            metavar="CLUSTER",
            help="dask=tcp://HOST:8786, ray=auto or ray=ray://HOST:10001; slurm or kubernetes with "
            "--print.",
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
    only_print: Annotated[
        bool,
        typer.Option(
            "--print",
            help="Print a script for SLURM or Kubernetes, and start nothing.",
            rich_help_panel=RUNNING,
        ),
    ] = False,
    time: Annotated[
        str,
        typer.Option(
            metavar="HH:MM:SS", help="SLURM: the time of each job.", rich_help_panel=RUNNING
        ),
    ] = "24:00:00",
    image: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Kubernetes: an image in which judgeq is installed.",
            rich_help_panel=RUNNING,
        ),
    ] = "judgeq:latest",
    quiet: Quiet = False,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Start workers on your cluster, watch them and stop them; or print a script that does.

    Takes the flags of `judgeq worker`, for each of them. Dask and Ray must be running;
    Ctrl-C stops the workers as SIGTERM does. Keys are never sent: they come from the
    environment there, as does a store's address that isn't given by --store here.

    Examples:

      judgeq workers --on dask=tcp://head:8786 -n 20 --store postgresql://me@db/judgeq

      judgeq workers --on slurm -n 50 --time 12:00:00 -j gpt-5-mini --print

      judgeq workers --on kubernetes -n 20 -j gpt-5-mini --print
    """
    from judgeq.engine import clusters

    mine = _given(**{name: flags.pop(name) for name in _OF_GIVEN}, flags=flags)
    source = context.get_parameter_source("store")
    if source is None or source.name != "COMMANDLINE":  # it may hold a password: as it is there
        mine = replace(mine, settings={k: v for k, v in mine.settings.items() if k != "store"})
    clusters.check(_checked(mine))
    if on in ("slurm", "kubernetes"):
        if not only_print:
            raise UsageError(
                f"--on {on} goes with --print: the script that is printed starts them."
            )
        _print_script(on, n, mine, time, image)
        return
    if only_print:
        raise UsageError(f"--print goes with --on slurm or kubernetes, not with {on}.")
    _watch(on, n, mine, quiet=quiet, as_json=as_json)


def _checked(mine: Given) -> Settings:
    """The settings of each worker. Raises UsageError for what can't be."""
    from judgeq import config

    return config.settle({"dataset": "demo", **mine.settings})


def _print_script(on: str, n: int, mine: Given, time: str, image: str) -> None:
    from judgeq.engine import scripts
    from judgeq.judge.model import key_name
    from judgeq.store.postgres.address import parse

    settings = _checked(mine)
    needs = settings.api_key_file is None
    needs = needs and (settings.base_url is None or settings.api_key_env is not None)
    keys = {key_name(name, settings, settings) for name in settings.models if needs}
    store = None if settings.store is None else parse(settings.store).shown
    plan = scripts.Plan(n, scripts.words(mine), store, sorted(keys), settings.timeout + 30)
    show_text(scripts.slurm(plan, time) if on == "slurm" else scripts.kubernetes(plan, image))


def _watch(on: str, n: int, mine: Given, *, quiet: bool, as_json: bool) -> None:
    from judgeq.engine import clusters

    here = [str(Path(name).absolute()) for name in mine.datasets]  # on a file system that all have
    cluster = clusters.on(on)

    def report(ended: clusters.Report) -> None:
        if quiet and not ended.error:
            return
        did = f"{ended.tally.get('done', 0):,} jobs, {ended.tally.get('calls', 0):,} calls"
        why = f": {ended.error}" if ended.error else ""
        complain(f"worker {ended.number} ({ended.where}) has ended, {did}{why}")
        for text in ended.warnings:
            complain(f"worker {ended.number}: {text}")

    running.restore_ctrl_c()
    try:
        cluster.submit(replace(mine, datasets=here), n)
        reports = clusters.watch(cluster, n, report)
    finally:
        cluster.close()
    if as_json:
        print_json([ended._asdict() for ended in sorted(reports)])
    failed = next((ended for ended in reports if ended.exit_code), None)
    if failed is not None:
        raise typer.Exit(failed.exit_code)
