"""The commands that judge: run, estimate, resume. What they need is imported when they run."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from judgeq.cli.app import command
from judgeq.cli.options import (
    ALL,
    RESUMED,
    ConfigFile,
    DryRun,
    Json,
    LogFile,
    Quiet,
    RetryFailed,
    RunName,
    RunsDir,
    StartAfresh,
    Yes,
    given,
    with_settings,
)
from judgeq.cli.printing import (
    agreed,
    console,
    fail,
    is_terminal,
    print_json,
    show,
    show_result,
    write_log,
)
from judgeq.errors import (
    BudgetError,
    JudgeError,
    JudgeqError,
    NoVerdictsError,
    RunError,
    StoppedError,
)
from judgeq.settings.declaration import RUNNING

ASKED = 0.5
"""Dollars. Above it, a run without a cap is begun on a terminal only after a yes."""

if TYPE_CHECKING:
    from judgeq.engine.assembly import Run
    from judgeq.engine.pilot import Pilot
    from judgeq.engine.status import State
    from judgeq.runs import RunPlace
    from judgeq.ui.lines import Face


@command("run")
@with_settings(*ALL)
def run(
    retry_failed: RetryFailed = False,
    new: StartAfresh = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    config: ConfigFile = None,
    runs_dir: RunsDir = Path("runs"),
    quiet: Quiet = False,
    log: LogFile = None,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Judge a dataset from start to scores, or continue a run.

    The same command again continues the same run: interrupted, it resumes;
    finished, it shows its result and asks nothing. Ctrl-C once lets the calls
    in flight finish, twice stops now.

    Examples:

      judgeq run --dataset babe --strategy listwise10

      judgeq run -d my.csv --text-column body --gold-column label

      judgeq run -d demo --judge gpt-5-mini --max-cost 1

      judgeq run -d demo --judge my-model --base-url http://127.0.0.1:8000/v1
    """
    write_log(log)
    prepared = _prepared(flags, config, runs_dir, new=new)
    if dry_run:
        _estimate(prepared, as_json)
    else:
        play(prepared, quiet, as_json, retry_failed, yes=yes)


def _prepared(flags: Mapping[str, Any], config: Path | None, runs_dir: Path, *, new: bool) -> Run:
    values = given(flags)
    from judgeq import config as configuration
    from judgeq.engine import session

    return session.prepare(configuration.settle(values, config), runs_dir, new=new)


@command("estimate")
@with_settings(*ALL)
def estimate(
    new: StartAfresh = False,
    config: ConfigFile = None,
    runs_dir: RunsDir = Path("runs"),
    pilot: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Ask the run's first N questions, and estimate by them. The run doesn't ask them "
            "again.",
            rich_help_panel=RUNNING,
        ),
    ] = None,
    log: LogFile = None,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Show what a run would take: calls, tokens and dollars, before anything is sent.

    Takes the flags of `judgeq run`, the cache and what is judged already into
    account. The same as `judgeq run --dry-run`.

    --pilot begins the run, within --max-cost; `judgeq run` with the same flags
    (without --new) continues from there.

    Examples:

      judgeq estimate --dataset babe --strategy listwise10 --judge gpt-5-mini

      judgeq estimate -d babe --judge gpt-5-mini --pilot 20 --max-cost 0.5
    """
    write_log(log)
    prepared = _prepared(flags, config, runs_dir, new=new)
    asked = None if pilot is None else _pilot(prepared, pilot, new)
    _estimate(prepared, as_json, asked)


def _pilot(prepared: Run, questions: int, new: bool) -> Pilot | None:
    from judgeq.engine import pilot
    from judgeq.ui import dashboard

    face = dashboard.choose(console(stderr=True), quiet=False)
    restore_ctrl_c()
    with face:
        return pilot.ask(prepared, questions, face, new=new, beside=face.draw_forever)


def _estimate(prepared: Run, as_json: bool, pilot: Pilot | None = None) -> None:
    import asyncio

    from judgeq.engine import estimate
    from judgeq.ui.show import run as show_run

    estimated = asyncio.run(estimate.estimate(prepared, pilot))
    error = None if pilot is None else pilot.error
    if as_json:
        print_json(estimated, error)
    else:
        show(show_run.estimate(estimated))
    if error is not None:
        fail(error)


@command("resume")
@with_settings(*RESUMED)
def resume(
    name: RunName = "last",
    total_rounds: Annotated[
        int | None,
        typer.Option(
            "--rounds",
            min=1,
            metavar="N",
            help="Rounds in all: more than the run has, to buy further ones.",
            rich_help_panel=RUNNING,
        ),
    ] = None,
    retry_failed: RetryFailed = False,
    yes: Yes = False,
    runs_dir: RunsDir = Path("runs"),
    quiet: Quiet = False,
    log: LogFile = None,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Continue a run that was stopped or killed.

    What was answered is never asked again. Of a run that you didn't begin, what
    names a file, a key or an address, or decides what you pay, has to be given
    again: it lists the flags.
    """
    changes = given(flags) | {"total_rounds": total_rounds}
    write_log(log)
    play(taken_up(name, runs_dir, flags["store"], changes), quiet, as_json, retry_failed, yes=yes)


def taken_up(name: str, runs_dir: Path, store: str | None, changes: Mapping[str, Any]) -> Run:
    """A run that there is, with the settings that were given now."""
    from judgeq import runs
    from judgeq.engine import session

    return session.resume(runs.runs_in(runs_dir, store).find(name), changes)


def play(
    prepared: Run,
    quiet: bool,
    as_json: bool,
    retry_failed: bool,
    *,
    yes: bool = False,
    browser: bool = False,
) -> None:
    """Go on with a run until it is finished or stopped, and show its result."""
    from judgeq.engine import session
    from judgeq.ui import dashboard

    shown, settings = console(stderr=True), prepared.settings
    face = dashboard.choose(shown, quiet=quiet)
    _forecast(prepared, face, retry_failed, yes)
    folder, page = prepared.folder, None
    if settings.people is not None:
        from judgeq.web import annotate  # brings aiohttp

        page = annotate.page(prepared, face, _launched if browser else None)
    restore_ctrl_c()
    try:
        with face:
            result = session.execute(
                prepared, face, beside=face.draw_forever, page=page, retry_failed=retry_failed
            )
    except JudgeqError as error:
        ended = _advised(error, folder.argument)
        if isinstance(error, BudgetError):
            _show_partial(prepared, quiet, as_json, ended)
        elif as_json:
            print_json(_state(folder), ended)
        fail(ended)
    lost = _lost(result.counts.failed, result.run.argument)
    show_result(result, quiet, as_json, lost)
    if lost is not None:
        fail(lost)


def _forecast(prepared: Run, face: Face, retry_failed: bool, yes: bool) -> None:
    """Show what is left to pay for. On a terminal the user is asked where no cap is set, and it may cost
    more than ASKED. Raises StoppedError for a no."""
    from judgeq.engine import estimate
    from judgeq.ui.lines import notice_text
    from judgeq.ui.show import run as show_run

    left = estimate.forecast(prepared, retry_failed=retry_failed)
    if left is None:
        return
    notices = show_run.forecast(left)
    dear = left.cost is not None and left.cost.high > ASKED and prepared.settings.max_cost is None
    if yes or not dear or not is_terminal():
        for notice in notices:
            face(notice)
        return
    for notice in notices:
        typer.echo(notice_text(notice), err=True)
    if not agreed("Begin?"):
        raise StoppedError("Nothing was sent. --max-cost DOLLARS sets a cap.")


def _launched(address: str) -> None:
    typer.launch(address)


def restore_ctrl_c() -> None:
    """All is loaded, and the terminal is about to be drawn on: from here on it has to be restored."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _advised(error: JudgeqError, run: str) -> JudgeqError:
    """The error that ended a session, with what to do next."""
    saved, again = (
        "All answers so far are saved.",
        f"run the same command, or `judgeq resume {run}`.",
    )
    match error:
        case StoppedError():
            return StoppedError(f"{error}. {saved} To continue, {again}")
        case BudgetError():
            return BudgetError(f"{error} To continue: `judgeq resume {run} --max-cost …`")
        case JudgeError():
            return type(error)(f"{error} {saved} Fix this, then {again}")
    return error


def _show_partial(prepared: Run, quiet: bool, as_json: bool, ended: JudgeqError) -> None:
    """The ratings of what there is, if there is any verdict; else how far the run is."""
    import asyncio

    from judgeq.engine import results, session
    from judgeq.engine.scores import write_scores
    from judgeq.engine.status import state
    from judgeq.ui.show import status as show_status

    folder, settings = prepared.folder, prepared.settings
    try:
        result = asyncio.run(results.read(folder, settings))
    except NoVerdictsError:
        if as_json:
            print_json(_state(folder), ended)
        elif not quiet:
            show(*show_status.status(asyncio.run(state(folder))))
    else:
        result = session.with_texts(result, settings, prepared.dataset)
        write_scores(result.scores, folder.scores)
        show_result(result, quiet, as_json, ended)


def _lost(failed: int, run: str) -> JudgeError | None:
    """That jobs failed; None if none did."""
    if not failed:
        return None
    from judgeq.text import several

    are, them = ("is", "it") if failed == 1 else ("are", "them")
    return JudgeError(
        f"{several(failed, 'job')} failed and {are} left out of the scores: "
        f"`judgeq resume {run} --retry-failed` asks {them} again."
    )


def _state(folder: RunPlace) -> State | dict[str, Any]:
    """How far a run is; empty where that can't be read, or nothing was begun."""
    import asyncio

    from judgeq.engine.status import state

    try:
        return asyncio.run(state(folder))
    except RunError:
        return {}
