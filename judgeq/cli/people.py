"""The commands for people as judges: the page on which they judge, and who they are. What they need is
imported when they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from judgeq.cli.options import (
    CSV,
    LOG,
    NAMED_RUN,
    RESUMED,
    Values,
    argument,
    command,
    of_settings,
    option,
)
from judgeq.cli.printing import Answer
from judgeq.cli.run import play
from judgeq.errors import UsageError
from judgeq.settings.run import SETTINGS

if TYPE_CHECKING:
    from judgeq.people.registry import Change, Changed, What
    from judgeq.run_places import RunPlace

REACHED = ("host", "port", "url_prefix")
"""The settings that say where links lead."""
NAMES = argument("names", "NAME…", "Their names.", nargs=-1, required=True)


@command("annotate", *of_settings(*RESUMED, of_run=True), LOG)
def annotate(
    place: RunPlace,
    given: Values,
    open: bool,  # noqa: A002 - as its option
    retry_failed: bool,
    quiet: bool,
    as_json: bool,
) -> Answer:
    """Open the page on which people judge a run.

    It stays open until all is judged, or Ctrl-C closes it; all answers are saved. For
    a run of `judgeq run --judge people`; the same as `judgeq resume`.

    Everybody needs a link, which `judgeq annotate add` prints; with --open-to-all
    anybody who reaches the page may judge.

    With another --host the connection isn't encrypted: use a reverse proxy
    (--url-prefix).

    Examples:

      judgeq annotate last

      judgeq annotate last --open-to-all --host 0.0.0.0

      judgeq annotate last --url-prefix https://lab.example.org/study1
    """
    from judgeq.engine import session

    _check_asks_people(place)
    return play(session.resume(place, given), quiet, as_json, retry_failed, browser=open)


@command(
    "annotate add", NAMED_RUN, NAMES, *of_settings(*REACHED),
    option(
        "--quota", "How many answers each of them gives at most.", int,
        least=1, most=2**31 - 1, shown="as many as there are questions",
    ),
)  # fmt: skip
def add(place: RunPlace, names: tuple[str, ...], quota: int | None, given: Values) -> Answer:
    """Add people to a run, and print a link for each.

    For a run of `judgeq run --judge people`, also while it is running. Whoever has a
    link judges under its name. It is shown only once: the run keeps a hash of it.

    For a new link, or to bring somebody back, remove the name and add it again.
    Links lead to the page if it is open, else to --host, --port and --url-prefix.

    Examples:

      judgeq annotate add last Ann Bob --quota 60

      judgeq annotate add last Eve --url-prefix https://lab.example.org/study1
    """
    from judgeq.web.guard import Entrance

    values = {name: SETTINGS[name].default for name in REACHED} | given
    entrance = Entrance.at(values["host"], values["port"], values["url_prefix"])
    if not values["port"] and not entrance.site:
        raise UsageError("--port 0 is any free one: give the port that the page will have.")
    return _changed(place, "add", names, entrance.link, quota)


@command("annotate list", CSV)
def list_people(place: RunPlace) -> Answer:
    """List a run's people: their progress and agreement.

    For each judge: how often the text in each position came first, agreement with the
    other judges, and their answers to repeated questions and to those with a known
    answer.

    Warns of judges who answer too fast, or nearly always choose the same position.
    Also works while the run is running.
    """
    import asyncio

    from judgeq.evaluation import people
    from judgeq.ui.show import people as show_people

    _check_asks_people(place)
    listed = asyncio.run(people.read(place))
    return Answer({"run": place.id, "judges": listed}, lambda _: show_people.listed(place, listed))


@command("annotate remove", NAMED_RUN, NAMES)
def remove(place: RunPlace, names: tuple[str, ...]) -> Answer:
    """Stop asking people of a run; their answers count.

    The question that they have goes to others. `judgeq annotate add` brings them
    back, with a new link.
    """
    return _changed(place, "remove", names)


@command("annotate forget", NAMED_RUN, NAMES)
def forget(place: RunPlace, names: tuple[str, ...]) -> Answer:
    """Replace people's names by numbers in a run.

    Also in an imported one. Their links stop working; their answers stay, as those of
    "person 3". Reports and exports that were written before are not changed.
    """
    return _changed(place, "forget", names)


def _changed(
    place: RunPlace,
    what: What,
    names: tuple[str, ...],
    link: Callable[[str], str] = str,
    quota: int | None = None,
) -> Answer:
    """Make a change, through the process that has the run if there is one; its outcome."""
    from judgeq.people.registry import Change
    from judgeq.ui.show import people as show_people
    from judgeq.web.guard import is_local

    change = Change(what, names, quota)
    changed, served = _made(place, change, link)
    here = any(is_local(urlsplit(one.link or "").hostname or "") for one in changed)
    return Answer(
        {"run": place.id, "open": served, "judges": changed},
        lambda found: show_people.changed(place, change, changed, served, here=here),
    )


def _made(
    place: RunPlace, change: Change, link: Callable[[str], str]
) -> tuple[tuple[Changed, ...], bool]:
    """Those who were changed, and whether the page is open."""
    import asyncio

    from judgeq.people import registry
    from judgeq.web import control

    _check_asks_people(place)
    changed = control.change(place, change)
    if changed is not None:
        return changed, True
    with place.locked():
        return asyncio.run(registry.change(place, change, link)), False


def _check_asks_people(place: RunPlace) -> None:
    info = place.info()
    if info.imported:
        raise UsageError(
            f"run {place.id} was imported: `{place.command('evaluate')}` shows its judges."
        )
    if info.settings.people is None:
        raise UsageError(
            f"run {place.id} is judged by {info.judge}, not by people. To start one that is: judgeq "
            "run --judge people"
        )
