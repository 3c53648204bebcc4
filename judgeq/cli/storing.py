"""The commands around a PostgreSQL store: check, drop-run, copy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgeq.cli.app import command, store_app
from judgeq.cli.options import Json, RunName, RunsDir, StoreAddress
from judgeq.cli.printing import complain, print_json, show, show_text
from judgeq.errors import UsageError

if TYPE_CHECKING:
    from judgeq.runs.stored import StoredRuns

Named = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="A run's id, or a unique beginning of it.", show_default=False
    ),
]


def _runs(store: str | None, runs_dir: Path) -> StoredRuns:
    from judgeq.runs.stored import StoredRuns

    if not store:
        raise UsageError(
            "name the store: --store postgresql://user@host/database, or $JUDGEQ_STORE."
        )
    return StoredRuns.at(store, runs_dir)


@store_app.callback()
def store(context: typer.Context) -> None:
    """Look after a PostgreSQL store: check, drop or copy a run."""
    if context.invoked_subcommand is None:
        show_text(context.get_help().rstrip())


@command("check", store_app)
def check(store: StoreAddress = None, as_json: Json = False) -> None:
    """Check a store: its schema, rights, clock, tables and runs."""
    from judgeq.store.postgres import upkeep
    from judgeq.ui.json import plain
    from judgeq.ui.show import lists as show_lists

    runs = _runs(store, Path("runs"))
    overview = upkeep.check(runs.address)
    listed = [] if overview.version is None else runs.all()
    if as_json:
        print_json({**plain(overview), "runs": [run.row() for run in listed]})
    else:
        show(*show_lists.store(overview, listed))


@command("drop-run", store_app)
def drop_run(
    name: Named,
    store: StoreAddress = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also while a process leads it.")] = False,
    as_json: Json = False,
) -> None:
    """Delete a run from a store, with all that was answered. It was paid for: it asks before.

    The run is deleted in blocks, so that nobody else waits for long; if that is
    interrupted, the same command continues. Local folders of results stay.
    """
    from judgeq.store.postgres import runs as rows

    if name == "last":
        raise UsageError("'last' may be another by now: name the run that is to be deleted.")
    runs = _runs(store, Path("runs"))
    run = runs.find(name)
    question = f"Delete {run.id} from {runs.shown}, with all its calls and verdicts?"
    if not yes and not typer.confirm(question, err=True):
        raise UsageError("nothing was deleted.")
    deleted = rows.drop(runs.address, run.row(), force=force)
    if as_json:
        print_json({"run": run.id, "rows_deleted": deleted})
    else:
        show(f"{run.id} is deleted: {deleted:,} rows.")


@command("copy", store_app)
def copy(
    name: RunName = "last",
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="postgresql://…|FOLDER",
            help="Where to: a store's address, for a run in a folder; a folder of runs, for a run in "
            "a store.",
            show_default=False,
        ),
    ] = None,
    runs_dir: RunsDir = Path("runs"),
    store: StoreAddress = None,
    as_json: Json = False,
) -> None:
    """Copy a run between a folder and a store, losing nothing.

    The run must be finished or stopped, and stays as it is. The copy appears whole
    or not at all, under the same name, and can be continued as the run could.

    Texts that a store shares are not copied: a folder never holds any.

    Examples:

      judgeq store copy demo-listwise10 --to postgresql://me@db.example/judgeq

      judgeq store copy demo-listwise10 --store postgresql://me@db.example/judgeq --to runs
    """
    from judgeq import runs, trust
    from judgeq.runs import copying
    from judgeq.store.postgres.address import is_address

    if to is None:
        raise UsageError("--to is missing: a store's address, or a folder of runs.")
    # $JUDGEQ_STORE says where runs usually are; --to an address takes one out of a folder.
    source = runs.runs_in(runs_dir, None if is_address(to) else store)
    run = source.find(name)
    target = runs.runs_in(runs_dir, to) if is_address(to) else runs.runs_in(Path(to))
    made = copying.copy(run, target)
    unmarked = trust.carry(run, made, made.info().fingerprint)
    if unmarked is not None:
        complain(f"It can't be remembered that the copy is yours: {unmarked}")
    if as_json:
        print_json({"run": made.id, "from": run.shown, "to": made.shown})
    else:
        show(f"{run.shown} is copied to {made.shown}.")
