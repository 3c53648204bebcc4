"""The story of a run: rounds of questions, Elo after each, Plackett-Luce at the end.

Completion order never matters: matches have canonical numbers, Elo folds verdicts in their order,
and randomness is drawn by name. So a run that was killed any number of times ends as one that was
not, and taking it up again is nothing but telling the story from the beginning: rounds that are
planned are not planned again, jobs that are done are not asked again.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from judgeq.certainty import Certainty
from judgeq.engine import batch, knowing, questions, results
from judgeq.engine.assembly import Run
from judgeq.engine.batch import Batches
from judgeq.engine.batch_lines import Collecting, tidy
from judgeq.engine.batch_sending import Sending
from judgeq.engine.queue import AT_ONCE, AT_ONCE_UNPAID, RENEWAL, Queue, Stop
from judgeq.engine.stopping import in_thread
from judgeq.engine.worker import drain
from judgeq.errors import JudgeError, LedError, RunError, StoppedError, StoreAwayError
from judgeq.events import EndedEarly, Event, Notice, PeopleHere, RoundStarted, RunStarted
from judgeq.files import refuse_linked_folder, unwritable
from judgeq.judge import panel
from judgeq.judge.budget import rounded_down
from judgeq.people.people import People
from judgeq.rating import GoOn, comparisons
from judgeq.runs import RunInfo, whoami
from judgeq.runs.info import Ended
from judgeq.store import Store
from judgeq.strategies import History
from judgeq.strategies.repeats import Repeats
from judgeq.types import Counts, Matches

BARRIER_WAIT = 1.0
"""Seconds between two looks at jobs that other workers hold."""
Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    """A run, open: its store and its judges, until it is finished or stopped; `began` by the monotonic
    clock."""

    run: Run
    store: Store
    judge: panel.Panel
    stop: Stop
    emit: Callable[[Event], None]
    began: float = field(default_factory=time.monotonic)
    people: People | None = None
    page: Callable[[], Awaitable[None]] | None = None
    """Opens the page of the people, unless it is open."""


async def go_through(session: Session) -> results.Result:
    """Take the run from wherever it is to its scores.

    Raises StoppedError when a stop was asked for (also while the ratings are made), and JudgeError
    when the judge can't go on; all that was answered is kept, and it may be called again.
    """
    run = session.run
    async with leading(session) as epoch:
        history = await _all_rounds(session, epoch)
    if not any(map(len, history.verdicts)):
        counts = await session.store.counts()
        raise JudgeError(
            f"none of the {counts.total:,} jobs brought a verdict ({counts.invalid:,} invalid, "
            f"{counts.failed:,} failed), so that there are no ratings. --retry-failed asks them again."
        )
    return await results.rate(
        run.folder,
        await _info(session),
        session.store,
        run.items,
        history,
        run.settings,
        session.stop,
    )


async def _info(session: Session) -> RunInfo:
    """What the run is; while its store is away that is waited for."""
    while True:
        try:
            return session.run.folder.info()
        except StoreAwayError:
            await session.store.counts()


@asynccontextmanager
async def leading(session: Session, sleep: Sleep = asyncio.sleep) -> AsyncIterator[int]:
    """Be the run's scheduler, under the epoch given, by a lease that is renewed until this is left.

    Where the lease is lost the run is asked to stop, and then RunError is raised.
    """
    epoch, lease = await _lead(session), session.store.lease
    keeper, cap = session.store.keeper, session.run.settings.max_cost
    if keeper is not None:
        await keeper.set_cap(None if cap is None else rounded_down(cap))

    async def renew() -> None:
        try:
            while True:
                await sleep(lease * RENEWAL)
                await session.store.renew_lead(epoch, lease)
        except Exception:
            session.stop.ask()
            raise

    renewal = asyncio.create_task(renew(), name="judgeq-lead")
    try:
        yield epoch
    except StoppedError:
        if renewal.done():
            renewal.result()
        raise
    finally:
        renewal.cancel()
        await asyncio.gather(renewal, return_exceptions=True)


async def _lead(session: Session) -> int:
    """Become the scheduler. Raises LedError where another is and renews its lease; where it doesn't,
    takes over."""
    store, first = session.store, None
    while True:
        try:
            return await store.lead(whoami(), store.lease)
        except LedError as error:
            if first is None:
                first = error.until
                text = f"{error} It is taken over if that process gives no sign of life."
                session.emit(Notice(text))
            elif error.until != first:
                raise
        await session.stop.sleep(BARRIER_WAIT)


async def _all_rounds(session: Session, epoch: int) -> History:
    """All rounds, one after the other: those that are there already, and those to come."""
    run, store = session.run, session.store
    session.emit(started := await _started(session))
    await _tidy(session)
    if session.people is not None:
        return await _by_people(session, session.people, epoch)
    history = results.begin(len(run.dataset), run.strategy, run.settings)
    repeats = Repeats()
    for round in history.to_come(len(started.planned)):
        before = history.standings.elo
        counts = await _planned(session, epoch, history, repeats)
        if counts.total:
            await judge_round(session, round)
        await results.fold_round(history, store, len(run.settings.panelists))
        if history.over:  # a round without matches says in the ledger that no more come
            session.emit(EndedEarly(round - 1))
            break
        known = None
        if round >= len(started.planned):  # of what was planned before, only the last matters
            known = await _known(session, history)
        dataset = run.dataset
        session.emit(
            results.round_rated(round, before, history.latest, dataset.ids, dataset.texts, known)
        )
        if known is not None and knowing.enough(history, known):
            await _ended(session, history, known)
            break
    return history


async def _by_people(session: Session, people: People, epoch: int) -> History:
    """All rounds, where people are asked, alone or beside models: planned before anything is answered,
    and then judged in any order, so that nobody waits for the last answer of a round. Raises
    StoppedError when a stop leaves some of it."""
    run, store, drained = session.run, session.store, False
    plan, repeats = results.begin(len(run.dataset), run.strategy, run.settings), Repeats()
    for _ in plan.to_come():
        planned = await _planned(session, epoch, plan, repeats)
        plan.add(comparisons.joined([]), planned.total)
    await people.begin(len(plan.verdicts))
    counts = await store.counts()
    if counts.left and session.page is not None:
        await session.page()
    session.emit(RoundStarted(1, counts))
    while counts.left or not await people.close():
        if session.stop.asked:
            raise StoppedError(f"stopped with {counts.left} jobs left")
        if session.judge.asked and counts.pending and not drained:
            await _drain(session, counts.left)
        else:
            session.emit(PeopleHere(people.present))
            await people.all_done(BARRIER_WAIT)
        before, counts = counts, await store.counts()
        drained = counts == before  # what is left is people's
        if not drained:
            session.emit(RoundStarted(1, counts))
    await people.finish()
    history, dataset = await results.replayed(run.folder.info(), store), run.dataset
    start = plan.standings.elo
    session.emit(results.round_rated(1, start, history.latest, dataset.ids, dataset.texts))
    return history


async def _known(session: Session, history: History) -> Certainty | None:
    """How well the order is known now, where that is worked out after each round."""
    settings, store = session.run.settings, session.store
    if not knowing.after_each_round(history, settings):
        return None
    counts, totals = await store.counts(), await store.totals()

    def worked_out(go_on: GoOn) -> Certainty | None:
        with history.going(go_on):
            return knowing.how_well(history, settings, counts, totals)

    round = len(history.verdicts)
    return await in_thread(worked_out, session.stop, f"stopped after round {round}")


async def _ended(session: Session, history: History, known: Certainty) -> None:
    """Write down that the run ended by its goal."""
    folder, goal = session.run.folder, history.goal.name
    ended = Ended(
        round=known.round,
        goal=goal,
        rho=known.rho,
        top_share=known.top_share,
    )
    info = await _info(session)
    if info.ended != ended:
        await asyncio.to_thread(folder.write_info, info.model_copy(update={"ended": ended}))
    session.emit(Notice(f"Enough is known after round {known.round}: {ended.sentence}."))
    session.emit(EndedEarly(known.round))


async def _planned(session: Session, epoch: int, history: History, repeats: Repeats) -> Counts:
    """The next round's jobs, planned if they aren't yet."""
    store, round = session.store, len(history.verdicts) + 1
    counts = await store.round_state(round)
    if counts is not None:
        return counts
    if session.stop.asked:
        raise StoppedError(f"stopped before round {round}")
    planned = await _questions(session, history)
    matches = await questions.numbered(planned, repeats, store, round)
    await store.plan_round(round, epoch, history.standings, matches)
    return await _state(session, round)


async def _questions(session: Session, history: History) -> Matches:
    """Those of the next round, in a thread: to choose them may take a fit."""

    def chosen(go_on: GoOn) -> Matches:
        with history.going(go_on):
            return questions.of_round(history, session.run.settings)

    round = len(history.verdicts) + 1
    return await in_thread(chosen, session.stop, f"stopped before round {round}")


async def first_questions(session: Session, number: int) -> Counts:
    """Have so many questions of the first round judged (all of it, if it has fewer), unless they are
    already: failed ones don't count, nor invalid ones where there is nothing else. Returns what became
    of the round; raises as `go_through`.
    """
    run = session.run
    async with leading(session) as epoch:
        session.emit(await _started(session))
        history = results.begin(len(run.dataset), run.strategy, run.settings)
        counts = await _planned(session, epoch, history, Repeats())
        to_ask = min(number - (counts.done and counts.done + counts.invalid), counts.left)
        if to_ask > 0:
            if await batch.out_of(session.store):
                raise RunError(
                    f"run {run.folder.id} has batches that are out: `judgeq resume "
                    f"{run.folder.argument}` collects them, and then no pilot is needed."
                )
            session.emit(RoundStarted(1, counts))
            await _drain(session, to_ask, most=to_ask)
            before, counts = counts.left, await _state(session, 1)
            if session.stop.asked and before - counts.left < to_ask:
                raise StoppedError("stopped")
    return counts


async def _started(session: Session) -> RunStarted:
    """The event of a session that begins. Rounds that people are asked are as one."""
    run, items, people = session.run, len(session.run.dataset), session.people
    planned, _ = await questions.planned(session.store)
    sizes = questions.sizes(run.strategy, run.settings, items)
    return RunStarted(
        run=run.folder.id,
        items=items,
        rounds=run.strategy.rounds if people is None else 1,
        judge=session.judge.name,
        planned=planned if people is None else [sum(planned, Counts())][: len(planned)],
        totals=await session.store.totals(),
        sizes=sizes if people is None else [sum(sizes)],
        people=run.settings.only_people,
    )


async def judge_round(session: Session, round: int, sleep: Sleep | None = None) -> None:
    """Let workers empty a planned round, and wait for the jobs that other processes' workers hold:
    those whose lease has lapsed are ours again, or, where we only plan, anybody's. Raises StoppedError
    when a stop leaves some of it."""
    counts, ours = await _state(session, round), session.run.settings.workers > 0
    session.emit(RoundStarted(round, counts))
    while counts.left and not session.stop.asked:
        if ours and await _batched(session, counts):
            await _in_batches(session)
            counts = await _state(session, round)
            continue
        if (ours and counts.pending) or (await session.store.reap() and ours):
            await _drain(session, counts.left)
            counts = await _state(session, round)
            continue
        with suppress(StoppedError):
            await (sleep or session.stop.sleep)(BARRIER_WAIT)
        before, counts = counts, await _state(session, round)
        if counts != before:  # others work on it
            session.emit(RoundStarted(round, counts))
    if counts.left:
        raise StoppedError(f"stopped in round {round}, with {counts.left} of its jobs left")


async def _batched(session: Session, counts: Counts) -> bool:
    """Whether it is batches that are to be sent, or waited for, now: also before single calls under a
    cap, for which what batches hold of it may not be left."""
    settings = session.run.settings
    if counts.pending and (settings.batch or settings.max_cost is None):
        return settings.batch
    return bool(await batch.out_of(session.store))


async def _in_batches(session: Session) -> None:
    """Have all that is pending answered by batches; or, where we ask live, wait for those that are out
    from before."""
    await session.judge.open()
    settings, batches = session.run.settings, batches_of(session)
    folder = batches.collecting.folder
    refuse_linked_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from error
    try:
        await batches.go_through(send=settings.batch, wait=settings.wait)
    finally:
        with suppress(OSError):  # what isn't empty is needed
            folder.rmdir()


async def _tidy(session: Session) -> None:
    """Remove the results of batches that a killed session left, though they are over."""
    folder = _results_of_batches(session)
    if folder.exists():
        tidy(folder, {one.name for one in await batch.out_of(session.store)})


def _results_of_batches(session: Session) -> Path:
    return session.run.folder.scores.parent / "batches"


def batches_of(session: Session) -> Batches:
    """The batches of a session's run."""
    folder = _results_of_batches(session)
    ours = (session.store, session.judge, session.stop, session.emit)
    budget = session.judge.asked[0].sender.budget
    collecting = Collecting(session.store, session.judge, session.emit, budget, folder)
    sending = Sending(*ours, collecting, session.run.settings.batch_size)
    return Batches(*ours, sending, collecting)


async def _drain(session: Session, jobs: int, most: float = math.inf) -> None:
    """Let our own workers take what is pending, which are so many jobs at most; `most` of them."""
    await session.judge.open()
    at_once = AT_ONCE if session.run.settings.models else AT_ONCE_UNPAID
    async with Queue(session.store, whoami(), session.stop, at_once=at_once, most=most) as queue:
        workers = min(session.run.settings.concurrency, jobs)
        await drain(queue, session.judge, session.stop, session.emit, workers)


async def _state(session: Session, round: int) -> Counts:
    counts = await session.store.round_state(round)
    if counts is None:
        raise RunError(
            f"{session.run.folder.shown} isn't there any more: it was deleted while this process worked "
            "on it."
        )
    return counts
