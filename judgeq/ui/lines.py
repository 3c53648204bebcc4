"""What a run shows as lines while it goes: the numbers of its progress in words, and the faces for logs,
scripts, notebooks and workers. The dashboard shows the same words in a picture.

A face is called with every event and only folds it (progress.py); what costs, the drawing, is done by
`draw_forever`, a task next to the workers that takes little of the time. A terminal that goes away takes
the face with it, never the run.

Ids, texts, judge names and notices come from outside: all of them pass through `plain`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self, TypeAlias

from rich.cells import set_cell_size
from rich.console import Console

from judgeq.certainty import Certainty
from judgeq.escaping import plain
from judgeq.events import (
    BatchesOpen,
    CallEnded,
    Event,
    JobEnded,
    JobStarted,
    Notice,
    RoundRated,
    RunStarted,
    Stopping,
)
from judgeq.text import count, dotted, duration, log_lines, money, rate, several
from judgeq.types import Batch
from judgeq.ui.progress import Progress

if TYPE_CHECKING:
    from judgeq.engine.remote_worker import Tally

Clock: TypeAlias = Callable[[], float]
Part: TypeAlias = tuple[str, str]
"""Words and their style; what is "dim" isn't worth a word in a line."""

BAR, BAR_LINE = 20, 110
SELDOM = 1800.0  # seconds: a log of a day that is waited for batches stays short
NOTICE = 1000  # cells of a notice, at most

_FREQUENT = frozenset({JobStarted, CallEnded, JobEnded})
_OF_CALLS = ("jobs", "calls", "failing", "cost", "tokens")  # nothing where only people answer
_NOT_IN_LINES = ("tokens", "ranking", "order")
_TOTAL_FIRST = ("answers", "jobs", "calls", "time")
"""Figures that begin with a total, which a line leaves out."""


# The numbers in words


def figures(progress: Progress, now: float) -> dict[str, list[Part]]:
    """The numbers of this moment, by name."""
    clock = [(f"{duration(now - (progress.started or now))} so far", "")]
    left = progress.time_left(now)
    if left and not progress.stopping:
        clock.append((f"{duration(left)} left", ""))
    answered = progress.of_run.done
    rows: dict[str, list[Part]] = {
        "answers": [
            _amount(answered, "answer", "answers"),
            (f"{several(progress.here, 'person', 'people')} there", ""),
            _amount(progress.skipped, "skipped"),
            _amount(progress.invalid, "given up"),
        ],
        "jobs": [
            _amount(answered, "done"),
            _amount(progress.of_run.failed, "failed", style="bold red"),
            _amount(progress.of_run.invalid, "invalid", style="bold yellow"),
        ],
        "calls": [
            (count(progress.calls), ""),
            (f"{rate(progress.call_rate(now))} calls/s", ""),
            (several(progress.in_flight, "in flight", "in flight"), "dim"),
            _amount(progress.retries, "retry", "retries"),
            _amount(progress.cache_hits, "cache hit", "cache hits"),
            _amount(progress.unusable, "unusable reply", "unusable replies", "yellow"),
        ],
        "batches": [(_batches(progress, now), "")] if progress.batches else [],
        "failing": [(_failing(progress), "bold red")] if progress.unanswered else [],
        "cost": [(text, "yellow" if progress.unpriced else "") for text in _spent(progress)],
        "time": clock,
        "tokens": _tokens(progress),
        "ranking": [] if progress.moved is None else [(_moved(progress, progress.moved), "")],
        "order": []
        if progress.known is None
        else [(part, "") for part in reliability(progress.known, people=progress.people)],
    }
    absent = _OF_CALLS if progress.people else ("answers",)
    return {name: parts for name, parts in rows.items() if parts and name not in absent}


def _amount(n: int, one: str, more: str = "", style: str = "") -> Part:
    return several(n, one, more or one), style if n else "dim"


def progress_line(progress: Progress, now: float) -> str:
    """How far the current round is, and all numbers that aren't 0."""
    place, what = ("", "answers") if progress.people else (progress.place(progress.round), "jobs")
    parts = [place, f"{count(progress.done)}/{count(progress.total)} {what}"]
    for name, figure in figures(progress, now).items():
        if name not in _NOT_IN_LINES:
            shown = figure[name in _TOTAL_FIRST :]
            parts += [words for words, style in shown if style != "dim"]
    return " · ".join(filter(None, parts))


def start_line(progress: Progress) -> str:
    """What begins: the run, its judge and size, and what earlier sessions left."""
    state = "new run"
    if progress.resumed:
        counts = progress.of_run
        state = (
            f"resumed: {several(counts.done, 'job')} done, {count(counts.failed)} failed, "
            f"{count(counts.invalid)} invalid, {count(counts.left)} left"
        )
    extent = several(progress.rounds, "round")
    if progress.people:
        extent = several(progress.expected, "question")
    size = f"{several(progress.items, 'item')}, {extent}"
    return f"judgeq · {plain(progress.run, 200)} · {plain(progress.judge, 200)} · {size} · {state}"


def round_line(progress: Progress) -> str:
    """How a round ended."""
    known = progress.known
    if known is not None and known.round != progress.rated:
        known = None
    return dotted(
        (1, f"{progress.place(progress.rated)} rated"),
        (1, f"{count(progress.done)} done"),
        (progress.failed, f"{count(progress.failed)} failed"),
        (progress.invalid, f"{count(progress.invalid)} invalid"),
        (progress.moved is not None, _moved(progress, progress.moved or 0.0)),
        (known, "" if known is None else "; ".join(reliability(known, people=progress.people))),
    )


def _moved(progress: Progress, rho: float) -> str:
    """How much the last rated round changed the ranking."""
    return f"rank correlation with round {progress.rated - 1}: {rho:.2f}"


def reliability(known: Certainty, *, people: bool = False) -> list[str]:
    """How well the order is known, and what one more round would bring and cost; `people`: they alone
    are asked."""
    digits = 3 if f"{known.rho:.2f}" == f"{known.next_rho or 0:.2f}" else 2
    now = f"reliability {known.rho:.{digits}f}"
    now += " or less" if known.perhaps_less else ""
    now += "" if known.sigma is None else " (the judge hardly tells the texts apart)"
    if known.top_share is not None:
        now += f", {known.top_share:.0%} of the first {known.top} settled"
    if not known.next_calls or known.next_rho is None:
        return [now]
    questions = several(known.next_calls, "answer" if people else "call")
    price = "" if known.next_cost is None else f", about {money(known.next_cost, digits=1)}"
    brings = f"about {known.next_rho:.{digits}f}"
    if known.next_top_share is not None:
        brings += f", with {known.next_top_share:.0%} of the first {known.top} settled"
    return [now, f"one more round ({questions}{price}) would make it {brings}"]


def batch_state(batch: Batch) -> str:
    """The state of a batch, in a few words."""
    if batch.open:
        return plain(batch.status, 40) or "being created"
    return str(batch.state)


def _batches(progress: Progress, now: float) -> str:
    """The open batches, their answers so far, and when they are looked at next."""
    batches = progress.batches
    done, questions = sum(batch.done for batch in batches), sum(batch.jobs for batch in batches)
    states = ", ".join(sorted(set(map(batch_state, batches))))
    return (
        f"{several(len(batches), 'batch', 'batches')} out ({states}), {count(done)} of "
        f"{count(questions)} answered, next look in {duration(progress.next_look - now)}"
    )


def _failing(progress: Progress) -> str:
    """How many calls failed in a row, and why the last did."""
    error = plain(progress.last_error, 300)
    return f"{several(progress.failing, 'call')} in a row without an answer, the last: {error}"


def _spent(progress: Progress) -> list[str]:
    """What was spent, and what the run may come to; never $0 for an unknown cost."""
    if not progress.calls:
        return ["nothing spent yet"]
    if progress.unpriced:
        calls = several(progress.unpriced, "call")
        if not progress.cost:
            return [f"cost unknown ({calls})"]
        return [f"≥ {money(progress.cost)} so far (cost of {calls} unknown)"]
    parts = [f"{money(progress.cost)} so far"]
    projected = progress.projected_cost()
    if projected is not None and not progress.finished:
        parts.append(f"about {money(projected, digits=2)} in all")
    return parts


def _tokens(progress: Progress) -> list[Part]:
    """What was read and written, as far as replies reported it."""
    output = _amount(progress.output, "out")
    if progress.reasoning:
        output = (f"{output[0]} ({count(progress.reasoning)} reasoning)", "")
    parts = [_amount(progress.input, "in"), _amount(progress.cached, "cached"), output]
    if not progress.uncounted:
        return parts
    replies = several(progress.uncounted, "reply", "replies")
    unknown = (f"unknown for {replies} without usage", "yellow")
    return [*(part for part in parts if part[1] != "dim"), unknown]


def stopping_line(progress: Progress) -> str:
    """That no new calls are made, and how many are still let finish."""
    if not progress.in_flight:
        return "stopped"
    return f"stopping: letting {several(progress.in_flight, 'call')} finish"


def summary(tally: Tally) -> str:
    """What a worker did, on one line."""
    cost, unpriced = money(tally.cost), several(tally.unpriced, "call")
    if tally.unpriced:
        known = tally.unpriced < tally.calls
        cost = f"{cost} and {unpriced} of unknown cost" if known else "cost unknown"
    return dotted(
        (1, f"{several(tally.done, 'job')} done"),
        (tally.failed, f"{count(tally.failed)} failed"),
        (tally.invalid, f"{count(tally.invalid)} invalid"),
        (1, several(tally.calls, "call")),
        (tally.cached, several(tally.cached, "cache hit")),
        (1, cost),
    )


# Faces


class Face:
    """What shows a run: enter it, call it with every event, run `draw_forever` beside the work. This
    one folds the events and shows nothing."""

    every = 0.25
    """Seconds between two drawings."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self.progress = Progress()
        self._clock = clock

    def __call__(self, event: Event) -> None:
        """Take an event in; cheap."""
        self.progress.fold(event, self._clock())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.draw()

    def draw(self) -> None:
        """Show what there is to show now."""

    async def draw_forever(self) -> None:
        """Draw again and again until cancelled."""
        while True:
            self.draw()
            await asyncio.sleep(self.every)


class Quiet(Face):
    """Only warnings and what is needed to go on, as they come."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def __call__(self, event: Event) -> None:
        """Write the event if it is such a notice."""
        if isinstance(event, Notice) and (event.warning or event.needed):
            write(self._console, notice_text(event))


class PlainLines(Face):
    """A log of plain lines for where there is no terminal: no colour, no control codes. It is written
    also while nothing moves: a silent log looks like a dead run."""

    def __init__(
        self, console: Console, *, clock: Clock = time.monotonic, every: float = 5.0
    ) -> None:
        super().__init__(clock)
        self.every = min(every, 0.5)
        self._console = console
        self._between = every
        self._written = -math.inf  # when the last line about progress was
        self._batches: object = ()  # their state then

    def __call__(self, event: Event) -> None:
        """Fold the event; write a line for those that come once in a while."""
        now, progress = self._clock(), self.progress
        was_stopping = progress.stopping
        progress.fold(event, now)
        if type(event) in _FREQUENT:
            return
        match event:
            case RunStarted():
                self._write(start_line(progress), now)
            case RoundRated():
                self._write(round_line(progress), now)
            case BatchesOpen():
                state = tuple((one.name, one.status, one.done) for one in progress.batches)
                if state != self._batches or now - self._written >= SELDOM:
                    self._batches = state
                    self._write(progress_line(progress, now), now)
            case Stopping() if not was_stopping:
                self._write(stopping_line(progress), self._written)
            case _:
                pass

    def __exit__(self, *exc: object) -> None:
        write_notices(self._console, self.progress)
        if self.progress.rated < self.progress.round:  # cut short: how far it came
            self._write(progress_line(self.progress, self._clock()), self._clock())

    def draw(self) -> None:
        """Write the notices that came, and how far the run is, unless a line was written lately."""
        write_notices(self._console, self.progress)
        now = self._clock()
        moving = self.progress.round and not self.progress.batches
        if moving and now - self._written >= self._between:
            self._write(progress_line(self.progress, now), now)

    def _write(self, line: str, now: float) -> None:
        write_notices(self._console, self.progress)
        self._written = now
        write(self._console, line)


class ProgressBar(Face):
    """A bar on one line, written over itself, for scripts and notebooks; notices stand above it."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def __exit__(self, *exc: object) -> None:
        self.draw()
        if self.progress.round:
            write(self._console, "")

    def draw(self) -> None:
        """Write the notices that came, and the bar below them."""
        progress = self.progress
        if progress.notices and progress.round:
            write(self._console, f"\r{' ' * BAR_LINE}\r", end="")
        write_notices(self._console, progress)
        if progress.round:
            ended = progress.done + progress.invalid + progress.failed
            bar = ("█" * (BAR * ended // max(1, progress.total))).ljust(BAR, "░")
            line = f"{bar} {plain(progress_line(progress, self._clock()), BAR_LINE)}"
            write(self._console, f"\r{set_cell_size(line, BAR_LINE)}", end="")


class WorkerLines(Face):
    """The lines of a worker: notices as they come, and what it did now and then; `quiet` shows warnings
    alone."""

    every = 30.0

    def __init__(
        self, console: Console, tally: Tally, *, quiet: bool, clock: Clock = time.monotonic
    ) -> None:
        super().__init__(clock)
        self._console, self._tally, self._quiet = console, tally, quiet
        self._shown = (clock(), 0, 0)

    def __call__(self, event: Event) -> None:
        """Show what the user should know at once."""
        if isinstance(event, Notice) and (event.warning or not self._quiet):
            write(self._console, notice_text(event))
        elif isinstance(event, RunStarted) and not self._quiet:
            write(self._console, plain(f"working on {event.run} · {event.judge}", NOTICE))

    def draw(self) -> None:
        """Show what was done since the last line, if anything was."""
        now, ended, calls = self._clock(), self._tally.ended, self._tally.calls + self._tally.cached
        before, *shown = self._shown
        if not self._quiet and [ended, calls] != shown:
            speed = rate((calls - shown[1]) / max(now - before, 1e-9))
            self._shown = now, ended, calls
            write(self._console, f"{summary(self._tally)} · {speed} calls/s")


def notice_text(notice: Notice) -> str:
    """A notice on one line."""
    text = plain(notice.text, NOTICE)
    return f"warning: {text}" if notice.warning else text


def write_notices(console: Console, progress: Progress) -> None:
    """Write the notices that came."""
    for notice in progress.take_notices():
        write(console, notice_text(notice))


def write(console: Console, line: str, end: str = "\n") -> None:
    """Write a line, broken between words where it is longer than LINE, without rich, which would end the
    process at a closed pipe. A stream that can't be written to any longer is left alone."""
    if console.quiet:
        return
    text = log_lines(line) if end == "\n" else line
    try:
        console.file.write(f"{text}{end}")
        console.file.flush()
    except (OSError, ValueError):
        console.quiet = True
