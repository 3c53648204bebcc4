"""The batches of runs, as sections."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from judgeq.engine.batch import Listed
from judgeq.judge.backend import KEPT, Remote
from judgeq.text import duration, money, several
from judgeq.types import Batch
from judgeq.ui.sections import Column, Section
from judgeq.ui.text import batch_state

DAY = 86_400.0
SOON = 10
"""Days before a batch's results are deleted from which on that is said."""
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
        f"Nobody collects the batches of {run}: `judgeq resume {run}` does; `judgeq "
        f"batches cancel {run}` ends them."
        for run in out
    ]
    title = several(len(listed), "batch", "batches")
    late = deadlines([one.batch for one in listed], now)
    return Section(title, rows=rows, columns=COLUMNS, notes=notes, warnings=late)


def deadlines(batches: Sequence[Batch], now: float) -> list[str]:
    """A warning for each batch whose results nobody collected, and that are deleted soon."""
    warnings = []
    for batch in batches:
        until = batch.made + KEPT.get(batch.api, min(KEPT.values())) * DAY
        if batch.open and now > until - SOON * DAY:
            day = f"{datetime.fromtimestamp(until, UTC).astimezone():%Y-%m-%d}"
            when = f"are deleted by its provider on about {day}" if now < until else "may be gone"
            warnings.append(f"The results of batch {batch.name} {when}: go on with its run before.")
    return warnings


def cancelled(batches: Sequence[tuple[Batch, Remote]], run: str) -> Section:
    """Those that providers were asked to cancel."""
    if not batches:
        return Section(notes=[f"run {run} has no batch that is out."])
    rows = [(batch.name, batch.jobs, remote.status) for batch, remote in batches]
    columns = (Column("batch", whole=True), Column("questions", right=True), Column("state"))
    note = (
        f"What they had answered by now is billed: `judgeq resume {run}` collects it, and asks the rest "
        "again."
    )
    return Section(columns=columns, rows=rows, notes=[note])


def _at_most(batch: Batch) -> str:
    """What it may cost in all, while that isn't certain."""
    if batch.at_risk is None:
        return "unknown"
    return money(batch.cost + batch.at_risk) if batch.at_risk else ""
