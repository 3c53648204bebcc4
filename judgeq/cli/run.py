"""The commands that judge: run, estimate, resume. What they need is imported when they run."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from judgeq.cli.options import ALL, DATASET, LOG, RESUMED, RUN, Values, command, of_settings, option
from judgeq.cli.printing import Answer, agreed, answer_of, complain, console, is_terminal
from judgeq.errors import (
    BudgetError,
    JudgeError,
    JudgeqError,
    NoVerdictsError,
    RunError,
    StoppedError,
    UsageError,
)
from judgeq.settings.declaration import MONEY, RUNNING

if TYPE_CHECKING:
    from judgeq.config import Settings
    from judgeq.datasets import Dataset
    from judgeq.engine.assembly import Run
    from judgeq.engine.estimate import Pilot
    from judgeq.engine.status import State
    from judgeq.run_places import RunPlace, Runs
    from judgeq.ui.dashboard import Face

ASKED = 0.5
"""Dollars. Above it, a run without a cap is begun on a terminal only after a yes."""
CONFIG = option(
    "--config", "A TOML file of settings, named as these options, which win.", Path,
    group=RUNNING,
)  # fmt: skip
YES = option("-y --yes", "Begin without asking, whatever it may cost.", group=MONEY)
DRY_RUN = option(
    "--dry-run", "Show calls, tokens and dollars, and stop before anything is sent.",
    group=MONEY, common=False,
)  # fmt: skip
PILOT = option(
    "--pilot",
    "Ask the run's first N questions, and estimate by them. The run doesn't ask them again.",
    int, least=1, group=MONEY,
)  # fmt: skip
ROUNDS = option(
    "total_rounds --rounds",
    "Rounds in all: more than the run has, to buy further ones. With a new --judge, its own.", int,
    least=1, group=RUNNING,
)  # fmt: skip


@command("run", DATASET, *of_settings(*ALL), DRY_RUN, YES, CONFIG, LOG)
def run(
    given: Values,
    config: Path | None,
    runs_dir: Path,
    new: bool,
    dry_run: bool,
    retry_failed: bool,
    yes: bool,
    quiet: bool,
    as_json: bool,
) -> Answer:
    """Judge texts from start to scores, or continue a run.

    The same command again continues the same run: interrupted, it resumes;
    finished, it shows its result and asks nothing. Ctrl-C once lets the calls
    in flight finish, twice stops now.

    Examples:

      judgeq run babe --strategy listwise10

      judgeq run my.csv --text-column body --feature "how urgent it is"

      judgeq run demo --judge gpt-5-mini --max-cost 1

      judgeq run demo --judge my-model --base-url http://127.0.0.1:8000/v1
    """
    prepared = prepare(given, config, runs_dir, new=new, sends=not dry_run)
    if dry_run:
        return estimated(prepared)
    return play(prepared, quiet, as_json, retry_failed, yes=yes)


def prepare(
    given: Mapping[str, Any], config: Path | None, runs_dir: Path, *, new: bool, sends: bool
) -> Run:
    """The run of these settings and those of a file, new or as far as it is. Waits for a store that
    can't be reached yet. `sends`: its questions are to be asked now."""
    from judgeq import config as configuration
    from judgeq import run_places
    from judgeq.engine import session

    settings = configuration.settle(given, config)
    if config is not None:
        _check_file(config, settings, given, sends=sends)
    there = run_places.runs_in(runs_dir, settings.store).patient(complain)
    return session.prepare(settings, runs_dir, new=new, there=there)


def _check_file(file: Path, settings: Settings, given: Mapping[str, Any], *, sends: bool) -> None:
    """Ask whether what a --config file says may be sent where it says; once.

    Raises StoppedError for a no, and UsageError where nobody can be asked.
    """
    from judgeq import trust

    request = trust.requested_by(file, settings, [*given], sends=sends)
    if request is None:
        return
    text = "\n".join([f"{file} decides what is sent where:", *request.lines])
    if not is_terminal():
        command = request.command("run" if sends else "estimate")
        raise UsageError(
            f"{text}\nNothing was sent. If you want that, run the command once on a terminal and say "
            f"yes, or give it as options: `{command}`"
        )
    complain(text)
    if not agreed("Send that?"):
        raise StoppedError("Nothing was sent.")
    trust.agree_to(request)


@command("estimate", DATASET, *of_settings(*ALL), PILOT, CONFIG, LOG)
def estimate(
    given: Values, config: Path | None, runs_dir: Path, new: bool, pilot: int | None
) -> Answer:
    """Show a run's calls, tokens and dollars before it begins.

    Takes the options of `judgeq run`, the cache and what is judged already into
    account. The same as `judgeq run --dry-run`.

    --pilot begins the run, within --max-cost; `judgeq run` with the same options
    (without --new) continues from there.

    Examples:

      judgeq estimate babe --strategy listwise10 --judge gpt-5-mini

      judgeq estimate babe --judge gpt-5-mini --pilot 20 --max-cost 0.5
    """
    prepared = prepare(given, config, runs_dir, new=new, sends=pilot is not None)
    return estimated(prepared, None if pilot is None else _pilot(prepared, pilot))


def _pilot(prepared: Run, questions: int) -> Pilot | None:
    from judgeq.engine.estimate import ask_first
    from judgeq.ui import dashboard

    face = dashboard.choose(console(stderr=True), quiet=False)
    restore_ctrl_c()
    try:
        with face:
            return ask_first(prepared, questions, face, beside=face.draw_forever)
    except StoppedError as error:
        raise _advised(error, prepared.folder) from error


def estimated(prepared: Run, pilot: Pilot | None = None) -> Answer:
    """What a run would take."""
    import asyncio

    from judgeq.engine import estimate
    from judgeq.ui.show import run as show_run

    found = asyncio.run(estimate.estimate(prepared, pilot))
    return Answer(found, show_run.estimate, None if pilot is None else pilot.error)


@command("resume", RUN, *of_settings(*RESUMED, of_run=True), YES, ROUNDS, LOG)
def resume(
    run: str,
    there: Runs,
    given: Values,
    total_rounds: int | None,
    retry_failed: bool,
    yes: bool,
    quiet: bool,
    as_json: bool,
) -> Answer:
    """Continue a run that was stopped or killed.

    What was answered is never asked again. Settings that aren't given stay the run's.

    Of a finished run, --judge names a model that is added to its judges, and answers
    --rounds more.

    Of a run that you didn't begin, what names a file, a key or an address, or
    decides what you pay, has to be given again: it lists the options.
    """
    from judgeq.engine import session

    prepared = session.resume(
        there.patient(complain).find(run), given | {"total_rounds": total_rounds}
    )
    return play(prepared, quiet, as_json, retry_failed, yes=yes)


def play(
    prepared: Run,
    quiet: bool,
    as_json: bool,
    retry_failed: bool,
    *,
    yes: bool = False,
    browser: bool = False,
) -> Answer:
    """Go on with a run until it is finished or stopped; its result."""
    from judgeq.engine import session
    from judgeq.ui import dashboard

    face = dashboard.choose(console(stderr=True), quiet=quiet)
    _forecast(prepared, face, retry_failed, yes)
    folder, page = prepared.folder, None
    if prepared.settings.people is not None:
        from judgeq.web import annotate  # brings aiohttp

        page = annotate.page(prepared, face, click.launch if browser else None)
    restore_ctrl_c()
    try:
        with face:
            result = session.execute(
                prepared, face, beside=face.draw_forever, page=page, retry_failed=retry_failed
            )
    except JudgeqError as error:
        ended = _advised(error, folder)
        if isinstance(error, BudgetError):
            return _partial(prepared, ended)
        return Answer(_state(folder) if as_json else {}, error=ended)
    return answer_of(result, _lost(result.counts.failed, result.run))


def _forecast(prepared: Run, face: Face, retry_failed: bool, yes: bool) -> None:
    """Show what is left to pay for. On a terminal the user is asked where no cap is set, and it may cost
    more than ASKED. Raises StoppedError for a no."""
    from judgeq.engine import estimate
    from judgeq.text import log_lines
    from judgeq.ui.progress import notice_text
    from judgeq.ui.show import run as show_run

    left = estimate.forecast(prepared, retry_failed=retry_failed)
    if left is None:
        return
    dear = left.cost is not None and left.cost.high > ASKED and prepared.settings.max_cost is None
    asks = dear and not yes and is_terminal()
    for notice in show_run.forecast(left):
        if asks:
            click.echo(log_lines(notice_text(notice), console(stderr=True).width), err=True)
        else:
            face(notice)
    if asks and not agreed("Begin?"):
        raise StoppedError("Nothing was sent. --max-cost DOLLARS sets a cap.")


def restore_ctrl_c() -> None:
    """All is loaded, and the terminal is about to be drawn on: from here on it has to be restored."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _advised(error: JudgeqError, run: RunPlace) -> JudgeqError:
    """The error that ended a session, with what to do next."""
    saved = "All answers so far are saved."
    again = f"run the same command, or `{run.command('resume')}`."
    match error:
        case StoppedError():
            return StoppedError(f"{error}. {saved} To continue, {again}")
        case BudgetError():
            command = run.command("resume", *error.flags.split())
            return BudgetError(f"{error} To continue: `{command}`", flags=error.flags)
        case JudgeError():
            return type(error)(f"{error} {saved} Fix this, then {again}")
    return error


def _partial(prepared: Run, ended: JudgeqError) -> Answer:
    """The ratings of what there is, if there is any verdict; else how far the run is."""
    import asyncio

    from judgeq.engine.status import state
    from judgeq.ui.show import status as show_status

    try:
        return written(prepared.folder, prepared.settings, prepared.dataset, ended)
    except NoVerdictsError:
        found = asyncio.run(state(prepared.folder, checked=True))
        if isinstance(ended, BudgetError):
            found = replace(found, flags=ended.flags)
        return Answer(found, show_status.status, ended)


def written(
    place: RunPlace,
    settings: Settings,
    dataset: Dataset | None = None,
    ended: JudgeqError | None = None,
) -> Answer:
    """Rate a run by what was answered, and write its scores; its result, with what ended it. Its
    dataset is looked for if none is given."""
    import asyncio

    from judgeq.engine import results, session
    from judgeq.engine.datasets import dataset_of
    from judgeq.engine.scores import write_scores

    found = dataset or dataset_of(place)
    warn_of_merged(place.info().settings, found)
    result = session.with_texts(asyncio.run(results.read(place, settings)), settings, found)
    write_scores(result.scores, place.scores)
    if not result.partial and not result.info.imported and not place.is_running():
        session.record_scored(place, result)
    return answer_of(result, ended)


def warn_of_merged(settings: Settings, dataset: Dataset | None) -> None:
    """Warn where rows that were merged get no score, since their table isn't there."""
    if settings.merge_duplicates and dataset is None:
        complain(
            f"{settings.dataset} isn't there as it was: texts that were merged (--merge-duplicates) "
            "have one row."
        )


def _lost(failed: int, run: RunPlace) -> JudgeError | None:
    """That jobs failed; None if none did."""
    if not failed:
        return None
    from judgeq.text import several

    return JudgeError(
        f"{several(failed, 'job')} failed, and left out of the scores: "
        f"`{run.command('resume', '--retry-failed')}` asks again."
    )


def _state(folder: RunPlace) -> State | Values:
    """How far a run is; empty where that can't be read, or nothing was begun."""
    import asyncio

    from judgeq.engine.status import state

    try:
        return asyncio.run(state(folder, checked=True))
    except RunError:
        return {}
