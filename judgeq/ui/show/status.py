"""How far a run is, as sections, with its workers and its batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from judgeq.engine.status import State
from judgeq.engine.unread import problem_sentence
from judgeq.escaping import plain
from judgeq.judge.backend import DOUBT_SECONDS, KEPT, OVERDUE_SECONDS
from judgeq.store.protocol import Crew, WorkerState
from judgeq.text import count, duration, local_time, money, rate, several
from judgeq.types import Batch
from judgeq.ui.progress import batch_state
from judgeq.ui.sections import Column, Field, Section, stated, table
from judgeq.ui.show.run import ends, of_models, order, rating

WORKERS = 30
"""So many workers are listed: those that work, the busiest first."""
DAY = 86_400.0
SOON = 10
"""A warning is shown so many days before a batch's results are deleted."""


def status(state: State) -> Iterator[Section]:
    """How far a run is."""
    result, failure = state.result, state.failure
    yield stated(
        "status",
        run=state,
        batch_state=batch_state,
        totals=state.totals if result is None else of_models(replace(result, totals=state.totals)),
        scores=() if result is None else rating(result).facts,
        reliability=order(state),
        problems=problem_sentence,
        late=[*deadlines(state.batches, state.at), *unsettled(state.batches, state.at)],
        failed_at=failure and local_time(failure.at, "%Y-%m-%d %H:%M:%S"),
    )
    if state.crew is not None:
        yield from crew(state.crew)
    if result is not None:
        yield ends(result.scores)
    if (what_next := stated("next", run=state)).notes:
        yield what_next


def deadlines(batches: Sequence[Batch], now: float) -> list[str]:
    """A warning for each batch whose results nobody collected, and that are deleted soon."""
    warnings = []
    for batch in batches:
        until = batch.made + KEPT.get(batch.api, min(KEPT.values())) * DAY
        if batch.open and now > until - SOON * DAY:
            on = f"are deleted by its provider on about {local_time(until, '%Y-%m-%d')}"
            when = on if now < until else "may be gone"
            warnings.append(f"The results of batch {batch.name} {when}: resume its run before.")
    return warnings


def unsettled(batches: Sequence[Batch], now: float) -> list[str]:
    """Return a warning for each batch that is in doubt, or should have ended by now."""
    warnings = []
    for batch in batches:
        if batch.open and batch.doubt is not None:
            since = batch.doubted_since or 0.0
            warnings.append(
                f"Batch {batch.name} is in doubt since {local_time(since)}, until "
                f"{local_time(since + DOUBT_SECONDS)} at least: {plain(batch.error or '', 300)} Its "
                "run asks about it again; nothing of it is sent again before."
            )
        elif batch.deadline is not None and now > batch.deadline + OVERDUE_SECONDS:
            warnings.append(
                f"Batch {batch.name} should have ended by {local_time(batch.deadline)}: resume its run "
                "to look at it, or cancel it (`judgeq runs batches cancel`)."
            )
    return warnings


def crew(crew: Crew) -> Iterator[Section]:
    """Who leads a run of a store, its workers, and the cap that they share."""
    here = [worker for worker in crew.workers if not worker.over]
    here.sort(key=lambda worker: (-worker.running, -worker.rate, worker.number))
    yield stated("crew", crew=crew, here=here)
    if here:
        more = len(here) - WORKERS
        notes = [f"And {count(more)} more: --json lists all."] if more > 0 else []
        yield table(here[:WORKERS], OF_WORKERS, notes=notes)


def _doing(worker: WorkerState) -> str:
    on = f" on {several(worker.running, 'job')}" if worker.doing == "working" else ""
    return f"{worker.doing}{on}"


OF_WORKERS: Sequence[Field] = (
    (Column("worker", at_most=40), "label"),
    (Column("state"), _doing),
    (Column("seen"), lambda worker: f"{duration(worker.now - worker.seen)} ago"),
    (Column("jobs done", right=True), "done"),
    (Column("calls", right=True), "calls"),
    (Column("calls/s", right=True, show=rate), "rate"),
    (Column("errors", right=True), "errors"),
    (Column("cost", right=True, show=money), "dollars"),
)
