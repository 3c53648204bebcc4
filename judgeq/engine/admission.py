"""Which runs of a store a worker works on: what of a run is taken, and what is the worker's own.

Whoever can write to the database decides what is asked, but of judges and about texts that this
worker's user named, at servers and with keys that are the worker's own. Nothing in the database names a
file that is opened, an address that is called, a variable that is read, or what may be spent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from judgeq import config, datasets, judge, prompts, trust
from judgeq.config import SESSION, Settings
from judgeq.datasets import Dataset, corpora
from judgeq.datasets.formats import format_of
from judgeq.datasets.synthetic import SYNTHETIC
from judgeq.engine import assembly
from judgeq.engine.assembly import Run
from judgeq.errors import DataError, JudgeqError, RunError, UsageError
from judgeq.escaping import quoted
from judgeq.files import problems
from judgeq.imports import recordings
from judgeq.prompts import PromptSet
from judgeq.runs import RunInfo, RunPlace
from judgeq.settings.model import PROVIDERS

OWN = (*trust.ADDRESSES, "api", "extra_body", "data_dir")
"""Settings that decide a run's result, and yet are never taken from the database: they name a server,
what else it is sent, and a folder."""


@dataclass(frozen=True, slots=True)
class Own:
    """What a worker's user gave: the judges, how they are reached and what they may cost; and files
    that may hold the texts of runs."""

    settings: Settings
    datasets: Sequence[Path] = ()


def admitted(
    place: RunPlace,
    info: RunInfo,
    own: Own,
    *,
    named: bool = False,
    shared: Callable[[], Dataset | None] = lambda: None,
) -> Run:
    """The run as this worker may work on it. Nothing that the run names is opened or sent. `named`:
    the user named the run; `shared` gives its items as the store has them, where it has their texts.

    Raises UsageError, DataError or RunError for a run that isn't this worker's to work on, saying what
    is missing.
    """
    asked, facts = info.settings, dict(info.facts)
    if info.imported:
        raise RunError(f"run {place.id} was imported: there is nothing to go on with.")
    if config.fingerprint(facts) != info.fingerprint:
        raise RunError(f"run {place.id} is not worked on: what it says of itself doesn't agree.")
    if asked.people is not None:
        raise UsageError(f"run {place.id} asks people: its own process does all of it.")
    _check_judges(place, asked, own.settings)
    if asked.models:
        _check_server(place, asked, own.settings, named)
    if asked.batch:
        raise UsageError(f"run {place.id} is asked in batches, which its own process sends.")
    strategy, prompt = asked.make_strategy(), _prompt(place, facts, asked.persona)
    dataset = _dataset(place, info, own, shared)
    judges = _judges(place, info, own.settings, dataset)
    _check_facts(place, info, dataset, prompt, judges)
    settings = _settings(asked, own.settings, judges)
    for name in judges:
        judge.check(name, settings)
    pricing = assembly.check(settings, dataset, prompt)
    return Run(settings, dataset, strategy, prompt, pricing, facts, place)


def _settings(asked: Settings, own: Settings, judges: Sequence[str]) -> Settings:
    """What decides the result as the run has it, and all else as the worker's user gave it."""
    decided = asked.model_dump(exclude={*SESSION, *OWN, "dataset", "prompt", "judge"})
    return Settings(**{**own.model_dump(), **decided, "prompt": None, "judge": tuple(judges)})


def _check_judges(place: RunPlace, asked: Settings, own: Settings) -> None:
    """Raise UsageError for a judge that the worker's user didn't name."""
    recorded = any(map(judge.recording_of, own.judge))
    for name in asked.judge:
        if judge.recording_of(name) is not None:
            if not recorded:
                raise UsageError(
                    f"run {place.id} asks a recorded judge: --judge recorded:FILE gives this worker "
                    "the same recording."
                )
        elif name not in own.judge:
            cost = ""
            if judge.kind_of(name).costs_money:
                cost = ", at your cost (--max-cost DOLLARS caps that)"
            raise UsageError(
                f"run {place.id} asks {name}: --judge {quoted(name)} lets this worker ask it{cost}."
            )


def _check_server(place: RunPlace, asked: Settings, own: Settings, named: bool) -> None:
    """Raise UsageError where a model is to be asked at a server, or be sent what, the worker's user
    didn't give. Of a run that was named, a server that was given stands in for the run's."""
    for name in asked.models if not (named and own.base_url is not None) else ():
        theirs, ours = asked.address_of(name), own.address_of(name)
        if (theirs, asked.api_of(name)) == (ours, own.api_of(name)):
            continue
        form = PROVIDERS[asked.api_of(name)].name
        api = f" --api {asked.api_of(name)}" if asked.api_of(name) != "openai" or asked.api else ""
        raise UsageError(
            f"run {place.id} asks {name} at {theirs}, in the form of {form}'s API, and this worker "
            f"asks it at {ours}, in that of {PROVIDERS[own.api_of(name)].name}'s. "
            f"--base-url {quoted(theirs)}{api} takes this worker there"
            + ("" if own.base_url is None else "; naming the run has it asked here all the same")
            + "."
        )
    if asked.extra_body != own.extra_body:
        if asked.extra_body is None:
            what = "sends no more fields with a request: leave out --extra-body"
        else:
            fields = quoted(orjson.dumps(asked.extra_body).decode())
            what = f"sends more fields with each request: --extra-body {fields} allows them"
        raise UsageError(f"run {place.id} {what}.")


def _prompt(place: RunPlace, facts: Mapping[str, Any], personas: Sequence[str]) -> PromptSet | None:
    """The prompt set as the run's facts hold it, with the personas that are asked. Raises RunError for
    what is none, UsageError for a persona that isn't there."""
    if facts.get("prompt") is None:
        return None
    try:
        prompt = prompts.of_facts(facts)
    except ValidationError as error:
        raise RunError(
            f"run {place.id} has a prompt set that is none: {problems(error)}."
        ) from error
    except (TypeError, ValueError) as error:
        raise RunError(f"run {place.id} has a prompt set that is none.") from error
    for name in personas:
        prompt.as_persona(name)  # complains of one that isn't there
    return prompt


def _judges(place: RunPlace, info: RunInfo, own: Settings, dataset: Dataset) -> list[str]:
    """The run's judges, of which recordings are the worker's own files with the same judgments."""
    judges = list(info.settings.judge)
    if not any(map(judge.recording_of, judges)):
        return judges
    here = {}
    for name in own.judge:
        path = judge.recording_of(name)
        if path is not None:
            checksum = recordings.checksum(recordings.read(path, dataset.ids).judgments)
            here[f"recorded:{checksum}"] = name
    known = info.facts.get("judge")
    names = known.get("name") if isinstance(known, dict) else None
    names = names if isinstance(names, list) else [names]
    for number, name in enumerate(judges):
        if judge.recording_of(name) is not None:
            wanted = str(names[number]) if number < len(names) else ""
            if wanted not in here:
                raise DataError(
                    f"run {place.id}: no --judge recorded:FILE says what its judge says."
                )
            judges[number] = here[wanted]
    return judges


def _check_facts(
    place: RunPlace,
    info: RunInfo,
    dataset: Dataset,
    prompt: PromptSet | None,
    judges: Sequence[str],
) -> None:
    """Raise RunError unless the run's settings, prompt and items are those that its facts say."""
    settings = info.settings.model_copy(update={"judge": tuple(judges)})
    facts = config.deciding_facts(settings, dataset, prompt)
    differing = [
        name for name in {**facts, **info.facts} if facts.get(name) != info.facts.get(name)
    ]
    if differing:
        raise RunError(
            f"run {place.id} is not worked on: its {' and '.join(differing)} here and in the store "
            "differ."
        )


# The texts


def _dataset(
    place: RunPlace,
    info: RunInfo,
    own: Own,
    shared: Callable[[], Dataset | None],
) -> Dataset:
    """The run's items, from wherever this worker may have them, checked by their checksum.

    Raises DataError naming what was looked at, and what would help.
    """
    looked_at = []
    for spec in _specs(place, info, own):
        try:
            dataset = datasets.load(spec, seed=spec.seed)
        except JudgeqError as error:
            looked_at.append(f"{spec.dataset}: {error}")
            continue
        if _fits(dataset, info):
            return dataset
        looked_at.append(f"{spec.dataset}: its texts, ids or labels are not those of the run")
    try:
        dataset_there = shared()
    except RunError as error:
        looked_at.append(str(error))
    else:
        if dataset_there is not None and _fits(dataset_there, info):
            return dataset_there
    raise DataError(
        f"run {place.id} needs the texts of {quoted(info.settings.dataset)}, and this worker "
        "hasn't got them: give the file with --dataset FILE (a known corpus' folder with --data-dir), "
        "or begin the run with --share-texts." + "".join(f"\n{what}" for what in looked_at)
    )


def _specs(place: RunPlace, info: RunInfo, own: Own) -> Iterator[Settings]:
    """Where the texts may be: under the name of a dataset that everybody has, in the files that the
    worker's user gave, or where this user began the run. No path that the store names otherwise."""
    asked = info.settings.model_copy(update={"data_dir": own.settings.data_dir})
    name = asked.dataset
    if name.startswith(SYNTHETIC) or name in corpora.names():
        yield asked
        return
    for path in own.datasets:
        yield asked.model_copy(update={"dataset": str(path)})
    if format_of(name) is not None and trust.owns(place, info, "dataset", "data_dir"):
        yield info.settings


def _fits(dataset: Dataset, info: RunInfo) -> bool:
    labels = info.facts.get("labels")
    return dataset.content == info.facts.get("dataset") and labels in (None, dataset.labels)
