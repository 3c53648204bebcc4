"""A pilot: the first questions of a run are asked, so that an estimate knows what one takes.

They are the run's own: kept in its ledger, as all that is paid for, and in the cache. The run doesn't
ask them again, and a second pilot asks only what the first did not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from judgeq.engine import batch, results, runner
from judgeq.engine.assembly import Run, Session
from judgeq.engine.interrupts import Beside
from judgeq.engine.session import at_work
from judgeq.errors import BudgetError, JudgeError, RunError, StoppedError, UsageError
from judgeq.events import Emit, Notice, RoundStarted
from judgeq.strategies.repeats import Repeats
from judgeq.text import LEFT_OUT
from judgeq.types import Counts


@dataclass(frozen=True, slots=True)
class Pilot:
    """What a pilot of so many `questions` brought: the jobs of the first round by state, and the error
    that ended it early, if one did."""

    questions: int
    counts: Counts
    error: JudgeError | BudgetError | None = field(default=None, metadata=LEFT_OUT)
    JSON_KEYS: ClassVar = {"jobs": "counts"}


def ask(run: Run, questions: int, emit: Emit, *, beside: Beside | None = None) -> Pilot | None:
    """Have so many questions of the run judged, or all of its first round; None where that would tell
    nothing, since no model is asked. `beside` as of the run.

    What ends it early is raised if no question was judged, else returned. Raises UsageError, RunError
    and StoppedError as `session.execute` does.
    """
    if questions < 1:
        raise UsageError(f"A pilot of {questions} questions can't be: ask 1 or more.")
    if not run.settings.models:
        emit(Notice("No model is asked, so that there is nothing to pay: no pilot is needed."))
        return None

    number = run.strategy.before + 1

    async def first(session: Session) -> Pilot:
        store, error = session.store, None
        try:
            await ask_first(session)
        except (JudgeError, BudgetError) as raised:
            error = raised
        counts = await store.round_state(number) or Counts()
        if not counts.done:
            raise error or JudgeError(
                f"no question of the pilot brought a verdict ({counts.invalid:,} invalid, "
                f"{counts.failed:,} failed), so it gives no estimate."
            )
        return Pilot(min(questions, counts.total), counts, error)

    async def ask_first(session: Session) -> None:
        """Ask as many as aren't judged yet: failed ones don't count, nor invalid ones where there is
        nothing else."""
        store, epoch = session.store, await runner.lead(session)
        session.emit(await runner.start_event(session))
        history = await results.replayed(run.folder.info(), store, run.strategy.before)
        counts = await runner.plan(session, epoch, history, Repeats())
        to_ask = min(questions - (counts.done and counts.done + counts.invalid), counts.left)
        if to_ask <= 0:
            return
        if await batch.out_of(store):
            raise RunError(
                f"run {run.folder.id} has batches that are out: `judgeq resume "
                f"{run.folder.argument}` collects them, and then no pilot is needed."
            )
        session.emit(RoundStarted(number, counts))
        await runner.drain_ours(session, to_ask)
        after = await store.round_state(number) or counts
        if session.stop.asked and counts.left - after.left < to_ask:
            raise StoppedError("stopped")

    return at_work(run, emit, first, beside=beside)
