"""The story of a run: rounds of questions, Elo after each, Plackett-Luce at the end.

Completion order never matters: matches have canonical numbers, Elo folds verdicts in their order,
and randomness is drawn by name. So a run that was killed any number of times ends as one that was
not, and resuming it is nothing but telling the story from the beginning: rounds that are planned are not
planned again, jobs that are done are not asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from judgeq import trust
from judgeq.config import Settings, as_flags
from judgeq.engine import batch, results, rounds, unread
from judgeq.engine.assembly import Run, Session
from judgeq.engine.batch_jobs import tidy
from judgeq.engine.interrupts import background, in_thread
from judgeq.engine.queue import drain
from judgeq.errors import BudgetError, JudgeError, LedError, RunError, StoppedError
from judgeq.events import Certainty, EndedEarly, Notice, PeopleHere, RoundStarted, RunStarted
from judgeq.judge.budget import rounded_down
from judgeq.people.people import People
from judgeq.rating import GoOn, comparisons
from judgeq.run_places import RunInfo, whoami
from judgeq.run_places.info import Ended
from judgeq.strategies import History
from judgeq.text import several
from judgeq.types import Counts, Floats, Sleep

T = TypeVar("T")
BARRIER_WAIT = 1.0
"""Seconds between two looks at jobs that other workers hold, or at who leads."""
AHEAD = 10_000
"""Jobs that are planned before they are wanted, where that can be."""
SOON_COUNTED = 1_000
"""So few open jobs are counted at once: they are looked at more often."""


async def go_through(session: Session) -> results.Result:
    """Take the run from wherever it is to its scores.

    Raises StoppedError when a stop was asked for (also while the ratings are made), and JudgeError
    when the judge can't go on; all that was answered is kept, and it may be called again.
    """
    run, store = session.run, session.store
    epoch = await lead(session)
    started = await start_event(session)
    session.emit(started)
    tidy(run)
    if session.people is not None:
        history = await _by_people(session, session.people, epoch)
    else:
        history = await _all_rounds(session, epoch, run.strategy.before + len(started.planned))
    info = await _info(session)
    if not rounds.own_verdicts(history):
        counts = await rounds.own_counts(store, info)
        problems = unread.problem_sentence(await unread.reply_problems(store))
        raise JudgeError(
            f"none of the {counts.total:,} jobs brought a verdict ({counts.invalid:,} invalid, "
            f"{counts.failed:,} failed). {problems}{' ' if problems else ''}"
            "--retry-failed asks them again; `judgeq export --table calls --replies` shows replies."
        )
    about = run.folder, info, store, history, run.settings
    return await results.rate(*about, session.stop, run.items)


async def lead(session: Session) -> int:
    """Become the run's scheduler, and set its cap; the epoch. Takes over from one that doesn't renew
    its lease. Raises LedError where another does, and that isn't waited for."""
    store, first, settings = session.store, None, session.run.settings
    while True:
        try:
            epoch = await store.lead(whoami(), store.lease)
            if store.keeper is not None:
                cap = settings.max_cost
                await store.keeper.set_cap(None if cap is None else rounded_down(cap))
            return epoch
        except LedError as error:
            if first is None:
                first = error.until
                ends = (
                    "when it ends; if it is dead" if settings.standby else "if that process is dead"
                )
                session.emit(
                    Notice(
                        f"{error} This `judgeq run` takes over {ends}, within {store.lease:.0f} s.",
                        needed=settings.standby,
                    )
                )
            elif error.until != first and not settings.standby:
                worker = f"`{session.run.folder.command('worker')}`"
                raise LedError(
                    f"{error} To help it, start {worker}; to wait until it ends, add --standby.",
                    until=error.until,
                ) from error
        await session.stop.sleep(BARRIER_WAIT)


async def start_event(session: Session) -> RunStarted:
    """The event of a session that begins. Rounds that people are asked are as one."""
    run, strategy = session.run, session.run.strategy
    planned, _ = await rounds.planned(session.store, strategy.before)
    # Where items leave, how many questions there will be depends on who does.
    sizes = [] if strategy.prunes else rounds.sizes(run.settings, strategy, run.dataset.sizes)
    if session.people is not None:
        planned, sizes = [sum(planned, Counts())][: len(planned)], [sum(sizes)]
    return RunStarted(
        run=run.folder.id,
        items=len(run.dataset) - strategy.first_new,
        rounds=1 if session.people is not None else run.rounds,
        judge=session.judge.name,
        planned=planned,
        totals=await session.store.totals(),
        sizes=sizes,
        people=run.settings.only_people,
    )


async def _info(session: Session) -> RunInfo:
    """What the run is; while its store is away that is waited for."""
    return await session.store.again(partial(asyncio.to_thread, session.run.folder.info))


# All rounds


async def _all_rounds(session: Session, epoch: int, planned: int) -> History:
    """All rounds, one after the other: those that are `planned` already, and those to come.

    Nobody waits while a round is rated: that is done while the next one is judged, unless a goal may
    make it needless.
    """
    run, store, unrated = session.run, session.store, None
    history, ahead = begin(run), begin(run)
    plans_ahead = not (store.keeper is None or run.strategy.adaptive or history.goal)
    waits_for_workers = run.settings.workers == 0
    for round in history.to_come(planned):
        counts, to_do = await plan(session, epoch, history), 0
        # One round after this at least, and so many jobs that nobody who works on the run waits for a
        # look at them.
        for next_round in ahead.to_come() if plans_ahead else ():
            if next_round > round + 1 and to_do > AHEAD:
                break
            to_do += (await _plan_unanswered(session, epoch, ahead)).left
        if counts.left and waits_for_workers:
            waits_for_workers = False
            session.emit(Notice(_call_for_workers(session, counts), needed=True))
        async with background(_rate_round(session, history, unrated, planned)) as rated:
            if counts.total:
                await judge_round(session, round)
            await rated
        unrated = history.standings.elo
        await rounds.fold(history, store, len(run.judges))
        if history.over:  # a round without matches says in the ledger that no more come
            session.emit(EndedEarly(round - 1 - run.strategy.before))
            return history
        if history.goal:
            known = await _rate_round(session, history, unrated, planned)
            unrated = None
            if known is not None:
                await _end_early(session, history, known)
                return history
    await _rate_round(session, history, unrated, planned)
    return history


def begin(run: Run) -> History:
    """The history of a run before its first round."""
    return rounds.begin(len(run.dataset), run.strategy, run.settings, run.dataset.groups)


async def plan(session: Session, epoch: int, history: History) -> Counts:
    """The next round's jobs, planned if they aren't yet."""
    store, round, repeats = session.store, len(history.verdicts) + 1, history.repeats
    counts = await store.round_state(round)
    if counts is not None:
        return counts
    if session.stop.asked:
        raise StoppedError(f"stopped before round {round}")
    matches = await _fitting(session, history, rounds.questions)
    while repeats.rounds < round - 1:
        repeats.add(await store.matches(repeats.rounds + 1))
    matches = replace(matches, repeats=repeats.add(matches))
    await store.plan_round(round, epoch, history.standings.active, matches)
    return await _state(session, round)


async def _plan_unanswered(session: Session, epoch: int, ahead: History) -> Counts:
    """Plan the next round as if nothing was answered before; its jobs."""
    counts = await plan(session, epoch, ahead)
    ahead.add(comparisons.joined([]), counts.total)
    return counts


async def _rate_round(
    session: Session, history: History, before: Floats | None, planned: int
) -> Certainty | None:
    """Report what the last round came to, which took the ratings from `before` (None: it is reported);
    of rounds after those that were `planned` when the session began, how well the order is known. That,
    if it is enough to end."""
    if before is None:
        return None
    run, round, known = session.run, len(history.verdicts), None
    if round >= planned and rounds.after_each_round(history, run.settings):
        how_well = partial(rounds.how_well, totals=await session.store.totals())
        known = await _fitting(session, history, how_well)
    session.emit(results.round_rated(run.dataset, round, before, history.latest, known))
    # Only items that were in two rankings say how far the judge contradicts itself.
    if known is None or known.rho is None or not history.twice:
        return None
    return known if history.goal.reached(known.rho, known.top_share) else None


async def _fitting(session: Session, history: History, work: Callable[[History, Settings], T]) -> T:
    """What `work` returns, in a thread; a stop ends the fits of the history that it takes."""

    def going(go_on: GoOn) -> T:
        with history.going(go_on):
            return work(history, session.run.settings)

    return await in_thread(going, session.stop, f"stopped after round {len(history.verdicts)}")


async def _end_early(session: Session, history: History, known: Certainty) -> None:
    """Write down that the run ended by its goal: no later session has more rounds, unless they are
    asked for."""
    run, settings, info = session.run, session.run.settings, await _info(session)
    if known.rho is None:
        raise ValueError("a run that isn't known to be reliable doesn't end early")
    ended = Ended(
        round=known.round, goal=history.goal.name, rho=known.rho, top_share=known.top_share
    )
    if info.ended != ended:
        changes: dict[str, object] = {"ended": ended}
        if settings.total_rounds is not None:
            begun = settings.strategy_at_start().rounds
            total = {"total_rounds": ended.round if ended.round > begun else None}
            own, kept = (one.model_copy(update=total) for one in (settings, info.settings))
            trust.remember(run.folder, info.fingerprint, own)
            changes |= {"rounds": max(ended.round, begun), "settings": kept}
        await asyncio.to_thread(run.folder.write_info, info.model_copy(update=changes))
    session.emit(Notice(f"Enough is known after round {known.round}: {ended.sentence}."))
    session.emit(EndedEarly(known.round))


async def _by_people(session: Session, people: People, epoch: int) -> History:
    """All rounds, where people are asked, alone or beside models: planned before anything is answered,
    and then judged in any order, so that nobody waits for the last answer of a round. Raises
    StoppedError when a stop leaves some of it."""
    run, store, drained = session.run, session.store, False
    ahead, first = begin(run), run.strategy.before + 1
    for _ in ahead.to_come():
        await _plan_unanswered(session, epoch, ahead)
    info = await _info(session)
    counts = await rounds.own_counts(store, info)
    async with session.page(people) if session.page and counts.left else nullcontext():
        session.emit(RoundStarted(first, counts))
        while counts.left or not await people.close():
            if session.stop.asked:
                raise StoppedError(f"stopped with {counts.left} jobs left")
            if session.judge.asked and counts.pending and not drained:
                await drain(session, counts.left)
            else:
                session.emit(PeopleHere(people.present))
                await people.all_done(BARRIER_WAIT)
            before, counts = counts, await rounds.own_counts(store, info)
            drained = counts == before  # what is left is people's
            if not drained:
                session.emit(RoundStarted(first, counts))
        await people.finish()
        history = await results.replayed(info, store)
    session.emit(results.round_rated(run.dataset, first, ahead.standings.elo, history.latest))
    return history


# One round


async def judge_round(session: Session, round: int, sleep: Sleep | None = None) -> None:
    """Let workers empty a planned round, and wait for the jobs that other processes' workers hold:
    those whose lease has lapsed are ours again, or, where we only plan, anybody's. Raises StoppedError
    when a stop leaves some of it, and BudgetError where nobody may spend what the rest costs."""
    counts, ours = await _state(session, round), session.run.settings.workers > 0
    session.emit(RoundStarted(round, counts))
    while counts.left and not session.stop.asked:
        if ours and await batch.needed(session, counts):
            await batch.ask(session)
            counts = await _state(session, round)
            continue
        freed = counts.pending or await session.store.reap()
        if ours and (freed or await session.store.take_unbegun()):
            await drain(session, counts.left)
            counts = await _state(session, round)
            continue
        with suppress(StoppedError):
            wait = BARRIER_WAIT if counts.left > SOON_COUNTED else BARRIER_WAIT / 4
            await (sleep or session.stop.sleep)(wait)
        before, counts = counts, await _state(session, round)
        if counts != before:  # others work on it
            session.emit(RoundStarted(round, counts))
        elif counts.pending and not counts.running and not ours:
            await _check_cap(session, round)
    if counts.left:
        raise StoppedError(f"stopped in round {round}, with {counts.left} of its jobs left")


async def _state(session: Session, round: int) -> Counts:
    counts = await session.store.round_state(round)
    if counts is None:
        raise RunError(
            f"{session.run.folder.label} isn't there any more: it was deleted while this process worked "
            "on it."
        )
    return counts


def _call_for_workers(session: Session, counts: Counts) -> str:
    settings = session.run.settings
    flags = [*as_flags("judge", settings.models)] if settings.models else []
    if settings.base_url:
        flags += as_flags("base_url", settings.base_url)
    return (
        f"This process only plans rounds, and waits for workers to do {several(counts.left, 'job')}. "
        f"Start them: `{session.run.folder.command('worker', *flags)}`."
    )


async def _check_cap(session: Session, round: int) -> None:
    """Raise BudgetError where what is left of --max-cost doesn't pay the next call: then no worker takes
    it, however long this process waits."""
    crew, left = await session.store.crew(), await session.store.left(round)
    if crew is None or crew.cap.max_cost is None or not left:
        return
    judge = session.judge.of(left[0])
    bound = judge.backend.prepare(judge.questions.request(left[0])).bound or 0.0
    rest = crew.cap.max_cost - crew.cap.spent - crew.cap.at_risk
    if bound > rest:
        raise BudgetError(
            f"no worker may go on under --max-cost {crew.cap.max_cost:,.6g}: the next call could cost "
            f"up to ${bound:,.3g}, and ${max(0.0, rest):,.3g} is left."
        )
