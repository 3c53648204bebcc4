"""Rounds beyond those that a run was begun with: how many it may have, and what is kept of that."""

from __future__ import annotations

from judgeq import trust
from judgeq.config import Settings
from judgeq.engine import status
from judgeq.engine.assembly import Run
from judgeq.engine.stopping import awaited
from judgeq.errors import UsageError
from judgeq.run_places import RunInfo, RunPlace
from judgeq.run_places.info import Ended

MORE = 3
"""Times the rounds that a run was begun with: so many more at most are what `--until` may take."""


def check(run: str, settings: Settings, info: RunInfo) -> None:
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
