"""What a run has come to: the engine's events folded into numbers, and these in words.

Knows no clock (`now` is handed in, in seconds from any start) and no terminal. More than 5,000 jobs
a second may pass through `Progress.fold`, so what each of them costs is a few additions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from judgeq.escaping import plain
from judgeq.events import (
    BatchesOpen,
    CallEnded,
    CallStarted,
    Certainty,
    EndedEarly,
    Event,
    JobEnded,
    Notice,
    PeopleHere,
    RoundRated,
    RoundStarted,
    RunStarted,
    Stopping,
)
from judgeq.judge.backend import DOUBT_SECONDS
from judgeq.text import count, local_time, several
from judgeq.types import Batch, Counts, Doubt, JobState, Totals
from judgeq.ui.sections import lines_of

WINDOW = 8.0
"""Seconds over which calls a second are counted."""
IN_A_ROW = 3  # calls without an answer that are worth a line

_REPLIED = ("ok", "unusable")
_DONE, _INVALID, _FAILED = JobState.DONE, JobState.INVALID, JobState.FAILED


@dataclass(slots=True)
class Progress:
    """A run as one session sees it: fold every event in, read anything at any time."""

    begun: RunStarted | None = None
    started: float | None = None  # when this session began
    working_since: float | None = None  # when its first round did
    rounds: int = 0

    # Jobs of the current round, and those that got an outcome in this session.
    round: int = 0
    total: int = 0
    done: int = 0
    invalid: int = 0
    failed: int = 0
    ended: int = 0

    # Calls of this session that left, and those that came back.
    sent: int = 0
    returned: int = 0
    # Calls, tokens and dollars of all sessions.
    calls: int = 0
    retries: int = 0
    unusable: int = 0
    cache_hits: int = 0
    skipped: int = 0  # by people
    input: int = 0
    cached: int = 0
    output: int = 0
    cost: float = 0.0
    unpriced: int = 0  # calls whose cost isn't known, and is not in `cost`
    uncounted: int = 0  # replies without their tokens
    failing: int = 0  # calls without an answer since the last that had one
    last_error: str = ""

    rated: RoundRated | None = None
    known: Certainty | None = None
    batches: Sequence[Batch] = ()
    next_look: float = 0.0  # when they are looked at again
    notices: list[Notice] = field(default_factory=list)  # until a face shows them
    stopping: bool = False
    here: int = 0  # people who have their page open

    _planned: dict[int, Counts] = field(default_factory=dict)  # by round; stale for the current
    _marks: deque[tuple[float, int]] = field(
        default_factory=deque
    )  # when there were how many calls

    def fold(self, event: Event, now: float) -> None:
        """Take one event in. Costs well under a microsecond for those that come by the thousand."""
        if type(event) is CallStarted:
            self.sent += 1
        elif type(event) is CallEnded:
            self._fold_call(event)
        elif type(event) is JobEnded:
            state = event.state
            self.done += state is _DONE
            self.invalid += state is _INVALID
            self.failed += state is _FAILED
            self.ended += state is not JobState.PENDING
        else:
            self._fold_rare(event, now)

    @property
    def totals(self) -> Totals:
        """What earlier sessions spent."""
        return Totals() if self.begun is None else self.begun.totals

    @property
    def people(self) -> bool:
        """Whether people are asked, and no model."""
        return self.begun is not None and self.begun.people

    @property
    def in_flight(self) -> int:
        """Calls that wait for their answer."""
        return max(0, self.sent - self.returned)

    @property
    def unanswered(self) -> bool:
        """Whether calls fail without an answer between them, be it the first ones."""
        return self.failing >= IN_A_ROW or 0 < self.failing == self.returned

    def of_round(self, round: int) -> Counts:
        """The jobs of a round by state; running ones are pending."""
        if round != self.round:
            return self._planned.get(round, Counts())
        left = max(0, self.total - self.done - self.invalid - self.failed)
        return Counts(left, 0, self.done, self.invalid, self.failed)

    @property
    def of_run(self) -> Counts:
        """The jobs of all rounds planned so far by state."""
        return sum(map(self.of_round, {*self._planned, self.round}), Counts())

    @property
    def expected(self) -> int:
        """Jobs of the whole run, if rounds to come have the sizes known beforehand, or else that of this
        one."""
        planned, sizes = max(self._planned, default=0), () if not self.begun else self.begun.sizes
        if len(sizes) != self.rounds:
            sizes = [self.total] * self.rounds
        return self.of_run.total + sum(sizes[planned:])

    @property
    def left(self) -> int:
        """Jobs of the whole run that have no outcome yet."""
        of_run = self.of_run
        return max(0, self.expected - of_run.done - of_run.invalid - of_run.failed)

    @property
    def finished(self) -> bool:
        """Whether the last round has been rated."""
        return self.rated is not None and self.rated.round >= self.rounds > 0

    def place(self, round: int) -> str:
        """Which of the rounds this is, in words."""
        return f"round {round}/{self.rounds}"

    def call_rate(self, now: float) -> float:
        """Calls a second over the last WINDOW, as far as this was asked then."""
        if not self._marks:
            return 0.0
        while len(self._marks) > 1 and self._marks[1][0] <= now - WINDOW:
            self._marks.popleft()
        since, calls = self._marks[0]
        self._marks.append((now, self.calls))
        return (self.calls - calls) / max(now - since, 1.0)

    def time_left(self, now: float) -> float | None:
        """Seconds to the end at this session's pace of finished jobs; None while it has none, and while
        batches or people are waited for, which have none."""
        if self.working_since is None or not self.ended or self.batches or self.people:
            return None
        return self.left * max(0.0, now - self.working_since) / self.ended

    def projected_cost(self) -> float | None:
        """Dollars for the whole run at this session's cost of a finished job; None if unknown."""
        if self.unpriced or not self.ended:
            return None
        return self.cost + (self.cost - self.totals.cost) / self.ended * self.left

    def take_notices(self) -> list[Notice]:
        """The notices that came since this was last asked, oldest first."""
        taken, self.notices = self.notices, []
        return taken

    def _fold_call(self, event: CallEnded) -> None:
        if event.cached:
            self.cache_hits += 1
            return
        outcome, usage = event.outcome, event.usage
        self.returned += 1
        self.calls += 1
        self.unusable += outcome == "unusable"
        self.skipped += outcome == "skipped"
        self.retries += outcome not in ("ok", "unusable", "skipped")
        if event.error is None:
            self.failing = 0
        else:
            self.failing += 1
            self.last_error = event.error
        self.input += usage.input
        self.cached += usage.cached
        self.output += usage.output
        if event.cost is None:
            self.unpriced += 1
            self.uncounted += outcome in _REPLIED and not any(usage)
        else:
            self.cost += event.cost

    def _fold_rare(self, event: Event, now: float) -> None:
        match event:
            case RunStarted(totals=totals):
                self.begun, self.started, self.rounds = event, now, event.rounds
                for name in ("calls", "retries", "unusable", "cost", "unpriced", "uncounted"):
                    setattr(self, name, getattr(totals, name))
                self.input, self.cached, self.output, _ = totals.usage
                self._planned = dict(enumerate(event.planned, start=1))
                self._marks.append((now, self.calls))
            case RoundStarted(round=round, counts=counts):
                if self.working_since is None:
                    self.working_since = now
                if self.round:
                    self._planned[self.round] = self.of_round(self.round)
                if self.round != round:
                    self.batches = ()
                self.round, self._planned[round], self.total = round, counts, counts.total
                self.done, self.invalid, self.failed = counts.done, counts.invalid, counts.failed
            case RoundRated(round=round):
                self.rated, self.known = event, event.known or self.known
                if round == self.round:
                    self.batches = ()
            case EndedEarly():
                self.rounds = event.rounds
            case PeopleHere():
                self.here = event.people
            case BatchesOpen():
                self.batches, self.next_look = event.batches, now + event.seconds
            case Notice():
                self.notices.append(event)
            case Stopping():
                self.stopping = True
            case _:
                pass


# In words

Part = tuple[str, str]
"""Words and their style."""
_IN_PICTURE = "none"
"""The style of what a dashboard shows, and a line doesn't."""


def figures(progress: Progress, now: float) -> Mapping[str, list[Part]]:
    """The numbers of this moment, by name."""
    rows: dict[str, list[Part]] = {}
    for name, style, text in lines_of(
        "progress",
        3,
        p=progress,
        now=now,
        left=progress.time_left(now),
        order=order(progress),
        states=sorted(set(map(batch_state, progress.batches))),
    ):
        rows.setdefault(name, []).append((text, style))
    return rows


def progress_line(progress: Progress, now: float) -> str:
    """How far the current round is, and the numbers of this moment."""
    place, what = ("", "answers") if progress.people else (progress.place(progress.round), "jobs")
    parts = [place, f"{count(progress.done)}/{count(progress.total)} {what}"]
    for figure in figures(progress, now).values():
        parts += [words for words, style in figure if style != _IN_PICTURE]
    return " · ".join(filter(None, parts))


def order(progress: Progress, round: int | None = None) -> list[str]:
    """How well the order is known, after this round if one is given."""
    known = progress.known
    if known is None or round not in (None, known.round):
        return []
    return reliability(known, people=progress.people)


def reliability(known: Certainty, *, people: bool = False) -> list[str]:
    """How well the order is known, and what one more round would bring and cost; `people`: they alone
    are asked."""
    return [text for (text,) in lines_of("reliability", k=known, people=people)]


DOUBTED = {
    Doubt.BATCH: "not found",
    Doubt.RESULTS: "results not found",
    Doubt.SHORT: "results incomplete",
}


def batch_state(batch: Batch) -> str:
    """Return the state of a batch, in a few words."""
    if batch.open and batch.doubt is not None:
        until = local_time((batch.doubted_since or 0.0) + DOUBT_SECONDS, "%H:%M")
        return f"{DOUBTED[batch.doubt]}, in doubt until {until}"
    return plain(batch.status, 40) or "being created" if batch.open else str(batch.state)


def stopping_line(progress: Progress) -> str:
    """That no new calls are made, and how many are still let finish."""
    if not progress.in_flight:
        return "stopped"
    return f"stopping: letting {several(progress.in_flight, 'call')} finish"


def notice_text(notice: Notice) -> str:
    """A notice on one line."""
    text = plain(notice.text, 1000)
    return f"warning: {text}" if notice.warning else text
