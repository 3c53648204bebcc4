"""Which runs of a store a worker works on: what of a run is taken, and what is the worker's own.

Whoever can write to the database decides what is asked, but of judges and about texts that this
worker's user named, at servers and with keys that are the worker's own. Nothing in the database names a
file that is opened, an address that is called, a variable that is read, or what may be spent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import orjson

from judgeq import config, datasets, judge, prompts, trust
from judgeq.config import SESSION, Settings
from judgeq.datasets import Dataset, corpora
from judgeq.datasets.formats import format_of
from judgeq.datasets.synthetic import NAMES
from judgeq.engine import assembly
from judgeq.engine.assembly import Run, Session
from judgeq.engine.queue import Stop
from judgeq.engine.session import opened
from judgeq.errors import DataError, JudgeqError, RunError, UsageError
from judgeq.escaping import quoted
from judgeq.events import Emit
from judgeq.judge.budget import Allowance
from judgeq.prompts import PromptSet
from judgeq.run_places import RunInfo, RunPlace
from judgeq.run_places.stored import StoredRuns
from judgeq.store import Store

OWN = (*trust.ADDRESSES, "api", "extra_body", "data_dir")
"""Settings that decide a run's result, and yet are never taken from the database: they name a server,
what else it is sent, and a folder."""


class Prospect(NamedTuple):
    """What a store says of a run."""

    name: str
    fingerprint: str
    pending: bool  # jobs of it can be taken now
    over: bool  # no job is left, and no round will come


class StoreRuns:
    """The runs of a store, as a worker may work on them."""

    def __init__(self, settings: Settings, files: Sequence[Path], named: Sequence[str]) -> None:
        self._settings = settings
        self._files = files
        self._store = StoredRuns.at(settings.store or "", Path("runs"))
        self.named = [self._store.find(name).id for name in named]
        self._lookout = self._store.lookout()
        self._open: Store | None = None  # of the run that is worked on: one connection is enough
        self._allowance = Allowance(settings.max_cost)
        self._rounds: dict[tuple[str, str], int] = {}

    @property
    def exhausted(self) -> bool:
        """Whether this worker may spend no more."""
        return self._allowance.exhausted

    async def prospects(self) -> Sequence[Prospect]:
        """All runs, the first that was begun first. Raises RunError while the store can't be read."""
        listed = []
        looking = self._lookout.prospects() if self._open is None else self._open.prospects()
        for row in await looking:
            over = False
            if not row.pending and not row.running and row.planned:
                key = row.name, row.fingerprint
                over = row.ended or row.planned >= await self._total(key, row.planned)
            listed.append(Prospect(row.name, row.fingerprint, row.pending, over))
        return listed

    async def _total(self, run: tuple[str, str], planned: int) -> int:
        """How many rounds a run has, of which so many are planned; 0 of one that can't be read, which
        is as if it was over."""
        if run not in self._rounds:
            try:
                info = await asyncio.to_thread(lambda: self._place(run[0]).info())
            except RunError:
                return 0
            if info.settings.goal:  # which decides anew after each round, and in each session
                return planned if info.ended_after(planned) else info.rounds
            self._rounds[run] = info.rounds
        return self._rounds[run]

    def _place(self, name: str) -> RunPlace:
        for place in self._store.all():
            if place.id == name:
                return place
        raise RunError(f"there is no run {name!r} in {self._store.label} that can be worked on.")

    async def admit(self, name: str) -> Run:
        """The run as this worker may work on it; raises what says why it may not."""
        return await asyncio.to_thread(self._admit, name)

    def _admit(self, name: str) -> Run:
        place, named = self._place(name), name in self.named
        return admit(place, place.info(), self._settings, self._files, named=named)

    @asynccontextmanager
    async def open(self, run: Run, stop: Stop, emit: Emit) -> AsyncIterator[Session]:
        """A run with its store and its judges, open while inside. What this worker spends counts for its
        own cap, whatever the run."""
        await self._lookout.close()
        async with opened(run, stop, emit, self._allowance) as session:
            self._open = session.store
            try:
                yield session
            finally:
                self._open = None

    async def close(self) -> None:
        """Let go of the store."""
        await self._lookout.close()


def admit(
    place: RunPlace,
    info: RunInfo,
    own: Settings,
    files: Sequence[Path] = (),
    *,
    named: bool = False,
) -> Run:
    """The run as this worker may work on it. Nothing that the run names is opened or sent.

    `own` are the worker's settings, `files` may hold texts of runs. `named`: the user named the run.
    Raises UsageError, DataError or RunError for a run that isn't this worker's to work on, saying what
    is missing.
    """
    asked, facts, run = info.settings, dict(info.facts), f"run {place.id}"
    if info.imported:
        raise RunError(f"{run} was imported: nothing is left to ask.")
    if config.fingerprint(facts) != info.fingerprint:
        raise RunError(f"{run} is not worked on: what it says of itself doesn't agree.")
    _check_judges(run, asked, own)
    _check_servers(run, asked, own, named)
    if asked.batch:
        raise UsageError(f"{run} is asked in batches, which its own process sends.")
    strategy, prompt = asked.make_strategy(), _prompt(run, info)
    dataset = _dataset(place, info, own, files)
    here = config.deciding_facts(asked, dataset, prompt)
    differing = [name for name in {**here, **facts} if here.get(name) != facts.get(name)]
    if differing:
        raise RunError(
            f"{run} is not worked on: its {' and '.join(differing)} here and in the store differ."
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


def _check_judges(run: str, asked: Settings, own: Settings) -> None:
    """Raise UsageError for judges that a worker can't ask, or that its user didn't name."""
    if asked.people is not None:
        raise UsageError(f"{run} asks people: its own process does all of it.")
    for name in asked.judge:
        if name not in own.judge:
            cost = ""
            if judge.kind_of(name).costs_money:
                cost = ", at your cost (--max-cost DOLLARS caps that)"
            raise UsageError(
                f"{run} asks {name}: --judge {quoted(name)} lets this worker ask it{cost}."
            )


def _check_servers(run: str, asked: Settings, own: Settings, named: bool) -> None:
    """Raise UsageError where a model is to be asked at a server, or be sent what, the worker's user
    didn't give. Of a run that was named, a server that was given stands in for the run's."""
    for name in asked.models if not (named and own.base_url) else ():
        theirs, ours = (
            (one.address_of(name), one.api_of(name), one.id_of(name)) for one in (asked, own)
        )
        if theirs != ours and asked.prefixed(name):
            raise UsageError(
                f"{run} asks {name} at {theirs[0]}, and this worker at {ours[0]}. To ask it there, "
                "leave out --base-url and --api."
            )
        if theirs != ours:
            raise UsageError(
                f"{run} asks {name} at {theirs[0]} (API: {theirs[1]}), and this worker at {ours[0]} "
                f"(API: {ours[1]}). To ask it there: --base-url {quoted(theirs[0])} --api {theirs[1]}."
                + (f" To ask it here all the same, name the {run}." if own.base_url else "")
            )
    if asked.models and asked.extra_body != own.extra_body:
        if asked.extra_body is None:
            raise UsageError(f"{run} sends no more fields with a request: leave out --extra-body.")
        fields = quoted(orjson.dumps(asked.extra_body).decode())
        raise UsageError(
            f"{run} sends more fields with each request: --extra-body {fields} allows them."
        )


def _prompt(run: str, info: RunInfo) -> PromptSet | None:
    """The prompt set as the run's facts hold it. Raises RunError for what is none, and UsageError for a
    persona that isn't in it."""
    if info.facts.get("prompt") is None:
        return None
    try:
        prompt = prompts.of_facts(info.facts)
    except (TypeError, ValueError) as error:
        raise RunError(f"{run} has an invalid prompt set.") from error
    for name in info.settings.persona:
        prompt.as_persona(name)  # complains of one that isn't there
    return prompt


def _dataset(place: RunPlace, info: RunInfo, own: Settings, files: Sequence[Path]) -> Dataset:
    """The run's items, from wherever this worker may have them, checked by their checksum.

    Raises DataError naming what was looked at, and what would help.
    """
    labels, looked_at = info.facts.get("labels"), []
    for spec in (*_specs(place, info, own, files), None):
        name = "the store" if spec is None else spec.dataset
        try:
            dataset = place.dataset() if spec is None else datasets.load(spec, seed=spec.seed)
        except JudgeqError as error:
            looked_at.append(f"{name}: {error}")
            continue
        if dataset is None:
            continue
        if dataset.content == info.facts.get("dataset") and labels in (None, dataset.labels):
            return dataset
        looked_at.append(f"{name}: its texts, ids or labels are not those of the run")
    raise DataError(
        f"run {place.id} needs the texts of {quoted(info.settings.dataset)}, which this worker doesn't "
        "have. Give --dataset FILE (of a known corpus --data-dir), or start the run with --share-texts."
        + "".join(f"\n{text}" for text in looked_at)
    )


def _specs(
    place: RunPlace, info: RunInfo, own: Settings, files: Sequence[Path]
) -> Iterator[Settings]:
    """Where the texts may be: under the name of a dataset that everybody has, in the files that the
    worker's user gave, or where this user began the run. No path that the store names otherwise."""
    asked = info.settings.model_copy(update={"data_dir": own.data_dir})
    name = asked.dataset
    if name in (*NAMES, *corpora.names()):
        yield asked
        return
    for path in files:
        yield asked.model_copy(update={"dataset": str(path)})
    if format_of(name) is not None and trust.owns(place, info, "dataset", "data_dir"):
        yield info.settings
