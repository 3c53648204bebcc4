"""How far a run is, read from its ledger while it runs or afterwards."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import ClassVar

from judgeq.engine import results, rounds
from judgeq.engine.results import Result
from judgeq.errors import NotConvergedError, NoVerdictsError, RunError
from judgeq.events import Certainty
from judgeq.run_places import RunInfo, RunPlace
from judgeq.run_places.info import Ended
from judgeq.store import Store
from judgeq.store.protocol import Crew
from judgeq.text import INLINE, LEFT_OUT
from judgeq.types import Batch, Counts, Failure, Floats, Totals


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """How far a run is; `ratings`, named `rating`, are those after its last complete round; of a
    finished run those of its `result`.

    `over` when the strategy had no items left to compare, so that no more rounds come. `crew`: who works
    on a run that many machines may. `known`: how well the order is known after that round. `batches` are
    those that are out. It was looked at `at`, in seconds since the epoch.
    """

    run: RunPlace
    info: RunInfo = field(metadata=LEFT_OUT)
    running: bool = field(metadata=LEFT_OUT)
    rounds: Sequence[Counts]
    totals: Totals = field(metadata=INLINE)
    ids: Sequence[str] = field(metadata=LEFT_OUT)
    ratings: Floats | None = field(metadata=LEFT_OUT)
    over: bool = field(default=False, metadata=LEFT_OUT)
    rating: str = field(default="elo", metadata=LEFT_OUT)
    result: Result | None = field(default=None, metadata=LEFT_OUT)
    failure: Failure | None = None
    crew: Crew | None = None
    known: Certainty | None = None
    batches: Sequence[Batch] = ()
    at: float = field(default=0.0, metadata=LEFT_OUT)
    damage: Sequence[str] = ()
    """What doesn't add up in the ledger, where that was accepted."""
    JSON_KEYS: ClassVar = {
        "rehearsal": "info.settings.rehearsal",
        "run": "run.id",
        "folder": "run.path",
        "store": "run.store_address",
        "name": "info.settings.name",
        "feature": "info.feature",
        "state": "word",
        "created": "info.created",
        "dataset": "info.dataset",
        "items": "info.items",
        "strategy": "info.strategy",
        "judge": "info.judge",
        "seed": "info.settings.seed",
        "rounds": "info.rounds",
        "rounds_planned": "rounds_planned",
        "jobs": "counts",
        "jobs_by_round": "rounds",
        "certainty": "known",
        "ended": "ended",
        "last_failure": "failure",
        "machines": "crew",
    }

    @property
    def rounds_planned(self) -> int:
        """The rounds so far."""
        return len(self.rounds)

    @property
    def ended(self) -> Ended | None:
        """That enough was known, where the run ended by it."""
        return self.info.ended if self.info.ended_after(len(self.rounds)) else None

    @property
    def most_rounds(self) -> int:
        """All rounds, at most; of a run that ended early those that there were."""
        if self.over or self.ended is not None:
            return len(self.rounds)
        return max(len(self.rounds), self.info.rounds)

    @property
    def complete(self) -> int:
        """How many rounds have all their answers, up to the first that hasn't."""
        whole = [not counts.left for counts in self.rounds]
        return [*whole, False].index(False)

    @property
    def stage(self) -> tuple[int, bool]:
        """What decides the ratings: the complete rounds, and whether it is finished."""
        return self.complete, self.word == "finished"

    @property
    def counts(self) -> Counts:
        """The jobs of all planned rounds."""
        return sum(self.rounds, Counts())

    @property
    def word(self) -> str:
        """ "running", "finished", "no verdicts" (nothing is left, and nothing to rate), "stopped"."""
        if self.running:
            return "running"
        if len(self.rounds) < self.most_rounds or self.counts.left:
            return "stopped"
        return "finished" if self.counts.done else "no verdicts"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A run's folder that can't be read, and why."""

    run: RunPlace
    reason: str
    JSON_KEYS: ClassVar = {
        "run": "run.id",
        "folder": "run.path",
        "store": "run.store_address",
        "state": "word",
    }
    word: ClassVar[str] = "unreadable"


async def states(runs: Sequence[RunPlace]) -> list[State | Unreadable]:
    """How far runs are, in their order."""
    listed: list[State | Unreadable] = []
    for folder in runs:
        try:
            listed.append(await state(folder))
        except (RunError, OSError) as error:
            listed.append(Unreadable(folder, str(error)))
    return listed


async def state(run: RunPlace, *, ratings: bool = False, before: State | None = None) -> State:
    """How far a run is, read from its ledger while it runs or afterwards. What was found `before` is
    used again where no round was completed since: ratings are made from all verdicts."""
    info, running = run.info(), run.is_running()
    async with rounds.reading(run) as store:
        planned, over = await rounds.planned(store)
        totals = await store.totals()
        batches = [batch for batch in await store.batches() if batch.open]
        if not running:  # what a killed process had in flight, and no batch has
            lost = max(0, totals.in_flight - sum(batch.left for batch in batches))
            totals = replace(
                totals, unknown=totals.unknown + lost, in_flight=totals.in_flight - lost
            )
        state = State(
            run=run,
            info=info,
            running=running,
            rounds=planned,
            totals=totals,
            ids=(await store.items()).ids if ratings else [],
            ratings=None,
            over=over,
            batches=batches,
            at=time.time(),
            damage=store.damage,
        )
        if not ratings:
            return state
        state = replace(state, failure=await store.last_failure(), crew=await store.crew())
        if before is not None and before.stage == state.stage:
            kept = {
                name: getattr(before, name) for name in ("rating", "ratings", "known", "result")
            }
            return replace(state, **kept)
        return await _rated(state, store)


async def _rated(state: State, store: Store) -> State:
    """With the ranking after the last complete round: of a finished run by its leading rating."""
    if not state.complete or not state.counts.done:
        return state
    if state.word == "finished":
        # `judgeq show --write` says why there is none; Elo there is all the same.
        with suppress(NotConvergedError, NoVerdictsError):
            result = await results.read(state.run, state.info.settings)
            name, ratings = result.scores.main
            known = result.known
            return replace(state, rating=name, ratings=ratings, known=known, result=result)
    history = await results.replayed(state.info, store, state.complete)
    name, ratings = history.latest
    known = None
    if state.info.items <= rounds.LARGE:
        known = rounds.how_well(history, state.info.settings, state.counts, state.totals)
    return replace(state, rating=name, ratings=ratings, known=known)
