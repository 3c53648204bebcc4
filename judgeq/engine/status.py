"""How far a run is, read from its ledger while it runs or afterwards."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import ClassVar

from judgeq.engine import results, rounds, unread
from judgeq.engine.results import Result
from judgeq.errors import NotConvergedError, NoVerdictsError, RunError
from judgeq.events import Certainty
from judgeq.run_places import RunInfo, RunPlace
from judgeq.run_places.info import Ended
from judgeq.store.protocol import Crew, ReplyProblem
from judgeq.text import INLINE, LEFT_OUT
from judgeq.types import Batch, Counts, Failure, Totals


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """How far a run is.

    `over` when the strategy had no items left to compare, so that no more rounds come. `crew`: who works
    on a run that many machines may. `all_batches`: also those that aren't out any more. `result`: what
    there is to show by its last complete round, if that was wanted. It was looked at `at`, in seconds
    since the epoch.
    """

    run: RunPlace
    info: RunInfo = field(metadata=LEFT_OUT)
    running: bool = field(metadata=LEFT_OUT)
    rounds: Sequence[Counts]
    totals: Totals = field(metadata=INLINE)
    over: bool = field(default=False, metadata=LEFT_OUT)
    all_batches: Sequence[Batch] = field(default=(), metadata=LEFT_OUT)
    at: float = field(default=0.0, metadata=LEFT_OUT)
    """What doesn't add up in the ledger, where that was accepted."""
    failure: Failure | None = None
    cautions: Sequence[str] = ()
    """Signs that a judge didn't read what it was asked, a sentence each."""
    reply_problems: Sequence[ReplyProblem] = ()
    """What was wrong with unusable replies, the most frequent first."""
    crew: Crew | None = None
    flags: str = field(default="", metadata=LEFT_OUT)
    """With which it goes on, where it stopped for want of them."""
    result: Result | None = field(default=None, metadata=LEFT_OUT)
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
        "batches": "batches",
        "certainty": "known",
        "ended": "ended",
        "last_failure": "failure",
        "reply_problems": "reply_problems",
        "cautions": "all_cautions",
        "machines": "crew",
    }

    @property
    def rounds_planned(self) -> int:
        """The rounds so far."""
        return len(self.rounds)

    @property
    def batches(self) -> Sequence[Batch]:
        """Those that are out."""
        return [batch for batch in self.all_batches if batch.open]

    @property
    def ended(self) -> Ended | None:
        """That enough was known, where the run ended by it."""
        return self.info.ended_after(len(self.rounds))

    @property
    def most_rounds(self) -> int:
        """All rounds, at most; of a run that ended early those that there were."""
        return self.info.most_rounds(len(self.rounds), self.over)

    @property
    def complete(self) -> int:
        """How many rounds have all their answers, up to the first that hasn't."""
        whole = [not counts.left for counts in self.rounds]
        return [*whole, False].index(False)

    @property
    def all_cautions(self) -> Sequence[str]:
        """What stands above the result's ranking, if there is a result, and the other `cautions`."""
        first = [] if self.result is None else self.result.first_cautions
        return [*first, *(one for one in self.cautions if one not in first)]

    @property
    def known(self) -> Certainty | None:
        """How well the order is known, where that was worked out."""
        return None if self.result is None else self.result.known

    @property
    def counts(self) -> Counts:
        """The jobs of all planned rounds."""
        return sum(self.rounds, Counts())

    @property
    def all_answered(self) -> bool:
        """Whether all rounds were asked, and no job is left."""
        return len(self.rounds) >= self.most_rounds and not self.counts.left

    @property
    def word(self) -> str:
        """Return "running", "stopped", "no verdicts" or "finished".

        "no verdicts": nothing is left, and there is nothing to rate. "finished": all is answered, and
        the scores of these answers are written.
        """
        if self.running:
            return "running"
        if not self.all_answered:
            return "stopped"
        if not self.counts.done:
            return "no verdicts"
        return "finished" if self.info.has_scores(self.counts.done) else "stopped"


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


async def state(
    run: RunPlace, *, rated: bool = False, checked: bool = False, before: State | None = None
) -> State:
    """Return how far a run is, read from its ledger while it runs or afterwards.

    It has what went wrong, and whether texts were read, if that is to be `checked`; and what there is
    to show, if it is to be `rated`. What was found `before` is used again where no round was completed
    since.
    """
    info, running = run.info(), run.is_running()
    async with rounds.reading(run) as store:
        planned, over = await rounds.planned(store, info.rounds_before)
        totals, batches = await store.totals(), await store.batches()
        if not running:  # what a killed process had in flight, and no batch has
            lost = max(0, totals.in_flight - sum(batch.left for batch in batches))
            unknown, in_flight = totals.unknown + lost, totals.in_flight - lost
            totals = replace(totals, unknown=unknown, in_flight=in_flight)
        state = State(run, info, running, planned, totals, over, batches, time.time())
        if not (rated or checked):
            return state
        # While the run goes on, all verdicts are read once a round.
        if before is None or not running or before.complete != state.complete:
            cut_off = await unread.prompt_cautions(store, info)
            cautions = [*cut_off, *unread.answer_cautions(info, await store.verdicts())]
        else:
            cautions = [*before.cautions]
        state = replace(
            state,
            failure=await store.last_failure(),
            crew=await store.crew(),
            cautions=cautions,
            reply_problems=await unread.reply_problems(store),
        )
        if not rated:
            return state
    finished = not running and state.all_answered
    if before is not None and before.complete == state.complete and not finished:
        return replace(state, result=before.result)
    if state.complete and state.counts.done and (finished or info.items <= rounds.LARGE):
        # `judgeq show` says why there is none.
        with suppress(NotConvergedError, NoVerdictsError):
            return replace(state, result=await results.read(run, info.settings))
    return state


# Batches


@dataclass(frozen=True, slots=True)
class Listed:
    """A batch of a run; whether a session works on the run now."""

    run: RunPlace
    batch: Batch = field(metadata=INLINE)
    running: bool
    JSON_KEYS: ClassVar = {"run": "run.id"}


def listed(states: Sequence[State | Unreadable]) -> list[Listed]:
    """The batches of runs, in their order."""
    return [
        Listed(one.run, batch, one.running)
        for one in states
        if isinstance(one, State)
        for batch in one.all_batches
    ]
