"""A pilot: the first questions of a run are asked, so that an estimate knows what one takes.

They are the run's own: kept in its ledger, as all that is paid for, and in the cache. The run doesn't
ask them again, and a second pilot asks only what the first did not. What answers took says within
which range others lie.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from judgeq.engine.assembly import Run, Session
from judgeq.engine.runner import first_questions
from judgeq.engine.session import Emit, at_work
from judgeq.engine.stopping import Beside, Interrupts
from judgeq.errors import BudgetError, JudgeError, StoppedError, UsageError
from judgeq.events import Notice
from judgeq.json_marks import INLINE, LEFT_OUT
from judgeq.rating import student
from judgeq.types import Counts, Totals, Usage

FAR = 4
"""The factor by which a mean is said to be off at most."""


@dataclass(frozen=True, slots=True)
class Range:
    """From `low` to `high`, and what is `expected` where answers tell."""

    low: float
    high: float
    expected: float | None = None

    def __mul__(self, n: float) -> Range:
        expected = None if self.expected is None else self.expected * n
        return Range(self.low * n, self.high * n, expected)

    def __add__(self, other: Range) -> Range:
        known = None not in (self.expected, other.expected)
        expected = (self.expected or 0.0) + (other.expected or 0.0) if known else None
        return Range(self.low + other.low, self.high + other.high, expected)


NOTHING = Range(0.0, 0.0, 0.0)


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
        limiters = {judge.sender.limiter for judge in session.judge.asked}
        limits = (
            _all_of(limit.rpm for limit in limiters),
            _all_of(limit.tpm for limit in limiters),
        )
        return Pilot(asked, counts, took, *limits, error)

    try:
        return at_work(run, emit, first, beside=beside, interrupts=interrupts)
    except StoppedError as error:
        raise StoppedError(
            f"{error}. What was answered is kept in run {run.folder.id}, and not asked again; `judgeq "
            f"status {run.folder.argument}` says what it cost."
        ) from error


def _all_of(limits: Iterable[float | None]) -> float | None:
    """What may be asked of all models in a minute; None where one has no limit."""
    known = list(limits)
    return None if None in known else sum(filter(None, known))


def _difference(new: Totals, old: Totals) -> Totals:
    """What was spent between the two."""

    def less(new: Any, old: Any) -> Any:
        if isinstance(new, Usage):
            return Usage(*map(less, new, old))
        return None if None in (new, old) else max(0, new - old)

    return Totals(*(less(getattr(new, one.name), getattr(old, one.name)) for one in fields(Totals)))


def plausible(values: Sequence[float], to_come: int, least: float) -> Range:
    """What the mean of so many values to come may be: within a 95 % prediction interval, and at least
    the share `least` to either side, for later rounds ask about more similar texts.

    The interval is by factors, since a few questions may take many times what most do, and seldom are
    among the first. As if one value more had been seen, a whole mean off: a few that happen to be
    similar, or one alone, don't tell how far others may lie.
    """
    n, mean = len(values), mean_of(values)
    if not mean:
        return NOTHING
    off = sum((value / mean - 1) ** 2 for value in values) + 1
    margin = student.quantile(0.95, n) * math.sqrt(off / n * (1 / n + 1 / max(1, to_come)))
    factor = math.exp(min(margin, math.log(FAR)))
    return Range(mean * min(1 / factor, 1 - least), mean * max(factor, 1 + least), mean)


def mean_of(values: Sequence[float]) -> float:
    """The mean; 0 of none."""
    return sum(values) / len(values) if values else 0.0
