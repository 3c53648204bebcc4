"""How far runs are, as sections: one run, its workers, the list of all, and their batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from judgeq.engine.batch import Listed
from judgeq.engine.status import State, Unreadable
from judgeq.judge.backend import KEPT, Remote
from judgeq.store.crew import Crew, WorkerState
from judgeq.text import count, duration, money, rate, several
from judgeq.types import Batch, Totals
from judgeq.ui.lines import batch_state
from judgeq.ui.sections import Cell, Column, Section, numbers, stated, words
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
        columns = [
            *words("worker", at_most=40),
            *words("state", "seen", whole=True),
            *numbers("jobs done", "calls", "calls/s", "errors", "cost"),
        ]
        more = len(here) - WORKERS
        notes = [f"And {count(more)} more: --json lists all."] if more > 0 else []
        yield Section(columns=columns, rows=[_worker(one) for one in here[:WORKERS]], notes=notes)


def _worker(worker: WorkerState) -> tuple[str | int, ...]:
    on = f" on {several(worker.running, 'job')}" if worker.doing == "working" else ""
    seen = f"{duration(worker.now - worker.seen)} ago"
    numbers = (worker.done, worker.calls, rate(worker.rate), worker.errors)
    return worker.label, f"{worker.doing}{on}", seen, *numbers, money(worker.dollars)


def runs(states: Sequence[State | Unreadable]) -> Section:
    """The runs, a line each; the id outlasts all else."""
    named = any(isinstance(state, State) and state.info.settings.name for state in states)
    columns = [
        Column("run", whole=True),
        *([Column("name", whole=True, spare=1)] if named else []),
        Column("state", whole=True, spare=2),
        Column("ranked by", at_most=40, least=12, spare=3),
        Column("cost", right=True, whole=True, spare=4),
        Column("jobs done", right=True, whole=True, spare=5),
        Column("begun", whole=True, spare=6),
        Column("texts", right=True, whole=True, spare=7),
    ]
    return Section(columns=columns, rows=[_run(state, named) for state in states])


def _run(state: State | Unreadable, named: bool) -> Sequence[Cell]:
    if isinstance(state, Unreadable):
        return (state.run.id, *[""] * named, "unreadable", *[""] * 5)
    return (
        state.run.id,
        *[state.info.settings.name or ""] * named,
        state.word,
        state.info.feature,
        _price(state.totals),
        f"{count(state.counts.done)}/{count(state.counts.total)}",
        f"{state.info.created.astimezone():%Y-%m-%d %H:%M}",
        state.info.items,
    )


def _price(totals: Totals) -> str:
    """What is known of the cost, briefly."""
    if totals.unpriced and not totals.cost:
        return "unknown"
    return f"{'≥ ' if totals.unpriced or totals.unknown else ''}{money(totals.cost)}"


COLUMNS = (
    Column("run", at_most=40),
    Column("batch", whole=True, spare=2),
    Column("state"),
    Column("age", right=True, show=duration),
    Column("questions", right=True),
    Column("answered", right=True),
    Column("cost", right=True, show=money),
    Column("at most", right=True, spare=1),
)


def batches(listed: Sequence[Listed], now: float) -> Section:
    """The batches of all runs; `now` in seconds since the epoch."""
    if not listed:
        return Section(
            notes=["No run has batches. `judgeq run --batch` sends its rounds as batches."]
        )
    rows = [
        (
            one.run.id,
            one.batch.name,
            batch_state(one.batch),
            now - one.batch.made,
            one.batch.jobs,
            max(one.batch.done, one.batch.answered),
            one.batch.cost,
            _at_most(one.batch),
        )
        for one in listed
    ]
    out = sorted({one.run.argument for one in listed if one.batch.open and not one.running})
    notes = [
        f"No process waits for the batches of {run}: `judgeq resume {run}` collects them, `judgeq "
        f"runs batches cancel {run}` ends them."
        for run in out
    ]
    title = several(len(listed), "batch", "batches")
    late = deadlines([one.batch for one in listed], now)
    return Section(title, rows=rows, columns=COLUMNS, notes=notes, warnings=late)


def cancelled(batches: Sequence[tuple[Batch, Remote]], run: str) -> Section:
    """Those that providers were asked to cancel."""
    if not batches:
        return Section(notes=[f"run {run} has no batch that is out."])
    rows = [(batch.name, batch.jobs, remote.status) for batch, remote in batches]
    columns = (Column("batch", whole=True), Column("questions", right=True), Column("state"))
    note = (
        f"Answers so far are billed: `judgeq resume {run}` collects them, and asks the rest again."
    )
    return Section(columns=columns, rows=rows, notes=[note])


def _at_most(batch: Batch) -> str:
    """What it may cost in all, while that isn't certain."""
    if batch.at_risk is None:
        return "unknown"
    return money(batch.cost + batch.at_risk) if batch.at_risk else ""
