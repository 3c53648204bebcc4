"""A pilot: the first questions of a run are asked, so that an estimate knows what one takes.

They are the run's own: kept in its ledger, as all that is paid for, and in the cache. The run doesn't
ask them again, and a second pilot asks only what the first did not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from judgeq.engine import rounds, runner
from judgeq.engine.assembly import Run, Session, out_of
from judgeq.engine.interrupts import Beside
from judgeq.engine.queue import drain
from judgeq.engine.session import at_work
from judgeq.errors import BudgetError, JudgeError, RunError, StoppedError, UsageError
from judgeq.events import Emit, Notice, RoundStarted
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


def ask(
    run: Run,
    questions: int,
    emit: Emit,
    *,
    beside: Beside | None = None,
) -> Pilot | None:
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

    async def first(session: Session) -> Pilot:
        error: JudgeError | BudgetError | None = None
        try:
            await _judge_first(session, questions)
        except (JudgeError, BudgetError) as raised:
            error = raised
        counts = await session.store.round_state(run.strategy.before + 1) or Counts()
        if not counts.done:
            raise error or JudgeError(
                f"no question of the pilot brought a verdict ({counts.invalid:,} invalid, "
                f"{counts.failed:,} failed), so it gives no estimate."
            )
        return Pilot(min(questions, counts.total), counts, error)

    return at_work(run, emit, first, beside=beside)


async def _judge_first(session: Session, questions: int) -> None:
    """Have so many questions of the first round judged, unless they are already: failed ones don't
    count, nor invalid ones where there is nothing else."""
    run = session.run
    first = run.strategy.before + 1
    epoch, history = await runner.lead(session), runner.begin(run)
    session.emit(await runner.start_event(session))
    for _ in range(first - 1):
        await rounds.fold(history, session.store, len(run.judges))
    counts = await runner.plan(session, epoch, history)
    to_ask = min(questions - (counts.done and counts.done + counts.invalid), counts.left)
    if to_ask <= 0:
        return
    if await out_of(session.store):
        raise RunError(
            f"run {run.folder.id} has batches that are out: `judgeq resume "
            f"{run.folder.argument}` collects them, and then no pilot is needed."
        )
    session.emit(RoundStarted(first, counts))
    await drain(session, to_ask)
    after = await session.store.round_state(first) or counts
    if session.stop.asked and counts.left - after.left < to_ask:
        raise StoppedError("stopped")
