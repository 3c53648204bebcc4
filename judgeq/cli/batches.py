"""The commands around batches: list, cancel, release. What they need is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from judgeq.cli.app import batches_app, command
from judgeq.cli.options import RESUMED, Json, RunName, RunsDir, StoreAddress, given, with_settings
from judgeq.cli.printing import complain, console, print_json, show
from judgeq.errors import UsageError

if TYPE_CHECKING:
    from judgeq.engine.assembly import Run


@batches_app.callback()
def batches(
    context: typer.Context,
    runs_dir: RunsDir = Path("runs"),
    store: StoreAddress = None,
    as_json: Json = False,
) -> None:
    """List the batches of all runs: state, age, questions, what they cost so far."""
    if context.invoked_subcommand is not None:
        return
    import asyncio
    import time

    from judgeq import runs
    from judgeq.engine.batch import listed
    from judgeq.ui.show import status as show_status

    found, errors = asyncio.run(listed(runs.runs_in(runs_dir, store)))
    for error in errors:
        complain(error)
    if as_json:
        print_json(found)
    else:
        show(show_status.batches(found, time.time()))


@command("cancel", batches_app)
@with_settings(*RESUMED)
def cancel(
    name: RunName = "last",
    runs_dir: RunsDir = Path("runs"),
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Ask the provider to stop working on a run's batches.

    What they had answered by then is billed: `judgeq resume` collects it, and asks
    the rest again. Also while a session waits for them.
    """
    import asyncio

    from judgeq.engine.batch import cancel as end
    from judgeq.ui import dashboard
    from judgeq.ui.show import status as show_status

    run = _run(name, runs_dir, flags)
    with dashboard.choose(console(stderr=True), quiet=True) as face:
        cancelled = asyncio.run(end(run, face))
    if as_json:
        print_json([batch._replace(status=remote.status) for batch, remote in cancelled])
    else:
        show(show_status.cancelled(cancelled, run.folder.argument))


@command("release", batches_app)
@with_settings(*RESUMED)
def release(
    name: RunName = "last",
    runs_dir: RunsDir = Path("runs"),
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Give up a run's batches of which nobody knows whether they were created.

    Their questions are asked again by `judgeq resume`; the batches count as possibly
    paid. Look at your provider's page of batches first.
    """
    from judgeq.engine import session
    from judgeq.engine.runner import batches_of
    from judgeq.text import several
    from judgeq.ui import dashboard

    run = _run(name, runs_dir, flags)
    with dashboard.choose(console(stderr=True), quiet=True) as face:
        released = session.at_work(run, face, lambda at: batches_of(at).give_up())
    if as_json:
        print_json({"released": released})
    else:
        show(f"{several(released, 'batch', 'batches')} given up.")


def _run(name: str, runs_dir: Path, flags: dict[str, Any]) -> Run:
    """An existing run, with the settings of this user."""
    changes = given(flags)
    from judgeq import runs
    from judgeq.engine import session

    place = runs.runs_in(runs_dir, flags["store"]).find(name)
    prepared = session.resume(place, changes)
    if not prepared.settings.models:
        raise UsageError(f"run {place.id} asks no model, so that it has no batches.")
    return prepared
