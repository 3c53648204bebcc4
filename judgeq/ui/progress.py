"""What a run has come to: the engine's events, folded into numbers that a face can show.

Knows no clock (`now` is handed in, in seconds from any start) and no terminal. More than 5,000 jobs
a second may pass through `Progress.fold`, so what each of them costs is a few additions; whatever
can be worked out from the numbers is worked out when somebody looks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from judgeq.events import (
    BatchesOpen,
    CallEnded,
    CallStarted,
    Certainty,
    EndedEarly,
    Event,
    JobEnded,
    JobStarted,
    Notice,
    PeopleHere,
    Placed,
    RoundRated,
    RoundStarted,
    RunStarted,
    Stopping,
)
from judgeq.types import Batch, Counts, JobState, Totals, Usage

SLOT = 0.5  # seconds between two marks; calls a second are looked at over the last SLOTS
SLOTS = 16
NOTICES = 100  # kept until a face takes them; a flood must not fill the memory
IN_A_ROW = 3  # calls without an answer that are worth a line

_REPLIED = ("ok", "unusable")
_DONE, _INVALID, _FAILED = JobState.DONE, JobState.INVALID, JobState.FAILED


@dataclass(slots=True)
class Progress:
    """A run as one session sees it: fold every event in, read anything at any time.

    `done`, `invalid`, `failed` and `total` are jobs of the current round; `of_run` adds the other
    rounds. Calls, tokens and cost are those of all sessions; `before` is what earlier ones had.
    This session's alone are the jobs `claimed`, of which `ended` got an outcome and `given_back`
    none, and the calls `sent`, of which `returned` have come back. `cost` is in dollars over the
    calls with a known cost; `unpriced` counts the others, and `uncounted` those that brought a reply
    without its tokens. `people` are asked, and no model: `here` of them have their page open; they
    `skipped` so many. `retries` are calls without a reply, `unusable` those whose reply was no verdict.
    Replies from the cache are `cache_hits`, not calls. `failing` counts the
    calls without an answer since the last that had one; `last_error` is why. `batches` are those waited
    for, which are looked at next at `next_look`.
    """

    run: str = ""
    judge: str = ""
    items: int = 0
    rounds: int = 0
    before: Totals = field(default_factory=Totals)
    started: float | None = None
    working_since: float | None = None

    round: int = 0
    total: int = 0
    done: int = 0
    invalid: int = 0
    failed: int = 0
    claimed: int = 0
    ended: int = 0
    given_back: int = 0

    sent: int = 0
    returned: int = 0
    calls: int = 0
    retries: int = 0
    unusable: int = 0
    failing: int = 0
    last_error: str = ""
    cache_hits: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0
    cost: float = 0.0
    unpriced: int = 0
    uncounted: int = 0

    rated: int = 0
    rated_at: float | None = None
    moved: float | None = None
    known: Certainty | None = None
    rating: str = "elo"
    top: Sequence[Placed] = ()
    bottom: Sequence[Placed] = ()

    batches: Sequence[Batch] = ()
    next_look: float = 0.0

    notices: deque[Notice] = field(default_factory=lambda: deque(maxlen=NOTICES))
    notices_lost: int = 0
    stopping: bool = False
    people: bool = False
    here: int = 0
    skipped: int = 0

    _sizes: Sequence[int] = ()
    _planned: dict[int, Counts] = field(default_factory=dict)  # by round; stale for the current
    _earlier: int = 0  # rounds that earlier sessions planned
    _marks: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=SLOTS + 2))
    _next_mark: float = float("-inf")

    def fold(self, event: Event, now: float) -> None:
        """Take one event in. Costs well under a microsecond for those that come by the thousand."""
        if type(event) is JobStarted:
            self.claimed += 1
        elif type(event) is CallStarted:
            self.sent += 1
        elif type(event) is CallEnded:
            if event.cached:
                self.cache_hits += 1
                return
            if now >= self._next_mark:
                self._mark(now)
            self.returned += 1
            self.calls += 1
            outcome, usage = event.outcome, event.usage
            if outcome == "unusable":
                self.unusable += 1
            elif outcome == "skipped":
                self.skipped += 1
            elif outcome != "ok":
                self.retries += 1
            if event.error is None:
                self.failing = 0
            else:
                self.failing += 1
                self.last_error = event.error
            self.input += usage.input
            self.cached += usage.cached
            self.output += usage.output
            self.reasoning += usage.reasoning
            cost = event.cost
            if cost is None:
                self.unpriced += 1
                self.uncounted += outcome in _REPLIED and not any(usage)
            else:
                self.cost += cost
        elif type(event) is JobEnded:
            state = event.state
            if state is _DONE:
                self.done += 1
            elif state is _INVALID:
                self.invalid += 1
            elif state is _FAILED:
                self.failed += 1
            else:
                self.given_back += 1
                return
            self.ended += 1
        else:
            self._fold_rare(event, now)

    @property
    def in_flight(self) -> int:
        """Calls that wait for their answer."""
        return max(0, self.sent - self.returned)

    @property
    def unanswered(self) -> bool:
        """Whether calls fail without an answer between them, be it the first ones."""
        return self.failing >= IN_A_ROW or 0 < self.failing == self.returned

    @property
    def of_round(self) -> Counts:
        """The jobs of the current round by state."""
        running = max(0, self.claimed - self.ended - self.given_back)
        pending = max(0, self.total - self.done - self.invalid - self.failed - running)
        return Counts(pending, running, self.done, self.invalid, self.failed)

    @property
    def of_run(self) -> Counts:
        """The jobs of all rounds planned so far by state."""
        others = (counts for round, counts in self._planned.items() if round != self.round)
        return sum(others, self.of_round)

    @property
    def of_rated(self) -> Counts:
        """The jobs of the round that was rated last, by state; the next one may have begun."""
        return (
            self.of_round if self.rated == self.round else self._planned.get(self.rated, Counts())
        )

    @property
    def resumed(self) -> bool:
        """Whether an earlier session had begun the run."""
        return bool(self._earlier)

    @property
    def expected(self) -> int:
        """Jobs of the whole run, if the rounds to come are the size of this one; or as large as was said
        beforehand."""
        planned = max(self._planned, default=0)
        coming = max(0, self.rounds - planned)
        if len(self._sizes) == self.rounds:
            return self.of_run.total + sum(self._sizes[planned:])
        return self.of_run.total + coming * self.total

    def place(self, round: int) -> str:
        """Which of the rounds this is, in words."""
        return f"round {round}/{self.rounds}"

    @property
    def left(self) -> int:
        """Jobs of the whole run that have no outcome yet."""
        of_run = self.of_run
        return max(0, self.expected - (of_run.total - of_run.left))

    @property
    def finished(self) -> bool:
        """Whether the last round has been rated."""
        return 0 < self.rounds <= self.rated

    def call_rate(self, now: float) -> float:
        """Calls a second over the last SLOTS · SLOT seconds; of a finished run, over all of it."""
        if self.finished and self.working_since is not None and self.rated_at is not None:
            calls = self.calls - self.before.calls
            return calls / max(self.rated_at - self.working_since, SLOT)
        earliest = now - SLOTS * SLOT
        while self._marks and self._marks[0][0] + SLOT <= earliest:
            self._marks.popleft()  # the calls after it are older, too
        if not self._marks:
            return 0.0
        since, calls = self._marks[0]
        since = min(since, max(earliest, self.started or since))
        return (self.calls - calls) / max(now - since, SLOT)

    def time_left(self, now: float) -> float | None:
        """Seconds to the end at this session's pace of finished jobs; None while it has none, and while
        batches or people are waited for, which have none."""
        waits = self.batches or self.people
        if self.working_since is None or not self.ended or waits:
            return None
        return self.left * max(0.0, now - self.working_since) / self.ended

    def projected_cost(self) -> float | None:
        """Dollars for the whole run at this session's cost of a finished job; None if unknown."""
        if self.unpriced or not self.ended:
            return None
        return self.cost + (self.cost - self.before.cost) / self.ended * self.left

    def take_notices(self) -> list[Notice]:
        """The notices that came since this was last asked, oldest first."""
        if not self.notices:
            return []
        taken = list(self.notices)
        self.notices.clear()
        if self.notices_lost:
            text = f"{self.notices_lost:,} earlier notices are not shown: too many came at once."
            taken.insert(0, Notice(text, warning=True))
            self.notices_lost = 0
        return taken

    def _fold_rare(self, event: Event, now: float) -> None:
        match event:
            case RunStarted():
                self._take(event, "run", "judge", "items", "rounds", "people")
                self._take(
                    event.totals, "calls", "retries", "cost", "unpriced", "unusable", "uncounted"
                )
                self._take(event.totals.usage, *Usage._fields)
                self.before, self.started, self._sizes = event.totals, now, event.sizes
                self._earlier = len(event.planned)
                self._planned = dict(enumerate(event.planned, start=1))
                self._mark(now)
            case RoundStarted():
                if self.working_since is None:
                    self.working_since = now
                if self.round:
                    self._planned[self.round] = self.of_round
                if self.round != event.round:
                    self.batches = ()
                self.round, self._planned[event.round] = event.round, event.counts
                self._take(event.counts, "total", "done", "invalid", "failed")
            case RoundRated():
                self._take(event, "moved", "rating", "top", "bottom")
                self.rated, self.rated_at = event.round, now
                if self.rated == self.round:
                    self.batches = ()
                self.known = event.known or self.known
            case EndedEarly():
                self.rounds = event.rounds
            case PeopleHere():
                self.here = event.people
            case BatchesOpen():
                self.batches, self.next_look = event.batches, now + event.seconds
            case Notice():
                self.notices_lost += len(self.notices) == NOTICES
                self.notices.append(event)
            case Stopping():
                self.stopping = True
            case _:
                pass

    def _take(self, of: object, *names: str) -> None:
        """Take over these fields."""
        for name in names:
            setattr(self, name, getattr(of, name))

    def _mark(self, now: float) -> None:
        """Note where the calls stand: a few marks in place of a queue of calls take no memory a call."""
        self._marks.append((now, self.calls))
        self._next_mark = now + SLOT
