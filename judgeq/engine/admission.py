"""What may begin, or go on: settings that go together, a run that is still what it was begun as, and the
runs of a store that a worker may work on.

Whoever can write to a store decides what is asked, but of judges and about texts that the worker's user
named, at servers and with keys that are the worker's own. Nothing in the database names a file that is
opened, an address that is called, a variable that is read, or what may be spent (`admit`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from judgeq import config, judge, prompts, trust
from judgeq.config import SESSION, Settings
from judgeq.datasets import Dataset, corpora
from judgeq.datasets.synthetic import NAMES
from judgeq.datasets.tables import format_of
from judgeq.engine import assembly, status
from judgeq.engine.assembly import Run
from judgeq.engine.datasets import load, runs_onto
from judgeq.engine.interrupts import awaited
from judgeq.errors import DataError, JudgeqError, RunError, UsageError
from judgeq.escaping import quoted
from judgeq.prompts import PromptSet
from judgeq.run_places import RunInfo, RunPlace, Runs, name_of
from judgeq.run_places.info import MODELS
from judgeq.settings.run import REHEARSAL, SETTINGS, Asking
from judgeq.strategies import Strategy

MORE = 3
"""Times the rounds that a run was begun with: so many more at most are what `--until` may take."""
OWN = (*trust.ADDRESSES, "api", "extra_body", "data_dir")
"""Settings that decide a run's result, and yet are never taken from the database: they name a server,
what else it is sent, and a folder."""


def refuse(problems: Mapping[str, object]) -> None:
    """Raise UsageError for the first of these problems that there is."""
    for problem, there in problems.items():
        if there:
            raise UsageError(f"{problem}.")


def check_workers(settings: Settings) -> None:
    """Raise UsageError where nobody could work on the run, or only its own process could."""
    alone = settings.store is None or settings.batch or settings.people is not None
    refuse(
        {
            "--workers 0 leaves all questions to `judgeq worker`: it goes with --store, and not with "
            "--batch or --judge people": settings.workers == 0 and alone,
            "--standby goes with --store": settings.standby and settings.store is None,
        }
    )


def check_strategy(settings: Settings, strategy: Strategy, sizes: Sequence[int]) -> None:
    """Raise UsageError for groups of items that the strategy can't judge, for a goal that it can't have,
    and for rounds that wait for answers where people give them: these are asked all rounds at once."""
    strategy.check(*sizes)
    goal, named, n = settings.goal, f"--strategy {strategy.name}", sum(sizes)
    rated = f"--until {goal.name}" if goal else named
    refuse(
        {
            f"--both-orders goes with pairs, not with {named}": settings.both_orders
            and not strategy.pairs,
            f"{rated} needs ratings between rounds, and --judge people is asked all rounds at once. "
            "Give --strategy pairwise or --matchmaking random, without --until": (
                settings.people is not None and (goal or strategy.adaptive)
            ),
            f"--until goes with strategies that compare, not with {named}": goal
            and strategy.kind == "direct",
            f"--until top{goal.top} goes with one ranking, and each group has its own. Give a "
            "reliability, as --until 0.9": goal.top is not None and len(sizes) > 1,
            f"--until top{goal.top}: there are only {n:,} items": (goal.top or 0) >= n,
        }
    )


def check_name(name: str | None, folder: RunPlace, there: Runs) -> None:
    """Raise UsageError for a name that another run has, or whose id it is."""
    for other in there.all() if name else ():
        if other.id != folder.id and name in (other.id, name_of(other)):
            raise UsageError(f"--name {name}: run {other.id} has that name. Choose another.")


def with_judge(folder: RunPlace, info: RunInfo, changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The changes, by which a judge that they name is added to a finished run, for the rounds that they
    give. Raises UsageError for one that can't be, RunError for one that is to continue a rehearsal, and
    as `trust.own_settings`."""
    named, kept = tuple(changes.get("judge") or ()), info.settings
    if named in ((), kept.judge):
        return changes
    if kept.rehearsal:
        _, begin = info.real_run([one for one in named if judge.kind_of(one).costs_money] or MODELS)
        raise RunError(
            f"run {folder.id} is a rehearsal, and its answers are made up: no other judge can continue "
            f"it. To begin a real run: `{begin}`"
        )
    begun = len(kept.judge)
    whole, state = named[:begun] == kept.judge, awaited(status.state(folder))
    new = named[begun:] if whole else named
    if not whole:  # then the others are taken from the run's record
        trust.own_settings(folder, info, {**changes, "judge": None, "total_rounds": None})
    rounds, run = changes.get("total_rounds") or 0, f"run {folder.id}"
    is_last = bool(kept.joined) and new == kept.judge[-1:]
    unfinished = is_last and state.word != "finished"
    ended_early = is_last and info.ended_after(len(state.rounds)) is not None
    if unfinished or ended_early or 0 < rounds <= _rounds_of_joined(info, new):
        return {**changes, "judge": kept.judge, "total_rounds": None}  # the same command, again
    of_models = all(judge.kind_of(name).costs_money for name in (*kept.judge, *new))
    if not of_models and not rounds:
        return changes  # another judge in place of the run's: refused as what decides its result
    problems = {
        f"{run} has that judge already. Without --judge, --rounds {info.rounds + 1} gives the one that "
        "came last a further round": {*new} & {*kept.judge},
        "only a model can be added, and to a run that models judged": not of_models,
        "add one judge, and then another": len(new) > 1,
        f"{run} is placed onto another one, and keeps its judges": kept.onto,
        f"{run} is {state.word}. A judge is added to one that is finished: "
        f"`{folder.command('resume')}` continues it": state.word != "finished",
        "--rounds N says how many rounds this judge is to answer": not rounds,
    }
    refuse({f"--judge {', '.join(new)}: {problem}": there for problem, there in problems.items()})
    planned = len(state.rounds)
    joined = (*kept.joined, planned + 1)
    return {
        **changes,
        "judge": (*kept.judge, *new),
        "joined": joined,
        "total_rounds": planned + rounds,
    }


def _rounds_of_joined(info: RunInfo, new: Sequence[str]) -> int:
    """Return how many rounds a judge that was added to a run has; 0 for one that wasn't, or several."""
    kept = info.settings
    joined = kept.judge[len(kept.judge) - len(kept.joined) :]
    if len(new) != 1 or new[0] not in joined:
        return 0
    at = joined.index(new[0])
    firsts = (*kept.joined, info.rounds + 1)
    return firsts[at + 1] - firsts[at]


def check_panel(settings: Settings) -> None:
    """Raise UsageError for judges that can't be meant, or can't be asked together."""
    models, people = settings.models, settings.people
    asked = [name for name in settings.judge if not (models and judge.kind_of(name).is_person)]
    for name in asked:
        judge.check(name, settings)
    given = [
        name
        for name in Asking.model_fields
        if getattr(settings, name) != Asking.model_fields[name].default
    ]
    repeated = [name for name in settings.persona if settings.persona.count(name) > 1]
    twice = [name for name in (*models, "people") if settings.judge.count(name) > 1]
    need_model = [name for name in ("batch", "persona") if getattr(settings, name) and not models]
    reasons = all(judge.kind_of(name).gives_reasons for name in settings.judge)
    several = settings.each > 1 and len(settings.panelists) > 1 and settings.ensemble != "each"
    problems = {
        f"--judge {twice and twice[0]} is given twice. One model is asked several times by --persona, "
        "several people by --each": twice or len(settings.judge) - len(asked) > 1,
        f"--judge {REHEARSAL}: its answers are made up, and don't mix with those of other judges. Give "
        "it alone": settings.rehearsal and {*settings.judge} != {REHEARSAL},
        f"{_flags(given)}: for people, whom --judge people asks": people is None and given,
        "--batch doesn't go with --judge people": people is not None and settings.batch,
        "--each with several judges goes with --ensemble each": several,
        "--judge: models and judges that are none can't be asked together": models
        and len(models) < len(asked),
        "--reasons: only a model gives some; people may write notes": settings.reasons
        and not reasons,
        f"--persona {repeated and repeated[0]} is given twice": repeated,
        f"{_flags(need_model)} goes with a model, which --judge names": need_model,
        "joined: judges are added to a finished run, by judgeq resume": settings.joined,
        "--onto doesn't go with --group-column": settings.onto and settings.group_column,
    }
    refuse(problems)


def _flags(names: Sequence[str]) -> str:
    return ", ".join(SETTINGS[name].flag for name in names)


# A run that was begun


def differing(facts: Mapping[str, Any], kept: Mapping[str, Any]) -> list[str]:
    """What of what decides a run's result isn't the same."""
    return [name for name in {**facts, **kept} if facts.get(name) != kept.get(name)]


def check_unchanged(run: str, facts: Mapping[str, Any], info: RunInfo, source: str) -> None:
    """Raise RunError where what decides a run's result isn't what it was when the run was begun.
    `source` is what its dataset is called."""
    changed = differing(facts, info.facts)
    if not changed and config.fingerprint(facts) == info.fingerprint:
        return
    raise RunError(
        f"run {run} can't continue: its {' and '.join(changed) or 'configuration'} changed since it "
        f"began (dataset: {source}). Restore what it was, or start another run with `judgeq run`."
    )


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
    """Return the settings with further rounds for a finished run that hasn't ended by its goal of now.
    Where it was given further rounds for this goal before, these were the same command's."""
    if info.settings.total_rounds is not None and info.settings.until == settings.until:
        return settings
    state = awaited(status.state(folder))
    rounds = len(state.rounds)
    if state.word != "finished" or state.over or info.ended_after(rounds, settings.goal):
        return settings
    total = rounds + MORE * settings.strategy_at_start().rounds
    return settings.model_copy(update={"total_rounds": total})


def again(settings: Settings, info: RunInfo) -> Settings:
    """The settings with the rounds and judges that the same command's run was given since, and the goal
    that these were given for."""
    total, until = info.settings.total_rounds, info.settings.until
    goal = settings.until or (None if total is None else until)
    panel = {"judge": info.settings.judge, "joined": info.settings.joined}
    return settings.model_copy(update={"total_rounds": total, "until": goal, **panel})


def kept_prompt(place: RunPlace, info: RunInfo) -> PromptSet | None:
    """The prompt set as the run's facts hold it. Raises RunError for what is none."""
    if info.facts.get("prompt") is None:
        return None
    try:
        return prompts.of_facts(info.facts)
    except (TypeError, ValueError) as error:
        raise RunError(f"run {place.id} has an invalid prompt set.") from error


# A worker's runs


def admit(
    place: RunPlace, own: Settings, files: Sequence[Path] = (), *, named: bool = False
) -> Run:
    """A run as this worker may work on it. Nothing that the run names is opened or sent.

    `own` are the worker's settings, `files` may hold texts of runs. `named`: the user named the run.
    Raises UsageError, DataError or RunError for a run that isn't this worker's to work on, saying what
    is missing.
    """
    info, run = place.info(), f"run {place.id}"
    asked, facts = info.settings, dict(info.facts)
    if config.fingerprint(facts) != info.fingerprint:
        raise RunError(f"{run} is not worked on: what it says of itself doesn't agree.")
    if info.imported or asked.batch or asked.people is not None:
        raise UsageError(
            f"{run} was imported, or asks people, or in batches: its own process does all of it."
        )
    for name in asked.judge:
        _check_judge(run, name, asked, own, named)
    strategy, prompt = info.strategy_of(asked) or asked.make_strategy(), kept_prompt(place, info)
    dataset, onto = _dataset(place, info, own, files), facts.get("onto")
    if changed := differing(config.deciding_facts(asked, dataset, prompt, onto), facts):
        raise RunError(
            f"{run} is not worked on: its {' and '.join(changed)} here and in the store differ."
        )
    # What decides the result is as the run has it, and all else as the worker's user gave it.
    decided = asked.model_dump(exclude={*SESSION, *OWN, "dataset", "prompt"})
    limit = own.max_output_tokens or asked.max_output_tokens
    settings = Settings(
        **{**own.model_dump(), **decided, "prompt": None, "max_output_tokens": limit}
    )
    for name in asked.judge:
        judge.check(name, settings)
    pricing = assembly.check(settings, dataset, prompt)
    return Run(settings, dataset, strategy, prompt, pricing, facts, place)


def _check_judge(run: str, name: str, asked: Settings, own: Settings, named: bool) -> None:
    """Raise UsageError for a judge that the worker's user didn't name, and where a model is to be asked
    at a server, or be sent what, they didn't give. Of a run that was `named`, a server that was given
    stands in for the run's."""
    paid = judge.kind_of(name).costs_money
    if name not in own.judge:
        cost = ", at your cost (--max-cost DOLLARS caps that)" if paid else ""
        raise UsageError(
            f"{run} asks {name}: --judge {quoted(name)} lets this worker ask it{cost}."
        )
    if not paid:
        return
    theirs, ours = (
        {
            "--base-url": one.address_of(name),
            "--api": one.api_of(name),
            "model": one.id_of(name),
            "--extra-body": orjson.dumps(one.extra_body or {}).decode(),
        }
        for one in (asked, own)
    )
    changed = differing(theirs, ours)
    if named and own.base_url:
        changed = [one for one in changed if one == "--extra-body"]
    if changed:
        have = " ".join(f"{one} {quoted(what)}" for one, what in theirs.items())
        raise UsageError(
            f"{run} asks {name} with {have}, and this worker has another {' and '.join(changed)}. "
            "Start it with the run's own (where its model has a prefix, without --base-url and --api); "
            f"to ask at a server of yours, give --base-url and name the {run}."
        )


def _dataset(place: RunPlace, info: RunInfo, own: Settings, files: Sequence[Path]) -> Dataset:
    """The run's items, checked by their checksum: under the name of a dataset that everybody has, in the
    files that the worker's user gave, or where this user began the run. No path that the store names
    otherwise.

    Raises DataError naming what was looked at, and what would help.
    """
    named = info.settings.model_copy(update={"data_dir": own.data_dir})
    places, looked_at = [named], list[str]()
    if named.dataset not in (*NAMES, *corpora.names()):
        places = [named.model_copy(update={"dataset": str(path)}) for path in files]
        is_file = format_of(named.dataset) is not None
        if is_file and trust.owns(place, info, "dataset", "data_dir"):
            places.append(info.settings)
    for one in places:
        try:
            dataset = load(one, runs_onto(place, info))
        except JudgeqError as error:
            looked_at.append(f"\n{one.dataset}: {error}")
            continue
        labels = info.facts.get("labels")
        if dataset.content == info.facts.get("dataset") and labels in (None, dataset.labels):
            return dataset
        looked_at.append(f"\n{one.dataset}: its texts, ids or labels are not those of the run")
    raise DataError(
        f"run {place.id} needs the texts of {quoted(named.dataset)}, which this worker doesn't have. "
        f"Give --dataset FILE (of a known corpus --data-dir).{''.join(looked_at)}"
    )
