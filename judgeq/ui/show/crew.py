"""Who works on a store's run, and what they share, as sections."""

from __future__ import annotations

from collections.abc import Iterator

from judgeq.store.crew import Crew, WorkerState
from judgeq.text import count, duration, money, rate, several
from judgeq.ui.sections import Section, numbers, words

AT_MOST = 30
"""So many workers are listed: those that are at it, the busiest first."""


def crew(crew: Crew) -> Iterator[Section]:
    """Who leads, the workers, the cap."""
    here = [worker for worker in crew.workers if not worker.over]
    yield Section(facts=list(_facts(crew, len(here))))
    if here:
        here.sort(key=lambda worker: (-worker.running, -worker.rate, worker.number))
        more = len(here) - AT_MOST
        yield Section(
            columns=[
                *words("worker", at_most=40),
                *words("does", "seen", whole=True),
                *numbers("jobs done", "calls", "calls/s", "errors", "cost"),
            ],
            rows=[_worker(worker) for worker in here[:AT_MOST]],
            notes=[f"And {count(more)} more: --json lists all."] if more > 0 else [],
        )


def _facts(crew: Crew, here: int) -> Iterator[tuple[str, str]]:
    leader, cap = crew.leader, crew.cap
    if leader is not None:
        yield "led by", leader.name if leader.leads else f"nobody now; last by {leader.name}"
    left = len(crew.workers) - here
    gone = f", {count(left)} that left or were lost" if left else ""
    speed = f"; {rate(crew.rate)} calls a second in the last minute" if here else ""
    yield "workers", f"{count(here)}{gone}{speed}"
    if cap.max_cost is not None:
        risk = f", {money(cap.at_risk)} more at risk" if cap.at_risk else ""
        held = f", {money(cap.held)} held for next calls" if cap.held else ""
        yield "cap", f"{money(cap.spent)} of {money(cap.max_cost)} spent{risk}{held}"


def _worker(worker: WorkerState) -> tuple[str | int, ...]:
    does: str = worker.doing
    if does == "working":
        does += f" on {several(worker.running, 'job')}"
    seen = f"{duration(worker.now - worker.seen)} ago"
    numbers = (worker.done, worker.calls, rate(worker.rate), worker.errors)
    return worker.shown, does, seen, *numbers, money(worker.spent / 1e9)
