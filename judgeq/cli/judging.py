"""The commands for the people who judge a run: add, list, remove, forget.

What they need is imported when they run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from judgeq.cli.app import command, judges_app
from judgeq.cli.evaluating import CsvFile
from judgeq.cli.options import Json, NamedRun, RunName, RunsDir, StoreAddress, given, with_settings
from judgeq.cli.printing import print_json, show, show_text, spare
from judgeq.errors import UsageError
from judgeq.settings import SETTINGS

if TYPE_CHECKING:
    from judgeq.people.registry import Change, Changed, What
    from judgeq.runs import RunInfo, RunPlace

REACHED = ("host", "port", "url_prefix")
"""The settings that say where links lead."""
Names = Annotated[
    list[str],
    typer.Argument(metavar="NAME…", help="Names as `judgeq judges list` shows them."),
]


@judges_app.callback()
def judges(context: typer.Context) -> None:
    """Manage human judges and their links."""
    if context.invoked_subcommand is None:
        show_text(context.get_help().rstrip())


@command("add", judges_app)
@with_settings(*REACHED)
def add(
    run: NamedRun,
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Names of the new judges.")],
    quota: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=2**31 - 1,
            metavar="N",
            help="How many answers each of them gives at most.",
            show_default="as many as there are questions",
        ),
    ] = None,
    runs_dir: RunsDir = Path("runs"),
    store: StoreAddress = None,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Add judges to a run, and print a link for each.

    For a run of `judgeq run --judge people`, also while it is running. Whoever has a
    link judges under its name. It is shown only once: the run keeps a hash of it.

    For a new link, or to bring a judge back, remove the name and add it again.
    Links lead to the page if it is open, else to --host, --port and --url-prefix.

    Examples:

      judgeq judges add last Ann Bob --quota 60

      judgeq judges add last Eve --url-prefix https://lab.example.org/study1
    """
    from judgeq.web.links import Entrance

    values = {name: SETTINGS[name].default for name in REACHED} | given(flags)
    entrance = Entrance.at(values["host"], values["port"], values["url_prefix"])
    if not values["port"] and not entrance.site:
        raise UsageError("--port 0 is any free one: give the port that the page will have.")
    _changed(run, "add", names, runs_dir, store, as_json, entrance.link, quota)


@command("list", judges_app)
def list_judges(
    name: RunName = "last",
    csv: CsvFile = None,
    runs_dir: RunsDir = Path("runs"),
    store: StoreAddress = None,
    as_json: Json = False,
) -> None:
    """List a run's judges: their progress, how long they take, how they agree.

    For each judge: how often the text in each position came first, fit to the scale
    (infit), agreement with the other judges and with each model, and their answers to
    repeated questions and to those with a known answer.

    Warns of judges who answer too fast, or nearly always choose the same position.
    Also works while the run is running.
    """
    import asyncio

    from judgeq import runs
    from judgeq.evaluation import people
    from judgeq.ui.json import plain, rows, write_csv
    from judgeq.ui.show import people as show_people

    spare(csv, "--csv")
    place = runs.runs_in(runs_dir, store).find(name)
    _check_asks_people(place.info(), place.id)
    listed = asyncio.run(people.read(place))
    output = {"run": place.id, "judges": listed}
    if csv is not None:
        write_csv(csv, [*rows(plain(output), labels={"run": place.id})])
    if as_json:
        print_json(output)
    else:
        show(show_people.listed(place, listed))


@command("remove", judges_app)
def remove(
    run: NamedRun,
    names: Names,
    runs_dir: RunsDir = Path("runs"),
    store: StoreAddress = None,
    as_json: Json = False,
) -> None:
    """Stop asking judges of a run. Their answers stay, and count.

    The question that they have goes to others. `judgeq judges add` brings them back,
    with a new link.
    """
    _changed(run, "remove", names, runs_dir, store, as_json)


@command("forget", judges_app)
def forget(
    run: NamedRun,
    names: Names,
    runs_dir: RunsDir = Path("runs"),
    store: StoreAddress = None,
    as_json: Json = False,
) -> None:
    """Replace judges' names by numbers in a run, also in an imported one.

    Their links stop working; their answers stay, as those of "person 3". Reports and
    exports that were written before are not changed.
    """
    _changed(run, "forget", names, runs_dir, store, as_json)


def _changed(
    run: str,
    what: What,
    names: Sequence[str],
    runs_dir: Path,
    store: str | None,
    as_json: bool,
    link: Callable[[str], str] = str,
    quota: int | None = None,
) -> None:
    """Make a change, through the process that has the run if there is one, and print the outcome."""
    from judgeq import runs
    from judgeq.people.registry import Change
    from judgeq.ui.show import people as show_people
    from judgeq.web.guard import is_local

    change = Change(what, tuple(names), quota)
    place = runs.runs_in(runs_dir, store).find(run)
    changed, served = _made(place, change, link)
    if as_json:
        print_json({"run": place.id, "open": served, "judges": changed})
        return
    here = any(is_local(urlsplit(one.link or "").hostname or "") for one in changed)
    show(show_people.changed(place, change, changed, served, here=here))


def _made(
    place: RunPlace, change: Change, link: Callable[[str], str]
) -> tuple[tuple[Changed, ...], bool]:
    """Those who were changed, and whether the page is open."""
    import asyncio

    from judgeq.people import registry
    from judgeq.web import control

    info = place.info()
    if info.imported:
        with place.locked():
            return registry.forget_imported(place, change), False
    _check_asks_people(info, place.id)
    changed = control.change(place, change)
    if changed is not None:
        return changed, True
    with place.locked():
        return asyncio.run(registry.change(place, change, link)), False


def _check_asks_people(info: RunInfo, run: str) -> None:
    if info.imported:
        raise UsageError(f"run {run} was imported: `judgeq evaluate {run}` shows its judges.")
    if info.settings.people is None:
        raise UsageError(
            f"run {run} is judged by {info.judge}, not by people. To start one that is: judgeq run "
            "--judge people"
        )
