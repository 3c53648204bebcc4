"""Settings that can't go together, or with a run that was begun: refused before anything is written.
And the rounds that a run may have beyond those that it was begun with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from judgeq import config, judge, trust
from judgeq.config import Settings
from judgeq.engine import status
from judgeq.engine.assembly import Run
from judgeq.engine.interrupts import awaited
from judgeq.errors import RunError, UsageError
from judgeq.run_places import RunInfo, RunPlace, Runs, name_of
from judgeq.run_places.info import MODELS, Ended
from judgeq.settings.run import REHEARSAL, SETTINGS, Asking
from judgeq.strategies import Strategy

MORE = 3
"""Times the rounds that a run was begun with: so many more at most are what `--until` may take."""


def check_workers(settings: Settings) -> None:
    """Raise UsageError where nobody could work on the run."""
    if settings.workers == 0 and settings.store is None:
        raise UsageError("--workers 0 goes with --store: nobody else can work on a run's folder.")
    if settings.workers == 0 and settings.batch:
        raise UsageError(
            "--workers 0 doesn't go with --batch: batches are sent by the run's process."
        )
    if settings.standby and settings.store is None:
        raise UsageError("--standby goes with --store: one process works on a run's folder.")
    if settings.share_texts and settings.store is None:
        raise UsageError("--share-texts goes with --store: a run folder never holds texts.")


def check_strategy(settings: Settings, strategy: Strategy, n: int) -> None:
    """Raise UsageError for n items that the strategy can't judge, for a goal that it can't have, and for
    rounds that wait for answers where people give them: these are asked all rounds at once."""
    strategy.check(n)
    if settings.both_orders and not strategy.pairs:
        raise UsageError(f"--both-orders goes with pairs, not with --strategy {strategy.name}.")
    goal = settings.goal
    if settings.people is not None and (goal or strategy.adaptive):
        random = "--matchmaking random" if not strategy.prunes else "--strategy pairwise"
        what, instead = f"--strategy {strategy.name} needs ratings between rounds", f"Give {random}"
        if goal:
            what, instead = f"--until {goal.name} needs ratings between rounds", "Leave it out"
        raise UsageError(f"{what}, and --judge people is asked all rounds at once. {instead}.")
    if goal and strategy.kind == "direct":
        raise UsageError("--until goes with strategies that compare, not with --strategy direct.")
    if goal.top is not None and goal.top >= n:
        raise UsageError(f"--until top{goal.top}: there are only {n:,} items.")


def check_name(name: str | None, folder: RunPlace, there: Runs) -> None:
    """Raise UsageError for a name that another run has, or whose id it is."""
    for other in there.all() if name else ():
        if other.id != folder.id and name in (other.id, name_of(other)):
            raise UsageError(f"--name {name}: run {other.id} has that name. Choose another.")


def check_judge(run: str, settings: Settings, info: RunInfo) -> None:
    """Raise RunError where another judge is to continue a rehearsal."""
    if info.settings.rehearsal and not settings.rehearsal:
        _, begin = info.real_run(settings.models or MODELS)
        raise RunError(
            f"run {run} is a rehearsal, and its answers are made up: no other judge can continue it. "
            f"To begin a real run: `{begin}`"
        )


def check_unchanged(run: str, facts: Mapping[str, Any], info: RunInfo, source: str) -> None:
    """Raise RunError where what decides a run's result isn't what it was when the run was begun.
    `source` is what its dataset is called."""
    changed = [name for name in facts if facts[name] != info.facts.get(name)]
    if not changed and config.fingerprint(facts) == info.fingerprint:
        return
    raise RunError(
        f"run {run} can't continue: its {' and '.join(changed) or 'configuration'} changed since it "
        f"began (dataset: {source}). Restore what it was, or start another run with `judgeq run`."
    )


def check_panel(settings: Settings) -> None:
    """Raise UsageError for judges that can't be meant, or can't be asked together."""
    models = settings.models
    asked = [name for name in settings.judge if not (models and judge.kind_of(name).is_person)]
    for name in asked:
        judge.check(name, settings)
    if len(settings.judge) - len(asked) > 1 or settings.judge.count("people") > 1:
        raise UsageError("--judge people is given twice. --each N asks N of them each question.")
    if settings.rehearsal and {*settings.judge} != {REHEARSAL}:
        raise UsageError(
            f"--judge {REHEARSAL}: its answers are made up, and don't mix with those of other judges. "
            "Leave it out, or give it alone."
        )
    _check_people(settings)
    for name in {name for name in models if models.count(name) > 1}:
        raise UsageError(
            f"--judge {name} is given twice: it would be asked the same. Ask one model several "
            "times by --persona."
        )
    if models and len(models) < len(asked):
        raise UsageError("--judge: models and judges that are none can't be asked together.")
    if settings.reasons and not all(judge.kind_of(name).gives_reasons for name in settings.judge):
        raise UsageError(
            "--reasons: only a model gives some; people may write notes. Leave the flag out."
        )
    for name in {name for name in settings.persona if settings.persona.count(name) > 1}:
        raise UsageError(f"--persona {name} is given twice.")
    if settings.batch and not models:
        raise UsageError("--batch goes with a model, which --judge names.")
    if settings.persona and not models:
        raise UsageError("--persona goes with a model, which --judge names.")


def _check_people(settings: Settings) -> None:
    """Raise UsageError for settings of people that can't be."""
    if settings.people is None:
        given = [
            name
            for name in Asking.model_fields
            if getattr(settings, name) != Asking.model_fields[name].default
        ]
        if given:
            flags = ", ".join(SETTINGS[name].flag for name in given)
            raise UsageError(f"{flags}: for people, whom --judge people asks.")
        return
    if settings.batch:
        raise UsageError("--batch doesn't go with --judge people, who answer when they like.")
    if settings.workers == 0:
        raise UsageError("--workers 0 doesn't go with --judge people: the run's process asks them.")
    if settings.each > 1 and len(settings.panelists) > 1 and settings.ensemble != "each":
        raise UsageError("--each with several judges goes with --ensemble each.")


# Further rounds


def check_rounds(run: str, settings: Settings, info: RunInfo) -> None:
    """Raise UsageError where a run wouldn't get the rounds that it is to have in all."""
    rounds = settings.total_rounds or 0
    if rounds < info.rounds:
        raise UsageError(
            f"--rounds {rounds}: run {run} has {info.rounds} rounds already. Give {info.rounds + 1} or "
            "more."
        )
    if info.ended is not None and info.ended.goal == settings.goal.name:
        raise UsageError(
            f"run {run} ended after round {info.ended.round} by --until {info.ended.goal}. Give a "
            "higher --until to continue."
        )


def until_reached(settings: Settings, folder: RunPlace, info: RunInfo) -> Settings:
    """The settings with further rounds for a finished run that hasn't ended by its goal of now."""
    state = awaited(lambda: status.state(folder))
    rounds = len(state.rounds)
    if state.word != "finished" or state.over or info.ended_after(rounds, settings.goal):
        return settings
    total = rounds + MORE * settings.strategy_at_start().rounds
    return settings.model_copy(update={"total_rounds": total})


def again(settings: Settings, info: RunInfo) -> Settings:
    """The settings with the rounds that the same command's run was given since, and the goal that these
    were given for."""
    total, until = info.settings.total_rounds, info.settings.until
    goal = settings.until or (None if total is None else until)
    return settings.model_copy(update={"total_rounds": total, "until": goal})


def ended(run: Run, info: RunInfo, end: Ended) -> RunInfo:
    """What is kept of a run that ended by its goal: no later session has more rounds, unless they are
    asked for."""
    info = info.model_copy(update={"ended": end})
    if run.settings.total_rounds is None:
        return info
    begun = run.settings.strategy_at_start().rounds
    total = {"total_rounds": end.round if end.round > begun else None}
    own, kept = (one.model_copy(update=total) for one in (run.settings, info.settings))
    trust.remember(run.folder, info.fingerprint, own, run.held)
    return info.model_copy(update={"rounds": max(end.round, begun), "settings": kept})
