"""How far runs are, as sections: one run, its workers, the list of all, and their batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from judgeq.engine.status import Listed, State, Unreadable
from judgeq.judge.backend import KEPT, Remote
from judgeq.store.protocol import Crew, WorkerState
from judgeq.text import count, duration, money, rate, several
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
        late=deadlines(state.batches, state.at),
        failed_at=failure and _local(failure.at, "%Y-%m-%d %H:%M:%S"),
    )
    if state.crew is not None:
        yield from crew(state.crew)
    if result is not None:
        yield ends(result.scores)
    if (what_next := stated("next", run=state)).notes:
        yield what_next


def _local(at: float, form: str) -> str:
    return datetime.fromtimestamp(at, UTC).astimezone().strftime(form)


def deadlines(batches: Sequence[Batch], now: float) -> list[str]:
    """A warning for each batch whose results nobody collected, and that are deleted soon."""
    warnings = []
    for batch in batches:
        until = batch.made + KEPT.get(batch.api, min(KEPT.values())) * DAY
        if batch.open and now > until - SOON * DAY:
            on = f"are deleted by its provider on about {_local(until, '%Y-%m-%d')}"
            when = on if now < until else "may be gone"
            warnings.append(f"The results of batch {batch.name} {when}: resume its run before.")
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


def runs(states: Sequence[State | Unreadable]) -> Section:
    """The runs, a line each; the id outlasts all else."""
    unreadable = [state for state in states if isinstance(state, Unreadable)]
    readable = [state for state in states if state not in unreadable]
    notes = [f"{state.run.id}: unreadable" for state in unreadable]
    return table(readable, OF_RUNS, notes=notes) if readable else Section(notes=notes)


def _price(state: State) -> str:
    """What is known of the cost, briefly."""
    totals = state.totals
    if totals.unpriced and not totals.cost:
        return "unknown"
    return f"{'≥ ' if totals.unpriced or totals.unknown else ''}{money(totals.cost)}"


OF_RUNS: Sequence[Field] = (
    (Column("run", whole=True), "run.id"),
    (Column("name", spare=True), "info.settings.name"),
    (Column("state", spare=True), "word"),
    (Column("ranked by", at_most=40, least=12, spare=True), "info.feature"),
    (Column("cost", right=True, spare=True), _price),
    (
        Column("jobs done", right=True, spare=True),
        lambda state: f"{count(state.counts.done)}/{count(state.counts.total)}",
    ),
    (
        Column("begun", spare=True),
        lambda state: f"{state.info.created.astimezone():%Y-%m-%d %H:%M}",
    ),
    (Column("texts", right=True, spare=True), "info.items"),
)


def batches(listed: Sequence[Listed], now: float) -> Section:
    """The batches of all runs; `now` in seconds since the epoch."""
    if not listed:
        note = "No run has batches. `judgeq run --batch` sends its rounds as batches."
        return Section(notes=[note])
    fields: Sequence[Field] = (
        (Column("run", at_most=40), "run.id"),
        (Column("batch", spare=True), "batch.name"),
        (Column("state"), lambda one: batch_state(one.batch)),
        (Column("age", right=True, show=duration), lambda one: now - one.batch.made),
        (Column("questions", right=True), "batch.jobs"),
        (Column("answered", right=True), lambda one: max(one.batch.done, one.batch.answered)),
        (Column("cost", right=True, show=money), "batch.cost"),
        (Column("at most", right=True, spare=True), lambda one: _at_most(one.batch)),
    )
    out = sorted({one.run.argument for one in listed if one.batch.open and not one.running})
    notes = [
        f"No process waits for the batches of {run}: `judgeq resume {run}` collects them, `judgeq "
        f"runs batches cancel {run}` ends them."
        for run in out
    ]
    title = several(len(listed), "batch", "batches")
    late = deadlines([one.batch for one in listed], now)
    return table(listed, fields, title, notes=notes, warnings=late)


def cancelled(batches: Sequence[tuple[Batch, Remote]], run: str) -> Section:
    """Those that providers were asked to cancel."""
    names = ", ".join(batch.name for batch, _ in batches)
    note = (
        f"Answers so far are billed: `judgeq resume {run}` collects them, and asks the rest again."
    )
    return Section(notes=[f"Asked to cancel: {names}.", note] if names else ["No batch is out."])


def _at_most(batch: Batch) -> str:
    """What it may cost in all, while that isn't certain."""
    if batch.at_risk is None:
        return "unknown"
    return money(batch.cost + batch.at_risk) if batch.at_risk else ""
