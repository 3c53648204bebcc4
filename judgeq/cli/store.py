"""The commands around all runs, and the store that may keep them: runs, worker, store.

What they need is imported when they run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from judgeq.cli.options import (
    LOG,
    RESUMED,
    RUN,
    STORE,
    Values,
    argument,
    command,
    of_settings,
    option,
)
from judgeq.cli.printing import Answer, complain, confirm, console, show, show_text
from judgeq.cli.run import restore_ctrl_c
from judgeq.errors import JudgeqError, RunError, StoppedError, UsageError
from judgeq.settings.declaration import DATA, JUDGE
from judgeq.settings.model import Access
from judgeq.settings.run import SETTINGS

if TYPE_CHECKING:
    from judgeq.run_places import RunPlace, Runs

OF_WORKERS = [
    *("store", "data_dir", "base_url", "api", "extra_body", "concurrency", "max_invalid"),
    "check_reading",
    *(name for name in Access.model_fields if SETTINGS[name].flag),
    "sim_latency",
]
"""The settings that are a worker's own, whatever a run says."""


@command("runs")
def list_runs(there: Runs) -> Answer:
    """List the runs, the latest first."""
    import asyncio

    from judgeq.engine.status import Unreadable, states
    from judgeq.ui.show import lists

    listed = asyncio.run(states(there.all()))
    for state in listed:
        if isinstance(state, Unreadable):
            complain(f"{state.run.id} can't be read: {state.reason}")
    none = f"No runs in {there.label}. Start with: judgeq run demo"
    return Answer(listed, lists.runs if listed else lambda _: none)


@command(
    "runs rm",
    argument(
        "names", "RUN …", "Runs, each by its id, a unique beginning of it, its name or folder.",
        nargs=-1, required=True,
    ),
)  # fmt: skip
def remove_runs(names: tuple[str, ...], there: Runs, yes: bool, as_json: bool) -> Answer:
    """Remove runs, with all that was answered.

    They were paid for: it says what goes, and asks before. A run in use is never
    removed. Replies stay in the cache; of a run in a store, the local folder of its
    results stays.
    """
    import asyncio

    from judgeq.engine.status import states
    from judgeq.text import several
    from judgeq.ui.show import lists

    if "last" in names:
        raise UsageError("'last' may be another by now: name the run that is to be removed.")
    places = list(dict.fromkeys(there.find(name) for name in names))
    found = asyncio.run(states(places))
    for state in found:
        if state.word == "running":
            raise RunError(f"run {state.run.id} is in use: stop it first. Nothing was removed.")
    if not yes and not as_json:
        show(lists.runs(found))
    confirm(f"Remove {several(len(found), 'run')}, with all that was answered?", yes=yes)
    for place in places:
        place.remove()
    removed = [place.id for place in places]
    return Answer({"removed": removed}, lambda _: f"Removed: {', '.join(removed)}")


@command("runs batches")
def batches(there: Runs) -> Answer:
    """List the batches of all runs, and what they cost so far."""
    import asyncio
    import time

    from judgeq.engine.status import Unreadable, listed, states
    from judgeq.ui.show import lists

    found = asyncio.run(states(there.all()))
    for one in found:
        if isinstance(one, Unreadable):
            complain(f"{one.run.label}: {one.reason}")
    return Answer(listed(found), lambda found: lists.batches(found, time.time()))


@command("runs batches cancel", *of_settings(*RESUMED, of_run=True))
def cancel(place: RunPlace, given: Values) -> Answer:
    """Ask the provider to stop a run's batches.

    What they had answered by then is billed: `judgeq resume` collects it, and asks
    the rest again. Also while a session waits for them.
    """
    import asyncio

    from judgeq.engine import session
    from judgeq.engine.batch import cancel as end
    from judgeq.ui import dashboard
    from judgeq.ui.show import lists

    run = session.resume(place, given)
    if not run.settings.models:
        raise UsageError(f"run {place.id} asks no model, so that it has no batches.")
    with dashboard.choose(console(stderr=True), quiet=True) as face:
        cancelled = asyncio.run(end(run, face))
    return Answer(
        [batch._replace(status=remote.status) for batch, remote in cancelled],
        lambda _: lists.cancelled(cancelled, run.folder),
    )


OF_A_WORKER = (
    argument(
        "runs", "[RUN …]",
        "The runs to work on, each by its id or a unique beginning of it. Default: all whose judges "
        "this worker may ask.",
        nargs=-1,
    ),
    option(
        "-d --dataset",
        "A file with texts of a run, which the run's checksum must fit; may be repeated. Datasets "
        "that have a name are found by it.",
        str, group=DATA, metavar="PATH", multiple=True,
    ),
    option(
        "-j --judge",
        "A judge that this worker may ask: simulated, or a model's name; may be repeated. Money is "
        "spent only on models named here.",
        str, group=JUDGE, metavar="NAME", multiple=True, shown="simulated",
    ),
    *of_settings(*OF_WORKERS),
    option(
        "--exit-when",
        "idle: leave when there is nothing to take; done: when the runs are finished (without any to "
        "work on it looks for one for a minute).",
        ("idle", "done"), shown="goes on until stopped",
    ),
    option(
        "--max-hours",
        "Leave in time for the calls in flight to end within this many hours.",
        float, least=1e-6,
    ),
)  # fmt: skip


@command("worker", *OF_A_WORKER, LOG)
def worker(given: Values, values: Values, quiet: bool) -> Answer:
    """Answer the jobs of runs in a store, until stopped.

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
    from judgeq.engine import remote_worker
    from judgeq.ui import dashboard
    from judgeq.ui.dataclass_json import plain
    from judgeq.ui.sections import line

    own = remote_worker.settings_of(given | ({"judge": values["judge"]} if values["judge"] else {}))
    names = {
        "datasets": "dataset",
        "runs": "runs",
        "exit_when": "exit_when",
        "max_hours": "max_hours",
    }
    mine = {name: values[given] for name, given in names.items()}
    tally = remote_worker.Tally()
    shown = console(stderr=True)
    face = dashboard.Quiet(shown) if quiet else dashboard.WorkerLines(shown, tally)
    ended: JudgeqError | None = None
    restore_ctrl_c()
    try:
        remote_worker.join(own, face, tally, **mine, beside=face.draw_forever)
    except StoppedError as error:
        ended = StoppedError(f"{error}. Jobs without an answer were given back: others take them.")
    except JudgeqError as error:
        ended = error
    left = values["exit_when"] or "" if ended is None else type(ended).__name__
    return Answer({"left": left, **plain(tally)}, lambda _: line("worker", tally=tally), ended)


@command("store")
def store(context: click.Context) -> None:
    """Look after a PostgreSQL store."""
    show_text(context.get_help())


@command(
    "store copy", RUN,
    option(
        "--to",
        "Where to: a store's address, for a run in a folder; a folder of runs, for a run in a store.",
        str, metavar="postgresql://…|FOLDER", required=True,
    ),
    STORE,
)  # fmt: skip
def copy(values: Values, to: str, runs_dir: Path) -> Answer:
    """Copy a run between a folder and a store, losing nothing.

    The run must be finished or stopped, and stays as it is. The copy appears whole
    or not at all, under the same name, and can be continued as the run could.

    Texts that a store shares are not copied: a folder never holds any.

    Examples:

      judgeq store copy demo-listwise10 --to postgresql://me@db.example/judgeq

      judgeq store copy demo-listwise10 --store postgresql://me@db.example/judgeq --to runs
    """
    from judgeq import run_places, trust
    from judgeq.run_places.stored import copy
    from judgeq.store.link import is_address

    # $JUDGEQ_STORE says where runs usually are; --to an address takes one out of a folder.
    source = run_places.runs_in(runs_dir, None if is_address(to) else values["store"])
    run = source.find(values["run"])
    target = run_places.runs_in(runs_dir, to) if is_address(to) else run_places.runs_in(Path(to))
    made = copy(run, target)
    unmarked = trust.carry(run, made, made.info().fingerprint)
    if unmarked is not None:
        complain(f"It can't be remembered that the copy is yours: {unmarked}")
    return Answer(
        {"run": made.id, "from": run.label, "to": made.label},
        lambda _: f"{run.label} is copied to {made.label}.",
    )
