"""Has the judge changed? Questions of a run are asked again, and held against the answers of then.

They are in the run's ledger as rounds of negative numbers (`Store.plan_round`), apart from all that
is read of the run: no rating, no barrier and no count of it knows them. They are asked past the
cache, under a cap of their own. What was interrupted goes on where it stopped, and is paid once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from judgeq import seeds
from judgeq.datasets.tables import Table, display
from judgeq.engine import results, rounds, runner, session
from judgeq.engine.assembly import Run, Session
from judgeq.engine.datasets import dataset_of
from judgeq.engine.interrupts import Beside, Stop, awaited, in_thread, run_stoppable
from judgeq.engine.queue import drain
from judgeq.errors import JudgeError, RunError, StoppedError, UsageError
from judgeq.events import Emit, Notice, RoundStarted, RunStarted
from judgeq.judge.budget import Allowance
from judgeq.judge.function import JudgeFunction
from judgeq.rating import ESTIMATORS, GoOn, Parameters, comparisons, drift
from judgeq.rating.drift import Drift
from judgeq.run_places import RunInfo, RunPlace
from judgeq.store.protocol import Answered
from judgeq.text import LEFT_OUT
from judgeq.types import Bools, Counts, Floats, Matches, Totals, Verdicts

ALL_ANSWERED = "The questions that were asked again last are all answered, and weren't shown yet."
MOST_GROUPS = 50
"""Of more groups none would be found: each is a test of its own."""


@dataclass(frozen=True, slots=True)
class Drifted:
    """What questions that were asked again say of a run's judge: `tests` of the answers of then and now,
    of which so many are the `same`; and the models that answered `then` (in the whole run) and `now`,
    as their providers say."""

    run: RunPlace = field(metadata=LEFT_OUT)
    info: RunInfo = field(metadata=LEFT_OUT)
    same: int
    tests: Sequence[Drift]
    then: Sequence[Answered]
    now: Sequence[Answered]
    counts: Counts
    totals: Totals
    JSON_KEYS: ClassVar = {
        "rehearsal": "info.settings.rehearsal",
        "run": "run.id",
        "judge": "info.judge",
        "drift": "drift",
        "jobs": "counts",
    }

    @property
    def found(self) -> list[Drift]:
        """The ways in which the judge has drifted."""
        return [one for one in self.tests if one.found]

    @property
    def drift(self) -> bool:
        """Whether drift was found."""
        return bool(self.found)


def prepare(
    folder: RunPlace,
    changes: Mapping[str, Any],
    *,
    frame: Table | None = None,
    function: JudgeFunction | None = None,
) -> Run:
    """A run whose questions are to be asked again: live, past the cache, under no cap but that of
    `changes`, which are settings of this session. Raises as `session.resume`, and RunError or
    UsageError for a run without a judge that can be asked."""
    info = folder.info()
    if info.imported:
        raise RunError(f"run {folder.id} was imported: there is no judge to ask again.")
    if info.settings.only_people:
        raise UsageError(f"run {folder.id} was judged by people: only models are asked again.")
    held = {"max_cost": None, "batch": False, "cache": False}
    run = session.resume(folder, {"batch": False, **changes}, frame=frame, function=function)
    if any(run.pricing.values()) and changes.get("max_cost") is None:
        raise UsageError("give --max-cost: the most that these questions may cost, in dollars.")
    return replace(run, settings=run.settings.model_copy(update=held))


def ask(
    run: Run,
    questions: int,
    emit: Emit,
    *,
    cap: float | None = None,
    beside: Beside | None = None,
) -> None:
    """Ask so many of a run's questions again, drawn at random, for `cap` dollars at most; or those
    that an interrupted call has left. `beside` as of the run. Raises UsageError,
    RunError, StoppedError, JudgeError and BudgetError; what was answered is kept."""

    async def asked(stop: Stop) -> None:
        info = run.folder.info()
        async with rounds.reading(run.folder) as store:
            last = await store.last_again()
            counts = await store.round_state(last) if last else None
            unshown = info.drift_shown is not None and last != info.drift_shown
            goes_on = counts is not None and (counts.left > 0 or unshown)
            totals = await store.totals(last) if goes_on else Totals()
        if cap is not None and totals.at_risk is None:
            raise UsageError(
                f"--max-cost {cap:g}: calls of these questions have an unknown price: no cap "
                "can be kept."
            )
        if info.drift_shown is None and not goes_on:
            run.folder.write_info(info.model_copy(update={"drift_shown": last}))
        if counts is not None and goes_on and not counts.left:
            emit(Notice(f"{ALL_ANSWERED} The same command again asks new ones."))
            return
        allowance = Allowance(cap, totals.cost, totals.at_risk or 0.0)
        async with session.opened(run, stop, emit, allowance) as opened:
            await _ask(opened, last if goes_on else last - 1, questions, totals)
            opened.store.check()

    with run.folder.locked():
        run_stoppable(asked, emit, beside)


def record_shown(place: RunPlace) -> None:
    """Write down that the answers to the questions that were asked again last were read, where none of
    them is left: the next call asks new ones."""

    async def last_round() -> int:
        async with rounds.reading(place) as store:
            last = await store.last_again()
            counts = await store.round_state(last)
            return 0 if counts is None or counts.left else last

    last = awaited(last_round())
    with place.locked():
        info = place.info()
        if last and info.drift_shown != last:
            place.write_info(info.model_copy(update={"drift_shown": last}))


async def _ask(session: Session, round: int, questions: int, totals: Totals) -> None:
    run, store = session.run, session.store
    history = await results.replayed(run.folder.info(), store)
    if store.keeper is not None and (await store.counts()).left:
        raise RunError(
            f"run {run.folder.id} has questions left, whose cap this would lift: finish it first, "
            f"`{run.folder.command('resume')}`."
        )
    epoch = await runner.lead(session)
    store.asks_again = True
    counts = await store.round_state(round)
    if counts is None:
        matches = _drawn(session, history.asked, questions, round)
        await store.plan_round(round, epoch, history.standings.active, matches)
        counts = Counts(pending=len(matches))
    else:
        session.emit(Notice(f"The {counts.total:,} questions that were begun before go on."))
    n, judge = len(run.dataset), session.judge.name
    session.emit(RunStarted(run.folder.id, n, 1, judge, [counts], totals, [counts.total]))
    session.emit(RoundStarted(run.strategy.before + 1, counts))
    await drain(session, counts.left)
    after = await store.round_state(round) or counts
    if after.left:
        raise StoppedError(f"stopped with {after.left:,} of {after.total:,} questions left")


def _drawn(session: Session, asked: Sequence[Verdicts], questions: int, round: int) -> Matches:
    """So many of the questions that compare texts, were answered by who can be asked, and are no
    repeats of others. Raises UsageError where there are fewer."""
    every = comparisons.joined(asked)
    models = [number for number, judge in enumerate(session.judge.judges) if judge is not None]
    judges, first = every.judges, sorted(_questions(every).values())
    possible = np.isin(judges, models) & (every.sizes > 1)
    there = [at for at in first if possible[at]]
    if len(there) < questions:
        raise UsageError(
            f"--ask {questions:,}: run {session.run.folder.id} has {len(there):,} answered questions "
            "that compare texts and can be asked again."
        )
    rng = seeds.rng(session.run.settings.seed, "drift", -round)
    part = every.where(_mask(every, rng.choice(there, questions, replace=False).tolist()))
    return Matches(part.presented, part.offsets, part.judges)


def _mask(verdicts: Verdicts, chosen: Sequence[int]) -> Bools:
    return np.isin(np.arange(len(verdicts)), chosen)


def _questions(verdicts: Verdicts) -> dict[tuple[int, bytes], int]:
    """The first verdict on each question, by its judge and the items in the order presented."""
    found: dict[tuple[int, bytes], int] = {}
    for at, asked in enumerate(zip(verdicts.judges.tolist(), verdicts.questions, strict=True)):
        judge, items = asked
        found.setdefault((judge, items.tobytes()), at)
    return found


# What the answers say


async def read(place: RunPlace, groups: Mapping[str, Floats], stop: Stop | None = None) -> Drifted:
    """The questions of a run that were asked again last, against the answers of then; `groups` are
    masks of items by name. Raises UsageError where none were asked, and JudgeError where none was
    answered."""
    info = place.info()
    async with rounds.reading(place) as store:
        last = await store.last_again()
        if not last:
            raise UsageError(
                f"run {place.id} has no question that was asked again: give --ask 100, and --max-cost."
            )
        history = await results.replayed(info, store)
        after, counts = await store.verdicts(last), await store.round_state(last) or Counts()
        totals, then = await store.totals(last), await store.answered()
        now = await store.answered(last)
    if not len(after):
        raise JudgeError(
            f"none of the {counts.total:,} questions was answered usably ({counts.invalid:,} invalid, "
            f"{counts.failed:,} failed, {counts.left:,} left)."
        )

    def tested(go_on: GoOn) -> tuple[list[Drift], int]:
        every = comparisons.joined(history.asked)
        places = _questions(every)
        chosen = _mask(every, [places[question] for question in _questions(after)])
        before, n = every.where(chosen), info.items
        fit = ESTIMATORS["pl"].fit(
            comparisons.joined([every, after]), n, Parameters(position=False), go_on
        )
        same = np.add.reduceat(before.items != after.items, before.offsets[:-1]) == 0
        return drift.tests(before, after, fit.theta, groups), int(same.sum())

    tests, same = await in_thread(tested, stop)
    return Drifted(place, info, same, tests, then, now, counts, totals)


def groups_in(place: RunPlace, column: str | None) -> dict[str, Floats]:
    """The groups that a column of a run's dataset names, as masks of items. Raises UsageError where it
    can't."""
    if column is None:
        return {}
    dataset = dataset_of(place, keep_columns=True)
    compared_within = place.info().settings.group_column
    cells = None
    if dataset is not None:
        cells = dataset.groups if column == compared_within else dataset.columns.get(column)
    if cells is None:
        raise UsageError(
            f"--group-column {display(column)}: the dataset isn't here, or has no such column."
        )
    values = np.array(["" if cell is None else str(cell) for cell in cells])
    names = sorted({*values.tolist()} - {""})
    if not 1 < len(names) <= MOST_GROUPS:
        raise UsageError(
            f"--group-column {display(column)} has {len(names):,} values: 2 to {MOST_GROUPS} can be "
            "tested."
        )
    return {name: (values == name).astype(np.float64) for name in names}
