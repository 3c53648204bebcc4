"""A pilot: the first questions of a run are asked, so that an estimate knows what one takes.

They are the run's own: kept in its ledger, as all that is paid for, and in the cache. The run doesn't
ask them again, and a second pilot asks only what the first did not.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from judgeq.engine.assembly import Run, Session
from judgeq.engine.interrupts import Beside, Interrupts
from judgeq.engine.runner import first_questions
from judgeq.engine.session import at_work
from judgeq.errors import BudgetError, JudgeError, StoppedError, UsageError
from judgeq.events import Emit, Notice
from judgeq.text import INLINE, LEFT_OUT
from judgeq.types import Counts, Totals, Usage


@dataclass(frozen=True, slots=True)
class Pilot:
    """What a pilot of so many `questions` brought."""

    questions: int
    counts: Counts  # the jobs of the first round
    totals: Totals = field(metadata=INLINE)  # what this pilot itself took
    requests_a_minute: float | None  # the limits in force at its end
    tokens_a_minute: float | None
    error: JudgeError | BudgetError | None = field(
        default=None, metadata=LEFT_OUT
    )  # ended it early
    JSON_KEYS: ClassVar = {"jobs": "counts"}


def ask(
    run: Run,
    questions: int,
    emit: Emit,
    *,
    new: bool = False,
    beside: Beside | None = None,
    interrupts: Interrupts | None = None,
) -> Pilot | None:
    """Have so many questions of the run judged, or all of its first round; None where that would tell
    nothing, since no model is asked. `new`, `beside` and `interrupts` as of the run.

    What ends it early is raised if no question was judged, else returned. Raises UsageError, RunError
    and StoppedError as `session.execute` does.
    """
    settings = run.settings
    if questions < 1:
        raise UsageError(f"A pilot of {questions} questions can't be: ask 1 or more.")
    if not settings.models:
        emit(Notice("No model is asked, so that there is nothing to pay: no pilot is needed."))
        return None
    if new and not settings.cache:
        raise UsageError(
            "--pilot with --new and --no-cache: the next --new would pay for the same answers again. "
            "Leave one of the two out."
        )

    async def first(session: Session) -> Pilot:
        store, error = session.store, None
        before = await store.totals()
        try:
            counts = await first_questions(session, questions)
        except (JudgeError, BudgetError) as raised:
            error, counts = raised, await store.round_state(1) or Counts()
        if not counts.done:
            failure = await store.last_failure()
            raise error or JudgeError(
                f"no question of the pilot brought a verdict ({counts.invalid:,} invalid, "
                f"{counts.failed:,} failed), so it gives no estimate."
                + ("" if failure is None else f" The last failure: {failure.error}")
            )
        asked, took = min(questions, counts.total), _difference(await store.totals(), before)
        limiters = {judge.limiter for judge in session.judge.asked}
        limits = [limit.rpm for limit in limiters], [limit.tpm for limit in limiters]
        # No limit of all models in a minute where one has none.
        rpm, tpm = (None if None in known else sum(filter(None, known)) for known in limits)
        return Pilot(asked, counts, took, rpm, tpm, error)

    try:
        return at_work(run, emit, first, beside=beside, interrupts=interrupts)
    except StoppedError as error:
        raise StoppedError(
            f"{error}. What was answered is kept in run {run.folder.id}, and not asked again; `judgeq "
            f"status {run.folder.argument}` says what it cost."
        ) from error


def _difference(new: Totals, old: Totals) -> Totals:
    """What was spent between the two."""

    def less(new: Any, old: Any) -> Any:
        if isinstance(new, Usage):
            return Usage(*map(less, new, old))
        return None if None in (new, old) else max(0, new - old)

    return Totals(*(less(getattr(new, one.name), getattr(old, one.name)) for one in fields(Totals)))
